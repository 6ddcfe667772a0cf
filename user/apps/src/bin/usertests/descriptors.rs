//! Descriptors: duplicates, flags, positions, several buffers, and what is known of an open file.

use alloc::vec;
use alloc::vec::Vec;

use cops::abi::Errno::{self, *};
use cops::abi::file::{Status, at, control, device_number, ioctl, mode, open, terminal};
use cops::abi::syscall::{self as number, AT_FDCWD, BUFFERS_MAX};
use cops::io::{Fd, Read, Write, pipe};
use cops::net::{Ipv4Addr, TcpListener};
use cops::task::{self, Priority};

use crate::harness::{Failure, Outcome, PROGRAM, soon};
use crate::hostile_arguments::number_of;
use crate::raw::{self, Asked, BAD_ADDRESSES};
use crate::{check, check_equal, tests};

tests! { descriptors:
    duplicates_share_the_position,
    duplicates_at_a_number,
    the_lowest_number_from,
    duplicates_keep_a_pipe_open,
    flags_of_a_descriptor,
    flags_of_an_open_file,
    non_blocking_calls_fail,
    asynchronous_calls_wait_in_non_blocking_mode,
    several_buffers,
    a_gathered_write_is_one_write,
    bad_buffers,
    reads_at_an_offset,
    status_of_files,
    extended_status,
    access_to_files,
    requests_to_devices,
    far_numbers_cost_no_more,
}

fn open_file(path: &core::ffi::CStr, flags: u32) -> Result<Fd, Errno> {
    let arguments = [AT_FDCWD as usize, path.as_ptr().addr(), flags as usize, 0];
    raw::call(number::OPENAT, arguments).map(|fd| Fd::from_raw(fd as i32))
}

fn program() -> Result<Fd, Failure> {
    Ok(open_file(c"/bin/usertests", open::READ_ONLY)?)
}

fn duplicate(fd: &Fd) -> Result<Fd, Errno> {
    raw::call(number::DUP, [number_of(fd)]).map(|fd| Fd::from_raw(fd as i32))
}

fn position(fd: &Fd) -> Result<usize, Errno> {
    raw::call(number::LSEEK, [number_of(fd), 0, 1])
}

fn control(fd: &Fd, command: usize, argument: usize) -> Result<usize, Errno> {
    raw::call(number::FCNTL, [number_of(fd), command, argument])
}

async fn duplicates_share_the_position() -> Outcome {
    let mut first = program()?;
    let second = duplicate(&first)?;
    let other = program()?;
    first.read_exact(&mut [0; 100]).await?;
    check_equal!(position(&second)?, 100, "position of the duplicate");
    check_equal!(position(&other)?, 0, "position of another open file");
    drop(first);
    check_equal!(position(&second)?, 100, "position after the first was closed");
    raw::refused("dup of nothing", number::DUP, [9999], &[EBADF])?;
    Ok(())
}

async fn duplicates_at_a_number() -> Outcome {
    let file = program()?;
    let number = number_of(&file);
    let (mut reader, writer) = pipe()?;
    let target = number_of(&writer);
    // Closes the pipe's end, which the reader finds.
    check_equal!(
        raw::call(number::DUP3, [number, target, 0]),
        Ok(target),
        "dup3 to a number in use"
    );
    check_equal!(soon("the end of the pipe", reader.read(&mut [0; 4])).await??, 0, "bytes");
    check_equal!(raw::call(number::LSEEK, [target, 7, 0]), Ok(7), "lseek of the duplicate");
    check_equal!(position(&file)?, 7, "position of the original");
    check_equal!(raw::call(number::DUP3, [number, 1000, 0]), Ok(1000), "dup3 to a free number");
    check_equal!(raw::call(number::CLOSE, [1000]), Ok(0), "close of the duplicate");
    raw::refused("dup3 to itself", number::DUP3, [number, number, 0], &[EINVAL])?;
    raw::refused("dup3's flags", number::DUP3, [number, 1000, 1], &[EINVAL])?;
    raw::refused("dup3 of nothing", number::DUP3, [9999, 1000, 0], &[EBADF])?;
    for bad in [32_768, 1 << 31, 1 << 32, usize::MAX] {
        raw::refused("dup3 to no number", number::DUP3, [number, bad, 0], &[EBADF])?;
    }
    Ok(())
}

