//! The machine's description, read once from the device tree before there is a heap.
//! `cops_algorithms::device_tree` reads it.

pub use cops_algorithms::device_tree::UartFacts;

use super::{MAX_HARTS, layout};
use flat_device_tree::Fdt;
use spin::Once;

pub type Facts = cops_algorithms::device_tree::Facts<MAX_HARTS>;

static FACTS: Once<Facts> = Once::new();

/// The contents of the device tree.
///
/// # Panics
/// Before [`discover`].
#[inline]
pub fn facts() -> &'static Facts {
    FACTS.get().expect("the device tree is read first of all")
}

/// Like [`facts`], but `None` before [`discover`].
pub fn try_facts() -> Option<&'static Facts> {
    FACTS.get()
}

/// The value of boot argument `key=value`.
pub fn boot_argument(key: &str) -> Option<&'static str> {
    cops_abi::bootargs::value(facts().boot_arguments, key)
}

/// The bytes of the root image.
pub fn root_image() -> &'static [u8] {
    let Some(image) = try_facts().and_then(|facts| facts.root_image.as_ref()) else { return &[] };
    // SAFETY: the range is RAM in the direct map. `discover` reserves it, so the frame allocator
    // never hands it out and no code writes it.
    unsafe { core::slice::from_raw_parts(layout::direct(image.start), image.len()) }
}

/// Reads the device tree at `physical`.
///
/// # Panics
/// If there is no tree, or it names no hart, memory or clock: the kernel cannot run without them.
pub fn discover(physical: usize) {
    FACTS.call_once(|| {
        // SAFETY: the firmware has put a tree there. The address is in the direct map, and the
        // memory is reserved below, so it never changes.
        let tree = unsafe { Fdt::from_ptr(layout::direct(physical)) }
            .expect("the firmware gives a device tree");
        Facts::read(&tree, physical, layout::DIRECT_MAP_BYTES)
    });
}
