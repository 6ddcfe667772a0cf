//! One socket of smoltcp's in a set of its own, with what this crate knows about it.
//!
//! smoltcp visits every socket of the set it is given, so the set it is given has one socket.
//! An endpoint is reached from three sides: by its handle (system calls), by the interface (frames
//! and timers) and, while it is not accepted, by its listener's backlog. All take `state`'s lock.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::size_of;
use core::sync::atomic::AtomicBool;

use smoltcp::iface::{SocketHandle, SocketSet, SocketStorage};
use smoltcp::socket::{AnySocket, dhcpv4, tcp, udp};
use smoltcp::storage::PacketMetadata;
use spin::Mutex;

use crate::error::Error;
use crate::frame::FlowKey;
use crate::shared::{ConnectionSlot, Shared};
use crate::stream::{Owner, Stream};
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
    pub(crate) state: Mutex<EndpointState>,
}

/// What an endpoint's lock guards.
pub(crate) struct EndpointState {
    pub(crate) sockets: SocketSet<'static>,
    pub(crate) handle: SocketHandle,
    /// The deadline under which the interface's timer queue has an entry for this endpoint.
    pub(crate) armed: Option<u64>,
    /// In the interface's list of those that wait for a neighbour's hardware address.
    pub(crate) awaiting_neighbour: bool,
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
        let mut socket = tcp::Socket::new(tcp::SocketBuffer::new(receive), tcp::SocketBuffer::new(transmit));
        let modest = configuration.transmit_buffer_bytes <= INITIAL_WINDOW_BYTES;
        socket.set_congestion_control(match link {
            LinkKind::Ethernet if !modest => tcp::CongestionControl::Reno,
            _ => tcp::CongestionControl::None,
        });
        // smoltcp holds small segments back until a full one is together; loopback's are larger
        // than most windows, so that would never be.
        socket.set_nagle_enabled(link == LinkKind::Ethernet);
        let stream = Stream::new(key, owner, slot, now);
        Ok(Self::assemble(shared, link, socket, Protocol::Stream(stream)))
    }

    /// An unbound UDP socket.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn datagram(shared: &Arc<Shared>, link: LinkKind) -> Result<Arc<Endpoint>, Error> {
        let configuration = &shared.configuration;
        let packets = || {
            let count = configuration.datagram_queue_length.max(1);
            let mut metadata = Vec::new();
            metadata.try_reserve_exact(count).map_err(|_| Error::OutOfMemory)?;
            metadata.resize(count, PacketMetadata::EMPTY);
            Ok(udp::PacketBuffer::new(metadata, buffer(configuration.datagram_buffer_bytes.max(1))?))
        };
        let socket = udp::Socket::new(packets()?, packets()?);
        Ok(Self::assemble(shared, link, socket, Protocol::Datagram(Datagram::default())))
    }

    /// The DHCP client.
    pub(crate) fn dhcp(shared: &Arc<Shared>) -> Arc<Endpoint> {
        Self::assemble(shared, LinkKind::Ethernet, dhcpv4::Socket::new(), Protocol::Dhcp)
    }

    fn assemble<S: AnySocket<'static>>(
        shared: &Arc<Shared>,
        link: LinkKind,
        socket: S,
        protocol: Protocol,
    ) -> Arc<Endpoint> {
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        Arc::new(Endpoint {
            number: shared.next_number(),
            link,
            dirty: AtomicBool::new(false),
            state: Mutex::new(EndpointState {
                sockets,
                handle,
                armed: None,
                awaiting_neighbour: false,
                blocked: false,
                protocol,
            }),
        })
    }

    /// Bytes of one TCP endpoint without its buffers: the reference-counted block, and smoltcp's
    /// socket on the heap.
    pub(crate) const fn overhead_bytes() -> usize {
        2 * size_of::<usize>() + size_of::<Endpoint>() + size_of::<SocketStorage<'static>>()
    }
}

/// A zeroed buffer, or an error where `vec!` would abort.
fn buffer(bytes: usize) -> Result<Vec<u8>, Error> {
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(bytes).map_err(|_| Error::OutOfMemory)?;
    buffer.resize(bytes, 0);
    Ok(buffer)
}
