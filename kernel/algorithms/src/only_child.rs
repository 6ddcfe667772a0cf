//! The children of a node of a tree, as far as pruning needs them: how many there are, and which
//! one it is if there is only one.
//!
//! [`quota`](crate::quota) and [`shares`](crate::shares) remove a node that leads to a single child
//! and has no use of its own. They need that child's number, but never the list of all children. So
//! a node stores only the exclusive or of its children's numbers, which for an only child is its
//! number. Every operation takes constant time and no memory.

/// The children of a node. The numbers of different children are different.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Children {
    count: u32,
    /// The exclusive or of the numbers.
    mixed: u32,
}

impl Children {
    /// No children.
    pub const NONE: Self = Self { count: 0, mixed: 0 };

    /// Number of children.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The number of the child, if there is exactly one.
    #[must_use]
    pub const fn only(&self) -> Option<u32> {
        if self.count == 1 { Some(self.mixed) } else { None }
    }

    /// Adds a child.
    pub const fn add(&mut self, child: u32) {
        self.count += 1;
        self.mixed ^= child;
    }

    /// Removes a child, which is one of the children.
    pub const fn remove(&mut self, child: u32) {
        self.count -= 1;
        self.mixed ^= child;
    }

    /// `heir` takes the place of `child`, which is one of the children.
    pub const fn replace(&mut self, child: u32, heir: u32) {
        self.mixed ^= child ^ heir;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn an_only_child_is_known_by_its_number(steps in prop::collection::vec((0..3u8, 0..6u32, 0..6u32), 0..60)) {
            let (mut children, mut model) = (Children::NONE, BTreeSet::new());
            for (kind, one, other) in steps {
                match kind {
                    0 if model.insert(one) => children.add(one),
                    1 if model.remove(&one) => children.remove(one),
                    2 if model.contains(&one) && !model.contains(&other) => {
                        model.remove(&one);
                        model.insert(other);
                        children.replace(one, other);
                    }
                    _ => {}
                }
                prop_assert_eq!(children.count() as usize, model.len());
                let only = model.first().copied().filter(|_| model.len() == 1);
                prop_assert_eq!(children.only(), only);
            }
        }
    }
}
