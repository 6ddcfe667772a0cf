//! When the numbers of executors run out, and that they are used again. A program of its own,
//! because it takes them all.

use std::collections::{HashSet, VecDeque};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread;

use cops_executor::*;

/// One test at a time has executors: the numbers are the program's.
fn numbers() -> MutexGuard<'static, ()> {
    static NUMBERS: Mutex<()> = Mutex::new(());
    NUMBERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What belongs to an executor on a host is found by its number, and a program may make an executor
/// with any number. Another thread that ran the coroutines of a `LocalRuntime` in this way would
/// share what is not `Sync` with the runtime's thread.
#[test]
fn an_executor_with_the_number_of_another_one_does_not_run_it() {
    let _numbers = numbers();
    let runtime = LocalRuntime::new().unwrap();
    let polled_by: Arc<Mutex<Vec<_>>> = Arc::default();
    let polled = polled_by.clone();
    let local = runtime.spawn_local(async move {
        polled.lock().unwrap().push(thread::current().id());
    });
    let impostor: &Executor = Box::leak(Box::new(Executor::with_number(local.id().executor())));
    let runs = move || {
        let blocks_on = catch_unwind(AssertUnwindSafe(|| impostor.block_on(yield_now())));
        (blocks_on.is_ok(), impostor.run_until_done())
    };
    assert_eq!(thread::spawn(runs).join().unwrap(), (false, RunOutcome::Refused));
    assert_eq!(runtime.block_on(local), Ok(()));
    assert_eq!(*polled_by.lock().unwrap(), [thread::current().id()]);
}

#[test]
fn the_257th_is_refused_and_one_that_ends_makes_room() {
    let _numbers = numbers();
    static EXECUTOR: Executor = Executor::with_number(0);
    EXECUTOR.start_on_host(1).unwrap();
    let build = || Runtime::builder().workers(1).stack_bytes(64 << 10).build();
    let mut runtimes: Vec<Runtime> = (0..255).map(|_| build().unwrap()).collect();
    let here: HashSet<_> = runtimes
        .iter()
        .map(|runtime| {
            let id = runtime.spawn_at(async { current().unwrap().executor() }, Priority::DEFAULT);
            runtime.block_on(id).unwrap()
        })
        .collect();
    assert_eq!(here, (1..=255).collect(), "each has its own, and none the one that is taken");

    assert!(matches!(build(), Err(BuildError::NumbersExhausted)));
    runtimes.pop();
    let next = build().unwrap();
    assert!(matches!(build(), Err(BuildError::NumbersExhausted)));
    drop(next);
    // The one that is free has had one worker so far.
    let other = Runtime::new(3).unwrap();
    assert_eq!(all_workers_of(&other, 3), HashSet::from([0, 1, 2]));
    assert!(matches!(build(), Err(BuildError::NumbersExhausted)));
    drop(other);
    let fewer = Runtime::new(2).unwrap();
    assert_eq!(all_workers_of(&fewer, 2), HashSet::from([0, 1]));
    drop(fewer);
    assert_eq!(
        EXECUTOR.block_on(EXECUTOR.spawn_join(async { 1 }, Priority::DEFAULT).unwrap()),
        Ok(1)
    );

    runtimes.clear();
    thousands_come_and_go();
}

/// The workers that run as many coroutines, each of which blocks its thread until all run.
fn all_workers_of(runtime: &Runtime, workers: usize) -> HashSet<u32> {
    let together = Arc::new(Barrier::new(workers));
    let one = || {
        let together = together.clone();
        runtime.spawn_at(
            async move {
                together.wait();
                current_worker_of(current().unwrap().executor())
            },
            Priority::DEFAULT,
        )
    };
    let all: Vec<_> = (0..workers).map(|_| one()).collect();
    all.into_iter().map(|one| runtime.block_on(one).unwrap()).collect()
}

/// Ten thousand runtimes, of one to three workers. What is kept of earlier ones never reaches a
/// coroutine of a later one.
fn thousands_come_and_go() {
    /// As many as there can be numbers, and more: so one of them was in the same slot of the same
    /// executor.
    const KEPT: usize = 300;
    let mut kept: VecDeque<(Handle, CoroutineId, Waker)> = VecDeque::new();
    let mut met = 0;
    for n in 0..10_000_u32 {
        let runtime = Runtime::builder().workers(1 + n % 3).stack_bytes(64 << 10).build().unwrap();
        let polls = Arc::new(AtomicU32::new(0));
        let (counted, finishes) = (polls.clone(), Arc::new(sync::Event::new()));
        let finish = finishes.clone();
        let (tell, told) = channel();
        let stranger = runtime.spawn_at(
            async move {
                let mut wait = pin!(finish.wait());
                poll_fn(|context| {
                    let polled = wait.as_mut().poll(context);
                    counted.fetch_add(1, SeqCst);
                    let _ = tell.send(context.waker().clone());
                    polled
                })
                .await;
            },
            Priority::DEFAULT,
        );
        let (id, waker) = (stranger.id(), told.recv().unwrap());
        for (old_handle, old_id, stale) in &kept {
            met += u32::from((id.executor(), id.index()) == (old_id.executor(), old_id.index()));
            stale.wake_by_ref();
            assert!(
                !wake_up(*old_id)
                    && !cancel(*old_id)
                    && !set_priority(*old_id, Priority::MOST_URGENT)
            );
            assert_eq!(old_handle.live_count(), 0);
        }
        assert_eq!(priority(id), Some(Priority::DEFAULT));
        finishes.set();
        assert_eq!(runtime.block_on(stranger), Ok(()));
        assert_eq!(polls.load(SeqCst), 2, "woken by the waker of another runtime's coroutine");
        kept.push_back((runtime.handle(), id, waker));
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
    assert!(met > 1_000, "{met} in the slot of an earlier one: the test tests nothing");
}
