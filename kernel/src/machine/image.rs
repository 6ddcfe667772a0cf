//! The kernel's image: the ranges of its sections, as the link script defines them.

use super::layout;
use core::ops::Range;

unsafe extern "C" {
    // Defined in kernel.lds; only their addresses have a meaning.
    static __image_start: u8;
    static __image_end: u8;
    static __text_start: u8;
    static __text_end: u8;
    static __rodata_start: u8;
    static __rodata_end: u8;
    static __vdso_start: u8;
    static __vdso_end: u8;
    static __data_start: u8;
    static __data_end: u8;
}

/// The range between two symbols of the link script.
macro_rules! section {
    ($start:ident, $end:ident) => {
        (&raw const $start) as usize..(&raw const $end) as usize
    };
}

/// Physical range of the whole image, in whole pages.
pub fn physical() -> Range<usize> {
    let image = section!(__image_start, __image_end);
    layout::physical_of(image.start)..layout::physical_of(image.end)
}

/// The kernel's static variables.
pub fn writable() -> Range<usize> {
    section!(__data_start, __data_end)
}

/// The kernel's code.
pub fn text() -> Range<usize> {
    section!(__text_start, __text_end)
}

/// The kernel's constants.
pub fn read_only() -> Range<usize> {
    section!(__rodata_start, __rodata_end)
}

/// The vDSO image.
pub fn vdso() -> Range<usize> {
    section!(__vdso_start, __vdso_end)
}
