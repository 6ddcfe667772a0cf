//! Any bytes are a history: what a fuzzer wants.
//!
//! No byte is wasted and none is a length, so that a small change of the bytes is a small change of
//! the history.

use super::{History, Operation, Script, Step};

/// Enough for every interleaving of interest, and for a thousand histories a second.
const STEPS: usize = 400;

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn whom(&mut self) -> usize {
        self.next() as usize
    }

    /// Few levels, so that coroutines meet, the first and the last among them; others, so that all
    /// are used.
    fn priority(&mut self) -> u8 {
        match self.next() {
            few @ 0..192 => [0, 30, 31, 63][few as usize % 4],
            any => any & 63,
        }
    }

    fn operation(&mut self) -> Operation {
        match self.next() % 16 {
            0 | 1 => Operation::Spawn { priority: self.priority() },
            2 => Operation::SpawnBlocked { priority: self.priority() },
            3..7 => Operation::Wake { whom: self.whom() },
            7 => Operation::Cancel { whom: self.whom() },
            8..11 => Operation::SetPriority { whom: self.whom(), priority: self.priority() },
            11 | 12 => Operation::WakeSelf,
            13 => Operation::RunInside { worker: self.whom(), polls: self.next() as u64 % 4 },
            14 => Operation::Park { worker: self.whom() },
            _ if self.next() & 1 == 0 => Operation::CancelSelf,
            _ => Operation::Stop,
        }
    }

    fn script(&mut self) -> Script {
        let form = self.next();
        let operations = (0..form % 4).map(|_| self.operation()).collect();
        Script { operations, ready: form >= 224 }
    }

    fn step(&mut self) -> Step {
        let form = self.next();
        if !form.is_multiple_of(3) {
            return Step::Outside(self.operation());
        }
        let polls = form as u64 / 3 % 8;
        Step::Run {
            worker: self.whom(),
            polls,
            scripts: (0..polls).map(|_| self.script()).collect(),
        }
    }
}

pub fn history_of(bytes: &[u8]) -> History {
    let mut bytes = Bytes(bytes);
    let workers = 1 + bytes.next() as usize % 4;
    let mut steps = Vec::new();
    while !bytes.0.is_empty() && steps.len() < STEPS {
        steps.push(bytes.step());
    }
    History { workers, steps }
}
