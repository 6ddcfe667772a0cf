//! A hash table that grows and shrinks one bucket at a time (linear hashing; Litwin, 1980).
//!
//! A table that moves all of its entries when it is full does thousands of times the usual work in
//! one insertion. Here the hash of a key selects one of `buckets` lists. An insertion that makes
//! the table too full splits one bucket: the next in turn. A removal that leaves it nearly empty
//! merges the last bucket back. So every operation touches at most three lists of a few entries
//! each, whatever the number of entries.
//!
//! ```text
//!   buckets = 6: 0 1 2 3 | 4 5    selected by 3 low bits of a hash; instead of 6 or 7, by 2 bits
//!   next split:      2 -> 2, 6
//! ```
//!
//! Lists are short as long as keys cannot be chosen to collide: a table with keys from outside
//! gets a seed that is not known there. The buckets are in segments of 2 KiB, and an
//! entry is an allocation of its own, so growth needs no large piece of memory. Without memory for
//! a segment the lists become longer.
//!
//! A sweep over all entries is done in portions, too: see [`Cursor`].

use alloc::boxed::Box;
use core::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;

use super::{List, OutOfMemory, try_box};

type Link<K, V> = Option<Box<Node<K, V>>>;

struct Node<K, V> {
    /// Always there while the node is in a table.
    entry: Option<(K, V)>,
    hash: u64,
    next: Link<K, V>,
}

/// Buckets in a segment.
const SEGMENT: usize = 256;
/// Buckets of a table that is not empty, at least.
const BUCKETS_MIN: usize = 8;
/// The table shrinks while it has more buckets than this for each entry.
const BUCKETS_PER_ENTRY_MAX: usize = 2;

/// A hash table of which the growth can fail.
pub struct Table<K, V> {
    hasher: FixedState,
    segments: List<Box<[Link<K, V>; SEGMENT]>>,
    /// Buckets in use.
    buckets: usize,
    /// The power of two that is not below `buckets`, less one.
    mask: usize,
    length: usize,
    /// A node for the next insertion.
    spare: Link<K, V>,
}

/// How far a sweep over a table has come: see [`Table::bucket`].
///
/// The hashes with the same low bits are in one bucket. With their bits in reverse order, they are
/// an interval, and the cursor is where the next interval begins. More buckets divide intervals,
/// and fewer join them. So whatever is inserted or removed during a sweep, every entry that is
/// there all the time is met, and the sweep ends. An entry may be met twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor(u64);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self::new(0)
    }
}

impl<K, V> core::fmt::Debug for Table<K, V> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Table of {}", self.length)
    }
}

impl<K, V> Table<K, V> {
    /// Bytes that an entry takes, its share of the buckets included.
    pub const ENTRY_BYTES: usize = size_of::<Node<K, V>>() + size_of::<Link<K, V>>();

    /// An empty table; allocates nothing. `seed` changes which keys collide.
    pub const fn new(seed: u64) -> Self {
        Self {
            hasher: FixedState::with_seed(seed),
            segments: List::new(),
            buckets: 0,
            mask: 0,
            length: 0,
            spare: None,
        }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The bucket of a hash. `buckets` is not 0.
    fn number(&self, hash: u64) -> usize {
        let number = hash as usize & self.mask;
        if number < self.buckets { number } else { number & (self.mask >> 1) }
    }

    fn link(&mut self, number: usize) -> Option<&mut Link<K, V>> {
        self.segments.get_mut(number / SEGMENT).map(|segment| &mut segment[number % SEGMENT])
    }

    /// One bucket more: the entries of one other bucket are divided between the two. Without memory
    /// it stays as it is.
    fn split(&mut self) {
        let new = self.buckets;
        if new / SEGMENT == self.segments.len() {
            let Ok(segment) = try_box(core::array::from_fn(|_| None)) else { return };
            if self.segments.try_push(segment).is_err() {
                return;
            }
        }
        self.buckets = new + 1;
        self.mask = self.buckets.next_power_of_two() - 1;
        // With a single bucket there is nothing to divide.
        let old = new & (self.mask >> 1);
        let Some(mut rest) = self.link(old).and_then(Option::take) else { return };
        loop {
            let next = rest.next.take();
            let number = self.number(rest.hash);
            self.put(number, rest);
            match next {
                Some(next) => rest = next,
                None => return,
            }
        }
    }

    /// One bucket less: its entries go back to the bucket from which it was split.
    fn merge(&mut self) {
        let last = self.buckets - 1;
        let mut rest = self.link(last).and_then(Option::take);
        self.buckets = last;
        self.mask = last.next_power_of_two() - 1;
        while let Some(mut node) = rest {
            rest = node.next.take();
            let number = self.number(node.hash);
            self.put(number, node);
        }
        if last.is_multiple_of(SEGMENT) {
            self.segments.truncate(last / SEGMENT);
        }
    }

    fn put(&mut self, number: usize, mut node: Box<Node<K, V>>) {
        if let Some(link) = self.link(number) {
            node.next = link.take();
            *link = Some(node);
        }
    }

    /// The entries of the bucket at `cursor`, and where the next one is; `None` after the last. If
    /// the table is changed before all of these entries have been looked at, the sweep continues
    /// with the same cursor.
    pub fn bucket(&self, cursor: Cursor) -> (impl Iterator<Item = (&K, &V)>, Option<Cursor>) {
        let hash = cursor.0.reverse_bits();
        let number = self.number(hash);
        // A bucket that is not yet split has two intervals, and is met at each.
        let last = cursor.0 | (u64::MAX >> self.mask.count_ones());
        let link = self.segments.get(number / SEGMENT).map(|segment| &segment[number % SEGMENT]);
        (entries(link), last.checked_add(1).map(Cursor))
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let links = self.segments.iter().flat_map(|segment| segment.iter());
        links.flat_map(|link| entries(Some(link)))
    }
}

/// The entries of a list.
fn entries<K, V>(link: Option<&Link<K, V>>) -> impl Iterator<Item = (&K, &V)> {
    let first = link.and_then(|link| link.as_deref());
    let nodes = core::iter::successors(first, |node: &&Node<K, V>| node.next.as_deref());
    nodes.filter_map(|node| node.entry.as_ref().map(|(key, value)| (key, value)))
}

impl<K: Eq + Hash, V> Table<K, V> {
    /// Makes sure that the next insertion does not fail.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the table is as it was.
    pub fn reserve_one(&mut self) -> Result<(), OutOfMemory> {
        if self.buckets == 0 {
            self.split();
        }
        if self.buckets == 0 {
            return Err(OutOfMemory);
        }
        if self.spare.is_none() {
            self.spare = Some(try_box(Node { entry: None, hash: 0, next: None })?);
        }
        Ok(())
    }

