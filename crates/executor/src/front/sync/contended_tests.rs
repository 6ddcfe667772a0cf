//! What contention costs, counted in elements of lists that are looked at.

use super::steps;
use crate::core::Priority;
use crate::front::sync::Mutex;
use crate::{Executor, RunOutcome, yield_now};
use std::boxed::Box;
use std::vec::Vec;

/// Steps of `mutexes` mutexes that are contended at the same time, each by two coroutines.
fn steps_of(executor: &'static Executor, mutexes: usize) -> u64 {
    let all: &'static [Mutex<u32>] = Vec::leak((0..mutexes).map(|_| Mutex::new(0)).collect());
    let _ = steps::take();
    // The less urgent ones lock, then the others come, and lend their priority.
    for level in [40, 20] {
        for mutex in all {
            let uses = async move {
                let mut value = mutex.lock().await;
                yield_now().await;
                yield_now().await;
                *value += 1;
            };
            executor.spawn(uses, Priority::saturating(level)).unwrap();
        }
        executor.run(0, mutexes as u64);
    }
    assert!(all.iter().all(Mutex::is_locked));
    assert_eq!(executor.run_until_stalled(0), RunOutcome::Stalled);
    assert!(all.iter().all(|mutex| !mutex.is_locked()));
    steps::take()
}

#[test]
fn the_cost_of_contention_is_linear_in_the_number_of_tasks() {
    let executor: &'static Executor = Box::leak(Box::new(Executor::new(201)));
    executor.start_on_host(1).unwrap();
    let numbers: &[usize] = if cfg!(miri) { &[1, 20] } else { &[1, 100, 1_000, 4_000] };
    for &mutexes in numbers {
        let steps = steps_of(executor, mutexes);
        let tasks = 2 * mutexes as u64;
        // Each task looks its mutex up, and its holder, a few times; the lists have a few elements.
        assert!(steps <= 40 * tasks, "{steps} steps of {tasks} tasks");
        assert!(steps >= tasks / 2, "{steps} steps of {tasks} tasks: the mutexes were not contended");
    }
}
