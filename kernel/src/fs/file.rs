//! Open files: one enum with one way to attempt an operation and one way to wait.

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_algorithms::dirent;
use cops_fallible::Text;
use spin::Mutex;

use super::image::{Entry, Node, root};
use super::pipe::{PipeReader, PipeWriter};
use crate::drivers::console::{self, Channel};
use crate::mm::PinnedBuffer;
use crate::net::Socket;
use crate::sched::{WaitQueue, Waiter, Waiting};

/// A file that a process has open. Shared by all descriptors and calls that use it; closed when the
/// last of them drops it.
pub enum File {
    /// Standard input.
    ConsoleInput,
    /// Standard output.
    ConsoleOutput,
    /// Standard error.
    ConsoleError,
    /// A file of the root image, with the position of the next read.
    Image { entry: &'static Entry, offset_bytes: Mutex<usize> },
    /// A directory of the root image, with the number of names already listed.
    Directory { path: Text, listed: Mutex<usize> },
    /// Reading end of a pipe.
    PipeReader(PipeReader),
    /// Writing end of a pipe.
    PipeWriter(PipeWriter),
    /// A TCP socket.
    Socket(Socket),
}

impl File {
    /// Opens the file or directory at `path` in the root image, for reading.
    ///
    /// # Errors
    /// `ENOENT`, `ENOMEM`.
    pub fn open(path: &str) -> Result<File, Errno> {
        Ok(match root().look_up(path)? {
            Node::File(entry) => File::Image { entry, offset_bytes: Mutex::new(0) },
            Node::Directory(path) => File::Directory { path, listed: Mutex::new(0) },
        })
    }

    /// Reads available bytes into `buffer`; `None` if there are none yet and the call has to wait.
    pub fn attempt_read(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        match self {
            File::Image { entry, offset_bytes } => {
                let mut offset = offset_bytes.lock();
                let rest = entry.data.get(*offset..).unwrap_or_default();
                let count = rest.len().min(buffer.len());
                buffer.write_at(0, &rest[..count]);
                *offset += count;
                Some(Ok(count))
            }
            File::Directory { .. } => Some(Err(Errno::EISDIR)),
            File::PipeReader(pipe) => pipe.attempt(buffer),
            File::Socket(socket) => socket.attempt_read(buffer),
            // Console input is read by a `ConsoleRead`.
            File::ConsoleInput | File::ConsoleOutput | File::ConsoleError | File::PipeWriter(_) => {
                Some(Err(Errno::EBADF))
            }
        }
    }

    /// Writes bytes from `buffer` as far as there is room; `None` if there is none and the call has
    /// to wait.
    pub fn attempt_write(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        match self {
            File::ConsoleOutput => write_console(Channel::Output, buffer),
            File::ConsoleError => write_console(Channel::Error, buffer),
            File::PipeWriter(pipe) => pipe.attempt(buffer),
            File::Socket(socket) => socket.attempt_write(buffer),
            File::Image { .. } => Some(Err(Errno::EROFS)),
            File::Directory { .. } => Some(Err(Errno::EISDIR)),
            File::ConsoleInput | File::PipeReader(_) => Some(Err(Errno::EBADF)),
        }
    }

    /// Registers `waiter` to be woken when its attempt in this direction may succeed. Returns
    /// whether it is to attempt now, because the event may have happened before.
    pub fn insert_waiter(&self, waiting: Waiting, waiter: Waiter) -> bool {
        if let Some((queue, _)) = self.queue(waiting) {
            queue.insert(waiter);
        }
        match self {
            File::Socket(socket) => socket.listen_for(waiting),
            _ => true,
        }
    }

    /// The waiter with this number stops waiting for this direction. `must_pass_on`: it has not
    /// used the event that it was woken for.
    pub fn remove_waiter(&self, waiting: Waiting, waiter: u32, must_pass_on: bool) {
        if let Some((queue, may_be_ready)) = self.queue(waiting) {
            queue.remove(waiter, must_pass_on || may_be_ready);
        }
    }

    /// The waiter with this number, in this direction, has become less urgent.
    pub fn pass_on(&self, waiting: Waiting, waiter: u32) {
        if let Some((queue, _)) = self.queue(waiting) {
            queue.pass_on(waiter);
        }
    }

    /// The calls that wait for this direction, and whether an attempt may succeed now. `None` if
    /// attempts never wait.
    fn queue(&self, waiting: Waiting) -> Option<(&WaitQueue, bool)> {
        match self {
            File::PipeReader(pipe) => Some(pipe.queue()),
            File::PipeWriter(pipe) => Some(pipe.queue()),
            // Checking would cost as much as an attempt.
            File::Socket(socket) => Some((socket.queue(waiting), true)),
            File::ConsoleOutput | File::ConsoleError => {
                Some((&CONSOLE_WRITERS, console::has_room()))
            }
            File::ConsoleInput | File::Image { .. } | File::Directory { .. } => None,
        }
    }

    /// Changes the position of the next read.
    ///
    /// # Errors
    /// `ESPIPE` for a file without a position, `EINVAL` for a negative position or an unknown
    /// `whence`.
    pub fn seek(&self, offset: isize, whence: usize) -> CallResult {
        let File::Image { entry, offset_bytes } = self else { return Err(Errno::ESPIPE) };
        let mut place = offset_bytes.lock();
        let base = match whence {
            0 => 0,
            1 => *place,
            2 => entry.data.len(),
            _ => return Err(Errno::EINVAL),
        };
        *place = base
            .checked_add_signed(offset)
            .filter(|&place| isize::try_from(place).is_ok())
            .ok_or(Errno::EINVAL)?;
        Ok(*place)
    }

    /// Lists names of a directory as Linux's `dirent64` records, as many as fit into `bytes`.
    ///
    /// # Errors
    /// `ENOTDIR`; `EINVAL` if not even one record fits.
    pub fn list(&self, bytes: &mut [u8]) -> CallResult {
        let File::Directory { path, listed } = self else { return Err(Errno::ENOTDIR) };
        let mut listed = listed.lock();
        let mut used = 0;
        for (index, (name, is_directory)) in root().list(path).enumerate().skip(*listed) {
            match dirent::put(&mut bytes[used..], index as u64 + 1, name, is_directory) {
                Some(length) => used += length,
                None if used == 0 => return Err(Errno::EINVAL),
                None => break,
            }
            *listed = index + 1;
        }
        Ok(used)
    }
}

/// Calls that wait for room in the console's queue.
static CONSOLE_WRITERS: WaitQueue = WaitQueue::new();

/// There is room in the console's queue again.
pub fn console_has_room() {
    CONSOLE_WRITERS.wake_one();
}

/// Writes the beginning of `buffer`; `None` if the console has no room. Writers alternate after
/// each part.
fn write_console(channel: Channel, buffer: &PinnedBuffer) -> Option<CallResult> {
    let mut bytes = [0; console::PART_BYTES];
    let part = &mut bytes[..buffer.len().min(console::PART_BYTES)];
    buffer.read_at(0, part);
    console::try_write(channel, part).map(Ok)
}
