//! Open files of served file systems, and the calls that read and write them.
//!
//! Calls that use the position of an open file take turns, so that each begins where the one
//! before has ended. The turn belongs to the call from its request to its reply.

use alloc::sync::Arc;
use core::mem::take;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::file::open;
use cops_abi::served::DATA_BYTES_MAX;
use cops_fallible::{List, OutOfMemory};
use cops_lock::Mutex;
use spin::Once;

use super::ServedNode;
use super::ask::Ask;
use super::mapped::{MappedFile, Writing};
use super::pages::Read;
use crate::fs::file::{File, Object};
use crate::fs::node::{Node, NodeRef};
use crate::mm::PinnedBuffer;
use crate::mm::frames::FRAME_BYTES;
use crate::mm::quota::{Family, Kept};
use crate::sched::{WaitQueue, Waiter, Waiting};

/// An open file.
pub struct ServedFile {
    node: NodeRef,
    position: Mutex<Position>,
    /// Calls that wait for their turn.
    pub(super) turns: WaitQueue,
    /// If pages are kept: what it was written through.
    writing: Once<Option<Arc<Writing>>>,
}

struct Position {
    offset: u64,
    /// Whether a call has its turn.
    is_taken: bool,
}

impl ServedFile {
    /// The open file of `node`, at its beginning.
    pub fn new(node: NodeRef) -> Self {
        let position = Mutex::new(Position { offset: 0, is_taken: false });
        Self { node, position, turns: WaitQueue::new(), writing: Once::new() }
    }

    /// The node.
    pub fn node(&self) -> &NodeRef {
        &self.node
    }

    /// The position.
    pub fn position(&self) -> u64 {
        self.position.lock().offset
    }

    /// What it is written through, for which `payer` pays; `None` if no pages are kept.
    fn writing(&self, node: &ServedNode, payer: Family) -> Result<Option<&Arc<Writing>>, Errno> {
        if let Some(writing) = self.writing.get() {
            return Ok(writing.as_ref());
        }
        let writing = node.writing(&self.node, payer)?;
        Ok(self.writing.call_once(|| writing).as_ref())
    }

    /// Takes the turn, if it is free. Returns the position.
    pub(super) fn take_turn(&self) -> Option<u64> {
        let mut position = self.position.lock();
        if position.is_taken {
            return None;
        }
        position.is_taken = true;
        Some(position.offset)
    }

    /// The turn is over, and the position has moved.
    pub(super) fn end_turn(&self, moved_to: Option<u64>) {
        let mut position = self.position.lock();
        position.is_taken = false;
        position.offset = moved_to.unwrap_or(position.offset);
        drop(position);
        self.turns.wake_one();
    }
}

/// A call that reads or writes.
pub struct ServedTransfer {
    file: Arc<File>,
    /// Until the request has them.
    buffers: List<PinnedBuffer>,
    /// Number of bytes that are asked for.
    length: usize,
    /// Number of bytes that have been read, if pages are kept.
    done: usize,
    /// Where; `None`: at the position of the file.
    offset: Option<u64>,
    direction: Waiting,
    /// Whether a write is a request, because the kernel cannot keep it, or must not.
    is_request: bool,
    /// Where what was written ends, and how much that is, until it is durable.
    written: Option<(u64, usize)>,
    /// The position, while this call has its turn.
    turn: Option<u64>,
    /// Its number in the queue for the turn, if it is there.
    queued: Option<u32>,
    /// Number of bytes of copies among the buffers.
    copied: usize,
    kept: Kept,
    /// A page that was asked for ahead, which it waits for; and whether it is in that queue.
    page: Option<u64>,
    is_in_queue_for_page: bool,
    ask: Ask,
}

impl ServedTransfer {
    /// Reads into `buffers`, or writes them, at `offset` or at the position.
    ///
    /// # Errors
    /// `EBADF` if the file is not open for this, `EISDIR` for a directory.
    pub fn new(
        file: Arc<File>,
        buffers: List<PinnedBuffer>,
        offset: Option<u64>,
        direction: Waiting,
    ) -> Result<Self, Errno> {
        let is_open = match direction {
            Waiting::ToRead => file.is_readable(),
            Waiting::ToWrite => file.is_writable(),
        };
        if !is_open {
            return Err(Errno::EBADF);
        }
        if file.is_directory() {
            return Err(Errno::EISDIR);
        }
        let length = buffers.iter().map(PinnedBuffer::len).sum::<usize>().min(DATA_BYTES_MAX);
        let copied = buffers.iter().map(PinnedBuffer::copied_bytes).sum();
        let (turn, queued, ask) = (None, None, Ask::default());
        let (done, is_request) = (0, file.flags() & open::DATA_DURABLE != 0);
        Ok(Self {
            file,
            buffers,
            length,
            done,
            offset,
            direction,
            is_request,
            written: None,
            turn,
            queued,
            copied,
            kept: Kept::default(),
            page: None,
            is_in_queue_for_page: false,
            ask,
        })
    }

