//! What is left of an address space that no process and no hart uses any more, freed in portions.
//!
//! A process that ends passes it to the reaper. A space dropped elsewhere, with a program that
//! could not be started, frees a little of it and leaves the rest to the reaper too, in memory that
//! was allocated with the space. So a dropped space is never freed all at once for lack of memory.

use alloc::boxed::Box;

use cops_fallible::try_box;
use spin::Mutex;

use super::OutOfMemory;
use super::lower_half::LowerHalf;
use super::quota::{Charge, Family};
use super::region::Regions;

/// Regions, tables and pages of a space. Dropping it frees them.
pub(crate) struct Remains {
    lower: LowerHalf,
    regions: Regions,
    /// Released when everything is freed.
    memory: Charge,
}

impl Remains {
    pub(super) fn new(lower: LowerHalf, regions: Regions, memory: Charge) -> Self {
        Self { lower, regions, memory }
    }

    /// The family that it is charged to.
    pub(crate) fn family(&self) -> Family {
        self.memory.family()
    }

    /// Continues to free for about the time that `frames` frames take. Returns whether there is
    /// anything left.
    pub(crate) fn free_some(&mut self, frames: usize) -> bool {
        self.regions.forget_some() || self.lower.free_some(frames)
    }

    /// Frees a little and leaves the rest in `place` for [`take_abandoned`].
    pub(super) fn free_or_abandon(mut self, place: Place) {
        if self.free_some(FRAMES_AT_ONCE) {
            let mut abandoned = place.0;
            abandoned.remains = Some(self);
            let mut first = ABANDONED.lock();
            abandoned.next = first.take();
            *first = Some(abandoned);
        }
    }
}

/// Frames that a dropped space frees before it leaves the rest to the reaper.
const FRAMES_AT_ONCE: usize = 16;

/// Memory for what will be left of a space.
pub(super) struct Place(Box<Abandoned>);

impl Place {
    /// Allocates it.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(super) fn try_new() -> Result<Self, OutOfMemory> {
        Ok(Self(try_box(Abandoned { remains: None, next: None })?))
    }
}

struct Abandoned {
    remains: Option<Remains>,
    next: Option<Box<Abandoned>>,
}

/// What is left of dropped spaces, the last one first.
static ABANDONED: Mutex<Option<Box<Abandoned>>> = Mutex::new(None);

/// Whether there is something for [`take_abandoned`].
pub(crate) fn any_abandoned() -> bool {
    ABANDONED.lock().is_some()
}

/// The memory of a dropped address space that still has to be freed, for the reaper.
pub(crate) fn take_abandoned() -> Option<Remains> {
    let mut first = ABANDONED.lock();
    let mut abandoned = first.take()?;
    *first = abandoned.next.take();
    abandoned.remains.take()
}
