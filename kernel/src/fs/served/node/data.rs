//! The bytes of a file of a served file system: reads and writes, pages that are kept or mapped,
//! and the length.

use alloc::sync::Arc;

use cops_abi::file::Status;
use cops_abi::served::{self, DATA_BYTES_MAX, PLACED_BYTES_MAX, Reply, change, operation};
use cops_abi::{Errno, Priority};
use cops_fallible::List;

use super::ServedNode;
use crate::fs::node::{Attempt, NodeRef};
use crate::fs::served::ask::{Answer, Ask};
use crate::fs::served::mapped::{MappedFile, MappedFiles, Mapping, Writing};
use crate::fs::served::pages::Pages;
use crate::fs::served::request::{Data, Draft, Request};
use crate::mm::PinnedBuffer;
use crate::mm::frames::FRAME_BYTES;
use crate::mm::quota::Family;
use crate::sched::Waiter;

impl ServedNode {
    /// Reads at `offset` into the buffers that `buffers` returns, `length` bytes at most.
    pub fn read_buffers(
        &self,
        offset: u64,
        length: usize,
        buffers: impl FnOnce() -> List<PinnedBuffer>,
        ask: &mut Ask,
    ) -> Attempt<usize> {
        let answer = attempt!(self.ask_with(operation::READ, ask, |draft| {
            (draft.first, draft.second) = (offset, length as u64);
            draft.data = Data::Into(buffers(), length);
        }));
        Some(Ok(answer.bytes))
    }

    /// The pages that are kept of the file system's files, and the number of this one; `None` if
    /// none are kept.
    pub fn pages(&self) -> Option<(&Pages, u64)> {
        self.connection.pages().map(|pages| (pages, self.number))
    }

    /// Reads into frames of the kernel: at most `length` bytes at `offset`. If pages are kept,
    /// whole pages: those of these bytes, or the first of them, or more.
    pub fn read_pages(&self, offset: u64, length: usize, ask: &mut Ask) -> Attempt<Answer> {
        ask.ask(&self.connection, || {
            let mut draft = Draft::new(operation::READ, self.number);
            let (first, length) = if let Some((pages, node)) = self.pages() {
                let (fill, first, length) = pages.begin_fill(node, offset, length);
                draft.fill = Some(fill);
                draft.flags = self.takes_places();
                (first, length)
            } else {
                (offset, length.min(DATA_BYTES_MAX))
            };
            (draft.first, draft.second) = (first, length as u64);
            draft.data = Data::Room(length);
            Ok(draft)
        })
    }

    /// The flag of requests for pages, if the kernel can read them from the disk itself.
    fn takes_places(&self) -> u32 {
        if self.connection.has_disk() { served::TAKES_PLACES } else { 0 }
    }

    /// A call of this priority asks for `count` pages from `first` on, or waits for them. If those
    /// before are kept, the file is read in order: asks for those behind them, too, the more of
    /// them the longer that goes on. `payer` pays for it.
    pub fn read_ahead(&self, (first, count): (u64, u64), payer: Family, priority: Priority) {
        const PAGE: u64 = FRAME_BYTES as u64;
        const PAGES: u64 = DATA_BYTES_MAX as u64 / PAGE;
        const PLACED_PAGES: u64 = PLACED_BYTES_MAX as u64 / PAGE;
        // Seven would be more than a portion may take, with the call itself.
        const REQUESTS_MAX: u64 = 5;
        let Some((pages, number)) = self.pages().filter(|_| count == PAGES) else { return };
        // With a disk, what is asked for gets its frames later.
        let largest = if self.connection.has_disk() { PLACED_PAGES } else { PAGES };
        let window = pages.count_before(number, first, REQUESTS_MAX * largest);
        let (mut next, end) = (first + count, first + count + window);
        for _ in 0..2 * REQUESTS_MAX {
            let length = largest.min(end.saturating_sub(next) / PAGES * PAGES);
            // No position is larger than a signed number can be.
            if length == 0 || end.saturating_mul(PAGE) > i64::MAX as u64 {
                return;
            }
            if let Some(behind) = self.connection.ahead.end_of((number, next)) {
                next = behind;
            } else if pages.is_missing(number, next) {
                self.send_ahead((next, length), payer, priority);
                next += length;
            } else {
                next += PAGES;
            }
        }
    }

