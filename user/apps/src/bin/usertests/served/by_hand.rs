//! A server that reads requests and writes replies itself, and calls of clients that leave the
//! server in the same process running.
#![allow(unsafe_code)]

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use cops::abi::errno::CallResult;
use cops::abi::file::{Status, mode};
use cops::abi::layout::PAGE_BYTES;
use cops::abi::served::{BUFFER_BYTES, Reply, Request, operation};
use cops::abi::syscall as number;
use cops::call::{Call, Mode, Operation, Request as Submitted, Scratch};

use super::{SERVED, SERVERS, Server, server};
use crate::harness::{Failure, Outcome, soon};
use crate::raw::{self, Asked};
use crate::{check, check_equal};

/// A call with these arguments as a future.
pub struct Later {
    number: usize,
    arguments: [usize; 6],
}

// SAFETY: the kernel accesses what the arguments name: tests pass memory of their own, which they
// keep until the future has completed or was dropped.
unsafe impl Operation for Later {
    type Output = CallResult;

    fn request(&mut self, _mode: Mode) -> Submitted {
        Submitted { number: self.number, arguments: self.arguments }
    }

    fn finish(&mut self, result: CallResult, _scratch: &Scratch) -> CallResult {
        result
    }
}

/// Makes a call asynchronously.
pub fn later<const COUNT: usize>(number: usize, arguments: [usize; COUNT]) -> Call<Later> {
    let mut all = [0; 6];
    all[..COUNT].copy_from_slice(&arguments);
    Call::new(Later { number, arguments: all })
}

/// A server by hand.
pub struct Hand {
    server: Server,
    /// For requests; a page longer than necessary.
    memory: Vec<u8>,
    /// Nodes that need not be known any longer, with counts.
    pub forgotten: Vec<(u64, u64)>,
    /// Requests that have become more urgent, with their levels.
    pub raised: Vec<(u64, u32)>,
}

impl Hand {
    /// The first server of this test, mounted.
    pub async fn mounted() -> Result<Self, Failure> {
        let server = server(0);
        server.mount(SERVED, super::ROOT).await?;
        Ok(Self::new(server))
    }

    /// The same, and the kernel keeps pages of its files.
    pub async fn mounted_cached() -> Result<Self, Failure> {
        let server = server(0);
        server.mount_cached(SERVED, super::ROOT).await?;
        Ok(Self::new(server))
    }

    /// The same, and it keeps writes.
    pub async fn mounted_keeping_writes() -> Result<Self, Failure> {
        let server = server(0);
        server.mount_keeping_writes(SERVED, super::ROOT).await?;
        Ok(Self::new(server))
    }

    /// The same, with the disk of its file system.
    pub async fn mounted_on_disk(disk: cops::io::BorrowedFd<'_>) -> Result<Self, Failure> {
        let server = server(0);
        server.mount_on_disk(SERVED, super::ROOT, disk).await?;
        Ok(Self::new(server))
    }

    fn new(server: Server) -> Self {
        let memory = vec![0; BUFFER_BYTES + PAGE_BYTES];
        Self { server, memory, forgotten: Vec::new(), raised: Vec::new() }
    }

    /// The number of its descriptor.
    pub fn fd(&self) -> usize {
        SERVERS[0]
    }

    /// Closes its descriptor.
    pub fn close(self) {
        drop(self.server);
    }

    fn start(&self) -> usize {
        self.memory.as_ptr().addr().wrapping_neg() % PAGE_BYTES
    }

    /// Reads a request that is no `FORGET`, with its names and data. Notes each `FORGET`, which it
    /// answers, and each `RAISE`.
    pub async fn next(&mut self) -> Result<(Request, Vec<u8>), Failure> {
        loop {
            let (header, rest) = self.next_message().await?;
            match header.operation {
                operation::FORGET => {
                    for pair in rest.as_chunks::<8>().0.as_chunks::<2>().0 {
                        let [node, count] = pair.map(u64::from_le_bytes);
                        self.forgotten.push((node, count));
                    }
                    let reply = Reply { id: header.id, ..Reply::default() };
                    check_equal!(self.reply(reply, &[]), Ok(Reply::BYTES), "a reply to it");
                }
                operation::RAISE => self.raised.push((header.id, header.priority)),
                _ => return Ok((header, rest)),
            }
        }
    }

