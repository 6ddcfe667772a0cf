//! What is left of an address space that no process and no hart uses any more, freed in portions.
//!
//! A process that ends passes it to the reaper. A space dropped elsewhere, with a program that
//! could not be started, frees a little of it and leaves the rest to the reaper too, in memory that
//! was allocated with the space. So a dropped space is never freed all at once for lack of memory.

use alloc::boxed::Box;

use cops_fallible::try_box;
use cops_lock::Mutex;

use super::OutOfMemory;
use super::lower_half::LowerHalf;
use super::object::Mappings;
use super::quota::{Charge, Family};
use super::region::Regions;

/// Memory for what will be left of a space.
pub(super) struct Place(Box<Node>);

struct Node {
    /// `None` as long as there is the space.
    left: Option<Left>,
    next: Option<Box<Node>>,
}

/// Regions, mappings, tables and pages of a space.
pub(super) struct Left {
    pub(super) lower: LowerHalf,
    pub(super) regions: Regions,
    pub(super) mappings: Mappings,
    /// Released when everything is freed.
    pub(super) memory: Charge,
}

impl Place {
    /// Allocates it.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(super) fn try_new() -> Result<Self, OutOfMemory> {
        Ok(Self(try_box(Node { left: None, next: None })?))
    }

    /// Keeps what is left here.
    pub(super) fn keep(mut self, left: Left) -> Remains {
        self.0.left = Some(left);
        Remains(self.0)
    }
}

/// What is left of a space, to be freed. Dropping it frees all of it. It can be put into lists
/// without allocating memory.
pub(crate) struct Remains(Box<Node>);

impl Remains {
    /// The family that it is charged to.
    pub(crate) fn family(&self) -> Option<Family> {
        self.0.left.as_ref().map(|left| left.memory.family())
    }

    /// Ends a mapping, or, without any, continues to free for about the time that `frames` frames
    /// take. Returns whether there is anything left.
    pub(crate) fn free_some(&mut self, frames: usize) -> bool {
        if self.end_mapping() {
            return true;
        }
        let Some(left) = &mut self.0.left else { return false };
        left.regions.forget_some() || left.lower.free_some(frames)
    }

    /// Ends one of the mappings: its file may be cut off again. Returns whether there was one.
    ///
    /// With its last mapping an object may end, of which the pages are freed elsewhere. The pages
    /// of this space have references of their own.
    pub(crate) fn end_mapping(&mut self) -> bool {
        self.0.left.as_mut().is_some_and(|left| left.mappings.pop().is_some())
    }

    /// Frees a little and leaves the rest for [`take_abandoned`].
    pub(crate) fn free_or_abandon(mut self) {
        if self.free_some(FRAMES_AT_ONCE) {
            ABANDONED.lock().push(self);
        }
    }
}

/// Frames that a dropped space frees before it leaves the rest to the reaper.
const FRAMES_AT_ONCE: usize = 4;

/// A list of abandoned memory, the last one first.
pub(crate) struct AbandonedList(Option<Box<Node>>);

impl AbandonedList {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Adds one.
    pub(crate) fn push(&mut self, mut remains: Remains) {
        remains.0.next = self.0.take();
        self.0 = Some(remains.0);
    }

    /// Removes the one that was added last.
    pub(crate) fn pop(&mut self) -> Option<Remains> {
        let mut node = self.0.take()?;
        self.0 = node.next.take();
        Some(Remains(node))
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// What is left of dropped spaces.
static ABANDONED: Mutex<AbandonedList> = Mutex::new(AbandonedList::new());

/// Whether there is something for [`take_abandoned`].
pub(crate) fn any_abandoned() -> bool {
    !ABANDONED.lock().is_empty()
}

/// The memory of a dropped address space that still has to be freed, for the reaper.
pub(crate) fn take_abandoned() -> Option<Remains> {
    ABANDONED.lock().pop()
}
