//! Locks of files: the table of all of them, its charges, and the calls that wait (decision 42).
//!
//! `cops_algorithms::file_locks` decides. Each operation is a step under one lock, which is held
//! for a bounded time. An owner of ranges pays for them: the family of the process that has made it
//! an owner. What a change leaves is freed by the sweeper.
//!
//! Lock order: this table, then quotas. A queue is woken
//! without the lock of the table.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_algorithms::file_locks::{
    self as algorithm, FileLocks, GROWTH_BYTES, Gone, RANGE_BYTES, Refused, RemainsList,
};
use cops_fallible::{OutOfMemory, try_arc};
use cops_lock::{Mutex, MutexGuard};

pub use cops_algorithms::file_locks::{Conflict, Kind, Owner, Range, WAIT_BYTES};

use super::contents::SWEEPER;
use super::file::File;
use crate::mm::quota::{self, Family};
use crate::sched::WaitQueue;

static LOCKS: Mutex<FileLocks<Arc<WaitQueue>>> = Mutex::new(FileLocks::new());

/// What has to be freed.
static SWEPT: Mutex<RemainsList> = Mutex::new(RemainsList::new());

/// The lock of a range of a file, by an owner.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    file: algorithm::File,
    /// The owner.
    pub owner: Owner,
    /// The range.
    pub range: Range,
}

impl Lock {
    /// That of the whole of `file`, for the open file itself (`flock`).
    ///
    /// # Errors
    /// `EINVAL` if it is not in a file system.
    pub fn whole(file: &File) -> Result<Self, Errno> {
        let identity = file.node()?.identity();
        let owner = Owner::OpenFile(file.number);
        Ok(Self { file: algorithm::File { is_whole: true, identity }, owner, range: Range::ALL })
    }

    /// That of a range of `file` (`fcntl`).
    ///
    /// # Errors
    /// `EINVAL` if it is not in a file system.
    pub fn of_range(file: &File, owner: Owner, range: Range) -> Result<Self, Errno> {
        let identity = file.node()?.identity();
        Ok(Self { file: algorithm::File { is_whole: false, identity }, owner, range })
    }

    /// Whether it is of the whole file.
    pub fn is_whole(&self) -> bool {
        self.file.is_whole
    }

    /// Takes the lock, in the place of what the owner has there. `payer` pays, if the owner has
    /// nothing of this file yet. Returns what is in the way; then the owner has what it had.
    ///
    /// # Errors
    /// `ENOLCK` if there is no room, or no memory within the quota.
    pub fn set(&self, kind: Kind, payer: Family) -> Result<Option<Conflict>, Errno> {
        let mut locks = LOCKS.lock();
        let (payer, before) = locks.charged(self.file, self.owner).unwrap_or((payer, 0));
        quota::charge_memory(payer, GROWTH_BYTES).map_err(|_| Errno::ENOLCK)?;
        let result = locks.set(self.file, (self.owner, payer), kind, self.range);
        let gone = self.settle(locks, (payer, before + GROWTH_BYTES), result);
        match gone {
            Ok(()) => Ok(None),
            Err(Refused::Conflict(conflict)) => Ok(Some(conflict)),
            Err(Refused::Full | Refused::NoMemory) => Err(Errno::ENOLCK),
        }
    }

    /// Takes the range from its owner.
    ///
    /// # Errors
    /// `ENOLCK` if a range becomes two, and there is no room or no memory within the quota; or if
    /// the memory of the machine is used up, and many ranges go and many stay.
    pub fn unset(&self) -> Result<(), Errno> {
        let mut locks = LOCKS.lock();
        let Some((payer, before)) = locks.charged(self.file, self.owner) else { return Ok(()) };
        let is_split = locks.is_split_by(self.file, self.owner, self.range);
        let more = if is_split { RANGE_BYTES } else { 0 };
        if is_split {
            quota::charge_memory(payer, more).map_err(|_| Errno::ENOLCK)?;
        }
        let result = locks.unset(self.file, self.owner, self.range);
        let result = self.settle(locks, (payer, before + more), result);
        result.map_err(|_| Errno::ENOLCK)
    }

