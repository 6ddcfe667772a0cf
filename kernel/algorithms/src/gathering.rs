//! Whether fewer harts would do as much (decision 70).
//!
//! A hart that was woken for work stays awake while it finds some, and in a server that is busy it
//! always does. Whether the machine is faster for it is found out by a *trial*: for a while the
//! system calls are counted that the machine completes, then one virtual CPU leaves its work to
//! another one, and they are counted again. If they have become much fewer, it comes back, and the
//! next trial follows later than this one did.

use crate::count::Count;

/// What the virtual CPU that looks does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Trial {
    /// It goes on.
    Nothing,
    /// It leaves its work to another one of its process.
    Leave,
    /// One of its process that has left was needed: it comes back.
    Return,
}

/// What a virtual CPU shows when it looks, which it does when its slice has ended.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Now, and the system calls that the machine has completed by now.
    pub now: Count,
    /// Its process.
    pub process: u32,
    /// The virtual CPUs of its process that have a hart to themselves, itself among them.
    pub spread_over: u32,
}

/// The trials of a machine, one at a time, each with one process.
#[derive(Debug)]
pub struct Gathering {
    window_ticks: u64,
    /// The time from a trial to the next one.
    pause_ticks: u64,
    step: Step,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// No trial before this moment.
    Pause { until_ticks: u64 },
    /// Counts before one leaves.
    Before { process: u32, start: Count },
    /// It has been asked to leave, and has some time for it.
    Leaving { process: u32, spread_over: u32, before: Count, until_ticks: u64 },
    /// Counts without it.
    After { process: u32, spread_over: u32, before: Count, start: Count },
}

impl Gathering {
    /// After so many doublings the pause grows no further.
    pub const DOUBLINGS: u32 = 6;
    /// If its process does not look any more, a trial is given up after so many windows.
    const WINDOWS_MAX: u64 = 8;

    /// Calls are counted for `window_ticks`, above 0, before one leaves and after that.
    #[must_use]
    pub const fn new(window_ticks: u64) -> Self {
        Self { window_ticks, pause_ticks: window_ticks, step: Step::Pause { until_ticks: 0 } }
    }

    /// A virtual CPU looks. What it is to do now.
    pub fn look(&mut self, look: &Look) -> Trial {
        if let Some((process, began_ticks)) = self.under_way()
            && process != look.process
        {
            let limit = began_ticks.saturating_add(Self::WINDOWS_MAX * self.window_ticks);
            if look.now.ticks >= limit {
                self.pause(look.now.ticks);
            }
            return Trial::Nothing;
        }
        let is_spread = look.spread_over > 1;
        match self.step {
            Step::Pause { until_ticks } if look.now.ticks >= until_ticks && is_spread => {
                self.step = Step::Before { process: look.process, start: look.now };
            }
            Step::Before { process, start } => {
                let before = look.now.since(start);
                if !is_spread || before.ticks > Self::WINDOWS_MAX * self.window_ticks {
                    self.pause(look.now.ticks);
                } else if before.ticks >= self.window_ticks {
                    return self.begin(process, before, look);
                }
            }
            Step::Leaving { process, spread_over, before, until_ticks } => {
                if look.now.ticks >= until_ticks {
                    let start = look.now;
                    self.step = Step::After { process, spread_over, before, start };
                }
            }
            Step::After { spread_over, before, start, .. } => {
                let after = look.now.since(start);
                if after.ticks >= self.window_ticks {
                    return self.judge(before, after, spread_over, look.now.ticks);
                }
            }
            Step::Pause { .. } => {}
        }
        Trial::Nothing
    }

    /// The process of the trial, and when its present step began or is to end.
    fn under_way(&self) -> Option<(u32, u64)> {
        match self.step {
            Step::Pause { .. } => None,
            Step::Before { process, start } | Step::After { process, start, .. } => {
                Some((process, start.ticks))
            }
            Step::Leaving { process, until_ticks, .. } => Some((process, until_ticks)),
        }
    }

    fn pause(&mut self, now_ticks: u64) {
        self.step = Step::Pause { until_ticks: now_ticks.saturating_add(self.pause_ticks) };
    }

    fn begin(&mut self, process: u32, before: Count, look: &Look) -> Trial {
        if before.calls < Count::CALLS_MIN {
            self.pause(look.now.ticks);
            return Trial::Nothing;
        }
        let until_ticks = look.now.ticks.saturating_add(self.window_ticks / 2);
        self.step = Step::Leaving { process, spread_over: look.spread_over, before, until_ticks };
        Trial::Leave
    }

