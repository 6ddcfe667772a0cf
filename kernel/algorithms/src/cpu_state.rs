//! The states of a virtual CPU, and the only transitions between them.
//!
//! A virtual CPU is *on a hart* (running), *queued* (runnable), *asleep* (parked, or waiting for a
//! synchronous call), or *ended*. When its process ends, every virtual CPU has to end too, because
//! the reaper begins only after the last one has. Where a virtual CPU ends depends on its state:
//!
//! - Asleep: [`Event::Kill`] itself ends it. No later event would.
//! - Queued: it ends when a hart takes it from the queue ([`Event::Dispatch`]).
//! - On a hart: it ends at its next transition. The kernel interrupts the hart to make that soon.
//!
//! So the process certainly ends if no virtual CPU falls asleep after the kill. To guarantee that,
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
//! | `Kill`      | parked, waiting | (refused) | ended                   |
//!
//! `Dispatch` of a running virtual CPU resumes it after a hart paused it for a kernel coroutine;
//! the hart that resumes it may be another one.
//!
//! `Park` is refused while the process is ending: the call returns, and the virtual CPU ends on its
//! way to user mode. `Wait` ends the virtual CPU because its call is already in flight; the reaper
//! cancels the call.

use cops_abi::interrupt::CpuPhase;

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
    /// Its process has begun to end.
    Kill,
}

/// The state after `event`; `None` if the event is refused and the state stays.
///
/// `ending`: whether the process is ending; always true for [`Event::Kill`].
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
        (Running { .. }, Event::Exit) | (Parked | Waiting, Event::Kill) => return Some(Ended),
        _ => return None,
    };
    Some(if ending { Ended } else { after })
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
    const EVENTS: [Event; 8] = [
        Event::Dispatch { hart: 2 },
        Event::Preempt,
        Event::Park,
        Event::Wait,
        Event::Unpark,
        Event::Complete,
        Event::Exit,
        Event::Kill,
    ];

    fn is_asleep(state: CpuState) -> bool {
        matches!(state, CpuState::Parked | CpuState::Waiting)
    }

    #[test]
    fn nothing_falls_asleep_while_its_process_ends() {
        for state in STATES {
            for event in EVENTS {
                let after = next(state, event, true).unwrap_or(state);
                assert!(is_asleep(state) || !is_asleep(after), "{state:?} {event:?}");
            }
            let killed = next(state, Event::Kill, true).unwrap_or(state);
            assert!(!is_asleep(killed), "{state:?} survives the kill asleep");
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
    /// kill, each hart preempts what it runs and takes what is queued, once; then both virtual CPUs
    /// must have ended.
    #[test]
    fn after_a_kill_every_order_of_events_ends() {
        fn explore(states: [CpuState; 2], ending: bool, depth: usize, seen: &mut usize) {
            let mut killed = states.map(|state| next(state, Event::Kill, true).unwrap_or(state));
            for event in [Event::Preempt, Event::Dispatch { hart: 0 }, Event::Preempt] {
                killed = killed.map(|state| next(state, event, true).unwrap_or(state));
            }
            assert_eq!(killed, [CpuState::Ended; 2], "from {states:?}");
            *seen += 1;
            if depth == 0 {
                return;
            }
            for index in 0..states.len() {
                for event in EVENTS {
                    if event == Event::Kill && !ending {
                        continue;
                    }
                    if let Some(after) = next(states[index], event, ending) {
                        let mut states = states;
                        states[index] = after;
                        explore(states, ending, depth - 1, seen);
                    }
                }
            }
        }
        let mut seen = 0;
        explore([CpuState::Runnable; 2], false, 8, &mut seen);
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
