//! The layout of the address space (docs/decisions/0002-address-space-layout.md).
//!
//! Sv39 gives a lower half to the program (`cops_abi::layout`) and an upper half to the kernel:
//!
//! ```text
//! 0xffff_ffc0_0000_0000     direct map: physical address 0, RAM and devices
//! 0xffff_fff0_0000_0000     kernel stacks
//! ```
//!
//! The kernel image is in the direct map at its physical address, in 4 KiB pages with the rights of
//! its sections. So no second mapping makes its code writable.

pub use cops_abi::layout::{LAZY_END, MAP_END, MAP_START, PAGE_BYTES, USER_END, USER_START};

/// Where mappings are placed that are charged at once.
pub const MAP_AREA: core::ops::Range<usize> = MAP_START..MAP_END;
/// Where mappings are placed that are charged page by page on first access.
pub const LAZY_AREA: core::ops::Range<usize> = MAP_END..LAZY_END;

/// The kernel's virtual address of physical address 0.
pub const DIRECT_MAP: usize = 0xffff_ffc0_0000_0000;
/// How much physical memory the kernel can access.
pub const DIRECT_MAP_BYTES: usize = 0x30_0000_0000;

/// Kernel stacks: for each hart an unmapped half and a mapped half. So bit
/// `log2(KERNEL_STACK_BYTES)` of the stack pointer indicates an overflow (see the trap vector in
/// `arch`).
pub const KERNEL_STACKS: usize = 0xffff_fff0_0000_0000;
pub const KERNEL_STACK_BYTES: usize = 64 * 1024;
pub const KERNEL_STACK_STRIDE: usize = 2 * KERNEL_STACK_BYTES;

const _: () = assert!(DIRECT_MAP + DIRECT_MAP_BYTES == KERNEL_STACKS);

/// The address of physical memory in the direct map.
#[inline]
pub fn direct(physical: usize) -> *mut u8 {
    debug_assert!(physical < DIRECT_MAP_BYTES);
    (DIRECT_MAP + physical) as *mut u8
}

/// The physical address for an address in the direct map.
#[inline]
pub fn physical_of(address: usize) -> usize {
    debug_assert!((DIRECT_MAP..DIRECT_MAP + DIRECT_MAP_BYTES).contains(&address));
    address - DIRECT_MAP
}

/// The mapped half of a hart's stack block: start and end.
pub const fn kernel_stack(hart: usize) -> core::ops::Range<usize> {
    let start = KERNEL_STACKS + hart * KERNEL_STACK_STRIDE + KERNEL_STACK_BYTES;
    start..start + KERNEL_STACK_BYTES
}

/// Rounds down to a page boundary.
pub const fn page_down(address: usize) -> usize {
    address & !(PAGE_BYTES - 1)
}

/// Rounds up to a page boundary; `None` past the end of the address space.
pub const fn page_up(address: usize) -> Option<usize> {
    match address.checked_add(PAGE_BYTES - 1) {
        Some(sum) => Some(page_down(sum)),
        None => None,
    }
}
