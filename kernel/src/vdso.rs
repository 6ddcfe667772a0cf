//! The vDSO: the scheduler's core as an image that the kernel and every process execute.
//!
//! It is embedded at build time, in pages of its own that are mapped read-execute everywhere and
//! are never writable.
#![allow(unsafe_code)]

use crate::machine::layout::PAGE_BYTES;
use cops_abi::layout;
use cops_executor::image::CoreTable;
use spin::Once;

const BYTES: usize = include_bytes!(env!("COPS_VDSO")).len();
const PAGES_BYTES: usize = BYTES.next_multiple_of(PAGE_BYTES);

#[repr(C, align(4096))]
struct Pages([u8; PAGES_BYTES]);

#[unsafe(link_section = ".vdso")]
static IMAGE: Pages = {
    let file = include_bytes!(env!("COPS_VDSO"));
    let mut pages = [0; PAGES_BYTES];
    let mut at = 0;
    while at < BYTES {
        pages[at] = file[at];
        at += 1;
    }
    Pages(pages)
};

/// The image, in whole pages.
pub fn image() -> &'static [u8] {
    &IMAGE.0
}

/// Whether a program that is at this address executes the image.
pub fn is_executed_at(address: usize) -> bool {
    address.wrapping_sub(layout::VDSO) < PAGES_BYTES
}

static TABLE: Once<CoreTable> = Once::new();

/// The scheduler's functions in the image, for the kernel's own executor.
///
/// # Panics
/// If the embedded file is not the image that the executor crate expects: the system cannot start.
pub fn core_table() -> &'static CoreTable {
    // SAFETY: the pointer is to the whole image, which the kernel maps readable and executable
    // forever.
    TABLE.call_once(|| match unsafe { CoreTable::from_image(IMAGE.0.as_ptr()) } {
        Ok(table) => table,
        Err(error) => panic!("the embedded vDSO image is not this kernel's: {error:?}"),
    })
}
