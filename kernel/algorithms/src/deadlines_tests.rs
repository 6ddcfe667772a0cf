//! Deadlines compared with a list, and the promises to owners that wait.

use super::*;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proptest::prelude::*;

fn priority(level: u8) -> Priority {
    Priority::new(level).unwrap()
}

#[test]
fn an_urgent_deadline_overtakes_earlier_ones_that_are_less_urgent() {
    let mut deadlines = Deadlines::new();
    for count in 0..4000 {
        deadlines.insert(Priority::LEAST_URGENT, 1, 10, count).unwrap();
    }
    let key = deadlines.insert(Priority::DEFAULT, 1, 20, 9999).unwrap();
    assert!(deadlines.set_priority(key, priority(5)).is_some());
    assert!(deadlines.set_priority(key, priority(6)).is_none());
    assert_eq!(deadlines.next_after(10), Some(20));
    assert_eq!(deadlines.pop_due(15), Some(0));
    assert_eq!(deadlines.pop_due(20), Some(9999));
    assert_eq!(deadlines.pop_due(20), Some(1));
    assert_eq!(deadlines.next_after(20), None);
}

#[test]
fn a_deadline_does_not_wait_for_the_crowd_of_another_owner() {
    let mut deadlines = Deadlines::new();
    for count in 0..4000 {
        deadlines.insert(Priority::DEFAULT, 1, 10, count).unwrap();
    }
    deadlines.insert(Priority::DEFAULT, 2, 20, 9999).unwrap();
    for now in 10..20 {
        assert!(deadlines.pop_due(now).unwrap() < 10);
    }
    // Its deadline is the last one, and all others are due.
    assert_eq!(deadlines.pop_due(20), Some(9999));
    assert_eq!(deadlines.pop_due(20), Some(10));
}

#[test]
fn owners_that_come_again_with_old_deadlines_come_after_those_that_wait() {
    let mut deadlines = Deadlines::new();
    deadlines.insert(Priority::DEFAULT, 9, 50, 9).unwrap();
    let (mut served, mut owner) = (Vec::new(), 1);
    while served.len() < 6 {
        deadlines.insert(Priority::DEFAULT, owner, 10, owner).unwrap();
        served.push(deadlines.pop_due(60).unwrap());
        owner = 3 - owner;
    }
    assert!(served[..3].contains(&9), "{served:?}");
}

#[test]
fn owners_take_turns_even_if_no_time_passes() {
    let mut deadlines = Deadlines::new();
    for count in 0..30 {
        deadlines.insert(Priority::DEFAULT, count % 3, 10, count % 3).unwrap();
    }
    let order: Vec<_> = core::iter::from_fn(|| deadlines.pop_due(10)).collect();
    for round in order.chunks(3) {
        assert_eq!(round, [0, 1, 2], "{order:?}");
    }
    assert_eq!(order.len(), 30);
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u32, u64),
    Remove(usize),
    SetLevel(usize, u8),
    Pop,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4u8, 0..4u32, 0..50u64).prop_map(|(level, owner, after)| Step::Insert(level * 20, owner, after)),
        2 => (0..100usize).prop_map(Step::Remove),
        1 => (0..100usize, 0..4u8).prop_map(|(id, level)| Step::SetLevel(id, level * 20)),
        6 => Just(Step::Pop),
        2 => (0..20u64).prop_map(Step::Wait),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Modelled {
    level: u8,
    owner: u32,
    deadline: u64,
    id: usize,
    /// Entries are ordered by when they came to their level.
    number: usize,
    /// Pops of other owners at its level since it was due and its owner was served.
    overtaken: usize,
}

proptest! {
    #[test]
    fn it_does_what_a_list_does(steps in prop::collection::vec(step(), 1..200)) {
        let (mut now, mut numbers) = (100, 0..);
        let mut deadlines = Deadlines::new();
        let mut model: Vec<Modelled> = Vec::new();
        let mut keys = Vec::new();
        for step in steps {
            match step {
                Step::Wait(ticks) => now += ticks,
                Step::Insert(level, owner, after) => {
                    // Some are due when they come.
                    let (id, deadline) = (keys.len(), now + after - 10);
                    keys.push(deadlines.insert(priority(level), owner, deadline, id).unwrap());
                    let number = numbers.next().unwrap();
                    model.push(Modelled { level, owner, deadline, id, number, overtaken: 0 });
                }
                Step::Remove(id) => {
                    let Some(&key) = keys.get(id) else { continue };
                    let expected = model.iter().position(|entry| entry.id == id).map(|at| model.remove(at).id);
                    prop_assert_eq!(deadlines.remove(key), expected);
                }
                Step::SetLevel(id, level) => {
                    let Some(key) = keys.get_mut(id) else { continue };
                    let new = deadlines.set_priority(*key, priority(level));
                    let entry = model.iter_mut().find(|entry| entry.id == id);
                    prop_assert_eq!(new.is_some(), entry.is_some());
                    if let (Some(new), Some(entry)) = (new, entry) {
                        *key = new;
                        *entry = Modelled { level, number: numbers.next().unwrap(), overtaken: 0, ..*entry };
                    }
                }
                Step::Pop => {
                    let due: Vec<_> = model.iter().filter(|entry| entry.deadline <= now).copied().collect();
                    let level = due.iter().map(|entry| entry.level).min();
                    prop_assert_eq!(deadlines.due_priority(now), level.map(priority));
                    let popped = deadlines.pop_due(now);
                    prop_assert_eq!(popped.is_some(), level.is_some());
                    let Some(id) = popped else { continue };
                    // One that is due, of the most urgent level, and the earliest of its owner.
                    let entry = due.iter().find(|entry| entry.id == id).copied();
                    prop_assert!(entry.is_some(), "entry {} is not due", id);
                    let entry = entry.unwrap();
                    prop_assert_eq!(Some(entry.level), level);
                    let of_owner = due.iter().filter(|other| (other.level, other.owner) == (entry.level, entry.owner));
                    let earliest = of_owner.min_by_key(|other| (other.deadline, other.number)).unwrap();
                    prop_assert_eq!(earliest.id, id);
                    model.retain(|other| other.id != id);
                    // No entry is overtaken by more than two of one other owner.
                    let mut turns: BTreeMap<u32, usize> = BTreeMap::new();
                    for other in model.iter_mut().filter(|other| other.level == entry.level) {
                        if other.owner == entry.owner {
                            other.overtaken = 0;
                        } else if other.deadline <= now {
                            let bit = 1 << (8 * entry.owner);
                            other.overtaken += bit;
                            let times = (other.overtaken / bit) & 0xff;
                            turns.entry(other.owner).and_modify(|all| *all = times.max(*all)).or_insert(times);
                        }
                    }
                    for (owner, times) in turns {
                        prop_assert!(times <= 2, "owner {} was overtaken {} times by {}", owner, times, entry.owner);
                    }
                }
            }
            // The earliest deadline of each level, of those that are not due.
            let heads = (0..64).filter_map(|level| {
                model.iter().filter(|entry| entry.level == level).map(|entry| entry.deadline).min()
            });
            prop_assert_eq!(deadlines.next_after(now), heads.filter(|&head| head > now).min());
        }
    }
}
