//! Shares of the CPU among processes of the same level: whoever forks divides its own (decision 10).
//!
//! A process and its children share equally what the process alone would have, and so on downwards. A process's *divisor* is
//! what its running time is multiplied by when it is charged: one more than the number of its children, times the divisor of its
//! parent, which its siblings have likewise grown by one each. A process that has ended while its children live stays in the tree as a branch
//! without a share of its own, and is cut out as soon as it has a single child: so the tree has at most twice as many nodes as there are
//! processes, whatever they do.
//! May touch: nothing else. One lock, taken when a process begins or is gone.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use cops_fallible::{List, Map, OutOfMemory, try_arc};
use spin::Mutex;

use super::process::ProcessId;

/// Divisors do not grow beyond this: charges are to fit into 63 bits for years.
const DIVISOR_MAX: u32 = 4096;

struct Node {
    parent: ProcessId,
    children: List<ProcessId>,
    /// It takes part itself.
    alive: bool,
    divisor: Arc<AtomicU32>,
}

struct Tree {
    nodes: Map<ProcessId, Node>,
    /// Room for the numbers of all nodes, so that a process can leave without allocating.
    todo: List<ProcessId>,
}

static TREE: Mutex<Tree> = Mutex::new(Tree { nodes: Map::new(), todo: List::new() });

/// A process's place in the tree, until dropped.
#[derive(Debug)]
pub struct Share {
    process: ProcessId,
    divisor: Arc<AtomicU32>,
}

impl Share {
    /// A share of that of `parent` (0: of everything) for `process`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(process: ProcessId, parent: ProcessId) -> Result<Self, OutOfMemory> {
        let divisor = try_arc(AtomicU32::new(1))?;
        let tree = &mut *TREE.lock();
        tree.todo.try_reserve(tree.nodes.len() + 1)?;
        if let Some(node) = tree.nodes.get_mut(&parent) {
            node.children.try_reserve(1)?;
        }
        let node = Node { parent, children: List::new(), alive: true, divisor: divisor.clone() };
        tree.nodes.try_insert(process, node)?;
        match tree.nodes.get_mut(&parent) {
            Some(node) => {
                node.children.try_push(process)?;
                spread(tree, parent);
            }
            None => spread(tree, process),
        }
        Ok(Self { process, divisor })
    }

    /// What running time is multiplied by. At least 1.
    pub fn divisor(&self) -> u32 {
        self.divisor.load(Relaxed)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let tree = &mut *TREE.lock();
        if let Some(node) = tree.nodes.get_mut(&self.process) {
            node.alive = false;
        }
        let changed = prune(&mut tree.nodes, self.process);
        spread(tree, changed);
    }
}

/// Takes `at` out if it is dead and no branch any more, and then its parent likewise. Returns from which node on divisors may have changed.
fn prune(tree: &mut Map<ProcessId, Node>, mut at: ProcessId) -> ProcessId {
    while let Some(node) = tree.get(&at)
        && !node.alive
        && node.children.len() <= 1
    {
        let (parent, heir) = (node.parent, node.children.first().copied());
        tree.remove(&at);
        if let Some(node) = heir.and_then(|heir| tree.get_mut(&heir)) {
            node.parent = parent;
        }
        let Some(above) = tree.get_mut(&parent) else { return heir.unwrap_or(0) };
        above.children.retain(|&child| child != at);
        if let Some(heir) = heir {
            // In the place that has become free.
            let _ = above.children.push_within_capacity(heir);
        }
        at = parent;
    }
    at
}

/// Computes the divisors of `top` and everything below it afresh.
fn spread(tree: &mut Tree, top: ProcessId) {
    let Tree { nodes, todo } = tree;
    todo.clear();
    let _ = todo.push_within_capacity(top);
    while let Some(node) = todo.pop().and_then(|id| nodes.get(&id)) {
        let above = nodes.get(&node.parent).map_or(1, |parent| parent.divisor.load(Relaxed));
        let sharers = (node.children.len() as u32 + u32::from(node.alive)).max(1);
        node.divisor.store(above.saturating_mul(sharers).min(DIVISOR_MAX), Relaxed);
        for &child in &node.children {
            // There is room for every node.
            let _ = todo.push_within_capacity(child);
        }
    }
}
