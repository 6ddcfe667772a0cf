//! The table of open files of one process.

use alloc::collections::BinaryHeap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;

use cops_abi::Errno;

use super::File;

/// Files one process may have open: enough for ten thousand connections.
const OPEN_FILES_MAX: usize = 32_768;

/// Descriptor numbers and what they stand for. A new file gets the lowest free number, as POSIX promises.
#[derive(Default)]
pub struct FileTable {
    files: Vec<Option<Arc<File>>>,
    /// Numbers below `files.len()` that are free.
    free: BinaryHeap<Reverse<usize>>,
}

impl FileTable {
    /// A table with standard input, output and error on the console.
    pub fn with_console() -> Self {
        let files = [File::ConsoleInput, File::ConsoleOutput, File::ConsoleError];
        Self { files: files.into_iter().map(|file| Some(Arc::new(file))).collect(), free: BinaryHeap::new() }
    }

    /// Whether [`Self::insert`] would succeed `more` times.
    pub fn has_room(&self, more: usize) -> bool {
        self.files.len() - self.free.len() + more <= OPEN_FILES_MAX
    }

    /// Opens `file` under the lowest free number.
    ///
    /// # Errors
    /// `EMFILE`; the file is dropped, that is, closed.
    pub fn insert(&mut self, file: Arc<File>) -> Result<usize, Errno> {
        if !self.has_room(1) {
            return Err(Errno::EMFILE);
        }
        if let Some(Reverse(number)) = self.free.pop() {
            self.files[number] = Some(file);
            return Ok(number);
        }
        self.files.push(Some(file));
        Ok(self.files.len() - 1)
    }

    /// The file with this number.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn get(&self, number: usize) -> Result<Arc<File>, Errno> {
        self.files.get(number).and_then(Option::clone).ok_or(Errno::EBADF)
    }

    /// Takes a file out. What is in flight on it keeps it until it has completed or is cancelled.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn remove(&mut self, number: usize) -> Result<Arc<File>, Errno> {
        let file = self.files.get_mut(number).and_then(Option::take).ok_or(Errno::EBADF)?;
        self.free.push(Reverse(number));
        Ok(file)
    }

    /// Takes everything out.
    pub fn take_all(&mut self) -> Vec<Option<Arc<File>>> {
        self.free.clear();
        core::mem::take(&mut self.files)
    }
}
