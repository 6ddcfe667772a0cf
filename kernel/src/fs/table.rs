//! The table of open files of one process.
//!
//! Files are in chunks, so that even a long table needs no large allocation, and growing it copies
//! nothing. Closing a file never allocates.

use alloc::boxed::Box;
use alloc::sync::Arc;

use cops_abi::Errno;
use cops_fallible::{List, OutOfMemory, try_arc, try_box};

use super::File;
use crate::mm::quota::{Amounts, Charge, Family, Kind};

/// Maximum number of open files of a process: enough for ten thousand connections.
const OPEN_FILES_MAX: usize = 32_768;

/// Number of files in a chunk, which takes a little more than a kilobyte.
const CHUNK_FILES: usize = 128;
/// Chunks without files that are freed in one portion: a process may have closed 32,768 files
/// before it ended.
const CHUNKS_PER_PORTION: usize = 8;
const CHUNKS_MAX: usize = OPEN_FILES_MAX / CHUNK_FILES;

/// The number by which a program names a file, which need not be open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor(pub usize);

struct Chunk {
    files: [Option<Arc<File>>; CHUNK_FILES],
    /// A bit for each number in use.
    taken: u128,
}

/// Descriptor numbers and their files. A new file gets the lowest free number, as POSIX requires.
pub struct FileTable {
    chunks: List<Box<Chunk>>,
    /// A bit for each chunk without a free number.
    full: [u64; CHUNKS_MAX.div_ceil(64)],
    count: usize,
    /// The charge for the files: for at least `count` files.
    charge: Charge,
}

/// Memory for a descriptor: its place in the table and the file.
const DESCRIPTOR_BYTES: u64 = 512;
/// Additional memory for a socket: a connection's buffers.
const SOCKET_BYTES: u64 = 8192;

/// Memory for the file of a descriptor in addition to [`DESCRIPTOR_BYTES`].
fn extra(file: &File) -> Option<Amounts> {
    matches!(file, File::Socket(_)).then(|| Amounts::of(Kind::Memory, SOCKET_BYTES))
}

fn descriptors(count: usize) -> Amounts {
    let count = count as u64;
    Amounts::of(Kind::Descriptors, count).and(Kind::Memory, count * DESCRIPTOR_BYTES)
}

