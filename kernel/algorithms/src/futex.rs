//! The waiters on futexes: which there are, and in which order they are woken.
//!
//! A waiter waits on a [`Word`]. The waiters of one word are woken in the order of their
//! priorities, and in the order of arrival within one priority. A waiter that is moved to another
//! word arrives there when it is moved.
//!
//! All waiters are in one map, in the order (word, priority, arrival), so a wake is a search for
//! the first one of a word. A wake of many waiters is a [`Sweep`], which is done in portions:
//! it finds only waiters that arrived before it began, so it ends however many arrive meanwhile.
//!
//! A waiter that becomes more urgent may come before the place that a sweep has reached. So the
//! table counts such changes, and a sweep after which there was one begins again at the front.
//! That does not keep it from its end:
//! - Those that it has found are gone from the word.
//! - Of those that arrived later it visits one for each priority, at most [`PORTION_VISITS`] of
//!   them: a portion that begins with them reaches the end.
//! - If it has begun again many times in vain, it also finds those without a common bit.
//!
//! The caller has a lock for each table, and uses the table's waiters only under that lock; their
//! fields are atomic only so that they can be shared. What wakes a waiter, `W`, is the caller's
//! affair, and so is the memory for its place, which it gets back: a thread that waits often keeps
//! both.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use cops_abi::Priority;
use cops_fallible::Map;
use cops_fallible::map::Spare;

use super::priority::{AtomicPriority, Rank};

/// The state of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It is in no table.
    Idle = 0,
    /// It waits.
    Queued = 1,
    /// It was woken, and its owner has not taken notice yet.
    Woken = 2,
}

/// What a waiter waits on. The kernel has a table for the words of each process, and one for the
/// words in memory that processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Word {
    /// The number of the object that contains it; 0 for the memory of one process.
    pub object: u64,
    /// Its address, or where it is in the object.
    pub address: usize,
}

impl Word {
    /// A word of the process that has the table.
    #[must_use]
    pub const fn own(address: usize) -> Self {
        Self { object: 0, address }
    }

    /// Whether it is in memory that processes share.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.object != 0
    }
}

/// Something that waits on a futex.
#[derive(Debug)]
pub struct Waiter {
    state: AtomicU8,
    priority: AtomicPriority,
    object: AtomicU64,
    address: AtomicUsize,
    arrival: AtomicU64,
    /// It is woken only by a sweep with a common bit. After that, the bits of that sweep.
    mask: AtomicU32,
}

impl Waiter {
    /// A waiter for sweeps of `word` with a bit of `mask`.
    #[must_use]
    pub const fn new(word: Word, mask: u32) -> Self {
        Self {
            state: AtomicU8::new(State::Idle as u8),
            priority: AtomicPriority::new(Priority::DEFAULT),
            object: AtomicU64::new(word.object),
            address: AtomicUsize::new(word.address),
            arrival: AtomicU64::new(0),
            mask: AtomicU32::new(mask),
        }
    }

    /// Begins anew, for another word. Called only while it is in no table.
    pub fn reset(&self, word: Word, mask: u32) {
        self.object.store(word.object, Relaxed);
        self.address.store(word.address, Relaxed);
        self.mask.store(mask, Relaxed);
        self.set_state(State::Idle);
    }

    /// The word that it waits on. It changes only within its table, under the table's lock.
    pub fn word(&self) -> Word {
        Word { object: self.object.load(Relaxed), address: self.address.load(Relaxed) }
    }

    /// The bits with which it waits or, after a wake, those of the sweep that has woken it.
    pub fn mask(&self) -> u32 {
        self.mask.load(Relaxed)
    }

    /// Its state.
    pub fn state(&self) -> State {
        match self.state.load(Relaxed) {
            0 => State::Idle,
            1 => State::Queued,
            _ => State::Woken,
        }
    }

    fn set_state(&self, state: State) {
        self.state.store(state as u8, Relaxed);
    }

