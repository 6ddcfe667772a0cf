//! Open files: one enum of objects, with one way to attempt an operation and one way to wait.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use cops_abi::errno::CallResult;
use cops_abi::file::{Status, device_number, mode, open};
use cops_abi::{Errno, Priority};
use cops_algorithms::dirent;
use cops_lock::Mutex;
use spin::Once;

use super::device;
use super::epoll::Epoll;
use super::event::EventCounter;
use super::file_locks;
use super::node::{self, Attempt, Device, Listed, NodeRef};
use super::pair::Paired;
use super::pipe::{PipeReader, PipeWriter};
use super::served::{Ask, FileServer, ServedFile};
use super::timer_file::TimerFile;
use crate::disk::{Disk, DiskTransfer, Work, disk};
use crate::drivers::console::{self, Channel};
use crate::mm::PinnedBuffer;
use crate::mm::quota::{Charge, Family, MemoryCharge};
use crate::net::{Datagrams, Socket, Timeouts};
use crate::sched::{WaitQueue, Waiter, Waiting};

/// An open file: what `open`, `pipe2`, `socket` and so on make. All descriptors that are
/// duplicates of each other, and all calls in flight, share it; it is closed when the last of them
/// drops it.
pub struct File {
    /// What is open.
    pub object: Object,
    /// Identifies it to programs if it is not a node, as that of a node does.
    pub number: u64,
    /// Access mode and status flags, as `fcntl` shows them.
    status: AtomicU32,
    /// Whether it may have locks, which are released when it is closed.
    has_locks: AtomicBool,
    /// The charge for it and its object, from its first descriptor on.
    charge: Once<MemoryCharge>,
}

/// What can be open.
pub enum Object {
    /// Standard input.
    ConsoleInput,
    /// Standard output.
    ConsoleOutput,
    /// Standard error.
    ConsoleError,
    /// Input and output of the console.
    Console,
    /// A file or a directory, with the position of the next read or write, or of the next entry
    /// of a listing. What is written is charged to the family of `payer`, that of the process that
    /// opened it.
    Node { node: NodeRef, position: Mutex<u64>, payer: Charge },
    /// A file or a directory of a file system that a process serves.
    Served(ServedFile),
    /// The server's end of such a file system.
    FileServer(FileServer),
    /// A device that the kernel simulates, and its node.
    Device { device: Device, node: NodeRef },
    /// Reading end of a pipe.
    PipeReader(PipeReader),
    /// Writing end of a pipe.
    PipeWriter(PipeWriter),
    /// A TCP socket.
    Socket(Socket),
    /// A UDP socket.
    Datagrams(Datagrams),
    /// One of a pair of connected sockets.
    Paired(Paired),
    /// A counter, as `eventfd2` makes it.
    Event(EventCounter),
    /// A timer, as `timerfd_create` makes it.
    Timer(TimerFile),
    /// An epoll instance.
    Epoll(Epoll),
    /// The disk, with the position of the next read or write.
    Disk { position: Mutex<u64> },
}

impl File {
    /// An open file with these flags of `open`, of which it keeps the access mode and the status.
    pub fn new(object: Object, flags: u32) -> Self {
        // Not its address, of which programs learn nothing.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LAST.fetch_add(1, Relaxed) + 1;
        let status = AtomicU32::new(flags & (open::ACCESS_MODE | open::STATUS | open::DURABLE));
        Self { object, number, status, has_locks: AtomicBool::new(false), charge: Once::new() }
    }

    /// Whether it is charged.
    pub fn is_charged(&self) -> bool {
        self.charge.is_completed()
    }

    /// Keeps the charge for it as long as it is open, unless it has one.
    pub fn keep_charge(&self, charge: MemoryCharge) {
        self.charge.call_once(|| charge);
    }

