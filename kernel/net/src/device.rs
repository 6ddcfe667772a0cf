//! The interfaces to hardware and time, and the adapter that passes smoltcp one frame at a time.
//!
//! A device here is only the transmitting half. The receiving half belongs to the driver's
//! coroutine, which calls [`Stack::receive`](crate::Stack::receive). So no lock covers both
//! directions of a driver.

use alloc::boxed::Box;

use cops_fallible::{List, OutOfMemory};
use smoltcp::phy::{
    Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken,
};
use smoltcp::time::Instant;

use crate::checksum;
use crate::loopback::LoopbackQueue;
use crate::path::EthernetHeader;
use crate::statistics::Counters;

/// The clock of the stack.
pub trait Clock: Send + Sync {
    /// Microseconds since any fixed moment. It may go back only by the difference between the
    /// harts' clocks; the stack clamps such steps.
    fn now_microseconds(&self) -> u64;
}

/// The transmit queue of the device is full; the frame was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceFull;

/// The transmitting half of an Ethernet device.
///
/// All methods are called with the interface locked: they must not wait and must not call the
/// stack.
pub trait FrameDevice: Send {
    /// The device's unicast MAC address. Must not change.
    fn hardware_address(&self) -> [u8; 6];

    /// Maximum length of a frame in bytes, including the Ethernet header but not the frame check
    /// sequence.
    fn maximum_frame_length(&self) -> usize {
        1514
    }

    /// Whether there is room for one more frame. May reclaim finished descriptors.
    ///
    /// If it returns `false`, the driver must call
    /// [`Stack::transmit_ready`](crate::Stack::transmit_ready) once there is room.
    fn has_room(&mut self) -> bool;

