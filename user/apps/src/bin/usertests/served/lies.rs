//! Servers that lie: replies without a request, of wrong sizes, types, numbers and names.

use alloc::vec;
use core::pin::pin;

use cops::abi::file::Status;
use cops::abi::served::{Reply, Request, VERSION, operation};

use futures_util::future::{Either, select};

use super::by_hand::{Hand, honest, later, status};
use super::*;

tests! { served:
    replies_that_are_none,
    replies_that_lie,
    garbage_for_every_operation,
    buffers_of_a_server,
}

const HERE: usize = AT_FDCWD as usize;

/// What a client does. Each makes some requests, the last one with the operation of its name.
#[derive(Clone, Copy, Debug)]
enum Client {
    LookUp,
    GetStatus,
    Read,
    Write,
    List,
    ReadLink,
    Create,
    MakeDirectory,
    Usage,
    Place,
    Resize,
    Rename,
    Synchronise,
}

/// The operation of which the reply is a lie.
fn operation_of(client: Client) -> u16 {
    match client {
        Client::LookUp => operation::LOOK_UP,
        Client::GetStatus => operation::GET_STATUS,
        Client::Read => operation::READ,
        Client::Write => operation::WRITE,
        Client::List => operation::LIST,
        Client::ReadLink => operation::READ_LINK,
        Client::Create => operation::CREATE,
        Client::MakeDirectory => operation::MAKE_DIRECTORY,
        Client::Usage => operation::USAGE,
        Client::Place => operation::PLACE,
        Client::Resize => operation::SET_STATUS,
        Client::Rename => operation::RENAME,
        Client::Synchronise => operation::SYNCHRONISE,
    }
}

const CLIENTS: [Client; 13] = [
    Client::LookUp,
    Client::GetStatus,
    Client::Read,
    Client::Write,
    Client::List,
    Client::ReadLink,
    Client::Create,
    Client::MakeDirectory,
    Client::Usage,
    Client::Place,
    Client::Resize,
    Client::Rename,
    Client::Synchronise,
];

async fn open_at(path: &core::ffi::CStr, flags: u32) -> Result<Fd, Errno> {
    let arguments = [HERE, path.as_ptr().expose_provenance(), flags as usize, 0o666];
    later(number::OPENAT, arguments).await.map(|fd| Fd::from_raw(fd as i32))
}

/// Makes the calls of a client. Returns what the last one has returned.
async fn perform(client: Client) -> Result<usize, Errno> {
    let mut bytes = vec![0u8; 1024];
    let place = bytes.as_mut_ptr().expose_provenance();
    let (file, directory, none) = (c"/disk/f", c"/disk/d", c"/disk/n");
    let [file_at, directory_at, none_at] =
        [file, directory, none].map(|path| path.as_ptr().expose_provenance());
    let number_of = |fd: &Fd| fd.raw() as usize;
    match client {
        Client::LookUp | Client::GetStatus => {
            later(number::NEWFSTATAT, [HERE, file_at, place, 0]).await
        }
        Client::Read => {
            let fd = open_at(file, open::READ_ONLY).await?;
            later(number::READ, [number_of(&fd), place, 100]).await
        }
        Client::Write => {
            let fd = open_at(file, open::WRITE_ONLY).await?;
            later(number::WRITE, [number_of(&fd), place, 100]).await
        }
        Client::List => {
            let fd = open_at(directory, open::DIRECTORY).await?;
            let arguments = [number_of(&fd), place, bytes.len()];
            later(number::GETDENTS64, arguments).await?;
            later(number::GETDENTS64, arguments).await
        }
        Client::ReadLink => {
            let link = c"/disk/l".as_ptr().expose_provenance();
            later(number::READLINKAT, [HERE, link, place, bytes.len()]).await
        }
        Client::Create => {
            let flags = open::CREATE | open::WRITE_ONLY;
            open_at(none, flags).await.map(|_| 0)
        }
        Client::MakeDirectory => later(number::MKDIRAT, [HERE, none_at, 0o777]).await,
        Client::Usage => later(number::STATFS, [file_at, place]).await,
        Client::Place => {
            later(number::CHDIR, [directory_at]).await?;
            let found = later(number::GETCWD, [place, bytes.len()]).await;
            raw::call(number::CHDIR, [c"/".as_ptr().addr()])?;
            found
        }
        Client::Resize => later(number::TRUNCATE, [file_at, 5]).await,
        Client::Rename => later(number::RENAMEAT2, [HERE, file_at, HERE, none_at, 0]).await,
        Client::Synchronise => {
            let fd = open_at(file, open::READ_ONLY).await?;
            later(number::FSYNC, [number_of(&fd)]).await
        }
    }
}

