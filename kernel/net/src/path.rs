//! The path of a connection: what its segments need to go the direct way.
//!
//! smoltcp's Ethernet interface checks and looks up the same things for every packet: whether the
//! packet is for this host, whether its source is acceptable, the route, the neighbour's hardware
//! address. For a connection, the answers of the last packet hold for the next one. So an interface
//! for Ethernet has a second interface of smoltcp, the *direct* one, that takes and writes plain IP
//! packets. A segment goes through it if a short check of its header finds nothing unusual and the
//! connection's path is known; any other frame goes through the complete checks and the Ethernet
//! interface. Both interfaces pass the segment to the same socket, so all of TCP is the same.
//!
//! Both directions of a path come from the complete way: the Ethernet header from a segment that
//! was sent, and the permission to receive from a segment that was accepted. Two things end a path:
//!
//! - A new *epoch* of the interface. It begins whenever an address or a gateway of this host
//!   changes, and ends all paths.
//! - Its [`Hop`], which all connections with the same next hop share. A hop has one hardware
//!   address. A path with another one is ended; and without a confirmation for ten seconds, so are
//!   all paths over the hop. See `neighbours`.

use alloc::sync::Arc;
use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicU64, Ordering};

use cops_fallible::{OutOfMemory, try_arc};

use crate::frame::hardware_word;

/// The Ethernet header of a frame.
pub(crate) type EthernetHeader = [u8; 14];

/// How long a confirmation of a hop is valid.
const LIFETIME_MICROSECONDS: u64 = 10_000_000;
/// The age from which on a received segment renews it, and then one that is sent.
const RENEWAL_MICROSECONDS: u64 = 5_000_000;
const SENT_RENEWAL_MICROSECONDS: u64 = 7_500_000;
/// When another connection tries to renew a hop, if the one before has not.
const ATTEMPT_MICROSECONDS: u64 = 1_000_000;
/// No hardware address: a frame has one of 48 bits.
const UNKNOWN: u64 = u64::MAX;

/// The next hop of connections: a neighbour, and where it is.
///
/// Changed only with the interface locked, which also orders the accesses.
#[derive(Debug)]
pub(crate) struct Hop {
    pub(crate) address: Ipv4Addr,
    /// As [`destination`] has it: that of the last frame that smoltcp has sent there; [`UNKNOWN`]
    /// when there is news of another one.
    hardware: AtomicU64,
    /// When a received segment renews the confirmation, when one that is sent does, and its end.
    renew_at: AtomicU64,
    attempt_at: AtomicU64,
    until: AtomicU64,
}

