//! Frames that are mapped by the kernel and by processes, accessed as the records in them.

use core::marker::PhantomData;
use core::ops::Deref;

use cops_abi::page::{ProcessPage, SystemPage};
use cops_abi::ring::RingPage;
use cops_abi::trace::TracePage;

use super::frames::{FRAME_BYTES, Frame};

/// A type for memory that others may write at any time.
///
/// # Safety
/// Every field that is ever read or written is an atomic, any bit pattern is valid, and the size is
/// that of a frame.
pub unsafe trait SharedLayout {}

// SAFETY: every field of `ProcessPage` that is accessed is an atomic integer; the reserved ones are
// private to the type and never read. `SharedFrame::new` checks the size.
unsafe impl SharedLayout for ProcessPage {}
// SAFETY: every field of `RingPage` that is accessed is an atomic integer; the reserved ones are
// private to the type and never read. `SharedFrame::new` checks the size.
unsafe impl SharedLayout for RingPage {}
// SAFETY: every field of `SystemPage` that is accessed is an atomic integer; the reserved ones are
// private to the type and never read. `SharedFrame::new` checks the size.
unsafe impl SharedLayout for SystemPage {}
// SAFETY: every field of `TracePage` that is accessed is an atomic integer; the reserved ones are
// private to the type and never read. `SharedFrame::new` checks the size.
unsafe impl SharedLayout for TracePage {}

/// A reference to a frame that contains a `T`.
pub struct SharedFrame<T: SharedLayout> {
    /// The address of the frame in the direct map. Computing it takes twelve instructions, and a
    /// system call looks into such frames four times.
    address: usize,
    frame: Frame,
    holds: PhantomData<T>,
}

impl<T: SharedLayout> SharedFrame<T> {
    /// Takes `frame`; its bytes (zeros in a fresh frame) are a `T`.
    pub fn new(frame: Frame) -> Self {
        const { assert!(size_of::<T>() == FRAME_BYTES && align_of::<T>() <= FRAME_BYTES) };
        Self { address: frame.bytes() as usize, frame, holds: PhantomData }
    }

    /// Fills the frame with zeros. Others that use it see some of its old words meanwhile.
    pub fn clear(&self) {
        let zeros = [0; 256];
        for offset in (0..FRAME_BYTES).step_by(zeros.len()) {
            self.frame.write(offset, &zeros);
        }
    }

    /// The frame, for mapping it.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }
}

impl<T: SharedLayout> Deref for SharedFrame<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `new` set the address to that of `frame`, which is as large as `T`, aligned to
        // its size, and mapped in the direct map as long as this reference exists.
        // `T: SharedLayout` makes concurrent writes by others harmless.
        unsafe { &*(self.address as *const T) }
    }
}
