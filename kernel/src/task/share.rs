//! Shares of the CPU among processes of the same level: whoever forks divides its own (decision 10).
//!
//! A process and its children share equally what the process alone would have, and so on downwards. A process's *divisor* is
//! what its running time is multiplied by when it is charged: one more than the number of its children, times the divisor of its
//! parent, which its siblings have likewise grown by one each. A process that has ended while its children live stays in the tree as a branch
//! without a share of its own, and is cut out as soon as it has a single child: so the tree has at most twice as many nodes as there are
//! processes, whatever they do.
//!
//! A change of the tree touches the nodes around it only; divisors are computed when they are asked for, from at most as many ancestors as
//! their cap allows (each but the first at least doubles the product), and kept until the tree changes.
//! May touch: nothing else. One lock, taken when a process begins or is gone, and by the first question after that; it may be taken with the run
//! queue's lock held.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use cops_fallible::{Map, OutOfMemory};
use spin::Mutex;

use super::process::ProcessId;

/// Divisors do not grow beyond this: charges are to fit into 63 bits for years.
const DIVISOR_MAX: u32 = 4096;

struct Node {
    parent: ProcessId,
    /// How many children it has.
    children: u32,
    /// Their numbers, exclusive or: of an only child, its number.
    mixed: ProcessId,
    /// It takes part itself.
    alive: bool,
}

type Tree = Map<ProcessId, Node>;

static TREE: Mutex<Tree> = Mutex::new(Map::new());

/// Counts the changes of the tree. Changed under its lock.
static VERSION: AtomicU32 = AtomicU32::new(1);

/// A process's place in the tree, until dropped.
#[derive(Debug)]
pub struct Share {
    process: ProcessId,
    /// Version of the tree << 32 | the divisor then.
    known: AtomicU64,
}

impl Share {
    /// A share of that of `parent` (0: of everything) for `process`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(process: ProcessId, parent: ProcessId) -> Result<Self, OutOfMemory> {
        let mut tree = TREE.lock();
        tree.try_insert(process, Node { parent, children: 0, mixed: 0, alive: true })?;
        if let Some(node) = tree.get_mut(&parent) {
            node.children += 1;
            node.mixed ^= process;
        }
        VERSION.fetch_add(1, Release);
        Ok(Self { process, known: AtomicU64::new(0) })
    }

    /// What running time is multiplied by. At least 1.
    pub fn divisor(&self) -> u32 {
        let known = self.known.load(Relaxed);
        if (known >> 32) as u32 == VERSION.load(Acquire) {
            return known as u32;
        }
        let tree = TREE.lock();
        let divisor = divisor_in(&tree, self.process);
        self.known.store(u64::from(VERSION.load(Relaxed)) << 32 | u64::from(divisor), Relaxed);
        divisor
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut tree = TREE.lock();
        if let Some(node) = tree.get_mut(&self.process) {
            node.alive = false;
        }
        prune(&mut tree, self.process);
        VERSION.fetch_add(1, Release);
    }
}

fn divisor_in(tree: &Tree, process: ProcessId) -> u32 {
    let (mut divisor, mut at) = (1u32, process);
    while divisor < DIVISOR_MAX
        && let Some(node) = tree.get(&at)
    {
        divisor = divisor.saturating_mul((node.children + u32::from(node.alive)).max(1));
        at = node.parent;
    }
    divisor.min(DIVISOR_MAX)
}

/// Takes `at` out if it is dead and no branch any more, and then its parent likewise.
fn prune(tree: &mut Tree, mut at: ProcessId) {
    while let Some(node) = tree.get(&at)
        && !node.alive
        && node.children <= 1
    {
        let (parent, heir) = (node.parent, node.mixed);
        tree.remove(&at);
        if let Some(node) = tree.get_mut(&heir) {
            node.parent = parent;
        }
        let Some(above) = tree.get_mut(&parent) else { return };
        above.mixed ^= at ^ heir;
        if heir == 0 {
            above.children -= 1;
        }
        at = parent;
    }
}
