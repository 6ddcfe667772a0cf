//! How a worker's thread sleeps, and how it is woken: in any context, a signal handler included.
//!
//! A wake leaves a token, then ends the sleep; the sleeper takes the token and returns. So a wake
//! that comes before the sleep is not lost, as `core::park` asks of a host. A thread sleeps in one
//! of two ways, and says which before it looks for the token for the last time:
//!
//! | sleep | ended by | for |
//! | --- | --- | --- |
//! | `std::thread::park` | `Thread::unpark` | all workers without the feature `reactor`, and those that do not watch |
//! | in the reactor of `async-io` | the bell: a byte in a socket that the reactor watches | the worker that watches |
//!
//! # A wake waits for nothing
//!
//! [`Sleeper::wake`] is a bounded number of atomic updates and at most one system call that does
//! not block (a futex wake, or a `write` to a socket in non-blocking mode). It takes no lock and
//! allocates nothing. `Thread::unpark` is such a call where the standard library parks on a futex
//! or its like: Linux, Android, FreeBSD, OpenBSD, Windows. On Apple's systems it is a semaphore of
//! `dispatch`, on other Unix systems a mutex and a condition variable: there a signal handler must
//! not wake. The waker that `async-io` gives to a sleeper is not used for this, since it may take a
//! mutex.
//!
//! The thread's handle is dropped by the worker that leaves, and may be in use by a waker at that
//! moment. So wakers are counted as visitors, and the leaver waits until there is none: never the
//! other way round.
//!
//! Unsafe: the cell of that handle.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::hint::spin_loop;
#[cfg(feature = "reactor")]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, Thread};
use std::time::Instant;

#[cfg(feature = "reactor")]
use super::bell::Bell;

/// `Sleeper::place`: no thread is this worker.
const NOWHERE: u32 = 0;
/// Its thread is awake, or parks.
const THREAD: u32 = 1;
/// Its thread sleeps in the reactor, or is about to.
#[cfg(feature = "reactor")]
const REACTOR: u32 = 2;

/// Looks for the token before a thread sleeps: in rounds of so many.
const LOOKS_IN_A_ROUND: u32 = 16;
/// Rounds at most. A round takes some tenths of a microsecond; to be put asleep and woken on an
/// idle processor takes some ten microseconds.
const MOST_ROUNDS: u32 = 32;
/// After so many sleeps without a look, one look is tried again.
const SLEEPS_BETWEEN_TRIES: u32 = 256;

/// One for each worker of an executor; never freed.
pub(super) struct Sleeper {
    /// The worker was woken since it last began to look for work.
    token: AtomicBool,
    place: AtomicU32,
    /// Calls of `wake` that may be using `thread`.
    visitors: AtomicU32,
    /// A thread is this worker.
    is_claimed: AtomicBool,
    /// Written by the thread that has claimed the worker, while `place` is `NOWHERE` and there are
    /// no visitors.
    thread: UnsafeCell<Option<Thread>>,
    #[cfg(feature = "reactor")]
    bell: OnceLock<Bell>,
}

// SAFETY: `thread` is written as its comment says, and read by visitors that have found `place` set
// after they were counted (`wake`, `Claim::drop`).
unsafe impl Sync for Sleeper {}

impl Sleeper {
    pub const fn new() -> Sleeper {
        Sleeper {
            token: AtomicBool::new(false),
            place: AtomicU32::new(NOWHERE),
            visitors: AtomicU32::new(0),
            is_claimed: AtomicBool::new(false),
            thread: UnsafeCell::new(None),
            #[cfg(feature = "reactor")]
            bell: OnceLock::new(),
        }
    }

    /// Makes this thread the one that `wake` wakes. `None` if another one is.
    pub fn claim(&'static self) -> Option<Claim> {
        if self.is_claimed.swap(true, Ordering::Acquire) {
            return None;
        }
        // SAFETY: claimed, so it is ours to write: `place` is NOWHERE, hence no visitor reads it.
        unsafe { *self.thread.get() = Some(thread::current()) };
        self.place.store(THREAD, Ordering::SeqCst);
        Some(Claim { sleeper: self, rounds: most_rounds(), sleeps_without: 0 })
    }

