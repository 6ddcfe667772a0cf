//! What belongs to an executor on a host, beside the executor: how each worker's thread is woken,
//! and which idle worker watches reactor and clock. Found by the executor's number, as the executor
//! itself is by an id.
//!
//! # No wake is lost
//!
//! Worker W, about to sleep (`drive`): (1) claims its sleeper, (2) `prepare_park`, which sets the
//! mark and looks for work, (3) sleeps unless there is a token. Another thread, making work: (a)
//! publishes it, (b) finds the mark, (c) wakes W's sleeper, which leaves a token and ends the
//! sleep. By the argument of `core::park`, either (2) sees the work of (a), or (b) sees the mark of
//! (2). In the second case (c) finds the thread of (1), and its token is there before (3), or ends
//! the sleep of (3). W takes the token only to look for work again after that.
#![allow(unsafe_code)]

use std::boxed::Box;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::memory::{grow, release};
use super::pace::LOOK_INTERVAL;
use super::sleeper::{Claim, Sleeper};
use crate::core::{Hooks, MAX_WORKERS, NO_WORKER, WorkerState};
use crate::front::current;
use crate::front::executor::Executor;
use crate::front::outcome::{AddWorkerError, StartError};

/// How long a long poll is remembered.
const LONG_MEMORY: Duration = Duration::from_secs(1);

