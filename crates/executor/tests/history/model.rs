//! What both models say of a coroutine, whatever the order.

/// Where a coroutine is; with the numbers that the core has for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// It has exited.
    Free,
    Blocked = cops_executor::core::Phase::Blocked as isize,
    Ready = cops_executor::core::Phase::Ready as isize,
    Running = cops_executor::core::Phase::Running as isize,
}

#[derive(Clone, Debug)]
pub struct Modelled {
    pub id: u64,
    pub phase: Phase,
    pub priority: u8,
    /// Running, and to be ready again.
    pub woken: bool,
    pub cancelled: bool,
}

impl Modelled {
    pub fn new(id: u64, priority: u8) -> Modelled {
        Modelled { id, phase: Phase::Blocked, priority, woken: false, cancelled: false }
    }
}

/// A reference for the order of polls. `here`: the worker in a poll of which it happens.
pub trait Model {
    fn all(&self) -> &[Modelled];
    fn one(&mut self, key: usize) -> &mut Modelled;
    /// A new one, blocked.
    fn add(&mut self, id: u64, priority: u8);
    /// From blocked to ready. `directly`: by a wake or spawn, which may take the short way inside.
    fn make_ready(&mut self, key: usize, directly: bool, here: Option<usize>);
    /// A ready one has another priority than before.
    fn moved(&mut self, key: usize);
    /// Worker `worker` polls, or drops, `key` next: is that right? It is running from now on.
    fn begin(&mut self, key: usize, worker: usize);
    /// The poll of `key` was pending.
    fn pause(&mut self, key: usize);
    /// Its future was dropped.
    fn end(&mut self, key: usize) {
        self.one(key).phase = Phase::Free;
    }
    /// A `run` ended; `stalled`: since nothing is ready. Is that right?
    fn finish_run(&mut self, stalled: bool);
    /// The levels at which anything waits.
    fn bitmap(&self) -> u64;

    fn spawn(&mut self, id: u64, priority: u8, blocked: bool, here: Option<usize>) {
        self.add(id, priority);
        if !blocked {
            self.make_ready(self.all().len() - 1, true, here);
        }
    }

    fn wake(&mut self, key: usize, here: Option<usize>) -> bool {
        self.wake_or_cancel(key, true, here)
    }

    fn cancel(&mut self, key: usize, here: Option<usize>) -> bool {
        let one = self.one(key);
        one.cancelled |= one.phase != Phase::Free;
        self.wake_or_cancel(key, false, here)
    }

    fn wake_or_cancel(&mut self, key: usize, directly: bool, here: Option<usize>) -> bool {
        let one = self.one(key);
        match one.phase {
            Phase::Free => return false,
            Phase::Running => one.woken = true,
            Phase::Ready => {}
            Phase::Blocked => {
                one.phase = Phase::Ready;
                self.make_ready(key, directly, here);
            }
        }
        true
    }

    fn set_priority(&mut self, key: usize, priority: u8) -> bool {
        let one = self.one(key);
        if one.phase == Phase::Free {
            return false;
        }
        let changed = std::mem::replace(&mut one.priority, priority) != priority;
        if one.phase == Phase::Ready && changed {
            self.moved(key);
        }
        true
    }
}
