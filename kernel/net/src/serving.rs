//! Serves a TCP endpoint: one segment in, pending segments out, and then the changes of state.

use alloc::sync::Arc;

use smoltcp::socket::tcp::State;

use crate::egress::Egress;
use crate::endpoint::{Endpoint, EndpointState, LinkKind};
use crate::error::Error;
use crate::link_core::{Arrival, LinkCore, NEIGHBOUR_MICROSECONDS};
use crate::path::Path;
use crate::shared::{IDLE_MICROSECONDS, Shared};
use crate::stream::{Owner, Snapshot};
use crate::time_wait::TIME_WAIT_MICROSECONDS;
use crate::timers::earlier;
use crate::work::give_turn;

/// When a connection that found no memory to leave the fast path tries again.
const NO_MEMORY_MICROSECONDS: u64 = 100_000;

impl LinkCore {
    pub(crate) fn serve_stream(
        &mut self,
        shared: &Arc<Shared>,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
        arrival: Option<Arrival<'_>>,
        now: u64,
    ) {
        let counters = &shared.counters;
        if !state.record().is_some_and(|stream| stream.in_table) {
            return;
        }
        if state.fast.is_some() {
            if arrival.is_none() && self.serve_fast(shared, endpoint, state, now) {
                return;
            }
            if self.leave_fast_path(shared, endpoint, state, now).is_err() {
                let segment = arrival.as_ref().and_then(|arrival| arrival.segment);
                if self.end_if_reset(shared, endpoint, state, segment) {
                    return;
                }
                if arrival.is_some() {
                    counters.dropped_no_room.add(1);
                }
                if self.reset_if_stalled(shared, endpoint, state, now) {
                    return;
                }
                let again = Some(now + NO_MEMORY_MICROSECONDS);
                return self.timers.arm(endpoint, &mut state.armed, again, now);
            }
        }
        let Some((socket, stream)) = state.stream() else { return };
        if core::mem::take(&mut stream.doomed) {
            stream.abort(socket, Error::ConnectionAborted, counters);
        }
        if let Some(keep_alive) = stream.keep_alive {
            let since = if arrival.is_some() { now } else { stream.silent_since() };
            keep_alive.pace(socket, now.saturating_sub(since));
        }
        let ask_first = arrival.is_some();
        let mut is_usual = false;
        if let Some(Arrival { frame, segment, direct }) = arrival {
            let before = Snapshot::of(socket);
            if direct.is_none() {
                self.note_accepted(state, frame, now);
            }
            let shift = state.shift;
            let replied = self.ingress(shared, &mut state.sockets, frame, direct, shift, now);
            let Some((socket, stream)) = state.stream() else { return };
            stream.observe(socket, before, segment, now, counters);
            is_usual = segment.is_some_and(|segment| stream.is_usual(socket, before, segment));
            let waits = segment
                .filter(|_| endpoint.link == LinkKind::Ethernet)
                .and_then(|segment| stream.defer_acknowledgement(socket, segment, is_usual, now));
            if replied {
                stream.note_replied(socket);
            }
            if let Some(due) = waits {
                if stream.tracking.count_exchange()
                    && direct.is_some()
                    && self.enter_fast_path(shared, endpoint, state, now)
                {
                    return;
                }
                return self.rearm(endpoint, state, Some(due), None, now);
            }
            // Only a segment of which the path is known brings a connection to the fast path.
            is_usual &= direct.is_some();
        }

        let Some((socket, stream)) = state.stream() else { return };
        // A peer of which a segment has just arrived is not silent, and a connection without an
        // owner has a timer.
        if !ask_first
            && socket.state() != State::Closed
            && stream.silence_deadline(socket, shared, now).is_some_and(|deadline| deadline <= now)
        {
            counters.timeouts.add(1);
            stream.abort(socket, Error::TimedOut, counters);
        }
        if matches!(stream.owner, Owner::None) && socket.can_recv() && socket.is_open() {
            // The owner is gone, so these bytes will never be read, whether they arrived before or
            // after. The peer must learn that (RFC 1122, section 4.2.2.13; Linux does the same).
            stream.abort(socket, Error::ConnectionAborted, counters);
        }
        if stream.holds_unread_past_time_wait(socket, now) {
            return;
        }
        stream.close_if_due(socket);
        let before = Snapshot::of(socket);
        let Egress { wish, sent } = self.egress(shared, endpoint, state, now, ask_first);
        let Some((socket, stream)) = state.stream() else { return };
        stream.observe(socket, before, None, now, counters);
        if sent {
            stream.note_sent(socket, now);
        }
        stream.tracking.note_sent(socket, wish.is_some_and(|at| at <= now));
        // Also if no answer comes soon, or the last ones are under way: a server that cannot keep
        // up must not get slower by that.
        if is_usual
            && (sent || socket.send_queue() > 0)
            && stream.tracking.count_exchange()
            && self.enter_fast_path(shared, endpoint, state, now)
        {
            return;
        }
        let Some((socket, stream)) = state.stream() else { return };
        let is_open = socket.state() == State::Established;
        if !(is_open && matches!(stream.owner, Owner::Handle)) {
            self.hand_to_listener(shared, endpoint, state);
            if self.retire_if_over(shared, endpoint, state, wish, now) {
                return;
            }
        }
        let wish = match wish {
            None if self.direct.is_some() => self.remind(shared, state, now),
            wish => wish,
        };
        if wish == Some(now) {
            // It goes on soon, when others have had their turn.
            give_turn(&mut self.turns, endpoint);
        }
        let Some((socket, stream)) = state.stream() else { return };
        let silence = stream.silence_deadline(socket, shared, now);
        let silence = silence.map(|deadline| stream.next_look(deadline, now));
        let idle = match wish.or(silence) {
            None => self.idle_deadline(shared, endpoint, state),
            Some(_) => None,
        };
        if idle.is_some_and(|idle| idle <= now)
            && self.enter_fast_path(shared, endpoint, state, now)
        {
            return;
        }
        let idle = idle.map(|idle| if idle <= now { now + IDLE_MICROSECONDS } else { idle });
        self.rearm(endpoint, state, wish, earlier(silence, idle), now);
    }

