//! Random histories on one worker against a model that is easy to believe: the exact order of polls and
//! drops, every answer, every phase.
//!
//! The model: 64 deques, and a list of requests (who was made ready, or moved, since the last scheduling
//! point). What a coroutine makes ready goes into its deque at once, unless there are requests before it. A
//! scheduling point files the requests in order, then the coroutine that was polled, then takes from the
//! most urgent deque.
#![allow(unsafe_code)]

mod common;

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use common::Host;
use cops_executor::WorkerState;
use cops_executor::core::{
    Executor, FutureVTable, Inspection, NO_WORKER, Phase, RUN_BUDGET_USED, RUN_REFUSED, RUN_STALLED,
    STATUS_OK,
};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Operation {
    Spawn { priority: u8 },
    Wake { whom: usize },
    Cancel { whom: usize },
    SetPriority { whom: usize, priority: u8 },
    WakeSelf,
    CancelSelf,
    RunInside,
}

#[derive(Clone, Debug)]
struct Script {
    operations: Vec<Operation>,
    ready: bool,
}

#[derive(Clone, Debug)]
enum Step {
    Outside(Operation),
    Run { polls: u64, scripts: Vec<Script> },
}

#[derive(Clone, Debug)]
struct Modelled {
    id: u64,
    phase: Phase,
    priority: u8,
    filed: Option<u8>,
    requested: bool,
    woken: bool,
    cancelled: bool,
}

#[derive(Default)]
struct Model {
    coroutines: Vec<Modelled>,
    requests: Vec<usize>,
    lists: Vec<VecDeque<usize>>,
    running: Option<usize>,
}

impl Model {
    fn request(&mut self, key: usize) {
        if !std::mem::replace(&mut self.coroutines[key].requested, true) {
            self.requests.push(key);
        }
    }

    /// `inside`: on the worker.
    fn make_ready(&mut self, key: usize, inside: bool) {
        self.coroutines[key].phase = Phase::Ready;
        if inside && self.requests.is_empty() && !self.coroutines[key].requested {
            self.file(key);
        } else {
            self.request(key);
        }
    }

    fn spawn(&mut self, id: u64, priority: u8, inside: bool) {
        let fresh = Modelled {
            id,
            phase: Phase::Blocked,
            priority,
            filed: None,
            requested: false,
            woken: false,
            cancelled: false,
        };
        self.coroutines.push(fresh);
        self.make_ready(self.coroutines.len() - 1, inside);
    }

    fn wake(&mut self, key: usize, inside: bool) -> bool {
        let one = &mut self.coroutines[key];
        match one.phase {
            Phase::Free => return false,
            Phase::Running => one.woken = true,
            Phase::Ready => {}
            Phase::Blocked => self.make_ready(key, inside),
        }
        true
    }

    fn cancel(&mut self, key: usize) -> bool {
        self.coroutines[key].cancelled |= self.coroutines[key].phase != Phase::Free;
        // Never the short way.
        self.wake(key, false)
    }

    fn set_priority(&mut self, key: usize, priority: u8) -> bool {
        let one = &mut self.coroutines[key];
        if one.phase == Phase::Free {
            return false;
        }
        let changed = one.priority != priority;
        one.priority = priority;
        if one.phase == Phase::Ready && changed {
            self.request(key);
        }
        true
    }

    fn file(&mut self, key: usize) {
        let one = &mut self.coroutines[key];
        one.filed = Some(one.priority);
        self.lists[one.priority as usize].push_back(key);
    }

    /// Files requests, then what was polled.
    fn settle(&mut self) {
        for key in std::mem::take(&mut self.requests) {
            let one = &mut self.coroutines[key];
            one.requested = false;
            if one.phase != Phase::Ready || one.filed == Some(one.priority) {
                continue;
            }
            if let Some(level) = one.filed {
                self.lists[level as usize].retain(|&other| other != key);
            }
            self.file(key);
        }
        if let Some(key) = self.running.take() {
            let one = &mut self.coroutines[key];
            if std::mem::take(&mut one.woken) {
                one.phase = Phase::Ready;
                self.file(key);
            } else {
                one.phase = Phase::Blocked;
            }
        }
    }

    fn pick(&mut self) -> Option<usize> {
        self.settle();
        let key = self.lists.iter_mut().find_map(VecDeque::pop_front)?;
        self.coroutines[key].phase = Phase::Running;
        self.coroutines[key].filed = None;
        Some(key)
    }

    fn bitmap(&self) -> u64 {
        self.lists.iter().enumerate().fold(0, |bits, (level, list)| bits | (!list.is_empty() as u64) << level)
    }
}

