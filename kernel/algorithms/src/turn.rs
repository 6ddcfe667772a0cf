//! The alternation between virtual CPUs and equally urgent coroutines of the kernel on one hart.
//!
//! A program that never enters the kernel has the hart for a whole slice. One poll of each kernel
//! coroutine per slice would be no fair share for the process that these coroutines work for. So,
//! after a virtual CPU has been in user mode for a time, the kernel's coroutines of its level run
//! first for as long, while they work for a process that has been charged less.
//!
//! Without that condition a server alone on its level would be delayed by its own calls: they would
//! all be done before its next coroutine runs, and answers would come in bursts. The end of a child
//! is different: a thread waits for that, and another one of the same process runs meanwhile.
//!
//! Several virtual CPUs may have come together on one hart: the coroutine that switches to each of
//! them is one of these peers. If they took turns at each system call, every request would pay for
//! two switches. So while they alternate, a turn has a minimum.

use cops_abi::Priority;

/// While virtual CPUs alternate on a hart, a turn is at least a slice divided by this.
const ALTERNATING_PART: u64 = 20;

/// The turns on one hart. The record outlives slices: when a virtual CPU has used all of its slice,
/// the virtual CPUs have had their turn, whichever of them is next.
#[derive(Clone, Debug)]
pub struct Turn {
    /// A virtual CPU has been in user mode since the last yield to equally urgent coroutines of the
    /// kernel.
    had_turn: bool,
    /// Since when, if so.
    began_ticks: u64,
    /// The end of the period in which these coroutines may run first.
    peers_until_ticks: u64,
    /// Another virtual CPU has run on the hart since this one was paused.
    alternates: bool,
}

impl Turn {
    /// Before the first turn.
    pub const fn new() -> Self {
        Self { had_turn: true, began_ticks: 0, peers_until_ticks: 0, alternates: false }
    }

    /// A virtual CPU is about to run on a hart, for the first time or after a pause. `alternates`:
    /// another one has run there since it last did.
    pub fn begin(&mut self, alternates: bool) {
        self.alternates = alternates;
    }

    /// A virtual CPU enters user mode. The clock is read if it begins its turn with that.
    pub fn take(&mut self, now_ticks: impl FnOnce() -> u64) {
        if !core::mem::replace(&mut self.had_turn, true) {
            self.began_ticks = now_ticks();
        }
    }

    /// A virtual CPU is about to enter user mode, and equally urgent coroutines of the kernel are
    /// ready. Returns whether these run first.
    ///
    /// They do so once after each turn of a virtual CPU. They do so again while `for_others`: what
    /// ran since they were last let through was for a process with a smaller vruntime. All of that
    /// together takes no longer than the turn did, and at most `slice_ticks`.
    ///
    /// While virtual CPUs alternate, a turn that is too short goes on.
    pub fn give(&mut self, now_ticks: u64, slice_ticks: u64, for_others: bool) -> bool {
        let had_ticks = now_ticks.saturating_sub(self.began_ticks);
        if self.alternates && self.had_turn && had_ticks < slice_ticks / ALTERNATING_PART {
            return false;
        }
        if core::mem::take(&mut self.had_turn) {
            self.peers_until_ticks = now_ticks.saturating_add(had_ticks.min(slice_ticks));
            return true;
        }
        for_others && now_ticks < self.peers_until_ticks
    }
}

impl Default for Turn {
    fn default() -> Self {
        Self::new()
    }
}

/// A virtual CPU that let equally urgent coroutines of the kernel run first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetThrough {
    /// Its process.
    pub process: u32,
    /// Its level.
    pub priority: Priority,
    /// The vruntime of its process, compared with others of the level.
    pub vruntime: i64,
}

impl LetThrough {
    /// Whether work for `process`, which has this `vruntime` compared with others of `priority`, is
    /// a reason to let more of it through.
    ///
    /// Work of a process for itself is none. Work for a process of another level is one, because
    /// their vruntimes cannot be compared.
    pub fn is_behind(self, process: u32, priority: Priority, vruntime: i64) -> bool {
        process != self.process && (priority != self.priority || vruntime < self.vruntime)
    }