    fn key(&self) -> Key {
        (self.word(), Rank(self.priority.load()), self.arrival.load(Relaxed))
    }
}

type Key = (Word, Rank, u64);

/// Memory for a waiter in a table.
pub type Place<W> = Spare<Key, Entry<W>>;

/// A waiter in a table, and what wakes it.
#[derive(Debug)]
pub struct Entry<W> {
    waiter: Arc<Waiter>,
    wake: W,
}

/// A waiter that has been woken.
#[derive(Debug)]
pub struct Woken<W> {
    /// What wakes it.
    pub wake: W,
    /// Its place in the table.
    pub place: Place<W>,
    /// Whether it has a bit of the sweep. Others are woken only so that the sweep ends; a program
    /// must expect wakes without a reason.
    pub has_common_bit: bool,
}

/// Number of visits of a portion of a sweep.
pub const PORTION_VISITS: usize = 80;
/// A waiter that is found counts as so many visits: to wake or move it takes longer.
const FOUND_VISITS: usize = 8;
// See the module.
const _: () = assert!(PORTION_VISITS > Priority::COUNT as usize);

/// How often in succession a sweep begins again without having found a waiter with a common bit,
/// before it finds the others too.
const RESTARTS_MAX: u32 = 100;

/// A search through the waiters of one word, which may be continued later.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The first waiter that may still be visited, if none has become more urgent meanwhile.
    from: Key,
    mask: u32,
    /// Waiters that arrived later are not found.
    before: u64,
    /// The table's count when it was at the front.
    raises: u64,
    /// How often it has begun again since it found a waiter with a common bit.
    restarts: u32,
}

/// The waiters of one table; see the module.
#[derive(Debug)]
pub struct Futexes<W> {
    waiting: Map<Key, Entry<W>>,
    next_arrival: u64,
    /// How often a waiter has become more urgent.
    raises: u64,
}

impl<W> Default for Futexes<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W> Futexes<W> {
    /// No waiters.
    #[must_use]
    pub const fn new() -> Self {
        Self { waiting: Map::new(), next_arrival: 0, raises: 0 }
    }

    /// Number of waiters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether there are no waiters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds an idle waiter, of which `wake` will be returned when it is woken.
    pub fn insert(&mut self, waiter: Arc<Waiter>, place: Place<W>, priority: Priority, wake: W) {
        waiter.priority.store(priority);
        waiter.set_state(State::Queued);
        self.arrive(Entry { waiter, wake }, place);
    }

    fn arrive(&mut self, entry: Entry<W>, place: Place<W>) {
        self.next_arrival += 1;
        entry.waiter.arrival.store(self.next_arrival, Relaxed);
        // No waiter has this key, because its arrival is new.
        let _ = self.waiting.insert_with(place, entry.waiter.key(), entry);
    }

    /// The waiter is idle from now on. Returns what it was before, and its place if it had one.
    pub fn remove(&mut self, waiter: &Waiter) -> (State, Option<Place<W>>) {
        let before = waiter.state();
        let taken = match before {
            State::Queued => self.waiting.take(&waiter.key()),
            State::Idle | State::Woken => None,
        };
        waiter.set_state(State::Idle);
        (before, taken.map(|(_, place)| place))
    }

    /// Changes the priority of a waiter. It keeps its arrival.
    pub fn set_priority(&mut self, waiter: &Waiter, priority: Priority) {
        if waiter.state() != State::Queued {
            return;
        }
        if let Some((entry, place)) = self.waiting.take(&waiter.key()) {
            if priority.is_more_urgent_than(entry.waiter.priority.load()) {
                self.raises += 1;
            }
            entry.waiter.priority.store(priority);
            let _ = self.waiting.insert_with(place, entry.waiter.key(), entry);
        }
    }

    /// A search through the waiters that wait on `word` now and have a bit of `mask`.
    #[must_use]
    pub fn sweep(&self, word: Word, mask: u32) -> Sweep {
        let (from, before) = (front(word), self.next_arrival + 1);
        Sweep { from, mask, before, raises: self.raises, restarts: 0 }
    }