    /// Takes everything of the file from the owner.
    fn release(&self) {
        let mut locks = LOCKS.lock();
        let Some(charged) = locks.charged(self.file, self.owner) else { return };
        let gone = locks.release(self.file, self.owner);
        // It does not fail.
        let _ = self.settle(locks, charged, Ok(gone));
    }

    /// After a change: releases what is charged in vain, wakes the calls that may go on, and frees
    /// what is gone.
    fn settle(
        &self,
        locks: MutexGuard<'_, FileLocks<Arc<WaitQueue>>>,
        (payer, charged): (Family, u64),
        result: Result<Gone, Refused>,
    ) -> Result<(), Refused> {
        let now = locks.charged(self.file, self.owner).map_or(0, |(_, bytes)| bytes);
        let gone = match &result {
            Ok(gone) => gone.bytes(),
            Err(_) => 0,
        };
        quota::release_memory(payer, charged.saturating_sub(now + gone));
        let gone = result?;
        let queue = if gone.must_wake { locks.queue(self.file).cloned() } else { None };
        drop(locks);
        if let Some(queue) = queue {
            queue.wake_all();
        }
        if let Some(remains) = gone.remains {
            SWEPT.lock().push(remains);
            SWEEPER.wake();
        }
        Ok(())
    }

    /// Gives up a lock of the other kind, so that a pair of owners that both want to change what
    /// they share do not wait for each other (`flock`).
    pub fn give_up_other(&self, kind: Kind) {
        let other = match kind {
            Kind::Shared => Kind::Exclusive,
            Kind::Exclusive => Kind::Shared,
        };
        if LOCKS.lock().has(self.file, self.owner, other) {
            self.release();
        }
    }

    /// A range of another owner that forbids this lock.
    pub fn conflict(&self, kind: Kind) -> Option<Conflict> {
        LOCKS.lock().conflict(self.file, self.owner, kind, self.range)
    }

    /// A call waits for this lock. Returns its queue, of which the call is to be a waiter before it
    /// attempts again.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn join_queue(&self) -> Result<Arc<WaitQueue>, OutOfMemory> {
        LOCKS.lock().join_queue(self.file, || try_arc(WaitQueue::new()))
    }

    /// The call does not wait any more.
    pub fn leave_queue(&self) {
        LOCKS.lock().leave_queue(self.file);
    }

    /// Wait `wait` of a process is for this lock, in the way of which `blocker` was a moment ago.
    ///
    /// # Errors
    /// `EDEADLK` if the process would wait for itself, `ENOLCK` if there is no memory.
    pub fn wait(&self, wait: (u32, u64), kind: Kind, blocker: Owner) -> Result<(), Errno> {
        let waits = LOCKS.lock().wait(wait, self.file, (kind, self.range), blocker);
        match waits {
            Ok(false) => Ok(()),
            Ok(true) => Err(Errno::EDEADLK),
            Err(OutOfMemory) => Err(Errno::ENOLCK),
        }
    }
}

/// Wait `wait` of a process is over.
pub fn end_wait(wait: (u32, u64)) {
    LOCKS.lock().end_wait(wait);
}

/// `process` has closed a descriptor of `file`: it has no locks of ranges of that file any more.
pub fn release_of_process(file: &File, process: u32) {
    if let Ok(lock) = Lock::of_range(file, Owner::Process(process), Range::ALL) {
        lock.release();
    }
}

/// `file` is closed: its locks of both kinds are gone.
pub fn release_of_file(file: &File) {
    if let Ok(lock) = Lock::whole(file) {
        lock.release();
    }
    if let Ok(lock) = Lock::of_range(file, Owner::OpenFile(file.number), Range::ALL) {
        lock.release();
    }
}

/// Frees some of what is gone; returns whether there is more. For the sweeper.
pub fn sweep_some() -> bool {
    let Some(mut remains) = SWEPT.lock().pop() else { return false };
    let (bytes, has_more) = remains.free_some();
    quota::release_memory(remains.payer(), bytes);
    let mut swept = SWEPT.lock();
    if has_more {
        swept.push(remains);
    }
    !swept.is_empty()
}
