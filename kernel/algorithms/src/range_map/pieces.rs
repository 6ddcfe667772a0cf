//! What a change of a [`RangeMap`](super::RangeMap) leaves of the spans in its range.

use super::Span;

/// Maximum number of spans that one change inserts: the remainder before the range, the new span,
/// and the remainder behind it.
pub(super) const PIECES: usize = 3;

/// Up to [`PIECES`] spans, in order, neighbours with equal values joined.
pub(super) struct Pieces<V> {
    list: [Option<Span<V>>; PIECES],
    count: usize,
}

impl<V: Copy + Eq> Pieces<V> {
    /// Those of `spans` that exist.
    pub(super) fn of(spans: [Option<Span<V>>; PIECES]) -> Self {
        let mut pieces = Self { list: [const { None }; PIECES], count: 0 };
        spans.into_iter().flatten().for_each(|span| pieces.push(span));
        pieces
    }

    fn push(&mut self, piece: Span<V>) {
        if let Some(last) = self.count.checked_sub(1).and_then(|last| self.list[last].as_mut())
            && last.end == piece.start
            && last.value == piece.value
        {
            last.end = piece.end;
            return;
        }
        self.list[self.count] = Some(piece);
        self.count += 1;
    }

    /// Number of pieces.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Span<V>> {
        self.list[..self.count].iter().flatten()
    }

    pub(super) fn first(&self) -> Option<Span<V>> {
        self.list[0].filter(|_| self.count > 0)
    }

    pub(super) fn last(&self) -> Option<Span<V>> {
        self.list[self.count.checked_sub(1)?]
    }

    /// Extends the first piece downwards.
    pub(super) fn set_first_start(&mut self, start: usize) {
        if let Some(first) = &mut self.list[0] {
            first.start = start;
        }
    }

    /// Removes the last piece, if there is one.
    pub(super) fn drop_last(&mut self) {
        self.count = self.count.saturating_sub(1);
    }
}
