//! The virtual CPUs that wait for a hart, in the order in which they are chosen.
//!
//! The order is by priority, then by vruntime, then by arrival (decision 10). Both priority and
//! vruntime can change while a virtual CPU waits; a choice corrects the places that it finds out of
//! date.
//!
//! A place does not contain the slices that other virtual CPUs of the process have now. Most of
//! such a slice is refunded if its virtual CPU yields at once, and one that had been placed behind
//! all of it would be passed over until the process has used it up. A choice adds them: a process
//! that runs on another hart comes after one that runs nowhere.

use alloc::sync::Arc;

use cops_abi::Priority;
use cops_algorithms::compensation::Compensation;
use cops_algorithms::levels::LevelCounts;
use cops_algorithms::priority::Rank;
use cops_algorithms::slice::{self, Slice};
use cops_algorithms::vruntime::MinVruntimes;
use cops_fallible::Map;

use crate::sched::account::Account;
use crate::sched::entity::{Client, Place};
use crate::sched::timer;

/// The order of the queue, which is that of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::sched) struct Key {
    rank: Rank,
    pub(super) vruntime: i64,
    number: u64,
}

impl Key {
    /// Before all others.
    const LEAST: Self = Self { rank: Rank(Priority::MOST_URGENT), vruntime: i64::MIN, number: 0 };

    /// The place of `cpu`, which has this one, according to the current values.
    fn now<C: Client>(self, cpu: &C) -> Self {
        Self {
            rank: Rank(cpu.urgency()).max(self.rank),
            vruntime: cpu.account().vruntime.without_open_slices().max(self.vruntime),
            ..self
        }
    }

    pub(super) fn priority(&self) -> Priority {
        self.rank.0
    }
}

/// Places that one choice corrects at most, each by a removal and an insertion of some 850
/// instructions, or 3,000 with thousands of threads: together with the rest of the choice fewer
/// than 40,000 with the lock held, and with interrupts enabled. With many virtual CPUs of a process
/// that has just run, all of their places are out of date. Those that one choice does not correct
/// the next one does.
const CORRECTIONS_MAX: usize = 12;

/// The waiting virtual CPUs, and what the next choice depends on.
pub(super) struct Queue<C> {
    waiting: Map<Key, Arc<C>>,
    /// The levels of the waiting virtual CPUs.
    counts: LevelCounts,
    minimums: MinVruntimes,
    next_number: u64,
    compensation: Compensation,
}

impl<C: Client> Queue<C> {
    pub(super) const fn new() -> Self {
        Self {
            waiting: Map::new(),
            counts: LevelCounts::new(),
            minimums: MinVruntimes::new(),
            next_number: 0,
            compensation: Compensation::new(),
        }
    }

    /// A bit for each level with a virtual CPU.
    pub(super) fn levels(&self) -> u64 {
        self.counts.levels()
    }

