//! The lock for short critical sections: the heap, the channels, the tables of this library.
//!
//! A virtual CPU can be preempted while it holds a lock. Therefore a waiter spins only briefly and
//! then sleeps for a moment. Yielding would not suffice: the holder may be less urgent than the
//! waiter, and would not get the hart. May touch: only the lock.

/// Number of attempts before a waiter sleeps: longer than any critical section here.
const SPINS_BEFORE_BACK_OFF: usize = 100;

/// How a waiter waits for the lock: it spins, and then backs off.
pub struct SpinThenBackOff;

impl spin::RelaxStrategy for SpinThenBackOff {
    #[inline]
    fn relax() {
        for _ in 0..SPINS_BEFORE_BACK_OFF {
            core::hint::spin_loop();
        }
        crate::system::back_off();
    }
}

/// The lock without data, for crates that keep the data themselves.
pub type RawLock = spin::mutex::SpinMutex<(), SpinThenBackOff>;

/// A value protected by such a lock. Never hold it across an `.await`.
pub type Lock<T> = lock_api::Mutex<RawLock, T>;
