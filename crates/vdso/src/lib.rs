//! The scheduler as an image: C-ABI exports over the executor core, and nothing else.
//!
//! The kernel and all processes run this code, each on its own memory. It is linked into a shared
//! object without relocations, writable data, undefined symbols or state, so it can be mapped
//! read-execute at any address ([`vdso.lds`](../vdso.lds), decision 0001). The list of exports is
//! `for_each_core_function` in the executor. The build compares the exports with `exports.txt` in
//! this folder.
#![cfg_attr(target_os = "none", no_std)]
#![allow(unsafe_code)]

use cops_executor::core::{Executor, INTERFACE_VERSION};

macro_rules! define_exports {
    ($($([$unsafety:tt])? $export:ident = $method:ident($($name:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        $(
            // SAFETY: `no_mangle` is sound because no other item of the image has a name with the
            // prefix `cops_`. An unsafe export passes the contract of its method on to the caller
            // unchanged.
            #[unsafe(no_mangle)]
            #[allow(clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks, missing_docs)]
            pub $($unsafety)? extern "C" fn $export(executor: &Executor $(, $name: $type)*) -> $result {
                $($unsafety)? { executor.$method($($name),*) }
            }
        )*
    };
}

cops_executor::for_each_core_function!(define_exports);

/// The version of the interface that the caller must have been built with. The type of this
/// function never changes.
// SAFETY: no other item of the image has a name with the prefix `cops_`.
#[unsafe(no_mangle)]
pub extern "C" fn cops_interface_version() -> u64 {
    INTERFACE_VERSION
}

/// The image cannot panic: this function refers to a symbol that is defined nowhere, so an image
/// that contains a path to it does not link.
#[cfg(target_os = "none")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        safe fn cops_the_image_must_not_contain_a_panic() -> !;
    }
    cops_the_image_must_not_contain_a_panic()
}
