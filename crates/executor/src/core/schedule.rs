//! Running: pick the most urgent coroutine, poll it, see to what became of it.
//!
//! Between two polls a worker takes its own lock once: it settles what it has polled, files its inbox,
//! compares its lists with its fellows' bitmaps, and begins the next.
//!
//! That is `schedule`, which is always right. `poll_in_turn` is what it comes to while nothing changes but that one
//! coroutine of a level gives way to the next; it sees by a few comparisons that this is so, and otherwise
//! leaves the rest to `schedule`.

use super::atomic::{Ordering, compiler_fence, spin_loop};

use super::executor::{ATTENTION_EXTERNAL, ATTENTION_FELLOWS, ATTENTION_STOP, Executor};
use super::hooks::Hooks;
use super::interface::{RUN_BUDGET_USED, RUN_REFUSED, RUN_STALLED, RUN_STOP_REQUESTED};
use super::locked::Locked;
use super::priority::Priority;
use super::ready::List;
use super::record::{NO_PRIORITY, PHASE_OUTSIDE, PHASE_RUNNING, WorkerState};
use super::slot::Slot;
use super::snapshot::Snapshot;
use super::state::Settled;
use super::worker::Worker;

/// How often a worker looks again when it is kept from something more urgent by a lock, before it runs
/// what it has. A holder is in the middle of a scheduling point, a fraction of a microsecond, unless its
/// host has suspended it there: then progress counts for more than order.
const LOOKS_AT_LOCKED_WORKERS: u32 = if cfg!(loom) { 2 } else { 200 };

/// After so many polls in turn a worker looks at everything, whatever happens, and shows its count of polls.
const POLLS_IN_TURN: u64 = 256;

/// What came of looking at the other workers.
enum Stolen<'a> {
    /// This one begins: it is the head of its list, here.
    Coroutine(&'a Slot),
    /// They show something, but it could not be had now.
    Contended,
    Nothing,
}

/// A coroutine that this worker polls: the head of one of its lists. Its future is ours.
#[derive(Clone, Copy)]
struct Begun<'a> {
    slot: &'a Slot,
    /// The state word with which the poll begins.
    word: Snapshot,
}

/// A coroutine whose poll is pending, to be settled at the scheduling point.
#[derive(Clone, Copy)]
struct Polled<'a> {
    begun: Begun<'a>,
    /// It has woken itself.
    woken: bool,
}

/// What `poll_in_turn` goes by. Together in memory, because registers are few.
struct Turns<'a> {
    /// Polls that may still be made; not 0.
    left: u64,
    /// Where it polls, for now.
    level: Priority,
    list: &'a List,
    /// The low half of the words that may take part there.
    plain: u64,
    /// What is left to the next scheduling point when the turns end.
    polled: Option<Polled<'a>>,
}

