//! Values that each thread has for itself.
//!
//! May touch: the values of the calling thread.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::UnsafeCell;
use core::ptr;

use crate::worker;

/// The values of a thread, by the addresses of their keys. `None`: the value has been dropped,
/// because the thread ends.
type List = Vec<(usize, Option<Box<dyn Any>>)>;

/// The values of a thread.
pub(super) struct Values(UnsafeCell<List>);

impl Values {
    pub(super) const fn new() -> Self {
        Self(UnsafeCell::new(Vec::new()))
    }
}

/// A static of which each thread has a value of its own, made when the thread first uses it and
/// dropped when the thread ends. If there is no handle, the thread then drops its result, and after
/// that the values that this drop has made.
///
/// ```ignore
/// static COUNT: LocalKey<Cell<u32>> = LocalKey::new(|| Cell::new(0));
/// COUNT.with(|count| count.set(count.get() + 1));
/// ```
///
/// In a coroutine, it is the value of the virtual CPU that polls it, which may be another one after
/// each `.await`; those values are never dropped.
#[derive(Debug)]
pub struct LocalKey<T: 'static> {
    make: fn() -> T,
}

impl<T: 'static> LocalKey<T> {
    /// A key for values that `make` makes. Use it in a `static`.
    pub const fn new(make: fn() -> T) -> Self {
        Self { make }
    }

    /// Calls `act` with the calling thread's value. To find it takes a step for each key that the
    /// thread has used.
    ///
    /// # Panics
    /// If `make` uses this key. If the value has been dropped, because the thread ends: in the drop
    /// of this value, or of one that is dropped later.
    pub fn with<R>(&'static self, act: impl FnOnce(&T) -> R) -> R {
        let Some(local) = worker::current_local() else {
            // Before the executor has started there is nothing but this.
            return act(&(self.make)());
        };
        let values = local.values.0.get();
        let key = ptr::from_ref(self).addr();
        // SAFETY: only this thread accesses its values, and the reference ends here.
        let found = unsafe { find(&*values, key) };
        let value = match found {
            Some(value) => value,
            None => {
                let made: Box<dyn Any> = Box::new((self.make)());
                // SAFETY: as above; `make` has returned.
                let values = unsafe { &mut *values };
                let is_new = find(values, key).is_none();
                assert!(is_new, "the value of a key was made with this key");
                let value = ptr::from_ref(&*made);
                values.push((key, Some(made)));
                value
            }
        };
        // SAFETY: the box stays where it is until the thread ends; `with` returns before that.
        match unsafe { &*value }.downcast_ref() {
            Some(value) => act(value),
            None => crate::fatal(format_args!("a value of a thread has another type")),
        }
    }
}

fn find(values: &List, key: usize) -> Option<*const dyn Any> {
    let (_, value) = values.iter().find(|(other, _)| *other == key)?;
    Some(ptr::from_ref(&**value.as_ref().expect("the value of a key has been dropped")))
}

/// The thread ends: drops its values, the last one first. A value that is made by a drop is dropped
/// too. No key gets a second value meanwhile, so this ends. Called twice: before the result is
/// published, and for the values that the drop of the result has made.
pub(super) fn drop_all() {
    let Some(local) = worker::current_local() else { return };
    loop {
        // SAFETY: only this thread accesses its values, and the reference ends before the drop.
        let values = unsafe { &mut *local.values.0.get() };
        let last = values.iter_mut().rev().find_map(|(_, value)| value.take());
        if last.is_none() {
            // SAFETY: as above. The memory of the list is freed too.
            unsafe { *local.values.0.get() = Vec::new() };
            return;
        }
    }
}
