//! Coroutines: spawning, waking, priorities, virtual CPUs. SPEC 2.3.
//!
//! No function here enters the kernel, except [`alloc_cpu`], and [`wake_up`] and similar functions
//! when a virtual CPU has to be unparked.

use core::future::Future;

use crate::trace::Traced;
use crate::worker::EXECUTOR;
use cops_abi::inspect::coroutine_kind;

pub use crate::runner::{RunError, Until, run};
pub use cops_abi::{CoroutineId, Priority};
pub use cops_executor::{JoinError, JoinHandle, SpawnError, YieldNow, cancel, current, priority};
pub use cops_executor::{wake_up, waker_of, yield_now};

const TASK: usize = coroutine_kind::TASK as usize;
const MAIN: usize = coroutine_kind::MAIN as usize;

/// Spawns a coroutine that runs `future` at `priority`, on any virtual CPU.
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

/// Like [`spawn`], but returns a handle that yields the output and can cancel. Dropping the handle
/// detaches the coroutine.
///
/// # Panics
/// If there is no memory for it.
pub fn spawn_join<F>(future: F, priority: Priority) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match EXECUTOR.spawn_join(Traced::<_, TASK>(future), priority) {
        Ok(handle) => handle,
        Err(error) => panic!("spawn: {error:?}"),
    }
}

/// Like [`spawn`], but can fail.
///
/// # Errors
/// [`SpawnError::OutOfMemory`]; the future has been dropped.
pub fn try_spawn<F>(future: F, priority: Priority) -> Result<CoroutineId, SpawnError>
where
    F: Future<Output = ()> + Send + 'static,
{
    EXECUTOR.spawn(Traced::<_, TASK>(future), priority)
}

/// Spawns the coroutine that runs `main`.
pub(crate) fn spawn_main(future: impl Future<Output = ()> + Send + 'static) {
    let future = Traced::<_, MAIN>(future);
    if let Err(error) = EXECUTOR.spawn_of_kind::<_, MAIN>(future, Priority::DEFAULT) {
        crate::fatal(format_args!("no memory for main: {error:?}"));
    }
}

/// Changes the priority of a coroutine in any state; a ready one moves to the tail of its new
/// level. The kernel's part of its calls in flight follows, at the cost of a system call for each.
/// While the coroutine holds a mutex for which a more urgent one waits, it counts as that urgent,
/// and so do its calls.
/// Returns false if the coroutine has exited.
pub fn set_priority(id: CoroutineId, priority: Priority) -> bool {
    let exists = cops_executor::set_priority(id, priority);
    if exists {
        crate::call::renew_priority_of(id);
    }
    exists
}

/// Makes this process yield its harts strictly, or in the relaxed way, which is the default.
///
/// Strict: after each poll, the process yields to any more urgent virtual CPU of another process
/// and any more urgent kernel coroutine that waits for a hart. This costs some hundred instructions
/// for each poll. Relaxed: it yields at its next entry into the kernel, at the latest after 10 ms.
/// Other virtual CPUs of this process may make up to 1024 more polls before they notice the change.
pub fn set_strict_yielding(strict: bool) {
    crate::worker::set_strict(strict);
}

/// The priority of the current coroutine; the default priority outside of coroutines.
#[must_use]
pub fn current_priority() -> Priority {
    current().and_then(priority).unwrap_or(Priority::DEFAULT)
}

/// Number of coroutines of this process that have not exited.
#[must_use]
pub fn live_count() -> u64 {
    EXECUTOR.live_count()
}

/// Requests `count` more virtual CPUs. Returns how many the process has now. They run ready
/// coroutines, and sleep in the kernel when there are none.
///
/// # Errors
/// `EINVAL` if that would be more than `cops_abi::page::MAX_CPUS`, `ENOMEM`.
pub fn alloc_cpu(count: usize) -> crate::io::Result<usize> {
    Ok(crate::worker::allocate_cpus(count, crate::worker::begin)?.end)
}
