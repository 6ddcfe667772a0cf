//! Control and status registers: names, bits, and macros to read, write, set and clear them.

/// Reads a register, by name or number.
macro_rules! read {
    ($register:literal) => {{
        let value: usize;
        // SAFETY: the registers that the kernel reads have no side effect on reading.
        unsafe { core::arch::asm!(concat!("csrr {}, ", $register), out(reg) value, options(nostack)) };
        value
    }};
}

/// Writes a register. The memory clobber keeps memory accesses on their side of the write. It must
/// be used in an `unsafe` block, because most of these registers change how memory is accessed.
macro_rules! write {
    ($register:literal, $value:expr) => {
        core::arch::asm!(concat!("csrw ", $register, ", {}"), in(reg) $value, options(nostack))
    };
}

/// Sets the given bits. Otherwise like [`write!`].
macro_rules! set {
    ($register:literal, $bits:expr) => {
        core::arch::asm!(concat!("csrs ", $register, ", {}"), in(reg) $bits, options(nostack))
    };
}

/// Clears the given bits. Otherwise like [`write!`].
macro_rules! clear {
    ($register:literal, $bits:expr) => {
        core::arch::asm!(concat!("csrc ", $register, ", {}"), in(reg) $bits, options(nostack))
    };
}

pub(super) use {clear, read, set, write};

/// `sstatus`: interrupts are enabled in supervisor mode.
pub(super) const STATUS_INTERRUPTS: usize = 1 << 1;
/// `sstatus`: `sret` enables interrupts.
pub(super) const STATUS_PREVIOUS_INTERRUPTS: usize = 1 << 5;
/// `sstatus`: the state of the floating-point registers.
pub(super) const STATUS_FLOATING_POINT: usize = 3 << 13;
pub(super) const FLOATING_POINT_OFF: usize = 0 << 13;
pub(super) const FLOATING_POINT_CLEAN: usize = 2 << 13;
pub(super) const FLOATING_POINT_DIRTY: usize = 3 << 13;
/// `sstatus`: user mode is 64 bits wide.
pub(super) const STATUS_USER_64: usize = 2 << 32;

/// `sie` and `sip`: software (sent by another hart), timer, external (from a device).
pub(super) const INTERRUPT_SOFTWARE: usize = 1 << 1;
pub(super) const INTERRUPT_TIMER: usize = 1 << 5;
pub(super) const INTERRUPT_EXTERNAL: usize = 1 << 9;

/// `scause`: the top bit distinguishes interrupts from exceptions.
pub(super) const CAUSE_INTERRUPT: usize = 1 << 63;
