//! Counters of the stack, readable at any time from any hart.
//!
//! All of them are relaxed atomics: each counter is correct by itself, but a snapshot is not of one
//! instant.

use core::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$documentation:meta])* $name:ident,)*) => {
        /// A snapshot of the counters. `*_now` are current amounts; all others only grow.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Statistics { $($(#[$documentation])* pub $name: u64,)* }

        /// The live counters behind [`Statistics`].
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: Counter,)* }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Statistics {
                Statistics { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Ethernet frames passed to `receive`.
    frames_received,
    /// Ethernet frames given to the device.
    frames_transmitted,
    /// Bytes of the frames received, Ethernet headers included.
    bytes_received,
    /// Bytes of the frames transmitted, Ethernet headers included.
    bytes_transmitted,
    /// Packets that went over the loopback interface.
    loopback_packets,
    /// Dropped on receipt: a header is truncated or inconsistent.
    dropped_malformed,
    /// Received segments of connections that went the direct way, without the complete checks.
    frames_direct,
    /// The part of these that were the expected segments of connections on the fast path.
    frames_fast,
    /// Times that a connection entered the fast path.
    fast_path_entered,
    /// Times that a connection left the fast path.
    fast_path_left,
    /// Dropped on receipt: another host's address.
    dropped_not_for_us,
    /// Dropped on receipt: an address that cannot be the source, or the destination, of such a
    /// packet.
    dropped_martian,
    /// Dropped on receipt: an IP fragment (not reassembled).
    dropped_fragment,
    /// Dropped on receipt: an unsupported protocol.
    dropped_unsupported,
    /// Dropped on receipt: a wrong checksum in a TCP segment.
    dropped_checksum,
    /// A reply without a connection (reset, ICMP, ARP) was lost because the device was full.
    dropped_device_full,
    /// SYNs dropped because the listener's backlog was full.
    dropped_backlog_full,
    /// SYNs, and segments of connections on the fast path, dropped because no memory or no
    /// connection was left.
    dropped_no_room,
    /// Times that egress stopped because the device was full.
    transmit_blocked,
    /// TCP connections opened, by `connect` or by a SYN for a listener.
    connections_opened,
    /// TCP connections with buffers now, in any state.
    connections_now,
    /// Connections queued to be accepted.
    connections_established_passive,
    /// TIME-WAIT records now.
    time_wait_now,
    /// TIME-WAIT records removed early because there were too many.
    time_wait_evicted,
    /// Connections that the peer reset.
    resets_received,
    /// Connections that this side aborted (unread data at close, `abort`, timeout).
    resets_sent,
    /// Connections ended because the peer was silent.
    timeouts,
    /// Payload bytes read by users from TCP connections.
    stream_bytes_received,
    /// Payload bytes queued by users in TCP connections.
    stream_bytes_sent,
    /// Calls of smoltcp that visit one socket set: the unit of work. Constant per packet.
    socket_polls,
    /// Times that a connection was found for which smoltcp had data and no timer.
    stalls,
    /// Timers that expired and were served.
    timers_fired,
    /// Sends that found the interface busy and left their egress to its holder.
    egress_handed_over,
}

impl Counters {
    /// The device has taken a frame of `length` bytes.
    pub(crate) fn note_transmitted(&self, length: usize) {
        self.frames_transmitted.add(1);
        self.bytes_transmitted.add(length as u64);
    }
}

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, amount: u64) {
        self.0.fetch_sub(amount, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
