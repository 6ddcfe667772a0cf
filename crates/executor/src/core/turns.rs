//! Polls in turn: what follows on a poll while coroutines only yield, block and exit, and nothing
//! else happens.
//!
//! A turn puts the polled coroutine where it belongs and begins the next one, under the worker's
//! lock, as `schedule` does, which is always right. A turn leaves to `schedule` everything that
//! takes more than a few comparisons: a request for the coroutine or for the next, a filled inbox,
//! another worker with something more urgent, the end of the budget. It returns then, before it has
//! touched anything, with the polled coroutine still the head of its list; or, after that one has
//! been put where it belongs, with nothing.

use super::atomic::Ordering;

use super::executor::{ATTENTION_EXTERNAL, ATTENTION_FELLOWS, ATTENTION_STOP, Executor};
use super::locked::Locked;
use super::priority::Priority;
use super::ready::List;
use super::record::WorkerState;
use super::schedule::{
    Begun, Outcome, Polled, call_external, drop_future, pending, poll_current, woke_itself,
};
use super::slot::Slot;
use super::snapshot::Snapshot;
use super::worker::Worker;

/// What `poll_in_turn` goes by. Together in memory, because registers are few.
pub(super) struct Turns<'a> {
    /// Polls that may still be made; not 0.
    pub left: u64,
    /// Where it polls, for now.
    level: Priority,
    list: &'a List,
    /// The low half of the words that may take part there.
    pub plain: u64,
    /// What is left to the next scheduling point when the turns end.
    pub polled: Option<Polled<'a>>,
}

impl<'a> Turns<'a> {
    pub fn new(worker: &'a Worker, level: Priority, left: u64) -> Turns<'a> {
        let plain = Snapshot::plain(level, worker.number());
        Turns { left, level, list: worker.list(level), plain, polled: None }
    }

    /// Shows a coroutine that takes part as the current one. Returns its id.
    #[inline(always)]
    fn show_current(&self, state: &WorkerState, slot: &Slot, word: Snapshot) -> u64 {
        let id = word.id_high_of(self.plain) | slot.handle() as u64;
        state.current_id.store(id, Ordering::Relaxed);
        id
    }

    /// Leaves a coroutine that takes part to the next scheduling point.
    #[inline(always)]
    fn leave(&mut self, slot: &'a Slot, id: u64, outcome: Outcome) {
        let begun = Begun { slot, word: Snapshot::plain_of(id, self.plain) };
        self.polled = Some(Polled { begun, outcome });
    }
}

impl Executor {
    /// Polls the coroutine that has begun and has a plain word, and then one after another of its
    /// list and of others: the main loop of an executor. `ALONE`: only this worker's own record
    /// must be checked in between.
    ///
    /// What follows a block, an exit or another level is apart, so that the registers are for a
    /// yield to the next of the same list.
    #[inline(never)]
    pub(super) fn poll_in_turn<'a, const ALONE: bool>(
        &'a self,
        worker: &'a Worker,
        begun: Begun<'a>,
        turns: &mut Turns<'a>,
    ) {
        let state = worker.state();
        // Not checked again: a request may have been made since the word was found to be plain,
        // which has the same effect as a request during the poll.
        let Begun { mut slot, word } = begun;
        let mut id = turns.show_current(state, slot, word);
        loop {
            let is_finished = poll_current(state, slot, id);
            if is_finished || !woke_itself(state, id) {
                let next = if is_finished {
                    // Here, because what calls nothing saves no registers.
                    drop_future(state, slot);
                    self.begin_without::<ALONE, true>(worker, slot, id, turns)
                } else {
                    self.begin_without::<ALONE, false>(worker, slot, id, turns)
                };
                let Some(Begun { slot: next, word }) = next else { return };
                slot = next;
                id = turns.show_current(state, slot, word);
                continue;
            }
            turns.left = turns.left.wrapping_sub(1);
            if turns.left == 0 || self.has_more_to_do::<ALONE>(worker, state, turns.level) {
                break;
            }
            // While it waits for the lock it does not show a current coroutine: a host that uses
            // this would otherwise prefer it to the thief that it waits for.
            let Some(locked) = worker.try_lock() else { break };
            let next = slot.next(&self.slab);
            let word = next.state.peek();
            if !locked.is_steady() || !word.is(turns.plain) {
                let next = self.begin_after_yield::<ALONE>(worker, locked, slot, id, turns);
                let Some(Begun { slot: next, word }) = next else { return };
                slot = next;
                id = turns.show_current(state, slot, word);
                continue;
            }
            turns.list.rotate_to(slot, next);
            slot = next;
            // Before the lock is free: then a thief may take, poll and block the one that has
            // yielded, and an interrupt handler here that wakes it must not find it shown as the
            // current one (`wakes_itself`).
            id = turns.show_current(state, slot, word);
        }
        state.current_id.store(0, Ordering::Relaxed);
        turns.leave(slot, id, Outcome::Yields);
    }

