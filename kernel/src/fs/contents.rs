//! The contents of a file in memory, or of shared memory, in frames, and how they are freed in
//! portions.
//!
//! What is cut off a file, and what is left of a file that is closed without a name, is put on a
//! list for the sweeper (`process/sweeper.rs`). Nothing is allocated for that, except the part that
//! is cut off in the middle of a file.

use alloc::boxed::Box;

use cops_abi::Errno;
use cops_algorithms::pages::{PAGES_MAX, Pages};
use cops_fallible::try_box;
use cops_lock::Mutex;

use super::{file_locks, served};
use crate::mm::frames::FRAME_BYTES;
use crate::mm::quota::{self, Charge, Family};
use crate::mm::{self, FaultError, Frame, OutOfMemory, PinnedBuffer};
use crate::sched::Service;

/// Maximum length of a file.
const LENGTH_MAX: u64 = PAGES_MAX * FRAME_BYTES as u64;
/// Number of bytes that are copied at once.
const PIECE_BYTES: usize = 512;
/// Pages that are freed in one portion.
const PORTION_PAGES: usize = 16;

/// A page, charged to the family that wrote it first.
struct Page {
    frame: Frame,
    /// `None` if it was charged before, with all other pages.
    owner: Option<Family>,
    /// Of a file that is kept elsewhere too: whether it is not the same there.
    is_dirty: bool,
    /// Of such a file: whether a space may have a writable entry for it.
    is_writable: bool,
}

impl Page {
    /// A page of zeros.
    fn new(owner: Option<Family>) -> Result<Self, Errno> {
        Self::with(owner, Frame::allocate_zeroed)
    }

    /// A page with the frame that `frame` makes.
    fn with(
        owner: Option<Family>,
        frame: impl FnOnce() -> Result<Frame, OutOfMemory>,
    ) -> Result<Self, Errno> {
        mm::admit()?;
        if let Some(owner) = owner {
            quota::charge_memory(owner, FRAME_BYTES as u64).map_err(|_| Errno::ENOSPC)?;
        }
        match frame() {
            Ok(frame) => Ok(Self { frame, owner, is_dirty: false, is_writable: false }),
            Err(_) => {
                if let Some(owner) = owner {
                    quota::release_memory(owner, FRAME_BYTES as u64);
                }
                Err(Errno::ENOMEM)
            }
        }
    }
}

impl Page {
    /// Its frame, which is not charged any more.
    fn into_frame(mut self) -> Frame {
        if let Some(owner) = self.owner.take() {
            quota::release_memory(owner, FRAME_BYTES as u64);
        }
        self.frame.clone()
    }

    /// The page is about to be dropped, and `owner` has been charged for it before.
    fn was_prepaid(&self, owner: Family) {
        if self.owner.is_none() && self.frame.keep_charged(owner) {
            quota::charge_memory_forced(owner, FRAME_BYTES as u64);
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // What calls in flight or mappings still have stays charged until they are over.
        if let Some(owner) = self.owner
            && !self.frame.keep_charged(owner)
        {
            quota::release_memory(owner, FRAME_BYTES as u64);
        }
    }
}

/// The contents of a file. Pages that have not been written are zeros.
pub struct Contents {
    length: u64,
    pages: Pages<Page>,
    /// The charge for all pages, those included that have not been written, if it was made before.
    prepaid: Option<Charge>,
    /// In the list for the sweeper: the next one.
    next: Option<Box<Contents>>,
}

impl Contents {
    /// Of an empty file.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Box<Self>, Errno> {
        Ok(try_box(Self { length: 0, pages: Pages::new(), prepaid: None, next: None })?)
    }

