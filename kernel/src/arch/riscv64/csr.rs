//! Control and status registers: names, bits and the four ways to touch one.

/// Reads a register, by name or number.
macro_rules! read {
    ($register:literal) => {{
        let value: usize;
        // SAFETY: reading the registers the kernel names has no side effect.
        unsafe { core::arch::asm!(concat!("csrr {}, ", $register), out(reg) value, options(nostack)) };
        value
    }};
}

/// Writes a register. The memory clobber keeps accesses on their side of the write. Must
/// stand in an `unsafe` block: most of these registers change what memory means.
macro_rules! write {
    ($register:literal, $value:expr) => {
        core::arch::asm!(concat!("csrw ", $register, ", {}"), in(reg) $value, options(nostack))
    };
}

/// Sets the given bits. As [`write!`].
macro_rules! set {
    ($register:literal, $bits:expr) => {
        core::arch::asm!(concat!("csrs ", $register, ", {}"), in(reg) $bits, options(nostack))
    };
}

/// Clears the given bits. As [`write!`].
macro_rules! clear {
    ($register:literal, $bits:expr) => {
        core::arch::asm!(concat!("csrc ", $register, ", {}"), in(reg) $bits, options(nostack))
    };
}

pub(super) use {clear, read, set, write};

/// `sstatus`: interrupts are taken in supervisor mode.
pub(super) const STATUS_INTERRUPTS: usize = 1 << 1;
/// `sstatus`: interrupts are on again after `sret`.
pub(super) const STATUS_PREVIOUS_INTERRUPTS: usize = 1 << 5;
/// `sstatus`: the state of the floating-point registers.
pub(super) const STATUS_FLOATING_POINT: usize = 3 << 13;
pub(super) const FLOATING_POINT_OFF: usize = 0 << 13;
pub(super) const FLOATING_POINT_CLEAN: usize = 2 << 13;
pub(super) const FLOATING_POINT_DIRTY: usize = 3 << 13;
/// `sstatus`: user mode is 64 bit wide.
pub(super) const STATUS_USER_64: usize = 2 << 32;

/// `sie` and `sip`: software (another hart's message), timer, external (a device).
pub(super) const INTERRUPT_SOFTWARE: usize = 1 << 1;
pub(super) const INTERRUPT_TIMER: usize = 1 << 5;
pub(super) const INTERRUPT_EXTERNAL: usize = 1 << 9;

/// `scause`: the top bit tells interrupts from exceptions.
pub(super) const CAUSE_INTERRUPT: usize = 1 << 63;
