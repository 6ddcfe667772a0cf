//! The pages that kernel and processes share: versioned integers and atomics, no pointers.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::interrupt::{CpuRecord, PostedDescriptor};
use crate::ring::RingIndices;
use cops_executor::WorkerState;

/// Virtual CPUs a process can have.
pub const MAX_CPUS: usize = 8;
/// Harts the system page has room for.
pub const MAX_HARTS: usize = 8;
/// Stands for "no priority": of a hart that sleeps.
pub const NO_LEVEL: u32 = 64;

/// Bits of [`ProcessPage::flags`].
pub mod flags {
    /// Strict yielding: after each coroutine this process gives way to whoever is more urgent.
    pub const STRICT: u32 = 1;
}

/// One per process, writable by it. The kernel believes nothing it reads here.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct ProcessPage {
    /// [`crate::note::ABI_VERSION`], written by the kernel when the process begins.
    pub version: AtomicU32,
    /// Bits of [`flags`], by which the process's virtual CPUs agree among themselves; the kernel does not look.
    pub flags: AtomicU32,
    /// The most urgent level that the process can have: others count as this. Written by the kernel, which does not read it.
    pub ceiling: AtomicU32,
    reserved_head: [u32; 13],
    /// What is posted to the process.
    pub posted: PostedDescriptor,
    /// Where the wake ring stands.
    pub ring: RingIndices,
    /// What each virtual CPU's worker runs and has ready: a hint for the kernel's scheduler.
    pub workers: [WorkerState; MAX_CPUS],
    /// Each virtual CPU's interrupt registers.
    pub cpus: [CpuRecord; MAX_CPUS],
    /// Where in the process's memory its executor lies, number 0 of the kernel's version; 0: nowhere. For `inspect`.
    pub executor: AtomicU64,
    reserved_tail: [u64; 287],
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
    /// What `rdtime` showed when the clocks of `clock_gettime` showed 0.
    pub clock_base_ticks: AtomicU64,
    reserved_head: [u64; 5],
    /// The system bitmap: bit p, some process or the kernel shows a coroutine of priority p, ready or running. As of each
    /// process's last entry into the kernel, which is never longer ago than a time slice for one that runs.
    pub bitmap: AtomicU64,
    /// The kernel's own part of it.
    pub kernel_bitmap: AtomicU64,
    /// Bit p: a virtual CPU of this urgency, or a kernel coroutine, waits for a hart: somebody to give way to.
    pub waiting: AtomicU64,
    reserved_bitmaps: [u64; 5],
    /// What each hart runs.
    pub hart: [HartRecord; MAX_HARTS],
    reserved_tail: [u64; 432],
}

/// What a hart runs, as of its last entry into the kernel.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct HartRecord {
    /// Priority of what it runs in user mode; [`NO_LEVEL`] if it does not.
    pub current_priority: AtomicU32,
    /// The process it runs; 0 for none.
    pub process: AtomicU32,
    reserved: [u64; 7],
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<WorkerState>() == 128);
    assert!(size_of::<ProcessPage>() == 4096);
    assert!(offset_of!(ProcessPage, flags) == 4);
    assert!(offset_of!(ProcessPage, ceiling) == 8);
    assert!(offset_of!(ProcessPage, posted) == 64);
    assert!(offset_of!(ProcessPage, ring) == 128);
    assert!(offset_of!(ProcessPage, workers) == 256);
    assert!(offset_of!(ProcessPage, cpus) == 1280);
    assert!(offset_of!(ProcessPage, executor) == 1792);
    assert!(size_of::<SystemPage>() == 4096);
    assert!(offset_of!(SystemPage, ticks_per_second) == 8);
    assert!(offset_of!(SystemPage, clock_base_ticks) == 16);
    assert!(offset_of!(SystemPage, bitmap) == 64);
    assert!(offset_of!(SystemPage, kernel_bitmap) == 72);
    assert!(offset_of!(SystemPage, waiting) == 80);
    assert!(offset_of!(SystemPage, hart) == 128);
    assert!(size_of::<HartRecord>() == 64);
};
