//! Plays a history on the core and on the model, and compares: the order of polls and drops, every
//! answer, every phase.
#![allow(unsafe_code)]

use std::any::Any;
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use cops_executor::WorkerState;
use cops_executor::core::{
    Executor, FutureVTable, NO_WORKER, RUN_BUDGET_USED, RUN_REFUSED, RUN_STALLED,
    RUN_STOP_REQUESTED, RawInspection, STATUS_OK,
};

use super::exact::Exact;
use super::model::{Model, Phase};
use super::several::Several;
use super::{History, Operation, Script, Step};
use crate::common::Host;

/// Runs in runs: an operation of a poll may run another worker.
const DEPTH: usize = 3;

/// Plays it, then cancels all that is left and sees it dropped.
///
/// # Panics
///
/// If core and model differ.
pub fn play(history: History) {
    let case = Case::new(history.workers);
    for step in history.steps {
        case.step(step);
    }
    case.end();
}

struct Case {
    executor: Executor,
    states: Vec<WorkerState>,
    world: RefCell<World>,
    host: Box<Host>,
    /// The first assertion that failed inside a poll, which must not unwind through the core.
    failure: RefCell<Option<Box<dyn Any + Send>>>,
    stopped: Cell<bool>,
}

struct World {
    model: Box<dyn Model>,
    scripts: VecDeque<Script>,
    /// The runs that are going on, innermost last.
    runs: Vec<Run>,
}

struct Run {
    worker: usize,
    polls: u64,
    /// The key that must be dropped next, because it finished or was cancelled.
    dropping: Option<usize>,
}

/// What `data` of a coroutine points to.
struct Coroutine {
    case: *const Case,
    key: usize,
}

static VTABLE: FutureVTable = FutureVTable { poll, drop, kind: 0 };

unsafe extern "C" fn poll(data: *mut (), id: u64) -> bool {
    // SAFETY: `Case::spawn` made it, and the case outlives its executor.
    let (case, key) =
        unsafe { (&*(*data.cast::<Coroutine>()).case, (*data.cast::<Coroutine>()).key) };
    case.guard(|| case.on_poll(key, id)).unwrap_or(true)
}

unsafe extern "C" fn drop(data: *mut ()) {
    // SAFETY: `Case::spawn` boxed it, and the core drops each coroutine once; a second time would
    // be a use after free, which Miri reports.
    let coroutine = unsafe { Box::from_raw(data.cast::<Coroutine>()) };
    // SAFETY: the case outlives its executor, which calls this.
    let case = unsafe { &*coroutine.case };
    case.guard(|| case.on_drop(coroutine.key));
}

