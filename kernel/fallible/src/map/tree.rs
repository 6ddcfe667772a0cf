//! The nodes of a [`Map`](super::Map), and how they stay balanced.

use alloc::boxed::Box;
use core::cmp::Ordering;

pub(super) type Link<K, V> = Option<Box<Node<K, V>>>;

/// A node. Outside of a tree it has no subtrees, and the height 1.
pub(super) struct Node<K, V> {
    /// Always `Some` while the node is in a tree.
    pub(super) entry: Option<(K, V)>,
    pub(super) height: u8,
    pub(super) left: Link<K, V>,
    pub(super) right: Link<K, V>,
}

impl<K, V> Node<K, V> {
    pub(super) fn entry(&self) -> Option<(&K, &V)> {
        self.entry.as_ref().map(|(key, value)| (key, value))
    }

    /// Compares `key` with this node's key.
    pub(super) fn compare(&self, key: &K) -> Ordering
    where
        K: Ord,
    {
        self.entry.as_ref().map_or(Ordering::Equal, |(mine, _)| key.cmp(mine))
    }

    /// Height of the left subtree minus that of the right one.
    fn lean(&self) -> i16 {
        i16::from(height(&self.left)) - i16::from(height(&self.right))
    }

    fn update_height(&mut self) {
        self.height = height(&self.left).max(height(&self.right)) + 1;
    }
}

fn height<K, V>(link: &Link<K, V>) -> u8 {
    link.as_ref().map_or(0, |node| node.height)
}

/// Inserts `node`, with a key that is not in the tree. Returns whether the tree's height has
/// changed.
pub(super) fn attach<K: Ord, V>(tree: &mut Link<K, V>, node: Box<Node<K, V>>) -> bool {
    let Some(top) = tree else {
        *tree = Some(node);
        return true;
    };
    let is_before =
        matches!((&node.entry, &top.entry), (Some((key, _)), Some((other, _))) if key < other);
    let side = if is_before { &mut top.left } else { &mut top.right };
    attach(side, node) && balance(tree)
}

/// Removes the node of `key` from the tree. Returns the node, and whether the tree's height has
/// changed.
pub(super) fn detach<K: Ord, V>(tree: &mut Link<K, V>, key: &K) -> (Link<K, V>, bool) {
    let Some(top) = tree else { return (None, false) };
    let side = match top.compare(key) {
        Ordering::Less => &mut top.left,
        Ordering::Greater => &mut top.right,
        Ordering::Equal => {
            let before = top.height;
            let rest = join(top.left.take(), top.right.take());
            top.height = 1;
            return (core::mem::replace(tree, rest), height(tree) != before);
        }
    };
    let (found, has_changed) = detach(side, key);
    (found, has_changed && balance(tree))
}

/// Joins the two subtrees of a removed node.
fn join<K, V>(left: Link<K, V>, mut right: Link<K, V>) -> Link<K, V> {
    if right.is_none() {
        return left;
    }
    let (first, _) = detach_first(&mut right);
    let Some(mut first) = first else { return left };
    (first.left, first.right) = (left, right);
    let mut joined = Some(first);
    balance(&mut joined);
    joined
}

/// Removes the first node from the tree. Returns the node, and whether the tree's height has
/// changed.
pub(super) fn detach_first<K, V>(tree: &mut Link<K, V>) -> (Link<K, V>, bool) {
    let Some(top) = tree else { return (None, false) };
    if top.left.is_some() {
        let (first, has_changed) = detach_first(&mut top.left);
        return (first, has_changed && balance(tree));
    }
    let rest = top.right.take();
    top.height = 1;
    (core::mem::replace(tree, rest), true)
}

/// Restores the balance and the height of the top of a tree of which a subtree has changed its
/// height. Its subtrees differ in height by at most two. Returns whether the tree's height has
/// changed: otherwise the levels above need nothing.
///
/// The nodes stay where they are unless they are rotated: to move each node of the path out of its
/// parent and back costs more than the search.
fn balance<K, V>(tree: &mut Link<K, V>) -> bool {
    let Some(top) = tree else { return false };
    let before = top.height;
    match top.lean() {
        -1..=1 => top.update_height(),
        2.. => {
            if let Some(left) = &mut top.left
                && left.lean() < 0
            {
                top.left = top.left.take().map(rotate_left);
            }
            *tree = tree.take().map(rotate_right);
        }
        _ => {
            if let Some(right) = &mut top.right
                && right.lean() > 0
            {
                top.right = top.right.take().map(rotate_right);
            }
            *tree = tree.take().map(rotate_left);
        }
    }
    height(tree) != before
}

fn rotate_right<K, V>(mut top: Box<Node<K, V>>) -> Box<Node<K, V>> {
    let Some(mut new_top) = top.left.take() else { return top };
    top.left = new_top.right.take();
    top.update_height();
    new_top.right = Some(top);
    new_top.update_height();
    new_top
}

fn rotate_left<K, V>(mut top: Box<Node<K, V>>) -> Box<Node<K, V>> {
    let Some(mut new_top) = top.right.take() else { return top };
    top.right = new_top.left.take();
    top.update_height();
    new_top.left = Some(top);
    new_top.update_height();
    new_top
}
