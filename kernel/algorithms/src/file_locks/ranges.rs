//! Disjoint ranges of bytes in order, in a balanced tree (AVL) that is cut and joined.
//!
//! Adjacent ranges are one. Cutting the ranges of any part of a file out takes O(log n) steps, how
//! many they are: the tree is cut at both ends of the part, and the outer trees are joined. The
//! caller gets the tree in the middle, and frees it when that suits it.

use alloc::boxed::Box;

use cops_fallible::{OutOfMemory, try_box};

use super::Range;

type Link = Option<Box<Node>>;

/// A range in a tree.
#[derive(Debug)]
pub(super) struct Node {
    range: Range,
    height: u32,
    /// Number of ranges in this subtree.
    count: u32,
    left: Link,
    right: Link,
}

/// Memory of a range.
pub(super) const NODE_BYTES: usize = size_of::<Node>();

fn height(link: &Link) -> u32 {
    link.as_ref().map_or(0, |node| node.height)
}

fn count(link: &Link) -> u32 {
    link.as_ref().map_or(0, |node| node.count)
}

impl Node {
    /// A range that is in no tree.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(super) fn try_new(range: Range) -> Result<Box<Self>, OutOfMemory> {
        try_box(Self { range, height: 1, count: 1, left: None, right: None })
    }

    fn update(&mut self) {
        self.height = height(&self.left).max(height(&self.right)) + 1;
        self.count = count(&self.left) + count(&self.right) + 1;
    }
}

/// The right child takes the place of its parent.
fn rotate_left(mut node: Box<Node>) -> Box<Node> {
    let Some(mut right) = node.right.take() else { return node };
    node.right = right.left.take();
    node.update();
    right.left = Some(node);
    right.update();
    right
}

/// The left child takes the place of its parent.
fn rotate_right(mut node: Box<Node>) -> Box<Node> {
    let Some(mut left) = node.left.take() else { return node };
    node.left = left.right.take();
    node.update();
    left.right = Some(node);
    left.update();
    left
}

/// Balances a node of which the subtrees are balanced and differ by at most 2 in height.
fn balance(mut node: Box<Node>) -> Box<Node> {
    node.update();
    let (left, right) = (height(&node.left), height(&node.right));
    if left > right + 1 {
        if node.left.as_ref().is_some_and(|left| height(&left.right) > height(&left.left)) {
            node.left = node.left.take().map(rotate_left);
        }
        return rotate_right(node);
    }
    if right > left + 1 {
        if node.right.as_ref().is_some_and(|right| height(&right.left) > height(&right.right)) {
            node.right = node.right.take().map(rotate_right);
        }
        return rotate_left(node);
    }
    node
}

/// The tree of `left`, `middle` and `right`, which are in this order. The steps are as many as the
/// heights differ by.
fn join(left: Link, mut middle: Box<Node>, right: Link) -> Box<Node> {
    let (of_left, of_right) = (height(&left), height(&right));
    if let Some(mut top) = left {
        if of_left > of_right + 1 {
            top.right = Some(join(top.right.take(), middle, right));
            return balance(top);
        }
        middle.left = Some(top);
    } else {
        middle.left = None;
    }
    if let Some(mut top) = right {
        if of_right > of_left + 1 {
            top.left = Some(join(middle.left.take(), middle, top.left.take()));
            return balance(top);
        }
        middle.right = Some(top);
    } else {
        middle.right = None;
    }
    middle.update();
    middle
}

/// Takes the first range out of a tree.
fn take_first(mut node: Box<Node>) -> (Box<Node>, Link) {
    match node.left.take() {
        None => {
            let rest = node.right.take();
            (node, rest)
        }
        Some(left) => {
            let (first, left) = take_first(left);
            node.left = left;
            (first, Some(balance(node)))
        }
    }
}

/// Takes the last range out of a tree.
fn take_last(mut node: Box<Node>) -> (Link, Box<Node>) {
    match node.right.take() {
        None => {
            let rest = node.left.take();
            (rest, node)
        }
        Some(right) => {
            let (right, last) = take_last(right);
            node.right = right;
            (Some(balance(node)), last)
        }
    }
}

