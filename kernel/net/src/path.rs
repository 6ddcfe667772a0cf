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
//! was sent, and the permission to receive from a segment that was accepted. Each is valid for ten
//! seconds, and only while the *epoch* of the interface stays the same. A new epoch begins whenever
//! an address or a gateway of this host changes and whenever ARP or neighbour discovery brings
//! news. So a neighbour that announces a new hardware address gets the next segment there, and
//! smoltcp's neighbour cache, of which the entries live for a minute after the last packet, sees a
//! packet of each connection often enough.

/// The Ethernet header of a frame.
pub(crate) type EthernetHeader = [u8; 14];

/// How long an observation is valid.
const LIFETIME_MICROSECONDS: u64 = 10_000_000;

/// What is known about the path of one connection. Protected by the endpoint's lock.
#[derive(Debug, Default)]
pub(crate) struct Path {
    /// The interface's epoch to which the rest belongs.
    epoch: u64,
    header: EthernetHeader,
    sent_until: u64,
    heard_until: u64,
}

impl Path {
    /// The Ethernet header for a segment that goes the direct way.
    pub(crate) fn to_send(&self, epoch: u64, now: u64) -> Option<EthernetHeader> {
        (self.epoch == epoch && now < self.sent_until).then_some(self.header)
    }

    /// The same for the reply to a received segment, if that may go the direct way.
    pub(crate) fn to_receive(&self, epoch: u64, now: u64) -> Option<EthernetHeader> {
        self.to_send(epoch, now).filter(|_| now < self.heard_until)
    }

    /// The last known Ethernet header. It is that of [`to_send`](Self::to_send) whenever there is
    /// one, until the complete way is taken again.
    pub(crate) fn header(&self) -> EthernetHeader {
        self.header
    }

    /// The Ethernet interface has sent a segment with this header.
    pub(crate) fn note_sent(&mut self, header: EthernetHeader, epoch: u64, now: u64) {
        self.enter(epoch);
        self.header = header;
        self.sent_until = now + LIFETIME_MICROSECONDS;
    }

    /// A segment has passed the complete checks.
    pub(crate) fn note_heard(&mut self, epoch: u64, now: u64) {
        self.enter(epoch);
        self.heard_until = now + LIFETIME_MICROSECONDS;
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

    #[test]
    fn each_direction_ends_by_itself_and_both_with_the_epoch() {
        let header = [1; 14];
        let mut path = Path::default();
        path.note_heard(1, 0);
        assert_eq!(path.to_receive(1, 0), None, "no segment was sent");
        path.note_sent(header, 1, 5);
        assert_eq!(path.to_receive(1, 6), Some(header));
        let end = LIFETIME_MICROSECONDS;
        assert_eq!(path.to_receive(1, end), None);
        assert_eq!(path.to_send(1, end), Some(header));
        assert_eq!(path.to_send(1, end + 5), None);
        path.note_heard(1, end);
        assert_eq!(path.to_receive(1, end), Some(header));
        assert_eq!(path.to_receive(2, end), None);
        assert_eq!(path.to_send(2, end), None);
        path.note_heard(2, end);
        assert_eq!(path.to_receive(2, end), None, "the header is of the last epoch");
        assert_eq!(path.to_send(2, end), None, "the header is of the last epoch");
    }
}
