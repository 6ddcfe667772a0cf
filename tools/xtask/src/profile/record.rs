//! The plugin's record: blocks of code, call paths, and how often each block was executed on each
//! path, at some moments and at the end.

use crate::error::{Failure, Outcome};

/// Code that was executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub address: u64,
    /// Where the emulator has it; the same for the same page of memory.
    pub memory: u64,
    pub bytes: Vec<u8>,
}

/// One frame of a call path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// The caller's path; its own number if it is a root.
    pub parent: usize,
    /// Where the callee returns to. For the frame of a trap, the address of the interrupted
    /// instruction plus 1.
    pub return_address: u64,
}

/// Executions of the first `instructions` instructions of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    pub node: usize,
    pub block: usize,
    pub instructions: u64,
    /// How often until each moment, and until the end.
    pub times: Vec<u64>,
}

/// A record.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Record {
    pub blocks: Vec<Block>,
    pub nodes: Vec<Node>,
    pub counts: Vec<Count>,
}

impl Record {
    /// Parses a whole record.
    pub fn parse(text: &str) -> Outcome<Self> {
        let mut lines = text.lines();
        if lines.next() != Some("cops-profile 1") {
            return Err(Failure::new("this is no record of the profiler"));
        }
        let mut record = Self::default();
        let mut is_whole = false;
        for line in lines {
            let mut words = line.split(' ');
            let read = match words.next() {
                Some("block") => block(words).map(|block| record.blocks.push(block)),
                Some("node") => node(words).map(|node| record.nodes.push(node)),
                Some("count") => count(words).map(|count| record.counts.push(count)),
                Some("end") => {
                    is_whole = true;
                    Some(())
                }
                _ => None,
            };
            read.ok_or_else(|| Failure::new(format!("the profiler's record has a line {line:?}")))?;
        }
        let is_consistent = record
            .counts
            .iter()
            .all(|count| count.node < record.nodes.len() && count.block < record.blocks.len())
            && record.nodes.iter().enumerate().all(|(number, node)| node.parent <= number);
        if is_whole && is_consistent {
            Ok(record)
        } else {
            Err(Failure::new("the profiler's record is incomplete: the machine was killed"))
        }
    }

    /// Number of moments before the end.
    pub fn moments(&self) -> usize {
        self.counts.iter().map(|count| count.times.len()).max().unwrap_or(1) - 1
    }

    /// The number of a path and all paths that it continues, without the root.
    pub fn path(&self, mut node: usize) -> Vec<Node> {
        let mut path = Vec::new();
        while self.nodes[node].parent != node {
            path.push(self.nodes[node]);
            node = self.nodes[node].parent;
        }
        path.reverse();
        path
    }
}

fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word, 16).ok()
}

fn block<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Block> {
    let (address, memory) = (hexadecimal(words.next()?)?, hexadecimal(words.next()?)?);
    let digits = words.next()?;
    let byte = |at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes = (0..digits.len()).step_by(2).map(byte).collect::<Option<_>>()?;
    words.next().is_none().then_some(Block { address, memory, bytes })
}

fn node<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Node> {
    let (parent, return_address) = (words.next()?.parse().ok()?, hexadecimal(words.next()?)?);
    words.next().is_none().then_some(Node { parent, return_address })
}

fn count<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Count> {
    Some(Count {
        node: words.next()?.parse().ok()?,
        block: words.next()?.parse().ok()?,
        instructions: words.next()?.parse().ok()?,
        times: words.map(|word| word.parse().ok()).collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "cops-profile 1\nblock 2000a 7f00 1301\nnode 0 0\nnode 0 20010\nnode 1 30001\n\
                        count 2 0 1 5 9\nend\n";

    #[test]
    fn a_record_is_read() {
        let record = Record::parse(TEXT).unwrap();
        assert_eq!(
            record.blocks,
            [Block { address: 0x2000a, memory: 0x7f00, bytes: vec![0x13, 1] }]
        );
        assert_eq!(record.counts[0].times, [5, 9]);
        assert_eq!(record.moments(), 1);
        let returns: Vec<_> = record.path(2).iter().map(|node| node.return_address).collect();
        assert_eq!(returns, [0x20010, 0x30001]);
    }

    #[test]
    fn damaged_records_are_refused() {
        for (from, to) in [
            ("cops-profile 1", "cops-profile 2"),
            ("end\n", ""),
            ("count 2", "count 3"),
            ("node 0 20010", "node 2 20010"),
            ("1301", "13 01x"),
            ("5 9", "5 x"),
        ] {
            assert!(Record::parse(&TEXT.replace(from, to)).is_err(), "{to}");
        }
    }
}