static RECORDS: [OnceLock<&'static Record>; 256] = [const { OnceLock::new() }; 256];

/// An executor that was started on a host.
pub(super) struct Record {
    pub executor: &'static Executor,
    /// That of the executor.
    pub number: u8,
    /// Workers that it has. It gets more, but never fewer.
    workers: AtomicU32,
    /// Held while it gets more.
    growing: Mutex<()>,
    /// How the thread of each worker sleeps, and is woken.
    sleepers: [Sleeper; MAX_WORKERS as usize],
    /// The current tenant of the executor: see `lease`. 0 if it belongs to the program.
    pub tenancy: AtomicU64,
    /// The workers of a runtime shall leave when no coroutine is left.
    pub finishing: AtomicBool,
    /// The tenant is a `LocalRuntime`: only its thread is a worker.
    pub is_local: AtomicBool,
    /// Threads of a runtime that have not left.
    pub threads: AtomicU32,
    /// Workers that sleep, a bit each.
    idle: AtomicU64,
    /// The idle worker that watches, or `NO_WORKER`: see `watch`.
    watcher: AtomicU32,
    /// Until when the watcher sleeps, by the clock of the timers. `u64::MAX` if it sees no
    /// deadline, or has not looked.
    watches_until_ns: AtomicU64,
    /// When a busy worker last looked at the reactor, in nanoseconds after `epoch`.
    looked_ns: AtomicU64,
    /// When a batch of polls last took long, likewise; 0 if none did.
    long_ns: AtomicU64,
    epoch: Instant,
}

impl Record {
    /// The record of this executor, if it was started on a host.
    ///
    /// Its number does not suffice: an executor that is not started may have that of another one.
    pub fn of_executor(executor: &Executor) -> Option<&'static Record> {
        Record::of(executor.number()?).filter(|record| ptr::eq(record.executor, executor))
    }

    /// The record of executor number `number`, if it was started on a host.
    #[inline]
    pub fn of(number: u8) -> Option<&'static Record> {
        RECORDS[number as usize].get().copied()
    }

    /// The record of the executor that this thread is a worker of.
    #[inline]
    pub fn of_this_thread() -> Option<&'static Record> {
        Record::of(u8::try_from(current::get() >> 8).ok()?)
    }

    /// Those that there are.
    pub fn all() -> impl Iterator<Item = &'static Record> {
        RECORDS.iter().filter_map(|record| record.get().copied())
    }

    /// Starts an executor with workers 0 to `workers - 1`.
    pub fn start(executor: &'static Executor, workers: u32) -> Result<&'static Record, StartError> {
        let hooks = |number: u8| Hooks {
            // A number, not an address: there is nothing to get wrong about it.
            context: ptr::without_provenance_mut(number as usize),
            grow,
            release,
            notify,
            preempt: None,
            external: None,
            relax: Some(relax),
        };
        // SAFETY: the functions do what `Hooks` says: `memory`, and `notify` below.
        unsafe { executor.start_with(hooks) }?;
        let number = executor.number().expect("it is started");
        let record: &'static Record = Box::leak(Box::new(Record {
            executor,
            number,
            workers: AtomicU32::new(0),
            growing: Mutex::new(()),
            sleepers: [const { Sleeper::new() }; MAX_WORKERS as usize],
            tenancy: AtomicU64::new(0),
            finishing: AtomicBool::new(false),
            is_local: AtomicBool::new(false),
            threads: AtomicU32::new(0),
            idle: AtomicU64::new(0),
            watcher: AtomicU32::new(NO_WORKER),
            watches_until_ns: AtomicU64::new(u64::MAX),
            looked_ns: AtomicU64::new(0),
            long_ns: AtomicU64::new(0),
            epoch: Instant::now(),
        }));
        // Starting succeeds once for each number.
        let _ = RECORDS[number as usize].set(record);
        record.grow_to(workers);
        Ok(record)
    }

    /// Adds workers until it has so many.
    pub fn grow_to(&self, workers: u32) {
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        for worker in self.workers()..workers {
            let state: &'static WorkerState = Box::leak(Box::default());
            let added = self.executor.add_worker(worker, state);
            assert!(added != Err(AddWorkerError::OutOfMemory), "no memory for a worker");
            self.workers.store(worker + 1, Ordering::Release);
        }
    }

    /// Workers that it has.
    pub fn workers(&self) -> u32 {
        self.workers.load(Ordering::Acquire)
    }

    /// Makes this thread worker `worker`; `None` if another one is, or there is no such worker.
    pub fn claim(&'static self, worker: u32) -> Option<Claim> {
        self.sleeper(worker)?.claim()
    }

    /// Makes this thread the first worker that no thread is.
    pub fn claim_any(&'static self) -> Option<(u32, Claim)> {
        (0..self.workers()).find_map(|worker| Some((worker, self.claim(worker)?)))
    }

    /// How worker `worker` sleeps; `None` if there is no such worker.
    pub fn sleeper(&self, worker: u32) -> Option<&Sleeper> {
        self.sleepers.get(worker as usize).filter(|_| worker < self.workers())
    }

    /// Wakes the thread of a worker, or leaves a token for its next sleep. In any context, signal
    /// handlers included: see `sleeper`.
    pub fn wake(&self, worker: u32) {
        if let Some(sleeper) = self.sleeper(worker) {
            sleeper.wake();
        }
    }

    fn nanoseconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_nanos() as u64
    }

    /// Whether a busy worker shall look at the reactor now. If so, the others need not for a while.
    pub fn is_look_due(&self, now: Instant) -> bool {
        let now_ns = self.nanoseconds(now);
        let elapsed_ns = now_ns.saturating_sub(self.looked_ns.load(Ordering::Relaxed));
        let is_due = elapsed_ns >= LOOK_INTERVAL.as_nanos() as u64;
        if is_due {
            self.looked_ns.store(now_ns, Ordering::Relaxed);
        }
        is_due
    }

    /// A batch of polls took long.
    pub fn note_long(&self, now: Instant) {
        self.long_ns.store(self.nanoseconds(now).max(1), Ordering::Relaxed);
    }

    /// Worker `worker` goes to sleep. True if it watches, because no other worker of this executor
    /// does. It sleeps no longer than until the next deadline, and finds the reactor free, if no
    /// thread of another executor is in it.
    ///
    /// For the reactor nothing but speed depends on this: while no worker watches, busy workers
    /// look, and the reactor's own thread takes over if they do not. For deadlines see `clock`. A
    /// worker that watched and polls now has not passed the watch on, unless polls were long lately
    /// (`pass_watch_on_if_long`): a timer may be late by the first long poll.
    pub fn watch(&self, worker: u32) -> bool {
        self.idle.fetch_or(1 << (worker % MAX_WORKERS), Ordering::SeqCst);
        let watches = self
            .watcher
            .compare_exchange(NO_WORKER, worker, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        if watches {
            self.watch_until(u64::MAX);
        }
        watches
    }

    /// The worker that watches sleeps until `deadline_ns`.
    pub fn watch_until(&self, deadline_ns: u64) {
        self.watches_until_ns.store(deadline_ns, Ordering::SeqCst);
    }

    /// Worker `worker` is awake again, and watches no more.
    pub fn leave(&self, worker: u32) {
        self.idle.fetch_and(!(1 << (worker % MAX_WORKERS)), Ordering::Relaxed);
        let _ =
            self.watcher.compare_exchange(worker, NO_WORKER, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Has the worker that watches look at the next deadline again, if it would sleep over this
    /// one.
    pub fn wake_watcher(&self, deadline_ns: u64) {
        let watcher = self.watcher.load(Ordering::SeqCst);
        if watcher != NO_WORKER && deadline_ns < self.watches_until_ns.load(Ordering::SeqCst) {
            self.wake(watcher);
        }
    }

    /// Wakes an idle worker to watch in the caller's place, unless one does.
    ///
    /// None is overlooked: one that went to sleep and found the caller watching had said before
    /// that it is idle.
    pub fn pass_watch_on(&self) {
        let idle = self.idle.load(Ordering::SeqCst);
        if idle != 0 && self.watcher.load(Ordering::SeqCst) == NO_WORKER {
            self.wake(idle.trailing_zeros());
        }
    }

    /// As `pass_watch_on`, if polls were long lately: to wake a thread for each short one would
    /// cost more than it is worth.
    pub fn pass_watch_on_if_long(&self, now: Instant) {
        let long_ns = self.long_ns.load(Ordering::Relaxed);
        if long_ns != 0
            && self.nanoseconds(now).saturating_sub(long_ns) < LONG_MEMORY.as_nanos() as u64
        {
            self.pass_watch_on();
        }
    }
}

/// The hook `notify`: argued at the head of this file.
extern "C" fn notify(context: *mut (), worker: u32) {
    if let Some(record) = Record::of(context.addr() as u8) {
        record.wake(worker);
    }
}

/// The hook `relax`: the holder of a lock may have lost its processor.
extern "C" fn relax(_context: *mut ()) {
    crate::front::relax::relax();
}
