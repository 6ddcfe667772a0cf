//! Sockets.
#![forbid(unsafe_code)]

use core::net::SocketAddr;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::file::open;
use cops_abi::socket::{AF_INET, AF_INET6, SOCK_STREAM};

use cops_fallible::{try_arc, try_box};

use super::arguments::SocketFile;
use crate::call::{AddressOut, Operation};
use crate::fs::{File, Object};
use crate::mm;
use crate::net::{Shutdown, Socket};
use crate::process::Process;

/// Flags of `socket`, in its type, and of `accept4`: those of `open` for the descriptor.
pub const SOCKET_FLAGS: usize = (open::CLOSE_ON_EXEC | open::NON_BLOCKING) as usize;

/// `socket(domain, type, protocol)`.
pub fn socket(process: &Process, domain: usize, kind: usize, protocol: usize) -> CallResult {
    const TCP: usize = 6;
    let family = u16::try_from(domain).map_err(|_| Errno::EAFNOSUPPORT)?;
    if family != AF_INET && family != AF_INET6 {
        return Err(Errno::EAFNOSUPPORT);
    }
    let (kind, flags) = (kind & !SOCKET_FLAGS, (kind & SOCKET_FLAGS) as u32);
    if kind != SOCK_STREAM || protocol != 0 && protocol != TCP {
        return Err(Errno::EPROTONOSUPPORT);
    }
    mm::admit()?;
    let socket = Object::Socket(Socket::new(family == AF_INET6)?);
    let file = try_arc(File::new(socket, open::READ_WRITE | flags))?;
    process.files.lock().insert(file, flags & open::CLOSE_ON_EXEC != 0).map(|file| file.0)
}

/// `bind(fd, *const sockaddr, length)`.
///
/// `Ok(None)`: a portion is completed, call again.
pub fn bind(socket: &SocketFile, address: SocketAddr) -> Result<Option<usize>, Errno> {
    Ok(socket.bind(address)?.map(|()| 0))
}

/// `listen(fd, backlog)`.
///
/// `Ok(None)`: a portion is completed, call again.
pub fn listen(socket: &SocketFile, backlog: usize) -> Result<Option<usize>, Errno> {
    const BACKLOG_MAX: usize = 4096;
    Ok(socket.listen(backlog.clamp(1, BACKLOG_MAX))?.map(|()| 0))
}

/// `accept4(fd, *mut sockaddr, *mut u32, flags)`.
pub fn accept(
    socket: SocketFile,
    peer: Option<AddressOut>,
    flags: usize,
) -> Result<Operation, Errno> {
    mm::admit()?;
    let peer = peer.map(try_box).transpose()?;
    Ok(Operation::Accept { file: socket.into_file(), peer, flags: flags as u32 })
}

/// `connect(fd, *const sockaddr, length)`.
///
/// `Ok(None)`: a portion is completed, call again.
pub fn connect(socket: SocketFile, address: SocketAddr) -> Result<Option<Operation>, Errno> {
    mm::admit()?;
    let started = socket.start_connect(address)?;
    Ok(started.map(|()| Operation::Connect { file: socket.into_file() }))
}

/// `getsockname` and `getpeername(fd, *mut sockaddr, *mut u32)`, with the address that was found.
pub fn store_address(address: SocketAddr, into: &AddressOut) -> CallResult {
    into.store(address);
    Ok(0)
}

/// `shutdown(fd, how)`.
pub fn shutdown(socket: &SocketFile, how: Shutdown) -> CallResult {
    socket.shutdown(how).map(|()| 0)
}
