//! The pages of a file by number: a tree of 64-fold nodes, in which most numbers may be absent.
//!
//! Everything from a page on can be cut off in a few steps, however many pages that are.
//!
//! There is a page below every node. So the nodes are at most `HEIGHT_MAX` times as many as the
//! pages, and the lowest page is found without a search.

use alloc::boxed::Box;

use cops_fallible::{OutOfMemory, try_box};

/// Children of a node, and pages of a leaf.
const FOLD: usize = 64;
const FOLD_BITS: u32 = FOLD.trailing_zeros();
/// Maximum height: numbers below 2^36.
const HEIGHT_MAX: u32 = 6;
/// Page numbers are below this.
pub const PAGES_MAX: u64 = 1 << (FOLD_BITS * HEIGHT_MAX);

/// A node of height 1 has pages, a higher one has nodes.
#[allow(clippy::large_enum_variant, reason = "both are arrays; a node is on the heap")]
enum Children<P> {
    Pages([Option<P>; FOLD]),
    Nodes([Option<Box<Node<P>>>; FOLD]),
}

struct Node<P> {
    /// A bit for each child.
    used: u64,
    children: Children<P>,
}

/// The pages of a file.
pub struct Pages<P> {
    root: Option<Box<Node<P>>>,
    /// Of the root: all numbers are below 64^height.
    height: u32,
}

impl<P> Default for Pages<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> Node<P> {
    fn new(height: u32) -> Result<Box<Self>, OutOfMemory> {
        let children = if height == 1 {
            Children::Pages([const { None }; FOLD])
        } else {
            Children::Nodes([const { None }; FOLD])
        };
        try_box(Self { used: 0, children })
    }

    /// A node of this height with one page below it.
    fn with(number: u64, height: u32, page: P) -> Result<Box<Self>, OutOfMemory> {
        let mut node = Self::new(1)?;
        node.used = 1 << place(number, 1);
        if let Children::Pages(pages) = &mut node.children {
            pages[place(number, 1)] = Some(page);
        }
        for height in 2..=height {
            let mut above = Self::new(height)?;
            above.used = 1 << place(number, height);
            if let Children::Nodes(nodes) = &mut above.children {
                nodes[place(number, height)] = Some(node);
            }
            node = above;
        }
        Ok(node)
    }
}

/// The place of page `number` in a node of this height.
fn place(number: u64, height: u32) -> usize {
    (number >> (FOLD_BITS * (height - 1))) as usize % FOLD
}

impl<P> Pages<P> {
    /// No pages.
    #[must_use]
    pub const fn new() -> Self {
        Self { root: None, height: 0 }
    }

    /// The page with this number.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&P> {
        if number >> (FOLD_BITS * self.height) != 0 {
            return None;
        }
        let (mut node, mut height) = (self.root.as_deref()?, self.height);
        loop {
            let place = place(number, height);
            match &node.children {
                Children::Pages(pages) => return pages[place].as_ref(),
                Children::Nodes(nodes) => node = nodes[place].as_deref()?,
            }
            height -= 1;
        }
    }

    /// As [`Self::get`], to be changed.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut P> {
        if number >> (FOLD_BITS * self.height) != 0 {
            return None;
        }
        let (mut node, mut height) = (self.root.as_deref_mut()?, self.height);
        loop {
            let place = place(number, height);
            match &mut node.children {
                Children::Pages(pages) => return pages[place].as_mut(),
                Children::Nodes(nodes) => node = nodes[place].as_deref_mut()?,
            }
            height -= 1;
        }
    }

    /// The first page with this number or a higher one.
    #[must_use]
    pub fn at_or_after(&self, number: u64) -> Option<(u64, &P)> {
        if number >> (FOLD_BITS * self.height) != 0 {
            return None;
        }
        self.root.as_deref()?.at_or_after(number, self.height)
    }

    /// Puts a page in where there is none, or in the place of one, which is returned.
    ///
    /// # Errors
    /// [`OutOfMemory`], also for a number that no page can have; no page has changed.
    pub fn insert(&mut self, number: u64, page: P) -> Result<Option<P>, OutOfMemory> {
        if number >= PAGES_MAX {
            return Err(OutOfMemory);
        }
        let has_room = |height| number >> (FOLD_BITS * height) == 0;
        let Some(root) = &mut self.root else {
            let height = (1..HEIGHT_MAX).find(|&height| has_room(height)).unwrap_or(HEIGHT_MAX);
            self.root = Some(Node::with(number, height, page)?);
            self.height = height;
            return Ok(None);
        };
        while !has_room(self.height) {
            let above = Node::new(self.height + 1)?;
            let below = core::mem::replace(root, above);
            root.used = 1;
            if let Children::Nodes(nodes) = &mut root.children {
                nodes[0] = Some(below);
            }
            self.height += 1;
        }
        let (mut node, mut height) = (&mut **root, self.height);
        loop {
            let place = place(number, height);
            height -= 1;
            let below = match &mut node.children {
                Children::Pages(pages) => {
                    node.used |= 1 << place;
                    return Ok(pages[place].replace(page));
                }
                Children::Nodes(nodes) => &mut nodes[place],
            };
            match below {
                Some(below) => node = below,
                None => {
                    *below = Some(Node::with(number, height, page)?);
                    node.used |= 1 << place;
                    return Ok(None);
                }
            }
        }
    }

    /// Cuts off the pages from `number` on.
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing has changed.
    pub fn split_off(&mut self, number: u64) -> Result<Self, OutOfMemory> {
        if number == 0 {
            return Ok(core::mem::take(self));
        }
        let height = self.height;
        let Some(root) = self.root.as_deref_mut().filter(|_| number >> (FOLD_BITS * height) == 0)
        else {
            return Ok(Self::new());
        };
        // One node of each height, allocated before anything moves.
        let mut spare: [Option<Box<Node<P>>>; HEIGHT_MAX as usize] = [const { None }; _];
        for height in 1..=height {
            spare[height as usize - 1] = Some(Node::new(height)?);
        }
        let off = root.split(number, height, &mut spare);
        self.drop_empty_root();
        Ok(off.map_or_else(Self::new, |root| Self { root: Some(root), height }))
    }

    /// Takes out the page with this number. Frees the nodes on its way that are empty afterwards.
    pub fn remove(&mut self, number: u64) -> Option<P> {
        if number >> (FOLD_BITS * self.height) != 0 {
            return None;
        }
        let page = self.root.as_deref_mut()?.remove(number, self.height);
        self.drop_empty_root();
        page
    }

    /// Takes out a page, the lowest; `None` if there is none left. Frees at most one node of each
    /// height.
    pub fn pop(&mut self) -> Option<P> {
        let page = self.root.as_deref_mut()?.pop();
        self.drop_empty_root();
        page
    }

    /// After pages have been taken out.
    fn drop_empty_root(&mut self) {
        if self.root.as_ref().is_some_and(|root| root.used == 0) {
            *self = Self::new();
        }
    }
}

