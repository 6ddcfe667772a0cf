//! Every system call number, and every call with addresses and descriptors that no program should
//! pass. Each must fail with the right error, and the process continues.

use alloc::format;
use alloc::vec::Vec;

use cops::abi::Errno::*;
use cops::abi::layout::{SYSTEM_PAGE, USER_END, VDSO};
use cops::abi::syscall::{self as number, AT_FDCWD};
use cops::io::{AsFd, Fd, pipe};
use cops::net::{Ipv4Addr, TcpListener};

use crate::harness::{Failure, Outcome};
use crate::raw::{self, Asked, BAD_ADDRESSES, Garbage};
use crate::{check_equal, tests};

tests! { arguments:
    unknown_numbers,
    unknown_numbers_with_garbage,
    known_numbers_with_garbage,
    bad_addresses,
    read_only_destinations,
    huge_lengths,
    bad_descriptors,
    wrong_kinds_of_descriptor,
    order_of_errors,
}

/// The lowest free descriptor: the same before and after a call that must not open any.
fn lowest_free_fd() -> Result<usize, Failure> {
    let fd = raw::call(number::OPENAT, [AT_FDCWD as usize, c"/".as_ptr().addr(), 0, 0])?;
    raw::call(number::CLOSE, [fd])?;
    Ok(fd)
}

fn file() -> Result<Fd, Failure> {
    let path = c"/bin/usertests".as_ptr().addr();
    Ok(Fd::from_raw(raw::call(number::OPENAT, [AT_FDCWD as usize, path, 0, 0])? as i32))
}

fn directory() -> Result<Fd, Failure> {
    Ok(Fd::from_raw(
        raw::call(number::OPENAT, [AT_FDCWD as usize, c"/bin".as_ptr().addr(), 0, 0])? as i32
    ))
}

/// The kernel's number of the descriptor.
pub fn number_of(fd: &impl AsFd) -> usize {
    fd.as_fd().raw() as usize
}

async fn unknown_numbers() -> Outcome {
    let known = |candidate: usize| number::ALL.iter().any(|&(known, _)| known == candidate);
    let candidates = (0..512).chain(4090..4200).chain([usize::MAX, 1 << 63, 1 << 32 | 63, 1 << 16]);
    for candidate in candidates.filter(|&candidate| !known(candidate)) {
        raw::refused("unknown number", candidate, [], &[ENOSYS])?;
    }
    Ok(())
}

async fn unknown_numbers_with_garbage() -> Outcome {
    let mut garbage = Garbage::new(0x5eed);
    for _ in 0..2000 {
        let number = garbage.next() | 1 << 20;
        let arguments = [(); 6].map(|()| garbage.next());
        raw::refused("unknown number", number, arguments, &[ENOSYS])?;
    }
    Ok(())
}

/// Random arguments for every call, except those that end, stop or change this process.
async fn known_numbers_with_garbage() -> Outcome {
    const SPARED: &[usize] = &[
        number::EXIT,
        number::EXIT_GROUP,
        number::KILL,
        number::CLOSE,
        // They can close or change the console's descriptors, on which this test reports.
        number::DUP3,
        number::FCNTL,
        number::IOCTL,
        number::MUNMAP,
        number::MPROTECT,
        number::COPS_PARK,
        number::COPS_ALLOC_CPU,
        number::COPS_SET_CEILING,
        number::COPS_SET_SHARE,
        number::COPS_URET,
        // A copy of the process would go on with the tests.
        number::CLONE,
    ];
    let mut garbage = Garbage::new(0xfeed);
    let calls: Vec<usize> = number::ALL
        .iter()
        .map(|&(number, _)| number)
        .filter(|number| !SPARED.contains(number))
        .collect();
    for round in 0..300 {
        for &number in &calls {
            let arguments = [(); 6].map(|()| match garbage.next() % 4 {
                // A descriptor, a length, an address; never an address of our own memory.
                0 => garbage.next() % 16,
                1 => BAD_ADDRESSES[garbage.next() % BAD_ADDRESSES.len()],
                2 => garbage.next() % (1 << 20) + 16,
                _ => garbage.next(),
            });
            // Asynchronously, because it might wait forever.
            if let Asked::InFlight(handle) = raw::ask(number, arguments) {
                handle
                    .cancel()
                    .map_err(|failure| Failure(format!("round {round}, {number}: {failure}")))?;
            }
        }
    }
    Ok(())
}

