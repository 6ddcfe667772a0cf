//! Coroutines of the kernel that run for ever. Other code can wake them without a waker.

use core::sync::atomic::{AtomicU64, Ordering::*};

use cops_abi::inspect::coroutine_kind;
use cops_abi::{CoroutineId, Priority};

use super::switching::FIRST_PRIORITY;
use super::{current_number, executor};
use crate::trace;

/// A service coroutine, for code that has work for it. Declared as a `static` next to the service.
pub struct Service(AtomicU64);

impl Service {
    /// A service that does not run yet.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Makes the calling coroutine this service. It must do so before it checks for work the first
    /// time; work that arrives later wakes it.
    pub fn begin(&self) {
        self.0.store(current_number(), Release);
    }

    /// Its coroutine; `None` before it runs.
    pub fn id(&self) -> Option<CoroutineId> {
        CoroutineId::from_raw(self.0.load(Acquire))
    }

    /// Makes it check for work. May be called in any context, interrupt handlers included.
    pub fn wake(&self) {
        if let Some(id) = self.id() {
            cops_executor::wake_up(id);
        }
    }
}

/// Spawns one of the kernel's own coroutines, which run for ever or almost so.
///
/// # Panics
/// Without memory for it, which can happen only at boot.
pub fn spawn_service(
    name: &str,
    priority: Priority,
    future: impl Future<Output = ()> + Send + 'static,
) {
    spawn_named::<_, { coroutine_kind::SERVICE as usize }>(name, priority, future);
}

/// Spawns the coroutine of a hart that switches to user mode.
///
/// # Panics
/// As [`spawn_service`].
pub fn spawn_switching(name: &str, future: impl Future<Output = ()> + Send + 'static) {
    spawn_named::<_, { coroutine_kind::SWITCHING as usize }>(name, FIRST_PRIORITY, future);
}

fn spawn_named<F, const KIND: usize>(name: &str, priority: Priority, future: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let future = trace::traced::<F, KIND>(future);
    match executor().spawn_of_kind::<_, KIND>(future, priority) {
        Ok(id) => trace::name(id.raw(), name),
        Err(error) => panic!("no memory for a service of the kernel: {error:?}"),
    }
}

/// Sets the priority of a coroutine of the kernel, if it has another one.
pub fn set_priority(coroutine: CoroutineId, priority: Priority) {
    if cops_executor::priority(coroutine) != Some(priority) {
        cops_executor::set_priority(coroutine, priority);
    }
}
