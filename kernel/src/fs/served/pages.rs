//! Pages of a served file system that the kernel keeps, so that a read of them is no request
//! (decision 47).
//!
//! The lock is held to find or keep a page, not while data are copied: a page is a reference to a
//! frame that only the kernel writes, and only before it is kept.

use cops_abi::Errno;
use cops_abi::served::{DATA_BYTES_MAX, Reply};
use cops_algorithms::page_cache::{CHUNK_PAGES, Fill, Found, PAGE_BYTES, PageCache};
use cops_lock::Mutex;

use super::request::{Effect, Request};
use crate::mm::frames::{self, FRAME_BYTES};
use crate::mm::quota::{Amounts, Charge, Family, Kind};
use crate::mm::{self, Frame, PinnedBuffer};

/// The part of all memory (one in so many) that the pages of a file system may have.
const MEMORY_PART: usize = 16;
/// Maximum number of pages.
const PAGES_MAX: usize = 16_384;
/// Maximum number of pages of one request.
const REQUEST_PAGES: u64 = (DATA_BYTES_MAX / PAGE_BYTES) as u64;
/// Memory that is charged for each part of the table, with its pages.
const CHUNK_BYTES: u64 = (CHUNK_PAGES * (PAGE_BYTES + 48)) as u64;
const _: () = assert!(PAGE_BYTES == FRAME_BYTES);

/// The pages that are kept of the files of one server.
pub struct Pages(Mutex<Kept>);

struct Kept {
    table: PageCache<Frame>,
    /// For the table, and for the parts of it that exist, all of their pages included.
    charge: Charge,
}

/// What was read of the pages that are kept.
pub struct Read {
    /// Number of bytes.
    pub bytes: usize,
    /// Whether the file ends behind them.
    pub is_end: bool,
}

