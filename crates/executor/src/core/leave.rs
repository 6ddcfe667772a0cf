//! Leaving: a worker goes to sleep although it has work, and gives that to another worker.
//!
//! For a host on which two workers have come together on one processor: they take turns there, and
//! what waits at the one with the shorter lists is served sooner, however late it came.
//!
//! Nothing is lost. The worker is marked as parked first, by the steps of `park`; so what becomes
//! ready for it from then on notifies it. What it has goes to the heir as to a thief, published
//! there before it is withdrawn here, and is then announced as anything is that becomes ready on
//! the heir: if that has parked meanwhile, it is notified.

use super::atomic::Ordering;

use super::executor::{ATTENTION_STOP, Executor};
use super::priority::Priority;
use super::worker::Worker;

impl Executor {
    /// As [`prepare_park`](Self::prepare_park), for worker `number` that is to sleep although
    /// there is work: what waits for it goes to worker `heir`, behind what waits there. True: the
    /// caller shall sleep until notified, then call [`finish_park`](Self::finish_park). False: go
    /// on with [`run`](Self::run). A stop is requested, or the heir is the worker itself or none,
    /// or its lock is taken, or it polls something less urgent than what waits; then some of the
    /// work may have gone to it.
    ///
    /// The caller sees to it that the heir runs. For an executor that
    /// [relies on offers](Self::rely_on_offers): in others, what waits at the heir notifies the
    /// worker at once. Takes time proportional to what waits.
    ///
    /// On worker `number`, outside of `run`; not in interrupt handlers, which may wake coroutines
    /// at any time.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(2)?;
    /// let core = EXECUTOR.core();
    /// core.rely_on_offers();
    /// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// assert!(!core.prepare_park(0), "there is work");
    /// assert!(core.prepare_leave(0, 1), "which worker 1 does");
    /// core.run(1, u64::MAX);
    /// core.finish_park(0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prepare_leave(&self, number: u32, heir: u32) -> bool {
        let (Some(worker), Some(heir)) = (self.worker(number), self.worker(heir)) else {
            return false;
        };
        if worker.number() == heir.number() {
            return false;
        }
        self.mark_parked(worker);
        let stops = self.attention.load(Ordering::SeqCst) & ATTENTION_STOP != 0;
        let leaves = !stops && self.migrate_all(worker, heir);
        if !leaves {
            self.finish_park(number);
        }
        leaves
    }

    /// Migrates all that waits for `worker`, the caller's, to `heir`. False if its lock is taken,
    /// or it polls something less urgent.
    fn migrate_all(&self, worker: &Worker, heir: &Worker) -> bool {
        loop {
            // Unlocked after each part, since others may want these locks.
            let own = worker.lock();
            own.drain(&self.slab);
            own.drain_unannounced(&self.slab);
            let Some(priority) = Priority::most_urgent_in(own.waiting()) else { return true };
            let polled = heir.state().current_priority();
            if polled.is_some_and(|polled| priority.is_more_urgent_than(polled)) {
                // It would wait for a less urgent poll.
                return false;
            }
            let Some(to) = heir.try_lock() else { return false };
            // What became ready there before comes first.
            to.drain(&self.slab);
            own.migrate_some(&self.slab, &to);
            drop(to);
            drop(own);
            // As if by the heir, which is awake or is notified: no other worker is to come for it.
            self.tell(heir, priority, heir.number(), true, ());
        }
    }
}