    /// Puts an entry in; returns the value it replaces.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the table is as it was, and key and value are dropped.
    pub fn try_insert(&mut self, key: K, value: V) -> Result<Option<V>, OutOfMemory> {
        if let Some(place) = self.get_mut(&key) {
            return Ok(Some(core::mem::replace(place, value)));
        }
        self.reserve_one()?;
        self.insert_new(key, value);
        Ok(None)
    }

    /// The value of a key; made by `Default` if there is none.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the table is as it was.
    pub fn try_get_or_default(&mut self, key: K) -> Result<&mut V, OutOfMemory>
    where
        V: Default,
        K: Clone,
    {
        if !self.contains_key(&key) {
            self.reserve_one()?;
            self.insert_new(key.clone(), V::default());
        }
        self.get_mut(&key).ok_or(OutOfMemory)
    }

    /// Puts an entry in that is not there, after [`Self::reserve_one`].
    fn insert_new(&mut self, key: K, value: V) {
        let Some(mut node) = self.spare.take() else { return };
        node.hash = self.hasher.hash_one(&key);
        node.entry = Some((key, value));
        self.length += 1;
        let number = self.number(node.hash);
        self.put(number, node);
        // Two, in case it could not grow when it should have.
        for _ in 0..2 {
            if self.buckets < self.length.max(BUCKETS_MIN) {
                self.split();
            }
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        if self.length == 0 {
            return None;
        }
        let hash = self.hasher.hash_one(key);
        let number = self.number(hash);
        let mut node = self.segments.get(number / SEGMENT)?[number % SEGMENT].as_deref()?;
        loop {
            if let Some((mine, value)) = node.of(hash)
                && mine == key
            {
                return Some(value);
            }
            node = node.next.as_deref()?;
        }
    }

    /// The value of a key, to be changed.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        if self.length == 0 {
            return None;
        }
        let hash = self.hasher.hash_one(key);
        let number = self.number(hash);
        let mut node = self.link(number)?.as_deref_mut()?;
        while node.of(hash).is_none_or(|(mine, _)| mine != key) {
            node = node.next.as_deref_mut()?;
        }
        node.entry.as_mut().map(|(_, value)| value)
    }

    /// Whether there is an entry of this key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Takes an entry out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        if self.length == 0 {
            return None;
        }
        let hash = self.hasher.hash_one(key);
        let number = self.number(hash);
        let mut link = self.link(number)?;
        while link.as_deref()?.of(hash).is_none_or(|(mine, _)| mine != key) {
            link = &mut link.as_deref_mut()?.next;
        }
        let mut node = link.take()?;
        *link = node.next.take();
        self.length -= 1;
        if self.length == 0 {
            self.spare = None;
        }
        for _ in 0..2 {
            if self.buckets > (self.length * BUCKETS_PER_ENTRY_MAX).max(BUCKETS_MIN) {
                self.merge();
            }
        }
        node.entry.take().map(|(_, value)| value)
    }
}

impl<K, V> Node<K, V> {
    /// The entry, if its hash is this one.
    fn of(&self, hash: u64) -> Option<&(K, V)> {
        self.entry.as_ref().filter(|_| self.hash == hash)
    }
}

