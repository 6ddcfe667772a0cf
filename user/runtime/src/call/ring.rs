//! Takes results out of the wake ring, on any worker.
//!
//! May touch: the ring, and the slots of the results.

use core::sync::atomic::Ordering::Relaxed;

use cops_abi::page::ProcessPage;
use cops_abi::ring;

use super::slot;
use crate::{shared, system};

/// Delivers every result that has arrived. Costs three loads if there is none.
///
/// Called at every scheduling point of every worker; several workers may call it at once.
#[inline]
pub fn drain() {
    if ring::has_work(&shared::process_page().ring) {
        drain_all();
    }
}

#[cold]
fn drain_all() {
    let page = shared::process_page();
    page.ring.while_taking(|| deliver_all(page));
}

fn deliver_all(page: &ProcessPage) {
    // Cleared before the ring is read, so that a later result posts again.
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
            // Another worker took them, or the kernel has not moved them yet; then it sets
            // `overflowed` again.
            return;
        }
    }
}
