//! ext4's own journal, in the format of jbd2: Linux and `e2fsck` replay it.
//!
//! A commit writes one transaction:
//!
//! 1. file data to its place; descriptors, copies of metadata, and revocations to the log;
//! 2. flush;
//! 3. the commit record;
//! 4. flush.
//!
//! A crash before the end of 4 may lose the transaction as a whole; the order of 2 and 3 makes sure
//! that there is no commit record without the rest. Metadata stays in memory until the *checkpoint*
//! writes it to its place, flushes, moves the start of the log behind it, and flushes again. Only
//! then may later transactions overwrite that part of the log.
//!
//! A *revocation* names a block that was metadata and is free: a replay must not write its copies
//! of this and earlier transactions, for the block may have data of a file by then.

mod commit;
mod format;
mod recovery;

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

pub(crate) use self::commit::{checkpoint, commit};
pub(crate) use self::recovery::{close, open};

use self::format::Head;
use crate::error::{Error, Result};

/// The least blocks of a journal: what jbd2 demands.
const SHORTEST: u32 = 1024;

/// Consecutive blocks of the journal on the disk.
#[derive(Clone, Copy, Debug)]
struct Run {
    logical: u32,
    physical: u64,
    length: u32,
}

/// The log. Positions are numbers of blocks of the journal's file.
pub(crate) struct Journal {
    runs: Vec<Run>,
    /// Blocks of the extent tree of the journal's file.
    nodes: BTreeSet<u64>,
    head: Head,
    superblock: Vec<u8>,
    /// Where the next transaction goes.
    next: u32,
    /// Blocks in use, from `head.start` to `next`.
    used: u32,
    /// The sequence number of the next transaction.
    sequence: u32,
    /// A commit began and did not end: its part of the log is of no use any more.
    interrupted: bool,
}

impl Journal {
    /// Stands for the journal while it is opened.
    pub fn absent() -> Journal {
        Journal {
            runs: Vec::new(),
            nodes: BTreeSet::new(),
            head: Head::absent(),
            superblock: Vec::new(),
            next: 0,
            used: 0,
            sequence: 0,
            interrupted: false,
        }
    }

    /// The blocks of the disk that are the journal's, as (first, length).
    pub fn blocks(&self) -> Vec<(u64, u64)> {
        let runs = self.runs.iter().map(|run| (run.physical, u64::from(run.length)));
        runs.chain(self.nodes.iter().map(|node| (*node, 1))).collect()
    }

    /// Blocks that transactions can have.
    pub fn capacity(&self) -> u32 {
        self.head.length - self.head.first
    }

    /// The block of the disk that has a block of the journal.
    fn physical(&self, logical: u32) -> Result<u64> {
        let after = self.runs.partition_point(|run| run.logical <= logical);
        let run = after.checked_sub(1).and_then(|at| self.runs.get(at));
        run.filter(|run| logical - run.logical < run.length)
            .map(|run| run.physical + u64::from(logical - run.logical))
            .ok_or(Error::Corrupt("blocks of the journal"))
    }

    /// The position `count` blocks behind `position`; the log is a ring.
    fn advance(&self, position: u32, count: u32) -> u32 {
        self.head.first + (position - self.head.first + count) % self.capacity()
    }
}
