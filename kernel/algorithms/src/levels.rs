//! Sets of priority levels as bitmaps, and how many members of a group have each level.
//!
//! Bit `n` stands for level `n`; level 0 is the most urgent. This module is responsible for two
//! promises of the system (decision 10): a level that has passed [`cap`] or [`cap_all`] is not more
//! urgent than the ceiling, and a bit of the system bitmap says whether any process has that level
//! once all harts are done with [`change`].

use cops_abi::Priority;

/// Number of levels.
pub const LEVELS: usize = Priority::COUNT as usize;

/// `priority`, or the ceiling if that is less urgent.
#[must_use]
pub const fn cap(priority: Priority, ceiling: Priority) -> Priority {
    if priority.is_more_urgent_than(ceiling) { ceiling } else { priority }
}

/// `levels`, with those more urgent than the ceiling counted as the ceiling.
#[must_use]
pub const fn cap_all(levels: u64, ceiling: Priority) -> u64 {
    let at = ceiling.bit();
    let above = at - 1;
    if levels & above == 0 { levels } else { levels & !above | at }
}

/// Counters and bits that several harts change at the same time, without a lock. All operations are
/// sequentially consistent, and counts wrap around.
pub trait Counted {
    /// Adds 1 to the count of a level. Returns the previous count.
    fn increment(&self, level: usize) -> u32;
    /// Subtracts 1 from the count of a level. Returns the previous count.
    fn decrement(&self, level: usize) -> u32;
    /// The count of a level.
    fn count(&self, level: usize) -> u32;
    /// Sets or clears the bit of a level.
    fn set_bit(&self, level: usize, value: bool);
}

/// A member of the group has replaced its levels `before` by `now`: changes the counts, and the
/// bit of each level if its count becomes or ceases to be 0. The cost depends only on the
/// difference.
///
/// Several harts may do this for the same member, if each passes the value that it has replaced.
/// Then a hart may subtract what another one has yet to add, so a count may be below 0 for a time.
///
/// **Proposition.** When no hart is in this function, each bit tells whether its count is not 0.
///
/// *Proof.* Consider the last store to a bit, by hart A. A loaded the count after that store and
/// found what it had stored; otherwise it would have stored again. Suppose the count became or
/// ceased to be 0 after that load. Unless it fell below 0, the hart that changed it stored the bit
/// afterwards, and A's store was not the last one. If it fell below 0, it became 0 again later, and
/// the same holds for the hart that did this.
pub fn change(group: &impl Counted, before: u64, now: u64) {
    for level in each(now & !before) {
        let count = group.increment(level).wrapping_add(1);
        if count <= 1 {
            publish(group, level, count != 0);
        }
    }
    for level in each(before & !now) {
        if group.decrement(level) == 1 {
            publish(group, level, false);
        }
    }
}

/// Stores the bit of a level until it matches the count.
fn publish(group: &impl Counted, level: usize, mut value: bool) {
    loop {
        group.set_bit(level, value);
        let is_counted = group.count(level) != 0;
        if is_counted == value {
            return;
        }
        value = is_counted;
    }
}

/// The levels of a bitmap, the most urgent first.
pub fn each(mut levels: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let level = levels.trailing_zeros() as usize;
        levels &= levels.wrapping_sub(1);
        (level < LEVELS).then_some(level)
    })
}

/// How many members of a group have each level, and which levels any of them has. For use under a
/// lock.
#[derive(Debug)]
pub struct LevelCounts {
    counts: [u32; LEVELS],
    levels: u64,
}

impl Default for LevelCounts {
    fn default() -> Self {
        Self::new()
    }
}

impl LevelCounts {
    /// A group without members.
    #[must_use]
    pub const fn new() -> Self {
        Self { counts: [0; LEVELS], levels: 0 }
    }

    /// The levels that any member has.
    #[must_use]
    pub const fn levels(&self) -> u64 {
        self.levels
    }

    /// Number of members of a level.
    #[must_use]
    pub const fn of(&self, priority: Priority) -> u32 {
        self.counts[priority.level() as usize]
    }

    /// A member joins.
    pub const fn add(&mut self, priority: Priority) {
        self.counts[priority.level() as usize] += 1;
        self.levels |= priority.bit();
    }

