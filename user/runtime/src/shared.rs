//! The addresses of the pages that this process shares with the kernel. Their contents are not
//! interpreted here.
//!
//! May touch: the addresses in the auxiliary vector, through the types of `cops_abi`. All fields of
//! these types are atomics, because the other side may change them at any time.
#![allow(unsafe_code)]

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use cops_abi::note::ABI_VERSION;
use cops_abi::page::{MAX_CPUS, ProcessPage, SystemPage};
use cops_abi::ring::{RING_ENTRIES_PER_PAGE, RING_PAGE_COUNT, RingEntry, RingPage};
use cops_abi::trace::TracePage;

// `install` writes these once, before the first coroutine; other virtual CPUs start later and see
// them.
static PROCESS_PAGE: AtomicPtr<ProcessPage> = AtomicPtr::new(ptr::null_mut());
static RING: AtomicPtr<[RingPage; RING_PAGE_COUNT]> = AtomicPtr::new(ptr::null_mut());
static SYSTEM_PAGE: AtomicPtr<SystemPage> = AtomicPtr::new(ptr::null_mut());

/// Null unless this process is traced.
static TRACE: AtomicPtr<[TracePage; MAX_CPUS]> = AtomicPtr::new(ptr::null_mut());

/// The reason why a process cannot use the kernel's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// The auxiliary vector does not contain the page.
    Missing,
    /// The kernel was built with another version of `cops_abi`.
    Version(u32),
}

/// Stores the addresses of the process page, the ring and the system page.
///
/// # Safety
/// The addresses are from the auxiliary vector. Called once, before any other function of this
/// module.
pub(crate) unsafe fn install(
    [process_page, ring, system_page]: [usize; 3],
) -> Result<(), Unusable> {
    if process_page == 0 || ring == 0 || system_page == 0 {
        return Err(Unusable::Missing);
    }
    PROCESS_PAGE.store(ptr::with_exposed_provenance_mut(process_page), Relaxed);
    RING.store(ptr::with_exposed_provenance_mut(ring), Relaxed);
    SYSTEM_PAGE.store(ptr::with_exposed_provenance_mut(system_page), Relaxed);
    let versions =
        [self::process_page().version.load(Relaxed), self::system_page().version.load(Relaxed)];
    match versions.into_iter().find(|&version| version != ABI_VERSION) {
        Some(other) => Err(Unusable::Version(other)),
        None => Ok(()),
    }
}

/// Stores the address of the trace pages; 0 if there are none.
///
/// # Safety
/// As [`install`].
pub(crate) unsafe fn install_trace(pages: usize) {
    TRACE.store(ptr::with_exposed_provenance_mut(pages), Relaxed);
}

/// The trace page of virtual CPU `cpu`, if this process is traced.
#[inline]
pub(crate) fn trace_page(cpu: usize) -> Option<&'static TracePage> {
    // SAFETY: the pointer is null or, by the contract of `install_trace`, from the auxiliary
    // vector; then the kernel keeps the pages mapped as long as the process lives.
    unsafe { TRACE.load(Relaxed).as_ref() }?.get(cpu)
}

/// The page that this process writes and the kernel reads.
#[inline]
pub(crate) fn process_page() -> &'static ProcessPage {
    // SAFETY: `install` has stored the address from the auxiliary vector; the kernel keeps the page
    // mapped as long as the process lives, and all its fields are atomics.
    unsafe { &*PROCESS_PAGE.load(Relaxed) }
}

/// The page that the kernel writes and every process reads.
#[inline]
pub(crate) fn system_page() -> &'static SystemPage {
    // SAFETY: `install` has stored the address from the auxiliary vector; the kernel keeps the page
    // mapped as long as the process lives. It is mapped read-only, and this process never writes
    // through the reference.
    unsafe { &*SYSTEM_PAGE.load(Relaxed) }
}

/// The entry of the wake ring with this index, modulo the ring's size.
#[inline]
pub(crate) fn ring_entry(index: u32) -> &'static RingEntry {
    // SAFETY: `install` has stored the address from the auxiliary vector; the kernel keeps the
    // pages mapped as long as the process lives, and all their fields are atomics.
    let pages = unsafe { &*RING.load(Relaxed) };
    let index = index as usize;
    &pages[index / RING_ENTRIES_PER_PAGE % RING_PAGE_COUNT].0[index % RING_ENTRIES_PER_PAGE]
}
