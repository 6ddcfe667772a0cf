//! The operation of a call, as a value: an attempt that never waits, and a registration for the
//! next attempt.
//!
//! Safe code only; user memory is accessed only through pinned buffers.
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::SocketAddr;

use cops_abi::errno::CallResult;
use cops_abi::file::open;
use cops_abi::{Errno, Priority, socket};

use super::CellIndex;
use crate::arch;
use cops_fallible::{OutOfMemory, try_arc};

use super::child::ChildWait;
use super::datagram::DatagramCall;
use super::epoll::EpollWait;
use super::file_lock::FileLockCall;
use super::futex::FutexWait;
use super::limited::Limited;
use super::lock::LockWait;
use super::long::LongTransfer;
use super::path::PathCall;
use super::poll::PollCall;
use super::receive::Receive;
use super::standing::StandingRead;
use super::transfer::Transfer;
use crate::disk::DiskTransfer;
use crate::fs::{ConsoleRead, File, Object, ServedTransfer, SharedAsk};
use crate::mm::PinnedBuffer;
use crate::net::charges;
use crate::process::{Lending, Process, TurnWait};
use crate::sched::{Timer, Waiter, Waiting};

/// Where `accept` stores the peer's address: the address and the word for its length.
pub struct AddressOut {
    /// As large as the space that the caller offers.
    pub address: PinnedBuffer,
    /// Four bytes.
    pub length: PinnedBuffer,
}

impl AddressOut {
    /// Stores `address`, truncated to the available space, and its full length, as Linux does.
    pub fn store(&self, address: SocketAddr) {
        let mut bytes = [0; socket::ADDRESS_BYTES_MAX];
        let length = socket::encode(address, &mut bytes);
        self.address.write_at(0, &bytes[..length.min(self.address.len())]);
        self.length.write_at(0, &(length as u32).to_le_bytes());
    }
}

/// A call that can wait. It is moved into its cell and out of it, so what is large and rare is
/// boxed.
pub enum Operation {
    /// Read from `file` into `buffer`.
    Read { file: Arc<File>, buffer: PinnedBuffer },
    /// Read console input.
    ReadConsole { read: ConsoleRead },
    /// Write `buffer` to `file`.
    Write { file: Arc<File>, buffer: PinnedBuffer },
    /// Read or write several buffers, or at a given offset.
    Transfer(Box<Transfer>),
    /// Read or write in parts.
    Long(Box<LongTransfer>),
    /// Receive with flags.
    Receive(Box<Receive>),
    /// Read a connection again and again.
    Standing(Box<StandingRead>),
    /// Send or receive datagrams.
    Datagram(Box<DatagramCall>),
    /// Do something with what a path names.
    Path(Box<PathCall>),
    /// Accept a connection from the listening socket `file`.
    Accept { file: Arc<File>, peer: Option<Box<AddressOut>>, flags: u32 },
    /// Wait until the connection of `file` is established; `is_again`: an earlier call has begun
    /// it.
    Connect { file: Arc<File>, is_again: bool },
    /// Wait until the clock reaches `deadline_ticks`; `error`: that is a failure.
    Sleep { deadline_ticks: u64, timer: Option<Timer>, error: Option<Errno> },
    /// Wait on a futex.
    Futex(Box<FutexWait>),
    /// Wait for a lock with priority inheritance.
    Lock(Box<LockWait>),
    /// Take, release or look at a lock of a file.
    FileLock(Box<FileLockCall>),
    /// Wait for news of children.
    WaitChild(Box<ChildWait>),
    /// Read, write or flush the disk.
    Disk(Box<DiskTransfer>),
    /// Wait for one of many files.
    Poll(Box<PollCall>),
    /// Wait for entries of an epoll instance.
    Epoll(Box<EpollWait>),
    /// Wait until a thread of a program of the tutorial gets the object that it waits for.
    Turn(Box<TurnWait>),
    /// Read or write a file of a file system that a process serves.
    Served(Box<ServedTransfer>),
    /// Another operation, on a socket with a timeout.
    Limited(Box<Limited>),
    /// Wait for the answer to the request that is prepared, or for a turn, for a call in portions.
    Answer(SharedAsk),
    /// Start a child, and wait until it no longer uses pages of the process.
    Lent(Lending),
}

const _: () = assert!(size_of::<Operation>() <= 48);

impl Operation {
    /// A sleep until the clock reaches `deadline_ticks`.
    pub const fn sleep_until(deadline_ticks: u64) -> Self {
        Operation::Sleep { deadline_ticks, timer: None, error: None }
    }

