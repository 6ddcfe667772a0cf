//! The vDSO: the scheduler's core as an image that the kernel and every process execute.
//!
//! It is embedded at build time, in pages of its own that are mapped read-execute everywhere and
//! are never writable. In the kernel's file there is room for a larger one, so that another
//! scheduler can be put in its place before the boot (decision 57).
#![allow(unsafe_code)]

use crate::machine::layout::PAGE_BYTES;
use cops_abi::layout;
use cops_executor::image::CoreTable;
use spin::Once;

const BYTES: usize = include_bytes!(env!("COPS_VDSO")).len();
const ROOM_BYTES: usize = 16 * PAGE_BYTES;
const _: () = assert!(BYTES <= ROOM_BYTES);

#[repr(C, align(4096))]
struct Pages([u8; ROOM_BYTES]);

#[unsafe(link_section = ".vdso")]
static IMAGE: Pages = {
    let file = include_bytes!(env!("COPS_VDSO"));
    let mut pages = [0; ROOM_BYTES];
    let mut at = 0;
    while at < BYTES {
        pages[at] = file[at];
        at += 1;
    }
    Pages(pages)
};

/// The image, in whole pages.
pub fn image() -> &'static [u8] {
    static LENGTH: Once<usize> = Once::new();
    let length = *LENGTH.call_once(|| {
        // Read where it is, because the compiler knows only what was there when it was built.
        let image = core::hint::black_box(&IMAGE.0);
        match loaded_bytes(image).filter(|length| (1..=ROOM_BYTES).contains(length)) {
            Some(length) => length.next_multiple_of(PAGE_BYTES),
            None => panic!("the embedded vDSO image has no segment that fits"),
        }
    });
    core::hint::black_box(&IMAGE.0).get(..length).unwrap_or_default()
}

/// The bytes of the image's one segment, which begins at its beginning. Its section headers are not
/// in the image, so a parser of whole files cannot be used.
fn loaded_bytes(image: &[u8]) -> Option<usize> {
    let word = |at: usize| Some(u64::from_le_bytes(*image.get(at..)?.first_chunk()?) as usize);
    let half = |at: usize| Some(u16::from_le_bytes(*image.get(at..)?.first_chunk()?) as usize);
    // `e_phoff`, `e_phentsize` and `e_phnum` of the ELF header; `p_type` and `p_filesz` of a
    // program header.
    let (first, bytes, count) = (word(32)?, half(54)?, half(56)?);
    let headers = (0..count).filter_map(|index| index.checked_mul(bytes)?.checked_add(first));
    let is_loaded = |at: &usize| word(*at).is_some_and(|word| word as u32 == elf::abi::PT_LOAD);
    let loaded = headers.into_iter().find(is_loaded)?;
    word(loaded.checked_add(32)?)
}

/// Whether a program that is at this address executes the image.
pub fn is_executed_at(address: usize) -> bool {
    address.wrapping_sub(layout::VDSO) < ROOM_BYTES
}

static TABLE: Once<CoreTable> = Once::new();

/// The scheduler's functions in the image, for the kernel's own executor.
///
/// # Panics
/// If the embedded file is not the image that the executor crate expects: the system cannot start.
pub fn core_table() -> &'static CoreTable {
    // SAFETY: the pointer is to the whole image, which the kernel maps readable and executable
    // forever.
    TABLE.call_once(|| match unsafe { CoreTable::from_image(image().as_ptr()) } {
        Ok(table) => table,
        Err(error) => panic!("the embedded vDSO image is not this kernel's: {error:?}"),
    })
}