impl<'a> Turns<'a> {
    fn new(worker: &'a Worker, level: Priority, left: u64) -> Turns<'a> {
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

    /// Leaves a coroutine that takes part to the next scheduling point.
    #[inline(always)]
    fn leave(&mut self, slot: &'a Slot, id: u64, woken: bool) {
        let begun = Begun { slot, word: Snapshot::plain_of(id, self.plain) };
        self.polled = Some(Polled { begun, woken });
    }
}

impl Executor {
    /// Polls coroutines on worker `number` until nothing is ready, `max_polls` polls were made, or a stop
    /// is requested; which of them, is the result.
    ///
    /// Must be called by one thread or hart at a time for each worker. Called again from inside a poll on
    /// the same worker it returns `RUN_REFUSED` and does nothing.
    ///
    /// Not in interrupt handlers, unless the executor is used in interrupt handlers only.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new(1);
    /// # EXECUTOR.start_on_host(1)?;
    /// use cops_executor::core::{RUN_BUDGET_USED, RUN_STALLED};
    /// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// assert_eq!(EXECUTOR.core().run(0, 1), RUN_BUDGET_USED);
    /// assert_eq!(EXECUTOR.core().run(0, u64::MAX), RUN_STALLED);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run(&self, number: u32, max_polls: u64) -> u32 {
        let (Some(worker), Some(hooks)) = (self.worker(number), self.hooks()) else { return RUN_REFUSED };
        if worker.running.swap(true, Ordering::Acquire) {
            return RUN_REFUSED;
        }
        worker.state().phase.store(PHASE_RUNNING, Ordering::Relaxed);
        let outcome = self.run_marked(worker, hooks, max_polls);
        worker.state().current_priority.store(NO_PRIORITY, Ordering::Relaxed);
        worker.state().phase.store(PHASE_OUTSIDE, Ordering::Relaxed);
        worker.running.store(false, Ordering::Release);
        outcome
    }

    fn run_marked(&self, worker: &Worker, hooks: &Hooks, max_polls: u64) -> u32 {
        let state = worker.state();
        let mut polled = None;
        let mut budget = max_polls;
        loop {
            if let Some(external) = hooks.external {
                call_external(external, hooks, worker);
            }
            let stop = self.attention.load(Ordering::Relaxed) & ATTENTION_STOP != 0;
            if budget == 0 || stop {
                self.settle_last(worker, polled);
                return if budget == 0 { RUN_BUDGET_USED } else { RUN_STOP_REQUESTED };
            }
            let until_aged = self.polls_until_aged(worker);
            let Some(begun) = self.schedule(worker, polled, until_aged == 0) else { return RUN_STALLED };
            state.current_priority.store(begun.word.priority().level() as u32, Ordering::Relaxed);
            let left = budget.min(POLLS_IN_TURN).min(until_aged);
            let mut turns = Turns::new(worker, begun.word.level(), left);
            let allowed = turns.left;
            // Read after `schedule` has taken note that nothing happened: whoever asks for attention clears that.
            let attention = self.attention.load(Ordering::Relaxed);
            polled = if allowed == 0 || attention & ATTENTION_STOP != 0 || !begun.word.is(turns.plain) {
                turns.left = allowed.wrapping_sub(1);
                self.poll_once(worker, begun)
            } else {
                if attention == 0 {
                    self.poll_in_turn::<true>(worker, begun, &mut turns);
                } else {
                    self.poll_in_turn::<false>(worker, begun, &mut turns);
                }
                turns.polled
            };
            let made = allowed.wrapping_sub(turns.left);
            budget = budget.wrapping_sub(made);
            worker.note_polls(made, until_aged == 0);
        }
    }

    /// Polls what has begun, whose word is plain, and then, as long as each only yields, blocks or exits and nothing else is to
    /// be seen to, one after the other of its list, and of others: the loop that an executor lives in. `ALONE`: nobody but this worker's own
    /// record need be looked at in between.
    ///
    /// What follows a block or an exit is apart, so that the registers are for what follows a yield.
    #[inline(never)]
    fn poll_in_turn<'a, const ALONE: bool>(
        &'a self,
        worker: &'a Worker,
        begun: Begun<'a>,
        turns: &mut Turns<'a>,
    ) {
        let state = worker.state();
        // Not looked at again: since it was found to be plain somebody may have asked for something, which is as if he
        // had during the poll.
        let Begun { mut slot, mut word } = begun;
        loop {
            let id = word.id_high_of(turns.plain) | slot.handle() as u64;
            if poll(state, slot, id) {
                match self.exited::<ALONE>(worker, slot, turns) {
                    Some(next) => slot = next,
                    None => return,
                }
            } else if woke_itself(state, id) {
                turns.left = turns.left.wrapping_sub(1);
                if turns.left == 0 || self.has_more_to_do::<ALONE>(worker, state, turns.level) {
                    break leave(state, slot, id, turns);
                }
                let locked = worker.lock();
                if locked.is_steady() {
                    slot = locked.turn(&self.slab, turns.list, slot);
                } else {
                    match self.change_level::<ALONE>(worker, locked, slot, turns) {
                        Some(next) => slot = next,
                        None => break leave(state, slot, id, turns),
                    }
                }
            } else {
                match self.blocked::<ALONE>(worker, slot, id, turns) {
                    Some(next) => slot = next,
                    None => return,
                }
            }
            word = slot.state.peek();
            if !word.is(turns.plain) {
                break self.poll_touched(worker, slot, turns);
            }
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
            let next = locked.turn_removed(&self.slab, turns.list, turns.level, slot, next);
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
        // Nobody waits for the lock here: all calls are the last ones, so that no registers are saved for them.
        let Some(locked) = worker.try_lock() else {
            turns.leave(slot, id, false);
            return None;
        };
        // Before it is blocked: from then on whoever wakes it may push it into an inbox, by the same field.
        let next = slot.next(&self.slab);
        if !slot.state.block(Snapshot::plain_of(id, turns.plain)) {
            turns.leave(slot, id, false);
            return None;
        }
        if locked.is_steady() {
            let next = locked.turn_removed(&self.slab, turns.list, turns.level, slot, next);
            if next.is_some() {
                return next;
            }
        } else {
            locked.end_and_remove(&self.slab, slot, next);
        }
        self.begin_most_urgent::<ALONE>(worker, locked, turns)
    }

    /// Goes on, in turn, with the most urgent level of all; nothing is being polled. `None` if there is more to see to.
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

    /// As `begin_most_urgent`, while `polled`, which has yielded, is the head of its list. If `None`, it still is.
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

    /// Polls the next in turn, of whom somebody has asked something while it waited.
    #[cold]
    fn poll_touched<'a>(&'a self, worker: &'a Worker, slot: &'a Slot, turns: &mut Turns<'a>) {
        let (state, word) = (worker.state(), slot.state.begin());
        state.current_priority.store(word.priority().level() as u32, Ordering::Relaxed);
        state.current_id.store(0, Ordering::Relaxed);
        turns.left = turns.left.wrapping_sub(1);
        turns.polled = self.poll_once(worker, Begun { slot, word });
    }

