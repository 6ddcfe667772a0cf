//! Coroutines: spawning, waking, priorities, virtual CPUs. SPEC 2.3.
//!
//! Nothing here enters the kernel, except [`alloc_cpu`], and [`wake_up`] and its like when a virtual CPU has to be
//! unparked.

use core::future::Future;

use crate::trace::Traced;
use crate::worker::EXECUTOR;

pub use crate::runner::{InsideCoroutine, Until, run};
pub use cops_abi::{CoroutineId, Priority};
pub use cops_executor::{JoinError, JoinHandle, SpawnError, YieldNow, cancel, current, priority};
pub use cops_executor::{wake_up, waker_of, yield_now};

/// Makes a coroutine that runs `future` at `priority`, on any virtual CPU.
///
/// # Panics
/// If there is no memory for it; see [`try_spawn`].
pub fn spawn<F>(future: F, priority: Priority) -> CoroutineId
where
    F: Future<Output = ()> + Send + 'static,
{
    match try_spawn(future, priority) {
        Ok(id) => id,
        Err(error) => panic!("spawn: {error:?}"),
    }
}

/// [`spawn`], with a handle that yields the output and can cancel. Dropping the handle lets the coroutine run on.
///
/// # Panics
/// If there is no memory for it.
pub fn spawn_join<F>(future: F, priority: Priority) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match EXECUTOR.spawn_join(Traced(future), priority) {
        Ok(handle) => handle,
        Err(error) => panic!("spawn: {error:?}"),
    }
}

/// [`spawn`] that can fail.
///
/// # Errors
/// [`SpawnError::OutOfMemory`]; the future has been dropped.
pub fn try_spawn<F>(future: F, priority: Priority) -> Result<CoroutineId, SpawnError>
where
    F: Future<Output = ()> + Send + 'static,
{
    EXECUTOR.spawn(Traced(future), priority)
}

/// Changes the priority of a coroutine, whatever it is doing; one that is ready moves to the tail of its new level. The kernel's half of
/// calls that it waits for follows, at the cost of a system call for each. False if the coroutine has exited.
pub fn set_priority(id: CoroutineId, priority: Priority) -> bool {
    let exists = cops_executor::set_priority(id, priority);
    if exists {
        crate::call::set_priority_of(id, priority);
    }
    exists
}

/// Has this process yield its harts strictly, or relaxed, which is the default.
///
/// Strictly: after each coroutine it gives way to any more urgent one of another process or of the kernel that waits for a hart, at the cost of
/// some hundred instructions for each poll. Relaxed: when the kernel is entered next, at the latest after 10 ms.
/// Other virtual CPUs of this process may take up to 1024 more polls to notice.
pub fn set_strict_yielding(strict: bool) {
    crate::worker::set_strict(strict);
}

/// The priority of the coroutine that runs here; the default outside of one.
#[must_use]
pub fn current_priority() -> Priority {
    current().and_then(priority).unwrap_or(Priority::DEFAULT)
}

/// Coroutines of this process that have not exited.
#[must_use]
pub fn live_count() -> u64 {
    EXECUTOR.live_count()
}

/// Asks for `count` more virtual CPUs; how many the process has now. They run ready coroutines, and sleep in the
/// kernel when there are none.
///
/// # Errors
/// `EINVAL` if that were more than `cops_abi::page::MAX_CPUS`, `ENOMEM`.
pub fn alloc_cpu(count: usize) -> crate::io::Result<usize> {
    Ok(crate::system::allocate_cpus(count, crate::worker::begin)?)
}
