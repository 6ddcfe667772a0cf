//! Open files: one enum of objects, with one way to attempt an operation and one way to wait.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::file::{Status, device_number, mode, open};
use cops_algorithms::dirent;
use cops_fallible::Text;
use spin::Mutex;

use super::image::{Entry, Node, root};
use super::pipe::{PipeReader, PipeWriter};
use crate::disk::{Disk, DiskTransfer, Work, disk};
use crate::drivers::console::{self, Channel};
use crate::mm::PinnedBuffer;
use crate::net::Socket;
use crate::sched::{WaitQueue, Waiter, Waiting};

/// An open file: what `open`, `pipe2`, `socket` and so on make. All descriptors that are duplicates
/// of each other, and all calls in flight, share it; it is closed when the last of them drops it.
pub struct File {
    /// What is open.
    pub object: Object,
    /// Access mode and status flags, as `fcntl` shows them.
    status: AtomicU32,
}

/// What can be open.
pub enum Object {
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
    /// The disk, with the position of the next read or write.
    Disk { position: Mutex<usize> },
}

impl File {
    /// An open file with these flags of `open`, of which it keeps the access mode and the status.
    pub fn new(object: Object, flags: u32) -> Self {
        Self { object, status: AtomicU32::new(flags & (open::ACCESS_MODE | open::STATUS)) }
    }

    /// Standard input, output and error.
    pub fn standard() -> [Self; 3] {
        [
            Self::new(Object::ConsoleInput, open::READ_ONLY),
            Self::new(Object::ConsoleOutput, open::WRITE_ONLY),
            Self::new(Object::ConsoleError, open::WRITE_ONLY),
        ]
    }

    /// Opens the file or directory at `path` in the root image, for reading.
    ///
    /// # Errors
    /// `ENOENT`, `ENOMEM`.
    pub fn open(path: &str, flags: u32) -> Result<File, Errno> {
        let object = match root().look_up(path)? {
            Node::File(entry) => Object::Image { entry, offset_bytes: Mutex::new(0) },
            Node::Directory(path) => Object::Directory { path, listed: Mutex::new(0) },
        };
        Ok(Self::new(object, flags))
    }

    /// Access mode and status flags.
    pub fn flags(&self) -> u32 {
        self.status.load(Relaxed)
    }

    /// Replaces the status flags by those in `flags`; the access mode stays.
    pub fn set_flags(&self, flags: u32) {
        let access = self.flags() & open::ACCESS_MODE;
        self.status.store(access | flags & open::STATUS, Relaxed);
    }

    /// Whether a synchronous call that would have to wait fails with `EAGAIN` instead.
    pub fn is_non_blocking(&self) -> bool {
        self.flags() & open::NON_BLOCKING != 0
    }

    /// What `fstat` reports.
    pub fn status(&self) -> Status {
        let (kind, permissions, size) = match &self.object {
            Object::ConsoleInput | Object::ConsoleOutput | Object::ConsoleError => {
                let console = Status::new(mode::CHARACTER_DEVICE, 0o620);
                return Status { device: device_number(5, 1), number: 1, ..console };
            }
            Object::Image { entry, .. } => (mode::REGULAR, 0o555, entry.data.len()),
            Object::Directory { .. } => (mode::DIRECTORY, 0o555, 0),
            Object::PipeReader(_) | Object::PipeWriter(_) => (mode::PIPE, 0o600, 0),
            Object::Socket(_) => (mode::SOCKET, 0o777, 0),
            Object::Disk { .. } => {
                (mode::BLOCK_DEVICE, 0o600, disk().map_or(0, Disk::bytes) as usize)
            }
        };
        let number = core::ptr::from_ref(self).addr() as u64;
        Status { size: size as u64, number, ..Status::new(kind, permissions) }
    }

    /// Number of bytes that a read would return at once, as `FIONREAD` reports it.
    ///
    /// # Errors
    /// `ENOTTY` if the file does not know.
    pub fn unread_bytes(&self) -> Result<usize, Errno> {
        match &self.object {
            Object::PipeReader(pipe) => Ok(pipe.unread_bytes()),
            Object::Socket(socket) => Ok(socket.unread_bytes()),
            Object::Image { entry, offset_bytes } => {
                Ok(entry.data.len().saturating_sub(*offset_bytes.lock()))
            }
            Object::ConsoleInput => Ok(super::terminal::unread_bytes()),
            _ => Err(Errno::ENOTTY),
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.object, Object::Directory { .. })
    }

    /// Whether it is the console.
    pub fn is_terminal(&self) -> bool {
        matches!(self.object, Object::ConsoleInput | Object::ConsoleOutput | Object::ConsoleError)
    }

    /// Reads at `offset`, without using or changing the position; `None` if the call has to wait.
    pub fn attempt_read_at(&self, offset: u64, buffer: &PinnedBuffer) -> Option<CallResult> {
        Some(match &self.object {
            Object::Image { entry, .. } => {
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                Ok(read_image(entry, offset, buffer))
            }
            Object::Directory { .. } => Err(Errno::EISDIR),
            _ => Err(Errno::ESPIPE),
        })
    }

    /// Writes at `offset`, without using or changing the position; `None` if the call has to wait.
    pub fn attempt_write_at(&self, _offset: u64, _buffer: &PinnedBuffer) -> Option<CallResult> {
        Some(match &self.object {
            Object::Image { .. } | Object::Directory { .. } => Err(Errno::EBADF),
            _ => Err(Errno::ESPIPE),
        })
    }