    /// Standard input, output and error.
    pub fn standard() -> [Self; 3] {
        [
            Self::new(Object::ConsoleInput, open::READ_ONLY),
            Self::new(Object::ConsoleOutput, open::WRITE_ONLY),
            Self::new(Object::ConsoleError, open::WRITE_ONLY),
        ]
    }

    /// Opens `node` with these flags of `open`. What is written is charged to `payer`.
    ///
    /// # Errors
    /// `ENXIO` if it is a device that the machine does not have, or anything but a file or
    /// directory of a file system that a process serves; `EROFS` if it cannot be written;
    /// `ENOMEM`.
    pub fn of_node(node: NodeRef, flags: u32, payer: Family) -> Result<File, Errno> {
        let object = match node.device() {
            Some(Device::Console) => Object::Console,
            Some(Device::Disk) => {
                let writes = flags & open::ACCESS_MODE != open::READ_ONLY;
                if disk()?.is_read_only() && writes {
                    return Err(Errno::EROFS);
                }
                Object::Disk { position: Mutex::new(0) }
            }
            Some(Device::FileServer) => Object::FileServer(FileServer::new(payer)?),
            Some(device) => Object::Device { device, node },
            None if node.served().is_some() => match node.kind() {
                mode::REGULAR | mode::DIRECTORY => Object::Served(ServedFile::new(node)),
                _ => return Err(Errno::ENXIO),
            },
            None => {
                let payer = Charge::standing(payer)?;
                Object::Node { node, position: Mutex::new(0), payer }
            }
        };
        Ok(Self::new(object, flags))
    }

    /// Makes this open file of a directory, which is not in use yet, that of the file `created`,
    /// which has just been created there.
    pub fn lead_to(&mut self, created: NodeRef) {
        match &mut self.object {
            Object::Node { node, .. } => *node = created,
            Object::Served(served) => *served = ServedFile::new(created),
            _ => {}
        }
    }

