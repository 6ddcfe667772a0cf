//! What an executor asks of its host in its life: slots for the most coroutines that were alive at
//! the same time, wherever they were spawned and wherever they ended.
#![allow(unsafe_code)]

mod common;

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use common::Host;
use cops_executor::core::memory_for;
use cops_executor::*;

const WORKERS: u32 = 3;
const PEAK: u32 = 100_000;

static EXECUTOR: Executor = Executor::with_number(9);
static STATES: [WorkerState; WORKERS as usize] = [const { WorkerState::new() }; WORKERS as usize];

/// Starts the executor on a host that is never freed, as the executor is not.
fn start() -> &'static Host {
    let host = Box::leak(Host::new());
    // SAFETY: the hooks do what they should, and live for ever.
    unsafe { EXECUTOR.start(&host.hooks()) }.unwrap();
    for (worker, state) in STATES.iter().enumerate() {
        EXECUTOR.add_worker(worker as u32, state).unwrap();
    }
    host
}

/// Spawns `count` coroutines that wait.
fn waiting(count: u32) -> Vec<CoroutineId> {
    (0..count).map(|_| EXECUTOR.spawn(pending(), Priority::DEFAULT).unwrap()).collect()
}

/// Spawns `count` coroutines that wait, inside a coroutine on `worker`.
fn waiting_on(worker: u32, count: u32) -> Vec<CoroutineId> {
    let spawner = EXECUTOR.spawn_join(async move { waiting(count) }, Priority::MOST_URGENT);
    EXECUTOR.run_until_stalled(worker);
    output_of(spawner.unwrap())
}

/// The output of a coroutine that has ended.
fn output_of<T>(handle: JoinHandle<T>) -> T {
    match pin!(handle).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output.unwrap(),
        Poll::Pending => panic!("it has not ended"),
    }
}

#[test]
fn the_peak_bounds_the_memory_and_every_slot_is_used_again() {
    let host = start();
    let asked_for = || usize::MAX - host.bytes_left.load(Relaxed);
    // The spawner is a coroutine too.
    let bound = memory_for(WORKERS, PEAK + 1);
    for round in 0..6 {
        // Spawned outside or on a worker; ended on another one.
        let spawned = match round % 3 {
            0 => waiting(PEAK),
            _ => waiting_on(round % WORKERS, PEAK),
        };
        EXECUTOR.run_until_stalled((round + 1) % WORKERS);
        assert_eq!(EXECUTOR.live_count(), u64::from(PEAK));
        // The second half first, so that slots come back in another order.
        let (first, second) = spawned.split_at(spawned.len() / 2);
        for (worker, ids) in [(round % WORKERS, second), ((round + 2) % WORKERS, first)] {
            assert!(ids.iter().all(|&id| cancel(id)));
            EXECUTOR.run_until_stalled(worker);
        }
        assert_eq!(EXECUTOR.live_count(), 0);
        // Late wakes reach no coroutine.
        assert!(!spawned.iter().any(|&id| wake_up(id)));
        assert!(asked_for() <= bound, "round {round}: {} bytes, not {bound}", asked_for());
    }
    // One more is more.
    let _more = waiting(PEAK + 512);
    assert!(asked_for() > bound);
}
