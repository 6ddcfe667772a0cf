//! Threads that block in the kernel, as in the models of the papers (decision 56): the kernel's
//! half of a call that has to wait is its thread, and not a coroutine.
//!
//! A thread's record keeps the call: what a kernel stack would keep. The thread sleeps until an
//! event of the connection wakes it, or stays runnable and attempts again in its turn. In both
//! cases it attempts the call before it enters user mode ([`CONTINUE`]).
//!
//! May touch: the connection, the program's buffer, which is pinned, and the virtual CPUs of the
//! process. Lock order: the call of a record, a connection, `asleep` of a record.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use cops_abi::Errno;
use cops_abi::errno::{CallResult, encode};
use cops_abi::poll::event::{ERROR, HANG_UP, READ_HANG_UP, READABLE, WRITABLE};
use cops_abi::syscall::kernel_model::{RETRYING_THREADS, THREADS};
use cops_fallible::try_arc;
use cops_lock::Mutex;

use super::{Process, VirtualCpu};
use crate::fs::File;
use crate::mm::PinnedBuffer;
use crate::mm::quota::{Amounts, Charge, Kind};
use crate::sched::{WATCH_BYTES, Waiting, WatchSlot, Watcher};

/// Instead of the result of a call: the thread attempts its call before it enters user mode. No
/// call has this result.
pub(super) const CONTINUE: isize = isize::MIN;

/// A read or write of a connection which has to wait.
pub struct BlockedCall {
    /// The connection.
    pub file: Arc<File>,
    /// The program's memory.
    pub buffer: PinnedBuffer,
    /// Whether it is a read.
    pub waiting: Waiting,
}

impl BlockedCall {
    fn attempt(&self) -> Option<CallResult> {
        match self.waiting {
            Waiting::ToRead => self.file.attempt_read(&self.buffer),
            Waiting::ToWrite => self.file.attempt_write(&self.buffer),
        }
    }
}

/// What has become of a call.
#[must_use]
pub enum Blocked {
    /// It is completed.
    Done(CallResult),
    /// Its thread sleeps, or has ended with its process.
    Sleeps,
    /// Its thread stays runnable, goes behind its equals, and attempts the call again.
    Yields,
}

/// What a thread keeps for its blocked calls; nothing before the first one.
#[derive(Default)]
pub(super) struct OwnBlocked(Mutex<Option<Arc<Sleeper>>>);

/// A thread's record.
struct Sleeper {
    to_read: WatchSlot,
    to_write: WatchSlot,
    /// The call, from its first attempt in vain until it is completed. Locked by the hart that runs
    /// the thread, and at the thread's end.
    call: Mutex<Option<BlockedCall>>,
    /// The thread, while it sleeps in the call.
    asleep: Mutex<Option<Arc<VirtualCpu>>>,
    _charge: Charge,
}

impl Watcher for Sleeper {
    fn slot(&self, waiting: Waiting) -> &WatchSlot {
        match waiting {
            Waiting::ToRead => &self.to_read,
            Waiting::ToWrite => &self.to_write,
        }
    }

    fn notify(self: Arc<Self>) {
        self.wake(CONTINUE);
    }
}

impl Sleeper {
    fn try_new(process: &Process) -> Result<Arc<Self>, Errno> {
        // With the counts of references.
        let bytes = size_of::<Self>() + 16 + 2 * WATCH_BYTES;
        let charge = Charge::new(process.family, &Amounts::of(Kind::Memory, bytes as u64))?;
        Ok(try_arc(Self {
            to_read: WatchSlot::default(),
            to_write: WatchSlot::default(),
            call: Mutex::new(None),
            asleep: Mutex::new(None),
            _charge: charge,
        })?)
    }

    /// If the thread sleeps in its call, it is runnable from now on.
    fn wake(&self, result: isize) {
        // Taken once: a watch that is notified late finds nothing, or another call of the thread,
        // which is attempted in vain.
        let asleep = self.asleep.lock().take();
        if let Some(cpu) = asleep {
            cpu.process.end_wait_of(&cpu, Some(result));
        }
    }
}

