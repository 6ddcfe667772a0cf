//! Descriptors: owned, so that one is closed exactly once, or borrowed, so that none is used after that.

use core::marker::PhantomData;

use super::{ErrorType, Result, implement_stream};
use crate::call::leftover;
use crate::system;

/// A descriptor this process owns; closed when dropped. Reads and writes whatever it stands for.
#[derive(Debug)]
pub struct Fd {
    raw: i32,
}

impl Fd {
    /// Takes ownership of a descriptor that a raw call returned.
    ///
    /// Any number is safe here; one that something else owns makes that something use a closed, or somebody
    /// else's, descriptor later.
    #[must_use]
    pub const fn from_raw(raw: i32) -> Self {
        Self { raw }
    }

    /// The number the kernel knows it by.
    #[must_use]
    pub const fn raw(&self) -> i32 {
        self.raw
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        leftover::forget(self.raw);
        // An error would say that it was not open: nothing to be done about that here.
        let _ = system::close(self.raw);
    }
}

impl ErrorType for Fd {
    type Error = super::Error;
}

implement_stream!(Fd: Read + Write);

/// A descriptor lent by whoever owns it.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedFd<'a> {
    raw: i32,
    owner: PhantomData<&'a Fd>,
}

impl BorrowedFd<'_> {
    /// The number the kernel knows it by.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.raw
    }
}

impl BorrowedFd<'static> {
    /// A standard stream, which nobody closes.
    pub(super) const fn standard(raw: i32) -> Self {
        Self { raw, owner: PhantomData }
    }
}

/// Whatever has a descriptor.
pub trait AsFd {
    /// Lends it.
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

/// A new pipe: what is written to the second descriptor can be read from the first. Reading ends when every copy
/// of the second is closed; writing is `EPIPE` when the first is.
///
/// # Errors
/// `EMFILE`, `ENOMEM`.
pub fn pipe() -> Result<(Fd, Fd)> {
    let [reading, writing] = system::pipe()?;
    Ok((Fd::from_raw(reading), Fd::from_raw(writing)))
}
