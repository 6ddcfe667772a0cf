//! Pages of files that a server has, kept to be read again (decision 47).
//!
//! A table of sets: a page can be kept in one of eight places, and the one that was not used for
//! the longest time makes room. Pages are kept under the *name* of their file, a number that is
//! never used again. A file gets a new name when all its pages are dropped, so that this takes one
//! step.
//!
//! ```text
//!  fill = begin_fill(node) --> server --> reply: keep(fill, page, ..)
//!         write to node    --> server --> reply: has_changed(node, bytes)
//! ```
//!
//! A reply to a fill may have been written before a change, and arrive after it. So a fill has the
//! number of the file's last change; pages are kept only if that is still the last one. Changes
//! that have not been answered need not be known: what is kept may be older than they are.
//!
//! The last page of a file can be a part of a page. It is found only while it agrees with the
//! length of the file. Otherwise a reply, from before the change or from after it, has told of
//! another length, and the file may continue behind that part.

use alloc::boxed::Box;
use core::mem::replace;
use core::ops::Range;

use cops_fallible::{List, OutOfMemory, try_box};

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Places of a page, and of a file.
const WAYS: usize = 8;
/// Sets of pages in a chunk of the table.
const CHUNK_SETS: usize = 8;
/// Pages in a chunk: the table grows by so many.
pub const CHUNK_PAGES: usize = WAYS * CHUNK_SETS;
/// Pages for each file of which the table has a name.
const PAGES_OF_A_FILE: usize = 8;

/// A file that has pages in the table, or may get some.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The number of its node.
    node: u64,
    /// Its name; 0: this place is free.
    name: u64,
    /// The number of its last change.
    change: u64,
    /// Its length, if that is known.
    length: Option<u64>,
    /// When it was used last.
    used: u64,
}

/// A page.
#[derive(Debug)]
struct Kept<P> {
    /// The name of its file.
    name: u64,
    number: u64,
    /// Number of bytes of the file in it.
    bytes: u16,
    /// When it was used last.
    used: u64,
    page: P,
}

impl<P> Kept<P> {
    /// Whether the page is whole, or the end of a file of this length.
    fn agrees_with(&self, length: Option<u64>) -> bool {
        let bytes = usize::from(self.bytes);
        bytes == PAGE_BYTES || length == Some(self.number * PAGE_BYTES as u64 + bytes as u64)
    }
}

type Chunk<P> = [[Option<Kept<P>>; WAYS]; CHUNK_SETS];

/// A read that was sent to the server, and of which the data may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    node: u64,
    name: u64,
    change: u64,
}

/// What is known of a place in a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Found<P> {
    /// The page, and the number of bytes of the file in it.
    Page(P, usize),
    /// The file ends before.
    End,
    /// Nothing.
    Nothing,
}

/// The table.
#[derive(Debug)]
pub struct PageCache<P> {
    files: List<[Known; WAYS]>,
    chunks: List<Option<Box<Chunk<P>>>>,
    /// The last number that was used: for names, changes and uses.
    last: u64,
}

