//! The handle of a UDP socket.
//!
//! smoltcp sends everything that a socket has queued over the interface that is polled. So a socket
//! that can reach both interfaces consists of two endpoints, one on each.

use alloc::sync::Arc;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::task::{Context, Poll, Waker};

use smoltcp::socket::udp::{SendError, UdpMetadata};
use smoltcp::wire::{IpEndpoint, IpListenEndpoint};

use crate::endpoint::{Endpoint, LinkKind};
use crate::error::Error;
use crate::opening::{Claim, destination, to_the_end};
use crate::readiness::Readiness;
use crate::registry::{PortSearch, Space, covers};
use crate::stack::Stack;

/// Size of an IPv4 or IPv6 header and the UDP header.
const IPV4_HEADERS: usize = 28;
const IPV6_HEADERS: usize = 48;

/// A bound UDP socket. Dropping it also drops what is still queued.
pub struct UdpSocket {
    stack: Arc<Stack>,
    claim: Claim,
    loopback: Arc<Endpoint>,
    ethernet: Option<Arc<Endpoint>>,
}

impl Stack {
    /// Binds a UDP socket; port 0 chooses a free one.
    ///
    /// # Errors
    /// [`Error::AddressInUse`], [`Error::AddressNotAvailable`], [`Error::OutOfMemory`].
    pub fn bind_udp(self: &Arc<Self>, local: SocketAddr) -> Result<UdpSocket, Error> {
        to_the_end(|search| self.bind_udp_in_portions(local, search))
    }

    /// As [`bind_udp`](Self::bind_udp), but looks at a few ports only. `None`: to be called again
    /// with the same `search`.
    ///
    /// # Errors
    /// As there.
    pub fn bind_udp_in_portions(
        self: &Arc<Self>,
        local: SocketAddr,
        search: &mut PortSearch,
    ) -> Result<Option<UdpSocket>, Error> {
        let Some(claim) = Claim::new(self, Space::Datagram, local, search)? else {
            return Ok(None);
        };
        let loopback = self.open_datagram(LinkKind::Loopback, claim.local)?;
        let mut socket = UdpSocket { stack: self.clone(), claim, loopback, ethernet: None };
        if self.has_ethernet() && !socket.claim.local.ip().is_loopback() {
            // On an error the socket is dropped, including the half that is already open.
            socket.ethernet = Some(self.open_datagram(LinkKind::Ethernet, socket.claim.local)?);
        }
        Ok(Some(socket))
    }

    fn open_datagram(&self, kind: LinkKind, local: SocketAddr) -> Result<Arc<Endpoint>, Error> {
        let endpoint = Endpoint::datagram(&self.shared, kind)?;
        let address = Some(local.ip()).filter(|address| !address.is_unspecified());
        let bound = IpListenEndpoint { addr: address.map(Into::into), port: local.port() };
        if let Some((socket, _)) = endpoint.state.lock().datagram() {
            socket.bind(bound).map_err(|_| Error::InvalidArgument)?;
        }
        let mut core = self.link(kind).ok_or(Error::NetworkUnreachable)?.lock();
        let bound = core.datagrams.try_get_or_default(local.port())?;
        if let Err(error) = bound.try_push(endpoint.clone()) {
            if bound.is_empty() {
                core.datagrams.remove(&local.port());
            }
            return Err(error.into());
        }
        Ok(endpoint)
    }

    fn close_datagram(&self, endpoint: &Arc<Endpoint>, port: u16) {
        let Some(link) = self.link(endpoint.link) else { return };
        let mut core = link.lock();
        if let Some(bound) = core.datagrams.get_mut(&port) {
            bound.retain(|other| !Arc::ptr_eq(other, endpoint));
            if bound.is_empty() {
                core.datagrams.remove(&port);
            }
        }
        if let Some((socket, datagram)) = endpoint.state.lock().datagram() {
            socket.close();
            datagram.closed = true;
        }
        core.serve_now(endpoint);
    }
}

impl UdpSocket {
    /// The bound address, with the port that was chosen.
    pub fn local_address(&self) -> SocketAddr {
        self.claim.local
    }

