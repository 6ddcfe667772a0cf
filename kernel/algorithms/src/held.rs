//! Those that are held, the most urgent first and the oldest first within a level: the threads of a
//! process that is stopped, or of which one copies the memory (decisions 34 and 69).
//!
//! A list for each level. The links are in what is held, so nothing is allocated, and every
//! operation takes a constant number of steps.

use cops_abi::Priority;

use super::levels::LEVELS;

/// The place of one that is held. What it contains while that is not held has no meaning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Link {
    next: u16,
    previous: u16,
    level: u8,
}

/// The links of all that may be held, by their numbers.
pub trait Links {
    /// The link of a number that is in a list.
    fn link(&self, number: u16) -> Link;
    /// Sets the link of a number that is in a list, or about to be.
    fn set_link(&mut self, number: u16, link: Link);
}

/// The lists: see the module. Each is a ring, in which the last precedes the first.
#[derive(Debug)]
pub struct HeldLists {
    /// A bit for each level of which the list is not empty.
    levels: u64,
    first: [u16; LEVELS],
}

impl Default for HeldLists {
    fn default() -> Self {
        Self::new()
    }
}

impl HeldLists {
    /// Empty lists.
    #[must_use]
    pub const fn new() -> Self {
        Self { levels: 0, first: [0; LEVELS] }
    }

    /// Whether none is held.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.levels == 0
    }

    /// The one that is to be released next.
    #[must_use]
    pub fn first(&self) -> Option<u16> {
        Priority::most_urgent_in(self.levels).map(|level| self.first[usize::from(level.level())])
    }

    /// `number`, which is in no list, is held from now on, and is this urgent.
    pub fn insert(&mut self, links: &mut impl Links, number: u16, priority: Priority) {
        let level = priority.level();
        links.set_link(number, Link { next: number, previous: number, level });
        let first = &mut self.first[usize::from(level)];
        if self.levels & priority.bit() == 0 {
            self.levels |= priority.bit();
            *first = number;
        } else {
            join(links, links.link(*first).previous, number);
            join(links, number, *first);
        }
    }

    /// `number`, which is held, is not any more.
    pub fn remove(&mut self, links: &mut impl Links, number: u16) {
        let Link { next, previous, level } = links.link(number);
        if next == number {
            self.levels &= !(1 << level);
            return;
        }
        join(links, previous, next);
        let first = &mut self.first[usize::from(level)];
        if *first == number {
            *first = next;
        }
    }

    /// `number`, which is held, is this urgent from now on: the last of its level, if that is
    /// another one than before.
    pub fn set_priority(&mut self, links: &mut impl Links, number: u16, priority: Priority) {
        if links.link(number).level != priority.level() {
            self.remove(links, number);
            self.insert(links, number, priority);
        }
    }
}

/// `second` comes after `first`.
fn join(links: &mut impl Links, first: u16, second: u16) {
    links.set_link(first, Link { next: second, ..links.link(first) });
    links.set_link(second, Link { previous: first, ..links.link(second) });
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const MEMBERS: u16 = 12;

    impl Links for Vec<Link> {
        fn link(&self, number: u16) -> Link {
            self[usize::from(number)]
        }

        fn set_link(&mut self, number: u16, link: Link) {
            self[usize::from(number)] = link;
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5_000, ..ProptestConfig::default() })]

        /// The same as a list of (level, number) that is searched for the most urgent.
        #[test]
        fn the_most_urgent_comes_first_and_the_oldest_of_those(
            steps in prop::collection::vec((0..3u8, 0..MEMBERS, 0..4u8), 0..200),
        ) {
            let (mut lists, mut links) = (HeldLists::new(), alloc::vec![Link::default(); MEMBERS.into()]);
            let mut model = Vec::<(u8, u16)>::new();
            for (step, number, level) in steps {
                // The ends of the range of levels too.
                let level = [0, 31, 32, 63][usize::from(level)];
                let priority = Priority::new(level).unwrap();
                let at = model.iter().position(|&(_, held)| held == number);
                match (step, at) {
                    (0, None) => {
                        lists.insert(&mut links, number, priority);
                        model.push((level, number));
                    }
                    (1, Some(at)) => {
                        lists.remove(&mut links, number);
                        model.remove(at);
                    }
                    (2, Some(at)) => {
                        lists.set_priority(&mut links, number, priority);
                        if model[at].0 != level {
                            model.remove(at);
                            model.push((level, number));
                        }
                    }
                    _ => {}
                }
                // `min_by_key` returns the first of several.
                let first = model.iter().min_by_key(|(level, _)| *level).map(|(_, number)| *number);
                prop_assert_eq!(lists.first(), first);
                prop_assert_eq!(lists.is_empty(), model.is_empty());
            }
            while let Some(number) = lists.first() {
                let at = model.iter().position(|&(_, held)| held == number);
                model.remove(at.unwrap());
                lists.remove(&mut links, number);
            }
            prop_assert!(model.is_empty());
        }
    }
}
