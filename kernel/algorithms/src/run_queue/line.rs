//! Where virtual CPUs stand in the queue: at the front of the line of their process and level, or
//! behind another one.
//!
//! A line is a list that is linked through its members. Each has the next one, and knows the one
//! before it; the process knows the last one of each line. The front belongs to the queue, which
//! has it in a tree. So the members of a line cost the same however many they are, and any of them
//! can leave (decision 78).
//!
//! Everything here is changed by the queue only, under its lock.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::mem::{replace, take};

use cops_abi::Priority;
use cops_fallible::map::Spare;
use cops_fallible::{OutOfMemory, try_box};

use super::Front;
use crate::priority::Rank;

/// The memory that the front of a line needs in the tree.
pub(super) type Node<C> = Spare<Front, Arc<C>>;

/// The record of a virtual CPU.
#[derive(Debug)]
pub struct Place<C> {
    stand: Stand,
    /// Its node of the tree, while it is not in that: a wake cannot fail for lack of memory.
    node: Option<Node<C>>,
    /// The one behind it.
    next: Option<Arc<C>>,
    /// The one before it; none of the front.
    previous: Weak<C>,
}

#[derive(Clone, Copy, Debug)]
enum Stand {
    /// It is not in the queue.
    Nowhere,
    Front(Front),
    Behind {
        rank: Rank,
        number: u64,
    },
}

impl<C> Place<C> {
    /// Of a virtual CPU that is not in the queue.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_new() -> Result<Self, OutOfMemory> {
        Ok(Self {
            stand: Stand::Nowhere,
            node: Some(Spare::try_new()?),
            next: None,
            previous: Weak::new(),
        })
    }

    /// The level of the line in which it stands, and the number of its arrival there.
    pub(super) fn rank_and_number(&self) -> Option<(Rank, u64)> {
        match self.stand {
            Stand::Nowhere => None,
            Stand::Front(Front { rank, number, .. }) | Stand::Behind { rank, number } => {
                Some((rank, number))
            }
        }
    }

    /// Its place in the tree, if it is the front of a line.
    pub(super) fn front(&self) -> Option<Front> {
        match self.stand {
            Stand::Front(front) => Some(front),
            Stand::Nowhere | Stand::Behind { .. } => None,
        }
    }

    /// The one behind it.
    pub(super) fn next(&self) -> Option<Arc<C>> {
        self.next.clone()
    }

    /// It becomes a front. Returns its node, unless it is one already.
    pub(super) fn begin_front(&mut self, front: Front) -> Option<Node<C>> {
        self.stand = Stand::Front(front);
        self.previous = Weak::new();
        self.node.take()
    }

    /// It stays a front, at another place.
    pub(super) fn move_front(&mut self, front: Front) {
        self.stand = Stand::Front(front);
    }

    /// It leaves the queue from the front of its line. Returns the one that is the front now.
    pub(super) fn end_front(&mut self, node: Node<C>) -> Option<Arc<C>> {
        (self.stand, self.node) = (Stand::Nowhere, Some(node));
        self.next.take()
    }

    /// It stands behind `previous` from now on, and is the last one.
    pub(super) fn begin_behind(&mut self, rank: Rank, number: u64, previous: Weak<C>) {
        self.stand = Stand::Behind { rank, number };
        self.previous = previous;
    }

    /// It leaves the queue, in which it stands behind another one. Returns the level and its
    /// neighbours; `None`: it does not stand there.
    pub(super) fn end_behind(&mut self) -> Option<(Rank, Weak<C>, Option<Arc<C>>)> {
        let Stand::Behind { rank, .. } = self.stand else { return None };
        self.stand = Stand::Nowhere;
        Some((rank, take(&mut self.previous), self.next.take()))
    }

    /// Another one is behind it. Returns the one that was.
    pub(super) fn set_next(&mut self, next: Option<Arc<C>>) -> Option<Arc<C>> {
        replace(&mut self.next, next)
    }

    /// Another one is before it.
    pub(super) fn set_previous(&mut self, previous: Weak<C>) {
        self.previous = previous;
    }
}

/// The last ones of the lines of a process. In a box: the process's record, which all its calls
/// use, would be larger by 512 bytes otherwise, and its fields farther away.
#[derive(Debug)]
pub struct Ends<C>(Box<[Weak<C>; Priority::COUNT as usize]>);

impl<C> Ends<C> {
    /// Of a process without virtual CPUs in the queue.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_new() -> Result<Self, OutOfMemory> {
        Ok(Self(try_box([const { Weak::new() }; Priority::COUNT as usize])?))
    }

    /// `last` is the last one of the line of this level. Returns the one that was.
    pub(super) fn set(&mut self, rank: Rank, last: Weak<C>) -> Weak<C> {
        replace(&mut self.0[usize::from(rank.0.level())], last)
    }
}
