//! User-level interrupts: RISC-V's N extension, with memory in place of its registers.
//!
//! A process has one [`PostedDescriptor`], each of its virtual CPUs one [`CpuRecord`]; both lie in the process page and are
//! written by both sides. The kernel believes nothing of it: whatever a process writes here ends up in its own registers or
//! costs it its own interrupts. Decision 11 has the protocol.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// Bits of [`PostedDescriptor::pending`] and [`CpuRecord::cause`].
pub mod cause {
    /// Results are in the wake ring.
    pub const RESULTS: u64 = 1;
    /// In [`CpuRecord::cause`](super::CpuRecord::cause) only: the interrupted code uses the floating-point registers, and a handler that
    /// might must save them.
    pub const FLOATING_POINT: u64 = 1 << 32;
}

/// Bits of [`CpuRecord::status`], where `ustatus` has them.
pub mod status {
    /// Interrupts are delivered.
    pub const ENABLE: u32 = 1;
    /// They were when the handler was entered, and are again after it.
    pub const PREVIOUS_ENABLE: u32 = 1 << 4;
}

/// What is posted to a process, and who handles it.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct PostedDescriptor {
    /// Bits of [`cause`]. Set by the kernel, cleared by whoever is about to look.
    pub pending: AtomicU64,
    /// Where the kernel has a virtual CPU go on that is interrupted; 0: nowhere. Written by the process.
    pub handler: AtomicU64,
    reserved: [u64; 6],
}

/// One virtual CPU's interrupt registers.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct CpuRecord {
    /// Bits of [`status`]. The kernel clears ENABLE when it enters the handler.
    pub status: AtomicU32,
    /// What the kernel has this virtual CPU do: a [`CpuPhase`]. Written by the kernel, read by nobody in it.
    pub phase: AtomicU32,
    /// Why the handler was entered: bits of [`cause`].
    pub cause: AtomicU64,
    /// Where the interrupted code goes on.
    pub program_counter: AtomicU64,
    /// The handler's stack pointer while interrupted code can run, and the interrupted code's while the handler does.
    pub scratch: AtomicU64,
    /// The register that carries a system call's number, as the interrupted code had it: stored by the handler, whose return is a
    /// system call, and put back by the kernel.
    pub number_register: AtomicU64,
    /// Polls that the virtual CPU's worker had made when it last began to look into the wake ring.
    pub looked: AtomicU64,
    reserved: [u64; 2],
}

/// What the kernel has a virtual CPU do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CpuPhase {
    /// There is none with this number.
    Absent = 0,
    /// It wants a hart. What its worker polled is *running-suspended*: it goes on where it was interrupted.
    Runnable = 1,
    /// It has a hart.
    Running = 2,
    /// In `park`.
    Parked = 3,
    /// In a synchronous call. What its worker polls is running-suspended.
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
