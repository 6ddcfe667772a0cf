//! Reads and writes of Linux programs that move more than one attempt can (decision 41).
//!
//! A part follows the other: each is an operation of its own, with its own pinned buffer, and each
//! attempt completes at most one, so that a portion has the length of one part. A read ends when a
//! part finds less than it has asked for. A write ends when everything is written, and waits for
//! room in between. What has been moved is the result also if a later part fails or a signal
//! arrives.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::errno::CallResult;
use cops_abi::served::DATA_BYTES_MAX;
use cops_abi::{Errno, Priority};
use cops_fallible::{List, OutOfMemory, try_box};
use cops_lock::Mutex;

use super::{CellIndex, Operation, Pieces, Transfer};
use crate::drivers::console;
use crate::fs::{File, Object, ServedTransfer};
use crate::mm::layout::PAGE_BYTES;
use crate::mm::quota::Kept;
use crate::mm::{self, Access, AddressSpace, PinnedBuffer};
use crate::process::Process;
use crate::sched::{Waiter, Waiting};

/// What a call asks for.
pub struct LongRequest {
    /// The open file.
    pub file: Arc<File>,
    /// The program's memory.
    pub pieces: Pieces,
    /// Where in the file; `None`: at its position, which moves.
    pub offset: Option<u64>,
    /// Whether it reads or writes.
    pub direction: Waiting,
    /// Whether a read goes on when there is nothing more to read yet.
    pub waits_for_all: bool,
    /// Whether it never waits for a reader or a writer.
    pub is_non_blocking: bool,
}

/// A read or a write in parts.
pub struct LongTransfer {
    request: LongRequest,
    /// Number of bytes that have been moved.
    done: usize,
    /// The part that is under way.
    part: Option<Part>,
    /// Whether the last attempt has completed a part, and there are more.
    is_portion_over: bool,
    /// Whether the first attempt does nothing.
    begins_later: bool,
}

struct Part {
    /// Attempted until it has completed.
    operation: Operation,
    bytes: usize,
    /// What is left when all of these have been moved.
    behind: Pieces,
    /// The cell of the call, once it waits for an event of this part.
    registered: Option<CellIndex>,
    /// Number of bytes of a copy that it writes.
    copied: usize,
    kept: Kept,
}

/// Length of a part.
const PART_BYTES: usize = DATA_BYTES_MAX;
/// Length of a part that is written from several pieces.
const GATHERED_BYTES: usize = PART_BYTES / 2;
/// Maximum number of buffers that a part fills, each of which is pinned.
const PART_BUFFERS: usize = 8;
/// Maximum number of entries of an array of buffers that one part reads.
pub const PART_ENTRIES: usize = 12;
/// The memory of a call with more entries than this is pinned in a portion of its own.
const PINNED_ENTRIES: usize = 4;
/// An array with more entries than this is checked in a portion of its own.
pub(super) const FEW_ENTRIES: usize = 64;

impl LongRequest {
    /// A request that waits unless the file says that it does not.
    pub fn new(file: Arc<File>, pieces: Pieces, offset: Option<u64>, direction: Waiting) -> Self {
        let is_non_blocking = file.is_non_blocking();
        Self { file, pieces, offset, direction, waits_for_all: false, is_non_blocking }
    }

    /// Whether the portion in which the call began, and its array was checked, is long enough.
    pub fn begins_later(&self) -> bool {
        self.pieces.entry_count() > FEW_ENTRIES
    }

    /// Whether a portion ends when the memory of `part` is pinned, with the faults of its pages,
    /// and what it writes is gathered.
    fn is_scattered(&self, part: &Part) -> bool {
        self.pieces.entry_count() > PINNED_ENTRIES && part.bytes >= PAGE_BYTES
    }

    /// The length of the longest part.
    fn part_bytes(&self) -> usize {
        match self.file.object {
            Object::ConsoleOutput | Object::ConsoleError | Object::Console => console::PART_BYTES,
            _ => PART_BYTES,
        }
    }

    /// Whether a part ends as soon as the machine can, and not when another program does something.
    fn is_of_a_file_system(&self) -> bool {
        let object = &self.file.object;
        matches!(
            object,
            Object::Node { .. } | Object::Served(_) | Object::Disk { .. } | Object::Device { .. }
        )
    }