    /// The number of the operation for measurements.
    pub fn number(&self) -> u32 {
        if self.direction == Waiting::ToRead { 1 } else { 2 }
    }

    /// It has to wait: charges what it keeps to `payer`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn begin_waiting(&mut self, payer: Family) -> Result<(), OutOfMemory> {
        self.kept.at_least(payer, size_of::<Self>() + self.copied)
    }

    /// Goes on as far as possible; `None` if it has to wait. `payer` pays for the request.
    pub fn attempt(&mut self, payer: Family) -> Option<CallResult> {
        let file = self.file.clone();
        let Object::Served(served) = &file.object else { return Some(Err(Errno::EBADF)) };
        let Some(node) = served.node.served() else { return Some(Err(Errno::EIO)) };
        if self.length == 0 {
            return Some(Ok(0));
        }
        let at = match (self.offset, self.turn) {
            (Some(offset), _) | (None, Some(offset)) => offset,
            (None, None) => {
                let at = *self.turn.insert(served.take_turn()?);
                // The end of its own turn would wake this call instead of one that waits.
                if let Some(number) = self.queued.take() {
                    served.turns.remove(number, false);
                }
                at
            }
        };
        // No position is larger than a signed number can be.
        let room = (i64::MAX as u64).saturating_sub(at);
        let length = self.length.min(usize::try_from(room).unwrap_or(usize::MAX));
        self.page = None;
        self.ask.begin(0, payer);
        let result = match self.direction {
            Waiting::ToRead if length == 0 => Ok((at, 0)),
            Waiting::ToRead if node.pages().is_some() => {
                self.read_pages(node, at, length)?.map(|count| (at + count as u64, count))
            }
            Waiting::ToRead => node
                .read_buffers(at, length, || take(&mut self.buffers), &mut self.ask)?
                .map(|count| (at + count as u64, count)),
            Waiting::ToWrite => {
                let offset = (file.flags() & open::APPEND == 0).then_some(at);
                if offset.is_some() && length == 0 {
                    Err(Errno::EFBIG)
                } else if let Some(offset) = offset
                    && !self.is_request
                    && self.keep(served, node, offset, length, payer)?
                {
                    Ok((offset + length as u64, length))
                } else {
                    let length = if offset.is_none() { self.length } else { length };
                    self.write((served, node), offset, length, payer)?
                }
            }
        };
        if self.turn.take().is_some() {
            served.end_turn(result.as_ref().ok().map(|&(end, _)| end));
        }
        Some(result.map(|(_, count)| count))
    }

    /// Writes `length` bytes at `offset`, or at the end, with a request; with another one, they
    /// become durable, if the file was opened so. Returns where they end, and their number.
    fn write(
        &mut self,
        (served, node): (&ServedFile, &ServedNode),
        offset: Option<u64>,
        length: usize,
        payer: Family,
    ) -> Option<Result<(u64, usize), Errno>> {
        let written = match self.written {
            Some(written) => Ok(written),
            None => {
                // No page must be sent meanwhile: the server might perform that later.
                match served.writing(node, payer) {
                    Ok(Some(writing)) if !writing.take_turn(&mut self.ask) => return None,
                    Ok(_) => {}
                    Err(error) => return Some(Err(error)),
                }
                let buffers = || take(&mut self.buffers);
                let written = node.write_buffers(offset, length, buffers, &mut self.ask)?;
                self.ask.end_turn();
                written
            }
        };
        if self.file.flags() & open::DATA_DURABLE == 0 || written.is_err() {
            return Some(written);
        }
        if self.written.is_none() {
            self.written = written.ok();
            self.ask.next_step();
        }
        let durable = node.synchronise(&mut self.ask)?;
        Some(durable.and(written))
    }

    /// Keeps a write of `length` bytes at `offset`. Returns whether it has.
    fn keep(
        &mut self,
        served: &ServedFile,
        node: &ServedNode,
        offset: u64,
        length: usize,
        payer: Family,
    ) -> Option<bool> {
        let writing = served.writing(node, payer);
        let is_kept = match (writing, &*self.buffers) {
            (Ok(Some(writing)), [buffer]) => {
                writing.keep(offset, (buffer, length), payer, &mut self.ask)?
            }
            _ => Ok(false),
        };
        // An error is that of the question how long the file is: the request finds it too.
        self.is_request = is_kept != Ok(true);
        Some(!self.is_request)
    }

    /// Reads `length` bytes at `offset`: what is kept, and what the server is asked for.
    fn read_pages(
        &mut self,
        node: &ServedNode,
        offset: u64,
        length: usize,
    ) -> Option<Result<usize, Errno>> {
        if node.is_closed() {
            return Some(Err(Errno::EIO));
        }
        let mapped = node.mapped();
        while self.done < length {
            let from = offset + self.done as u64;
            let at = within_page(from);
            let mut rest = length - self.done;
            if mapped.is_some() {
                // The next page may be one that is mapped.
                rest = rest.min(FRAME_BYTES - at);
            }
            if !self.ask.is_pending() {
                let read = self.read_kept(node, mapped.as_deref(), from, rest)?;
                self.done += read.bytes;
                if read.is_end {
                    break;
                }
                if read.bytes > 0 {
                    continue;
                }
                let page = from / FRAME_BYTES as u64;
                if node.is_coming(page) {
                    self.page = Some(page);
                    return None;
                }
            }
            let answer = match node.read_pages(from, rest, &mut self.ask)? {
                Ok(answer) => answer,
                Err(error) if self.done == 0 => return Some(Err(error)),
                Err(_) => break,
            };
            self.ask.next_step();
            // The data of the reply are whole pages.
            let count = rest.min(answer.bytes.saturating_sub(at));
            self.done += answer.copy_data(at, (&self.buffers, self.done), count);
            // The file may end behind what is read, and the next page be here.
            if answer.is_short() && count < rest {
                break;
            }
        }
        Some(Ok(self.done))
    }

    /// Reads what the kernel has of `length` bytes at `offset`, which are in one page if the file
    /// is mapped. `None` if no pages are kept.
    fn read_kept(
        &self,
        node: &ServedNode,
        mapped: Option<&MappedFile>,
        offset: u64,
        length: usize,
    ) -> Option<Read> {
        let into = (&*self.buffers, self.done);
        if let Some(mapped) = mapped {
            let bytes = mapped.read(offset, into, length);
            if bytes > 0 {
                return Some(Read { bytes, is_end: false });
            }
        }
        let (pages, number) = node.pages()?;
        Some(pages.read((number, offset), into, length))
    }

    /// Registers `waiter` for the next event: its turn, or the reply. Returns false if only a
    /// portion was over, and the call is to attempt again when others have run.
    pub fn insert_waiter(&mut self, waiter: Waiter) -> bool {
        let file = self.file.clone();
        let Object::Served(served) = &file.object else { return false };
        let page = self.page.take();
        if let (Some(page), Some(node)) = (page, served.node.served()) {
            self.stop_queueing(waiter.number, false);
            self.is_in_queue_for_page = true;
            node.wait_for_page(page, self.ask.payer(), waiter);
        } else if self.ask.must_wait() {
            self.stop_queueing(waiter.number, false);
            let pages = self.ask.unsent_pages();
            self.ask.insert_waiter(&waiter);
            if let (Some(pages), Some(node), Some(payer)) =
                (pages, served.node.served(), self.ask.payer())
            {
                node.read_ahead(pages, payer, waiter.priority);
            }
        } else if self.waits_for_position() {
            self.queued = Some(waiter.number);
            served.turns.insert(waiter);
        } else {
            self.stop_queueing(waiter.number, false);
            return false;
        }
        true
    }

    /// Whether it waits for its turn to use the position of the file.
    fn waits_for_position(&self) -> bool {
        self.offset.is_none() && self.turn.is_none()
    }

    /// Whether the attempt after [`Self::insert_waiter`] waits for an event for which no waiter is
    /// registered, or only a portion was over.
    pub fn waits_for_another_event(&self) -> bool {
        let is_registered = if self.page.is_some() {
            self.is_in_queue_for_page
        } else if self.waits_for_position() {
            self.queued.is_some()
        } else {
            self.ask.is_registered()
        };
        !is_registered
    }

    /// The waiter with this number stops waiting for its turn. If it was woken and has not used
    /// the turn, the next one may have it.
    pub fn remove_waiter(&mut self, waiter: u32, must_pass_on: bool) {
        self.ask.remove_waiter();
        self.stop_queueing(waiter, must_pass_on);
    }

    fn stop_queueing(&mut self, waiter: u32, must_pass_on: bool) {
        let Object::Served(served) = &self.file.object else { return };
        if let Some(number) = self.queued.take() {
            served.turns.remove(number, must_pass_on);
        }
        if core::mem::take(&mut self.is_in_queue_for_page)
            && let Some(node) = served.node.served()
        {
            node.stop_waiting_for_page(waiter);
        }
    }

    /// The waiter with this number has become less urgent.
    pub fn pass_on(&self, waiter: u32) {
        if self.queued.is_some()
            && let Object::Served(served) = &self.file.object
        {
            served.turns.pass_on(waiter);
        }
    }
}

/// Where in its page this byte is.
fn within_page(offset: u64) -> usize {
    (offset % FRAME_BYTES as u64) as usize
}

impl Drop for ServedTransfer {
    fn drop(&mut self) {
        if self.turn.take().is_some()
            && let Object::Served(served) = &self.file.object
        {
            served.end_turn(None);
        }
    }
}
