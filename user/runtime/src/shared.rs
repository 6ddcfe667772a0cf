//! The pages this process shares with the kernel: where they are, and nothing about what is in them.
//!
//! May touch: the addresses the auxiliary vector names, through the types of `cops_abi`, all of whose
//! fields are atomics: the other side may change them at any time.
#![allow(unsafe_code)]

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use cops_abi::note::ABI_VERSION;
use cops_abi::page::{MAX_CPUS, ProcessPage, SystemPage};
use cops_abi::ring::{RING_ENTRIES_PER_PAGE, RING_PAGE_COUNT, RingEntry, RingPage};
use cops_abi::trace::TracePage;

// Written once, by `install`, before the first coroutine; other virtual CPUs start later and see them.
static PROCESS_PAGE: AtomicPtr<ProcessPage> = AtomicPtr::new(ptr::null_mut());
static RING: AtomicPtr<[RingPage; RING_PAGE_COUNT]> = AtomicPtr::new(ptr::null_mut());
static SYSTEM_PAGE: AtomicPtr<SystemPage> = AtomicPtr::new(ptr::null_mut());

/// Null unless this process is traced.
static TRACE: AtomicPtr<[TracePage; MAX_CPUS]> = AtomicPtr::new(ptr::null_mut());

/// Why a process cannot use what the kernel gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// The auxiliary vector names no such page.
    Missing,
    /// Kernel and program were built from different contracts.
    Version(u32),
}

/// Remembers where the process page, the ring and the system page are.
///
/// # Safety
/// The addresses are the auxiliary vector's. Called once, before anything else here.
pub(crate) unsafe fn install([process_page, ring, system_page]: [usize; 3]) -> Result<(), Unusable> {
    if process_page == 0 || ring == 0 || system_page == 0 {
        return Err(Unusable::Missing);
    }
    PROCESS_PAGE.store(ptr::with_exposed_provenance_mut(process_page), Relaxed);
    RING.store(ptr::with_exposed_provenance_mut(ring), Relaxed);
    SYSTEM_PAGE.store(ptr::with_exposed_provenance_mut(system_page), Relaxed);
    let versions = [self::process_page().version.load(Relaxed), self::system_page().version.load(Relaxed)];
    match versions.into_iter().find(|&version| version != ABI_VERSION) {
        Some(other) => Err(Unusable::Version(other)),
        None => Ok(()),
    }
}

/// Remembers where the trace pages are; 0: there are none.
///
/// # Safety
/// As [`install`].
pub(crate) unsafe fn install_trace(pages: usize) {
    TRACE.store(ptr::with_exposed_provenance_mut(pages), Relaxed);
}

/// The trace page of virtual CPU `cpu`, if this process is traced.
#[inline]
pub(crate) fn trace_page(cpu: usize) -> Option<&'static TracePage> {
    // SAFETY: null, or from the auxiliary vector: then the kernel keeps the pages mapped as long as the process lives.
    unsafe { TRACE.load(Relaxed).as_ref() }?.get(cpu)
}

/// The page this process writes and the kernel reads.
#[inline]
pub(crate) fn process_page() -> &'static ProcessPage {
    // SAFETY: `install` ran first; the kernel keeps the page mapped as long as the process lives.
    unsafe { &*PROCESS_PAGE.load(Relaxed) }
}

/// The page the kernel writes and every process reads.
#[inline]
pub(crate) fn system_page() -> &'static SystemPage {
    // SAFETY: as above. It is mapped read-only; no one writes through the reference.
    unsafe { &*SYSTEM_PAGE.load(Relaxed) }
}

/// The entry of the wake ring with this index, modulo the ring's size.
#[inline]
pub(crate) fn ring_entry(index: u32) -> &'static RingEntry {
    // SAFETY: as above.
    let pages = unsafe { &*RING.load(Relaxed) };
    let index = index as usize;
    &pages[index / RING_ENTRIES_PER_PAGE % RING_PAGE_COUNT].0[index % RING_ENTRIES_PER_PAGE]
}
