//! The loopback interface's wire: a queue of IP packets in memory, with its buffers reused.

use cops_fallible::{List, OutOfMemory, Queue};

use crate::device::DeviceFull;

/// Packets that were sent over loopback and not yet received.
pub(crate) struct LoopbackQueue {
    packets: Queue<List<u8>>,
    spare: List<List<u8>>,
    /// Where a packet is written for which there is no memory.
    lost: List<u8>,
}

impl LoopbackQueue {
    /// The largest IPv4 packet there is.
    pub(crate) const MAXIMUM_PACKET_LENGTH: usize = 65535;
    /// Beyond this the queue is full, as a device would be. Everything in it was sent by this
    /// machine and is consumed by whoever holds the interface, so it only bounds a burst.
    const MAXIMUM_PACKETS: usize = 512;
    /// Buffers kept for reuse.
    const MAXIMUM_SPARE: usize = 32;
    /// Larger buffers are given back rather than kept.
    const MAXIMUM_SPARE_BYTES: usize = 16384;

    /// An empty queue, with room for as many packets as there can be; the packets' bytes are allocated as they come.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn new() -> Result<Self, OutOfMemory> {
        let (mut packets, mut lost) = (Queue::new(), List::new());
        packets.try_reserve(Self::MAXIMUM_PACKETS)?;
        lost.try_resize(Self::MAXIMUM_PACKET_LENGTH, 0)?;
        Ok(Self { packets, spare: List::try_with_capacity(Self::MAXIMUM_SPARE)?, lost })
    }

    /// Where a packet is written that is lost.
    pub(crate) fn lost(&mut self) -> &mut [u8] {
        &mut self.lost
    }

    pub(crate) fn has_room(&self) -> bool {
        self.packets.len() < Self::MAXIMUM_PACKETS
    }

    pub(crate) fn push(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), DeviceFull> {
        if !self.has_room() {
            return Err(DeviceFull);
        }
        let mut packet = self.spare.pop().unwrap_or_default();
        packet.truncate(length);
        if packet.try_resize(length, 0).is_err() {
            // Not "full": nothing would tell the sender when there is memory again. It is lost, as on any network.
            fill(&mut self.lost[..length]);
            return Ok(());
        }
        fill(&mut packet);
        // There is room for as many as `has_room` allows.
        let _ = self.packets.push_back_within_capacity(packet);
        Ok(())
    }

    pub(crate) fn pop(&mut self) -> Option<List<u8>> {
        self.packets.pop_front()
    }

    /// Gives a consumed packet's buffer back.
    pub(crate) fn recycle(&mut self, packet: List<u8>) {
        if self.spare.len() < Self::MAXIMUM_SPARE && packet.capacity() <= Self::MAXIMUM_SPARE_BYTES {
            let _ = self.spare.push_within_capacity(packet);
        }
    }
}
