//! The scheduler as an image: C-ABI exports over the executor core, and nothing else.
//!
//! Kernel and processes run this very code, each on its own memory. It is linked into a shared object that
//! has no relocations, no writable data, no undefined symbols and no state, so it can be mapped read-execute
//! anywhere ([`vdso.lds`](../vdso.lds), decision 0001). The exports come from the one list in the
//! executor, `for_each_core_function`; `exports.txt` beside this folder is what the build compares with.
#![cfg_attr(target_os = "none", no_std)]
#![allow(unsafe_code)]

use cops_executor::core::{Executor, INTERFACE_VERSION};

macro_rules! define_exports {
    ($($([$unsafety:tt])? $export:ident = $method:ident($($name:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        $(
            // SAFETY: the prefix is ours alone; the contract, where there is one, is the method's.
            #[unsafe(no_mangle)]
            #[allow(clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks, missing_docs)]
            pub $($unsafety)? extern "C" fn $export(executor: &Executor $(, $name: $type)*) -> $result {
                $($unsafety)? { executor.$method($($name),*) }
            }
        )*
    };
}

cops_executor::for_each_core_function!(define_exports);

/// What the caller must have been built with; never changes its type.
// SAFETY: the prefix is ours alone.
#[unsafe(no_mangle)]
pub extern "C" fn cops_interface_version() -> u64 {
    INTERFACE_VERSION
}

/// The image cannot panic: this refers to a symbol that nobody defines, so a path that leads here does not
/// link.
#[cfg(target_os = "none")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        safe fn cops_the_image_must_not_contain_a_panic() -> !;
    }
    cops_the_image_must_not_contain_a_panic()
}