async fn the_lowest_number_from() -> Outcome {
    let file = program()?;
    for (from, expected) in [(500, 500), (500, 501), (0, number_of(&file) + 1), (1000, 1000)] {
        let copy = control(&file, control::DUPLICATE, from)?;
        check_equal!(copy, expected, "lowest number from {from}");
    }
    raw::call(number::CLOSE, [500])?;
    check_equal!(control(&file, control::DUPLICATE, 400), Ok(400), "a number below");
    check_equal!(control(&file, control::DUPLICATE, 500), Ok(500), "a number closed before");
    // Across the end of a chunk of the table.
    for number in 126..130 {
        check_equal!(control(&file, control::DUPLICATE, 126), Ok(number), "across a chunk");
    }
    for bad in [32_768, 1 << 32, usize::MAX] {
        check_equal!(control(&file, control::DUPLICATE, bad), Err(EINVAL), "from {bad:#x}");
    }
    check_equal!(control(&file, control::DUPLICATE, 32_767), Ok(32_767), "the highest number");
    check_equal!(control(&file, control::DUPLICATE, 32_767), Err(EMFILE), "one more");
    Ok(())
}

async fn duplicates_keep_a_pipe_open() -> Outcome {
    let (mut reader, mut writer) = pipe()?;
    let mut copy = duplicate(&writer)?;
    writer.write_all(b"a").await?;
    drop(writer);
    let mut buffer = [0; 4];
    check_equal!(reader.read(&mut buffer).await?, 1, "bytes of the first");
    copy.write_all(b"bc").await?;
    check_equal!(reader.read(&mut buffer).await?, 2, "bytes of the duplicate");
    drop(copy);
    check_equal!(soon("the end", reader.read(&mut buffer)).await??, 0, "bytes at the end");
    Ok(())
}

async fn flags_of_a_descriptor() -> Outcome {
    const CLOSES: usize = control::CLOSE_ON_EXEC;
    let plain = program()?;
    let get = |fd: &Fd| control(fd, control::GET_DESCRIPTOR_FLAGS, 0);
    check_equal!(get(&plain), Ok(0), "flags of a new descriptor");
    check_equal!(control(&plain, control::SET_DESCRIPTOR_FLAGS, CLOSES), Ok(0), "setting");
    check_equal!(get(&plain), Ok(CLOSES), "flags that were set");
    check_equal!(get(&duplicate(&plain)?), Ok(0), "flags of a duplicate");
    let number = control(&plain, control::DUPLICATE_CLOSE_ON_EXEC, 0)?;
    check_equal!(get(&Fd::from_raw(number as i32)), Ok(CLOSES), "flags of such a duplicate");
    check_equal!(control(&plain, control::SET_DESCRIPTOR_FLAGS, 0), Ok(0), "clearing");
    check_equal!(get(&plain), Ok(0), "flags that were cleared");
    let opened = open_file(c"/bin/hello", open::CLOSE_ON_EXEC)?;
    check_equal!(get(&opened), Ok(CLOSES), "flags after open");
    raw::call(number::DUP3, [number_of(&plain), 700, open::CLOSE_ON_EXEC as usize])?;
    check_equal!(get(&Fd::from_raw(700)), Ok(CLOSES), "flags after dup3");
    // A number that is used again does not keep the flag.
    drop(opened);
    check_equal!(get(&program()?), Ok(0), "flags of a number used before");
    for request in [ioctl::SET_CLOSE_ON_EXEC, ioctl::CLEAR_CLOSE_ON_EXEC] {
        raw::call(number::IOCTL, [number_of(&plain), request, 0])?;
        check_equal!(get(&plain)? == CLOSES, request == ioctl::SET_CLOSE_ON_EXEC, "after ioctl");
    }
    let mut ends = [0u32; 2];
    let flags = open::CLOSE_ON_EXEC as usize;
    raw::call(number::PIPE2, [ends.as_mut_ptr().addr(), flags])?;
    for end in ends.map(|end| Fd::from_raw(end as i32)) {
        check_equal!(get(&end), Ok(CLOSES), "flags after pipe2");
    }
    let socket = Fd::from_raw(raw::call(number::SOCKET, [2, 1 | flags, 0])? as i32);
    check_equal!(get(&socket), Ok(CLOSES), "flags after socket");
    raw::refused("fcntl of nothing", number::FCNTL, [9999, control::GET_FLAGS], &[EBADF])?;
    for command in [5, 99, 1024, usize::MAX] {
        raw::refused("fcntl's command", number::FCNTL, [number_of(&plain), command], &[EINVAL])?;
    }
    raw::refused("pipe2's flags", number::PIPE2, [ends.as_mut_ptr().addr(), 1], &[EINVAL])?;
    Ok(())
}