    /// The number of the operation for measurements (docs/abi.md, section 5).
    pub fn number(&self) -> u32 {
        match self {
            Operation::Read { .. } | Operation::ReadConsole { .. } | Operation::Receive(_) => 1,
            Operation::Standing(_) => 1,
            Operation::Write { .. } => 2,
            Operation::Transfer(transfer) => transfer.number(),
            Operation::Long(transfer) => transfer.number(),
            Operation::Served(transfer) => transfer.number(),
            Operation::Datagram(call) => call.number(),
            Operation::Path(_) | Operation::Answer(_) => 9,
            Operation::Accept { .. } => 3,
            Operation::Connect { .. } => 4,
            Operation::Sleep { .. } => 5,
            Operation::WaitChild(_) | Operation::Lent(_) => 6,
            Operation::Disk(_) => 7,
            Operation::Futex(_) => 8,
            Operation::Lock(_) => 13,
            Operation::Poll(_) => 10,
            Operation::Epoll(_) => 11,
            Operation::Turn(_) => 12,
            Operation::FileLock(_) => 14,
            Operation::Limited(limited) => limited.number(),
        }
    }

    /// Until when it lasts, if it is a sleep or has a time-out of which a program learns the rest.
    pub fn deadline_ticks(&self) -> Option<u64> {
        match self {
            Operation::Sleep { deadline_ticks, .. } => Some(*deadline_ticks),
            Operation::Poll(call) => call.deadline_ticks(),
            _ => None,
        }
    }

    /// What it has achieved, if that is its result when it is cut short.
    pub fn done(&self) -> Option<usize> {
        match self {
            Operation::Long(transfer) => transfer.done(),
            Operation::Datagram(call) => call.done(),
            Operation::Limited(limited) => limited.done(),
            _ => None,
        }
    }

    /// How urgent its result is, if that is not as the call is. After [`Self::remove_waiter`].
    pub fn priority_of_result(&self) -> Option<Priority> {
        match self {
            Operation::Read { file, buffer } => file.priority_of_what_was_read(buffer),
            _ => None,
        }
    }

    /// A signal is to end it. Returns whether it does.
    pub fn interrupt(&mut self) -> bool {
        match self {
            Operation::Long(transfer) => transfer.is_interruptible(),
            Operation::Datagram(call) => call.interrupt(),
            Operation::Limited(limited) => limited.interrupt(),
            Operation::Poll(call) => call.interrupt(),
            Operation::FileLock(call) => call.waits_for_lock(),
            Operation::Futex(wait) => wait.interrupt(),
            // As on Linux, a call on files is not interrupted. What it asks of a server or of the
            // disk may have been done already: the call must not fail, and must not ask again.
            Operation::Path(_) | Operation::Served(_) | Operation::Disk(_) => false,
            // As on Linux, nor is a program while it is loaded.
            Operation::Answer(_) => false,
            // Nor is a thread that has lent its memory.
            Operation::Lent(_) => false,
            _ => true,
        }
    }

    /// Whether its end takes a portion of its own: a thread that waited for a lock may have made a
    /// chain of owners more urgent.
    pub fn takes_long_to_end(&self) -> bool {
        matches!(self, Operation::Lock(_))
    }

    /// Its result if a signal ends it now; `None`: the handler of the signal determines whether it
    /// fails or is made again. A call with a timeout is never made again: it would wait longer.
    pub fn cut_short(&self, process: &Process) -> Option<CallResult> {
        match (self.done(), self) {
            (None, Operation::Limited(_)) => Some(Err(Errno::EINTR)),
            (None, Operation::WaitChild(wait)) => wait.last_look(process),
            (None, Operation::Futex(wait)) => wait.cut_short(process),
            (done, _) => done.map(Ok),
        }
    }

    /// Performs the operation if that is possible now. `None` otherwise; then nothing has changed,
    /// except that [`Self::done`] may be more.
    pub fn attempt(&mut self, process: &Arc<Process>) -> Option<CallResult> {
        match self {
            Operation::Read { file, buffer } => file.attempt_read(buffer),
            Operation::Write { file, buffer } => file.attempt_write(buffer),
            _ => self.attempt_another(process),
        }
    }

