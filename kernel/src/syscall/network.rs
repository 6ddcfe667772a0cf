//! Sockets.
#![forbid(unsafe_code)]

use core::net::SocketAddr;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::file::open;
use cops_abi::linux::{MSG_NOSIGNAL, message, socket_option};
use cops_abi::socket::{AF_INET, AF_INET6, SOCK_DGRAM, SOCK_STREAM};

use cops_fallible::{try_arc, try_box};

use super::arguments::{AnySocket, Arguments, SocketFile};
use crate::call::{AddressOut, DatagramCall, DatagramOptions, NamePlace, Operation, Pieces};
use crate::fs::{File, Object};
use crate::mm;
use crate::net::{Begun, Datagrams, Shutdown, Socket};
use crate::process::Process;

/// Flags of `socket`, in its type, and of `accept4`: those of `open` for the descriptor.
pub const SOCKET_FLAGS: usize = (open::CLOSE_ON_EXEC | open::NON_BLOCKING) as usize;

/// `socket(domain, type, protocol)`.
pub fn socket(process: &Process, domain: usize, kind: usize, protocol: usize) -> CallResult {
    const ANY: usize = 0;
    let family = u16::try_from(domain).map_err(|_| Errno::EAFNOSUPPORT)?;
    if family != AF_INET && family != AF_INET6 {
        return Err(Errno::EAFNOSUPPORT);
    }
    let (kind, flags) = (kind & !SOCKET_FLAGS, (kind & SOCKET_FLAGS) as u32);
    mm::admit()?;
    let v6 = family == AF_INET6;
    let socket = match (kind, protocol) {
        (SOCK_STREAM, ANY | socket_option::TCP) => Object::Socket(Socket::new(v6)?),
        (SOCK_DGRAM, ANY | socket_option::UDP) => Object::Datagrams(Datagrams::new(v6)?),
        _ => return Err(Errno::EPROTONOSUPPORT),
    };
    let file = try_arc(File::new(socket, open::READ_WRITE | flags))?;
    process.files.lock().insert(file, flags & open::CLOSE_ON_EXEC != 0).map(|file| file.0)
}

/// `bind(fd, *const sockaddr, length)`.
///
/// `Ok(None)`: a portion is completed, call again.
pub fn bind(
    process: &Process,
    socket: &SocketFile,
    address: SocketAddr,
) -> Result<Option<usize>, Errno> {
    let bound = match socket.any() {
        AnySocket::Stream(socket) => socket.bind(address, process.family),
        AnySocket::Datagrams(socket) => socket.bind(address, process.family),
    };
    Ok(bound?.map(|()| 0))
}

/// `listen(fd, backlog)`.
///
/// `Ok(None)`: a portion is completed, call again.
pub fn listen(
    process: &Process,
    socket: &SocketFile,
    backlog: usize,
) -> Result<Option<usize>, Errno> {
    const BACKLOG_MAX: usize = 4096;
    let backlog = backlog.clamp(1, BACKLOG_MAX);
    Ok(socket.stream()?.listen(backlog, process.family)?.map(|()| 0))
}

/// `accept4(fd, *mut sockaddr, *mut u32, flags)`.
pub fn accept(
    socket: SocketFile,
    peer: Option<AddressOut>,
    flags: usize,
) -> Result<Operation, Errno> {
    socket.stream()?;
    mm::admit()?;
    let peer = peer.map(try_box).transpose()?;
    Ok(Operation::Accept { file: socket.into_file(), peer, flags: flags as u32 })
}

/// What has come of `connect`.
pub enum Connecting {
    /// It is done.
    Done,
    /// A connection is to be waited for.
    Waits(Operation),
    /// A portion is completed, call again.
    Again,
}

/// `connect(fd, *const sockaddr, length)`; `None`: to an address of no family, which ends what a
/// UDP socket is connected to.
pub fn connect(
    process: &Process,
    socket: SocketFile,
    address: Option<SocketAddr>,
) -> Result<Connecting, Errno> {
    mm::admit()?;
    let begun = match (socket.any(), address) {
        (AnySocket::Stream(socket), Some(address)) => {
            socket.start_connect(address, process.family)?
        }
        (AnySocket::Stream(_), None) => return Err(Errno::EAFNOSUPPORT),
        (AnySocket::Datagrams(socket), Some(address)) => {
            let connected = socket.connect(address, process.family)?;
            return Ok(connected.map_or(Connecting::Again, |()| Connecting::Done));
        }
        (AnySocket::Datagrams(socket), None) => {
            socket.disconnect();
            return Ok(Connecting::Done);
        }
    };
    Ok(begun.map_or(Connecting::Again, |begun| {
        let is_again = begun == Begun::Before;
        Connecting::Waits(Operation::Connect { file: socket.into_file(), is_again })
    }))
}