impl<P> Node<P> {
    /// Moves the children from page `number` on into a node of the same height, and returns it,
    /// unless there are none. Frees the nodes below that are empty afterwards.
    fn split(
        &mut self,
        number: u64,
        height: u32,
        spare: &mut [Option<Box<Self>>],
    ) -> Option<Box<Self>> {
        let mut off = spare.get_mut(height as usize - 1)?.take()?;
        let at = place(number, height);
        let above = u64::MAX << at;
        match (&mut self.children, &mut off.children) {
            (Children::Pages(mine), Children::Pages(others)) => {
                for place in at..FOLD {
                    others[place] = mine[place].take();
                }
                off.used = self.used & above;
                self.used &= !above;
            }
            (Children::Nodes(mine), Children::Nodes(others)) => {
                let within = mine[at].as_deref_mut();
                let part = within.and_then(|node| node.split(number, height - 1, spare));
                mine[at].take_if(|node| node.used == 0);
                let stays = u64::from(mine[at].is_some()) << at;
                for place in at + 1..FOLD {
                    others[place] = mine[place].take();
                }
                off.used = self.used & above & !(1 << at) | u64::from(part.is_some()) << at;
                others[at] = part;
                self.used = self.used & !above | stays;
            }
            // Both have the same height.
            _ => return None,
        }
        Some(off).filter(|off| off.used != 0)
    }

