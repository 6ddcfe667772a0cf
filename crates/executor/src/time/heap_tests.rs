//! The heap against a sorted list: random adding, taking out and firing; and that it stays leftist.

use proptest::prelude::*;
use std::boxed::Box;
use std::pin::Pin;
use std::vec::Vec;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    Remove(usize),
    Pop(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..50_u64).prop_map(Step::Insert),
        2 => any::<usize>().prop_map(Step::Remove),
        2 => (0..50_u64).prop_map(Step::Pop),
    ]
}

/// Nodes in a subtree with the parent `parent`; checks the order, the ranks, the links.
fn check(node: Link, parent: Link) -> usize {
    if node.is_null() {
        return 0;
    }
    // SAFETY: one thread; the test keeps all nodes.
    unsafe {
        assert!(ptr::eq(field!(node, parent), parent));
        assert!(parent.is_null() || comes_before(parent, node));
        let (left, right) = (field!(node, left), field!(node, right));
        assert!(rank(left) >= rank(right));
        assert_eq!(rank(node), rank(right) + 1);
        1 + check(left, node) + check(right, node)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 8 } else { 500 }))]

    #[test]
    fn behaves_as_a_sorted_list(steps in proptest::collection::vec(step(), 1..if cfg!(miri) { 30 } else { 150 })) {
        let mut heap = Heap::new();
        let mut nodes: Vec<Pin<Box<Node>>> = Vec::new();
        // Deadline and number of the node.
        let mut model: Vec<(u64, usize)> = Vec::new();
        for step in steps {
            match step {
                Step::Insert(deadline) => {
                    nodes.push(Box::pin(Node::new()));
                    // SAFETY: one thread; pinned, and kept until the end.
                    unsafe { heap.insert(&**nodes.last().unwrap(), deadline, Waker::noop().clone()) };
                    model.push((deadline, nodes.len() - 1));
                    model.sort_unstable();
                }
                Step::Remove(which) if !model.is_empty() => {
                    let (_, number) = model.remove(which % model.len());
                    // SAFETY: the nodes are boxed, used by this thread only, and this one is in the
                    // heap according to the model.
                    unsafe { heap.remove(&*nodes[number]) };
                }
                Step::Remove(_) => {}
                Step::Pop(now) => {
                    let due = model.first().copied().filter(|first| first.0 <= now);
                    prop_assert_eq!(heap.pop_due(now).is_some(), due.is_some());
                    if let Some((_, number)) = due {
                        model.remove(0);
                        // SAFETY: the nodes are boxed and used by this thread only, so the rules of
                        // the module hold.
                        let linked = unsafe { is_linked(&*nodes[number]) };
                        prop_assert!(!linked);
                    }
                }
            }
            prop_assert_eq!(heap.deadline(), model.first().map(|first| first.0));
            prop_assert_eq!(check(heap.first, ptr::null()), model.len());
            prop_assert_eq!(heap.count(), model.len());
        }
    }
}