/// One random history.
struct Case {
    executor: Executor,
    state: WorkerState,
    world: RefCell<World>,
    host: Box<Host>,
    /// The first assertion that failed inside a poll, which must not unwind through the core.
    failure: RefCell<Option<Box<dyn Any + Send>>>,
}

#[derive(Default)]
struct World {
    model: Model,
    scripts: VecDeque<Script>,
    /// Who must be dropped next, because it finished or was cancelled.
    dropping: Option<usize>,
    polls: u64,
}

/// What `data` of a coroutine points to.
struct Coroutine {
    case: *const Case,
    key: usize,
}

static VTABLE: FutureVTable = FutureVTable { poll, drop };

unsafe extern "C" fn poll(data: *mut (), id: u64) -> bool {
    // SAFETY: `Case::apply` made it, and the case outlives its executor.
    let (case, key) = unsafe { (&*(*data.cast::<Coroutine>()).case, (*data.cast::<Coroutine>()).key) };
    case.guard(|| case.on_poll(key, id)).unwrap_or(true)
}

unsafe extern "C" fn drop(data: *mut ()) {
    // SAFETY: as above, and the core drops once: a second time would find the box gone (and Miri would say so).
    let coroutine = unsafe { Box::from_raw(data.cast::<Coroutine>()) };
    // SAFETY: as above.
    let case = unsafe { &*coroutine.case };
    case.guard(|| case.on_drop(coroutine.key));
}

impl Case {
    fn new() -> Box<Case> {
        let model = Model { lists: vec![VecDeque::new(); 64], ..Model::default() };
        let case = Box::new(Case {
            executor: Executor::new(),
            state: WorkerState::new(),
            world: RefCell::new(World { model, ..World::default() }),
            host: Host::new(),
            failure: RefCell::new(None),
        });
        // SAFETY: the host's hooks do what they should, and the state lives as long as the executor.
        unsafe {
            assert_eq!(case.executor.initialise(9, &case.host.hooks()), STATUS_OK);
            assert_eq!(case.executor.add_worker(0, &case.state), STATUS_OK);
        }
        case
    }

    /// Calls `check`; after a failure nothing is checked, and the run is stopped.
    fn guard<T>(&self, check: impl FnOnce() -> T) -> Option<T> {
        if self.failure.borrow().is_some() {
            return None;
        }
        catch_unwind(AssertUnwindSafe(check))
            .map_err(|failure| {
                *self.failure.borrow_mut() = Some(failure);
                self.executor.request_stop(true);
            })
            .ok()
    }

    fn on_poll(&self, key: usize, id: u64) -> bool {
        let mut world = self.world.borrow_mut();
        assert_eq!(world.dropping, None, "a drop is due");
        assert_eq!(world.model.pick(), Some(key), "who is polled");
        let modelled = &world.model.coroutines[key];
        assert!(!modelled.cancelled, "a cancelled coroutine is not polled");
        assert_eq!((modelled.id, self.executor.current(0)), (id, id));
        assert_eq!(self.state.current_priority().map(|p| p.level()), Some(modelled.priority));
        world.polls += 1;
        world.model.running = Some(key);
        let script = world.scripts.pop_front().unwrap_or(Script { operations: vec![], ready: true });
        for operation in script.operations {
            self.apply(&mut world, operation, 0, Some(key));
        }
        let ends = script.ready || world.model.coroutines[key].cancelled;
        if ends {
            world.dropping = Some(key);
        }
        script.ready
    }

    fn on_drop(&self, key: usize) {
        let mut world = self.world.borrow_mut();
        if world.dropping.is_none() {
            assert_eq!(world.model.pick(), Some(key), "who is dropped unpolled");
            assert!(world.model.coroutines[key].cancelled);
            world.polls += 1;
        } else {
            assert_eq!(world.dropping.take(), Some(key));
        }
        world.model.running = None;
        world.model.coroutines[key].phase = Phase::Free;
    }

