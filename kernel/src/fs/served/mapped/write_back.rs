//! Writing dirty pages to the server: for a call that wants them there, or by the connection's own
//! coroutine when nothing has the file mapped or open for writing any more, or when it has much to
//! write.
//!
//! A page that a space can still write to stays dirty after it has been written. `msync` makes the
//! entries of its space read-only first; a page that others have mapped is written again by the
//! next call. A page that no space has, and that is clean, moves to the table of kept pages.
//!
//! The frames themselves are sent. What is written to a page meanwhile makes it dirty again.

use alloc::sync::Arc;
use core::future::poll_fn;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use core::task::Poll;

use cops_abi::inspect::coroutine_kind;
use cops_abi::served::DATA_BYTES_MAX;
use cops_abi::{Errno, Priority};
use cops_algorithms::range_set::RangeSet;
use cops_lock::Mutex;

use super::{MappedFile, PAGE, Resizing, State};
use crate::fs::contents::sweep;
use crate::fs::node::Attempt;
use crate::fs::served::Ask;
use crate::fs::served::connection::Connection;
use crate::log;
use crate::mm::quota::Family;
use crate::mm::{Frame, PinnedBuffer};
use crate::sched::{self, Waiter};
use crate::trace;

/// Pages of one request.
const REQUEST_PAGES: u64 = DATA_BYTES_MAX as u64 / PAGE;
/// Pages that one portion looks at.
const PORTION_PAGES: usize = 64;

/// What the next portion of a write-back does.
enum Next {
    /// Writes these bytes at this offset, which were written at this time.
    Write(u64, PinnedBuffer, Option<u64>),
    /// Looks on.
    Look,
    /// Nothing: no page is dirty that was dirty at the beginning.
    Nothing,
}

impl State {
    /// What was being written back is dirty.
    pub(super) fn must_be_written_again(&mut self) {
        let bytes = core::mem::replace(&mut self.writing, 0..0);
        for page in bytes.start / PAGE..bytes.end.div_ceil(PAGE) {
            self.is_dirty = true;
            if let Some(contents) = &mut self.contents {
                contents.set_dirty(page, false);
            }
        }
    }

    fn next_to_write(&mut self) -> Next {
        if self.place == 0 {
            (self.is_dirty, self.has_failed) = (false, false);
        }
        let end = self.pages();
        let Some(contents) = &mut self.contents else { return Next::Nothing };
        let first = match contents.find_dirty(self.place, PORTION_PAGES) {
            Ok(first) if first < end => first,
            Ok(_) | Err(None) => {
                self.place = 0;
                return Next::Nothing;
            }
            Err(Some(next)) => {
                self.place = next;
                return Next::Look;
            }
        };
        let mut behind = first + 1;
        while behind < end.min(first + REQUEST_PAGES)
            && contents.find_dirty(behind, 1) == Ok(behind)
        {
            behind += 1;
        }
        let offset = first * PAGE;
        let count = contents.len().min(behind * PAGE) - offset;
        for page in first..behind {
            // Before it is copied: what is written afterwards makes it dirty again.
            self.is_dirty |= !contents.set_clean(page);
        }
        let frames = (first..behind).filter_map(|page| contents.existing_frame(page).cloned());
        let buffer = PinnedBuffer::of_frames(frames, count as usize);
        (self.writing, self.place) = (offset..offset + count, behind);
        Next::Write(offset, buffer, self.written_at)
    }

    /// The first `count` bytes of what was being written have been written, as the server says. A
    /// page of which only a part has been written is written once more.
    ///
    /// # Errors
    /// `EIO` if these are more bytes than were sent, or less than a page and not all; what was
    /// being written stays to be written.
    fn has_written(&mut self, count: u64) -> Result<(), Errno> {
        let length = self.writing.end - self.writing.start;
        if !(1..=length).contains(&count) {
            return Err(Errno::EIO);
        }
        let next = self.writing.start + count;
        if next == self.writing.end {
            self.writing = 0..0;
            return Ok(());
        }
        if next / PAGE == self.writing.start / PAGE {
            return Err(Errno::EIO);
        }
        self.place = next / PAGE;
        self.writing.start = self.place * PAGE;
        self.must_be_written_again();
        Ok(())
    }

