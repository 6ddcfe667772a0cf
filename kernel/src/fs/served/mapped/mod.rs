//! Files of a file system that a process serves, of which pages are in the kernel because they are
//! mapped (decision 50), or because the kernel keeps what was written to them (decision 52).
//!
//! A file that is mapped has its pages in the kernel: all those that a mapping can reach are read
//! before `mmap` returns ([`load`]), so that no page fault waits for a server. What is written
//! there is dirty until it has been written to the server ([`write_back`]): by `msync` or `fsync`,
//! or by the connection's own coroutine when no mapping and no writer has the file any more.
//!
//! Reads find the pages here. A write changes them, and is no request, if the kernel can keep it
//! ([`keep`]). Other writes are requests as of any other file, and what they have written is copied
//! to the pages when the server answers ([`MappedFile::answered`]). So pages and file are the same,
//! except where a page is dirty. A page that is neither mapped nor dirty moves to the table of kept
//! pages.
//!
//! One call at a time loads a file, writes it back, writes to it with a request, or changes its
//! length: it has the *turn*. Calls that wait for the turn make the requests of that call as urgent
//! as themselves.
//!
//! Lock order: the files of a connection, a file's mapping, its state. The state is locked under
//! the lock of an address space; none of the others is. The table of kept pages is locked under the
//! state, not the reverse.

mod keep;
mod load;
mod mapping;
mod state;
mod write_back;

use alloc::sync::{Arc, Weak};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::*};

use cops_abi::file::mode;
use cops_abi::served::{DATA_BYTES_MAX, Reply};
use cops_abi::{Errno, Priority};
use cops_algorithms::dirty_room::DirtyRoom;
use cops_algorithms::range_set::{RANGES_MAX, RangeSet};
use cops_fallible::{Map, OutOfMemory, try_arc, try_arc_with};
use cops_lock::Mutex;
use spin::Once;

use super::connection::Connection;
use super::request::{Effect, Request};
use crate::fs::contents::sweep;
use crate::fs::node::NodeRef;
use crate::mm::frames::{self, FRAME_BYTES};
use crate::mm::quota::{Amounts, Charge, Family, Kind};
use crate::mm::{Frame, PinnedBuffer, next_object_number};
use crate::sched::{WaitQueue, timer};

pub use keep::Writing;
pub use mapping::Mapping;
use state::{Resizing, State};
pub use write_back::WriteBack;

const PAGE: u64 = FRAME_BYTES as u64;
/// The part of all memory (one in so many) that written pages of a file system may have.
const DIRTY_PART: usize = 8;

/// Memory that is charged for a mapped file besides its pages.
const FILE_BYTES: u64 = (size_of::<MappedFile>()
    + Map::<u64, Arc<MappedFile>>::ENTRY_BYTES
    + RANGES_MAX * size_of::<Range<u64>>()
    + 512) as u64;

/// The files of a connection that are mapped, or that are to be written back.
pub struct MappedFiles {
    files: Mutex<Map<u64, Arc<MappedFile>>>,
    /// Their number; read without the lock.
    count: AtomicUsize,
    /// Those that its coroutine has to write back.
    pub(super) write_back: WriteBack,
    /// The room for pages that were written; if writes are kept.
    dirty_room: Once<DirtyRoom>,
}

impl MappedFiles {
    /// No files.
    pub const fn new() -> Self {
        Self {
            files: Mutex::new(Map::new()),
            count: AtomicUsize::new(0),
            write_back: WriteBack::new(),
            dirty_room: Once::new(),
        }
    }

    /// From now on, writes are kept.
    pub fn keep_writes(&self) {
        self.dirty_room.call_once(|| DirtyRoom::new(frames::statistics().total / DIRTY_PART));
    }

    /// The file of the node with this number, if it is here.
    pub fn get(&self, number: u64) -> Option<Arc<MappedFile>> {
        // A file that is mapped at the same time may be missed: then both happen at the same time.
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        self.files.lock().get(&number).cloned()
    }

