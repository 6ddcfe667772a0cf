//! UDP over loopback, with the system calls themselves. `user/linux/datagrams.c` has the details.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddr};

use cops::abi::socket::{self, ADDRESS_BYTES_MAX, AF_INET, AF_UNSPEC, SOCK_DGRAM, SOCK_STREAM};
use cops::abi::{Errno, linux::message, syscall as number};
use cops::io::{AsFd, Fd, pipe};
use cops::process::Resource;
use cops::task;
use cops::time::{Duration, sleep};
use cops::{read, write};

use crate::harness::{Failure, Outcome, soon, until};
use crate::raw::{self, Asked, BAD_ADDRESSES};
use crate::{check, check_equal, tests};

tests! { datagrams:
    sent_and_received,
    connected,
    a_cancelled_receive_takes_nothing,
    a_receive_begins_before_bind,
    closed_sockets_in_use_are_charged,
    duplicates_cost_a_number,
    what_is_refused,
}

fn raw_of(fd: &Fd) -> usize {
    fd.as_fd().raw() as usize
}

fn open(kind: usize) -> Result<Fd, Failure> {
    Ok(Fd::from_raw(raw::call(number::SOCKET, [AF_INET.into(), kind, 0])? as i32))
}

/// An address as calls take it, and its length.
struct Encoded([u8; ADDRESS_BYTES_MAX], usize);

impl Encoded {
    fn new(address: SocketAddr) -> Self {
        let mut bytes = [0; ADDRESS_BYTES_MAX];
        let length = socket::encode(address, &mut bytes);
        Self(bytes, length)
    }

    fn pointer(&self) -> usize {
        self.0.as_ptr().expose_provenance()
    }
}

fn bind(fd: &Fd) -> Result<SocketAddr, Failure> {
    let any = Encoded::new(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0));
    raw::call(number::BIND, [raw_of(fd), any.pointer(), any.1])?;
    let (mut bytes, mut length) = ([0u8; ADDRESS_BYTES_MAX], ADDRESS_BYTES_MAX as u32);
    let (place, size) =
        (bytes.as_mut_ptr().expose_provenance(), (&raw mut length).expose_provenance());
    raw::call(number::GETSOCKNAME, [raw_of(fd), place, size])?;
    Ok(socket::decode(&bytes[..length as usize])?)
}

/// A socket at any port.
fn bound() -> Result<(Fd, SocketAddr), Failure> {
    let fd = open(SOCK_DGRAM)?;
    let address = bind(&fd)?;
    Ok((fd, address))
}

fn send(fd: &Fd, bytes: &[u8], to: SocketAddr) -> Result<usize, Errno> {
    let to = Encoded::new(to);
    let from = bytes.as_ptr().expose_provenance();
    raw::call(number::SENDTO, [raw_of(fd), from, bytes.len(), 0, to.pointer(), to.1])
}

/// Receives into `buffer`; returns the sender too.
fn receive(fd: &Fd, buffer: &mut [u8], flags: usize) -> Result<(usize, SocketAddr), Errno> {
    let (mut bytes, mut length) = ([0u8; ADDRESS_BYTES_MAX], ADDRESS_BYTES_MAX as u32);
    let (place, size) =
        (bytes.as_mut_ptr().expose_provenance(), (&raw mut length).expose_provenance());
    let into = buffer.as_mut_ptr().expose_provenance();
    let count = raw::call(number::RECVFROM, [raw_of(fd), into, buffer.len(), flags, place, size])?;
    Ok((count, socket::decode(&bytes[..length as usize])?))
}

async fn sent_and_received() -> Outcome {
    let ((one, first), (other, second)) = (bound()?, bound()?);
    check_equal!(send(&one, b"hello", second), Ok(5), "sent");
    check_equal!(send(&one, b"", second), Ok(0), "without bytes");
    let mut buffer = [0; 8];
    let all = message::PEEK | message::TRUNCATED;
    check_equal!(receive(&other, &mut buffer[..3], all), Ok((5, first)), "looked at");
    check_equal!(&buffer, b"hel\0\0\0\0\0", "its begin");
    check_equal!(receive(&other, &mut buffer, 0), Ok((5, first)), "received");
    check_equal!(&buffer[..5], b"hello", "bytes");
    check_equal!(receive(&other, &mut buffer, 0), Ok((0, first)), "without bytes");
    let none = receive(&other, &mut buffer, message::DONT_WAIT);
    check_equal!(none, Err(Errno::EAGAIN), "nothing more");
    Ok(())
}

