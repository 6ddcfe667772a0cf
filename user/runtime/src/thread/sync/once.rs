//! What happens once.
//!
//! The word is 0 before, 1 while a thread does it, 2 while it does it and others wait, 3 after.
#![allow(unsafe_code)]

use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::ops::Deref;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release},
};

use crate::system;

const NEW: u32 = 0;
const RUNNING: u32 = 1;
const CONTENDED: u32 = 2;
const COMPLETE: u32 = 3;

/// Something to be done once, by the first of several threads, while the others wait.
#[derive(Debug)]
pub struct Once(AtomicU32);

impl Default for Once {
    fn default() -> Self {
        Self::new()
    }
}

impl Once {
    /// It has not happened.
    pub const fn new() -> Self {
        Self(AtomicU32::new(NEW))
    }

    /// Whether it has happened; what it wrote is then visible.
    #[inline]
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.0.load(Acquire) == COMPLETE
    }

    /// Does it, unless it has happened; if another thread does it, waits for that. Afterwards
    /// [`is_completed`](Self::is_completed). Never returns if `act` calls this for the same value.
    #[inline]
    pub fn call_once(&self, act: impl FnOnce()) {
        if !self.is_completed() {
            let mut act = Some(act);
            self.call(&mut || {
                if let Some(act) = act.take() {
                    act();
                }
            });
        }
    }

    #[cold]
    fn call(&self, act: &mut dyn FnMut()) {
        loop {
            match self.0.compare_exchange(NEW, RUNNING, Acquire, Acquire) {
                Ok(_) => {
                    act();
                    if self.0.swap(COMPLETE, Release) == CONTENDED {
                        system::futex_wake(&self.0, u32::MAX >> 1);
                    }
                    return;
                }
                Err(COMPLETE) => return,
                Err(now) => {
                    if now == CONTENDED
                        || self.0.compare_exchange(RUNNING, CONTENDED, Acquire, Acquire).is_ok()
                    {
                        let _ = system::futex_wait(&self.0, CONTENDED, None);
                    }
                }
            }
        }
    }
}

/// A value that is set once.
pub struct OnceLock<T> {
    once: Once,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is written once, by the thread that `once` chooses, and only read after it is
// complete. `Send`, because the value may be set by one thread and dropped by another.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceLock<T> {
    /// One without a value.
    pub const fn new() -> Self {
        Self { once: Once::new(), value: UnsafeCell::new(None) }
    }

    /// The value, if it was set.
    pub fn get(&self) -> Option<&T> {
        if !self.once.is_completed() {
            return None;
        }
        // SAFETY: nothing writes to the value after `once` is complete.
        unsafe { (*self.value.get()).as_ref() }
    }

    /// The value, which `make` makes if there is none. If several threads come at once, one of
    /// them makes it and the others wait.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        self.once.call_once(|| {
            let value = make();
            // SAFETY: `once` lets one thread in, and nothing reads before it is complete.
            unsafe { *self.value.get() = Some(value) };
        });
        match self.get() {
            Some(value) => value,
            None => crate::fatal(format_args!("a value that was made is not there")),
        }
    }

    /// Sets the value.
    ///
    /// # Errors
    /// `value`, if there is one already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.once.call_once(|| {
            // SAFETY: `once` lets one thread in, and nothing reads before it is complete.
            unsafe { *self.value.get() = value.take() };
        });
        value.map_or(Ok(()), Err)
    }

    /// The value.
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("OnceLock").field(&self.get()).finish()
    }
}

/// A value that is made when it is first used.
pub struct LazyLock<T, F = fn() -> T> {
    value: OnceLock<T>,
    make: Cell<Option<F>>,
}

// SAFETY: `make` is accessed only by the thread that `value` chooses to make the value.
unsafe impl<T: Send + Sync, F: Send> Sync for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    /// One that `make` makes.
    pub const fn new(make: F) -> Self {
        Self { value: OnceLock::new(), make: Cell::new(Some(make)) }
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.get_or_init(|| match self.make.take() {
            Some(make) => make(),
            None => crate::fatal(format_args!("a value is made for the second time")),
        })
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("LazyLock").field(&self.value.get()).finish()
    }
}
