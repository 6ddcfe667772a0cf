//! Scenes in which it matters what is polled when, and by which wake.

use std::sync::atomic::Ordering::SeqCst;

use cops_executor::core::NO_WORKER;
use loom::sync::atomic::Ordering::{Relaxed, Release};
use loom::thread;

use crate::scene::{LENT, Scene, Script, explore, explore_bounded, is_interleaved};

#[test]
fn wake_against_poll() {
    explore(|| {
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
    explore(|| {
        let scene = Scene::new(1);
        let (_, id) = scene.spawn(Script::Exit, 32);
        let other = scene.clone();
        let waker = thread::spawn(move || {
            other.executor.wake(id, NO_WORKER);
        });
        scene.run(0);
        // In the same slot, unless an inbox holds that; the coroutine that is in it must not get
        // the stranger's wake.
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
    explore(|| {
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
fn cancel_against_yield_on_fast_path() {
    explore(|| {
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
        // The bookkeeping is ahead of what weakly ordered loads may see: then only `join` tells the
        // worker.
        let late = !is_interleaved() || task.polls.load(SeqCst) <= polls + 1;
        assert!(!done || late, "polled again after it was cancelled");
        assert_eq!(neighbour.polls.load(SeqCst), 2);
        scene.is_over();
    });
}

#[test]
fn set_priority_against_pop() {
    explore_bounded(Some(2), 3, || {
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
        // One other may have been popped, and not begun. The bookkeeping is ahead of what weakly
        // ordered loads may see.
        let first_in_time = last.first_turn.load(SeqCst) <= turns + 1;
        assert!(!done || !is_interleaved() || first_in_time, "the more urgent first");
        assert_eq!((first.polls.load(SeqCst), last.polls.load(SeqCst)), (2, 1));
        scene.is_over();
    });
}

/// A priority is lent to a coroutine of worker 0, to which `before` was lent already. It changes
/// its own during its poll.
fn lending_against_poll(before: u32, own: &'static [u32]) {
    explore_bounded(Some(3), 3, move || {
        let scene = Scene::new(1);
        let (task, id) = scene.spawn(Script::Shows(own), 32);
        assert!(scene.executor.set_inherited(id, before, NO_WORKER));
        let lender = scene.beside(move |scene| {
            let _ = scene.executor.set_inherited(id, LENT, NO_WORKER);
            task.event.store(true, Release);
        });
        scene.run(0);
        lender.join().unwrap();
        // A note may have come after the end.
        scene.run(0);
        scene.is_over();
    });
}

/// What was lent before a look at the record is in it, whether that was before the poll, between
/// the choice and the poll, or during the poll.
#[test]
fn lending_against_begin() {
    lending_against_poll(20, &[]);
}

/// The coroutine changes its own priority at the same time, which moves nothing: it runs at what
/// was lent to it.
#[test]
fn lending_against_own_change() {
    lending_against_poll(20, &[40]);
}

#[test]
fn two_pushes_against_draining() {
    explore_bounded(None, 2, || {
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
    explore(|| {
        let scene = Scene::new(1);
        let (task, id) = scene.spawn_blocked(Script::Await);
        let other = scene.clone();
        let waker = thread::spawn(move || {
            task.event.store(true, Relaxed);
            assert!(other.executor.wake(id, NO_WORKER));
            // `notify` was called within `wake`, if at all.
            !other.host.take_events().is_empty()
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
    explore_bounded(Some(2), 2, || {
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
    explore(|| {
        let scene = Scene::new(1);
        let (_, id) = scene.spawn(Script::Exit, 32);
        let other = scene.clone();
        let changer = thread::spawn(move || {
            other.executor.set_priority(id, 3, NO_WORKER);
        });
        scene.run(0);
        changer.join().unwrap();
        scene.run(0);
        // The request may have been in the inbox when its coroutine had gone: the slot must be free
        // once, not twice.
        let (_, one) = scene.spawn(Script::Yield(1), 32);
        let (_, two) = scene.spawn(Script::Yield(1), 32);
        assert_ne!(one as u32, two as u32, "two in one slot");
        scene.run(0);
        scene.is_over();
    });
}
