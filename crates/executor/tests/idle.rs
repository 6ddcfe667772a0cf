//! A parked worker takes ready work within one wake-up, also while the worker that made it ready is
//! in a long poll.
//!
//! By events: a poll blocks its thread until something else has run, which only the other worker
//! can do. So without the wake-up a test waits until its limit and fails; there is no time to be
//! measured.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use cops_executor::*;

/// Far beyond what any machine needs.
const LIMIT: Duration = Duration::from_secs(60);

/// Lets workers that have nothing to do go to sleep. Tests hold without it too, but show less.
fn let_them_park() {
    std::thread::sleep(Duration::from_millis(20));
}

fn runtime(workers: u32) -> Runtime {
    let runtime = Runtime::new(workers).unwrap();
    let_them_park();
    runtime
}

fn signal() -> (Sender<()>, Receiver<()>) {
    channel()
}

/// Blocks the thread of this poll.
fn block_until(signal: &Receiver<()>) -> bool {
    signal.recv_timeout(LIMIT).is_ok()
}

#[test]
fn what_is_spawned_in_a_long_poll_runs_during_it() {
    let runtime = runtime(2);
    let handle = runtime.handle();
    let (started, starts) = signal();
    let long = runtime.spawn_at(
        async move {
            drop(handle.spawn_at(async move { started.send(()).unwrap() }, Priority::DEFAULT));
            block_until(&starts)
        },
        Priority::DEFAULT,
    );
    assert_eq!(runtime.block_on(long).ok(), Some(true), "the other worker slept on");
}

#[test]
fn what_is_woken_in_a_long_poll_runs_during_it() {
    let runtime = runtime(2);
    let (event, ran) = (Arc::new(sync::Event::new()), signal());
    let (waits, started) = (event.clone(), ran.0);
    let urgent = runtime.spawn_at(
        async move {
            waits.wait().await;
            started.send(()).unwrap();
        },
        Priority::MOST_URGENT,
    );
    let_them_park();
    let starts = ran.1;
    let long = runtime.spawn_at(
        async move {
            event.set();
            block_until(&starts)
        },
        Priority::LEAST_URGENT,
    );
    assert_eq!(runtime.block_on(long).ok(), Some(true), "the other worker slept on");
    assert!(runtime.block_on(urgent).is_ok());
}

/// Each job blocks its thread until all run: so they need as many workers, each woken by another.
#[test]
fn jobs_forked_by_one_coroutine_spread_over_all_workers() {
    for workers in [2, 4] {
        let runtime = runtime(workers);
        let handle = runtime.handle();
        let (all_run, run) = signal();
        let parent = runtime.spawn_at(
            async move {
                let together = Arc::new(Barrier::new(workers as usize));
                for _ in 0..workers {
                    let (together, all_run) = (together.clone(), all_run.clone());
                    let job = async move {
                        together.wait();
                        all_run.send(()).unwrap();
                    };
                    drop(handle.spawn_at(job, Priority::DEFAULT));
                }
            },
            Priority::DEFAULT,
        );
        assert!(runtime.block_on(parent).is_ok());
        for _ in 0..workers {
            assert!(block_until(&run), "a job waits for a worker that sleeps");
        }
    }
}

/// After a wake-up in vain a worker is not notified for each wake (it dozes), but it looks by
/// itself.
#[test]
fn a_worker_that_was_woken_in_vain_takes_what_a_long_poll_makes_ready() {
    let runtime = runtime(2);
    for _ in 0..5 {
        let ran = runtime.spawn_at(wake_in_turn_then_block(runtime.handle()), Priority::DEFAULT);
        assert_eq!(runtime.block_on(ran).ok(), Some(true), "the other worker slept on");
    }
}

/// Two coroutines that wake each other in turn: what is ready is usually begun at once by the same
/// worker.
async fn wake_in_turn_then_block(handle: Handle) -> bool {
    let (ping, pings) = sync::channel(1);
    let (pong, pongs) = sync::channel(1);
    let answering = async move {
        while let Some(count) = pings.receive().await {
            pong.send(count).await.unwrap();
        }
    };
    let answering = handle.spawn_at(answering, Priority::DEFAULT);
    for count in 0..50_000_u32 {
        ping.send(count).await.unwrap();
        assert_eq!(pongs.receive().await, Some(count));
    }
    // At this moment the other worker sleeps in one way or the other.
    let (started, starts) = signal();
    drop(handle.spawn_at(async move { started.send(()).unwrap() }, Priority::DEFAULT));
    let ran = block_until(&starts);
    drop(ping);
    answering.await.unwrap();
    ran
}
