//! Frames that kernel and processes both have mapped, seen as the records they hold.
//!
//! May touch: frames.

use core::marker::PhantomData;
use core::ops::Deref;

use cops_abi::page::{ProcessPage, SystemPage};
use cops_abi::ring::RingPage;
use cops_abi::trace::TracePage;

use super::frames::{FRAME_BYTES, Frame};

/// A type that may lie in memory which somebody else writes at any time.
///
/// # Safety
/// Every field that is ever read or written is an atomic, any bit pattern is valid, and the size is a frame's.
pub unsafe trait SharedLayout {}

// SAFETY: atomics, and reserved integers that are private to the type and never read.
unsafe impl SharedLayout for ProcessPage {}
// SAFETY: as above.
unsafe impl SharedLayout for RingPage {}
// SAFETY: as above.
unsafe impl SharedLayout for SystemPage {}
// SAFETY: as above.
unsafe impl SharedLayout for TracePage {}

/// A share in a frame that holds a `T`.
pub struct SharedFrame<T: SharedLayout> {
    frame: Frame,
    holds: PhantomData<T>,
}

impl<T: SharedLayout> SharedFrame<T> {
    /// Takes `frame`, whose bytes (zeros, if it is fresh) are a `T`.
    pub fn new(frame: Frame) -> Self {
        const { assert!(size_of::<T>() == FRAME_BYTES && align_of::<T>() <= FRAME_BYTES) };
        Self { frame, holds: PhantomData }
    }

    /// The frame, to be mapped.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }
}

impl<T: SharedLayout> Deref for SharedFrame<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the frame is as large as `T`, aligned to its own size, mapped in the direct map for as long
        // as this share lives, and `T: SharedLayout` makes concurrent writes from outside harmless.
        unsafe { &*self.frame.bytes().cast::<T>() }
    }
}
