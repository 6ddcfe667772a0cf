//! Worker 0 parks, while another thread makes something ready, moves it, or ends it. A worker that
//! sleeps while work is left for it must have been notified.

use cops_executor::core::NO_WORKER;
use loom::sync::atomic::Ordering::{Relaxed, SeqCst};
use loom::sync::atomic::fence;

use crate::common::Event;
use crate::scene::{Scene, Script, explore_pair};

/// Parks worker 0 if it may, joins the other thread, and fails if worker 0 would sleep though work
/// is left that no other worker does.
fn park_beside(scene: &std::sync::Arc<Scene>, other: loom::thread::JoinHandle<()>) {
    let parks = scene.executor.prepare_park(0) && scene.executor.live_count() != 0;
    // Asleep from here: only a notification ends it.
    other.join().unwrap();
    let notified = scene.host.take_events().contains(&Event::Notify(0));
    let left = scene.executor.live_count() == 0 || scene.has_ready();
    assert!(!parks || notified || !left, "it would sleep for ever");
    scene.executor.finish_park(0);
    scene.is_sound();
}

#[test]
fn park_against_slow_wake() {
    explore_pair(|| {
        let scene = Scene::new(1);
        let (task, id) = scene.spawn_blocked(Script::Await);
        let other = scene.beside(move |scene| {
            task.event.store(true, Relaxed);
            assert!(scene.executor.wake(id, NO_WORKER));
        });
        scene.run(0);
        park_beside(&scene, other);
        scene.finish();
    });
}

/// The waking worker runs what it woke itself.
#[test]
fn park_against_fast_wake() {
    explore_pair(|| {
        let scene = Scene::new(2);
        let (task, id) = scene.spawn_blocked(Script::Await);
        let other = scene.beside(move |scene| {
            task.event.store(true, Relaxed);
            assert!(scene.executor.wake(id, 1));
            scene.run(1);
        });
        park_beside(&scene, other);
        scene.finish();
    });
}

#[test]
fn park_against_cancel() {
    explore_pair(|| {
        let scene = Scene::new(1);
        let (_, id) = scene.spawn_blocked(Script::Await);
        let other = scene.beside(move |scene| assert!(scene.executor.cancel(id, NO_WORKER)));
        scene.run(0);
        park_beside(&scene, other);
        scene.finish();
    });
}

#[test]
fn park_against_spawn() {
    explore_pair(|| {
        let scene = Scene::new(1);
        // Otherwise nothing is alive, and there is nothing to park for.
        let (task, id) = scene.spawn_blocked(Script::Await);
        let other = scene.beside(|scene| drop(scene.spawn_on(NO_WORKER, Script::Exit, 32)));
        scene.run(0);
        park_beside(&scene, other);
        crate::poll_ends::end(&scene, &task, id);
    });
}

/// A worker that waits for all to have exited is notified of the last exit.
#[test]
fn park_against_exit() {
    explore_pair(|| {
        let scene = Scene::new(2);
        scene.spawn_on(1, Script::Exit, 32);
        let other = scene.beside(|scene| scene.run(1));
        park_beside(&scene, other);
        scene.finish();
    });
}

/// What waits may be in the thief's hands: then the thief runs it.
#[test]
fn park_against_steal() {
    explore_pair(|| {
        let scene = Scene::new(2);
        scene.spawn(Script::Exit, 32);
        scene.spawn(Script::Exit, 32);
        let other = scene.beside(|scene| scene.run(1));
        park_beside(&scene, other);
        scene.finish();
    });
}

/// The thief empties the inbox of the worker that parks.
#[test]
fn park_against_drain() {
    explore_pair(|| {
        let scene = Scene::new(2);
        let (task, id) = scene.spawn_blocked(Script::Await);
        task.event.store(true, Relaxed);
        assert!(scene.executor.wake(id, NO_WORKER));
        let other = scene.beside(|scene| scene.run(1));
        park_beside(&scene, other);
        scene.finish();
    });
}

