//! Sends what an endpoint has to send, and finds out when smoltcp is to be polled next.

use alloc::sync::Arc;

use crate::device::{Adapter, EgressReport};
use crate::endpoint::{Endpoint, EndpointState};
use crate::link_core::{LinkCore, instant};
use crate::shared::Shared;
use crate::work::give_turn;

/// Maximum number of frames that one endpoint sends before the others have their turn. A
/// connection's buffer fills three.
const FRAMES_PER_TURN: u32 = 4;
/// smoltcp's shortest retransmission timer. An assertion fails in tests if it becomes shorter.
const RETRANSMISSION_MICROSECONDS_MIN: u64 = 1_000_000;

/// Bytes of a question for a closed window. smoltcp does not count it as sent, nor that it
/// acknowledges.
const PROBE_BYTES: usize = 1;

/// What [`LinkCore::egress`] did.
pub(crate) struct Egress {
    /// The time at which smoltcp is to be polled again, in microseconds; at the latest, the one at
    /// which it wants to be.
    pub(crate) wish: Option<u64>,
    /// At least one frame was sent.
    pub(crate) sent: bool,
}

impl LinkCore {
    /// Sends what the endpoint has to send, until there is no more, the device is full, a neighbour
    /// is unknown, or the endpoint's turn ends.
    ///
    /// With `ask_first`, smoltcp is asked to send only after `poll_at` said that it would. That
    /// question costs a third of an attempt that sends nothing, and after most received segments
    /// there is nothing to send. Nor is it asked after a segment with all that was in the buffer,
    /// but polled again when the retransmission timer, which is always longer, cannot have expired
    /// before. It is asked after a segment with a single byte, which may be a question for a closed
    /// window: if that acknowledges something, smoltcp sends the acknowledgement once more.
    pub(crate) fn egress(
        &mut self,
        shared: &Shared,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
        now: u64,
        ask_first: bool,
    ) -> Egress {
        let mut report = EgressReport::default();
        let mut turns = 0;
        let mut wish = if ask_first { self.wish(shared, state, now) } else { Some(now) };
        while turns < FRAMES_PER_TURN && wish.is_some_and(|at| at <= now) {
            report = self.egress_once(shared, state, now);
            wish = if report.payload > PROBE_BYTES && state.has_in_flight_only(report.payload) {
                let wish = now + RETRANSMISSION_MICROSECONDS_MIN;
                debug_assert!(self.wish(shared, state, now).is_none_or(|at| at >= wish));
                Some(wish)
            } else {
                self.wish(shared, state, now)
            };
            if report.delivered == 0 {
                break;
            }
            turns += 1;
            self.frames_moved += 1;
        }
        if turns > 0 {
            self.stop_awaiting(endpoint, state);
        }
        if turns == FRAMES_PER_TURN {
            give_turn(&mut self.turns, endpoint);
        }
        if report.device_full && !state.blocked {
            shared.counters.transmit_blocked.add(1);
            state.blocked = true;
            self.blocked.push_back(endpoint.clone());
        }
        if report.wanted > report.delivered
            && !state.awaiting_neighbour
            && let Some(room) = state.neighbour_room.take()
        {
            state.awaiting_neighbour = true;
            self.awaiting_neighbour.insert_with(room, endpoint.number, endpoint.clone());
        }
        Egress { wish, sent: turns > 0 }
    }

    /// Lets smoltcp send one frame of the endpoint `state`, the direct way if its path is known.
    fn egress_once(
        &mut self,
        shared: &Shared,
        state: &mut EndpointState,
        now: u64,
    ) -> EgressReport {
        shared.counters.socket_polls.add(1);
        let (transport, counters) = (&mut self.transport, &shared.counters);
        let shift = state.shift;
        if let Some(direct) = &mut self.direct
            && let Some(header) = state.path.to_send(self.epoch, now)
        {
            let mut adapter = Adapter::direct(transport, counters, None, header, shift);
            direct.poll_egress(instant(now), &mut adapter, &mut state.sockets);
            return adapter.report;
        }
        let mut adapter = Adapter::new(transport, counters, None, shift);
        self.interface.poll_egress(instant(now), &mut adapter, &mut state.sockets);
        let report = adapter.report;
        if let Some(header) = report.header {
            self.note_path(state, header, now);
        }
        report
    }

    /// The time at which smoltcp wants to be asked to send, in microseconds; a time in the past
    /// means now.
    pub(crate) fn wish(&mut self, shared: &Shared, state: &EndpointState, now: u64) -> Option<u64> {
        shared.counters.socket_polls.add(1);
        let wish = self.interface.poll_at(instant(now), &state.sockets);
        wish.map(|wish| u64::try_from(wish.total_micros()).unwrap_or(0))
    }
}
