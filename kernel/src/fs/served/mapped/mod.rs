//! Mapped files of a file system that a process serves (decision 50).
//!
//! A file that is mapped has its pages in the kernel: all those that a mapping can reach are read
//! before `mmap` returns ([`load`]), so that no page fault waits for a server. What is written
//! there is dirty until it has been written to the server ([`write_back`]): by `msync` or `fsync`,
//! or by the connection's own coroutine when the last mapping has gone.
//!
//! Reads find the pages of a mapped file here. Writes are requests as of any other file, and what
//! they have written is copied to the pages when the server answers ([`MappedFile::answered`]),
//! also if it was asked before the file was mapped. So pages and file are the same, except where a
//! page is dirty.
//!
//! One call at a time loads a file, writes it back, or changes its length: it has the *turn*.
//!
//! Lock order: the files of a connection, a file's mapping, its state. The state is locked under
//! the lock of an address space; none of the others is.

mod load;
mod mapping;
mod write_back;

use alloc::sync::{Arc, Weak};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering::*};

use cops_abi::Errno;
use cops_abi::file::mode;
use cops_abi::served::{DATA_BYTES_MAX, Reply};
use cops_algorithms::range_set::{RANGES_MAX, RangeSet};
use cops_fallible::{Map, try_arc};
use spin::Mutex;

use super::connection::Connection;
use super::request::{Effect, Request};
use crate::fs::contents::{Contents, sweep};
use crate::fs::node::NodeRef;
use crate::mm::frames::FRAME_BYTES;
use crate::mm::quota::{Amounts, Charge, Family, Kind};
use crate::mm::{Frame, PinnedBuffer, next_object_number};
use crate::sched::WaitQueue;

pub use mapping::Mapping;
pub use write_back::WriteBack;

const PAGE: u64 = FRAME_BYTES as u64;

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
}

impl MappedFiles {
    /// No files.
    pub const fn new() -> Self {
        let files = Mutex::new(Map::new());
        Self { files, count: AtomicUsize::new(0), write_back: WriteBack::new() }
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
        let (_, number) = node.identity();
        let this = &connection.mapped;
        let mut files = this.files.lock();
        let file = match files.get(&number) {
            Some(file) => file.clone(),
            None => {
                let file = MappedFile::new(connection.clone(), node.clone(), payer)?;
                files.try_insert(number, file.clone())?;
                this.count.fetch_add(1, Relaxed);
                file
            }
        };
        let mut mapping = file.mapping.lock();
        if let Some(mapping) = mapping.upgrade() {
            return Ok(mapping);
        }
        let made = try_arc(Mapping(file.clone()));
        if let Ok(made) = &made {
            *mapping = Arc::downgrade(made);
        }
        drop(mapping);
        drop(files);
        if made.is_err() {
            file.settle();
        }
        Ok(made?)
    }
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
    /// Calls that wait for the turn.
    pub(super) turns: WaitQueue,
    /// In the list of files to be written back: the next one.
    next: Mutex<Option<Arc<MappedFile>>>,
    _charge: Charge,
}

struct State {
    /// `None` before the length is known.
    contents: Option<alloc::boxed::Box<Contents>>,
    /// The pages that mappings can reach. One that the contents do not have is zeros, because the
    /// file has become longer; or it is lost, if there was no memory for what was written to it.
    loaded: RangeSet,
    has_lost: bool,
    /// The pages that are being read, and whether they have changed in the meantime.
    loading: Range<u64>,
    is_stale: bool,
    /// The bytes that are being written back.
    writing: Range<u64>,
    /// Where the search for dirty pages goes on; 0: none is under way.
    place: u64,
    /// Whether a page has become dirty since such a search began.
    is_dirty: bool,
    /// Whether a call has the turn.
    is_taken: bool,
    /// Whether the connection's coroutine waits for the turn.
    coroutine_waits: bool,
    /// Whether it is in the list of files to be written back.
    is_listed: bool,
}

impl State {
    /// Takes the turn, if it is free. Returns whether it was.
    fn try_take_turn(&mut self) -> bool {
        !core::mem::replace(&mut self.is_taken, true)
    }

