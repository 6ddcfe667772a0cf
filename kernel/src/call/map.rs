//! Mapping files that a process serves, and writing back what was written to such mappings
//! (decision 50).
//!
//! The pages of a file are read before it is mapped, in portions. Then the mapping is made as any
//! other.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::ops::Range;

use cops_abi::Errno;

use crate::fs::{Ask, Mapping, NodeRef};
use crate::mm::quota::Charge;
use crate::mm::{MemoryObject, Place, Rights, Source, View};
use crate::process::Process;

/// A mapping of a file that is to be made.
pub struct MapCall {
    pub place: Place,
    pub rights: Rights,
    /// Whether what is written belongs to the file.
    pub is_shared: bool,
    /// Whether the mapping may become writable.
    pub may_write: bool,
    /// The pages of the file.
    pub pages: Range<u64>,
    /// The next one to be read.
    next: u64,
    mapping: Option<Arc<Mapping>>,
    /// Whether it is in flight: [`Self::end`] follows.
    is_in_flight: bool,
}

impl MapCall {
    /// A mapping of `pages`.
    pub fn new(
        place: Place,
        rights: Rights,
        pages: Range<u64>,
        is_shared: bool,
        may_write: bool,
    ) -> Self {
        let next = pages.start;
        let (mapping, is_in_flight) = (None, false);
        Self { place, rights, is_shared, may_write, pages, next, mapping, is_in_flight }
    }

    /// It is about to be in flight.
    pub fn begin_waiting(&mut self) {
        self.is_in_flight = true;
    }

    /// It has ended, or is cancelled. What it has unmapped stays unmapped, and is free.
    pub fn end(&mut self, process: &Process) {
        if let Place::Replace(place) = &mut self.place {
            place.give_up(&process.space);
        }
    }

    /// Executes a portion: reads some pages of `node`, or maps them. Returns the address; `None` if
    /// there is more to do, or to wait for.
    pub fn attempt(
        &mut self,
        process: &Process,
        node: &NodeRef,
        ask: &mut Ask,
    ) -> Result<Option<usize>, Errno> {
        let mapping = match &self.mapping {
            Some(mapping) => mapping.clone(),
            None => {
                let served = node.served().ok_or(Errno::ENODEV)?;
                self.mapping.insert(served.map(node, process.family)?).clone()
            }
        };
        match mapping.file().load_some(&self.pages, &mut self.next, ask) {
            Some(Ok(true)) => {}
            Some(Ok(false)) | None => return Ok(None),
            Some(Err(error)) => return Err(error),
        }
        if matches!(self.place, Place::Replace(_)) && !self.is_in_flight {
            // A call that is not in flight, for want of a cell, has changed nothing.
            return Ok(None);
        }
        let (object, first) = (mapping as Arc<dyn MemoryObject>, self.pages.start);
        let may_write = self.may_write;
        let view = |payer| View { object, first, payer, may_write };
        let source = if self.is_shared {
            Source::Shared(view(Some(Charge::shared_standing(process.family)?)))
        } else {
            Source::Private(view(None))
        };
        Ok(self.place.map(&process.space, self.rights, &source)?)
    }
}

/// Memory of which what was written is to be written back.
pub struct SyncMemory {
    /// What is left of it.
    rest: Range<usize>,
    /// Of the region at its beginning: what has to be made read-only.
    protect: Option<Range<usize>>,
    /// The object of that region.
    mapping: Option<Arc<dyn MemoryObject>>,
}

impl SyncMemory {
    /// All mappings in `range`.
    pub fn new(range: Range<usize>) -> Self {
        Self { rest: range, protect: None, mapping: None }
    }

    /// Executes a portion. Returns whether everything is written; if not, there is more to do, or
    /// to wait for.
    ///
    /// # Errors
    /// `ENOMEM` where nothing is mapped; those of the server.
    pub fn attempt(&mut self, process: &Process, ask: &mut Ask) -> Result<bool, Errno> {
        let Some(mapping) = &self.mapping else {
            if self.rest.is_empty() {
                return Ok(true);
            }
            let at = self.rest.start;
            let (object, end) = process.space.tracked_object(at).map_err(|_| Errno::ENOMEM)?;
            self.rest.start = end.min(self.rest.end);
            self.protect = object.is_some().then_some(at..self.rest.start);
            self.mapping = object;
            return Ok(false);
        };
        if let Some(part) = &self.protect {
            self.protect = process.space.write_protect_some(part)?;
            return Ok(false);
        }
        if let Some(mapping) = mapping.as_any().downcast_ref::<Mapping>() {
            match mapping.node().clone().synchronise(ask) {
                Some(result) => result?,
                None => return Ok(false),
            }
            // The requests of the next mapping have replies of their own.
            ask.next_step();
        }
        self.mapping = None;
        Ok(false)
    }
}