    /// Reads what is next, with its names and data.
    pub async fn next_message(&mut self) -> Result<(Request, Vec<u8>), Failure> {
        let start = self.start();
        let place = self.memory.as_mut_ptr().expose_provenance() + start;
        let read = later(number::READ, [self.fd(), place, BUFFER_BYTES]);
        let count = soon("a request", read).await??;
        check!(count >= Request::BYTES, "a request of {count} bytes");
        let bytes = &self.memory[start..start + count];
        let header = bytes.first_chunk().and_then(Request::from_bytes);
        let header = header.ok_or(Failure("a request of another version".into()))?;
        check!(header.length as usize == count, "{header:?} has {count} bytes");
        Ok((header, bytes[Request::BYTES..].to_vec()))
    }

    /// There is nothing to read.
    pub fn finds_nothing(&mut self) -> Outcome {
        let start = self.start();
        let place = self.memory.as_mut_ptr().expose_provenance() + start;
        match raw::ask(number::READ, [self.fd(), place, BUFFER_BYTES]) {
            Asked::InFlight(handle) => check!(handle.cancel()?, "there was something to read"),
            Asked::Done(result) => {
                let header = self.memory[start..].first_chunk().and_then(Request::from_bytes);
                return Err(Failure(format!("{result:?} was to be read: {header:?}")));
            }
        }
        Ok(())
    }

    /// Writes a reply as it is.
    pub fn write(&self, bytes: &[u8]) -> CallResult {
        write_to(self.fd(), bytes)
    }

    /// Writes a reply with its data, and its right length.
    pub fn reply(&self, reply: Reply, data: &[u8]) -> CallResult {
        let length = (Reply::BYTES + data.len()) as u32;
        let mut bytes = Reply { length, ..reply }.to_bytes().to_vec();
        bytes.extend_from_slice(data);
        self.write(&bytes)
    }

    /// Writes the reply of a server that has a directory 1 with file 2, directory 3 and link 4 at
    /// every name that begins with `f`, `d` and `l`.
    pub fn answer(&self, request: &Request, rest: &[u8]) -> CallResult {
        let (reply, data) = honest(request, rest);
        self.reply(reply, &data)
    }
}

/// Writes a reply as it is, from the beginning of a page: a write pins so many pages that the
/// longest reply fits only then.
fn write_to(server: usize, bytes: &[u8]) -> CallResult {
    let mut memory = vec![0; bytes.len() + PAGE_BYTES];
    let start = memory.as_ptr().addr().wrapping_neg() % PAGE_BYTES;
    memory[start..start + bytes.len()].copy_from_slice(bytes);
    let place = memory.as_ptr().expose_provenance() + start;
    raw::call(number::WRITE, [server, place, bytes.len()])
}

/// Writes to a server the reply to request `id` that there is no such name.
pub fn deny(server: usize, id: u64) -> CallResult {
    let reply = Reply { length: Reply::BYTES as u32, id, error: 2, ..Reply::default() };
    write_to(server, &reply.to_bytes())
}

/// What is known of one of the nodes.
pub fn status(number: u64) -> Status {
    let kind = match number {
        2 => mode::REGULAR,
        4 => mode::LINK,
        _ => mode::DIRECTORY,
    };
    Status { number, size: 4, ..Status::new(kind, 0o755) }
}

/// The reply of [`Hand::answer`].
pub fn honest(request: &Request, rest: &[u8]) -> (Reply, Vec<u8>) {
    let reply = Reply { id: request.id, ..Reply::default() };
    let of = |number: u64| Reply { status: status(number), ..reply };
    match request.operation {
        operation::LOOK_UP => match rest.first() {
            Some(b'f') => (of(2), vec![]),
            Some(b'd') => (of(3), vec![]),
            Some(b'l') => (of(4), vec![]),
            Some(b'.') => (of(1), vec![]),
            _ => (Reply { error: 2, ..reply }, vec![]),
        },
        operation::CREATE => (of(2), vec![]),
        operation::MAKE_DIRECTORY => (of(3), vec![]),
        operation::MAKE_LINK => (of(4), vec![]),
        operation::GET_STATUS => (of(request.node), vec![]),
        operation::READ => (reply, b"data"[..4.min(request.second as usize)].to_vec()),
        operation::WRITE => {
            let end = request.first + request.second;
            (Reply { value: request.second, place: end, ..reply }, vec![])
        }
        operation::READ_LINK => (reply, b"f".to_vec()),
        operation::PLACE => (of(1), b"d".to_vec()),
        operation::USAGE => (reply, vec![0; 24]),
        _ => (reply, vec![]),
    }
}
