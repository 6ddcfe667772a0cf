//! Two requests that meet on one coroutine which is not being polled: wakes, changes of priority,
//! cancels, thieves, and the draining of the inbox in which it is.

use std::sync::Arc;

use cops_executor::core::{NO_WORKER, Phase};
use loom::sync::atomic::Ordering::Relaxed;

use crate::poll_ends::end;
use crate::scene::{Scene, Script, Task, explore_pair};

/// What is asked of a coroutine, or done to it.
#[derive(Clone, Copy, PartialEq)]
pub enum Ask {
    /// By a worker, into its own list.
    FastWake,
    /// From outside, into an inbox.
    SlowWake,
    SetPriority(u32),
    Inherit(u32),
    Cancel,
    /// By a worker that has nothing else to do, and makes one poll.
    Steal,
    /// By a worker that has something more urgent to poll, and does that.
    Drain,
}

/// `here` is the worker that the calling thread is, where that matters.
pub fn ask(scene: &Scene, task: &Task, id: u64, asked: Ask, here: u32) {
    let executor = &scene.executor;
    match asked {
        Ask::FastWake | Ask::SlowWake => {
            task.event.store(true, Relaxed);
            // It may be gone.
            let _ = executor.wake(id, if asked == Ask::FastWake { here } else { NO_WORKER });
        }
        Ask::SetPriority(priority) => {
            let _ = executor.set_priority(id, priority, NO_WORKER);
        }
        Ask::Inherit(priority) => {
            let _ = executor.set_inherited(id, priority, NO_WORKER);
        }
        Ask::Cancel => {
            let _ = executor.cancel(id, NO_WORKER);
        }
        Ask::Steal | Ask::Drain => scene.run_for(here, 1),
    }
}

/// Where the coroutine is before.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Blocked,
    /// In the inbox of worker 0.
    Posted,
    /// In a list of worker 0.
    Listed,
}

/// `one` is asked by worker 0, or, if it is a theft, by worker 2; `two` by worker 1.
fn both(place: Place, one: Ask, two: Ask) {
    explore_pair(move || {
        let is_theft = one == Ask::Steal;
        let scene = Scene::new(if is_theft { 3 } else { 2 });
        // A thief polls the first that it takes, and leaves the second in its own list.
        let is_stolen = place == Place::Listed && two == Ask::Steal;
        if is_stolen {
            scene.spawn(Script::Exit, 32);
        }
        let (task, id) = match place {
            Place::Listed => scene.spawn(Script::Await, 32),
            Place::Blocked | Place::Posted => scene.spawn_blocked(Script::Await),
        };
        if is_stolen {
            scene.spawn(Script::Exit, 32);
        }
        if one == Ask::Drain {
            scene.spawn(Script::Yield(1), 1);
        }
        if place == Place::Posted {
            assert!(scene.executor.wake(id, NO_WORKER));
        }
        let subject = task.clone();
        let other = scene.beside(move |scene| ask(scene, &subject, id, two, 1));
        ask(&scene, &task, id, one, if is_theft { 2 } else { 0 });
        other.join().unwrap();
        scene.is_sound();
        has_priority(&scene, &task, id, [one, two]);
        end(&scene, &task, id);
    });
}

/// The coroutine has the priority that was asked for, if it was not cancelled, and is where it
/// belongs.
fn has_priority(scene: &Arc<Scene>, task: &Arc<Task>, id: u64, asked: [Ask; 2]) {
    let base =
        asked.iter().filter_map(|ask| if let Ask::SetPriority(p) = ask { Some(*p) } else { None });
    let lent =
        asked.iter().filter_map(|ask| if let Ask::Inherit(p) = ask { Some(*p) } else { None });
    let (base, lent): (Vec<u32>, Vec<u32>) = (base.collect(), lent.collect());
    if scene.executor.priority(id) == 64 {
        assert!(
            asked.contains(&Ask::Cancel) || task.finished.load(std::sync::atomic::Ordering::SeqCst)
        );
        return;
    }
    let own = scene.executor.base_priority(id);
    assert!(if base.is_empty() { own == 32 } else { base.contains(&own) });
    let highest = lent.iter().copied().min().unwrap_or(64);
    let lowest = lent.iter().copied().max().unwrap_or(64);
    let runs_at = scene.executor.priority(id);
    assert!(runs_at == own.min(highest) || runs_at == own.min(lowest));
    // What waits is shown at the level that it has now, and at no other.
    let mut seen = cops_executor::core::RawInspection::default();
    assert_eq!(scene.executor.inspect(id as u32 & 0xff_ffff, &mut seen), 2);
    if seen.phase == Phase::Ready as u32 {
        let shown = scene.states[seen.worker as usize].waiting();
        assert!(shown & 1 << runs_at != 0, "a change of priority was lost");
    }
}

