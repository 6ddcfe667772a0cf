//! A map from ranges of addresses to values: what a process has mapped where.
//!
//! Spans are stored in *leaves* of at most `LEAF` spans; the leaves are in one list. Both are
//! sorted by address. A lookup is a binary search in the list and another in a leaf. A change moves
//! at most one leaf and one list of pointers, whatever the number of spans: 65,530 spans take at
//! most 1,100 leaves. Each leaf records the largest gap between its spans, so a search for a free
//! range examines the spans of few leaves.
//!
//! Neighbours with equal values are merged into one span. Every growth can fail, and then changes
//! nothing.

use cops_fallible::{List, OutOfMemory};
use core::ops::Range;
use pieces::{PIECES, Pieces};

mod pieces;

/// A range with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<V> {
    /// First address.
    pub start: usize,
    /// One past the last.
    pub end: usize,
    /// Its value.
    pub value: V,
}

/// The reason why a range cannot be changed. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeError {
    /// The range is not free.
    Overlap,
    /// There is no memory, or the map has reached its limit of spans.
    OutOfMemory,
}

impl From<OutOfMemory> for RangeError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

struct Leaf<V> {
    /// Never empty, except during a change.
    spans: List<Span<V>>,
    /// The largest gap between two neighbouring spans of the leaf.
    largest_gap: usize,
}

/// A map from ranges to values; see the module. `LEAF` is at least 8.
pub struct RangeMap<V, const LEAF: usize = 160> {
    leaves: List<Leaf<V>>,
    length: usize,
    limit: usize,
}

/// A position: index of a leaf in the list, and index of a span in that leaf.
#[derive(Clone, Copy)]
struct Place {
    leaf: usize,
    index: usize,
}