impl Case {
    fn new(workers: usize) -> Box<Case> {
        let model: Box<dyn Model> =
            if workers == 1 { Box::new(Exact::new()) } else { Box::new(Several::default()) };
        let case = Box::new(Case {
            executor: Executor::new(),
            states: (0..workers).map(|_| WorkerState::new()).collect(),
            world: RefCell::new(World { model, scripts: VecDeque::new(), runs: Vec::new() }),
            host: Host::new(),
            failure: RefCell::new(None),
            stopped: Cell::new(false),
        });
        // SAFETY: the host's hooks do what they should, and the states live as long as the
        // executor.
        unsafe {
            assert_eq!(case.executor.initialise(9, &case.host.hooks()), STATUS_OK);
            for (worker, state) in case.states.iter().enumerate() {
                assert_eq!(case.executor.add_worker(worker as u32, state), STATUS_OK);
            }
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

    fn model(&self) -> RefMut<'_, dyn Model> {
        RefMut::map(self.world.borrow_mut(), |world| &mut *world.model)
    }

    fn on_poll(&self, key: usize, id: u64) -> bool {
        let (worker, script) = {
            let mut world = self.world.borrow_mut();
            let world = &mut *world;
            let run = world.runs.last_mut().unwrap();
            assert_eq!(run.dropping, None, "a drop is due");
            run.polls += 1;
            let worker = run.worker;
            world.model.begin(key, worker);
            let modelled = world.model.one(key);
            assert!(!modelled.cancelled, "a cancelled coroutine is not polled");
            assert_eq!((modelled.id, self.executor.current(worker as u32)), (id, id));
            let shown = self.states[worker].current_priority().map(|priority| priority.level());
            assert_eq!(shown, Some(modelled.priority));
            (
                worker,
                world.scripts.pop_front().unwrap_or(Script { operations: vec![], ready: true }),
            )
        };
        for operation in script.operations {
            self.apply(operation, Some((worker, key)));
        }
        let mut world = self.world.borrow_mut();
        if script.ready || world.model.one(key).cancelled {
            world.runs.last_mut().unwrap().dropping = Some(key);
        } else {
            world.model.pause(key);
        }
        script.ready
    }

    fn on_drop(&self, key: usize) {
        let mut world = self.world.borrow_mut();
        let world = &mut *world;
        let run = world.runs.last_mut().unwrap();
        match run.dropping.take() {
            Some(due) => assert_eq!(due, key, "another coroutine is dropped"),
            None => {
                world.model.begin(key, run.worker);
                assert!(world.model.one(key).cancelled, "dropped unpolled");
                run.polls += 1;
            }
        }
        world.model.end(key);
    }

    /// `running`: the worker, and the coroutine in a poll of which this is.
    fn apply(&self, operation: Operation, running: Option<(usize, usize)>) {
        let here = running.map(|(worker, _)| worker);
        let here_number = here.map_or(NO_WORKER, |worker| worker as u32);
        let choose = |whom: usize| {
            let count = self.model().all().len();
            let key = whom.checked_rem(count)?;
            Some((key, self.model().one(key).id))
        };
        match operation {
            Operation::Spawn { priority } => self.spawn(priority, false, here),
            Operation::SpawnBlocked { priority } => self.spawn(priority, true, here),
            Operation::Wake { whom } => {
                if let Some((key, id)) = choose(whom) {
                    assert_eq!(self.executor.wake(id, here_number), self.model().wake(key, here));
                }
            }
            Operation::Cancel { whom } => {
                if let Some((key, id)) = choose(whom) {
                    assert_eq!(
                        self.executor.cancel(id, here_number),
                        self.model().cancel(key, here)
                    );
                }
            }
            Operation::SetPriority { whom, priority } => {
                if let Some((key, id)) = choose(whom) {
                    let answer = self.executor.set_priority(id, priority as u32, here_number);
                    assert_eq!(answer, self.model().set_priority(key, priority));
                    let priority = if answer { priority as u32 } else { 64 };
                    assert_eq!(self.executor.priority(id), priority);
                }
            }
            Operation::WakeSelf => {
                if let Some((worker, key)) = running {
                    // `Wake` takes the other way for itself too.
                    let id = self.model().one(key).id;
                    assert!(self.states[worker].wakes_itself(id), "it is the current one");
                    assert!(self.model().wake(key, here));
                }
            }
            Operation::CancelSelf => {
                if let Some((_, key)) = running {
                    let id = self.model().one(key).id;
                    assert_eq!(
                        self.executor.cancel(id, here_number),
                        self.model().cancel(key, here)
                    );
                }
            }
            Operation::RunInside { worker, polls } => {
                let depth = self.world.borrow().runs.len();
                if running.is_some() && depth < DEPTH {
                    self.run(worker % self.states.len(), polls);
                }
            }
            Operation::Park { worker } => {
                let worker = (worker % self.states.len()) as u32;
                if self.executor.prepare_park(worker) {
                    self.executor.finish_park(worker);
                    let ready = self.model().all().iter().any(|one| one.phase == Phase::Ready);
                    assert!(!ready, "worker {worker} may park although something is ready");
                    assert!(
                        !self.stopped.get(),
                        "worker {worker} may park although all shall stop"
                    );
                }
            }
            Operation::Stop => {
                if running.is_some() {
                    self.executor.request_stop(true);
                    self.stopped.set(true);
                }
            }
        }
    }

    fn spawn(&self, priority: u8, blocked: bool, here: Option<usize>) {
        let key = self.model().all().len();
        let data = Box::into_raw(Box::new(Coroutine { case: self, key })).cast();
        let here_number = here.map_or(NO_WORKER, |worker| worker as u32);
        // SAFETY: the data is a boxed `Coroutine`, for which the functions of the table above are
        // written.
        let id = unsafe {
            if blocked {
                self.executor.spawn_blocked(data, &VTABLE, priority as u32, here_number)
            } else {
                self.executor.spawn(data, &VTABLE, priority as u32, here_number)
            }
        };
        assert!(id >> 32 != 0, "there is memory");
        assert!(self.model().all().iter().all(|other| other.id != id), "ids are never used twice");
        self.model().spawn(id, priority, blocked, here);
    }

    fn step(&self, step: Step) {
        match step {
            Step::Outside(operation) => self.apply(operation, None),
            Step::Run { worker, polls, scripts } => {
                self.world.borrow_mut().scripts = scripts.into();
                self.run(worker % self.states.len(), polls);
                if self.stopped.take() {
                    self.executor.request_stop(false);
                }
                self.compare();
            }
        }
    }

    fn run(&self, worker: usize, polls: u64) {
        let is_in_a_poll = self.world.borrow().runs.iter().any(|run| run.worker == worker);
        if is_in_a_poll {
            assert_eq!(self.executor.run(worker as u32, polls), RUN_REFUSED);
            return;
        }
        self.world.borrow_mut().runs.push(Run { worker, polls: 0, dropping: None });
        let outcome = self.executor.run(worker as u32, polls);
        let run = self.world.borrow_mut().runs.pop().unwrap();
        if let Some(failure) = self.failure.borrow_mut().take() {
            resume_unwind(failure);
        }
        assert_eq!(run.dropping, None, "a drop was due");
        let expected = if run.polls == polls {
            RUN_BUDGET_USED
        } else if self.stopped.get() {
            RUN_STOP_REQUESTED
        } else {
            RUN_STALLED
        };
        assert_eq!(outcome, expected);
        self.model().finish_run(outcome == RUN_STALLED);
    }

    /// All that can be seen from outside.
    fn compare(&self) {
        let model = self.model();
        let waiting = self.states.iter().fold(0, |levels, state| levels | state.waiting());
        let expected = model.bitmap();
        if self.states.len() == 1 {
            assert_eq!(waiting, expected, "the levels that are shown");
            assert_eq!(self.executor.most_urgent(0), expected.trailing_zeros());
        } else {
            // A worker that has not run since may show a level that a coroutine had before it was
            // moved.
            assert_eq!(expected & !waiting, 0, "a level at which something waits is not shown");
        }
        for worker in 0..self.states.len() {
            assert_eq!(self.executor.current(worker as u32), 0);
        }
        let live = model.all().iter().filter(|one| one.phase != Phase::Free);
        assert_eq!(self.executor.live_count(), live.clone().count() as u64);
        let mut seen = Vec::new();
        let mut inspection = RawInspection::default();
        for index in 1.. {
            match self.executor.inspect(index, &mut inspection) {
                0 => break,
                1 => {}
                _ => seen.push((inspection.id, inspection.phase, inspection.priority)),
            }
        }
        let mut expected: Vec<_> =
            live.map(|one| (one.id, one.phase as u32, one.priority as u32)).collect();
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected);
    }

    /// Cancels all and sees them dropped.
    fn end(&self) {
        let count = self.model().all().len();
        for key in 0..count {
            self.step(Step::Outside(Operation::Cancel { whom: key }));
        }
        self.step(Step::Run { worker: 0, polls: u64::MAX, scripts: vec![] });
        assert_eq!(self.executor.live_count(), 0);
        assert!(self.executor.prepare_park(0), "nothing is left");
        self.executor.finish_park(0);
    }
}
