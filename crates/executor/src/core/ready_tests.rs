//! The lists against 64 deques.

use std::alloc::{Layout, alloc_zeroed};
use std::collections::VecDeque;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::core::Hooks;

/// Leaks: a slab never frees, and these are small.
#[allow(unsafe_code)]
extern "C" fn grow(_: *mut (), bytes: usize) -> *mut u8 {
    // SAFETY: the slab never requests zero bytes, which is all that `alloc_zeroed` requires.
    unsafe { alloc_zeroed(Layout::from_size_align(bytes, 64).unwrap()) }
}

extern "C" fn release(_: *mut (), _: *mut u8, _: usize) {}
extern "C" fn notify(_: *mut (), _: u32) {}

pub(crate) fn hooks() -> Hooks {
    Hooks {
        context: ::core::ptr::null_mut(),
        grow,
        release,
        notify,
        preempt: None,
        external: None,
        relax: None,
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u8),
    Pop,
    Remove(usize),
    /// The head of the most urgent list goes to its tail.
    Rotate,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (60u8..64).prop_map(Step::Push),
        1 => Just(Step::Pop),
        1 => any::<usize>().prop_map(Step::Remove),
        2 => Just(Step::Rotate),
    ]
}

proptest! {
    #[test]
    fn lists_are_fifo_and_the_bitmap_tells_the_truth(steps in proptest::collection::vec(step(), 1..200)) {
        let slab = Slab::new();
        let hooks = hooks();
        let lists = ReadyLists::new();
        let mut model: Vec<VecDeque<u32>> = (0..64).map(|_| VecDeque::new()).collect();
        for step in steps {
            match step {
                Step::Push(level) => {
                    let slot = slab.allocate(0, &hooks).unwrap();
                    lists.enqueue(slot, Priority::new(level).unwrap());
                    model[level as usize].push_back(slot.handle());
                }
                Step::Pop => {
                    let Some(level) = Priority::most_urgent_in(lists.bitmap()) else { continue };
                    let (list, expected) = (lists.list(level), &mut model[level.index()]);
                    prop_assert_eq!(Some(list.first(&slab).handle()), expected.pop_front());
                    let next = lists.remove_first(&slab, list, level.bit());
                    prop_assert_eq!(next.map(Slot::handle), expected.front().copied());
                }
                Step::Rotate => {
                    let Some(level) = Priority::most_urgent_in(lists.bitmap()) else { continue };
                    let (list, expected) = (lists.list(level), &mut model[level.index()]);
                    let next = list.first(&slab).next(&slab);
                    list.rotate_to(list.first(&slab), next);
                    expected.rotate_left(1);
                    prop_assert_eq!(Some(next.handle()), expected.front().copied());
                }
                Step::Remove(choice) => {
                    let all: Vec<(u8, u32)> = model.iter().enumerate()
                        .flat_map(|(level, list)| list.iter().map(move |&index| (level as u8, index)))
                        .collect();
                    if all.is_empty() {
                        continue;
                    }
                    let (level, index) = all[choice % all.len()];
                    lists.remove(&slab, slab.get(index).unwrap(), Priority::new(level).unwrap());
                    model[level as usize].retain(|&other| other != index);
                }
            }
            let waits = |level: &u32| !model[*level as usize].is_empty();
            prop_assert_eq!(lists.bitmap(), (0..64).filter(waits).fold(0, |bits, level| bits | 1u64 << level));
            // Each list is a ring, in both directions.
            for level in (0..64).filter(waits) {
                let expected = &model[level as usize];
                let list = lists.list(Priority::saturating(level));
                let mut slot = list.first(&slab);
                prop_assert_eq!(list.last(&slab).handle(), *expected.back().unwrap());
                prop_assert_eq!(slot.is_alone(), expected.len() == 1);
                for (position, &handle) in expected.iter().enumerate() {
                    prop_assert_eq!(slot.handle(), handle);
                    let previous = expected[(position + expected.len() - 1) % expected.len()];
                    prop_assert_eq!(slot.previous.load(Relaxed), previous);
                    slot = slot.next(&slab);
                }
                prop_assert_eq!(slot.handle(), expected[0]);
            }
        }
    }
}
