//! The wake ring: carries results of calls from the kernel to a process.
//!
//! Each process has one ring of [`RING_ENTRIES`] entries. The kernel is its only producer (one hart
//! at a time, under a kernel lock); every worker of the process may consume. Neither side waits for
//! the other.
//!
//! Trust. The kernel keeps its own count of entries written ([`Producer`]). To deliver a result it
//! reads only `head` from the shared pages, and validates it: a process that writes a wrong `head`
//! makes its own ring look full or empty and has no other effect. When the ring is full, the kernel
//! keeps the result with the call and sets `overflowed`; the process fetches it with
//! `COPS_REFILL_RING`.
//!
//! Ordering. The producer stores `tail` with release after the entry's words; a consumer loads
//! `tail` with acquire before it reads them. A consumer advances `head` with release after it has
//! read the words; the producer loads `head` with acquire before it overwrites them. A consumer
//! that loses the race for an entry discards what it read, so torn reads are never used.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Entries in a ring; a power of two.
pub const RING_ENTRIES: u32 = RING_PAGE_COUNT as u32 * RING_ENTRIES_PER_PAGE as u32;
/// Number of pages that the entries of a ring take.
pub const RING_PAGE_COUNT: usize = 2;
/// Entries in one page.
pub const RING_ENTRIES_PER_PAGE: usize = 128;

const _: () = assert!(RING_ENTRIES.is_power_of_two());
const _: () = assert!(size_of::<RingEntry>() == 32 && size_of::<RingPage>() == 4096);

/// One result in the ring. Its words are atomics because one side may read them while the other
/// writes.
#[repr(C)]
#[derive(Debug, Default)]
pub struct RingEntry {
    coroutine: AtomicU64,
    token: AtomicU64,
    result: AtomicU64,
    reserved: AtomicU64,
}

/// One page of entries.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct RingPage(pub [RingEntry; RING_ENTRIES_PER_PAGE]);

/// The indices of the ring, in the process page. `head` and `tail` are on different cache lines.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct RingIndices {
    /// Entries consumed since the process began, modulo 2^32. Written by the process.
    pub head: AtomicU32,
    /// Number of workers between taking a result and waking the coroutine that waits for it.
    /// Written by the process. While it is not 0, the process is as urgent as those coroutines,
    /// although neither the ring nor a worker's record shows them.
    pub taking: AtomicU32,
    padding_after_head: [u32; 14],
    /// Entries produced since the process began, modulo 2^32. Written by the kernel.
    pub tail: AtomicU32,
    /// Nonzero while results wait in the kernel because the ring was full. Written by the kernel.
    pub overflowed: AtomicU32,
    padding_after_tail: [u32; 14],
}

const _: () = assert!(size_of::<RingIndices>() == 128);
const _: () = assert!(core::mem::offset_of!(RingIndices, taking) == 4);

impl RingIndices {
    /// Calls `take`, which takes results and wakes those that wait for them; other workers may do
    /// so at the same time. What this has taken counts as waiting until it has returned.
    pub fn while_taking(&self, take: impl FnOnce()) {
        // The release of `head` in `pop` publishes it: what sees the ring empty sees it too.
        self.taking.fetch_add(1, Relaxed);
        take();
        self.taking.fetch_sub(1, Release);
    }
}

/// A result that was read from the ring or is about to be written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The coroutine that made the call, as given by the caller; 0 if none was given.
    pub coroutine: u64,
    /// The token that the caller gave with the call.
    pub token: u64,
    /// The result, see [`crate::errno::decode`].
    pub result: isize,
}

/// The kernel's side of a ring. Its count is in kernel memory, out of the process's reach.
#[derive(Debug, Default)]
pub struct Producer {
    tail: u32,
}

/// The ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFull;

impl Producer {
    /// A producer for a ring of zeroed pages.
    #[must_use]
    pub const fn new() -> Self {
        Self { tail: 0 }
    }

    /// Number of entries that the process has not consumed, limited to [`RING_ENTRIES`] because
    /// `head` may hold any value.
    #[must_use]
    pub fn occupancy(&self, indices: &RingIndices) -> u32 {
        self.tail.wrapping_sub(indices.head.load(Acquire)).min(RING_ENTRIES)
    }

