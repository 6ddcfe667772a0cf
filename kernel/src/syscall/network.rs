//! Sockets.
#![forbid(unsafe_code)]

use core::net::SocketAddr;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::socket::{self, ADDRESS_BYTES_MAX, AF_INET, AF_INET6, SOCK_STREAM};

use cops_fallible::try_arc;

use crate::call::{AddressOut, Operation};
use crate::fs::File;
use crate::mm::{self, Access, UserRange};
use crate::net::Socket;
use crate::process::Process;

/// `socket(domain, type, protocol)`.
pub fn socket(process: &Process, domain: usize, kind: usize, protocol: usize) -> CallResult {
    const TCP: usize = 6;
    let family = u16::try_from(domain).map_err(|_| Errno::EAFNOSUPPORT)?;
    if family != AF_INET && family != AF_INET6 {
        return Err(Errno::EAFNOSUPPORT);
    }
    if kind != SOCK_STREAM || protocol != 0 && protocol != TCP {
        return Err(Errno::EPROTONOSUPPORT);
    }
    mm::admit()?;
    let socket = try_arc(File::Socket(Socket::new(family == AF_INET6)?))?;
    process.files.lock().insert(socket)
}

/// `bind(fd, *const sockaddr, length)`.
///
/// `Ok(None)`: a portion is completed, call again.
pub fn bind(process: &Process, file: usize, address: usize, length: usize) -> Result<Option<usize>, Errno> {
    let file = process.files.lock().get(file)?;
    let socket = as_socket(&file)?;
    Ok(socket.bind(address_in(process, address, length)?)?.map(|()| 0))
}

/// `listen(fd, backlog)`.
///
/// `Ok(None)`: a portion is completed, call again.
pub fn listen(process: &Process, file: usize, backlog: usize) -> Result<Option<usize>, Errno> {
    const BACKLOG_MAX: usize = 4096;
    let file = process.files.lock().get(file)?;
    Ok(as_socket(&file)?.listen(backlog.clamp(1, BACKLOG_MAX))?.map(|()| 0))
}

/// `accept4(fd, *mut sockaddr, *mut u32, flags)`.
pub fn accept(
    process: &Process,
    file: usize,
    address: usize,
    length: usize,
    flags: usize,
) -> Result<Operation, Errno> {
    let file = process.files.lock().get(file)?;
    as_socket(&file)?;
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    mm::admit()?;
    let peer = match address {
        0 => None,
        address => Some(address_out(process, address, length)?),
    };
    Ok(Operation::Accept { file, peer })
}

/// `connect(fd, *const sockaddr, length)`.
///
/// `Ok(None)`: a portion is completed, call again.
pub fn connect(
    process: &Process,
    file: usize,
    address: usize,
    length: usize,
) -> Result<Option<Operation>, Errno> {
    let file = process.files.lock().get(file)?;
    let socket = as_socket(&file)?;
    let address = address_in(process, address, length)?;
    mm::admit()?;
    Ok(socket.start_connect(address)?.map(|()| Operation::Connect { file }))
}

/// `getsockname(fd, *mut sockaddr, *mut u32)`.
pub fn local_address(process: &Process, file: usize, address: usize, length: usize) -> CallResult {
    let file = process.files.lock().get(file)?;
    let found = as_socket(&file)?.local_address()?;
    address_out(process, address, length)?.store(found);
    Ok(0)
}

/// `getpeername(fd, *mut sockaddr, *mut u32)`.
pub fn remote_address(process: &Process, file: usize, address: usize, length: usize) -> CallResult {
    let file = process.files.lock().get(file)?;
    let found = as_socket(&file)?.remote_address()?;
    address_out(process, address, length)?.store(found);
    Ok(0)
}

/// `shutdown(fd, how)`.
pub fn shutdown(process: &Process, file: usize, how: usize) -> CallResult {
    let file = process.files.lock().get(file)?;
    as_socket(&file)?.shutdown(how)?;
    Ok(0)
}

fn as_socket(file: &File) -> Result<&Socket, Errno> {
    match file {
        File::Socket(socket) => Ok(socket),
        _ => Err(Errno::ENOTSOCK),
    }
}

fn address_in(process: &Process, address: usize, length: usize) -> Result<SocketAddr, Errno> {
    let mut bytes = [0; ADDRESS_BYTES_MAX];
    let bytes = bytes.get_mut(..length).ok_or(Errno::EINVAL)?;
    UserRange::new(address, length).copy_in(&process.space, bytes)?;
    socket::decode(bytes)
}

/// Pins the space for an address; `length` points to its size.
fn address_out(process: &Process, address: usize, length: usize) -> Result<AddressOut, Errno> {
    let length = UserRange::new(length, 4).pin(&process.space, Access::Write)?;
    let mut room = [0; 4];
    length.read_at(0, &mut room);
    let room = u32::from_le_bytes(room) as usize;
    let address = UserRange::new(address, room.min(ADDRESS_BYTES_MAX)).pin(&process.space, Access::Write)?;
    Ok(AddressOut { address, length })
}