    /// What follows in turn on a yield after which its list does not go on, usually because
    /// something more urgent has become ready: the most urgent of all lists.
    #[inline(never)]
    fn begin_after_yield<'a, const ALONE: bool>(
        &'a self,
        worker: &'a Worker,
        locked: Locked<'_>,
        slot: &'a Slot,
        id: u64,
        turns: &mut Turns<'a>,
    ) -> Option<Begun<'a>> {
        // Before the lock is free, as in `poll_in_turn`.
        worker.state().current_id.store(0, Ordering::Relaxed);
        if !slot.state.peek().is(turns.plain) {
            turns.leave(slot, id, Outcome::Yields);
            return None;
        }
        locked.end_and_rotate(&self.slab);
        self.begin_most_urgent::<ALONE>(worker, locked, turns)
    }

    /// What follows in turn on a poll after which the coroutine leaves its list, because it is
    /// finished, or else pending and has not woken itself: the next.
    #[inline(never)]
    fn begin_without<'a, const ALONE: bool, const IS_FINISHED: bool>(
        &'a self,
        worker: &'a Worker,
        slot: &'a Slot,
        id: u64,
        turns: &mut Turns<'a>,
    ) -> Option<Begun<'a>> {
        let state = worker.state();
        let outcome = if IS_FINISHED { Outcome::Ended } else { pending(state, id) };
        turns.left = turns.left.wrapping_sub(1);
        let is_over = outcome == Outcome::Yields
            || turns.left == 0
            || self.has_more_to_do::<ALONE>(worker, state, turns.level);
        let locked = if is_over { None } else { worker.try_lock() };
        let Some(locked) = locked else {
            turns.leave(slot, id, outcome);
            return None;
        };
        // Before it is blocked: from then on a wake may push it into an inbox, which uses the same
        // field.
        let next = slot.next(&self.slab);
        if !IS_FINISHED && !slot.state.block(Snapshot::plain_of(id, turns.plain)) {
            turns.leave(slot, id, outcome);
            return None;
        }
        let word = next.state.peek();
        let next = if locked.is_steady() && word.is(turns.plain) {
            locked.remove_and_begin(&self.slab, turns.list, turns.level, next)
        } else {
            locked.end_and_remove(&self.slab, next);
            None
        };
        if IS_FINISHED {
            locked.free(slot);
        }
        let begun = match next {
            Some(slot) => {
                drop(locked);
                Some(Begun { slot, word })
            }
            None => self.begin_most_urgent::<ALONE>(worker, locked, turns),
        };
        if IS_FINISHED {
            // Without the lock, since it may notify.
            self.one_less();
        }
        begun
    }

    /// Goes on, in turn, with the most urgent level of all; nothing is being polled. `None` if
    /// there is more to see to.
    #[inline(always)]
    fn begin_most_urgent<'a, const ALONE: bool>(
        &'a self,
        worker: &'a Worker,
        locked: Locked<'_>,
        turns: &mut Turns<'a>,
    ) -> Option<Begun<'a>> {
        let level = Priority::most_urgent_in(locked.bitmap())?;
        let list = worker.list(level);
        let (plain, word) =
            (Snapshot::plain(level, worker.number()), list.first(&self.slab).state.peek());
        if !word.is(plain) || self.must_look_round::<ALONE>(worker, level) {
            return None;
        }
        (turns.level, turns.list, turns.plain) = (level, list, plain);
        worker.state().current_priority.store(level.level() as u32, Ordering::Relaxed);
        Some(Begun { slot: locked.begin(&self.slab, level), word })
    }

    /// Whether a stop is requested, or another worker shows something more urgent than `level`.
    #[inline(always)]
    fn must_look_round<const ALONE: bool>(&self, worker: &Worker, level: Priority) -> bool {
        let attention = self.attention.load(Ordering::Relaxed);
        attention != 0
            && (ALONE
                || attention & ATTENTION_STOP != 0
                || attention & ATTENTION_FELLOWS != 0
                    && self.others_show(worker, level.bit().wrapping_sub(1)))
    }

    /// Whether a worker must do more at a scheduling point than look at its own lists.
    #[inline(always)]
    fn has_more_to_do<const ALONE: bool>(
        &self,
        worker: &Worker,
        state: &WorkerState,
        level: Priority,
    ) -> bool {
        let others = !ALONE
            && if self.attention.load(Ordering::Relaxed) == ATTENTION_FELLOWS {
                self.others_show(worker, level.bit().wrapping_sub(1))
            } else {
                self.attend(worker, level)
            };
        others || state.posted.load(Ordering::Relaxed) != 0
    }

    /// Calls the hook `external`; true if a stop is requested, or another worker shows something
    /// more urgent.
    #[inline(never)]
    fn attend(&self, worker: &Worker, level: Priority) -> bool {
        let attention = self.attention.load(Ordering::Relaxed);
        if attention & ATTENTION_EXTERNAL != 0
            && let Some(hooks) = self.hooks()
            && let Some(external) = hooks.external
        {
            call_external(external, hooks, worker);
        }
        attention & ATTENTION_STOP != 0
            || attention & ATTENTION_FELLOWS != 0
                && self.others_show(worker, level.bit().wrapping_sub(1))
    }
}