    /// The first file with a number above `after` that has dirty pages, among a few; otherwise the
    /// number to go on with, if there are more.
    pub fn next_dirty(&self, after: u64) -> Result<Arc<MappedFile>, Option<u64>> {
        const PORTION: usize = 32;
        let files = self.files.lock();
        let mut after = after;
        for _ in 0..PORTION {
            let next = after.checked_add(1).and_then(|next| files.at_or_after(&next));
            match next {
                Some((_, file)) if file.has_dirty() => return Ok(file.clone()),
                Some((&number, _)) => after = number,
                None => return Err(None),
            }
        }
        Err(Some(after))
    }

    /// A mapping of `node`, for which `payer` pays if there was none.
    ///
    /// # Errors
    /// `ENODEV` if it is no file of which the kernel keeps pages, `ENOMEM`.
    pub fn map(
        connection: &Arc<Connection>,
        node: &NodeRef,
        payer: Family,
    ) -> Result<Arc<Mapping>, Errno> {
        if node.kind() != mode::REGULAR || connection.pages().is_none() {
            return Err(Errno::ENODEV);
        }
        let this = &connection.mapped;
        let mut files = this.files.lock();
        let file = this.find_or_make(&mut files, connection, node, payer)?;
        let mapping = shared(&file.mapping, || Mapping(file.clone()));
        drop(files);
        if mapping.is_err() {
            file.settle();
        }
        Ok(mapping?)
    }

    /// The record of `node`, for which `payer` pays if there was none.
    fn find_or_make(
        &self,
        files: &mut Map<u64, Arc<MappedFile>>,
        connection: &Arc<Connection>,
        node: &NodeRef,
        payer: Family,
    ) -> Result<Arc<MappedFile>, Errno> {
        let (_, number) = node.identity();
        if let Some(file) = files.get(&number) {
            return Ok(file.clone());
        }
        let file = MappedFile::new(connection.clone(), node.clone(), payer)?;
        files.try_insert(number, file.clone())?;
        self.count.fetch_add(1, Relaxed);
        Ok(file)
    }
}

/// What `place` has; what `make` makes, if nothing holds that any more. The caller has the lock of
/// the files, which the drop of a value takes: so without memory, none is made.
fn shared<T>(place: &Mutex<Weak<T>>, make: impl FnOnce() -> T) -> Result<Arc<T>, OutOfMemory> {
    let mut place = place.lock();
    if let Some(value) = place.upgrade() {
        return Ok(value);
    }
    let made = try_arc_with(make)?;
    *place = Arc::downgrade(&made);
    Ok(made)
}

/// A file of which pages are in the kernel.
pub struct MappedFile {
    connection: Arc<Connection>,
    /// The server knows it as long as this exists.
    node: NodeRef,
    /// Its number as a memory object.
    as_object: u64,
    state: Mutex<State>,
    /// What address spaces have.
    mapping: Mutex<Weak<Mapping>>,
    /// What open files have through which it was written.
    writing: Mutex<Weak<Writing>>,
    /// Calls that wait for the turn.
    pub(super) turns: WaitQueue,
    /// In the list of files to be written back: the next one.
    next: Mutex<Option<Arc<MappedFile>>>,
    _charge: Charge,
}

impl MappedFile {
    fn new(connection: Arc<Connection>, node: NodeRef, payer: Family) -> Result<Arc<Self>, Errno> {
        let _charge = Charge::new(payer, &Amounts::of(Kind::Memory, FILE_BYTES))?;
        let state = Mutex::new(State {
            contents: None,
            loaded: RangeSet::new(),
            has_lost: false,
            writing: 0..0,
            place: 0,
            is_dirty: false,
            solid: 0,
            counted: 0,
            written_at: None,
            resizing: Resizing::No,
            has_failed: false,
            is_taken: false,
            priority: None,
            flight: None,
            last: None,
            coroutine_waits: false,
            is_listed: false,
        });
        Ok(try_arc(Self {
            connection,
            node,
            as_object: next_object_number(),
            state,
            mapping: Mutex::default(),
            writing: Mutex::default(),
            turns: WaitQueue::new(),
            next: Mutex::default(),
            _charge,
        })?)
    }