    /// Polls a coroutine, or drops it if it is cancelled.
    #[inline(never)]
    fn poll_once<'a>(&self, worker: &Worker, begun: Begun<'a>) -> Option<Polled<'a>> {
        if begun.word.is_cancelled() {
            self.finish(worker, begun);
            return None;
        }
        let state = worker.state();
        let id = begun.word.id_high() | begun.slot.handle() as u64;
        let ready = poll(state, begun.slot, id);
        // The order matters: `WorkerState::wakes_itself`.
        state.current_id.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if ready {
            self.finish(worker, begun);
            return None;
        }
        Some(Polled { begun, woken: woke_itself(state, id) })
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

    /// Calls the hook `external`; true if a stop is requested, or another worker shows something more
    /// urgent.
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

    /// One scheduling point: settles `polled`, files the inbox, and begins the most urgent, or, if `aged`, somebody
    /// less urgent.
    #[inline(always)]
    fn schedule<'a>(
        &'a self,
        worker: &'a Worker,
        polled: Option<Polled<'a>>,
        aged: bool,
    ) -> Option<Begun<'a>> {
        let mut locked = worker.lock();
        // Those that became ready during the poll are filed before it is settled: it gives way to them.
        locked.drain(&self.slab);
        if let Some(polled) = polled
            && !self.settle(&locked, polled)
        {
            drop(locked);
            self.finish(worker, polled.begun);
            locked = worker.lock();
            locked.drain(&self.slab);
        }
        // Isolates the lowest bit; one less is all more urgent levels, and all levels if there is no bit.
        let own = locked.bitmap();
        let more_urgent = (own & own.wrapping_neg()).wrapping_sub(1);
        if aged && let Some(level) = worker.next_aged_level(own) {
            return Some(begin(&locked, &self.slab, level));
        }
        if own == 0 || self.worker_limit() != 1 && self.others_show(worker, more_urgent) {
            return self.pick(worker, locked);
        }
        let level = Priority::most_urgent_in(own)?;
        Some(begin(&locked, &self.slab, level))
    }

    /// Whether any other worker shows one of `levels`.
    #[inline(always)]
    fn others_show(&self, worker: &Worker, levels: u64) -> bool {
        let me = worker.number();
        self.records().any(|(number, state)| number != me && state.waiting() & levels != 0)
    }

    /// The rest of a scheduling point, if there is something to steal, or nothing to begin.
    #[inline(never)]
    fn pick<'a>(&'a self, worker: &'a Worker, mut locked: Locked<'a>) -> Option<Begun<'a>> {
        let mut looks = LOOKS_AT_LOCKED_WORKERS;
        loop {
            let own = locked.bitmap();
            match self.steal(worker, &locked, (own & own.wrapping_neg()).wrapping_sub(1)) {
                Stolen::Coroutine(slot) => {
                    return Some(begin(&locked, &self.slab, slot.state.peek().level()));
                }
                Stolen::Contended if looks != 0 => {
                    // Something more urgent waits where somebody is just picking. Rather than run something
                    // less urgent, unlock (others may want our lock) and look again.
                    looks = looks.wrapping_sub(1);
                    drop(locked);
                    spin_loop();
                    locked = worker.lock();
                    locked.drain(&self.slab);
                    continue;
                }
                _ => {}
            }
            if let Some(level) = Priority::most_urgent_in(locked.bitmap()) {
                return Some(begin(&locked, &self.slab, level));
            }
            if !locked.drain_unannounced(&self.slab) {
                return None;
            }
        }
    }

    /// Settles what was polled, the head of its list. False if it is to be dropped instead, without the lock.
    #[inline(always)]
    fn settle(&self, locked: &Locked<'_>, polled: Polled<'_>) -> bool {
        let slot = polled.begun.slot;
        // Before it can be blocked: from then on whoever wakes it may push it into an inbox, by the same field.
        let next = slot.next(&self.slab);
        match slot.state.settle(polled.begun.word, polled.woken) {
            Settled::Stays => locked.end_and_rotate(&self.slab),
            Settled::Moves { to } => {
                locked.end_and_remove(&self.slab, slot, next);
                let _ = locked.push(slot, to);
            }
            Settled::Blocks => locked.end_and_remove(&self.slab, slot, next),
            Settled::Ends => return false,
        }
        true
    }

    /// The last scheduling point of a `run` that shall not poll any more: files what there is.
    #[cold]
    fn settle_last(&self, worker: &Worker, polled: Option<Polled<'_>>) {
        let locked = worker.lock();
        locked.drain(&self.slab);
        if let Some(polled) = polled
            && !self.settle(&locked, polled)
        {
            drop(locked);
            self.finish(worker, polled.begun);
        }
    }

    /// Takes the most urgent coroutine that waits on another worker over to the thief, whose lock is held and has nothing
    /// in that list, if its level is one of `levels`; and half of what else waits there, if the thief has nothing at all.
    fn steal<'a>(&'a self, thief: &'a Worker, own: &Locked<'_>, levels: u64) -> Stolen<'a> {
        let Some((victim, shown)) = self.most_urgent_victim(thief.number(), levels) else {
            return Stolen::Nothing;
        };
        let Some(locked) = victim.try_lock() else {
            return Stolen::Contended;
        };
        locked.drain(&self.slab);
        let found = Priority::most_urgent_in(locked.waiting());
        let Some(level) = found.filter(|found| !shown.is_more_urgent_than(*found)) else {
            // What was shown is gone, or has another priority now; others may have something more urgent than what is here.
            return Stolen::Contended;
        };
        let had_nothing = own.bitmap() == 0;
        let slot = locked.hand_over(&self.slab, level, own);
        if had_nothing {
            locked.hand_over_half(&self.slab, own);
        }
        let steals = thief.state().steals.load(Ordering::Relaxed);
        thief.state().steals.store(steals.wrapping_add(1), Ordering::Relaxed);
        Stolen::Coroutine(slot)
    }

    /// The worker other than `thief` that shows the most urgent of `levels`, and which that is.
    fn most_urgent_victim(&self, thief: u32, levels: u64) -> Option<(&Worker, Priority)> {
        let mut best = None;
        let mut wanted = levels;
        for (number, state) in self.records() {
            if number != thief
                && let Some(shown) = Priority::most_urgent_in(state.waiting() & wanted)
            {
                best = Some((number, shown));
                wanted = shown.bit().wrapping_sub(1);
            }
        }
        let (number, shown) = best?;
        Some((self.worker(number)?, shown))
    }

    /// Drops the future of a coroutine that is finished or cancelled, and gives its slot back. It is the head of its
    /// list until then.
    #[inline(never)]
    fn finish(&self, worker: &Worker, begun: Begun<'_>) {
        let (state, slot) = (worker.state(), begun.slot);
        state.current_priority.store(begun.word.priority().level() as u32, Ordering::Relaxed);
        let id = slot.state.peek().id_high() | slot.handle() as u64;
        state.current_id.store(id, Ordering::Relaxed);
        drop_future(state, slot);
        worker.lock().exited(&self.slab, slot);
        self.one_less();
    }

    #[cold]
    fn nobody_left(&self) {
        if self.parked.load(Ordering::SeqCst) != 0 {
            self.unpark_all();
        }
    }

    /// A coroutine has exited.
    #[inline(always)]
    fn one_less(&self) {
        // Sequentially consistent, as are the look at `parked` that follows and those of a worker that parks
        // unless all have exited: one of the two sees the other.
        if self.live.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.nobody_left();
        }
    }
}

