//! Shares of the CPU among processes of the same level: a process that starts others divides its
//! own share (decision 10).
//!
//! A process and its children have equal shares of what the process alone would have, and so on
//! downwards. The running time of a process is multiplied by its *divisor* when it is charged. The
//! divisor is the number of its children plus one, multiplied by the divisor of its parent, which
//! in the same way includes its siblings. A process that has ended before its children stays in the
//! tree as a branch without a share of its own. It is removed as soon as it has only one child. So
//! the tree never has more than twice as many nodes as there are processes.
//!
//! A change of the tree affects only the adjacent nodes. Divisors are computed on demand from a
//! limited number of ancestors (each but the first at least doubles the product, which has a
//! maximum), and kept until the tree changes.
//! May touch: nothing else. There is one lock, taken when a process begins or is freed, and by the
//! first query after that; it may be taken with the run queue's lock held.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use cops_fallible::{Map, OutOfMemory};
use spin::Mutex;

use super::ProcessId;

/// Maximum of a divisor: charges must fit into 63 bits for years.
const DIVISOR_MAX: u32 = 4096;

struct Node {
    parent: ProcessId,
    /// Number of its children.
    children: u32,
    /// Exclusive or of its children's numbers: the number of an only child.
    mixed: ProcessId,
    /// The process has not ended.
    alive: bool,
}

type Tree = Map<ProcessId, Node>;

static TREE: Mutex<Tree> = Mutex::new(Map::new());

/// Counts the changes of the tree. Changed under its lock.
static VERSION: AtomicU32 = AtomicU32::new(1);

/// A process's place in the tree; dropping it removes the process.
#[derive(Debug)]
pub struct Share {
    process: ProcessId,
    /// Version of the tree << 32 | the divisor in that version.
    known: AtomicU64,
}

impl Share {
    /// A part of the share of `parent` (0: of everything) for `process`.
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

    /// The process.
    pub fn process(&self) -> ProcessId {
        self.process
    }

    /// The factor for its running time. At least 1.
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

/// Removes `at` if its process has ended and it is not a branch any more, then its parent likewise.
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
