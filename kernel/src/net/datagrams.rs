//! A UDP socket as a file: from `socket()` through `bind` or `connect` to datagrams.
//!
//! Its `attempt_` functions never wait. A socket that has no port gets one when it connects or
//! sends; a receive before that waits until it has one.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::poll::bits_if;
use cops_abi::poll::event::{HANG_UP, READ_HANG_UP, READABLE, WRITABLE};
use cops_fallible::OutOfMemory;
use cops_net::{Error, PortSearch, Shutdown, UdpSocket};
use spin::RwLock;

use super::charges;
use super::queues::Queues;
use super::socket::errno;
use super::{Timeouts, stack};
use crate::mm::PinnedBuffer;
use crate::mm::quota::{Family, PortCharge};
use crate::sched::{WaitQueue, Waiting};

/// The state of a socket.
enum State {
    /// Has no port, or is being bound: the search for a free port takes several portions.
    Fresh(PortSearch),
    /// Has a port, until it is closed.
    Bound { socket: UdpSocket, peer: Option<Peer>, _port: PortCharge },
}

/// What `connect` has set.
#[derive(Clone, Copy)]
struct Peer {
    remote: SocketAddr,
    /// The address of this host from which it is reached.
    source: IpAddr,
}

impl State {
    const FRESH: Self = Self::Fresh(PortSearch::new());
}

/// Flags of a socket: nothing more is received, nothing more is sent, broadcasts are allowed.
const SHUT_FOR_READING: u8 = 1;
const SHUT_FOR_WRITING: u8 = 2;
const BROADCASTS: u8 = 4;

/// A UDP socket: see the module.
pub struct Datagrams {
    /// Whether it was created for IPv6.
    v6: bool,
    /// Changed only by `bind`, `connect` and `disconnect`; all other uses take the lock shared.
    state: RwLock<State>,
    flags: AtomicU8,
    queues: Queues,
    /// How long synchronous calls wait.
    pub timeouts: Timeouts,
}

/// A datagram that was received.
#[derive(Clone, Copy)]
pub struct Received {
    /// How many bytes of it are in the buffer.
    pub copied: usize,
    /// Its length.
    pub length: usize,
    /// `None`: there was no datagram, because the socket is shut down for reading.
    pub sender: Option<SocketAddr>,
}