/// Leaves a coroutine that has yielded to the next scheduling point.
#[cold]
fn leave<'a>(state: &WorkerState, slot: &'a Slot, id: u64, turns: &mut Turns<'a>) {
    state.current_id.store(0, Ordering::Relaxed);
    turns.leave(slot, id, true);
}

/// The head of list `level` begins.
#[inline(always)]
fn begin<'a>(locked: &Locked<'_>, slab: &'a super::slab::Slab, level: Priority) -> Begun<'a> {
    let slot = locked.begin(slab, level);
    let word = slot.state.peek();
    // Woken while it waited: this poll is what the wake asked for.
    let word = if word.is_untouched() { word } else { slot.state.begin() };
    Begun { slot, word }
}

/// Polls the future of `slot`, which is not cancelled; true if it is finished.
#[allow(unsafe_code)]
#[inline(always)]
fn poll(state: &WorkerState, slot: &Slot, id: u64) -> bool {
    state.current_id.store(id, Ordering::Relaxed);
    // SAFETY: spawn's caller vouched for the table, and the lock under which the coroutine was listed, or its inbox,
    // acquired its stores. At the head of this worker's list and begun, so this worker alone has the future; it
    // has not finished before, or it would have been dropped and its slot vacated.
    unsafe { ((*slot.vtable()).poll)(slot.data(), id) }
}

/// Whether the coroutine that was polled has woken itself; uses the note up.
#[inline(always)]
fn woke_itself(state: &WorkerState, id: u64) -> bool {
    if state.woken.load(Ordering::Relaxed) != id as u32 {
        return false;
    }
    state.woken.store(0, Ordering::Relaxed);
    true
}

/// Drops the future of `slot`, as the current coroutine.
#[allow(unsafe_code)]
#[inline(always)]
fn drop_future(state: &WorkerState, slot: &Slot) {
    // SAFETY: as for the poll; not dropped before, since that vacates the slot.
    unsafe { ((*slot.vtable()).drop)(slot.data()) };
    state.current_id.store(0, Ordering::Relaxed);
    // It may have woken itself in its destructor.
    state.woken.store(0, Ordering::Relaxed);
}

#[allow(unsafe_code)]
fn call_external(external: unsafe extern "C" fn(*mut (), u32), hooks: &Hooks, worker: &Worker) {
    // SAFETY: contract of `Hooks`: called on its worker, between polls, with no lock held.
    unsafe { external(hooks.context, worker.number()) };
}