impl FileTable {
    /// A table with standard input, output and error on the console. These, and all later files,
    /// are charged to `family`.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn with_console(family: Family) -> Result<Self, Errno> {
        let console = [File::ConsoleInput, File::ConsoleOutput, File::ConsoleError];
        let charge = Charge::new(family, &descriptors(console.len()))?;
        let mut table =
            Self { chunks: List::new(), full: [0; CHUNKS_MAX.div_ceil(64)], count: 0, charge };
        for file in console {
            table.insert(try_arc(file)?)?;
        }
        Ok(table)
    }

    /// A table without files, which is to get copies of those of another table.
    pub const fn empty(family: Family) -> Self {
        let charge = Charge::nothing(family);
        Self { chunks: List::new(), full: [0; CHUNKS_MAX.div_ceil(64)], count: 0, charge }
    }

    /// Opens the files of a chunk of `from` here too, with the same numbers; all chunks before it
    /// have been copied, and this table is otherwise unused. Returns whether there is a chunk with
    /// this index.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn copy_chunk(&mut self, from: &FileTable, index: usize) -> Result<bool, Errno> {
        let Some(chunk) = from.chunks.get(index) else { return Ok(false) };
        let count = chunk.taken.count_ones() as usize;
        let mut amounts = descriptors(count);
        let extras = chunk.files.iter().flatten().filter_map(|file| extra(file));
        extras.for_each(|extra| amounts.add(&extra));
        self.charge.grow(&amounts)?;
        let files = core::array::from_fn(|place| chunk.files[place].clone());
        let copy = try_box(Chunk { files, taken: chunk.taken })?;
        if copy.taken == u128::MAX {
            self.full[index / 64] |= 1 << (index % 64);
        }
        self.chunks.try_push(copy)?;
        self.count += count;
        Ok(true)
    }

    /// Number of files that are charged.
    fn charged(&self) -> usize {
        self.charge.amounts().get(Kind::Descriptors) as usize
    }

    /// Releases the charge for what was reserved and not used.
    fn release_unused(&mut self) {
        self.charge.shrink(&descriptors(self.charged() - self.count));
    }

    /// Ensures that [`Self::insert`] will succeed `more` times, at most twice.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn reserve(&mut self, more: usize) -> Result<(), Errno> {
        if self.count + more > OPEN_FILES_MAX {
            return Err(Errno::EMFILE);
        }
        let missing = (self.count + more).saturating_sub(self.charged());
        if missing > 0 {
            self.charge.grow(&descriptors(missing))?;
        }
        while self.chunks.len() * CHUNK_FILES < self.count + more {
            self.grow()?;
        }
        Ok(())
    }

    fn grow(&mut self) -> Result<(), OutOfMemory> {
        let chunk = try_box(Chunk { files: [const { None }; CHUNK_FILES], taken: 0 })?;
        self.chunks.try_push(chunk)
    }

    /// Opens `file` with the lowest free number.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`; the file is dropped, that is, closed.
    pub fn insert(&mut self, file: Arc<File>) -> Result<Descriptor, Errno> {
        self.reserve(1)?;
        if let Some(extra) = extra(&file) {
            self.charge.grow(&extra)?;
        }
        let with_room = self.full.iter().enumerate().find(|&(_, &word)| word != u64::MAX);
        let number = with_room
            .map_or(usize::MAX, |(index, word)| index * 64 + word.trailing_ones() as usize);
        let chunk = self.chunks.get_mut(number).ok_or(Errno::EMFILE)?;
        let place = chunk.taken.trailing_ones() as usize;
        chunk.taken |= 1 << place;
        chunk.files[place] = Some(file);
        if chunk.taken == u128::MAX {
            self.full[number / 64] |= 1 << (number % 64);
        }
        self.count += 1;
        Ok(Descriptor(number * CHUNK_FILES + place))
    }

    /// The file with this number.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn get(&self, Descriptor(number): Descriptor) -> Result<Arc<File>, Errno> {
        let chunk = self.chunks.get(number / CHUNK_FILES).ok_or(Errno::EBADF)?;
        chunk.files[number % CHUNK_FILES].clone().ok_or(Errno::EBADF)
    }

    /// Removes a file. Calls in flight keep it open until they are completed or cancelled.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn remove(&mut self, Descriptor(number): Descriptor) -> Result<Arc<File>, Errno> {
        let (index, place) = (number / CHUNK_FILES, number % CHUNK_FILES);
        let chunk = self.chunks.get_mut(index).ok_or(Errno::EBADF)?;
        let file = chunk.files[place].take().ok_or(Errno::EBADF)?;
        chunk.taken &= !(1 << place);
        self.full[index / 64] &= !(1 << (index % 64));
        self.count -= 1;
        if let Some(extra) = extra(&file) {
            self.charge.shrink(&extra);
        }
        self.release_unused();
        Ok(file)
    }

    /// Removes one file from a table that gets no more files, or frees some chunks without files:
    /// `Some(None)`. `None` if nothing is left.
    pub fn pop(&mut self) -> Option<Option<Arc<File>>> {
        for _ in 0..CHUNKS_PER_PORTION {
            let chunk = self.chunks.last_mut()?;
            if let Some(place) = (u128::BITS - chunk.taken.leading_zeros()).checked_sub(1) {
                chunk.taken &= !(1 << place);
                self.count -= 1;
                let file = chunk.files[place as usize].take();
                if let Some(extra) = file.as_deref().and_then(extra) {
                    self.charge.shrink(&extra);
                }
                self.release_unused();
                return Some(file);
            }
            self.chunks.pop();
        }
        Some(None)
    }
}
