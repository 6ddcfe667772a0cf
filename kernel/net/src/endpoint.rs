//! An endpoint: one smoltcp socket in a socket set of its own, with this crate's state for it.
//!
//! smoltcp visits every socket of the set that it is given; so each set has one socket. An endpoint
//! is accessed by its handle (system calls), by its interface (frames and timers) and, until it is
//! accepted, by its listener's backlog. All of them take `state`'s lock.

use alloc::sync::Arc;
use core::mem::size_of;
use core::sync::atomic::AtomicBool;
use core::task::Waker;

use cops_fallible::map::Spare;
use cops_fallible::{List, OutOfMemory, try_arc};
use cops_lock::Mutex;
use smoltcp::iface::{SocketHandle, SocketSet, SocketStorage};
use smoltcp::socket::{AnySocket, dhcpv4, tcp, udp};
use smoltcp::storage::PacketMetadata;
use smoltcp::wire::IpEndpoint;

use crate::chain::Links;
use crate::error::Error;
use crate::fast_path::FastPath;
use crate::frame::FlowKey;
use crate::path::Path;
use crate::shared::{BufferSlot, ConnectionSlot, Shared};
use crate::stream::{Owner, Stream};
use crate::timers::Armed;
use crate::wakers::WakerSet;

/// The amount that RFC 6928 allows a sender to have in flight before it has feedback: ten segments.
/// A connection with a smaller transmit buffer does not need congestion control (lost
/// segments still wait for growing timeouts). smoltcp's Reno begins with 2 KiB, so a first answer
/// of 4 KiB would wait for a delayed acknowledgement.
pub(crate) const INITIAL_WINDOW_BYTES: usize = 14_600;

/// The interface to which an endpoint belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkKind {
    Ethernet,
    Loopback,
}

/// A socket with the state that this crate keeps for it.
pub(crate) struct Endpoint {
    /// Unique in the stack, and never reused.
    pub(crate) number: u64,
    pub(crate) link: LinkKind,
    /// Set while the endpoint is in its interface's outbox or turns, or is about to be.
    pub(crate) dirty: AtomicBool,
    pub(crate) links: Links,
    pub(crate) state: Mutex<EndpointState>,
}

/// What an endpoint's lock protects.
pub(crate) struct EndpointState {
    /// Empty, without a handle, while the connection is on the fast path.
    pub(crate) sockets: SocketSet<'static>,
    pub(crate) handle: Option<SocketHandle>,
    /// What is added to the socket's sequence numbers to get the connection's (see `fast_path`).
    pub(crate) shift: u32,
    /// Permission for the socket of a TCP connection. There is none while it has no socket.
    pub(crate) buffers: Option<BufferSlot>,
    /// The state of a connection on the fast path.
    pub(crate) fast: Option<FastPath>,
    /// Its entry in the interface's timer queue.
    pub(crate) armed: Armed,
    /// Whether it is in the interface's list of endpoints that wait for a neighbour's hardware
    /// address.
    pub(crate) awaiting_neighbour: bool,
    /// Memory for an entry in that list, while it is not in the list.
    pub(crate) neighbour_room: Option<Spare<u64, Arc<Endpoint>>>,
    /// Whether it is in the interface's list of endpoints that wait for room in the device.
    pub(crate) blocked: bool,
    /// The direct way of its segments, for TCP over IPv4 and Ethernet.
    pub(crate) path: Path,
    pub(crate) protocol: Protocol,
}

/// The protocol of the socket, and the state that belongs to it.
#[allow(clippy::large_enum_variant, reason = "nearly all endpoints are of the largest variant")]
pub(crate) enum Protocol {
    Stream(Stream),
    Datagram(Datagram),
    Dhcp,
}

/// The state of a UDP socket.
#[derive(Default)]
pub(crate) struct Datagram {
    /// The handle was dropped; nothing may be sent, and no timer may be armed.
    pub(crate) closed: bool,
    /// The only sender from which it receives, if it has one; port 0: any port.
    pub(crate) peer: Option<IpEndpoint>,
    /// The time since which the first queued datagram has waited for an unknown neighbour.
    pub(crate) stuck_since: Option<u64>,
    pub(crate) receivers: WakerSet,
    pub(crate) senders: WakerSet,
}

impl Datagram {
    /// Whether it receives datagrams from `remote`.
    pub(crate) fn accepts(&self, remote: IpEndpoint) -> bool {
        self.peer.is_none_or(|peer| {
            peer.addr == remote.addr && (peer.port == 0 || peer.port == remote.port)
        })
    }
}