/// Serves a client honestly, except for requests with its own operation, to which `lie` replies.
/// Returns what the client has got.
async fn serve(
    hand: &mut Hand,
    client: Client,
    mut lie: impl FnMut(&Hand, &Request, &[u8]) -> Outcome,
) -> Result<Result<usize, Errno>, Failure> {
    let running = task::spawn_join(perform(client), Priority::saturating(20));
    let lied = operation_of(client);
    let mut lies = 0;
    // The number of honest requests before the lie is that of the client's other operations.
    while lies == 0 {
        let (request, rest) = hand.next().await?;
        if request.operation == lied {
            lies += 1;
            lie(hand, &request, &rest)?;
        } else {
            hand.answer(&request, &rest)?;
        }
    }
    // What comes after a lie that the kernel has believed.
    let mut running = running;
    loop {
        match before(hand, &mut running).await? {
            Either::Left(result) => return Ok(result?),
            Either::Right((request, rest)) => {
                hand.answer(&request, &rest)?;
            }
        }
    }
}

/// The result of a client, or the next request that the server gets before it.
async fn before<F: Future + Unpin>(
    hand: &mut Hand,
    client: &mut F,
) -> Result<Either<F::Output, (Request, Vec<u8>)>, Failure> {
    match select(client, pin!(hand.next())).await {
        Either::Left((result, _)) => Ok(Either::Left(result)),
        Either::Right((request, _)) => request.map(Either::Right),
    }
}

/// The kernel takes replies only to requests that the server has read, once, and of its version.
async fn replies_that_are_none() -> Outcome {
    let mut hand = Hand::mounted().await?;
    let reply = Reply { length: Reply::BYTES as u32, ..Reply::default() };
    for id in [64, 65, 128, u64::MAX] {
        check_equal!(hand.reply(Reply { id, ..reply }, &[]), Err(ENOENT), "reply {id}");
    }
    check_equal!(hand.reply(Reply { id: 5, ..reply }, &[]), Ok(Reply::BYTES), "to a forget");
    for length in [0, 1, Reply::BYTES - 1] {
        check_equal!(hand.write(&reply.to_bytes()[..length]), Err(EINVAL), "{length} bytes");
    }
    let found = serve(&mut hand, Client::LookUp, |hand, request, rest| {
        let (reply, data) = honest(request, rest);
        for id in [request.id + 1, request.id - 1, request.id | 1 << 63] {
            check_equal!(hand.reply(Reply { id, ..reply }, &data), Err(ENOENT), "a wrong number");
        }
        let mut bytes = Reply { length: Reply::BYTES as u32, ..reply }.to_bytes();
        bytes[4] = VERSION as u8 + 1;
        check_equal!(hand.write(&bytes), Err(EINVAL), "another version");
        check_equal!(hand.reply(reply, &data), Ok(Reply::BYTES), "the reply");
        check_equal!(hand.reply(reply, &data), Err(ENOENT), "a second reply");
        Ok(())
    });
    check_equal!(found.await?, Ok(0), "the caller's result");
    Ok(())
}

/// Entries of a directory as `getdents64` returns them.
fn record(place: u64, name: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = 7u64.to_le_bytes().to_vec();
    bytes.extend_from_slice(&place.to_le_bytes());
    bytes.extend_from_slice(&(length as u16).to_le_bytes());
    bytes.push(8);
    bytes.extend_from_slice(name);
    bytes.resize(bytes.len().max(length), 0);
    bytes
}