    /// As [`Self::attempt`], of other operations than the most frequent ones. Out of line, because
    /// what it needs of registers and stack would be set up for those too.
    #[inline(never)]
    fn attempt_another(&mut self, process: &Arc<Process>) -> Option<CallResult> {
        match self {
            Operation::Read { .. } | Operation::Write { .. } => None,
            Operation::ReadConsole { read } => read.attempt(process.party()),
            Operation::Transfer(transfer) => transfer.attempt(),
            Operation::Long(transfer) => transfer.attempt(process),
            Operation::Receive(receive) => receive.attempt(),
            Operation::Standing(read) => read.attempt().0,
            Operation::Datagram(call) => call.attempt(process),
            Operation::Path(call) => call.attempt(process),
            Operation::Accept { file, peer, flags } => {
                accept(process, file, peer.as_deref(), *flags)
            }
            Operation::Connect { file, .. } => match &file.object {
                Object::Socket(socket) => socket.attempt_connect(),
                _ => Some(Err(Errno::ENOTSOCK)),
            },
            Operation::Sleep { deadline_ticks, error, .. } => {
                (arch::now_ticks() >= *deadline_ticks).then_some(error.map_or(Ok(0), Err))
            }
            Operation::Futex(wait) => wait.attempt(process),
            Operation::Lock(wait) => wait.attempt(process),
            Operation::FileLock(call) => call.attempt(process),
            Operation::WaitChild(wait) => wait.attempt(process),
            Operation::Lent(lending) => lending.attempt(process),
            Operation::Disk(transfer) => transfer.attempt(),
            Operation::Poll(call) => call.attempt(process),
            Operation::Epoll(wait) => wait.attempt(process),
            Operation::Turn(wait) => wait.attempt(process),
            Operation::Served(transfer) => transfer.attempt(process.family),
            Operation::Answer(ask) => ask.lock().take_event().then_some(Ok(0)),
            Operation::Limited(limited) => limited.attempt(process),
        }
    }

    /// Registers `waiter` to be woken when an attempt may succeed. Returns whether the caller is to
    /// attempt now, because the event may have happened before.
    ///
    /// # Errors
    /// [`OutOfMemory`], the first time, or if the operation keeps more than before.
    pub fn insert_waiter(
        &mut self,
        process: &Arc<Process>,
        waiter: Waiter,
    ) -> Result<bool, OutOfMemory> {
        match self {
            Operation::Sleep { deadline_ticks, timer, .. } => {
                if timer.is_none() {
                    let waker = cops_executor::waker_of(waiter.coroutine);
                    *timer = Some(Timer::new(
                        *deadline_ticks,
                        &waker,
                        waiter.priority,
                        process.clone(),
                    )?);
                }
            }
            Operation::Transfer(transfer) => {
                transfer.begin_waiting(process.family)?;
                let (file, waiting) = transfer.file();
                return Ok(file.insert_waiter(waiting, waiter));
            }
            Operation::Futex(wait) => return wait.insert_waiter(process, waiter),
            Operation::Lock(wait) => return wait.insert_waiter(process, waiter),
            Operation::FileLock(call) => return call.insert_waiter(waiter),
            Operation::Long(transfer) => return transfer.insert_waiter(process, waiter),
            Operation::Poll(call) => return call.insert_waiter(process, waiter),
            Operation::Epoll(wait) => return wait.insert_waiter(process, waiter),
            Operation::Limited(limited) => {
                return limited.with_timer(process, waiter)?.insert_waiter(process, waiter);
            }
            Operation::Datagram(call) if call.is_portion_over() => {
                cops_executor::wake_up(waiter.coroutine);
                return Ok(false);
            }
            Operation::WaitChild(_) => process.child_ended.insert(waiter),
            Operation::Lent(lending) => {
                process.child_ended.insert(waiter);
                lending.begin_waiting();
            }
            Operation::ReadConsole { read } => read.insert_waiter(process.party(), waiter),
            Operation::Disk(transfer) => transfer.insert_waiter(waiter),
            Operation::Turn(wait) => wait.set_wake(waiter.coroutine.raw()),
            Operation::Served(transfer) => {
                transfer.begin_waiting(process.family)?;
                if !transfer.insert_waiter(waiter) {
                    // Only a portion is over, as below.
                    cops_executor::wake_up(waiter.coroutine);
                    return Ok(false);
                }
            }
            Operation::Answer(ask) => {
                ask.lock().insert_waiter(&waiter);
            }
            Operation::Path(call) => {
                call.begin_waiting(process.family)?;
                if !call.insert_waiter(waiter) {
                    // Only a portion is over: the coroutine is polled again.
                    cops_executor::wake_up(waiter.coroutine);
                    return Ok(false);
                }
            }
            other => {
                if let Some((file, waiting)) = other.file() {
                    return Ok(file.insert_waiter(waiting, waiter));
                }
            }
        }
        Ok(true)
    }

