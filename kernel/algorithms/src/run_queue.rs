//! The virtual CPUs that wait for a hart, in the order in which they are chosen.
//!
//! The order is by priority, then by vruntime, then by arrival (decision 10). Both priority and
//! vruntime can change while a virtual CPU waits; a choice corrects the places that it finds out of
//! date.
//!
//! The virtual CPUs of a process that wait at one level form a *line*, first come, first served.
//! Only the front of a line has a place in the order, and the next one gets a place when the front
//! leaves. If each one had a place, every slice of the process would put all of these places out of
//! date, and with hundreds of threads no choice could correct them all: then some are passed over
//! for ever.
//!
//! A place does not contain the slices that other virtual CPUs of the process have now. Most of
//! such a slice is refunded if its virtual CPU yields at once, and one that had been placed behind
//! all of it would be passed over until the process has used it up. A choice adds them: a process
//! that runs on another hart comes after one that runs nowhere.

mod line;

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};

use cops_abi::Priority;
use cops_abi::page::MAX_CPUS;
use cops_fallible::Map;
pub use line::{Ends, Place};

use crate::compensation::Compensation;
use crate::levels::{LevelCounts, each};
use crate::priority::Rank;
use crate::slice::{self, Slice};
use crate::vruntime::{MinVruntimes, Vruntime};

/// What the queue asks a virtual CPU.
pub trait Member: Sized {
    /// The most urgent level of what it could run, at this moment.
    fn urgency(&self) -> Priority;

    /// Whether another hart can make it more urgent without knowing whether it is in the queue.
    fn may_rise(&self) -> bool;

    /// Whether it is in the middle of something less urgent than `priority`, and can run nothing of
    /// that level before it has ended that.
    fn must_end_less_urgent(&self, priority: Priority) -> bool;

    /// The level with which it was last made runnable.
    fn priority(&self) -> Priority;

    /// Sets that level.
    fn set_priority(&self, priority: Priority);

    /// What its process has been charged.
    fn vruntime(&self) -> &Vruntime;

    /// The factor for the running time of its process. At least 1.
    fn divisor(&self) -> u32;

    /// The lines of its process, always at the same address.
    fn lines(&self) -> &Lines;

    /// Calls `act` with its record, which nothing but the queue uses.
    fn with_place<R>(&self, act: impl FnOnce(&mut Place<Self>) -> R) -> R;

    /// Calls `act` with the ends of the lines of its process, which nothing but the queue uses.
    fn with_ends<R>(&self, act: impl FnOnce(&mut Ends<Self>) -> R) -> R;
}

/// The lines of a process: at which levels it has virtual CPUs in the queue, and how many have been
/// handed over. Changed by the queue only.
#[derive(Debug, Default)]
pub struct Lines {
    levels: AtomicU64,
    handed_over: AtomicU32,
}

impl Lines {
    /// A process without virtual CPUs in the queue.
    #[must_use]
    pub const fn new() -> Self {
        Self { levels: AtomicU64::new(0), handed_over: AtomicU32::new(0) }
    }

    /// Whether a virtual CPU of the process waits at a level less urgent than `priority`; one that
    /// has been handed over may. By a hart that has seen something of that priority, before a
    /// sequentially consistent fence: a virtual CPU that is just being inserted or handed over is
    /// found here, or its insertion finds the same.
    pub fn any_less_urgent_than(&self, priority: Priority) -> bool {
        self.levels.load(Relaxed) & !(priority.bit() | (priority.bit() - 1)) != 0
            || self.have_handed_over()
    }

    /// Whether any virtual CPU of the process waits, or has been handed over.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.levels.load(Relaxed) | u64::from(self.handed_over.load(Relaxed)) != 0
    }

    /// Whether one has been handed over and not been taken.
    pub fn have_handed_over(&self) -> bool {
        self.handed_over.load(Relaxed) != 0
    }

    /// One that was [handed over](Queue::hand_over) has been taken. Called under the queue's lock.
    pub fn end_hand_over(&self) {
        self.handed_over.store(self.handed_over.load(Relaxed).saturating_sub(1), Relaxed);
    }

    /// One more stands in the line of this level.
    fn join(&self, priority: Priority) {
        self.levels.store(self.levels.load(Relaxed) | priority.bit(), Relaxed);
    }

    /// The line of this level has ended.
    fn end(&self, priority: Priority) {
        self.levels.store(self.levels.load(Relaxed) & !priority.bit(), Relaxed);
    }
}

