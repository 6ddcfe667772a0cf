//! Runtimes on a host: parking and waking, several of them, and their end.
//!
//! Whatever could hang has a watchdog, which ends the process and says what hung.

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use cops_executor::*;

/// Runs `test`, and ends the process if it does not end.
fn watched<T>(what: &str, test: impl FnOnce() -> T) -> T {
    let (done, watch) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if watch.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                eprintln!("hangs: {what}");
                std::process::abort();
            }
        });
        let result = test();
        drop(done);
        result
    })
}

fn at_level(level: u8) -> Priority {
    Priority::new(level).unwrap()
}

/// Counts what is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A place to which a waker comes once the future there is pending.
#[derive(Clone, Default)]
struct Gate(Arc<(AtomicBool, Mutex<Option<Waker>>)>);

impl Gate {
    /// Pending until opened; then closed again.
    fn passed(&self) -> impl Future<Output = ()> + Send + 'static {
        let gate = self.clone();
        poll_fn(move |context| {
            *gate.0.1.lock().unwrap() = Some(context.waker().clone());
            if gate.0.0.swap(false, Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    fn open(&self) {
        self.0.0.store(true, Ordering::SeqCst);
        let waker = self.0.1.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[test]
fn no_wake_is_lost_between_a_thread_and_a_worker_that_parks_after_each() {
    const ROUNDS: usize = 3_000;
    watched("rounds of wake and park", || {
        let runtime = Runtime::new(2).unwrap();
        let (there, answer) = (Gate::default(), mpsc::channel());
        let gate = there.clone();
        let rounds = runtime.spawn_at(
            async move {
                for round in 0..ROUNDS {
                    gate.passed().await;
                    answer.0.send(round).unwrap();
                }
            },
            Priority::DEFAULT,
        );
        for round in 0..ROUNDS {
            // At times the worker has parked by now, at times it is about to.
            for _ in 0..round % 64 * 20 {
                std::hint::spin_loop();
            }
            there.open();
            assert_eq!(answer.1.recv(), Ok(round));
        }
        runtime.block_on(rounds).unwrap();
    });
}

#[test]
fn threads_that_spawn_find_workers_that_sleep() {
    watched("spawning from outside", || {
        let runtime = Runtime::new(3).unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        thread::scope(|scope| {
            for spawner in 0..4_u8 {
                let (handle, ran) = (runtime.handle(), ran.clone());
                scope.spawn(move || {
                    for n in 0..300 {
                        let ran = ran.clone();
                        let counting = async move {
                            yield_now().await;
                            ran.fetch_add(1, Ordering::SeqCst);
                        };
                        let joined = handle.spawn_at(counting, at_level(spawner * 16));
                        if n % 3 == 0 {
                            handle.block_on(joined).unwrap();
                        }
                    }
                });
            }
        });
        runtime.finish();
        assert_eq!(ran.load(Ordering::SeqCst), 1_200);
    });
}

/// Nanoseconds that threads of this name have run.
#[cfg(target_os = "linux")]
fn processor_time_ns(name: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let named = tasks.map(|task| task.unwrap().path()).filter(|task| {
        std::fs::read_to_string(task.join("comm"))
            .is_ok_and(|thread| thread.trim_end().starts_with(name))
    });
    named
        .filter_map(|task| {
            let times = std::fs::read_to_string(task.join("schedstat")).ok()?;
            times.split(' ').next()?.parse::<u64>().ok()
        })
        .sum()
}

#[test]
#[cfg(target_os = "linux")]
fn workers_with_nothing_to_do_cost_nothing() {
    let runtime = Runtime::builder().workers(4).name("sleeper").build().unwrap();
    let waiting = runtime.spawn_at(pending::<()>(), Priority::DEFAULT);
    thread::sleep(Duration::from_millis(100));
    let before = processor_time_ns("sleeper-");
    thread::sleep(Duration::from_millis(300));
    let after = processor_time_ns("sleeper-");
    assert!(before > 0, "the threads are found by their names");
    assert!(after - before < 1_000_000, "{} ns in 300 ms", after - before);
    waiting.abort();
}

#[test]
fn one_worker_keeps_to_priorities() {
    watched("priorities", || {
        let runtime = Runtime::new(1).unwrap();
        let log: Arc<Mutex<Vec<u8>>> = Arc::default();
        // Keeps the worker until all are spawned.
        let (go, wait) = mpsc::channel::<()>();
        let holder = runtime.spawn_at(async move { wait.recv().unwrap() }, Priority::MOST_URGENT);
        let handles: Vec<_> = [40, 3, 63, 0, 20, 3]
            .into_iter()
            .map(|priority| {
                let log = log.clone();
                runtime
                    .spawn_at(async move { log.lock().unwrap().push(priority) }, at_level(priority))
            })
            .collect();
        go.send(()).unwrap();
        runtime.block_on(holder).unwrap();
        for handle in handles {
            runtime.block_on(handle).unwrap();
        }
        assert_eq!(*log.lock().unwrap(), [0, 3, 3, 20, 40, 63]);
    });
}

#[test]
fn the_end_drops_every_future_once_and_polls_none() {
    watched("shutdown with live coroutines", || {
        for workers in [1, 3] {
            let runtime = Runtime::new(workers).unwrap();
            let (drops, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
            let mut handles = Vec::new();
            for n in 0..300_usize {
                let (counted, ended) = (Counted(drops.clone()), ended.clone());
                handles.push(runtime.spawn_at(
                    async move {
                        let _counted = counted;
                        loop {
                            assert!(!ended.load(Ordering::SeqCst), "polled after the end");
                            // Some block, some are always ready.
                            if n % 3 == 0 { pending::<()>().await } else { yield_now().await }
                        }
                    },
                    at_level((n % 64) as u8),
                ));
            }
            thread::sleep(Duration::from_millis(2));
            let handle = runtime.handle();
            drop(runtime);
            ended.store(true, Ordering::SeqCst);
            assert_eq!(drops.load(Ordering::SeqCst), 300);
            assert_eq!(handle.live_count(), 0);
            for joined in handles {
                assert_eq!(handle.block_on(joined), Err(JoinError::Cancelled));
            }
        }
    });
}

#[test]
fn spawning_races_with_the_end_and_no_coroutine_is_left_behind() {
    watched("spawning against shutdown", || {
        let (spawned, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for round in 0..150_usize {
            let runtime = Runtime::new(2).unwrap();
            thread::scope(|scope| {
                for _ in 0..2 {
                    let (handle, spawned, dropped) =
                        (runtime.handle(), spawned.clone(), dropped.clone());
                    scope.spawn(move || {
                        for _ in 0..40 {
                            let counted = Counted(dropped.clone());
                            spawned.fetch_add(1, Ordering::SeqCst);
                            let stays = async move {
                                let _counted = counted;
                                pending::<()>().await;
                            };
                            let joined = handle.spawn_at(stays, Priority::DEFAULT);
                            if handle.live_count() == 0 {
                                assert_eq!(handle.block_on(joined), Err(JoinError::Cancelled));
                            }
                        }
                    });
                }
                scope.spawn(move || {
                    for _ in 0..round * 10 {
                        std::hint::spin_loop();
                    }
                    drop(runtime);
                });
            });
        }
        // The last to be refused may be dropped by the executor's next runtime, which is another
        // test's.
        while spawned.load(Ordering::SeqCst) != dropped.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    });
}

#[test]
fn a_destructor_may_spawn_at_the_end() {
    struct Spawns(Arc<AtomicUsize>);
    impl Drop for Spawns {
        fn drop(&mut self) {
            let handle = Handle::current().expect("futures are dropped on a worker");
            let counted = Counted(self.0.clone());
            let polled = async move {
                let _counted = counted;
                unreachable!("it is refused");
            };
            drop::<JoinHandle<()>>(handle.spawn_at(polled, Priority::MOST_URGENT));
        }
    }
    watched("a destructor that spawns", || {
        let drops = Arc::new(AtomicUsize::new(0));
        let runtime = Runtime::new(1).unwrap();
        let spawns = Spawns(drops.clone());
        let waiting = runtime.spawn_at(
            async move {
                let _spawns = spawns;
                pending::<()>().await;
            },
            Priority::DEFAULT,
        );
        drop(runtime);
        assert_eq!(drops.load(Ordering::SeqCst), 1);
        assert!(waiting.is_finished());
    });
}

#[test]
fn a_runtime_may_be_dropped_on_its_own_worker() {
    watched("drop on a worker", || {
        let runtime = Runtime::new(2).unwrap();
        let handle = runtime.handle();
        let (give, take) = mpsc::channel::<Runtime>();
        let waiting = runtime.spawn_at(pending::<()>(), Priority::DEFAULT);
        let dropping =
            runtime.spawn_at(async move { drop(take.recv().unwrap()) }, Priority::DEFAULT);
        give.send(runtime).unwrap();
        assert_eq!(handle.block_on(dropping), Ok(()));
        assert_eq!(handle.block_on(waiting), Err(JoinError::Cancelled));
    });
}

#[test]
fn two_runtimes_wake_each_other() {
    watched("two runtimes", || {
        let (left, right) = (Runtime::new(1).unwrap(), Runtime::new(2).unwrap());
        let (here, there) = (Gate::default(), Gate::default());
        let answers = {
            let (here, there) = (here.clone(), there.clone());
            right.spawn_at(
                async move {
                    for _ in 0..1_000 {
                        here.passed().await;
                        there.open();
                    }
                },
                Priority::DEFAULT,
            )
        };
        let asks = left.spawn_at(
            async move {
                for _ in 0..1_000 {
                    here.open();
                    there.passed().await;
                }
                answers.await
            },
            Priority::DEFAULT,
        );
        assert_eq!(left.block_on(asks), Ok(Ok(())));
    });
}

#[test]
fn waiting_on_a_worker_of_the_same_runtime_is_refused() {
    watched("nested block_on", || {
        let runtime = Runtime::new(2).unwrap();
        let handle = runtime.handle();
        let nested = runtime.spawn_at(async move { handle.block_on(async {}) }, Priority::DEFAULT);
        assert!(runtime.block_on(nested).is_err_and(|error| error.is_panic()));
        // On a worker of another it blocks that worker, and works.
        let other = Runtime::new(1).unwrap();
        let across = other.spawn_at(
            async move { handle.block_on(handle.spawn_at(async { 7 }, Priority::DEFAULT)) },
            Priority::DEFAULT,
        );
        assert_eq!(other.block_on(across), Ok(Ok(7)));
    });
}

#[test]
fn a_panic_ends_one_coroutine() {
    let runtime = Runtime::new(1).unwrap();
    let bad = runtime.spawn_at(async { panic!("on purpose") }, Priority::DEFAULT);
    let good = runtime.spawn_at(async { 1 }, Priority::DEFAULT);
    let error = runtime.block_on(bad).unwrap_err();
    assert!(error.is_panic() && !error.is_cancelled());
    assert_eq!(error.to_string(), "the coroutine panicked: on purpose");
    assert_eq!(*error.into_panic().downcast::<&str>().unwrap(), "on purpose");
    assert_eq!(runtime.block_on(good), Ok(1));
}

#[test]
fn a_panics_payload_reaches_the_joiner() {
    /// Counts its drops.
    struct Payload(Arc<AtomicU32>);
    impl Drop for Payload {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    fn is_an_error<E: std::error::Error + Send + Sync + 'static>(error: E) -> E {
        error
    }
    let runtime = Runtime::new(1).unwrap();
    let drops = Arc::new(AtomicU32::new(0));
    let panics = || {
        let payload = Payload(drops.clone());
        runtime.spawn_at(async move { std::panic::panic_any(payload) }, Priority::DEFAULT)
    };
    let error = is_an_error(runtime.block_on(panics()).map(|never: ()| never).unwrap_err());
    assert_eq!(
        (error.to_string().as_str(), drops.load(Ordering::SeqCst)),
        ("the coroutine panicked", 0)
    );
    // As a thread's would.
    let payload = error.into_panic();
    let again = thread::spawn(|| std::panic::resume_unwind(payload)).join();
    assert!(again.map(|never: ()| never).unwrap_err().is::<Payload>());
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    // One that is not joined is dropped with the coroutine.
    drop(panics());
    runtime.finish();
    assert_eq!(drops.load(Ordering::SeqCst), 2);
}

#[test]
fn finish_waits_for_those_that_come_later_too() {
    /// Spawns the next of a chain, after a while.
    fn chain(left: u32, ended: Arc<AtomicUsize>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            for _ in 0..20 {
                yield_now().await;
            }
            if left != 0 {
                let handle = Handle::current().unwrap();
                drop(handle.spawn_at(chain(left - 1, ended.clone()), at_level((left % 64) as u8)));
            }
            ended.fetch_add(1, Ordering::SeqCst);
        })
    }
    watched("finish", || {
        for workers in [1, 2, 4] {
            let (runtime, ended) = (Runtime::new(workers).unwrap(), Arc::new(AtomicUsize::new(0)));
            drop(runtime.spawn_at(chain(100, ended.clone()), Priority::DEFAULT));
            runtime.finish();
            assert_eq!(ended.load(Ordering::SeqCst), 101);
            // Without any coroutine, at once.
            Runtime::new(workers).unwrap().finish();
        }
    });
}

#[test]
fn an_executor_goes_from_one_runtime_to_the_next_with_no_coroutine_left_on_it() {
    watched("lease after lease", || {
        let mut stale: Option<(Handle, Waker)> = None;
        for round in 0..400_u32 {
            let runtime = Runtime::new(round % 3 + 1).unwrap();
            if let Some((handle, waker)) = stale.take() {
                // Neither does anything to the new runtime.
                waker.wake();
                let late = handle.spawn_at(async { panic!("it is not polled") }, Priority::DEFAULT);
                assert!(late.is_finished() && priority(late.id()).is_none() && !wake_up(late.id()));
                late.abort();
                assert_eq!(runtime.block_on(late), Err::<(), _>(JoinError::Cancelled));
            }
            let waker = runtime.spawn_at(
                poll_fn(|context| Poll::Ready(context.waker().clone())),
                Priority::DEFAULT,
            );
            stale = Some((runtime.handle(), runtime.block_on(waker).unwrap()));
            drop(runtime.spawn_at(pending::<()>(), Priority::DEFAULT));
        }
    });
}

#[test]
fn a_lent_thread_and_a_future_of_its_own() {
    static EXECUTOR: Executor = Executor::with_number(7);
    watched("a thread that is lent", || {
        EXECUTOR.start_on_host(2).unwrap();
        let gate = Gate::default();
        let opener = gate.clone();
        let main = thread::spawn(move || EXECUTOR.block_on(gate.passed()));
        thread::sleep(Duration::from_millis(5));
        // From a thread that is no worker, while worker 0 sleeps.
        opener.open();
        main.join().unwrap();
        EXECUTOR.block_on(async {
            let third = async {
                assert_eq!(
                    EXECUTOR.run_until_done(),
                    RunOutcome::Refused,
                    "each worker is a thread"
                );
            };
            thread::scope(|scope| {
                scope.spawn(|| EXECUTOR.block_on(third)).join().unwrap();
            });
        });
        EXECUTOR.request_stop(true);
        let waiting = EXECUTOR.spawn_join(pending::<()>(), Priority::DEFAULT).unwrap();
        assert_eq!(EXECUTOR.run_until_done(), RunOutcome::StopRequested);
        EXECUTOR.request_stop(false);
        waiting.abort();
        assert_eq!(EXECUTOR.run_until_done(), RunOutcome::Stalled);
        // Its handle says where it is, as a runtime's does.
        let inside =
            EXECUTOR.spawn_join(async { Handle::current().is_some() }, Priority::DEFAULT).unwrap();
        assert_eq!(EXECUTOR.block_on(inside), Ok(true));
    });
}

#[test]
fn a_panic_of_the_main_future_leaves_the_worker_usable() {
    static EXECUTOR: Executor = Executor::with_number(8);
    EXECUTOR.start_on_host(1).unwrap();
    let mut polls = 0;
    let main = poll_fn(|context: &mut Context<'_>| -> Poll<()> {
        polls += 1;
        assert!(polls < 2, "on purpose");
        context.waker().wake_by_ref();
        Poll::Pending
    });
    let main = std::panic::AssertUnwindSafe(|| EXECUTOR.block_on(main));
    assert!(std::panic::catch_unwind(main).is_err());
    let answer = EXECUTOR.spawn_join(async { 5 }, Priority::DEFAULT).unwrap();
    assert_eq!(EXECUTOR.block_on(answer), Ok(5));
}

#[test]
fn a_runtime_has_1_to_64_workers() {
    for workers in [0, 65] {
        assert!(matches!(Runtime::new(workers), Err(BuildError::WorkersOutOfRange)));
    }
    let runtime = Runtime::builder().workers(64).stack_bytes(64 << 10).build().unwrap();
    let handles: Vec<_> =
        (0..640).map(|n| runtime.spawn_at(async move { n }, Priority::DEFAULT)).collect();
    let sum: u32 = handles.into_iter().map(|handle| runtime.block_on(handle).unwrap()).sum();
    assert_eq!(sum, 639 * 640 / 2);
}
