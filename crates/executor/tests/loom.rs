//! The core under the model checker: every interleaving, and every value that a weakly ordered load may see, of a
//! few threads.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p cops-executor --test loom`
//!
//! Each model is a small scene on the shipped core: a worker that runs, and threads that wake, cancel, and so on.
//! A task stops the run if it is polled by two at once, after its end, or dropped twice; a lost wake shows as a
//! coroutine that is left over, or a worker that sleeps for ever, which loom calls a deadlock.
#![cfg(loom)]
#![allow(unsafe_code)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool as PlainBool, AtomicU32 as Plain, Ordering::SeqCst};

use common::Host;
use cops_executor::core::*;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::thread;

/// Bounds the search where it is large, in the scenes that are interleaved.
const PREEMPTIONS: usize = 3;
/// Atomics that one execution may use.
const ATOMICS: usize = 400;

/// What a poll does.
#[derive(Clone, Copy, PartialEq)]
enum Script {
    /// Ready at once.
    Exit,
    /// Ready once the event has happened.
    Await,
    /// Wakes itself so many times, then ready.
    Yield(u32),
}

struct Task {
    script: Script,
    /// What a waker writes before it wakes: nothing but the wake orders it.
    event: AtomicBool,
    // Bookkeeping, of which the model must know nothing: it would order what the core has to order.
    polls: Plain,
    polling: PlainBool,
    finished: PlainBool,
    drops: Plain,
    /// `Scene::turn` at the first poll.
    first_turn: Plain,
    turns: Arc<Plain>,
    /// The record of worker 0, for waking itself.
    state: Arc<WorkerState>,
}

struct Scene {
    executor: Executor,
    states: Vec<Arc<WorkerState>>,
    tasks: std::sync::Mutex<Vec<Arc<Task>>>,
    turns: Arc<Plain>,
    _host: Box<Host>,
}

static VTABLE: FutureVTable = FutureVTable { poll, drop };

unsafe extern "C" fn poll(data: *mut (), id: u64) -> bool {
    // SAFETY: `Scene` keeps its tasks.
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
            require(task.state.wakes_itself(id), "a task that is polled is the current one");
            false
        }
        Script::Yield(_) => true,
    };
    task.finished.store(ready, SeqCst);
    task.polling.store(false, SeqCst);
    ready
}

unsafe extern "C" fn drop(data: *mut ()) {
    // SAFETY: as above.
    let task = unsafe { &*data.cast::<Task>() };
    require(!task.polling.load(SeqCst), "no drop during a poll");
    require(task.drops.fetch_add(1, SeqCst) == 0, "one drop");
}

/// A panic cannot leave a poll: end the process.
fn require(holds: bool, rule: &str) {
    if !holds {
        eprintln!("broken: {rule}");
        std::process::abort();
    }
}

impl Scene {
    fn new(workers: u32) -> Arc<Scene> {
        begin_model(ATOMICS, LATEST.get());
        let host = Host::new();
        let executor = Executor::new();
        let mut hooks = host.hooks();
        hooks.preempt = None;
        // SAFETY: the host outlives the executor.
        assert_eq!(unsafe { executor.initialise(1, &hooks) }, STATUS_OK);
        let states: Vec<_> = (0..workers).map(|_| Arc::new(WorkerState::new())).collect();
        for (number, state) in states.iter().enumerate() {
            // SAFETY: the scene keeps the record.
            assert_eq!(unsafe { executor.add_worker(number as u32, &**state) }, STATUS_OK);
        }
        Arc::new(Scene {
            executor,
            states,
            tasks: Default::default(),
            turns: Arc::new(Plain::new(0)),
            _host: host,
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
            state: self.states[0].clone(),
        });
        self.tasks.lock().unwrap().push(task.clone());
        task
    }

    /// READY on worker 0, at `priority`.
    fn spawn(&self, script: Script, priority: u32) -> (Arc<Task>, u64) {
        let task = self.task(script);
        // SAFETY: the scene keeps the task; the table does what it says.
        let id = unsafe { self.executor.spawn(Arc::as_ptr(&task) as *mut (), &VTABLE, priority, 0) };
        assert!(id >> 32 != 0);
        (task, id)
    }

