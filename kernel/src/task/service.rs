//! Coroutines of the kernel that run for ever, as other code names them: to wake one, it needs no waker.
//!
//! May touch: the kernel's executor.

use core::sync::atomic::{AtomicU64, Ordering::*};

use cops_abi::{CoroutineId, Priority};

/// A service coroutine, for those who have work for it. A `static` beside the service.
pub struct Service(AtomicU64);

impl Service {
    /// One that does not run yet.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The coroutine that calls is this service from now on. To be called before its first look for work: what comes later
    /// wakes it.
    pub fn begin(&self) {
        self.0.store(cops_executor::current().map_or(0, CoroutineId::raw), Release);
    }

    /// Its coroutine; `None` before it runs.
    pub fn id(&self) -> Option<CoroutineId> {
        CoroutineId::from_raw(self.0.load(Acquire))
    }

    /// Has it look for work. In any context, interrupt handlers included.
    pub fn wake(&self) {
        if let Some(id) = self.id() {
            cops_executor::wake_up(id);
        }
    }
}

/// Makes a coroutine of the kernel's as urgent as `level`, if it is not.
pub fn set_level(coroutine: CoroutineId, level: u8) {
    let priority = Priority::saturating(level.into());
    if cops_executor::priority(coroutine) != Some(priority) {
        cops_executor::set_priority(coroutine, priority);
    }
}