/// One node after the other: a list is not dropped by recursion.
impl<K, V> Drop for Table<K, V> {
    fn drop(&mut self) {
        for link in self.segments.iter_mut().flat_map(|segment| segment.iter_mut()) {
            while let Some(mut node) = link.take() {
                *link = node.next.take();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::HashMap;
    use std::vec;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    impl<V> Table<u32, V> {
        /// Entries in the longest list; every entry is in the bucket of its hash.
        fn check(&self) -> usize {
            let mut longest = 0;
            for number in 0..self.segments.len() * SEGMENT {
                let mut length = 0;
                let mut link = &self.segments[number / SEGMENT][number % SEGMENT];
                while let Some(node) = link {
                    assert_eq!(self.number(node.hash), number);
                    length += 1;
                    link = &node.next;
                }
                longest = longest.max(length);
            }
            assert!(self.segments.len() * SEGMENT < self.buckets + SEGMENT, "superfluous segments");
            longest
        }
    }

    proptest! {
        #[test]
        fn it_does_what_a_hash_map_does(steps in prop::collection::vec((0..4u8, 0..700u32), 0..2000), seed: u64) {
            let (mut table, mut model) = (Table::new(seed), HashMap::new());
            for (number, (what, key)) in steps.into_iter().enumerate() {
                match what {
                    0 => prop_assert_eq!(table.try_insert(key, number), Ok(model.insert(key, number))),
                    1 => prop_assert_eq!(table.remove(&key), model.remove(&key)),
                    2 => {
                        let place = table.try_get_or_default(key).unwrap();
                        *place += 1;
                        *model.entry(key).or_default() += 1;
                    }
                    _ => prop_assert_eq!(table.get_mut(&key).copied(), model.get(&key).copied()),
                }
                prop_assert_eq!(table.get(&key), model.get(&key));
                prop_assert_eq!(table.len(), model.len());
            }
            table.check();
            let mut all: Vec<_> = table.iter().map(|(&key, &value)| (key, value)).collect();
            let mut expected: Vec<_> = model.into_iter().collect();
            all.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(all, expected);
        }
    }

    proptest! {
        /// Each step of the sweep comes after some insertions (positive) or removals.
        #[test]
        fn a_sweep_meets_all_that_is_there_all_the_time(
            first in 0..1500u32,
            changes in prop::collection::vec(-40..40i32, 0..200),
            seed: u64,
        ) {
            let mut table = Table::new(seed);
            for key in 0..first {
                table.try_insert(key, ()).unwrap();
            }
            let (mut next, mut removed) = (first, 0);
            let (mut met, mut steps) = (vec![false; first as usize], 0);
            let (mut cursor, mut changes) = (Some(Cursor::default()), changes.into_iter());
            while let Some(at) = cursor {
                let change = changes.next().unwrap_or(0);
                for _ in 0..change {
                    table.try_insert(next, ()).unwrap();
                    next += 1;
                }
                for _ in change..0 {
                    table.remove(&removed);
                    removed += 1;
                }
                let (entries, next) = table.bucket(at);
                for (&key, ()) in entries {
                    if let Some(met) = met.get_mut(key as usize) {
                        *met = true;
                    }
                }
                prop_assert!(next.is_none_or(|next| next.0 > at.0));
                cursor = next;
                steps += 1;
            }
            prop_assert!(met.iter().enumerate().all(|(key, met)| *met || (key as u32) < removed));
            let buckets = (next as usize).max(BUCKETS_MIN) * BUCKETS_PER_ENTRY_MAX;
            prop_assert!(steps <= buckets.next_power_of_two());
        }
    }

    /// What one operation changes: buckets, by one or two at most.
    #[test]
    fn no_insertion_or_removal_moves_many_entries() {
        let mut table = Table::new(7);
        let mut longest = 0;
        for key in 0..40_000u32 {
            let before = table.buckets;
            table.try_insert(key, ()).unwrap();
            assert!(table.buckets - before <= 3 && table.length <= table.buckets);
            if key % 1000 == 0 {
                longest = longest.max(table.check());
            }
        }
        for key in 0..40_000u32 {
            let before = table.buckets;
            assert_eq!(table.remove(&key), Some(()));
            assert!(before - table.buckets <= 2);
            if key % 1000 == 0 {
                longest = longest.max(table.check());
            }
        }
        assert!(longest <= 16, "a list of {longest} entries");
        assert!(table.buckets <= BUCKETS_MIN && table.segments.len() == 1);
    }

    #[test]
    fn a_reserved_insertion_takes_the_memory_that_was_reserved() {
        let mut table = Table::new(0);
        assert!(!table.contains_key(&1));
        table.reserve_one().unwrap();
        let reserved = table.spare.as_deref().map(core::ptr::from_ref);
        assert_eq!(table.try_insert(1u32, 2), Ok(None));
        let inserted =
            table.segments[0].iter().find_map(|link| link.as_deref()).map(core::ptr::from_ref);
        assert_eq!(inserted, reserved);
        assert_eq!(table.get(&1), Some(&2));
    }
}
