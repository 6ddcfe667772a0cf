//! Which acknowledgements wait for the answer.
//!
//! smoltcp acknowledges data after 10 ms, or at once if there is more than a segment of it. So a
//! request of two segments was answered with two frames: an acknowledgement, and then the answer,
//! which acknowledges as well. Here the acknowledgement of a connection that *answers* waits for
//! the answer, for at most twice the time that the last answer took, and for 10 to 100 ms. A
//! connection answers if it last sent data within 100 ms after data arrived; it does not any more
//! when an acknowledgement has waited in vain. (Linux calls this the ping-pong mode.) So a server
//! with a thousand connections, of which each waits for its turn, does not send an acknowledgement
//! and an answer for each request.
//!
//! The longest delay is half of what senders wait at least before they send data again, so an
//! acknowledgement that waits causes no retransmission, also if it is late. RFC 6298 asks for a
//! second; Linux waits for 200 ms and FreeBSD for 230 ms, each in addition to the round-trip time
//! that was measured. RFC 9293 (3.8.6.3) permits a delay of less than 500 ms. A delay of 40 ms, as
//! Linux has it, was shorter than the answers of a thousand busy connections take, and cost each of
//! them a second frame: where a server had most to do, it did most in vain.
//!
//! An acknowledgement waits only while the peer may send half of a receive buffer more before it
//! gets one, so the window does not hold the peer up: otherwise smoltcp decides. So a one-way
//! stream, with segments of the usual size, is acknowledged at every second segment, as without
//! this. The caller excludes everything but plain data in order: gaps, duplicates, FIN and window
//! probes are answered at once.

use crate::timers::earlier;

/// smoltcp's delay of an acknowledgement, the shortest one here.
const DELAY_MICROSECONDS: u64 = 10_000;
/// The longest delay: half of the shortest retransmission timeout that is in use.
pub(crate) const DELAY_MICROSECONDS_MAX: u64 = 100_000;

/// What is known about the data of one peer. Protected by the endpoint's lock.
#[derive(Debug)]
pub(crate) struct Acknowledgements {
    /// When data last arrived.
    received_at: Option<u64>,
    /// Bytes that arrived since the last frame was sent.
    waiting: usize,
    /// When the acknowledgement of these bytes is to be sent without an answer, if it waits for
    /// one.
    due: Option<u64>,
    /// On the fast path: when it is to be sent if it does not wait for an answer.
    delayed: Option<u64>,
    /// The window that the last frame announced.
    window: usize,
    /// Whether the connection answers, and how long the next acknowledgement waits for that.
    answers: bool,
    delay: u64,
}

impl Default for Acknowledgements {
    fn default() -> Self {
        Acknowledgements {
            received_at: None,
            waiting: 0,
            due: None,
            delayed: None,
            window: 0,
            answers: false,
            delay: DELAY_MICROSECONDS,
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
            self.received_at = Some(now);
            self.waiting += length;
        }
        if !(self.answers && may_wait && self.waiting + room <= self.window) {
            self.due = None;
            return None;
        }
        let due = *self.due.get_or_insert(now + self.delay);
        (now < due).then_some(due)
    }

    /// A segment with `length` bytes has arrived on the fast path: as [`received`](Self::received),
    /// and then as smoltcp decides. Returns whether the acknowledgement waits for the answer;
    /// otherwise the caller looks whether it is [`due`](Self::due), or the window to be announced.
    /// `largest`: the bytes of a whole segment.
    #[inline(always)]
    pub(crate) fn arrived(
        &mut self,
        length: usize,
        may_wait: bool,
        (room, largest): (usize, usize),
        now: u64,
    ) -> bool {
        self.received_at = Some(now);
        self.waiting += length;
        let waits = self.answers
            && may_wait
            && self.waiting + room <= self.window
            && now < *self.due.get_or_insert(now + self.delay);
        if !waits {
            self.decide_as_smoltcp(self.waiting == length, largest, now);
        }
        waits
    }

    /// On the fast path: an acknowledgement is due at once, for the peer asks for the window.
    pub(crate) fn acknowledge_at_once(&mut self, now: u64) {
        self.delayed = Some(now);
    }

    /// The acknowledgement does not wait for an answer: it is sent at once if there is more to
    /// acknowledge than a segment, but not for the `first` one.
    #[cold]
    #[inline(never)]
    fn decide_as_smoltcp(&mut self, is_first: bool, largest: usize, now: u64) {
        let delay = if is_first || self.waiting <= largest { DELAY_MICROSECONDS } else { 0 };
        self.delayed = earlier(earlier(self.due.take(), self.delayed), Some(now + delay));
    }

    /// Until when the acknowledgement waits at most, if it waits.
    #[inline(always)]
    pub(crate) fn due(&self) -> Option<u64> {
        earlier(self.due, self.delayed)
    }

    /// Number of bytes that arrived since the last frame was sent, and since when they wait.
    pub(crate) fn waiting(&self, now: u64) -> (usize, u64) {
        let since = match (self.due, self.delayed) {
            (Some(due), _) => due.saturating_sub(self.delay),
            (None, Some(until)) => until.saturating_sub(DELAY_MICROSECONDS),
            (None, None) => now,
        };
        (self.waiting, since)
    }

