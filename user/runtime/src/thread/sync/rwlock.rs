//! A lock for many readers or one writer.
//!
//! The word: the number of readers, or a bit for the writer, and a bit that threads may wait. While
//! that bit is set, no reader is admitted, so that readers that come and go cannot keep a writer
//! out; the last one to unlock clears it and wakes all.
#![allow(unsafe_code)]

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use lock_api::GuardNoSend;

use crate::system;

const WRITER: u32 = 1 << 30;
const WAITERS: u32 = 1 << 31;
const READERS_MAX: u32 = WRITER - 1;

/// The lock without data, for `lock_api`.
#[derive(Debug)]
pub struct RawRwLock(AtomicU32);

/// A value that many threads read or one writes. A thread that reads must not lock it again: a
/// writer that waits in between would stop both.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// Shared access to the value of a [`RwLock`].
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// Exclusive access to the value of a [`RwLock`].
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

// SAFETY: `WRITER` is set only in a word without readers and writer, readers are added only to a
// word without writer, both by a compare-exchange with `Acquire`; each is removed by its holder,
// with `Release`.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "lock_api asks for a constant")]
    const INIT: Self = Self(AtomicU32::new(0));
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        self.lock_with(Self::add_reader);
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.try_with(Self::add_reader)
    }

    unsafe fn unlock_shared(&self) {
        let before = self.0.fetch_sub(1, Release);
        if before == (1 | WAITERS) {
            self.wake();
        }
    }

    #[inline]
    fn lock_exclusive(&self) {
        self.lock_with(Self::add_writer);
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.try_with(Self::add_writer)
    }

    unsafe fn unlock_exclusive(&self) {
        if self.0.swap(0, Release) & WAITERS != 0 {
            system::futex_wake(&self.0, u32::MAX >> 1);
        }
    }

    fn is_locked(&self) -> bool {
        self.0.load(Relaxed) & !WAITERS != 0
    }
}

impl RawRwLock {
    /// The word with one more reader. `None` if it has to wait.
    fn add_reader(word: u32) -> Option<u32> {
        (word < READERS_MAX).then(|| word + 1)
    }

    /// The word with a writer. The bit of those that wait stays: they wait for this writer now.
    fn add_writer(word: u32) -> Option<u32> {
        (word & !WAITERS == 0).then_some(word | WRITER)
    }

    fn try_with(&self, change: fn(u32) -> Option<u32>) -> bool {
        self.0.fetch_update(Acquire, Relaxed, change).is_ok()
    }

    fn lock_with(&self, change: fn(u32) -> Option<u32>) {
        loop {
            match self.0.fetch_update(Acquire, Relaxed, change) {
                Ok(_) => return,
                // The last reader has left and is about to wake all.
                Err(WAITERS) => self.wake(),
                Err(word) => {
                    let waiting = word | WAITERS;
                    if word == waiting
                        || self.0.compare_exchange(word, waiting, Relaxed, Relaxed).is_ok()
                    {
                        let _ = system::futex_wait(&self.0, waiting, None);
                    }
                }
            }
        }
    }

    /// Nothing holds the lock and threads may wait: lets all of them try again.
    #[cold]
    fn wake(&self) {
        if self.0.compare_exchange(WAITERS, 0, Relaxed, Relaxed).is_ok() {
            system::futex_wake(&self.0, u32::MAX >> 1);
        }
    }
}