    /// Takes out page `number` if it is clean, with the number of bytes of the file in it.
    fn take_clean(&mut self, number: u64) -> Option<(Frame, usize)> {
        let contents = self.contents.as_mut()?;
        let used = contents.len().saturating_sub(number * PAGE).min(PAGE) as usize;
        Some((contents.take_clean(number)?, used))
    }
}

impl MappedFile {
    /// Writes dirty pages to the server, and waits for the answers.
    pub fn write_back(self: &Arc<Self>, ask: &mut Ask) -> Attempt<()> {
        if !ask.take_turn(self) {
            return None;
        }
        let written = self.write_some(ask)?;
        ask.next_step();
        ask.end_turn();
        Some(written)
    }

    /// The same, by a call that has the turn, and keeps it.
    pub(super) fn write_some(&self, ask: &mut Ask) -> Attempt<()> {
        let node = self.node.served()?;
        let mut next = None;
        if !ask.is_pending() {
            match self.state.lock().next_to_write() {
                Next::Write(offset, buffer, time) => next = Some((offset, buffer, time)),
                Next::Look => return None,
                Next::Nothing => return Some(Ok(())),
            }
        }
        let answer = node.write_back(|| next.take().ok_or(Errno::EIO), ask)?;
        match answer.and_then(|count| self.has_written_back(count)) {
            Ok(()) => {
                // The next portion looks on.
                ask.next_step();
                None
            }
            Err(error) => {
                self.state.lock().has_failed = true;
                Some(Err(error))
            }
        }
    }

    /// The first `count` bytes of what was being written have been written, as the server says.
    /// Their pages move to the table, except those that are mapped, or dirty again.
    fn has_written_back(&self, count: u64) -> Result<(), Errno> {
        let number = self.number();
        let pages = self.connection.pages();
        // Before the pages are looked at: a write that is answered from now on shows.
        let fill = pages.map(|pages| pages.begin_keep(number));
        let is_mapped = self.is_mapped();
        let mut state = self.state.lock();
        let written = state.writing.clone();
        state.has_written(count)?;
        if is_mapped {
            return Ok(());
        }
        let first = written.start / PAGE;
        let mut taken = [const { None }; REQUEST_PAGES as usize];
        for (number, place) in (first..written.end.div_ceil(PAGE)).zip(&mut taken) {
            *place = state.take_clean(number);
        }
        let count = taken.iter().flatten().count();
        if count > 0 {
            // No mapping can reach them: one that is made now waits for the turn, and then loads
            // them. If they counted as loaded, it would take them for zeros.
            state.loaded = RangeSet::new();
        }
        let count = count.min(state.counted);
        state.counted -= count;
        let length = state.contents.as_ref().map_or(0, |contents| contents.len());
        drop(state);
        if let Some(room) = self.connection.mapped.dirty_room.get() {
            room.give(count);
        }
        if let (Some(pages), Some(fill)) = (pages, fill) {
            for (number, taken) in (first..).zip(taken) {
                let Some((frame, used)) = taken else { continue };
                pages.put(fill, number, frame, (used, length));
            }
        }
        Ok(())
    }

    /// A call with the turn is about to change the length: writes back what is dirty, and keeps no
    /// further writes until the turn ends. Not if it is mapped: then nothing is cut off.
    pub fn prepare_resize(&self, ask: &mut Ask) -> Attempt<()> {
        let is_mapped = self.is_mapped();
        let mut state = self.state.lock();
        if is_mapped || state.resizing == Resizing::Asking {
            return Some(Ok(()));
        }
        state.resizing = Resizing::WritingBack;
        drop(state);
        let written = self.write_some(ask)?;
        self.state.lock().resizing = Resizing::Asking;
        Some(written)
    }

    /// Nothing can be written back: the server is gone, or refuses it.
    fn lose(&self, error: Errno) {
        let mut state = self.state.lock();
        let contents = state.forget();
        self.return_room(&mut state);
        drop(state);
        if let Some(pages) = self.connection.pages() {
            pages.forget(self.number());
        }
        log::warn!("what was written to a file is lost: file {}: {error}", self.number());
        if let Some(contents) = contents {
            sweep(contents);
        }
    }
}

