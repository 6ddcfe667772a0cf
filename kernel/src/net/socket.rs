//! A TCP socket as a file: from `socket()` through `bind`, `listen` or `connect` to a stream of
//! bytes.

use alloc::boxed::Box;
use core::cell::Cell;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::poll::bits_if;
use cops_abi::poll::event::{ERROR, HANG_UP, READ_HANG_UP, READABLE, WRITABLE};
use cops_fallible::{List, OutOfMemory, try_box};
use cops_net::{Behind, Connection, Error, Listener, PortSearch, Shutdown, TcpBinding};
use spin::RwLock;

use super::charges::{self, BacklogPayer};
use super::options::{Change, Options};
use super::queues::Queues;
use super::{Timeouts, stack};
use crate::mm::PinnedBuffer;
use crate::mm::quota::{Charge, Family, MemoryCharge, PortCharge};
use crate::sched::{WaitQueue, Waiting};

/// The state of a socket.
enum State {
    /// Just created, or being bound: the search for a free port takes several portions.
    Fresh(PortSearch),
    /// Has a local address.
    Bound(TcpBinding, PortCharge),
    /// Accepts connections; those that wait are charged to the family.
    Listening(Listener, Family, PortCharge),
    /// Has a connection, or is establishing one. With the charge of the port to which the socket
    /// was bound before.
    Connected(Connection, Option<PortCharge>),
}

impl State {
    const FRESH: Self = Self::Fresh(PortSearch::new());

    /// Binds a fresh socket, and charges its port to `family`. `None`: there are more ports to
    /// check, call again.
    ///
    /// # Errors
    /// `EINVAL` if it is not fresh, and those of [`Socket::bind`].
    fn bind(&mut self, address: SocketAddr, family: Family) -> Result<Option<()>, Errno> {
        let Self::Fresh(search) = self else { return Err(Errno::EINVAL) };
        let bound = stack().and_then(|stack| {
            let binding = stack.bind_tcp_in_portions(address, search).map_err(errno)?;
            binding.map(|binding| Ok((binding, charges::bind(family)?))).transpose()
        });
        match bound {
            Ok(None) => return Ok(None),
            Ok(Some((binding, port))) => *self = Self::Bound(binding, port),
            Err(error) => {
                *self = Self::FRESH;
                return Err(error);
            }
        }
        Ok(Some(()))
    }

    fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Connected(connection, _) => Some(connection),
            _ => None,
        }
    }

    /// A connection that was never established leaves the port to which the socket was bound.
    fn forget_failed(&mut self) {
        match core::mem::replace(self, Self::FRESH) {
            Self::Connected(failed, port) if failed.try_connected().is_err() => {
                if let (Some(binding), Some(port)) = (failed.into_binding(), port) {
                    *self = Self::Bound(binding, port);
                }
            }
            other => *self = other,
        }
    }
}

/// When the connection has begun that a call of `connect` waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// In this call.
    Now,
    /// In an earlier one, which has not reported how it ended.
    Before,
}

/// A TCP socket: see the module.
pub struct Socket {
    /// Whether it was created for IPv6.
    v6: bool,
    /// Changed only by `bind`, `listen`, `connect`, and `shutdown` of a socket that listens; all
    /// other uses take the lock shared.
    state: RwLock<State>,
    /// A connection has begun, and no call of `connect` has reported yet how that ended.
    is_unreported: AtomicBool,
    queues: Queues,
    options: Options,
    /// How long synchronous calls wait.
    pub timeouts: Timeouts,
}

