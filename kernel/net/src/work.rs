//! Work of an interface that is done in turns: timers, loopback packets, endpoints that wait for
//! the device or a neighbour, the outbox, connections of an address that is gone. All of it in
//! bounded portions.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::chain::{Chain, TURN};
use crate::device::Transport;
use crate::endpoint::Endpoint;
use crate::link::Outbox;
use crate::link_core::LinkCore;
use crate::shared::Shared;

/// Maximum number of TIME-WAIT records that one poll removes per interface.
const RECORDS_PER_POLL: u32 = 8;

/// Queues `endpoint`, unless it is already queued here or in the outbox.
pub(crate) fn give_turn(turns: &mut Chain<TURN>, endpoint: &Arc<Endpoint>) {
    if !endpoint.dirty.swap(true, Ordering::AcqRel) {
        turns.push_back(endpoint.clone());
    }
}

impl LinkCore {
    /// A neighbour may have become known: every endpoint that waits for one is to try again.
    /// smoltcp suppresses, at little cost, those with a neighbour that is still unknown.
    pub(crate) fn neighbour_appeared(&mut self) {
        self.to_retry = self.awaiting_neighbour.len();
    }

    /// Runs due timers until `steps` are used up. Returns `true` if there are more.
    pub(crate) fn run_timers(&mut self, shared: &Arc<Shared>, steps: &mut u32) -> bool {
        let now = self.now(shared);
        let more_records = self.time_wait.expire(now, RECORDS_PER_POLL);
        self.note_time_wait(shared);
        while *steps > 0 {
            let Some(due) = self.timers.pop_due(now) else { return more_records };
            let before = self.frames_moved;
            if let Some(endpoint) = due.endpoint.clone() {
                let is_wanted = {
                    let armed = &mut endpoint.state.lock().armed;
                    self.timers.is_wanted(due, &endpoint, armed, now)
                };
                if is_wanted {
                    shared.counters.timers_fired.add(1);
                    self.serve(shared, &endpoint, None);
                }
            }
            self.count(before, steps);
        }
        more_records || self.timers.earliest().is_some_and(|deadline| deadline <= now)
    }

    /// Reduces `steps` by the work done since `frames_moved` was `before`.
    fn count(&self, before: u64, steps: &mut u32) {
        let frames = self.frames_moved.wrapping_sub(before) as u32;
        *steps = steps.saturating_sub(frames.max(1));
    }

    /// Serves loopback packets, endpoints that wait for the device or a neighbour, and the outbox,
    /// and ends connections of an address that is gone, until nothing is left or `steps` are used
    /// up. Returns `true` in the latter case. A step is a frame that is moved, or an endpoint for
    /// which none is, or a few buckets of the table of connections.
    pub(crate) fn serve_pending(
        &mut self,
        shared: &Arc<Shared>,
        outbox: &Outbox,
        blocked: &AtomicBool,
        steps: &mut u32,
    ) -> bool {
        loop {
            while *steps > 0 {
                let before = self.frames_moved;
                let progress = self.receive_loopback(shared)
                    || self.serve_blocked(shared)
                    || self.retry_neighbour(shared)
                    || self.serve_outbox(shared, outbox)
                    || self.end_homeless_connections(shared);
                if !progress {
                    break;
                }
                self.count(before, steps);
            }
            self.transport_flush();
            // The mark is set before the device is asked. If room appears in between, either the
            // driver sees the mark and calls `transmit_ready`, or this check sees the room.
            blocked.store(!self.blocked.is_empty(), Ordering::SeqCst);
            let unblocked = !self.blocked.is_empty() && self.transport.has_room();
            if *steps == 0 {
                return true;
            }
            if !unblocked {
                return false;
            }
        }
    }

    /// Whether `serve_pending` has more to do than to empty the outbox and to remove the mark that
    /// endpoints wait for the device.
    pub(crate) fn has_pending(&self) -> bool {
        let packets = match &self.transport {
            Transport::Loopback(queue) => !queue.is_empty(),
            Transport::Ethernet(..) => false,
        };
        packets
            || self.to_retry > 0
            || !self.turns.is_empty()
            || !self.blocked.is_empty()
            || self.homeless_from.is_some()
    }

    pub(crate) fn transport_flush(&mut self) {
        if let Transport::Ethernet(device, _) = &mut self.transport {
            device.flush();
        }
    }

    fn receive_loopback(&mut self, shared: &Arc<Shared>) -> bool {
        let Transport::Loopback(queue) = &mut self.transport else { return false };
        let Some(packet) = queue.pop() else { return false };
        self.receive(shared, &packet, true);
        if let Transport::Loopback(queue) = &mut self.transport {
            queue.recycle(packet);
        }
        true
    }

    fn serve_blocked(&mut self, shared: &Arc<Shared>) -> bool {
        if self.blocked.is_empty() || !self.transport.has_room() {
            return false;
        }
        let Some(endpoint) = self.blocked.pop_front() else { return false };
        endpoint.state.lock().blocked = false;
        self.serve(shared, &endpoint, None);
        true
    }

    /// Serves the next endpoint that is to try again. They are served in the order of their
    /// numbers, cyclically, so a neighbour that appears again and again does not starve any of
    /// them.
    fn retry_neighbour(&mut self, shared: &Arc<Shared>) -> bool {
        if self.to_retry == 0 {
            return false;
        }
        self.to_retry -= 1;
        let waiting = &self.awaiting_neighbour;
        let Some((&number, endpoint)) =
            waiting.at_or_after(&self.retry_from).or_else(|| waiting.first())
        else {
            self.to_retry = 0;
            return false;
        };
        let endpoint = endpoint.clone();
        self.retry_from = number + 1;
        self.serve(shared, &endpoint, None);
        true
    }

    fn serve_outbox(&mut self, shared: &Arc<Shared>, outbox: &Outbox) -> bool {
        if self.turns.is_empty() {
            outbox.drain(&mut self.turns);
        }
        let Some(endpoint) = self.turns.pop_front() else { return false };
        // Cleared before the state is read: see `Outbox::push`.
        endpoint.dirty.swap(false, Ordering::AcqRel);
        self.serve(shared, &endpoint, None);
        true
    }
}
