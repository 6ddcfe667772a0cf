//! Loads of pointers that are set once, to something that is complete by then: the tables of slots,
//! the workers, the executors of a program. Each wake and each poll makes several of them.
//!
//! May touch nothing.

use ::core::sync::atomic::AtomicPtr;
#[cfg(not(all(target_arch = "riscv64", not(miri))))]
use ::core::sync::atomic::Ordering;

/// A pointer that another thread has stored with Release. What it points to is seen as it was at
/// that moment. Nothing else is ordered: it is less than a load with Acquire.
///
/// RISC-V orders an access through an address after the load of that address (rule 9 of its memory
/// model's preserved program order, on which `rcu_dereference` of Linux relies). An acquiring load
/// there is a load and a fence, which an emulator of several harts turns into a full barrier.
#[cfg(all(target_arch = "riscv64", not(miri)))]
#[allow(unsafe_code)]
#[inline(always)]
pub fn load_published<T>(place: &AtomicPtr<T>) -> *mut T {
    let pointer: *mut T;
    // SAFETY: an aligned load of eight bytes that exist, which the machine makes at once. What the
    // compiler cannot see into it takes for a load with Acquire, which is what this is for all
    // accesses through the pointer: it cannot know the pointer before, so it makes none earlier.
    unsafe {
        ::core::arch::asm!(
            "ld {}, 0({})",
            out(reg) pointer,
            in(reg) place.as_ptr(),
            options(nostack, preserves_flags, readonly)
        );
    }
    pointer
}

/// A pointer that another thread has stored with Release. What it points to is seen as it was at
/// that moment. Nothing else is ordered: it is less than a load with Acquire.
#[cfg(not(all(target_arch = "riscv64", not(miri))))]
#[inline(always)]
pub fn load_published<T>(place: &AtomicPtr<T>) -> *mut T {
    place.load(Ordering::Acquire)
}
