//! When it is announced that the peer may send more.
//!
//! Each announcement makes a peer that waits for it send what it allows. So a window that is
//! announced in small steps is filled with small segments, and each of them costs both ends a frame
//! with headers, and an acknowledgement: the silly window syndrome (RFC 9293, 3.8.6.2.2). A server
//! that reads the head of each message first announced a window of that size.
//!
//! So a window alone is announced only if it has grown by a *step*, and to twice what the peer
//! knows, which is the rule of Linux and smoltcp. The step is
//!
//! - a whole segment, or half of the buffer if that is less, as RFC 9293 has it;
//! - half of the buffer if the connection converses: the next answer announces the window anyway,
//!   and until then the program has half of a buffer to read. FreeBSD does that for all.
//!
//! A window that is smaller than the former step is kept to ourselves, also when something else is
//! sent: [`Room::announced`]. What was announced before stays, since TCP discourages to take it
//! back. A peer that asks gets the whole truth. So a window is never closed for ever, whatever
//! is lost, and whatever the program waits for.

/// The receive buffer of a connection, as far as its peer is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// The bytes that it has room for, and its size.
    pub(crate) free: usize,
    pub(crate) capacity: usize,
    /// The bytes of a whole segment.
    pub(crate) largest: usize,
}

impl Room {
    #[inline(always)]
    pub(crate) fn half(self) -> usize {
        self.capacity / 2
    }

    /// The smallest window that is worth a segment.
    #[inline(always)]
    pub(crate) fn step(self) -> usize {
        self.largest.min(self.half())
    }

    /// The window that a segment announces to a peer that knows that it may send `known` bytes.
    #[inline(always)]
    pub(crate) fn announced(self, known: usize) -> usize {
        if self.free < self.step() { known.min(self.free) } else { self.free }
    }

    /// Whether a peer that knows that it may send `known` bytes may send `step` more, and twice as
    /// many.
    #[inline(always)]
    pub(crate) fn has_grown(self, known: usize, step: usize) -> bool {
        self.free >= known + step && self.free / 2 >= known
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_steps_are_not_announced() {
        let room = |free| Room { free, capacity: 4096, largest: 1460 };
        let has_grown = |free, known| {
            [room(free).step(), room(free).half()].map(|step| room(free).has_grown(known, step))
        };
        assert_eq!([24, 1459].map(|free| has_grown(free, 0)), [[false, false]; 2]);
        assert_eq!([1460, 2047].map(|free| has_grown(free, 0)), [[true, false]; 2]);
        assert_eq!([2048, 4096].map(|free| has_grown(free, 0)), [[true, true]; 2]);
        assert_eq!([1559, 1560].map(|free| has_grown(free, 100)[0]), [false, true]);
        assert_eq!([2048, 2049].map(|known| has_grown(4096, known)), [[true; 2], [false; 2]]);
        // A step, but not twice what it knows.
        let wide = Room { free: 40_000, capacity: 65_536, largest: 1460 };
        assert_eq!([20_000, 20_001].map(|known| wide.has_grown(known, 1460)), [true, false]);
        let announced = [(1459, 7), (1459, 1459), (1460, 7), (5, 7)];
        let announced = announced.map(|(free, known)| room(free).announced(known));
        assert_eq!(announced, [7, 1459, 1460, 5]);
    }

    proptest! {
        #[test]
        fn no_window_is_taken_back_or_kept_although_it_is_worth_a_segment(
            capacity in 2..70_000usize,
            free in 0..70_000usize,
            known in 0..70_000usize,
            largest in 1..10_000usize,
        ) {
            let free = free.min(capacity);
            let known = known.min(free);
            let room = Room { free, capacity, largest };
            let announced = room.announced(known);
            prop_assert!((known..=free).contains(&announced));
            prop_assert!(announced == free || free < room.step());
            for step in [room.step(), room.half()] {
                if room.has_grown(known, step) {
                    prop_assert_eq!(announced, free);
                }
                // A program that has read everything leaves the peer a window of a step.
                prop_assert!(free < capacity || known >= room.step() || room.has_grown(known, step));
            }
        }
    }
}