/// Spreads the bits of a number.
const fn hash(number: u64) -> u64 {
    // Fibonacci hashing: Knuth, The Art of Computer Programming 3, 6.4.
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

impl<P: Clone> PageCache<P> {
    /// A table for at most `pages` pages, rounded up to [`CHUNK_PAGES`]. It has none at first.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_new(pages: usize) -> Result<Self, OutOfMemory> {
        let (chunks, sets) = Self::parts(pages);
        let mut this = Self { files: List::new(), chunks: List::new(), last: 0 };
        this.files.try_resize(sets, [Known::default(); WAYS])?;
        this.chunks.try_reserve(chunks)?;
        for _ in 0..chunks {
            this.chunks.try_push(None)?;
        }
        Ok(this)
    }

    /// Memory of [`Self::try_new`].
    #[must_use]
    pub fn table_bytes(pages: usize) -> usize {
        let (chunks, sets) = Self::parts(pages);
        chunks * size_of::<Option<Box<Chunk<P>>>>() + sets * size_of::<[Known; WAYS]>()
    }

    /// Number of chunks, and of sets of files.
    fn parts(pages: usize) -> (usize, usize) {
        let chunks = pages.div_ceil(CHUNK_PAGES).max(1);
        (chunks, (chunks * CHUNK_PAGES / PAGES_OF_A_FILE / WAYS).max(1))
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The places of a file.
    fn files_of(&mut self, node: u64) -> &mut [Known; WAYS] {
        let sets = self.files.len() as u64;
        &mut self.files[(hash(node) % sets) as usize]
    }

    fn file(&mut self, node: u64) -> Option<&mut Known> {
        self.files_of(node).iter_mut().find(|file| file.name != 0 && file.node == node)
    }

    /// The file of a fill, if it has not changed since.
    fn file_of(&mut self, fill: Fill) -> Option<&mut Known> {
        let file = self.file(fill.node)?;
        (file.name == fill.name && file.change == fill.change).then_some(file)
    }

    /// The chunk and the set of a page. Pages that follow each other are in different sets.
    fn place(&self, name: u64, number: u64) -> (usize, usize) {
        let sets = (self.chunks.len() * CHUNK_SETS) as u64;
        let set = (hash(name).wrapping_add(number) % sets) as usize;
        (set / CHUNK_SETS, set % CHUNK_SETS)
    }

    /// The places of a page; `None` if their chunk does not exist.
    fn pages_of(&mut self, name: u64, number: u64) -> Option<&mut [Option<Kept<P>>; WAYS]> {
        let (chunk, set) = self.place(name, number);
        self.chunks[chunk].as_deref_mut().map(|chunk| &mut chunk[set])
    }

    /// What is known of page `number` of `node`.
    pub fn find(&mut self, node: u64, number: u64) -> Found<P> {
        let now = self.next();
        let Some(file) = self.file(node) else { return Found::Nothing };
        file.used = now;
        let (name, length) = (file.name, file.length);
        if length.is_some_and(|length| number >= length.div_ceil(PAGE_BYTES as u64)) {
            return Found::End;
        }
        let Some(places) = self.pages_of(name, number) else { return Found::Nothing };
        let mut kept = places.iter_mut().flatten();
        match kept.find(|kept| kept.name == name && kept.number == number) {
            Some(kept) if kept.agrees_with(length) => {
                kept.used = now;
                Found::Page(kept.page.clone(), kept.bytes.into())
            }
            _ => Found::Nothing,
        }
    }

    /// A read of `node` is about to be sent to the server.
    pub fn begin_fill(&mut self, node: u64) -> Fill {
        let now = self.next();
        if let Some(&mut Known { name, change, .. }) = self.file(node) {
            return Fill { node, name, change };
        }
        let places = self.files_of(node);
        // There is one: a set has places.
        if let Some(oldest) = places.iter_mut().min_by_key(|file| file.used) {
            *oldest = Known { node, name: now, change: now, length: None, used: now };
        }
        Fill { node, name: now, change: now }
    }

    /// Whether a page can be kept in the part of the table where this one belongs. If not,
    /// [`Self::grow`] can change that.
    #[must_use]
    pub fn has_room(&self, fill: Fill, number: u64) -> bool {
        self.chunks[self.place(fill.name, number).0].is_some()
    }

    /// Makes the part of the table where a page belongs.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn grow(&mut self, fill: Fill, number: u64) -> Result<(), OutOfMemory> {
        let (chunk, _) = self.place(fill.name, number);
        if self.chunks[chunk].is_none() {
            self.chunks[chunk] = Some(try_box([const { [const { None }; WAYS] }; CHUNK_SETS])?);
        }
        Ok(())
    }

    /// Keeps page `number`, with so many bytes of the file (at most [`PAGE_BYTES`]), if its file
    /// has not changed since the fill began and as much of the page is not kept already. Returns a
    /// page that is not kept any more: another one, or this one.
    pub fn keep(&mut self, fill: Fill, number: u64, page: P, bytes: usize) -> Option<P> {
        let now = self.next();
        if bytes == 0 || bytes > PAGE_BYTES || self.file_of(fill).is_none() {
            return Some(page);
        }
        let name = fill.name;
        let Some(places) = self.pages_of(name, number) else { return Some(page) };
        let new = Kept { name, number, bytes: bytes as u16, used: now, page };
        let mut kept = places.iter_mut().flatten();
        if let Some(same) = kept.find(|kept| kept.name == name && kept.number == number) {
            let less = if same.bytes >= new.bytes { new } else { replace(same, new) };
            return Some(less.page);
        }
        let oldest = |place: &&mut Option<Kept<P>>| place.as_ref().map_or(0, |kept| kept.used);
        match places.iter_mut().min_by_key(oldest) {
            Some(place) => place.replace(new).map(|before| before.page),
            None => Some(new.page),
        }
    }

    /// The file of a fill has this length, unless it has changed since.
    pub fn ends(&mut self, fill: Fill, length: u64) {
        if let Some(file) = self.file_of(fill) {
            file.length = Some(length);
        }
    }

    /// The file of a fill ends here or before, unless it has changed since.
    pub fn ends_before(&mut self, fill: Fill, bound: u64) {
        if let Some(file) = self.file_of(fill) {
            file.length = Some(file.length.map_or(bound, |length| length.min(bound)));
        }
    }

    /// These bytes of `node` have changed, by a write: a step for each page of them. Calls
    /// `dropped` with each page that is not kept any more.
    pub fn has_changed(&mut self, node: u64, bytes: Range<u64>, mut dropped: impl FnMut(P)) {
        let now = self.next();
        let Some(file) = self.file(node) else { return };
        file.change = now;
        let name = file.name;
        // A part of a page at the end that was is not found any more.
        file.length.take_if(|length| bytes.end > *length);
        let page = |byte: u64| byte / PAGE_BYTES as u64;
        for number in page(bytes.start)..bytes.end.div_ceil(PAGE_BYTES as u64) {
            let Some(places) = self.pages_of(name, number) else { continue };
            for place in places {
                if let Some(kept) = place.take_if(|kept| kept.name == name && kept.number == number)
                {
                    dropped(kept.page);
                }
            }
        }
    }

    /// Anything of `node` may have changed: no page of it is found any more.
    pub fn forget(&mut self, node: u64) {
        if let Some(file) = self.file(node) {
            *file = Known::default();
        }
    }

    /// Drops the pages of one chunk. Returns whether there were any.
    pub fn free_some(&mut self) -> bool {
        self.chunks.iter_mut().find_map(Option::take).is_some()
    }
}

#[cfg(test)]
#[path = "page_cache_tests.rs"]
mod tests;
