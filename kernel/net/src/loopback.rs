//! The loopback interface's transport: a queue of IP packets in memory that reuses its buffers.

use cops_fallible::{List, OutOfMemory, Queue};

use crate::device::DeviceFull;

/// Packets that were sent over loopback and not yet received.
pub(crate) struct LoopbackQueue {
    packets: Queue<List<u8>>,
    spare: List<List<u8>>,
    /// A packet for which there is no memory is written here and lost.
    lost: List<u8>,
}

impl LoopbackQueue {
    /// Maximum length of an IPv4 packet.
    pub(crate) const MAXIMUM_PACKET_LENGTH: usize = 65535;
    /// Maximum number of packets, beyond which the queue is full like that of a device. This
    /// machine sent all of them, and the interface's holder consumes them, so the limit only bounds
    /// a burst.
    const MAXIMUM_PACKETS: usize = 512;
    /// Maximum number of buffers kept for reuse.
    const MAXIMUM_SPARE: usize = 32;
    /// Larger buffers are freed instead.
    const MAXIMUM_SPARE_BYTES: usize = 16384;

    /// An empty queue with room for the maximum number of packets. The packets' bytes are allocated
    /// when they are sent.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn new() -> Result<Self, OutOfMemory> {
        let (mut packets, mut lost) = (Queue::new(), List::new());
        packets.try_reserve(Self::MAXIMUM_PACKETS)?;
        lost.try_resize(Self::MAXIMUM_PACKET_LENGTH, 0)?;
        Ok(Self { packets, spare: List::try_with_capacity(Self::MAXIMUM_SPARE)?, lost })
    }

    /// The buffer into which a packet is written that is then lost.
    pub(crate) fn lost(&mut self) -> &mut [u8] {
        &mut self.lost
    }

    pub(crate) fn has_room(&self) -> bool {
        self.packets.len() < Self::MAXIMUM_PACKETS
    }

    pub(crate) fn push(
        &mut self,
        length: usize,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceFull> {
        if !self.has_room() {
            return Err(DeviceFull);
        }
        let mut packet = self.spare.pop().unwrap_or_default();
        packet.truncate(length);
        if packet.try_resize(length, 0).is_err() {
            // Not "full", because no event would tell the sender when there is memory again. The
            // packet is lost, as on any network.
            fill(&mut self.lost[..length]);
            return Ok(());
        }
        fill(&mut packet);
        // `has_room` guarantees the capacity.
        let _ = self.packets.push_back_within_capacity(packet);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(crate) fn pop(&mut self) -> Option<List<u8>> {
        self.packets.pop_front()
    }

    /// Takes back the buffer of a consumed packet.
    pub(crate) fn recycle(&mut self, packet: List<u8>) {
        if self.spare.len() < Self::MAXIMUM_SPARE && packet.capacity() <= Self::MAXIMUM_SPARE_BYTES
        {
            let _ = self.spare.push_within_capacity(packet);
        }
    }
}
