//! The state of a TCP connection that smoltcp does not keep: its owner, why it ended, what it waits
//! for.
//!
//! Pure bookkeeping on one connection: it gets the state of smoltcp's socket before and after each
//! step, and changes nothing but that socket and the waiters.
//!
//! smoltcp's own timeout stays off: it counts from the last segment received even when the
//! connection is idle, and would end every quiet connection. Here (RFC 9293, section 3.8.3) a
//! deadline runs only while the peer owes an answer.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;
use core::task::Waker;

use smoltcp::socket::tcp::{Socket, State};

use crate::acknowledgements::{Acknowledgements, Contents};
use crate::backlog::Backlog;
use crate::error::Error;
use crate::fast_path::Tracking;
use crate::frame::{FlowKey, Segment};
use crate::keep_alive::KeepAlive;
use crate::readiness::Behind;
use crate::shared::{ConnectionSlot, STALLED_MICROSECONDS, Shared};
use crate::statistics::Counters;
use crate::time_wait::FinalNumbers;
use crate::wakers::WakerSet;
use crate::window::Room;

/// The owner of a connection: reads its data and closes it.
pub(crate) enum Owner {
    /// A listener: the connection is half open, or waits to be accepted.
    Listener(Arc<Backlog>),
    /// A [`Connection`](crate::Connection).
    Handle,
    /// No owner: the stack closes the connection.
    None,
}

/// The state of one TCP socket besides smoltcp's.
pub(crate) struct Stream {
    pub(crate) key: FlowKey,
    pub(crate) owner: Owner,
    /// Whether it is in the interface's table. Once it is removed, it is never passed to smoltcp
    /// again.
    pub(crate) in_table: bool,
    /// Why the connection ended, if abnormally. Never cleared.
    pub(crate) failure: Option<Error>,
    /// The same, until it is reported once: by an operation, or as `SO_ERROR`.
    pub(crate) unreported: Option<Error>,
    /// Whether the handshake was ever completed.
    pub(crate) established: bool,
    /// The peer's FIN has arrived in order: the stream ends after the buffered bytes.
    pub(crate) received_fin: bool,
    /// The user will not read any more, or has closed the sending direction.
    pub(crate) read_shut: bool,
    pub(crate) write_shut: bool,
    /// When a silent peer is probed.
    pub(crate) keep_alive: Option<KeepAlive>,
    /// When that was said: silence before it does not count.
    pub(crate) keep_alive_since: u64,
    pub(crate) receivers: WakerSet,
    pub(crate) senders: WakerSet,
    /// When the last segment of the peer arrived, and since when the peer has owed an answer.
    last_heard: u64,
    waiting_since: Option<u64>,
    /// Since when smoltcp has had data and no timer.
    pub(crate) stalled_since: Option<u64>,
    /// It is on the fast path, and to be aborted as soon as it has a socket.
    pub(crate) doomed: bool,
    /// What the fast path has to know.
    pub(crate) tracking: Tracking,
    /// What is known about acknowledgements of the peer's data.
    pub(crate) acknowledgements: Acknowledgements,
    /// The sequence numbers when TIME-WAIT was entered, and that time.
    pub(crate) time_wait: Option<(FinalNumbers, u64)>,
    /// What its owner has paid with (see [`Connection::keep`](crate::Connection::keep)).
    pub(crate) kept: Option<Box<dyn Any + Send + Sync>>,
    _slot: ConnectionSlot,
}

/// The observable state of smoltcp's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) state: State,
    pub(crate) received: usize,
    pub(crate) unacknowledged: usize,
}

impl Snapshot {
    pub(crate) fn of(socket: &Socket<'_>) -> Snapshot {
        Snapshot {
            state: socket.state(),
            received: socket.recv_queue(),
            unacknowledged: socket.send_queue(),
        }
    }

    /// Whether the peer has closed its direction.
    pub(crate) fn has_received_fin(self) -> bool {
        matches!(self.state, State::CloseWait | State::LastAck | State::Closing | State::TimeWait)
    }
}

impl Stream {
    pub(crate) fn new(key: FlowKey, owner: Owner, slot: ConnectionSlot, now: u64) -> Stream {
        Stream {
            key,
            owner,
            in_table: false,
            failure: None,
            unreported: None,
            established: false,
            received_fin: false,
            read_shut: false,
            write_shut: false,
            keep_alive: None,
            keep_alive_since: 0,
            receivers: WakerSet::default(),
            senders: WakerSet::default(),
            last_heard: now,
            waiting_since: None,
            stalled_since: None,
            doomed: false,
            tracking: Tracking::default(),
            acknowledgements: Acknowledgements::default(),
            time_wait: None,
            kept: None,
            _slot: slot,
        }
    }

