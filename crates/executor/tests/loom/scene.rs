//! A scene: a few workers, a few tasks that check what is done to them, and the search through all
//! that can happen.

use std::sync::atomic::{AtomicBool as PlainBool, AtomicU32 as Plain, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use cops_executor::core::*;
use loom::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed},
};
use loom::thread;

use crate::common::{Host, require};
use crate::counts;

/// Bounds the search where it is large, in the scenes that are interleaved.
const PREEMPTIONS: usize = 3;
/// Atomics that one execution may use.
const ATOMICS: usize = 600;

/// What a poll does.
#[derive(Clone, Copy, PartialEq)]
pub enum Script {
    /// Ready at once.
    Exit,
    /// Ready once the event has happened.
    Await,
    /// Wakes itself so many times, then ready.
    Yield(u32),
    /// Changes its own priority to one after the other, then requires that its worker publishes
    /// [`LENT`], if that was lent to it before the event. Ready.
    Shows(&'static [u32]),
}

/// The level that is lent to a task which [`Script::Shows`] it.
pub const LENT: u32 = 3;

pub struct Task {
    script: Script,
    /// What a waker writes before it wakes: nothing but the wake orders it.
    pub event: AtomicBool,
    // Bookkeeping, of which the model must know nothing: it would order what the core has to order.
    pub polls: Plain,
    polling: PlainBool,
    pub finished: PlainBool,
    drops: Plain,
    /// `Scene::turns` at the first poll.
    pub first_turn: Plain,
    turns: Arc<Plain>,
    /// The records of the workers, for waking itself.
    states: Vec<Arc<WorkerState>>,
    scene: Weak<Scene>,
}

impl Task {
    /// As `Script::Shows` says. On worker 0.
    fn shows(&self, id: u64, own: &[u32]) {
        if let Some(scene) = self.scene.upgrade() {
            for &level in own {
                require(scene.executor.set_priority(id, level, 0), "it exists");
            }
        }
        if self.event.load(Acquire) {
            let state = &self.states[0];
            let polled = state.current_priority().map_or(0, Priority::bit);
            let shown = Priority::most_urgent_in(state.waiting() | polled);
            let is_shown = shown.is_some_and(|shown| u32::from(shown.level()) <= LENT);
            require(is_shown, "what was lent is published");
        }
    }
}

pub struct Scene {
    pub executor: Executor,
    pub states: Vec<Arc<WorkerState>>,
    tasks: std::sync::Mutex<Vec<Arc<Task>>>,
    pub turns: Arc<Plain>,
    pub host: Box<Host>,
    this: Weak<Scene>,
}

static VTABLE: FutureVTable = FutureVTable { poll, drop, kind: 0 };

loom::thread_local! {
    /// The worker that the thread of the model is.
    static WORKER: std::cell::Cell<usize> = std::cell::Cell::new(0);
}

unsafe extern "C" fn poll(data: *mut (), id: u64) -> bool {
    // SAFETY: the data is from `Scene::task`, and the scene keeps its tasks until its executor has
    // ended.
    let task = unsafe { &*data.cast::<Task>() };
    require(!task.polling.swap(true, SeqCst), "one poll at a time");
    require(!task.finished.load(SeqCst), "no poll after the end");
    require(task.drops.load(SeqCst) == 0, "no poll after the drop");
    if task.polls.fetch_add(1, SeqCst) == 0 {
        task.first_turn.store(task.turns.fetch_add(1, SeqCst), SeqCst);
    }
    let ready = match task.script {
        Script::Exit => true,
        Script::Await => task.event.load(Relaxed),
        Script::Yield(times) if task.polls.load(SeqCst) <= times => {
            let state = &task.states[WORKER.with(std::cell::Cell::get)];
            require(state.wakes_itself(id), "a task that is polled is the current one");
            false
        }
        Script::Yield(_) => true,
        Script::Shows(own) => {
            task.shows(id, own);
            true
        }
    };
    task.finished.store(ready, SeqCst);
    task.polling.store(false, SeqCst);
    ready
}

unsafe extern "C" fn drop(data: *mut ()) {
    // SAFETY: the data is from `Scene::task`, and the scene keeps its tasks until its executor has
    // ended.
    let task = unsafe { &*data.cast::<Task>() };
    require(!task.polling.load(SeqCst), "no drop during a poll");
    require(task.drops.fetch_add(1, SeqCst) == 0, "one drop");
}

impl Scene {
    pub fn new(workers: u32) -> Arc<Scene> {
        begin_model(ATOMICS, is_interleaved());
        let host = Host::new();
        let executor = Executor::new();
        let mut hooks = host.hooks();
        hooks.preempt = None;
        // SAFETY: the scene drops its host after the executor, so the hooks and their context
        // remain valid.
        assert_eq!(unsafe { executor.initialise(1, &hooks) }, STATUS_OK);
        let states: Vec<_> = (0..workers).map(|_| Arc::new(WorkerState::new())).collect();
        for (number, state) in states.iter().enumerate() {
            // SAFETY: the scene keeps the worker's record as long as the executor.
            assert_eq!(unsafe { executor.add_worker(number as u32, &**state) }, STATUS_OK);
        }
        Arc::new_cyclic(|this| Scene {
            this: this.clone(),
            executor,
            states,
            tasks: Default::default(),
            turns: Arc::new(Plain::new(0)),
            host,
        })
    }