    /// The number of its node.
    pub fn number(&self) -> u64 {
        self.node.identity().1
    }

    /// Whether a space has it mapped.
    fn is_mapped(&self) -> bool {
        self.mapping.lock().strong_count() > 0
    }

    /// Whether an open file may write to it.
    fn is_open(&self) -> bool {
        self.writing.lock().strong_count() > 0
    }

    /// Whether pages are dirty, or being written back.
    pub fn has_dirty(&self) -> bool {
        let state = self.state.lock();
        state.is_dirty || state.place > 0 || !state.writing.is_empty()
    }

    /// Whether the kernel keeps something that was written to it.
    pub fn has_written(&self) -> bool {
        self.state.lock().counted > 0
    }

    /// Whether it would lose pages that are mapped if it had this length. With the turn.
    pub fn would_lose(&self, length: u64) -> bool {
        let length_now = self.state.lock().contents.as_ref().map_or(0, |contents| contents.len());
        length < length_now && self.is_mapped()
    }

    /// Takes the turn, if it is free. Returns whether it was.
    pub(super) fn try_take_turn(&self) -> bool {
        self.state.lock().try_take_turn()
    }

    /// The turn ends. Pages of which the write-back has not ended are dirty, and so may be those
    /// that it has not reached.
    pub(super) fn end_turn(&self) {
        let mut state = self.state.lock();
        (state.is_taken, state.resizing) = (false, Resizing::No);
        state.priority = None;
        let flight = state.flight.take();
        state.must_be_written_again();
        state.is_dirty |= core::mem::take(&mut state.place) > 0;
        let coroutine_waits = core::mem::take(&mut state.coroutine_waits);
        drop(state);
        drop(flight);
        self.turns.wake_one();
        if coroutine_waits {
            self.connection.mapped.write_back.wake();
        }
        if !self.is_mapped() {
            self.settle();
        }
    }

    /// Reads at `offset` into `buffers`, from `at` on: at most `length` bytes of one page. 0 if
    /// the page is not here, or behind the end.
    pub fn read(
        &self,
        offset: u64,
        (buffers, at): (&[PinnedBuffer], usize),
        length: usize,
    ) -> usize {
        let state = self.state.lock();
        let Some(contents) = &state.contents else { return 0 };
        let (page, within) = (offset / PAGE, (offset % PAGE) as usize);
        let Some(frame) = contents.existing_frame(page) else { return 0 };
        let rest = contents.len().saturating_sub(offset).min(length as u64) as usize;
        let count = rest.min(FRAME_BYTES - within);
        super::pages::copy((frame, within), (buffers, at), count);
        count
    }

    /// Page `page`, if it is here, with the number of bytes of the file in it.
    pub fn page(&self, page: u64) -> Option<(Frame, usize)> {
        let state = self.state.lock();
        let contents = state.contents.as_ref()?;
        let frame = contents.existing_frame(page)?.clone();
        let used = contents.len().saturating_sub(page * PAGE).min(PAGE) as usize;
        Some((frame, used))
    }

    /// `request` has this reply. `data`: what it has sent, if its call is still there.
    pub fn answered(&self, request: &Request, reply: &Reply, data: &[PinnedBuffer], sent: usize) {
        if reply.error != 0 {
            return;
        }
        let mut state = self.state.lock();
        let count = reply.value.min(DATA_BYTES_MAX as u64);
        let offset = match &request.effect {
            Effect::Writes(bytes) => bytes.start,
            Effect::Changes if request.writes_at_end() => reply.place.saturating_sub(count),
            Effect::Changes => {
                state.resize(request.asked());
                return self.return_room(&mut state);
            }
            Effect::None | Effect::Fills(..) | Effect::Makes | Effect::WritesBack(_) => return,
        };
        state.has_blocks(offset, count);
        // What is written back later must not make the file older.
        if state.written_at.is_some() {
            state.written_at = Some(timer::file_nanoseconds());
        }
        if data.is_empty() {
            // Its call was cancelled. What was written is not known here.
            state.has_lost = true;
            if let Some(contents) = &mut state.contents {
                contents.grow(offset.saturating_add(count));
            }
        } else {
            state.copy_written(offset, sent.min(count as usize), data, request.payer());
        }
    }

