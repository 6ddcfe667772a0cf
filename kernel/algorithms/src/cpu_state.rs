//! The states of a virtual CPU, and the only transitions between them.
//!
//! A virtual CPU is *on a hart* (running), *queued* (runnable), *asleep* (parked, or waiting for a
//! synchronous call), *held* (it would be queued, but its process is stopped, or another virtual
//! CPU copies its memory), or *ended*. It is *active* on a hart or queued. When its process ends,
//! no virtual CPU may run any more, because the reaper begins when none is active. What becomes of
//! a virtual CPU depends on its state:
//!
//! - Asleep: whatever would wake it ends it, so it never becomes active.
//! - Queued: it ends when a hart takes it from the queue ([`Event::Dispatch`]).
//! - On a hart: it ends at its next transition. The kernel interrupts the hart to make that soon.
//!
//! So the end of a process visits none of its virtual CPUs, however many are asleep: [`Census`]
//! knows how many are active and on which harts some run. To guarantee that none becomes active,
//! [`next`] is the only place where a state changes, it is called under the process's lock, and it
//! takes as an argument what is to become of the virtual CPU ([`Order`]). Combinations that are not
//! in the table are refused: the state stays as it is.
//!
//! | event       | from     | to, by default | while it is to stop | while it is to end |
//! | ----------- | -------- | -------------- | ------------------- | ------------------ |
//! | `Dispatch`  | runnable, running | running | held               | ended              |
//! | `Preempt`   | running  | runnable       | held                | ended              |
//! | `Park`      | running  | parked         | parked              | (refused; ends at its next transition) |
//! | `Wait`      | running  | waiting        | waiting             | ended              |
//! | `Unpark`    | parked   | runnable       | held                | ended              |
//! | `Complete`  | waiting  | runnable       | held                | ended              |
//! | `Release`   | held     | runnable       | (refused)           | ended              |
//! | `Exit`      | running  | ended          | ended               | ended              |
//!
//! So a stopped process has no virtual CPU on a hart or in the queue once each hart has trapped
//! and the queue has been worked off, and its calls in flight complete all the same.
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
    /// Neither asleep nor in the run queue: its process is stopped, or its memory is being copied.
    Held,
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
            // To the program, a time without a hart is like another.
            Self::Runnable | Self::Held => CpuPhase::Runnable,
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
    /// Its process is continued, or its memory has been copied.
    Release,
    /// It calls `exit`.
    Exit,
}

/// What is to become of a virtual CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It runs.
    Run,
    /// It leaves its hart: its process is stopped, or its memory is being copied.
    Stop,
    /// It ends: its process is ending, or another virtual CPU replaces the program.
    End,
}

/// Why something else than to run may become of the virtual CPUs of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reasons {
    /// The process is ending.
    pub is_ending: bool,
    /// The process is stopped.
    pub is_stopped: bool,
    /// The virtual CPU that replaces the program: it ends all others.
    pub replacer: Option<usize>,
    /// The virtual CPU that copies the memory: all others wait for it.
    pub copier: Option<usize>,
}

impl Reasons {
    /// What is to become of virtual CPU `index`. The replacer does not wait for the copier, which
    /// it ends: the copier's hold on the others is freed by the one that ends it.
    #[must_use]
    pub fn order(&self, index: usize) -> Order {
        let is_another = |chosen: Option<usize>| chosen.is_some_and(|chosen| chosen != index);
        let waits = self.replacer.is_none() && is_another(self.copier);
        if self.is_ending || is_another(self.replacer) {
            Order::End
        } else if self.is_stopped || waits {
            Order::Stop
        } else {
            Order::Run
        }
    }
}

