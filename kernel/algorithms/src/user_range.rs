//! Ranges of a program's addresses, as a program gives them in its system calls.
//!
//! The arithmetic of such a range is checked once, when the range is made: no later computation
//! with it can overflow or leave the program's half of the address space. Whether memory is mapped
//! there, and with which rights, is for the address space to check at each access.

use core::ops::Range;

use cops_abi::layout::{PAGE_BYTES, STACK_TOP, USER_END, USER_START};

/// A range of addresses in the program's half of the address space. It may be empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserRange {
    address: usize,
    length: usize,
}

/// The part of a [`UserRange`] that is in one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Address of its first byte.
    pub address: usize,
    /// Offset of its first byte from the start of the range.
    pub offset: usize,
    /// Number of its bytes, at least one.
    pub length: usize,
}

impl UserRange {
    /// The `length` bytes at `address`; `None` if they are not all in the program's half.
    pub const fn new(address: usize, length: usize) -> Option<Self> {
        match address.checked_add(length) {
            Some(end) if end <= USER_END => Some(Self { address, length }),
            _ => None,
        }
    }

    /// The address of the first byte.
    pub const fn address(self) -> usize {
        self.address
    }

    /// The number of bytes.
    pub const fn len(self) -> usize {
        self.length
    }

    /// Whether the range has no bytes.
    pub const fn is_empty(self) -> bool {
        self.length == 0
    }

    /// The first `length` bytes, or all if there are fewer.
    #[must_use]
    pub const fn prefix(self, length: usize) -> Self {
        Self {
            address: self.address,
            length: if length < self.length { length } else { self.length },
        }
    }

    /// What is behind the first `length` bytes; empty if there are no more.
    #[must_use]
    pub const fn after(self, length: usize) -> Self {
        let length = if length < self.length { length } else { self.length };
        Self { address: self.address + length, length: self.length - length }
    }

    /// The parts of the range, page by page.
    pub fn parts(self) -> impl Iterator<Item = Part> {
        let mut offset = 0;
        core::iter::from_fn(move || {
            let address = self.address + offset;
            let length = (PAGE_BYTES - address % PAGE_BYTES).min(self.length - offset);
            let part = Part { address, offset, length };
            offset += length;
            (length > 0).then_some(part)
        })
    }
}

/// The pages that a program names in `munmap` or `mprotect`: from a page boundary on, at least one,
/// with the length rounded up. `None` if they are not all where a program has its own mappings,
/// which excludes the pages that the kernel shares with it.
pub const fn own_pages(address: usize, length: usize) -> Option<Range<usize>> {
    if length == 0 || address < USER_START || !address.is_multiple_of(PAGE_BYTES) {
        return None;
    }
    let Some(length) = length.checked_next_multiple_of(PAGE_BYTES) else { return None };
    match address.checked_add(length) {
        Some(end) if end <= STACK_TOP => Some(address..end),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn a_range_ends_at_the_end_of_the_programs_half_at_the_latest() {
        assert!(UserRange::new(0, USER_END).is_some());
        assert!(UserRange::new(USER_END - 1, 1).is_some());
        assert!(UserRange::new(USER_END, 0).is_some());
        assert!(UserRange::new(0, USER_END + 1).is_none());
        assert!(UserRange::new(USER_END - 1, 2).is_none());
        assert!(UserRange::new(USER_END + 1, 0).is_none());
    }

    #[test]
    fn a_range_does_not_wrap_around() {
        assert!(UserRange::new(usize::MAX, 1).is_none());
        assert!(UserRange::new(usize::MAX, usize::MAX).is_none());
        assert!(UserRange::new(2, usize::MAX).is_none());
        assert!(UserRange::new(PAGE_BYTES, usize::MAX - PAGE_BYTES + 1).is_none());
    }

    #[test]
    fn a_prefix_is_never_longer_than_its_range() {
        let range = UserRange::new(PAGE_BYTES, 10).unwrap();
        assert_eq!(range.prefix(3), UserRange::new(PAGE_BYTES, 3).unwrap());
        assert_eq!(range.prefix(11), range);
        assert!(range.prefix(0).is_empty() && !range.is_empty());
    }

    #[test]
    fn a_prefix_and_what_is_after_it_are_the_range() {
        let range = UserRange::new(PAGE_BYTES, 10).unwrap();
        assert_eq!(range.after(3), UserRange::new(PAGE_BYTES + 3, 7).unwrap());
        assert_eq!(range.after(0), range);
        assert_eq!(range.after(10), UserRange::new(PAGE_BYTES + 10, 0).unwrap());
        assert_eq!(range.after(usize::MAX), range.after(10));
    }

    #[test]
    fn own_pages_are_whole_pages_below_the_shared_ones() {
        assert_eq!(own_pages(USER_START, 1), Some(USER_START..USER_START + PAGE_BYTES));
        assert_eq!(
            own_pages(STACK_TOP - PAGE_BYTES, PAGE_BYTES),
            Some(STACK_TOP - PAGE_BYTES..STACK_TOP)
        );
        assert_eq!(own_pages(USER_START, 0), None);
        assert_eq!(own_pages(USER_START + 1, PAGE_BYTES), None);
        assert_eq!(own_pages(USER_START - PAGE_BYTES, PAGE_BYTES), None);
        assert_eq!(own_pages(STACK_TOP - PAGE_BYTES, PAGE_BYTES + 1), None);
        assert_eq!(own_pages(USER_START, usize::MAX), None);
        assert_eq!(own_pages(usize::MAX - PAGE_BYTES + 1, PAGE_BYTES), None);
    }

    /// Values around page boundaries, the end of the program's half, and the largest number.
    fn numbers() -> impl Strategy<Value = usize> {
        let near = |base: usize| (0usize..3 * PAGE_BYTES).prop_map(move |n| base.saturating_add(n));
        prop_oneof![
            near(0),
            near(USER_END - PAGE_BYTES),
            near(usize::MAX - 2 * PAGE_BYTES),
            any::<usize>()
        ]
    }

    proptest! {
        #[test]
        fn new_accepts_exactly_the_ranges_in_the_programs_half(address in numbers(), length in numbers()) {
            let is_within = address as u128 + length as u128 <= USER_END as u128;
            let range = UserRange::new(address, length);
            prop_assert_eq!(range.is_some(), is_within);
            if let Some(range) = range {
                prop_assert_eq!((range.address(), range.len()), (address, length));
            }
        }

        #[test]
        fn parts_cover_the_range_once_and_stay_in_their_pages(
            address in 0..USER_END - 5 * PAGE_BYTES,
            length in 0..5 * PAGE_BYTES,
        ) {
            let parts: Vec<_> = UserRange::new(address, length).unwrap().parts().collect();
            let mut covered = 0;
            for (index, part) in parts.iter().enumerate() {
                prop_assert_eq!((part.offset, part.address), (covered, address + covered));
                prop_assert!(part.length > 0);
                prop_assert_eq!(part.address / PAGE_BYTES, (part.address + part.length - 1) / PAGE_BYTES);
                prop_assert!(index == 0 || part.address.is_multiple_of(PAGE_BYTES));
                covered += part.length;
            }
            prop_assert_eq!(covered, length);
        }
    }
}
