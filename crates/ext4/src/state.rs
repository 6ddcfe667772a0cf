//! The block cache, and which of its blocks are on the way to the disk.
//!
//! ```text
//!                 snapshot()            committed()           checkpointed()
//! metadata: running -------> in_flight -----------> committed -------------> clean
//! data:     dirty   -------> in_flight -----------> clean
//! ```
//!
//! - *running*: changed since the last commit began. Only in memory.
//! - *in flight*: a commit is writing it: data to its place, metadata to the journal.
//! - *committed*: in the journal, and not yet in its place. The checkpoint writes it there.
//!
//! A block may be in several of these states with different contents, because content never changes
//! (`Block`). The newest is the one that [`State::find`] returns. Clean blocks in `entries` can
//! be evicted; one that is also in flight or committed is found there afterwards.
//!
//! Blocks that were freed are not allocated again before the transaction that freed them is
//! committed. Otherwise a crash could leave new data in a file that still exists on the disk.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use crate::block::Block;
use crate::inode::Time;

/// How an entry of the cache differs from the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Clean,
    /// Data of a file: is written to its place by the next commit, before its commit record.
    Data,
    /// Is written to the journal by the next commit.
    Metadata,
}

struct Entry {
    block: Block,
    status: Status,
    /// Was found since the clock hand passed.
    recent: bool,
}

/// Blocks that an operation freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Freed {
    pub start: u64,
    pub length: u32,
    /// They may be in the journal, so that a replay must not write them.
    pub metadata: bool,
}

/// What one commit writes.
#[derive(Default)]
pub(crate) struct Transaction {
    pub data: BTreeMap<u64, Block>,
    pub metadata: BTreeMap<u64, Block>,
    pub revoked: BTreeSet<u64>,
    freed: BTreeMap<u64, u32>,
}

impl Transaction {
    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.metadata.is_empty() && self.revoked.is_empty()
    }
}

/// How much may be in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Blocks in `entries`.
    pub entries: usize,
    /// Changed metadata blocks at which a commit is due.
    pub metadata: usize,
    /// Changed data blocks at which a commit is due.
    pub data: usize,
    /// Committed blocks at which a checkpoint is due.
    pub committed: usize,
}

/// Removes what is in a range, in as many steps as there are entries in it.
pub(crate) fn remove_range<V>(map: &mut BTreeMap<u64, V>, range: Range<u64>) {
    while let Some((&number, _)) = map.range(range.clone()).next() {
        map.remove(&number);
    }
}

/// The same, of a set.
fn take_range(set: &mut BTreeSet<u64>, range: Range<u64>) {
    while let Some(&number) = set.range(range.clone()).next() {
        set.remove(&number);
    }
}

pub(crate) struct State {
    entries: BTreeMap<u64, Entry>,
    hand: u64,
    data: BTreeSet<u64>,
    metadata: BTreeSet<u64>,
    revoked: BTreeSet<u64>,
    freed: BTreeMap<u64, u32>,
    in_flight: Transaction,
    committed: BTreeMap<u64, Block>,
    /// Inodes that callers hold, with the number of references.
    pub held: BTreeMap<u32, u32>,
    /// Inodes in the list that begins in the superblock, each with the one before it; 0 for the
    /// first one. The list has one direction, and an inode may leave it at any place.
    pub orphans: BTreeMap<u32, u32>,
    /// Those of the list that are being deleted or truncated, with the time at which that began.
    /// An error, or the drop of the future that does it, leaves one here. An inode that leaves the
    /// list is not here any more; one without a name that is held stays in the list after its
    /// truncation ([`State::has_shortened`]).
    pub unfinished: BTreeMap<u32, Time>,
    /// Changes that were published.
    pub published: u64,
    limits: Limits,
}