    /// Publishes one result.
    ///
    /// `entry` maps an index below [`RING_ENTRIES`] to its entry.
    ///
    /// # Errors
    /// [`RingFull`]; nothing was written. An invalid `head` counts as full.
    pub fn push<'a>(
        &mut self,
        indices: &RingIndices,
        entry: impl FnOnce(u32) -> &'a RingEntry,
        completion: Completion,
    ) -> Result<(), RingFull> {
        if self.occupancy(indices) >= RING_ENTRIES {
            return Err(RingFull);
        }
        let place = entry(self.tail % RING_ENTRIES);
        place.coroutine.store(completion.coroutine, Relaxed);
        place.token.store(completion.token, Relaxed);
        place.result.store(completion.result as u64, Relaxed);
        self.tail = self.tail.wrapping_add(1);
        indices.tail.store(self.tail, Release);
        Ok(())
    }
}

/// Whether results are in the ring, or wait in the kernel because it was full.
#[must_use]
pub fn has_work(indices: &RingIndices) -> bool {
    indices.head.load(Relaxed) != indices.tail.load(Relaxed)
        || indices.overflowed.load(Relaxed) != 0
}

/// Takes the oldest result. Any worker of the process may call it.
///
/// `entry` as in [`Producer::push`].
pub fn pop<'a>(indices: &RingIndices, entry: impl Fn(u32) -> &'a RingEntry) -> Option<Completion> {
    let mut head = indices.head.load(Relaxed);
    loop {
        if head == indices.tail.load(Acquire) {
            return None;
        }
        let place = entry(head % RING_ENTRIES);
        let completion = Completion {
            coroutine: place.coroutine.load(Relaxed),
            token: place.token.load(Relaxed),
            result: place.result.load(Relaxed) as isize,
        };
        // Success proves that no other worker took this entry, and therefore that the kernel did
        // not overwrite it while it was read.
        match indices.head.compare_exchange_weak(head, head.wrapping_add(1), AcqRel, Relaxed) {
            Ok(_) => return Some(completion),
            Err(now) => head = now,
        }
    }
}

