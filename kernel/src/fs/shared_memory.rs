//! Shared memory without a file: what `mmap` makes with `MAP_SHARED | MAP_ANONYMOUS`.
//!
//! Only a copy of the process that made it can have it mapped too, so all processes that use it are
//! in the family of the maker, which pays for it until the last of them has unmapped it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;

use cops_abi::Errno;
use cops_fallible::try_arc;
use cops_lock::Mutex;

use super::contents::{Contents, sweep};
use crate::mm::frames::FRAME_BYTES;
use crate::mm::quota::{Amounts, Charge, Family, Kind};
use crate::mm::{FaultError, Frame, MemoryObject, next_object_number};

/// Memory that is charged for it beside its pages.
const RECORD_BYTES: u64 = 512;

/// A memory object of zeros.
pub struct SharedMemory {
    number: u64,
    /// `None` only while it is dropped.
    contents: Mutex<Option<Box<Contents>>>,
    _charge: Charge,
}

impl SharedMemory {
    /// An object of `length` bytes. `payer` is charged for all its pages now, or, if it `is_lazy`,
    /// for each when it is first accessed.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(length: usize, payer: Family, is_lazy: bool) -> Result<Arc<Self>, Errno> {
        let charge = |bytes| Charge::new(payer, &Amounts::of(Kind::Memory, bytes));
        let _charge = charge(RECORD_BYTES)?;
        let length = length.next_multiple_of(FRAME_BYTES) as u64;
        let prepaid = if is_lazy { None } else { Some(charge(length)?) };
        let contents = Mutex::new(Some(Contents::with_length(length, prepaid)?));
        Ok(try_arc(Self { number: next_object_number(), contents, _charge })?)
    }
}

impl MemoryObject for SharedMemory {
    fn number(&self) -> u64 {
        self.number
    }

    fn page(&self, page: u64, payer: Family) -> Result<Frame, FaultError> {
        self.contents.lock().as_mut().ok_or(FaultError::NoPage)?.frame(page, payer)
    }

    fn copy_page(&self, _page: u64) -> Result<Frame, FaultError> {
        // It has no private mappings.
        Err(FaultError::NoPage)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if let Some(contents) = self.contents.get_mut().take() {
            sweep(contents);
        }
    }
}
