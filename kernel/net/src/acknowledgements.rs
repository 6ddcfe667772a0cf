//! Which acknowledgements wait for the answer.
//!
//! smoltcp acknowledges data after 10 ms, or at once if there is more than a segment of it. So a
//! request of two segments was answered with two frames: an acknowledgement, and then the answer,
//! which acknowledges as well. Here the acknowledgement of a connection that *answers* waits for
//! the answer, for at most twice the time that the last one took, and for 10 to 180 ms. If the peer
//! sent the rest of a request only when it had an acknowledgement of the beginning, that time
//! counts from the rest: otherwise each such request would double it. A connection answers if it
//! last sent data within 180 ms after data arrived; it does not any more when a frame without data
//! has acknowledged what waited. (Linux calls this the ping-pong mode.)
//! So a server with a thousand connections, of which each waits for its turn, does not send an
//! acknowledgement and an answer for each request.
//!
//! The longest delay is shorter than what senders wait at least before they send data again, so an
//! acknowledgement that waits causes no retransmission. RFC 6298 asks for a second; Linux waits for
//! 200 ms and FreeBSD for 230 ms, each in addition to the round-trip time that was measured.
//! RFC 9293 (3.8.6.3) permits a delay of less than 500 ms. A delay of 40 ms, as Linux has it, was
//! shorter than the answers of a thousand busy connections take, and cost each of them a second
//! frame: where a server had most to do, it did most in vain.
//!
//! smoltcp's own connections: an acknowledgement waits only while the peer may send half of a
//! receive buffer more before it gets one, so the window does not hold the peer up: otherwise
//! smoltcp decides. So a one-way stream, with segments of the usual size, is acknowledged at every
//! second segment, as without this. The caller excludes everything but plain data in order: gaps,
//! duplicates, FIN and window probes are answered at once.
//!
//! On the fast path, an acknowledgement waits for the answer also if the window is nearly used up:
//! in an overload that is so with each request, and the acknowledgement would not let the peer send
//! anything. RFC 9293 recommends one for at least every second whole segment. So
//!
//! - data of two whole segments is acknowledged at once if the peer can send another segment, and
//!   the connection does not answer any more;
//! - otherwise it waits until the program reads. The window is announced then (see `window`), which
//!   acknowledges. If that frame contains no answer, the connection does not answer any more, so
//!   the next segments of a one-way stream are acknowledged by smoltcp's rules.
//!
//! A peer that repeats what was received, or asks for the window, gets an acknowledgement at once.
//! With more than one segment in flight, Linux sends the last one again after twice the round-trip
//! time (RFC 8985, 7.2), and not only after 200 ms. So the second segment is acknowledged at once
//! if the connection does not answer; the first one, if it nearly uses up the window, after 180 ms.

use crate::timers::earlier;
use crate::window::Room;

/// smoltcp's delay of an acknowledgement, the shortest one here.
const DELAY_MICROSECONDS: u64 = 10_000;
/// The longest delay: less than the shortest retransmission timeout that is in use.
pub(crate) const DELAY_MICROSECONDS_MAX: u64 = 180_000;

/// With more frames in sequence that have no data, a connection does not converse.
const EMPTY_FRAMES_MAX: u8 = 2;

/// What is known about the data of one peer. Protected by the endpoint's lock.
#[derive(Debug)]
pub(crate) struct Acknowledgements {
    /// When data arrived for the first time since the last frame with data.
    received_at: Option<u64>,
    /// Bytes that arrived since the last frame was sent, and since when the first of them waits.
    waiting: usize,
    waiting_since: u64,
    /// When the acknowledgement of these bytes is to be sent without an answer, if it waits for
    /// one.
    due: Option<u64>,
    /// On the fast path: when it is to be sent if it does not wait for an answer.
    delayed: Option<u64>,
    /// The window that the last frame announced.
    window: usize,
    /// On the fast path: the peer has asked for the window.
    asked: bool,
    /// Number of frames without data since the last one with data.
    empty_frames: u8,
    /// Whether the connection answers, and how long the next acknowledgement waits for that.
    answers: bool,
    delay: u64,
    /// On the fast path: the program is behind with its answers.
    is_behind: bool,
}

