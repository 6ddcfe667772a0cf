//! Messages to a server that nodes are not used any more. The memory for the message is
//! allocated before a node is asked for, so no node is lost for want of memory.

use alloc::boxed::Box;

use cops_abi::Errno;
use cops_fallible::try_box;
use cops_lock::Mutex;

use crate::fs::SWEEPER;
use crate::mm::quota::{Amounts, Charge, Family, Kind};

/// Memory that is charged for a node: the node itself and this message.
const NODE_BYTES: u64 = 256;
/// Messages that are dropped in one portion.
const PORTION: usize = 32;

/// A node that the server may forget, in a list.
pub struct Forget {
    /// The node's number.
    pub number: u64,
    next: Option<Box<Forget>>,
    /// In the first of a list: another list.
    other: Option<Box<Forget>>,
    /// The charge for the node.
    _charge: Charge,
}

impl Forget {
    /// The memory for one message.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(payer: Family) -> Result<Box<Self>, Errno> {
        let _charge = Charge::new(payer, &Amounts::of(Kind::Memory, NODE_BYTES))?;
        Ok(try_box(Self { number: 0, next: None, other: None, _charge })?)
    }
}

/// A list of such nodes.
pub struct Forgotten {
    first: Option<Box<Forget>>,
    count: usize,
}

impl Forgotten {
    /// An empty list.
    pub const fn new() -> Self {
        Self { first: None, count: 0 }
    }

    /// Adds a node.
    pub fn push(&mut self, mut forget: Box<Forget>) {
        forget.next = self.first.take();
        self.first = Some(forget);
        self.count += 1;
    }

    /// Removes a node.
    pub fn pop(&mut self) -> Option<Box<Forget>> {
        let mut first = self.first.take()?;
        self.count -= 1;
        let other = first.other.take();
        self.first = match first.next.take() {
            Some(mut next) => {
                next.other = other;
                Some(next)
            }
            None => other,
        };
        Some(first)
    }

    /// Adds all nodes of another list, in one step.
    fn append(&mut self, mut list: Self) {
        let Some(mut first) = list.first.take() else { return };
        first.other = self.first.take();
        self.first = Some(first);
        self.count += core::mem::take(&mut list.count);
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.count
    }
}

impl Drop for Forgotten {
    /// Not one inside of the other, as the compiler's own code would.
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

/// Messages that no server will read.
static SWEPT: Mutex<Forgotten> = Mutex::new(Forgotten::new());

/// Drops messages that no server will read, soon.
pub fn sweep(list: Forgotten) {
    if list.len() > 0 {
        SWEPT.lock().append(list);
        SWEEPER.wake();
    }
}

/// Drops some of them. Returns whether there are more.
pub fn sweep_some() -> bool {
    (0..PORTION).all(|_| {
        let forget = SWEPT.lock().pop();
        forget.is_some()
    })
}