    /// Whether it goes on when a part has moved less than was asked for.
    fn moves_all(&self) -> bool {
        // A device never has less because it is at its end.
        let is_device = matches!(self.file.object, Object::Device { .. });
        self.direction == Waiting::ToWrite || self.waits_for_all || is_device
    }

    /// The position of the disk, if the transfer uses it: it moves when a part has completed.
    fn disk_position(&self) -> Option<&Mutex<u64>> {
        match (&self.file.object, self.offset) {
            (Object::Disk { position }, None) => Some(position),
            _ => None,
        }
    }

    /// Whether it waits for a reader or a writer although it has moved something.
    fn waits(&self) -> bool {
        self.is_of_a_file_system() || self.moves_all() && !self.is_non_blocking
    }

    /// The bytes that the next part writes, in one buffer: those of the program, or a copy if they
    /// are in several places. And what is left behind them. `None`: there are none among the
    /// entries of a part; the request has gone behind these.
    ///
    /// # Errors
    /// `EFAULT`, `ENOMEM`.
    pub fn gather(
        &mut self,
        space: &AddressSpace,
    ) -> Result<Option<(PinnedBuffer, Pieces)>, Errno> {
        let (mut behind, mut entries) = (self.pieces, PART_ENTRIES);
        let Some(first) = behind.take(space, self.part_bytes(), &mut entries)? else {
            self.pieces = behind;
            return Ok(None);
        };
        let mut bytes = first.len();
        // They are copied twice: to one buffer, and from there.
        let most = self.part_bytes().min(GATHERED_BYTES);
        while bytes < most
            && let Some(piece) = behind.take(space, most - bytes, &mut entries)?
        {
            bytes += piece.len();
        }
        if bytes == first.len() {
            return Ok(Some((PinnedBuffer::new(space, first, Access::Read)?, behind)));
        }
        let gathered = PinnedBuffer::gathered(bytes)?;
        let (mut again, mut entries, mut done) = (self.pieces, PART_ENTRIES, 0);
        while done < bytes
            && let Some(piece) = again.take(space, bytes - done, &mut entries)?
        {
            let buffer = PinnedBuffer::new(space, piece, Access::Read)?;
            gathered.copy_from(done, (&buffer, 0), buffer.len());
            done += buffer.len();
        }
        Ok(Some((gathered, behind)))
    }

    /// The next part. `None`: there was nothing to do in this portion.
    fn begin_part(&mut self, process: &Process) -> Result<Option<Part>, Errno> {
        mm::admit()?;
        let space = &process.space;
        let offset = self.disk_position().map(|position| *position.lock()).or(self.offset);
        if self.direction == Waiting::ToWrite {
            let Some((buffer, behind)) = self.gather(space)? else { return Ok(None) };
            return self.part_of(buffer, offset, behind).map(Some);
        }
        let (mut behind, mut entries) = (self.pieces, PART_ENTRIES);
        let Some(first) = behind.take(space, self.part_bytes(), &mut entries)? else {
            self.pieces = behind;
            return Ok(None);
        };
        let buffer = PinnedBuffer::new(space, first, Access::Write)?;
        let mut bytes = buffer.len();
        let is_disk = matches!(self.file.object, Object::Disk { .. });
        if is_disk || behind.is_empty() || bytes == self.part_bytes() {
            return self.part_of(buffer, offset, behind).map(Some);
        }
        let mut buffers = List::new();
        buffers.try_push(buffer)?;
        while buffers.len() < PART_BUFFERS
            && bytes < self.part_bytes()
            && let Some(piece) = behind.take(space, self.part_bytes() - bytes, &mut entries)?
        {
            buffers.try_push(PinnedBuffer::new(space, piece, Access::Write)?)?;
            bytes += piece.len();
        }
        let file = self.file.clone();
        let operation = Operation::transfer_of_buffers(file, buffers, offset, self.direction)?;
        Ok(Some(Part::new(operation, bytes, behind)))
    }

