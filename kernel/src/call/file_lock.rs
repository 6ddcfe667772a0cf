//! The operation of a call on the locks of a file (decision 42).
//!
//! A call that waits is in the queue of the file before it attempts the last time, and a change of
//! the locks wakes the queue afterwards. So either the call sees the change, or the change finds
//! the call.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::linux::file_lock::{self, FileLock};
use cops_fallible::OutOfMemory;

use crate::fs::file_locks::{self, Conflict, Kind, Lock, Owner, Range, WAIT_BYTES};
use crate::fs::{Ask, Attempt, Descriptor, File};
use crate::mm::PinnedBuffer;
use crate::mm::quota::{Family, Kept};
use crate::process::Process;
use crate::sched::{WaitQueue, Waiter};

/// Memory for a call that waits, and for the queue that it may be the first in.
const BYTES: usize = size_of::<FileLockCall>() + size_of::<WaitQueue>() + 64 + WAIT_BYTES as usize;

/// The part of a file that a call is about.
#[derive(Clone, Copy)]
pub enum Part {
    /// The whole file, locked by the open file.
    Whole,
    /// A range that is named by its start and length, as in [`FileLock`].
    Range { whence: u16, start: i64, length: i64 },
}

/// What is done with a lock.
pub enum LockAction {
    /// Take it; if it is not free, wait or fail with `EAGAIN`.
    Set { kind: Kind, waits: bool },
    /// Give it back.
    Unset,
    /// Store what is in its way.
    Ask { kind: Kind, into: PinnedBuffer },
}

/// A call on the locks of a file.
pub struct FileLockCall {
    file: Arc<File>,
    /// The descriptor, for a lock of the process; `None` for one of the open file.
    descriptor: Option<Descriptor>,
    part: Part,
    action: LockAction,
    /// As soon as it is known where it is.
    lock: Option<Lock>,
    has_given_up: bool,
    /// While it waits.
    queue: Option<Arc<WaitQueue>>,
    /// Its place among the waits of processes.
    wait: Option<(u32, u64)>,
    /// For the size of a file that a process serves.
    ask: Ask,
    kept: Kept,
}

impl FileLockCall {
    /// A call on `part` of `file`. The owner is the process if there is a `descriptor`, otherwise
    /// the open file.
    pub fn new(
        file: Arc<File>,
        descriptor: Option<Descriptor>,
        part: Part,
        action: LockAction,
    ) -> Self {
        Self {
            file,
            descriptor,
            part,
            action,
            lock: None,
            has_given_up: false,
            queue: None,
            wait: None,
            ask: Ask::default(),
            kept: Kept::default(),
        }
    }