    /// Records what a step did to the socket, and wakes the waiters concerned. `segment` is the
    /// segment that the step processed, if any.
    pub(crate) fn observe(
        &mut self,
        socket: &Socket<'_>,
        before: Snapshot,
        segment: Option<&Segment<'_>>,
        now: u64,
        counters: &Counters,
    ) {
        let after = Snapshot::of(socket);
        if let Some(segment) = segment {
            self.note_heard(now);
            self.tracking.observe(before, after, segment);
        }
        let changed = before.state != after.state;
        if changed {
            self.observe_transition(before.state, after.state, segment, now, counters);
        }
        if changed || after.unacknowledged < before.unacknowledged {
            // Progress: what the peer still owes, it owes from now on.
            self.waiting_since = None;
            self.senders.wake_all();
        }
        if changed || after.received > before.received {
            self.receivers.wake_all();
        }
    }

    /// A segment of the peer has arrived.
    pub(crate) fn note_heard(&mut self, now: u64) {
        self.last_heard = self.last_heard.max(now);
    }

    /// When the last segment of the peer arrived.
    pub(crate) fn last_heard(&self) -> u64 {
        self.last_heard
    }

    /// Since when the peer has been silent, as keep-alive counts it.
    pub(crate) fn silent_since(&self) -> u64 {
        self.last_heard.max(self.keep_alive_since)
    }

    /// Since when the peer has owed an answer, if that is known.
    pub(crate) fn waiting_since(&self) -> Option<u64> {
        self.waiting_since
    }

    /// Whether nothing has arrived for `microseconds`.
    pub(crate) fn is_idle(&self, microseconds: u64, now: u64) -> bool {
        self.last_heard + microseconds <= now
    }

    /// Whether the handshake is not complete and has not failed.
    pub(crate) fn begins(&self, socket: &Socket<'_>) -> bool {
        self.failure.is_none() && matches!(socket.state(), State::SynSent | State::SynReceived)
    }

    /// Whether a handle may read and write, and nothing else is asked of the connection.
    pub(crate) fn is_open_for_its_handle(&self) -> bool {
        matches!(self.owner, Owner::Handle)
            && self.in_table
            && self.established
            && !(self.read_shut || self.write_shut || self.received_fin)
            && self.keep_alive.is_none()
            && self.failure.is_none()
    }

    /// The connection is on the fast path, which counts from now on what its peer owes.
    /// There is room for `free` bytes.
    pub(crate) fn note_entered(&mut self, free: usize) {
        self.waiting_since = None;
        self.acknowledgements.settle(free);
    }

    /// Whether the acknowledgement of the data of `segment`, which has just been received, waits
    /// for the answer; if so, until when at most (see `acknowledgements`). smoltcp has nothing to
    /// send until then.
    pub(crate) fn defer_acknowledgement(
        &mut self,
        socket: &Socket<'_>,
        segment: &Segment<'_>,
        is_usual: bool,
        now: u64,
    ) -> Option<u64> {
        // What is not in order, or is rejected, smoltcp acknowledges at once.
        let length = if is_usual { segment.payload_length } else { 0 };
        let may_wait = is_usual && socket.send_queue() == 0;
        let half = socket.recv_capacity() / 2;
        self.acknowledgements.received(length, may_wait, half, now)
    }

    /// Whether `segment`, which has just been received, was nothing but data in order, for a
    /// connection that is open.
    pub(crate) fn is_usual(
        &self,
        socket: &Socket<'_>,
        before: Snapshot,
        segment: &Segment<'_>,
    ) -> bool {
        let after = Snapshot::of(socket);
        let length = segment.payload_length;
        length > 0
            && !(segment.synchronize || segment.finish || segment.reset)
            && after.received == before.received + length
            && before.state == State::Established
            && after.state == State::Established
            && self.keep_alive.is_none()
            && matches!(self.owner, Owner::Handle)
    }

    /// A frame was sent, which contains an acknowledgement.
    pub(crate) fn note_sent(&mut self, socket: &Socket<'_>, now: u64) {
        let contents = Contents::of(socket.send_queue(), socket.recv_queue());
        self.acknowledgements.sent(contents, self.room(socket).free, now);
    }

    /// smoltcp has answered a segment at once.
    pub(crate) fn note_replied(&mut self, socket: &Socket<'_>) {
        self.acknowledgements.replied(self.room(socket).free);
    }

    /// The receive buffer of `socket`.
    pub(crate) fn room(&self, socket: &Socket<'_>) -> Room {
        let capacity = socket.recv_capacity();
        let free = capacity - socket.recv_queue();
        Room { free, capacity, largest: self.tracking.segment_bytes_max() }
    }

