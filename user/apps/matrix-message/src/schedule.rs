//! For clients: when the requests of an open loop are due.
//!
//! The period has a slot for each connection, in the order of the connections. Without a seed each
//! request is due at the beginning of its slot. So connections that follow each other send at a
//! fixed distance, and whatever one meets of the next one's request, it meets each time: a period
//! that is a few microseconds longer gives other latencies. With a seed each request is due at a
//! pseudo-random time within its slot. So one run contains every distance between neighbours up to
//! two slots, and repeats with the same seed.
//!
//! In both cases each connection has one request in each period, and the order of all requests is
//! that of the slots. With times drawn from the whole period, requests of one class would queue
//! behind each other, and the latency of the class would be that of its own load.

use crate::workload::mix;

/// The times of an open loop, in nanoseconds since it began.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    period_ns: u64,
    connections: u32,
    seed: Option<u64>,
}

impl Schedule {
    /// One request of each of the `connections`, at least one, in each period.
    #[must_use]
    pub const fn new(period_ns: u64, connections: u32, seed: Option<u64>) -> Self {
        Self { period_ns, connections, seed }
    }

    /// When request `number` of `connection` is due. Saturates.
    #[must_use]
    pub fn due_ns(&self, connection: u32, number: u64) -> u64 {
        let slots = u128::from(self.connections.max(1));
        let slot = u128::from(number) * slots + u128::from(connection);
        // In parts of a slot of which it has 2³².
        let part = self.seed.map_or(0, |seed| {
            u128::from(mix(seed ^ u64::from(connection).rotate_left(32), number) >> 32)
        });
        // A request number of 2⁶³ at a period of 2⁶⁴ nanoseconds does not fit.
        let due = ((slot << 32) | part).checked_mul(u128::from(self.period_ns));
        due.map_or(u64::MAX, |due| u64::try_from((due / slots) >> 32).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const PERIOD_NS: u64 = 64_000;
    const CONNECTIONS: u32 = 64;
    const SLOT_NS: u64 = PERIOD_NS / CONNECTIONS as u64;

    /// How far into its slot each of some requests is due, in order.
    fn offsets(seed: Option<u64>) -> Vec<u64> {
        let schedule = Schedule::new(PERIOD_NS, CONNECTIONS, seed);
        let slots = (0..100).flat_map(|number| (0..CONNECTIONS).map(move |at| (number, at)));
        let offset = |(number, connection): (u64, u32)| {
            let slot_ns = number * PERIOD_NS + u64::from(connection) * SLOT_NS;
            let due_ns = schedule.due_ns(connection, number);
            assert!((slot_ns..slot_ns + SLOT_NS).contains(&due_ns), "{connection} {number}");
            due_ns - slot_ns
        };
        slots.map(offset).collect()
    }

    #[test]
    fn without_a_seed_requests_are_spread_evenly() {
        assert!(offsets(None).iter().all(|&offset| offset == 0));
        let uneven = Schedule::new(10, 4, None);
        let due: Vec<u64> = (0..4).map(|connection| uneven.due_ns(connection, 1)).collect();
        assert_eq!(due, [10, 12, 15, 17]);
    }

    #[test]
    fn with_a_seed_requests_are_anywhere_in_their_slots() {
        let offsets = offsets(Some(1));
        let mut tenths = [0; 10];
        for offset in &offsets {
            tenths[(offset * 10 / SLOT_NS) as usize] += 1;
        }
        // 640 each, with a standard deviation of 24.
        assert!(tenths.iter().all(|count| (540..740).contains(count)), "{tenths:?}");
    }

    #[test]
    fn a_seed_repeats_and_another_one_differs() {
        assert_eq!(offsets(Some(1)), offsets(Some(1)));
        let (one, other) = (offsets(Some(1)), offsets(Some(2)));
        let equal = one.iter().zip(&other).filter(|(one, other)| one == other).count();
        assert!(equal < one.len() / 100, "{equal}");
        // Neither a connection nor a period repeats another one's offsets.
        let connections = CONNECTIONS as usize;
        assert_ne!(one[..connections], one[connections..2 * connections]);
        assert!((1..connections).any(|at| one[at] != one[0]));
    }

    #[test]
    fn times_that_do_not_fit_saturate() {
        for seed in [None, Some(1)] {
            let schedule = Schedule::new(u64::MAX, 1, seed);
            assert_eq!(schedule.due_ns(0, u64::MAX), u64::MAX);
            assert_eq!(Schedule::new(1000, 0, None).due_ns(0, 2), 2000, "not a division by 0");
        }
    }
}
