//! The lock under everything short: the heap, the channels, the tables of this library.
//!
//! A virtual CPU can lose its hart while it holds a lock. Whoever waits therefore spins only briefly and then
//! stands aside for a moment: the holder may be less urgent, and would not get a hart that is only given way on.
//! May touch: nothing but the lock.

/// Looks at the lock this many times before it stands aside: longer than any critical section here.
const SPINS_BEFORE_STANDING_ASIDE: usize = 100;

/// How a waiter passes the time.
pub struct SpinThenStandAside;

impl spin::RelaxStrategy for SpinThenStandAside {
    #[inline]
    fn relax() {
        for _ in 0..SPINS_BEFORE_STANDING_ASIDE {
            core::hint::spin_loop();
        }
        crate::system::stand_aside();
    }
}

/// The lock without its data, as the crates want it that bring their own.
pub type RawLock = spin::mutex::SpinMutex<(), SpinThenStandAside>;

/// A value behind such a lock. Never hold it across an `.await`.
pub type Lock<T> = lock_api::Mutex<RawLock, T>;