    /// Asks for `length` pages from `first` on, which no call waits for.
    fn send_ahead(&self, (first, length): (u64, u64), payer: Family, priority: Priority) {
        const PAGE: u64 = FRAME_BYTES as u64;
        let Some((pages, number)) = self.pages() else { return };
        let mut draft = Draft::new(operation::READ, self.number);
        draft.fill = Some(pages.begin_keep(number));
        draft.flags = self.takes_places();
        (draft.first, draft.second) = (first * PAGE, length * PAGE);
        draft.data = Data::Room((length * PAGE) as usize);
        // Without memory, what follows is asked for when it is needed.
        let Ok(request) = Request::new(draft, payer) else { return };
        let connection = &self.connection;
        connection.ahead.send(connection, (first, first + length), request, priority);
    }

    /// Whether this page was asked for, for a call that reads in order, and is not there yet.
    pub fn is_coming(&self, page: u64) -> bool {
        self.connection.ahead.brings((self.number, page))
    }

    /// The call of `waiter` waits for a page that is coming. With a disk, more is read ahead, for
    /// which `payer` pays.
    pub fn wait_for_page(&self, page: u64, payer: Option<Family>, waiter: Waiter) {
        let priority = waiter.priority;
        self.connection.ahead.insert_waiter(&self.connection, (self.number, page), waiter);
        if let Some(payer) = payer.filter(|_| self.connection.has_disk()) {
            const PAGES: u64 = (DATA_BYTES_MAX / FRAME_BYTES) as u64;
            self.read_ahead((page, PAGES), payer, priority);
        }
    }

    /// The waiter with this number does not wait for such a page any more.
    pub fn stop_waiting_for_page(&self, waiter: u32) {
        self.connection.ahead.remove_waiter(waiter);
    }

    /// Writes the first `length` bytes of the buffers that `buffers` returns, at `offset` or at
    /// the end. Returns where the written bytes end, and their number.
    pub fn write_buffers(
        &self,
        offset: Option<u64>,
        length: usize,
        buffers: impl FnOnce() -> List<PinnedBuffer>,
        ask: &mut Ask,
    ) -> Attempt<(u64, usize)> {
        let answer = attempt!(self.ask_with(operation::WRITE, ask, |draft| {
            draft.first = offset.unwrap_or(0);
            draft.flags = if offset.is_none() { served::AT_END } else { 0 };
            draft.data = Data::From(buffers(), length);
        }));
        let count = answer.reply.value;
        let end = offset.map_or(answer.reply.place, |offset| offset.saturating_add(count));
        let is_possible =
            (1..=length as u64).contains(&count) && i64::try_from(end).is_ok() && count <= end;
        Some(if is_possible { Ok((end, count as usize)) } else { Err(Errno::EIO) })
    }

    /// Writes back what `next` returns: dirty bytes, where they belong, and when the file was
    /// written, in nanoseconds since 1970, if that is known. Returns how many have been written, as
    /// the server says: it may be any number.
    pub(in crate::fs::served) fn write_back(
        &self,
        next: impl FnOnce() -> Result<(u64, PinnedBuffer, Option<u64>), Errno>,
        ask: &mut Ask,
    ) -> Attempt<u64> {
        let answer = attempt!(ask.ask(&self.connection, || {
            let (offset, buffer, written_at) = next()?;
            let mut draft = Draft::new(operation::WRITE, self.number);
            let length = buffer.len();
            let mut buffers = List::new();
            buffers.try_push(buffer)?;
            (draft.first, draft.is_write_back) = (offset, true);
            if let Some(written_at) = written_at {
                (draft.flags, draft.second) = (served::WRITTEN_AT, written_at);
            }
            draft.data = Data::From(buffers, length);
            Ok(draft)
        }));
        Some(Ok(answer.reply.value))
    }

