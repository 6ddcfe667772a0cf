//! The table of open files of one process.
//!
//! Files are kept in chunks, so that a table of any length needs no large piece of memory, and growing it copies
//! nothing. Closing a file never allocates.

use alloc::boxed::Box;
use alloc::sync::Arc;

use cops_abi::Errno;
use cops_fallible::{List, OutOfMemory, try_arc, try_box};

use super::File;

/// Files one process may have open: enough for ten thousand connections.
const OPEN_FILES_MAX: usize = 32_768;

/// Files in a chunk: it takes a little more than a kilobyte.
const CHUNK_FILES: usize = 128;
const CHUNKS_MAX: usize = OPEN_FILES_MAX / CHUNK_FILES;

struct Chunk {
    files: [Option<Arc<File>>; CHUNK_FILES],
    /// A bit for each number that is taken.
    taken: u128,
}

/// Descriptor numbers and what they stand for. A new file gets the lowest free number, as POSIX promises.
#[derive(Default)]
pub struct FileTable {
    chunks: List<Box<Chunk>>,
    /// A bit for each chunk that has no free number.
    full: [u64; CHUNKS_MAX.div_ceil(64)],
    count: usize,
}

impl FileTable {
    /// A table with standard input, output and error on the console.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn with_console() -> Result<Self, Errno> {
        let mut table = Self::default();
        for file in [File::ConsoleInput, File::ConsoleOutput, File::ConsoleError] {
            table.insert(try_arc(file)?)?;
        }
        Ok(table)
    }

    /// Makes sure that [`Self::insert`] will succeed `more` times, at most twice.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`.
    pub fn reserve(&mut self, more: usize) -> Result<(), Errno> {
        if self.count + more > OPEN_FILES_MAX {
            return Err(Errno::EMFILE);
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

    /// Opens `file` under the lowest free number.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`; the file is dropped, that is, closed.
    pub fn insert(&mut self, file: Arc<File>) -> Result<usize, Errno> {
        self.reserve(1)?;
        let with_room = self.full.iter().enumerate().find(|&(_, &word)| word != u64::MAX);
        let number = with_room.map_or(usize::MAX, |(index, word)| index * 64 + word.trailing_ones() as usize);
        let chunk = self.chunks.get_mut(number).ok_or(Errno::EMFILE)?;
        let place = chunk.taken.trailing_ones() as usize;
        chunk.taken |= 1 << place;
        chunk.files[place] = Some(file);
        if chunk.taken == u128::MAX {
            self.full[number / 64] |= 1 << (number % 64);
        }
        self.count += 1;
        Ok(number * CHUNK_FILES + place)
    }

    /// The file with this number.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn get(&self, number: usize) -> Result<Arc<File>, Errno> {
        let chunk = self.chunks.get(number / CHUNK_FILES).ok_or(Errno::EBADF)?;
        chunk.files[number % CHUNK_FILES].clone().ok_or(Errno::EBADF)
    }

    /// Takes a file out. What is in flight on it keeps it until it has completed or is cancelled.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn remove(&mut self, number: usize) -> Result<Arc<File>, Errno> {
        let (index, place) = (number / CHUNK_FILES, number % CHUNK_FILES);
        let chunk = self.chunks.get_mut(index).ok_or(Errno::EBADF)?;
        let file = chunk.files[place].take().ok_or(Errno::EBADF)?;
        chunk.taken &= !(1 << place);
        self.full[index / 64] &= !(1 << (index % 64));
        self.count -= 1;
        Ok(file)
    }

    /// Takes one file out, of a table that gets no more; `None`: it is empty. The memory shrinks with it.
    pub fn pop(&mut self) -> Option<Arc<File>> {
        while let Some(chunk) = self.chunks.last_mut() {
            if let Some(place) = (u128::BITS - chunk.taken.leading_zeros()).checked_sub(1) {
                chunk.taken &= !(1 << place);
                self.count -= 1;
                return chunk.files[place as usize].take();
            }
            self.chunks.pop();
        }
        None
    }
}