#[test]
fn fast_wake_against_fast_wake() {
    both(Place::Blocked, Ask::FastWake, Ask::FastWake);
}

#[test]
fn fast_wake_against_slow_wake() {
    both(Place::Blocked, Ask::FastWake, Ask::SlowWake);
}

#[test]
fn fast_wake_against_drain() {
    both(Place::Posted, Ask::Drain, Ask::FastWake);
}

#[test]
fn fast_wake_against_set_priority() {
    both(Place::Blocked, Ask::FastWake, Ask::SetPriority(3));
}

#[test]
fn fast_wake_against_inheritance() {
    both(Place::Blocked, Ask::FastWake, Ask::Inherit(3));
}

#[test]
fn fast_wake_against_steal() {
    both(Place::Blocked, Ask::FastWake, Ask::Steal);
}

#[test]
fn fast_wake_against_cancel() {
    both(Place::Blocked, Ask::FastWake, Ask::Cancel);
}

#[test]
fn slow_wake_against_slow_wake() {
    both(Place::Blocked, Ask::SlowWake, Ask::SlowWake);
}

#[test]
fn slow_wake_against_drain() {
    both(Place::Blocked, Ask::Drain, Ask::SlowWake);
}

#[test]
fn slow_wake_against_set_priority() {
    both(Place::Blocked, Ask::SlowWake, Ask::SetPriority(3));
}

#[test]
fn slow_wake_against_inheritance() {
    both(Place::Blocked, Ask::SlowWake, Ask::Inherit(3));
}

#[test]
fn slow_wake_against_steal() {
    both(Place::Blocked, Ask::SlowWake, Ask::Steal);
}

#[test]
fn slow_wake_against_cancel() {
    both(Place::Blocked, Ask::SlowWake, Ask::Cancel);
}

#[test]
fn drain_against_set_priority() {
    both(Place::Posted, Ask::Drain, Ask::SetPriority(3));
}

#[test]
fn drain_against_inheritance() {
    both(Place::Posted, Ask::Drain, Ask::Inherit(3));
}

/// The thief drains the same inbox.
#[test]
fn drain_against_steal() {
    both(Place::Posted, Ask::Drain, Ask::Steal);
}

#[test]
fn drain_against_cancel() {
    both(Place::Posted, Ask::Drain, Ask::Cancel);
}

#[test]
fn set_priority_against_set_priority() {
    both(Place::Listed, Ask::SetPriority(3), Ask::SetPriority(5));
}

#[test]
fn set_priority_against_inheritance() {
    both(Place::Listed, Ask::SetPriority(5), Ask::Inherit(3));
}

#[test]
fn set_priority_against_steal() {
    both(Place::Listed, Ask::SetPriority(3), Ask::Steal);
}

#[test]
fn set_priority_against_cancel() {
    both(Place::Listed, Ask::SetPriority(3), Ask::Cancel);
}

#[test]
fn inheritance_against_inheritance() {
    both(Place::Listed, Ask::Inherit(3), Ask::Inherit(5));
}

#[test]
fn inheritance_against_steal() {
    both(Place::Listed, Ask::Inherit(3), Ask::Steal);
}

#[test]
fn inheritance_against_cancel() {
    both(Place::Listed, Ask::Inherit(3), Ask::Cancel);
}

#[test]
fn steal_against_steal() {
    both(Place::Listed, Ask::Steal, Ask::Steal);
}

#[test]
fn steal_against_cancel() {
    both(Place::Listed, Ask::Cancel, Ask::Steal);
}

#[test]
fn cancel_against_cancel() {
    both(Place::Listed, Ask::Cancel, Ask::Cancel);
}
