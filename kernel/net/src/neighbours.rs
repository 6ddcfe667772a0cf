//! The next hops of connections, and what ends or renews what is known about them.
//!
//! smoltcp's neighbour cache remains the only judge of hardware addresses: the address of a hop is
//! that of the last frame that smoltcp has sent there. smoltcp's cache cannot be read, so three
//! things are seen here that change it:
//!
//! - *News.* ARP that smoltcp accepts and that names another hardware address for a hop ends the
//!   paths that use the old one. The next segment of each of these connections takes the complete
//!   way, and smoltcp says where the hop is. ARP that confirms what is known ends nothing, nor does
//!   ARP about others, whatever its number.
//! - *A segment from the hop itself*, from the hardware address that is known: smoltcp keeps the
//!   entry of its sender for a minute more. A segment on the fast path never gets there. So, at
//!   most every five seconds for each hop, smoltcp is given an echo reply from that sender, which
//!   has no other effect.
//! - *Time.* A gateway's entry lives for a minute after the gateway's last ARP, whatever comes
//!   through it. So, every 7.5 seconds, one connection sends a segment the complete way, and leaves
//!   the fast path for that; the others stay. If smoltcp does not know the gateway any more, no
//!   segment is sent that way, and ten seconds after the last one all paths over the hop have
//!   ended.
//!
//! So what smoltcp forgets because of its age is used for at most ten seconds longer.

use alloc::sync::Arc;
use core::net::Ipv4Addr;

use cops_fallible::{Cursor, OutOfMemory, Table};
use smoltcp::iface::SocketSet;
use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetFrame, EthernetProtocol, IpAddress};

use crate::endpoint::{EndpointState, Protocol};
use crate::frame::{Plain, hardware_word};
use crate::link_core::LinkCore;
use crate::path::{EthernetHeader, Hop};
use crate::shared::Shared;

/// Unused hops are freed when the table has two hops for each connection, and so many more.
const UNUSED_MAX: usize = 16;
/// Then each insertion looks at so many buckets, less the number of hops that it frees. The table
/// is half empty at least, so that frees more than one hop on average.
const BUCKETS_PER_INSERTION: u32 = 8;

impl LinkCore {
    /// smoltcp has processed a frame with ARP.
    pub(crate) fn note_news(&self, frame: &[u8]) {
        let Ok(view) = EthernetFrame::new_checked(frame) else { return };
        if view.ethertype() != EthernetProtocol::Arp {
            return;
        }
        let Ok(packet) = ArpPacket::new_checked(view.payload()) else { return };
        let Ok(ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request | ArpOperation::Reply,
            source_hardware_addr,
            source_protocol_addr,
            target_protocol_addr,
            ..
        }) = ArpRepr::parse(&packet)
        else {
            return;
        };
        // smoltcp ignores everything else.
        let is_accepted =
            self.interface.has_ip_addr(target_protocol_addr) && source_hardware_addr.is_unicast();
        if is_accepted && let Some(hop) = self.hops.table.get(&source_protocol_addr) {
            hop.announced(hardware_word(source_hardware_addr.0));
        }
    }

    /// Whether an expected segment may be received on the fast path. It renews the hop if it can.
    #[inline(always)]
    pub(crate) fn path_is_valid(
        &mut self,
        shared: &Shared,
        state: &EndpointState,
        segment: &Plain<'_>,
        now: u64,
    ) -> bool {
        state.path.is_fresh(self.epoch, now) || self.renew_path(shared, state, segment, now)
    }

    #[cold]
    #[inline(never)]
    fn renew_path(
        &mut self,
        shared: &Shared,
        state: &EndpointState,
        segment: &Plain<'_>,
        now: u64,
    ) -> bool {
        let IpAddress::Ipv4(remote) = segment.words().key().remote.addr else { return false };
        let path = &state.path;
        let source = Some(segment.source_hardware());
        let Some(hop) = path.hop_to_renew(self.epoch, remote, source, now) else {
            if let Some(gateway) = path.gateway(remote) {
                gateway.postpone(now);
            }
            return path.to_receive(self.epoch, now).is_some();
        };
        if !path.is_heard() {
            return false;
        }
        hop.note_heard(now);
        let frame = segment.echo_reply();
        self.ingress(shared, &mut SocketSet::new(&mut [][..]), &frame, None, 0, now);
        true
    }

    /// A segment in `frame` has passed the checks of the complete way.
    pub(crate) fn note_accepted(&self, state: &mut EndpointState, frame: &[u8], now: u64) {
        state.path.note_heard(self.epoch);
        if let Protocol::Stream(stream) = &state.protocol
            && let IpAddress::Ipv4(remote) = stream.key.remote.addr
            && let Some(&source) = frame.get(6..).and_then(<[u8]>::first_chunk)
            && let Some(hop) =
                state.path.hop_to_renew(self.epoch, remote, Some(hardware_word(source)), now)
        {
            hop.note_heard(now);
        }
    }

    /// smoltcp has sent a segment with `header` the complete way. Without memory, the path remains
    /// unknown.
    pub(crate) fn note_path(
        &mut self,
        state: &mut EndpointState,
        header: EthernetHeader,
        now: u64,
    ) {
        let Protocol::Stream(stream) = &state.protocol else { return };
        let Some(address) = self.next_hop(stream.key.remote.addr) else { return };
        if let Ok(hop) = self.hops.get_or_insert(address, self.flows.len()) {
            state.path.note_sent(hop, header, self.epoch, now);
        }
    }

    /// The neighbour to which smoltcp sends a packet for `remote`.
    fn next_hop(&self, remote: IpAddress) -> Option<Ipv4Addr> {
        let is_on_the_link =
            || self.interface.ip_addrs().iter().any(|cidr| cidr.contains_addr(&remote));
        let gateway = || Some(self.interface.routes().get_default_ipv4_route()?.via_router);
        match if is_on_the_link() { Some(remote) } else { gateway() } {
            Some(IpAddress::Ipv4(address)) => Some(address),
            _ => None,
        }
    }
}

