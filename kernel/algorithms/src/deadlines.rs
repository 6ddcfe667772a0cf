//! Deadlines by level: due entries are served in order of urgency. Within a level their owners take
//! turns, and the entries of one owner are served in order of time.
//!
//! With a single queue in order of time, the most urgent deadline would wait for every entry that
//! was due before it, however many and however unimportant these are. Without turns, a deadline
//! would wait for the thousands that another owner of its level has at the same moment.
//!
//! An owner's turn comes at its earliest deadline, or, if that is in the past, after the turns that
//! came before the owner was last served; but no owner is served twice in a row while another one
//! is due.
//!
//! An insertion, a removal and a search for a due entry take O(log n) steps, plus at most 64 steps
//! for the levels.

use cops_abi::Priority;
use cops_fallible::{Map, OutOfMemory};

use crate::levels::{self, LEVELS};

/// The position of an entry: level, owner, deadline, and a number that keeps equal deadlines in the
/// order of their insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    level: u8,
    owner: u32,
    deadline: u64,
    number: u64,
}

impl Key {
    /// When the entry is due.
    #[must_use]
    pub fn deadline(&self) -> u64 {
        self.deadline
    }
}

/// The position of an owner with entries at a level. In the order of its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    level: u8,
    /// When it is due: the owner's earliest deadline, or the last time it was served if that is
    /// later.
    due: u64,
    /// Orders equal times by when they were set.
    number: u64,
    owner: u32,
}

/// An owner with entries at a level.
#[derive(Debug)]
struct Owner {
    turn: Turn,
    /// When it was last served.
    served: u64,
}

/// Entries of `T`, each with a level, an owner and a deadline.
#[derive(Debug)]
pub struct Deadlines<T> {
    entries: Map<Key, T>,
    owners: Map<(u8, u32), Owner>,
    turns: Map<Turn, ()>,
    /// When the first turn of each level is due; `u64::MAX` if the level is empty.
    heads: [u64; LEVELS],
    /// A bit for each level with entries.
    levels: u64,
    next_number: u64,
    /// The owner that was served last, with the level.
    last_served: (u8, u32),
    /// When that was. An owner that comes to a level is treated as if it had been served then:
    /// otherwise one that brings entries that are due already, one after the other, would come
    /// before others each time.
    last_served_at: u64,
}

impl<T> Deadlines<T> {
    /// An empty queue.
    pub const fn new() -> Self {
        Self {
            entries: Map::new(),
            owners: Map::new(),
            turns: Map::new(),
            heads: [u64::MAX; LEVELS],
            levels: 0,
            next_number: 0,
            last_served: (0, 0),
            last_served_at: 0,
        }
    }

    /// Adds an entry of `owner`.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the entry is dropped.
    pub fn insert(
        &mut self,
        priority: Priority,
        owner: u32,
        deadline: u64,
        entry: T,
    ) -> Result<Key, OutOfMemory> {
        let key = Key { level: priority.level(), owner, deadline, number: self.number() };
        self.entries.try_insert(key, entry)?;
        if let Err(error) = self.admit(key) {
            self.entries.remove(&key);
            return Err(error);
        }
        self.schedule(key.level, owner, false);
        Ok(key)
    }

