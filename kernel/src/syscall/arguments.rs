//! The arguments of a system call, decoded: what a program put into registers becomes a value with
//! a type, or the error that docs/abi.md gives for a wrong value.
//!
//! A handler gets decoded values only. The dispatcher decodes them in the order in which a call
//! examines them, so that a call with two wrong arguments always fails with the same error. Safe
//! code only; user memory is accessed only as [`UserRange`].
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::net::SocketAddr;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use cops_abi::syscall::{
    AT_FDCWD, BUFFERS_MAX, CLOCK_MONOTONIC, CLOCK_REALTIME, NAME_BYTES_MAX, PATH_BYTES_MAX,
    SpawnOptions, clone_flags, protection, signal,
};
use cops_abi::{Errno, Priority, inspect, layout, quota, socket, trace};
use cops_algorithms::fixed_list::FixedList;
use cops_algorithms::kin::Which;
use cops_fallible::Text;

use super::terminal::settings_of;
use crate::arch::SyscallFrame;
use crate::call::{AddressOut, ENTRY_BYTES, socket_address};
use crate::fs::{Descriptor, File, Object};
use crate::mm::quota::Kind;
use crate::mm::{Access, AddressSpace, PinnedBuffer, Rights, UserRange, own_pages};
use crate::net::{Datagrams, Shutdown, Socket};
use crate::process::spawn::Place;
use crate::process::{Process, ProcessId, Target};

/// Number of buffers of `readv` and its relatives that one call may use.
const BUFFERS_EXAMINED: usize = 32;
/// Number of buffers of which the addresses are copied at once.
const BUFFERS_COPIED: usize = 64;

/// The arguments of one call, numbered from 0 as the registers `a0` to `a5`.
///
/// The methods take the number of an argument. A value of two registers, such as a range, is named
/// by its first one.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    process: &'a Arc<Process>,
    registers: &'a [usize; 6],
}

/// The directory that a relative path begins at.
pub enum Directory {
    /// The current directory.
    Working,
    /// That of a descriptor.
    Other,
}

/// A clock of docs/abi.md.
#[derive(Clone, Copy)]
pub enum Clock {
    /// Counts from boot.
    Monotonic,
    /// Counts from 1970.
    Real,
}

/// What `trace` is asked to do.
pub enum TraceRequest {
    SwitchOff,
    SwitchOn,
    /// Whether tracing is on.
    Ask,
    /// Copy a hart's records; the other arguments are not decoded yet, because the caller may not
    /// be allowed to read.
    Read,
    Mark(u64),
}

/// A copy of the process that `clone` is asked for.
#[derive(Default)]
pub struct Fork {
    /// The child's stack pointer, if it gets another one.
    pub stack_pointer: Option<usize>,
    /// The child's thread pointer, if it gets another one.
    pub thread_pointer: Option<usize>,
    /// Where the parent's memory gets the child's number.
    pub parent_number: Option<UserRange>,
    /// Where the child's memory gets the child's number.
    pub child_number: Option<UserRange>,
    /// Address of the word that becomes 0 when the child's first thread ends; 0 if there is none.
    pub clear_at_end: usize,
    /// Whether the child uses the caller's pages until it has ended or has another program, and the
    /// caller waits for that.
    pub borrows: bool,
}

/// A thread that `clone` is asked for.
pub struct NewThread {
    /// Its stack pointer, if it is not its creator's.
    pub stack_pointer: Option<usize>,
    /// Its thread pointer, if it is not its creator's.
    pub thread_pointer: Option<usize>,
    /// Where its id is stored.
    pub numbers: [Option<UserRange>; 2],
    /// Address of the word that becomes 0 when it ends; 0 if there is none.
    pub clear_at_end: usize,
}

/// An open file that is a TCP or UDP socket.
pub struct SocketFile(Arc<File>);

