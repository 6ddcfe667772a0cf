//! Looking at the other workers: what is more urgent there than here, or anything if there is
//! nothing here.

use super::atomic::{Ordering, spin_loop};

use super::executor::Executor;
use super::locked::Locked;
use super::priority::Priority;
use super::schedule::{Begun, begin};
use super::worker::Worker;

/// How often a worker looks again when it is kept from something more urgent by a lock, before it
/// runs what it has. A holder is in the middle of a scheduling point, a fraction of a microsecond,
/// unless its host has suspended it there: then progress counts for more than order.
const LOOKS_AT_LOCKED_WORKERS: u32 = if cfg!(loom) { 2 } else { 200 };

/// What came of looking at the other workers.
enum Stolen {
    /// The thief has a coroutine of the priority that the victim published, and none that is more
    /// urgent.
    AsPublished,
    /// Something is published, but could not be taken now.
    Contended,
    Nothing,
}

impl Executor {
    /// Whether any other worker publishes one of `levels`. Called after each poll with several
    /// workers, most of which sleep if there is little to do.
    #[inline(always)]
    pub(super) fn others_publish(&self, worker: &Worker, levels: u64) -> bool {
        let others = self.awake_others(worker.number());
        others != 0 && self.any_publishes(others, levels)
    }

    /// Whether one of `others`, a bit for each worker, publishes one of `levels`.
    #[inline(never)]
    fn any_publishes(&self, mut others: u64, levels: u64) -> bool {
        while others != 0 {
            let state = self.record(others.trailing_zeros());
            if state.is_some_and(|state| state.waiting() & levels != 0) {
                return true;
            }
            others &= others.wrapping_sub(1);
        }
        false
    }

    /// The rest of a scheduling point, if there is something to steal, or nothing to begin.
    #[inline(never)]
    pub(super) fn pick<'a>(
        &'a self,
        worker: &'a Worker,
        mut locked: Locked<'a>,
    ) -> Option<Begun<'a>> {
        let mut looks = LOOKS_AT_LOCKED_WORKERS;
        loop {
            let own = locked.bitmap();
            let stolen = self.steal(worker, &locked, (own & own.wrapping_neg()).wrapping_sub(1));
            match stolen {
                Stolen::Contended if looks != 0 => {
                    // Something more urgent waits at a worker that is just picking. Rather than run
                    // something less urgent, unlock (others may want our lock) and look again.
                    looks = looks.wrapping_sub(1);
                    drop(locked);
                    spin_loop();
                    locked = worker.lock();
                    locked.drain(&self.slab);
                    continue;
                }
                Stolen::AsPublished | Stolen::Contended | Stolen::Nothing => {}
            }
            if let Some(priority) = Priority::most_urgent_in(locked.bitmap()) {
                if matches!(stolen, Stolen::Contended) {
                    let skipped = &worker.state().skipped_steals;
                    skipped
                        .store(skipped.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
                }
                return Some(begin(&locked, &self.slab, priority));
            }
            if !locked.drain_unannounced(&self.slab) {
                drop(locked);
                if matches!(stolen, Stolen::Contended) {
                    // The holder may have lost its processor to this worker.
                    worker.relax();
                }
                return None;
            }
        }
    }

    /// Moves the most urgent coroutine that waits on another worker to the thief, if its level is
    /// one of `levels`; and half of the others that wait there, if the thief has none at all. The
    /// thief's lock is held, and its list of that level is empty.
    fn steal(&self, thief: &Worker, own: &Locked<'_>, levels: u64) -> Stolen {
        let Some((victim, published)) = self.most_urgent_victim(thief.number(), levels) else {
            return Stolen::Nothing;
        };
        let Some(locked) = victim.try_lock() else {
            return Stolen::Contended;
        };
        locked.drain(&self.slab);
        let found = Priority::most_urgent_in(locked.waiting());
        let Some(priority) = found.filter(|found| !published.is_more_urgent_than(*found)) else {
            // What was published is gone, or has another priority now; others may have something
            // more urgent than what is here.
            return Stolen::Contended;
        };
        let had_nothing = own.bitmap() == 0;
        // Before it disappears from the victim's record: an observer that sees it nowhere for a
        // moment sees why.
        let steals = thief.state().steals.load(Ordering::Relaxed);
        thief.state().steals.store(steals.wrapping_add(1), Ordering::Relaxed);
        let list = locked.migrate(&self.slab, priority, own);
        if had_nothing {
            locked.migrate_half(&self.slab, own);
        }
        // If its priority was changed on the way, another worker may have something more urgent
        // than what is here now.
        if list == priority { Stolen::AsPublished } else { Stolen::Contended }
    }

    /// The worker other than `thief` that publishes the most urgent of `levels`, and which that is.
    fn most_urgent_victim(&self, thief: u32, levels: u64) -> Option<(&Worker, Priority)> {
        let mut best = None;
        let mut wanted = levels;
        for (number, state) in self.records() {
            if number != thief
                && let Some(published) = Priority::most_urgent_in(state.waiting() & wanted)
            {
                best = Some((number, published));
                wanted = published.bit().wrapping_sub(1);
            }
        }
        let (number, published) = best?;
        Some((self.worker(number)?, published))
    }
}
