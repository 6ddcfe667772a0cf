//! File descriptors: owned ones, which are closed exactly once, and borrowed ones, which cannot be
//! used after that.

use core::marker::PhantomData;

use super::{ErrorType, Result, implement_stream};
use crate::call::leftover;
use crate::system;

/// A descriptor that this process owns; it is closed when dropped. Reads and writes the object it
/// refers to.
#[derive(Debug)]
pub struct Fd {
    raw: i32,
}

impl Fd {
    /// Takes ownership of a descriptor that a raw call returned.
    ///
    /// Any number is memory-safe. But if the descriptor has another owner, that owner will later
    /// use a closed descriptor, or one that has been reused.
    #[must_use]
    pub const fn from_raw(raw: i32) -> Self {
        Self { raw }
    }

    /// The kernel's number of it.
    #[must_use]
    pub const fn raw(&self) -> i32 {
        self.raw
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        leftover::forget(self.raw);
        // The only error is that the descriptor was not open, which cannot be handled here.
        let _ = system::close(self.raw);
    }
}

impl ErrorType for Fd {
    type Error = super::Error;
}

implement_stream!(Fd: Read + Write);

impl ErrorType for BorrowedFd<'_> {
    type Error = super::Error;
}

implement_stream!(BorrowedFd<'_>: Read + Write);

/// A descriptor borrowed from its owner.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedFd<'a> {
    raw: i32,
    owner: PhantomData<&'a Fd>,
}

impl BorrowedFd<'_> {
    /// The kernel's number of it.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.raw
    }
}

impl BorrowedFd<'static> {
    /// A standard stream, which is never closed.
    pub(super) const fn standard(raw: i32) -> Self {
        Self { raw, owner: PhantomData }
    }
}

/// A type that has a descriptor.
pub trait AsFd {
    /// Borrows the descriptor.
    fn as_fd(&self) -> BorrowedFd<'_>;
}

impl AsFd for Fd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd { raw: self.raw, owner: PhantomData }
    }
}

impl AsFd for BorrowedFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl<T: AsFd + ?Sized> AsFd for &T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl<T: AsFd + ?Sized> AsFd for &mut T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

/// Creates a pipe: what is written to the second descriptor can be read from the first. A read
/// returns the end when every copy of the second is closed; a write fails with `EPIPE` when the
/// first is.
///
/// # Errors
/// `EMFILE`, `ENOMEM`.
pub fn pipe() -> Result<(Fd, Fd)> {
    let [reading, writing] = system::pipe()?;
    Ok((Fd::from_raw(reading), Fd::from_raw(writing)))
}
