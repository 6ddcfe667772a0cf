//! Priorities: 64 levels, 0 the most urgent, and bitmaps of them.

use ::core::fmt;

/// How urgent a coroutine is: a level from 0, the most urgent, to 63, the least.
///
/// There is no `Ord` on purpose: since 0 is the most urgent, `<` would mislead every reader.
///
/// ```
/// use cops_executor::Priority;
/// let urgent = Priority::new(3).unwrap();
/// assert!(urgent.is_more_urgent_than(Priority::DEFAULT));
/// assert!(Priority::new(64).is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Priority(u8);

impl Priority {
    /// The number of levels.
    ///
    /// ```
    /// # use cops_executor::Priority;
    /// assert_eq!(Priority::LEAST_URGENT.level() as u32, Priority::COUNT - 1);
    /// ```
    pub const COUNT: u32 = 64;
    /// Level 0.
    ///
    /// ```
    /// # use cops_executor::Priority;
    /// assert_eq!(Priority::new(0), Some(Priority::MOST_URGENT));
    /// ```
    pub const MOST_URGENT: Priority = Priority(0);
    /// Level 32: the priority of a coroutine for which no other was requested.
    ///
    /// ```
    /// # use cops_executor::Priority;
    /// assert_eq!(Priority::default(), Priority::DEFAULT);
    /// ```
    pub const DEFAULT: Priority = Priority(32);
    /// Level 63.
    ///
    /// ```
    /// # use cops_executor::Priority;
    /// assert_eq!(Priority::new(63), Some(Priority::LEAST_URGENT));
    /// ```
    pub const LEAST_URGENT: Priority = Priority(63);

    /// The priority of `level`, or `None` if it is above 63.
    ///
    /// ```
    /// # use cops_executor::Priority;
    /// assert_eq!(Priority::new(7).map(Priority::level), Some(7));
    /// assert_eq!(Priority::new(64), None);
    /// ```
    pub const fn new(level: u8) -> Option<Priority> {
        if level < Self::COUNT as u8 { Some(Priority(level)) } else { None }
    }

    /// The priority of `level`, with everything above 63 taken as 63.
    ///
    /// ```
    /// # use cops_executor::Priority;
    /// assert_eq!(Priority::saturating(7).level(), 7);
    /// assert_eq!(Priority::saturating(700), Priority::LEAST_URGENT);
    /// ```
    pub const fn saturating(level: u32) -> Priority {
        if level < Self::COUNT { Priority(level as u8) } else { Self::LEAST_URGENT }
    }

    /// The level, 0 to 63.
    ///
    /// ```
    /// # use cops_executor::Priority;
    /// assert_eq!(Priority::DEFAULT.level(), 32);
    /// ```
    pub const fn level(self) -> u8 {
        self.0
    }

    /// Whether `self` is strictly more urgent than `other`.
    ///
    /// ```
    /// # use cops_executor::Priority;
    /// assert!(Priority::MOST_URGENT.is_more_urgent_than(Priority::DEFAULT));
    /// assert!(!Priority::DEFAULT.is_more_urgent_than(Priority::DEFAULT));
    /// ```
    pub const fn is_more_urgent_than(self, other: Priority) -> bool {
        self.0 < other.0
    }

    /// The more urgent of two.
    ///
    /// ```
    /// # use cops_executor::Priority;
    /// assert_eq!(Priority::DEFAULT.more_urgent_of(Priority::MOST_URGENT), Priority::MOST_URGENT);
    /// ```
    pub const fn more_urgent_of(self, other: Priority) -> Priority {
        if other.is_more_urgent_than(self) { other } else { self }
    }

    /// This level's bit in a bitmap of levels.
    ///
    /// ```
    /// # use cops_executor::Priority;
    /// assert_eq!(Priority::new(3).unwrap().bit(), 0b1000);
    /// ```
    pub const fn bit(self) -> u64 {
        1 << (self.0 & 63)
    }

    /// The most urgent level with its bit set in `bitmap`, `None` if no bit is.
    ///
    /// ```
    /// # use cops_executor::Priority;
    /// assert_eq!(Priority::most_urgent_in(0b1100).map(Priority::level), Some(2));
    /// assert_eq!(Priority::most_urgent_in(0), None);
    /// ```
    pub const fn most_urgent_in(bitmap: u64) -> Option<Priority> {
        if bitmap == 0 { None } else { Some(Priority(bitmap.trailing_zeros() as u8)) }
    }

    /// A level from the low six bits: every value is valid, so nothing is checked.
    pub(crate) const fn from_bits(bits: u64) -> Priority {
        Priority((bits & 63) as u8)
    }

    /// The level as an index that is visibly below 64, so that no bounds check remains.
    pub(crate) const fn index(self) -> usize {
        (self.0 & 63) as usize
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Debug for Priority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Priority({})", self.0)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgency_is_the_opposite_of_the_number() {
        assert!(Priority::MOST_URGENT.is_more_urgent_than(Priority::DEFAULT));
        assert!(Priority::DEFAULT.is_more_urgent_than(Priority::LEAST_URGENT));
        assert!(!Priority::DEFAULT.is_more_urgent_than(Priority::DEFAULT));
        assert_eq!(Priority::DEFAULT.more_urgent_of(Priority(3)), Priority(3));
        assert_eq!(Priority(3).more_urgent_of(Priority::DEFAULT), Priority(3));
    }

    #[test]
    fn only_64_levels_exist() {
        assert_eq!(Priority::new(63), Some(Priority::LEAST_URGENT));
        assert_eq!(Priority::new(64), None);
        assert_eq!(Priority::saturating(1000), Priority::LEAST_URGENT);
    }

    #[test]
    fn bitmaps_find_the_lowest_level() {
        assert_eq!(Priority::most_urgent_in(0), None);
        for level in 0..64 {
            let priority = Priority::new(level).unwrap();
            assert_eq!(Priority::most_urgent_in(priority.bit() | 1 << 63), Some(priority));
        }
    }
}
