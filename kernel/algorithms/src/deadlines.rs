//! Deadlines by level: due entries are served in order of urgency, and in order of time only within
//! a level.
//!
//! With a single queue in order of time, the most urgent deadline would wait for every entry that
//! was due before it, however many and however unimportant these are.
//!
//! An insertion, a removal and a search for a due entry take O(log n) steps, plus at most 64 steps
//! for the levels.

use cops_fallible::{Map, OutOfMemory};

/// Levels of urgency; 0 is the most urgent.
const LEVELS: usize = 64;

/// The position of an entry: level, deadline, and a number that keeps equal deadlines in the order
/// of their insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    level: u8,
    deadline: u64,
    number: u64,
}

/// Entries of `T`, each with a level and a deadline.
#[derive(Debug)]
pub struct Deadlines<T> {
    entries: Map<Key, T>,
    /// The earliest deadline of each level; `u64::MAX` if the level is empty.
    heads: [u64; LEVELS],
    /// A bit for each level with entries.
    levels: u64,
    next_number: u64,
}

impl<T> Deadlines<T> {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { entries: Map::new(), heads: [u64::MAX; LEVELS], levels: 0, next_number: 0 }
    }

    /// Adds an entry. Levels above 63 count as 63.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the entry is dropped.
    pub fn insert(&mut self, level: u8, deadline: u64, entry: T) -> Result<Key, OutOfMemory> {
        let key = self.new_key(level, deadline);
        self.entries.try_insert(key, entry)?;
        self.note(key);
        Ok(key)
    }

    /// Moves an entry to another level. Returns its new key, or `None` if the entry is no longer
    /// there.
    pub fn set_level(&mut self, key: Key, level: u8) -> Option<Key> {
        let (entry, spare) = self.entries.take(&key)?;
        self.forget(key);
        let key = self.new_key(level, key.deadline);
        // No entry has this key, because its number is new.
        let _ = self.entries.insert_with(spare, key, entry);
        self.note(key);
        Some(key)
    }

    fn new_key(&mut self, level: u8, deadline: u64) -> Key {
        self.next_number += 1;
        Key { level: level.min(LEVELS as u8 - 1), deadline, number: self.next_number }
    }

    /// Updates the head of the level of a new entry.
    fn note(&mut self, key: Key) {
        self.levels |= 1 << key.level;
        let head = &mut self.heads[usize::from(key.level)];
        *head = key.deadline.min(*head);
    }

    /// Updates the head of the level of a removed entry.
    fn forget(&mut self, key: Key) {
        if self.heads[usize::from(key.level)] == key.deadline {
            self.find_head(key.level);
        }
    }

    /// Removes an entry. `None` if it is no longer there.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.entries.remove(&key)?;
        self.forget(key);
        Some(entry)
    }

    /// The most urgent level with an entry that is due at `now`.
    pub fn due_level(&self, now: u64) -> Option<u8> {
        self.occupied().find(|&level| self.heads[usize::from(level)] <= now)
    }

    /// Removes a due entry: the earliest of the most urgent level that has one.
    pub fn pop_due(&mut self, now: u64) -> Option<T> {
        let level = self.due_level(now)?;
        let key = *self.entries.at_or_after(&first_of(level))?.0;
        let entry = self.entries.remove(&key);
        self.find_head(level);
        entry
    }

    /// The earliest deadline after `now`, counting only levels without a due entry.
    pub fn next_after(&self, now: u64) -> Option<u64> {
        self.occupied().map(|level| self.heads[usize::from(level)]).filter(|&head| head > now).min()
    }

    fn occupied(&self) -> impl Iterator<Item = u8> {
        let mut levels = self.levels;
        core::iter::from_fn(move || {
            let level = levels.trailing_zeros() as u8;
            levels &= levels.wrapping_sub(1);
            (usize::from(level) < LEVELS).then_some(level)
        })
    }

    fn find_head(&mut self, level: u8) {
        let head = self.entries.at_or_after(&first_of(level)).filter(|(key, _)| key.level == level);
        match head {
            Some((key, _)) => self.heads[usize::from(level)] = key.deadline,
            None => {
                self.heads[usize::from(level)] = u64::MAX;
                self.levels &= !(1 << level);
            }
        }
    }
}

impl<T> Default for Deadlines<T> {
    fn default() -> Self {
        Self::new()
    }
}

fn first_of(level: u8) -> Key {
    Key { level, deadline: 0, number: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn an_urgent_deadline_overtakes_earlier_ones_that_are_less_urgent() {
        let mut deadlines = Deadlines::new();
        for count in 0..4000 {
            deadlines.insert(63, 10, count).unwrap();
        }
        let key = deadlines.insert(40, 20, 9999).unwrap();
        assert!(deadlines.set_level(key, 5).is_some() && deadlines.set_level(key, 6).is_none());
        assert_eq!(deadlines.next_after(10), Some(20));
        assert_eq!(deadlines.pop_due(15), Some(0));
        assert_eq!(deadlines.pop_due(20), Some(9999));
        assert_eq!(deadlines.pop_due(20), Some(1));
        assert_eq!(deadlines.next_after(20), None);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, u64),
        Remove(usize),
        Pop(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..64u8, 0..50u64).prop_map(|(level, deadline)| Step::Insert(level, deadline)),
            1 => (0..100usize).prop_map(Step::Remove),
            2 => (0..60u64).prop_map(Step::Pop),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_does_what_a_list_does(steps in prop::collection::vec(step(), 1..200)) {
            let mut deadlines = Deadlines::new();
            let mut model: Vec<(u8, u64, usize)> = Vec::new();
            let mut keys = Vec::new();
            for step in steps {
                match step {
                    Step::Insert(level, deadline) => {
                        let id = keys.len();
                        keys.push(deadlines.insert(level, deadline, id).unwrap());
                        model.push((level, deadline, id));
                    }
                    Step::Remove(id) => {
                        let Some(&key) = keys.get(id) else { continue };
                        let expected = model.iter().position(|entry| entry.2 == id).map(|at| model.remove(at).2);
                        prop_assert_eq!(deadlines.remove(key), expected);
                    }
                    Step::Pop(now) => {
                        let due = model.iter().filter(|entry| entry.1 <= now).min().copied();
                        prop_assert_eq!(deadlines.due_level(now), due.map(|entry| entry.0));
                        prop_assert_eq!(deadlines.pop_due(now), due.map(|entry| entry.2));
                        model.retain(|entry| Some(*entry) != due);
                        // The earliest deadline of each level, of those that are not due.
                        let heads = (0..64).filter_map(|level| {
                            model.iter().filter(|entry| entry.0 == level).map(|entry| entry.1).min()
                        });
                        prop_assert_eq!(deadlines.next_after(now), heads.filter(|&head| head > now).min());
                    }
                }
            }
        }
    }
}