    /// The same for work that threads of `process` wait for: none of them was let through.
    pub fn is_awaited(self, process: u32, priority: Priority, vruntime: i64) -> bool {
        process == self.process || self.is_behind(process, priority, vruntime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: u64 = 1000;

    /// A virtual CPU that has run from `from` to `to`.
    fn after_a_turn(from: u64, to: u64) -> Turn {
        let mut turn = Turn::new();
        assert!(turn.give(from, SLICE, false));
        turn.take(|| from);
        assert!(turn.give(to, SLICE, false), "peers run once after each turn");
        turn
    }

    #[test]
    fn peers_run_once_after_a_turn() {
        let mut turn = after_a_turn(100, 150);
        for now in [150, 160, 199, 200, 5000] {
            assert!(!turn.give(now, SLICE, false), "again at {now}, for the process itself");
        }
        turn.take(|| 5000);
        assert!(turn.give(5001, SLICE, false), "after the next turn");
    }

    #[test]
    fn peers_that_work_for_others_have_as_much_time_as_the_turn() {
        let mut turn = after_a_turn(100, 150);
        assert!(turn.give(151, SLICE, true));
        assert!(turn.give(199, SLICE, true));
        assert!(!turn.give(200, SLICE, true));
    }

    #[test]
    fn a_turn_counts_as_a_slice_at_most() {
        let mut turn = after_a_turn(0, 10 * SLICE);
        assert!(turn.give(11 * SLICE - 1, SLICE, true));
        assert!(!turn.give(11 * SLICE, SLICE, true));
    }

    #[test]
    fn a_turn_has_a_minimum_while_virtual_cpus_alternate() {
        let mut turn = Turn::new();
        turn.give(0, SLICE, false);
        turn.begin(true);
        turn.take(|| 100);
        assert!(!turn.give(100, SLICE, false));
        turn.take(|| panic!("the same turn goes on"));
        assert!(!turn.give(149, SLICE, true), "also for others");
        assert!(turn.give(150, SLICE, false));
        assert!(!turn.give(151, SLICE, false), "once after each turn");
        turn.begin(false);
        turn.take(|| 200);
        assert!(turn.give(201, SLICE, false), "it is alone again");
    }

    /// Two virtual CPUs that make a system call every few ticks, and are all that the kernel has to
    /// run at their level.
    #[test]
    fn two_that_alternate_have_half_of_the_time_each_in_few_turns() {
        const CALL: u64 = 7;
        let mut turns = [Turn::new(), Turn::new()];
        let (mut now, mut switches, mut used) = (0, 0, [0, 0]);
        while now < 100 * SLICE {
            let this = switches % 2;
            turns[this].begin(true);
            loop {
                turns[this].take(|| now);
                now += CALL;
                used[this] += CALL;
                if turns[this].give(now, SLICE, false) {
                    break;
                }
            }
            switches += 1;
        }
        assert!((1700..=2000).contains(&switches), "{switches}");
        assert!(used[0].abs_diff(used[1]) <= SLICE / 4, "{used:?}");
    }

    #[test]
    fn entering_again_does_not_begin_another_turn() {
        let mut turn = Turn::new();
        turn.give(0, SLICE, false);
        turn.take(|| 100);
        turn.take(|| panic!("the turn has begun"));
        assert!(turn.give(150, SLICE, false));
        assert!(turn.give(199, SLICE, true));
        assert!(!turn.give(200, SLICE, true));
    }

    #[test]
    fn only_others_with_a_smaller_vruntime_are_behind() {
        let priority = Priority::DEFAULT;
        let through = LetThrough { process: 7, priority, vruntime: 50 };
        assert!(through.is_behind(8, priority, 49));
        assert!(!through.is_behind(8, priority, 50), "as much is not behind");
        assert!(through.is_behind(8, Priority::MOST_URGENT, 1000), "vruntimes of another level");
        assert!(!through.is_behind(7, Priority::MOST_URGENT, 0), "its own work");
        assert!(through.is_awaited(7, priority, 1000), "its own work, for another thread");
        assert!(through.is_awaited(8, priority, 49) && !through.is_awaited(8, priority, 50));
    }

    /// A program that computes for whole slices beside work of many polls for another process: each
    /// gets about half of the time.
    #[test]
    fn work_of_many_polls_has_half_of_the_time() {
        const POLL: u64 = 30;
        let mut turn = Turn::new();
        let (mut now, mut computed, mut polled) = (0, 0, 0);
        while now < 100 * SLICE {
            let for_others = computed > polled;
            if turn.give(now, SLICE, for_others) {
                now += POLL;
                polled += POLL;
            } else {
                turn.take(|| now);
                now += SLICE;
                computed += SLICE;
            }
        }
        let difference = computed.abs_diff(polled);
        assert!(difference <= SLICE, "computed for {computed}, polled for {polled}");
    }
}
