//! Why the memory manager says no, and what a program is told.

use cops_abi::Errno;

pub use cops_fallible::OutOfMemory;

/// Why a mapping cannot be made or changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// Not page aligned, empty, or not within the program's half.
    BadRange,
    /// Something is mapped there already.
    Overlap,
    /// Something in the range is not mapped.
    NotMapped,
    /// The range holds pages that belong to the kernel.
    Protected,
    /// Write and execute together.
    WriteAndExecute,
    OutOfMemory,
}

/// Why an access cannot be made good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultError {
    /// Nothing is mapped there, or not with that right.
    NotAllowed,
    OutOfMemory,
}

impl From<OutOfMemory> for MapError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl From<OutOfMemory> for FaultError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl From<FaultError> for Errno {
    fn from(error: FaultError) -> Self {
        match error {
            FaultError::NotAllowed => Errno::EFAULT,
            FaultError::OutOfMemory => Errno::ENOMEM,
        }
    }
}

impl From<MapError> for Errno {
    fn from(error: MapError) -> Self {
        match error {
            MapError::BadRange => Errno::EINVAL,
            MapError::Overlap => Errno::EEXIST,
            MapError::NotMapped | MapError::OutOfMemory => Errno::ENOMEM,
            MapError::Protected | MapError::WriteAndExecute => Errno::EACCES,
        }
    }
}
