//! Writes that the kernel keeps (decision 52): pages that are dirty until they have been written to
//! the server.
//!
//! A write is kept as a whole, or is a request. It is kept only where the file has blocks, so the
//! length of the file does not change, and the server has room for it.
//!
//! A write that is a request has the turn until it is answered, so nothing that is kept is sent
//! meanwhile. Its reply changes the pages that are here then, also those that came after it was
//! sent. Without the turn, a page could be sent, become clean and go before that reply, and the
//! server could have performed both in the other order: the file would have what was there before
//! the write, and nothing would be dirty.

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::file::mode;
use cops_algorithms::dirty_room::DirtyRoom;

use super::{MappedFile, MappedFiles, PAGE, Resizing, State, shared};
use crate::fs::node::{Attempt, NodeRef};
use crate::fs::served::Ask;
use crate::fs::served::connection::Connection;
use crate::fs::served::pages::Pages;
use crate::mm::PinnedBuffer;
use crate::mm::frames::FRAME_BYTES;
use crate::mm::quota::Family;
use crate::sched::timer;

/// What an open file has through which a file was written, and a call that changes its length. When
/// the last one is dropped, the file is written back.
pub struct Writing(Arc<MappedFile>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.is_left();
    }
}

/// What has become of a write.
enum Kept {
    /// The kernel has it.
    All,
    /// It has to be a request.
    Nothing,
    /// So far: it is not known how long the file is.
    Unknown,
}

/// Where a page of a write comes from.
struct Part<'a> {
    buffer: &'a PinnedBuffer,
    /// Where it begins in the buffer.
    at: usize,
    /// Where it begins in the page.
    within: usize,
    count: usize,
}

impl MappedFiles {
    /// `node` is about to be written, or to get another length; `payer` pays for the record if
    /// there was none. `None` if no pages of it are kept.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn write(
        connection: &Arc<Connection>,
        node: &NodeRef,
        payer: Family,
    ) -> Result<Option<Arc<Writing>>, Errno> {
        let this = &connection.mapped;
        if connection.pages().is_none() || node.kind() != mode::REGULAR {
            return Ok(None);
        }
        let mut files = this.files.lock();
        let file = this.find_or_make(&mut files, connection, node, payer)?;
        let writing = shared(&file.writing, || Writing(file.clone()));
        drop(files);
        if writing.is_err() {
            file.settle();
        }
        Ok(Some(writing?))
    }
}

impl Writing {
    /// The file.
    pub fn file(&self) -> &Arc<MappedFile> {
        &self.0
    }

    /// A write is about to be a request: takes the turn for it. False: the call has to wait.
    pub fn take_turn(&self, ask: &mut Ask) -> bool {
        ask.take_turn(&self.0)
    }

    /// Keeps a write of the first `length` bytes of `buffer` at `offset`, at most what one request
    /// can have; its pages are charged to `payer`. Returns whether it has, which takes a request
    /// for the length if that is not known.
    pub fn keep(
        &self,
        offset: u64,
        (buffer, length): (&PinnedBuffer, usize),
        payer: Family,
        ask: &mut Ask,
    ) -> Attempt<bool> {
        let file = &self.0;
        if !ask.has_turn_of(file) {
            let kept = file.keep(offset, (buffer, length), payer);
            if !matches!(kept, Kept::Unknown) {
                ask.end_turn();
                return Some(Ok(matches!(kept, Kept::All)));
            }
            if !ask.take_turn(file) {
                return None;
            }
        }
        let node = file.node.served()?;
        let begun = node.length_of_server(ask)?.and_then(|found| file.begin_contents(found));
        ask.next_step();
        ask.end_turn();
        Some(begun.map(|()| matches!(file.keep(offset, (buffer, length), payer), Kept::All)))
    }
}

impl MappedFile {
    /// Keeps a write of the first `length` bytes of `buffer` at `offset`.
    fn keep(
        self: &Arc<Self>,
        offset: u64,
        (buffer, length): (&PinnedBuffer, usize),
        payer: Family,
    ) -> Kept {
        let connection = &self.connection;
        let (Some(room), Some(pages)) = (connection.mapped.dirty_room.get(), connection.pages())
        else {
            return Kept::Nothing;
        };
        let mut state = self.state.lock();
        if state.contents.is_none() && state.resizing == Resizing::No {
            return Kept::Unknown;
        }
        let is_within = offset.checked_add(length as u64).is_some_and(|end| end <= state.solid);
        if state.resizing != Resizing::No || !is_within || connection.is_closed() {
            return Kept::Nothing;
        }
        let (mut done, mut is_kept) = (0, true);
        while done < length {
            let place = offset + done as u64;
            let (number, within) = (place / PAGE, (place % PAGE) as usize);
            let count = (FRAME_BYTES - within).min(length - done);
            let part = Part { buffer, at: done, within, count };
            // What is kept before a page that cannot be is written once more.
            is_kept = state.keep_page(number, &part, (pages, self.number()), room, payer);
            if !is_kept {
                break;
            }
            done += count;
        }
        state.written_at = Some(timer::file_nanoseconds());
        let must_send = !is_kept && state.counted > 0 || room.is_half_used(state.counted);
        drop(state);
        if must_send {
            self.send_soon();
        }
        if is_kept { Kept::All } else { Kept::Nothing }
    }

    /// Lets the connection's coroutine write it back.
    fn send_soon(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if !state.is_dirty || state.is_taken || state.is_listed || state.has_failed {
            return;
        }
        state.is_listed = true;
        drop(state);
        self.connection.mapped.write_back.add(self.clone());
    }
}

impl State {
    /// Keeps a part of page `number` that is written. Returns whether it has.
    fn keep_page(
        &mut self,
        number: u64,
        part: &Part<'_>,
        (pages, node): (&Pages, u64),
        room: &DirtyRoom,
        payer: Family,
    ) -> bool {
        let Some(contents) = &mut self.contents else { return false };
        let &Part { buffer, at, within, count } = part;
        if !contents.has(number) {
            let used = contents.len().saturating_sub(number * PAGE).min(PAGE) as usize;
            let is_whole = within == 0 && count >= used;
            // A page that mappings can reach, and that is not here, is zeros.
            let is_known = is_whole || !self.loaded.contains(number);
            let kept = if is_whole { None } else { pages.page(node, number) };
            if !is_known || !is_whole && kept.is_none() || !room.take(self.counted) {
                return false;
            }
            let put = match &kept {
                Some((frame, _)) => contents.put_copy(number, frame, payer),
                None => contents.put_written(number, (buffer, at), count, payer),
            };
            if put.is_err() {
                room.give(1);
                return false;
            }
            self.counted += 1;
            if is_whole {
                self.is_dirty = true;
                return true;
            }
        }
        self.is_dirty |= contents.write_dirty((number, within), (buffer, at), count);
        true
    }
}
