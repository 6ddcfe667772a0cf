//! Copies memory that a program may write at the same time, and clears frames.

use core::arch::asm;

/// Copies `length` bytes from `source` to `destination`. User code on another hart may read and
/// write either region meanwhile.
///
/// Written in assembly, because a data race would be undefined behaviour in Rust. Here a race only
/// means that the copy is a mixture of old and new bytes. The regions must not overlap.
///
/// All loads and stores of words are aligned, so no hart traps into its firmware for them. Where
/// the two regions are not aligned alike, each word is put together from two: less than an
/// instruction for a byte, where one byte after the other takes six.
///
/// # Safety
/// Both regions are mapped in the kernel, `source` readable and `destination` writable, and no Rust
/// reference promises that the destination does not change.
pub unsafe fn copy_shared(destination: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the stores access only the `length` bytes at the destination. If both pointers are
    // aligned alike, the loads access only the `length` bytes at the source. Otherwise each aligned
    // word that is loaded contains at least one byte of the source, so it lies in a mapped page;
    // its other bytes are shifted out.
    unsafe {
        asm!(
            "xor   {t0}, {d}, {s}",
            "andi  {t0}, {t0}, 7",
            "bnez  {t0}, 8f",              // never aligned together
            "1: andi {t0}, {s}, 7",        // leading bytes
            "beqz  {t0}, 2f",
            "beq   {s}, {e}, 6f",
            "lbu   {t0}, 0({s})",
            "sb    {t0}, 0({d})",
            "addi  {s}, {s}, 1",
            "addi  {d}, {d}, 1",
            "j     1b",
            "2: addi {t2}, {e}, -31",      // four words at a time
            "3: bgeu {s}, {t2}, 4f",
            "ld    {t0}, 0({s})",
            "ld    {t1}, 8({s})",
            "sd    {t0}, 0({d})",
            "sd    {t1}, 8({d})",
            "ld    {t0}, 16({s})",
            "ld    {t1}, 24({s})",
            "sd    {t0}, 16({d})",
            "sd    {t1}, 24({d})",
            "addi  {s}, {s}, 32",
            "addi  {d}, {d}, 32",
            "j     3b",
            "4: addi {t2}, {e}, -7",       // words
            "7: bgeu {s}, {t2}, 5f",
            "ld    {t0}, 0({s})",
            "sd    {t0}, 0({d})",
            "addi  {s}, {s}, 8",
            "addi  {d}, {d}, 8",
            "j     7b",
            "5: beq {s}, {e}, 6f",         // trailing bytes
            "lbu   {t0}, 0({s})",
            "sb    {t0}, 0({d})",
            "addi  {s}, {s}, 1",
            "addi  {d}, {d}, 1",
            "j     5b",
            "8: addi {t2}, {e}, -23",      // fewer bytes than this block needs
            "bgeu  {s}, {t2}, 5b",
            "9: andi {t0}, {d}, 7",        // bytes up to a word of the destination
            "beqz  {t0}, 2f",
            "lbu   {t0}, 0({s})",
            "sb    {t0}, 0({d})",
            "addi  {s}, {s}, 1",
            "addi  {d}, {d}, 1",
            "j     9b",
            "2: andi {right}, {s}, 7",     // to the source's word below, 1 to 7 bytes
            "sub   {s}, {s}, {right}",
            "sub   {t2}, {e}, {right}",
            "addi  {t2}, {t2}, -16",       // the last place from which two words can be taken
            "slli  {right}, {right}, 3",
            "neg   {left}, {right}",       // shifts look at the low six bits only
            "ld    {t0}, 0({s})",
            "3: ld {t1}, 8({s})",
            "srl   {t0}, {t0}, {right}",
            "sll   {t3}, {t1}, {left}",
            "or    {t0}, {t0}, {t3}",
            "sd    {t0}, 0({d})",
            "ld    {t0}, 16({s})",
            "srl   {t1}, {t1}, {right}",
            "sll   {t3}, {t0}, {left}",
            "or    {t1}, {t1}, {t3}",
            "sd    {t1}, 8({d})",
            "addi  {s}, {s}, 16",
            "addi  {d}, {d}, 16",
            "bgeu  {t2}, {s}, 3b",
            "srli  {right}, {right}, 3",
            "add   {s}, {s}, {right}",
            "j     5b",
            "6:",
            d = inout(reg) destination => _,
            s = inout(reg) source => _,
            e = in(reg) source.wrapping_add(length),
            t0 = out(reg) _,
            t1 = out(reg) _,
            t2 = out(reg) _,
            t3 = out(reg) _,
            left = out(reg) _,
            right = out(reg) _,
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