    /// A hart of its own is worth a part of `spread_over` if the machine has a processor for each.
    /// Somewhat more than half of that part, and a sixth at most, may be missing now: so a second
    /// hart is kept if it makes the machine faster by a fifth, which is also when one is woken
    /// earlier.
    fn judge(&mut self, before: Count, after: Count, spread_over: u32, now_ticks: u64) -> Trial {
        let parts = (2 * u64::from(spread_over)).saturating_sub(2).max(6);
        let trial = if after.reaches(before, parts - 1, parts) {
            self.pause_ticks = self.window_ticks;
            Trial::Nothing
        } else {
            let longest = self.window_ticks << Self::DOUBLINGS;
            self.pause_ticks = (2 * self.pause_ticks).min(longest);
            Trial::Return
        };
        self.pause(now_ticks);
        trial
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const WINDOW: u64 = 1000;

    /// A machine with harts that are awake for one process, and what it completes in a window with
    /// so many of them.
    struct Machine {
        gathering: Gathering,
        now_ticks: u64,
        calls: u64,
        awake: u32,
        calls_in_window: fn(u32) -> u64,
    }

    impl Machine {
        fn new(awake: u32, calls_in_window: fn(u32) -> u64) -> Self {
            let gathering = Gathering::new(WINDOW);
            Self { gathering, now_ticks: 1, calls: 0, awake, calls_in_window }
        }

        /// Goes on for a quarter of a window, and looks.
        fn step(&mut self) -> Trial {
            self.now_ticks += WINDOW / 4;
            self.calls += (self.calls_in_window)(self.awake) / 4;
            let trial = self.gathering.look(&Look {
                now: Count { ticks: self.now_ticks, calls: self.calls },
                process: 1,
                spread_over: self.awake,
            });
            match trial {
                Trial::Nothing => {}
                Trial::Leave => self.awake -= 1,
                Trial::Return => self.awake += 1,
            }
            trial
        }

        /// How many are awake at the end of each of so many steps.
        fn awake_in(&mut self, steps: u32) -> Vec<u32> {
            (0..steps)
                .map(|_| {
                    let _ = self.step();
                    self.awake
                })
                .collect()
        }
    }

    #[test]
    fn harts_that_make_nothing_faster_are_given_up_one_by_one() {
        let mut machine = Machine::new(4, |_| 400);
        let awake = machine.awake_in(100);
        assert_eq!(*awake.last().unwrap(), 1);
        assert!(awake.windows(2).all(|pair| pair[0] - pair[1] <= 1));
        assert_eq!(machine.awake_in(1000), [1; 1000], "and stay so");
    }

    #[test]
    fn harts_with_processors_of_their_own_stay_awake() {
        for count in [2, 4, 8] {
            let mut machine = Machine::new(count, |awake| 400 * u64::from(awake));
            let awake = machine.awake_in(10_000);
            let without = awake.iter().filter(|&&awake| awake < count).count();
            assert!(awake.iter().all(|&awake| awake >= count - 1));
            // Half of a window and one of every 64.
            assert!((100..400).contains(&without), "{without} of 10,000 steps without one");
        }
    }

    #[test]
    fn as_many_stay_as_make_it_faster() {
        let mut machine = Machine::new(8, |awake| 400 * u64::from(awake.min(3)));
        assert_eq!(machine.awake_in(300).into_iter().min(), Some(2), "tried");
        let awake = machine.awake_in(10_000);
        assert!(awake.iter().filter(|&&awake| awake == 3).count() > 9000);
    }

    #[test]
    fn a_fifth_more_keeps_a_second_hart() {
        let mut machine = Machine::new(2, |awake| if awake == 2 { 476 } else { 400 });
        assert_eq!(machine.awake_in(100).last(), Some(&1));
        let mut machine = Machine::new(2, |awake| if awake == 2 { 484 } else { 400 });
        assert_eq!(machine.awake_in(100).last(), Some(&2));
    }

    #[test]
    fn long_work_is_left_alone() {
        let mut machine = Machine::new(4, |_| Count::CALLS_MIN - 4);
        assert_eq!(machine.awake_in(1000), [4; 1000]);
    }

    fn look(gathering: &mut Gathering, now_ticks: u64, process: u32, spread_over: u32) -> Trial {
        let now = Count { ticks: now_ticks, calls: now_ticks };
        gathering.look(&Look { now, process, spread_over })
    }

    #[test]
    fn a_trial_is_that_of_one_process() {
        let mut gathering = Gathering::new(WINDOW);
        assert_eq!(look(&mut gathering, 1, 1, 2), Trial::Nothing);
        assert_eq!(look(&mut gathering, 1500, 2, 2), Trial::Nothing, "another one");
        assert_eq!(look(&mut gathering, 1501, 1, 2), Trial::Leave);
        assert_eq!(look(&mut gathering, 2100, 1, 1), Trial::Nothing);
        // The other one has its turn when this one does not look any more.
        assert_eq!(look(&mut gathering, 10_099, 2, 2), Trial::Nothing);
        assert_eq!(look(&mut gathering, 10_100, 2, 2), Trial::Nothing);
        assert_eq!(look(&mut gathering, 11_100, 2, 2), Trial::Nothing);
        assert_eq!(look(&mut gathering, 12_100, 2, 2), Trial::Leave);
    }

    #[test]
    fn none_leaves_that_is_alone_by_then_or_after_a_gap() {
        let mut gathering = Gathering::new(WINDOW);
        assert_eq!(look(&mut gathering, 1, 1, 2), Trial::Nothing);
        assert_eq!(look(&mut gathering, 1100, 1, 1), Trial::Nothing);
        assert_eq!(look(&mut gathering, 2100, 1, 2), Trial::Nothing, "counts anew");
        assert_eq!(look(&mut gathering, 20_000, 1, 2), Trial::Nothing, "most of that was idle");
    }

    #[test]
    fn no_count_is_too_large() {
        let mut gathering = Gathering::new(u64::MAX >> 7);
        for ticks in [0, u64::MAX, 1, u64::MAX / 2, u64::MAX] {
            let now = Count { ticks, calls: !ticks };
            for spread_over in [0, 2, u32::MAX] {
                let _ = gathering.look(&Look { now, process: 1, spread_over });
            }
        }
    }
}
