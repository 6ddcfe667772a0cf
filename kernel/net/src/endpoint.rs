//! One socket of smoltcp's in a set of its own, with what this crate knows about it.
//!
//! smoltcp visits every socket of the set it is given, so the set it is given has one socket.
//! An endpoint is reached from three sides: by its handle (system calls), by the interface (frames
//! and timers) and, while it is not accepted, by its listener's backlog. All take `state`'s lock.

use alloc::sync::Arc;
use core::mem::size_of;
use core::sync::atomic::AtomicBool;

use cops_fallible::map::Spare;
use cops_fallible::{List, try_arc};
use smoltcp::iface::{SocketHandle, SocketSet, SocketStorage};
use smoltcp::socket::{AnySocket, dhcpv4, tcp, udp};
use smoltcp::storage::PacketMetadata;
use spin::Mutex;

use crate::chain::Links;
use crate::error::Error;
use crate::frame::FlowKey;
use crate::shared::{ConnectionSlot, Shared};
use crate::stream::{Owner, Stream};
use crate::timers::Armed;
use crate::wakers::WakerSet;

/// What RFC 6928 lets a sender put on the network before it has heard of its state: ten segments.
/// A connection whose whole buffer is less can do without congestion control (lost segments still
/// wait for ever longer timeouts). smoltcp's Reno begins with 2 KiB, so that the first answer of
/// 4 KiB would wait for a delayed acknowledgement.
const INITIAL_WINDOW_BYTES: usize = 14_600;

/// Which interface an endpoint lives on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkKind {
    Ethernet,
    Loopback,
}

/// A socket and its surroundings.
pub(crate) struct Endpoint {
    /// Unique in the stack; never reused.
    pub(crate) number: u64,
    pub(crate) link: LinkKind,
    /// Set while the endpoint is in, or on its way into, its interface's outbox.
    pub(crate) dirty: AtomicBool,
    pub(crate) links: Links,
    pub(crate) state: Mutex<EndpointState>,
}

/// What an endpoint's lock guards.
pub(crate) struct EndpointState {
    pub(crate) sockets: SocketSet<'static>,
    pub(crate) handle: SocketHandle,
    /// Its entry in the interface's timer queue.
    pub(crate) armed: Armed,
    /// In the interface's list of those that wait for a neighbour's hardware address.
    pub(crate) awaiting_neighbour: bool,
    /// Room in that list, while it is not in there.
    pub(crate) neighbour_room: Option<Spare<u64, Arc<Endpoint>>>,
    /// In the interface's list of those that wait for room in the device.
    pub(crate) blocked: bool,
    pub(crate) protocol: Protocol,
}

/// What the socket is, and what goes with it.
pub(crate) enum Protocol {
    Stream(Stream),
    Datagram(Datagram),
    Dhcp,
}

/// A UDP socket's part.
#[derive(Default)]
pub(crate) struct Datagram {
    /// The handle is gone; nothing must be sent or armed any more.
    pub(crate) closed: bool,
    /// Since when the first queued datagram waits for an unknown neighbour.
    pub(crate) stuck_since: Option<u64>,
    pub(crate) receivers: WakerSet,
    pub(crate) senders: WakerSet,
}

impl EndpointState {
    /// The TCP socket with its surroundings; `None` if this is no TCP endpoint.
    pub(crate) fn stream(&mut self) -> Option<(&mut tcp::Socket<'static>, &mut Stream)> {
        match &mut self.protocol {
            Protocol::Stream(stream) => Some((self.sockets.get_mut(self.handle), stream)),
            _ => None,
        }
    }

    /// The UDP socket with its surroundings; `None` if this is no UDP endpoint.
    pub(crate) fn datagram(&mut self) -> Option<(&mut udp::Socket<'static>, &mut Datagram)> {
        match &mut self.protocol {
            Protocol::Datagram(datagram) => Some((self.sockets.get_mut(self.handle), datagram)),
            _ => None,
        }
    }
}

impl Endpoint {
    /// A closed TCP socket for the pair `key`.
    ///
    /// # Errors
    /// [`Error::TooManyConnections`], [`Error::OutOfMemory`] (the buffers).
    pub(crate) fn stream(
        shared: &Arc<Shared>,
        link: LinkKind,
        key: FlowKey,
        owner: Owner,
        now: u64,
    ) -> Result<Arc<Endpoint>, Error> {
        let slot = ConnectionSlot::take(shared)?;
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
        // smoltcp holds small segments back until a full one is together; loopback's are larger
        // than most windows, so that would never be.
        socket.set_nagle_enabled(link == LinkKind::Ethernet);
        let stream = Stream::new(key, owner, slot, now);
        Self::assemble(shared, link, socket, Protocol::Stream(stream))
    }

    /// An unbound UDP socket.
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
        Self::assemble(shared, link, socket, Protocol::Datagram(Datagram::default()))
    }

    /// The DHCP client.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn dhcp(shared: &Arc<Shared>) -> Result<Arc<Endpoint>, Error> {
        Self::assemble(shared, LinkKind::Ethernet, dhcpv4::Socket::new(), Protocol::Dhcp)
    }

    fn assemble<S: AnySocket<'static>>(
        shared: &Arc<Shared>,
        link: LinkKind,
        socket: S,
        protocol: Protocol,
    ) -> Result<Arc<Endpoint>, Error> {
        // The set allocates nothing as long as it has no more than the one socket.
        let mut sockets = SocketSet::new(List::try_with_capacity(1)?.into_vec());
        let handle = sockets.add(socket);
        let (armed, neighbour_room) = (Armed::try_new()?, Some(Spare::try_new()?));
        let endpoint = try_arc(Endpoint {
            number: shared.next_number(),
            link,
            dirty: AtomicBool::new(false),
            links: [const { Mutex::new(None) }; 3],
            state: Mutex::new(EndpointState {
                sockets,
                handle,
                armed,
                awaiting_neighbour: false,
                neighbour_room,
                blocked: false,
                protocol,
            }),
        })?;
        Ok(endpoint)
    }

    /// Bytes of one TCP endpoint without its buffers: the reference-counted block, and smoltcp's
    /// socket on the heap.
    pub(crate) const fn overhead_bytes() -> usize {
        2 * size_of::<usize>() + size_of::<Endpoint>() + size_of::<SocketStorage<'static>>()
    }
}

/// A zeroed buffer.
fn buffer(bytes: usize) -> Result<List<u8>, Error> {
    let mut buffer = List::try_with_capacity(bytes)?;
    buffer.try_resize(bytes, 0)?;
    Ok(buffer)
}
