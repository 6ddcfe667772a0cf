//! The scheduler as an image that serves first come, first served: the executor's core, to which
//! every coroutine has the same priority.
//!
//! It has the exports of `cops-vdso`, so it can be booted in its place (decision 57). Exports that
//! [`FirstCome`] does not change are those of the core.
#![cfg_attr(target_os = "none", no_std)]
#![allow(unsafe_code)]

use core::ops::Deref;

use cops_executor::core::{Executor, FutureVTable, INTERFACE_VERSION};

/// The priority of every coroutine: the default.
const LEVEL: u32 = 32;
/// What the core says of a coroutine that has exited.
const NO_PRIORITY: u32 = 64;

/// The core without priorities.
struct FirstCome<'e>(&'e Executor);

impl Deref for FirstCome<'_> {
    type Target = Executor;

    fn deref(&self) -> &Executor {
        self.0
    }
}

impl FirstCome<'_> {
    /// # Safety
    /// As [`Executor::spawn`].
    unsafe fn spawn(
        &self,
        data: *mut (),
        vtable: *const FutureVTable,
        _priority: u32,
        here: u32,
    ) -> u64 {
        // SAFETY: this function has the same contract.
        unsafe { self.0.spawn(data, vtable, LEVEL, here) }
    }

    /// # Safety
    /// As [`Executor::spawn_blocked`].
    unsafe fn spawn_blocked(
        &self,
        data: *mut (),
        vtable: *const FutureVTable,
        _priority: u32,
        here: u32,
    ) -> u64 {
        // SAFETY: this function has the same contract.
        unsafe { self.0.spawn_blocked(data, vtable, LEVEL, here) }
    }

    /// Changes nothing, not even the place in the queue. False if it has exited.
    fn set_priority(&self, id: u64, _priority: u32, _here: u32) -> bool {
        self.0.priority(id) != NO_PRIORITY
    }

    /// As [`Self::set_priority`].
    fn set_inherited(&self, id: u64, _priority: u32, _here: u32) -> bool {
        self.0.priority(id) != NO_PRIORITY
    }
}

macro_rules! define_exports {
    ($($([$unsafety:tt])? $export:ident = $method:ident($($name:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        $(
            // SAFETY: `no_mangle` is sound because no other item of the image has a name with the
            // prefix `cops_`. An unsafe export passes the contract of its method on to the caller
            // unchanged.
            #[unsafe(no_mangle)]
            #[allow(clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks, missing_docs)]
            pub $($unsafety)? extern "C" fn $export(executor: &Executor $(, $name: $type)*) -> $result {
                $($unsafety)? { FirstCome(executor).$method($($name),*) }
            }
        )*
    };
}

cops_executor::for_each_core_function!(define_exports);

/// The version of the interface that the caller must have been built with.
// SAFETY: no other item of the image has a name with the prefix `cops_`.
#[unsafe(no_mangle)]
pub extern "C" fn cops_interface_version() -> u64 {
    INTERFACE_VERSION
}

/// The image cannot panic, as in `cops-vdso`.
#[cfg(target_os = "none")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        safe fn cops_the_image_must_not_contain_a_panic() -> !;
    }
    cops_the_image_must_not_contain_a_panic()
}
