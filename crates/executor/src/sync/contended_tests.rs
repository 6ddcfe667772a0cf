//! What contention costs, counted in elements of lists that are looked at.

use super::steps;
use crate::core::Priority;
use crate::sync::{Event, Mutex};
use crate::{Executor, RunOutcome, current, priority, yield_now};
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

/// Checks that `steps_of` takes from one step to `most` steps for each mutex, however many mutexes
/// there are, on the executor with this number.
fn assert_linear(number: u8, most: u64, steps_of: impl Fn(&'static Executor, usize) -> u64) {
    let executor: &'static Executor = Box::leak(Box::new(Executor::with_number(number)));
    executor.start_on_host(1).unwrap();
    let numbers: &[usize] = if cfg!(miri) { &[1, 20] } else { &[1, 100, 1_000, 4_000] };
    for &mutexes in numbers {
        let steps = steps_of(executor, mutexes);
        assert!(steps <= most * mutexes as u64, "{steps} steps with {mutexes} mutexes");
        assert!(
            steps >= mutexes as u64,
            "{steps} steps with {mutexes} mutexes: they were not contended"
        );
    }
}

#[test]
fn the_cost_of_contention_is_linear_in_the_number_of_tasks() {
    // Two tasks for each mutex. Each looks its mutex up, and its holder, a few times; the lists
    // have a few elements.
    assert_linear(201, 2 * 40, steps_of);
}

/// Steps of one coroutine that has `mutexes` mutexes and releases them in turn, while another one
/// waits for each. The priority that it inherits is checked after each release.
fn steps_of_one_holder(executor: &'static Executor, mutexes: usize) -> u64 {
    let all: &'static [Mutex<()>] = Vec::leak((0..mutexes).map(|_| Mutex::new(())).collect());
    // Each level comes again and again, in no simple order.
    let level_of = |number: usize| Priority::saturating((number * 29 % 61) as u32);
    let all_wait: &'static Event = Box::leak(Box::new(Event::new()));
    let _ = steps::take();
    let holds = async move {
        let mut guards = Vec::new();
        for mutex in all {
            guards.push(mutex.lock().await);
        }
        all_wait.wait().await;
        // The most urgent coroutine that waits for this mutex or a later one.
        let mut most_urgent: Vec<_> = (0..mutexes).map(level_of).collect();
        for number in (1..mutexes).rev() {
            most_urgent[number - 1] = most_urgent[number - 1].more_urgent_of(most_urgent[number]);
        }
        for (guard, expected) in guards.into_iter().zip(most_urgent) {
            assert_eq!(current().and_then(priority), Some(expected));
            drop(guard);
        }
        assert_eq!(current().and_then(priority), Some(Priority::LEAST_URGENT));
    };
    let holder = executor.spawn_join(holds, Priority::LEAST_URGENT).unwrap();
    executor.run(0, 1);
    for (number, mutex) in all.iter().enumerate() {
        executor.spawn(async { drop(mutex.lock().await) }, level_of(number)).unwrap();
    }
    executor.run_until_stalled(0);
    all_wait.set();
    assert_eq!(executor.run_until_stalled(0), RunOutcome::Stalled);
    assert!(holder.is_finished() && all.iter().all(|mutex| !mutex.is_locked()));
    executor.block_on(holder).unwrap();
    steps::take()
}

#[test]
fn a_release_does_not_depend_on_how_many_other_mutexes_the_holder_has() {
    // Adding and removing a record pass up to 63 levels, and the elements of a few short lists.
    assert_linear(202, 150, steps_of_one_holder);
}
