//! The pages that kernel and processes share: versioned integers and atomics, no pointers.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::ring::RingIndices;
use cops_executor::WorkerState;

/// Virtual CPUs a process can have.
pub const MAX_CPUS: usize = 8;

/// One per process, writable by it. The kernel believes nothing it reads here.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct ProcessPage {
    /// [`crate::note::ABI_VERSION`], written by the kernel when the process begins.
    pub version: AtomicU32,
    reserved_head: [u32; 31],
    /// Where the wake ring stands.
    pub ring: RingIndices,
    /// What each virtual CPU's worker runs and has ready: a hint for the kernel's scheduler.
    pub workers: [WorkerState; MAX_CPUS],
    reserved_tail: [u64; 352],
}

/// One for the machine, readable by every process, writable by none.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct SystemPage {
    /// [`crate::note::ABI_VERSION`].
    pub version: AtomicU32,
    /// Harts that run.
    pub harts: AtomicU32,
    /// Ticks of `rdtime` in a second.
    pub ticks_per_second: AtomicU64,
    reserved: [u64; 510],
}

const _: () = assert!(size_of::<WorkerState>() == 128);
const _: () = assert!(size_of::<ProcessPage>() == 4096);
const _: () = assert!(core::mem::offset_of!(ProcessPage, ring) == 128);
const _: () = assert!(core::mem::offset_of!(ProcessPage, workers) == 256);
const _: () = assert!(size_of::<SystemPage>() == 4096);
