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

/// Regions, mappings, tables and pages of a space. Dropping it frees them.
pub(crate) struct Remains {
    lower: LowerHalf,
    regions: Regions,
    mappings: Mappings,
    /// Released when everything is freed.
    memory: Charge,
}

impl Remains {
    pub(super) fn new(
        lower: LowerHalf,
        regions: Regions,
        mappings: Mappings,
        memory: Charge,
    ) -> Self {
        Self { lower, regions, mappings, memory }
    }

    /// The family that it is charged to.
    pub(crate) fn family(&self) -> Family {
        self.memory.family()
    }

    /// Continues to free for about the time that `frames` frames take. Returns whether there is
    /// anything left.
    pub(crate) fn free_some(&mut self, frames: usize) -> bool {
        // With its last mapping an object may end, of which the pages are freed elsewhere.
        self.regions.forget_some() || self.lower.free_some(frames) || self.mappings.pop().is_some()
    }

    /// Frees a little and leaves the rest in `place` for [`take_abandoned`].
    pub(super) fn free_or_abandon(mut self, place: Place) {
        if self.free_some(FRAMES_AT_ONCE) {
            let mut abandoned = place.0;
            abandoned.remains = Some(self);
            ABANDONED.lock().push(Abandoned(abandoned));
        }
    }
}

/// Frames that a dropped space frees before it leaves the rest to the reaper.
const FRAMES_AT_ONCE: usize = 4;

/// Memory for what will be left of a space.
pub(super) struct Place(Box<Node>);

impl Place {
    /// Allocates it.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(super) fn try_new() -> Result<Self, OutOfMemory> {
        Ok(Self(try_box(Node { remains: None, next: None })?))
    }
}

struct Node {
    remains: Option<Remains>,
    next: Option<Box<Node>>,
}

/// What is left of a dropped address space and still has to be freed. It can be put into lists
/// without allocating memory.
pub(crate) struct Abandoned(Box<Node>);

impl Abandoned {
    /// The family that it is charged to.
    pub(crate) fn family(&self) -> Option<Family> {
        self.0.remains.as_ref().map(Remains::family)
    }

    /// What has to be freed.
    pub(crate) fn into_remains(mut self) -> Option<Remains> {
        self.0.remains.take()
    }
}

/// A list of abandoned memory, the last one first.
pub(crate) struct AbandonedList(Option<Box<Node>>);

impl AbandonedList {
    /// An empty list.
    pub(crate) const fn new() -> Self {
        Self(None)
    }

    /// Adds one.
    pub(crate) fn push(&mut self, mut abandoned: Abandoned) {
        abandoned.0.next = self.0.take();
        self.0 = Some(abandoned.0);
    }

    /// Removes the one that was added last.
    pub(crate) fn pop(&mut self) -> Option<Abandoned> {
        let mut node = self.0.take()?;
        self.0 = node.next.take();
        Some(Abandoned(node))
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
pub(crate) fn take_abandoned() -> Option<Abandoned> {
    ABANDONED.lock().pop()
}