impl Socket {
    /// A socket without a connection.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(v6: bool) -> Result<Self, OutOfMemory> {
        Self::with(v6, Options::new(), Timeouts::none())
    }

    /// A socket for a connection that this one accepts. As on Linux, it inherits the family, the
    /// options and the timeouts.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn for_accepted(&self) -> Result<Self, OutOfMemory> {
        Self::with(self.v6, self.options.copy(), self.timeouts.copy())
    }

    fn with(v6: bool, options: Options, timeouts: Timeouts) -> Result<Self, OutOfMemory> {
        let (state, is_unreported) = (RwLock::new(State::FRESH), AtomicBool::new(false));
        Ok(Self { v6, state, is_unreported, queues: Queues::new()?, options, timeouts })
    }

    fn shown(&self, address: SocketAddr) -> SocketAddr {
        super::shown(self.v6, address)
    }

    fn unspecified(&self) -> SocketAddr {
        let address = if self.v6 {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        } else {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        };
        SocketAddr::new(address, 0)
    }

    /// Binds the socket to a local address; port 0: any free port. The port is charged to `family`
    /// as long as the socket has it. `None`: there are more ports to check, call again.
    ///
    /// # Errors
    /// `EADDRINUSE`, also beyond the quota, `EADDRNOTAVAIL`, `EAFNOSUPPORT`, `EINVAL` if it already
    /// has one.
    pub fn bind(&self, address: SocketAddr, family: Family) -> Result<Option<()>, Errno> {
        if address.is_ipv6() != self.v6 {
            return Err(Errno::EAFNOSUPPORT);
        }
        self.state.write().bind(address, family)
    }

    /// Makes the socket listen. Up to `backlog` connections can wait to be accepted, and are
    /// charged to `family` until they are. If it listens already, only their number changes.
    /// `None`: call again, as for [`Self::bind`].
    ///
    /// # Errors
    /// `EINVAL` if it is connected, `ENOMEM`; those of [`Self::bind`] if it is not bound.
    pub fn listen(&self, backlog: usize, family: Family) -> Result<Option<()>, Errno> {
        let mut state = self.state.write();
        if let State::Listening(listener, ..) = &*state {
            listener.set_backlog(backlog);
            return Ok(Some(()));
        }
        let payer = try_box(BacklogPayer(Charge::standing(family)?))?;
        if matches!(*state, State::Fresh(_)) && state.bind(self.unspecified(), family)?.is_none() {
            return Ok(None);
        }
        match core::mem::replace(&mut *state, State::FRESH) {
            State::Bound(binding, port) => {
                let listener = binding.listen_paid_by(payer, backlog).map_err(errno)?;
                *state = State::Listening(listener, family, port);
                drop(state);
                self.queues.notify_watches();
                Ok(Some(()))
            }
            other => {
                *state = other;
                Err(Errno::EINVAL)
            }
        }
    }

    /// The family that pays for the connections that wait to be accepted; `None` if there are none.
    ///
    /// # Errors
    /// `EINVAL` if it does not listen.
    pub fn payer_of_waiting(&self) -> Result<Option<Family>, Errno> {
        match &*self.state.read() {
            State::Listening(listener, payer, _) => {
                Ok(listener.readiness().readable.then_some(*payer))
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Accepts a waiting connection with `socket`, which [`Self::for_accepted`] has made and no
    /// program has seen, and with a charge for it. Returns the peer's address; `None` if there is
    /// no such connection.
    ///
    /// # Errors
    /// `EINVAL` if it does not listen.
    pub fn attempt_accept(
        &self,
        socket: &Socket,
        charge: Box<MemoryCharge>,
    ) -> Result<Option<SocketAddr>, Errno> {
        let State::Listening(listener, ..) = &*self.state.read() else {
            return Err(Errno::EINVAL);
        };
        let connection = match listener.try_accept() {
            Ok(connection) => connection,
            Err(Error::WouldBlock) => return Ok(None),
            Err(error) => return Err(errno(error)),
        };
        connection.keep(charge);
        socket.options.apply(&connection);
        let remote = self.shown(connection.remote_address());
        *socket.state.write() = State::Connected(connection, None);
        Ok(Some(remote))
    }

    /// Begins to connect, unless [`Self::attempt_connect`] has yet to report how the connection
    /// that has begun before ends. If the one before was never established, and that is reported,
    /// the next one begins, and is charged to `family`. `None`: call again, as for [`Self::bind`].
    ///
    /// # Errors
    /// `EISCONN`, `EAFNOSUPPORT`, `ENOMEM`, `EADDRNOTAVAIL` without quota for a port, and immediate
    /// errors of the network.
    pub fn start_connect(
        &self,
        remote: SocketAddr,
        family: Family,
    ) -> Result<Option<Begun>, Errno> {
        if remote.is_ipv6() != self.v6 {
            return Err(Errno::EAFNOSUPPORT);
        }
        let mut state = self.state.write();
        if self.is_unreported.load(Relaxed) {
            return Ok(Some(Begun::Before));
        }
        state.forget_failed();
        match *state {
            State::Connected(..) => return Err(Errno::EISCONN),
            State::Listening(..) => return Err(Errno::EINVAL),
            State::Fresh(_) | State::Bound(..) => {}
        }
        let charge = charges::connect(family, matches!(*state, State::Bound(..)))?;
        match core::mem::replace(&mut *state, State::FRESH) {
            State::Fresh(mut search) => {
                match stack()?.connect_in_portions(remote, &mut search).map_err(errno)? {
                    Some(connection) => *state = State::Connected(connection, None),
                    None => {
                        *state = State::Fresh(search);
                        return Ok(None);
                    }
                }
            }
            State::Bound(binding, port) => match binding.connect(remote) {
                Ok(connection) => *state = State::Connected(connection, Some(port)),
                Err((error, binding)) => {
                    *state = State::Bound(binding, port);
                    return Err(errno(error));
                }
            },
            other => *state = other,
        }
        if let State::Connected(connection, _) = &*state {
            connection.keep(charge);
            self.options.apply(connection);
        }
        self.is_unreported.store(true, Relaxed);
        drop(state);
        self.queues.notify_watches();
        Ok(Some(Begun::Now))
    }

    /// Whether the connection is established; `None`: not yet.
    ///
    /// As on Linux, a failure is reported once: here or as `SO_ERROR`. In the second case it is
    /// `ECONNABORTED` here.
    pub fn attempt_connect(&self) -> Option<CallResult> {
        let State::Connected(connection, _) = &*self.state.read() else {
            return Some(Err(Errno::ENOTCONN));
        };
        match connection.try_connected() {
            Err(Error::WouldBlock) => None,
            ended => {
                self.is_unreported.store(false, Relaxed);
                let failure = || connection.take_error().map_or(Errno::ECONNABORTED, errno);
                Some(ended.map(|()| 0).map_err(|_| failure()))
            }
        }
    }

    /// Moves received bytes into `buffer`; 0 at the end of the stream; `None` if there are none
    /// yet.
    pub fn attempt_read(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        self.attempt_parts(buffer.len(), |connection, done| {
            connection.try_receive_with(|bytes| {
                let count = bytes.len().min(buffer.len() - done);
                buffer.write_at(done, &bytes[..count]);
                (count, count)
            })
        })
    }

    /// As [`Self::attempt_read`], into what is behind the first `header` bytes of `buffer`, which
    /// has more. Also returns what is behind that; the stack will wake the queue of readers
    /// ([`Self::listen_for`]) if it says so.
    pub fn attempt_read_and_listen(
        &self,
        buffer: &PinnedBuffer,
        header: usize,
    ) -> (Option<CallResult>, Behind) {
        let room = buffer.len() - header;
        let waker = self.queues.waker(Waiting::ToRead);
        let behind = Cell::new(Behind::default());
        let result = self.attempt_parts(room, |connection, done| {
            if done > 0 && behind.get().bytes == 0 {
                // The first part has found no more, and has registered the waker.
                return Ok(0);
            }
            let received = connection.receive_and_register(&waker, |bytes| {
                let count = bytes.len().min(room - done);
                buffer.write_at(header + done, &bytes[..count]);
                (count, count)
            });
            behind.set(match &received {
                Ok((_, behind)) => *behind,
                Err(error) => Behind { bytes: 0, wakes: matches!(error, Error::WouldBlock) },
            });
            received.map(|(count, _)| count)
        });
        (result, behind.get())
    }

    /// Moves bytes from `buffer` into the send buffer as far as it has room; `None` if it has none.
    pub fn attempt_write(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        self.attempt_parts(buffer.len(), |connection, done| {
            connection.try_send_with(buffer.len() - done, |room| {
                let count = room.len();
                buffer.read_at(done, &mut room[..count]);
                (count, count)
            })
        })
    }

    /// As [`Self::attempt_write`], of bytes that the kernel has a copy of.
    pub fn attempt_write_bytes(&self, bytes: &[u8]) -> Option<CallResult> {
        self.attempt_parts(bytes.len(), |connection, done| connection.try_send(&bytes[done..]))
    }

    /// Copies received bytes into `buffer`, which stay; 0 at the end of the stream; `None` if there
    /// are none yet.
    pub fn attempt_peek(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        let state = self.state.read();
        let State::Connected(connection, _) = &*state else { return Some(Err(Errno::ENOTCONN)) };
        // No more than this is in the connection's buffer.
        let length = buffer.len().min(super::tcp_buffer_bytes());
        let mut copy = List::new();
        if copy.try_resize(length, 0).is_err() {
            return Some(Err(Errno::ENOMEM));
        }
        match connection.try_peek(&mut copy) {
            Ok(count) => {
                buffer.write_at(0, &copy[..count]);
                Some(Ok(count))
            }
            Err(Error::WouldBlock) => None,
            Err(error) => Some(Err(errno(error))),
        }
    }

    /// Calls `move_part` with the number of bytes done, up to `length`, until it returns 0 or an
    /// error. The connection's buffers are rings: bytes that wrap around are the second part.
    fn attempt_parts(
        &self,
        length: usize,
        move_part: impl Fn(&Connection, usize) -> Result<usize, Error>,
    ) -> Option<CallResult> {
        let state = self.state.read();
        let State::Connected(connection, _) = &*state else { return Some(Err(Errno::ENOTCONN)) };
        let mut done = 0;
        while done < length {
            match move_part(connection, done) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if done > 0 => {
                    connection.restore_error(|failure| failure == error);
                    break;
                }
                Err(Error::WouldBlock) => return None,
                Err(error) => return Some(Err(errno(error))),
            }
        }
        Some(Ok(done))
    }

    /// Number of received bytes that a read finds.
    pub fn unread_bytes(&self) -> usize {
        match &*self.state.read() {
            State::Connected(connection, _) => connection.unread_bytes(),
            _ => 0,
        }
    }

    /// The calls that wait for this direction.
    pub fn queue(&self, waiting: Waiting) -> &WaitQueue {
        self.queues.of(waiting)
    }

    /// The events of `ppoll` that it has.
    pub fn readiness(&self) -> u32 {
        match &*self.state.read() {
            // As on Linux: a connection that is over, and was never begun.
            State::Fresh(_) | State::Bound(..) => WRITABLE | HANG_UP,
            State::Listening(listener, ..) => bits_if(listener.readiness().readable, READABLE),
            State::Connected(connection, _) => {
                let ready = connection.readiness();
                bits_if(ready.readable, READABLE)
                    | bits_if(ready.writable, WRITABLE)
                    | bits_if(ready.end_of_stream, READ_HANG_UP)
                    | bits_if(ready.closed, HANG_UP)
                    | bits_if(ready.failed, ERROR)
            }
        }
    }

    /// Registers with the stack, which wakes one call of this direction's queue, once, when an
    /// attempt may succeed. Returns whether one may succeed now.
    pub fn listen_for(&self, waiting: Waiting) -> bool {
        let waker = self.queues.waker(waiting);
        match (&*self.state.read(), waiting) {
            (State::Connected(connection, _), Waiting::ToRead) => {
                return connection.register_receive_waker(&waker);
            }
            (State::Connected(connection, _), Waiting::ToWrite) => {
                connection.register_send_waker(&waker)
            }
            (State::Listening(listener, ..), _) => listener.register_waker(&waker),
            // Attempts in these states fail immediately.
            (State::Fresh(_) | State::Bound(..), _) => {}
        }
        true
    }

    /// Whether it was created for IPv6.
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// Whether it accepts connections.
    pub fn is_listening(&self) -> bool {
        matches!(&*self.state.read(), State::Listening(..))
    }

    /// An attempt has failed with `error`, and the result of the call is what was moved before: the
    /// next call finds the error.
    #[cold]
    pub fn restore_error(&self, error: Errno) {
        if let State::Connected(connection, _) = &*self.state.read() {
            connection.restore_error(|failure| errno(failure) == error);
        }
    }

    /// How the connection has failed, once.
    pub fn take_error(&self) -> Option<Errno> {
        match &*self.state.read() {
            State::Connected(connection, _) => connection.take_error().map(errno),
            _ => None,
        }
    }

    /// Changes an option of this connection or a later one.
    pub fn change_option(&self, change: Change) {
        self.options.change(change, self.state.read().connection());
    }

    /// What is set for its connection.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Closes one direction or both.
    ///
    /// As on Linux, a socket that listens is only bound from then on, unless `how` is `Write`, and
    /// a connection that is not established yet fails. Calls that wait for either end.
    ///
    /// # Errors
    /// `ENOTCONN`.
    pub fn shutdown(&self, how: Shutdown) -> Result<(), Errno> {
        match &*self.state.read() {
            State::Connected(connection, _) => return connection.shutdown(how).map_err(errno),
            State::Listening(..) if how == Shutdown::Write => return Ok(()),
            State::Listening(..) => {}
            State::Fresh(_) | State::Bound(..) => return Err(Errno::ENOTCONN),
        }
        self.stop_listening();
        Ok(())
    }

    /// The connections that wait are reset.
    fn stop_listening(&self) {
        let mut state = self.state.write();
        match core::mem::replace(&mut *state, State::FRESH) {
            State::Listening(listener, _, port) => {
                if let Some(binding) = listener.into_binding() {
                    *state = State::Bound(binding, port);
                }
            }
            // Another call has been first.
            other => *state = other,
        }
        drop(state);
        self.queues.wake_all();
    }

    /// The local address, which is unspecified before the socket is bound.
    ///
    /// # Errors
    /// None today; addresses of future families may have none.
    pub fn local_address(&self) -> Result<SocketAddr, Errno> {
        Ok(self.shown(match &*self.state.read() {
            State::Fresh(_) => self.unspecified(),
            State::Bound(binding, _) => binding.local_address(),
            State::Listening(listener, ..) => listener.local_address(),
            State::Connected(connection, _) => connection.local_address(),
        }))
    }

    /// The peer's address.
    ///
    /// # Errors
    /// `ENOTCONN` before the connection is established, and after it has ended.
    pub fn remote_address(&self) -> Result<SocketAddr, Errno> {
        match &*self.state.read() {
            State::Connected(connection, _) if connection.is_connected() => {
                Ok(self.shown(connection.remote_address()))
            }
            _ => Err(Errno::ENOTCONN),
        }
    }
}

/// The error code of an error of the network.
pub(super) fn errno(error: Error) -> Errno {
    match error {
        Error::WouldBlock => Errno::EAGAIN,
        Error::NotConnected => Errno::ENOTCONN,
        Error::ConnectionReset => Errno::ECONNRESET,
        Error::ConnectionRefused => Errno::ECONNREFUSED,
        Error::ConnectionAborted => Errno::ECONNABORTED,
        Error::TimedOut => Errno::ETIMEDOUT,
        Error::BrokenPipe => Errno::EPIPE,
        Error::AddressInUse => Errno::EADDRINUSE,
        Error::AddressNotAvailable => Errno::EADDRNOTAVAIL,
        Error::NetworkUnreachable => Errno::ENETUNREACH,
        Error::InvalidArgument => Errno::EINVAL,
        Error::MessageTooLong => Errno::EMSGSIZE,
        Error::OutOfMemory => Errno::ENOMEM,
        Error::TooManyConnections => Errno::ENOBUFS,
        // The list of errors may grow; a new one is at least reported as an error.
        _ => Errno::EIO,
    }
}
