//! The kernel's side of a process's wake ring (decision 3), and of results for which it has no
//! room.
//!
//! The kernel relies only on its own memory; of the shared indices it reads only `head`.

use core::sync::atomic::{AtomicU32, Ordering::*};

use cops_abi::Errno;
use cops_abi::ring::{
    Completion, Producer, RING_ENTRIES, RING_ENTRIES_PER_PAGE, RING_PAGE_COUNT, RingFull,
    RingIndices, RingPage,
};
use cops_lock::Mutex;

use super::undelivered::{UndeliveredList, calls};
use crate::counters::COUNTERS;
use crate::mm::{Frame, SharedFrame};

/// Number of results that one portion moves into the ring, or frees at the end of a process: 64
/// take some 11,000 instructions. A full ring would take four times that.
const PORTION_RESULTS: usize = 64;

#[derive(Default)]
struct State {
    producer: Producer,
    /// Results for which the ring had no room, as a list through the calls' cells.
    overflow: UndeliveredList,
    /// The process has ended: results are dropped.
    closed: bool,
}

/// A process's wake ring: see the module. The indices are in the process page, so each call passes
/// them.
pub struct WakeRing {
    pages: [SharedFrame<RingPage>; RING_PAGE_COUNT],
    state: Mutex<State>,
    /// Number of results ever put into the ring, modulo 2^32, for readers without the lock.
    results: AtomicU32,
    /// Number of results that are kept outside the ring.
    kept: AtomicU32,
}

impl WakeRing {
    /// An empty ring.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Self, Errno> {
        let page = || Ok::<_, Errno>(SharedFrame::new(Frame::allocate_zeroed()?));
        Ok(Self {
            pages: [page()?, page()?],
            state: Mutex::default(),
            results: AtomicU32::new(0),
            kept: AtomicU32::new(0),
        })
    }

    /// The frames to be mapped, in order.
    pub fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.pages.iter().map(SharedFrame::frame)
    }

    /// Puts a result into the ring, or keeps it in `cell` if there is no room. Returns whether the
    /// cell is free.
    pub fn put(&self, indices: &RingIndices, completion: Completion, cell: u32) -> bool {
        let mut state = self.state.lock();
        // After results that already wait, so that their order is preserved.
        let delivered = state.closed
            || state.overflow.is_empty() && self.push(&mut state, indices, completion).is_ok();
        if !delivered {
            state.overflow.push_back(cell, completion);
            self.kept.store(state.overflow.len() as u32, SeqCst);
            indices.overflowed.store(1, Release);
            COUNTERS.ring_overflows.add(1);
        }
        delivered
    }

    /// Puts a result into the ring, if it has room and no other result waits. Returns whether it
    /// did.
    pub fn put_if_room(&self, indices: &RingIndices, completion: Completion) -> bool {
        let mut state = self.state.lock();
        !state.closed
            && state.overflow.is_empty()
            && self.push(&mut state, indices, completion).is_ok()
    }

    /// Whether the ring has room for another result, as far as can be seen without the lock. The
    /// process can make this wrong, but only for itself.
    pub fn seems_to_have_room(&self, indices: &RingIndices) -> bool {
        let waiting = self.results.load(Relaxed).wrapping_sub(indices.head.load(Relaxed));
        self.kept.load(Relaxed) == 0 && waiting < RING_ENTRIES
    }

    /// Whether there is a result that the process has not taken, in the ring or kept outside.
    pub fn has_results(&self, indices: &RingIndices) -> bool {
        let state = self.state.lock();
        state.producer.occupancy(indices) > 0 || !state.overflow.is_empty()
    }

    /// The same without the lock, for callers that are notified of later changes. The process can
    /// make this wrong, but only for itself.
    pub fn may_have_results(&self, indices: &RingIndices) -> bool {
        self.results.load(SeqCst) != indices.head.load(Acquire) || self.kept.load(Relaxed) != 0
    }

    /// Whether a coroutine may wait for a result, in the ring or taken out of it, that no worker's
    /// record shows. The process can make this wrong, but only for itself.
    pub fn may_hide_results(&self, indices: &RingIndices) -> bool {
        // In this order: a worker counts itself in `taking` before it takes a result.
        self.may_have_results(indices) || indices.taking.load(Acquire) != 0
    }

    /// Moves waiting results into the ring, as many as one portion may and as far as it has room.
    /// Returns how many were moved and how many still wait.
    pub fn refill(&self, indices: &RingIndices) -> (usize, usize) {
        let mut state = self.state.lock();
        let mut moved = 0;
        while moved < PORTION_RESULTS
            && let Some(completion) = state.overflow.front()
            && self.push(&mut state, indices, completion).is_ok()
        {
            state.overflow.pop_front();
            moved += 1;
        }
        // Once, however many were freed: what remains is for the next refill, or for the reaper.
        calls().shrink();
        self.kept.store(state.overflow.len() as u32, SeqCst);
        if state.overflow.is_empty() {
            indices.overflowed.store(0, Release);
        }
        (moved, state.overflow.len())
    }

    /// After this, results are dropped: frees some of those that wait, and all later ones. Returns
    /// how many it freed; 0 if none are left.
    pub fn close_some(&self) -> usize {
        let mut state = self.state.lock();
        state.closed = true;
        let mut freed = 0;
        while freed < PORTION_RESULTS && state.overflow.pop_front() {
            freed += 1;
        }
        freed
    }

    /// Begins anew, after all results were dropped. The indices are zero again.
    pub fn reopen(&self) {
        *self.state.lock() = State::default();
        self.results.store(0, SeqCst);
        self.kept.store(0, SeqCst);
    }

    fn push(
        &self,
        state: &mut State,
        indices: &RingIndices,
        completion: Completion,
    ) -> Result<(), RingFull> {
        let entry = |index: u32| {
            let index = index as usize;
            &self.pages[index / RING_ENTRIES_PER_PAGE % RING_PAGE_COUNT].0
                [index % RING_ENTRIES_PER_PAGE]
        };
        state.producer.push(indices, entry, completion)?;
        self.results.fetch_add(1, SeqCst);
        Ok(())
    }
}
