//! Conversations with smoltcp of which nothing reaches the device.
//!
//! smoltcp's sockets cannot be changed from outside except by segments. A script is a sequence of
//! segments that are made up, and of attempts to send that are thrown away.

use core::ops::Range;

use smoltcp::iface::{Interface, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};

use crate::frame::FlowKey;
use crate::link_core::instant;

/// The most data of a segment that is made up, and the largest receive buffer of a connection that
/// enters the fast path.
pub(crate) const DATA_BYTES_MAX: usize = 4096;
/// A script that brings a socket into the state of a connection, or gets its bytes, takes as long
/// as so many more frames: some 15,000 instructions (decision 54).
pub(crate) const FRAMES_OF_A_SCRIPT: u64 = 3;
/// The most bytes of a packet that is made up: with all options.
pub(crate) const MADE_UP_BYTES_MAX: usize = DATA_BYTES_MAX + 40 + 60;

/// A conversation with smoltcp of which nothing reaches the device.
pub(crate) struct Script<'a> {
    pub(crate) interface: &'a mut Interface,
    pub(crate) capabilities: DeviceCapabilities,
    pub(crate) sockets: &'a mut SocketSet<'static>,
    pub(crate) key: FlowKey,
    /// Memory for a packet to smoltcp and one from it.
    pub(crate) memory: &'a mut [u8],
}

/// A device that has received at most one packet and keeps the last one that was sent.
struct Page<'a> {
    capabilities: DeviceCapabilities,
    received: Option<&'a [u8]>,
    sent: &'a mut [u8],
    /// The sequence number of the last packet sent, and where its data is.
    last: Option<(TcpSeqNumber, Range<usize>)>,
}

struct Received<'a>(&'a [u8]);

struct Room<'p, 'a>(&'p mut Page<'a>);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

impl TxToken for Room<'_, '_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let Room(page) = self;
        let packet = &mut page.sent[..length];
        let result = write(packet);
        // smoltcp writes no options of IPv4.
        let segment = TcpPacket::new_unchecked(&packet[20..]);
        page.last = Some((segment.seq_number(), 20 + usize::from(segment.header_len())..length));
        result
    }
}

impl<'a> Device for Page<'a> {
    type RxToken<'t>
        = Received<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Room<'t, 'a>
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Room<'_, 'a>)> {
        let packet = self.received.take()?;
        Some((Received(packet), Room(self)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room<'_, 'a>> {
        Some(Room(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities.clone()
    }
}

impl Script<'_> {
    /// smoltcp receives a segment of the peer. The caller gives what differs from one without
    /// options.
    pub(crate) fn receive(&mut self, segment: TcpRepr<'_>, at: u64) {
        let key = &self.key;
        let length = segment.buffer_len();
        let ip = IpRepr::new(key.remote.addr, key.local.addr, IpProtocol::Tcp, length, 64);
        let (packet, sent) = self.memory.split_at_mut(MADE_UP_BYTES_MAX);
        let Some(packet) = packet.get_mut(..ip.buffer_len()) else { return };
        let ignored = ChecksumCapabilities::ignored();
        ip.emit(&mut *packet, &ignored);
        let mut view = TcpPacket::new_unchecked(&mut packet[ip.header_len()..]);
        segment.emit(&mut view, &key.remote.addr, &key.local.addr, &ignored);
        let mut page = Page {
            capabilities: self.capabilities.clone(),
            received: Some(packet),
            sent,
            last: None,
        };
        self.interface.poll_ingress_single(instant(at), &mut page, self.sockets);
    }

    /// smoltcp sends a segment, if it has one. Returns its sequence number.
    pub(crate) fn send(&mut self, at: u64) -> Option<TcpSeqNumber> {
        self.send_data(at).map(|(sequence, _)| sequence)
    }

    /// The same, with the segment's data.
    pub(crate) fn send_data(&mut self, at: u64) -> Option<(TcpSeqNumber, &[u8])> {
        let (_, sent) = self.memory.split_at_mut(MADE_UP_BYTES_MAX);
        let mut page =
            Page { capabilities: self.capabilities.clone(), received: None, sent, last: None };
        self.interface.poll_egress(instant(at), &mut page, self.sockets);
        let (sequence, data) = page.last?;
        Some((sequence, page.sent.get(data)?))
    }

    /// A segment of the peer without anything.
    pub(crate) fn segment(&self) -> TcpRepr<'static> {
        TcpRepr {
            src_port: self.key.remote.port,
            dst_port: self.key.local.port,
            control: TcpControl::None,
            seq_number: TcpSeqNumber(0),
            ack_number: None,
            window_len: 0,
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: &[],
        }
    }
}