    /// Blocked; goes to worker 0 when it is woken from outside.
    fn spawn_blocked(&self, script: Script) -> (Arc<Task>, u64) {
        let task = self.task(script);
        // SAFETY: as above.
        let id = unsafe { self.executor.spawn_blocked(Arc::as_ptr(&task) as *mut (), &VTABLE, 32, 0) };
        assert!(id >> 32 != 0);
        (task, id)
    }

    fn run(&self, worker: u32) {
        self.executor.run(worker, u64::MAX);
    }

    /// All have exited, each was dropped once, and nothing is left anywhere.
    fn is_over(&self) {
        assert_eq!(self.executor.live_count(), 0, "somebody was lost");
        for task in self.tasks.lock().unwrap().iter() {
            assert_eq!(task.drops.load(SeqCst), 1);
        }
        for state in &self.states {
            assert_eq!(state.waiting(), 0, "something is still shown");
        }
    }
}

std::thread_local! {
    /// For `begin_model`.
    static LATEST: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Explores a scene in both ways of `begin_model`, and prints how many executions there were.
fn explore(name: &str, scene: impl Fn() + Sync + Send + 'static) {
    explore_bounded(name, None, scene);
}

/// As `explore`, with a bound on preemptions with weakly ordered loads too.
fn explore_bounded(name: &str, weakly: Option<usize>, scene: impl Fn() + Sync + Send + 'static) {
    let scene = Arc::new(scene);
    for (latest, way) in [(false, "weakly ordered"), (true, "interleaved")] {
        LATEST.set(latest);
        let executions = Arc::new(Plain::new(0));
        let (counted, scene) = (executions.clone(), scene.clone());
        let mut model = loom::model::Builder::new();
        model.preemption_bound = if latest { Some(PREEMPTIONS) } else { weakly };
        model.max_branches = 20_000;
        model.check(move || {
            counted.fetch_add(1, SeqCst);
            scene();
        });
        println!("{name}, {way}: {} executions", executions.load(SeqCst));
    }
}

#[test]
fn wake_against_poll() {
    explore("wake against poll", || {
        let scene = Scene::new(1);
        let (task, id) = scene.spawn(Script::Await, 32);
        let other = scene.clone();
        let waker = thread::spawn(move || {
            task.event.store(true, Relaxed);
            // It may have seen the event, and be gone.
            other.executor.wake(id, NO_WORKER);
        });
        scene.run(0);
        waker.join().unwrap();
        scene.run(0);
        scene.is_over();
    });
}

#[test]
fn wake_against_exit_and_reuse_of_the_slot() {
    explore("wake against exit and reuse", || {
        let scene = Scene::new(1);
        let (_, id) = scene.spawn(Script::Exit, 32);
        let other = scene.clone();
        let waker = thread::spawn(move || {
            other.executor.wake(id, NO_WORKER);
        });
        scene.run(0);
        // In the same slot, unless an inbox holds that; whoever is in it must not get the stranger's wake.
        let (tenant, tenant_id) = scene.spawn_blocked(Script::Exit);
        scene.run(0);
        waker.join().unwrap();
        scene.run(0);
        assert_eq!(tenant.polls.load(SeqCst), 0, "woken by a stranger");
        assert!(scene.executor.wake(tenant_id, NO_WORKER));
        scene.run(0);
        scene.is_over();
    });
}

#[test]
fn cancel_against_poll() {
    explore("cancel against poll", || {
        let scene = Scene::new(1);
        let (task, id) = scene.spawn(Script::Await, 32);
        let other = scene.clone();
        let canceller = thread::spawn(move || assert!(other.executor.cancel(id, NO_WORKER)));
        scene.run(0);
        canceller.join().unwrap();
        scene.run(0);
        assert!(!task.finished.load(SeqCst));
        scene.is_over();
    });
}

#[test]
fn cancel_against_yield_in_turn() {
    explore("cancel against yield in turn", || {
        let scene = Scene::new(1);
        let (task, id) = scene.spawn(Script::Yield(2), 32);
        let (neighbour, _) = scene.spawn(Script::Yield(1), 32);
        let (other, cancelled) = (scene.clone(), task.clone());
        let canceller = thread::spawn(move || {
            let done = other.executor.cancel(id, NO_WORKER);
            (done, cancelled.polls.load(SeqCst))
        });
        scene.run(0);
        let (done, polls) = canceller.join().unwrap();
        scene.run(0);
        // The bookkeeping is ahead of what weakly ordered loads may see: then only `join` tells the worker.
        let late = !LATEST.get() || task.polls.load(SeqCst) <= polls + 1;
        assert!(!done || late, "polled again after it was cancelled");
        assert_eq!(neighbour.polls.load(SeqCst), 2);
        scene.is_over();
    });
}

#[test]
fn set_priority_against_pop() {
    explore_bounded("set_priority against pop", Some(2), || {
        let scene = Scene::new(1);
        let (first, _) = scene.spawn(Script::Yield(1), 32);
        scene.spawn(Script::Exit, 32);
        let (last, id) = scene.spawn(Script::Exit, 32);
        let other = scene.clone();
        let changer = thread::spawn(move || {
            let done = other.executor.set_priority(id, 3, NO_WORKER);
            (done, other.turns.load(SeqCst))
        });
        scene.run(0);
        let (done, turns) = changer.join().unwrap();
        scene.run(0);
        // One other may have been popped, and not begun.
        assert!(!done || last.first_turn.load(SeqCst) <= turns + 1, "the more urgent first");
        assert_eq!((first.polls.load(SeqCst), last.polls.load(SeqCst)), (2, 1));
        scene.is_over();
    });
}

#[test]
fn two_pushes_against_draining() {
    explore("two pushes against draining", || {
        let scene = Scene::new(1);
        let (_, one) = scene.spawn_blocked(Script::Exit);
        let (_, two) = scene.spawn_blocked(Script::Exit);
        let wakers = [one, two].map(|id| {
            let other = scene.clone();
            thread::spawn(move || assert!(other.executor.wake(id, NO_WORKER)))
        });
        scene.run(0);
        for waker in wakers {
            waker.join().unwrap();
        }
        scene.run(0);
        scene.is_over();
    });
}

#[test]
fn park_against_wake() {
    explore("park against wake", || {
        let scene = Scene::new(1);
        let (task, id) = scene.spawn_blocked(Script::Await);
        let other = scene.clone();
        let waker = thread::spawn(move || {
            task.event.store(true, Relaxed);
            assert!(other.executor.wake(id, NO_WORKER));
            // `notify` was called within `wake`, if at all.
            !other._host.take_events().is_empty()
        });
        scene.run(0);
        let parks = scene.executor.live_count() != 0 && scene.executor.prepare_park(0);
        // Asleep from here: only a notification ends it.
        let notified = waker.join().unwrap();
        assert!(!parks || notified, "it would sleep for ever");
        scene.executor.finish_park(0);
        scene.run(0);
        scene.is_over();
    });
}

#[test]
fn pop_against_steal() {
    explore_bounded("pop against steal", Some(2), || {
        let scene = Scene::new(2);
        scene.spawn(Script::Exit, 32);
        scene.spawn(Script::Exit, 20);
        let other = scene.clone();
        let thief = thread::spawn(move || other.run(1));
        scene.run(0);
        thief.join().unwrap();
        scene.run(0);
        scene.is_over();
    });
}

#[test]
fn set_priority_against_exit_and_reuse_of_the_slot() {
    explore("set_priority against exit and reuse", || {
        let scene = Scene::new(1);
        let (_, id) = scene.spawn(Script::Exit, 32);
        let other = scene.clone();
        let changer = thread::spawn(move || {
            other.executor.set_priority(id, 3, NO_WORKER);
        });
        scene.run(0);
        changer.join().unwrap();
        scene.run(0);
        // The request may have been in the inbox when its coroutine had gone: the slot must be free once, not twice.
        let (_, one) = scene.spawn(Script::Yield(1), 32);
        let (_, two) = scene.spawn(Script::Yield(1), 32);
        assert_ne!(one as u32, two as u32, "two in one slot");
        scene.run(0);
        scene.is_over();
    });
}