impl Pages {
    /// No pages yet; `payer` pays for all.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(payer: Family) -> Result<Self, Errno> {
        let pages = (frames::statistics().total / MEMORY_PART).min(PAGES_MAX);
        let bytes = PageCache::<Frame>::table_bytes(pages) as u64;
        let charge = Charge::new(payer, &Amounts::of(Kind::Memory, bytes))?;
        let table = PageCache::try_new(pages)?;
        Ok(Self(Mutex::new(Kept { table, charge })))
    }

    /// Reads `length` bytes of `node` at `offset` into `buffers`, from `at` on, as far as all of
    /// them are kept.
    pub fn read(
        &self,
        (node, offset): (u64, u64),
        (buffers, at): (&[PinnedBuffer], usize),
        length: usize,
    ) -> Read {
        let mut bytes = 0;
        while bytes < length {
            let place = offset + bytes as u64;
            let found = self.0.lock().table.find(node, place / PAGE_BYTES as u64);
            let (frame, used) = match found {
                Found::Page(frame, used) => (frame, used),
                Found::End => return Read { bytes, is_end: true },
                Found::Nothing => return Read { bytes, is_end: false },
            };
            let within = (place % PAGE_BYTES as u64) as usize;
            let count = used.saturating_sub(within).min(length - bytes);
            copy((&frame, within), (buffers, at + bytes), count);
            bytes += count;
            // The file ends in this page, maybe before the first byte that is asked for.
            if used < PAGE_BYTES && within + count >= used {
                return Read { bytes, is_end: true };
            }
        }
        Read { bytes, is_end: false }
    }

    /// A page of `node` that is kept, with the number of bytes of the file in it.
    pub fn page(&self, node: u64, number: u64) -> Option<(Frame, usize)> {
        match self.0.lock().table.find(node, number) {
            Found::Page(frame, used) => Some((frame, used)),
            Found::End | Found::Nothing => None,
        }
    }

    /// A page of `node` is about to be kept that no request has asked for. To be called before it
    /// is looked at: if the file changes later, it is not kept.
    pub fn begin_keep(&self, node: u64) -> Fill {
        self.0.lock().table.begin_fill(node)
    }

    /// Anything of `node` may have changed.
    pub fn forget(&self, node: u64) {
        self.0.lock().table.forget(node);
    }

    /// Keeps page `number`, with `used` bytes of a file that has this length.
    pub fn put(&self, fill: Fill, number: u64, frame: Frame, (used, length): (usize, u64)) {
        let is_admitted = mm::admit().is_ok();
        let mut kept = self.0.lock();
        let has_room = kept.table.has_room(fill, number) || is_admitted && kept.grow(fill, number);
        if !has_room {
            return;
        }
        let before = kept.table.keep(fill, number, frame, used);
        if used < PAGE_BYTES {
            kept.table.ends(fill, length);
        }
        drop(kept);
        drop(before);
    }

    /// How many pages of `node` before page `number` are kept, without a gap, up to `most`.
    pub fn count_before(&self, node: u64, number: u64, most: u64) -> u64 {
        let mut kept = self.0.lock();
        let before = (number.saturating_sub(most)..number).rev();
        before.take_while(|&page| matches!(kept.table.find(node, page), Found::Page(..))).count()
            as u64
    }

    /// Whether page `number` of `node` is not kept, and may exist.
    pub fn is_missing(&self, node: u64, number: u64) -> bool {
        matches!(self.0.lock().table.find(node, number), Found::Nothing)
    }

    /// A request for pages is about to be made, because `length` bytes of `node` at `offset` are
    /// missing. Returns which bytes to ask for: where they begin, and how many.
    pub fn begin_fill(&self, node: u64, offset: u64, length: usize) -> (Fill, u64, usize) {
        const PAGE: u64 = PAGE_BYTES as u64;
        let mut kept = self.0.lock();
        let fill = kept.table.begin_fill(node);
        let first = offset / PAGE;
        // A file that is read in order is read ahead.
        let is_in_order = first == 0 || matches!(kept.table.find(node, first - 1), Found::Page(..));
        let needed = (offset % PAGE + length as u64).div_ceil(PAGE).max(1);
        let count = if is_in_order { REQUEST_PAGES } else { needed.min(REQUEST_PAGES) };
        // No position is larger than a signed number can be.
        let room = (i64::MAX as u64).saturating_sub(first * PAGE);
        (fill, first * PAGE, (count * PAGE).min(room) as usize)
    }

    /// `request` has this reply. `bytes`: with so much data, which its call gets.
    pub fn answered(&self, request: &Request, reply: &Reply, bytes: Option<usize>) {
        match (&request.effect, bytes) {
            (Effect::None, _) | (Effect::Fills(..), None) => {}
            (&Effect::Fills(fill, first), Some(bytes)) => {
                self.keep(request, (fill, first), bytes, request.is_partial(reply));
            }
            // At most the bytes of one request.
            (Effect::Writes(bytes) | Effect::WritesBack(bytes), _) => {
                self.0.lock().table.has_changed(request.node(), bytes.clone(), drop);
            }
            (Effect::Changes, _) => self.0.lock().table.forget(request.node()),
            (Effect::Makes, _) => self.0.lock().table.forget(reply.status.number),
        }
    }

    /// Keeps the pages of the reply to a fill, from page `first` on. `is_partial`: the file does
    /// not end behind them.
    fn keep(&self, request: &Request, (fill, first): (Fill, u64), bytes: usize, is_partial: bool) {
        let is_admitted = mm::admit().is_ok();
        for (index, at) in (0..bytes).step_by(PAGE_BYTES).enumerate() {
            // None, if the call has left with its frames.
            let Some(frame) = request.frame(index) else { return };
            let number = first + index as u64;
            let mut kept = self.0.lock();
            let has_room = kept.table.has_room(fill, number);
            if !has_room && (!is_admitted || !kept.grow(fill, number)) {
                continue;
            }
            let before = kept.table.keep(fill, number, frame, (bytes - at).min(PAGE_BYTES));
            drop(kept);
            drop(before);
        }
        if is_partial {
            return;
        }
        let length = first * PAGE_BYTES as u64 + bytes as u64;
        if bytes == 0 {
            self.0.lock().table.ends_before(fill, length);
        } else if (bytes as u64) < request.asked() || !bytes.is_multiple_of(PAGE_BYTES) {
            // What asks for a part of a page asks for the last bytes that a file can have.
            self.0.lock().table.ends(fill, length);
        }
    }

    /// Frees some pages of a closed connection. Returns whether there may be more.
    pub fn free_some(&self) -> bool {
        let mut kept = self.0.lock();
        let has_freed = kept.table.free_some();
        if has_freed {
            kept.charge.shrink(&Amounts::of(Kind::Memory, CHUNK_BYTES));
        }
        has_freed
    }
}

impl Kept {
    /// Makes the part of the table where a page belongs. Returns whether it exists now.
    fn grow(&mut self, fill: Fill, number: u64) -> bool {
        let more = Amounts::of(Kind::Memory, CHUNK_BYTES);
        if self.charge.grow(&more).is_err() {
            return false;
        }
        let is_there = self.table.grow(fill, number).is_ok();
        if !is_there {
            self.charge.shrink(&more);
        }
        is_there
    }
}

/// Copies `length` bytes of a page to `buffers`, from `at` on.
pub fn copy(
    (frame, within): (&Frame, usize),
    (buffers, mut at): (&[PinnedBuffer], usize),
    length: usize,
) {
    let mut done = 0;
    for buffer in buffers.iter() {
        if at >= buffer.len() {
            at -= buffer.len();
            continue;
        }
        let count = (buffer.len() - at).min(length - done);
        buffer.copy_from_frame(at, (frame, within + done), count);
        done += count;
        at = 0;
    }
}