impl Datagrams {
    /// A socket without a port.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(v6: bool) -> Result<Self, OutOfMemory> {
        Ok(Self {
            v6,
            state: RwLock::new(State::FRESH),
            flags: AtomicU8::new(0),
            queues: Queues::new()?,
            timeouts: Timeouts::none(),
        })
    }

    fn unspecified(&self) -> SocketAddr {
        let address: IpAddr =
            if self.v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        SocketAddr::new(address, 0)
    }

    fn shown(&self, address: SocketAddr) -> SocketAddr {
        super::shown(self.v6, address)
    }

    /// Binds the socket to a local address; port 0: any free port. The port is charged to `family`
    /// until the socket is closed. `None`: there are more ports to check, call again.
    ///
    /// # Errors
    /// `EADDRINUSE`, also beyond the quota, `EADDRNOTAVAIL`, `EAFNOSUPPORT`, `ENOMEM`, `EINVAL` if
    /// it already has one.
    pub fn bind(&self, address: SocketAddr, family: Family) -> Result<Option<()>, Errno> {
        if address.is_ipv6() != self.v6 {
            return Err(Errno::EAFNOSUPPORT);
        }
        self.bind_with(address, || charges::bind(family))
    }

    /// Binds the socket, with what `charge` returns.
    fn bind_with(
        &self,
        address: SocketAddr,
        charge: impl FnOnce() -> Result<PortCharge, Errno>,
    ) -> Result<Option<()>, Errno> {
        let mut state = self.state.write();
        let State::Fresh(search) = &mut *state else { return Err(Errno::EINVAL) };
        let bound = stack().and_then(|stack| {
            let socket = stack.bind_udp_in_portions(address, search).map_err(errno)?;
            socket.map(|socket| Ok((socket, charge()?))).transpose()
        });
        match bound {
            Ok(None) => return Ok(None),
            Ok(Some((socket, port))) => {
                *state = State::Bound { socket, peer: None, _port: port };
            }
            Err(error) => {
                *state = State::FRESH;
                return Err(error);
            }
        }
        drop(state);
        // Those that wait already register with the stack.
        self.queues.wake_all();
        Ok(Some(()))
    }

    /// Binds the socket to any free port, unless it has one. `None`: call again, as for
    /// [`Self::bind`].
    ///
    /// # Errors
    /// As [`Self::bind`], but `EADDRNOTAVAIL` beyond the quota.
    pub fn ensure_bound(&self, family: Family) -> Result<Option<()>, Errno> {
        if let State::Bound { .. } = &*self.state.read() {
            return Ok(Some(()));
        }
        match self.bind_with(self.unspecified(), || PortCharge::new(family)) {
            // Another thread has been faster.
            Err(Errno::EINVAL) => Ok(Some(())),
            bound => bound,
        }
    }

    /// Receives from `remote` only, and sends to it, from now on. `None`: call again, as for
    /// [`Self::bind`].
    ///
    /// # Errors
    /// `EAFNOSUPPORT`, `EACCES` for a broadcast, `ENETUNREACH`, those of [`Self::ensure_bound`].
    pub fn connect(&self, remote: SocketAddr, family: Family) -> Result<Option<()>, Errno> {
        self.check_remote(remote)?;
        if self.ensure_bound(family)?.is_none() {
            return Ok(None);
        }
        if let State::Bound { socket, peer, .. } = &mut *self.state.write() {
            let (remote, source) = socket.connect(remote).map_err(errno)?;
            *peer = Some(Peer { remote, source });
        }
        Ok(Some(()))
    }

    /// Receives from every address from now on. The port stays.
    pub fn disconnect(&self) {
        if let State::Bound { socket, peer, .. } = &mut *self.state.write() {
            socket.disconnect();
            *peer = None;
        }
    }

    fn check_remote(&self, remote: SocketAddr) -> Result<(), Errno> {
        if remote.is_ipv6() && !self.v6 {
            return Err(Errno::EAFNOSUPPORT);
        }
        let is_broadcast = remote.ip().to_canonical() == IpAddr::V4(Ipv4Addr::BROADCAST);
        if is_broadcast && !self.allows_broadcasts() { Err(Errno::EACCES) } else { Ok(()) }
    }

    /// Copies the next datagram into `buffer`, cut to its size; `None` if there is none yet. It
    /// stays if the call only `peeks`.
    pub fn attempt_receive(
        &self,
        buffer: &PinnedBuffer,
        peeks: bool,
    ) -> Option<Result<Received, Errno>> {
        let copy = |data: &[u8], sender| {
            let copied = data.len().min(buffer.len());
            buffer.write_at(0, &data[..copied]);
            Received { copied, length: data.len(), sender: Some(self.shown(sender)) }
        };
        let received = match &*self.state.read() {
            State::Bound { socket, .. } if peeks => socket.try_peek_with(copy),
            State::Bound { socket, .. } => socket.try_receive_with(copy),
            State::Fresh(_) => Err(Error::WouldBlock),
        };
        match received {
            Ok(received) => Some(Ok(received)),
            Err(Error::WouldBlock) if self.has(SHUT_FOR_READING) => {
                Some(Ok(Received { copied: 0, length: 0, sender: None }))
            }
            Err(Error::WouldBlock) => None,
            Err(error) => Some(Err(errno(error))),
        }
    }

    /// Sends `data` as one datagram to `remote`, or to the peer; `None` if there is no room for it
    /// yet.
    pub fn attempt_send(
        &self,
        data: &PinnedBuffer,
        remote: Option<SocketAddr>,
    ) -> Option<CallResult> {
        match self.send(data, remote) {
            Err(Errno::EAGAIN) => None,
            result => Some(result),
        }
    }

    fn send(&self, data: &PinnedBuffer, remote: Option<SocketAddr>) -> CallResult {
        if self.has(SHUT_FOR_WRITING) {
            return Err(Errno::EPIPE);
        }
        if let Some(remote) = remote {
            self.check_remote(remote)?;
        }
        // A call with an address has bound the socket before.
        let State::Bound { socket, peer, .. } = &*self.state.read() else {
            return Err(Errno::EDESTADDRREQ);
        };
        let remote = remote.or(peer.map(|peer| peer.remote)).ok_or(Errno::EDESTADDRREQ)?;
        let fill = |room: &mut [u8]| data.read_at(0, room);
        socket.try_send_with(data.len(), remote, fill).map_err(errno)
    }

    /// Stores the next datagram, cut to the size of `buffer`; `None` if there is none yet.
    pub fn attempt_read(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        // As on Linux, such a read takes no datagram; a receive does.
        if buffer.len() == 0 {
            return Some(Ok(0));
        }
        Some(self.attempt_receive(buffer, false)?.map(|received| received.copied))
    }

    /// Sends `buffer` as one datagram to the peer; `None` if there is no room for it yet.
    pub fn attempt_write(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        self.attempt_send(buffer, None)
    }

    /// The length of the next datagram; 0 if there is none.
    pub fn unread_bytes(&self) -> usize {
        match &*self.state.read() {
            State::Bound { socket, .. } => socket.try_peek_with(|data, _| data.len()).unwrap_or(0),
            State::Fresh(_) => 0,
        }
    }

    /// The events of `ppoll` that it has.
    pub fn readiness(&self) -> u32 {
        let (readable, writable) = match &*self.state.read() {
            State::Bound { socket, .. } => {
                let ready = socket.readiness();
                (ready.readable, ready.writable)
            }
            State::Fresh(_) => (false, true),
        };
        let (no_read, no_write) = (self.has(SHUT_FOR_READING), self.has(SHUT_FOR_WRITING));
        bits_if(readable || no_read, READABLE)
            | bits_if(writable, WRITABLE)
            | bits_if(no_read, READ_HANG_UP)
            | bits_if(no_read && no_write, HANG_UP)
    }

    /// The calls that wait for this direction.
    pub fn queue(&self, waiting: Waiting) -> &WaitQueue {
        self.queues.of(waiting)
    }

    /// Registers with the stack, which wakes one call of this direction's queue, once, when an
    /// attempt may succeed. Returns true: one may succeed now.
    pub fn listen_for(&self, waiting: Waiting) -> bool {
        let State::Bound { socket, .. } = &*self.state.read() else {
            // `bind` wakes all.
            return true;
        };
        let waker = self.queues.waker(waiting);
        match waiting {
            Waiting::ToRead => socket.register_receive_waker(&waker),
            Waiting::ToWrite => socket.register_send_waker(&waker),
        }
        true
    }

    /// Whether it was created for IPv6.
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// Whether it may send broadcasts.
    pub fn allows_broadcasts(&self) -> bool {
        self.has(BROADCASTS)
    }

    /// Sets whether it may send broadcasts.
    pub fn allow_broadcasts(&self, is_on: bool) {
        if is_on {
            self.flags.fetch_or(BROADCASTS, Relaxed);
        } else {
            self.flags.fetch_and(!BROADCASTS, Relaxed);
        }
    }

    fn has(&self, flag: u8) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    /// Ends one direction or both: reads find what has arrived, and then the end.
    ///
    /// # Errors
    /// `ENOTCONN` without a peer; as on Linux, the direction is ended all the same.
    pub fn shutdown(&self, how: Shutdown) -> Result<(), Errno> {
        let flags = match how {
            Shutdown::Read => SHUT_FOR_READING,
            Shutdown::Write => SHUT_FOR_WRITING,
            Shutdown::Both => SHUT_FOR_READING | SHUT_FOR_WRITING,
        };
        self.flags.fetch_or(flags, Relaxed);
        self.queues.wake_all();
        match &*self.state.read() {
            State::Bound { peer: Some(_), .. } => Ok(()),
            _ => Err(Errno::ENOTCONN),
        }
    }

    /// The local address, which is unspecified before the socket is bound. With a peer, it is that
    /// from which datagrams to the peer are sent.
    pub fn local_address(&self) -> SocketAddr {
        let State::Bound { socket, peer, .. } = &*self.state.read() else {
            return self.unspecified();
        };
        let local = socket.local_address();
        match peer {
            Some(peer) if local.ip().is_unspecified() => {
                self.shown(SocketAddr::new(peer.source, local.port()))
            }
            _ => self.shown(local),
        }
    }

    /// The peer's address.
    ///
    /// # Errors
    /// `ENOTCONN`, also for a peer without a port.
    pub fn remote_address(&self) -> Result<SocketAddr, Errno> {
        match &*self.state.read() {
            State::Bound { peer: Some(peer), .. } if peer.remote.port() != 0 => {
                Ok(self.shown(peer.remote))
            }
            _ => Err(Errno::ENOTCONN),
        }
    }
}