    /// Number of pages of the file.
    fn pages(&self) -> u64 {
        self.contents.as_ref().map_or(0, |contents| contents.len().div_ceil(PAGE))
    }

    /// Whether an entry for `page` can exist.
    fn can_reach(&self, page: u64) -> bool {
        let exists = |contents: &Contents| !self.has_lost || contents.has(page);
        self.loaded.contains(page) && self.contents.as_ref().is_some_and(|it| exists(it))
    }

    /// Copies what was written, `count` bytes at `offset` that `buffers` begin with, to the pages
    /// that exist.
    fn copy_written(&mut self, offset: u64, count: usize, buffers: &[PinnedBuffer], payer: Family) {
        let Some(contents) = &mut self.contents else {
            self.is_stale = true;
            return;
        };
        contents.grow(offset.saturating_add(count as u64));
        let (mut at, mut rest) = (offset, count);
        for buffer in buffers {
            let end = rest.min(buffer.len());
            let mut done = 0;
            while done < end {
                let (page, within) = (at / PAGE, (at % PAGE) as usize);
                let part = (FRAME_BYTES - within).min(end - done);
                if !contents.has(page) && self.loaded.contains(page) {
                    self.has_lost |= contents.frame(page, payer).is_err();
                }
                self.is_dirty |= contents.write_dirty((page, within), (buffer, done), part);
                (at, done) = (at + part as u64, done + part);
            }
            rest -= end;
        }
        let pages = offset / PAGE..(offset + count as u64).div_ceil(PAGE);
        self.is_stale |= pages.start < self.loading.end && self.loading.start < pages.end;
    }

    /// The length has changed. Nothing of what is cut off is mapped.
    fn resize(&mut self, length: u64) {
        self.is_stale = true;
        let Some(contents) = &mut self.contents else { return };
        if length >= contents.len() {
            contents.grow(length);
            return;
        }
        if contents.resize(length).is_err()
            && let Some(contents) = self.contents.take()
        {
            // It is read anew.
            (self.is_dirty, self.loaded) = (false, RangeSet::new());
            sweep(contents);
        }
    }
}

impl MappedFile {
    fn new(connection: Arc<Connection>, node: NodeRef, payer: Family) -> Result<Arc<Self>, Errno> {
        let _charge = Charge::new(payer, &Amounts::of(Kind::Memory, FILE_BYTES))?;
        let state = Mutex::new(State {
            contents: None,
            loaded: RangeSet::new(),
            has_lost: false,
            loading: 0..0,
            is_stale: false,
            writing: 0..0,
            place: 0,
            is_dirty: false,
            is_taken: false,
            coroutine_waits: false,
            is_listed: false,
        });
        Ok(try_arc(Self {
            connection,
            node,
            as_object: next_object_number(),
            state,
            mapping: Mutex::default(),
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

    /// Whether pages are dirty.
    pub fn has_dirty(&self) -> bool {
        self.state.lock().is_dirty
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
        state.is_taken = false;
        state.loading = 0..0;
        state.must_be_written_again();
        state.is_dirty |= core::mem::take(&mut state.place) > 0;
        let coroutine_waits = core::mem::take(&mut state.coroutine_waits);
        drop(state);
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
            Effect::Changes => return state.resize(request.asked()),
            Effect::None | Effect::Fills(..) | Effect::Makes | Effect::WritesBack(_) => return,
        };
        if data.is_empty() {
            // Its call was cancelled. What was written is not known here.
            (state.is_stale, state.has_lost) = (true, true);
            if let Some(contents) = &mut state.contents {
                contents.grow(offset.saturating_add(count));
            }
        } else {
            state.copy_written(offset, sent.min(count as usize), data, request.payer());
        }
    }

    /// No space has it mapped: it is written back, or not needed any more.
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
        if state.is_dirty {
            state.is_listed = true;
            drop(state);
            drop(files);
            this.write_back.add(file);
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
        if let Some(contents) = self.state.get_mut().contents.take() {
            sweep(contents);
        }
    }
}
