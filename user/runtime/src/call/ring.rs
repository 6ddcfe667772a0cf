//! Taking results out of the wake ring, from whichever worker comes by.
//!
//! May touch: the ring, and the slots the results go to.

use core::sync::atomic::Ordering::Relaxed;

use cops_abi::ring;

use super::slot;
use crate::{shared, system};

/// Delivers every result that has arrived. Costs three loads when there is none.
///
/// Run at every scheduling point of every worker; several may drain at once.
#[inline]
pub fn drain() {
    if ring::has_work(&shared::process_page().ring) {
        drain_all();
    }
}

#[cold]
fn drain_all() {
    let page = shared::process_page();
    // Before the look: who posts from now on says so again.
    page.posted.pending.store(0, Relaxed);
    let indices = &page.ring;
    loop {
        while let Some(completion) = ring::pop(indices, shared::ring_entry) {
            slot::deliver(completion.token, completion.result);
        }
        if indices.overflowed.load(Relaxed) == 0 {
            return;
        }
        // Results wait in the kernel because the ring was full; now there is room.
        system::refill_ring();
        if indices.head.load(Relaxed) == indices.tail.load(Relaxed) {
            // Another worker took them, or the kernel has not come to it: it will look again.
            return;
        }
    }
}
