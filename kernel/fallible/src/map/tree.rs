//! The nodes of a [`Map`](super::Map), and how they stay balanced.

use alloc::boxed::Box;
use core::cmp::Ordering;

pub(super) type Link<K, V> = Option<Box<Node<K, V>>>;

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

pub(super) fn attach<K: Ord, V>(tree: Link<K, V>, node: Box<Node<K, V>>) -> Box<Node<K, V>> {
    let Some(mut top) = tree else {
        return leaf(node);
    };
    let is_before =
        matches!((&node.entry, &top.entry), (Some((key, _)), Some((other, _))) if key < other);
    let side = if is_before { &mut top.left } else { &mut top.right };
    *side = Some(attach(side.take(), node));
    balance(top)
}

/// The node without subtrees.
fn leaf<K, V>(mut node: Box<Node<K, V>>) -> Box<Node<K, V>> {
    (node.height, node.left, node.right) = (1, None, None);
    node
}

/// Removes the node of `key` from the tree. Returns the node and the rest of the tree.
pub(super) fn detach<K: Ord, V>(tree: Link<K, V>, key: &K) -> (Link<K, V>, Link<K, V>) {
    let Some(mut top) = tree else { return (None, None) };
    let side = match top.compare(key) {
        Ordering::Less => &mut top.left,
        Ordering::Greater => &mut top.right,
        Ordering::Equal => {
            let rest = join(top.left.take(), top.right.take());
            return (Some(leaf(top)), rest);
        }
    };
    let (found, rest) = detach(side.take(), key);
    *side = rest;
    (found, Some(balance(top)))
}

/// Joins the two subtrees of a removed node.
fn join<K, V>(left: Link<K, V>, right: Link<K, V>) -> Link<K, V> {
    let Some(right) = right else { return left };
    let (mut first, rest) = detach_first(right);
    first.left = left;
    first.right = rest;
    Some(balance(first))
}

pub(super) fn detach_first<K, V>(mut top: Box<Node<K, V>>) -> (Box<Node<K, V>>, Link<K, V>) {
    match top.left.take() {
        None => {
            let rest = top.right.take();
            (leaf(top), rest)
        }
        Some(left) => {
            let (first, rest) = detach_first(left);
            top.left = rest;
            (first, Some(balance(top)))
        }
    }
}

/// Restores the balance of `top`. Its subtrees differ in height by at most two.
fn balance<K, V>(mut top: Box<Node<K, V>>) -> Box<Node<K, V>> {
    match top.lean() {
        2.. => {
            if let Some(left) = top.left.take() {
                top.left = Some(if left.lean() < 0 { rotate_left(left) } else { left });
            }
            rotate_right(top)
        }
        ..=-2 => {
            if let Some(right) = top.right.take() {
                top.right = Some(if right.lean() > 0 { rotate_right(right) } else { right });
            }
            rotate_left(top)
        }
        _ => {
            top.update_height();
            top
        }
    }
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
