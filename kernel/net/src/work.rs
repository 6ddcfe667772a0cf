//! Work of an interface that is done in turns: timers, loopback packets, endpoints that wait for
//! the device or a neighbour, the outbox. All of it in bounded portions.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::chain::{Chain, TURN};
use crate::device::Transport;
use crate::endpoint::Endpoint;
use crate::link::Outbox;
use crate::link_core::LinkCore;
use crate::shared::Shared;

/// Queues `endpoint`, unless it is already queued here or in the outbox.
pub(crate) fn give_turn(turns: &mut Chain<TURN>, endpoint: &Arc<Endpoint>) {
    if !endpoint.dirty.swap(true, Ordering::AcqRel) {
        turns.push_back(endpoint.clone());
    }
}

impl LinkCore {
    /// A neighbour may have become known: every endpoint that waits for one gets a turn. smoltcp
    /// suppresses, at little cost, those with a neighbour that is still unknown.
    pub(crate) fn neighbour_appeared(&mut self) {
        let turns = &mut self.turns;
        self.awaiting_neighbour.for_each(|_, endpoint| give_turn(turns, endpoint));
    }

    /// Runs at most `limit` due timers. Returns `true` if there are more.
    pub(crate) fn run_timers(&mut self, shared: &Arc<Shared>, limit: u32) -> bool {
        let now = self.now(shared);
        self.time_wait.expire(now);
        self.note_time_wait(shared);
        for _ in 0..limit {
            let Some(due) = self.timers.pop_due(now) else { return false };
            let endpoint = due.endpoint.clone();
            due.note(&mut endpoint.state.lock().armed);
            shared.counters.timers_fired.add(1);
            self.serve(shared, &endpoint, None);
        }
        self.timers.earliest().is_some_and(|deadline| deadline <= now)
    }

    /// Serves loopback packets, endpoints that wait for the device, and the outbox, until nothing
    /// is left or `steps` are used up. Returns `true` in the latter case.
    pub(crate) fn settle(
        &mut self,
        shared: &Arc<Shared>,
        outbox: &Outbox,
        blocked: &AtomicBool,
        steps: &mut u32,
    ) -> bool {
        loop {
            while *steps > 0 {
                let progress = self.receive_loopback(shared)
                    || self.serve_blocked(shared)
                    || self.serve_outbox(shared, outbox);
                if !progress {
                    break;
                }
                *steps -= 1;
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

    fn transport_flush(&mut self) {
        if let Transport::Ethernet(device, _) = &mut self.transport {
            device.flush();
        }
    }

    fn receive_loopback(&mut self, shared: &Arc<Shared>) -> bool {
        let Transport::Loopback(queue) = &mut self.transport else { return false };
        let Some(packet) = queue.pop() else { return false };
        self.receive(shared, &packet);
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
