//! The pages that the kernel and processes share. They contain versioned integers and atomics, and
//! no pointers.

use core::sync::atomic::{AtomicU32, AtomicU64};

use crate::interrupt::{CpuRecord, PostedDescriptor};
use crate::ring::RingIndices;
use cops_executor::{Priority, WorkerState};

/// Maximum number of virtual CPUs of a process.
pub const MAX_CPUS: usize = 8;
/// Maximum number of harts.
pub const MAX_HARTS: usize = 8;
/// Means "no priority", for instance of a hart that sleeps.
pub const NO_LEVEL: u32 = Priority::COUNT;

/// How a page or a record stores `priority`: as its level, or as [`NO_LEVEL`].
#[must_use]
pub const fn level_number(priority: Option<Priority>) -> u32 {
    match priority {
        Some(priority) => priority.level() as u32,
        None => NO_LEVEL,
    }
}

/// Bits of [`ProcessPage::flags`].
pub mod flags {
    /// Strict yielding: after each poll, the process yields to more urgent virtual CPUs and kernel
    /// coroutines.
    pub const STRICT: u32 = 1;
}

/// The page that each process has for itself and can write. The kernel trusts nothing that it reads
/// from it.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct ProcessPage {
    /// [`crate::note::ABI_VERSION`]. The kernel writes it when the process is created.
    pub version: AtomicU32,
    /// Bits of [`flags`]. The virtual CPUs of the process share them; the kernel does not read
    /// them.
    pub flags: AtomicU32,
    /// The process's ceiling: the kernel treats a more urgent level of the process as this one. The
    /// kernel writes it and does not read it.
    pub ceiling: AtomicU32,
    reserved_head: [u32; 13],
    /// Interrupts posted to the process.
    pub posted: PostedDescriptor,
    /// The indices of the wake ring.
    pub ring: RingIndices,
    /// For each virtual CPU, what its worker runs and has ready: a hint for the kernel's scheduler.
    pub workers: [WorkerState; MAX_CPUS],
    /// For each virtual CPU, its user-level interrupt registers.
    pub cpus: [CpuRecord; MAX_CPUS],
    /// Address of the executor that virtual CPU 0 uses, for `inspect`; 0 if there is none or its
    /// layout is not the kernel's.
    pub executor: AtomicU64,
    reserved_tail: [u64; 287],
}

/// The one page of the machine that every process can read and no process can write.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct SystemPage {
    /// [`crate::note::ABI_VERSION`].
    pub version: AtomicU32,
    /// Number of harts that run.
    pub harts: AtomicU32,
    /// Ticks of `rdtime` in a second.
    pub ticks_per_second: AtomicU64,
    /// What `rdtime` returned when the clocks of `clock_gettime` were at 0.
    pub clock_base_ticks: AtomicU64,
    reserved_head: [u64; 5],
    /// The system bitmap. Bit p is set while some process has a coroutine of priority p ready or
    /// running, after each process's levels have been limited to its ceiling. It covers processes
    /// only; the kernel's coroutines are in `kernel_bitmap`. The part of a running process is at
    /// most one time slice old.
    pub bitmap: AtomicU64,
    /// Bit p: kernel coroutines of priority p are ready. Separate from `bitmap`.
    pub kernel_bitmap: AtomicU64,
    /// Bit p: virtual CPUs of urgency p wait for a hart in the run queue.
    pub waiting: AtomicU64,
    reserved_bitmaps: [u64; 5],
    /// For each hart, what it runs in user mode.
    pub hart: [HartRecord; MAX_HARTS],
    reserved_tail: [u64; 432],
}

/// What a hart runs in user mode, as of its last entry into the kernel.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct HartRecord {
    /// Priority of what it runs in user mode; [`NO_LEVEL`] if it is in the kernel.
    pub current_priority: AtomicU32,
    /// The process it runs; 0 if none.
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