async fn connected() -> Outcome {
    let name = task::current().ok_or(Failure("no coroutine".into()))?;
    let ((one, first), (other, second)) = (bound()?, bound()?);
    for (fd, peer) in [(&one, second), (&other, first)] {
        let peer = Encoded::new(peer);
        let done = raw::call(number::CONNECT, [raw_of(fd), peer.pointer(), peer.1]);
        check_equal!(done, Ok(0), "connect");
    }
    let mut buffer = [0; 8];
    check_equal!(write!(one, b"one"), Ok(3), "synchronous write");
    check_equal!(write!(one, b"other", name).await, Ok(5), "asynchronous write");
    check_equal!(read!(other, &mut buffer), Ok(3), "one datagram");
    check_equal!(read!(other, &mut buffer, name).await, Ok(5), "the other one");
    // A read that waits.
    let writes = async {
        sleep(Duration::from_millis(5)).await;
        write!(one, b"late", name).await
    };
    let reads = async { read!(other, &mut buffer, name).await };
    let both = futures_util::future::join(reads, writes);
    check_equal!(soon("a datagram", both).await?, (Ok(4), Ok(4)), "read and written");
    // A datagram of another socket is not for it.
    let (stranger, _) = bound()?;
    check_equal!(send(&stranger, b"stray", second), Ok(5), "sent");
    check_equal!(receive(&other, &mut buffer, message::DONT_WAIT), Err(Errno::EAGAIN), "stray");
    let no_family = AF_UNSPEC.to_le_bytes();
    let arguments = [raw_of(&other), no_family.as_ptr().expose_provenance(), 2];
    check_equal!(raw::call(number::CONNECT, arguments), Ok(0), "connect to none");
    check_equal!(send(&stranger, b"heard", second), Ok(5), "sent");
    check_equal!(receive(&other, &mut buffer, 0).map(|(count, _)| count), Ok(5), "heard");
    check_equal!(write!(other, b"x"), Err(Errno::EDESTADDRREQ), "a write to none");
    Ok(())
}

async fn a_cancelled_receive_takes_nothing() -> Outcome {
    let ((one, first), (other, second)) = (bound()?, bound()?);
    let mut lost = [0xa5_u8; 8];
    let into = lost.as_mut_ptr().expose_provenance();
    let Asked::InFlight(handle) =
        raw::ask(number::RECVFROM, [raw_of(&other), into, lost.len(), 0, 0, 0])
    else {
        return Err(Failure("a receive without a datagram is over".into()));
    };
    check!(handle.cancel()?, "it was in flight");
    check_equal!(send(&one, b"kept", second), Ok(4), "sent");
    let mut buffer = [0; 8];
    check_equal!(receive(&other, &mut buffer, 0), Ok((4, first)), "received");
    check_equal!(core::hint::black_box(lost), [0xa5; 8], "the buffer of the cancelled call");
    Ok(())
}

/// A call in flight keeps a socket after `close`, and its queues stay charged as long.
async fn closed_sockets_in_use_are_charged() -> Outcome {
    const SOCKETS: u64 = 100;
    const QUEUES: u64 = 40 << 10;
    let used = || cops::process::quota(0, Resource::Memory).map(|quota| quota.used);
    let mut buffer = [0_u8; 8];
    let into = buffer.as_mut_ptr().expose_provenance();
    let before = used()?;
    let mut receives = Vec::new();
    for _ in 0..SOCKETS {
        let (socket, _) = bound()?;
        let arguments = [raw_of(&socket), into, buffer.len(), 0, 0, 0];
        let Asked::InFlight(handle) = raw::ask(number::RECVFROM, arguments) else {
            return Err(Failure("a receive without a datagram is over".into()));
        };
        receives.push(handle);
        drop(socket);
    }
    let charged = used()? - before;
    check!(charged >= SOCKETS * QUEUES, "only {charged} bytes are charged");
    for handle in receives {
        check!(handle.cancel()?, "it was in flight");
    }
    until("the memory", || Ok(used()? < before + QUEUES)).await
}