    /// Whether the attempt after [`Self::insert_waiter`] has made progress, and now waits for
    /// another event, for which no waiter is registered, or for none, because a portion is over.
    pub fn waits_for_another_event(&self) -> bool {
        match self {
            Operation::Path(call) => call.waits_for_another_event(),
            Operation::Long(transfer) => transfer.waits_for_another_event(),
            Operation::Datagram(call) => call.is_portion_over(),
            Operation::Served(transfer) => transfer.waits_for_another_event(),
            Operation::Disk(transfer) => transfer.is_without_waiter(),
            Operation::Epoll(wait) => wait.is_portion_over(),
            Operation::FileLock(call) => call.waits_for_another_event(),
            Operation::Limited(limited) => limited.operation().waits_for_another_event(),
            _ => false,
        }
    }

    /// The attempt after [`Self::insert_waiter`] has found what the call in `cell` waits for. The
    /// next waiter learns of the rest when this one is removed.
    pub fn found(&self, cell: CellIndex) {
        if let Operation::Limited(limited) = self {
            return limited.operation().found(cell);
        }
        if let Some((file, waiting)) = self.file() {
            file.found(waiting, cell.number());
        }
    }

    /// The operation has ended: the call in `cell` does not wait any more. `must_pass_on`: it
    /// failed or was cancelled, so the event that it was woken for is passed on to another waiter.
    pub fn remove_waiter(&mut self, process: &Process, cell: CellIndex, must_pass_on: bool) {
        // The most frequent one first.
        if let Operation::Read { file, .. } = self {
            return file.remove_waiter(Waiting::ToRead, cell.number(), must_pass_on);
        }
        if let Operation::Disk(transfer) = self {
            return transfer.remove_waiter(cell.number());
        }
        if let Operation::Served(transfer) = self {
            return transfer.remove_waiter(cell.number(), must_pass_on);
        }
        if let Operation::Path(call) = self {
            return call.remove_waiter(process);
        }
        if let Operation::Answer(ask) = self {
            return ask.lock().remove_waiter();
        }
        if let Operation::Long(transfer) = self {
            return transfer.remove_waiter(process, cell, must_pass_on);
        }
        if let Operation::FileLock(call) = self {
            return call.remove_waiter(cell.number(), must_pass_on);
        }
        if let Operation::Limited(limited) = self {
            return limited.remove_waiter(process, cell, must_pass_on);
        }
        match (&*self, self.file()) {
            (Operation::WaitChild(_) | Operation::Lent(_), _) => {
                process.child_ended.remove(cell.number(), must_pass_on);
            }
            (Operation::Futex(wait), _) => wait.remove_waiter(process, must_pass_on),
            (Operation::Lock(wait), _) => wait.remove_waiter(process, must_pass_on),
            (Operation::Epoll(wait), _) => wait.remove_waiter(cell.number(), must_pass_on),
            (Operation::ReadConsole { read }, _) => read.remove_waiter(cell.number()),
            (_, Some((file, waiting))) => file.remove_waiter(waiting, cell.number(), must_pass_on),
            _ => {}
        }
    }

    /// The priority of this operation's call in `cell` has changed. Returns whether it must attempt
    /// again to wait with the new priority.
    pub fn reorder(&mut self, process: &Process, cell: CellIndex, priority: Priority) -> bool {
        if let Operation::Sleep { timer: Some(timer), .. } = self {
            timer.set_priority(priority);
        }
        if let Operation::Futex(wait) = self {
            wait.set_priority(process, priority);
            return false;
        }
        if let Operation::Poll(call) = self {
            call.set_priority(priority);
            return false;
        }
        if let Operation::Epoll(wait) = self {
            wait.set_priority(cell.number(), priority);
            return true;
        }
        if let Operation::Long(transfer) = self {
            return transfer.reorder(process, cell, priority);
        }
        if let Operation::Limited(limited) = self {
            return limited.with_priority(priority).reorder(process, cell, priority);
        }
        match (&*self, self.file()) {
            (Operation::WaitChild(_) | Operation::Lent(_), _) => {
                process.child_ended.pass_on(cell.number());
            }
            (Operation::ReadConsole { read }, _) => read.pass_on(cell.number()),
            (Operation::Disk(transfer), _) => return transfer.pass_on(cell.number()),
            (Operation::FileLock(call), _) => call.pass_on(cell.number()),
            // It attempts again, and gives its request the new priority.
            (Operation::Path(_) | Operation::Answer(_), _) => {}
            (Operation::Served(transfer), _) => transfer.pass_on(cell.number()),
            (_, Some((file, waiting))) => file.pass_on(waiting, cell.number()),
            _ => return false,
        }
        true
    }