impl State {
    pub fn new(limits: Limits) -> State {
        State {
            entries: BTreeMap::new(),
            hand: 0,
            data: BTreeSet::new(),
            metadata: BTreeSet::new(),
            revoked: BTreeSet::new(),
            freed: BTreeMap::new(),
            in_flight: Transaction::default(),
            committed: BTreeMap::new(),
            held: BTreeMap::new(),
            orphans: BTreeMap::new(),
            unfinished: BTreeMap::new(),
            published: 0,
            limits,
        }
    }

    /// The newest content of a block, if it is in memory.
    pub fn find(&mut self, number: u64) -> Option<Block> {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.recent = true;
            return Some(entry.block.clone());
        }
        let flight = &self.in_flight;
        let found = flight.metadata.get(&number).or_else(|| flight.data.get(&number));
        found.or_else(|| self.committed.get(&number)).cloned()
    }

    /// Adds a block that was just read from the disk.
    pub fn add_clean(&mut self, number: u64, block: Block) {
        if self.find(number).is_none() {
            self.make_room();
            self.entries.insert(number, Entry { block, status: Status::Clean, recent: false });
        }
    }

    /// Evicts clean blocks until there is room for one more: the clock algorithm. Changed blocks
    /// stay; their number has a limit of its own.
    fn make_room(&mut self) {
        while self.entries.len() >= self.limits.entries {
            let mut victim = None;
            for _ in 0..2 {
                for (number, entry) in self.entries.range_mut(self.hand..) {
                    if entry.status != Status::Clean {
                        continue;
                    }
                    if !entry.recent {
                        victim = Some(*number);
                        break;
                    }
                    entry.recent = false;
                }
                if victim.is_some() {
                    break;
                }
                self.hand = 0;
            }
            let Some(number) = victim else { return };
            self.entries.remove(&number);
            self.hand = number + 1;
        }
    }

    /// An inode without a name has no blocks behind its end any more. If nothing holds it now, it
    /// remains to be deleted.
    pub fn has_shortened(&mut self, inode: u32) {
        if self.held.contains_key(&inode) {
            self.unfinished.remove(&inode);
        }
    }

    /// Makes the changes of an operation visible, all at once.
    pub fn publish(
        &mut self,
        blocks: BTreeMap<u64, (Block, Status)>,
        freed: &[Freed],
        orphans: BTreeMap<u32, Option<u32>>,
    ) {
        self.published += 1;
        for (inode, before) in orphans {
            match before {
                Some(before) => _ = self.orphans.insert(inode, before),
                None => {
                    self.orphans.remove(&inode);
                    self.unfinished.remove(&inode);
                }
            }
        }
        for (number, (block, status)) in blocks {
            self.make_room();
            self.note(number, status);
            self.entries.insert(number, Entry { block, status, recent: true });
        }
        for freed in freed {
            self.freed.insert(freed.start, freed.length);
            let blocks = freed.start..freed.start + u64::from(freed.length);
            remove_range(&mut self.entries, blocks.clone());
            take_range(&mut self.data, blocks.clone());
            take_range(&mut self.metadata, blocks.clone());
            if freed.metadata {
                self.revoked.extend(blocks);
            }
        }
    }

    fn note(&mut self, number: u64, status: Status) {
        self.data.remove(&number);
        self.metadata.remove(&number);
        match status {
            Status::Clean => false,
            Status::Data => self.data.insert(number),
            Status::Metadata => self.metadata.insert(number),
        };
    }

    /// Whether so much has changed that a commit has to come before the next operation. What is in
    /// flight counts, so that a device that fails, or is slow, does not make the cache grow.
    pub fn commit_is_due(&self) -> bool {
        let flight = &self.in_flight;
        let metadata = self.metadata.len() + self.revoked.len();
        self.data.len() + flight.data.len() >= self.limits.data
            || metadata + flight.metadata.len() + flight.revoked.len() >= self.limits.metadata
    }

    pub fn checkpoint_is_due(&self) -> bool {
        self.committed.len() >= self.limits.committed
    }

    /// Whether one of `count` blocks of files from `first` on is not in its place on the disk as it
    /// was written last, or is about to be written there.
    pub fn is_in_memory_only(&self, first: u64, count: u64) -> bool {
        let blocks = first..first + count;
        let flight = &self.in_flight;
        self.data.range(blocks.clone()).next().is_some()
            || flight.data.range(blocks.clone()).next().is_some()
            // A block that was metadata before.
            || self.metadata.range(blocks.clone()).next().is_some()
            || flight.metadata.range(blocks.clone()).next().is_some()
            || self.committed.range(blocks).next().is_some()
    }

    /// Whether a commit would make freed blocks available.
    pub fn has_freed(&self) -> bool {
        !self.freed.is_empty() || !self.in_flight.freed.is_empty()
    }

    /// The blocks from `start` on that must not be allocated yet, as (first, length).
    pub fn freed_in(&self, start: u64, length: u64) -> Vec<(u64, u32)> {
        let end = start + length;
        let both = [&self.freed, &self.in_flight.freed];
        let overlapping = |map: &BTreeMap<u64, u32>| -> Vec<(u64, u32)> {
            map.range(..end)
                .rev()
                // A range lies in one group, so one that begins before this group ends before it.
                .take_while(|(first, _)| **first >= start)
                .map(|(first, count)| (*first, *count))
                .collect()
        };
        both.into_iter().flat_map(overlapping).collect()
    }

    /// Begins a commit: what has changed is in flight from now on. What an interrupted commit left
    /// in flight is part of it again, where no newer content replaces it.
    pub fn snapshot(&mut self) {
        let content = |entries: &mut BTreeMap<u64, Entry>, number: &u64| {
            let entry = entries.get_mut(number)?;
            entry.status = Status::Clean;
            Some(entry.block.clone())
        };
        for number in core::mem::take(&mut self.data) {
            self.in_flight.metadata.remove(&number);
            if let Some(block) = content(&mut self.entries, &number) {
                self.in_flight.data.insert(number, block);
            }
        }
        for number in core::mem::take(&mut self.metadata) {
            self.in_flight.data.remove(&number);
            if let Some(block) = content(&mut self.entries, &number) {
                self.in_flight.metadata.insert(number, block);
            }
        }
        for (start, length) in core::mem::take(&mut self.freed) {
            self.in_flight.freed.insert(start, length);
        }
        let revoked = core::mem::take(&mut self.revoked);
        self.in_flight.revoked.extend(revoked);
        // Only after an interrupted commit: what it left in flight may have been freed since.
        let flight = &mut self.in_flight;
        for (start, length) in &flight.freed {
            let blocks = *start..*start + u64::from(*length);
            remove_range(&mut flight.data, blocks.clone());
            remove_range(&mut flight.metadata, blocks);
        }
    }

    /// What is in flight.
    pub fn in_flight(&self) -> &Transaction {
        &self.in_flight
    }

    /// Ends a commit: its metadata is in the journal, its data in its place.
    pub fn committed(&mut self) {
        let flight = core::mem::take(&mut self.in_flight);
        for (start, length) in flight.freed {
            remove_range(&mut self.committed, start..start + u64::from(length));
        }
        self.committed.extend(flight.metadata);
    }

    /// The blocks that a checkpoint writes, in ascending order.
    pub fn to_checkpoint(&self) -> Vec<(u64, Block)> {
        self.committed.iter().map(|(number, block)| (*number, block.clone())).collect()
    }

    /// Ends a checkpoint. No commit ran in between.
    pub fn checkpointed(&mut self) {
        self.committed.clear();
    }

    /// Blocks in memory, all states together; for the test of the bound.
    pub fn blocks_in_memory(&self) -> usize {
        let flight = &self.in_flight;
        self.entries.len() + flight.data.len() + flight.metadata.len() + self.committed.len()
    }
}
