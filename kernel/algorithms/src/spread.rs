//! When work that waits behind other work is spread to a sleeping hart (decision 66).
//!
//! What waits for a hart that is awake could begin sooner on one that sleeps. To wake that costs
//! some microseconds where each hart has a processor of its own, and much more where it has not: an
//! emulator or a hypervisor then takes the processor from something else, often from what this
//! machine works for. A machine cannot see which of the two is the case. So a wake is *owed* for a
//! while ([`Owed`]), in which the hart that is awake mostly does the work itself, and the while
//! becomes longer each time that a wake has not made the machine faster ([`Patience`]). How harts
//! are sent to sleep again that make nothing faster: [`gathering`](crate::gathering).

use crate::count::Count;

/// What waits while a hart runs something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Nothing.
    Nothing,
    /// Something, which has its turn if what runs is not long.
    Peers,
    /// Also something less urgent than what runs: it has no turn as long as there are peers.
    LessUrgent,
}

/// For how long a hart leaves work to itself, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// What has its turn: see [`Patience`].
    pub patience_ticks: u64,
    /// Within one stay in user mode.
    pub stay_ticks: u64,
    /// What is less urgent than the work of the harts that are awake.
    pub less_urgent_ticks: u64,
}

/// What a hart does about a sleeping one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decision {
    /// It lets it sleep.
    Nothing,
    /// It wakes it.
    Wake,
    /// It wakes it because work that has its turn has waited since this moment. The machine had
    /// completed so many calls by then.
    WakeForPeers {
        /// In ticks.
        since_ticks: u64,
        /// See [`Owed::look`].
        since_calls: u64,
    },
}

/// The wake that a hart owes. Only that hart uses it, and not in interrupt handlers.
#[derive(Debug, Default)]
pub struct Owed {
    /// Since when something waits at each look, and something less urgent; 0 if it does not.
    since_ticks: u64,
    less_urgent_since_ticks: u64,
    since_calls: u64,
    /// The last look.
    looked_ticks: u64,
    /// How many interrupts, one after the other, have ended a long stay.
    long_stays: u32,
    /// User mode was interrupted since the last look.
    was_interrupted: bool,
}

/// So many long stays of user mode, with nothing but an interrupt in between, are long work. One
/// may be the emulator's: it takes the processor from a hart for milliseconds at any moment.
const LONG_STAYS: u32 = 2;

impl Owed {
    /// Nothing is owed.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            since_ticks: 0,
            less_urgent_since_ticks: 0,
            since_calls: 0,
            looked_ticks: 0,
            long_stays: 0,
            was_interrupted: false,
        }
    }

    /// The hart looks before it enters user mode, at `now_ticks`, which is not 0; the machine has
    /// completed so many `calls`. If it wakes a hart, nothing is owed any more.
    pub fn look(
        &mut self,
        now_ticks: u64,
        calls: u64,
        waiting: Waiting,
        bounds: Bounds,
    ) -> Decision {
        self.looked_ticks = now_ticks;
        if !core::mem::take(&mut self.was_interrupted) {
            self.long_stays = 0;
        }
        if waiting == Waiting::Nothing {
            self.since_ticks = 0;
        } else if self.since_ticks == 0 {
            (self.since_ticks, self.since_calls) = (now_ticks, calls);
        }
        if waiting != Waiting::LessUrgent {
            self.less_urgent_since_ticks = 0;
        } else if self.less_urgent_since_ticks == 0 {
            self.less_urgent_since_ticks = now_ticks;
        }
        let has_waited =
            |since: u64, ticks: u64| since != 0 && now_ticks.saturating_sub(since) >= ticks;
        let decision = if self.long_stays >= LONG_STAYS && waiting != Waiting::Nothing
            || has_waited(self.less_urgent_since_ticks, bounds.less_urgent_ticks)
        {
            Decision::Wake
        } else if has_waited(self.since_ticks, bounds.patience_ticks) {
            let (since_ticks, since_calls) = (self.since_ticks, self.since_calls);
            Decision::WakeForPeers { since_ticks, since_calls }
        } else {
            Decision::Nothing
        };
        if decision != Decision::Nothing {
            self.long_stays = 0;
            (self.since_ticks, self.less_urgent_since_ticks) = (0, 0);
        }
        decision
    }

    /// User mode was interrupted, at `now_ticks`: what waits does not have its turn soon if the
    /// stay there is a long one, and so was the one before.
    pub fn interrupt(&mut self, now_ticks: u64, bounds: Bounds) {
        self.was_interrupted = true;
        if now_ticks.saturating_sub(self.looked_ticks) >= bounds.stay_ticks {
            self.long_stays = self.long_stays.saturating_add(1);
        }
    }

    /// The hart goes to sleep: it has found nothing, and owes nothing.
    pub fn forget(&mut self) {
        *self = Self::new();
    }
}