    /// The number of microseconds for which this call, which is synchronous and has to wait now,
    /// waits at most. `Ok(None)`: there is no limit.
    ///
    /// # Errors
    /// `EAGAIN`, `EINPROGRESS` or `EALREADY`: the call does not wait, because its file is in
    /// non-blocking mode, or because of a flag of the call.
    pub fn timeout(&self) -> Result<Option<u64>, Errno> {
        let (file, waiting, is_non_blocking) = match (self, self.file()) {
            (Operation::ReadConsole { read }, _) if read.is_non_blocking() => {
                return Err(Errno::EAGAIN);
            }
            (Operation::Long(transfer), _) => {
                let (file, waiting) = transfer.file();
                (file, waiting, transfer.is_non_blocking())
            }
            (Operation::Datagram(call), Some((file, waiting))) => {
                (file, waiting, call.is_non_blocking())
            }
            (Operation::Receive(receive), Some((file, waiting))) => {
                (file, waiting, receive.is_non_blocking || file.is_non_blocking())
            }
            (_, Some((file, waiting))) => (file, waiting, file.is_non_blocking()),
            _ => return Ok(None),
        };
        if is_non_blocking {
            return Err(self.error_of_no_wait());
        }
        Ok(file.timeouts().and_then(|timeouts| timeouts.get(waiting)))
    }

    /// The error of a call that would have to wait, and does not, or not any longer.
    pub fn error_of_no_wait(&self) -> Errno {
        match self {
            Operation::Connect { is_again: false, .. } => Errno::EINPROGRESS,
            Operation::Connect { is_again: true, .. } => Errno::EALREADY,
            _ => Errno::EAGAIN,
        }
    }

    /// The file and the direction that it waits for, if it waits for a file.
    fn file(&self) -> Option<(&File, Waiting)> {
        match self {
            Operation::Read { file, .. } | Operation::Accept { file, .. } => {
                Some((file, Waiting::ToRead))
            }
            Operation::Write { file, .. } | Operation::Connect { file, .. } => {
                Some((file, Waiting::ToWrite))
            }
            Operation::Transfer(transfer) => Some(transfer.file()),
            Operation::Receive(receive) => Some((&receive.file, Waiting::ToRead)),
            Operation::Standing(read) => Some((&read.file, Waiting::ToRead)),
            Operation::Datagram(call) => Some(call.file()),
            Operation::ReadConsole { .. }
            | Operation::Path(_)
            | Operation::Long(_)
            | Operation::Sleep { .. }
            | Operation::WaitChild(_)
            | Operation::Lent(_)
            | Operation::Futex(_)
            | Operation::Lock(_)
            | Operation::FileLock(_)
            | Operation::Poll(_)
            | Operation::Epoll(_)
            | Operation::Disk(_)
            | Operation::Served(_)
            | Operation::Answer(_)
            | Operation::Limited(_)
            | Operation::Turn(_) => None,
        }
    }
}

/// All that a connection needs is allocated and charged, and it has its number, before it is taken:
/// without memory or quota it stays in the backlog. The table's lock is held all the time, so no
/// program sees the number before.
fn accept(
    process: &Process,
    file: &File,
    peer: Option<&AddressOut>,
    flags: u32,
) -> Option<CallResult> {
    let Object::Socket(listener) = &file.object else { return Some(Err(Errno::ENOTSOCK)) };
    let waiting = match listener.payer_of_waiting() {
        Ok(waiting) => waiting,
        Err(error) => return Some(Err(error)),
    };
    let mut files = process.files.lock();
    let _lent = waiting.and_then(|payer| charges::lend(payer, process.family));
    if let Err(error) = files.reserve(1) {
        return Some(Err(error));
    }
    waiting?;
    let mut accept = || {
        let charge = charges::accept(process.family)?;
        let socket = Object::Socket(listener.for_accepted()?);
        let file = try_arc(File::new(socket, open::READ_WRITE | flags))?;
        let Object::Socket(socket) = &file.object else { return Err(Errno::ENOTSOCK) };
        let descriptor = files.insert(file.clone(), flags & open::CLOSE_ON_EXEC != 0)?;
        let accepted = listener.attempt_accept(socket, charge);
        if !matches!(accepted, Ok(Some(_))) {
            files.remove(descriptor)?;
        }
        if let (Ok(Some(address)), Some(peer)) = (&accepted, peer) {
            peer.store(*address);
        }
        accepted.map(|address| address.map(|_| descriptor.0))
    };
    accept().transpose()
}