async fn flags_of_an_open_file() -> Outcome {
    let (reader, writer) = pipe()?;
    let get = |fd: &Fd| control(fd, control::GET_FLAGS, 0);
    check_equal!(get(&reader), Ok(open::READ_ONLY as usize), "flags of a reading end");
    check_equal!(get(&writer), Ok(open::WRITE_ONLY as usize), "flags of a writing end");
    let copy = duplicate(&writer)?;
    let wanted = (open::NON_BLOCKING | open::APPEND) as usize;
    // The access mode and what is no status flag are ignored.
    let asked = wanted | open::READ_WRITE as usize | open::TRUNCATE as usize;
    check_equal!(control(&writer, control::SET_FLAGS, asked), Ok(0), "setting");
    let expected = wanted | open::WRITE_ONLY as usize;
    check_equal!(get(&copy), Ok(expected), "flags of the duplicate");
    check_equal!(get(&reader), Ok(0), "flags of the other end");
    check_equal!(control(&copy, control::SET_FLAGS, 0), Ok(0), "clearing");
    check_equal!(get(&writer), Ok(open::WRITE_ONLY as usize), "flags that were cleared");
    Ok(())
}

async fn non_blocking_calls_fail() -> Outcome {
    let mut buffer = vec![0u8; 4096];
    let place = buffer.as_mut_ptr().addr();
    let mut ends = [0u32; 2];
    raw::call(number::PIPE2, [ends.as_mut_ptr().addr(), open::NON_BLOCKING as usize])?;
    let [reader, writer] = ends.map(|end| end as usize);
    check_equal!(raw::call(number::READ, [reader, place, 16]), Err(EAGAIN), "an empty pipe");
    let mut written = 0;
    while let Ok(count) = raw::call(number::WRITE, [writer, place, 4096]) {
        written += count;
    }
    check_equal!(written, 65_536, "bytes in a full pipe");
    check_equal!(raw::call(number::WRITE, [writer, place, 16]), Err(EAGAIN), "a full pipe");
    let buffers = [place, 16, place, 16];
    let vector = buffers.as_ptr().addr();
    check_equal!(raw::call(number::WRITEV, [writer, vector, 2]), Err(EAGAIN), "writev");
    check_equal!(raw::call(number::READ, [reader, place, 16]), Ok(16), "what is there");
    let mut on = 0u32;
    raw::call(number::IOCTL, [reader, ioctl::SET_NON_BLOCKING, (&raw mut on).addr()])?;
    check_equal!(raw::call(number::FCNTL, [reader, control::GET_FLAGS]), Ok(0), "after FIONBIO");

    let flags = open::NON_BLOCKING as usize;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let number = number_of(&listener);
    raw::call(number::FCNTL, [number, control::SET_FLAGS, flags])?;
    check_equal!(raw::call(number::ACCEPT4, [number, 0, 0, flags]), Err(EAGAIN), "no connection");
    let mut address = [0; 28];
    let length = cops::abi::socket::encode(listener.local_address()?, &mut address);
    let client = raw::call(number::SOCKET, [2, 1 | flags, 0])?;
    let connected = raw::call(number::CONNECT, [client, address.as_ptr().addr(), length]);
    check!(matches!(connected, Ok(0) | Err(EINPROGRESS)), "connect: {connected:?}");
    let accepted = crate::harness::until("a connection", || {
        match raw::call(number::ACCEPT4, [number, 0, 0, flags]) {
            Err(EAGAIN) => Ok(false),
            Ok(server) => {
                let refused = raw::call(number::READ, [server, place, 16]);
                check_equal!(refused, Err(EAGAIN), "nothing received");
                raw::call(number::CLOSE, [server])?;
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    });
    accepted.await?;
    raw::call(number::CLOSE, [client])?;
    Ok(())
}

/// An asynchronous call blocks no virtual CPU, so it waits whatever the mode is.
async fn asynchronous_calls_wait_in_non_blocking_mode() -> Outcome {
    let mut ends = [0u32; 2];
    raw::call(number::PIPE2, [ends.as_mut_ptr().addr(), open::NON_BLOCKING as usize])?;
    let [mut reader, mut writer] = ends.map(|end| Fd::from_raw(end as i32));
    let reading = task::spawn_join(
        async move {
            let mut byte = [0];
            reader.read_exact(&mut byte).await.map(|()| byte[0])
        },
        Priority::DEFAULT,
    );
    cops::task::yield_now().await;
    writer.write_all(&[42]).await?;
    check_equal!(soon("a byte", reading).await???, 42, "byte");
    Ok(())
}

/// The arguments that name these buffers.
fn vector(buffers: &mut [Vec<u8>]) -> Vec<usize> {
    buffers.iter_mut().flat_map(|buffer| [buffer.as_mut_ptr().addr(), buffer.len()]).collect()
}

async fn several_buffers() -> Outcome {
    let whole = cops::fs::read(PROGRAM).await?;
    let file = program()?;
    let mut buffers = [vec![0; 3], vec![], vec![0; 5000], vec![0; 7]];
    let list = vector(&mut buffers);
    let arguments = [number_of(&file), list.as_ptr().addr(), 4];
    check_equal!(raw::call(number::READV, arguments), Ok(5010), "bytes");
    check!(buffers.concat() == whole[..5010], "readv reads something else");
    check_equal!(position(&file)?, 5010, "position after readv");
    let arguments = [number_of(&file), list.as_ptr().addr(), 4, 100];
    check_equal!(raw::call(number::PREADV, arguments), Ok(5010), "bytes of preadv");
    check!(buffers.concat() == whole[100..5110], "preadv reads something else");
    check_equal!(position(&file)?, 5010, "position after preadv");

    let (mut reader, writer) = pipe()?;
    let mut parts = [b"one ".to_vec(), vec![], b"two ".to_vec(), b"three".to_vec()];
    let list = vector(&mut parts);
    let arguments = [number_of(&writer), list.as_ptr().addr(), 4];
    check_equal!(raw::call(number::WRITEV, arguments), Ok(13), "bytes written");
    let mut text = [0; 13];
    reader.read_exact(&mut text).await?;
    check_equal!(&text, b"one two three", "what was written");
    for call in [number::READV, number::WRITEV] {
        let fd = if call == number::READV { number_of(&reader) } else { number_of(&writer) };
        check_equal!(raw::call(call, [fd, list.as_ptr().addr(), 0]), Ok(0), "no buffers");
    }
    // A read that waits fills its buffers when there is something.
    let mut places = [vec![0; 2], vec![0; 2]];
    let list = vector(&mut places);
    let Asked::InFlight(handle) =
        raw::ask(number::READV, [number_of(&reader), list.as_ptr().addr(), 2])
    else {
        return Err(Failure("a readv of an empty pipe is over".into()));
    };
    check_equal!(
        raw::call(number::WRITE, [number_of(&writer), text.as_ptr().addr(), 3]),
        Ok(3),
        ""
    );
    let Ok(()) = crate::harness::until("three bytes", || Ok(places.concat() == b"one\0")).await
    else {
        handle.cancel()?;
        return Err(Failure("the bytes have not arrived".into()));
    };
    Ok(())
}

/// The bytes of one `writev` are not mixed with those of others.
async fn a_gathered_write_is_one_write() -> Outcome {
    const EACH: usize = 200;
    let (mut reader, writer) = pipe()?;
    let writer = number_of(&writer);
    let mut writers = Vec::new();
    for letter in [b'a', b'b', b'c', b'd'] {
        writers.push(task::spawn_join(
            async move {
                let mut parts = [vec![letter; 30], vec![letter; 33], vec![b'\n']];
                let list = vector(&mut parts);
                for _ in 0..EACH {
                    let result = raw::call(number::WRITEV, [writer, list.as_ptr().addr(), 3]);
                    if result != Ok(64) {
                        return result;
                    }
                    task::yield_now().await;
                }
                Ok(EACH)
            },
            Priority::DEFAULT,
        ));
    }
    let mut line = [0; 64];
    for count in 0..4 * EACH {
        soon("a line", reader.read_exact(&mut line)).await??;
        let first = line[0];
        let same = line[..63].iter().all(|&byte| byte == first) && line[63] == b'\n';
        check!(same, "line {count}: {:?}", core::str::from_utf8(&line));
    }
    for writer in writers {
        check_equal!(writer.await?, Ok(EACH), "lines written");
    }
    Ok(())
}

async fn bad_buffers() -> Outcome {
    let (reader, writer) = pipe()?;
    let mut byte = [0u8; 8];
    let place = byte.as_mut_ptr().addr();
    for (call, fd) in [(number::READV, number_of(&reader)), (number::WRITEV, number_of(&writer))] {
        for &bad in BAD_ADDRESSES {
            raw::refused("the list", call, [fd, bad, 1], &[EFAULT])?;
            let list = [bad, 8];
            raw::refused("a buffer", call, [fd, list.as_ptr().addr(), 1], &[EFAULT])?;
        }
        let list = [place, isize::MAX as usize, place, 8];
        raw::refused("too many bytes", call, [fd, list.as_ptr().addr(), 2], &[EINVAL, EFAULT])?;
        let list = [place, usize::MAX];
        raw::refused("a negative length", call, [fd, list.as_ptr().addr(), 1], &[EINVAL])?;
        for count in [BUFFERS_MAX + 1, usize::MAX, 1 << 32] {
            raw::refused("too many buffers", call, [fd, list.as_ptr().addr(), count], &[EINVAL])?;
        }
        raw::refused("no file", call, [9999, list.as_ptr().addr(), 1], &[EBADF])?;
    }
    // As many as allowed: some of them are used.
    let list = [place, 1].repeat(BUFFERS_MAX);
    let count = raw::call(number::WRITEV, [number_of(&writer), list.as_ptr().addr(), BUFFERS_MAX])?;
    check!((1..=BUFFERS_MAX).contains(&count), "{count} bytes of {BUFFERS_MAX}");
    Ok(())
}

async fn reads_at_an_offset() -> Outcome {
    let whole = cops::fs::read(PROGRAM).await?;
    let file = program()?;
    let mut part = [0u8; 20];
    let place = part.as_mut_ptr().addr();
    for offset in [0, 1, 4090, whole.len() - 20] {
        let count = raw::call(number::PREAD64, [number_of(&file), place, 20, offset])?;
        check_equal!((count, &part[..]), (20, &whole[offset..offset + 20]), "at {offset}");
    }
    for offset in [whole.len(), 1 << 40, isize::MAX as usize] {
        let count = raw::call(number::PREAD64, [number_of(&file), place, 20, offset]);
        check_equal!(count, Ok(0), "bytes at {offset:#x}");
    }
    check_equal!(position(&file)?, 0, "position");
    let (reader, writer) = pipe()?;
    raw::refused(
        "pread64 before",
        number::PREAD64,
        [number_of(&file), place, 20, usize::MAX],
        &[EINVAL],
    )?;
    raw::refused(
        "pread64 of a pipe",
        number::PREAD64,
        [number_of(&reader), place, 20, 0],
        &[ESPIPE],
    )?;
    raw::refused(
        "pwrite64 of a pipe",
        number::PWRITE64,
        [number_of(&writer), place, 20, 0],
        &[ESPIPE],
    )?;
    raw::refused(
        "pwrite64 of a program",
        number::PWRITE64,
        [number_of(&file), place, 20, 0],
        &[EBADF],
    )?;
    raw::refused("pread64 of nothing", number::PREAD64, [9999, place, 20, 0], &[EBADF])?;
    Ok(())
}

fn status(fd: usize) -> Result<Status, Errno> {
    let mut bytes = [0; Status::BYTES];
    raw::call(number::FSTAT, [fd, bytes.as_mut_ptr().addr()])?;
    Ok(Status::from_bytes(&bytes))
}

fn status_at(directory: usize, path: &core::ffi::CStr, flags: usize) -> Result<Status, Errno> {
    let mut bytes = [0; Status::BYTES];
    let arguments = [directory, path.as_ptr().addr(), bytes.as_mut_ptr().addr(), flags];
    raw::call(number::NEWFSTATAT, arguments)?;
    Ok(Status::from_bytes(&bytes))
}

const HERE: usize = AT_FDCWD as usize;

async fn status_of_files() -> Outcome {
    let whole = cops::fs::read(PROGRAM).await?;
    let file = program()?;
    let by_number = status(number_of(&file))?;
    check_equal!(by_number.kind(), mode::REGULAR, "type of a program");
    check_equal!(by_number.size, whole.len() as u64, "size of a program");
    check!(by_number.mode & 0o111 != 0, "a program cannot be executed");
    let by_path = status_at(HERE, c"/bin/usertests", 0)?;
    check_equal!((by_path.mode, by_path.size), (by_number.mode, by_number.size), "by path");
    let by_empty_path = status_at(number_of(&file), c"", at::EMPTY_PATH)?;
    check_equal!(by_empty_path.size, by_number.size, "by an empty path");
    check_equal!(status_at(HERE, c"/bin", 0)?.kind(), mode::DIRECTORY, "type of a directory");
    let (reader, _writer) = pipe()?;
    check_equal!(status(number_of(&reader))?.kind(), mode::PIPE, "type of a pipe");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    check_equal!(status(number_of(&listener))?.kind(), mode::SOCKET, "type of a socket");
    let console = status(1)?;
    check_equal!(console.kind(), mode::CHARACTER_DEVICE, "type of the console");
    check_equal!(console.device, device_number(5, 1), "the console's number");

    let mut bytes = [0u8; Status::BYTES];
    let place = bytes.as_mut_ptr().addr();
    for &bad in BAD_ADDRESSES {
        raw::refused("fstat", number::FSTAT, [1, bad], &[EFAULT])?;
        raw::refused("stat's path", number::NEWFSTATAT, [HERE, bad, place, 0], &[EFAULT])?;
        let path = c"/bin".as_ptr().addr();
        raw::refused("stat", number::NEWFSTATAT, [HERE, path, bad, 0], &[EFAULT])?;
    }
    raw::refused("fstat of nothing", number::FSTAT, [9999, place], &[EBADF])?;
    for (path, errors) in
        [(c"/none", &[ENOENT][..]), (c"", &[ENOENT]), (c"/bin/hello/x", &[ENOENT, ENOTDIR])]
    {
        raw::refused("stat", number::NEWFSTATAT, [HERE, path.as_ptr().addr(), place, 0], errors)?;
    }
    let path = c"/bin".as_ptr().addr();
    raw::refused("stat's flags", number::NEWFSTATAT, [HERE, path, place, 1], &[EINVAL])?;
    Ok(())
}

async fn extended_status() -> Outcome {
    let mut bytes = [0u8; Status::EXTENDED_BYTES];
    let place = bytes.as_mut_ptr().addr();
    let path = c"/bin/usertests".as_ptr().addr();
    const BASIC: usize = 0x7ff;
    check_equal!(raw::call(number::STATX, [HERE, path, 0, BASIC, place]), Ok(0), "statx");
    let expected = status_at(HERE, c"/bin/usertests", 0)?;
    let size = bytes[40..].first_chunk().map(|size| u64::from_le_bytes(*size));
    check_equal!(size, Some(expected.size), "statx's size");
    check_equal!(bytes[28..30], (expected.mode as u16).to_le_bytes(), "statx's mode");
    for &bad in BAD_ADDRESSES {
        raw::refused("statx", number::STATX, [HERE, path, 0, BASIC, bad], &[EFAULT])?;
    }
    raw::refused("statx's flags", number::STATX, [HERE, path, 1, BASIC, place], &[EINVAL])?;
    let none = c"/none".as_ptr().addr();
    raw::refused("statx of nothing", number::STATX, [HERE, none, 0, BASIC, place], &[ENOENT])?;
    Ok(())
}

async fn access_to_files() -> Outcome {
    let program = c"/bin/hello".as_ptr().addr();
    for mode in [0, 1, 4, 5] {
        check_equal!(raw::call(number::FACCESSAT, [HERE, program, mode]), Ok(0), "mode {mode}");
        check_equal!(raw::call(number::FACCESSAT2, [HERE, program, mode, 0]), Ok(0), "mode {mode}");
    }
    raw::refused("to write to the root image", number::FACCESSAT, [HERE, program, 2], &[EROFS])?;
    raw::refused("faccessat's mode", number::FACCESSAT, [HERE, program, 8], &[EINVAL])?;
    raw::refused("faccessat2's flags", number::FACCESSAT2, [HERE, program, 0, 1], &[EINVAL])?;
    let none = c"/none".as_ptr().addr();
    raw::refused("faccessat of nothing", number::FACCESSAT, [HERE, none, 0], &[ENOENT])?;
    Ok(())
}

async fn requests_to_devices() -> Outcome {
    let (reader, mut writer) = pipe()?;
    writer.write_all(b"12345").await?;
    let mut count = 0u32;
    let place = (&raw mut count).expose_provenance();
    raw::call(number::IOCTL, [number_of(&reader), ioctl::UNREAD_BYTES, place])?;
    check_equal!(count, 5, "bytes in the pipe");
    let mut settings = [0u8; terminal::BYTES];
    let place = settings.as_mut_ptr().addr();
    for (what, request) in [
        ("TCGETS", ioctl::GET_TERMINAL),
        ("TCSETS", ioctl::SET_TERMINAL),
        ("TIOCGWINSZ", ioctl::GET_WINDOW_SIZE),
        ("TIOCGPGRP", ioctl::GET_FOREGROUND),
        ("no request", 99),
    ] {
        raw::refused(what, number::IOCTL, [number_of(&reader), request, place], &[ENOTTY])?;
    }
    check_equal!(raw::call(number::IOCTL, [0, ioctl::GET_TERMINAL, place]), Ok(0), "TCGETS");
    check_equal!(settings[17], 3, "the character of an interrupt");
    check_equal!(
        raw::call(number::IOCTL, [0, ioctl::SET_TERMINAL, place]),
        Ok(0),
        "TCSETS as it is"
    );
    let mut size = [0u16; 4];
    raw::call(number::IOCTL, [1, ioctl::GET_WINDOW_SIZE, size.as_mut_ptr().addr()])?;
    check!(size[0] > 0 && size[1] > 0, "a window of {size:?}");
    for &bad in BAD_ADDRESSES {
        for request in [ioctl::GET_TERMINAL, ioctl::SET_TERMINAL, ioctl::GET_WINDOW_SIZE] {
            raw::refused("ioctl", number::IOCTL, [0, request, bad], &[EFAULT])?;
        }
        let arguments = [number_of(&reader), ioctl::UNREAD_BYTES, bad];
        raw::refused("FIONREAD", number::IOCTL, arguments, &[EFAULT])?;
    }
    raw::refused("ioctl of nothing", number::IOCTL, [9999, ioctl::GET_TERMINAL, place], &[EBADF])?;
    Ok(())
}

/// A descriptor with a high number takes memory for its own part of the table only.
async fn far_numbers_cost_no_more() -> Outcome {
    let file = program()?;
    let used = || cops::process::quota(0, cops::process::Resource::Memory).map(|quota| quota.used);
    let before = used()?;
    check_equal!(control(&file, control::DUPLICATE, 32_000), Ok(32_000), "a far duplicate");
    let more = used()? - before;
    check!((512..=4096).contains(&more), "{more} bytes for a descriptor");
    check_equal!(raw::call(number::CLOSE, [32_000]), Ok(0), "close");
    Ok(())
}