    fn observe_transition(
        &mut self,
        before: State,
        after: State,
        segment: Option<&Segment<'_>>,
        now: u64,
        counters: &Counters,
    ) {
        match after {
            State::Established | State::FinWait1 | State::FinWait2 => self.established = true,
            State::CloseWait | State::LastAck | State::Closing | State::TimeWait => {
                self.established = true;
                self.received_fin = true;
            }
            State::Closed | State::Listen | State::SynSent | State::SynReceived => {}
        }
        if after == State::TimeWait
            && let Some(segment) = segment
        {
            // Every transition to TIME-WAIT processes a segment that acknowledges our FIN and ends
            // where the peer's FIN ends: it contains both final numbers.
            let numbers = FinalNumbers {
                next_to_send: segment.acknowledgement,
                next_expected: segment.end(),
            };
            self.time_wait = Some((numbers, now));
        }
        if matches!(after, State::Closed | State::Listen) {
            if segment.is_some_and(|segment| segment.reset) {
                counters.resets_received.add(1);
                self.fail(if before == State::SynSent {
                    Error::ConnectionRefused
                } else {
                    Error::ConnectionReset
                });
            } else if !matches!(
                before,
                State::Closed | State::LastAck | State::TimeWait | State::Listen
            ) {
                // smoltcp closes a socket by itself when its local address is no longer the
                // interface's.
                self.fail(Error::ConnectionAborted);
            }
        }
    }

    /// Records why the connection ends. The first reason counts.
    pub(crate) fn fail(&mut self, error: Error) {
        if self.failure.is_none() {
            self.failure = Some(error);
            self.unreported = Some(error);
        }
    }

    /// Aborts the connection: the next egress sends a reset.
    pub(crate) fn abort(&mut self, socket: &mut Socket<'_>, reason: Error, counters: &Counters) {
        if socket.is_open() && !socket.is_listening() {
            counters.resets_sent.add(1);
        }
        self.fail(reason);
        self.waiting_since = None;
        socket.abort();
        self.receivers.wake_all();
        self.senders.wake_all();
    }

    /// Called when the owner is gone: closes the connection normally (RFC 9293, section 3.6). If
    /// there are unread bytes, the next service aborts it.
    pub(crate) fn disown(&mut self, socket: &mut Socket<'_>, now: u64) {
        self.owner = Owner::None;
        self.waiting_since = Some(now);
        self.close(socket);
    }

    /// Closes the sending direction, once the peer has room for all that is queued.
    ///
    /// If the peer has closed its own direction, smoltcp does not learn from an empty segment any
    /// more after that how much the peer has room for.
    pub(crate) fn close(&mut self, socket: &mut Socket<'_>) {
        let has_room = || socket.send_queue() <= self.tracking.peer_room();
        if socket.state() != State::CloseWait || has_room() {
            socket.close();
        }
    }

    /// Closes the sending direction if that is due since an earlier call of [`Self::close`].
    pub(crate) fn close_if_due(&mut self, socket: &mut Socket<'_>) {
        let is_asked = self.write_shut || matches!(self.owner, Owner::None);
        if is_asked && socket.state() == State::CloseWait {
            self.close(socket);
        }
    }

    /// Since when the socket is known to be closed.
    pub(crate) fn closed_since(&mut self, now: u64) -> u64 {
        *self.waiting_since.get_or_insert(now)
    }

    /// Whether bytes can be queued now. Registers `waker` if that would block. Without a socket the
    /// connection is closed.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], or why nothing can be sent any more: how the connection failed, if
    /// that has not been reported, otherwise [`Error::BrokenPipe`].
    pub(crate) fn check_sendable(
        &mut self,
        socket: Option<&Socket<'_>>,
        waker: Option<&Waker>,
    ) -> Result<(), Error> {
        if let Some(failure) = self.unreported.take() {
            return Err(failure);
        }
        if self.write_shut || self.failure.is_some() {
            return Err(Error::BrokenPipe);
        }
        match socket.map_or(State::Closed, Socket::state) {
            State::Established | State::CloseWait if socket.is_some_and(Socket::can_send) => Ok(()),
            State::Established | State::CloseWait | State::SynSent | State::SynReceived => {
                if let Some(waker) = waker {
                    self.senders.register(waker);
                }
                Err(Error::WouldBlock)
            }
            _ if self.established => Err(Error::BrokenPipe),
            _ => Err(Error::NotConnected),
        }
    }

