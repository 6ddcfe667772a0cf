//! The timers that workers fire, with and without a reactor.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use cops_executor::*;

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Longer than any machine is late for a timer, and short of for ever.
const LATE: Duration = Duration::from_secs(5);

fn busy(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

#[test]
fn sleepers_wake_in_the_order_of_their_deadlines() {
    let runtime = Runtime::new(1).unwrap();
    let log: Arc<Mutex<Vec<u32>>> = Arc::default();
    let start = timers().ticks_after(milliseconds(20));
    let handles: Vec<_> = (0..40_u32)
        .map(|n| {
            let (log, turn) = (log.clone(), n * 17 % 40);
            let deadline_ticks = start + u64::from(turn) * 1_000_000;
            runtime.spawn_at(
                async move {
                    timers().sleep_until(deadline_ticks).await;
                    log.lock().unwrap().push(turn);
                },
                Priority::DEFAULT,
            )
        })
        .collect();
    handles.into_iter().for_each(|handle| runtime.block_on(handle).unwrap());
    assert_eq!(*log.lock().unwrap(), (0..40).collect::<Vec<_>>());
}

#[test]
fn an_idle_worker_notices_an_earlier_deadline_of_another_or_of_a_stranger() {
    for workers in [1, 2, 3] {
        let runtime = Runtime::new(workers).unwrap();
        let long = runtime.spawn_at(timers().sleep(Duration::from_secs(1_000)), Priority::DEFAULT);
        thread::sleep(milliseconds(5));
        for round in 0..20 {
            let start = Instant::now();
            let short = timers().sleep(milliseconds(2));
            if round % 2 == 0 {
                runtime.block_on(runtime.spawn_at(short, Priority::DEFAULT)).unwrap();
            } else {
                // Polled by this thread, which is no worker; fired by the thread that watches.
                runtime.block_on(short);
            }
            let elapsed = start.elapsed();
            assert!(elapsed >= milliseconds(2) && elapsed < LATE, "{workers} workers: {elapsed:?}");
        }
        long.abort();
    }
}

#[test]
fn busy_workers_fire_between_polls() {
    for (workers, poll) in
        [(1, Duration::ZERO), (1, milliseconds(2)), (2, Duration::ZERO), (2, milliseconds(2))]
    {
        let runtime = Runtime::new(workers).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        for _ in 0..3 * workers {
            let stop = stop.clone();
            let load = async move {
                while !stop.load(Ordering::Relaxed) {
                    busy(poll);
                    yield_now().await;
                }
            };
            runtime.spawn_at(load, Priority::LEAST_URGENT);
        }
        let naps = async {
            let start = Instant::now();
            for _ in 0..10 {
                timers().sleep(milliseconds(1)).await;
            }
            start.elapsed()
        };
        let elapsed = runtime.block_on(runtime.spawn_at(naps, Priority::MOST_URGENT)).unwrap();
        assert!(
            elapsed >= milliseconds(10) && elapsed < LATE,
            "{workers} workers, {poll:?}: {elapsed:?}"
        );
        stop.store(true, Ordering::Relaxed);
        runtime.finish();
    }
}

#[test]
fn a_time_limit_drops_what_takes_too_long() {
    let runtime = Runtime::new(2).unwrap();
    let limited =
        |limit, work| timers().timeout(milliseconds(limit), timers().sleep(milliseconds(work)));
    let both = async move { (limited(2, 2_000).await.is_err(), limited(2_000, 2).await.is_ok()) };
    assert_eq!(runtime.block_on(runtime.spawn_at(both, Priority::DEFAULT)), Ok((true, true)));
}

#[test]
fn a_lent_thread_sleeps_until_the_deadline() {
    static EXECUTOR: Executor = Executor::with_number(4);
    EXECUTOR.start_on_host(1).unwrap();
    let start = Instant::now();
    EXECUTOR.block_on(timers().sleep(milliseconds(5)));
    let nap = EXECUTOR.spawn_join(timers().sleep(milliseconds(5)), Priority::DEFAULT).unwrap();
    assert_eq!(EXECUTOR.run_until_done(), RunOutcome::Stalled);
    assert!(nap.is_finished());
    assert!(start.elapsed() >= milliseconds(10));
}

#[test]
fn a_thread_that_leaves_passes_the_watch_on() {
    static EXECUTOR: Executor = Executor::with_number(5);
    EXECUTOR.start_on_host(2).unwrap();
    for _ in 0..20 {
        let nap = EXECUTOR.spawn_join(timers().sleep(milliseconds(10)), Priority::DEFAULT).unwrap();
        let start = Instant::now();
        thread::scope(|scope| {
            // The first to sleep watches; it leaves before the deadline.
            let first = scope.spawn(|| EXECUTOR.block_on(timers().sleep(milliseconds(4))));
            thread::sleep(milliseconds(1));
            let other = scope.spawn(|| EXECUTOR.run_until_done());
            first.join().unwrap();
            assert_eq!(other.join().unwrap(), RunOutcome::Stalled);
        });
        assert!(nap.is_finished() && start.elapsed() < LATE);
    }
}

#[test]
fn a_sleeper_goes_with_its_runtime() {
    let runtime = Runtime::new(2).unwrap();
    let sleeping = runtime.spawn_at(timers().sleep(Duration::from_secs(1_000)), Priority::DEFAULT);
    thread::sleep(milliseconds(2));
    let handle = runtime.handle();
    drop(runtime);
    assert_eq!(handle.block_on(sleeping), Err(JoinError::Cancelled));
}
