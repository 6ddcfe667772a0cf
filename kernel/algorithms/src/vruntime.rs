//! Virtual runtimes: what a process has been charged, which decides the order among processes of
//! the same level.
//!
//! This is fair queueing by virtual time, as in stride scheduling (C. Waldspurger and W. Weihl,
//! "Stride scheduling", 1995) and in Linux's CFS. The *vruntime* of a process is the time that it
//! ran, multiplied by its divisor ([`shares`](crate::shares)). The process with the smallest
//! vruntime runs next. So processes that are always ready get time in proportion to their shares:
//! their vruntimes differ by one slice at most.
//!
//! For each level, [`MinVruntimes`] has the vruntime of the process that was chosen last. It never
//! decreases. A process that begins to wait at a level is placed relative to it. So a process that
//! was absent cannot claim the time of its absence, and debts remain, also across levels.

use core::sync::atomic::{AtomicI64, Ordering::Relaxed};

use cops_abi::Priority;

use crate::levels::LEVELS;
use crate::priority::AtomicPriority;
use crate::slice::Slice;

/// The vruntime of a process, in ticks times its divisor.
///
/// Work of the kernel for the process is added at any time and by any hart; all other changes are
/// made under the run queue's lock.
#[derive(Debug)]
pub struct Vruntime {
    total: AtomicI64,
    /// The part of it for slices that are not over.
    advance: AtomicI64,
    /// The level of the processes that it is comparable with.
    priority: AtomicPriority,
}

impl Vruntime {
    /// That of a process with the debts of the parent and `debit` more, so that a process cannot
    /// get more time by starting others.
    #[must_use]
    pub fn of_child(parent: Option<&Self>, debit: i64) -> Self {
        let (inherited, priority) = parent.map_or((0, Priority::MOST_URGENT), |parent| {
            (parent.without_open_slices(), parent.priority())
        });
        Self {
            total: AtomicI64::new(inherited.saturating_add(debit)),
            advance: AtomicI64::new(0),
            priority: AtomicPriority::new(priority),
        }
    }

    /// The vruntime now. A slice is charged when it begins.
    pub fn now(&self) -> i64 {
        self.total.load(Relaxed)
    }

    /// The vruntime without the slices that are not over.
    pub fn without_open_slices(&self) -> i64 {
        self.now() - self.open_slices()
    }

    /// The part of it for slices that are not over.
    pub fn open_slices(&self) -> i64 {
        self.advance.load(Relaxed)
    }

    /// The level of the processes that it is comparable with.
    pub fn priority(&self) -> Priority {
        self.priority.load()
    }

    /// Charges something other than a slice.
    pub fn add(&self, charge: i64) {
        self.total.fetch_add(charge, Relaxed);
    }

    /// Charges a slice that begins.
    pub fn begin(&self, slice: &Slice) {
        self.add(slice.whole_vruntime());
        self.advance.fetch_add(slice.whole_vruntime(), Relaxed);
    }

    /// Refunds the rest of a slice, which is paused and ends.
    pub fn end(&self, slice: &Slice) {
        self.add(-slice.remaining_vruntime());
        self.advance.fetch_sub(slice.whole_vruntime(), Relaxed);
    }
}

/// For each level, the vruntime of the process that was chosen last.
#[derive(Debug)]
pub struct MinVruntimes([i64; LEVELS]);

impl Default for MinVruntimes {
    fn default() -> Self {
        Self::new()
    }
}

impl MinVruntimes {
    /// Before the first choice.
    #[must_use]
    pub const fn new() -> Self {
        Self([0; LEVELS])
    }

    /// A process begins to wait at `priority`: moves its vruntime to that level, with at most
    /// `credit` less than the minimum there. Returns it, without open slices.
    pub fn admit(&self, vruntime: &Vruntime, priority: Priority, credit: i64) -> i64 {
        let (old, new) = (self.0[index(vruntime.priority())], self.0[index(priority)]);
        let before = vruntime.without_open_slices();
        let moved = new.saturating_add(before.saturating_sub(old).max(-credit));
        // Not stored, because another hart may add to it at the same time.
        vruntime.add(moved.saturating_sub(before));
        vruntime.priority.store(priority);
        moved
    }

    /// A process with this vruntime was chosen at `priority`.
    pub fn choose(&mut self, priority: Priority, vruntime: i64) {
        let minimum = &mut self.0[index(priority)];
        *minimum = vruntime.max(*minimum);
    }
}