    /// Queues a frame of `length` bytes, which `fill` writes.
    ///
    /// On success `fill` has been called exactly once, with a slice of exactly `length` bytes. It
    /// does not read their previous contents. The device need not send the frame before `flush`.
    ///
    /// # Errors
    /// [`DeviceFull`], and then `fill` was not called.
    fn transmit(
        &mut self,
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceFull>;

    /// Maximum length of a frame for [`transmit_divided`](Self::transmit_divided); 0 without
    /// segmentation offload. Must not change.
    fn divided_frame_length(&self) -> usize {
        0
    }

    /// Queues one long segment of TCP, which the device divides into segments with at most
    /// `segment_bytes` of its data each (segmentation offload); otherwise as
    /// [`transmit`](Self::transmit).
    ///
    /// The headers are those of Ethernet, IPv4 and TCP, without options, as one segment of all the
    /// data would have them. The device completes TCP's checksum: its field contains the sum of the
    /// pseudo header.
    ///
    /// # Errors
    /// [`DeviceFull`], and then `fill` was not called.
    fn transmit_divided(
        &mut self,
        length: usize,
        segment_bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceFull> {
        let _ = (length, segment_bytes, fill);
        Err(DeviceFull)
    }

    /// Ends a batch of `transmit`s: notifies the device.
    fn flush(&mut self) {}
}

/// The destination of an interface's frames.
pub(crate) enum Transport {
    /// The device, and a buffer for frames that the device does not take.
    Ethernet(Box<dyn FrameDevice>, List<u8>),
    Loopback(LoopbackQueue),
}

/// Maximum length of any frame.
pub(crate) const FRAME_BYTES_MAX: usize = 9230;

impl Transport {
    /// Wraps a device.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn ethernet(device: Box<dyn FrameDevice>) -> Result<Transport, OutOfMemory> {
        let mut lost = List::try_with_capacity(FRAME_BYTES_MAX)?;
        lost.try_resize(FRAME_BYTES_MAX, 0)?;
        Ok(Transport::Ethernet(device, lost))
    }

    /// The buffer into which a frame is written that is then lost.
    fn lost(&mut self) -> &mut [u8] {
        match self {
            Transport::Ethernet(_, lost) => lost,
            Transport::Loopback(queue) => queue.lost(),
        }
    }

    pub(crate) fn has_room(&mut self) -> bool {
        match self {
            Transport::Ethernet(device, _) => device.has_room(),
            Transport::Loopback(queue) => queue.has_room(),
        }
    }

    /// Like [`FrameDevice::transmit`], and counts the frame.
    pub(crate) fn transmit(
        &mut self,
        counters: &Counters,
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceFull> {
        match self {
            Transport::Ethernet(device, _) => {
                device.transmit(length, &mut |frame| {
                    fill(frame);
                    checksum::complete_tcp(frame);
                })?;
                counters.note_transmitted(length);
            }
            Transport::Loopback(queue) => {
                queue.push(length, fill)?;
                counters.loopback_packets.add(1);
            }
        }
        Ok(())
    }

    /// Like [`transmit`](Self::transmit), for Ethernet and a frame that `fill` completes.
    pub(crate) fn transmit_complete(
        &mut self,
        counters: &Counters,
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceFull> {
        let Transport::Ethernet(device, _) = self else { return Err(DeviceFull) };
        device.transmit(length, fill)?;
        counters.note_transmitted(length);
        Ok(())
    }

    /// As [`FrameDevice::divided_frame_length`].
    pub(crate) fn divided_frame_length(&self) -> usize {
        match self {
            Transport::Ethernet(device, _) => device.divided_frame_length(),
            Transport::Loopback(_) => 0,
        }
    }

    /// Like [`FrameDevice::transmit_divided`], and counts the frame.
    pub(crate) fn transmit_divided(
        &mut self,
        counters: &Counters,
        length: usize,
        segment_bytes: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceFull> {
        let Transport::Ethernet(device, _) = self else { return Err(DeviceFull) };
        device.transmit_divided(length, segment_bytes, fill)?;
        counters.note_transmitted(length);
        Ok(())
    }

    pub(crate) fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        match self {
            Transport::Ethernet(device, _) => {
                capabilities.medium = Medium::Ethernet;
                // Outside this range, smoltcp's arithmetic on header lengths is not defined.
                capabilities.max_transmission_unit =
                    device.maximum_frame_length().clamp(1294, FRAME_BYTES_MAX);
                // This crate computes it, see `checksum`.
                capabilities.checksum.tcp = Checksum::None;
            }
            Transport::Loopback(_) => {
                capabilities.medium = Medium::Ip;
                capabilities.max_transmission_unit = LoopbackQueue::MAXIMUM_PACKET_LENGTH;
                // Packets do not leave this memory, so they cannot be damaged.
                capabilities.checksum = ChecksumCapabilities::ignored();
            }
        }
        capabilities
    }

    /// The capabilities for the direct interface: packets of the same size without Ethernet, and no
    /// checksums, since this crate checks and writes them.
    pub(crate) fn direct_capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = self.capabilities();
        capabilities.max_transmission_unit = capabilities.ip_mtu();
        capabilities.medium = Medium::Ip;
        capabilities.checksum = ChecksumCapabilities::ignored();
        capabilities
    }
}

/// What one pass of egress over one socket set did.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct EgressReport {
    /// Number of times that smoltcp had something to send and asked for room.
    pub(crate) wanted: u32,
    /// Number of frames that it sent. Fewer than `wanted` means that the neighbour's hardware
    /// address is not known yet (at most a request for it was sent), or that there is no route.
    pub(crate) delivered: u32,
    /// There was no room.
    pub(crate) device_full: bool,
    /// The header of the last frame, if that was a TCP segment over IPv4 and Ethernet.
    pub(crate) header: Option<EthernetHeader>,
    /// Length of the data of the last segment, if that went the direct way and has no options.
    pub(crate) payload: usize,
}

/// A device for smoltcp that has received at most one frame.
pub(crate) struct Adapter<'a> {
    pub(crate) transport: &'a mut Transport,
    pub(crate) counters: &'a Counters,
    pub(crate) frame: Option<&'a [u8]>,
    /// What is to precede each packet, if smoltcp is to read and write packets instead of frames.
    pub(crate) header: Option<EthernetHeader>,
    /// What is added to the sequence numbers of segments that smoltcp writes.
    pub(crate) shift: u32,
    pub(crate) report: EgressReport,
}

impl<'a> Adapter<'a> {
    pub(crate) fn new(
        transport: &'a mut Transport,
        counters: &'a Counters,
        frame: Option<&'a [u8]>,
        shift: u32,
    ) -> Adapter<'a> {
        let report = EgressReport::default();
        Adapter { transport, counters, frame, header: None, shift, report }
    }

    /// For the direct interface (see `path`): `packet` is a received IPv4 packet, and the packets
    /// that smoltcp writes are sent with `header`.
    pub(crate) fn direct(
        transport: &'a mut Transport,
        counters: &'a Counters,
        packet: Option<&'a [u8]>,
        header: EthernetHeader,
        shift: u32,
    ) -> Adapter<'a> {
        Adapter { header: Some(header), ..Adapter::new(transport, counters, packet, shift) }
    }
}

