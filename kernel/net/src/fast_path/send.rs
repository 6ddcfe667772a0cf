//! What a connection sends on the fast path: data, acknowledgements, updates of the window.

use alloc::sync::Arc;

use super::template::{ACKNOWLEDGE, Fields, PUSH, RESET};
use super::{FastPath, Memory, RETRANSMISSION_MICROSECONDS};
use crate::acknowledgements::Contents;
use crate::device::Transport;
use crate::endpoint::{Endpoint, EndpointState, Protocol};
use crate::frame::PLAIN_HEADERS;
use crate::link_core::LinkCore;
use crate::shared::{IDLE_MICROSECONDS, Shared};
use crate::statistics::Counters;
use crate::stream::Stream;
use crate::timers::{Armed, TimerQueue, earlier};
use crate::work::give_turn;

/// How long queues with unread bytes wait until they are looked at again, to be freed; and while
/// memory is short.
const UNREAD_MICROSECONDS: u64 = 10 * IDLE_MICROSECONDS;
const UNREAD_WHEN_SHORT_MICROSECONDS: u64 = IDLE_MICROSECONDS;
/// When a connection of which a write waits for memory looks for the first time whether there is
/// some. Each pause is twice as long as the one before, up to the second number: ten thousand such
/// connections shall not keep a hart busy with looking.
const MEMORY_MICROSECONDS: u64 = 20_000;
const MEMORY_MICROSECONDS_MAX: u64 = 16 * MEMORY_MICROSECONDS;
/// Maximum number of frames that a connection sends before the others have their turn.
const FRAMES_PER_TURN: u32 = 4;

/// Whether a connection can stay on the fast path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    /// There is more to send, after others.
    More,
    /// There is more to send, when the device has room.
    Blocked,
    Leave,
}

impl FastPath {
    /// Sends a segment with `length` bytes that are not yet sent, or several with at most `mss`
    /// bytes each, which the device makes of one frame; otherwise says what follows.
    fn transmit(
        &mut self,
        transport: &mut Transport,
        counters: &Counters,
        (length, mss): (usize, usize),
        flags: u8,
        window: usize,
    ) -> Result<(), Outcome> {
        let begin = self.in_flight();
        let unsent = self.outgoing.as_slice().get(begin..begin + length);
        let data = unsent.ok_or(Outcome::Leave)?;
        let fields = Fields {
            sequence: self.next_to_send,
            acknowledgement: self.next_expected,
            flags,
            // It fits: a connection with a larger buffer does not enter.
            window: window.min(usize::from(u16::MAX)) as u16,
        };
        let template = &self.template;
        let frame_length = PLAIN_HEADERS + length;
        let sent = if length <= mss {
            transport.transmit_complete(counters, frame_length, &mut |frame| {
                template.write(frame, fields, data);
            })
        } else {
            transport.transmit_divided(counters, frame_length, mss, &mut |frame| {
                template.write_divided(frame, fields, data);
            })
        };
        sent.map_err(|_| Outcome::Blocked)
    }

    /// How many bytes the next frame has if `sendable` ones fit into the peer's window, of more
    /// than `mss` that are not yet sent: more than a segment if the device divides it.
    #[inline(never)]
    fn bytes_of_a_frame(&self, transport: &Transport, sendable: usize, mss: usize) -> usize {
        let most = transport.divided_frame_length().saturating_sub(PLAIN_HEADERS).min(sendable);
        // A segment that is not whole goes with the last ones that there are, but not if Nagle's
        // algorithm may hold it back.
        if most == self.unsent() && !self.nagle {
            return most;
        }
        let part = most.checked_rem(mss).unwrap_or(0);
        (most - part).max(mss)
    }

    /// When it is to be looked at, apart from acknowledgements.
    #[inline(always)]
    fn deadline(&self, shared: &Shared, now: u64) -> Option<u64> {
        if let Memory::LooksAt(at, _) = self.memory {
            let later = Some(self.sent_at + RETRANSMISSION_MICROSECONDS);
            return earlier(Some(at), later.filter(|_| self.in_flight() > 0));
        }
        if self.in_flight() > 0 {
            Some(self.sent_at + RETRANSMISSION_MICROSECONDS)
        } else if !(self.received.has_memory() || self.outgoing.has_memory()) {
            None
        } else if self.received.is_empty() {
            Some(now + shared.idle_microseconds())
        } else if shared.is_memory_short() {
            Some(now + UNREAD_WHEN_SHORT_MICROSECONDS)
        } else {
            Some(now + UNREAD_MICROSECONDS)
        }
    }

    /// Looks for memory if a write waits for it, and it is time.
    #[inline(always)]
    fn look_for_memory(&mut self, shared: &Shared, stream: &mut Stream, now: u64) {
        match self.memory {
            Memory::Enough => {}
            Memory::Missing => {
                let pause = MEMORY_MICROSECONDS;
                self.memory = Memory::LooksAt(now + pause, pause);
            }
            Memory::LooksAt(at, _) if now < at => {}
            Memory::LooksAt(..) if shared.has_memory_for_queues() => {
                // If that is not enough, the next write begins a wait.
                self.memory = Memory::Enough;
                stream.senders.wake_all();
            }
            Memory::LooksAt(_, pause) => {
                let pause = (2 * pause).min(MEMORY_MICROSECONDS_MAX);
                self.memory = Memory::LooksAt(now + pause, pause);
            }
        }
    }