/// A worker does not park while a coroutine that waits elsewhere is moved.
fn park_against_move(lends: bool) {
    explore_pair(move || {
        let scene = Scene::new(2);
        let (_, id) = scene.spawn_on(1, Script::Exit, 32);
        let other = scene.beside(move |scene| {
            let executor = &scene.executor;
            let moves = if lends {
                executor.set_inherited(id, 3, 1)
            } else {
                executor.set_priority(id, 3, 1)
            };
            assert!(moves);
        });
        assert!(!scene.executor.prepare_park(0), "something is ready");
        other.join().unwrap();
        scene.finish();
    });
}

#[test]
fn park_against_set_priority() {
    park_against_move(false);
}

#[test]
fn park_against_inheritance() {
    park_against_move(true);
}

/// Two workers, of which one is to leave.
fn scene_of_leaving() -> std::sync::Arc<Scene> {
    let scene = Scene::new(2);
    scene.executor.rely_on_offers();
    scene
}

/// Worker 0 leaves its work to worker 1, while `other` does something. Fails if work is left that
/// no worker does.
fn leave_beside(scene: &std::sync::Arc<Scene>, other: loom::thread::JoinHandle<()>) {
    let leaves = scene.executor.prepare_leave(0, 1);
    other.join().unwrap();
    let events = scene.host.take_events();
    let sleeps = |worker: u32, parks: bool| parks && !events.contains(&Event::Notify(worker));
    let heir_parks = scene.states[1].phase.load(Relaxed) == 2;
    let all_sleep = sleeps(0, leaves) && sleeps(1, heir_parks);
    assert!(!all_sleep || !scene.has_ready(), "both would sleep for ever");
    if sleeps(0, leaves) && !heir_parks {
        // Without worker 0.
        scene.run(1);
        assert!(!scene.has_ready(), "the heir does not do everything");
    }
    scene.executor.finish_park(0);
    scene.executor.finish_park(1);
    scene.is_sound();
}

/// Worker 0 has a coroutine that is ready, and leaves it to worker 1 while a second thread does
/// `meanwhile`.
fn leave_against(meanwhile: impl Fn(&Scene) + Copy + Send + Sync + 'static) {
    explore_pair(move || {
        let scene = scene_of_leaving();
        scene.spawn(Script::Exit, 32);
        let other = scene.beside(move |scene| meanwhile(scene));
        leave_beside(&scene, other);
        scene.finish();
    });
}

/// The same with a coroutine that waits for its event: `meanwhile` has that happen.
fn leave_against_request(meanwhile: impl Fn(&Scene, u64) + Copy + Send + Sync + 'static) {
    explore_pair(move || {
        let scene = scene_of_leaving();
        let (task, id) = scene.spawn_blocked(Script::Await);
        scene.run(0);
        scene.spawn(Script::Exit, 32);
        let other = scene.beside(move |scene| {
            task.event.store(true, Relaxed);
            meanwhile(scene, id);
        });
        leave_beside(&scene, other);
        scene.finish();
    });
}

/// The heir polls something that goes on, waits, or ends.
fn leave_against_poll(script: Script) {
    explore_pair(move || {
        let scene = scene_of_leaving();
        let (task, id) = scene.spawn_on(1, script, 32);
        scene.spawn(Script::Exit, 32);
        let other = scene.beside(|scene| scene.run_for(1, 1));
        leave_beside(&scene, other);
        crate::poll_ends::end(&scene, &task, id);
    });
}

#[test]
fn leave_against_yield() {
    leave_against_poll(Script::Yield(1));
}

#[test]
fn leave_against_block() {
    leave_against_poll(Script::Await);
}

#[test]
fn leave_against_exit() {
    leave_against_poll(Script::Exit);
}

/// The waking worker is the heir.
#[test]
fn leave_against_fast_wake() {
    leave_against_request(|scene, id| {
        assert!(scene.executor.wake(id, 1));
    });
}

/// What is woken meanwhile goes to the heir, or notifies the worker.
#[test]
fn leave_against_slow_wake() {
    leave_against_request(|scene, id| {
        assert!(scene.executor.wake(id, NO_WORKER));
    });
}

#[test]
fn leave_against_cancel() {
    leave_against_request(|scene, id| {
        assert!(scene.executor.cancel(id, NO_WORKER));
    });
}