    /// It has to wait: charges it.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn begin_waiting(&mut self, family: Family) -> Result<(), OutOfMemory> {
        self.kept.at_least(family, BYTES)
    }

    /// Whether it may have to wait until a lock is free, so that a signal ends it. What it asks a
    /// server for before changes nothing.
    pub fn waits_for_lock(&self) -> bool {
        matches!(self.action, LockAction::Set { waits: true, .. })
    }

    /// As for `Operation::attempt`.
    #[inline(never)]
    pub fn attempt(&mut self, process: &Process) -> Option<CallResult> {
        let lock = match self.find(process)? {
            Ok(lock) => lock,
            Err(error) => return Some(Err(error)),
        };
        self.lock = Some(lock);
        match &self.action {
            LockAction::Unset => Some(lock.unset().map(|()| 0)),
            LockAction::Ask { kind, into } => {
                store(lock.conflict(*kind), into);
                Some(Ok(0))
            }
            &LockAction::Set { kind, waits } => self.set(process, lock, kind, waits),
        }
    }

    /// The lock; `None` if the size of the file has to be asked for.
    fn find(&mut self, process: &Process) -> Attempt<Lock> {
        if let Some(lock) = self.lock {
            return Some(Ok(lock));
        }
        let Part::Range { whence, start, length } = self.part else {
            return Some(Lock::whole(&self.file));
        };
        self.ask.begin(process.id, process.family);
        let base = match whence {
            file_lock::FROM_START => Ok(0),
            file_lock::FROM_POSITION => {
                // Moves the position by 0.
                self.file.attempt_seek(0, 1, &mut self.ask)?.map(|position| position as u64)
            }
            file_lock::FROM_END => {
                self.file.attempt_status(&mut self.ask)?.map(|status| status.size)
            }
            _ => Err(Errno::EINVAL),
        };
        let owner = match self.descriptor {
            Some(_) => Owner::Process(process.id),
            None => Owner::OpenFile(self.file.number),
        };
        let range = base.and_then(|base| Range::of(base, start, length));
        Some(range.and_then(|range| Lock::of_range(&self.file, owner, range)))
    }

    fn set(
        &mut self,
        process: &Process,
        lock: Lock,
        kind: Kind,
        waits: bool,
    ) -> Option<CallResult> {
        if lock.is_whole() && !core::mem::replace(&mut self.has_given_up, true) {
            lock.give_up_other(kind);
        }
        // Before the lock is taken: whatever closes the file afterwards releases it.
        match self.descriptor {
            Some(_) => process.has_file_locks.store(true, Relaxed),
            None => self.file.note_lock(),
        }
        match lock.set(kind, process.family) {
            Err(error) => Some(Err(error)),
            Ok(None) => Some(self.check_open(process)),
            Ok(Some(_)) if !waits => Some(Err(Errno::EAGAIN)),
            Ok(Some(conflict)) => self.note_wait(lock, kind, conflict.owner).err().map(Err),
        }
    }

    /// The lock is taken. If the file was closed by another thread meanwhile, that thread may have
    /// released the locks before this one was taken.
    fn check_open(&self, process: &Process) -> CallResult {
        let Some(descriptor) = self.descriptor else { return Ok(0) };
        let open = process.files.lock().get(descriptor);
        if open.is_ok_and(|open| Arc::ptr_eq(&open, &self.file)) {
            return Ok(0);
        }
        file_locks::release_of_process(&self.file, process.id);
        Err(Errno::EBADF)
    }

    /// The call waits for `blocker`, unless that waits for it.
    fn note_wait(&mut self, lock: Lock, kind: Kind, blocker: Owner) -> Result<(), Errno> {
        let Owner::Process(process) = lock.owner else { return Ok(()) };
        let wait = *self.wait.get_or_insert_with(|| {
            static LAST: AtomicU64 = AtomicU64::new(0);
            (process, LAST.fetch_add(1, Relaxed) + 1)
        });
        lock.wait(wait, kind, blocker)
    }

    /// As for `Operation::insert_waiter`.
    pub fn insert_waiter(&mut self, waiter: Waiter) -> Result<bool, OutOfMemory> {
        if self.ask.insert_waiter(&waiter) {
            return Ok(true);
        }
        let Some(lock) = &self.lock else {
            // Only a portion is over, of what is sent to the server before it is asked.
            cops_executor::wake_up(waiter.coroutine);
            return Ok(false);
        };
        let queue = match &self.queue {
            Some(queue) => queue,
            None => self.queue.insert(lock.join_queue()?),
        };
        queue.insert(waiter);
        Ok(true)
    }

    /// As for `Operation::waits_for_another_event`.
    pub fn waits_for_another_event(&self) -> bool {
        match self.lock {
            Some(_) => self.queue.is_none(),
            None => !self.ask.is_registered(),
        }
    }

    /// As for `Operation::remove_waiter`.
    pub fn remove_waiter(&mut self, waiter: u32, must_pass_on: bool) {
        self.ask.remove_waiter();
        if let Some(queue) = &self.queue {
            queue.remove(waiter, must_pass_on);
        }
    }

    /// The call has become less urgent.
    pub fn pass_on(&self, waiter: u32) {
        if let Some(queue) = &self.queue {
            queue.pass_on(waiter);
        }
    }
}

impl Drop for FileLockCall {
    fn drop(&mut self) {
        if let Some(wait) = self.wait {
            file_locks::end_wait(wait);
        }
        if let (Some(lock), Some(_)) = (&self.lock, self.queue.take()) {
            lock.leave_queue();
        }
    }
}

/// Stores what is in the way of a lock.
fn store(conflict: Option<Conflict>, into: &PinnedBuffer) {
    let Some(Conflict { owner, kind, range }) = conflict else {
        // The rest stays as it is.
        into.write_at(0, &file_lock::UNLOCK.to_le_bytes());
        return;
    };
    let kind = match kind {
        Kind::Shared => file_lock::READ,
        Kind::Exclusive => file_lock::WRITE,
    };
    let process = match owner {
        Owner::Process(number) => number as i32,
        Owner::OpenFile(_) => -1,
    };
    let (start, length) = range.named();
    let lock = FileLock {
        kind,
        whence: file_lock::FROM_START,
        start: start as i64,
        length: length as i64,
        process,
    };
    into.write_at(0, &lock.to_bytes());
}
