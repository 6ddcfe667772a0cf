//! The states of a virtual CPU, and the only transitions between them.
//!
//! A virtual CPU is *on a hart* (running), *queued* (runnable), *asleep* (parked, or waiting for a
//! synchronous call), or *ended*. It is *active* on a hart or queued. When its process ends, no
//! virtual CPU may run any more, because the reaper begins when none is active. What becomes of a
//! virtual CPU depends on its state:
//!
//! - Asleep: whatever would wake it ends it, so it never becomes active.
//! - Queued: it ends when a hart takes it from the queue ([`Event::Dispatch`]).
//! - On a hart: it ends at its next transition. The kernel interrupts the hart to make that soon.
//!
//! So the end of a process visits none of its virtual CPUs, however many are asleep: [`Census`]
//! knows how many are active and on which harts some run. To guarantee that none becomes active,
//! [`next`] is the only place where a state changes, it is called under the process's lock, and it
//! takes as an argument whether the process is ending. Combinations that are not in the table are
//! refused: the state stays as it is.
//!
//! | event       | from     | to         | to, while the process is ending |
//! | ----------- | -------- | ---------- | ------------------------------- |
//! | `Dispatch`  | runnable, running | running | ended                     |
//! | `Preempt`   | running  | runnable   | ended                           |
//! | `Park`      | running  | parked     | (refused; ends at its next transition) |
//! | `Wait`      | running  | waiting    | ended                           |
//! | `Unpark`    | parked   | runnable   | ended                           |
//! | `Complete`  | waiting  | runnable   | ended                           |
//! | `Exit`      | running  | ended      | ended                           |
//!
//! `Dispatch` of a running virtual CPU resumes it after a hart paused it for a kernel coroutine;
//! the hart that resumes it may be another one.
//!
//! `Park` is refused while the process is ending: the call returns, and the virtual CPU ends on its
//! way to user mode. `Wait` ends the virtual CPU because its call is already in flight; the reaper
//! cancels the call.

use cops_abi::interrupt::CpuPhase;
use cops_abi::page::MAX_HARTS;

/// The state of a virtual CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuState {
    /// In the run queue.
    Runnable,
    /// On this hart.
    Running {
        /// Index of the hart.
        hart: usize,
    },
    /// In `park`: asleep until it is unparked.
    Parked,
    /// Asleep in a synchronous call that has to wait.
    Waiting,
    /// Ended.
    Ended,
}

impl CpuState {
    /// Whether it has a hart or waits for one.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Runnable | Self::Running { .. })
    }

    /// The hart that it is on.
    #[must_use]
    pub const fn hart(self) -> Option<usize> {
        match self {
            Self::Running { hart } => Some(hart),
            _ => None,
        }
    }

    /// The state without the hart, for the process's page.
    #[must_use]
    pub const fn phase(self) -> CpuPhase {
        match self {
            Self::Runnable => CpuPhase::Runnable,
            Self::Running { .. } => CpuPhase::Running,
            Self::Parked => CpuPhase::Parked,
            Self::Waiting => CpuPhase::Waiting,
            Self::Ended => CpuPhase::Ended,
        }
    }
}

/// An event of a virtual CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A hart has taken it from the run queue, or resumes it after a pause.
    Dispatch {
        /// Index of the hart.
        hart: usize,
    },
    /// It leaves its hart and stays runnable.
    Preempt,
    /// It calls `park`.
    Park,
    /// Its synchronous call has to wait.
    Wait,
    /// It is woken from `park`.
    Unpark,
    /// Its synchronous call has completed.
    Complete,
    /// It calls `exit`.
    Exit,
}

/// The state after `event`; `None` if the event is refused and the state stays.
///
/// `ending`: whether the process is ending.
#[must_use]
pub const fn next(state: CpuState, event: Event, ending: bool) -> Option<CpuState> {
    use CpuState::{Ended, Parked, Runnable, Running, Waiting};
    let after = match (state, event) {
        (Runnable | Running { .. }, Event::Dispatch { hart }) => Running { hart },
        (Running { .. }, Event::Park) => {
            if ending {
                return None;
            }
            Parked
        }
        (Running { .. }, Event::Wait) => Waiting,
        (Running { .. }, Event::Preempt) | (Parked, Event::Unpark) | (Waiting, Event::Complete) => {
            Runnable
        }
        (Running { .. }, Event::Exit) => return Some(Ended),
        _ => return None,
    };
    Some(if ending { Ended } else { after })
}

/// How many virtual CPUs of a process there are in which states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    alive: usize,
    active: usize,
    running: [u16; MAX_HARTS],
}

impl Census {
    /// A process without virtual CPUs.
    #[must_use]
    pub const fn new() -> Self {
        Self { alive: 0, active: 0, running: [0; MAX_HARTS] }
    }

    /// A virtual CPU has changed its state. `before` is `None` for a new one.
    pub fn change(&mut self, before: Option<CpuState>, after: CpuState) {
        if let Some(before) = before {
            self.alive -= usize::from(before != CpuState::Ended);
            self.active -= usize::from(before.is_active());
            if let Some(count) = before.hart().and_then(|hart| self.running.get_mut(hart)) {
                *count -= 1;
            }
        }
        self.alive += usize::from(after != CpuState::Ended);
        self.active += usize::from(after.is_active());
        if let Some(count) = after.hart().and_then(|hart| self.running.get_mut(hart)) {
            *count += 1;
        }
    }