    /// `true`: there are bytes; `false`: the stream has ended. Registers `waker` if neither is the
    /// case yet. Without a socket the connection is closed.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], or how the connection failed, but only once everything that arrived
    /// has been read, and if that has not been reported.
    pub(crate) fn check_receivable(
        &mut self,
        socket: Option<&Socket<'_>>,
        waker: Option<&Waker>,
    ) -> Result<bool, Error> {
        if self.established && socket.is_some_and(Socket::can_recv) {
            return Ok(true);
        }
        let found = self.without_bytes(socket.map_or(State::Closed, Socket::state));
        match (found, waker) {
            (Err(Error::WouldBlock), Some(waker)) => self.receivers.register(waker),
            (Ok(()) | Err(Error::WouldBlock), _) => {}
            (Err(_), _) => self.unreported = None,
        }
        found.map(|()| false)
    }

    /// What a read finds that finds no bytes, in this state of the socket: `Ok` at the end of the
    /// stream. [`Error::WouldBlock`]: something may arrive later.
    fn without_bytes(&self, state: State) -> Result<(), Error> {
        match (self.unreported, state) {
            _ if self.received_fin => Ok(()),
            (Some(failure), _) => Err(failure),
            _ if self.read_shut || (self.established && self.failure.is_some()) => Ok(()),
            (None, State::Closed | State::Listen) => Err(Error::NotConnected),
            (None, _) => Err(Error::WouldBlock),
        }
    }

    /// What can be received now, and whether anything may arrive later.
    pub(crate) fn behind(&self, socket: &Socket<'_>) -> Behind {
        Behind {
            bytes: if self.established { socket.recv_queue() } else { 0 },
            wakes: self.without_bytes(socket.state()) == Err(Error::WouldBlock),
        }
    }

    /// When the peer will have been silent for too long; `None` while it owes nothing.
    pub(crate) fn silence_deadline(
        &mut self,
        socket: &Socket<'_>,
        shared: &Shared,
        now: u64,
    ) -> Option<u64> {
        let configuration = &shared.configuration;
        let orphan = matches!(self.owner, Owner::None);
        let transmission = configuration.transmission_timeout_microseconds;
        let mut extended = !orphan;
        let early = |limit: u64| match shared.is_memory_used_up() {
            true => STALLED_MICROSECONDS.min(limit),
            false => limit,
        };
        let limit = match socket.state() {
            State::SynSent => Some(configuration.connect_timeout_microseconds),
            State::SynReceived => Some(configuration.handshake_timeout_microseconds),
            State::FinWait1
            | State::FinWait2
            | State::Closing
            | State::CloseWait
            | State::LastAck
                if orphan =>
            {
                Some(early(configuration.orphan_timeout_microseconds))
            }
            State::FinWait1 | State::Closing | State::LastAck => Some(transmission),
            State::Established | State::CloseWait if socket.send_queue() > 0 => {
                extended &= !shared.is_memory_used_up();
                Some(early(transmission))
            }
            _ => None,
        };
        let Some(limit) = limit else {
            self.waiting_since = None;
            let open =
                matches!(socket.state(), State::Established | State::CloseWait | State::FinWait2);
            return self
                .keep_alive
                .filter(|_| open)
                .map(|one| self.silent_since().saturating_add(one.limit_microseconds()));
        };
        let since = *self.waiting_since.get_or_insert(now);
        // For a connection without an owner, or if memory is used up, the peer cannot extend the
        // deadline by sending, only by acknowledging data.
        let since = if extended { since.max(self.last_heard) } else { since };
        Some(since.saturating_add(limit))
    }

    /// When the connection is to be served because of `deadline`, which [`Self::silence_deadline`]
    /// has returned. Nothing else may happen to one without an owner, so it is also served when its
    /// deadline would be if memory is used up by then. Nothing else happens either before the first
    /// probe of a silent peer.
    pub(crate) fn next_look(&self, deadline: u64, now: u64) -> u64 {
        let probe = self.keep_alive.map(|one| self.silent_since() + one.idle_microseconds());
        let deadline = probe.filter(|&at| at > now).map_or(deadline, |at| at.min(deadline));
        match (&self.owner, self.waiting_since) {
            (Owner::None, Some(since)) if since + STALLED_MICROSECONDS > now => {
                deadline.min(since + STALLED_MICROSECONDS)
            }
            _ => deadline,
        }
    }

    /// Whether TIME-WAIT has ended while the user has not read everything. Then smoltcp must not be
    /// polled, because it would drop the bytes.
    pub(crate) fn holds_unread_past_time_wait(&self, socket: &Socket<'_>, now: u64) -> bool {
        socket.state() == State::TimeWait
            && socket.can_recv()
            && !matches!(self.owner, Owner::None)
            && self.time_wait.is_some_and(|(_, entered_at)| {
                now >= entered_at + crate::time_wait::TIME_WAIT_MICROSECONDS
            })
    }
}
