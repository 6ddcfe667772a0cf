//! Walks the kernel's stack by its frame pointers.
//!
//! The kernel is built with frame pointers: `s0` points directly above the saved return address (at
//! -8) and the caller's `s0` (at -16).

use super::hart_count;
use crate::machine::{image, layout};
use core::arch::asm;

/// The frame pointer of the caller.
#[inline(always)]
pub fn frame_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the instruction copies `s0` into an output register and has no other effect.
    unsafe { asm!("mv {}, s0", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// Calls `visit` with at most `limit` return addresses, from frame pointer `start` outwards. Every
/// frame pointer is validated: it must be aligned, lie on a kernel stack, and lie above the
/// previous one.
pub fn walk_frames(start: usize, limit: usize, mut visit: impl FnMut(usize)) {
    let mut frame = start;
    for _ in 0..limit {
        if !frame.is_multiple_of(16) || !is_on_kernel_stack(frame - 16, 16) {
            return;
        }
        // SAFETY: `is_on_kernel_stack` has confirmed that the 16 bytes below `frame` are on a
        // mapped kernel stack; `frame` is a multiple of 16, so both words are aligned.
        let (caller, return_address) = unsafe {
            let words = frame as *const usize;
            (words.sub(2).read_volatile(), words.sub(1).read_volatile())
        };
        if return_address == 0 {
            return;
        }
        visit(return_address);
        if caller <= frame {
            return;
        }
        frame = caller;
    }
}

/// Whether `length` bytes at `address` are all on one kernel stack: that of a hart, or the one used
/// for booting.
fn is_on_kernel_stack(address: usize, length: usize) -> bool {
    let within = |range: core::ops::Range<usize>| {
        range.contains(&address) && address.checked_add(length).is_some_and(|end| end <= range.end)
    };
    (0..hart_count()).any(|hart| within(layout::kernel_stack(hart))) || within(image::writable())
}