/// The tree of `left` and `right`, which are in this order.
fn join_two(left: Link, right: Link) -> Link {
    let Some(right) = right else { return left };
    let (middle, right) = take_first(right);
    Some(join(left, middle, right))
}

/// Cuts a tree into the ranges that end before `at`, and the others.
fn cut(link: Link, at: u64) -> (Link, Link) {
    let Some(mut node) = link else { return (None, None) };
    let (left, right) = (node.left.take(), node.right.take());
    if node.range.last < at {
        let (before, after) = cut(right, at);
        (Some(join(left, node, before)), after)
    } else {
        let (before, after) = cut(left, at);
        (before, Some(join(after, node, right)))
    }
}

/// Disjoint ranges, of which no two are adjacent.
#[derive(Debug, Default)]
pub(super) struct Ranges(Link);

impl Ranges {
    pub(super) const fn new() -> Self {
        Self(None)
    }

    pub(super) fn len(&self) -> usize {
        count(&self.0) as usize
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The number of steps of a search.
    pub(super) fn height(&self) -> usize {
        height(&self.0) as usize
    }

    /// The first range that has a byte of `part`.
    pub(super) fn overlapping(&self, part: Range) -> Option<Range> {
        let mut found = None;
        let mut link = &self.0;
        while let Some(node) = link {
            link = if node.range.last < part.first {
                &node.right
            } else {
                found = Some(node.range);
                &node.left
            };
        }
        found.filter(|range| range.first <= part.last)
    }

    /// Number of ranges that have a byte of `part`.
    pub(super) fn count_in(&self, part: Range) -> usize {
        self.count_before(part.last.saturating_add(1), |range| range.first)
            - self.count_before(part.first, |range| range.last)
    }

    /// Number of ranges of which the byte that `of` names is before `at`.
    fn count_before(&self, at: u64, of: impl Fn(Range) -> u64) -> usize {
        let (mut number, mut link) = (0, &self.0);
        while let Some(node) = link {
            link = if of(node.range) < at {
                number += count(&node.left) as usize + 1;
                &node.right
            } else {
                &node.left
            };
        }
        number
    }

    /// Whether the cut of `part` leaves two pieces of one range, so that it needs a node.
    pub(super) fn is_split_by(&self, part: Range) -> bool {
        self.overlapping(part)
            .is_some_and(|range| range.first < part.first && range.last > part.last)
    }

    /// Cuts the bytes of `part` out. `spare` is used if [`Self::is_split_by`]. Returns the ranges
    /// that are gone.
    pub(super) fn cut_out(&mut self, part: Range, spare: &mut Option<Box<Node>>) -> Ranges {
        let (mut before, rest) = cut(self.0.take(), part.first);
        // No range ends behind the last byte of a file, which is smaller than `u64::MAX`.
        let (mut middle, mut after) = cut(rest, part.last.saturating_add(1));
        // The first range behind may begin in the part, or before it.
        if let Some(tree) = after.take() {
            let (mut node, tree) = take_first(tree);
            if node.range.first < part.first
                && let Some(mut piece) = spare.take()
            {
                piece.range = Range { first: node.range.first, last: part.first - 1 };
                before = Some(join(before, piece, None));
            }
            if node.range.first <= part.last {
                node.range.first = part.last + 1;
            }
            after = Some(join(None, node, tree));
        }
        // The first range in the part may begin before it.
        if let Some(tree) = middle.take() {
            let (mut node, tree) = take_first(tree);
            if node.range.first < part.first {
                node.range.last = part.first - 1;
                before = Some(join(before, node, None));
                middle = tree;
            } else {
                middle = Some(join(None, node, tree));
            }
        }
        self.0 = join_two(before, after);
        Ranges(middle)
    }

    /// Adds the range of `node`, of which no byte is in a range here. Adjacent ranges become one.
    pub(super) fn insert(&mut self, mut node: Box<Node>) {
        let (mut before, mut after) = cut(self.0.take(), node.range.first);
        if let Some(tree) = before.take() {
            let (tree, last) = take_last(tree);
            if last.range.last + 1 == node.range.first {
                node.range.first = last.range.first;
                before = tree;
            } else {
                before = Some(join(tree, last, None));
            }
        }
        if let Some(tree) = after.take() {
            let (first, tree) = take_first(tree);
            if node.range.last.checked_add(1) == Some(first.range.first) {
                node.range.last = first.range.last;
                after = tree;
            } else {
                after = Some(join(None, first, tree));
            }
        }
        self.0 = Some(join(before, node, after));
    }

    /// Frees the first range; returns whether there was one.
    pub(super) fn pop(&mut self) -> bool {
        let Some(tree) = self.0.take() else { return false };
        let (_, rest) = take_first(tree);
        self.0 = rest;
        true
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const BYTES: usize = 96;

    fn check(link: &Link) {
        let Some(node) = link else { return };
        assert!(height(&node.left).abs_diff(height(&node.right)) <= 1, "out of balance");
        assert_eq!(node.height, height(&node.left).max(height(&node.right)) + 1);
        assert_eq!(node.count, count(&node.left) + count(&node.right) + 1);
        check(&node.left);
        check(&node.right);
    }

    fn ranges(link: &Link, all: &mut Vec<Range>) {
        if let Some(node) = link {
            ranges(&node.left, all);
            all.push(node.range);
            ranges(&node.right, all);
        }
    }

    /// The ranges of a model that has a flag for each byte.
    fn of_model(model: &[bool]) -> Vec<Range> {
        let mut all: Vec<Range> = Vec::new();
        for at in (0..model.len()).filter(|&at| model[at]) {
            let byte = at as u64;
            match all.last_mut() {
                Some(range) if range.last + 1 == byte => range.last = byte,
                _ => all.push(Range { first: byte, last: byte }),
            }
        }
        all
    }

    fn verify(ranges_here: &Ranges, model: &[bool]) {
        check(&ranges_here.0);
        let mut all = Vec::new();
        ranges(&ranges_here.0, &mut all);
        assert_eq!(all, of_model(model));
        assert_eq!(ranges_here.len(), all.len());
    }

    proptest! {
        #[test]
        fn it_is_a_set_of_bytes(steps in prop::collection::vec((any::<bool>(), 0..BYTES, 1..20usize), 0..300)) {
            let (mut tree, mut model) = (Ranges::new(), [false; BYTES]);
            for (adds, first, length) in steps {
                let last = (first + length - 1).min(BYTES - 1);
                let part = Range { first: first as u64, last: last as u64 };
                let held = (first..=last).find(|&at| model[at]);
                prop_assert_eq!(tree.overlapping(part).is_some(), held.is_some());
                let within = of_model(&model).into_iter();
                let within = within.filter(|it| it.first <= part.last && part.first <= it.last);
                prop_assert_eq!(tree.count_in(part), within.count());
                let mut spare = if tree.is_split_by(part) { Some(Node::try_new(part).unwrap()) } else { None };
                let before = tree.len();
                let gone = tree.cut_out(part, &mut spare);
                prop_assert!(spare.is_none(), "a node was asked for in vain");
                check(&gone.0);
                model[first..=last].fill(false);
                verify(&tree, &model);
                prop_assert!(tree.len() + gone.len() <= before + 1);
                if adds {
                    tree.insert(Node::try_new(part).unwrap());
                    model[first..=last].fill(true);
                    verify(&tree, &model);
                }
            }
            while tree.pop() {
                check(&tree.0);
            }
            prop_assert!(tree.is_empty());
        }
    }

    #[test]
    fn many_ranges_are_cut_out_at_once() {
        let mut tree = Ranges::new();
        for first in (0..60_000).step_by(2) {
            tree.insert(Node::try_new(Range { first, last: first }).unwrap());
        }
        check(&tree.0);
        assert_eq!(tree.len(), 30_000);
        assert!(tree.height() <= 18, "{}", tree.height());
        let gone = tree.cut_out(Range { first: 10_000, last: 50_000 }, &mut None);
        check(&tree.0);
        check(&gone.0);
        assert_eq!((tree.len(), gone.len()), (9_999, 20_001));
    }
}
