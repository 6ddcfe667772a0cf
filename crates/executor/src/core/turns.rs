//! Polls in turn: the short form of scheduling while coroutines yield to one another and nothing
//! else happens.
//!
//! A few comparisons after each poll see that this is so; otherwise the rest is left to `schedule`,
//! which is always right.

use super::atomic::{Ordering, compiler_fence};

use super::executor::{ATTENTION_EXTERNAL, ATTENTION_FELLOWS, ATTENTION_STOP, Executor};
use super::locked::Locked;
use super::priority::Priority;
use super::ready::List;
use super::record::WorkerState;
use super::schedule::{Begun, Polled, call_external, drop_future, poll_current, woke_itself};
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

    /// Goes on to another level.
    #[inline(always)]
    fn enter(&mut self, worker: &'a Worker, level: Priority) {
        self.level = level;
        self.list = worker.list(level);
        self.plain = Snapshot::plain(level, worker.number());
        worker.state().current_priority.store(level.level() as u32, Ordering::Relaxed);
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
    fn leave(&mut self, slot: &'a Slot, id: u64, woken: bool) {
        let begun = Begun { slot, word: Snapshot::plain_of(id, self.plain) };
        self.polled = Some(Polled { begun, woken });
    }
}

impl Executor {
    /// Polls the coroutine that has begun and has a plain word, and then one after another of its
    /// list and of others, as long as each only yields, blocks or exits and nothing else has to be
    /// done: the main loop of an executor. `ALONE`: only this worker's own record must be checked
    /// in between.
    ///
    /// What follows a block or an exit is apart, so that the registers are for what follows a
    /// yield.
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
            if poll_current(state, slot, id) {
                match self.exited::<ALONE>(worker, slot, turns) {
                    Some(next) => slot = next,
                    None => return,
                }
            } else if woke_itself(state, id) {
                turns.left = turns.left.wrapping_sub(1);
                if turns.left == 0 || self.has_more_to_do::<ALONE>(worker, state, turns.level) {
                    break leave(state, slot, id, turns);
                }
                // While it waits for the lock it does not show a current coroutine: a host that
                // uses this would otherwise prefer it to the thief that it waits for.
                let Some(locked) = worker.try_lock() else { break leave(state, slot, id, turns) };
                if locked.is_steady() {
                    slot = locked.turn(&self.slab, turns.list, slot);
                    let word = slot.state.peek();
                    if !word.is(turns.plain) {
                        state.current_id.store(0, Ordering::Relaxed);
                        drop(locked);
                        break self.poll_touched(worker, slot, turns);
                    }
                    // Before the lock is free: then a thief may take, poll and block the one that
                    // has yielded, and an interrupt handler here that wakes it must not find it
                    // shown as the current one (`wakes_itself`).
                    id = turns.show_current(state, slot, word);
                    drop(locked);
                    continue;
                }
                match self.change_level::<ALONE>(worker, locked, slot, turns) {
                    Some(next) => slot = next,
                    None => break leave(state, slot, id, turns),
                }
            } else {
                match self.blocked::<ALONE>(worker, slot, id, turns) {
                    Some(next) => slot = next,
                    None => return,
                }
            }
            let word = slot.state.peek();
            if !word.is(turns.plain) {
                break self.poll_touched(worker, slot, turns);
            }
            id = turns.show_current(state, slot, word);
        }
    }

    /// What follows in turn on a poll after which the coroutine is finished: the next.
    #[inline(never)]
    fn exited<'a, const ALONE: bool>(
        &'a self,
        worker: &'a Worker,
        slot: &'a Slot,
        turns: &mut Turns<'a>,
    ) -> Option<&'a Slot> {
        let state = worker.state();
        drop_future(state, slot);
        // It may have changed its own, and was not asked.
        state.current_priority.store(turns.level.level() as u32, Ordering::Relaxed);
        turns.left = turns.left.wrapping_sub(1);
        if turns.left == 0 || self.has_more_to_do::<ALONE>(worker, state, turns.level) {
            worker.lock().exited(&self.slab, slot);
            self.one_less();
            return None;
        }
        let locked = worker.lock();
        if locked.is_steady() {
            let next = slot.next(&self.slab);
            let next = locked.turn_removed(&self.slab, turns.list, turns.level, next);
            locked.free(slot);
            if next.is_some() {
                drop(locked);
                self.one_less();
                return next;
            }
        } else {
            locked.exited(&self.slab, slot);
        }
        drop(locked);
        // Without the lock, since it may notify.
        self.one_less();
        self.begin_most_urgent::<ALONE>(worker, worker.lock(), turns)
    }

    /// What follows in turn on a poll that is pending, and has not woken itself: the next.
    #[inline(never)]
    fn blocked<'a, const ALONE: bool>(
        &'a self,
        worker: &'a Worker,
        slot: &'a Slot,
        id: u64,
        turns: &mut Turns<'a>,
    ) -> Option<&'a Slot> {
        let state = worker.state();
        // The order matters: `WorkerState::wakes_itself`.
        state.current_id.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let woken = woke_itself(state, id);
        turns.left = turns.left.wrapping_sub(1);
        if woken || turns.left == 0 || self.has_more_to_do::<ALONE>(worker, state, turns.level) {
            turns.leave(slot, id, woken);
            return None;
        }
        // This does not wait for the lock: all calls are the last ones, so that no registers are
        // saved for them.
        let Some(locked) = worker.try_lock() else {
            turns.leave(slot, id, false);
            return None;
        };
        // Before it is blocked: from then on a wake may push it into an inbox, which uses the same
        // field.
        let next = slot.next(&self.slab);
        if !slot.state.block(Snapshot::plain_of(id, turns.plain)) {
            turns.leave(slot, id, false);
            return None;
        }
        if locked.is_steady() {
            let next = locked.turn_removed(&self.slab, turns.list, turns.level, next);
            if next.is_some() {
                return next;
            }
        } else {
            locked.end_and_remove(&self.slab, next);
        }
        self.begin_most_urgent::<ALONE>(worker, locked, turns)
    }

    /// Goes on, in turn, with the most urgent level of all; nothing is being polled. `None` if
    /// there is more to see to.
    #[inline(never)]
    fn begin_most_urgent<'a, const ALONE: bool>(
        &'a self,
        worker: &'a Worker,
        locked: Locked<'_>,
        turns: &mut Turns<'a>,
    ) -> Option<&'a Slot> {
        let level = Priority::most_urgent_in(locked.bitmap())?;
        if self.must_look_round::<ALONE>(worker, level) {
            return None;
        }
        turns.enter(worker, level);
        Some(locked.begin(&self.slab, level))
    }

    /// As `begin_most_urgent`, while `polled`, which has yielded, is the head of its list. If
    /// `None`, it still is.
    #[inline(never)]
    fn change_level<'a, const ALONE: bool>(
        &'a self,
        worker: &'a Worker,
        locked: Locked<'_>,
        polled: &Slot,
        turns: &mut Turns<'a>,
    ) -> Option<&'a Slot> {
        let level = Priority::most_urgent_in(locked.bitmap())?;
        if self.must_look_round::<ALONE>(worker, level) || !polled.state.peek().is(turns.plain) {
            return None;
        }
        // See `poll_in_turn`: before it can be taken elsewhere.
        worker.state().current_id.store(0, Ordering::Relaxed);
        locked.end_and_rotate(&self.slab);
        turns.enter(worker, level);
        Some(locked.begin(&self.slab, level))
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

    /// Polls the next one, for which a request was made while it waited.
    #[cold]
    fn poll_touched<'a>(&'a self, worker: &'a Worker, slot: &'a Slot, turns: &mut Turns<'a>) {
        let (state, word) = (worker.state(), slot.state.begin());
        state.current_priority.store(word.priority().level() as u32, Ordering::Relaxed);
        state.current_id.store(0, Ordering::Relaxed);
        turns.left = turns.left.wrapping_sub(1);
        turns.polled = self.poll_once(worker, Begun { slot, word });
    }

    /// Whether a worker must do more at a scheduling point than look at its own lists.
    #[inline(always)]
    fn has_more_to_do<const ALONE: bool>(
        &self,
        worker: &Worker,
        state: &WorkerState,
        level: Priority,
    ) -> bool {
        !ALONE && self.attend(worker, level) || state.posted.load(Ordering::Relaxed) != 0
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
            || attention & ATTENTION_FELLOWS != 0 && self.others_show(worker, level.bit().wrapping_sub(1))
    }
}

/// Leaves a coroutine that has yielded to the next scheduling point.
#[cold]
fn leave<'a>(state: &WorkerState, slot: &'a Slot, id: u64, turns: &mut Turns<'a>) {
    state.current_id.store(0, Ordering::Relaxed);
    turns.leave(slot, id, true);
}
