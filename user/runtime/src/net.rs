//! TCP: listeners, streams, and the two halves of a stream.
//!
//! May touch: sockets of this process.

use alloc::sync::Arc;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use cops_abi::errno::CallResult;
use cops_abi::linux::socket_option;
use cops_abi::socket::{self, ADDRESS_BYTES_MAX};
use cops_abi::syscall::{ACCEPT4, CONNECT};

use crate::call::standing::StandingRead;
use crate::call::{Call, Mode, Operation, Request, Scratch, Whole, leftover};
use crate::io::{
    AsFd, BorrowedFd, Buffer, ErrorType, Fd, Read, ReadOwned, Result, fill, implement_stream,
};
use crate::system::{self, End};
use crate::time::Duration;

pub use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Maximum number of connections that wait to be accepted, unless
/// [`TcpListener::bind_with_backlog`] sets another.
pub const DEFAULT_BACKLOG: u32 = 1024;

/// The directions of a stream to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Nothing more will be read.
    Read = 0,
    /// The peer reads the end of the stream.
    Write = 1,
    /// Both.
    Both = 2,
}

/// A listening socket. Dropping it closes it and resets the connections that were not accepted.
#[derive(Debug)]
pub struct TcpListener {
    fd: Fd,
}

impl TcpListener {
    /// Listens on `address`; port 0 takes any free port. `[::]` accepts IPv4 as well.
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`, `EMFILE`, `ENOMEM`.
    pub fn bind(address: impl Into<SocketAddr>) -> Result<Self> {
        Self::bind_with_backlog(address, DEFAULT_BACKLOG)
    }

    /// [`bind`](Self::bind) with room for `backlog` connections that wait to be accepted.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn bind_with_backlog(address: impl Into<SocketAddr>, backlog: u32) -> Result<Self> {
        let address = address.into();
        let fd = new_socket(address)?;
        system::bind(fd.raw(), address)?;
        system::listen(fd.raw(), backlog)?;
        Ok(Self { fd })
    }

    /// Accepts the next connection. Cancel-safe: dropping the future loses no connection. One that
    /// has arrived by then is kept for the next call of `accept`. A call that waits already does
    /// not get it, but the next one to arrive. So where several coroutines accept from one
    /// listener, one that has dropped such a future should call `accept` again.
    ///
    /// # Errors
    /// `EMFILE`: this process has reached its limit of descriptors; the connection waits. `ENOMEM`:
    /// it has no memory, or no quota, for the connection, which waits too.
    /// `ECONNABORTED`: the connection ended before it could be accepted.
    pub async fn accept(&self) -> Result<TcpStream> {
        let fd = Call::new(Accept::new(self.as_fd())).await?;
        Ok(TcpStream { fd })
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// A bound socket has none.
    pub fn local_address(&self) -> Result<SocketAddr> {
        Ok(system::socket_address(self.fd.raw(), End::Local)?)
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A connection. Dropping it closes it: what was written is still delivered.
#[derive(Debug)]
pub struct TcpStream {
    fd: Fd,
}

impl TcpStream {
    /// Connects to `address`. Dropping the future before it is ready cancels the attempt.
    ///
    /// # Errors
    /// `ECONNREFUSED`, `ETIMEDOUT`, `ENETUNREACH`, `EADDRNOTAVAIL`, `EMFILE`, `ENOMEM`.
    pub async fn connect(address: impl Into<SocketAddr>) -> Result<Self> {
        let address = address.into();
        let stream = Self { fd: new_socket(address)? };
        Call::new(Connect::new(stream.as_fd(), address)).await?;
        Ok(stream)
    }

    /// The connection of a descriptor, for instance one that `accept!` returned.
    #[must_use]
    pub fn from_fd(fd: Fd) -> Self {
        Self { fd }
    }

    /// Reads until the bytes of `buffer` from `start` on are filled, without a copy; see [`fill`].
    ///
    /// # Errors
    /// As [`fill`].
    pub fn fill<B: Buffer>(&mut self, buffer: B, start: usize) -> Whole<ReadOwned<'_, B>> {
        fill(&self.fd, buffer, start)
    }

    /// Shuts down one or both directions.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn shutdown(&self, how: Shutdown) -> Result<()> {
        Ok(system::shutdown(self.fd.raw(), how as usize)?)
    }

    /// Limits how long a synchronous write waits: `write!(stream, bytes)` without a coroutine. At
    /// the limit it fails with `EAGAIN`. `None`: no limit, which is how a stream begins.
    ///
    /// # Errors
    /// None for a limit that is not zero; zero is none.
    pub fn set_write_timeout(&self, limit: Option<Duration>) -> Result<()> {
        let option = socket_option::SEND_TIMEOUT;
        Ok(system::set_socket_timeout(self.fd.raw(), option, limit.unwrap_or_default())?)
    }

    /// The local address.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn local_address(&self) -> Result<SocketAddr> {
        Ok(system::socket_address(self.fd.raw(), End::Local)?)
    }

    /// The peer's address.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn peer_address(&self) -> Result<SocketAddr> {
        Ok(system::socket_address(self.fd.raw(), End::Peer)?)
    }

    /// Splits the stream into its two directions, for two coroutines. The connection is closed when
    /// both are dropped. Without memory for what the halves share, the process ends.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        let fd = Arc::new(self.fd);
        (OwnedReadHalf { fd: fd.clone() }, OwnedWriteHalf { fd })
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl ErrorType for TcpStream {
    type Error = crate::io::Error;
}

implement_stream!(TcpStream: Read);
implement_stream!(TcpStream: Write by to_connection);

/// The reading direction of a [`TcpStream`].
#[derive(Debug)]
pub struct OwnedReadHalf {
    fd: Arc<Fd>,
}

impl OwnedReadHalf {
    /// See [`TcpStream::fill`].
    ///
    /// # Errors
    /// As [`fill`].
    pub fn fill<B: Buffer>(&mut self, buffer: B, start: usize) -> Whole<ReadOwned<'_, B>> {
        fill(&*self.fd, buffer, start)
    }

    /// Limits how long a synchronous read waits: `read!(half, buffer)` without a coroutine. At the
    /// limit it fails with `EAGAIN`. `None`: no limit, which is how a stream begins.
    ///
    /// # Errors
    /// None for a limit that is not zero; zero is none.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> Result<()> {
        let option = socket_option::RECEIVE_TIMEOUT;
        Ok(system::set_socket_timeout(self.fd.raw(), option, limit.unwrap_or_default())?)
    }

    /// The same direction as a read that stands, of up to `capacity` bytes at once: at most those
    /// are received before they are asked for.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn incoming(self, capacity: usize) -> Result<Incoming> {
        Ok(Incoming { standing: StandingRead::new(self.fd.raw(), capacity)?, fd: self.fd })
    }
}

/// The reading direction of a [`TcpStream`] as one call that stands: the kernel receives into a
/// small buffer of its own accord each time that has been emptied. For a connection that is read in
/// a loop, this costs less than a call for each read.
///
/// Made by [`OwnedReadHalf::incoming`]. One coroutine at a time reads; if another one continues,
/// the call is made anew.
#[derive(Debug)]
pub struct Incoming {
    // Cancelled before the descriptor is closed, in this order.
    standing: StandingRead,
    fd: Arc<Fd>,
}

impl Incoming {
    /// Takes what has been received, and reads the rest without a copy until the bytes of `buffer`
    /// from `start` on are filled; see [`fill`].
    ///
    /// Nothing is taken before the first poll: a future that is dropped before has no effect.
    /// Otherwise not cancel-safe, as [`fill`].
    ///
    /// # Errors
    /// As [`fill`].
    pub fn fill<B: Buffer>(&mut self, buffer: B, start: usize) -> Fill<'_, B> {
        let rest = fill(&*self.fd, buffer, start);
        Fill { standing: &mut self.standing, rest, bytes: NOT_BEGUN }
    }
}

/// Instead of a number of bytes, which is smaller.
const NOT_BEGUN: usize = usize::MAX;

/// The future of [`Incoming::fill`].
#[must_use = "a call does nothing unless awaited"]
pub struct Fill<'a, B: Buffer> {
    standing: &'a mut StandingRead,
    rest: Whole<ReadOwned<'a, B>>,
    /// How many bytes `rest` reads, or [`NOT_BEGUN`] before the first poll. An idle connection may
    /// contain this, so there is no field of its own for that.
    bytes: usize,
}

impl<B: Buffer> fmt::Debug for Fill<'_, B> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Fill").field(&self.rest).finish()
    }
}

impl<B: Buffer> Future for Fill<'_, B> {
    type Output = (Result<()>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let fill = &mut *self;
        if fill.bytes == NOT_BEGUN {
            // Otherwise both reads would wait for the same bytes.
            fill.standing.rest();
            fill.bytes = fill.rest.operation().begin_with(|bytes| fill.standing.take(bytes));
        }
        let output = ready!(Pin::new(&mut fill.rest).poll(context));
        if output.0.is_ok() {
            fill.standing.pass(fill.bytes);
        }
        Poll::Ready(output)
    }
}

impl AsFd for Incoming {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl ErrorType for Incoming {
    type Error = crate::io::Error;
}

impl Read for Incoming {
    /// Cancel-safe: a dropped read loses nothing.
    async fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let count = poll_fn(|context| self.standing.poll_read(context, buffer)).await;
        Ok(count?)
    }
}

impl AsFd for OwnedReadHalf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl ErrorType for OwnedReadHalf {
    type Error = crate::io::Error;
}

implement_stream!(OwnedReadHalf: Read);

/// The writing direction of a [`TcpStream`]. Dropping it shuts that direction down: the peer reads
/// the end.
#[derive(Debug)]
pub struct OwnedWriteHalf {
    fd: Arc<Fd>,
}

impl OwnedWriteHalf {
    /// See [`TcpStream::shutdown`]. Shutting down both directions also ends a read that waits on
    /// the other half.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn shutdown(&self, how: Shutdown) -> Result<()> {
        Ok(system::shutdown(self.fd.raw(), how as usize)?)
    }
}

impl AsFd for OwnedWriteHalf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl ErrorType for OwnedWriteHalf {
    type Error = crate::io::Error;
}

implement_stream!(OwnedWriteHalf: Write by to_connection);

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        // If it is not connected any more, the peer has already seen an end.
        let _ = system::shutdown(self.fd.raw(), Shutdown::Write as usize);
    }
}

fn new_socket(address: SocketAddr) -> Result<Fd> {
    Ok(Fd::from_raw(system::tcp_socket(address)? as i32))
}

/// `accept(listener)`: the descriptor of a connection.
#[derive(Debug)]
pub struct Accept<'a> {
    listener: BorrowedFd<'a>,
}

impl<'a> Accept<'a> {
    /// Accepts from `listener`.
    pub fn new(listener: BorrowedFd<'a>) -> Self {
        Self { listener }
    }
}

// SAFETY: the call passes no memory to the kernel; the peer's address is queried separately.
#[allow(unsafe_code)]
unsafe impl Operation for Accept<'_> {
    type Output = core::result::Result<Fd, cops_abi::Errno>;

    fn shortcut(&mut self) -> Option<Self::Output> {
        leftover::take_connection(self.listener.raw()).map(Ok)
    }

    fn request(&mut self, _mode: Mode) -> Request {
        Request { number: ACCEPT4, arguments: [self.listener.raw() as usize, 0, 0, 0, 0, 0] }
    }

    fn finish(&mut self, result: CallResult, _scratch: &Scratch) -> Self::Output {
        result.map(|fd| Fd::from_raw(fd as i32))
    }

    fn abandon(&mut self, value: usize, _scratch: &Scratch) {
        leftover::keep_connection(self.listener.raw(), Fd::from_raw(value as i32));
    }
}

/// `connect(socket, address)`.
#[derive(Debug)]
pub struct Connect<'a> {
    socket: BorrowedFd<'a>,
    address: [u8; ADDRESS_BYTES_MAX],
    address_bytes: u8,
}

impl<'a> Connect<'a> {
    /// Connects `socket`, of the family of `address`, to `address`.
    pub fn new(socket: BorrowedFd<'a>, address: impl Into<SocketAddr>) -> Self {
        let mut bytes = [0; ADDRESS_BYTES_MAX];
        let address_bytes = socket::encode(address.into(), &mut bytes) as u8;
        Self { socket, address: bytes, address_bytes }
    }
}

// SAFETY: the kernel writes nothing; it copies the address before the system call returns.
#[allow(unsafe_code)]
unsafe impl Operation for Connect<'_> {
    type Output = core::result::Result<(), cops_abi::Errno>;

    fn request(&mut self, _mode: Mode) -> Request {
        let address = self.address.as_ptr().expose_provenance();
        let arguments = [self.socket.raw() as usize, address, self.address_bytes.into(), 0, 0, 0];
        Request { number: CONNECT, arguments }
    }

    fn finish(&mut self, result: CallResult, _scratch: &Scratch) -> Self::Output {
        result.map(drop)
    }
}