    fn task(&self, script: Script) -> Arc<Task> {
        let task = Arc::new(Task {
            script,
            event: AtomicBool::new(false),
            polls: Plain::new(0),
            polling: PlainBool::new(false),
            finished: PlainBool::new(false),
            drops: Plain::new(0),
            first_turn: Plain::new(u32::MAX),
            turns: self.turns.clone(),
            states: self.states.clone(),
            scene: self.this.clone(),
        });
        self.tasks.lock().unwrap().push(task.clone());
        task
    }

    /// Ready on worker 0, at `priority`.
    pub fn spawn(&self, script: Script, priority: u32) -> (Arc<Task>, u64) {
        self.spawn_on(0, script, priority)
    }

    /// Ready on worker `here`, or in an inbox if that is `NO_WORKER`.
    pub fn spawn_on(&self, here: u32, script: Script, priority: u32) -> (Arc<Task>, u64) {
        let task = self.task(script);
        // SAFETY: the scene keeps the task; the table does what it says.
        let id =
            unsafe { self.executor.spawn(Arc::as_ptr(&task) as *mut (), &VTABLE, priority, here) };
        assert!(id >> 32 != 0);
        (task, id)
    }

    /// Blocked; goes to worker 0 when it is woken from outside.
    pub fn spawn_blocked(&self, script: Script) -> (Arc<Task>, u64) {
        let task = self.task(script);
        // SAFETY: the scene keeps the task as long as the executor, and the functions of the table
        // are for tasks.
        let id =
            unsafe { self.executor.spawn_blocked(Arc::as_ptr(&task) as *mut (), &VTABLE, 32, 0) };
        assert!(id >> 32 != 0);
        (task, id)
    }

    /// Runs `worker` on this thread until it has nothing to do.
    pub fn run(&self, worker: u32) {
        self.run_for(worker, u64::MAX);
    }

    /// As `run`, for at most so many polls.
    pub fn run_for(&self, worker: u32, polls: u64) {
        WORKER.with(|current| current.set(worker as usize));
        self.executor.run(worker, polls);
    }

    /// Does something on a second thread.
    pub fn beside<A: 'static>(
        self: &Arc<Scene>,
        act: impl FnOnce(&Scene) -> A + 'static,
    ) -> thread::JoinHandle<A> {
        let scene = self.clone();
        thread::spawn(move || act(&scene))
    }

    /// A coroutine waits for a worker. (The records say too much at times: a mark may come after
    /// what it is for.)
    pub fn has_ready(&self) -> bool {
        let mut seen = RawInspection::default();
        let tasks = self.tasks.lock().unwrap().len() as u32;
        (1..=tasks).any(|index| {
            self.executor.inspect(index, &mut seen) == 2 && seen.phase == Phase::Ready as u32
        })
    }

    /// Lists, inboxes and bitmaps are as they should be. Only while no other thread is at work.
    pub fn is_sound(&self) {
        assert_eq!(self.executor.verify(), Ok(()));
    }

    /// Runs all workers until nothing is left; all have exited, each was dropped once, and nothing
    /// is left anywhere.
    pub fn finish(&self) {
        self.is_sound();
        for _ in 0..2 {
            (0..self.states.len()).for_each(|worker| self.run(worker as u32));
        }
        self.is_over();
    }

    /// All have exited, each was dropped once, and nothing is left anywhere.
    pub fn is_over(&self) {
        assert_eq!(self.executor.live_count(), 0, "a coroutine was lost");
        for task in self.tasks.lock().unwrap().iter() {
            assert_eq!(task.drops.load(SeqCst), 1);
        }
        for state in &self.states {
            assert_eq!(state.waiting(), 0, "something is still shown");
        }
        self.is_sound();
    }
}

std::thread_local! {
    /// For `begin_model`.
    static LATEST: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Which of the two ways this execution is explored in.
pub fn is_interleaved() -> bool {
    LATEST.get()
}

/// Explores a scene in both ways of `begin_model`, and prints how many executions there were.
pub fn explore(scene: impl Fn() + Sync + Send + 'static) {
    explore_bounded(None, PREEMPTIONS, scene);
}

/// As `explore`, for a scene of two workers, with at most three preemptions in both ways.
pub fn explore_pair(scene: impl Fn() + Sync + Send + 'static) {
    explore_bounded(Some(3), 3, scene);
}

/// As `explore`, with these bounds on preemptions, with weakly ordered loads and interleaved.
pub fn explore_bounded(
    weakly: Option<usize>,
    interleaved: usize,
    scene: impl Fn() + Sync + Send + 'static,
) {
    let name = std::thread::current().name().unwrap_or_default().replace("::", "/");
    let scene = Arc::new(scene);
    let mut counted = [0; 2];
    for (way, bound) in [weakly, Some(interleaved)].into_iter().enumerate() {
        LATEST.set(way == 1);
        let executions = Arc::new(Plain::new(0));
        let (counter, scene) = (executions.clone(), scene.clone());
        let mut model = loom::model::Builder::new();
        model.preemption_bound = bound;
        model.max_branches = 20_000;
        model.check(move || {
            counter.fetch_add(1, SeqCst);
            scene();
        });
        counted[way] = executions.load(SeqCst);
    }
    counts::report(&name, counted);
}
