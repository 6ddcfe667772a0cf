//! An ordered map: an AVL tree.
//!
//! An insertion allocates one node. The node can be allocated in advance: a [`Spare`] is a node
//! without an entry. An insertion that must not fail (when a process ends, or a virtual CPU becomes
//! ready) uses the spare that was allocated when its process was created; a removal returns the
//! spare.
//!
//! All operations take O(log n) steps in the worst case; the recursion is at most 1.44 log2(n)
//! deep.

use alloc::boxed::Box;
use core::cmp::Ordering;

use super::{OutOfMemory, try_box};
use tree::{Link, Node, attach, detach, detach_first};

mod tree;

/// Memory for one entry.
pub struct Spare<K, V>(Box<Node<K, V>>);

impl<K, V> Spare<K, V> {
    /// Allocates a spare.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_new() -> Result<Self, OutOfMemory> {
        Ok(Self(try_box(Node { entry: None, height: 1, left: None, right: None })?))
    }
}

impl<K, V> core::fmt::Debug for Spare<K, V> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Spare")
    }
}

/// An ordered map that can fail to grow.
pub struct Map<K, V> {
    root: Link<K, V>,
    length: usize,
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: core::fmt::Debug + Ord, V: core::fmt::Debug> core::fmt::Debug for Map<K, V> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut map = formatter.debug_map();
        self.for_each(|key, value| {
            map.entry(key, value);
        });
        map.finish()
    }
}

impl<K, V> Map<K, V> {
    /// Size of the allocation for one entry.
    pub const ENTRY_BYTES: usize = size_of::<Node<K, V>>();

    /// An empty map; allocates nothing.
    pub const fn new() -> Self {
        Self { root: None, length: 0 }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Calls `each` for every entry, in order.
    pub fn for_each(&self, mut each: impl FnMut(&K, &V)) {
        fn walk<K, V>(link: &Link<K, V>, each: &mut dyn FnMut(&K, &V)) {
            if let Some(node) = link {
                walk(&node.left, each);
                if let Some((key, value)) = &node.entry {
                    each(key, value);
                }
                walk(&node.right, each);
            }
        }
        walk(&self.root, &mut each);
    }

    /// All entries, in order.
    pub fn iter(&self) -> Iter<'_, K, V> {
        let mut iter = Iter { above: [const { None }; HEIGHT_MAX], depth: 0 };
        iter.descend(&self.root);
        iter
    }

    /// The first entry.
    pub fn first(&self) -> Option<(&K, &V)> {
        let mut node = self.root.as_deref()?;
        while let Some(left) = &node.left {
            node = left;
        }
        node.entry()
    }

    /// Removes the first entry.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        let (entry, _) = self.take_first()?;
        Some(entry)
    }

    /// Removes the first entry and returns its memory with it.
    pub fn take_first(&mut self) -> Option<((K, V), Spare<K, V>)> {
        let mut node = detach_first(&mut self.root).0?;
        self.length -= 1;
        Some((node.entry.take()?, Spare(node)))
    }
}

impl<K: Ord, V> Map<K, V> {
    /// Inserts an entry; returns the value it replaces.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the map is unchanged, and key and value are dropped.
    pub fn try_insert(&mut self, key: K, value: V) -> Result<Option<V>, OutOfMemory> {
        if let Some(place) = self.get_mut(&key) {
            return Ok(Some(core::mem::replace(place, value)));
        }
        let spare = Spare::try_new()?;
        self.insert_with(spare, key, value);
        Ok(None)
    }

    /// Inserts an entry without allocating. If the key exists, returns the replaced value and the
    /// unused memory.
    pub fn insert_with(
        &mut self,
        spare: Spare<K, V>,
        key: K,
        value: V,
    ) -> Option<(V, Spare<K, V>)> {
        if let Some(place) = self.get_mut(&key) {
            return Some((core::mem::replace(place, value), spare));
        }
        let mut node = spare.0;
        node.entry = Some((key, value));
        attach(&mut self.root, node);
        self.length += 1;
        None
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.take(key).map(|(value, _)| value)
    }