/// The next hops of connections, by address.
pub(crate) struct Hops {
    table: Table<Ipv4Addr, Arc<Hop>>,
    /// Where the search for unused ones continues.
    tidy_from: Cursor,
}

impl Hops {
    pub(crate) fn new(seed: u64) -> Hops {
        Hops { table: Table::new(seed), tidy_from: Cursor::default() }
    }

    /// The hop with this address, which is inserted if there is none. It holds: a hop that a path
    /// uses is in the table, so that news reach it.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    fn get_or_insert(
        &mut self,
        address: Ipv4Addr,
        connections: usize,
    ) -> Result<Arc<Hop>, OutOfMemory> {
        if let Some(hop) = self.table.get(&address) {
            return Ok(hop.clone());
        }
        if self.table.len() >= 2 * connections + UNUSED_MAX {
            self.free_some();
        }
        let hop = Hop::try_new(address)?;
        self.table.try_insert(address, hop.clone())?;
        Ok(hop)
    }

    /// Frees a few of the hops that no path uses.
    fn free_some(&mut self) {
        for _ in 0..BUCKETS_PER_INSERTION {
            let (hops, next) = self.table.bucket(self.tidy_from);
            let unused = hops.filter(|(_, hop)| Arc::strong_count(hop) == 1);
            match unused.map(|(&address, _)| address).last() {
                Some(unused) => drop(self.table.remove(&unused)),
                None => self.tidy_from = next.unwrap_or_default(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// As many addresses as there can be, of which half are in use, and then others.
    #[test]
    fn no_insertion_frees_many_hops() {
        const CONNECTIONS: u32 = 4000;
        let mut hops = Hops::new(1);
        let limit = 2 * CONNECTIONS as usize + UNUSED_MAX;
        let mut hop = |number| {
            let hop = hops.get_or_insert(Ipv4Addr::from_bits(number), CONNECTIONS as usize);
            (hop.unwrap(), hops.table.len())
        };
        let used: Vec<_> = (0..CONNECTIONS).map(|number| hop(number).0).collect();
        let (mut before, mut longest) = (0, 0);
        for number in CONNECTIONS..20 * CONNECTIONS {
            let (_, after) = hop(number);
            assert!(before < after + 8, "{before} hops, then {after}");
            (before, longest) = (after, longest.max(after));
        }
        assert!((limit..limit * 5 / 4).contains(&longest), "{longest} hops");
        for (number, used) in (0..).zip(&used) {
            assert!(Arc::ptr_eq(used, &hop(number).0));
        }
    }

    #[test]
    fn hops_that_no_connection_uses_are_freed() {
        let mut hops = Hops::new(1);
        let mut hop = |number| hops.get_or_insert(Ipv4Addr::from_bits(number), 2).unwrap();
        let used = [hop(1), hop(2)];
        (3..1000).for_each(|number| drop(hop(number)));
        assert!(used.iter().zip(1..).all(|(used, number)| Arc::ptr_eq(used, &hop(number))));
        assert!(hops.table.len() <= 4 + UNUSED_MAX, "{}", hops.table.len());
    }
}