    /// What the peer knows that it may send: what is left of the window that the last frame
    /// announced.
    pub(crate) fn window_left(&self) -> usize {
        self.window.saturating_sub(self.waiting)
    }

    /// smoltcp has nothing to acknowledge.
    pub(crate) fn settle(&mut self) {
        if self.due.is_none() {
            self.waiting = 0;
        }
    }

    /// A frame was sent, which announced `window`; `with_data`: it contains data, or data is in
    /// flight.
    pub(crate) fn sent(&mut self, with_data: bool, window: usize, now: u64) {
        self.window = window;
        self.delayed = None;
        let in_vain = self.due.take().is_some_and(|due| due <= now);
        self.waiting = 0;
        if with_data {
            if let Some(received_at) = self.received_at.take() {
                let took = now.saturating_sub(received_at);
                self.answers = took < DELAY_MICROSECONDS_MAX;
                self.delay = (2 * took).clamp(DELAY_MICROSECONDS, DELAY_MICROSECONDS_MAX);
            }
        } else if in_vain {
            self.answers = false;
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

    #[test]
    fn it_waits_once_the_connection_answers_and_until_it_does_not() {
        let mut state = Acknowledgements::default();
        assert_eq!(state.received(100, true, 2048, 0), None, "the first request");
        state.sent(true, 4096, 50);
        assert_eq!(state.received(1448, true, 2048, 1_000), Some(11_000));
        assert_eq!(state.received(500, true, 2048, 1_100), Some(11_000), "the same request");
        state.sent(true, 4096, 2_000);
        assert!(!state.is_deferred());
        assert_eq!(state.received(1448, true, 2048, 3_000), Some(13_000));
        assert_eq!(state.received(1448, true, 2048, 3_100), None, "too much for the window");
        state.sent(false, 4096, 3_100);
        assert_eq!(state.received(1, false, 2048, 4_000), None, "not plain data");
        state.sent(false, 4096, 4_000);
        assert_eq!(state.received(1, true, 2048, 5_000), Some(15_000), "it still answers");
        state.sent(false, 4096, 15_000);
        assert_eq!(state.received(1, true, 2048, 16_000), None, "it waited in vain");
        state.sent(true, 4096, 120_000);
        assert_eq!(state.received(1, true, 2048, 121_000), None, "no answer, but a message");
        state.sent(true, 4096, 122_000);
        assert_eq!(state.received(1, true, 2048, 123_000), Some(133_000), "it answers again");
        state.sent(true, 3000, 124_000);
        assert_eq!(state.received(900, true, 2048, 125_000), Some(135_000), "the window is open");
        assert_eq!(state.received(100, true, 2048, 125_000), None, "the window is nearly used up");
    }

    #[test]
    fn it_waits_for_twice_the_time_of_the_last_answer() {
        let mut state = Acknowledgements::default();
        for (took, waits) in [
            (1_000, 10_000),
            (9_000, 18_000),
            (16_000, 32_000),
            (45_000, 90_000),
            (60_000, 100_000),
        ] {
            state.received(1, true, 0, 100_000);
            state.sent(true, 4096, 100_000 + took);
            assert_eq!(state.received(1, true, 0, 200_000), Some(200_000 + waits));
            state.sent(true, 4096, 200_000);
        }
        state.received(1, true, 0, 300_000);
        state.sent(true, 4096, 400_000);
        assert_eq!(state.received(1, true, 0, 500_000), None, "that was too long");
    }

    /// What must be left of the window, and a whole segment.
    const BYTES: (usize, usize) = (2048, 1460);

    #[test]
    fn on_the_fast_path_it_waits_for_the_answer_or_as_by_smoltcp() {
        let mut state = Acknowledgements::default();
        let arrived = |state: &mut Acknowledgements, length, now| {
            let waits = state.arrived(length, true, BYTES, now);
            assert_eq!(waits, state.is_deferred());
            (waits, state.due())
        };
        state.sent(false, 4096, 0);
        assert_eq!(arrived(&mut state, 1448, 50), (false, Some(10_050)), "the first segment");
        assert_eq!(arrived(&mut state, 12, 60), (false, Some(10_050)), "no more than a segment");
        assert_eq!(arrived(&mut state, 1, 70), (false, Some(70)), "more than a segment");
        state.sent(true, 4096, 1_000);
        assert_eq!(state.due(), None);
        assert_eq!(arrived(&mut state, 1000, 2_000), (true, Some(12_000)), "it answers");
        assert_eq!(arrived(&mut state, 1000, 2_100), (true, Some(12_000)));
        assert_eq!(arrived(&mut state, 100, 2_200), (false, Some(2_200)), "the window is used up");
        assert_eq!((state.waiting(2_200), state.window_left()), ((2100, 0), 1996));
        state.sent(true, 1000, 3_000);
        assert_eq!(arrived(&mut state, 700, 30_000), (false, Some(40_000)), "a small window");
        assert_eq!(state.waiting(30_000), (700, 30_000));
        state.sent(true, 4096, 50_000);
        assert!(!state.arrived(700, false, BYTES, 50_000), "data is in flight");
        assert_eq!((state.due(), state.is_deferred()), (Some(60_000), false));
        assert_eq!(state.received(50, false, 2048, 50_000), None);
        assert_eq!(state.due(), None, "smoltcp decides");
    }
}
