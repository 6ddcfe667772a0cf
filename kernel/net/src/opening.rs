//! Creating sockets: binding, listening, connecting; choosing interface, source address and port.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use cops_fallible::try_arc;
use smoltcp::wire::{IpAddress, IpCidr, IpEndpoint};

use crate::backlog::{Backlog, Payer};
use crate::connection::Connection;
use crate::endpoint::{Endpoint, LinkKind};
use crate::error::Error;
use crate::frame::FlowKey;
use crate::link_core::LinkCore;
use crate::listener::Listener;
use crate::registry::{PortSearch, Space};
use crate::shared::Shared;
use crate::stack::Stack;
use crate::stream::Owner;

/// A port claimed for a socket. Dropping it releases the port.
pub(crate) struct Claim {
    shared: Arc<Shared>,
    space: Space,
    pub(crate) local: SocketAddr,
}

impl Claim {
    /// A port; `None`: there are more to look at, with the same `search`.
    pub(crate) fn new(
        stack: &Stack,
        space: Space,
        local: SocketAddr,
        search: &mut PortSearch,
    ) -> Result<Option<Claim>, Error> {
        let mut local = canonical(local);
        let address = local.ip();
        if !(address.is_unspecified() || address.is_loopback() || stack.is_own(address)) {
            return Err(Error::AddressNotAvailable);
        }
        let Some(port) = stack.shared.registry.lock().claim(space, local, search)? else {
            return Ok(None);
        };
        local.set_port(port);
        Ok(Some(Claim { shared: stack.shared.clone(), space, local }))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.shared.registry.lock().release(self.space, self.local);
    }
}

/// A TCP port that is bound and not yet listening or connecting. Dropping it releases the port.
pub struct TcpBinding {
    stack: Arc<Stack>,
    claim: Claim,
}

impl Stack {
    /// Binds a TCP port; port 0 chooses a free one.
    ///
    /// # Errors
    /// [`Error::AddressInUse`]; [`Error::AddressNotAvailable`] if the address is not this host's or
    /// no port is left.
    pub fn bind_tcp(self: &Arc<Self>, local: SocketAddr) -> Result<TcpBinding, Error> {
        to_the_end(|search| self.bind_tcp_in_portions(local, search))
    }

    /// As [`bind_tcp`](Self::bind_tcp), but looks at a few ports only. `None`: to be called again
    /// with the same `search`.
    ///
    /// # Errors
    /// As there.
    pub fn bind_tcp_in_portions(
        self: &Arc<Self>,
        local: SocketAddr,
        search: &mut PortSearch,
    ) -> Result<Option<TcpBinding>, Error> {
        let claim = Claim::new(self, Space::Stream, local, search)?;
        Ok(claim.map(|claim| TcpBinding::new(self.clone(), claim)))
    }

    /// Binds and listens; see [`TcpBinding::listen`].
    ///
    /// # Errors
    /// Those of [`bind_tcp`](Self::bind_tcp) and of [`TcpBinding::listen`].
    pub fn listen(self: &Arc<Self>, local: SocketAddr, backlog: usize) -> Result<Listener, Error> {
        self.bind_tcp(local)?.listen(backlog)
    }

    /// Begins a connection from an ephemeral port; see [`TcpBinding::connect`].
    ///
    /// # Errors
    /// Those of [`TcpBinding::connect`], and [`Error::AddressNotAvailable`] if no port is left.
    pub fn connect(self: &Arc<Self>, remote: SocketAddr) -> Result<Connection, Error> {
        to_the_end(|search| self.connect_in_portions(remote, search))
    }

    /// As [`connect`](Self::connect), but looks at a few ports only. `None`: to be called again
    /// with the same `search`.
    ///
    /// # Errors
    /// As there.
    pub fn connect_in_portions(
        self: &Arc<Self>,
        remote: SocketAddr,
        search: &mut PortSearch,
    ) -> Result<Option<Connection>, Error> {
        let endpoint = self.open(None, remote, search)?;
        Ok(endpoint.map(|endpoint| Connection::new(self.clone(), endpoint, None)))
    }

    /// `None`: there are more ports to look at, with the same `search`.
    fn open(
        &self,
        local: Option<SocketAddr>,
        remote: SocketAddr,
        search: &mut PortSearch,
    ) -> Result<Option<Arc<Endpoint>>, Error> {
        let remote = destination(remote);
        let address = remote.ip();
        if remote.port() == 0
            || address.is_multicast()
            || address == IpAddr::V4(Ipv4Addr::BROADCAST)
        {
            return Err(Error::InvalidArgument);
        }
        let bound = local.map(|local| local.ip()).filter(|address| !address.is_unspecified());
        if local.is_some_and(|local| local.ip().is_ipv4() && address.is_ipv6())
            || bound.is_some_and(|bound| bound.is_ipv4() != address.is_ipv4())
        {
            return Err(Error::InvalidArgument);
        }
        let kind = self.route(address);
        let mut core = self.link(kind).ok_or(Error::NetworkUnreachable)?.lock();
        let source = match (kind, bound) {
            // On loopback an Ethernet address may be used, to reach this host; not the reverse.
            (LinkKind::Ethernet, Some(bound)) if bound.is_loopback() => {
                return Err(Error::InvalidArgument);
            }
            (_, Some(bound)) => bound,
            (LinkKind::Loopback, None) => address,
            (LinkKind::Ethernet, None) => core.source_for(address)?,
        };
        let remote = IpEndpoint::from(remote);
        let key_from = |port| FlowKey { local: IpEndpoint::new(source.into(), port), remote };
        let key = match local {
            Some(local) => Some(key_from(local.port()))
                .filter(|key| core.is_free(key))
                .ok_or(Error::AddressNotAvailable)?,
            None => {
                let mut registry = self.shared.registry.lock();
                let port = registry.choose_port(search, |port| core.is_free(&key_from(port)))?;
                let Some(port) = port else { return Ok(None) };
                key_from(port)
            }
        };
        core.flows.reserve_one()?;
        let now = core.now(&self.shared);
        let endpoint = Endpoint::stream(&self.shared, kind, key, Owner::Handle, now)?;
        {
            let mut state = endpoint.state.lock();
            let (socket, stream) = state.stream().ok_or(Error::InvalidArgument)?;
            socket
                .connect(core.interface.context(), key.remote, key.local)
                .map_err(|_| Error::AddressNotAvailable)?;
            stream.in_table = true;
        }
        core.flows.try_insert(key, endpoint.clone())?;
        core.serve_now(&endpoint);
        Ok(Some(endpoint))
    }