/// The level of a virtual CPU in the queue, and what its process has been charged, without open
/// slices: what others compare themselves with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The level.
    pub priority: Priority,
    /// The charge.
    pub vruntime: i64,
}

/// The place of the front of a line. The order is that of the fields; the vruntime is that of the
/// process, without open slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Front {
    rank: Rank,
    vruntime: i64,
    number: u64,
}

impl Front {
    /// Before all others.
    const LEAST: Self = Self::first_of(Priority::MOST_URGENT);

    /// Before all others of this level.
    const fn first_of(priority: Priority) -> Self {
        Self { rank: Rank(priority), vruntime: i64::MIN, number: 0 }
    }

    /// The place of `cpu`, which has this one, according to the current values.
    fn now<C: Member>(self, cpu: &C) -> Self {
        Self {
            rank: Rank(cpu.urgency()).max(self.rank),
            vruntime: cpu.vruntime().without_open_slices().max(self.vruntime),
            ..self
        }
    }

    /// Where it stands in a choice: with the open slices of its process.
    fn with_open_slices<C: Member>(self, cpu: &C) -> Self {
        Self { vruntime: self.vruntime.saturating_add(cpu.vruntime().open_slices()), ..self }
    }
}

/// Places that one choice looks at; one that gets another level counts twice. A choice corrects
/// those that are out of date, each by a removal and an insertion, which take some 850
/// instructions, or 3,000 with thousands of processes, and two of each for another level. The
/// choice itself takes as much as two: together fewer than 40,000 with the lock held, and with
/// interrupts enabled.
const LOOKS_MAX: usize = 10;

/// Virtual CPUs of a process that move together at most.
pub const RELOCATED_MAX: usize = 2 * MAX_CPUS;

/// Virtual CPUs behind the front of a line at which a choice looks: the other workers of a process.
const LOOKS_IN_LINE_MAX: usize = MAX_CPUS - 1;

/// The waiting virtual CPUs, and what the next choice depends on.
pub struct Queue<C> {
    /// The fronts of the lines, each with its line.
    fronts: Map<Front, Arc<C>>,
    /// How many virtual CPUs wait.
    length: usize,
    /// The levels of the waiting virtual CPUs.
    counts: LevelCounts,
    minimums: MinVruntimes,
    next_number: u64,
    compensation: Compensation,
    /// The last choice passed over the front of a line ([`Self::ready_in_line`]).
    passes_over: bool,
    /// What virtual CPUs have used since a front had its turn that had been passed over.
    passed_ticks: u64,
}

