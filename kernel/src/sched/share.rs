//! Each process's place in the tree of shares, behind one lock (decision 10). The tree and its
//! arithmetic are in `cops_algorithms::shares`.
//!
//! A process keeps its divisor until the tree changes. The lock is taken when a process begins or
//! is freed, and by the first query after that; it may be taken with the run queue's lock held.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use cops_algorithms::shares::ShareTree;
use cops_fallible::OutOfMemory;
use cops_lock::Mutex;

use super::ProcessId;

static TREE: Mutex<ShareTree> = Mutex::new(ShareTree::new());

/// Counts the changes of the tree. Changed under its lock.
static VERSION: AtomicU32 = AtomicU32::new(1);

/// A process's place in the tree; dropping it removes the process.
#[derive(Debug)]
pub struct Share {
    process: ProcessId,
    /// Version of the tree << 32 | the divisor in that version.
    known: AtomicU64,
}

impl Share {
    /// A part of the share of `parent` (0: of everything) for `process`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(process: ProcessId, parent: ProcessId) -> Result<Self, OutOfMemory> {
        let mut tree = TREE.lock();
        tree.add(process, parent)?;
        VERSION.fetch_add(1, Release);
        Ok(Self { process, known: AtomicU64::new(0) })
    }

    /// The process.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// The factor for its running time. At least 1.
    pub fn divisor(&self) -> u32 {
        let known = self.known.load(Relaxed);
        if (known >> 32) as u32 == VERSION.load(Acquire) {
            return known as u32;
        }
        self.divisor_by_tree()
    }

    /// The tree has changed since it was last asked. Apart: the caller saves no registers for it.
    #[cold]
    #[inline(never)]
    fn divisor_by_tree(&self) -> u32 {
        let tree = TREE.lock();
        let divisor = tree.divisor(self.process);
        self.known.store(u64::from(VERSION.load(Relaxed)) << 32 | u64::from(divisor), Relaxed);
        divisor
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut tree = TREE.lock();
        tree.end(self.process);
        VERSION.fetch_add(1, Release);
    }
}
