//! User-level interrupts: RISC-V's N extension, with memory in place of its registers.
//!
//! A process has one [`PostedDescriptor`], and each of its virtual CPUs has one [`CpuRecord`]. Both
//! are in the process page, and both the kernel and the process write them. The kernel trusts none
//! of these values: what a process writes here can only change its own registers or delay its own
//! interrupts. Decision 11 describes the protocol.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Bits of [`PostedDescriptor::pending`] and [`CpuRecord::cause`].
pub mod cause {
    /// Results are in the wake ring.
    pub const RESULTS: u64 = 1;
    /// Only in [`CpuRecord::cause`](super::CpuRecord::cause): the interrupted code uses the
    /// floating-point registers, so a handler that uses them must save them.
    pub const FLOATING_POINT: u64 = 1 << 32;
}

/// Bits of [`CpuRecord::status`], at the same positions as in `ustatus`.
pub mod status {
    /// Interrupts are delivered.
    pub const ENABLE: u32 = 1;
    /// The value of `ENABLE` before the handler was entered; returning from the handler restores
    /// it.
    pub const PREVIOUS_ENABLE: u32 = 1 << 4;
}

/// The interrupts pending for a process, and the address of its handler.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct PostedDescriptor {
    /// Bits of [`cause`]. Set by the kernel; a worker clears them before it looks for the results.
    pub pending: AtomicU64,
    /// Address at which the kernel continues an interrupted virtual CPU; 0 if the process takes no
    /// interrupts. Written by the process.
    pub handler: AtomicU64,
    reserved: [u64; 6],
}

/// One virtual CPU's interrupt registers.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct CpuRecord {
    /// Bits of [`status`]. The kernel clears `ENABLE` when it enters the handler.
    pub status: AtomicU32,
    /// What the kernel has assigned to this virtual CPU: a [`CpuPhase`]. Written by the kernel,
    /// which never reads it.
    pub phase: AtomicU32,
    /// Why the handler was entered: bits of [`cause`].
    pub cause: AtomicU64,
    /// Address at which the interrupted code resumes.
    pub program_counter: AtomicU64,
    /// The handler's stack pointer while interrupts can be taken; the interrupted code's stack
    /// pointer while the handler runs.
    pub scratch: AtomicU64,
    /// The interrupted code's value of the register that carries a system call's number. The
    /// handler returns by a system call and therefore overwrites that register: it stores the value
    /// here, and the kernel restores it.
    pub number_register: AtomicU64,
    /// The number of polls of the virtual CPU's worker when it last began to read the wake ring.
    pub looked: AtomicU64,
    /// Not 0: the virtual CPU's worker is asked to leave its work to the worker with this number,
    /// less 1, and to park. Written by the kernel; the worker clears it before it does so.
    pub leave_to: AtomicU32,
    reserved_half: u32,
    reserved: u64,
}

/// The state of a virtual CPU as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CpuPhase {
    /// There is no virtual CPU with this number.
    Absent = 0,
    /// It waits for a hart. What its worker polled is *running-suspended*: it resumes where it was
    /// interrupted.
    Runnable = 1,
    /// It has a hart.
    Running = 2,
    /// It is in `park`.
    Parked = 3,
    /// It is in a synchronous call. What its worker polls is running-suspended.
    Waiting = 4,
    /// It has ended.
    Ended = 5,
}

impl CpuPhase {
    /// The phase with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Absent, Self::Runnable, Self::Running, Self::Parked, Self::Waiting, Self::Ended]
            .into_iter()
            .find(|&phase| phase as u32 == number)
    }
}

const _: () = assert!(size_of::<PostedDescriptor>() == 64);
const _: () = assert!(size_of::<CpuRecord>() == 64);
const _: () = assert!(core::mem::offset_of!(CpuRecord, cause) == 8);
const _: () = assert!(core::mem::offset_of!(CpuRecord, program_counter) == 16);
const _: () = assert!(core::mem::offset_of!(CpuRecord, scratch) == 24);
const _: () = assert!(core::mem::offset_of!(CpuRecord, number_register) == 32);
const _: () = assert!(core::mem::offset_of!(CpuRecord, looked) == 40);
const _: () = assert!(core::mem::offset_of!(CpuRecord, leave_to) == 48);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_read_back() {
        for number in 0..6 {
            assert_eq!(CpuPhase::from_number(number).map(|phase| phase as u32), Some(number));
        }
        assert_eq!(CpuPhase::from_number(6), None);
    }
}