impl EndpointState {
    /// The TCP socket and its state; `None` if this is not a TCP endpoint, or one without a socket:
    /// on the fast path.
    pub(crate) fn stream(&mut self) -> Option<(&mut tcp::Socket<'static>, &mut Stream)> {
        let (socket, stream) = self.socket_and_record()?;
        Some((socket?, stream))
    }

    /// The socket of a TCP endpoint, if there is one, and its state.
    #[inline]
    fn socket_and_record(&mut self) -> Option<(Option<&mut tcp::Socket<'static>>, &mut Stream)> {
        let Protocol::Stream(stream) = &mut self.protocol else { return None };
        Some((self.handle.map(|handle| self.sockets.get_mut(handle)), stream))
    }

    /// The state of a TCP endpoint, with or without a socket.
    pub(crate) fn record(&mut self) -> Option<&mut Stream> {
        match &mut self.protocol {
            Protocol::Stream(stream) => Some(stream),
            _ => None,
        }
    }

    /// The socket of a connection that is not on the fast path, and its state, if bytes can be
    /// queued now. Registers `waker` if that would block.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], or why nothing can be sent any more.
    pub(crate) fn sendable(
        &mut self,
        waker: Option<&Waker>,
    ) -> Result<(&mut tcp::Socket<'static>, &mut Stream), Error> {
        let (socket, stream) = self.socket_and_record().ok_or(Error::NotConnected)?;
        stream.check_sendable(socket.as_deref(), waker)?;
        Ok((socket.ok_or(Error::NotConnected)?, stream))
    }

    /// The same if there are bytes; `None`: the stream has ended. Registers `waker` if neither is
    /// the case yet.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], or how the connection ended, but only once everything that arrived
    /// has been read.
    pub(crate) fn receivable(
        &mut self,
        waker: Option<&Waker>,
    ) -> Result<Option<(&mut tcp::Socket<'static>, &mut Stream)>, Error> {
        let (socket, stream) = self.socket_and_record().ok_or(Error::NotConnected)?;
        let has_bytes = stream.check_receivable(socket.as_deref(), waker)?;
        Ok(socket.filter(|_| has_bytes).map(|socket| (socket, stream)))
    }

    /// Frees the socket and its buffers.
    pub(crate) fn free_socket(&mut self) {
        self.sockets = SocketSet::new(List::new().into_vec());
        self.handle = None;
        self.shift = 0;
        self.buffers = None;
    }

    /// Frees the buffers of a closed socket if nothing is to be read from it. What is in the other
    /// one is never sent.
    pub(crate) fn free_buffers_if_over(&mut self) {
        if let Some((socket, _)) = self.stream()
            && socket.state() == tcp::State::Closed
            && socket.recv_queue() == 0
        {
            let empty = || tcp::SocketBuffer::new(List::new().into_vec());
            *socket = tcp::Socket::new(empty(), empty());
            self.buffers = None;
        }
    }

    /// Whether this is an established connection of which the last `length` bytes in the transmit
    /// buffer are all. If they have just been sent, there is nothing more to send before the peer
    /// acknowledges them or the retransmission timer expires.
    pub(crate) fn has_in_flight_only(&mut self, length: usize) -> bool {
        self.stream().is_some_and(|(socket, _)| {
            socket.state() == tcp::State::Established && socket.send_queue() == length
        })
    }

    /// The UDP socket and its state; `None` if this is not a UDP endpoint.
    pub(crate) fn datagram(&mut self) -> Option<(&mut udp::Socket<'static>, &mut Datagram)> {
        match (&mut self.protocol, self.handle) {
            (Protocol::Datagram(datagram), Some(handle)) => {
                Some((self.sockets.get_mut(handle), datagram))
            }
            _ => None,
        }
    }
}

impl Endpoint {
    /// Creates a closed TCP socket for the address pair `key`.
    ///
    /// # Errors
    /// [`Error::TooManyConnections`], [`Error::OutOfMemory`] (for the buffers).
    pub(crate) fn stream(
        shared: &Arc<Shared>,
        link: LinkKind,
        key: FlowKey,
        owner: Owner,
        now: u64,
    ) -> Result<Arc<Endpoint>, Error> {
        let slot = ConnectionSlot::take(shared)?;
        let buffers = Some(BufferSlot::take_new(shared)?);
        let socket = Self::stream_socket(shared, link)?;
        let stream = Stream::new(key, owner, slot, now);
        Self::assemble(shared, link, socket, Protocol::Stream(stream), buffers)
    }

