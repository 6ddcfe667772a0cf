//! A model of harts, an executor and a run queue that uses `cops_algorithms::switchers`.
//!
//! At every pick it checks the rule that no hart begins something less urgent than a queued virtual
//! CPU, unless another hart is about to read the queue for it. Kernel coroutines are always ready
//! at two levels.

use std::collections::BTreeSet;

use cops_abi::Priority;
use cops_algorithms::switchers::{Action, Claim, Switcher, on_newcomer};
use proptest::prelude::*;

fn priority(level: u8) -> Priority {
    Priority::new(level).unwrap()
}

/// Levels at which kernel coroutines are always ready.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    level: u8,
}

/// The state of a switching coroutine, and what it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Idle,
    Ready(u8),
    Running { hart: usize, level: u8, need_resched: bool },
    Paused { at: u8, level: u8, need_resched: bool },
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A hart queues a virtual CPU of this level.
    Newcomer { level: u8, by: usize },
    /// A hart takes its interrupt, or enters the kernel for another reason, or picks in its
    /// executor.
    Hart(usize),
    /// The virtual CPU that the hart runs blocks.
    Blocks(usize),
    /// A result of this level arrives for the virtual CPU of this switching coroutine.
    Result { number: usize, level: u8 },
}

struct Machine {
    places: Vec<Place>,
    interrupted: Vec<bool>,
    queue: BTreeSet<(u8, u32)>,
    next: u32,
    crowd: Crowd,
}

impl Machine {
    fn new(harts: usize, crowd: u8) -> Self {
        Self {
            places: vec![Place::Idle; harts],
            interrupted: vec![false; harts],
            queue: BTreeSet::new(),
            next: 0,
            crowd: Crowd { level: crowd },
        }
    }

    fn first(&self) -> u8 {
        self.queue.first().map_or(64, |&(level, _)| level)
    }

    fn insert(&mut self, level: u8) {
        self.next += 1;
        self.queue.insert((level, self.next));
    }

    fn ensure_taken(&mut self, level: u8, by: usize) {
        let claim = |mine: u8| {
            if mine > level {
                Claim::Weaker { priority: priority(mine), excess: 0 }
            } else {
                Claim::Stronger
            }
        };
        let seen: Vec<Switcher> = self
            .places
            .iter()
            .map(|place| match *place {
                Place::Idle => Switcher::Idle,
                Place::Ready(level) => Switcher::Ready { priority: priority(level) },
                Place::Running { hart, level, need_resched } => {
                    Switcher::Running { claim: claim(level), here: hart == by, need_resched }
                }
                Place::Paused { at, level, need_resched } => {
                    Switcher::Paused { priority: priority(at), claim: claim(level), need_resched }
                }
            })
            .collect();
        let ahead = self.queue.iter().filter(|&&(other, _)| other <= level).count();
        match on_newcomer(&seen, priority(level), ahead, by) {
            Action::Nothing => {}
            Action::Wake(number) => {
                assert_eq!(self.places[number], Place::Idle);
                self.places[number] = Place::Ready(level);
            }
            Action::Raise(number) => match &mut self.places[number] {
                Place::Ready(at) | Place::Paused { at, .. } => {
                    assert!(*at > level, "lowered by a raise");
                    *at = level;
                }
                other => panic!("raised: {other:?}"),
            },
            Action::Preempt { number, raise, interrupt } => match &mut self.places[number] {
                Place::Running { hart, need_resched, .. } => {
                    *need_resched = true;
                    assert_eq!(interrupt, *hart != by);
                    // The calling hart is in the kernel and reads the queue before it resumes.
                    self.interrupted[*hart] = true;
                }
                Place::Paused { at, need_resched, .. } => {
                    *need_resched = true;
                    if raise {
                        assert!(*at > level);
                        *at = level;
                    }
                }
                other => panic!("preempted: {other:?}"),
            },
        }
    }

    /// Number of harts that will read the queue without going through an executor.
    fn on_their_way(&self) -> usize {
        self.places
            .iter()
            .filter(
                |place| matches!(place, Place::Running { hart, need_resched: true, .. } if self.interrupted[*hart]),
            )
            .count()
    }