    /// Opens the device with this name, if there is one: `/dev/vda`, the disk.
    ///
    /// # Errors
    /// `ENXIO` if the machine has no disk.
    pub fn open_device(path: &str, flags: u32) -> Option<Result<File, Errno>> {
        let open =
            || Ok(Self::new(Object::Disk { position: disk().map(|_| Mutex::new(0))? }, flags));
        (path == "/dev/vda").then(open)
    }

    /// The transfer for a read or write of `buffer` at `offset`, or at the disk's position, which
    /// is then behind the transfer.
    ///
    /// # Errors
    /// `EBADF` for a file that is not the disk, or is not open for this; otherwise as for
    /// [`DiskTransfer::new`].
    pub fn disk_transfer(
        &self,
        offset: Option<u64>,
        buffer: PinnedBuffer,
        work: impl FnOnce(u64, PinnedBuffer) -> Work,
    ) -> Result<DiskTransfer, Errno> {
        let Object::Disk { position } = &self.object else { return Err(Errno::EBADF) };
        let work = |offset, buffer| {
            let work = work(offset, buffer);
            let refused = match work {
                Work::Read(..) => open::WRITE_ONLY,
                _ => open::READ_ONLY,
            };
            if self.flags() & open::ACCESS_MODE == refused { Err(Errno::EBADF) } else { Ok(work) }
        };
        if let Some(offset) = offset {
            return DiskTransfer::new(work(offset, buffer)?);
        }
        let mut position = position.lock();
        let transfer = DiskTransfer::new(work(*position as u64, buffer)?)?;
        *position += transfer.bytes();
        Ok(transfer)
    }

    /// Reads available bytes into `buffer`; `None` if there are none yet and the call has to wait.
    pub fn attempt_read(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        match &self.object {
            Object::Image { entry, offset_bytes } => {
                let mut offset = offset_bytes.lock();
                let count = read_image(entry, *offset, buffer);
                *offset += count;
                Some(Ok(count))
            }
            Object::Directory { .. } => Some(Err(Errno::EISDIR)),
            Object::PipeReader(pipe) => pipe.attempt(buffer),
            Object::Socket(socket) => socket.attempt_read(buffer),
            // Console input is read by a `ConsoleRead`, the disk by a `DiskTransfer`.
            Object::ConsoleInput
            | Object::ConsoleOutput
            | Object::ConsoleError
            | Object::Disk { .. }
            | Object::PipeWriter(_) => Some(Err(Errno::EBADF)),
        }
    }

    /// Writes bytes from `buffer` as far as there is room; `None` if there is none and the call has
    /// to wait.
    pub fn attempt_write(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        match &self.object {
            Object::ConsoleOutput => write_console(Channel::Output, buffer),
            Object::ConsoleError => write_console(Channel::Error, buffer),
            Object::PipeWriter(pipe) => pipe.attempt(buffer),
            Object::Socket(socket) => socket.attempt_write(buffer),
            Object::Image { .. } => Some(Err(Errno::EBADF)),
            Object::Directory { .. } => Some(Err(Errno::EBADF)),
            Object::ConsoleInput | Object::PipeReader(_) | Object::Disk { .. } => {
                Some(Err(Errno::EBADF))
            }
        }
    }

    /// Registers `waiter` to be woken when its attempt in this direction may succeed. Returns
    /// whether it is to attempt now, because the event may have happened before.
    pub fn insert_waiter(&self, waiting: Waiting, waiter: Waiter) -> bool {
        if let Some((queue, _)) = self.queue(waiting) {
            queue.insert(waiter);
        }
        match &self.object {
            Object::Socket(socket) => socket.listen_for(waiting),
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
        match &self.object {
            Object::PipeReader(pipe) => Some(pipe.queue()),
            Object::PipeWriter(pipe) => Some(pipe.queue()),
            // Checking would cost as much as an attempt.
            Object::Socket(socket) => Some((socket.queue(waiting), true)),
            Object::ConsoleOutput | Object::ConsoleError => {
                Some((&CONSOLE_WRITERS, console::has_room()))
            }
            Object::ConsoleInput
            | Object::Image { .. }
            | Object::Directory { .. }
            | Object::Disk { .. } => None,
        }
    }

    /// Changes the position of the next read.
    ///
    /// # Errors
    /// `ESPIPE` for a file without a position, `EINVAL` for a negative position or an unknown
    /// `whence`.
    pub fn seek(&self, offset: isize, whence: usize) -> CallResult {
        let (position, size) = match &self.object {
            Object::Image { entry, offset_bytes } => (offset_bytes, entry.data.len()),
            Object::Disk { position } => (position, disk()?.bytes() as usize),
            _ => return Err(Errno::ESPIPE),
        };
        let mut place = position.lock();
        let base = match whence {
            0 => 0,
            1 => *place,
            2 => size,
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
        let Object::Directory { path, listed } = &self.object else { return Err(Errno::ENOTDIR) };
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

/// Copies what follows `offset` in a file of the root image. Returns the number of bytes.
fn read_image(entry: &Entry, offset: usize, buffer: &PinnedBuffer) -> usize {
    let rest = entry.data.get(offset..).unwrap_or_default();
    let count = rest.len().min(buffer.len());
    buffer.write_at(0, &rest[..count]);
    count
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
