//! The kernel's spin lock, for what is held for some tens of instructions (decision 62), and what
//! needs no lock since the boot has made it ([`AtBoot`]).
//!
//! The lock is a word. RISC-V has atomic instructions for words only: to set a byte, as the lock of
//! `spin` does, takes the address of its word, its place in that, a shifted bit, and the shift of
//! the result, nine instructions instead of three. A request takes a lock some 12 to 25 times.
//!
//! The guard, and what is shared by it, are those of `lock_api`.
#![no_std]
#![warn(missing_docs)]

#[allow(unsafe_code)]
mod at_boot;
#[allow(unsafe_code)]
mod word;

pub use at_boot::AtBoot;
pub use word::{OFFER, Word};

/// A value behind a spin lock.
pub type Mutex<T> = lock_api::Mutex<Word, T>;

/// The access to the value of a [`Mutex`], which is locked as long as this exists.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, Word, T>;

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    extern crate std;
    use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn one_has_it_at_a_time() {
        static COUNT: Mutex<u64> = Mutex::new(0);
        const THREADS: u64 = 4;
        const TIMES: u64 = 10_000;
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..TIMES {
                        let mut count = COUNT.lock();
                        let before = *count;
                        core::hint::spin_loop();
                        *count = before + 1;
                    }
                });
            }
        });
        assert_eq!(*COUNT.lock(), THREADS * TIMES);
    }

    #[test]
    fn a_lock_that_is_held_is_not_taken() {
        let mutex = Mutex::new(7);
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none() && mutex.is_locked());
        drop(guard);
        assert!(!mutex.is_locked());
        assert_eq!(mutex.try_lock().map(|value| *value), Some(7));
    }

    #[test]
    fn one_that_waits_long_offers_its_processor() {
        static OFFERS: AtomicU64 = AtomicU64::new(0);
        static LOCK: Mutex<()> = Mutex::new(());
        static COUNT: fn() = || {
            OFFERS.fetch_add(1, SeqCst);
        };
        // SAFETY: what a thread that was started earlier sees is null or the reference to a static
        // that is never changed, which every thread may read.
        unsafe { OFFER.set(&COUNT) };
        let has_it = AtomicBool::new(false);
        let guard = LOCK.lock();
        let seen = thread::scope(|scope| {
            scope.spawn(|| {
                drop(LOCK.lock());
                has_it.store(true, SeqCst);
            });
            let limit = Instant::now() + Duration::from_secs(60);
            while OFFERS.load(SeqCst) < 3 && Instant::now() < limit {
                thread::yield_now();
            }
            let seen = (OFFERS.load(SeqCst), has_it.load(SeqCst));
            // Before a failure: it would otherwise wait for the thread, which waits for the lock.
            drop(guard);
            seen
        });
        assert!(seen.0 >= 3 && !seen.1, "offers, and whether it had the lock: {seen:?}");
        assert!(has_it.load(SeqCst));
    }
}
