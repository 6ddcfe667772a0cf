//! What address spaces have of a mapped file: a memory object.
//!
//! A space calls it with the space's lock held, so it locks only the state of the file. It is
//! dropped without such a lock.

use alloc::sync::Arc;
use core::any::Any;

use super::MappedFile;
use crate::fs::node::NodeRef;
use crate::mm::quota::Family;
use crate::mm::{FaultError, Frame, MemoryObject};

/// A mapped file as a memory object, which exists as long as a space has it mapped.
pub struct Mapping(pub(super) Arc<MappedFile>);

impl Mapping {
    /// The file.
    pub fn file(&self) -> &Arc<MappedFile> {
        &self.0
    }

    /// Its node.
    pub fn node(&self) -> &NodeRef {
        &self.0.node
    }
}

impl MemoryObject for Mapping {
    fn number(&self) -> u64 {
        self.0.as_object
    }

    fn page(&self, page: u64, payer: Family) -> Result<Frame, FaultError> {
        let mut state = self.0.state.lock();
        if !state.can_reach(page) {
            return Err(FaultError::NoPage);
        }
        state.contents.as_mut().ok_or(FaultError::NoPage)?.frame(page, payer)
    }

    fn copy_page(&self, page: u64) -> Result<Frame, FaultError> {
        let state = self.0.state.lock();
        if !state.can_reach(page) {
            return Err(FaultError::NoPage);
        }
        state.contents.as_ref().ok_or(FaultError::NoPage)?.copy_page(page)
    }

    fn tracks_writes(&self) -> bool {
        true
    }

    fn becomes_writable(&self, page: u64) {
        let mut state = self.0.state.lock();
        state.is_dirty = true;
        if let Some(contents) = &mut state.contents {
            contents.set_dirty(page, true);
        }
    }

    fn becomes_read_only(&self, page: u64) {
        if let Some(contents) = &mut self.0.state.lock().contents {
            contents.set_read_only(page);
        }
    }

    fn may_extend(&self) -> bool {
        false
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.0.is_left();
    }
}