    /// Removes an entry and returns its memory with it.
    pub fn take(&mut self, key: &K) -> Option<(V, Spare<K, V>)> {
        let mut node = detach(&mut self.root, key).0?;
        self.length -= 1;
        let (_, value) = node.entry.take()?;
        Some((value, Spare(node)))
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        let mut node = self.root.as_deref()?;
        loop {
            node = match node.compare(key) {
                Ordering::Equal => return node.entry().map(|(_, value)| value),
                Ordering::Less => node.left.as_deref()?,
                Ordering::Greater => node.right.as_deref()?,
            };
        }
    }

    /// A mutable reference to the value of a key.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let mut node = self.root.as_deref_mut()?;
        loop {
            node = match node.compare(key) {
                Ordering::Equal => return node.entry.as_mut().map(|(_, value)| value),
                Ordering::Less => node.left.as_deref_mut()?,
                Ordering::Greater => node.right.as_deref_mut()?,
            };
        }
    }

    /// Whether there is an entry with this key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// The first entry with a key not less than `key`.
    pub fn at_or_after(&self, key: &K) -> Option<(&K, &V)> {
        let mut found = None;
        let mut link = self.root.as_deref();
        while let Some(node) = link {
            link = match node.compare(key) {
                Ordering::Equal => return node.entry(),
                Ordering::Less => {
                    found = node.entry();
                    node.left.as_deref()
                }
                Ordering::Greater => node.right.as_deref(),
            };
        }
        found
    }
}

/// Maximum height of a tree: an AVL tree of this height has more nodes than fit into memory.
const HEIGHT_MAX: usize = 48;

/// The entries of a [`Map`], in order.
pub struct Iter<'a, K, V> {
    /// The nodes of which the entry and the right subtree are still to be visited; the next one is
    /// last.
    above: [Option<&'a Node<K, V>>; HEIGHT_MAX],
    depth: usize,
}

impl<'a, K, V> Iter<'a, K, V> {
    /// Pushes the path to the first entry of a tree onto the stack.
    fn descend(&mut self, mut link: &'a Link<K, V>) {
        while let Some(node) = link
            && let Some(place) = self.above.get_mut(self.depth)
        {
            *place = Some(node);
            self.depth += 1;
            link = &node.left;
        }
    }
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        self.depth = self.depth.checked_sub(1)?;
        let node = self.above[self.depth].take()?;
        self.descend(&node.right);
        node.entry()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    /// Checks the tree (sorted, balanced, with correct heights) and returns its height.
    fn check(link: &Link<u16, u32>) -> u8 {
        let Some(node) = link else { return 0 };
        let (left, right) = (check(&node.left), check(&node.right));
        assert!(left.abs_diff(right) <= 1, "out of balance");
        assert_eq!(node.height, left.max(right) + 1);
        node.height
    }

    proptest! {
        #[test]
        fn it_does_what_a_btree_map_does(steps in prop::collection::vec((0..5u8, 0..300u16, any::<u32>()), 0..600)) {
            let (mut map, mut model) = (Map::new(), BTreeMap::new());
            for (what, key, value) in steps {
                match what {
                    0 | 1 => prop_assert_eq!(map.try_insert(key, value), Ok(model.insert(key, value))),
                    2 => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    3 => prop_assert_eq!(map.pop_first(), model.pop_first()),
                    _ => {
                        let next = model.range(key..).next();
                        prop_assert_eq!(map.at_or_after(&key), next);
                        // Moves an entry without allocating.
                        if let Some(&old) = next.map(|(old, _)| old)
                            && let Some((value, spare)) = map.take(&old)
                        {
                            model.remove(&old);
                            let replaced = map.insert_with(spare, key.wrapping_add(7), value);
                            prop_assert_eq!(replaced.map(|(value, _)| value), model.insert(key.wrapping_add(7), value));
                        }
                    }
                }
                check(&map.root);
                prop_assert_eq!(map.len(), model.len());
                prop_assert_eq!(map.first(), model.first_key_value());
                prop_assert_eq!(map.get(&key), model.get(&key));
            }
            let mut all = Vec::new();
            map.for_each(|&key, &value| all.push((key, value)));
            prop_assert!(map.iter().eq(model.iter()));
            prop_assert_eq!(all, model.into_iter().collect::<Vec<_>>());
        }
    }
}