    /// Those that have not ended.
    #[must_use]
    pub const fn alive(&self) -> usize {
        self.alive
    }

    /// Those that are queued or on a hart.
    #[must_use]
    pub const fn active(&self) -> usize {
        self.active
    }

    /// The harts that some are on.
    pub fn harts(&self) -> impl Iterator<Item = usize> {
        let counts = self.running.into_iter().enumerate();
        counts.filter(|&(_, count)| count > 0).map(|(hart, _)| hart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [CpuState; 5] = [
        CpuState::Runnable,
        CpuState::Running { hart: 1 },
        CpuState::Parked,
        CpuState::Waiting,
        CpuState::Ended,
    ];
    const EVENTS: [Event; 7] = [
        Event::Dispatch { hart: 2 },
        Event::Preempt,
        Event::Park,
        Event::Wait,
        Event::Unpark,
        Event::Complete,
        Event::Exit,
    ];

    /// Said once more, so that a change of [`CpuState::is_active`] is noticed.
    fn is_active(state: CpuState) -> bool {
        !matches!(state, CpuState::Parked | CpuState::Waiting | CpuState::Ended)
    }

    #[test]
    fn nothing_becomes_active_while_its_process_ends() {
        for state in STATES {
            for event in EVENTS {
                let after = next(state, event, true).unwrap_or(state);
                assert!(is_active(state) || !is_active(after), "{state:?} {event:?}");
                let is_dispatch = matches!(event, Event::Dispatch { .. });
                assert!(!is_dispatch || !is_active(after), "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn the_end_is_the_end() {
        for event in EVENTS {
            assert_eq!(next(CpuState::Ended, event, false), None);
            assert_eq!(next(CpuState::Ended, event, true), None);
        }
    }

    /// Explores every order of events of two virtual CPUs, with a kill at any moment. After the
    /// kill, each hart preempts what it runs and takes what is queued, once; then none is active.
    /// The census agrees at each step.
    #[test]
    fn after_a_kill_every_order_of_events_ends() {
        fn explore(
            states: [CpuState; 2],
            census: Census,
            ending: bool,
            depth: usize,
            seen: &mut usize,
        ) {
            let active = states.iter().filter(|state| is_active(**state)).count();
            let alive = states.iter().filter(|&&state| state != CpuState::Ended).count();
            assert_eq!((census.active(), census.alive()), (active, alive));
            for hart in 0..4 {
                let is_used = states.iter().any(|state| state.hart() == Some(hart));
                assert_eq!(census.harts().any(|other| other == hart), is_used);
            }
            let mut killed = states;
            for event in [Event::Preempt, Event::Dispatch { hart: 0 }, Event::Preempt] {
                killed = killed.map(|state| next(state, event, true).unwrap_or(state));
            }
            assert!(!killed.iter().any(|state| is_active(*state)), "from {states:?}");
            *seen += 1;
            if depth == 0 {
                return;
            }
            for index in 0..states.len() {
                for event in EVENTS {
                    if let Some(after) = next(states[index], event, ending) {
                        let (mut states, mut census) = (states, census);
                        census.change(Some(states[index]), after);
                        states[index] = after;
                        explore(states, census, ending, depth - 1, seen);
                    }
                }
            }
        }
        let mut census = Census::new();
        census.change(None, CpuState::Runnable);
        census.change(None, CpuState::Runnable);
        let mut seen = 0;
        explore([CpuState::Runnable; 2], census, false, 8, &mut seen);
        explore([CpuState::Runnable; 2], census, true, 4, &mut seen);
        assert!(seen > 5_000, "only {seen} orders");
    }

    #[test]
    fn the_table() {
        use CpuState::{Ended, Parked, Runnable, Running, Waiting};
        let hart = 2;
        let rows = [
            (Runnable, Event::Dispatch { hart }, Some(Running { hart }), Some(Ended)),
            (Running { hart: 1 }, Event::Dispatch { hart }, Some(Running { hart }), Some(Ended)),
            (Running { hart }, Event::Preempt, Some(Runnable), Some(Ended)),
            (Running { hart }, Event::Park, Some(Parked), None),
            (Running { hart }, Event::Wait, Some(Waiting), Some(Ended)),
            (Parked, Event::Unpark, Some(Runnable), Some(Ended)),
            (Waiting, Event::Complete, Some(Runnable), Some(Ended)),
            (Running { hart }, Event::Exit, Some(Ended), Some(Ended)),
            (Runnable, Event::Park, None, None),
            (Parked, Event::Complete, None, None),
            (Waiting, Event::Unpark, None, None),
        ];
        for (from, event, to, to_while_ending) in rows {
            assert_eq!(next(from, event, false), to, "{from:?} {event:?}");
            assert_eq!(next(from, event, true), to_while_ending, "{from:?} {event:?}, ending");
        }
    }
}
