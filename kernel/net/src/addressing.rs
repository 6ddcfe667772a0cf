//! The addresses and routes of the interfaces: loopback, static configuration, DHCP.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::{IpAddr, Ipv4Addr};

use cops_fallible::{Cursor, OutOfMemory, try_box};
use smoltcp::iface::{Config, Interface};
use smoltcp::socket::dhcpv4;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, Ipv4Cidr, Ipv6Address};

use crate::configuration::{EthernetAddressing, Lease, NameServers};
use crate::device::{Adapter, FRAME_BYTES_MAX, FrameDevice, Transport};
use crate::endpoint::{Endpoint, LinkKind};
use crate::error::Error;
use crate::frame::hardware_word;
use crate::link_core::{LinkCore, instant};
use crate::loopback::LoopbackQueue;
use crate::path::EthernetHeader;
use crate::recent::Recent;
use crate::script::MADE_UP_BYTES_MAX;
use crate::shared::Shared;
use crate::work::give_turn;

/// Buckets of the table of connections that one step looks at: a bucket has about one connection,
/// and to end one takes some hundred instructions, besides its turn.
const HOMELESS_BUCKETS_PER_STEP: u32 = 8;

/// Creates the loopback interface.
///
/// # Errors
/// [`OutOfMemory`].
pub(crate) fn loopback(shared: &Arc<Shared>) -> Result<LinkCore, OutOfMemory> {
    let mut transport = Transport::Loopback(LoopbackQueue::new()?);
    let mut interface = interface(shared, HardwareAddress::Ip, &mut transport);
    interface.update_ip_addrs(|addresses| {
        for address in [
            IpCidr::new(IpAddress::v4(127, 0, 0, 1), 8),
            IpCidr::new(Ipv6Address::LOCALHOST.into(), 128),
        ] {
            // Cannot fail: there is room for eight.
            let _ = addresses.push(address);
        }
    });
    // Loopback accepts all of 127.0.0.0/8, and whatever addresses the other interface has.
    interface.set_any_ip(true);
    Ok(LinkCore::new(shared, LinkKind::Loopback, interface, transport))
}

/// Creates the Ethernet interface; `None` if the device's MAC address is unusable.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub(crate) fn ethernet(
    shared: &Arc<Shared>,
    device: Box<dyn FrameDevice>,
) -> Result<Option<LinkCore>, Error> {
    let hardware_address = EthernetAddress(device.hardware_address());
    if !hardware_address.is_unicast() {
        return Ok(None);
    }
    let mut transport = Transport::ethernet(device)?;
    let interface = interface(shared, hardware_address.into(), &mut transport);
    let direct = direct_interface(shared, &mut transport)?;
    let mut core = LinkCore::new(shared, LinkKind::Ethernet, interface, transport);
    core.direct = Some(direct);
    core.hardware = hardware_word(hardware_address.0);
    core.recent = Recent::try_new()?;
    core.memory.try_resize(MADE_UP_BYTES_MAX + FRAME_BYTES_MAX, 0)?;
    let own_link_local = link_local(hardware_address);
    match &shared.configuration.ethernet {
        EthernetAddressing::Dhcp => {
            core.set_addresses([own_link_local].into_iter());
            let dhcp = Endpoint::dhcp(shared)?;
            core.dhcp = Some(dhcp.clone());
            core.serve(shared, &dhcp, None);
        }
        EthernetAddressing::Static { addresses: own, gateways } => {
            let own =
                own.iter().filter_map(|&(address, prefix_length)| cidr(address, prefix_length));
            core.set_addresses([own_link_local].into_iter().chain(own));
            for gateway in gateways {
                core.set_gateway(*gateway);
            }
            core.publish(shared, NameServers::default());
        }
    }
    Ok(Some(core))
}

fn interface(
    shared: &Shared,
    hardware_address: HardwareAddress,
    transport: &mut Transport,
) -> Interface {
    let mut config = Config::new(hardware_address);
    let seeds = &shared.configuration.random_seeds;
    config.random_seed =
        if hardware_address == HardwareAddress::Ip { seeds.loopback } else { seeds.ethernet };
    let now = instant(shared.clock.now_microseconds());
    Interface::new(config, &mut Adapter::new(transport, &shared.counters, None, 0), now)
}

/// Creates the direct interface for connections over Ethernet (see `path`).
///
/// It is large, and not inlined so that no more than one is on the stack at a time.
///
/// # Errors
/// [`OutOfMemory`].
#[inline(never)]
fn direct_interface(
    shared: &Shared,
    transport: &mut Transport,
) -> Result<Box<Interface>, OutOfMemory> {
    // The seed is of no use: only segments of established connections come here, and smoltcp
    // chooses nothing at random for them.
    let config = Config::new(HardwareAddress::Ip);
    let now = instant(shared.clock.now_microseconds());
    let mut adapter =
        Adapter::direct(transport, &shared.counters, None, EthernetHeader::default(), 0);
    let mut interface = Interface::new(config, &mut adapter, now);
    // It has no addresses: only packets for this host come here.
    interface.set_any_ip(true);
    try_box(interface)
}

/// The address if it is usable as our own; smoltcp would panic on an unusable one.
fn cidr(address: IpAddr, prefix_length: u8) -> Option<IpCidr> {
    let longest = if address.is_ipv4() { 32 } else { 128 };
    (is_host(address) && prefix_length <= longest)
        .then(|| IpCidr::new(address.into(), prefix_length))
}

/// Whether `address` can be the address of a single host.
fn is_host(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || address.is_loopback() || broadcast)
}