/// `getsockname(fd, *mut sockaddr, *mut u32)`.
pub fn local_address(socket: &SocketFile, into: &AddressOut) -> CallResult {
    into.store(match socket.any() {
        AnySocket::Stream(socket) => socket.local_address()?,
        AnySocket::Datagrams(socket) => socket.local_address(),
    });
    Ok(0)
}

/// `getpeername(fd, *mut sockaddr, *mut u32)`.
pub fn remote_address(
    socket: &SocketFile,
    into: impl FnOnce() -> Result<AddressOut, Errno>,
) -> CallResult {
    let address = match socket.any() {
        AnySocket::Stream(socket) => socket.remote_address()?,
        AnySocket::Datagrams(socket) => socket.remote_address()?,
    };
    into()?.store(address);
    Ok(0)
}

/// Flags of a call that sends a datagram.
const SEND_FLAGS: usize =
    message::DONT_ROUTE | message::DONT_WAIT | message::CONFIRM | MSG_NOSIGNAL;
/// Flags of a call that receives a datagram.
const RECEIVE_FLAGS: usize = message::PEEK
    | message::TRUNCATED
    | message::DONT_WAIT
    | message::WAIT_ALL
    | MSG_NOSIGNAL
    | message::WAIT_FOR_ONE
    | message::CLOSE_ON_EXEC;

/// What the flags of a call that sends a datagram ask for.
///
/// # Errors
/// `EOPNOTSUPP` for unknown flags.
pub fn send_options(flags: usize) -> Result<DatagramOptions, Errno> {
    if flags & !SEND_FLAGS != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let is_non_blocking = flags & message::DONT_WAIT != 0;
    Ok(DatagramOptions { is_non_blocking, ..DatagramOptions::default() })
}

/// What the flags of a call that receives a datagram ask for.
///
/// # Errors
/// `EOPNOTSUPP` for unknown flags, `EAGAIN` if it asks for errors.
pub fn receive_options(flags: usize) -> Result<DatagramOptions, Errno> {
    if flags & !(RECEIVE_FLAGS | message::ERRORS) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    if flags & message::ERRORS != 0 {
        return Err(Errno::EAGAIN);
    }
    Ok(DatagramOptions {
        peeks: flags & message::PEEK != 0,
        reports_length: flags & message::TRUNCATED != 0,
        is_non_blocking: flags & message::DONT_WAIT != 0,
        waits_for_one: flags & message::WAIT_FOR_ONE != 0,
    })
}

/// `sendto(fd, buffer, length, flags, *const sockaddr or 0, length)` of a UDP socket.
///
/// `Ok(None)`: a portion is completed, call again.
pub fn send_to(
    process: &Process,
    socket: SocketFile,
    args: &Arguments<'_>,
) -> Result<Option<Operation>, Errno> {
    let options = send_options(args.number(3))?;
    let pieces = Pieces::of_range(args.range(1)?);
    let target = args.optional_socket_address(4)?;
    if target.is_some() && socket.datagrams()?.ensure_bound(process.family)?.is_none() {
        return Ok(None);
    }
    let call = DatagramCall::send(socket.into_file(), pieces, target, options)?;
    Ok(Some(Operation::Datagram(call)))
}

/// `recvfrom(fd, buffer, length, flags, *mut sockaddr or 0, *mut u32)` of a UDP socket.
pub fn receive_from(socket: SocketFile, args: &Arguments<'_>) -> Result<Operation, Errno> {
    let options = receive_options(args.number(3))?;
    let pieces = Pieces::of_range(args.range(1)?);
    let (address, length_at) = (args.number(4), args.number(5));
    let name = (address != 0).then_some(NamePlace { address, length_at });
    Ok(Operation::Datagram(DatagramCall::receive(socket.into_file(), pieces, name, options)?))
}

/// `shutdown(fd, how)`.
pub fn shutdown(socket: &SocketFile, how: Shutdown) -> CallResult {
    let shut = match socket.any() {
        AnySocket::Stream(socket) => socket.shutdown(how),
        AnySocket::Datagrams(socket) => socket.shutdown(how),
    };
    shut.map(|()| 0)
}