    /// The node, if it is a file or a directory of a file system.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn node(&self) -> Result<&NodeRef, Errno> {
        match &self.object {
            Object::Node { node, .. } | Object::Device { node, .. } => Ok(node),
            Object::Served(served) => Ok(served.node()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// It gets a lock, which is released when it is closed.
    pub fn note_lock(&self) {
        self.has_locks.store(true, Relaxed);
    }

    /// Whether it is open for reading.
    pub fn is_readable(&self) -> bool {
        self.flags() & open::ACCESS_MODE != open::WRITE_ONLY
    }

    /// Whether it is open for writing.
    pub fn is_writable(&self) -> bool {
        self.flags() & open::ACCESS_MODE != open::READ_ONLY
    }

    /// Access mode and status flags.
    pub fn flags(&self) -> u32 {
        self.status.load(Relaxed)
    }

    /// Replaces the status flags by those in `flags`; the access mode stays, and whether writes are
    /// durable.
    pub fn set_flags(&self, flags: u32) {
        let access = self.flags() & (open::ACCESS_MODE | open::DURABLE);
        self.status.store(access | flags & open::STATUS, Relaxed);
    }

    /// Whether a synchronous call that would have to wait fails with `EAGAIN` instead.
    pub fn is_non_blocking(&self) -> bool {
        self.flags() & open::NON_BLOCKING != 0
    }

    /// How long synchronous calls wait, if it is a socket for which a program can set that.
    pub fn timeouts(&self) -> Option<&Timeouts> {
        match &self.object {
            Object::Socket(socket) => Some(&socket.timeouts),
            Object::Datagrams(socket) => Some(&socket.timeouts),
            Object::Paired(paired) => Some(&paired.timeouts),
            _ => None,
        }
    }

    /// What `fstat` reports; `None` if the call has to wait.
    pub fn attempt_status(&self, ask: &mut Ask) -> Attempt<Status> {
        let (kind, permissions) = match &self.object {
            Object::Node { node, .. } | Object::Device { node, .. } => return node.status(ask),
            Object::Served(served) => return served.node().status(ask),
            Object::ConsoleInput
            | Object::ConsoleOutput
            | Object::ConsoleError
            | Object::Console => {
                let console = Status::new(mode::CHARACTER_DEVICE, 0o620);
                return Some(Ok(Status { device: device_number(5, 1), number: 1, ..console }));
            }
            Object::PipeReader(_) | Object::PipeWriter(_) => (mode::PIPE, 0o600),
            Object::Socket(_) | Object::Datagrams(_) | Object::Paired(_) => (mode::SOCKET, 0o777),
            // As on Linux, it has no type.
            Object::Event(_) | Object::Timer(_) | Object::Epoll(_) => (0, 0o600),
            Object::Disk { .. } => {
                let size = disk().map_or(0, Disk::bytes);
                return Some(Ok(Status { size, ..Status::new(mode::BLOCK_DEVICE, 0o600) }));
            }
            Object::FileServer(_) => (mode::CHARACTER_DEVICE, 0o600),
        };
        Some(Ok(Status { number: self.number, ..Status::new(kind, permissions) }))
    }

    /// Number of bytes that a read would return at once, as `FIONREAD` reports it; for the console,
    /// that is `terminal::unread_bytes`.
    ///
    /// # Errors
    /// `ENOTTY` if the file does not know.
    pub fn unread_bytes(&self) -> Result<usize, Errno> {
        match &self.object {
            Object::PipeReader(pipe) => Ok(pipe.unread_bytes()),
            Object::Socket(socket) => Ok(socket.unread_bytes()),
            Object::Datagrams(socket) => Ok(socket.unread_bytes()),
            Object::Paired(paired) => Ok(paired.unread_bytes()),
            Object::Node { node, position, .. } if !self.is_directory() => {
                let status = node.status(&mut Ask::default()).unwrap_or(Err(Errno::ENOTTY))?;
                Ok(status.size.saturating_sub(*position.lock()) as usize)
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        match &self.object {
            Object::Node { node, .. } => node::is_directory(node),
            Object::Served(served) => node::is_directory(served.node()),
            _ => false,
        }
    }

    /// Whether it is the console.
    pub fn is_terminal(&self) -> bool {
        matches!(
            self.object,
            Object::ConsoleInput | Object::ConsoleOutput | Object::ConsoleError | Object::Console
        )
    }

    /// Whether its input is the console's.
    pub fn reads_console(&self) -> bool {
        matches!(self.object, Object::ConsoleInput | Object::Console)
    }

    /// Reads at `offset`, without using or changing the position; `None` if the call has to wait.
    pub fn attempt_read_at(&self, offset: u64, buffer: &PinnedBuffer) -> Option<CallResult> {
        match &self.object {
            _ if !self.is_readable() && self.node().is_ok() => Some(Err(Errno::EBADF)),
            Object::Node { node, .. } => node.read(offset, buffer),
            Object::Device { device, .. } => Some(device::read(*device, buffer)),
            _ => Some(Err(Errno::ESPIPE)),
        }
    }

    /// Writes at `offset`, without using or changing the position; `None` if the call has to wait.
    pub fn attempt_write_at(&self, offset: u64, buffer: &PinnedBuffer) -> Option<CallResult> {
        match &self.object {
            _ if !self.is_writable() && self.node().is_ok() => Some(Err(Errno::EBADF)),
            Object::Node { node, payer, .. } => {
                // As on Linux, a file in append mode is written at its end all the same.
                let offset = (self.flags() & open::APPEND == 0).then_some(offset);
                Some(node.write(offset, buffer, payer.family())?.map(|(_, count)| count))
            }
            Object::Device { device, .. } => Some(device::write(*device, buffer)),
            _ => Some(Err(Errno::ESPIPE)),
        }
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
        direction: Waiting,
    ) -> Result<DiskTransfer, Errno> {
        let Object::Disk { position } = &self.object else { return Err(Errno::EBADF) };
        let (is_open, work): (_, fn(_, _) -> _) = match direction {
            Waiting::ToRead => (self.is_readable(), Work::Read),
            Waiting::ToWrite => (self.is_writable(), Work::Write),
        };
        if !is_open {
            return Err(Errno::EBADF);
        }
        if let Some(offset) = offset {
            return DiskTransfer::new(work(offset, buffer));
        }
        let mut position = position.lock();
        let transfer = DiskTransfer::new(work(*position, buffer))?;
        *position += transfer.bytes() as u64;
        Ok(transfer)
    }

    /// Reads available bytes into `buffer`; `None` if there are none yet and the call has to wait.
    #[inline(always)]
    pub fn attempt_read(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        match &self.object {
            Object::Socket(socket) => socket.attempt_read(buffer),
            Object::Datagrams(socket) => socket.attempt_read(buffer),
            Object::PipeReader(pipe) => pipe.attempt(buffer),
            _ => self.read_another(buffer),
        }
    }

    /// Writes bytes from `buffer` as far as there is room; `None` if there is none and the call
    /// has to wait.
    #[inline(always)]
    pub fn attempt_write(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        match &self.object {
            Object::Socket(socket) => socket.attempt_write(buffer),
            Object::Datagrams(socket) => socket.attempt_write(buffer),
            Object::PipeWriter(pipe) => pipe.attempt(buffer),
            _ => self.write_another(buffer),
        }
    }

    /// As [`Self::attempt_write`], of a copy of the bytes, which `copy` makes if this is a
    /// connection or a pipe; `None` also for any other file, and without a copy.
    #[inline(always)]
    pub fn attempt_write_copy<'a>(
        &self,
        copy: impl FnOnce() -> Option<&'a [u8]>,
    ) -> Option<CallResult> {
        match &self.object {
            Object::Socket(socket) => socket.attempt_write_bytes(copy()?),
            Object::PipeWriter(pipe) => pipe.attempt_bytes(copy()?),
            _ => None,
        }
    }

    /// An attempt to read or write has failed with `error`, and the result of the call is what was
    /// moved before: the next call finds the error. A connection reports its error once.
    pub fn restore_error(&self, error: Errno) {
        if let Object::Socket(socket) = &self.object {
            socket.restore_error(error);
        }
    }

    /// As [`Self::attempt_read`], of what is neither a pipe nor a socket. Out of line, because
    /// what it needs of registers and stack would be set up for those too.
    #[inline(never)]
    fn read_another(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        match &self.object {
            Object::Node { .. } | Object::Device { .. } => self.read_node(buffer),
            Object::Paired(paired) => paired.attempt_read(buffer),
            Object::Event(counter) => counter.attempt_read(buffer),
            Object::Timer(timer) => timer.attempt_read(buffer),
            Object::Epoll(_) => Some(Err(Errno::EINVAL)),
            Object::FileServer(server) => server.attempt_read(buffer),
            // Console input is read by a `ConsoleRead`, the disk by a `DiskTransfer`, and what a
            // process serves by a `ServedTransfer`.
            _ => Some(Err(Errno::EBADF)),
        }
    }

    /// As [`Self::attempt_write`], of what is neither a pipe nor a socket.
    #[inline(never)]
    fn write_another(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        match &self.object {
            Object::Console if !self.is_writable() => Some(Err(Errno::EBADF)),
            Object::ConsoleOutput | Object::Console => write_console(Channel::Output, buffer),
            Object::ConsoleError => write_console(Channel::Error, buffer),
            Object::Node { .. } | Object::Device { .. } => self.write_node(buffer),
            Object::Paired(paired) => paired.attempt_write(buffer),
            Object::Event(counter) => counter.attempt_write(buffer),
            Object::Timer(_) | Object::Epoll(_) => Some(Err(Errno::EINVAL)),
            Object::FileServer(server) => Some(server.write(buffer)),
            _ => Some(Err(Errno::EBADF)),
        }
    }

    /// As [`Self::attempt_read`], of a node of a file system or a device.
    fn read_node(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        let Object::Node { node, position, .. } = &self.object else {
            return self.attempt_read_at(0, buffer);
        };
        if !self.is_readable() {
            return Some(Err(Errno::EBADF));
        }
        let mut position = position.lock();
        let count = node.read(*position, buffer)?;
        *position += *count.as_ref().unwrap_or(&0) as u64;
        Some(count)
    }

    /// As [`Self::attempt_write`], of a node of a file system or a device.
    fn write_node(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        let Object::Node { node, position, payer } = &self.object else {
            return self.attempt_write_at(0, buffer);
        };
        if !self.is_writable() {
            return Some(Err(Errno::EBADF));
        }
        let mut position = position.lock();
        let offset = (self.flags() & open::APPEND == 0).then_some(*position);
        let written = node.write(offset, buffer, payer.family())?;
        Some(written.map(|(end, count)| {
            *position = end;
            count
        }))
    }

    /// Registers `waiter` to be woken when its attempt in this direction may succeed. Returns
    /// whether it is to attempt now, because the event may have happened before.
    pub fn insert_waiter(&self, waiting: Waiting, waiter: Waiter) -> bool {
        if let Some((queue, _)) = self.queue(waiting) {
            queue.insert(waiter);
        }
        match &self.object {
            Object::Socket(socket) => socket.listen_for(waiting),
            Object::Datagrams(socket) => socket.listen_for(waiting),
            _ => true,
        }
    }

    /// The waiter with this number has found by itself what it waits for in this direction: no
    /// event has woken it, so none would wake the next one for what it leaves.
    pub fn found(&self, waiting: Waiting, waiter: u32) {
        if let Some((queue, _)) = self.queue(waiting) {
            queue.found(waiter);
        }
    }

    /// The waiter with this number, of this direction, stays in the queue when it is woken.
    pub fn let_waiter_stay(&self, waiting: Waiting, waiter: u32) {
        if let Some((queue, _)) = self.queue(waiting) {
            queue.stay(waiter);
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

    /// How urgent it is that a program learns what a read of this file has put into `buffer`;
    /// `None`: as urgent as the read.
    pub fn priority_of_what_was_read(&self, buffer: &PinnedBuffer) -> Option<Priority> {
        match &self.object {
            Object::FileServer(server) => server.priority_of_request(buffer),
            _ => None,
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
            Object::Datagrams(socket) => Some((socket.queue(waiting), true)),
            Object::ConsoleOutput | Object::ConsoleError | Object::Console => {
                Some((&CONSOLE_WRITERS, console::has_room()))
            }
            Object::Paired(paired) => Some(paired.queue(waiting)),
            Object::Event(counter) => Some((counter.queue(waiting), counter.may_be_ready(waiting))),
            Object::Timer(timer) => Some((timer.queue(), timer.readiness() != 0)),
            Object::FileServer(server) => Some(server.queue()),
            Object::Node { .. }
            | Object::Served(_)
            | Object::ConsoleInput
            | Object::Device { .. }
            | Object::Disk { .. }
            | Object::Epoll(_) => None,
        }
    }

    /// The open file of a file system that a process serves, if it is one.
    pub fn served(&self) -> Option<&ServedFile> {
        match &self.object {
            Object::Served(served) => Some(served),
            _ => None,
        }
    }

    /// Changes the position of the next read or write; `None` if the call has to wait. A position
    /// that another call uses is changed when that has ended: it would move it otherwise.
    ///
    /// # Errors
    /// `ESPIPE` for a file without a position, `EINVAL` for a negative position or an unknown
    /// `whence`.
    pub fn attempt_seek(
        self: &Arc<Self>,
        offset: isize,
        whence: usize,
        ask: &mut Ask,
    ) -> Option<CallResult> {
        let taken = match &self.object {
            Object::Device { .. } => return Some(Ok(0)),
            Object::Node { .. } | Object::Disk { .. } => 0,
            Object::Served(_) => ask.take_position(self)?,
            _ => return Some(Err(Errno::ESPIPE)),
        };
        let size = match &self.object {
            Object::Node { node, .. } if whence == 2 => node.status(ask)?.map(|it| it.size),
            Object::Served(served) if whence == 2 => served.node().status(ask)?.map(|it| it.size),
            Object::Disk { .. } => disk().map(Disk::bytes),
            _ => Ok(0),
        };
        let moved = |position: u64| {
            let base = match whence {
                0 => 0,
                1 => position,
                2 => size?,
                _ => return Err(Errno::EINVAL),
            };
            base.checked_add_signed(offset as i64)
                .filter(|&position| i64::try_from(position).is_ok())
                .ok_or(Errno::EINVAL)
        };
        let moved = match &self.object {
            Object::Node { position, .. } | Object::Disk { position } => {
                let mut position = position.lock();
                let moved = moved(*position);
                *position = moved.unwrap_or(*position);
                moved
            }
            _ => {
                let moved = moved(taken);
                ask.end_position(moved.ok());
                moved
            }
        };
        Some(moved.map(|position| position as usize))
    }

    /// Lists entries of a directory as Linux's `dirent64` records, as many as fit into `bytes`;
    /// `None` if the call has to wait.
    pub fn attempt_list(self: &Arc<Self>, bytes: &mut [u8], ask: &mut Ask) -> Option<CallResult> {
        match &self.object {
            Object::Node { node, position, .. } if node::is_directory(node) => {
                let mut position = position.lock();
                list(node, &mut position, bytes, ask)
            }
            Object::Served(served) if node::is_directory(served.node()) => {
                let mut position = ask.take_position(self)?;
                let listed = list(served.node(), &mut position, bytes, ask)?;
                ask.end_position(Some(position));
                Some(listed)
            }
            _ => Some(Err(Errno::ENOTDIR)),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if *self.has_locks.get_mut() {
            file_locks::release_of_file(self);
        }
    }
}

/// Lists entries of `node` behind `position`, which moves.
fn list(node: &NodeRef, position: &mut u64, bytes: &mut [u8], ask: &mut Ask) -> Option<CallResult> {
    let mut used = 0;
    loop {
        let room = bytes.get_mut(used..).unwrap_or_default();
        // The places 0 and 1 are those of the directory itself and the one above it.
        let (length, place) = match *position {
            at @ 0..2 => {
                let name = if at == 0 { "." } else { ".." };
                let (number, kind) = (node.identity().1, mode::DIRECTORY);
                let record = dirent::Record { number, place: at + 1, name, kind };
                match dirent::put(room, &record) {
                    Some(length) => (length, at + 1),
                    None => return Some(no_room(used)),
                }
            }
            // What has been listed is reported before the call waits.
            _ if used > 0 && node.served().is_some() => return Some(Ok(used)),
            after => match node.list(after, room, ask) {
                Some(Ok(Listed::Records { bytes, place })) => (bytes, place),
                Some(Ok(Listed::End)) => return Some(Ok(used)),
                Some(Ok(Listed::NoRoom)) => return Some(no_room(used)),
                // The next call finds the error, or waits.
                Some(Err(_)) | None if used > 0 => return Some(Ok(used)),
                Some(Err(error)) => return Some(Err(error)),
                None => return None,
            },
        };
        used += length;
        *position = place;
    }
}

/// There is no room for another record: the result of the call.
fn no_room(used: usize) -> CallResult {
    if used == 0 { Err(Errno::EINVAL) } else { Ok(used) }
}

/// Calls that wait for room in the console's queue.
pub static CONSOLE_WRITERS: WaitQueue = WaitQueue::new();

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
