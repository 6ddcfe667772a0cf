//! What wakes a parked worker, under the model checker: what becomes ready inside a poll, which may
//! never end as far as the core knows, against workers that go to sleep and wake up (`core::park`).
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p cops-executor --test loom_idle`
//!
//! Worker 0 is in a poll all the time. At the end of each scene nothing may wait while a worker is
//! parked that was not notified.
#![cfg(loom)]
#![allow(unsafe_code)]

mod common;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32 as Plain, Ordering::SeqCst};

use common::{Event, Host};
use cops_executor::core::*;
use loom::thread;

/// Bounds the search in the scenes that are interleaved.
const PREEMPTIONS: usize = 3;
/// Bounds it where loads are weakly ordered.
const WEAKLY_PREEMPTIONS: usize = 2;
/// Atomics that one execution may use.
const ATOMICS: usize = 500;
const LEVEL: u32 = 32;

type Body = Box<dyn Fn(&Arc<Scene>)>;

struct Scene {
    executor: Executor,
    states: Vec<WorkerState>,
    host: Box<Host>,
    polls: Plain,
}

/// A coroutine that does something in its only poll, and is ready.
struct Task {
    scene: *const Scene,
    body: Option<(Arc<Scene>, Body)>,
}

static VTABLE: FutureVTable = FutureVTable { poll, drop, kind: 0 };

unsafe extern "C" fn poll(data: *mut (), _id: u64) -> bool {
    // SAFETY: `spawn` leaked it, and the scene lives as long as the model's execution.
    let task = unsafe { &*data.cast::<Task>() };
    if let Some((scene, body)) = &task.body {
        body(scene);
    }
    // SAFETY: the scene lives as long as the model's execution, and the task has a pointer to it.
    unsafe { &*task.scene }.polls.fetch_add(1, SeqCst);
    true
}

unsafe extern "C" fn drop(data: *mut ()) {
    // SAFETY: the data is a leaked box from `task`, and the executor drops each coroutine once.
    std::mem::drop(unsafe { Box::from_raw(data.cast::<Task>()) });
}

impl Scene {
    fn new(workers: u32) -> Arc<Scene> {
        begin_model(ATOMICS, LATEST.get());
        let host = Host::new();
        let hooks = Hooks { preempt: None, ..host.hooks() };
        let states = (0..workers).map(|_| WorkerState::new()).collect();
        let scene =
            Arc::new(Scene { executor: Executor::new(), states, host, polls: Plain::new(0) });
        // SAFETY: the host and the records go with the scene.
        unsafe {
            assert_eq!(scene.executor.initialise(1, &hooks), STATUS_OK);
            for (number, state) in scene.states.iter().enumerate() {
                assert_eq!(scene.executor.add_worker(number as u32, state), STATUS_OK);
            }
        }
        scene
    }

    fn task(self: &Arc<Scene>, body: Option<Body>) -> *mut () {
        let body = body.map(|body| (self.clone(), body));
        Box::into_raw(Box::new(Task { scene: Arc::as_ptr(self), body })).cast()
    }

    /// Blocked; it does nothing when it is polled.
    fn sleeper(self: &Arc<Scene>) -> u64 {
        // SAFETY: the data is from `task`, and the functions of the table are for such tasks.
        unsafe { self.executor.spawn_blocked(self.task(None), &VTABLE, LEVEL, 0) }
    }

    /// Has worker 0 do this inside a poll.
    fn inside_a_poll(self: &Arc<Scene>, body: impl Fn(&Arc<Scene>) + 'static) {
        // SAFETY: the data is from `task`, and the functions of the table are for such tasks.
        unsafe { self.executor.spawn(self.task(Some(Box::new(body))), &VTABLE, LEVEL, 0) };
        assert_eq!(self.executor.run(0, 1), RUN_BUDGET_USED);
    }

    fn something_waits(&self) -> bool {
        self.states.iter().any(|state| state.waiting() != 0)
    }

    fn was_notified(&self, worker: u32) -> bool {
        self.host.take_events().contains(&Event::Notify(worker))
    }

    /// Lets all that is left exit.
    fn end(&self) {
        (0..self.states.len() as u32).for_each(|worker| {
            self.executor.run(worker, u64::MAX);
        });
        assert_eq!(self.executor.live_count(), 0);
    }
}

std::thread_local! {
    /// For `begin_model`.
    static LATEST: Cell<bool> = const { Cell::new(false) };
}

/// Explores a scene in both ways of `begin_model`, and prints how many executions there were.
fn explore(name: &str, scene: impl Fn() + Sync + Send + 'static) {
    let scene = Arc::new(scene);
    for (latest, way) in [(false, "weakly ordered"), (true, "interleaved")] {
        LATEST.set(latest);
        let executions = Arc::new(Plain::new(0));
        let (counted, scene) = (executions.clone(), scene.clone());
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(if latest { PREEMPTIONS } else { WEAKLY_PREEMPTIONS });
        model.max_branches = 20_000;
        model.check(move || {
            counted.fetch_add(1, SeqCst);
            scene();
        });
        println!("{name}, {way}: {} executions", executions.load(SeqCst));
    }
}

#[test]
fn wake_in_a_poll_against_parking() {
    explore("wake in a poll against parking", || {
        let scene = Scene::new(2);
        let id = scene.sleeper();
        scene.inside_a_poll(move |scene| {
            let other = scene.clone();
            let parking = thread::spawn(move || other.executor.prepare_park(1));
            assert!(scene.executor.wake(id, 0));
            let parks = parking.join().unwrap();
            assert!(!parks || scene.was_notified(1), "it sleeps while something waits");
        });
        scene.executor.finish_park(1);
        scene.end();
    });
}

#[test]
fn spawn_in_a_poll_against_parking() {
    explore("spawn in a poll against parking", || {
        let scene = Scene::new(2);
        scene.inside_a_poll(|scene| {
            let other = scene.clone();
            let parking = thread::spawn(move || other.executor.prepare_park(1));
            // SAFETY: the data is from `task`, and the functions of the table are for such tasks.
            unsafe { scene.executor.spawn(scene.task(None), &VTABLE, LEVEL, 0) };
            let parks = parking.join().unwrap();
            assert!(!parks || scene.was_notified(1), "it sleeps while something waits");
        });
        scene.executor.finish_park(1);
        scene.end();
    });
}

/// Worker 1 was notified and wakes up; it takes one. What else becomes ready meanwhile notifies
/// worker 2, or none.
#[test]
fn a_second_wake_against_a_searcher() {
    explore("a second wake against a searcher", || {
        let scene = Scene::new(3);
        let (one, two) = (scene.sleeper(), scene.sleeper());
        scene.inside_a_poll(move |scene| {
            assert!(scene.executor.prepare_park(1) && scene.executor.prepare_park(2));
            assert!(scene.executor.wake(one, 0));
            assert!(scene.was_notified(1));
            let other = scene.clone();
            let searching = thread::spawn(move || {
                other.executor.finish_park(1);
                other.executor.run(1, 1);
            });
            assert!(scene.executor.wake(two, 0));
            searching.join().unwrap();
            // Worker 1 may have had both: then it is not in a poll, and goes on.
            let is_left = scene.something_waits() && scene.polls.load(SeqCst) == 1;
            assert!(!is_left || scene.was_notified(2), "worker 2 sleeps while something waits");
        });
        scene.executor.finish_park(2);
        scene.end();
    });
}

/// Worker 1 was notified, finds nothing, and goes back to sleep; meanwhile something becomes ready.
#[test]
fn a_wake_against_a_searcher_that_parks_again() {
    explore("a wake against a searcher that parks again", || {
        let scene = Scene::new(2);
        let (one, two) = (scene.sleeper(), scene.sleeper());
        scene.inside_a_poll(move |scene| {
            assert!(scene.executor.prepare_park(1));
            assert!(scene.executor.wake(one, 0));
            assert!(scene.was_notified(1));
            let other = scene.clone();
            let searching = thread::spawn(move || {
                other.executor.finish_park(1);
                // It takes what there is.
                other.executor.run(1, u64::MAX);
                other.executor.prepare_park(1)
            });
            assert!(scene.executor.wake(two, 0));
            let parks = searching.join().unwrap();
            let sleeps = parks && !scene.was_notified(1);
            assert!(!sleeps || !scene.something_waits(), "it sleeps while something waits");
        });
        scene.executor.finish_park(1);
        scene.end();
    });
}