    /// A part of one buffer.
    fn part_of(
        &self,
        buffer: PinnedBuffer,
        offset: Option<u64>,
        behind: Pieces,
    ) -> Result<Part, Errno> {
        let (bytes, copied) = (buffer.len(), buffer.copied_bytes());
        let operation = Operation::transfer(self.file.clone(), buffer, offset, self.direction)?;
        // The other operations charge what they keep themselves.
        let is_charged_here = matches!(operation, Operation::Write { .. } | Operation::Disk(_));
        let copied = if is_charged_here { copied } else { 0 };
        Ok(Part { copied, ..Part::new(operation, bytes, behind) })
    }
}

impl Part {
    fn new(operation: Operation, bytes: usize, behind: Pieces) -> Self {
        let (registered, copied, kept) = (None, 0, Kept::default());
        Self { operation, bytes, behind, registered, copied, kept }
    }
}

impl LongTransfer {
    /// A transfer of which `done` bytes have been moved already, and `request` is the rest.
    pub fn new(request: LongRequest, done: usize) -> Self {
        let begins_later = request.begins_later();
        Self { request, done, part: None, is_portion_over: false, begins_later }
    }

    /// The number of the operation for measurements.
    pub fn number(&self) -> u32 {
        if self.request.direction == Waiting::ToRead { 1 } else { 2 }
    }

    /// The file and the direction.
    pub fn file(&self) -> (&File, Waiting) {
        (&self.request.file, self.request.direction)
    }

    /// The number of bytes that have been moved, if there are any: the result of the call if it is
    /// cut short.
    pub fn done(&self) -> Option<usize> {
        (self.done > 0).then_some(self.done)
    }

    /// Whether a signal ends it. As on Linux, not while it reads or writes a file: the server of
    /// the file may have written already what it is asked to append.
    pub fn is_interruptible(&self) -> bool {
        let object = &self.request.file.object;
        !matches!(object, Object::Node { .. } | Object::Served(_) | Object::Disk { .. })
    }

    /// Whether the call fails if it would have to wait now.
    pub fn is_non_blocking(&self) -> bool {
        !self.is_portion_over && self.request.is_non_blocking && !self.request.waits()
    }