    /// A hart begins something of `level`.
    fn begins(&self, level: u8, what: &str) {
        let waiting = self.queue.iter().filter(|&&(other, _)| other < level).count();
        assert!(
            waiting == 0 || self.on_their_way() > 0,
            "{what} of level {level} begins while {:?} are queued; {:?}",
            self.queue,
            self.places
        );
    }

    fn running_on(&self, hart: usize) -> Option<usize> {
        self.places
            .iter()
            .position(|place| matches!(place, Place::Running { hart: at, .. } if *at == hart))
    }

    /// A switching coroutine gives up its virtual CPU. `returns`: whether the virtual CPU goes back
    /// into the queue.
    fn release(&mut self, number: usize, level: u8, returns: bool) {
        if returns {
            self.insert(level);
        }
        self.places[number] =
            if self.queue.is_empty() { Place::Idle } else { Place::Ready(self.first()) };
    }

    fn enter_kernel(&mut self, hart: usize, number: usize) {
        self.interrupted[hart] = false;
        let Place::Running { level, need_resched, .. } = self.places[number] else { return };
        if need_resched || self.first() < level {
            return self.release(number, level, true);
        }
        if self.crowd.level <= level {
            // Virtual CPUs of equal level take turns; a more urgent one goes first.
            self.places[number] =
                Place::Paused { at: level.min(self.first()), level, need_resched: false };
        }
    }

    fn pick(&mut self, hart: usize) {
        let ready = self.places.iter().enumerate().filter_map(|(number, place)| match *place {
            Place::Ready(at) | Place::Paused { at, .. } => Some((at, number)),
            _ => None,
        });
        match ready.min() {
            Some((at, number)) if at <= self.crowd.level => match self.places[number] {
                Place::Paused { level, need_resched, .. } => {
                    if need_resched || self.first() < level {
                        return self.release(number, level, true);
                    }
                    self.begins(level, "what was paused");
                    self.places[number] = Place::Running { hart, level, need_resched: false };
                }
                _ => {
                    let Some((level, _)) = self.queue.pop_first() else {
                        self.places[number] = Place::Idle;
                        return;
                    };
                    self.places[number] = Place::Running { hart, level, need_resched: false };
                    if let Some(&(next, _)) = self.queue.first() {
                        self.ensure_taken(next, hart);
                    }
                    self.begins(level, "what was chosen");
                }
            },
            _ => self.begins(self.crowd.level, "a coroutine of the kernel"),
        }
    }

