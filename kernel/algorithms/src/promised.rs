//! Which pages of a program are charged when they are mapped, and which on first access.

use core::ops::Range;

use cops_abi::layout::{MAP_END, PAGE_BYTES, STACK_STRIDE, STACK_TOP, USER_START};
use cops_abi::page::MAX_CPUS;

/// Bytes at the top of every stack that are charged when the stack is mapped.
const STACK_PROMISED_BYTES: usize = 64 * 1024;

/// Areas where pages are charged when they are mapped: the program, the mmap area, the tops of the
/// stacks. Deeper pages of a stack are charged on first access.
fn promised_areas() -> impl Iterator<Item = Range<usize>> {
    let stacks = (0..MAX_CPUS).map(|index| {
        let top = STACK_TOP - index * STACK_STRIDE;
        top - STACK_PROMISED_BYTES..top
    });
    core::iter::once(USER_START..MAP_END).chain(stacks)
}

/// Whether the page around `address` is charged when it is mapped.
#[must_use]
pub fn is_promised(address: usize) -> bool {
    promised_areas().any(|area| area.contains(&address))
}

/// Number of pages of `range` that are charged when they are mapped.
#[must_use]
pub fn promised_pages(range: &Range<usize>) -> usize {
    let within =
        |area: Range<usize>| area.end.min(range.end).saturating_sub(area.start.max(range.start));
    promised_areas().map(within).sum::<usize>() / PAGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use cops_abi::layout::{STACK_BYTES, USER_END};
    use proptest::prelude::*;

    #[test]
    fn the_program_and_the_tops_of_the_stacks_are_promised() {
        for index in [0, 1, MAX_CPUS - 1] {
            let top = STACK_TOP - index * STACK_STRIDE;
            assert_eq!(
                promised_pages(&(top - STACK_BYTES..top)),
                STACK_PROMISED_BYTES / PAGE_BYTES
            );
            assert!(is_promised(top - 1) && !is_promised(top - STACK_PROMISED_BYTES - 1));
        }
        assert!(is_promised(USER_START) && is_promised(MAP_END - 1));
        assert!(!is_promised(USER_START - 1) && !is_promised(MAP_END));
    }

    proptest! {
        // The charge for a range and that for its pages, one by one, are the same.
        #[test]
        fn a_range_is_charged_as_its_pages_are(
            around in prop_oneof![
                Just(USER_START), Just(MAP_END), Just(STACK_TOP),
                (0..MAX_CPUS).prop_map(|index| STACK_TOP - index * STACK_STRIDE - STACK_PROMISED_BYTES),
            ],
            before in 0..64usize,
            count in 1..128usize,
        ) {
            let start = (around / PAGE_BYTES).saturating_sub(before) * PAGE_BYTES;
            let range = start..(start + count * PAGE_BYTES).min(USER_END);
            let single = range.clone().step_by(PAGE_BYTES).filter(|&page| is_promised(page)).count();
            prop_assert_eq!(promised_pages(&range), single);
        }
    }
}