/// What a frame contains, apart from an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contents {
    Nothing,
    /// Data, or data is in flight. `has_unread`: the program has not read all that has arrived.
    Data {
        has_unread: bool,
    },
}

impl Contents {
    /// Those of a frame after which so many bytes are in flight, while so many have been received
    /// and not been read.
    #[inline(always)]
    pub(crate) fn of(in_flight: usize, unread: usize) -> Self {
        if in_flight > 0 { Contents::Data { has_unread: unread > 0 } } else { Contents::Nothing }
    }
}

impl Default for Acknowledgements {
    fn default() -> Self {
        Acknowledgements {
            received_at: None,
            waiting: 0,
            waiting_since: 0,
            due: None,
            delayed: None,
            window: 0,
            asked: false,
            empty_frames: u8::MAX,
            answers: false,
            delay: DELAY_MICROSECONDS,
            is_behind: false,
        }
    }
}

impl Acknowledgements {
    /// A segment with `length` bytes has arrived. Returns until when its acknowledgement waits, if
    /// it does; `may_wait`: nothing else forbids that. `room`: how much of the window must be left.
    pub(crate) fn received(
        &mut self,
        length: usize,
        may_wait: bool,
        room: usize,
        now: u64,
    ) -> Option<u64> {
        self.delayed = None;
        if length > 0 {
            self.count(length, now);
        }
        if !(self.answers && may_wait && self.waiting + room <= self.window) {
            self.due = None;
            return None;
        }
        let due = *self.due.get_or_insert(now + self.delay);
        (now < due).then_some(due)
    }

    /// `length` bytes have arrived.
    #[inline(always)]
    fn count(&mut self, length: usize, now: u64) {
        self.received_at.get_or_insert(now);
        if self.waiting == 0 {
            self.waiting_since = now;
        }
        self.waiting += length;
    }

    /// A segment with `length` bytes has arrived on the fast path. Returns whether its
    /// acknowledgement waits for the answer, because the connection answers; otherwise smoltcp's
    /// rules hold, and the caller looks whether it is [`due`](Self::due), or the window to be
    /// announced. `half`: of the receive buffer; `largest`: the bytes of a whole segment.
    #[inline(always)]
    pub(crate) fn arrived(
        &mut self,
        length: usize,
        (half, largest): (usize, usize),
        now: u64,
    ) -> bool {
        self.count(length, now);
        if self.waiting > self.window {
            // More than it knows that it may send: it asks for the window with a byte of data.
            self.due = None;
            self.answer_question(now);
            return false;
        }
        let smallest = largest.min(half);
        if self.waiting >= 2 * largest && self.window_left() >= smallest {
            // So much is no request, and the peer can send more.
            self.answers = false;
        }
        let waits = self.answers && now < *self.due.get_or_insert(now + self.delay);
        if !waits {
            let holds_up = self.window_left() < smallest;
            self.decide(self.waiting == length, holds_up, largest, now);
        }
        waits
    }

    /// On the fast path: the peer asks for the window, so the answer leaves at once.
    pub(crate) fn answer_question(&mut self, now: u64) {
        self.answer_repetition(now);
        self.asked = true;
    }

    /// On the fast path: the peer has repeated what was received, so an acknowledgement leaves at
    /// once. It does not mean that the connection does not answer.
    pub(crate) fn answer_repetition(&mut self, now: u64) {
        self.delayed = Some(now);
    }

