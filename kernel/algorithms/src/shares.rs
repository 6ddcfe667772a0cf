//! Shares of the CPU among processes of the same level: a process that starts others divides its
//! own share (decision 10).
//!
//! This is hierarchical fair share (J. Kay and P. Lauder, "A fair share scheduler", 1988), with
//! equal weights. A process and its children have equal shares of what the process alone would
//! have, and so on downwards. The *divisor* of a process is the inverse of its share: the number of
//! its children plus one, multiplied by the divisor of its parent, which in the same way includes
//! its siblings. Running time is multiplied by it when it is charged.
//!
//! A process that has ended before its children stays in the tree as a branch without a share of
//! its own. It is removed as soon as it has only one child. So the tree never has more than twice
//! as many nodes as there are processes.
//!
//! A change of the tree affects only the adjacent nodes. Divisors are computed on demand from a
//! limited number of ancestors: each but the first at least doubles the product, which has a
//! maximum.

use cops_fallible::{Map, OutOfMemory};

use crate::only_child::Children;

/// Maximum of a divisor: charges must fit into 63 bits for years.
pub const DIVISOR_MAX: u32 = 4096;

struct Node {
    parent: u32,
    children: Children,
    /// The process has not ended.
    alive: bool,
}

/// The tree of all processes, by their numbers.
pub struct ShareTree {
    nodes: Map<u32, Node>,
}

impl Default for ShareTree {
    fn default() -> Self {
        Self::new()
    }
}

impl ShareTree {
    /// A tree without processes.
    #[must_use]
    pub const fn new() -> Self {
        Self { nodes: Map::new() }
    }

    /// Adds `process`, which has a new number, with a part of the share of `parent`; of everything
    /// if that is not in the tree.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn add(&mut self, process: u32, parent: u32) -> Result<(), OutOfMemory> {
        self.nodes.try_insert(process, Node { parent, children: Children::NONE, alive: true })?;
        if let Some(node) = self.nodes.get_mut(&parent) {
            node.children.add(process);
        }
        Ok(())
    }

    /// `process` has ended.
    pub fn end(&mut self, process: u32) {
        if let Some(node) = self.nodes.get_mut(&process) {
            node.alive = false;
        }
        self.prune(process);
    }

    /// The divisor of `process`: from 1 to [`DIVISOR_MAX`].
    #[must_use]
    pub fn divisor(&self, process: u32) -> u32 {
        let (mut divisor, mut at) = (1u32, process);
        while divisor < DIVISOR_MAX
            && let Some(node) = self.nodes.get(&at)
        {
            divisor =
                divisor.saturating_mul((node.children.count() + u32::from(node.alive)).max(1));
            at = node.parent;
        }
        divisor.min(DIVISOR_MAX)
    }

    /// Number of nodes, for tests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Removes `at` if its process has ended and it is not a branch any more, then its parent
    /// likewise.
    fn prune(&mut self, mut at: u32) {
        while let Some(node) = self.nodes.get(&at)
            && !node.alive
            && node.children.count() <= 1
        {
            let (parent, heir) = (node.parent, node.children.only());
            self.nodes.remove(&at);
            if let Some(heir) = heir
                && let Some(node) = self.nodes.get_mut(&heir)
            {
                node.parent = parent;
            }
            let Some(above) = self.nodes.get_mut(&parent) else { return };
            match heir {
                Some(heir) => above.children.replace(at, heir),
                None => above.children.remove(at),
            }
            at = parent;
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// All processes that ever existed, by number; nothing is pruned. Number 0 is none.
    struct Model(Vec<(usize, bool)>);

    impl Model {
        fn has_living(&self, at: usize) -> bool {
            self.0[at].1 || self.children(at).any(|child| self.has_living(child))
        }

        fn children(&self, at: usize) -> impl Iterator<Item = usize> {
            (1..self.0.len()).filter(move |&child| self.0[child].0 == at)
        }

        /// By the definition, without pruning and without a maximum.
        fn divisor(&self, process: usize) -> u64 {
            let (mut divisor, mut at) = (1, process);
            while at != 0 {
                let parts = self.children(at).filter(|&child| self.has_living(child)).count();
                divisor *= (parts as u64 + u64::from(self.0[at].1)).max(1);
                at = self.0[at].0;
            }
            divisor
        }

        fn living(&self) -> impl Iterator<Item = usize> {
            (1..self.0.len()).filter(|&process| self.0[process].1)
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Start(usize),
        End(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let one = prop_oneof![
            3 => any::<usize>().prop_map(Step::Start),
            2 => any::<usize>().prop_map(Step::End),
        ];
        prop::collection::vec(one, 0..40)
    }

    proptest! {
        /// Divisors are those of the definition, and the living processes share exactly what there
        /// is.
        #[test]
        fn behaves_as_the_definition(steps in steps()) {
            let mut tree = ShareTree::new();
            let mut model = Model(std::vec![(0, false), (0, true)]);
            tree.add(1, 0).unwrap();
            for step in steps {
                let living: Vec<usize> = model.living().collect();
                match step {
                    Step::Start(which) if !living.is_empty() => {
                        let parent = living[which % living.len()];
                        tree.add(model.0.len() as u32, parent as u32).unwrap();
                        model.0.push((parent, true));
                    }
                    Step::End(which) if !living.is_empty() => {
                        let process = living[which % living.len()];
                        tree.end(process as u32);
                        model.0[process].1 = false;
                    }
                    _ => {}
                }
                let living: Vec<usize> = model.living().collect();
                for &process in &living {
                    let expected = model.divisor(process).min(DIVISOR_MAX.into());
                    prop_assert_eq!(u64::from(tree.divisor(process as u32)), expected, "of {}", process);
                }
                let total: f64 = living.iter().map(|&process| 1.0 / model.divisor(process) as f64).sum();
                prop_assert!(living.is_empty() || (total - 1.0).abs() < 1e-9, "{} of everything", total);
                prop_assert!(tree.len() <= (2 * living.len()).saturating_sub(1), "{} nodes", tree.len());
            }
        }
    }

    /// A chain of processes that each start one: the product stops at its maximum.
    #[test]
    fn a_long_chain_has_the_maximum() {
        let mut tree = ShareTree::new();
        (1..10_000).for_each(|process| tree.add(process, process - 1).unwrap());
        assert_eq!((tree.divisor(1), tree.divisor(5), tree.divisor(9999)), (2, 32, DIVISOR_MAX));
        // All but the last end; its divisor is that of a process by itself.
        (1..9999).for_each(|process| tree.end(process));
        assert_eq!((tree.divisor(9999), tree.len()), (1, 1));
        tree.end(9999);
        assert!(tree.is_empty());
    }
}