/// Duplicates of a descriptor share its file, for which the process pays once.
async fn duplicates_cost_a_number() -> Outcome {
    const DUPLICATES: usize = 100;
    let used = || cops::process::quota(0, Resource::Memory).map(|quota| quota.used);
    let (socket, _) = bound()?;
    let before = used()?;
    let mut duplicates = Vec::new();
    for _ in 0..DUPLICATES {
        duplicates.push(Fd::from_raw(raw::call(number::DUP, [raw_of(&socket)])? as i32));
    }
    let charged = used()? - before;
    check!(charged < 40 << 10, "{charged} bytes for duplicates");
    drop(duplicates);
    drop(socket);
    until("the memory", || Ok(used()? < before)).await
}

async fn a_receive_begins_before_bind() -> Outcome {
    let name = task::current().ok_or(Failure("no coroutine".into()))?;
    let (sender, receiver) = (open(SOCK_DGRAM)?, open(SOCK_DGRAM)?);
    let mut buffer = [0; 8];
    let sends = async {
        sleep(Duration::from_millis(5)).await;
        let address = bind(&receiver)?;
        Ok::<_, Failure>(send(&sender, b"late", address)?)
    };
    let reads = async { read!(receiver, &mut buffer, name).await };
    let (received, sent) = soon("a datagram", futures_util::future::join(reads, sends)).await?;
    check_equal!((received, sent?), (Ok(4), 4), "received and sent");
    Ok(())
}

async fn what_is_refused() -> Outcome {
    let (socket, address) = bound()?;
    let (reader, _writer) = pipe()?;
    let stream = open(SOCK_STREAM)?;
    let (to, bytes) = (Encoded::new(address), [0_u8; 9000]);
    let from = bytes.as_ptr().expose_provenance();
    let fd = raw_of(&socket);
    let send = |what, arguments, error| raw::refused(what, number::SENDTO, arguments, &[error]);
    send("no file", [99_999, from, 1, 0, to.pointer(), to.1], Errno::EBADF)?;
    send("a pipe", [raw_of(&reader), from, 1, 0, to.pointer(), to.1], Errno::ENOTSOCK)?;
    send("a stream", [raw_of(&stream), from, 1, 0, to.pointer(), to.1], Errno::EOPNOTSUPP)?;
    send("no peer", [fd, from, 1, 0, 0, 0], Errno::EDESTADDRREQ)?;
    send("unknown flags", [fd, from, 1, 1, to.pointer(), to.1], Errno::EOPNOTSUPP)?;
    send("a short address", [fd, from, 1, 0, to.pointer(), 3], Errno::EINVAL)?;
    send("a long address", [fd, from, 1, 0, to.pointer(), usize::MAX], Errno::EINVAL)?;
    send("a long datagram", [fd, from, 8193, 0, to.pointer(), to.1], Errno::EMSGSIZE)?;
    for &bad in BAD_ADDRESSES {
        send("bytes", [fd, bad, 8, 0, to.pointer(), to.1], Errno::EFAULT)?;
        if bad != 0 {
            send("an address", [fd, from, 1, 0, bad, to.1], Errno::EFAULT)?;
        }
        raw::refused("a receive", number::RECVFROM, [fd, bad, 8, 0, 0, 0], &[Errno::EFAULT])?;
    }
    for (what, file, error) in
        [("no file", 99_999, Errno::EBADF), ("a stream", raw_of(&stream), Errno::EOPNOTSUPP)]
    {
        raw::refused(what, number::RECVFROM, [file, from, 1, 0, 0, 0], &[error])?;
    }
    for call in [number::LISTEN, number::ACCEPT] {
        raw::refused("no stream", call, [fd, 0, 0], &[Errno::EOPNOTSUPP])?;
    }
    Ok(())
}