    /// Removes a connection that is complete, or has failed, from its listener's half-open
    /// connections.
    fn hand_to_listener(
        &mut self,
        shared: &Shared,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
    ) {
        let Some((socket, stream)) = state.stream() else { return };
        let Owner::Listener(backlog) = &stream.owner else { return };
        if stream.established {
            if backlog.complete(endpoint) {
                shared.counters.connections_established_passive.add(1);
            }
        } else if !matches!(socket.state(), State::SynReceived) {
            backlog.forget(endpoint);
            // A listening socket that rejected its SYN, or was reset, sends nothing.
            stream.owner = Owner::None;
            if socket.is_listening() {
                socket.close();
            }
        }
    }

    /// Retires a connection that has ended, once what the peer must know has left. Returns whether
    /// it has ended. `wish` is from [`Self::egress`].
    fn retire_if_over(
        &mut self,
        shared: &Arc<Shared>,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
        wish: Option<u64>,
        now: u64,
    ) -> bool {
        let Some((socket, stream)) = state.stream() else { return false };
        if socket.state() == State::Closed {
            // If a reset had to be sent, `egress` has tried. It is not repeated: if it is lost, the
            // peer's next segment finds no connection and is answered with another one. But a peer
            // that only reads sends none, so it must leave once.
            let until = stream.closed_since(now) + NEIGHBOUR_MICROSECONDS;
            let is_to_leave = stream.established && wish.is_some();
            if is_to_leave && (state.awaiting_neighbour || state.blocked) && now < until {
                self.rearm(endpoint, state, wish, Some(until), now);
            } else {
                self.retire(endpoint, state);
            }
            return true;
        }
        if let (State::TimeWait, Owner::None, Some((numbers, entered_at))) =
            (socket.state(), &stream.owner, stream.time_wait)
        {
            let key = stream.key;
            // smoltcp wants nothing before the end of TIME-WAIT, so the ACK of the FIN has been
            // sent.
            if wish.is_none_or(|at| at >= entered_at + TIME_WAIT_MICROSECONDS) {
                let maximum = shared.configuration.maximum_time_wait;
                let evicted = self.time_wait.insert(key, numbers, now, maximum);
                shared.counters.time_wait_evicted.add(evicted);
                self.note_time_wait(shared);
                self.retire(endpoint, state);
                return true;
            }
        }
        false
    }

    /// Removes a connection from every table. Its memory is freed with the last reference, and its
    /// buffers at once, unless there is something to read.
    pub(crate) fn retire(&mut self, endpoint: &Arc<Endpoint>, state: &mut EndpointState) {
        self.timers.disarm(endpoint, &mut state.armed);
        self.stop_awaiting(endpoint, state);
        state.free_buffers_if_over();
        state.path = Path::default();
        let Some(stream) = state.record() else { return };
        stream.in_table = false;
        let key = stream.key;
        if self.flows.get(&key).is_some_and(|current| Arc::ptr_eq(current, endpoint)) {
            self.flows.remove(&key);
            self.recent.remove(&key);
        }
    }
}
