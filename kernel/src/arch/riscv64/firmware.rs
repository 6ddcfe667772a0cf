//! Calls to the firmware (SBI): starting harts, interrupting them, fences on other harts, the timer
//! of harts without a timer of their own, power off, and an emergency console.

use super::hart;
use sbi_rt::HartMask;

/// Starts hart `hart_id` at physical address `entry` with `opaque` as its second argument.
pub(super) fn start_hart(hart_id: usize, entry: usize, opaque: usize) -> Result<(), isize> {
    into_result(sbi_rt::hart_start(hart_id, entry, opaque))
}

/// Sends a software interrupt to one hart.
pub(super) fn send_interrupt(hart_id: usize) {
    // The only possible error is a hart that does not exist; the ids are those of harts that were
    // started.
    let _ = sbi_rt::send_ipi(HartMask::from_mask_base(1, hart_id));
}

/// Interrupts this hart at `deadline_ticks`; `u64::MAX` means never.
pub(super) fn set_timer(deadline_ticks: u64) {
    let _ = sbi_rt::set_timer(deadline_ticks);
}

/// The part of the translation caches to flush.
#[derive(Clone, Copy)]
pub(super) struct FenceRange {
    pub(super) start: usize,
    /// In bytes. `usize::MAX` with `start` 0 means everything.
    pub(super) length: usize,
    pub(super) asid: u16,
}

/// Flushes `range` on every hart in the mask `harts` of logical indexes. Returns when all of them
/// have done so.
pub(super) fn remote_flush(harts: u64, range: FenceRange) {
    for_each_mask(harts, |mask| {
        let _ = sbi_rt::remote_sfence_vma_asid(
            mask,
            range.start,
            range.length,
            usize::from(range.asid),
        );
    });
}

/// Makes the harts in the mask see code written before. Returns when all of them do.
pub(super) fn remote_instruction_fence(harts: u64) {
    for_each_mask(harts, |mask| {
        let _ = sbi_rt::remote_fence_i(mask);
    });
}

/// Converts logical hart indexes to the firmware's masks. Ids within 64 of each other need one
/// call; on all known machines that is the case.
fn for_each_mask(harts: u64, mut call: impl FnMut(HartMask)) {
    let mut rest = harts;
    while rest != 0 {
        let base = hart::id_of(rest.trailing_zeros() as usize);
        let mut mask = 0usize;
        let mut later = 0u64;
        for index in (0..super::super::MAX_HARTS).filter(|index| rest & (1 << index) != 0) {
            match hart::id_of(index).checked_sub(base) {
                Some(distance) if distance < usize::BITS as usize => mask |= 1 << distance,
                _ => later |= 1 << index,
            }
        }
        call(HartMask::from_mask_base(mask, base));
        rest = later;
    }
}

/// Asks the firmware to power the machine off. Returns if it cannot.
pub fn power_off_machine() {
    let _ = sbi_rt::system_reset(sbi_rt::Shutdown, sbi_rt::NoReason);
}

/// Prints through the firmware, byte by byte: for a panic before the console exists.
pub fn emergency_write(bytes: &[u8]) {
    for &byte in bytes {
        // SAFETY: the legacy "console putchar" call takes its argument in a0 and the number 1 in
        // a7. The firmware preserves all registers except a0 and a1, which are declared as outputs.
        unsafe {
            core::arch::asm!(
                "ecall",
                inout("a0") usize::from(byte) => _,
                out("a1") _,
                in("a7") 1,
                options(nostack),
            );
        }
    }
}

fn into_result(answer: sbi_rt::SbiRet) -> Result<(), isize> {
    if answer.error == 0 { Ok(()) } else { Err(answer.error as isize) }
}