    /// Moves an entry to another level. Returns its new key, or `None` if the entry is no longer
    /// there, or if there is no memory for the move; then the entry is where it was.
    pub fn set_priority(&mut self, key: Key, priority: Priority) -> Option<Key> {
        let new = Key { level: priority.level(), number: self.number(), ..key };
        if !self.entries.contains_key(&key) || self.admit(new).is_err() {
            return None;
        }
        let (entry, spare) = self.entries.take(&key)?;
        // No entry has this key, because its number is new.
        let _ = self.entries.insert_with(spare, new, entry);
        self.schedule(key.level, key.owner, false);
        self.schedule(new.level, new.owner, false);
        Some(new)
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Ensures that the owner of `key` has a turn at its level.
    fn admit(&mut self, key: Key) -> Result<(), OutOfMemory> {
        let (level, owner) = (key.level, key.owner);
        if self.owners.contains_key(&(level, owner)) {
            return Ok(());
        }
        let served = self.last_served_at;
        let turn = Turn { level, due: key.deadline.max(served), number: self.number(), owner };
        self.turns.try_insert(turn, ())?;
        if let Err(error) = self.owners.try_insert((level, owner), Owner { turn, served }) {
            self.turns.remove(&turn);
            return Err(error);
        }
        Ok(())
    }

    /// Gives `owner` the turn that follows from its earliest deadline at `level`, or none if there
    /// is none. `after_turn`: it has just had one, so that the new one comes after those of others
    /// at the same time.
    fn schedule(&mut self, level: u8, owner: u32, after_turn: bool) {
        let first = Key { level, owner, deadline: 0, number: 0 };
        let earliest = self.entries.at_or_after(&first).map(|(key, _)| *key);
        match earliest.filter(|key| (key.level, key.owner) == (level, owner)) {
            Some(key) => {
                let number = self.number();
                if let Some(record) = self.owners.get_mut(&(level, owner)) {
                    let due = key.deadline.max(record.served);
                    if (after_turn || due != record.turn.due)
                        && let Some(((), spare)) = self.turns.take(&record.turn)
                    {
                        record.turn = Turn { level, due, number, owner };
                        // No turn is equal to this one, because its number is new.
                        let _ = self.turns.insert_with(spare, record.turn, ());
                    }
                }
            }
            None => {
                if let Some(record) = self.owners.remove(&(level, owner)) {
                    self.turns.remove(&record.turn);
                }
            }
        }
        self.find_head(level);
    }

    /// Removes an entry. `None` if it is no longer there.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.entries.remove(&key)?;
        self.schedule(key.level, key.owner, false);
        Some(entry)
    }

    /// The most urgent level with an entry that is due at `now`.
    pub fn due_priority(&self, now: u64) -> Option<Priority> {
        self.first_due(now).and_then(Priority::new)
    }

    fn first_due(&self, now: u64) -> Option<u8> {
        self.occupied().find(|&level| self.heads[usize::from(level)] <= now)
    }

    /// Removes a due entry of the most urgent level that has one: the earliest of the owner that
    /// has the next turn.
    pub fn pop_due(&mut self, now: u64) -> Option<T> {
        let level = self.first_due(now)?;
        let owner = self.next_owner(level, now)?;
        (self.last_served, self.last_served_at) = ((level, owner), now);
        if let Some(record) = self.owners.get_mut(&(level, owner)) {
            record.served = now;
        }
        let first = Key { level, owner, deadline: 0, number: 0 };
        let key = *self.entries.at_or_after(&first)?.0;
        let entry = self.entries.remove(&key);
        self.schedule(level, owner, true);
        entry
    }

    /// The earliest deadline after `now`, counting only levels without a due entry.
    pub fn next_after(&self, now: u64) -> Option<u64> {
        self.occupied().map(|level| self.heads[usize::from(level)]).filter(|&head| head > now).min()
    }

    fn occupied(&self) -> impl Iterator<Item = u8> {
        levels::each(self.levels).map(|level| level as u8)
    }

    fn first_turn(&self, level: u8) -> Option<Turn> {
        let first = Turn { level, due: 0, number: 0, owner: 0 };
        self.turns.at_or_after(&first).map(|(turn, ())| *turn).filter(|turn| turn.level == level)
    }

    /// The owner that is served next: not the one that was served last if another is due.
    fn next_owner(&self, level: u8, now: u64) -> Option<u32> {
        let first = self.first_turn(level)?;
        if self.last_served == (level, first.owner) {
            let after = Turn { number: first.number + 1, owner: 0, ..first };
            if let Some((second, ())) = self.turns.at_or_after(&after)
                && second.level == level
                && second.due <= now
            {
                return Some(second.owner);
            }
        }
        Some(first.owner)
    }

    fn find_head(&mut self, level: u8) {
        let turn = self.first_turn(level);
        self.heads[usize::from(level)] = turn.map_or(u64::MAX, |turn| turn.due);
        match turn {
            Some(_) => self.levels |= 1 << level,
            None => self.levels &= !(1 << level),
        }
    }
}

impl<T> Default for Deadlines<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[path = "deadlines_tests.rs"]
mod tests;
