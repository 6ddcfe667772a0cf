//! The queue against a simple model: random linking, unlinking, granting.

use proptest::prelude::*;
use std::boxed::Box;
use std::pin::Pin;
use std::vec::Vec;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Link(u8),
    Unlink(usize),
    GrantFirst,
    GrantAny(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..64_u8).prop_map(Step::Link),
        2 => (30..34_u8).prop_map(Step::Link),
        1 => any::<usize>().prop_map(Step::Unlink),
        2 => Just(Step::GrantFirst),
        1 => any::<usize>().prop_map(Step::GrantAny),
    ]
}

fn order(queue: &Queue<u32>) -> Vec<u32> {
    let mut found = Vec::new();
    let mut next = queue.first();
    // SAFETY: one thread; the test keeps all nodes.
    unsafe {
        while !next.is_null() {
            found.push(node::data(next));
            next = node::following(next);
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 500 }))]

    #[test]
    fn behaves_as_a_list_sorted_by_level(steps in proptest::collection::vec(step(), 1..if cfg!(miri) { 30 } else { 120 })) {
        let mut queue = Queue::new();
        let mut nodes: Vec<Pin<Box<Node<u32>>>> = Vec::new();
        // Level and number, in the order in which they are to be served.
        let mut model: Vec<(u8, u32)> = Vec::new();
        for step in steps {
            match step {
                Step::Link(level) => {
                    let number = nodes.len() as u32;
                    nodes.push(Box::pin(Node::new(number)));
                    let here: Link<u32> = &**nodes.last().unwrap();
                    // SAFETY: one thread; pinned, and kept until the end.
                    unsafe { queue.link(here, Priority::new(level).unwrap()) };
                    let at = model.iter().position(|entry| entry.0 > level).unwrap_or(model.len());
                    model.insert(at, (level, number));
                }
                Step::Unlink(which) | Step::GrantAny(which) if !model.is_empty() => {
                    let (level, number) = model.remove(which % model.len());
                    let here: Link<u32> = &*nodes[number as usize];
                    // SAFETY: the nodes are boxed, used by this thread only, and this one is in the
                    // queue according to the model.
                    unsafe {
                        prop_assert_eq!(node::priority(here).level(), level);
                        if let Step::Unlink(_) = step {
                            queue.unlink(here);
                            prop_assert_eq!(node::place(here), Place::Out);
                        } else {
                            prop_assert!(queue.grant(here).is_none());
                            prop_assert_eq!(node::place(here), Place::Granted);
                        }
                    }
                }
                Step::GrantFirst if !model.is_empty() => {
                    let (_, number) = model.remove(0);
                    let first = queue.first();
                    // SAFETY: the nodes are boxed, used by this thread only, and the queue is not
                    // empty according to the model.
                    unsafe {
                        prop_assert_eq!(node::data(first), number);
                        prop_assert!(queue.grant(first).is_none());
                    }
                }
                _ => prop_assert!(queue.is_empty()),
            }
            let expected: Vec<u32> = model.iter().map(|entry| entry.1).collect();
            prop_assert_eq!(order(&queue), expected);
            prop_assert_eq!(queue.is_empty(), model.is_empty());
        }
    }
}
