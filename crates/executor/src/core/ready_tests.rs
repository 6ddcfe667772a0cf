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
    // SAFETY: not zero bytes.
    unsafe { alloc_zeroed(Layout::from_size_align(bytes, 64).unwrap()) }
}

extern "C" fn release(_: *mut (), _: *mut u8, _: usize) {}
extern "C" fn notify(_: *mut (), _: u32) {}

pub(crate) fn hooks() -> Hooks {
    Hooks { context: ::core::ptr::null_mut(), grow, release, notify, preempt: None, external: None }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u8),
    Pop,
    Remove(usize),
    /// Push at the most urgent level that is not empty, and pop.
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
                    lists.push(slot, Priority::new(level).unwrap());
                    model[level as usize].push_back(slot.handle());
                }
                Step::Pop => {
                    let popped = lists.pop(&slab);
                    let expected = model.iter_mut().find_map(VecDeque::pop_front);
                    prop_assert_eq!(popped.map(Slot::handle), expected);
                    popped.into_iter().for_each(|slot| slab.recycle(slot));
                }
                Step::Rotate => {
                    let Some(level) = model.iter().position(|list| !list.is_empty()) else { continue };
                    let slot = slab.allocate(0, &hooks).unwrap();
                    let rotation = lists.rotation(Priority::new(level as u8).unwrap()).unwrap();
                    prop_assert!(lists.still(rotation));
                    let first = lists.rotate(&slab, slot, rotation);
                    model[level].push_back(slot.handle());
                    prop_assert_eq!(Some(first.handle()), model[level].pop_front());
                    slab.recycle(first);
                    for other in (0..64).filter(|&other| other != level as u8) {
                        prop_assert!(lists.rotation(Priority::new(other).unwrap()).is_none());
                    }
                }
                Step::Remove(choice) => {
                    let all: Vec<(u8, u32)> = model.iter().enumerate()
                        .flat_map(|(level, list)| list.iter().map(move |&index| (level as u8, index)))
                        .collect();
                    if all.is_empty() {
                        continue;
                    }
                    let (level, index) = all[choice % all.len()];
                    let slot = slab.get(index).unwrap();
                    lists.remove(&slab, slot, Priority::new(level).unwrap());
                    model[level as usize].retain(|&other| other != index);
                    slab.recycle(slot);
                }
            }
            let expected = (0..64).filter(|&level| !model[level].is_empty()).fold(0, |bits, level| bits | 1u64 << level);
            prop_assert_eq!(lists.bitmap(), expected);
            prop_assert_eq!(lists.count() as usize, model.iter().map(VecDeque::len).sum::<usize>());
            let first = model.iter().find_map(VecDeque::front).copied();
            prop_assert_eq!(lists.peek(&slab).map(|(slot, _)| slot.handle()), first);
        }
        for &index in model.iter().flatten() {
            prop_assert_eq!(lists.pop(&slab).map(Slot::handle), Some(index));
        }
        prop_assert_eq!(lists.bitmap(), 0);
    }
}
