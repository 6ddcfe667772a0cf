//! Which sleeping workers notice a deadline when there are several executors. A program of its own
//! in which one test runs at a time: a worker that looks at the clock fires the timers of all.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use cops_executor::*;

/// Longer than any machine is late for a timer, and short of for ever.
const LATE: Duration = Duration::from_secs(5);
const NAP: Duration = Duration::from_millis(10);

/// The worker does not look at the clock until it returns, so the workers of the runtime have to.
#[test]
fn a_deadline_of_block_on_on_a_worker_of_another_executor_is_noticed() {
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
