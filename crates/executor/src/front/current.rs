//! Which worker is this? Asked by every wake, so it is one word: executor number and worker number.
//!
//! With `std` it is a thread-local that `Executor::run` sets. Without it the host of this library
//! provides the symbol `_cops_executor_current_worker`: a hart-local or thread-pointer-relative
//! load.

/// The word of a thread that is no worker.
///
/// ```
/// use cops_executor::{NO_CURRENT_WORKER, encode_current_worker};
/// // No executor and worker have this word.
/// assert_ne!(encode_current_worker(255, 63), NO_CURRENT_WORKER);
/// ```
pub const NO_CURRENT_WORKER: u32 = u32::MAX;

/// The word of worker `worker` (below 64) of executor number `executor`.
///
/// ```
/// use cops_executor::encode_current_worker;
/// assert_eq!(encode_current_worker(2, 5), 2 << 8 | 5);
/// ```
pub const fn encode_current_worker(executor: u8, worker: u32) -> u32 {
    word(executor as u32, worker)
}

/// As `encode_current_worker`, for a number that may be none: then no worker has the word.
pub(crate) const fn word(executor: u32, worker: u32) -> u32 {
    executor << 8 | worker & 0xff
}

#[cfg(not(feature = "std"))]
mod provided {
    use crate::core::WorkerState;
    use crate::front::registry;

    #[allow(unsafe_code)]
    unsafe extern "C" {
        // Safe: it takes nothing, and what it returns is checked. (A wrong worker is no memory
        // error, but may lose a wake: see `WorkerState::wakes_itself`.)
        safe fn _cops_executor_current_worker() -> u32;
    }

    #[inline(always)]
    pub fn get() -> u32 {
        _cops_executor_current_worker()
    }

    /// The record of the worker that this is.
    #[inline(always)]
    pub fn state() -> Option<&'static WorkerState> {
        let word = get();
        if word > 0xffff {
            return None;
        }
        registry::executor((word >> 8) as u8)?.state(word & 0xff)
    }
}

#[cfg(feature = "std")]
mod provided {
    use std::cell::Cell;

    use crate::core::WorkerState;

    /// What a thread is.
    #[derive(Clone, Copy)]
    struct Current {
        state: &'static WorkerState,
        word: u32,
    }

    /// The record of a thread that is no worker: it never polls anything. So callers need not check
    /// whether there is a record.
    static NOT_A_WORKER: WorkerState = WorkerState::new();

    std::thread_local! {
        static CURRENT: Cell<Current> =
            const { Cell::new(Current { state: &NOT_A_WORKER, word: super::NO_CURRENT_WORKER }) };
    }

    #[inline(always)]
    pub fn get() -> u32 {
        CURRENT.get().word
    }

    /// The record of the worker that this is.
    #[inline(always)]
    pub fn state() -> Option<&'static WorkerState> {
        Some(CURRENT.get().state)
    }

    /// Makes the thread a worker until dropped, then what it was before: executors may nest.
    pub struct Entered(Current);

    pub fn enter(word: u32, state: Option<&'static WorkerState>) -> Entered {
        Entered(CURRENT.replace(Current { state: state.unwrap_or(&NOT_A_WORKER), word }))
    }

    impl Drop for Entered {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
}

pub(crate) use provided::*;

/// The number of the worker of executor number `executor` that runs on this thread or hart, or
/// [`NO_WORKER`](crate::core::NO_WORKER).
///
/// In any context, interrupt handlers included.
///
/// ```
/// # use cops_executor::{Executor, Priority};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// use cops_executor::{core::NO_WORKER, current_worker_of};
/// let here = || current_worker_of(EXECUTOR.number().unwrap());
/// let asks = EXECUTOR.spawn_join(async move { here() }, Priority::DEFAULT)?;
/// assert_eq!(EXECUTOR.block_on(asks)?, 0);
/// assert_eq!(here(), NO_WORKER, "this thread is no longer one");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[inline(always)]
pub fn current_worker_of(executor: u8) -> u32 {
    worker_of(executor as u32)
}

/// As `current_worker_of`, for a number that may be none.
#[inline(always)]
pub(crate) fn worker_of(executor: u32) -> u32 {
    let word = get();
    if word >> 8 == executor { word & 0xff } else { crate::core::NO_WORKER }
}