    fn step(&mut self, step: Step) {
        let harts = self.places.len();
        match step {
            Step::Newcomer { level, by } => {
                let by = by % harts;
                if self.queue.is_empty() && self.places[by] == Place::Idle {
                    // It is handed over.
                    self.places[by] = Place::Paused { at: level, level, need_resched: false };
                } else {
                    self.insert(level);
                    self.ensure_taken(level, by);
                }
            }
            Step::Hart(hart) => match self.running_on(hart % harts) {
                Some(number) => self.enter_kernel(hart % harts, number),
                None => {
                    // A hart that polls something else takes its interrupt there.
                    self.interrupted[hart % harts] = false;
                    self.pick(hart % harts);
                }
            },
            Step::Blocks(hart) => {
                if let Some(number) = self.running_on(hart % harts)
                    && let Place::Running { level, .. } = self.places[number]
                {
                    self.interrupted[hart % harts] = false;
                    self.release(number, level, false);
                }
            }
            Step::Result { number, level: result } => {
                if let Place::Paused { at, level, .. } = &mut self.places[number % harts] {
                    // The same as `raise_in_hand` of the kernel's `RunQueue`.
                    *level = (*level).min(result);
                    *at = (*at).min(result);
                }
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let level = prop_oneof![Just(0u8), Just(5), Just(20), Just(32), Just(33), Just(62), Just(63)];
    prop_oneof![
        3 => (level.clone(), 0..4usize).prop_map(|(level, by)| Step::Newcomer { level, by }),
        6 => (0..4usize).prop_map(Step::Hart),
        2 => (0..4usize).prop_map(Step::Blocks),
        1 => (0..4usize, level).prop_map(|(number, level)| Step::Result { number, level }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn nothing_less_urgent_begins_while_a_virtual_cpu_waits_and_no_hart_looks(
        harts in 1..=4usize,
        crowd in prop_oneof![Just(63u8), Just(32), Just(40)],
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut machine = Machine::new(harts, crowd);
        for step in steps {
            machine.step(step);
        }
    }
}

/// Every combination of states of two switching coroutines and every pair of levels keeps the
/// guarantee of `on_newcomer`.
#[test]
fn every_combination_of_states_keeps_the_promise() {
    let levels = [0, 31, 32, 33, 63].map(priority);
    for newcomer in levels {
        let claims = [
            Claim::Stronger,
            Claim::Granted,
            Claim::Weaker { priority: Priority::LEAST_URGENT, excess: 0 },
            Claim::Weaker { priority: newcomer, excess: 9 },
        ];
        let mut states = vec![Switcher::Idle, Switcher::Choosing];
        states.extend(levels.map(|priority| Switcher::Ready { priority }));
        for claim in claims {
            for need_resched in [false, true] {
                states.extend([false, true].map(|here| Switcher::Running {
                    claim,
                    here,
                    need_resched,
                }));
                states.extend(levels.map(|priority| Switcher::Paused {
                    priority,
                    claim,
                    need_resched,
                }));
            }
        }
        for &first in &states {
            for &second in &states {
                for ahead in 1..=3 {
                    keeps_the_promise([first, second], newcomer, ahead);
                }
            }
        }
    }
}

fn keeps_the_promise(before: [Switcher; 2], newcomer: Priority, ahead: usize) {
    let action = on_newcomer(&before, newcomer, ahead, 0);
    let mut after = before;
    // Interrupted just now, or about to read the queue without an interrupt.
    match action {
        Action::Nothing => {}
        Action::Wake(number) => after[number] = Switcher::Ready { priority: newcomer },
        Action::Raise(number) => match &mut after[number] {
            Switcher::Ready { priority } | Switcher::Paused { priority, .. } => {
                *priority = newcomer
            }
            other => panic!("raised: {other:?}"),
        },
        Action::Preempt { number, raise, interrupt } => match &mut after[number] {
            Switcher::Running { here, need_resched, .. } => {
                assert_ne!(*here, interrupt);
                *need_resched = true;
            }
            Switcher::Paused { priority, need_resched, .. } => {
                assert_eq!(raise, newcomer.is_more_urgent_than(*priority));
                *priority = newcomer.more_urgent_of(*priority);
                *need_resched = true;
            }
            other => panic!("preempted: {other:?}"),
        },
    }
    let looks = |switcher: &Switcher| match *switcher {
        Switcher::Choosing | Switcher::Running { need_resched: true, .. } => true,
        Switcher::Ready { priority } | Switcher::Paused { priority, need_resched: true, .. } => {
            !newcomer.is_more_urgent_than(priority)
        }
        _ => false,
    };
    let yields_nothing = |switcher: &Switcher| match *switcher {
        Switcher::Running { claim, .. } => !matches!(claim, Claim::Weaker { .. }),
        Switcher::Paused { priority, claim, .. } => {
            !matches!(claim, Claim::Weaker { .. }) && !newcomer.is_more_urgent_than(priority)
        }
        _ => false,
    };
    let looking = after.iter().filter(|switcher| looks(switcher)).count();
    // One call takes one action: it makes one more switching coroutine read the queue, unless there
    // was none left.
    let was_looking = before.iter().filter(|switcher| looks(switcher)).count();
    let is_kept = looking >= ahead
        || looking > was_looking
        || after.iter().all(|switcher| looks(switcher) || yields_nothing(switcher))
        || matches!(action, Action::Raise(number) if yields_nothing(&after[number]));
    let woken: BTreeSet<usize> = match action {
        Action::Wake(number) => [number].into(),
        _ => BTreeSet::new(),
    };
    assert!(
        is_kept || !woken.is_empty(),
        "{before:?}, newcomer {newcomer}, ahead {ahead}: {action:?}"
    );
    assert!(
        before.iter().all(|switcher| *switcher != Switcher::Idle) || !woken.is_empty(),
        "an idle one is left asleep: {before:?}"
    );
}
