//! Calls with paths as operations.
//!
//! The kernel copies a path when the call is made, so a path is only read meanwhile. A status is
//! written when the call completes, into a block on the heap that the operation owns.
//!
//! May touch: the block. See [`crate::call`] for why a call in flight uses memory of its own.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::ffi::CString;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::file::Status;
use cops_abi::syscall::AT_FDCWD;

use super::mapped::Mapped;
use crate::call::{Call, Mode, Operation, Request, Scratch};
use crate::heap;
use crate::io::{Result, c_string};

/// An argument of a call.
#[derive(Debug)]
pub(super) enum Argument {
    /// The descriptor of the current directory.
    Here,
    Path(CString),
    Number(usize),
    /// The address of the block of the call: see [`status`].
    Status,
}

impl Argument {
    /// The path as an argument.
    ///
    /// # Errors
    /// [`Error::ZeroByte`](crate::io::Error::ZeroByte), `ENOMEM`.
    pub(super) fn path(path: &str) -> Result<Self> {
        c_string(path).map(Self::Path)
    }
}

/// The memory for a status.
type Block = Box<[u8; Status::BYTES]>;

struct PathCall<const COUNT: usize> {
    number: usize,
    arguments: [Argument; COUNT],
    status: Option<Block>,
}

// SAFETY: in flight, the kernel writes only to the block, which is on the heap, is owned by this
// operation and leaks if the operation is forgotten. It reads the paths only during the call that
// submits the operation.
unsafe impl<const COUNT: usize> Operation for PathCall<COUNT> {
    type Output = (CallResult, Option<Block>);

    fn request(&mut self, _mode: Mode) -> Request {
        let mut arguments = [0; 6];
        for (place, argument) in arguments.iter_mut().zip(&self.arguments) {
            *place = match argument {
                Argument::Here => AT_FDCWD as usize,
                Argument::Path(path) => path.as_ptr().expose_provenance(),
                Argument::Number(number) => *number,
                Argument::Status => {
                    self.status.as_mut().map_or(0, |block| block.as_mut_ptr().expose_provenance())
                }
            };
        }
        Request { number: self.number, arguments }
    }

    fn finish(&mut self, result: CallResult, _scratch: &Scratch) -> Self::Output {
        (result, self.status.take())
    }

    fn abandon(&mut self, value: usize, _scratch: &Scratch) {
        // A file that was opened for a future that was dropped is closed.
        if self.number == cops_abi::syscall::OPENAT {
            let _ = crate::system::close(value as i32);
        }
        // A mapping that was made for one is removed.
        if self.number == cops_abi::syscall::MMAP
            && let Some(Argument::Number(length)) = self.arguments.get(1)
        {
            drop(Mapped::new(value, *length));
        }
    }
}

/// Makes the call and waits for its result.
pub(super) async fn call<const COUNT: usize>(
    number: usize,
    arguments: [Argument; COUNT],
) -> Result<usize> {
    let (result, _) = Call::new(PathCall { number, arguments, status: None }).await;
    Ok(result?)
}

/// As [`call`], with the status that the call has stored.
pub(super) async fn status<const COUNT: usize>(
    number: usize,
    arguments: [Argument; COUNT],
) -> Result<Status> {
    let block = heap::try_box([0; Status::BYTES]).ok_or(Errno::ENOMEM)?;
    let (result, status) = Call::new(PathCall { number, arguments, status: Some(block) }).await;
    result?;
    Ok(status.map(|block| Status::from_bytes(&block)).unwrap_or_default())
}