    /// The next waiter of a search, and whether it has a common bit. Subtracts what it has visited
    /// from `visits`: `None` if there is no waiter, or `visits` is 0.
    fn next(&self, sweep: &mut Sweep, visits: &mut usize) -> Option<(Key, bool)> {
        if sweep.raises != self.raises {
            sweep.raises = self.raises;
            sweep.from = front(sweep.from.0);
            sweep.restarts += 1;
        }
        while *visits > 0 {
            let (&key, entry) = self.waiting.at_or_after(&sweep.from)?;
            if key.0 != sweep.from.0 {
                return None;
            }
            *visits -= 1;
            let is_late = key.2 >= sweep.before;
            // All that come after a late one within its priority are late too.
            sweep.from = (key.0, key.1, if is_late { u64::MAX } else { key.2 + 1 });
            let has_common_bit = entry.waiter.mask() & sweep.mask != 0;
            if !is_late && (has_common_bit || sweep.restarts > RESTARTS_MAX) {
                *visits = visits.saturating_sub(FOUND_VISITS - 1);
                if has_common_bit {
                    sweep.restarts = 0;
                }
                return Some((key, has_common_bit));
            }
        }
        None
    }

    /// Removes the next waiter of a search, in a portion with this number of `visits` left. `None`
    /// as for an end of the search, or if `visits` is 0 then.
    pub fn wake_next(&mut self, sweep: &mut Sweep, visits: &mut usize) -> Option<Woken<W>> {
        let (key, has_common_bit) = self.next(sweep, visits)?;
        let (Entry { waiter, wake }, place) = self.waiting.take(&key)?;
        waiter.mask.store(sweep.mask, Relaxed);
        waiter.set_state(State::Woken);
        Some(Woken { wake, place, has_common_bit })
    }

    /// Moves the next waiter of a search to word `to` of the same table. Returns whether there was
    /// one, as [`wake_next`](Self::wake_next) does.
    pub fn move_next(&mut self, sweep: &mut Sweep, visits: &mut usize, to: Word) -> bool {
        let Some((key, _)) = self.next(sweep, visits) else { return false };
        let Some((entry, place)) = self.waiting.take(&key) else { return false };
        entry.waiter.object.store(to.object, Relaxed);
        entry.waiter.address.store(to.address, Relaxed);
        self.arrive(entry, place);
        true
    }
}

