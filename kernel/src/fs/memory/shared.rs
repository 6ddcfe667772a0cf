//! Shared mappings of files in memory.
//!
//! The frames of a file are in the tables of the spaces that have it mapped. If the file lost them,
//! a space would go on with frames that the file does not have any more. So a file is not made
//! shorter while it is mapped (decision 37).

use alloc::sync::Arc;
use core::any::Any;

use cops_abi::Errno;
use cops_fallible::try_arc;

use super::inode::{Body, Inode};
use crate::mm::quota::Family;
use crate::mm::{FaultError, Frame, MemoryObject};

/// A file as a memory object, which exists as long as the file is mapped.
pub(super) struct SharedFile(Arc<Inode>);

impl MemoryObject for SharedFile {
    fn number(&self) -> u64 {
        self.0.number()
    }

    fn page(&self, page: u64, payer: Family) -> Result<Frame, FaultError> {
        self.0.page(page, payer)
    }

    fn copy_page(&self, page: u64) -> Result<Frame, FaultError> {
        self.0.copy_page(page)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Inode {
    /// The file, for a shared mapping.
    ///
    /// # Errors
    /// `ENODEV` if it is not a file that can be written; `ENOMEM`.
    pub(super) fn as_shared(self: Arc<Self>) -> Result<Arc<dyn MemoryObject>, Errno> {
        let Body::File(contents) = &self.body else { return Err(Errno::ENODEV) };
        // With this lock: a change of the length comes before, or sees the mapping.
        let _contents = contents.lock();
        let mut mapped = self.mapped.lock();
        if let Some(shared) = mapped.upgrade() {
            return Ok(shared);
        }
        let shared = try_arc(SharedFile(self.clone()))?;
        *mapped = Arc::downgrade(&shared);
        Ok(shared)
    }

    /// Whether a space has it mapped. With the lock of its contents.
    pub(super) fn is_mapped(&self) -> bool {
        self.mapped.lock().strong_count() > 0
    }
}