/// For how long work that has its turn waits before a hart is woken for it.
///
/// Whether that was worth it shows in the number of system calls that the machine completes in a
/// tick, before the wake and after it. If a second hart has a processor of its own, and enough to
/// do, there are more. If the two share one, or wait for each other, there are fewer. The next wake
/// then is owed for twice as long, otherwise for half as long.
#[derive(Debug)]
pub struct Patience {
    ticks: u64,
    first_ticks: u64,
    /// The wake that is not judged yet.
    wake: Option<Wake>,
}

/// A wake, and what the machine has done before it.
#[derive(Clone, Copy, Debug)]
struct Wake {
    at: Count,
    before: Count,
}

impl Patience {
    /// After so many doublings the patience grows no further.
    pub const DOUBLINGS: u32 = 7;
    /// The patience is `first_ticks`, above 0, and never less.
    #[must_use]
    pub const fn new(first_ticks: u64) -> Self {
        Self { ticks: first_ticks, first_ticks, wake: None }
    }

    /// How long it is.
    #[must_use]
    pub const fn ticks(&self) -> u64 {
        self.ticks
    }

    /// A hart is woken at `now_ticks` because work has waited since `since_ticks`. The machine has
    /// completed `calls` by now, and `since_calls` by then.
    pub fn wake(&mut self, now_ticks: u64, calls: u64, since_ticks: u64, since_calls: u64) {
        let at = Count { ticks: now_ticks, calls };
        let before = at.since(Count { ticks: since_ticks, calls: since_calls });
        self.wake = Some(Wake { at, before });
    }

    /// When the last wake is to be judged; `u64::MAX` if it was.
    #[must_use]
    pub fn judge_at_ticks(&self) -> u64 {
        self.wake.map_or(u64::MAX, |wake| wake.at.ticks.saturating_add(self.first_ticks))
    }