/// What a [`SocketFile`] is.
pub enum AnySocket<'a> {
    Stream(&'a Socket),
    Datagrams(&'a Datagrams),
}

impl SocketFile {
    fn new(file: Arc<File>) -> Result<Self, Errno> {
        match file.object {
            Object::Socket(_) | Object::Datagrams(_) => Ok(Self(file)),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    pub fn into_file(self) -> Arc<File> {
        self.0
    }

    /// The socket.
    pub fn any(&self) -> AnySocket<'_> {
        match &self.0.object {
            Object::Socket(socket) => AnySocket::Stream(socket),
            Object::Datagrams(socket) => AnySocket::Datagrams(socket),
            _ => unreachable!("`new` admits sockets only"),
        }
    }

    /// The TCP socket; `EOPNOTSUPP` for another one.
    pub fn stream(&self) -> Result<&Socket, Errno> {
        match self.any() {
            AnySocket::Stream(socket) => Ok(socket),
            AnySocket::Datagrams(_) => Err(Errno::EOPNOTSUPP),
        }
    }

    /// The UDP socket; `EOPNOTSUPP` for another one.
    pub fn datagrams(&self) -> Result<&Datagrams, Errno> {
        match self.any() {
            AnySocket::Datagrams(socket) => Ok(socket),
            AnySocket::Stream(_) => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// The buffers of `readv` and its relatives.
pub struct UserBuffers {
    /// Those that are not empty, at most [`BUFFERS_EXAMINED`], in order.
    pub ranges: FixedList<UserRange, BUFFERS_EXAMINED>,
    /// The entries of all.
    pub entries: UserRange,
    /// The number of those that are not empty.
    pub count: usize,
    /// The length of all together.
    pub length: usize,
}

impl<'a> Arguments<'a> {
    pub fn new(process: &'a Arc<Process>, frame: &'a SyscallFrame) -> Self {
        Self { process, registers: &frame.arguments }
    }

    /// The memory of the program.
    pub fn space(&self) -> &'a AddressSpace {
        &self.process.space
    }

    // Numbers.

    /// A number of which every value has a meaning.
    pub fn number(&self, index: usize) -> usize {
        self.registers[index]
    }

    /// Like [`Self::number`], with a sign.
    pub fn signed(&self, index: usize) -> isize {
        self.registers[index] as isize
    }

    /// Flags, of which only those in `allowed` exist; others are `EINVAL`.
    pub fn flags(&self, index: usize, allowed: usize) -> Result<usize, Errno> {
        let flags = self.registers[index];
        if flags & !allowed == 0 { Ok(flags) } else { Err(Errno::EINVAL) }
    }

    /// A level; `EINVAL` if there is none of this number.
    pub fn priority(&self, index: usize) -> Result<Priority, Errno> {
        priority(self.registers[index])
    }

    /// 0, or a level plus 1; `EINVAL` if there is none of this number.
    pub fn optional_priority(&self, index: usize) -> Result<Option<Priority>, Errno> {
        self.registers[index].checked_sub(1).map(priority).transpose()
    }

    /// The address of [`SpawnOptions`], or 0. `EBADF` for a file that is not open, `EINVAL` for
    /// unknown flags, and for a foreground without a group.
    pub fn place(&self, index: usize) -> Result<Place, Errno> {
        let mut bytes = [0; SpawnOptions::BYTES];
        let Some(range) = self.optional_structure(index, bytes.len())? else {
            return Ok(Place::default());
        };
        self.process.space.copy_in(range, &mut bytes)?;
        let options = SpawnOptions::from_bytes(&bytes);
        let mut place = Place::default();
        let files = self.process.files.lock();
        for (file, number) in place.files.iter_mut().zip(options.files) {
            // A negative number becomes one that no file has.
            *file = match number {
                SpawnOptions::CONSOLE => None,
                number => Some(files.get(Descriptor(number as usize))?),
            };
        }
        drop(files);
        place.group = match options.group {
            SpawnOptions::SAME_GROUP => None,
            group => Some(ProcessId::try_from(group).map_err(|_| Errno::EINVAL)?),
        };
        place.foreground = match options.foreground {
            0 => None,
            1 if place.group.is_some() => Some(settings_of(options.local)?),
            _ => return Err(Errno::EINVAL),
        };
        Ok(place)
    }

    /// The number of a process; `ESRCH` if no process can have it.
    pub fn process_id(&self, index: usize) -> Result<ProcessId, Errno> {
        ProcessId::try_from(self.registers[index]).map_err(|_| Errno::ESRCH)
    }

    /// The number of a process; 0 is the caller itself. `ESRCH` if no process can have it.
    pub fn process_or_own(&self, index: usize) -> Result<ProcessId, Errno> {
        match self.process_id(index)? {
            0 => Ok(self.process.id),
            id => Ok(id),
        }
    }

    /// A number that may be negative, as those of processes; `None` if it has more than 32 bits.
    fn number_with_sign(&self, index: usize) -> Option<i32> {
        i32::try_from(self.signed(index)).ok()
    }

    /// Which children `wait4` is asked for: a number, -1 for any, 0 for those in the caller's
    /// group, and the negative number of another group. `ECHILD` if there can be none; `ESRCH` for
    /// the least number, as on Linux.
    pub fn children(&self, index: usize) -> Result<Which, Errno> {
        Ok(match self.number_with_sign(index).ok_or(Errno::ECHILD)? {
            i32::MIN => return Err(Errno::ESRCH),
            -1 => Which::Any,
            0 => Which::Group(self.process.group.load(Relaxed)),
            id @ 1.. => Which::Child(id as ProcessId),
            id => Which::Group(id.unsigned_abs()),
        })
    }

    /// What `kill` is asked for: `Ok` for one process, `Err` for many. `ESRCH` if there can be
    /// none.
    pub fn receivers(&self, index: usize) -> Result<Result<ProcessId, Target>, Errno> {
        Ok(match self.number_with_sign(index).ok_or(Errno::ESRCH)? {
            -1 => Err(Target::All),
            0 => Err(Target::Group(self.process.group.load(Relaxed))),
            id @ 1.. => Ok(id as ProcessId),
            id => Err(Target::Group(id.unsigned_abs())),
        })
    }

    /// A signal, or 0; `EINVAL` if there is none of this number.
    pub fn signal(&self, index: usize) -> Result<u8, Errno> {
        const SIGNALS: u8 = 64;
        u8::try_from(self.registers[index])
            .ok()
            .filter(|&signal| signal <= SIGNALS)
            .ok_or(Errno::EINVAL)
    }

    /// The handle of a call in flight.
    pub fn handle(&self, index: usize) -> u64 {
        self.registers[index] as u64
    }

    /// The low byte, as Linux takes a process's exit code.
    pub fn exit_code(&self, index: usize) -> u8 {
        self.registers[index] as u8
    }

    /// A clock; `EINVAL` for another number.
    pub fn clock(&self, index: usize) -> Result<Clock, Errno> {
        match self.registers[index] {
            CLOCK_REALTIME => Ok(Clock::Real),
            CLOCK_MONOTONIC => Ok(Clock::Monotonic),
            _ => Err(Errno::EINVAL),
        }
    }

    /// What a quota limits; `EINVAL` for an unknown kind.
    pub fn quota_kind(&self, index: usize) -> Result<Kind, Errno> {
        match self.registers[index] {
            quota::kind::MEMORY => Ok(Kind::Memory),
            quota::kind::PROCESSES => Ok(Kind::Processes),
            quota::kind::CALLS => Ok(Kind::Calls),
            quota::kind::DESCRIPTORS => Ok(Kind::Descriptors),
            quota::kind::CPUS => Ok(Kind::Cpus),
            quota::kind::PORTS => Ok(Kind::Ports),
            _ => Err(Errno::EINVAL),
        }
    }

    /// A new limit; `None` if the caller only asks.
    pub fn quota_limit(&self, index: usize) -> Option<u64> {
        let limit = self.registers[index];
        (limit != quota::ONLY_ASK).then_some(limit as u64)
    }

    /// The kind of records that `inspect` is asked for; `EINVAL` for another version of them.
    pub fn inspect_kind(&self, index: usize) -> Result<usize, Errno> {
        let request = self.registers[index];
        if request >> 8 == inspect::INSPECT_VERSION {
            Ok(request & 0xff)
        } else {
            Err(Errno::EINVAL)
        }
    }

    /// The operation of `trace` and its first argument; `EINVAL` for an unknown one.
    pub fn trace_request(&self) -> Result<TraceRequest, Errno> {
        let [operation, argument, ..] = *self.registers;
        match (operation, argument) {
            (trace::operation::CONTROL, 0) => Ok(TraceRequest::SwitchOff),
            (trace::operation::CONTROL, 1) => Ok(TraceRequest::SwitchOn),
            (trace::operation::CONTROL, 2) => Ok(TraceRequest::Ask),
            (trace::operation::READ, _) => Ok(TraceRequest::Read),
            (trace::operation::MARK, value) => Ok(TraceRequest::Mark(value as u64)),
            _ => Err(Errno::EINVAL),
        }
    }

    // Memory.

    /// A buffer: an address and a length. `EFAULT` if it leaves the program's half of the address
    /// space.
    pub fn range(&self, index: usize) -> Result<UserRange, Errno> {
        self.structure(index, self.registers[index + 1])
    }

    /// Like [`Self::range`], of which the call uses at most the first `max` bytes.
    pub fn range_of_at_most(&self, index: usize, max: usize) -> Result<UserRange, Errno> {
        self.structure(index, self.registers[index + 1].min(max))
    }

    /// Buffers: the address of an array of `iovec`, and their number. `EINVAL` for more than
    /// [`BUFFERS_MAX`], or more bytes than a call can report; `EFAULT`.
    #[inline(never)]
    pub fn buffers(&self, index: usize) -> Result<UserBuffers, Errno> {
        self.buffers_at(self.registers[index], self.registers[index + 1])
    }

    /// As [`Self::buffers`], of `count` entries at `address`.
    pub fn buffers_at(&self, address: usize, count: usize) -> Result<UserBuffers, Errno> {
        if count > BUFFERS_MAX {
            return Err(Errno::EINVAL);
        }
        let nothing = UserRange::new(0, 0).ok_or(Errno::EFAULT)?;
        let entries = UserRange::new(address, count * ENTRY_BYTES).ok_or(Errno::EFAULT)?;
        let (mut ranges, mut filled, mut total) = (FixedList::new(nothing), 0, 0_usize);
        let mut bytes = [0; ENTRY_BYTES * BUFFERS_COPIED];
        for first in (0..count).step_by(BUFFERS_COPIED) {
            let part = &mut bytes[..(count - first).min(BUFFERS_COPIED) * ENTRY_BYTES];
            let at = address.checked_add(first * ENTRY_BYTES).ok_or(Errno::EFAULT)?;
            self.process
                .space
                .copy_in(UserRange::new(at, part.len()).ok_or(Errno::EFAULT)?, part)?;
            for [address, length] in part.as_chunks::<8>().0.as_chunks::<2>().0 {
                let (address, length) =
                    (usize::from_le_bytes(*address), usize::from_le_bytes(*length));
                total = total.checked_add(length).ok_or(Errno::EINVAL)?;
                if isize::try_from(total).is_err() {
                    return Err(Errno::EINVAL);
                }
                if length > 0 {
                    let range = UserRange::new(address, length).ok_or(Errno::EFAULT)?;
                    // A call that has more buffers uses the first ones.
                    let _ = ranges.push(range);
                    filled += 1;
                }
            }
        }
        Ok(UserBuffers { ranges, entries, count: filled, length: total })
    }

    /// An offset in a file; `EINVAL` if it is negative.
    pub fn offset(&self, index: usize) -> Result<u64, Errno> {
        u64::try_from(self.signed(index)).map_err(|_| Errno::EINVAL)
    }

    /// The address of a structure of `bytes` bytes; `EFAULT` as for [`Self::range`].
    pub fn structure(&self, index: usize, bytes: usize) -> Result<UserRange, Errno> {
        UserRange::new(self.registers[index], bytes).ok_or(Errno::EFAULT)
    }

    /// Like [`Self::structure`]; `None` for address 0.
    pub fn optional_structure(
        &self,
        index: usize,
        bytes: usize,
    ) -> Result<Option<UserRange>, Errno> {
        if self.registers[index] == 0 { Ok(None) } else { self.structure(index, bytes).map(Some) }
    }

    /// Whole pages that the process may change: an address and a length. `EINVAL` for others.
    pub fn own_pages(&self, index: usize) -> Result<Range<usize>, Errno> {
        own_pages(self.registers[index], self.registers[index + 1]).ok_or(Errno::EINVAL)
    }

    /// The address at which a virtual CPU begins; `EINVAL` if no program can be there.
    pub fn entry(&self, index: usize) -> Result<usize, Errno> {
        let entry = self.registers[index];
        if (layout::USER_START..layout::USER_END).contains(&entry) {
            Ok(entry)
        } else {
            Err(Errno::EINVAL)
        }
    }

    /// The rights of a mapping. `EINVAL` for unknown bits, `EACCES` for writing and executing
    /// together.
    pub fn rights(&self, index: usize) -> Result<Rights, Errno> {
        let known = protection::READ | protection::WRITE | protection::EXECUTE;
        let bits = self.flags(index, known)?;
        let rights = Rights {
            // As on Linux, and in the machine: there is no right to write only.
            read: bits & (protection::READ | protection::WRITE) != 0,
            write: bits & protection::WRITE != 0,
            execute: bits & protection::EXECUTE != 0,
        };
        // No mapping is ever both writable and executable.
        if rights.write && rights.execute { Err(Errno::EACCES) } else { Ok(rights) }
    }

    /// The arguments of `clone`; `EINVAL` for anything but a copy of the process.
    pub fn fork(&self) -> Result<Fork, Errno> {
        use clone_flags::*;
        let [flags, stack, _, tls, ..] = *self.registers;
        let shares = flags & (VM | VFORK);
        let ids = PARENT_SET_TID | CHILD_CLEAR_TID | CHILD_SET_TID;
        let known = EXIT_SIGNAL | VM | VFORK | SET_TLS | ids;
        if flags & !known != 0
            || flags & EXIT_SIGNAL != usize::from(signal::SIGCHLD)
            || shares == VM
        {
            return Err(Errno::EINVAL);
        }
        Ok(Fork {
            stack_pointer: (stack != 0).then_some(stack),
            thread_pointer: (flags & SET_TLS != 0).then_some(tls),
            parent_number: self.number_place(PARENT_SET_TID, 2),
            child_number: self.number_place(CHILD_SET_TID, 4),
            clear_at_end: if flags & CHILD_CLEAR_TID != 0 { self.registers[4] } else { 0 },
            borrows: shares == VM | VFORK,
        })
    }

    /// Where `clone` stores a number: what argument `index` points to, if its flags have `flag`.
    fn number_place(&self, flag: usize, index: usize) -> Option<UserRange> {
        if self.registers[0] & flag != 0 { UserRange::new(self.registers[index], 4) } else { None }
    }

    /// The arguments of `clone` with the flag for a thread. `EINVAL` if the thread would not share
    /// everything with its process, and for unknown flags.
    pub fn thread(&self) -> Result<NewThread, Errno> {
        use clone_flags::*;
        let [flags, stack, _, tls, clear, _] = *self.registers;
        let ids = PARENT_SET_TID | CHILD_CLEAR_TID | CHILD_SET_TID;
        // A thread that ends sends no signal.
        if flags & THREAD_SHARES != THREAD_SHARES
            || flags & !(THREAD_SHARES | THREAD_WITHOUT_EFFECT | SET_TLS | ids) != 0
        {
            return Err(Errno::EINVAL);
        }
        Ok(NewThread {
            stack_pointer: (stack != 0).then_some(stack),
            thread_pointer: (flags & SET_TLS != 0).then_some(tls),
            numbers: [self.number_place(PARENT_SET_TID, 2), self.number_place(CHILD_SET_TID, 4)],
            clear_at_end: if flags & CHILD_CLEAR_TID != 0 { clear } else { 0 },
        })
    }

    // What user memory contains.

    /// A path: the string at an address. Errors are those of `copy_in_string`.
    pub fn path(&self, index: usize) -> Result<Text, Errno> {
        let path = self.process.space.copy_in_string(self.registers[index], PATH_BYTES_MAX - 1)?;
        // From the last slash within the length of a name to the next such slash: a few steps, for
        // a name may have one byte, and a path thousands of names.
        let mut rest = path.as_bytes();
        while let Some(begin) = rest.get(..NAME_BYTES_MAX + 1) {
            let slash = begin.iter().rposition(|&byte| byte == b'/');
            rest = &rest[slash.ok_or(Errno::ENAMETOOLONG)? + 1..];
        }
        Ok(path)
    }

    /// A socket address and its length. Errors are those of [`socket_address`].
    pub fn socket_address(&self, index: usize) -> Result<SocketAddr, Errno> {
        socket_address(&self.process.space, self.registers[index], self.registers[index + 1])
    }

    /// As [`Self::socket_address`]; `None` for address 0.
    pub fn optional_socket_address(&self, index: usize) -> Result<Option<SocketAddr>, Errno> {
        if self.registers[index] == 0 { Ok(None) } else { self.socket_address(index).map(Some) }
    }

    /// As [`Self::socket_address`]; `None` for the address that is of no family.
    pub fn peer_address(&self, index: usize) -> Result<Option<SocketAddr>, Errno> {
        let mut family = [0; 2];
        if self.registers[index + 1] >= family.len() {
            self.process.space.copy_in(self.structure(index, family.len())?, &mut family)?;
            if family == socket::AF_UNSPEC.to_le_bytes() {
                return Ok(None);
            }
        }
        self.socket_address(index).map(Some)
    }

    /// Where to store a socket address: the address of the space for it and that of its size, which
    /// is replaced with the size of what is stored. `EFAULT`.
    pub fn address_out(&self, index: usize) -> Result<AddressOut, Errno> {
        let length = self.structure(index + 1, 4)?;
        let length = PinnedBuffer::new(&self.process.space, length, Access::Write)?;
        let mut room = [0; 4];
        length.read_at(0, &mut room);
        let room = u32::from_le_bytes(room) as usize;
        let address = self.structure(index, room.min(socket::ADDRESS_BYTES_MAX))?;
        let address = PinnedBuffer::new(&self.process.space, address, Access::Write)?;
        Ok(AddressOut { address, length })
    }

    /// Like [`Self::address_out`]; `None` for address 0.
    pub fn optional_address_out(&self, index: usize) -> Result<Option<AddressOut>, Errno> {
        if self.registers[index] == 0 { Ok(None) } else { self.address_out(index).map(Some) }
    }

    // Files.

    /// The number of a file, which may be open or not.
    pub fn descriptor(&self, index: usize) -> Descriptor {
        Descriptor(self.registers[index])
    }

    /// The open file with this number; `EBADF`.
    #[inline(always)]
    pub fn file(&self, index: usize) -> Result<Arc<File>, Errno> {
        self.process.files.lock().get(self.descriptor(index))
    }

    /// The TCP or UDP socket with this number; `EBADF`, `ENOTSOCK`.
    pub fn socket(&self, index: usize) -> Result<SocketFile, Errno> {
        SocketFile::new(self.file(index)?)
    }

    /// The UDP socket with this number; `EBADF`, `ENOTSOCK`, `EOPNOTSUPP` for a TCP socket.
    pub fn udp_socket(&self, index: usize) -> Result<SocketFile, Errno> {
        let socket = self.socket(index)?;
        socket.datagrams()?;
        Ok(socket)
    }

    /// The directory of `openat` and other calls with paths.
    pub fn directory(&self, index: usize) -> Directory {
        if self.signed(index) == AT_FDCWD { Directory::Working } else { Directory::Other }
    }

    /// The direction that `shutdown` closes; `EINVAL` for others.
    pub fn shutdown(&self, index: usize) -> Result<Shutdown, Errno> {
        match self.registers[index] {
            0 => Ok(Shutdown::Read),
            1 => Ok(Shutdown::Write),
            2 => Ok(Shutdown::Both),
            _ => Err(Errno::EINVAL),
        }
    }
}

fn priority(level: usize) -> Result<Priority, Errno> {
    u8::try_from(level).ok().and_then(Priority::new).ok_or(Errno::EINVAL)
}
