//! Walking the kernel's stack by its frame pointers.
//!
//! The kernel is built with frame pointers: `s0` points above the saved return address
//! (at -8) and the caller's `s0` (at -16).

use crate::mm::layout;
use core::arch::asm;

/// The frame pointer of the caller.
#[inline(always)]
pub fn frame_pointer() -> usize {
    let pointer: usize;
    // SAFETY: copies a register.
    unsafe { asm!("mv {}, s0", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// Calls `visit` with the return addresses found from frame pointer `start` outward, at most
/// `limit`. Trusts nothing: a pointer must lie on a kernel stack, be aligned, and each must
/// lie above the one before.
pub fn walk_frames(start: usize, limit: usize, mut visit: impl FnMut(usize)) {
    let mut frame = start;
    for _ in 0..limit {
        if !frame.is_multiple_of(16) || !layout::is_on_kernel_stack(frame - 16, 16) {
            return;
        }
        // SAFETY: the 16 bytes below `frame` lie on a mapped kernel stack and are aligned.
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
