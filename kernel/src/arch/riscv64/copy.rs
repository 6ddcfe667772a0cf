//! Copies memory that a program may write at the same time, and clears frames.

use core::arch::asm;

/// Copies `length` bytes from `source` to `destination`. User code on another hart may read and
/// write either region meanwhile.
///
/// Written in assembly, because a data race would be undefined behaviour in Rust. Here a race only
/// means that the copy is a mixture of old and new bytes. The regions must not overlap.
///
/// Words are loaded and stored at any address (decision 25).
///
/// # Safety
/// Both regions are mapped in the kernel, `source` readable and `destination` writable, and no Rust
/// reference promises that the destination does not change.
pub unsafe fn copy_shared(destination: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the loads access only the `length` bytes at the source and the stores only the
    // `length` bytes at the destination: the loop copies 64 while as many are left, and below it
    // each set bit of the rest copies as many bytes as the bit is worth.
    unsafe {
        asm!(
            "li    {t0}, 64",
            "bltu  {n}, {t0}, 2f",
            "1: ld {t1}, 0({s})",
            "ld    {t2}, 8({s})",
            "sd    {t1}, 0({d})",
            "sd    {t2}, 8({d})",
            "ld    {t1}, 16({s})",
            "ld    {t2}, 24({s})",
            "sd    {t1}, 16({d})",
            "sd    {t2}, 24({d})",
            "ld    {t1}, 32({s})",
            "ld    {t2}, 40({s})",
            "sd    {t1}, 32({d})",
            "sd    {t2}, 40({d})",
            "ld    {t1}, 48({s})",
            "ld    {t2}, 56({s})",
            "sd    {t1}, 48({d})",
            "sd    {t2}, 56({d})",
            "addi  {s}, {s}, 64",
            "addi  {d}, {d}, 64",
            "addi  {n}, {n}, -64",
            "bgeu  {n}, {t0}, 1b",
            "2: andi {t0}, {n}, 32",
            "beqz  {t0}, 8f",
            "ld    {t1}, 0({s})",
            "ld    {t2}, 8({s})",
            "sd    {t1}, 0({d})",
            "sd    {t2}, 8({d})",
            "ld    {t1}, 16({s})",
            "ld    {t2}, 24({s})",
            "sd    {t1}, 16({d})",
            "sd    {t2}, 24({d})",
            "addi  {s}, {s}, 32",
            "addi  {d}, {d}, 32",
            "8: andi {t0}, {n}, 16",
            "beqz  {t0}, 3f",
            "ld    {t1}, 0({s})",
            "ld    {t2}, 8({s})",
            "sd    {t1}, 0({d})",
            "sd    {t2}, 8({d})",
            "addi  {s}, {s}, 16",
            "addi  {d}, {d}, 16",
            "3: andi {t0}, {n}, 8",
            "beqz  {t0}, 4f",
            "ld    {t1}, 0({s})",
            "sd    {t1}, 0({d})",
            "addi  {s}, {s}, 8",
            "addi  {d}, {d}, 8",
            "4: andi {t0}, {n}, 4",
            "beqz  {t0}, 5f",
            "lwu   {t1}, 0({s})",
            "sw    {t1}, 0({d})",
            "addi  {s}, {s}, 4",
            "addi  {d}, {d}, 4",
            "5: andi {t0}, {n}, 2",
            "beqz  {t0}, 6f",
            "lhu   {t1}, 0({s})",
            "sh    {t1}, 0({d})",
            "addi  {s}, {s}, 2",
            "addi  {d}, {d}, 2",
            "6: andi {t0}, {n}, 1",
            "beqz  {t0}, 7f",
            "lbu   {t1}, 0({s})",
            "sb    {t1}, 0({d})",
            "7:",
            d = inout(reg) destination => _,
            s = inout(reg) source => _,
            n = inout(reg) length => _,
            t0 = out(reg) _,
            t1 = out(reg) _,
            t2 = out(reg) _,
            options(nostack),
        )
    }
}

/// Clears `length` bytes, a multiple of 64, at an address that is a multiple of 8. Every frame that
/// a program gets is cleared here; therefore each iteration stores a whole cache line.
///
/// # Safety
/// The region is mapped writable in the kernel, and no reference points into it.
pub unsafe fn clear(start: *mut u8, length: usize) {
    debug_assert!(length.is_multiple_of(64) && (start as usize).is_multiple_of(8));
    // SAFETY: the stores write exactly the region that the caller guarantees to be mapped writable.
    unsafe {
        asm!(
            "1: bgeu {p}, {end}, 2f",
            "sd zero, 0({p})",
            "sd zero, 8({p})",
            "sd zero, 16({p})",
            "sd zero, 24({p})",
            "sd zero, 32({p})",
            "sd zero, 40({p})",
            "sd zero, 48({p})",
            "sd zero, 56({p})",
            "addi {p}, {p}, 64",
            "j 1b",
            "2:",
            p = inout(reg) start => _,
            end = in(reg) start.wrapping_add(length),
            options(nostack),
        )
    }
}