    /// Returns the room of what is not here any more.
    fn return_room(&self, state: &mut State) {
        if state.contents.is_none()
            && let Some(room) = self.connection.mapped.dirty_room.get()
        {
            room.give(core::mem::take(&mut state.counted));
        }
    }

    /// A call of this priority waits for the turn of another one.
    pub(super) fn hurry(&self, priority: Priority) {
        let mut state = self.state.lock();
        let highest = state.priority.get_or_insert(priority);
        if priority.is_more_urgent_than(*highest) {
            *highest = priority;
        }
        let (highest, flight) = (*highest, state.flight.clone());
        drop(state);
        if let Some(request) = flight {
            self.connection.hurry(&request, highest);
        }
    }

    /// The call that has the turn is about to send `request`, or waits for it. Returns the priority
    /// that it should have: that of the call, or of a more urgent one that waits for the turn.
    pub(super) fn priority_of(&self, request: &Arc<Request>, priority: Priority) -> Priority {
        let mut state = self.state.lock();
        let before = state.flight.replace(request.clone());
        let highest = state.priority.filter(|highest| highest.is_more_urgent_than(priority));
        drop(state);
        drop(before);
        highest.unwrap_or(priority)
    }

    /// The call that has the turn is about to go. Its turn ends when `request` is answered.
    pub(super) fn turn_ends_with(&self, request: &Arc<Request>) {
        self.state.lock().last = Some(request.clone());
    }

    /// `request` will not be performed any more. If it is the last one of a turn, that ends.
    pub(super) fn is_answered_at_last(&self, request: &Arc<Request>) {
        let last = self.state.lock().last.take_if(|last| Arc::ptr_eq(last, request));
        if last.is_some() {
            self.end_turn();
        }
    }

    /// A mapping or an open file is gone: what it has left is tried once more.
    fn is_left(&self) {
        self.state.lock().has_failed = false;
        self.settle();
    }

    /// If nothing has it mapped, pages that are not dirty are not needed, and others are written
    /// back: if writes are kept, when no open file can write to it either.
    fn settle(&self) {
        let this = &self.connection.mapped;
        let mut files = this.files.lock();
        let Some(file) = files.get(&self.number()).cloned() else { return };
        if !core::ptr::eq(&*file, self) || self.is_mapped() {
            return;
        }
        let mut state = self.state.lock();
        if state.is_taken || state.is_listed {
            return;
        }
        let (is_open, keeps_writes) = (self.is_open(), this.dirty_room.get().is_some());
        if state.is_dirty && !state.has_failed && !(is_open && keeps_writes) {
            state.is_listed = true;
            drop(state);
            drop(files);
            this.write_back.add(file);
        } else if state.is_dirty || is_open {
            // Pages that a mapping has read.
            let left =
                if state.is_dirty || state.loaded.is_empty() { None } else { state.forget() };
            self.return_room(&mut state);
            drop(state);
            drop(files);
            if let Some(contents) = left {
                sweep(contents);
            }
        } else {
            drop(state);
            let removed = files.remove(&self.number());
            this.count.fetch_sub(1, Relaxed);
            drop(files);
            // Without the locks: its node is dropped with it.
            drop(removed);
        }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if let Some(room) = self.connection.mapped.dirty_room.get() {
            room.give(core::mem::take(&mut state.counted));
        }
        if let Some(contents) = state.contents.take() {
            sweep(contents);
        }
    }
}