    /// Creates a closed TCP socket.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] (for the buffers).
    pub(crate) fn stream_socket(
        shared: &Shared,
        link: LinkKind,
    ) -> Result<tcp::Socket<'static>, Error> {
        let configuration = &shared.configuration;
        let receive = buffer(configuration.receive_buffer_bytes.clamp(1, 1 << 30))?;
        let transmit = buffer(configuration.transmit_buffer_bytes.clamp(1, 1 << 30))?;
        let mut socket = tcp::Socket::new(
            tcp::SocketBuffer::new(receive.into_vec()),
            tcp::SocketBuffer::new(transmit.into_vec()),
        );
        let modest = configuration.transmit_buffer_bytes <= INITIAL_WINDOW_BYTES;
        socket.set_congestion_control(match link {
            LinkKind::Ethernet if !modest => tcp::CongestionControl::Reno,
            _ => tcp::CongestionControl::None,
        });
        // smoltcp delays small segments until a full one is available. Loopback's full segments are
        // larger than most windows, so that would never happen.
        socket.set_nagle_enabled(link == LinkKind::Ethernet);
        Ok(socket)
    }

    /// A set with one socket.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn socket_set<S: AnySocket<'static>>(
        socket: S,
    ) -> Result<(SocketSet<'static>, SocketHandle), OutOfMemory> {
        // The set allocates nothing more, because it never has more than this one socket.
        let mut sockets = SocketSet::new(List::try_with_capacity(1)?.into_vec());
        let handle = sockets.add(socket);
        Ok((sockets, handle))
    }

    /// Creates an unbound UDP socket.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn datagram(shared: &Arc<Shared>, link: LinkKind) -> Result<Arc<Endpoint>, Error> {
        let configuration = &shared.configuration;
        let packets = || {
            let count = configuration.datagram_queue_length.max(1);
            let mut metadata = List::try_with_capacity(count)?;
            metadata.try_resize(count, PacketMetadata::EMPTY)?;
            Ok::<_, Error>(udp::PacketBuffer::new(
                metadata.into_vec(),
                buffer(configuration.datagram_buffer_bytes.max(1))?.into_vec(),
            ))
        };
        let socket = udp::Socket::new(packets()?, packets()?);
        Self::assemble(shared, link, socket, Protocol::Datagram(Datagram::default()), None)
    }

    /// Creates the DHCP client.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn dhcp(shared: &Arc<Shared>) -> Result<Arc<Endpoint>, Error> {
        Self::assemble(shared, LinkKind::Ethernet, dhcpv4::Socket::new(), Protocol::Dhcp, None)
    }

    fn assemble<S: AnySocket<'static>>(
        shared: &Arc<Shared>,
        link: LinkKind,
        socket: S,
        protocol: Protocol,
        buffers: Option<BufferSlot>,
    ) -> Result<Arc<Endpoint>, Error> {
        let (sockets, handle) = Self::socket_set(socket)?;
        let (armed, neighbour_room) = (Armed::try_new()?, Some(Spare::try_new()?));
        let endpoint = try_arc(Endpoint {
            number: shared.next_number(),
            link,
            dirty: AtomicBool::new(false),
            links: [const { Mutex::new(None) }; 3],
            state: Mutex::new(EndpointState {
                sockets,
                handle: Some(handle),
                shift: 0,
                buffers,
                fast: None,
                armed,
                awaiting_neighbour: false,
                neighbour_room,
                blocked: false,
                path: Path::default(),
                protocol,
            }),
        })?;
        Ok(endpoint)
    }

    /// Bytes of one TCP endpoint without its socket: the reference-counted allocation.
    pub(crate) const fn overhead_bytes() -> usize {
        2 * size_of::<usize>() + size_of::<Endpoint>()
    }

    /// Bytes of smoltcp's socket on the heap, without its buffers.
    pub(crate) const fn socket_bytes() -> usize {
        size_of::<SocketStorage<'static>>()
    }
}

/// A zeroed buffer.
fn buffer(bytes: usize) -> Result<List<u8>, Error> {
    let mut buffer = List::try_with_capacity(bytes)?;
    buffer.try_resize(bytes, 0)?;
    Ok(buffer)
}