/// Calls `each` with the coroutine of each pending result, oldest first, and leaves the results in
/// the ring. It begins at entry `from`, or at the oldest if `from` has been consumed. Returns the
/// index at which it stopped, to be passed as `from` next time.
///
/// It is for interrupt handlers and never waits. For an entry that is consumed and overwritten
/// meanwhile, `each` may get the coroutine of another result.
pub fn for_each_waiting<'a>(
    indices: &RingIndices,
    from: u32,
    entry: impl Fn(u32) -> &'a RingEntry,
    mut each: impl FnMut(u64),
) -> u32 {
    let tail = indices.tail.load(Acquire);
    let head = indices.head.load(Relaxed);
    let waiting = tail.wrapping_sub(head).min(RING_ENTRIES);
    let unseen = tail.wrapping_sub(from).min(waiting);
    for index in (0..unseen).rev() {
        each(
            entry(tail.wrapping_sub(index).wrapping_sub(1) % RING_ENTRIES).coroutine.load(Relaxed),
        );
    }
    tail
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::boxed::Box;
    use std::collections::VecDeque;
    use std::vec::Vec;

    struct Ring {
        indices: RingIndices,
        entries: Vec<RingEntry>,
    }

    impl Ring {
        fn new() -> Self {
            Self {
                indices: RingIndices::default(),
                entries: (0..RING_ENTRIES).map(|_| RingEntry::default()).collect(),
            }
        }
        fn push(&self, producer: &mut Producer, token: u64) -> Result<(), RingFull> {
            let completion = Completion { coroutine: token + 1, token, result: token as isize * 2 };
            producer.push(&self.indices, |index| &self.entries[index as usize], completion)
        }
        fn pop(&self) -> Option<Completion> {
            pop(&self.indices, |index| &self.entries[index as usize])
        }
    }

    #[test]
    fn full_ring_refuses_and_recovers() {
        let (ring, mut producer) = (Ring::new(), Producer::new());
        for token in 0..u64::from(RING_ENTRIES) {
            ring.push(&mut producer, token).unwrap();
        }
        assert_eq!(ring.push(&mut producer, 9), Err(RingFull));
        assert_eq!(ring.pop().unwrap().token, 0);
        ring.push(&mut producer, 9).unwrap();
    }

    #[test]
    fn waiting_results_are_seen_once_and_stay() {
        let (ring, mut producer) = (Ring::new(), Producer::new());
        let seen = |from| {
            let mut seen = Vec::new();
            let reached = for_each_waiting(
                &ring.indices,
                from,
                |index| &ring.entries[index as usize],
                |id| seen.push(id),
            );
            (seen, reached)
        };
        assert_eq!(seen(0), (Vec::new(), 0));
        for token in 0..3 {
            ring.push(&mut producer, token).unwrap();
        }
        assert_eq!(seen(0), (std::vec![1, 2, 3], 3));
        assert_eq!(seen(3), (Vec::new(), 3));
        ring.push(&mut producer, 3).unwrap();
        assert_eq!(ring.pop().unwrap().token, 0);
        assert_eq!(seen(3), (std::vec![4], 4));
        assert_eq!(seen(0), (std::vec![2, 3, 4], 4));
        // An invalid `from` means the oldest entry.
        assert_eq!(seen(77).0, [2, 3, 4]);
    }

    #[test]
    fn an_invalid_head_affects_only_its_own_ring() {
        let (ring, mut producer) = (Ring::new(), Producer::new());
        ring.push(&mut producer, 1).unwrap();
        ring.indices.head.store(77, Relaxed);
        assert_eq!(producer.occupancy(&ring.indices), RING_ENTRIES);
        assert_eq!(ring.push(&mut producer, 2), Err(RingFull));
        ring.indices.head.store(1, Relaxed);
        ring.push(&mut producer, 3).unwrap();
        assert_eq!(ring.pop().unwrap().token, 3);
    }

    #[test]
    fn several_consumers_take_each_entry_once() {
        let ring: &'static Ring = Box::leak(Box::new(Ring::new()));
        const TOTAL: u64 = 40_000;
        let consumers: Vec<_> = (0..3)
            .map(|_| {
                std::thread::spawn(move || {
                    let mut taken = Vec::new();
                    loop {
                        match ring.pop() {
                            Some(Completion { token: u64::MAX, .. }) => return taken,
                            Some(completion) => {
                                assert_eq!(completion.result, completion.token as isize * 2);
                                assert_eq!(completion.coroutine, completion.token + 1);
                                taken.push(completion.token);
                            }
                            None => std::thread::yield_now(),
                        }
                    }
                })
            })
            .collect();
        let mut producer = Producer::new();
        for token in 0..TOTAL {
            while ring.push(&mut producer, token).is_err() {
                std::thread::yield_now();
            }
        }
        for _ in 0..consumers.len() {
            let end = Completion { coroutine: 0, token: u64::MAX, result: 0 };
            while producer.push(&ring.indices, |index| &ring.entries[index as usize], end).is_err()
            {
                std::thread::yield_now();
            }
        }
        let mut all: Vec<u64> = consumers.into_iter().flat_map(|c| c.join().unwrap()).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..TOTAL));
    }

    proptest! {
        /// Compares the ring with a queue: any mixture of pushes and pops, across the wrap of the
        /// 32-bit counters.
        #[test]
        fn behaves_like_a_queue(start: u32, steps in proptest::collection::vec(any::<bool>(), 0..2000)) {
            let ring = Ring::new();
            let mut producer = Producer { tail: start };
            ring.indices.head.store(start, Relaxed);
            ring.indices.tail.store(start, Relaxed);
            let mut model = VecDeque::new();
            for (token, push) in steps.into_iter().enumerate() {
                if push {
                    let accepted = ring.push(&mut producer, token as u64).is_ok();
                    prop_assert_eq!(accepted, model.len() < RING_ENTRIES as usize);
                    if accepted {
                        model.push_back(token as u64);
                    }
                } else {
                    prop_assert_eq!(ring.pop().map(|c| c.token), model.pop_front());
                }
            }
        }

        /// Whatever a process writes into `head`, the producer neither panics nor leaves the ring.
        #[test]
        fn any_head_is_harmless(heads in proptest::collection::vec(any::<u32>(), 1..200)) {
            let (ring, mut producer) = (Ring::new(), Producer::new());
            for head in heads {
                ring.indices.head.store(head, Relaxed);
                prop_assert!(producer.occupancy(&ring.indices) <= RING_ENTRIES);
                let _ = ring.push(&mut producer, 1);
            }
        }
    }
}