/// The state after `event`; `None` if the event is refused and the state stays.
#[must_use]
pub const fn next(state: CpuState, event: Event, order: Order) -> Option<CpuState> {
    use CpuState::{Ended, Held, Parked, Runnable, Running, Waiting};
    let (after, if_stopped) = match (state, event) {
        (Runnable | Running { .. }, Event::Dispatch { hart }) => (Running { hart }, Held),
        (Running { .. }, Event::Park) => match order {
            Order::End => return None,
            Order::Run | Order::Stop => (Parked, Parked),
        },
        (Running { .. }, Event::Wait) => (Waiting, Waiting),
        (Running { .. }, Event::Preempt) | (Parked, Event::Unpark) | (Waiting, Event::Complete) => {
            (Runnable, Held)
        }
        (Held, Event::Release) => match order {
            Order::Stop => return None,
            Order::Run | Order::End => (Runnable, Held),
        },
        (Running { .. }, Event::Exit) => (Ended, Ended),
        _ => return None,
    };
    Some(match order {
        Order::Run => after,
        Order::Stop => if_stopped,
        Order::End => Ended,
    })
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

    /// Those that are on a hart.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.iter().map(|&count| usize::from(count)).sum()
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

    const STATES: [CpuState; 6] = [
        CpuState::Runnable,
        CpuState::Running { hart: 1 },
        CpuState::Parked,
        CpuState::Waiting,
        CpuState::Held,
        CpuState::Ended,
    ];
    const EVENTS: [Event; 8] = [
        Event::Dispatch { hart: 2 },
        Event::Preempt,
        Event::Park,
        Event::Wait,
        Event::Unpark,
        Event::Complete,
        Event::Release,
        Event::Exit,
    ];
    const ORDERS: [Order; 3] = [Order::Run, Order::Stop, Order::End];

    #[test]
    fn without_a_reason_all_run() {
        assert_eq!(Reasons::default().order(3), Order::Run);
    }

    #[test]
    fn the_copier_runs_and_the_others_wait() {
        let copying = Reasons { copier: Some(1), ..Reasons::default() };
        assert_eq!(
            [0, 1, 2].map(|index| copying.order(index)),
            [Order::Stop, Order::Run, Order::Stop]
        );
        let stopped = Reasons { is_stopped: true, ..copying };
        assert_eq!([0, 1].map(|index| stopped.order(index)), [Order::Stop; 2]);
    }

    #[test]
    fn the_replacer_ends_the_copier_and_does_not_wait_for_it() {
        let both = Reasons { replacer: Some(0), copier: Some(1), ..Reasons::default() };
        assert_eq!([0, 1, 2].map(|index| both.order(index)), [Order::Run, Order::End, Order::End]);
        let stopped = Reasons { is_stopped: true, ..both };
        assert_eq!([0, 1].map(|index| stopped.order(index)), [Order::Stop, Order::End]);
        let ending = Reasons { is_ending: true, ..stopped };
        assert_eq!([0, 1].map(|index| ending.order(index)), [Order::End; 2]);
    }

    /// Said once more, so that a change of [`CpuState::is_active`] is noticed.
    fn is_active(state: CpuState) -> bool {
        matches!(state, CpuState::Runnable | CpuState::Running { .. })
    }

    #[test]
    fn nothing_becomes_active_while_its_process_ends_or_is_stopped() {
        for state in STATES {
            for event in EVENTS {
                for order in [Order::Stop, Order::End] {
                    let after = next(state, event, order).unwrap_or(state);
                    assert!(is_active(state) || !is_active(after), "{state:?} {event:?}");
                    let is_dispatch = matches!(event, Event::Dispatch { .. });
                    assert!(!is_dispatch || !is_active(after), "{state:?} {event:?}");
                }
            }
        }
    }

    /// A stop loses no wake and no result: what would have been runnable is held, and a release
    /// makes it so.
    #[test]
    fn what_a_stop_holds_a_release_makes_runnable() {
        for state in STATES {
            for event in EVENTS {
                let (by_default, stopped) =
                    (next(state, event, Order::Run), next(state, event, Order::Stop));
                if stopped == by_default {
                    continue;
                }
                let is_refused = (state, event) == (CpuState::Held, Event::Release);
                assert!(is_refused || stopped == Some(CpuState::Held), "{state:?} {event:?}");
                assert!(by_default.is_some_and(is_active), "{state:?} {event:?}");
            }
        }
        let released = next(CpuState::Held, Event::Release, Order::Run);
        assert_eq!(released, Some(CpuState::Runnable));
    }

    #[test]
    fn the_end_is_the_end() {
        for event in EVENTS {
            for order in ORDERS {
                assert_eq!(next(CpuState::Ended, event, order), None);
            }
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
            order: Order,
            depth: usize,
            seen: &mut usize,
        ) {
            let active = states.iter().filter(|state| is_active(**state)).count();
            let alive = states.iter().filter(|&&state| state != CpuState::Ended).count();
            assert_eq!((census.active(), census.alive()), (active, alive));
            let running = states.iter().filter(|state| state.hart().is_some()).count();
            assert_eq!(census.running(), running);
            for hart in 0..4 {
                let is_used = states.iter().any(|state| state.hart() == Some(hart));
                assert_eq!(census.harts().any(|other| other == hart), is_used);
            }
            let mut killed = states;
            for event in [Event::Preempt, Event::Dispatch { hart: 0 }, Event::Preempt] {
                killed = killed.map(|state| next(state, event, Order::End).unwrap_or(state));
            }
            assert!(!killed.iter().any(|state| is_active(*state)), "from {states:?}");
            *seen += 1;
            if depth == 0 {
                return;
            }
            for index in 0..states.len() {
                for event in EVENTS {
                    if let Some(after) = next(states[index], event, order) {
                        let (mut states, mut census) = (states, census);
                        census.change(Some(states[index]), after);
                        states[index] = after;
                        explore(states, census, order, depth - 1, seen);
                    }
                }
            }
        }
        let mut census = Census::new();
        census.change(None, CpuState::Runnable);
        census.change(None, CpuState::Runnable);
        let mut seen = 0;
        explore([CpuState::Runnable; 2], census, Order::Run, 8, &mut seen);
        explore([CpuState::Runnable; 2], census, Order::Stop, 6, &mut seen);
        explore([CpuState::Runnable; 2], census, Order::End, 4, &mut seen);
        assert!(seen > 5_000, "only {seen} orders");
    }

    #[test]
    fn the_table() {
        use CpuState::{Ended, Held, Parked, Runnable, Running, Waiting};
        let hart = 2;
        let running = Running { hart };
        // Event, and the states after it under each order.
        let rows = [
            (Runnable, Event::Dispatch { hart }, [Some(running), Some(Held), Some(Ended)]),
            (
                Running { hart: 1 },
                Event::Dispatch { hart },
                [Some(running), Some(Held), Some(Ended)],
            ),
            (running, Event::Preempt, [Some(Runnable), Some(Held), Some(Ended)]),
            (running, Event::Park, [Some(Parked), Some(Parked), None]),
            (running, Event::Wait, [Some(Waiting), Some(Waiting), Some(Ended)]),
            (Parked, Event::Unpark, [Some(Runnable), Some(Held), Some(Ended)]),
            (Waiting, Event::Complete, [Some(Runnable), Some(Held), Some(Ended)]),
            (Held, Event::Release, [Some(Runnable), None, Some(Ended)]),
            (running, Event::Exit, [Some(Ended); 3]),
            (Runnable, Event::Park, [None; 3]),
            (Parked, Event::Complete, [None; 3]),
            (Waiting, Event::Unpark, [None; 3]),
            (Held, Event::Dispatch { hart }, [None; 3]),
        ];
        for (from, event, to) in rows {
            assert_eq!(ORDERS.map(|order| next(from, event, order)), to, "{from:?} {event:?}");
        }
    }
}
