//! Errors of the memory manager, and the error codes that programs get for them.

use cops_abi::Errno;

pub use cops_fallible::OutOfMemory;

/// Why a mapping cannot be created or changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// Not page aligned, empty, or not within the program's half of the address space.
    BadRange,
    /// A part of the range is already mapped.
    Overlap,
    /// A part of the range is not mapped.
    NotMapped,
    /// The range holds pages that belong to the kernel.
    Protected,
    /// Write and execute rights together.
    WriteAndExecute,
    OutOfMemory,
}

/// Why an access is not possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultError {
    /// The address is not mapped, or not with this right.
    NotAllowed,
    /// It is mapped from an object that has no page there: it is beyond its end, or the object's
    /// payer has no room for one more.
    NoPage,
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
            FaultError::NotAllowed | FaultError::NoPage => Errno::EFAULT,
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