    fn apply(&self, world: &mut World, operation: Operation, here: u32, running: Option<usize>) {
        let model = &mut world.model;
        let count = model.coroutines.len();
        let choose = |whom: usize| if count == 0 { None } else { Some(whom % count) };
        match operation {
            Operation::Spawn { priority } => {
                let data = Box::into_raw(Box::new(Coroutine { case: self, key: count })).cast();
                // SAFETY: the table above fits the box.
                let id = unsafe { self.executor.spawn(data, &VTABLE, priority as u32, here) };
                assert!(id >> 32 != 0);
                assert!(model.coroutines.iter().all(|other| other.id != id), "ids are never used twice");
                model.spawn(id, priority, running.is_some());
            }
            Operation::Wake { whom } => {
                if let Some(key) = choose(whom) {
                    assert_eq!(
                        self.executor.wake(model.coroutines[key].id, here),
                        model.wake(key, running.is_some())
                    );
                }
            }
            Operation::Cancel { whom } => {
                if let Some(key) = choose(whom) {
                    assert_eq!(self.executor.cancel(model.coroutines[key].id, here), model.cancel(key));
                }
            }
            Operation::SetPriority { whom, priority } => {
                if let Some(key) = choose(whom) {
                    let real = self.executor.set_priority(model.coroutines[key].id, priority as u32, here);
                    assert_eq!(real, model.set_priority(key, priority));
                }
            }
            Operation::WakeSelf => {
                if let Some(key) = running {
                    // As the front does it; `Wake` takes the other way for itself too.
                    assert!(self.state.wakes_itself(model.coroutines[key].id), "it is the current one");
                    assert!(model.wake(key, running.is_some()));
                }
            }
            Operation::CancelSelf => {
                if let Some(key) = running {
                    assert_eq!(self.executor.cancel(model.coroutines[key].id, here), model.cancel(key));
                }
            }
            Operation::RunInside => {
                if running.is_some() {
                    assert_eq!(self.executor.run(0, 1), RUN_REFUSED);
                }
            }
        }
    }

    fn step(&self, step: Step) {
        match step {
            Step::Outside(operation) => {
                self.apply(&mut self.world.borrow_mut(), operation, NO_WORKER, None);
            }
            Step::Run { polls, scripts } => {
                self.world.borrow_mut().scripts = scripts.into();
                self.world.borrow_mut().polls = 0;
                let outcome = self.executor.run(0, polls);
                if let Some(failure) = self.failure.borrow_mut().take() {
                    resume_unwind(failure);
                }
                let mut world = self.world.borrow_mut();
                if world.polls == polls {
                    assert_eq!(outcome, RUN_BUDGET_USED);
                } else {
                    assert_eq!(outcome, RUN_STALLED);
                    assert_eq!(world.model.pick(), None, "stalled although something is ready");
                }
                world.model.settle();
                self.compare(&world.model);
            }
        }
    }

    fn compare(&self, model: &Model) {
        assert_eq!(self.state.waiting(), model.bitmap());
        assert_eq!(self.executor.most_urgent(0), model.bitmap().trailing_zeros());
        assert_eq!(self.executor.current(0), 0);
        let live = model.coroutines.iter().filter(|one| one.phase != Phase::Free);
        assert_eq!(self.executor.live_count(), live.clone().count() as u64);
        let mut seen = Vec::new();
        let mut inspection = Inspection { id: 0, phase: 0, priority: 0, worker: 0, cancelled: 0 };
        for index in 1.. {
            match self.executor.inspect(index, &mut inspection) {
                0 => break,
                1 => {}
                _ => seen.push((inspection.id, inspection.phase, inspection.priority)),
            }
        }
        let mut expected: Vec<_> = live.map(|one| (one.id, one.phase as u32, one.priority as u32)).collect();
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected);
    }

    /// Cancels all and sees them dropped.
    fn end(&self) {
        let count = self.world.borrow().model.coroutines.len();
        for key in 0..count {
            self.step(Step::Outside(Operation::Cancel { whom: key }));
        }
        self.step(Step::Run { polls: u64::MAX, scripts: vec![] });
        assert_eq!(self.executor.live_count(), 0);
    }
}

/// Few levels, so that coroutines meet; a few others, so that all are used.
fn priority() -> impl Strategy<Value = u8> {
    prop_oneof![4 => 30u8..34, 1 => 0u8..64]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => priority().prop_map(|priority| Operation::Spawn { priority }),
        5 => any::<usize>().prop_map(|whom| Operation::Wake { whom }),
        1 => any::<usize>().prop_map(|whom| Operation::Cancel { whom }),
        4 => (any::<usize>(), priority()).prop_map(|(whom, priority)| Operation::SetPriority { whom, priority }),
        3 => Just(Operation::WakeSelf),
        1 => Just(Operation::CancelSelf),
        1 => Just(Operation::RunInside),
    ]
}

fn script() -> impl Strategy<Value = Script> {
    (proptest::collection::vec(operation(), 0..5), prop::bool::weighted(0.15))
        .prop_map(|(operations, ready)| Script { operations, ready })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => operation().prop_map(Step::Outside),
        1 => (0u64..12, proptest::collection::vec(script(), 12))
            .prop_map(|(polls, scripts)| Step::Run { polls, scripts }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn one_worker_does_what_the_model_does(steps in proptest::collection::vec(step(), 1..80)) {
        let case = Case::new();
        for step in steps {
            case.step(step);
        }
        case.end();
    }
}
