//! Which runtime the code of a thread is in: that of the innermost `block_on`, or the one that the
//! thread is a worker of.

use std::cell::Cell;

use super::handle::Handle;

std::thread_local! {
    /// The runtime of the innermost `block_on` of this thread, unless the thread has become a
    /// worker since: then it is the worker's.
    static BLOCKED_ON: Cell<Option<Handle>> = const { Cell::new(None) };
}

/// Another context until it is dropped, then the one before.
pub(super) struct Context(Option<Handle>);

impl Context {
    /// In `block_on` of this runtime.
    pub fn of(handle: Handle) -> Context {
        Context(BLOCKED_ON.replace(Some(handle)))
    }

    /// As a worker.
    pub fn of_worker() -> Context {
        Context(BLOCKED_ON.take())
    }

    /// The runtime of the `block_on` that this thread is in.
    pub fn current() -> Option<Handle> {
        BLOCKED_ON.get()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        BLOCKED_ON.set(self.0);
    }
}