    /// From now on, only datagrams from `remote` are received; a port 0 is any port. What has been
    /// received before stays. Returns `remote`, where the unspecified address is this host, and the
    /// address from which this host sends to it.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for the other IP version; [`Error::NetworkUnreachable`]. Nothing
    /// has changed then.
    pub fn connect(&self, remote: SocketAddr) -> Result<(SocketAddr, IpAddr), Error> {
        let remote = destination(remote);
        let (kind, source) = self.way_to(remote.ip())?;
        let unspecified = match remote.ip() {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        self.endpoint(kind)?;
        self.set_peer(Some(remote));
        Ok((remote, source.unwrap_or(unspecified)))
    }

    /// From now on, datagrams from every address are received.
    pub fn disconnect(&self) {
        self.set_peer(None);
    }

    fn set_peer(&self, peer: Option<SocketAddr>) {
        for endpoint in self.endpoints() {
            if let Some((_, datagram)) = endpoint.state.lock().datagram() {
                datagram.peer = peer.map(IpEndpoint::from);
            }
        }
    }

    /// Queues one datagram. Returns its length. Like any datagram it may be lost.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if the queue is full; [`Error::MessageTooLong`];
    /// [`Error::InvalidArgument`] for port 0 or the other IP version;
    /// [`Error::NetworkUnreachable`].
    pub fn try_send_to(&self, data: &[u8], remote: SocketAddr) -> Result<usize, Error> {
        self.send(None, data, remote)
    }

    /// Like [`try_send_to`](Self::try_send_to), but waits while the queue is full. Cancel-safe.
    pub fn poll_send_to(
        &self,
        context: &mut Context<'_>,
        data: &[u8],
        remote: SocketAddr,
    ) -> Poll<Result<usize, Error>> {
        match self.send(Some(context.waker()), data, remote) {
            Err(Error::WouldBlock) => Poll::Pending,
            sent => Poll::Ready(sent),
        }
    }

    fn send(&self, waker: Option<&Waker>, data: &[u8], remote: SocketAddr) -> Result<usize, Error> {
        self.send_with(waker, data.len(), remote, |room| room.copy_from_slice(data))
    }

    /// Like [`try_send_to`](Self::try_send_to), of `length` bytes that `fill` writes.
    ///
    /// # Errors
    /// As there; then `fill` has not been called.
    pub fn try_send_with(
        &self,
        length: usize,
        remote: SocketAddr,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<usize, Error> {
        self.send_with(None, length, remote, fill)
    }

    fn send_with(
        &self,
        waker: Option<&Waker>,
        length: usize,
        remote: SocketAddr,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<usize, Error> {
        let remote = destination(remote);
        if remote.port() == 0 {
            return Err(Error::InvalidArgument);
        }
        let (kind, source) = self.way_to(remote.ip())?;
        let endpoint = self.endpoint(kind)?;
        let link = self.stack.link(kind).ok_or(Error::NetworkUnreachable)?;
        let mtu = link.lock().transport.capabilities().ip_mtu();
        let headers = if remote.is_ipv4() { IPV4_HEADERS } else { IPV6_HEADERS };
        if length > mtu - headers {
            return Err(Error::MessageTooLong);
        }
        {
            let mut state = endpoint.state.lock();
            let (socket, datagram) = state.datagram().ok_or(Error::NotConnected)?;
            if length > socket.payload_send_capacity() {
                return Err(Error::MessageTooLong);
            }
            let mut metadata = UdpMetadata::from(IpEndpoint::from(remote));
            metadata.local_address = source.map(Into::into);
            match socket.send(length, metadata) {
                Ok(room) => fill(room),
                Err(SendError::BufferFull) => {
                    if let Some(waker) = waker {
                        datagram.senders.register(waker);
                    }
                    return Err(Error::WouldBlock);
                }
                Err(SendError::Unaddressable) => return Err(Error::NetworkUnreachable),
            }
        }
        self.stack.kick(endpoint);
        Ok(length)
    }

    /// The interface that leads to `remote`, and the source address of what is sent to it. `None`:
    /// smoltcp chooses it, for destinations without a route.
    fn way_to(&self, remote: IpAddr) -> Result<(LinkKind, Option<IpAddr>), Error> {
        let bound = self.claim.local.ip();
        let is_compatible = if bound.is_unspecified() {
            covers(bound, remote)
        } else {
            bound.is_ipv4() == remote.is_ipv4()
        };
        if !is_compatible {
            return Err(Error::InvalidArgument);
        }
        let everyone = remote == IpAddr::V4(Ipv4Addr::BROADCAST) || remote.is_multicast();
        let kind = self.stack.route(remote);
        let source = match kind {
            _ if !bound.is_unspecified() => Some(bound),
            LinkKind::Loopback => Some(remote),
            LinkKind::Ethernet if everyone => None,
            LinkKind::Ethernet => {
                let link = self.stack.link(kind).ok_or(Error::NetworkUnreachable)?;
                Some(link.lock().source_for(remote)?)
            }
        };
        Ok((kind, source))
    }

    fn endpoint(&self, kind: LinkKind) -> Result<&Arc<Endpoint>, Error> {
        match kind {
            LinkKind::Loopback => Ok(&self.loopback),
            LinkKind::Ethernet => self.ethernet.as_ref().ok_or(Error::NetworkUnreachable),
        }
    }

    /// Reads one datagram. Returns its length, cut to the size of `buffer`, and its sender.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if none has arrived.
    pub fn try_receive_from(&self, buffer: &mut [u8]) -> Result<(usize, SocketAddr), Error> {
        self.receive(None, buffer)
    }

    /// Like [`try_receive_from`](Self::try_receive_from), but waits for a datagram. Cancel-safe.
    pub fn poll_receive_from(
        &self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<(usize, SocketAddr), Error>> {
        match self.receive(Some(context.waker()), buffer) {
            Err(Error::WouldBlock) => Poll::Pending,
            received => Poll::Ready(received),
        }
    }

    fn receive(
        &self,
        waker: Option<&Waker>,
        buffer: &mut [u8],
    ) -> Result<(usize, SocketAddr), Error> {
        for endpoint in self.endpoints() {
            let mut state = endpoint.state.lock();
            let Some((socket, datagram)) = state.datagram() else { continue };
            if let Ok((data, metadata)) = socket.recv() {
                let length = data.len().min(buffer.len());
                buffer[..length].copy_from_slice(&data[..length]);
                return Ok((length, metadata.endpoint.into()));
            }
            // Registered on each endpoint before the next one is checked, so an arrival in between
            // wakes.
            if let Some(waker) = waker {
                datagram.receivers.register(waker);
            }
        }
        Err(Error::WouldBlock)
    }

    /// Calls `take` with the next datagram and its sender, if one has arrived.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if none has.
    pub fn try_receive_with<R>(
        &self,
        take: impl FnOnce(&[u8], SocketAddr) -> R,
    ) -> Result<R, Error> {
        for endpoint in self.endpoints() {
            if let Some((socket, _)) = endpoint.state.lock().datagram()
                && let Ok((data, metadata)) = socket.recv()
            {
                return Ok(take(data, metadata.endpoint.into()));
            }
        }
        Err(Error::WouldBlock)
    }

    /// Calls `look` with the datagram that the next receive returns, which stays, and its sender.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] if none has arrived.
    pub fn try_peek_with<R>(&self, look: impl FnOnce(&[u8], SocketAddr) -> R) -> Result<R, Error> {
        for endpoint in self.endpoints() {
            if let Some((socket, _)) = endpoint.state.lock().datagram()
                && let Ok((data, metadata)) = socket.peek()
            {
                return Ok(look(data, metadata.endpoint.into()));
            }
        }
        Err(Error::WouldBlock)
    }

    /// The socket's readiness. `writable` means that half of each of its queues is free, which is
    /// room for a datagram of the Ethernet interface.
    pub fn readiness(&self) -> Readiness {
        let mut readiness = Readiness { writable: true, ..Readiness::default() };
        for endpoint in self.endpoints() {
            if let Some((socket, _)) = endpoint.state.lock().datagram() {
                // Not `can_recv`, which is also true of padding.
                readiness.readable |= socket.peek().is_ok();
                readiness.writable &=
                    socket.can_send() && socket.send_queue() <= socket.payload_send_capacity() / 2;
            }
        }
        readiness
    }

    /// Registers `waker` to be woken when a datagram arrives. Check again afterwards.
    pub fn register_receive_waker(&self, waker: &Waker) {
        for endpoint in self.endpoints() {
            if let Some((_, datagram)) = endpoint.state.lock().datagram() {
                datagram.receivers.register(waker);
            }
        }
    }

    /// Registers `waker` to be woken when a queue has room. Check again afterwards.
    pub fn register_send_waker(&self, waker: &Waker) {
        for endpoint in self.endpoints() {
            if let Some((_, datagram)) = endpoint.state.lock().datagram() {
                datagram.senders.register(waker);
            }
        }
    }

    fn endpoints(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        core::iter::once(&self.loopback).chain(&self.ethernet)
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        for endpoint in self.endpoints() {
            self.stack.close_datagram(endpoint, self.claim.local.port());
        }
    }
}