    /// Judges the last wake. The machine has completed `calls` by `now_ticks`.
    pub fn judge(&mut self, now_ticks: u64, calls: u64) {
        let Some(wake) = self.wake.take() else { return };
        let after = Count { ticks: now_ticks, calls }.since(wake.at);
        // A fifth more in the same time. Too few calls before the wake count as worth it.
        let is_faster = after.reaches(wake.before, 6, 5);
        self.ticks = if is_faster || wake.before.calls < Count::CALLS_MIN {
            (self.ticks / 2).max(self.first_ticks)
        } else {
            (2 * self.ticks).min(self.first_ticks << Self::DOUBLINGS)
        };
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const BOUNDS: Bounds = Bounds { patience_ticks: 500, stay_ticks: 100, less_urgent_ticks: 1000 };
    use Decision::{Wake, WakeForPeers};
    use Waiting::{LessUrgent, Nothing, Peers};

    fn look(owed: &mut Owed, now_ticks: u64, waiting: Waiting) -> Decision {
        owed.look(now_ticks, now_ticks / 10, waiting, BOUNDS)
    }

    #[test]
    fn work_that_has_its_turn_waits_for_a_while() {
        let mut owed = Owed::new();
        for now in [1000, 1200, 1499] {
            assert_eq!(look(&mut owed, now, Peers), Decision::Nothing);
        }
        let due = WakeForPeers { since_ticks: 1000, since_calls: 100 };
        assert_eq!(look(&mut owed, 1500, Peers), due);
        assert_eq!(look(&mut owed, 1501, Peers), Decision::Nothing, "the next one is owed anew");
        let due = WakeForPeers { since_ticks: 1501, since_calls: 150 };
        assert_eq!(look(&mut owed, 2001, LessUrgent), due);
    }

    #[test]
    fn work_that_was_done_meanwhile_is_not_owed() {
        let mut owed = Owed::new();
        for now in (1000..9000).step_by(490) {
            assert_eq!(look(&mut owed, now, LessUrgent), Decision::Nothing);
            assert_eq!(look(&mut owed, now + 480, Nothing), Decision::Nothing);
        }
        assert_eq!(look(&mut owed, 9000, Peers), Decision::Nothing);
        owed.forget();
        assert_eq!(look(&mut owed, 9900, Peers), Decision::Nothing);
    }

    #[test]
    fn a_long_stay_in_user_mode_ends_the_patience() {
        let mut owed = Owed::new();
        assert_eq!(look(&mut owed, 1000, Nothing), Decision::Nothing);
        owed.interrupt(1099, BOUNDS);
        assert_eq!(look(&mut owed, 1100, Peers), Decision::Nothing, "it was a short stay");
        owed.interrupt(1200, BOUNDS);
        assert_eq!(look(&mut owed, 1201, Peers), Decision::Nothing, "the emulator's, perhaps");
        owed.interrupt(1301, BOUNDS);
        assert_eq!(look(&mut owed, 1302, Peers), Wake);
        assert_eq!(look(&mut owed, 1303, Peers), Decision::Nothing, "that was for those stays");
        for from in [1304, 1505] {
            owed.interrupt(from + 100, BOUNDS);
            assert_eq!(look(&mut owed, from + 101, Nothing), Decision::Nothing, "nothing waits");
        }
    }

    #[test]
    fn a_call_between_two_long_stays_ends_the_first() {
        let mut owed = Owed::new();
        for from in (1000..1400).step_by(200) {
            assert_eq!(look(&mut owed, from, Peers), Decision::Nothing);
            owed.interrupt(from + 100, BOUNDS);
            assert_eq!(look(&mut owed, from + 101, Peers), Decision::Nothing);
        }
    }

    #[test]
    fn work_that_has_no_turn_is_spread_however_long_the_patience_is() {
        let mut owed = Owed::new();
        let bounds = Bounds { patience_ticks: u64::MAX, ..BOUNDS };
        let mut look = |now, waiting| owed.look(now, 0, waiting, bounds);
        let dues = (1000..6000).step_by(10).filter(|&now| look(now, LessUrgent) == Wake);
        assert_eq!(dues.collect::<Vec<_>>(), [2000, 3010, 4020, 5030]);
        // It has had its turn.
        assert_eq!(look(6000, Peers), Decision::Nothing);
        assert_eq!(look(6100, LessUrgent), Decision::Nothing);
    }

    /// The patience after `wakes` of a machine that completes so many calls in 1,000 ticks, alone
    /// and with a second hart.
    fn patience_after(wakes: u32, alone: u64, with_second: u64) -> u64 {
        let mut patience = Patience::new(1000);
        let (mut now, mut calls) = (1, 0);
        for _ in 0..wakes {
            let (since, since_calls) = (now, calls);
            now += patience.ticks();
            calls += alone * patience.ticks() / 1000;
            patience.wake(now, calls, since, since_calls);
            assert_eq!(patience.judge_at_ticks(), now + 1000);
            now += 1000;
            calls += with_second;
            patience.judge(now, calls);
            assert_eq!(patience.judge_at_ticks(), u64::MAX);
        }
        patience.ticks()
    }

    #[test]
    fn patience_grows_while_wakes_make_nothing_faster() {
        assert_eq!(patience_after(0, 400, 350), 1000);
        assert_eq!(patience_after(1, 400, 350), 2000);
        assert_eq!(patience_after(3, 400, 479), 8000);
        assert_eq!(patience_after(100, 400, 200), 128_000);
    }

    #[test]
    fn patience_stays_short_while_wakes_make_it_faster_and_for_long_work() {
        assert_eq!(patience_after(100, 400, 481), 1000);
        assert_eq!(patience_after(100, 31, 0), 1000);
    }

    #[test]
    fn patience_becomes_shorter_again() {
        let mut patience = Patience::new(1000);
        let mut expected = 1000;
        for faster in [false, false, false, true, true, true, true] {
            patience.wake(10_000, 500, 9000, 100);
            patience.judge(11_000, 500 + if faster { 500 } else { 300 });
            expected = if faster { (expected / 2).max(1000) } else { expected * 2 };
            assert_eq!(patience.ticks(), expected);
        }
        // Judged once.
        patience.judge(20_000, 500);
        assert_eq!(patience.ticks(), expected);
    }

    #[test]
    fn no_count_is_too_large() {
        let mut patience = Patience::new(u64::MAX >> Patience::DOUBLINGS);
        for (calls, ticks) in [(u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (0, 0)] {
            patience.wake(ticks, calls, 0, 0);
            patience.judge(u64::MAX, u64::MAX);
            patience.wake(u64::MAX, u64::MAX, ticks, calls);
            patience.judge(0, 0);
        }
    }
}