/// The files of a connection that its coroutine has to write back.
pub struct WriteBack {
    list: Mutex<List>,
    /// The coroutine; 0: there is none.
    coroutine: AtomicU64,
    is_closed: AtomicBool,
}

struct List {
    first: Option<Arc<MappedFile>>,
    /// Whether the coroutine has ended.
    has_ended: bool,
}

impl WriteBack {
    /// Nothing to do, and no coroutine.
    pub const fn new() -> Self {
        let list = Mutex::new(List { first: None, has_ended: false });
        Self { list, coroutine: AtomicU64::new(0), is_closed: AtomicBool::new(false) }
    }

    /// Starts the coroutine of `connection`, which ends when that is closed.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn start(connection: &Arc<Connection>) -> Result<(), Errno> {
        const KIND: usize = coroutine_kind::SERVICE as usize;
        let future = trace::traced::<_, KIND>(write_back_all(connection.clone()));
        let spawned = sched::executor().spawn_of_kind::<_, KIND>(future, Priority::DEFAULT);
        let id = spawned.map_err(|_| Errno::ENOMEM)?;
        trace::name(id.raw(), "write-back");
        Ok(())
    }

    /// `file` has dirty pages, and is in no list. They are lost if the server is gone.
    pub(super) fn add(&self, file: Arc<MappedFile>) {
        let mut list = self.list.lock();
        if list.has_ended {
            drop(list);
            file.state.lock().is_listed = false;
            file.lose(Errno::EIO);
            return file.settle();
        }
        *file.next.lock() = list.first.take();
        list.first = Some(file);
        drop(list);
        self.wake();
    }

    /// Makes the coroutine look for work.
    pub fn wake(&self) {
        sched::wake_by_number(self.coroutine.load(Acquire));
    }

    /// The server is gone.
    pub fn close(&self) {
        self.is_closed.store(true, Release);
        self.wake();
    }

    /// The next file; `None` if there is none yet. `Some(None)`: there will be none.
    fn pop(&self) -> Option<Option<Arc<MappedFile>>> {
        let mut list = self.list.lock();
        let Some(file) = list.first.take() else {
            list.has_ended = self.is_closed.load(Acquire);
            return list.has_ended.then_some(None);
        };
        list.first = file.next.lock().take();
        file.state.lock().is_listed = false;
        Some(Some(file))
    }
}

/// Writes back the files of the list, one after the other, until the server is gone.
async fn write_back_all(connection: Arc<Connection>) {
    let this = &connection.mapped.write_back;
    this.coroutine.store(sched::current_number(), Release);
    loop {
        let file = poll_fn(|_| this.pop().map_or(Poll::Pending, Poll::Ready)).await;
        let Some(file) = file else { return };
        let written = write_back_one(&file, connection.payer()).await;
        if let Err(error) = written
            && error != Errno::ENOMEM
            && !file.is_mapped()
            && !file.is_open()
        {
            file.lose(error);
        }
        file.settle();
    }
}

/// Writes back `file`; `payer` pays for the requests.
async fn write_back_one(file: &Arc<MappedFile>, payer: Family) -> Result<(), Errno> {
    poll_fn(|_| {
        let mut state = file.state.lock();
        if state.try_take_turn() {
            return Poll::Ready(());
        }
        state.coroutine_waits = true;
        Poll::Pending
    })
    .await;
    let mut ask = Ask::default();
    ask.adopt_turn(file.clone());
    poll_fn(|context| {
        ask.begin(0, payer);
        if let Some(result) = file.write_back(&mut ask) {
            return Poll::Ready(result);
        }
        let Some(coroutine) = cops_executor::current() else { return Poll::Pending };
        let is_unsent = ask.is_unsent();
        let waiter = Waiter { number: 0, coroutine, priority: Priority::DEFAULT };
        if !ask.insert_waiter(&waiter) || is_unsent {
            // After a portion; and once more after a request is sent, which may be answered.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}