    /// The first page below this node with a number of at least `number`, which is below the node.
    fn at_or_after(&self, number: u64, height: u32) -> Option<(u64, &P)> {
        let at = place(number, height);
        let mut used = self.used & u64::MAX << at;
        while used != 0 {
            let child = used.trailing_zeros() as usize;
            used &= used - 1;
            // The first number below that child.
            let above = number >> (FOLD_BITS * height) << (FOLD_BITS * height);
            let first = above | (child as u64) << (FOLD_BITS * (height - 1));
            let found = match &self.children {
                Children::Pages(pages) => pages[child].as_ref().map(|page| (first, page)),
                // Only the first child can have no such page.
                Children::Nodes(nodes) => nodes[child]
                    .as_deref()
                    .and_then(|node| node.at_or_after(number.max(first), height - 1)),
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Takes out a page below this node, and frees those below that are empty then.
    fn remove(&mut self, number: u64, height: u32) -> Option<P> {
        let place = place(number, height);
        let (page, is_empty) = match &mut self.children {
            Children::Pages(pages) => (pages[place].take(), true),
            Children::Nodes(nodes) => {
                let node = nodes[place].as_deref_mut()?;
                let page = node.remove(number, height - 1);
                let is_empty = node.used == 0;
                if is_empty {
                    nodes[place] = None;
                }
                (page, is_empty)
            }
        };
        if is_empty {
            self.used &= !(1 << place);
        }
        page
    }

    /// Takes out the lowest page below this node, and frees the nodes below that are empty then.
    fn pop(&mut self) -> Option<P> {
        let place = self.used.trailing_zeros() as usize;
        match &mut self.children {
            Children::Pages(pages) => {
                let page = pages.get_mut(place)?.take();
                self.used &= self.used.wrapping_sub(1);
                page
            }
            Children::Nodes(nodes) => {
                let below = nodes.get_mut(place)?;
                let page = below.as_deref_mut().and_then(Self::pop);
                if below.as_ref().is_none_or(|node| node.used == 0) {
                    *below = None;
                    self.used &= self.used.wrapping_sub(1);
                }
                page
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    fn drained(pages: &mut Pages<u32>) -> Vec<u32> {
        core::iter::from_fn(|| pages.pop()).collect()
    }

    impl Pages<u32> {
        /// How many nodes and pages there are. No node is empty.
        fn count(&self) -> (usize, usize) {
            assert_eq!(self.root.is_some(), self.height > 0);
            self.root.as_ref().map_or((0, 0), |root| root.count())
        }
    }

    impl Node<u32> {
        fn count(&self) -> (usize, usize) {
            assert_ne!(self.used, 0, "an empty node");
            let bit = |place: usize, is_there: bool| u64::from(is_there) << place;
            match &self.children {
                Children::Pages(pages) => {
                    let bits = pages.iter().enumerate().map(|(at, page)| bit(at, page.is_some()));
                    assert_eq!(self.used, bits.sum());
                    (1, self.used.count_ones() as usize)
                }
                Children::Nodes(nodes) => {
                    let bits = nodes.iter().enumerate().map(|(at, node)| bit(at, node.is_some()));
                    assert_eq!(self.used, bits.sum());
                    let below = nodes.iter().flatten().map(|node| node.count());
                    below.fold((1, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1))
                }
            }
        }
    }

    /// Numbers at which nodes of all heights begin and end.
    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..200u64,
            (0..5u32, 0..130u64).prop_map(|(height, off)| (1u64 << (6 * height)) + off - 1),
            0..PAGES_MAX,
        ]
    }

    proptest! {
        #[test]
        fn it_does_what_a_map_does(steps in prop::collection::vec((0..8u8, number(), any::<u32>()), 1..120)) {
            let (mut pages, mut model) = (Pages::new(), BTreeMap::new());
            for (what, number, value) in steps {
                match what {
                    0..4 => prop_assert_eq!(pages.insert(number, value), Ok(model.insert(number, value))),
                    4 => {
                        let mut off = pages.split_off(number).unwrap();
                        let expected: Vec<u32> = model.split_off(&number).into_values().collect();
                        prop_assert_eq!(off.count().1, expected.len());
                        prop_assert_eq!(drained(&mut off), expected);
                        prop_assert!(off.root.is_none());
                    }
                    5 => prop_assert_eq!(pages.remove(number), model.remove(&number)),
                    6 => {
                        let next = model.range(number..).next().map(|(&number, _)| number);
                        let removed = next.and_then(|next| pages.remove(next));
                        prop_assert_eq!(removed, next.and_then(|next| model.remove(&next)));
                    }
                    _ => {
                        let lowest = model.pop_first().map(|(_, value)| value);
                        prop_assert_eq!(pages.pop(), lowest);
                    }
                }
                let (nodes, count) = pages.count();
                prop_assert_eq!(count, model.len());
                prop_assert!(nodes <= HEIGHT_MAX as usize * count);
                prop_assert_eq!(pages.get(number), model.get(&number));
                prop_assert_eq!(pages.get_mut(number), model.get_mut(&number));
                let next = model.range(number..).next().map(|(&number, value)| (number, value));
                prop_assert_eq!(pages.at_or_after(number), next);
            }
            let mut others = Pages::new();
            for (&number, &value) in &model {
                prop_assert_eq!(others.insert(number, value), Ok(None));
            }
            for (&number, &value) in &model {
                prop_assert_eq!(others.remove(number), Some(value));
            }
            prop_assert!(others.root.is_none());
            let expected: Vec<u32> = model.into_values().collect();
            prop_assert_eq!(drained(&mut pages), expected);
            prop_assert!(pages.root.is_none());
        }
    }

    #[test]
    fn nothing_is_left_of_pages_that_are_cut_off() {
        let mut pages = Pages::new();
        for number in (64..64 * 200).step_by(64) {
            assert_eq!(pages.insert(number, 1), Ok(None));
            assert_eq!(drained(&mut pages.split_off(number).unwrap()), [1]);
            assert_eq!(pages.count(), (0, 0));
        }
    }

    #[test]
    fn a_number_that_no_page_can_have() {
        let mut pages = Pages::new();
        assert_eq!(pages.insert(PAGES_MAX, 0), Err(OutOfMemory));
        assert_eq!(pages.insert(PAGES_MAX - 1, 1), Ok(None));
        assert_eq!((pages.get(PAGES_MAX - 1), pages.get(u64::MAX)), (Some(&1), None));
    }
}
