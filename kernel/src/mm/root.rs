//! Roots: what a hart loads to use an address space, and which root each hart has loaded.
//!
//! A hart keeps a root loaded after it has left user mode, which saves loading it again on return.
//! So the address space and those harts share the root by reference: the table exists as long as a
//! hart has it loaded, even after the address space is dropped. Dropping the address space makes
//! each such hart load another root.

use super::table::RootFrame;
use super::{OutOfMemory, asid, kernel_space};
use crate::arch::{self, HartSlot, HartSlots, MAX_HARTS, RootRegister};
use alloc::sync::Arc;
use cops_fallible::try_arc;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

/// A root table and its tag in the translation caches.
pub(super) struct Root {
    /// Keeps the table allocated.
    _table: RootFrame,
    /// The table's address and the tag.
    register: RootRegister,
    /// Set when the address space is dropped; a hart that has this root loaded must load another
    /// one.
    is_dead: AtomicBool,
}

/// The root that each hart has loaded; `None` for the kernel's own root.
static LOADED: HartSlots<Option<Arc<Root>>> =
    HartSlots::new([const { HartSlot::new(None) }; MAX_HARTS]);

impl Root {
    /// A root that no hart has loaded, with its own tag if one is free.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(super) fn new(table: RootFrame) -> Result<Arc<Self>, OutOfMemory> {
        let asid = asid::allocate();
        let register = RootRegister::new(table.physical(), asid);
        let root = try_arc(Self { _table: table, register, is_dead: AtomicBool::new(false) });
        // No hart has used the tag.
        root.inspect_err(|_| asid::free(asid))
    }

    /// Loads this root on this hart unless it is loaded and current. Interrupts are off.
    /// `is_current` tells whether the hart's translation cache is up to date with this space. It is
    /// called when [`Root::flush`] already sees this hart, and before the root is in use.
    pub(super) fn load(self: &Arc<Self>, is_current: impl FnOnce() -> bool) {
        if arch::is_current_root(self.register) {
            return;
        }
        // SAFETY: a process's root maps the kernel like every root, and the reference in `LOADED`
        // keeps the table allocated as long as this hart has it loaded.
        unsafe { arch::activate_root(self.register, is_current) };
        let previous = LOADED.with(|loaded| loaded.replace(self.clone()));
        drop(previous);
    }

    /// Flushes `range` on the harts that have this root loaded, at the latest before they enter
    /// user mode.
    pub(super) fn flush(&self, range: Range<usize>) {
        arch::flush_root(self.register, range);
    }

    /// Whether [`Self::flush`] would have to wait for another hart now.
    pub(super) fn is_run_elsewhere(&self) -> bool {
        arch::other_harts_run(self.register)
    }

    /// Harts see code that has just been written to memory, before they execute it in this space:
    /// those that run it now, on return.
    pub(super) fn sync_instruction_stream(&self) {
        arch::sync_instruction_stream_of(self.register);
    }

    /// Frees the tag and makes every hart load another root. The lower half is empty, no hart will
    /// load this root again, and none uses the previous contents.
    pub(super) fn retire(&self) {
        asid::free(self.register.asid());
        self.is_dead.store(true, Ordering::SeqCst);
        release_dead();
        // The other harts check before they sleep; harts that already sleep must be interrupted to
        // check.
        arch::interrupt_harts_with_root(self.register);
    }
}

/// Loads the kernel's own root if the address space loaded on this hart is dropped. Called with
/// interrupts off before the hart sleeps.
pub(crate) fn release_dead() {
    let is_dead = |root: &Arc<Root>| root.is_dead.load(Ordering::SeqCst);
    if LOADED.with(|loaded| loaded.as_ref().is_some_and(is_dead)) {
        // SAFETY: the kernel's root, built by `kernel_space::initialise`, maps all of the kernel
        // and is never freed.
        unsafe { arch::activate_root(kernel_space::root(), || true) };
        drop(LOADED.with(Option::take));
    }
}