impl Device for Adapter<'_> {
    type RxToken<'token>
        = OneFrame<'token>
    where
        Self: 'token;
    type TxToken<'token>
        = Room<'token>
    where
        Self: 'token;

    /// A reply to the frame is sent if there is room, and is lost otherwise. Dropping the received
    /// frame instead would lose more.
    fn receive(&mut self, _now: Instant) -> Option<(OneFrame<'_>, Room<'_>)> {
        let frame = self.frame.take()?;
        Some((OneFrame(frame), self.room()))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Room<'_>> {
        if !self.transport.has_room() {
            self.report.device_full = true;
            return None;
        }
        self.report.wanted += 1;
        Some(self.room())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        match self.header {
            Some(_) => self.transport.direct_capabilities(),
            None => self.transport.capabilities(),
        }
    }
}

impl Adapter<'_> {
    fn room(&mut self) -> Room<'_> {
        Room {
            transport: self.transport,
            counters: self.counters,
            header: self.header.as_ref(),
            shift: self.shift,
            report: &mut self.report,
        }
    }
}

pub(crate) struct OneFrame<'a>(&'a [u8]);

impl RxToken for OneFrame<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

pub(crate) struct Room<'a> {
    transport: &'a mut Transport,
    counters: &'a Counters,
    header: Option<&'a EthernetHeader>,
    shift: u32,
    report: &'a mut EgressReport,
}

impl TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let ethernet = matches!(self.transport, Transport::Ethernet(..));
        let before = self.header.map_or(0, |header| header.len());
        let mut write = Some(write);
        let mut result = None;
        let mut solicitation = false;
        let mut header = None;
        let mut payload = 0;
        let outcome = self.transport.transmit(self.counters, before + length, &mut |buffer| {
            let Some(write) = write.take() else { return };
            let (head, packet) = buffer.split_at_mut(before);
            result = Some(write(packet));
            if let Some(header) = self.header {
                head.copy_from_slice(header);
                checksum::complete_ipv4_header(packet);
                shift_sequence(packet, self.shift);
                payload = payload_of_tcp(packet);
            } else if ethernet {
                solicitation = is_neighbour_traffic(packet);
                header = header_of_tcp(packet);
                if header.is_some() {
                    shift_sequence(&mut packet[14..], self.shift);
                }
            }
        });
        if outcome.is_ok() && !solicitation {
            self.report.delivered += 1;
            self.report.header = header;
            self.report.payload = payload;
        }
        match (result, write) {
            (Some(result), _) => result,
            (None, Some(write)) => {
                // This happens only for a reply to a received frame (see `receive`), or if the
                // device contradicts itself. smoltcp requires the frame to be written anyway.
                self.counters.dropped_device_full.add(1);
                write(&mut self.transport.lost()[..length])
            }
            (None, None) => unreachable!("the writer is gone only after it has returned a result"),
        }
    }
}

/// Adds to the sequence number of a segment in an IPv4 packet without options. The checksum of TCP
/// is written later.
fn shift_sequence(packet: &mut [u8], shift: u32) {
    if shift != 0
        && let Some(number) = packet.get_mut(24..28).and_then(|bytes| bytes.first_chunk_mut::<4>())
    {
        *number = u32::from_be_bytes(*number).wrapping_add(shift).to_be_bytes();
    }
}

/// The Ethernet header of a TCP segment over IPv4 without options.
fn header_of_tcp(frame: &[u8]) -> Option<EthernetHeader> {
    let is_tcp = frame.get(12..15) == Some(&[8, 0, 0x45]) && frame.get(23) == Some(&6);
    frame.first_chunk().filter(|_| is_tcp).copied()
}

/// Length of the data of a TCP segment in an IPv4 packet; 0 if either has options.
fn payload_of_tcp(packet: &[u8]) -> usize {
    match packet.first_chunk::<40>() {
        Some(head) if head[0] == 0x45 && head[32] >> 4 == 5 => packet.len() - head.len(),
        _ => 0,
    }
}

/// Whether this is ARP or ICMPv6 (neighbour discovery), which is sent before a packet to an unknown
/// neighbour.
fn is_neighbour_traffic(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x08, 0x06]) => true,
        Some([0x86, 0xdd]) => frame.get(20) == Some(&58),
        _ => false,
    }
}