    /// The most urgent level with a virtual CPU.
    pub(super) fn most_urgent(&self) -> Option<Priority> {
        Priority::most_urgent_in(self.levels())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The place of the first virtual CPU, which may be out of date.
    pub(super) fn first(&self) -> Option<Key> {
        self.waiting.first().map(|(&key, _)| key)
    }

    /// How many virtual CPUs are at least as urgent as `priority`; stops counting at `limit`.
    pub(super) fn count_as_urgent(&self, priority: Priority, limit: usize) -> usize {
        let keys = self.waiting.iter().map(|(key, _)| key);
        keys.take_while(|key| !priority.is_more_urgent_than(key.priority())).take(limit).count()
    }

    /// The place for a virtual CPU with this account at `priority`. A process that has been absent
    /// for a while is credited one slice at most; debts remain.
    fn place(&mut self, account: &Account, priority: Priority) -> Key {
        let credit = timer::slice_ticks() as i64;
        let vruntime = self.minimums.admit(&account.vruntime, priority, credit);
        self.next_number += 1;
        Key { rank: Rank(priority), vruntime, number: self.next_number }
    }

    /// Inserts a virtual CPU with the priority of its entity. Returns its place.
    pub(super) fn insert(&mut self, cpu: Arc<C>) -> Key {
        let key = self.place(cpu.account(), cpu.entity().priority());
        self.insert_at(key, cpu);
        key
    }

    fn insert_at(&mut self, key: Key, cpu: Arc<C>) {
        let mut place = cpu.entity().queued.lock();
        place.key = Some(key);
        // A virtual CPU is in the queue at most once, so it has its node.
        let Some(node) = place.node.take() else { return };
        drop(place);
        self.counts.add(key.priority());
        self.waiting.insert_with(node, key, cpu);
    }

    fn remove(&mut self, key: Key) -> Option<Arc<C>> {
        let (cpu, node) = self.waiting.take(&key)?;
        *cpu.entity().queued.lock() = Place { key: None, node: Some(node) };
        self.counts.remove(key.priority());
        Some(cpu)
    }

    /// Takes `cpu` out of the queue, if it is there.
    pub(super) fn withdraw(&mut self, cpu: &C) -> Option<Arc<C>> {
        let key = cpu.entity().queued.lock().key?;
        self.remove(key)
    }

    /// Moves `cpu` forward if it is in the queue and less urgent than `priority`. Returns its new
    /// place if so.
    pub(super) fn raise(&mut self, cpu: &C, priority: Priority) -> Option<Key> {
        let key = cpu.entity().queued.lock().key?;
        if !priority.is_more_urgent_than(key.priority()) {
            return None;
        }
        let cpu = self.remove(key)?;
        cpu.entity().set_priority(priority);
        Some(self.insert(cpu))
    }

    /// Takes the next virtual CPU out of the queue, and begins its slice. `share`: that of the less
    /// urgent.
    pub(super) fn choose(&mut self, share: u32) -> Option<(Arc<C>, Slice)> {
        let (key, granted) = match self.compensated(share) {
            Some(key) => (key, true),
            None => (self.corrected_first()?, false),
        };
        let cpu = self.remove(key)?;
        if !granted {
            self.minimums.choose(key.priority(), key.vruntime);
        }
        let peers = if granted { 1 } else { u64::from(self.counts.of(key.priority())) + 1 };
        let ticks = slice::ticks_among(timer::slice_ticks(), peers);
        let slice = Slice::new(ticks, cpu.account().divisor(), granted);
        cpu.account().vruntime.begin(&slice);
        Some((cpu, slice))
    }

    /// The first one according to the current values: others of its process may have run since it
    /// was queued, or run now, or may have taken what made it urgent.
    fn corrected_first(&mut self) -> Option<Key> {
        // The first one of those with places that were right, with and without open slices.
        let mut best: Option<(Key, Key)> = None;
        // The first one of those with corrected places.
        let mut corrected: Option<Key> = None;
        let mut from = Key::LEAST;
        for _ in 0..CORRECTIONS_MAX {
            let Some((&key, cpu)) = self.waiting.at_or_after(&from) else { break };
            if best.is_some_and(|(best, _)| best < key) {
                break;
            }
            let now = key.now(&**cpu);
            if now == key || self.waiting.len() == 1 {
                let open = cpu.account().vruntime.open_slices();
                let with_open = Key { vruntime: key.vruntime.saturating_add(open), ..key };
                if best.is_none_or(|(best, _)| with_open < best) {
                    best = Some((with_open, key));
                }
                from = Key { number: key.number + 1, ..key };
                continue;
            }
            let cpu = self.remove(key)?;
            cpu.entity().set_priority(now.priority());
            let place = if now.rank == key.rank {
                self.insert_at(now, cpu);
                now
            } else {
                self.insert(cpu)
            };
            corrected = Some(corrected.map_or(place, |other| other.min(place)));
        }
        if let Some((_, key)) = best {
            return Some(key);
        }
        // The place of the first one may be out of date, too. It must not be chosen for that reason
        // each time: it can be the one that has just run, and then the others would never run.
        let (&key, cpu) = self.waiting.first()?;
        let now = key.now(&**cpu);
        Some(corrected.filter(|&corrected| corrected < now).unwrap_or(key))
    }

    /// If the less urgent are due for a slice: the first of the level that gets it.
    fn compensated(&mut self, share: u32) -> Option<Key> {
        let priority = self.compensation.next(share, timer::slice_ticks(), self.levels())?;
        let first = Key { rank: Rank(priority), vruntime: i64::MIN, number: 0 };
        self.waiting.at_or_after(&first).map(|(&key, _)| key)
    }

    /// A virtual CPU has used `ticks` of a slice that was not granted while others waited: the less
    /// urgent of them are compensated for that.
    pub(super) fn pass_over(&mut self, ticks: u64) {
        self.compensation.pass_over(ticks);
    }

    /// Gives `account` another slice at `priority`, which `slice` becomes, if no virtual CPU waits
    /// that is as urgent. Returns whether it did.
    pub(super) fn renew(
        &mut self,
        priority: Priority,
        account: &Account,
        slice: &mut Slice,
    ) -> bool {
        if self.most_urgent().is_some_and(|first| !priority.is_more_urgent_than(first)) {
            return false;
        }
        slice.pause(crate::arch::now_ticks());
        account.vruntime.end(slice);
        *slice = Slice::new(timer::slice_ticks(), account.divisor(), false);
        account.vruntime.begin(slice);
        self.minimums.choose(priority, account.vruntime.now() - slice.whole_vruntime());
        true
    }
}