/// Where the waiters of a word begin.
const fn front(word: Word) -> Key {
    (word, Rank(Priority::MOST_URGENT), 0)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn level(level: u8) -> Priority {
        Priority::new(level).unwrap()
    }

    fn add(table: &mut Futexes<u64>, address: usize, mask: u32, at: u8, wake: u64) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter::new(Word::own(address), mask));
        table.insert(waiter.clone(), Place::try_new().unwrap(), level(at), wake);
        waiter
    }

    fn wake_next(table: &mut Futexes<u64>, sweep: &mut Sweep, visits: &mut usize) -> Option<u64> {
        table.wake_next(sweep, visits).map(|woken| woken.wake)
    }

    fn wake_all(table: &mut Futexes<u64>, address: usize, mask: u32) -> Vec<u64> {
        let mut sweep = table.sweep(Word::own(address), mask);
        core::iter::from_fn(|| wake_next(table, &mut sweep, &mut 1000)).collect()
    }

    #[test]
    fn the_most_urgent_is_woken_first_then_the_first_that_came() {
        let mut table = Futexes::new();
        for (at, wake) in [(32, 1), (5, 2), (32, 3), (60, 4), (5, 5)] {
            add(&mut table, 8, 1, at, wake);
        }
        add(&mut table, 4, 1, 0, 6);
        add(&mut table, 12, 1, 0, 7);
        assert_eq!(wake_all(&mut table, 8, 1), [2, 5, 1, 3, 4]);
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn a_mask_selects_and_a_woken_waiter_says_so() {
        let mut table = Futexes::new();
        let first = add(&mut table, 8, 0b01, 32, 1);
        let second = add(&mut table, 8, 0b10, 32, 2);
        assert_eq!(wake_all(&mut table, 8, 0b10), [2]);
        assert_eq!((first.state(), second.state()), (State::Queued, State::Woken));
        assert_eq!(table.remove(&second).0, State::Woken);
        assert_eq!(table.remove(&first).0, State::Queued);
        assert_eq!(table.remove(&first).0, State::Idle);
        assert!(table.is_empty());
    }

    #[test]
    fn a_sweep_leaves_those_that_come_later_and_ends() {
        let mut table = Futexes::new();
        add(&mut table, 8, 1, 32, 1);
        let mut sweep = table.sweep(Word::own(8), 1);
        add(&mut table, 8, 1, 0, 2);
        add(&mut table, 8, 1, 63, 3);
        assert_eq!(wake_next(&mut table, &mut sweep, &mut 10), Some(1));
        assert_eq!(wake_next(&mut table, &mut sweep, &mut 10), None);
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn a_search_stops_after_so_many_visits_and_continues() {
        let mut table = Futexes::new();
        for wake in 0..100 {
            add(&mut table, 8, 1 << u32::from(wake == 99), 32, wake);
        }
        let mut sweep = table.sweep(Word::own(8), 2);
        let mut portions = 0;
        let found = loop {
            portions += 1;
            let mut visits = 16;
            match wake_next(&mut table, &mut sweep, &mut visits) {
                None if visits == 0 => {}
                found => break found,
            }
        };
        assert_eq!((found, portions), (Some(99), 7));
    }

    #[test]
    fn a_wake_that_is_passed_on_has_the_bits_of_the_first_one() {
        let mut table = Futexes::new();
        let first = add(&mut table, 8, 0b110, 32, 1);
        let other = add(&mut table, 8, 0b101, 32, 2);
        add(&mut table, 8, 0b010, 32, 3);
        let mut sweep = table.sweep(Word::own(8), 0b010);
        assert_eq!(wake_next(&mut table, &mut sweep, &mut 10), Some(1));
        assert_eq!(table.remove(&first).0, State::Woken);
        assert_eq!(wake_all(&mut table, 8, first.mask()), [3]);
        assert_eq!(other.state(), State::Queued);
    }

    #[test]
    fn one_that_becomes_more_urgent_is_not_left_out() {
        let mut table = Futexes::new();
        let late = add(&mut table, 8, 1, 40, 1);
        for wake in 2..5 {
            add(&mut table, 8, 1, 6, wake);
        }
        let mut sweep = table.sweep(Word::own(8), 1);
        assert_eq!(wake_next(&mut table, &mut sweep, &mut 10), Some(2));
        table.set_priority(&late, level(6));
        assert_eq!(wake_next(&mut table, &mut sweep, &mut 10), Some(1));
        assert_eq!(wake_next(&mut table, &mut sweep, &mut 10), Some(3));
        assert_eq!(wake_next(&mut table, &mut sweep, &mut 10), Some(4));
        assert_eq!(wake_next(&mut table, &mut sweep, &mut 10), None);
    }

    #[test]
    fn one_that_becomes_more_urgent_is_moved_once() {
        let mut table = Futexes::new();
        let waiters = [1, 2, 3].map(|wake| add(&mut table, 8, 1, 40, wake));
        let mut sweep = table.sweep(Word::own(8), 1);
        for waiter in &waiters {
            assert!(table.move_next(&mut sweep, &mut 10, Word::own(8)));
            table.set_priority(waiter, level(6));
        }
        assert!(!table.move_next(&mut sweep, &mut 10, Word::own(8)));
    }

    /// Portions of a sweep until its end, with one waiter that becomes more urgent before each, and
    /// less urgent again. Returns what was woken, and the number of portions.
    fn sweep_beside_raises(table: &mut Futexes<u64>, sweep: &mut Sweep) -> (Vec<(u64, bool)>, u32) {
        let raised = add(table, 16, 1, 40, 0);
        let mut woken = Vec::new();
        for portion in 1..10_000 {
            table.set_priority(&raised, level(6));
            table.set_priority(&raised, level(40));
            let mut visits = PORTION_VISITS;
            while let Some(next) = table.wake_next(sweep, &mut visits) {
                woken.push((next.wake, next.has_common_bit));
            }
            if visits > 0 {
                return (woken, portion);
            }
        }
        panic!("the sweep does not end");
    }

    #[test]
    fn later_ones_and_raises_do_not_keep_a_sweep_from_its_end() {
        let mut table = Futexes::new();
        for wake in 0..20 {
            add(&mut table, 8, 1, 63, wake);
        }
        let mut sweep = table.sweep(Word::own(8), 1);
        for at in 0..64 {
            for _ in 0..20 {
                add(&mut table, 8, 1, at, 100);
            }
        }
        let (woken, portions) = sweep_beside_raises(&mut table, &mut sweep);
        let wakes = woken.iter().map(|woken| woken.0);
        assert!(wakes.eq(0..20) && portions <= 8, "{woken:?}, {portions} portions");
    }

    #[test]
    fn ones_without_a_common_bit_and_raises_do_not_keep_a_sweep_from_its_end() {
        let mut table = Futexes::new();
        for wake in 0..500 {
            add(&mut table, 8, if wake == 499 { 2 } else { 1 }, 32, wake);
        }
        let mut sweep = table.sweep(Word::own(8), 2);
        let (woken, portions) = sweep_beside_raises(&mut table, &mut sweep);
        let meant: Vec<_> = woken.iter().filter(|woken| woken.1).collect();
        assert_eq!(meant, [&(499, true)]);
        assert!(portions < 500, "{portions} portions");
        // Without raises, none of them is woken.
        for wake in 0..500 {
            add(&mut table, 8, if wake == 499 { 2 } else { 1 }, 32, wake);
        }
        assert_eq!(wake_all(&mut table, 8, 2), [499]);
    }

    #[test]
    fn a_waiter_that_moves_is_woken_at_its_new_address_and_can_be_removed_there() {
        let mut table = Futexes::new();
        let first = add(&mut table, 8, 1, 32, 1);
        add(&mut table, 8, 1, 32, 2);
        add(&mut table, 16, 1, 32, 3);
        let mut sweep = table.sweep(Word::own(8), u32::MAX);
        let to = Word::own(16);
        assert!(table.move_next(&mut sweep, &mut 10, to));
        assert!(table.move_next(&mut sweep, &mut 10, to));
        assert!(!table.move_next(&mut sweep, &mut 10, to));
        assert_eq!(table.remove(&first).0, State::Queued);
        assert_eq!(wake_all(&mut table, 8, 1), Vec::<u64>::new());
        assert_eq!(wake_all(&mut table, 16, 1), [3, 2]);
    }

    #[test]
    fn the_same_address_in_another_object_is_another_word() {
        let mut table = Futexes::new();
        let [one, other] = [1, 2].map(|object| Word { object, address: 8 });
        for (word, wake) in [(one, 1), (other, 2)] {
            let waiter = Arc::new(Waiter::new(word, 1));
            table.insert(waiter, Place::try_new().unwrap(), level(32), wake);
        }
        let mut sweep = table.sweep(other, 1);
        assert_eq!(wake_next(&mut table, &mut sweep, &mut 10), Some(2));
        assert_eq!(wake_next(&mut table, &mut sweep, &mut 10), None);
        let mut sweep = table.sweep(one, 1);
        assert!(table.move_next(&mut sweep, &mut 10, other));
        let mut sweep = table.sweep(other, 1);
        assert_eq!(wake_next(&mut table, &mut sweep, &mut 10), Some(1));
    }

    #[test]
    fn moving_to_the_same_address_ends() {
        let mut table = Futexes::new();
        for wake in 0..4 {
            add(&mut table, 8, 1, 32, wake);
        }
        let mut sweep = table.sweep(Word::own(8), 1);
        let to = Word::own(8);
        let moved = core::iter::from_fn(|| table.move_next(&mut sweep, &mut 10, to).then_some(()));
        assert_eq!(moved.take(100).count(), 4);
    }

    proptest! {
        // Whatever happens between the portions of a sweep: at its end, none of those that waited
        // when it began, with a common bit and without a break, waits still.
        #[test]
        fn a_sweep_leaves_none_that_it_concerns(
            before in prop::collection::vec((0..4u8, 1..4u32), 0..40),
            steps in prop::collection::vec((0..5u8, 0..60usize, 0..4u8), 0..200),
            mask in 1..4u32,
        ) {
            let mut table = Futexes::new();
            let mut waiters = Vec::new();
            for (at, bits) in before {
                waiters.push(add(&mut table, 8, bits, at, waiters.len() as u64));
            }
            let concerned: Vec<_> = waiters
                .iter()
                .filter(|waiter| waiter.mask() & mask != 0)
                .cloned()
                .collect();
            let mut sweep = table.sweep(Word::own(8), mask);
            for (what, number, at) in steps {
                match (what, waiters.get(number)) {
                    (0, _) => waiters.push(add(&mut table, 8, 3, at, waiters.len() as u64)),
                    (1, Some(waiter)) => drop(table.remove(waiter)),
                    (2 | 3, Some(waiter)) => table.set_priority(waiter, level(at)),
                    _ => drop(wake_next(&mut table, &mut sweep, &mut 9)),
                }
            }
            loop {
                let mut visits = PORTION_VISITS;
                if wake_next(&mut table, &mut sweep, &mut visits).is_none() && visits > 0 {
                    break;
                }
            }
            prop_assert!(concerned.iter().all(|waiter| waiter.state() != State::Queued));
        }

        // Against a list: waits, wakes of some, moves, removals and changes of priority.
        #[test]
        fn it_does_what_a_sorted_list_does(
            steps in prop::collection::vec((0..6u8, 0..4usize, 0..3u8, 0..4usize), 0..200),
        ) {
            let mut table = Futexes::new();
            // Address, level, arrival, wake.
            let mut model: Vec<(usize, u8, usize, u64)> = Vec::new();
            let mut waiters = Vec::new();
            for (step, (what, address, at, other)) in steps.into_iter().enumerate() {
                match what {
                    0 | 1 => {
                        waiters.push(add(&mut table, address, 1, at, waiters.len() as u64));
                        model.push((address, at, step, waiters.len() as u64 - 1));
                    }
                    2 => {
                        let mut sweep = table.sweep(Word::own(address), 1);
                        for _ in 0..other {
                            let first = model.iter().filter(|waiter| waiter.0 == address).min().copied();
                            prop_assert_eq!(
                                wake_next(&mut table, &mut sweep, &mut 1000),
                                first.map(|(.., wake)| wake)
                            );
                            model.retain(|waiter| Some(*waiter) != first);
                        }
                    }
                    3 => {
                        let mut sweep = table.sweep(Word::own(address), 1);
                        let first = model.iter_mut().filter(|waiter| waiter.0 == address).min();
                        prop_assert_eq!(
                            table.move_next(&mut sweep, &mut 1000, Word::own(other)),
                            first.is_some()
                        );
                        if let Some(first) = first {
                            (first.0, first.2) = (other, step);
                        }
                    }
                    4 => {
                        if let Some(&(.., wake)) = model.get(other) {
                            prop_assert_eq!(table.remove(&waiters[wake as usize]).0, State::Queued);
                            model.remove(other);
                        }
                    }
                    _ => {
                        if let Some(waiter) = model.get_mut(other) {
                            waiter.1 = at;
                            table.set_priority(&waiters[waiter.3 as usize], level(at));
                        }
                    }
                }
                prop_assert_eq!(table.len(), model.len());
            }
        }
    }
}
