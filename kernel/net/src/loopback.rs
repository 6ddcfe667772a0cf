//! The loopback interface's wire: a queue of IP packets in memory, with its buffers reused.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::device::DeviceFull;

/// Packets that were sent over loopback and not yet received.
#[derive(Default)]
pub(crate) struct LoopbackQueue {
    packets: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
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

    pub(crate) fn has_room(&self) -> bool {
        self.packets.len() < Self::MAXIMUM_PACKETS
    }

    pub(crate) fn push(&mut self, length: usize, fill: &mut dyn FnMut(&mut [u8])) -> Result<(), DeviceFull> {
        if !self.has_room() {
            return Err(DeviceFull);
        }
        let mut packet = self.spare.pop().unwrap_or_default();
        packet.resize(length, 0);
        fill(&mut packet);
        self.packets.push_back(packet);
        Ok(())
    }

    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        self.packets.pop_front()
    }

    /// Gives a consumed packet's buffer back.
    pub(crate) fn recycle(&mut self, packet: Vec<u8>) {
        if self.spare.len() < Self::MAXIMUM_SPARE && packet.capacity() <= Self::MAXIMUM_SPARE_BYTES {
            self.spare.push(packet);
        }
    }
}
