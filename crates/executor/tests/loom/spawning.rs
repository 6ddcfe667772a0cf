//! A coroutine begins, perhaps in the slot of one that has just exited, while others wake, move or
//! cancel by the old id, steal, drain, or look for a slot themselves.

use std::sync::atomic::Ordering::SeqCst;

use cops_executor::core::NO_WORKER;

use crate::requests::{Ask, ask};
use crate::scene::{Scene, Script, explore_pair};

/// Something is asked of a coroutine that exits; its slot is used again at once.
fn spawn_against(asked: Ask) {
    explore_pair(move || {
        let scene = Scene::new(2);
        let (task, id) = scene.spawn(Script::Exit, 32);
        let other = scene.beside(move |scene| ask(scene, &task, id, asked, 1));
        scene.run(0);
        let (tenant, tenant_id) = scene.spawn_blocked(Script::Exit);
        scene.run(0);
        other.join().unwrap();
        scene.is_sound();
        scene.run(0);
        assert_eq!(tenant.polls.load(SeqCst), 0, "woken by a stranger");
        assert_eq!(scene.executor.priority(tenant_id), 32, "moved by a stranger");
        assert!(scene.executor.wake(tenant_id, NO_WORKER), "cancelled by a stranger");
        scene.finish();
    });
}

#[test]
fn spawn_against_fast_wake() {
    spawn_against(Ask::FastWake);
}

#[test]
fn spawn_against_slow_wake() {
    spawn_against(Ask::SlowWake);
}

#[test]
fn spawn_against_set_priority() {
    spawn_against(Ask::SetPriority(3));
}

#[test]
fn spawn_against_inheritance() {
    spawn_against(Ask::Inherit(3));
}

#[test]
fn spawn_against_cancel() {
    spawn_against(Ask::Cancel);
}

/// Into the inbox that the worker drains.
#[test]
fn spawn_against_drain() {
    explore_pair(|| {
        let scene = Scene::new(1);
        scene.spawn(Script::Yield(1), 1);
        let other = scene.beside(|scene| drop(scene.spawn_on(NO_WORKER, Script::Exit, 32)));
        scene.run_for(0, 2);
        other.join().unwrap();
        scene.finish();
    });
}

/// Onto the list at which a thief looks.
#[test]
fn spawn_against_steal() {
    explore_pair(|| {
        let scene = Scene::new(2);
        let other = scene.beside(|scene| scene.run_for(1, 1));
        scene.spawn(Script::Yield(1), 32);
        other.join().unwrap();
        scene.finish();
    });
}

/// Worker 1 looks for a free slot where worker 0 gives one back.
#[test]
fn spawn_against_exit() {
    explore_pair(|| {
        let scene = Scene::new(2);
        scene.spawn(Script::Exit, 32);
        scene.spawn(Script::Exit, 32);
        scene.run_for(0, 1);
        let other = scene.beside(|scene| drop(scene.spawn_on(1, Script::Exit, 32)));
        scene.run_for(0, 1);
        other.join().unwrap();
        scene.finish();
    });
}

/// Both take the slot that one worker has.
#[test]
fn spawn_against_spawn() {
    explore_pair(|| {
        let scene = Scene::new(2);
        scene.spawn(Script::Exit, 32);
        scene.run(0);
        let other = scene.beside(|scene| scene.spawn_on(1, Script::Exit, 32).1);
        let (_, one) = scene.spawn(Script::Exit, 32);
        let two = other.join().unwrap();
        assert_ne!(one as u32, two as u32, "two in one slot");
        scene.finish();
    });
}