impl<C: Member> Default for Queue<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Member> Queue<C> {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            fronts: Map::new(),
            length: 0,
            counts: LevelCounts::new(),
            minimums: MinVruntimes::new(),
            next_number: 0,
            compensation: Compensation::new(),
            passes_over: false,
            passed_ticks: 0,
        }
    }

    /// A bit for each level with a virtual CPU.
    pub fn levels(&self) -> u64 {
        self.counts.levels()
    }

    /// The most urgent level with a virtual CPU.
    pub fn most_urgent(&self) -> Option<Priority> {
        Priority::most_urgent_in(self.levels())
    }

    /// Whether no virtual CPU waits.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The first virtual CPU, by a place that may be out of date.
    pub fn first(&self) -> Option<Position> {
        let Front { rank, vruntime, .. } = *self.fronts.first()?.0;
        Some(Position { priority: rank.0, vruntime })
    }

    /// How many virtual CPUs are at least as urgent as `priority`; stops counting at `limit`.
    pub fn count_as_urgent(&self, priority: Priority, limit: usize) -> usize {
        let mut count = 0;
        for level in each(self.levels() & (priority.bit() | (priority.bit() - 1))) {
            count += self.counts.of(Priority::saturating(level as u32)) as usize;
            if count >= limit {
                return limit;
            }
        }
        count
    }

    /// Inserts a virtual CPU with the level with which it was made runnable, or its urgency now if
    /// that is more urgent. A process that has been absent for a while is credited one slice at
    /// most; debts remain. `slice_ticks`: the length of a whole slice.
    pub fn insert(&mut self, cpu: Arc<C>, slice_ticks: u64) -> Position {
        if !cpu.may_rise() {
            return self.place(cpu, slice_ticks);
        }
        let position = self.place(cpu.clone(), slice_ticks);
        self.catch_up(&cpu, slice_ticks).unwrap_or(position)
    }

    /// Raises `cpu`, which has just got a place, to what has become more urgent since its level was
    /// determined, on a hart that did not find it in the queue yet
    /// ([`Lines::any_less_urgent_than`]). Returns its position if it was raised.
    fn catch_up(&mut self, cpu: &C, slice_ticks: u64) -> Option<Position> {
        let mut position = None;
        loop {
            fence(SeqCst);
            let urgency = cpu.urgency();
            // Compared here first: most of the time nothing has changed.
            if !urgency.is_more_urgent_than(cpu.priority()) {
                return position;
            }
            let Some(raised) = self.raise(cpu, urgency, slice_ticks) else { return position };
            position = Some(raised);
        }
    }

    /// Begins a slice of `cpu`, which is not in the queue, as if it had been inserted and chosen
    /// just now; `None` if others wait, which may come first. The hart that gets it takes it later:
    /// until then others find it by [`Lines`], and the caller raises it.
    ///
    /// `slice_ticks`: the length of a whole slice.
    pub fn hand_over(&mut self, cpu: &C, slice_ticks: u64) -> Option<Slice> {
        if !self.is_empty() {
            return None;
        }
        let lines = cpu.lines();
        lines.handed_over.store(lines.handed_over.load(Relaxed) + 1, Relaxed);
        if cpu.may_rise() {
            // As in `insert`.
            fence(SeqCst);
            let urgency = cpu.urgency();
            if urgency.is_more_urgent_than(cpu.priority()) {
                cpu.set_priority(urgency);
            }
        }
        let priority = cpu.priority();
        let vruntime = self.minimums.admit(cpu.vruntime(), priority, slice_ticks as i64);
        self.minimums.choose(priority, vruntime);
        self.passes_over = false;
        let slice = Slice::new(slice_ticks, cpu.divisor(), false);
        cpu.vruntime().begin(&slice);
        Some(slice)
    }

    /// Inserts a virtual CPU with the level that it has.
    fn place(&mut self, cpu: Arc<C>, slice_ticks: u64) -> Position {
        let priority = cpu.priority();
        let vruntime = self.minimums.admit(cpu.vruntime(), priority, slice_ticks as i64);
        self.next_number += 1;
        let (rank, number) = (Rank(priority), self.next_number);
        let last = cpu.with_ends(|ends| ends.set(rank, Arc::downgrade(&cpu)));
        self.counts.add(priority);
        self.length += 1;
        cpu.lines().join(priority);
        match last.upgrade() {
            Some(before) => {
                cpu.with_place(|place| place.begin_behind(rank, number, last));
                before.with_place(|place| place.set_next(Some(cpu)));
            }
            None => self.put(Front { rank, vruntime, number }, cpu),
        }
        Position { priority, vruntime }
    }

    /// `cpu` becomes the front of its line, at this place.
    fn put(&mut self, front: Front, cpu: Arc<C>) {
        // A virtual CPU is in the queue at most once, so it has its node.
        let Some(node) = cpu.with_place(|place| place.begin_front(front)) else { return };
        self.fronts.insert_with(node, front, cpu);
    }

    /// Takes out the front of a line. The next of its line is the front now.
    fn remove_front(&mut self, front: Front) -> Option<Arc<C>> {
        let (cpu, node) = self.fronts.take(&front)?;
        self.note_removal(front.rank);
        match cpu.with_place(|place| place.end_front(node)) {
            Some(next) => self.advance(front.rank, next),
            None => {
                cpu.lines().end(front.rank.0);
                cpu.with_ends(|ends| ends.set(front.rank, Weak::new()));
            }
        }
        Some(cpu)
    }

    /// Takes `cpu` out, if it is in the queue.
    fn remove(&mut self, cpu: &C) -> Option<Arc<C>> {
        if let Some(front) = cpu.with_place(|place| place.front()) {
            return self.remove_front(front);
        }
        let (rank, previous, next) = cpu.with_place(Place::end_behind)?;
        self.note_removal(rank);
        // It stands in the line, so it exists.
        let before = previous.upgrade()?;
        match &next {
            Some(next) => next.with_place(|place| place.set_previous(previous)),
            None => drop(cpu.with_ends(|ends| ends.set(rank, previous))),
        }
        before.with_place(|place| place.set_next(next))
    }

    fn note_removal(&mut self, rank: Rank) {
        self.counts.remove(rank.0);
        self.length -= 1;
    }

    /// The front of this line has left, and `next` is the next one.
    fn advance(&mut self, rank: Rank, next: Arc<C>) {
        let Some((_, number)) = next.with_place(|place| place.rank_and_number()) else { return };
        let vruntime = next.vruntime().without_open_slices();
        self.put(Front { rank, vruntime, number }, next);
    }

    /// Takes `cpu` out of the queue, if it is there.
    pub fn withdraw(&mut self, cpu: &C) -> Option<Arc<C>> {
        self.remove(cpu)
    }

    /// Moves `cpu` forward if it is in the queue and less urgent than `priority`. Returns its new
    /// position if so. `slice_ticks`: as for [`insert`](Self::insert).
    pub fn raise(&mut self, cpu: &C, priority: Priority, slice_ticks: u64) -> Option<Position> {
        let (rank, _) = cpu.with_place(|place| place.rank_and_number())?;
        if !priority.is_more_urgent_than(rank.0) {
            return None;
        }
        let cpu = self.remove(cpu)?;
        cpu.set_priority(priority);
        Some(self.place(cpu, slice_ticks))
    }

    /// As [`raise`](Self::raise), for several of one process: moves forward those of `cpus` that
    /// are in the queue and less urgent than `priority`. They keep their order of arrival. Returns
    /// how many they are and the position of the last one.
    ///
    /// One after the other, each front of a line would give its place to the next one, which is
    /// raised next, and the order among them would be that of `cpus`. That order decides which
    /// worker continues if all must end a less urgent poll (`ready_in_line`).
    pub fn raise_all<const N: usize>(
        &mut self,
        cpus: &[Option<Arc<C>>; N],
        priority: Priority,
        slice_ticks: u64,
    ) -> Option<(usize, Position)> {
        const { assert!(N <= RELOCATED_MAX) };
        // Those to be raised, by their arrival.
        let mut raised = [(0, None); N];
        let mut count = 0;
        for cpu in cpus.iter().flatten() {
            let place = cpu.with_place(|place| place.rank_and_number());
            if let Some((rank, number)) = place
                && priority.is_more_urgent_than(rank.0)
            {
                raised[count] = (number, Some(cpu));
                count += 1;
            }
        }
        raised[..count].sort_unstable_by_key(|&(number, _)| number);
        let raised = raised.map(|(_, cpu)| cpu);
        let ranks = [Rank(priority); N];
        let position = self.relocate(&raised[..count], &ranks[..count], slice_ticks)?;
        Some((count, position))
    }

    /// Moves these virtual CPUs, in the order of their arrival, each to its new level. They keep
    /// their order. Returns the position of the last one.
    fn relocate(
        &mut self,
        cpus: &[Option<&Arc<C>>],
        ranks: &[Rank],
        slice_ticks: u64,
    ) -> Option<Position> {
        // The last one leaves first: otherwise each would become the front, only to leave.
        let mut taken = [const { None }; RELOCATED_MAX];
        for (place, cpu) in taken[..cpus.len()].iter_mut().zip(cpus).rev() {
            *place = cpu.and_then(|cpu| self.remove(cpu));
        }
        let mut last = None;
        for (cpu, rank) in taken.into_iter().zip(ranks) {
            let Some(cpu) = cpu else { continue };
            cpu.set_priority(rank.0);
            last = Some(self.place(cpu, slice_ticks));
        }
        last
    }

    /// Takes the next virtual CPU out of the queue, and begins its slice. `share`: that of the less
    /// urgent, per mille. `slice_ticks`: the length of a whole slice. `harts`: how many choose.
    pub fn choose(
        &mut self,
        share: u32,
        slice_ticks: u64,
        harts: usize,
    ) -> Option<(Arc<C>, Slice)> {
        let (front, granted) = match self.compensated(share, slice_ticks, harts) {
            Some(front) => (front, true),
            None => (self.corrected_first(slice_ticks)?, false),
        };
        let passing =
            if granted || self.length == 1 { None } else { self.ready_in_line(front, slice_ticks) };
        self.passes_over = passing.is_some();
        if !granted && self.passed_ticks >= slice_ticks {
            self.passed_ticks = 0;
        }
        let cpu = match passing {
            Some(cpu) => self.remove(&cpu)?,
            None => self.remove_front(front)?,
        };
        let priority = front.rank.0;
        if !granted {
            self.minimums.choose(priority, front.vruntime);
        }
        let peers = if granted { 1 } else { u64::from(self.counts.of(priority)) + 1 };
        let ticks = slice::ticks_among(slice_ticks, peers);
        let slice = Slice::new(ticks, cpu.divisor(), granted);
        cpu.vruntime().begin(&slice);
        Some((cpu, slice))
    }

    /// The first one according to the current values: others of its process may have run since it
    /// was queued, or run now, or may have taken what made it urgent.
    ///
    /// If more places are out of date than it may look at, those at which it has not looked have
    /// the least places then, so the next choice looks at them first: none is passed over for ever.
    /// Until all are corrected, one is chosen that was more urgent when it was queued than what
    /// waits behind it, and may not be now.
    fn corrected_first(&mut self, slice_ticks: u64) -> Option<Front> {
        if self.length == 1 {
            // Whatever its values are now: there is none to compare it with.
            return Some(*self.fronts.first()?.0);
        }
        // The first one of those with places that are right now, with and without open slices.
        let mut best: Option<(Front, Front)> = None;
        let mut from = Front::LEAST;
        let mut looks = 0;
        while looks < LOOKS_MAX {
            looks += 1;
            let Some((front, cpu)) = self.front_at_or_after(from) else { break };
            if best.is_some_and(|(best, _)| best < front) {
                return best.map(|(_, place)| place);
            }
            let now = front.now(&**cpu);
            if now == front {
                let with_open = front.with_open_slices(&**cpu);
                if best.is_none_or(|(best, _)| with_open < best) {
                    best = Some((with_open, front));
                }
                from = Front { number: front.number + 1, ..front };
            } else if now.rank == front.rank {
                let (cpu, node) = self.fronts.take(&front)?;
                cpu.with_place(|place| place.move_front(now));
                self.fronts.insert_with(node, now, cpu);
            } else {
                looks += self.lower_line(front, now.rank, LOOKS_MAX - looks, slice_ticks);
            }
        }
        // Those that have been corrected follow those that have not been looked at.
        let next = self.front_at_or_after(from);
        let next = next.map(|(front, cpu)| (front.now(&**cpu).with_open_slices(&**cpu), front));
        best.into_iter().chain(next).min().map(|(_, place)| place)
    }

    /// The virtual CPU of `front` is only of level `rank` now. Moves it there, and those behind it
    /// that have lost their urgency too, each to its own level, as long as there are `looks` left.
    /// Returns how many looks this was: two for each but the first, which has been looked at.
    ///
    /// What made a line urgent is over for all workers of a process at once. One after the other,
    /// each of them would become the front before it leaves.
    fn lower_line(&mut self, front: Front, rank: Rank, looks: usize, slice_ticks: u64) -> usize {
        let mut ranks = [rank; LOOKS_IN_LINE_MAX + 1];
        let mut cpus = [const { None }; LOOKS_IN_LINE_MAX + 1];
        let mut count = 1;
        cpus[0] = self.fronts.get(&front).cloned();
        let mut behind = next_in_line(cpus[0].as_ref());
        while count < cpus.len() && 2 * count < looks {
            let Some(cpu) = behind else { break };
            let now = Rank(cpu.urgency());
            if now <= front.rank {
                break;
            }
            behind = next_in_line(Some(&cpu));
            (ranks[count], cpus[count]) = (now, Some(cpu));
            count += 1;
        }
        let moved = cpus.each_ref().map(Option::as_ref);
        self.relocate(&moved[..count], &ranks[..count], slice_ticks);
        for cpu in cpus.iter().flatten().filter(|cpu| cpu.may_rise()) {
            self.catch_up(cpu, slice_ticks);
        }
        2 * count - 1
    }

    /// The first virtual CPU in this front's line that can run what makes the line urgent; if there
    /// is none, the last one. `None`: that is the front itself.
    ///
    /// A worker that was preempted within a poll ends that first, also if the poll is less urgent
    /// than what waits in its process: an inversion as long as a poll. If all of them must, the one
    /// that was preempted most recently continues: in the order of arrival, each preemption would
    /// let the next one begin with the rest of its own poll. After a slice of that the front gets
    /// its turn: a worker that is preferred may wait for it within an urgent poll that does not
    /// end.
    fn ready_in_line(&self, front: Front, slice_ticks: u64) -> Option<Arc<C>> {
        let Front { rank, .. } = front;
        let must_wait = |cpu: &Arc<C>| cpu.must_end_less_urgent(rank.0);
        let mut last = None;
        if self.passed_ticks >= slice_ticks {
            return last;
        }
        let mut behind = next_in_line(self.fronts.get(&front).filter(|cpu| must_wait(cpu)));
        for _ in 0..LOOKS_IN_LINE_MAX {
            let Some(cpu) = behind else { break };
            behind = next_in_line(Some(&cpu).filter(|cpu| must_wait(cpu)));
            last = Some(cpu);
        }
        last
    }

    /// The first front at or after this place, and its virtual CPU.
    fn front_at_or_after(&self, place: Front) -> Option<(Front, &Arc<C>)> {
        let (&front, cpu) = self.fronts.at_or_after(&place)?;
        Some((front, cpu))
    }

    /// If the less urgent are due for a slice: the first of the level that gets it.
    fn compensated(&mut self, share: u32, slice_ticks: u64, harts: usize) -> Option<Front> {
        let priority = self.compensation.next(share, slice_ticks, harts, self.levels())?;
        Some(self.front_at_or_after(Front::first_of(priority))?.0)
    }

    /// A virtual CPU has used `ticks` of its slice.
    pub fn use_ticks(&mut self, ticks: u64) {
        if self.passes_over {
            self.passed_ticks = self.passed_ticks.saturating_add(ticks);
        }
    }

    /// A virtual CPU has used `ticks` of a slice that was not granted while others waited: the less
    /// urgent of them are compensated for that.
    pub fn pass_over(&mut self, ticks: u64) {
        self.compensation.pass_over(ticks);
    }

    /// Gives what has run for `slice` at `priority`, of a process that was charged `vruntime`, a
    /// slice of `slice_ticks`, which `slice` becomes, if no virtual CPU waits that is as urgent.
    /// Returns whether it did.
    pub fn renew(
        &mut self,
        priority: Priority,
        vruntime: &Vruntime,
        slice: &mut Slice,
        now_ticks: u64,
        slice_ticks: u64,
    ) -> bool {
        if self.most_urgent().is_some_and(|first| !priority.is_more_urgent_than(first)) {
            return false;
        }
        slice.pause(now_ticks);
        vruntime.end(slice);
        *slice = Slice::new(slice_ticks, slice.divisor(), false);
        vruntime.begin(slice);
        self.minimums.choose(priority, vruntime.now() - slice.whole_vruntime());
        true
    }
}

/// The one behind `cpu` in its line.
fn next_in_line<C: Member>(cpu: Option<&Arc<C>>) -> Option<Arc<C>> {
    cpu?.with_place(|place| place.next())
}

#[cfg(test)]
#[path = "run_queue_tests.rs"]
mod tests;
