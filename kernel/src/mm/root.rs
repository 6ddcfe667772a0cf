//! Roots: what a hart loads to see an address space, and which one each hart has loaded.
//!
//! A hart keeps a root loaded after it has left user mode, to save the switch when it comes
//! back. So a root is shared by reference between its address space and those harts: the
//! table outlives the space as long as a hart has it loaded, and each such hart is made to
//! let go of it.

use super::frames::Frame;
use super::{OutOfMemory, asid, kernel_space};
use crate::arch::{self, Asid, HartSlot, HartSlots, MAX_HARTS};
use alloc::sync::Arc;
use cops_fallible::try_arc;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

/// A root table and its tag in the translation caches.
pub(super) struct Root {
    table: Frame,
    asid: Asid,
    /// The address space is gone; whoever has this loaded is to load something else.
    is_dead: AtomicBool,
}

/// What each hart has loaded, `None` for the kernel's own root.
static LOADED: HartSlots<Option<Arc<Root>>> = HartSlots::new([const { HartSlot::new(None) }; MAX_HARTS]);

impl Root {
    /// A root that nobody has loaded, with a tag of its own if there is one left.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(super) fn new(table: Frame) -> Result<Arc<Self>, OutOfMemory> {
        try_arc(Self { table, asid: asid::allocate(), is_dead: AtomicBool::new(false) })
    }

    /// Loads this root on this hart, unless it is. Interrupts are off. `is_current` is asked
    /// after this has been announced to [`Root::flush`], and before it is done: whether the
    /// hart's translation cache is up to date with this space.
    pub(super) fn load(self: &Arc<Self>, is_current: impl FnOnce() -> bool) {
        let physical = self.table.physical();
        if arch::is_active_root(physical, self.asid) {
            return;
        }
        // SAFETY: a process's root maps the kernel; the share in `LOADED` keeps the table.
        unsafe { arch::activate_root(physical, self.asid, is_current) };
        let previous = LOADED.with(|loaded| loaded.replace(self.clone()));
        drop(previous);
    }

    /// Makes the harts that have this root loaded forget `range`.
    pub(super) fn flush(&self, range: Range<usize>) {
        arch::flush_root(self.table.physical(), self.asid, range);
    }

    /// Gives the tag back and makes every hart let go. The lower half is empty, and no hart
    /// will load this again or is still using what was there.
    pub(super) fn retire(&self) {
        asid::free(self.asid);
        self.is_dead.store(true, Ordering::SeqCst);
        release_dead();
        // The others look before they sleep; who sleeps already must get up to look.
        arch::interrupt_harts_with_root(self.table.physical(), self.asid);
    }
}

/// Loads the kernel's own root if the space loaded on this hart is gone. To be called with
/// interrupts off before the hart sleeps.
pub(crate) fn release_dead() {
    let is_dead = |root: &Arc<Root>| root.is_dead.load(Ordering::SeqCst);
    if LOADED.with(|loaded| loaded.as_ref().is_some_and(is_dead)) {
        // SAFETY: the kernel's root is never freed.
        unsafe { arch::activate_root(kernel_space::root_physical(), Asid(0), || true) };
        drop(LOADED.with(Option::take));
    }
}
