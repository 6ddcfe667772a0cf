//! Assigns the tags of the translation caches to address spaces.

use crate::arch::{self, Asid};
use cops_algorithms::tags::Tags;
use cops_lock::Mutex;
use spin::Once;

/// Tag 0 is that of the kernel's own space, and of spaces made when all other tags were in use.
static POOL: Mutex<Tags> = Mutex::new(Tags::NEW);

/// Number of tags that the machine has.
static COUNT: Once<usize> = Once::new();

/// Determines the number of tags. Called once, at boot, before interrupts are enabled.
pub fn initialise() {
    COUNT.call_once(arch::asid_count);
}

/// A tag that no existing space has, or the shared one if there is none.
pub(super) fn allocate() -> Asid {
    Asid(POOL.lock().allocate(COUNT.get().copied().unwrap_or(1)))
}

/// Frees a tag. No hart's translation cache contains it any more.
pub(super) fn free(asid: Asid) {
    POOL.lock().free(asid.0);
}
