extern crate std;

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec::Vec;

/// The first thread and `count` others.
fn with_threads(count: usize) -> Threads {
    let mut threads = Threads::try_new().unwrap();
    for number in 1..=count {
        assert_eq!(threads.add(), Ok(number));
    }
    threads
}

#[test]
fn a_thread_is_waited_for_once_and_its_number_used_again() {
    let mut threads = with_threads(2);
    assert_eq!(threads.wait(0, 1), Err(Refusal::Running));
    assert_eq!(threads.wait(1, 1), Err(Refusal::Invalid));
    assert_eq!(threads.wait(0, 3), Err(Refusal::Invalid));
    threads.end(1, -7);
    assert_eq!(threads.wait(0, 1), Ok(-7));
    assert_eq!(threads.wait(0, 1), Err(Refusal::Invalid));
    assert_eq!(threads.add(), Ok(1));
}

#[test]
fn a_mutex_goes_to_the_first_that_waits() {
    let mut threads = with_threads(3);
    let mutex = threads.create(Kind::Mutex, 1).unwrap();
    assert_eq!(threads.down(Kind::Mutex, mutex, 0), Ok(Turn::Now));
    for thread in [2, 1] {
        assert_eq!(threads.down(Kind::Mutex, mutex, thread), Ok(Turn::Later));
        threads.set_wake(thread, 10 + thread as u64);
        assert!(!threads.take_turn(thread));
    }
    assert_eq!(threads.up(Kind::Mutex, mutex), Ok(Some(12)));
    // No other overtakes the thread that has been granted the mutex and has not run yet.
    assert_eq!(threads.down(Kind::Mutex, mutex, 3), Ok(Turn::Later));
    assert!(threads.take_turn(2) && !threads.take_turn(1));
    assert_eq!(threads.up(Kind::Mutex, mutex), Ok(Some(11)));
    // Its call has not said yet what to wake.
    assert_eq!(threads.up(Kind::Mutex, mutex), Ok(None));
    assert!(threads.take_turn(3));
    assert_eq!(threads.up(Kind::Mutex, mutex), Ok(None));
    assert_eq!(threads.up(Kind::Mutex, mutex), Err(Refusal::Invalid));
}

#[test]
fn what_is_free_is_taken_at_once() {
    let mut threads = with_threads(1);
    let semaphore = threads.create(Kind::Semaphore, 1).unwrap();
    assert_eq!(threads.take(Kind::Semaphore, semaphore, 0), Ok(true));
    // What is not free changes nothing: no thread is in the queue.
    assert_eq!(threads.take(Kind::Semaphore, semaphore, 1), Ok(false));
    assert_eq!(threads.up(Kind::Semaphore, semaphore), Ok(None));
    assert_eq!(threads.take(Kind::Semaphore, semaphore, 1), Ok(true));
    assert_eq!(threads.take(Kind::Semaphore, 1, 1), Err(Refusal::Invalid));
}

#[test]
fn a_thread_waits_for_one_thing_only() {
    let mut threads = with_threads(1);
    let semaphore = threads.create(Kind::Semaphore, 0).unwrap();
    assert_eq!(threads.down(Kind::Semaphore, semaphore, 1), Ok(Turn::Later));
    assert_eq!(threads.down(Kind::Semaphore, semaphore, 1), Err(Refusal::Invalid));
    threads.end(0, 0);
    assert_eq!(threads.down(Kind::Semaphore, semaphore, 0), Err(Refusal::Invalid));
}

#[test]
fn a_signal_wakes_one_waiter_with_its_mutex() {
    let mut threads = with_threads(2);
    let mutex = threads.create(Kind::Mutex, 1).unwrap();
    let condition = threads.create_condition().unwrap();
    // A wait without the mutex is refused.
    assert_eq!(threads.wait_for_condition(condition, mutex, 1), Err(Refusal::Invalid));
    // No one waits: the signal is lost.
    assert_eq!(threads.signal(condition), Ok(None));
    for thread in [1, 2] {
        assert_eq!(threads.down(Kind::Mutex, mutex, thread), Ok(Turn::Now));
        assert_eq!(threads.wait_for_condition(condition, mutex, thread), Ok(None));
        threads.set_wake(thread, thread as u64);
    }
    // The mutex is free, so the first gets it at once.
    assert_eq!(threads.signal(condition), Ok(Some(1)));
    assert!(threads.take_turn(1) && !threads.take_turn(2));
    // Now it is not: the second waits for the mutex, and gets it with the unlock.
    assert_eq!(threads.signal(condition), Ok(None));
    assert_eq!(threads.up(Kind::Mutex, mutex), Ok(Some(2)));
    assert!(threads.take_turn(2));
    assert_eq!(threads.signal(condition), Ok(None));
}

