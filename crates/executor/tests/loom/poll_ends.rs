//! The end of a poll on worker 0 against what others ask of that coroutine at the same moment.

use std::sync::Arc;

use cops_executor::core::NO_WORKER;
use loom::sync::atomic::Ordering::Relaxed;

use crate::requests::{Ask, ask};
use crate::scene::{Scene, Script, Task, explore_pair};

/// One is polled, and ends its poll as `script` says; another one waits behind it.
fn poll_end_against(script: Script, asked: Ask) {
    explore_pair(move || {
        let scene = Scene::new(2);
        let (task, id) = scene.spawn(script, 32);
        scene.spawn(Script::Yield(3), 32);
        let subject = task.clone();
        let other = scene.beside(move |scene| ask(scene, &subject, id, asked, 1));
        // The first poll is the subject's, the second, in turn, that of the one behind it, if no
        // thief came before.
        scene.run_for(0, 2);
        other.join().unwrap();
        scene.is_sound();
        end(&scene, &task, id);
    });
}

/// Lets a task that waits go on, and all come to their end.
pub fn end(scene: &Arc<Scene>, task: &Arc<Task>, id: u64) {
    task.event.store(true, Relaxed);
    scene.executor.wake(id, NO_WORKER);
    scene.finish();
}

#[test]
fn yield_against_fast_wake() {
    poll_end_against(Script::Yield(1), Ask::FastWake);
}

#[test]
fn yield_against_slow_wake() {
    poll_end_against(Script::Yield(1), Ask::SlowWake);
}

#[test]
fn yield_against_set_priority() {
    poll_end_against(Script::Yield(1), Ask::SetPriority(3));
}

#[test]
fn yield_against_inheritance() {
    poll_end_against(Script::Yield(1), Ask::Inherit(3));
}

#[test]
fn yield_against_steal() {
    poll_end_against(Script::Yield(1), Ask::Steal);
}

#[test]
fn yield_against_cancel() {
    poll_end_against(Script::Yield(1), Ask::Cancel);
}

#[test]
fn block_against_fast_wake() {
    poll_end_against(Script::Await, Ask::FastWake);
}

#[test]
fn block_against_slow_wake() {
    poll_end_against(Script::Await, Ask::SlowWake);
}

#[test]
fn block_against_set_priority() {
    poll_end_against(Script::Await, Ask::SetPriority(3));
}

#[test]
fn block_against_inheritance() {
    poll_end_against(Script::Await, Ask::Inherit(3));
}

#[test]
fn block_against_steal() {
    poll_end_against(Script::Await, Ask::Steal);
}

#[test]
fn block_against_cancel() {
    poll_end_against(Script::Await, Ask::Cancel);
}

#[test]
fn exit_against_fast_wake() {
    poll_end_against(Script::Exit, Ask::FastWake);
}

#[test]
fn exit_against_slow_wake() {
    poll_end_against(Script::Exit, Ask::SlowWake);
}

#[test]
fn exit_against_set_priority() {
    poll_end_against(Script::Exit, Ask::SetPriority(3));
}

#[test]
fn exit_against_inheritance() {
    poll_end_against(Script::Exit, Ask::Inherit(3));
}

#[test]
fn exit_against_steal() {
    poll_end_against(Script::Exit, Ask::Steal);
}

#[test]
fn exit_against_cancel() {
    poll_end_against(Script::Exit, Ask::Cancel);
}