    /// The acknowledgement does not wait for an answer. That of the `first` segment waits for the
    /// program to read if the window `holds_up` the peer. Otherwise, as smoltcp decides: it is sent
    /// at once if there is more to acknowledge than a segment, but not for the first one.
    #[cold]
    #[inline(never)]
    fn decide(&mut self, is_first: bool, holds_up: bool, largest: usize, now: u64) {
        let due = self.due.take();
        if is_first && holds_up && !self.asked {
            self.delayed = earlier(due, Some(now + DELAY_MICROSECONDS_MAX));
            return;
        }
        let delay = if self.is_behind && self.waiting < 2 * largest {
            DELAY_MICROSECONDS_MAX
        } else if is_first || self.waiting <= largest {
            DELAY_MICROSECONDS
        } else {
            0
        };
        self.delayed = earlier(earlier(due, self.delayed), Some(now + delay));
    }

    /// Whether frames with data leave as often as others. Then one of them announces the window: a
    /// program that answers what it has read, and has more than half of a buffer to read, needs no
    /// more before its next answer.
    fn converses(&self) -> bool {
        self.empty_frames <= EMPTY_FRAMES_MAX
    }

    /// On the fast path: the window that the next frame announces.
    #[inline(always)]
    pub(crate) fn announced(&self, room: Room) -> usize {
        if self.asked { room.free } else { room.announced(self.window_left()) }
    }

    /// On the fast path: whether a frame that only acknowledges, or only announces the window, is
    /// to leave now.
    #[inline(always)]
    pub(crate) fn leaves_now(&self, room: Room, now: u64) -> bool {
        self.due().is_some_and(|due| due <= now) || self.announces(room)
    }

    /// On the fast path: whether the window is worth a frame.
    #[inline(always)]
    fn announces(&self, room: Room) -> bool {
        let step = if self.converses() { room.half() } else { room.step() };
        room.has_grown(self.window_left(), step)
    }

    /// On the fast path: whether the connection is to be served because the program has read. Also
    /// if an acknowledgement waits for the answer: the peer may have used up the window.
    #[inline(always)]
    pub(crate) fn has_news(&self, room: Room) -> bool {
        self.announces(room)
    }

    /// The same off the fast path, over Ethernet. smoltcp decides.
    pub(crate) fn may_have_news(&self, room: Room) -> bool {
        room.has_grown(self.window_left(), room.step()) && !self.is_deferred()
    }

    /// Until when the acknowledgement waits at most, if it waits.
    #[inline(always)]
    pub(crate) fn due(&self) -> Option<u64> {
        earlier(self.due, self.delayed)
    }

    /// Number of the last bytes that a new socket has to receive again, and at what time. It begins
    /// with a window of the whole buffer.
    ///
    /// These are the bytes of which the acknowledgement waits. But if the peer knows of a window
    /// that is smaller by a step than what the socket would believe, there are more of them: so the
    /// socket announces the window when the program has read, and acknowledges once more for that.
    pub(crate) fn to_replay(&self, room: Room, now: u64) -> (usize, u64) {
        let since = if self.waiting > 0 { self.waiting_since } else { now };
        let announced = room.capacity.saturating_sub(self.window_left());
        let is_misled = announced >= self.waiting + room.step();
        (if is_misled { announced } else { self.waiting }, since)
    }

    /// What the peer knows that it may send: what is left of the window that the last frame
    /// announced.
    pub(crate) fn window_left(&self) -> usize {
        self.window.saturating_sub(self.waiting)
    }

    /// The connection enters the fast path, with room for `free` bytes. What smoltcp would have
    /// acknowledged after its delay is acknowledged then.
    pub(crate) fn settle(&mut self, free: usize) {
        if self.due.is_none() && self.waiting > 0 {
            self.delayed = Some(self.waiting_since + DELAY_MICROSECONDS);
        }
        self.window = self.window.min(free + self.waiting);
    }

    /// smoltcp has answered a segment, and announced `window`.
    pub(crate) fn replied(&mut self, window: usize) {
        self.window = window;
        self.waiting = 0;
    }