    /// A member of this level leaves.
    pub const fn remove(&mut self, priority: Priority) {
        let count = &mut self.counts[priority.level() as usize];
        *count -= 1;
        if *count == 0 {
            self.levels &= !priority.bit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use core::cell::{Cell, RefCell};
    use proptest::prelude::*;

    fn priority(level: u8) -> Priority {
        Priority::new(level).unwrap()
    }

    /// Levels before and after.
    type Change = (u64, u64);

    /// A group that interrupted harts change: before each operation of one, others change members.
    struct Interrupted {
        counts: [Cell<u32>; 2],
        bits: Cell<u64>,
        /// The changes before each of the next operations; the last entry is the next one.
        others: RefCell<Vec<Vec<Change>>>,
    }

    impl Interrupted {
        fn let_others_run(&self) {
            let due = self.others.borrow_mut().pop();
            due.unwrap_or_default().into_iter().for_each(|(before, now)| change(self, before, now));
        }

        fn add(&self, level: usize, value: u32) -> u32 {
            self.let_others_run();
            self.counts[level].replace(self.counts[level].get().wrapping_add(value))
        }
    }

    impl Counted for Interrupted {
        fn increment(&self, level: usize) -> u32 {
            self.add(level, 1)
        }

        fn decrement(&self, level: usize) -> u32 {
            self.add(level, u32::MAX)
        }

        fn count(&self, level: usize) -> u32 {
            self.add(level, 0)
        }

        fn set_bit(&self, level: usize, value: bool) {
            self.let_others_run();
            self.bits.set(self.bits.get() & !(1 << level) | u64::from(value) << level);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

        /// Harts change three members and are stopped between any two operations while others run:
        /// in the end the bits are those of the members.
        #[test]
        fn bits_match_the_members_when_all_harts_are_done(
            targets in prop::collection::vec((0..3usize, 0..4u64), 1..24),
            pauses in prop::collection::vec(0..4usize, 0..40),
        ) {
            let mut members = [0; 3];
            let mut changes = targets
                .into_iter()
                .map(|(member, now)| (core::mem::replace(&mut members[member], now), now))
                .collect::<Vec<Change>>()
                .into_iter();
            let mut others: Vec<Vec<Change>> =
                pauses.into_iter().map(|count| changes.by_ref().take(count).collect()).collect();
            others.push(changes.collect());
            others.reverse();
            let group = Interrupted { counts: Default::default(), bits: Cell::new(0), others: RefCell::new(others) };
            while !group.others.borrow().is_empty() {
                group.let_others_run();
            }
            prop_assert_eq!(group.bits.get(), members.iter().fold(0, |all, levels| all | levels));
        }

        #[test]
        fn counts_of_levels(members in prop::collection::vec(0..64u8, 0..40), leaving in any::<prop::sample::Index>()) {
            let mut counts = LevelCounts::new();
            members.iter().for_each(|&level| counts.add(priority(level)));
            let (gone, rest) = members.split_at(if members.is_empty() { 0 } else { leaving.index(members.len()) });
            gone.iter().for_each(|&level| counts.remove(priority(level)));
            prop_assert_eq!(counts.levels(), rest.iter().fold(0, |levels, level| levels | 1 << level));
            for level in 0..64 {
                prop_assert_eq!(counts.of(priority(level)) as usize, rest.iter().filter(|&&at| at == level).count());
            }
        }

        /// Capping a set is capping each of its levels.
        #[test]
        fn no_level_is_above_the_ceiling(levels: u64, ceiling in 0..64u8) {
            let ceiling = priority(ceiling);
            let mut expected = 0u64;
            each(levels).for_each(|level| expected |= cap(priority(level as u8), ceiling).bit());
            let capped = cap_all(levels, ceiling);
            prop_assert_eq!(capped, expected);
            let first = Priority::most_urgent_in(capped);
            prop_assert!(first.is_none_or(|first| !first.is_more_urgent_than(ceiling)));
        }
    }

    #[test]
    fn a_capped_level_is_the_less_urgent_of_the_two() {
        for level in 0..64 {
            for ceiling in 0..64 {
                let capped = cap(priority(level), priority(ceiling));
                assert_eq!(capped, priority(level.max(ceiling)));
            }
        }
    }
}
