//! The expected segment.

use alloc::sync::Arc;

use super::FastPath;
use crate::endpoint::{Endpoint, EndpointState, Protocol};
use crate::frame::Plain;
use crate::link_core::LinkCore;
use crate::shared::Shared;

impl FastPath {
    /// Whether `segment` asks whether the window is still closed (RFC 9293, 3.8.6.1): with a byte
    /// that has no room, or behind what was received, as Linux does. `known`: what it knows that it
    /// may send.
    ///
    /// An empty segment at the right place is no question, but an acknowledgement: two ends that
    /// answered each other's would never stop.
    #[cold]
    fn is_probe(&self, segment: &Plain<'_>, known: usize, largest: usize) -> bool {
        let behind = self.next_expected.wrapping_sub(segment.sequence());
        known < largest
            && matches!((behind, segment.data().len()), (0 | 1, 1) | (1, 0))
            && segment.acknowledgement() == self.unacknowledged
    }

    /// Whether `segment` has nothing but data that was received before: its acknowledgement was
    /// lost, or has waited for so long that the peer repeats the last segment (RFC 8985, 7).
    #[cold]
    fn is_repeated(&self, segment: &Plain<'_>) -> bool {
        let behind = self.next_expected.wrapping_sub(segment.sequence()) as usize;
        let length = segment.data().len();
        length > 0 && (length..=self.receive_capacity).contains(&behind)
    }

    /// Whether `segment` is the expected one: the next data, or an acknowledgement of what is in
    /// flight, and nothing else has to be done about it.
    fn expects(&self, segment: &Plain<'_>) -> bool {
        let acknowledged = segment.acknowledgement().wrapping_sub(self.unacknowledged);
        let in_flight = self.in_flight();
        if segment.sequence() != self.next_expected || acknowledged as usize > in_flight {
            return false;
        }
        match segment.data().len() {
            // With data in flight, an acknowledgement of nothing may be a sign of loss.
            0 => acknowledged > 0 || in_flight == 0,
            length => self.received.len() + length <= self.receive_capacity,
        }
    }
}

impl LinkCore {
    /// Processes a segment of a connection on the fast path, with a correct checksum. Returns
    /// `false`, and has done nothing, if the connection must leave the fast path for it.
    pub(crate) fn receive_fast(
        &mut self,
        shared: &Arc<Shared>,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
        segment: &Plain<'_>,
        now: u64,
    ) -> bool {
        let EndpointState { fast: Some(fast), protocol: Protocol::Stream(stream), armed, .. } =
            state
        else {
            return false;
        };
        if stream.doomed {
            return false;
        }
        let largest = stream.tracking.segment_bytes_max();
        let acknowledgement = segment.acknowledgement();
        let mut acknowledged = acknowledgement.wrapping_sub(fast.unacknowledged) as usize;
        let (mut waits, mut window) = (true, segment.window());
        let data = if fast.expects(segment) {
            segment.data()
        } else if fast.is_probe(segment, stream.acknowledgements.window_left(), largest) {
            stream.acknowledgements.answer_question(now);
            waits = false;
            &[]
        } else if fast.is_repeated(segment) {
            // It is acknowledged, and nothing else in it counts (RFC 9293, 3.10.7.4).
            stream.acknowledgements.answer_repetition(now);
            (waits, acknowledged, window) = (false, 0, fast.peer_window);
            &[]
        } else {
            return false;
        };
        if !data.is_empty() {
            if fast.append_received(data).is_err() {
                // More memory is left to sockets than to queues. A connection of which the program
                // has read everything shall have some of it.
                if fast.unread() == 0 {
                    return false;
                }
                // As if it were lost: the peer sends it again.
                shared.counters.dropped_no_room.add(1);
                return true;
            }
            fast.next_expected = fast.next_expected.wrapping_add(data.len() as u32);
            let bytes = (fast.receive_capacity / 2, largest);
            waits = stream.acknowledgements.arrived(data.len(), bytes, now);
            stream.receivers.wake_all();
        }
        if acknowledged > 0 {
            fast.outgoing.consume(acknowledged);
            fast.unacknowledged = acknowledgement;
            fast.sent_at = now;
            stream.senders.wake_all();
        }
        fast.peer_window = window;
        fast.segments = fast.segments.saturating_add(1);
        stream.note_heard(now);
        self.frames_moved += 1;
        shared.counters.frames_direct.add(1);
        shared.counters.frames_fast.add(1);
        if fast.unsent() > 0 || !waits {
            self.serve_stream(shared, endpoint, state, None, now);
        } else {
            Self::rearm_fast(&mut self.timers, shared, endpoint, fast, stream, armed, now);
        }
        true
    }
}
