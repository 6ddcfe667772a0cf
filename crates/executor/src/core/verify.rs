//! Checks the whole of an executor that is at rest: for tests, fuzzers and debuggers.
//!
//! Every slot is in exactly one list, inbox or free chain, or blocked, as its state word says;
//! every list is a ring with links that agree in both directions; the bitmaps agree with the lists.
//!
//! Unsafe: following links, as in `ready` and `inbox`. Slots are never freed, so a wrong link still
//! leads to a slot; every walk is bounded by the number of slots.
#![allow(unsafe_code)]

use super::atomic::{AtomicPtr, Ordering::Relaxed};

use super::executor::Executor;
use super::locked::Locked;
use super::priority::Priority;
use super::slot::Slot;
use super::snapshot::Place;
use super::worker::NO_LEVEL;

/// How many slots are in each kind of place, but blocked.
#[derive(Default)]
struct Census {
    free: u32,
    posted: u32,
    listed: u32,
}

impl Executor {
    /// Checks every invariant of the lists, inboxes, free slots and bitmaps.
    ///
    /// The answer means something only while no worker is in `run` and no other call is under way:
    /// a test stops its workers first. It takes the workers' locks one after the other, and time
    /// proportional to the number of slots.
    ///
    /// # Errors
    ///
    /// The first invariant that does not hold, in words.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// assert_eq!(EXECUTOR.core().verify(), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn verify(&self) -> Result<(), &'static str> {
        let by_word = self.count_by_word();
        let mut found = Census::default();
        let slots = self.slab.handed_out();
        for worker in (0..self.worker_limit()).filter_map(|number| self.worker(number)) {
            let locked = worker.lock();
            self.verify_lists(&locked, slots, &mut found)?;
            found.posted = found.posted.wrapping_add(self.count_chain(
                &worker.inbox.0,
                slots,
                Place::Inbox,
                worker.number(),
            )?);
            found.free = found.free.wrapping_add(self.count_chain(
                &worker.free,
                slots,
                Place::Nowhere,
                0,
            )?);
        }
        if found.listed != by_word.listed {
            return Err("not as many slots in lists as have words that say so");
        }
        if found.posted != by_word.posted {
            return Err("not as many slots in inboxes as have words that say so");
        }
        if found.free > by_word.free {
            return Err("a slot is free twice");
        }
        if self.live.load(Relaxed) != slots.wrapping_sub(by_word.free) as u64 {
            return Err("the count of live coroutines is wrong");
        }
        Ok(())
    }

    /// How many slots have been in use so far, of 40 bytes each, none of which is ever freed: at
    /// least as many as coroutines were alive at once.
    ///
    /// In any context, interrupt handlers included.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// for _ in 0..10 {
    ///     EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    ///     EXECUTOR.run_until_stalled(0);
    /// }
    /// assert_eq!(EXECUTOR.core().slots_used(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn slots_used(&self) -> u32 {
        self.slab.handed_out()
    }

    /// Slots by what their words say.
    fn count_by_word(&self) -> Census {
        let mut census = Census::default();
        let indices = 1..self.slab.handed_out().wrapping_add(1);
        for slot in indices.filter_map(|index| self.slab.get(index)) {
            let count = match slot.state.load().place() {
                Place::Nowhere => &mut census.free,
                Place::Blocked => continue,
                Place::Inbox => &mut census.posted,
                Place::List => &mut census.listed,
            };
            *count = count.wrapping_add(1);
        }
        census
    }

    fn verify_lists(
        &self,
        locked: &Locked<'_>,
        slots: u32,
        found: &mut Census,
    ) -> Result<(), &'static str> {
        let worker = locked.0;
        if worker.running_level.load(Relaxed) != NO_LEVEL {
            return Err("a worker that does not run shows a level that it polls");
        }
        if locked.waiting() != locked.bitmap() {
            return Err("the levels that wait are not those of the lists");
        }
        let mut levels = locked.bitmap();
        while let Some(priority) = Priority::most_urgent_in(levels) {
            levels &= !priority.bit();
            let list = worker.list(priority);
            let (first, last) = (list.first(&self.slab), list.last(&self.slab));
            let mut slot = first;
            loop {
                found.listed = found.listed.wrapping_add(1);
                if found.listed > slots {
                    return Err("a list does not end");
                }
                let word = slot.state.load();
                if word.place() != Place::List || word.worker() != worker.number() {
                    return Err("a list holds a slot that is not of this list's worker");
                }
                if word.listed_at() != priority {
                    return Err("a list holds a slot of another level");
                }
                if word.is_misplaced() && worker.misplaced.load(Relaxed) & priority.bit() == 0 {
                    return Err(
                        "a slot waits at another level than its priority, and no note says so",
                    );
                }
                let next = slot.next(&self.slab);
                if next.previous.load(Relaxed) != slot.handle() {
                    return Err("the links of a list differ forwards and backwards");
                }
                if ::core::ptr::eq(slot, last) {
                    if !::core::ptr::eq(next, first) {
                        return Err("a list is no ring");
                    }
                    break;
                }
                slot = next;
            }
        }
        Ok(())
    }

    /// Slots in a chain by `next`, all of which must be at `place`, and if that is an inbox, of
    /// `worker`.
    fn count_chain(
        &self,
        head: &AtomicPtr<Slot>,
        slots: u32,
        place: Place,
        worker: u32,
    ) -> Result<u32, &'static str> {
        let mut count: u32 = 0;
        let mut next = head.load(Relaxed);
        // SAFETY: null, or a slot of this slab: module documentation.
        while let Some(slot) = unsafe { next.as_ref() } {
            let word = slot.state.load();
            if word.place() != place || place == Place::Inbox && word.worker() != worker {
                return Err("a chain holds a slot that belongs elsewhere");
            }
            count = count.wrapping_add(1);
            if count > slots {
                return Err("a chain does not end");
            }
            next = slot.next.load(Relaxed);
        }
        Ok(count)
    }
}