    /// Wakes the worker's thread, or leaves a token for its next sleep. In any context: see the
    /// head of the file.
    pub fn wake(&self) {
        // Sequentially consistent, as is the look at `place`: if that is not yet REACTOR, the
        // sleeper's last look finds the token.
        if self.token.swap(true, Ordering::SeqCst) {
            return;
        }
        self.visitors.fetch_add(1, Ordering::SeqCst);
        match self.place.load(Ordering::SeqCst) {
            NOWHERE => {}
            #[cfg(feature = "reactor")]
            REACTOR => {
                if let Some(bell) = self.bell.get() {
                    bell.ring();
                }
            }
            _ => {
                // SAFETY: `place` was set after `thread`, and the thread that clears it waits for
                // this visitor before it writes.
                if let Some(thread) = unsafe { &*self.thread.get() } {
                    thread.unpark();
                }
            }
        }
        self.visitors.fetch_sub(1, Ordering::Release);
    }

    fn take_token(&self) -> bool {
        self.token.load(Ordering::Relaxed) && self.token.swap(false, Ordering::SeqCst)
    }

    fn sleep_as_thread(&self, until: Option<Instant>) {
        while !self.take_token() {
            // `unpark` leaves a token of its own, so it does not matter whether it comes before
            // this.
            match until {
                None => thread::park(),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return;
                    }
                    thread::park_timeout(left);
                }
            }
        }
    }

    #[cfg(feature = "reactor")]
    fn sleep_in_reactor(&self, until: Option<Instant>) {
        use std::future::{Future, poll_fn};
        use std::pin::Pin;
        use std::task::Poll;

        let bell = self.bell.get_or_init(Bell::new);
        let mut timer = until.map(async_io::Timer::at);
        self.place.store(REACTOR, Ordering::SeqCst);
        async_io::block_on(poll_fn(|context| {
            loop {
                // After `place` was set: the last look.
                if self.token.swap(false, Ordering::SeqCst) {
                    return Poll::Ready(());
                }
                if let Some(timer) = &mut timer
                    && Pin::new(timer).poll(context).is_ready()
                {
                    return Poll::Ready(());
                }
                if bell.poll_rung(context).is_pending() {
                    return Poll::Pending;
                }
            }
        }));
        self.place.store(THREAD, Ordering::SeqCst);
    }
}

/// A thread that is a worker, and may sleep as such.
pub(super) struct Claim {
    sleeper: &'static Sleeper,
    /// How long to look for a token before the next sleep: longer after a look that has found one,
    /// shorter after one in vain.
    rounds: u32,
    /// Sleeps since it was last looked for.
    sleeps_without: u32,
}

impl Claim {
    /// Sleeps until the worker is woken, or `until`. A worker that watches sleeps in the reactor,
    /// if there is one.
    pub fn sleep(&mut self, watches: bool, until: Option<Instant>) {
        if self.finds_token() {
            return;
        }
        #[cfg(feature = "reactor")]
        if watches {
            return self.sleeper.sleep_in_reactor(until);
        }
        let _ = watches;
        self.sleeper.sleep_as_thread(until);
    }

    /// Looks for a token for some microseconds: a worker that is woken soon again saves the
    /// operating system's share of it.
    ///
    /// Where threads share a processor, the one that would wake this one does not run meanwhile.
    /// Then looks are in vain, and soon there are none but a try now and then.
    fn finds_token(&mut self) -> bool {
        if self.rounds == 0 {
            self.sleeps_without += 1;
            if self.sleeps_without < SLEEPS_BETWEEN_TRIES {
                return self.sleeper.take_token();
            }
            self.sleeps_without = 0;
            self.rounds = most_rounds();
        }
        for _ in 0..self.rounds {
            for _ in 0..LOOKS_IN_A_ROUND {
                if self.sleeper.take_token() {
                    self.rounds = (self.rounds * 2).min(MOST_ROUNDS);
                    return true;
                }
                spin_loop();
            }
        }
        self.rounds /= 2;
        false
    }
}

/// None on a machine with one processor.
fn most_rounds() -> u32 {
    static ROUNDS: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *ROUNDS.get_or_init(|| match thread::available_parallelism() {
        Ok(processors) if processors.get() > 1 => MOST_ROUNDS,
        _ => 0,
    })
}

impl Drop for Claim {
    /// The thread is no longer this worker.
    fn drop(&mut self) {
        let sleeper = self.sleeper;
        sleeper.place.store(NOWHERE, Ordering::SeqCst);
        // A visitor that is counted after this finds NOWHERE. Those before are in the middle of a
        // few instructions.
        while sleeper.visitors.load(Ordering::SeqCst) != 0 {
            thread::yield_now();
        }
        // SAFETY: ours, as the comment at `thread` says.
        let thread = unsafe { (*sleeper.thread.get()).take() };
        drop(thread);
        sleeper.is_claimed.store(false, Ordering::Release);
    }
}
