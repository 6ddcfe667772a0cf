//! How many elements of lists were passed, counted for the tests of what contention costs; nothing
//! in other builds.

pub(super) use counted::*;

#[cfg(all(test, feature = "std", not(feature = "image"), not(loom)))]
mod counted {
    use std::cell::Cell;

    std::thread_local! {
        static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    pub fn count() {
        STEPS.set(STEPS.get() + 1);
    }

    /// Since the last time, on this thread.
    pub fn take() -> u64 {
        STEPS.replace(0)
    }
}

#[cfg(not(all(test, feature = "std", not(feature = "image"), not(loom))))]
mod counted {
    #[inline(always)]
    pub fn count() {}
}