    /// Completes at most one part; `None` if there are more, or it has to wait.
    pub fn attempt(&mut self, process: &Arc<Process>) -> Option<CallResult> {
        self.is_portion_over = core::mem::take(&mut self.begins_later);
        if self.is_portion_over {
            return None;
        }
        if self.part.is_none() {
            match self.request.begin_part(process) {
                Ok(Some(part)) => {
                    self.is_portion_over = self.request.is_scattered(&part);
                    self.part = Some(part);
                    if self.is_portion_over {
                        return None;
                    }
                }
                Ok(None) if self.request.pieces.is_empty() => return Some(Ok(self.done)),
                Ok(None) => {
                    self.is_portion_over = true;
                    return None;
                }
                // The next call finds the error.
                Err(error) => return Some(self.done().ok_or(error)),
            }
        }
        match self.attempt_part(process) {
            Ok(Some(0)) => Some(Ok(self.done)),
            Ok(Some(count)) => self.advance(count),
            Ok(None) if self.done > 0 && !self.request.waits() => Some(Ok(self.done)),
            Ok(None) if self.request.is_non_blocking && !self.request.waits() => {
                Some(Err(Errno::EAGAIN))
            }
            Ok(None) => None,
            // The next call finds the error.
            Err(error) if self.done > 0 => {
                self.request.file.restore_error(error);
                Some(Ok(self.done))
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Attempts the part. Returns what it has moved; `None` if it has to wait.
    fn attempt_part(&mut self, process: &Arc<Process>) -> Result<Option<usize>, Errno> {
        let Some(part) = &mut self.part else { return Ok(None) };
        let Some(result) = part.operation.attempt(process) else { return Ok(None) };
        let (bytes, behind) = (part.bytes, part.behind);
        if let Some(Part { mut operation, registered: Some(cell), .. }) = self.part.take() {
            operation.found(cell);
            operation.remove_waiter(process, cell, result.is_err());
        }
        let count = result?;
        let continues = count == bytes || self.request.moves_all();
        let pieces = &mut self.request.pieces;
        if count == bytes {
            *pieces = behind;
        } else if !continues || pieces.advance(&process.space, count, PART_ENTRIES).is_err() {
            // With an error, the program has changed the array, and what comes next is not known.
            pieces.end();
        }
        Ok(Some(count))
    }

    /// `count` bytes more have been moved. Returns the result if that was all.
    fn advance(&mut self, count: usize) -> Option<CallResult> {
        self.done += count;
        if let Some(position) = self.request.disk_position() {
            *position.lock() += count as u64;
        }
        if let Some(offset) = &mut self.request.offset {
            *offset += count as u64;
        }
        if self.request.pieces.is_empty() {
            return Some(Ok(self.done));
        }
        self.is_portion_over = true;
        None
    }

    /// As [`Operation::insert_waiter`].
    pub fn insert_waiter(
        &mut self,
        process: &Arc<Process>,
        waiter: Waiter,
    ) -> Result<bool, OutOfMemory> {
        if self.is_portion_over {
            cops_executor::wake_up(waiter.coroutine);
            return Ok(false);
        }
        let Some(part) = &mut self.part else { return Ok(true) };
        part.kept.at_least(process.family, part.copied)?;
        part.registered = Some(CellIndex::of_call(waiter.number));
        part.operation.insert_waiter(process, waiter)
    }

    /// As [`Operation::waits_for_another_event`].
    pub fn waits_for_another_event(&self) -> bool {
        let waits = |part: &Part| part.operation.waits_for_another_event();
        self.is_portion_over || self.part.as_ref().is_some_and(waits)
    }

    /// As [`Operation::remove_waiter`].
    pub fn remove_waiter(&mut self, process: &Process, cell: CellIndex, must_pass_on: bool) {
        if let Some(part) = &mut self.part {
            part.operation.remove_waiter(process, cell, must_pass_on);
        }
    }

    /// As [`Operation::reorder`].
    pub fn reorder(&mut self, process: &Process, cell: CellIndex, priority: Priority) -> bool {
        match &mut self.part {
            Some(part) => part.operation.reorder(process, cell, priority),
            None => false,
        }
    }
}

impl Operation {
    /// The operation that moves `buffer` to or from `file`, which is not the terminal's input, at
    /// `offset` or at its position.
    ///
    /// # Errors
    /// `EBADF`, `EISDIR`, `EINVAL`, `ENOSPC`, `EROFS` or `ENXIO` for what the file does not allow;
    /// `ENOMEM`.
    #[inline(always)]
    pub fn transfer(
        file: Arc<File>,
        buffer: PinnedBuffer,
        offset: Option<u64>,
        direction: Waiting,
    ) -> Result<Self, Errno> {
        match (&file.object, offset, direction) {
            (Object::Disk { .. } | Object::Served(_), ..) | (_, Some(_), _) => {
                Self::slow_transfer(file, buffer, offset, direction)
            }
            (_, None, Waiting::ToRead) => Ok(Operation::Read { file, buffer }),
            (_, None, Waiting::ToWrite) => Ok(Operation::Write { file, buffer }),
        }
    }

    /// As [`Self::transfer`], of the disk, of a file that a process serves, or at an offset.
    #[inline(never)]
    fn slow_transfer(
        file: Arc<File>,
        buffer: PinnedBuffer,
        offset: Option<u64>,
        direction: Waiting,
    ) -> Result<Self, Errno> {
        if let Object::Disk { .. } = file.object {
            return Ok(Operation::Disk(try_box(file.disk_transfer(offset, buffer, direction)?)?));
        }
        mm::admit()?;
        let mut buffers = List::new();
        buffers.try_push(buffer)?;
        Self::transfer_of_buffers(file, buffers, offset, direction)
    }

    /// The operation that moves several buffers, as [`Self::transfer`] one.
    ///
    /// # Errors
    /// As [`Self::transfer`].
    pub fn transfer_of_buffers(
        file: Arc<File>,
        buffers: List<PinnedBuffer>,
        offset: Option<u64>,
        direction: Waiting,
    ) -> Result<Self, Errno> {
        if let Object::Served(_) = file.object {
            let transfer = ServedTransfer::new(file, buffers, offset, direction)?;
            return Ok(Operation::Served(try_box(transfer)?));
        }
        let transfer = Transfer::new(file, buffers, offset, direction);
        Ok(Operation::Transfer(try_box(transfer)?))
    }
}