#[test]
fn there_are_limits() {
    let mut threads = with_threads(COUNT_MAX - 1);
    assert_eq!(threads.add(), Err(Refusal::Full));
    for number in 0..COUNT_MAX {
        assert_eq!(threads.create(Kind::Semaphore, usize::MAX), Ok(number));
    }
    assert_eq!(threads.create(Kind::Semaphore, 0), Err(Refusal::Full));
    assert_eq!(threads.up(Kind::Semaphore, 0), Err(Refusal::Invalid));
}

/// What a thread of the model waits for: a queue, and a mutex for those of conditions.
#[derive(Default)]
struct Model {
    count: Vec<usize>,
    waiting: Vec<VecDeque<usize>>,
}

proptest! {
    /// Two mutexes (objects 0 and 1 of the model), a semaphore (2) and a condition variable (3),
    /// against queues written out.
    #[test]
    fn objects_are_handed_over_in_order(
        steps in prop::collection::vec((0..5_u8, 0..6_usize, 0..3_usize), 0..400),
    ) {
        let mut threads = with_threads(5);
        threads.create(Kind::Mutex, 1).unwrap();
        threads.create(Kind::Mutex, 1).unwrap();
        threads.create(Kind::Semaphore, 1).unwrap();
        threads.create_condition().unwrap();
        let mut model = Model {
            count: std::vec![1, 1, 1],
            waiting: (0..4).map(|_| VecDeque::new()).collect(),
        };
        // The mutex that a thread needs after the condition.
        let mut then = [0; 6];
        let object = |number: usize| match number {
            2 => (Kind::Semaphore, 0),
            mutex => (Kind::Mutex, mutex),
        };
        for (what, thread, number) in steps {
            let is_waiting = model.waiting.iter().any(|queue| queue.contains(&thread));
            let (kind, at) = object(number);
            let mut granted = None;
            match what {
                0 | 1 => {
                    let turn = threads.down(kind, at, thread);
                    if is_waiting {
                        prop_assert_eq!(turn, Err(Refusal::Invalid));
                    } else if model.count[number] > 0 {
                        model.count[number] -= 1;
                        prop_assert_eq!(turn, Ok(Turn::Now));
                    } else {
                        model.waiting[number].push_back(thread);
                        prop_assert_eq!(turn, Ok(Turn::Later));
                    }
                }
                2 => {
                    let free = kind == Kind::Mutex && model.count[number] == 1;
                    let result = threads.up(kind, at);
                    prop_assert_eq!(result.is_err(), free);
                    if !free {
                        granted = model.waiting[number].pop_front();
                        model.count[number] += usize::from(granted.is_none());
                    }
                }
                3 => {
                    let mutex = number % 2;
                    let result = threads.wait_for_condition(0, mutex, thread);
                    let may = !is_waiting && model.count[mutex] == 0;
                    prop_assert_eq!(result.is_ok(), may);
                    if may {
                        granted = model.waiting[mutex].pop_front();
                        model.count[mutex] += usize::from(granted.is_none());
                        model.waiting[3].push_back(thread);
                        then[thread] = mutex;
                    }
                }
                _ => {
                    prop_assert!(threads.signal(0).is_ok());
                    if let Some(first) = model.waiting[3].pop_front() {
                        let mutex = then[first];
                        if model.count[mutex] > 0 {
                            model.count[mutex] -= 1;
                            granted = Some(first);
                        } else {
                            model.waiting[mutex].push_back(first);
                        }
                    }
                }
            }
            for other in 0..6 {
                prop_assert_eq!(threads.take_turn(other), granted == Some(other));
            }
        }
    }
}