impl Hop {
    /// A hop of which nothing is known.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn try_new(address: Ipv4Addr) -> Result<Arc<Hop>, OutOfMemory> {
        try_arc(Hop {
            address,
            hardware: AtomicU64::new(UNKNOWN),
            renew_at: AtomicU64::new(0),
            attempt_at: AtomicU64::new(0),
            until: AtomicU64::new(0),
        })
    }

    /// smoltcp is given a segment from this neighbour.
    pub(crate) fn note_heard(&self, now: u64) {
        self.renew_at.store(now + RENEWAL_MICROSECONDS, Ordering::Relaxed);
        self.note_known(now);
    }

    /// Received segments do not renew it: it is not looked whether they do for a while.
    pub(crate) fn postpone(&self, now: u64) {
        let until = self.until.load(Ordering::Relaxed);
        self.renew_at.store(until.min(now + RENEWAL_MICROSECONDS), Ordering::Relaxed);
    }

    /// smoltcp knows the neighbour at this time.
    fn note_known(&self, now: u64) {
        self.attempt_at.store(now + SENT_RENEWAL_MICROSECONDS, Ordering::Relaxed);
        self.until.store(now + LIFETIME_MICROSECONDS, Ordering::Relaxed);
    }

    /// The neighbour has announced a hardware address. If that is another one, the next segment
    /// asks smoltcp, which decides whether to believe it.
    pub(crate) fn announced(&self, hardware: u64) {
        if self.hardware.load(Ordering::Relaxed) != hardware {
            self.hardware.store(UNKNOWN, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn is_at(&self, hardware: u64) -> bool {
        self.hardware.load(Ordering::Relaxed) == hardware
    }
}

/// The hardware address to which a frame with this header goes.
fn destination(&[a, b, c, d, e, f, ..]: &EthernetHeader) -> u64 {
    hardware_word([a, b, c, d, e, f])
}

/// What is known about the path of one connection. Protected by the endpoint's lock.
#[derive(Debug, Default)]
pub(crate) struct Path {
    /// The interface's epoch to which the rest belongs.
    epoch: u64,
    hop: Option<Arc<Hop>>,
    header: EthernetHeader,
    /// The destination of `header`.
    hardware: u64,
    /// A segment has passed the complete checks.
    is_heard: bool,
}

impl Path {
    /// The hop, if the path leads to the hardware address at which it is now.
    #[inline(always)]
    fn hop_now(&self, epoch: u64) -> Option<&Hop> {
        self.hop.as_deref().filter(|hop| self.epoch == epoch && hop.is_at(self.hardware))
    }

    /// The Ethernet header for a segment that goes the direct way.
    pub(crate) fn to_send(&self, epoch: u64, now: u64) -> Option<EthernetHeader> {
        let hop = self.hop_now(epoch)?;
        (now < hop.until.load(Ordering::Relaxed)).then_some(self.header)
    }

    /// The same for the reply to a received segment, if that may go the direct way.
    pub(crate) fn to_receive(&self, epoch: u64, now: u64) -> Option<EthernetHeader> {
        self.to_send(epoch, now).filter(|_| self.is_heard)
    }

    /// Whether a segment has passed the complete checks.
    pub(crate) fn is_heard(&self) -> bool {
        self.is_heard
    }

    /// Whether a received segment may go the direct way, and the hop need not be renewed.
    #[inline(always)]
    pub(crate) fn is_fresh(&self, epoch: u64, now: u64) -> bool {
        self.is_heard
            && self.hop_now(epoch).is_some_and(|hop| now < hop.renew_at.load(Ordering::Relaxed))
    }

    /// The hop, if it is to be renewed, the path is the present one, and the hop is the peer
    /// `remote` itself. With `source`: and a segment from that hardware address renews it.
    pub(crate) fn hop_to_renew(
        &self,
        epoch: u64,
        remote: Ipv4Addr,
        source: Option<u64>,
        now: u64,
    ) -> Option<&Hop> {
        self.hop_now(epoch).filter(|hop| {
            hop.renew_at.load(Ordering::Relaxed) <= now
                && hop.address == remote
                && source.is_none_or(|source| source == self.hardware)
        })
    }

    /// The hop, if it is a gateway for `remote`.
    pub(crate) fn gateway(&self, remote: Ipv4Addr) -> Option<&Hop> {
        self.hop.as_deref().filter(|hop| hop.address != remote)
    }

    /// Whether this connection is to renew the hop, with a segment that it sends the complete way;
    /// then the path is ended. No other one is asked at the same time.
    pub(crate) fn gives_way_to_renewal(&mut self, now: u64) -> bool {
        let Some(hop) = &self.hop else { return false };
        let renews = hop.attempt_at.load(Ordering::Relaxed) <= now;
        if renews {
            hop.attempt_at.store(now + ATTEMPT_MICROSECONDS, Ordering::Relaxed);
            self.epoch = 0;
        }
        renews
    }

    /// The last known Ethernet header. It is that of [`to_send`](Self::to_send) whenever there is
    /// one, until the complete way is taken again.
    pub(crate) fn header(&self) -> EthernetHeader {
        self.header
    }

    /// The Ethernet interface has sent a segment with this header, over this hop.
    pub(crate) fn note_sent(
        &mut self,
        hop: Arc<Hop>,
        header: EthernetHeader,
        epoch: u64,
        now: u64,
    ) {
        self.enter(epoch);
        self.header = header;
        self.hardware = destination(&header);
        hop.hardware.store(self.hardware, Ordering::Relaxed);
        hop.note_known(now);
        self.hop = Some(hop);
    }

    /// A segment has passed the complete checks.
    pub(crate) fn note_heard(&mut self, epoch: u64) {
        self.enter(epoch);
        self.is_heard = true;
    }

    fn enter(&mut self, epoch: u64) {
        if self.epoch != epoch {
            *self = Path { epoch, ..Path::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u64 = LIFETIME_MICROSECONDS;

    fn hop() -> Arc<Hop> {
        Hop::try_new(Ipv4Addr::new(10, 0, 0, 1)).unwrap()
    }

    #[test]
    fn a_path_needs_both_directions_and_ends_with_the_epoch_and_the_hop() {
        let (header, hop) = ([1; 14], hop());
        let mut path = Path::default();
        path.note_heard(1);
        assert_eq!(path.to_receive(1, 0), None, "no segment was sent");
        path.note_sent(hop.clone(), header, 1, 5);
        assert_eq!(path.to_receive(1, 6), Some(header));
        assert_eq!(path.to_send(1, END + 4), Some(header));
        assert_eq!(path.to_send(1, END + 5), None);
        hop.note_known(END);
        assert_eq!(path.to_receive(1, END + 5), Some(header));
        assert_eq!(path.to_receive(2, END), None);
        assert_eq!(path.to_send(2, END), None);
        path.note_heard(2);
        assert_eq!(path.to_receive(2, END), None, "the header is of the last epoch");
        path.note_sent(hop, header, 3, END);
        assert_eq!(path.to_send(3, END), Some(header));
        assert_eq!(path.to_receive(3, END), None, "nothing was received in this epoch");
    }

    #[test]
    fn a_new_address_ends_the_paths_with_another_one() {
        let hop = hop();
        let (mut old, mut new) = (Path::default(), Path::default());
        old.note_sent(hop.clone(), [1; 14], 1, 0);
        hop.announced(old.hardware);
        assert!(old.to_send(1, 1).is_some(), "nothing new");
        hop.announced(2);
        assert!(old.to_send(1, 1).is_none());
        new.note_sent(hop.clone(), [2; 14], 1, 2);
        assert!(new.to_send(1, 3).is_some() && old.to_send(1, 3).is_none());
    }

    #[test]
    fn one_connection_renews_a_hop() {
        let hop = hop();
        let mut paths: [Path; 3] = core::array::from_fn(|_| Path::default());
        for path in &mut paths {
            path.note_heard(1);
            path.note_sent(hop.clone(), [1; 14], 1, 0);
        }
        let begin = SENT_RENEWAL_MICROSECONDS;
        assert!(!paths[0].gives_way_to_renewal(begin - 1));
        assert!(paths[0].gives_way_to_renewal(begin));
        assert_eq!(paths[0].to_send(1, begin), None, "it takes the complete way");
        assert!(!paths[1].gives_way_to_renewal(begin + ATTEMPT_MICROSECONDS - 1));
        assert!(paths[1].to_send(1, begin).is_some());
        assert!(paths[1].gives_way_to_renewal(begin + ATTEMPT_MICROSECONDS));
    }

    #[test]
    fn a_segment_of_the_neighbour_itself_renews_the_hop() {
        let (hop, mut path) = (hop(), Path::default());
        path.note_heard(1);
        path.note_sent(hop.clone(), [1; 14], 1, 0);
        assert!(!path.is_fresh(1, 0), "smoltcp was given no segment");
        hop.note_heard(0);
        let at = RENEWAL_MICROSECONDS;
        let renewed = |path: &Path, epoch, remote, source, now| {
            path.hop_to_renew(epoch, remote, source, now).is_some()
        };
        let (remote, source) = (hop.address, Some(path.hardware));
        assert!(path.is_fresh(1, at - 1) && !renewed(&path, 1, remote, source, at - 1));
        assert!(!path.is_fresh(1, at) && renewed(&path, 1, remote, source, at));
        assert!(renewed(&path, 1, remote, None, at));
        assert!(!renewed(&path, 1, remote, Some(5), at), "of another card");
        assert!(!renewed(&path, 1, Ipv4Addr::BROADCAST, source, at), "through a gateway");
        assert!(!renewed(&path, 2, remote, source, at));
        hop.postpone(at);
        assert!(path.is_fresh(1, END - 1) && !path.is_fresh(1, END), "not beyond its end");
        assert!(path.gateway(remote).is_none() && path.gateway(Ipv4Addr::BROADCAST).is_some());
        hop.announced(5);
        assert!(!path.is_fresh(1, at) && !renewed(&path, 1, remote, source, END));
    }
}
