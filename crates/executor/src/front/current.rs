//! Which worker is this? Asked by every wake, so it is one word: executor number and worker number.
//!
//! With `std` it is a thread-local that `Executor::run` sets. Without it the host of this library provides
//! the symbol `_cops_executor_current_worker`: a hart-local or thread-pointer-relative load.

/// The word of a thread that is no worker.
pub const NO_CURRENT_WORKER: u32 = u32::MAX;

/// The word of worker `worker` (below 64) of executor number `executor`.
pub const fn encode_current_worker(executor: u8, worker: u32) -> u32 {
    (executor as u32) << 8 | worker & 0xff
}

#[cfg(not(feature = "std"))]
mod provided {
    #[allow(unsafe_code)]
    unsafe extern "C" {
        // Safe: it takes nothing, and any value is harmless: a wrong one posts to another worker's inbox.
        safe fn _cops_executor_current_worker() -> u32;
    }

    #[inline(always)]
    pub fn get() -> u32 {
        _cops_executor_current_worker()
    }
}

#[cfg(feature = "std")]
mod provided {
    use std::cell::Cell;

    std::thread_local! {
        static CURRENT: Cell<u32> = const { Cell::new(super::NO_CURRENT_WORKER) };
    }

    #[inline(always)]
    pub fn get() -> u32 {
        CURRENT.get()
    }

    /// Makes the thread a worker until dropped, then what it was before: executors may nest.
    pub struct Entered(u32);

    pub fn enter(word: u32) -> Entered {
        Entered(CURRENT.replace(word))
    }

    impl Drop for Entered {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
}

pub(super) use provided::*;

/// The number of the worker of executor number `executor` that runs on this thread or hart, or
/// [`NO_WORKER`](crate::core::NO_WORKER).
#[inline(always)]
pub fn current_worker_of(executor: u8) -> u32 {
    let word = get();
    if word >> 8 == executor as u32 { word & 0xff } else { crate::core::NO_WORKER }
}