    /// A frame was sent, which announced `window`.
    pub(crate) fn sent(&mut self, contents: Contents, window: usize, now: u64) {
        self.window = window;
        let is_asked_for = self.delayed.take().is_some();
        self.asked = false;
        let in_vain = self.due.take().is_some_and(|due| due <= now || !is_asked_for);
        let has_more = core::mem::take(&mut self.waiting) > 0;
        if let Contents::Data { has_unread } = contents {
            self.empty_frames = 0;
            if let Some(received_at) = self.received_at.take() {
                let took = now.saturating_sub(received_at);
                self.answers = took < DELAY_MICROSECONDS_MAX;
                self.is_behind = !self.answers && (has_more || has_unread);
                // If a frame has acknowledged the beginning: for how long the rest waits.
                let since = if has_more { self.waiting_since } else { received_at };
                let waited = now.saturating_sub(since);
                self.delay = (2 * waited).clamp(DELAY_MICROSECONDS, DELAY_MICROSECONDS_MAX);
            }
        } else {
            self.empty_frames = self.empty_frames.saturating_add(1);
            self.answers &= !in_vain;
        }
    }

    /// Whether an acknowledgement waits for the answer.
    pub(crate) fn is_deferred(&self) -> bool {
        self.due.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: Contents = Contents::Data { has_unread: false };

    /// As of a sender that waits for an acknowledgement of the first segment of each request.
    #[test]
    fn a_peer_that_waits_for_an_acknowledgement_does_not_wait_longer_each_time() {
        let mut state = Acknowledgements::default();
        let sizes = (4096, 1448);
        let mut now = 0;
        for request in 0..8 {
            let begin = now;
            state.arrived(1448, sizes, now);
            now = state.due().expect("an acknowledgement is due");
            assert!(now <= begin + DELAY_MICROSECONDS, "{} us, request {request}", now - begin);
            state.sent(Contents::Nothing, 8192, now);
            state.arrived(500, sizes, now + 100);
            now += 3_000;
            state.sent(DATA, 8192, now);
            now += 100_000;
        }
    }

    /// The acknowledgement of the whole request has left before the answer.
    #[test]
    fn a_slow_answer_is_waited_for_the_next_time() {
        let mut state = Acknowledgements::default();
        state.arrived(1448, (4096, 1448), 0);
        state.sent(Contents::Nothing, 8192, DELAY_MICROSECONDS);
        state.sent(DATA, 8192, 50_000);
        state.arrived(1448, (4096, 1448), 200_000);
        assert_eq!(state.due(), Some(300_000));
    }

    #[test]
    fn it_waits_once_the_connection_answers_and_until_it_does_not() {
        let mut state = Acknowledgements::default();
        assert_eq!(state.received(100, true, 2048, 0), None, "the first request");
        state.sent(DATA, 4096, 50);
        assert_eq!(state.received(1448, true, 2048, 1_000), Some(11_000));
        assert_eq!(state.received(500, true, 2048, 1_100), Some(11_000), "the same request");
        state.sent(DATA, 4096, 2_000);
        assert!(!state.is_deferred());
        assert_eq!(state.received(1448, true, 2048, 3_000), Some(13_000));
        assert_eq!(state.received(1448, true, 2048, 3_100), None, "too much for the window");
        state.sent(Contents::Nothing, 4096, 3_100);
        assert_eq!(state.received(1, false, 2048, 4_000), None, "not plain data");
        state.sent(Contents::Nothing, 4096, 4_000);
        assert_eq!(state.received(1, true, 2048, 5_000), Some(15_000), "it still answers");
        state.sent(Contents::Nothing, 4096, 15_000);
        assert_eq!(state.received(1, true, 2048, 16_000), None, "it waited in vain");
        state.sent(DATA, 4096, 184_000);
        assert_eq!(state.received(1, true, 2048, 185_000), None, "no answer, but a message");
        state.sent(DATA, 4096, 186_000);
        assert_eq!(state.received(1, true, 2048, 187_000), Some(197_000), "it answers again");
        state.sent(DATA, 3000, 188_000);
        assert_eq!(state.received(900, true, 2048, 189_000), Some(199_000), "the window is open");
        assert_eq!(state.received(100, true, 2048, 189_000), None, "the window is nearly used up");
    }

    #[test]
    fn it_waits_for_twice_the_time_of_the_last_answer() {
        let mut state = Acknowledgements::default();
        for (took, waits) in [
            (1_000, 10_000),
            (9_000, 18_000),
            (16_000, 32_000),
            (45_000, 90_000),
            (95_000, 180_000),
        ] {
            state.received(1, true, 0, 100_000);
            state.sent(DATA, 4096, 100_000 + took);
            assert_eq!(state.received(1, true, 0, 200_000), Some(200_000 + waits));
            state.sent(DATA, 4096, 200_000);
        }
        state.received(1, true, 0, 300_000);
        state.sent(DATA, 4096, 480_000);
        assert_eq!(state.received(1, true, 0, 500_000), None, "that was too long");
    }

    /// Requests that come before the last one is answered: what counts is how long the first of
    /// them has waited. Otherwise each of these acknowledgements would wait in vain.
    #[test]
    fn the_time_of_an_answer_is_that_of_the_first_request_that_waits_for_it() {
        let mut state = Acknowledgements::default();
        state.sent(Contents::Nothing, 4096, 0);
        for arrival in [1_000, 31_000, 60_000] {
            state.arrived(24, BYTES, arrival);
        }
        state.sent(DATA, 4096, 61_000);
        assert!(state.arrived(24, BYTES, 70_000));
        assert_eq!(state.due(), Some(70_000 + 120_000));
    }

    /// Requests come faster than they are answered: an acknowledgement of each would make the
    /// server slower still. Where nothing has come since the request that is answered, the program
    /// is not behind: it may be a client that has thought for long before its next request.
    #[test]
    fn a_connection_that_is_behind_acknowledges_rarely() {
        for (has_more, has_unread) in [(true, false), (false, true), (false, false)] {
            let mut state = Acknowledgements::default();
            state.sent(Contents::Nothing, 4096, 0);
            state.arrived(24, BYTES, 1_000);
            assert_eq!(state.due(), Some(11_000));
            state.sent(Contents::Nothing, 4096, 11_000);
            if has_more {
                state.arrived(24, BYTES, 180_000);
            }
            state.sent(Contents::Data { has_unread }, 4096, 181_000);
            assert!(!state.arrived(24, BYTES, 200_000), "it does not answer soon");
            let is_behind = has_more || has_unread;
            let due = if is_behind { 380_000 } else { 210_000 };
            assert_eq!(state.due(), Some(due));
            state.arrived(24, BYTES, 250_000);
            assert_eq!(state.due(), Some(due), "no more than a segment");
            state.arrived(1460, BYTES, 260_000);
            assert_eq!(state.due(), Some(due), "no two whole segments");
            state.arrived(1460, BYTES, 270_000);
            assert_eq!(state.due(), Some(due.min(270_000)), "two whole segments");
            state.sent(DATA, 4096, 270_000);
            assert!(state.arrived(24, BYTES, 280_000), "it answers");
            state.sent(Contents::Nothing, 4096, 460_000);
            state.arrived(24, BYTES, 470_000);
            assert_eq!(state.due(), Some(480_000), "as before");
        }
    }

    /// Data of two whole segments is no request. It is acknowledged at once if the peer can send
    /// more; otherwise when the program has read, and then the connection does not answer any more.
    #[test]
    fn two_whole_segments_are_acknowledged_soon() {
        for window in [4096, 65_535] {
            let mut state = Acknowledgements::default();
            state.arrived(24, BYTES, 0);
            state.sent(DATA, window, 10);
            assert!(state.arrived(1460, BYTES, 20));
            assert!(state.arrived(1459, BYTES, 30), "a byte less");
            let waits = state.arrived(1, BYTES, 40);
            assert_eq!(waits, window == 4096);
            assert_eq!(state.due(), Some(if waits { 10_020 } else { 40 }));
            state.sent(Contents::Nothing, window, 50);
            assert!(!state.arrived(1460, BYTES, 60), "it was no request");
            assert_eq!(state.due(), Some(10_060));
            state.arrived(1, BYTES, 70);
            assert_eq!(state.due(), Some(70), "as by smoltcp");
            state.sent(DATA, window, 80);
            assert!(state.arrived(1460, BYTES, 90), "it answers again");
            state.answer_repetition(95);
            assert_eq!(state.due(), Some(95));
            state.sent(Contents::Nothing, window, 95);
            assert!(state.arrived(1460, BYTES, 100), "the peer asked for that acknowledgement");
        }
    }

    /// What must be left of the window, and a whole segment.
    const BYTES: (usize, usize) = (2048, 1460);

    #[test]
    fn on_the_fast_path_it_waits_for_the_answer_or_as_by_smoltcp() {
        let mut state = Acknowledgements::default();
        let arrived = |state: &mut Acknowledgements, length, now| {
            let waits = state.arrived(length, BYTES, now);
            assert_eq!(waits, state.is_deferred());
            (waits, state.due())
        };
        state.sent(Contents::Nothing, 4096, 0);
        assert_eq!(arrived(&mut state, 1448, 50), (false, Some(10_050)), "the first segment");
        assert_eq!(arrived(&mut state, 12, 60), (false, Some(10_050)), "no more than a segment");
        assert_eq!(arrived(&mut state, 1, 70), (false, Some(70)), "more than a segment");
        state.sent(DATA, 4096, 1_000);
        assert_eq!(state.due(), None);
        assert_eq!(arrived(&mut state, 1000, 2_000), (true, Some(12_000)), "it answers");
        assert_eq!(arrived(&mut state, 1000, 2_100), (true, Some(12_000)));
        let used_up = arrived(&mut state, 2096, 2_200);
        assert_eq!(used_up, (true, Some(12_000)), "also if the window is used up");
        let room = Room { free: 7, capacity: 4096, largest: 1460 };
        assert_eq!((state.to_replay(room, 2_200), state.window_left()), ((4096, 2_000), 0));
        assert_eq!(arrived(&mut state, 1, 2_300), (false, Some(2_300)), "a question");
        state.sent(Contents::Nothing, 0, 2_300);
        state.sent(DATA, 1000, 182_000);
        // It does not answer any more. Its acknowledgement would not let the peer send anything.
        assert_eq!(arrived(&mut state, 700, 200_000), (false, Some(380_000)), "a small window");
        let replayed = |capacity| state.to_replay(Room { capacity, ..room }, 210_000);
        assert_eq!([1000, 1998].map(replayed), [(700, 200_000); 2], "the peer knows the window");
        assert_eq!(replayed(1999), (1699, 200_000), "it knows of a step less");
        assert_eq!(arrived(&mut state, 10, 201_000), (false, Some(211_000)), "two segments");
        assert_eq!(arrived(&mut state, 290, 202_000), (false, Some(211_000)));
        assert_eq!(arrived(&mut state, 1, 203_000), (false, Some(203_000)), "a question");
        assert_eq!(state.announced(room), 7, "the whole truth");
        state.sent(Contents::Nothing, 7, 203_000);
        assert_eq!(state.announced(Room { free: 9, ..room }), 7, "no small step");
        // A connection that converses announces half of the buffer; another one, a segment.
        for (empty_frames, step) in [(0, 2048), (2, 2048), (3, 1460)] {
            state.sent(DATA, 0, 203_000);
            (0..empty_frames).for_each(|_| state.sent(Contents::Nothing, 0, 203_000));
            let news = [step - 1, step].map(|free| state.has_news(Room { free, ..room }));
            assert_eq!(news, [false, true], "{empty_frames} frames without data");
        }
        state.sent(DATA, 4096, 204_000);
        assert!(state.arrived(700, BYTES, 204_000), "it answers again");
        assert_eq!((state.due(), state.is_deferred()), (Some(214_000), true));
        assert_eq!(state.received(50, false, 2048, 204_000), None);
        assert_eq!(state.due(), None, "smoltcp decides");
    }
}