/// The heir empties the inbox of the worker that leaves.
#[test]
fn leave_against_drain() {
    explore_pair(|| {
        let scene = scene_of_leaving();
        let (task, id) = scene.spawn_blocked(Script::Await);
        task.event.store(true, Relaxed);
        assert!(scene.executor.wake(id, NO_WORKER));
        let other = scene.beside(|scene| scene.run(1));
        leave_beside(&scene, other);
        scene.finish();
    });
}

/// What waits gets another level on the way.
fn leave_against_move(moves: impl Fn(&Scene, u64) -> bool + Copy + Send + Sync + 'static) {
    explore_pair(move || {
        let scene = scene_of_leaving();
        let (_, id) = scene.spawn(Script::Exit, 32);
        let other = scene.beside(move |scene| {
            // It may have been polled by then.
            let _ = moves(scene, id);
        });
        leave_beside(&scene, other);
        scene.finish();
    });
}

#[test]
fn leave_against_set_priority() {
    leave_against_move(|scene, id| scene.executor.set_priority(id, 3, NO_WORKER));
}

#[test]
fn leave_against_inheritance() {
    leave_against_move(|scene, id| scene.executor.set_inherited(id, 3, NO_WORKER));
}

/// The heir steals what it is about to get.
#[test]
fn leave_against_steal() {
    leave_against(|scene| scene.run(1));
}

/// The heir parks: it sees what it gets, or is notified. It is worker 0, which looks at itself
/// first, and then at the worker that leaves.
#[test]
fn leave_against_park() {
    explore_pair(|| {
        let scene = scene_of_leaving();
        scene.spawn_on(1, Script::Exit, 32);
        let other = scene.beside(|scene| scene.executor.prepare_leave(1, 0));
        let parks = scene.executor.prepare_park(0);
        let leaves = other.join().unwrap();
        let is_notified = !scene.host.take_events().is_empty();
        let all_sleep = parks && leaves && !is_notified;
        assert!(!all_sleep || !scene.has_ready(), "both would sleep for ever");
        scene.executor.finish_park(0);
        scene.executor.finish_park(1);
        scene.finish();
    });
}

#[test]
fn leave_against_spawn() {
    leave_against(|scene| drop(scene.spawn_on(NO_WORKER, Script::Exit, 32)));
}

/// Each leaves its work to the other one: the host lets one of them sleep at most.
#[test]
fn leave_against_leave() {
    leave_against(|scene| {
        scene.spawn_on(1, Script::Exit, 32);
        if scene.executor.prepare_leave(1, 0) {
            scene.executor.finish_park(1);
        }
    });
}

/// Either worker finds the other's work, or is notified.
#[test]
fn park_against_park() {
    explore_pair(|| {
        let scene = Scene::new(2);
        let (task, id) = scene.spawn_blocked(Script::Await);
        let other = scene.beside(move |scene| {
            task.event.store(true, Relaxed);
            assert!(scene.executor.wake(id, NO_WORKER));
            let _ = scene.executor.prepare_park(1);
        });
        let _ = scene.executor.prepare_park(0);
        other.join().unwrap();
        let events = scene.host.take_events();
        let asleep = [0, 1].map(|worker| scene.states[worker].phase.load(Relaxed) == 2);
        let told = !events.is_empty();
        assert!(told || asleep != [true, true], "both would sleep for ever");
        scene.executor.finish_park(0);
        scene.executor.finish_park(1);
        scene.finish();
    });
}

/// Worker 0 stops running, and offers what it leaves; worker 1 is parked. What a thread that is no
/// worker makes ready meanwhile, one of them does.
#[test]
fn stopping_against_slow_wake() {
    explore_pair(|| {
        let scene = scene_of_leaving();
        let (task, id) = scene.spawn_blocked(Script::Await);
        assert!(scene.executor.prepare_park(1));
        let other = scene.beside(move |scene| {
            task.event.store(true, Relaxed);
            assert!(scene.executor.wake(id, NO_WORKER));
        });
        scene.run(0);
        fence(SeqCst);
        scene.executor.offer(NO_WORKER);
        other.join().unwrap();
        let notified = scene.host.take_events().contains(&Event::Notify(1));
        assert!(notified || !scene.has_ready(), "it is left alone");
        scene.executor.finish_park(1);
        scene.finish();
    });
}