/// A lie, with what its caller and its server get.
type Lie = (&'static str, Client, Reply, Vec<u8>, Errno);

fn lies() -> Vec<Lie> {
    let ok = Reply::default();
    let error = |error| Reply { error, ..ok };
    let of = |status: Status| Reply { status, ..ok };
    let file = status(2);
    let mut lies = vec![
        ("an unknown error", Client::GetStatus, error(4000), vec![], EIO),
        ("a huge error", Client::GetStatus, error(u32::MAX), vec![], EIO),
        ("too many calls", Client::GetStatus, error(EAGAIN as u32), vec![], EIO),
        ("interrupted", Client::GetStatus, error(EINTR as u32), vec![], EIO),
        ("an error", Client::GetStatus, error(EROFS as u32), vec![], EROFS),
        ("node 0", Client::LookUp, of(Status { number: 0, ..file }), vec![], EIO),
        ("no type", Client::LookUp, of(Status { mode: 0o644, ..file }), vec![], EIO),
        ("every type", Client::LookUp, of(Status { mode: u32::MAX, ..file }), vec![], EIO),
        ("a changed type", Client::GetStatus, of(status(3)), vec![], EIO),
        ("a huge size", Client::GetStatus, of(Status { size: 1 << 63, ..file }), vec![], EIO),
        ("a directory as a file", Client::Create, of(status(3)), vec![], EIO),
        ("a file as a directory", Client::MakeDirectory, of(file), vec![], EIO),
        ("nothing written", Client::Write, ok, vec![], EIO),
        ("too much written", Client::Write, Reply { value: 101, ..ok }, vec![], EIO),
        ("far too much", Client::Write, Reply { value: u64::MAX, ..ok }, vec![], EIO),
        ("an empty link", Client::ReadLink, ok, vec![], EIO),
        ("a zero in a link", Client::ReadLink, ok, b"a\0b".to_vec(), EIO),
        ("a link that is no text", Client::ReadLink, ok, vec![0xff, 0xfe], EIO),
        ("half of the usage", Client::Usage, ok, vec![0; 12], EIO),
        ("an empty name", Client::Place, of(status(1)), vec![], EIO),
        ("a path as a name", Client::Place, of(status(1)), b"a/b".to_vec(), EIO),
        ("a file above", Client::Place, of(file), b"d".to_vec(), EIO),
    ];
    for (what, records) in [
        ("an empty name", record(3, b"", 24)),
        ("a slash", record(3, b"a/b", 24)),
        ("a dot", record(3, b".", 24)),
        ("two dots", record(3, b"..", 24)),
        ("place 0", record(0, b"a", 24)),
        ("place 2", record(2, b"a", 24)),
        ("a negative place", record(1 << 63, b"a", 24)),
        ("no length", record(3, b"a", 0)),
        ("a length of 8", record(3, b"a", 8)),
        ("a length behind the end", record(3, b"a", 24)[..20].to_vec()),
        ("a name without an end", record(3, b"abcde", 24)),
        ("a second record", [record(3, b"a", 24), record(3, b"b/", 24)].concat()),
        ("a part of a record", [record(3, b"a", 24), vec![1; 5]].concat()),
    ] {
        lies.push((what, Client::List, ok, records, EIO));
    }
    lies
}

async fn replies_that_lie() -> Outcome {
    let mut hand = Hand::mounted().await?;
    for (what, client, lie, data, expected) in lies() {
        let found = serve(&mut hand, client, |hand, request, _| {
            let written = hand.reply(Reply { id: request.id, ..lie }, &data);
            check_equal!(written, Ok(Reply::BYTES + data.len()), "{what}: the write");
            Ok(())
        });
        check_equal!(found.await?, Err(expected), "{what}: the caller's result");
    }
    // A reply of a wrong size is an error of the server, too.
    for (client, data) in [
        (Client::Read, 101),
        (Client::Read, 5_000),
        (Client::Write, 1),
        (Client::LookUp, 1),
        (Client::List, 2_000),
        (Client::ReadLink, 5_000),
        (Client::Place, 256),
        (Client::Usage, 25),
        (Client::Synchronise, 16),
    ] {
        let found = serve(&mut hand, client, |hand, request, _| {
            let reply = Reply { id: request.id, ..Reply::default() };
            check_equal!(hand.reply(reply, &vec![b'x'; data]), Err(EINVAL), "{client:?}, {data}");
            check_equal!(hand.reply(reply, &[]), Err(ENOENT), "{client:?}: a better reply");
            Ok(())
        });
        check_equal!(found.await?, Err(EIO), "{client:?} with {data} bytes");
    }
    for length in [0, 1, Reply::BYTES - 1, Reply::BYTES + 1, usize::MAX] {
        let found = serve(&mut hand, Client::Rename, |hand, request, _| {
            let length = length as u32;
            let reply = Reply { id: request.id, length, ..Reply::default() };
            check_equal!(hand.write(&reply.to_bytes()), Err(EINVAL), "length {length}");
            Ok(())
        });
        check_equal!(found.await?, Err(EIO), "the caller's result");
    }
    // And the truth is believed.
    for client in CLIENTS {
        let found = serve(&mut hand, client, |hand, request, rest| {
            hand.answer(request, rest)?;
            Ok(())
        });
        let found = found.await?;
        check!(found.is_ok(), "{client:?}: {found:?}");
    }
    Ok(())
}

/// Random replies to every operation: the caller gets something, and the kernel lives.
async fn garbage_for_every_operation() -> Outcome {
    const ROUNDS: usize = 40;
    let mut hand = Hand::mounted().await?;
    let mut garbage = raw::Garbage::new(0x5eed_0032);
    for round in 0..ROUNDS {
        for client in CLIENTS {
            let found = serve(&mut hand, client, |hand, request, rest| {
                let (mut reply, mut data) = honest(request, rest);
                // One or more fields are garbage.
                let fields = garbage.next();
                let small = |garbage: &mut raw::Garbage| garbage.next() as u64 % 5;
                if fields & 1 != 0 {
                    reply.status.number = small(&mut garbage);
                }
                if fields & 2 != 0 {
                    reply.status.mode = garbage.next() as u32;
                }
                if fields & 4 != 0 {
                    (reply.value, reply.place) = (garbage.next() as u64, garbage.next() as u64);
                }
                if fields & 8 != 0 {
                    reply.status.size = garbage.next() as u64;
                }
                if fields & 48 == 48 {
                    reply.error = garbage.next() as u32 % 140;
                }
                if fields & 64 != 0 {
                    data = (0..garbage.next() % 600).map(|_| garbage.next() as u8).collect();
                }
                let written = hand.reply(reply, &data);
                let is_known = matches!(written, Ok(_) | Err(EINVAL));
                check!(is_known, "round {round}, {client:?}: the server gets {written:?}");
                Ok(())
            });
            let _ = found.await?;
        }
    }
    Ok(())
}

/// Reads into buffers that are too small, or unaligned.
async fn buffers_of_a_server() -> Outcome {
    let mut hand = Hand::mounted().await?;
    let memory = vec![0u8; 40 * 1024];
    let start = memory.as_ptr().expose_provenance().next_multiple_of(4096);
    for (what, place, length) in
        [("nothing", start, 0), ("a little", start, 4096), ("too little", start, 8191)]
    {
        raw::refused(what, number::READ, [hand.fd(), place, length], &[EINVAL])?;
    }
    raw::refused("bad memory", number::READ, [hand.fd(), 8, 20_000], &[EFAULT])?;
    // What is written is cut to what fits.
    let data = vec![7u8; 20_000];
    let written = async {
        let mut file = OpenOptions::new().write(true).open("/disk/f").await?;
        file.write(&data).await
    };
    let mut writer = pin!(written);
    let ended = || Failure("the writer has ended".into());
    for _ in 0..2 {
        match before(&mut hand, &mut writer).await? {
            Either::Left(_) => return Err(ended()),
            Either::Right((request, rest)) => {
                hand.answer(&request, &rest)?;
            }
        }
    }
    let poll = async {
        let read = later(number::READ, [hand.fd(), start + 100, 8192]);
        match select(&mut writer, read).await {
            Either::Left(_) => Err(ended()),
            Either::Right((count, _)) => Ok(count?),
        }
    };
    let count = soon("a request to write", poll).await??;
    let header = memory[start - memory.as_ptr().addr() + 100..].first_chunk();
    let request = header.and_then(Request::from_bytes).unwrap_or_default();
    check_equal!(request.operation, operation::WRITE, "the operation");
    check_equal!(request.second as usize, count - Request::BYTES, "bytes to write");
    check_equal!(count, 8192, "bytes of the request");
    let reply =
        Reply { id: request.id, value: request.second, place: request.second, ..Reply::default() };
    hand.reply(reply, &[])?;
    check_equal!(soon("the writer", writer).await??, count - Request::BYTES, "bytes written");
    Ok(())
}