    /// The interface that leads to `address`. This host's own addresses are reached over loopback.
    pub(crate) fn route(&self, address: IpAddr) -> LinkKind {
        if address.is_loopback() || self.is_own(address) {
            LinkKind::Loopback
        } else {
            LinkKind::Ethernet
        }
    }
}

impl fmt::Debug for TcpBinding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("TcpBinding").field(&self.claim.local).finish()
    }
}

impl TcpBinding {
    pub(crate) fn new(stack: Arc<Stack>, claim: Claim) -> TcpBinding {
        TcpBinding { stack, claim }
    }

    /// The bound address, with the port that was chosen.
    pub fn local_address(&self) -> SocketAddr {
        self.claim.local
    }

    /// Listens. `backlog` (clamped to 1 to 4096) limits the connections that are half open or not
    /// yet accepted; a SYN beyond it is dropped, and the client tries again.
    ///
    /// `0.0.0.0` listens for IPv4, `::` for IPv6 and IPv4.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]. The port is then released.
    pub fn listen(self, backlog: usize) -> Result<Listener, Error> {
        self.listen_with(Backlog::new(backlog, None))
    }

    /// As [`listen`](Self::listen). Only connections that `payer` pays for can wait: the SYN of
    /// another one is dropped, as beyond the backlog.
    ///
    /// # Errors
    /// As there.
    pub fn listen_paid_by(self, payer: Box<dyn Payer>, backlog: usize) -> Result<Listener, Error> {
        self.listen_with(Backlog::new(backlog, Some(payer)))
    }

    fn listen_with(self, backlog: Backlog) -> Result<Listener, Error> {
        let backlog = try_arc(backlog)?;
        self.stack.shared.registry.lock().set_listener(self.claim.local, Some(backlog.clone()));
        Ok(Listener::new(self.stack, self.claim, backlog))
    }

    /// Begins a connection; wait for it with [`Connection::poll_connected`]. The port stays bound
    /// until the connection's handle is dropped.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::NetworkUnreachable`], [`Error::AddressNotAvailable`]
    /// (as on Linux also if this pair of addresses is in use), [`Error::TooManyConnections`],
    /// [`Error::OutOfMemory`]. With the port, which stays bound as long as that is kept.
    pub fn connect(self, remote: SocketAddr) -> Result<Connection, (Error, Self)> {
        // It has its port: nothing is searched for.
        match self.stack.open(Some(self.claim.local), remote, &mut PortSearch::default()) {
            Ok(Some(endpoint)) => Ok(Connection::new(self.stack, endpoint, Some(self.claim))),
            Ok(None) => Err((Error::AddressNotAvailable, self)),
            Err(error) => Err((error, self)),
        }
    }
}

/// All portions of a search, one after the other: for callers that nothing more urgent waits for.
pub(crate) fn to_the_end<R>(
    mut portion: impl FnMut(&mut PortSearch) -> Result<Option<R>, Error>,
) -> Result<R, Error> {
    let mut search = PortSearch::default();
    loop {
        if let Some(found) = portion(&mut search)? {
            return Ok(found);
        }
    }
}

impl LinkCore {
    /// Whether no connection has this pair of addresses.
    fn is_free(&self, key: &FlowKey) -> bool {
        !self.flows.contains_key(key) && !self.time_wait.contains(key)
    }

    /// The source address for reaching `remote` over this interface.
    pub(crate) fn source_for(&self, remote: IpAddr) -> Result<IpAddr, Error> {
        let remote = IpAddress::from(remote);
        let cidrs = self.interface.ip_addrs();
        let broadcast = |cidr: &IpCidr| match cidr {
            IpCidr::Ipv4(cidr) => cidr.broadcast().map(IpAddress::Ipv4) == Some(remote),
            IpCidr::Ipv6(_) => false,
        };
        if cidrs.iter().any(broadcast) {
            return Err(Error::NetworkUnreachable);
        }
        let on_link = cidrs.iter().any(|cidr| cidr.contains_addr(&remote));
        let routes = self.interface.routes();
        let routed = match remote {
            IpAddress::Ipv4(_) => routes.get_default_ipv4_route().is_some(),
            IpAddress::Ipv6(_) => routes.get_default_ipv6_route().is_some(),
        };
        let source = self.interface.get_source_address(&remote).map(IpAddr::from);
        source
            .filter(|source| {
                (on_link || routed) && !source.is_loopback() && !source.is_unspecified()
            })
            .ok_or(Error::NetworkUnreachable)
    }
}

/// Converts an IPv4-mapped IPv6 address to the IPv4 address.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Like `canonical`, and also converts the unspecified address, as a destination, to this host (as
/// on Linux).
pub(crate) fn destination(remote: SocketAddr) -> SocketAddr {
    let remote = canonical(remote);
    let address = match remote.ip() {
        IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(address) if address.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    };
    SocketAddr::new(address, remote.port())
}