    /// Of a file of `length` zeros, of which all pages are charged with `prepaid`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn with_length(length: u64, prepaid: Option<Charge>) -> Result<Box<Self>, Errno> {
        Ok(try_box(Self { length, pages: Pages::new(), prepaid, next: None })?)
    }

    /// A reference to the frame of a page, which is made if there is none; it is charged to `payer`
    /// unless it has been paid for.
    ///
    /// # Errors
    /// `NoPage` beyond the end, or if the payer's quota is used up; `OutOfMemory`.
    pub fn frame(&mut self, number: u64, payer: Family) -> Result<Frame, FaultError> {
        if number >= self.length.div_ceil(FRAME_BYTES as u64) {
            return Err(FaultError::NoPage);
        }
        if let Some(page) = self.pages.get(number) {
            return Ok(page.frame.clone());
        }
        let owner = if self.prepaid.is_some() { None } else { Some(payer) };
        let page = Page::new(owner).map_err(|error| match error {
            Errno::ENOSPC => FaultError::NoPage,
            _ => FaultError::OutOfMemory,
        })?;
        let frame = page.frame.clone();
        self.pages.insert(number, page)?;
        Ok(frame)
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// A new frame with a copy of a page.
    ///
    /// # Errors
    /// `NoPage` beyond the end; `OutOfMemory`.
    pub fn copy_page(&self, number: u64) -> Result<Frame, FaultError> {
        if number >= self.length.div_ceil(FRAME_BYTES as u64) {
            return Err(FaultError::NoPage);
        }
        Ok(match self.pages.get(number) {
            Some(page) => page.frame.try_copy()?,
            None => Frame::allocate_zeroed()?,
        })
    }

    /// Reads at `offset`. Returns the number of bytes, 0 at the end.
    pub fn read(&self, offset: u64, buffer: &PinnedBuffer) -> usize {
        let count = self.length.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut piece = [0; PIECE_BYTES];
        for_each_piece(offset, count, |page, within, done, length| {
            let piece = &mut piece[..length];
            match self.pages.get(page) {
                Some(page) => page.frame.read(within, piece),
                None => piece.fill(0),
            }
            buffer.write_at(done, piece);
        });
        count
    }

    /// Like [`Self::read`], into memory of the kernel.
    pub fn read_into(&self, offset: u64, bytes: &mut [u8]) -> usize {
        let count = self.length.saturating_sub(offset).min(bytes.len() as u64) as usize;
        for_each_piece(offset, count, |page, within, done, length| {
            let piece = &mut bytes[done..done + length];
            match self.pages.get(page) {
                Some(page) => page.frame.read(within, piece),
                None => piece.fill(0),
            }
        });
        count
    }

    /// Writes at `offset`; new pages are charged to `payer`. Returns the number of bytes.
    ///
    /// # Errors
    /// If nothing can be written: `EFBIG`, `ENOSPC`, `ENOMEM`.
    pub fn write(
        &mut self,
        offset: u64,
        buffer: &PinnedBuffer,
        payer: Family,
    ) -> Result<usize, Errno> {
        let room = LENGTH_MAX.saturating_sub(offset).min(buffer.len() as u64) as usize;
        if room == 0 {
            return if buffer.len() == 0 { Ok(0) } else { Err(Errno::EFBIG) };
        }
        let (count, error) = self.prepare(offset, room, payer);
        if count == 0 {
            return Err(error.unwrap_or(Errno::ENOSPC));
        }
        let mut piece = [0; PIECE_BYTES];
        for_each_piece(offset, count, |page, within, done, length| {
            if let Some(page) = self.pages.get(page) {
                let piece = &mut piece[..length];
                buffer.read_at(done, piece);
                page.frame.write(within, piece);
            }
        });
        self.length = self.length.max(offset + count as u64);
        Ok(count)
    }

    /// Allocates the pages for `count` bytes at `offset`. Returns for how many bytes there are
    /// pages, and why not for all.
    fn prepare(&mut self, offset: u64, count: usize, payer: Family) -> (usize, Option<Errno>) {
        let frame = FRAME_BYTES as u64;
        let end = offset + count as u64;
        for number in offset / frame..end.div_ceil(frame) {
            if self.pages.get(number).is_some() {
                continue;
            }
            let inserted = Page::new(Some(payer))
                .and_then(|page| self.pages.insert(number, page).map_err(|_| Errno::ENOMEM));
            if let Err(error) = inserted {
                return ((number * frame).saturating_sub(offset) as usize, Some(error));
            }
        }
        (count, None)
    }

    /// Changes the length. What is cut off is freed by the sweeper.
    ///
    /// # Errors
    /// `EFBIG`, `ENOMEM`; nothing has changed.
    pub fn resize(&mut self, length: u64) -> Result<(), Errno> {
        if length > LENGTH_MAX {
            return Err(Errno::EFBIG);
        }
        if length < self.length {
            let frame = FRAME_BYTES as u64;
            let first = length.div_ceil(frame);
            let mut cut = Self::new()?;
            cut.pages = self.pages.split_off(first)?;
            sweep(cut);
            // What follows in the last page that stays are zeros if the file grows again.
            let within = (length % frame) as usize;
            if let Some(page) = self.pages.get(length / frame).filter(|_| within > 0) {
                let zeros = [0; PIECE_BYTES];
                for at in (within..FRAME_BYTES).step_by(PIECE_BYTES) {
                    page.frame.write(at, &zeros[..PIECE_BYTES.min(FRAME_BYTES - at)]);
                }
            }
        }
        self.length = length;
        Ok(())
    }

    /// The file is at least this long.
    pub fn grow(&mut self, length: u64) {
        self.length = self.length.max(length);
    }

    /// Whether there is a page with this number.
    pub fn has(&self, number: u64) -> bool {
        self.pages.get(number).is_some()
    }

    /// Puts a copy of `frame` in as page `number`, unless there is one, and charges it to `owner`.
    ///
    /// # Errors
    /// `ENOSPC` if the quota is used up, `ENOMEM`.
    pub fn put_copy(&mut self, number: u64, frame: &Frame, owner: Family) -> Result<(), Errno> {
        if !self.has(number) {
            let page = Page::with(Some(owner), || frame.try_copy())?;
            self.pages.insert(number, page)?;
        }
        Ok(())
    }

    /// Writes `count` bytes of `buffer`, from `at` on, to page `number`, which is dirty then.
    /// Returns whether there is such a page.
    ///
    /// # Panics
    /// If the page is too short.
    pub fn write_dirty(
        &mut self,
        (number, within): (u64, usize),
        (buffer, at): (&PinnedBuffer, usize),
        count: usize,
    ) -> bool {
        let Some(page) = self.pages.get_mut(number) else { return false };
        buffer.copy_to_frame(at, (&page.frame, within), count);
        page.is_dirty = true;
        true
    }

    /// Puts page `number` in, where there is none: `count` bytes of `buffer`, from `at` on, and
    /// then zeros. It is dirty, and charged to `owner`.
    ///
    /// # Errors
    /// `ENOSPC` if the quota is used up, `ENOMEM`.
    ///
    /// # Panics
    /// If these are more bytes than in a page.
    pub fn put_written(
        &mut self,
        number: u64,
        (buffer, at): (&PinnedBuffer, usize),
        count: usize,
        owner: Family,
    ) -> Result<(), Errno> {
        let whole = buffer.whole_frame(at).filter(|_| count == FRAME_BYTES);
        let mut page = Page::with(Some(owner), || match whole {
            Some(frame) => frame.try_copy(),
            None => Frame::allocate_zeroed(),
        })?;
        if whole.is_none() {
            buffer.copy_to_frame(at, (&page.frame, 0), count);
        }
        page.is_dirty = true;
        self.pages.insert(number, page)?;
        Ok(())
    }

    /// Takes out page `number`, if it is not dirty.
    pub fn take_clean(&mut self, number: u64) -> Option<Frame> {
        self.pages.get(number).filter(|page| !page.is_dirty)?;
        self.pages.remove(number).map(Page::into_frame)
    }

    /// The frame of page `number`, if there is one.
    pub fn existing_frame(&self, number: u64) -> Option<&Frame> {
        self.pages.get(number).map(|page| &page.frame)
    }

    /// Page `number` is dirty, and a space may write to it if it `is_writable`.
    pub fn set_dirty(&mut self, number: u64, is_writable: bool) {
        if let Some(page) = self.pages.get_mut(number) {
            page.is_writable |= is_writable;
            page.is_dirty = true;
        }
    }

    /// A space has made its entry for page `number` read-only. If it has the only entry, and no
    /// call has the page, nothing can write to it any more.
    ///
    /// Counted here, and not by the space: an entry takes its reference with the lock that the
    /// caller has, and only later becomes writable. A space that took one since an earlier count
    /// may have a writable entry by now.
    pub fn set_read_only(&mut self, number: u64) {
        if let Some(page) = self.pages.get_mut(number) {
            page.is_writable &= !page.frame.is_one_of_two_references();
        }
    }

    /// Page `number` is about to be copied to where it is kept too. Returns whether it is clean
    /// from now on: it is not as long as a space or a call may write to it.
    pub fn set_clean(&mut self, number: u64) -> bool {
        let Some(page) = self.pages.get_mut(number) else { return true };
        page.is_writable &= !page.frame.is_only_reference();
        page.is_dirty &= page.is_writable;
        !page.is_dirty
    }

    /// The first dirty page among the first `limit` ones from `number` on; otherwise the number to
    /// go on with, if there are more.
    pub fn find_dirty(&self, number: u64, limit: usize) -> Result<u64, Option<u64>> {
        let mut next = number;
        for _ in 0..limit {
            match self.pages.at_or_after(next) {
                Some((found, page)) if page.is_dirty => return Ok(found),
                Some((found, _)) => next = found + 1,
                None => return Err(None),
            }
        }
        Err(Some(next))
    }

    /// Frees some pages, with at most six nodes of the tree for each; returns whether there may be
    /// more.
    fn free_some(&mut self) -> bool {
        let payer = self.prepaid.as_ref().map(Charge::family);
        (0..PORTION_PAGES).all(|_| {
            let page = self.pages.pop();
            if let (Some(page), Some(payer)) = (&page, payer) {
                page.was_prepaid(payer);
            }
            page.is_some()
        })
    }
}

