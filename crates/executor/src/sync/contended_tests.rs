//! What contention costs, counted in elements of lists that are looked at; and a change of a
//! priority while the table is in use.

use super::{steps, table};
use crate::core::Priority;
use crate::sync::{Event, Mutex, MutexGuard, set_priority};
use crate::{Executor, RunOutcome, current, priority, yield_now};
use std::boxed::Box;
use std::future::pending;
use std::sync::Mutex as PlainMutex;
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

#[test]
fn a_priority_that_changes_while_the_table_is_in_use_counts_at_the_next_hand_over() {
    static EXECUTOR: Executor = Executor::with_number(205);
    static MUTEX: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    static GUARD: PlainMutex<Option<MutexGuard<'_, Vec<usize>>>> = PlainMutex::new(None);
    EXECUTOR.start_on_host(1).unwrap();
    let holds = async {
        *GUARD.lock().unwrap() = Some(MUTEX.lock().await);
        pending().await
    };
    let holder = EXECUTOR.spawn(holds, Priority::LEAST_URGENT).unwrap();
    EXECUTOR.run_until_stalled(0);
    let spawn = |number| {
        let waits = async move { MUTEX.lock().await.push(number) };
        let id = EXECUTOR.spawn(waits, Priority::saturating(20)).unwrap();
        EXECUTOR.run_until_stalled(0);
        id
    };
    let ids: Vec<_> = (0..4).map(spawn).collect();
    assert_eq!(priority(holder), Some(Priority::saturating(20)));
    // The lock is held as by another thread, or by what an interrupt handler has interrupted.
    let in_use = table().lock();
    let changed = [(2, 5), (0, 21)].map(|(n, of)| set_priority(ids[n], Priority::saturating(of)));
    drop(in_use);
    assert_eq!(changed, [true; 2]);
    // No coroutine is polled between the changes and the unlock.
    assert_eq!(priority(holder), Some(Priority::saturating(5)));
    drop(GUARD.lock().unwrap().take());
    EXECUTOR.run_until_stalled(0);
    assert_eq!(*MUTEX.try_lock().unwrap(), [2, 1, 3, 0]);
}