/// `fe80::` and the modified EUI-64 of the MAC address (RFC 4291, appendix A).
fn link_local(EthernetAddress([a, b, c, d, e, f]): EthernetAddress) -> IpCidr {
    let pair = |high, low| u16::from_be_bytes([high, low]);
    let address =
        Ipv6Address::new(0xfe80, 0, 0, 0, pair(a ^ 2, b), pair(c, 0xff), pair(0xfe, d), pair(e, f));
    IpCidr::new(address.into(), 64)
}

impl LinkCore {
    fn set_addresses(&mut self, new: impl Iterator<Item = IpCidr>) {
        self.begin_epoch();
        self.interface.update_ip_addrs(|addresses| {
            addresses.clear();
            // There is room for eight addresses; as documented, further ones are dropped.
            for address in new {
                let _ = addresses.push(address);
            }
        });
    }

    fn set_gateway(&mut self, gateway: IpAddr) {
        if !is_host(gateway) {
            return;
        }
        self.begin_epoch();
        let routes = self.interface.routes_mut();
        // Cannot fail: there is room for four routes, and only the two default routes are ever set.
        let _ = match gateway {
            IpAddr::V4(gateway) => routes.add_default_ipv4_route(gateway).map(drop),
            IpAddr::V6(gateway) => routes.add_default_ipv6_route(gateway).map(drop),
        };
    }

    /// Applies the DHCP client's configuration if it has changed.
    pub(crate) fn apply_lease(&mut self, shared: &Arc<Shared>, dhcp: &Arc<Endpoint>) {
        let (lease, name_servers) = {
            let mut state = dhcp.state.lock();
            let Some(handle) = state.handle else { return };
            match state.sockets.get_mut::<dhcpv4::Socket<'static>>(handle).poll() {
                None => return,
                Some(dhcpv4::Event::Deconfigured) => (None, NameServers::default()),
                Some(dhcpv4::Event::Configured(config)) => {
                    let mut servers = config.dns_servers.iter().copied();
                    (
                        Some((config.address, config.router)),
                        core::array::from_fn(|_| servers.next()),
                    )
                }
            }
        };
        let lease = lease.filter(|(address, _)| is_host(address.address().into()));
        let address = lease.map(|(address, _)| address);
        let router = lease.and_then(|(_, router)| router);
        self.set_ipv4(address, router.filter(|router| is_host((*router).into())));
        self.publish(shared, name_servers);
    }

    /// Sets the only IPv4 address and the gateway. What is the same already has no effect: a server
    /// can renew a lease, and change other options, as often as it likes.
    fn set_ipv4(&mut self, address: Option<Ipv4Cidr>, gateway: Option<Ipv4Addr>) {
        let (old_address, old_gateway) = (self.ipv4_address(), self.ipv4_gateway());
        if (address, gateway) == (old_address, old_gateway) {
            return;
        }
        self.begin_epoch();
        self.interface.routes_mut().remove_default_ipv4_route();
        self.interface.update_ip_addrs(|addresses| {
            addresses.retain(|address| matches!(address, IpCidr::Ipv6(_)));
            if let Some(address) = address {
                // Cannot fail: there is room for eight addresses, and these are two.
                let _ = addresses.push(IpCidr::Ipv4(address));
            }
        });
        if let Some(gateway) = gateway {
            self.set_gateway(gateway.into());
        }
        let is_gone = |old: Ipv4Cidr| !self.interface.has_ip_addr(old.address());
        if old_address.is_some_and(is_gone) {
            self.homeless_from = Some(Cursor::default());
        }
    }

    /// Ends connections of an address that is gone now, rather than at their next segment: those in
    /// the next few buckets of the table. Returns whether there was anything to do.
    pub(crate) fn end_homeless_connections(&mut self, shared: &Shared) -> bool {
        let begun = self.homeless_from.is_some();
        for _ in 0..HOMELESS_BUCKETS_PER_STEP {
            let Some(cursor) = self.homeless_from else { break };
            let (connections, next) = self.flows.bucket(cursor);
            self.homeless_from = next;
            for (key, endpoint) in connections {
                if self.interface.has_ip_addr(key.local.addr) {
                    continue;
                }
                let mut state = endpoint.state.lock();
                if let Some((socket, stream)) = state.stream() {
                    stream.abort(socket, Error::ConnectionAborted, &shared.counters);
                } else if let Some(stream) = state.record() {
                    stream.doomed = true;
                }
                drop(state);
                give_turn(&mut self.turns, endpoint);
            }
        }
        begun
    }

    fn ipv4_address(&self) -> Option<Ipv4Cidr> {
        self.interface.ip_addrs().iter().find_map(|address| match address {
            IpCidr::Ipv4(cidr) => Some(*cidr),
            IpCidr::Ipv6(_) => None,
        })
    }

    fn ipv4_gateway(&self) -> Option<Ipv4Addr> {
        match self.interface.routes().get_default_ipv4_route()?.via_router {
            IpAddress::Ipv4(gateway) => Some(gateway),
            IpAddress::Ipv6(_) => None,
        }
    }

    /// Publishes the IPv4 configuration and wakes the coroutines that wait for one.
    fn publish(&self, shared: &Shared, name_servers: NameServers) {
        let mut network = shared.network.lock();
        network.lease = self.ipv4_address().map(|address| Lease {
            address: address.address(),
            prefix_length: address.prefix_len(),
            gateway: self.ipv4_gateway(),
            name_servers,
        });
        if network.lease.is_some() {
            network.waiters.wake_all();
        }
    }
}
