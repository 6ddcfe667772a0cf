//! How many requests a server has been given and has not answered, for each level.
//!
//! The rule is a part of the protocol (`cops_abi::served`). It bounds what a server has to handle
//! at a time, and always has room for a request that is more urgent than all but a few of those.
//! If there is no room for a level, there is none for less urgent ones.

use cops_abi::Priority;
use cops_abi::served::{UNANSWERED_BOUND, UNANSWERED_MAX, UNANSWERED_URGENT_MAX};

/// The numbers.
#[derive(Debug)]
pub(crate) struct Unanswered {
    /// By the level at which they were given.
    given: [u16; Priority::COUNT as usize],
    total: usize,
}

impl Unanswered {
    /// None.
    pub(crate) const fn new() -> Self {
        Self { given: [0; Priority::COUNT as usize], total: 0 }
    }

    /// Whether a request of this level may be given.
    pub(crate) fn has_room(&self, priority: Priority) -> bool {
        self.total < UNANSWERED_MAX || self.as_urgent_as(priority) < UNANSWERED_URGENT_MAX
    }

    /// How many are of this level, or more urgent.
    fn as_urgent_as(&self, priority: Priority) -> usize {
        let levels = usize::from(priority.level()) + 1;
        self.given.iter().take(levels).map(|&given| usize::from(given)).sum()
    }

    /// One of this level is given.
    pub(crate) fn add(&mut self, priority: Priority) {
        debug_assert!(self.has_room(priority), "too many requests of {priority:?}");
        self.given[usize::from(priority.level())] += 1;
        self.total += 1;
    }

    /// One that was given at this level is answered. No effect if there is none.
    pub(crate) fn remove(&mut self, priority: Priority) {
        let given = &mut self.given[usize::from(priority.level())];
        if *given > 0 {
            *given -= 1;
            self.total -= 1;
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn total(&self) -> usize {
        self.total
    }
}

const _: () = assert!(UNANSWERED_BOUND <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn priority(level: u32) -> Priority {
        Priority::saturating(level)
    }

    /// Gives as many of a level as there is room for. Returns how many.
    fn fill(unanswered: &mut Unanswered, level: u32) -> usize {
        let mut count = 0;
        while unanswered.has_room(priority(level)) {
            unanswered.add(priority(level));
            count += 1;
        }
        count
    }

    #[test]
    fn a_more_urgent_one_always_has_room() {
        let mut unanswered = Unanswered::new();
        assert_eq!(fill(&mut unanswered, 50), UNANSWERED_MAX);
        assert_eq!(fill(&mut unanswered, 63), 0);
        assert_eq!(fill(&mut unanswered, 50), 0);
        for level in (0..50).rev() {
            assert_eq!(fill(&mut unanswered, level), UNANSWERED_URGENT_MAX, "level {level}");
            assert_eq!(fill(&mut unanswered, 63), 0);
        }
        assert_eq!(unanswered.total(), UNANSWERED_MAX + 50 * UNANSWERED_URGENT_MAX);
    }

    #[test]
    fn an_answer_makes_room_for_one_of_its_level() {
        let mut unanswered = Unanswered::new();
        fill(&mut unanswered, 50);
        fill(&mut unanswered, 40);
        unanswered.remove(priority(50));
        assert_eq!([fill(&mut unanswered, 50), fill(&mut unanswered, 40)], [0, 0], "many are left");
        unanswered.remove(priority(40));
        assert_eq!(fill(&mut unanswered, 40), 1);
        for _ in 0..=UNANSWERED_URGENT_MAX {
            unanswered.remove(priority(50));
        }
        assert_eq!(fill(&mut unanswered, 50), 2, "up to the maximum");
    }

    #[test]
    fn answers_to_nothing_make_no_room() {
        let mut unanswered = Unanswered::new();
        fill(&mut unanswered, 50);
        for level in (0..64).filter(|&level| level != 50) {
            unanswered.remove(priority(level));
        }
        assert_eq!(fill(&mut unanswered, 50), 0);
    }

    proptest! {
        /// Whatever is given and answered, there are never more than the protocol says, and there
        /// is room for a level if there is room for a less urgent one.
        #[test]
        fn there_are_never_too_many(steps in prop::collection::vec((0..3u8, 0..64u32), 0..300)) {
            let mut unanswered = Unanswered::new();
            for (what, level) in steps {
                if what < 2 {
                    fill(&mut unanswered, level);
                } else {
                    unanswered.remove(priority(level));
                }
                prop_assert!(unanswered.total() <= UNANSWERED_BOUND);
                let has_room = (0..64).map(|level| unanswered.has_room(priority(level)));
                prop_assert!(has_room.is_sorted_by(|before, after| before >= after));
            }
        }
    }
}