async fn bad_addresses() -> Outcome {
    let (reader, _writer) = pipe()?;
    let (file, directory) = (file()?, directory()?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let socket = Fd::from_raw(raw::call(number::SOCKET, [2, 1, 0])? as i32);
    let (reader, file, directory) = (number_of(&reader), number_of(&file), number_of(&directory));
    let (listener, socket) = (number_of(&listener), number_of(&socket));
    let free = lowest_free_fd()?;
    let path = c"/bin/hello".as_ptr().addr();
    let mut length = 28u32;
    let length = (&raw mut length).addr();
    for &bad in BAD_ADDRESSES {
        let fault = |what: &str, number: usize, arguments: [usize; 6]| {
            raw::refused(what, number, arguments, &[EFAULT])
        };
        fault("openat", number::OPENAT, [AT_FDCWD as usize, bad, 0, 0, 0, 0])?;
        fault("pipe2", number::PIPE2, [bad, 0, 0, 0, 0, 0])?;
        fault("getdents64", number::GETDENTS64, [directory, bad, 512, 0, 0, 0])?;
        fault("read of a file", number::READ, [file, bad, 16, 0, 0, 0])?;
        fault("read of a pipe", number::READ, [reader, bad, 16, 0, 0, 0])?;
        fault("write", number::WRITE, [1, bad, 16, 0, 0, 0])?;
        fault("clock_gettime", number::CLOCK_GETTIME, [1, bad, 0, 0, 0, 0])?;
        fault("clock_nanosleep", number::CLOCK_NANOSLEEP, [1, 0, bad, 0, 0, 0])?;
        fault("bind", number::BIND, [socket, bad, 16, 0, 0, 0])?;
        fault("connect", number::CONNECT, [socket, bad, 16, 0, 0, 0])?;
        fault("getsockname", number::GETSOCKNAME, [listener, bad, length, 0, 0, 0])?;
        fault("getsockname's length", number::GETSOCKNAME, [listener, path, bad, 0, 0, 0])?;
        if bad != 0 {
            fault("quota", number::COPS_QUOTA, [0, 0, usize::MAX, bad, 0, 0])?;
            fault("accept4", number::ACCEPT4, [listener, bad, length, 0, 0, 0])?;
            raw::refused("wait4", number::WAIT4, [usize::MAX, bad, 0, 0], &[EFAULT, ECHILD])?;
        }
        fault("getrandom", number::GETRANDOM, [bad, 16, 0, 0, 0, 0])?;
        fault("spawn_process", number::COPS_SPAWN_PROCESS, [bad, path, 0, 0, 0, 0])?;
        let arguments = [path, bad, 0];
        if bad != 0 {
            let list = arguments.as_ptr().addr();
            let spawn = number::COPS_SPAWN_PROCESS;
            fault("spawn_process's arguments", spawn, [path, bad, 0, 0, 0, 0])?;
            fault("spawn_process's argument", spawn, [path, list, 0, 0, 0, 0])?;
        }
        fault("statistics", number::COPS_STATISTICS, [bad, 64, 0, 0, 0, 0])?;
    }
    check_equal!(lowest_free_fd()?, free, "descriptors opened by calls that failed");
    Ok(())
}

/// Memory of this process that it cannot write, so the kernel must not write to it either.
async fn read_only_destinations() -> Outcome {
    let (file, directory) = (file()?, directory()?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (file, directory, listener) =
        (number_of(&file), number_of(&directory), number_of(&listener));
    let text = read_only_destinations as *const () as usize;
    let data = "read-only data".as_ptr().addr();
    for place in [text, data, VDSO, SYSTEM_PAGE] {
        raw::refused("read", number::READ, [file, place, 16], &[EFAULT])?;
        raw::refused("getdents64", number::GETDENTS64, [directory, place, 512], &[EFAULT])?;
        raw::refused("pipe2", number::PIPE2, [place & !7, 0], &[EFAULT])?;
        raw::refused("clock_gettime", number::CLOCK_GETTIME, [1, place & !7], &[EFAULT])?;
        raw::refused("getrandom", number::GETRANDOM, [place, 4], &[EFAULT])?;
        raw::refused(
            "getsockname",
            number::GETSOCKNAME,
            [listener, place & !7, place & !7],
            &[EFAULT],
        )?;
        raw::refused("statistics", number::COPS_STATISTICS, [place & !7, 64], &[EFAULT])?;
        raw::refused("quota", number::COPS_QUOTA, [0, 0, usize::MAX, place & !7], &[EFAULT])?;
    }
    Ok(())
}

/// A length beyond all memory, at an address that is valid for some bytes: a short transfer or an
/// error, never more.
async fn huge_lengths() -> Outcome {
    const BYTES: usize = 64 * 1024;
    let mut buffer = alloc::vec![7u8; BYTES];
    let place = buffer.as_mut_ptr().addr();
    let (reader, writer) = pipe()?;
    let (reader, writer) = (number_of(&reader), number_of(&writer));
    for length in
        [usize::MAX, 1 << 63, isize::MAX as usize, USER_END, 1 << 32, usize::MAX - place + 1]
    {
        let file = file()?;
        let moved = |what: &str, result| match result {
            Ok(1..=BYTES) | Err(EFAULT | EINVAL) => Ok(()),
            other => Err(Failure(format!("{what} of {length:#x} bytes: {other:?}"))),
        };
        moved("read of a file", raw::call(number::READ, [number_of(&file), place, length]))?;
        moved("write to a pipe", raw::call(number::WRITE, [writer, place, length]))?;
        // So that there is always something to read.
        raw::call(number::WRITE, [writer, place, 1])?;
        moved("read of a pipe", raw::call(number::READ, [reader, place, length]))?;
        while let Asked::Done(Ok(_)) = drain(reader, place, BYTES)? {}
    }
    Ok(())
}

/// Reads once if there is something to read.
fn drain(reader: usize, place: usize, bytes: usize) -> Result<Asked, Failure> {
    match raw::ask(number::READ, [reader, place, bytes]) {
        Asked::InFlight(handle) => {
            handle.cancel()?;
            Ok(Asked::Done(Err(EAGAIN)))
        }
        done => Ok(done),
    }
}

const BAD_FDS: &[usize] = &[usize::MAX, 9999, 1 << 31, 1 << 32, i32::MIN as usize, 1 << 63];

async fn bad_descriptors() -> Outcome {
    let mut buffer = [0u8; 64];
    let place = buffer.as_mut_ptr().addr();
    let closed = number_of(&file()?);
    for &fd in BAD_FDS.iter().chain([&closed]) {
        for (what, number) in [
            ("close", number::CLOSE),
            ("getdents64", number::GETDENTS64),
            ("lseek", number::LSEEK),
            ("read", number::READ),
            ("write", number::WRITE),
            ("bind", number::BIND),
            ("listen", number::LISTEN),
            ("accept", number::ACCEPT),
            ("accept4", number::ACCEPT4),
            ("connect", number::CONNECT),
            ("getsockname", number::GETSOCKNAME),
            ("getpeername", number::GETPEERNAME),
            ("shutdown", number::SHUTDOWN),
        ] {
            let arguments = match number {
                number::LSEEK => [fd, 0, 0],
                number::SHUTDOWN | number::LISTEN => [fd, 1, 0],
                number::ACCEPT | number::ACCEPT4 => [fd, 0, 0],
                number::GETSOCKNAME | number::GETPEERNAME => [fd, place, place],
                _ => [fd, place, 16],
            };
            raw::refused(what, number, arguments, &[EBADF])?;
        }
    }
    Ok(())
}

async fn wrong_kinds_of_descriptor() -> Outcome {
    // A valid address, so that only the descriptor is wrong.
    let mut buffer = [0u8; 64];
    let _ = cops::abi::socket::encode(
        ([127, 0, 0, 1], 9).into(),
        buffer.first_chunk_mut().unwrap_or(&mut [0; 28]),
    );
    let place = buffer.as_mut_ptr().addr();
    let (reader, writer) = pipe()?;
    let (file, directory) = (file()?, directory()?);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let socket = Fd::from_raw(raw::call(number::SOCKET, [2, 1, 0])? as i32);
    let (reader, writer) = (number_of(&reader), number_of(&writer));
    let (file, directory) = (number_of(&file), number_of(&directory));
    let (listener, socket) = (number_of(&listener), number_of(&socket));

    raw::refused("write to a file", number::WRITE, [file, place, 4], &[EBADF, EROFS])?;
    raw::refused("write to a reading end", number::WRITE, [reader, place, 4], &[EBADF])?;
    raw::refused("read from a writing end", number::READ, [writer, place, 4], &[EBADF])?;
    raw::refused("read from a directory", number::READ, [directory, place, 4], &[EISDIR])?;
    raw::refused(
        "write to a directory",
        number::WRITE,
        [directory, place, 4],
        &[EBADF, EISDIR, EROFS],
    )?;
    raw::refused("list a file", number::GETDENTS64, [file, place, 64], &[ENOTDIR])?;
    raw::refused("seek in a pipe", number::LSEEK, [reader, 0, 0], &[ESPIPE])?;
    raw::refused("seek in a socket", number::LSEEK, [socket, 0, 0], &[ESPIPE])?;
    raw::refused("seek to nowhere", number::LSEEK, [file, 0, 3], &[EINVAL])?;
    raw::refused("seek before the file", number::LSEEK, [file, usize::MAX, 0], &[EINVAL])?;
    raw::refused("read of a socket", number::READ, [socket, place, 4], &[ENOTCONN])?;
    raw::refused("read of a listener", number::READ, [listener, place, 4], &[ENOTCONN, EINVAL])?;
    raw::refused("write to a socket", number::WRITE, [socket, place, 4], &[ENOTCONN, EPIPE])?;
    raw::refused("accept without listening", number::ACCEPT, [socket, 0, 0], &[EINVAL])?;
    raw::refused("shutdown without a peer", number::SHUTDOWN, [socket, 2], &[ENOTCONN])?;
    raw::refused(
        "getpeername without a peer",
        number::GETPEERNAME,
        [socket, place, place],
        &[ENOTCONN],
    )?;
    for other in [0, file, directory, reader, writer] {
        raw::refused("bind", number::BIND, [other, place, 16], &[ENOTSOCK])?;
        raw::refused("listen", number::LISTEN, [other, 1], &[ENOTSOCK])?;
        raw::refused("accept", number::ACCEPT, [other, 0, 0], &[ENOTSOCK])?;
        raw::refused("connect", number::CONNECT, [other, place, 16], &[ENOTSOCK])?;
        raw::refused("shutdown", number::SHUTDOWN, [other, 2], &[ENOTSOCK])?;
        raw::refused("getsockname", number::GETSOCKNAME, [other, place, place], &[ENOTSOCK])?;
        raw::refused("getpeername", number::GETPEERNAME, [other, place, place], &[ENOTSOCK])?;
    }
    Ok(())
}

/// A call with two wrong arguments fails with the same error as on Linux, or as docs/abi.md says: a
/// descriptor, flag or permission is checked before the memory that the call would use.
async fn order_of_errors() -> Outcome {
    let beyond = USER_END;
    let (reader, _writer) = pipe()?;
    let reader = number_of(&reader);
    let closed = lowest_free_fd()?;

    raw::refused("read", number::READ, [closed, beyond, 4], &[EBADF])?;
    raw::refused("write", number::WRITE, [closed, beyond, usize::MAX], &[EBADF])?;
    raw::refused("list", number::GETDENTS64, [closed, beyond, 64], &[EBADF])?;
    raw::refused("pipe", number::PIPE2, [beyond, 1], &[EINVAL])?;
    raw::refused("readv", number::READV, [closed, beyond, 1], &[EBADF])?;
    raw::refused("pread64", number::PREAD64, [closed, beyond, 4, usize::MAX], &[EBADF])?;
    raw::refused("fstat", number::FSTAT, [closed, beyond], &[EBADF])?;
    raw::refused("ioctl", number::IOCTL, [closed, 0, beyond], &[EBADF])?;
    raw::refused("bind", number::BIND, [reader, beyond, 16], &[ENOTSOCK])?;
    raw::refused("accept", number::ACCEPT4, [reader, beyond, beyond, 1], &[ENOTSOCK])?;
    raw::refused("getpeername", number::GETPEERNAME, [reader, beyond, beyond], &[ENOTSOCK])?;
    raw::refused("clock", number::CLOCK_GETTIME, [99, beyond], &[EINVAL])?;
    raw::refused("sleep", number::CLOCK_NANOSLEEP, [1, 2, beyond], &[EINVAL])?;
    raw::refused("wait", number::WAIT4, [usize::MAX, beyond, 1 << 20, 0], &[EINVAL])?;
    raw::refused("random", number::GETRANDOM, [beyond, 4, 8], &[EINVAL])?;
    raw::refused("inspect", number::COPS_INSPECT, [0, 0, beyond, 64], &[EINVAL])?;
    raw::refused("quota", number::COPS_QUOTA, [0, 99, 0, beyond], &[EINVAL])?;
    raw::refused("kill", number::KILL, [1 << 40, 65], &[EINVAL])?;
    raw::refused("spawn", number::COPS_SPAWN_PROCESS, [beyond, 0, 65, 0], &[EINVAL])?;
    // Of a long buffer a call may use the beginning only; then only that must exist.
    let mut bytes = [0u8; 256];
    let filled = raw::call(number::GETRANDOM, [bytes.as_mut_ptr().addr(), usize::MAX, 0])?;
    check_equal!(filled, 256, "random bytes");
    Ok(())
}
