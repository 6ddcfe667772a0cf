//! What the boot makes and everything reads.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// A reference that is set before there is a second hart. Reading it costs a load, where `Once`
/// also costs a fence, and each frame of memory and each look at the run queues reads some.
#[derive(Debug)]
pub struct AtBoot<T: 'static>(AtomicPtr<T>);

impl<T> AtBoot<T> {
    /// Not set yet.
    #[must_use]
    pub const fn unset() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Sets it.
    ///
    /// # Safety
    /// No other hart, or thread of a test, runs yet: what makes them run comes after this.
    pub unsafe fn set(&self, value: &'static T) {
        self.0.store(ptr::from_ref(value).cast_mut(), Relaxed);
    }

    /// The reference; `None` before it is set. In any context.
    #[inline(always)]
    pub fn get(&self) -> Option<&'static T>
    where
        T: Sync,
    {
        // SAFETY: null, or what `set` was given. The caller runs on the hart that has called that,
        // after it, or on one that was started after it, by the contract of `set`: so it sees the
        // value as it was then.
        unsafe { self.0.load(Relaxed).as_ref() }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::thread;

    use super::*;

    #[test]
    fn what_is_set_is_seen_by_all_that_start_later() {
        static VALUE: u64 = 7;
        static AT_BOOT: AtBoot<u64> = AtBoot::unset();
        assert_eq!(AT_BOOT.get(), None);
        // SAFETY: the thread that reads it starts below.
        unsafe { AT_BOOT.set(&VALUE) };
        thread::scope(|scope| scope.spawn(|| assert_eq!(AT_BOOT.get(), Some(&7))).join().unwrap());
    }
}
