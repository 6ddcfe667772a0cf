//! The run queue's lock, with a measurement of how long it is held, by purpose.

use core::ops::{Deref, DerefMut};

use cops_abi::inspect::portion;
use cops_lock::{Mutex, MutexGuard};

use crate::portions::Section;

/// The purposes for which the lock is held, in the order of [`NAMES`].
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Enqueue,
    Requeue,
    Renew,
    Raise,
    Withdraw,
    Pop,
    Release,
    Inherit,
    Pause,
    Rest,
}

const NAMES: [&str; 10] = [
    "enqueue", "requeue", "renew", "raise", "withdraw", "pop", "release", "inherit", "pause",
    "rest",
];

/// The name of a purpose by its number, for measurements.
pub fn name_of_hold(number: u32) -> &'static str {
    NAMES.get(number as usize).copied().unwrap_or("?")
}

/// What the lock protects, locked.
pub(super) struct Held<'a, T> {
    inner: MutexGuard<'a, T>,
    /// Ends after the lock is free.
    _measured: Section,
}

/// Locks `mutex` for this purpose.
pub(super) fn hold<T>(mutex: &Mutex<T>, purpose: Purpose) -> Held<'_, T> {
    let inner = mutex.lock();
    Held { inner, _measured: Section::begin(portion::RUN_QUEUE, purpose as u32) }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}
