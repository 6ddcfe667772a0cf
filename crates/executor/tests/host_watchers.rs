//! Which sleeping workers notice a deadline when there are several executors. A program of its own
//! in which one test runs at a time: a worker that looks at the clock fires the timers of all.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cops_executor::*;

/// Longer than any machine is late for a timer, and short of for ever.
const LATE: Duration = Duration::from_secs(5);
const NAP: Duration = Duration::from_millis(10);

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The worker does not look at the clock until it returns, so the workers of the runtime have to.
#[test]
fn a_deadline_of_block_on_on_a_worker_of_another_executor_is_noticed() {
    let _alone = alone();
    let (done, is_done) = channel();
    // A thread of its own: one that waits for ever cannot be stopped.
    thread::spawn(move || {
        let start = Instant::now();
        let inner = Arc::new(Runtime::new(1).unwrap());
        // Its worker sleeps without a deadline.
        thread::sleep(NAP);
        block_on(async { inner.block_on(timers().sleep(NAP)) });
        done.send(start.elapsed()).unwrap();

        let outer = Runtime::new(1).unwrap();
        let inside = inner.clone();
        thread::sleep(NAP);
        let start = Instant::now();
        let nested = async move { inside.block_on(timers().sleep(NAP)) };
        outer.block_on(outer.spawn_at(nested, Priority::DEFAULT)).unwrap();
        done.send(start.elapsed()).unwrap();
    });
    for outer in ["in block_on", "in a coroutine"] {
        let elapsed = is_done.recv_timeout(LATE).unwrap_or_else(|_| panic!("{outer}: for ever"));
        assert!(elapsed >= NAP, "{outer}: {elapsed:?}");
    }
}

/// The watcher of a runtime knows of no deadline, and one comes that is later than another one,
/// which goes with its runtime.
#[test]
fn a_deadline_is_noticed_though_there_was_an_earlier_one_elsewhere() {
    let _alone = alone();
    let (done, is_done) = channel();
    thread::spawn(move || {
        for workers in [1, 2] {
            let (stays, ends) = (Runtime::new(workers).unwrap(), Runtime::new(1).unwrap());
            thread::sleep(NAP);
            let late = timers().sleep(10 * NAP);
            ends.spawn_at(timers().sleep(5 * NAP), Priority::DEFAULT);
            thread::sleep(NAP);
            // Polled by a thread that is no worker.
            let handle = stays.handle();
            let sleeping = thread::spawn(move || handle.block_on(late));
            thread::sleep(NAP);
            drop(ends);
            sleeping.join().unwrap();
            done.send(()).unwrap();
        }
    });
    for workers in [1, 2] {
        is_done.recv_timeout(LATE).unwrap_or_else(|_| panic!("{workers} workers: for ever"));
    }
}

/// As before, of a worker that sleeps while another one watches.
#[test]
fn a_deadline_of_a_worker_beside_the_watcher_is_noticed() {
    let _alone = alone();
    let (done, is_done) = channel();
    thread::spawn(move || {
        let (stays, ends) = (Runtime::new(2).unwrap(), Runtime::new(1).unwrap());
        thread::sleep(NAP);
        let sleeps = timers().sleep(20 * NAP);
        let late = async move {
            thread::sleep(4 * NAP);
            sleeps.await;
        };
        let late = stays.spawn_at(late, Priority::DEFAULT);
        thread::sleep(NAP);
        // The other worker watches after this.
        stays.block_on(stays.spawn_at(async {}, Priority::DEFAULT)).unwrap();
        thread::sleep(NAP);
        ends.spawn_at(timers().sleep(10 * NAP), Priority::DEFAULT);
        thread::sleep(4 * NAP);
        drop(ends);
        stays.block_on(late).unwrap();
        done.send(()).unwrap();
    });
    is_done.recv_timeout(LATE).expect("a timer does not fire");
}

/// The worker that has watched waits in `block_on` for what a timer of its own executor leads to.
#[test]
fn a_worker_in_block_on_passes_the_watch_on() {
    let _alone = alone();
    let (done, is_done) = channel();
    thread::spawn(move || {
        let inner = Arc::new(Runtime::new(1).unwrap());
        for _ in 0..4 {
            let outer = Runtime::new(2).unwrap();
            let (sender, mut receiver) = sync::oneshot();
            let late = async move {
                timers().sleep(5 * NAP).await;
                let _ = sender.send(());
            };
            outer.spawn_at(late, Priority::DEFAULT);
            thread::sleep(NAP);
            let inside = inner.clone();
            let nested = async move { inside.block_on(receiver.receive()) };
            let nested = outer.spawn_at(nested, Priority::DEFAULT);
            assert_eq!(outer.block_on(nested), Ok(Some(())));
            done.send(()).unwrap();
        }
    });
    for round in 0..4 {
        is_done.recv_timeout(LATE).unwrap_or_else(|_| panic!("round {round}: for ever"));
    }
}