    /// The status, as the server has it.
    pub(in crate::fs::served) fn status_of_server(&self, ask: &mut Ask) -> Attempt<Status> {
        self.checked(&attempt!(self.ask(operation::GET_STATUS, ask)).reply)
    }

    /// The length, and how many bytes from the beginning on can be written without more space.
    pub(in crate::fs::served) fn length_of_server(&self, ask: &mut Ask) -> Attempt<(u64, u64)> {
        let asked = |draft: &mut Draft<'_>| draft.flags = served::ASKS_FOR_SOLID;
        let reply = attempt!(self.ask_with(operation::GET_STATUS, ask, asked)).reply;
        let status = attempt!(self.checked(&reply));
        Some(Ok((status.size, reply.value.min(status.size))))
    }

    fn checked(&self, reply: &Reply) -> Attempt<Status> {
        let status = reply.status;
        if status.kind() != self.kind || i64::try_from(status.size).is_err() {
            return Some(Err(Errno::EIO));
        }
        let file_system = self.connection.number;
        Some(Ok(Status { file_system, number: self.number, ..status }))
    }

    /// Writes dirty pages back, if the file `has_some`, before the first request of a step.
    pub(super) fn write_back_first(
        &self,
        ask: &mut Ask,
        has_some: impl Fn(&MappedFile) -> bool,
    ) -> Attempt<()> {
        if let Some(file) = self.mapped()
            && (ask.has_turn_of(&file) || ask.is_fresh() && has_some(&file))
        {
            return file.write_back(ask);
        }
        Some(Ok(()))
    }

    /// What an open file needs to write to `node`, which is this one; `None` if no pages of it are
    /// kept.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn writing(&self, node: &NodeRef, payer: Family) -> Result<Option<Arc<Writing>>, Errno> {
        MappedFiles::write(&self.connection, node, payer)
    }

    /// The file, if it is mapped or written, or is to be written back.
    pub fn mapped(&self) -> Option<Arc<MappedFile>> {
        self.connection.mapped.get(self.number)
    }

    /// The next file of this file system, above `after`, with pages that are to be written back, or
    /// the number to go on with.
    pub fn next_dirty(&self, after: u64) -> Result<Arc<MappedFile>, Option<u64>> {
        self.connection.mapped.next_dirty(after)
    }

    /// A mapping of `node`, which is this one; `payer` pays for what it takes.
    ///
    /// # Errors
    /// `ENODEV` if it is no file of which the kernel keeps pages, `ENOMEM`.
    pub fn map(&self, node: &NodeRef, payer: Family) -> Result<Arc<Mapping>, Errno> {
        MappedFiles::map(&self.connection, node, payer)
    }

    /// Changes the length.
    ///
    /// # Errors
    /// `ETXTBSY` if pages that are mapped would be lost.
    pub(super) fn set_length(&self, node: &NodeRef, length: u64, ask: &mut Ask) -> Attempt<()> {
        let writing = match self.writing(node, ask.payer()?) {
            Ok(writing) => writing,
            Err(error) => return Some(Err(error)),
        };
        if let Some(writing) = writing {
            let file = writing.file().clone();
            if !ask.take_turn_to_resize(writing) {
                return None;
            }
            // What a write-back has sent would make the file longer again.
            if !ask.is_pending() && file.would_lose(length) {
                return Some(Err(Errno::ETXTBSY));
            }
            if let Err(error) = file.prepare_resize(ask)? {
                ask.end_turn();
                return Some(Err(error));
            }
        }
        attempt!(self.ask_with(operation::SET_STATUS, ask, |draft| {
            (draft.flags, draft.second) = (change::LENGTH, length);
            draft.data = Data::Words([0; 4]);
        }));
        ask.end_turn();
        Some(Ok(()))
    }
}