    /// Sends what is not yet sent, and a due acknowledgement.
    fn serve(
        &mut self,
        transport: &mut Transport,
        counters: &Counters,
        stream: &mut Stream,
        path_is_valid: bool,
        now: u64,
    ) -> Outcome {
        if self.in_flight() > 0 && self.sent_at + RETRANSMISSION_MICROSECONDS <= now {
            return Outcome::Leave;
        }
        let mss = stream.tracking.segment_bytes_max();
        for _ in 0..FRAMES_PER_TURN {
            let (in_flight, unsent) = (self.in_flight(), self.unsent());
            if unsent == 0 {
                return self.acknowledge(transport, counters, stream, path_is_valid, now);
            }
            let length = unsent.min(mss);
            let window = stream.tracking.scaled(self.peer_window).saturating_sub(in_flight);
            let small = self.nagle && in_flight > 0 && length < mss;
            if !path_is_valid || window < length || small {
                return Outcome::Leave;
            }
            let length = if unsent > mss {
                self.bytes_of_a_frame(transport, window.min(unsent), mss)
            } else {
                length
            };
            let last = if length == unsent { PUSH } else { 0 };
            let flags = ACKNOWLEDGE | last;
            let announced = stream.acknowledgements.announced(self.receive_room(mss));
            if let Err(outcome) =
                self.transmit(transport, counters, (length, mss), flags, announced)
            {
                return outcome;
            }
            self.next_to_send = self.next_to_send.wrapping_add(length as u32);
            if in_flight == 0 {
                self.sent_at = now;
            }
            let contents = Contents::of(self.in_flight(), self.unread());
            stream.acknowledgements.sent(contents, announced, now);
        }
        if self.unsent() > 0 { Outcome::More } else { Outcome::Done }
    }

    /// Sends an acknowledgement if one has waited long enough, or the window is to be announced.
    fn acknowledge(
        &mut self,
        transport: &mut Transport,
        counters: &Counters,
        stream: &mut Stream,
        path_is_valid: bool,
        now: u64,
    ) -> Outcome {
        let acknowledgements = &mut stream.acknowledgements;
        let room = self.receive_room(stream.tracking.segment_bytes_max());
        if !acknowledgements.leaves_now(room, now) {
            return Outcome::Done;
        }
        if !path_is_valid {
            return Outcome::Leave;
        }
        let announced = acknowledgements.announced(room);
        if let Err(outcome) = self.transmit(transport, counters, (0, 0), ACKNOWLEDGE, announced) {
            return outcome;
        }
        let contents = Contents::of(self.in_flight(), self.unread());
        acknowledgements.sent(contents, announced, now);
        Outcome::Done
    }
}

impl LinkCore {
    /// Serves a connection on the fast path. Returns `false` if it must leave the fast path.
    pub(crate) fn serve_fast(
        &mut self,
        shared: &Shared,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
        now: u64,
    ) -> bool {
        let path_is_valid = state.path.to_send(self.epoch, now).is_some();
        let EndpointState {
            fast: Some(fast),
            protocol: Protocol::Stream(stream),
            armed,
            blocked,
            path,
            ..
        } = state
        else {
            return false;
        };
        if stream.doomed {
            return false;
        }
        if path_is_valid && fast.unsent() > 0 && path.gives_way_to_renewal(now) {
            return false;
        }
        self.frames_moved += 1;
        fast.look_for_memory(shared, stream, now);
        let counters = &shared.counters;
        match fast.serve(&mut self.transport, counters, stream, path_is_valid, now) {
            Outcome::Leave => return false,
            Outcome::More => give_turn(&mut self.turns, endpoint),
            Outcome::Blocked => {
                if !core::mem::replace(blocked, true) {
                    counters.transmit_blocked.add(1);
                    self.blocked.push_back(endpoint.clone());
                }
                // What is due waits for the device, not for a time.
                let later = fast.deadline(shared, now);
                self.timers.arm(endpoint, armed, later, now);
                return true;
            }
            Outcome::Done => {}
        }
        if stream.is_idle(shared.idle_microseconds(), now) {
            fast.release_queues();
        }
        Self::rearm_fast(&mut self.timers, shared, endpoint, fast, stream, armed, now);
        true
    }

    /// Sets the timer of a connection on the fast path.
    #[inline(always)]
    pub(super) fn rearm_fast(
        timers: &mut TimerQueue,
        shared: &Shared,
        endpoint: &Arc<Endpoint>,
        fast: &FastPath,
        stream: &Stream,
        armed: &mut Armed,
        now: u64,
    ) {
        let later = earlier(stream.acknowledgements.due(), fast.deadline(shared, now));
        timers.arm(endpoint, armed, later, now);
    }

    /// Ends a connection on the fast path with a reset: for want of memory for a socket.
    pub(crate) fn reset_fast(
        &mut self,
        shared: &Shared,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
        now: u64,
    ) {
        let path_is_valid = state.path.to_send(self.epoch, now).is_some();
        if let Some(mut fast) = state.fast.take() {
            shared.counters.resets_sent.add(1);
            let (transport, counters) = (&mut self.transport, &shared.counters);
            let flags = ACKNOWLEDGE | RESET;
            // If it is not sent, the peer's next segment finds no connection and is answered.
            let _ = path_is_valid && fast.transmit(transport, counters, (0, 0), flags, 0).is_ok();
        }
        self.retire(endpoint, state);
    }
}
