//! The lock under everything short: the heap, the channels, the tables of this library.
//!
//! A virtual CPU can lose its hart while it holds a lock. Whoever waits therefore spins only briefly and then
//! lets the kernel run somebody else, if need be the holder. May touch: nothing but the lock.

/// Looks at the lock this many times before it gives the hart away: longer than any critical section here.
const SPINS_BEFORE_YIELD: usize = 100;

/// How a waiter passes the time.
pub struct SpinThenYield;

impl spin::RelaxStrategy for SpinThenYield {
    #[inline]
    fn relax() {
        for _ in 0..SPINS_BEFORE_YIELD {
            core::hint::spin_loop();
        }
        crate::system::yield_cpu();
    }
}

/// The lock without its data, as the crates want it that bring their own.
pub type RawLock = spin::mutex::SpinMutex<(), SpinThenYield>;

/// A value behind such a lock. Never hold it across an `.await`.
pub type Lock<T> = lock_api::Mutex<RawLock, T>;