impl<V: Copy + Eq, const LEAF: usize> RangeMap<V, LEAF> {
    /// An empty map of at most `limit` spans; allocates nothing.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        assert!(LEAF >= 8);
        Self { leaves: List::new(), length: 0, limit }
    }

    /// Number of spans.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether the map has no spans.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The span that contains `address`.
    #[must_use]
    pub fn at(&self, address: usize) -> Option<Span<V>> {
        self.first_above(address).filter(|span| span.start <= address)
    }

    /// The first span that ends above `address`.
    #[must_use]
    pub fn first_above(&self, address: usize) -> Option<Span<V>> {
        self.get(self.place_above(address))
    }

    /// The span with this index, in the order of addresses. Visits all leaves before it.
    #[must_use]
    pub fn nth(&self, mut index: usize) -> Option<Span<V>> {
        for leaf in &self.leaves {
            match leaf.spans.get(index) {
                Some(span) => return Some(*span),
                None => index -= leaf.spans.len(),
            }
        }
        None
    }

    /// The spans in `range`, in order.
    pub fn spans(&self, range: Range<usize>) -> impl Iterator<Item = Span<V>> {
        let mut place = self.place_above(range.start);
        core::iter::from_fn(move || {
            let span = self.get(place).filter(|span| span.start < range.end)?;
            place = self.next(place);
            Some(span)
        })
    }

    /// Gives a value to `range`, which must be free.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub fn insert(&mut self, range: Range<usize>, value: V) -> Result<(), RangeError> {
        if self.first_above(range.start).is_some_and(|span| span.start < range.end) {
            return Err(RangeError::Overlap);
        }
        self.replace(range, Some(value))
    }

    /// Gives all of `range` this value, or removes its values, whatever its spans are. The cost is
    /// proportional to the number of spans in `range`; callers that must be fast pass ranges with
    /// few spans.
    ///
    /// # Errors
    /// [`RangeError::OutOfMemory`]; never if `range` consists of whole spans.
    pub fn replace(&mut self, range: Range<usize>, value: Option<V>) -> Result<(), RangeError> {
        if range.is_empty() {
            return Ok(());
        }
        let (mut count, mut before, mut behind) = (0, None, None);
        for span in self.spans(range.clone()) {
            count += 1;
            if span.start < range.start {
                before = Some(Span { end: range.start, ..span });
            }
            if span.end > range.end {
                behind = Some(Span { start: range.end, ..span });
            }
        }
        let new = value.map(|value| Span { start: range.start, end: range.end, value });
        let pieces = Pieces::of([before, new, behind]);
        if pieces.len() > count && self.length + (pieces.len() - count) > self.limit {
            return Err(RangeError::OutOfMemory);
        }
        let place = self.make_room(range.start, pieces.len(), count)?;
        self.take_out(place, count);
        self.put_in(place, pieces);
        Ok(())
    }

    /// Moves the boundary at the start of `range`, where a span with this value ends and another
    /// one begins that ends behind `range`, to its end. Returns whether there is such a boundary;
    /// otherwise nothing has changed. Allocates nothing.
    #[must_use]
    pub fn move_boundary(&mut self, range: Range<usize>, value: V) -> bool {
        let Some(before) = range.start.checked_sub(1) else { return false };
        let lower = self.place_above(before);
        let upper = self.next(lower);
        let is_lower = |span: Span<V>| span.end == range.start && span.value == value;
        let is_upper = |span: Span<V>| span.start == range.start && span.end > range.end;
        if !self.get(lower).is_some_and(is_lower) || !self.get(upper).is_some_and(is_upper) {
            return false;
        }
        // The gaps of the leaves stay as they are: there is none between the two.
        self.leaves[lower.leaf].spans[lower.index].end = range.end;
        self.leaves[upper.leaf].spans[upper.index].start = range.end;
        true
    }

    /// The lowest address in `range` at which `length` bytes are free within `range`.
    #[must_use]
    pub fn find_gap(&self, range: Range<usize>, length: usize) -> Option<usize> {
        let mut at = range.start;
        for leaf in &self.leaves[self.place_above(at).leaf.min(self.leaves.len())..] {
            let (Some(first), Some(last)) = (leaf.spans.first(), leaf.spans.last()) else {
                continue;
            };
            if at >= range.end {
                return None;
            }
            if first.start.saturating_sub(at) >= length {
                break;
            }
            if leaf.largest_gap >= length {
                for span in &leaf.spans {
                    if span.start.saturating_sub(at) >= length {
                        return Self::fits(at, length, &range);
                    }
                    at = at.max(span.end);
                }
            }
            at = at.max(last.end);
        }
        Self::fits(at, length, &range)
    }

    fn fits(at: usize, length: usize, range: &Range<usize>) -> Option<usize> {
        at.checked_add(length).filter(|&end| end <= range.end).map(|_| at)
    }

    /// Removes the spans of the last leaf. Returns whether there are more. A caller that cannot
    /// afford to drop the whole map at once uses this.
    pub fn clear_some(&mut self) -> bool {
        if let Some(leaf) = self.leaves.pop() {
            self.length -= leaf.spans.len();
        }
        !self.leaves.is_empty()
    }

    // ---- places ---------------------------------------------------------------------------

    /// The position of the first span that ends above `address`; the end of the list if there is
    /// none.
    fn place_above(&self, address: usize) -> Place {
        let ends_below = |leaf: &Leaf<V>| leaf.spans.last().is_none_or(|span| span.end <= address);
        let leaf = self.leaves.partition_point(ends_below);
        match self.leaves.get(leaf) {
            Some(found) => {
                Place { leaf, index: found.spans.partition_point(|span| span.end <= address) }
            }
            None => Place { leaf, index: 0 },
        }
    }

    fn get(&self, place: Place) -> Option<Span<V>> {
        self.leaves.get(place.leaf)?.spans.get(place.index).copied()
    }

    fn next(&self, place: Place) -> Place {
        let in_leaf =
            self.leaves.get(place.leaf).is_some_and(|leaf| place.index + 1 < leaf.spans.len());
        if in_leaf {
            Place { index: place.index + 1, ..place }
        } else {
            Place { leaf: place.leaf + 1, index: 0 }
        }
    }

    // ---- changes --------------------------------------------------------------------------

    /// Makes sure that `pieces` spans can replace `count` spans, beginning with the first span
    /// above `address`. Returns the position of that span, which is in a leaf.
    fn make_room(
        &mut self,
        address: usize,
        pieces: usize,
        count: usize,
    ) -> Result<Place, RangeError> {
        if self.leaves.is_empty() && pieces > 0 {
            let mut spans = List::new();
            spans.try_reserve(1)?;
            self.leaves.try_push(Leaf { spans, largest_gap: 0 })?;
        }
        let mut place = self.place_above(address);
        if let Some(last) = self.leaves.len().checked_sub(1).filter(|&last| place.leaf > last) {
            place = Place { leaf: last, index: self.leaves[last].spans.len() };
        }
        if pieces <= count {
            // The freed positions suffice if they are in this leaf. Of each removed span, one piece
            // less remains.
            let here = self.leaves.get(place.leaf).map_or(0, |leaf| leaf.spans.len() - place.index);
            if pieces <= here {
                return Ok(place);
            }
        }
        if self.leaves[place.leaf].spans.len() + PIECES > LEAF {
            self.split(place.leaf)?;
            let lower = self.leaves[place.leaf].spans.len();
            if place.index > lower {
                place = Place { leaf: place.leaf + 1, index: place.index - lower };
            }
        }
        self.leaves[place.leaf].spans.try_reserve(PIECES)?;
        Ok(place)
    }

    /// Moves the upper half of a leaf to a new leaf after it.
    fn split(&mut self, leaf: usize) -> Result<(), RangeError> {
        self.leaves.try_reserve(1)?;
        let mut upper = List::try_with_capacity(LEAF)?;
        let lower = &mut self.leaves[leaf].spans;
        upper.try_extend_from_slice(&lower[lower.len() / 2..])?;
        lower.truncate(lower.len() / 2);
        self.leaves.try_insert(leaf + 1, Leaf { spans: upper, largest_gap: 0 })?;
        self.refresh(leaf);
        self.refresh(leaf + 1);
        Ok(())
    }

    /// Removes `count` spans beginning at `place`. Also removes later leaves that become empty.
    fn take_out(&mut self, place: Place, count: usize) {
        self.length -= count;
        let Some(first) = self.leaves.get_mut(place.leaf) else { return };
        let here = count.min(first.spans.len() - place.index);
        drop(first.spans.drain_range(place.index..place.index + here));
        let mut left = count - here;
        let mut whole = 0;
        while let Some(leaf) = self.leaves.get_mut(place.leaf + 1 + whole).filter(|_| left > 0) {
            if leaf.spans.len() > left {
                drop(leaf.spans.drain_range(0..left));
                self.refresh(place.leaf + 1 + whole);
                break;
            }
            left -= leaf.spans.len();
            whole += 1;
        }
        drop(self.leaves.drain_range(place.leaf + 1..place.leaf + 1 + whole));
    }

    /// Inserts pieces at `place`, for which there is room, and merges them with their neighbours.
    fn put_in(&mut self, place: Place, mut pieces: Pieces<V>) {
        let Place { mut leaf, mut index } = place;
        if leaf >= self.leaves.len() {
            return;
        }
        // A piece that merges with a neighbour is not inserted.
        let joins =
            |one: &Span<V>, other: &Span<V>| one.end == other.start && one.value == other.value;
        if let Some(first) = pieces.first() {
            let neighbour = match index.checked_sub(1) {
                Some(before) => Some(&mut self.leaves[leaf].spans[before]),
                None => leaf.checked_sub(1).and_then(|before| self.leaves[before].spans.last_mut()),
            };
            if let Some(neighbour) = neighbour.filter(|neighbour| joins(neighbour, &first)) {
                // The neighbour is removed and becomes the first piece, so that it can also merge
                // with the span behind.
                let start = neighbour.start;
                pieces.set_first_start(start);
                self.length -= 1;
                match index.checked_sub(1) {
                    Some(before) => {
                        self.leaves[leaf].spans.remove(before);
                        index = before;
                    }
                    None => {
                        self.leaves[leaf - 1].spans.pop();
                        if self.leaves[leaf - 1].spans.is_empty() {
                            self.leaves.remove(leaf - 1);
                            leaf -= 1;
                        } else {
                            self.refresh(leaf - 1);
                        }
                    }
                }
            }
        }
        if let Some(last) = pieces.last() {
            let here = index < self.leaves[leaf].spans.len();
            let neighbour = if here {
                self.leaves[leaf].spans.get_mut(index)
            } else {
                self.leaves.get_mut(leaf + 1).and_then(|behind| behind.spans.first_mut())
            };
            if let Some(neighbour) = neighbour.filter(|neighbour| joins(&last, neighbour)) {
                neighbour.start = last.start;
                pieces.drop_last();
                if !here {
                    self.refresh(leaf + 1);
                }
            }
        }
        let spans = &mut self.leaves[leaf].spans;
        for (offset, piece) in pieces.iter().enumerate() {
            // `make_room` has reserved the capacity.
            let _ = spans.try_insert(index + offset, *piece);
        }
        self.length += pieces.len();
        self.tidy(leaf);
    }

    /// Removes an empty leaf; merges a leaf with a neighbour if both together are small.
    fn tidy(&mut self, leaf: usize) {
        if self.leaves[leaf].spans.is_empty() {
            self.leaves.remove(leaf);
            return;
        }
        self.refresh(leaf);
        for lower in [Some(leaf), leaf.checked_sub(1)].into_iter().flatten() {
            self.join_with_next(lower);
        }
    }

    fn join_with_next(&mut self, lower: usize) {
        let most = LEAF * 3 / 5;
        let Some(sum) = self
            .leaves
            .get(lower + 1)
            .map(|upper| upper.spans.len() + self.leaves[lower].spans.len())
        else {
            return;
        };
        // Without memory the two leaves stay separate, which is correct too.
        let more = sum - self.leaves[lower].spans.len();
        if sum > most || self.leaves[lower].spans.try_reserve(more).is_err() {
            return;
        }
        let upper = self.leaves.remove(lower + 1);
        let _ = self.leaves[lower].spans.try_extend_from_slice(&upper.spans);
        self.refresh(lower);
    }

    fn refresh(&mut self, leaf: usize) {
        let leaf = &mut self.leaves[leaf];
        let gaps = leaf.spans.windows(2).map(|pair| pair[1].start - pair[0].end);
        leaf.largest_gap = gaps.max().unwrap_or(0);
    }
}
