//! Watching a program's coroutines come, be woken and change their priority, without a trace point
//! in the core: a table of functions that notify an observer and then call those of the image.
//!
//! A program that installs the plain table pays nothing. One kind of wake is not seen: a coroutine
//! that wakes itself during its poll, which is noted at its worker without a call to the core.
#![allow(unsafe_code)]

use ::core::ptr;
use ::core::sync::atomic::{AtomicPtr, Ordering};

use super::CoreTable;
use crate::core::published::load_published;
use crate::core::{CoroutineId, Executor, FutureVTable, Priority};

/// What is to be called, by whichever worker or interrupt handler does the thing. So these must be
/// fit for interrupt handlers, and must not use the executor.
///
/// ```
/// use cops_executor::image::Observer;
/// static OBSERVER: Observer = Observer {
///     wake: |id| println!("wake {id}"),
///     spawn: |id, priority| println!("spawn {id} at {priority}"),
///     set_priority: |id, priority| println!("{id} goes to {priority}"),
/// };
/// # let id = cops_executor::CoroutineId::from_raw(1 << 32 | 1).unwrap();
/// (OBSERVER.wake)(id);
/// ```
pub struct Observer {
    /// A coroutine is about to be woken.
    pub wake: fn(CoroutineId),
    /// A coroutine was made, and may have been polled already.
    pub spawn: fn(CoroutineId, Priority),
    /// A coroutine is about to be given another priority.
    pub set_priority: fn(CoroutineId, Priority),
}

static PLAIN: AtomicPtr<CoreTable> = AtomicPtr::new(ptr::null_mut());
static OBSERVER: AtomicPtr<Observer> = AtomicPtr::new(ptr::null_mut());

impl CoreTable {
    /// A table that calls the functions of `plain` and tells `observer`. One pair for each program:
    /// all such tables use the latest.
    ///
    /// In any context.
    ///
    /// ```
    /// use cops_executor::core::{Executor as Core, INTERFACE_VERSION};
    /// use cops_executor::image::{CoreTable, Observer, install};
    /// # extern "C" fn version() -> u64 { INTERFACE_VERSION }
    /// # macro_rules! define_exports {
    /// #     ($($([$unsafety:tt])? $export:ident = $method:ident($($name:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
    /// #         $($($unsafety)? extern "C" fn $export(executor: &Core $(, $name: $type)*) -> $result {
    /// #             $($unsafety)? { executor.$method($($name),*) }
    /// #         })*
    /// #         fn find(name: &str) -> Option<*const ()> {
    /// #             match name {
    /// #                 "cops_interface_version" => Some(version as *const ()),
    /// #                 $(stringify!($export) => Some($export as *const ()),)*
    /// #                 _ => None,
    /// #             }
    /// #         }
    /// #     };
    /// # }
    /// # cops_executor::for_each_core_function!(define_exports);
    /// static OBSERVER: Observer = Observer {
    ///     wake: |id| println!("wake {id}"),
    ///     spawn: |id, priority| println!("spawn {id} at {priority}"),
    ///     set_priority: |id, priority| println!("{id} goes to {priority}"),
    /// };
    /// // SAFETY: `find` knows functions of this program by their names.
    /// let plain: &'static CoreTable = Box::leak(Box::new(unsafe { CoreTable::resolve(find) }.unwrap()));
    /// install(Box::leak(Box::new(CoreTable::observed(plain, &OBSERVER))));
    /// ```
    pub fn observed(plain: &'static CoreTable, observer: &'static Observer) -> CoreTable {
        PLAIN.store(ptr::from_ref(plain).cast_mut(), Ordering::Release);
        OBSERVER.store(ptr::from_ref(observer).cast_mut(), Ordering::Release);
        CoreTable { wake, set_priority, spawn, spawn_blocked, ..*plain }
    }
}

fn plain() -> &'static CoreTable {
    // SAFETY: stored, from a `&'static`, before there was a table that leads here.
    unsafe { &*load_published(&PLAIN) }
}

fn observer() -> &'static Observer {
    // SAFETY: stored from a `&'static` reference before there was a table with these functions.
    unsafe { &*load_published(&OBSERVER) }
}

extern "C" fn wake(executor: &Executor, id: u64, here: u32) -> bool {
    if let Some(id) = CoroutineId::from_raw(id) {
        (observer().wake)(id);
    }
    (plain().wake)(executor, id, here)
}

extern "C" fn set_priority(executor: &Executor, id: u64, priority: u32, here: u32) -> bool {
    if let Some(id) = CoroutineId::from_raw(id) {
        (observer().set_priority)(id, Priority::saturating(priority));
    }
    (plain().set_priority)(executor, id, priority, here)
}

unsafe extern "C" fn spawn(
    executor: &Executor,
    data: *mut (),
    vtable: *const FutureVTable,
    priority: u32,
    here: u32,
) -> u64 {
    // SAFETY: the caller's promise is what the core asks for.
    spawned(unsafe { (plain().spawn)(executor, data, vtable, priority, here) }, priority)
}

unsafe extern "C" fn spawn_blocked(
    executor: &Executor,
    data: *mut (),
    vtable: *const FutureVTable,
    priority: u32,
    here: u32,
) -> u64 {
    // SAFETY: this function has the same contract as the function in the plain table that it calls.
    spawned(unsafe { (plain().spawn_blocked)(executor, data, vtable, priority, here) }, priority)
}

/// Passes on what a spawn returned: an id, or a status.
fn spawned(raw: u64, priority: u32) -> u64 {
    if let Some(id) = CoroutineId::from_raw(raw) {
        (observer().spawn)(id, Priority::saturating(priority));
    }
    raw
}