impl Process {
    /// Chooses how calls of its threads wait, and where its submitted calls go.
    pub fn set_kernel_model(&self, model: u8) {
        self.kernel_model.store(model, Relaxed);
    }

    /// Whether blocking calls of its threads are those of the threads themselves.
    #[inline(always)]
    pub fn has_blocking_threads(&self) -> bool {
        matches!(self.kernel_model(), THREADS | RETRYING_THREADS)
    }

    /// Its kernel model.
    pub fn kernel_model(&self) -> u8 {
        self.kernel_model.load(Relaxed)
    }
}

impl VirtualCpu {
    /// Executes `call`, which is that of a thread that runs on this hart.
    ///
    /// # Errors
    /// `ENOMEM`, in place of the first wait.
    pub fn block_in(self: &Arc<Self>, call: BlockedCall) -> Result<Blocked, Errno> {
        if let Some(result) = call.attempt() {
            return Ok(Blocked::Done(result));
        }
        let mut own = self.blocked.0.lock();
        let sleeper = match &*own {
            Some(sleeper) => sleeper.clone(),
            None => own.insert(Sleeper::try_new(&self.process)?).clone(),
        };
        drop(own);
        let mut kept = sleeper.call.lock();
        let call = kept.insert(call);
        Ok(self.wait_again(&sleeper, call))
    }

    /// It has been woken, or has its turn again: attempts its call.
    pub(super) fn continue_blocked(self: &Arc<Self>) -> Blocked {
        let interrupted = Blocked::Done(Err(Errno::EINTR));
        let Some(sleeper) = self.blocked.0.lock().clone() else { return interrupted };
        let mut kept = sleeper.call.lock();
        let Some(call) = &*kept else { return interrupted };
        let Some(result) = call.attempt() else { return self.wait_again(&sleeper, call) };
        // It was woken by an event that has been notified late, and has armed its watch again.
        if sleeper.slot(call.waiting).is_armed() {
            call.file.unwatch(&*sleeper);
        }
        *kept = None;
        Blocked::Done(result)
    }

    /// Waits for the next attempt.
    fn wait_again(self: &Arc<Self>, sleeper: &Arc<Sleeper>, call: &BlockedCall) -> Blocked {
        let process = &self.process;
        if process.kernel_model() == RETRYING_THREADS {
            if let Some(status) = process.cpus.lock().status(self.index) {
                status.result = Some(CONTINUE);
            }
            return Blocked::Yields;
        }
        if !process.begin_waiting(self) {
            return Blocked::Sleeps;
        }
        // After the thread has begun to wait: a notification that is late would be used up.
        *sleeper.asleep.lock() = Some(self.clone());
        let (events, ready) = match call.waiting {
            Waiting::ToRead => (READABLE, READABLE | READ_HANG_UP | HANG_UP | ERROR),
            Waiting::ToWrite => (WRITABLE, WRITABLE | HANG_UP | ERROR),
        };
        let watcher: Arc<dyn Watcher> = sleeper.clone();
        match call.file.watch(&watcher, events, process.current_priority(self)) {
            // Not before the watch is armed: an event after this look notifies it.
            Ok(()) if call.file.readiness(process.party()) & ready == 0 => {}
            Ok(()) => sleeper.wake(CONTINUE),
            Err(_) => sleeper.wake(encode(Err(Errno::ENOMEM))),
        }
        process.report_stop();
        Blocked::Sleeps
    }

    /// It ends, and does not run any more: drops its call, which has a file and pinned memory.
    pub(super) fn leave_blocked(&self) {
        let Some(sleeper) = self.blocked.0.lock().take() else { return };
        let asleep = sleeper.asleep.lock().take();
        let call = sleeper.call.lock().take();
        if let Some(call) = call {
            call.file.unwatch(&*sleeper);
        }
        drop(asleep);
    }
}