/// Calls `visit(page, offset in it, number of bytes before, number of bytes)` for the pieces of
/// `count` bytes at `offset`.
fn for_each_piece(offset: u64, count: usize, mut visit: impl FnMut(u64, usize, usize, usize)) {
    let mut done = 0;
    while done < count {
        let at = offset + done as u64;
        let within = (at % FRAME_BYTES as u64) as usize;
        let length = (FRAME_BYTES - within).min(PIECE_BYTES).min(count - done);
        visit(at / FRAME_BYTES as u64, within, done, length);
        done += length;
    }
}

/// What the sweeper has to free.
static SWEPT: Mutex<Option<Box<Contents>>> = Mutex::new(None);

/// The sweeper's coroutine.
pub static SWEEPER: Service = Service::new();

/// Frees the pages of `contents`, soon.
pub fn sweep(mut contents: Box<Contents>) {
    // Most files are small.
    if !contents.free_some() {
        return;
    }
    let mut swept = SWEPT.lock();
    contents.next = swept.take();
    *swept = Some(contents);
    drop(swept);
    SWEEPER.wake();
}

/// Frees some pages, some messages for servers that are gone, and some locks. Returns whether there
/// is more.
pub fn sweep_some() -> bool {
    let has_more = served::sweep_some() | file_locks::sweep_some();
    sweep_pages() || has_more
}

/// Frees some pages. Returns whether there is more.
fn sweep_pages() -> bool {
    let mut swept = SWEPT.lock();
    let Some(mut first) = swept.take() else { return false };
    *swept = first.next.take();
    drop(swept);
    let has_more = first.free_some();
    let mut swept = SWEPT.lock();
    if has_more {
        first.next = swept.take();
        *swept = Some(first);
    }
    swept.is_some()
}