const fn index(priority: Priority) -> usize {
    priority.level() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const SLICE: u64 = 100;
    const LEVEL: Priority = Priority::DEFAULT;

    /// Processes of one level on one hart.
    struct Hart {
        processes: Vec<(Vruntime, u32)>,
        /// Ticks that each has had.
        ran: Vec<u64>,
        minimum: MinVruntimes,
    }

    impl Hart {
        fn new(divisors: &[u32]) -> Self {
            let minimum = MinVruntimes::new();
            let process = |&divisor| {
                let vruntime = Vruntime::of_child(None, 0);
                minimum.admit(&vruntime, LEVEL, 0);
                (vruntime, divisor)
            };
            let processes = divisors.iter().map(process).collect();
            Self { processes, ran: alloc::vec![0; divisors.len()], minimum }
        }

        /// Runs the next of `ready` for `ticks`, at most a slice. Returns it.
        fn run_next(&mut self, ready: impl Iterator<Item = usize>, ticks: u64) -> usize {
            let next =
                ready.min_by_key(|&number| (self.processes[number].0.now(), number)).unwrap();
            let (vruntime, divisor) = &self.processes[next];
            self.minimum.choose(LEVEL, vruntime.now());
            let mut slice = Slice::new(SLICE, *divisor, false);
            vruntime.begin(&slice);
            slice.begin(0);
            slice.pause(ticks.min(SLICE));
            vruntime.end(&slice);
            assert_eq!(vruntime.now(), vruntime.without_open_slices());
            self.ran[next] += ticks.min(SLICE);
            self.enter(next);
            next
        }

        fn enter(&mut self, number: usize) {
            self.minimum.admit(&self.processes[number].0, LEVEL, SLICE as i64);
        }
    }

    proptest! {
        /// Processes that are always ready get time by their shares, however they use their slices.
        #[test]
        fn time_is_in_proportion_to_shares(
            divisors in prop::collection::vec(1..40u32, 1..8),
            stays in prop::collection::vec(1..150u64, 1..300),
        ) {
            let mut hart = Hart::new(&divisors);
            let most = SLICE * u64::from(*divisors.iter().max().unwrap());
            for stay in stays {
                hart.run_next(0..divisors.len(), stay);
                let virtual_times = || hart.ran.iter().zip(&divisors).map(|(&ran, &divisor)| ran * u64::from(divisor));
                let (least, greatest) = (virtual_times().min().unwrap(), virtual_times().max().unwrap());
                prop_assert!(greatest - least <= most, "{} to {}, more than {}", least, greatest, most);
            }
        }

        /// A process that comes back after a long time runs for its credit and a slice before the
        /// other does, but not for the time of its absence. A debt remains.
        #[test]
        fn absence_is_worth_one_slice(rounds in 0..200u64, debt in 0..20u64, divisor in 1..10u32) {
            let mut hart = Hart::new(&[divisor, divisor]);
            (0..rounds).for_each(|_| assert_eq!(hart.run_next(1..2, SLICE), 1));
            hart.processes[0].0.add((debt * SLICE) as i64);
            let behind = hart.minimum.0[index(LEVEL)] - hart.processes[0].0.now();
            hart.enter(0);
            let after = hart.minimum.0[index(LEVEL)] - hart.processes[0].0.now();
            prop_assert_eq!(after, behind.min(SLICE as i64), "a credit of one slice");
            let first = hart.ran[0];
            while hart.run_next(0..2, SLICE) == 0 {}
            prop_assert!(hart.ran[0] - first <= 3 * SLICE, "{} ticks", hart.ran[0] - first);
        }

        /// A change of the level keeps what a process is ahead or behind.
        #[test]
        fn debts_move_between_levels(minimum in 0..1_000_000i64, ahead in -5000..5000i64, other in 0..1_000_000i64) {
            let mut minimums = MinVruntimes::new();
            minimums.choose(Priority::MOST_URGENT, minimum);
            minimums.choose(LEVEL, other);
            minimums.choose(LEVEL, other - 1);
            let vruntime = Vruntime::of_child(None, minimum + ahead);
            let moved = minimums.admit(&vruntime, LEVEL, 700);
            prop_assert_eq!((moved, vruntime.now(), vruntime.priority()), (other + ahead.max(-700), moved, LEVEL));
        }

        /// Nothing overflows, whatever was charged.
        #[test]
        fn sums_saturate(vruntime: i64, minimum in 0..i64::MAX, debit: i64) {
            let mut minimums = MinVruntimes::new();
            minimums.choose(LEVEL, minimum);
            let parent = Vruntime::of_child(None, vruntime.max(-1));
            minimums.admit(&Vruntime::of_child(Some(&parent), debit.max(0)), LEVEL, 1000);
        }
    }
}
