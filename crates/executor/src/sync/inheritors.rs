//! The hook for what goes by the priority of a coroutine and is not in this crate: a call in flight
//! of a user coroutine, for example, which the kernel completes.
//!
//! A coroutine's priority changes with the table of mutexes locked. The hook may take long, as a
//! system call does, so it runs when the table is unlocked: until then the coroutines are noted
//! here. Their number has a bound. When it is reached, [`propagate`](Locked::propagate) leaves the
//! rest marked, and continues after the hook has run.
//!
//! May touch: the table's notes under its lock; foreign code, the hook, without it.
#![allow(unsafe_code)]

use ::core::mem;
use ::core::ptr;
use ::core::sync::atomic::{AtomicPtr, Ordering};

use super::contended::{Locked, Table};
use crate::core::CoroutineId;

/// Coroutines that are noted at once. One change outside of `propagate` has room in any case.
const MOST: usize = 8;

static HOOK: AtomicPtr<fn(CoroutineId)> = AtomicPtr::new(ptr::null_mut());

/// What is called with each coroutine of which the priority has changed because it inherits another
/// one than before. (The caller of [`set_priority`](super::set_priority) knows of that change.)
///
/// In the context of the caller that made the change (of a long chain, also of others that use a
/// mutex at the same time), in any order, and after other changes: the hook reads the
/// [`priority`](crate::priority) itself, and reads it again after it has made use of it, because
/// two callers may be in the hook with the same coroutine. The coroutine may have exited. The hook
/// may lock mutexes; it must not wait for what its caller holds.
///
/// To be set once, before there are coroutines.
///
/// ```
/// # use cops_executor::{CoroutineId, sync};
/// static RENEW: fn(CoroutineId) = |id| println!("{id:?} has another priority now");
/// sync::set_inheritance_hook(&RENEW);
/// ```
pub fn set_inheritance_hook(hook: &'static fn(CoroutineId)) {
    HOOK.store(ptr::from_ref(hook).cast_mut(), Ordering::Release);
}

fn hook() -> Option<&'static fn(CoroutineId)> {
    // SAFETY: the pointer is null, or `set_inheritance_hook` stored it from a `&'static` reference.
    unsafe { HOOK.load(Ordering::Acquire).as_ref() }
}

/// Coroutines of which the hook is to be called.
pub(super) struct Inheritors {
    ids: [Option<CoroutineId>; MOST],
    count: usize,
}

impl Inheritors {
    pub const NONE: Inheritors = Inheritors { ids: [None; MOST], count: 0 };

    fn add(&mut self, id: CoroutineId) {
        if let Some(place) = self.ids.get_mut(self.count) {
            *place = Some(id);
            self.count += 1;
        }
    }

    /// Whether there is room for no change but one.
    fn is_nearly_full(&self) -> bool {
        self.count + 1 >= MOST
    }
}

impl Locked<'_> {
    /// The priority of a coroutine has changed, because it inherits another one.
    pub fn note_inheritor(&self, id: CoroutineId) {
        if hook().is_some() {
            self.with_inheritors(|noted| noted.add(id));
        }
    }

    /// Whether the hook has to run before more coroutines can be noted.
    pub fn must_tell(&self) -> bool {
        self.with_inheritors(|noted| noted.is_nearly_full())
    }
}

/// The table is unlocked. When this is dropped, the hook is called for what was noted under the
/// lock: after the wake of a coroutine that has got a mutex, which must not wait for that.
#[must_use = "the hook runs when this is dropped"]
pub(super) struct Unlocked<'a> {
    table: &'a Table,
    noted: Option<Inheritors>,
}

impl<'a> Locked<'a> {
    /// Unlocks, without the hook.
    #[inline]
    pub fn unlock(self) -> Unlocked<'a> {
        let table = self.table();
        let noted = self.release();
        // It has been unlocked.
        mem::forget(self);
        Unlocked { table, noted }
    }

    /// Unlocks. Returns the coroutines of which the hook is to be called, if there are any.
    #[inline]
    fn release(&self) -> Option<Inheritors> {
        let is_empty = self.with_inheritors(|noted| noted.count) == 0;
        if is_empty && self.table().try_unlock() { None } else { self.release_slowly(is_empty) }
    }

    #[cold]
    fn release_slowly(&self, has_note: bool) -> Option<Inheritors> {
        if has_note {
            self.requeue_postponed();
        }
        loop {
            let noted = self.with_inheritors(|noted| mem::replace(noted, Inheritors::NONE));
            if self.table().try_unlock() {
                return (noted.count != 0).then_some(noted);
            }
            // Nothing was noted in between.
            self.with_inheritors(|now| *now = noted);
            self.requeue_postponed();
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        drop(Unlocked { table: self.table(), noted: self.release() });
    }
}

impl Drop for Unlocked<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(noted) = self.noted.take() {
            self.tell(noted);
        }
    }
}

impl Unlocked<'_> {
    #[cold]
    fn tell(&mut self, noted: Inheritors) {
        let mut next = Some(noted);
        while let Some(noted) = next.take() {
            if let Some(hook) = hook() {
                noted.ids.into_iter().flatten().for_each(hook);
            }
            if noted.is_nearly_full() {
                let table = self.table.lock();
                table.propagate();
                next = table.unlock().noted.take();
            }
        }
    }
}
