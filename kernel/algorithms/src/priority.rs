//! Priorities that harts share as bytes, and priorities in keys: the only place where a stored byte
//! becomes a priority.

use core::cmp::Ordering as Comparison;
use core::sync::atomic::{AtomicU8, Ordering};

use cops_abi::Priority;

/// The byte for no priority.
const NONE: u8 = Priority::COUNT as u8;

/// A priority that several harts read and write.
#[derive(Debug)]
pub struct AtomicPriority(AtomicU8);

impl AtomicPriority {
    /// A cell with `priority`.
    pub const fn new(priority: Priority) -> Self {
        Self(AtomicU8::new(priority.level()))
    }

    /// The priority; the load is relaxed.
    #[inline]
    pub fn load(&self) -> Priority {
        from_byte(self.0.load(Ordering::Relaxed))
    }

    /// Replaces the priority; the store is relaxed.
    #[inline]
    pub fn store(&self, priority: Priority) {
        self.0.store(priority.level(), Ordering::Relaxed);
    }

    /// Replaces the priority by `priority` unless it is already less urgent; relaxed.
    #[inline]
    pub fn lower_to(&self, priority: Priority) {
        self.0.fetch_max(priority.level(), Ordering::Relaxed);
    }
}

/// A priority, or none, that several harts read and write.
#[derive(Debug)]
pub struct AtomicOptionalPriority(AtomicU8);

impl AtomicOptionalPriority {
    /// A cell without a priority.
    pub const fn none() -> Self {
        Self(AtomicU8::new(NONE))
    }

    /// The priority, if there is one.
    #[inline]
    pub fn load(&self, ordering: Ordering) -> Option<Priority> {
        Priority::new(self.0.load(ordering))
    }

    /// Replaces the priority.
    #[inline]
    pub fn store(&self, priority: Option<Priority>, ordering: Ordering) {
        self.0.store(priority.map_or(NONE, Priority::level), ordering);
    }

    /// The more urgent of the priority, if there is one, and `own`.
    #[inline]
    pub fn or_more_urgent(&self, own: Priority) -> Priority {
        self.load(Ordering::Relaxed).map_or(own, |other| other.more_urgent_of(own))
    }

    /// Makes the priority at least as urgent as `priority`. Two calls at the same time: one of them
    /// may have no effect.
    #[inline]
    pub fn raise(&self, priority: Priority) {
        self.store(Some(self.or_more_urgent(priority)), Ordering::Relaxed);
    }
}

/// A priority as the first part of a key: the more urgent one is the lesser key, so it comes first.
///
/// [`Priority`] itself has no order, because `<` would mislead the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank(pub Priority);

impl Ord for Rank {
    #[inline]
    fn cmp(&self, other: &Self) -> Comparison {
        self.0.level().cmp(&other.0.level())
    }
}

impl PartialOrd for Rank {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Comparison> {
        Some(self.cmp(other))
    }
}

/// The priority of a byte that one of the cells above has stored.
fn from_byte(byte: u8) -> Priority {
    Priority::saturating(byte.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_priority_is_read_back() {
        let (cell, optional) =
            (AtomicPriority::new(Priority::DEFAULT), AtomicOptionalPriority::none());
        assert_eq!(cell.load(), Priority::DEFAULT);
        assert_eq!(optional.load(Ordering::Relaxed), None);
        for level in 0..Priority::COUNT as u8 {
            let priority = Priority::new(level).unwrap();
            cell.store(priority);
            optional.store(Some(priority), Ordering::Relaxed);
            assert_eq!((cell.load(), optional.load(Ordering::Relaxed)), (priority, Some(priority)));
        }
        optional.store(None, Ordering::Relaxed);
        assert_eq!(optional.load(Ordering::Relaxed), None);
    }

    #[test]
    fn the_more_urgent_rank_comes_first() {
        assert!(Rank(Priority::MOST_URGENT) < Rank(Priority::DEFAULT));
        assert!((Rank(Priority::DEFAULT), 2) < (Rank(Priority::LEAST_URGENT), 1));
        assert!((Rank(Priority::DEFAULT), 1) < (Rank(Priority::DEFAULT), 2));
    }

    #[test]
    fn lowering_never_makes_more_urgent() {
        let cell = AtomicPriority::new(Priority::DEFAULT);
        cell.lower_to(Priority::MOST_URGENT);
        assert_eq!(cell.load(), Priority::DEFAULT);
        cell.lower_to(Priority::LEAST_URGENT);
        assert_eq!(cell.load(), Priority::LEAST_URGENT);
    }
}
