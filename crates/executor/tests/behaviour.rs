//! What the documentation promises, one promise a test: the front on one worker, in a known order.
#![allow(unsafe_code)]

mod common;

use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use common::Host;
use cops_executor::*;

/// Each test has its own executor: numbers are global.
macro_rules! executor {
    ($number:literal) => {{
        static EXECUTOR: Executor = Executor::with_number($number);
        EXECUTOR.start_on_host(1).unwrap();
        &EXECUTOR
    }};
}

fn level(level: u8) -> Priority {
    Priority::new(level).unwrap()
}

/// What happened, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u32>>>);

impl Log {
    fn push(&self, entry: u32) {
        self.0.lock().unwrap().push(entry);
    }

    fn take(&self) -> Vec<u32> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Logs and blocks until woken, `rounds` times.
fn blocker(log: &Log, entry: u32, rounds: usize) -> impl Future<Output = ()> + Send + 'static {
    let log = log.clone();
    let mut left = rounds;
    poll_fn(move |_| {
        log.push(entry);
        left -= 1;
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
}

#[test]
fn equal_priorities_run_in_the_order_in_which_they_became_ready() {
    let executor = executor!(10);
    let log = Log::default();
    let ids: Vec<_> =
        (0..5).map(|n| executor.spawn(blocker(&log, n, 2), Priority::DEFAULT).unwrap()).collect();
    assert_eq!(executor.run_until_stalled(0), RunOutcome::Stalled);
    assert_eq!(log.take(), [0, 1, 2, 3, 4]);
    for n in [3, 0, 4, 1, 2] {
        assert!(wake_up(ids[n]));
    }
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [3, 0, 4, 1, 2]);
    assert_eq!(executor.live_count(), 0);
}

#[test]
fn yielding_is_round_robin_within_a_level_and_never_to_a_lower_one() {
    let executor = executor!(11);
    let log = Log::default();
    for (entry, urgency) in [(0, 10), (1, 5), (2, 5), (3, 10)] {
        let log = log.clone();
        let rounds = async move {
            for _ in 0..3 {
                log.push(entry);
                yield_now().await;
            }
        };
        executor.spawn(rounds, level(urgency)).unwrap();
    }
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [1, 2, 1, 2, 1, 2, 0, 3, 0, 3, 0, 3]);
}

#[test]
fn what_becomes_ready_during_a_poll_comes_before_the_one_that_yields() {
    let executor = executor!(12);
    let log = Log::default();
    let sleeper = executor.spawn(blocker(&log, 7, 2), Priority::DEFAULT).unwrap();
    executor.run_until_stalled(0);
    let inner = log.clone();
    let yielder = async move {
        inner.push(1);
        current().map(wake_up);
        wake_up(sleeper);
        yield_now().await;
        inner.push(2);
    };
    executor.spawn(yielder, Priority::DEFAULT).unwrap();
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [7, 1, 7, 2]);
}

#[test]
fn an_urgent_one_woken_among_a_thousand_runs_next() {
    // Miri is slow.
    let ordinary_ones: u32 = if cfg!(miri) { 50 } else { 1_000 };
    let executor = executor!(13);
    let log = Log::default();
    let urgent = executor.spawn(blocker(&log, 9999, 2), Priority::MOST_URGENT).unwrap();
    executor.run_until_stalled(0);
    log.take();
    for n in 0..ordinary_ones {
        let log = log.clone();
        let ordinary = async move {
            log.push(n);
            if n == ordinary_ones / 2 {
                wake_up(urgent);
            }
        };
        executor.spawn(ordinary, Priority::DEFAULT).unwrap();
    }
    executor.run_until_stalled(0);
    let order = log.take();
    let half = ordinary_ones / 2;
    assert_eq!(order.len() as u32, ordinary_ones + 1);
    assert_eq!(order[half as usize..][..2], [half, 9999]);
}

#[test]
fn wakes_are_idempotent_and_one_during_the_poll_is_not_lost() {
    let executor = executor!(14);
    let log = Log::default();
    let inner = log.clone();
    let mut polls = 0;
    let id = executor
        .spawn(
            poll_fn(move |context| {
                polls += 1;
                inner.push(polls);
                if polls == 2 {
                    for _ in 0..3 {
                        context.waker().wake_by_ref();
                    }
                }
                Poll::Pending
            }),
            Priority::DEFAULT,
        )
        .unwrap();
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [1]);
    for _ in 0..3 {
        assert!(wake_up(id));
    }
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [2, 3]);
    cancel(id);
    executor.run_until_stalled(0);
}

#[test]
fn a_late_wake_does_not_reach_the_next_tenant() {
    let executor = executor!(15);
    let log = Log::default();
    let first = executor.spawn(blocker(&log, 1, 1), Priority::DEFAULT).unwrap();
    let late = waker_of(first);
    executor.run_until_stalled(0);
    let second = executor.spawn(blocker(&log, 2, 2), Priority::DEFAULT).unwrap();
    executor.run_until_stalled(0);
    assert_eq!(first.index(), second.index(), "the slot was reused");
    assert_ne!(first, second);
    assert_eq!(log.take(), [1, 2]);
    late.wake_by_ref();
    assert!(!wake_up(first) && !cancel(first) && !set_priority(first, Priority::MOST_URGENT));
    assert_eq!((priority(first), priority(second)), (None, Some(Priority::DEFAULT)));
    executor.run_until_stalled(0);
    assert_eq!(log.take(), []);
    late.wake();
    assert!(wake_up(second));
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [2]);
}

#[test]
fn ids_of_no_coroutine_are_harmless() {
    let executor = executor!(16);
    let made_up =
        [1 << 32, 1 << 32 | 16 << 24 | 5, u64::MAX, 7 << 32 | 200 << 24, 1 << 32 | 16 << 24];
    for id in made_up.into_iter().filter_map(CoroutineId::from_raw) {
        assert!(!wake_up(id) && !cancel(id) && !set_priority(id, Priority::DEFAULT));
        assert_eq!(priority(id), None);
        waker_of(id).wake();
    }
    assert_eq!(executor.run_until_stalled(0), RunOutcome::Stalled);
    assert_eq!(current(), None);
}

#[test]
fn set_priority_moves_a_ready_one_to_the_tail_of_its_new_level() {
    let executor = executor!(17);
    let log = Log::default();
    let ids: Vec<_> =
        (0..4).map(|n| executor.spawn(blocker(&log, n, 1), level(20)).unwrap()).collect();
    assert_eq!(executor.run(0, 0), RunOutcome::BudgetUsed);
    assert!(
        set_priority(ids[2], level(10))
            && set_priority(ids[0], level(10))
            && set_priority(ids[1], level(30))
    );
    assert_eq!(priority(ids[2]), Some(level(10)));
    assert_eq!(executor.most_urgent(0), Some(level(10)));
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [2, 0, 3, 1]);
}

#[test]
fn most_urgent_sees_what_interrupts_a_poll() {
    let executor = executor!(18);
    let sleeper = executor.spawn(pending(), level(3)).unwrap();
    executor.run_until_stalled(0);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let inner = seen.clone();
    let long = async move {
        inner.lock().unwrap().push(executor.most_urgent(0));
        wake_up(sleeper);
        inner.lock().unwrap().push(executor.most_urgent(0));
        set_priority(sleeper, level(2));
        inner.lock().unwrap().push(executor.most_urgent(0));
    };
    executor.spawn(long, Priority::DEFAULT).unwrap();
    executor.run_until_stalled(0);
    assert_eq!(*seen.lock().unwrap(), [None, Some(level(3)), Some(level(2))]);
}

/// Counts drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn cancel_drops_exactly_once_in_every_state() {
    let executor = executor!(19);
    let drops = Arc::new(AtomicUsize::new(0));
    let spawn = |polls: &Arc<AtomicUsize>| {
        let (counted, polls) = (Counted(drops.clone()), polls.clone());
        let future = poll_fn(move |_| {
            let _ = &counted;
            polls.fetch_add(1, Ordering::Relaxed);
            Poll::<()>::Pending
        });
        executor.spawn(future, Priority::DEFAULT).unwrap()
    };
    let polls = Arc::new(AtomicUsize::new(0));
    // In the inbox, never polled.
    let posted = spawn(&polls);
    assert!(cancel(posted) && cancel(posted));
    executor.run_until_stalled(0);
    assert_eq!((drops.load(Ordering::Relaxed), polls.load(Ordering::Relaxed)), (1, 0));
    // In a list.
    let listed = spawn(&polls);
    executor.run(0, 0);
    assert!(cancel(listed));
    executor.run_until_stalled(0);
    assert_eq!((drops.load(Ordering::Relaxed), polls.load(Ordering::Relaxed)), (2, 0));
    // Blocked.
    let blocked = spawn(&polls);
    executor.run_until_stalled(0);
    assert!(cancel(blocked));
    assert_eq!(
        drops.load(Ordering::Relaxed),
        2,
        "dropped by a worker, not by the caller of `cancel`"
    );
    executor.run_until_stalled(0);
    assert_eq!((drops.load(Ordering::Relaxed), polls.load(Ordering::Relaxed)), (3, 1));
    // Running: by itself, after its poll.
    let counted = Counted(drops.clone());
    let during = Arc::new(AtomicUsize::new(0));
    let (seen, inner) = (during.clone(), drops.clone());
    let suicide = poll_fn(move |_| {
        let _ = &counted;
        cancel(current().unwrap());
        seen.store(inner.load(Ordering::Relaxed), Ordering::Relaxed);
        Poll::<()>::Pending
    });
    executor.spawn(suicide, Priority::DEFAULT).unwrap();
    executor.run_until_stalled(0);
    assert_eq!((during.load(Ordering::Relaxed), drops.load(Ordering::Relaxed)), (3, 4));
    // Exited.
    assert!(!cancel(blocked));
    executor.run_until_stalled(0);
    assert_eq!((drops.load(Ordering::Relaxed), executor.live_count()), (4, 0));
}

#[test]
fn a_destructor_may_use_the_executor() {
    let executor = executor!(20);
    let log = Log::default();
    let sleeper = executor.spawn(blocker(&log, 1, 2), Priority::DEFAULT).unwrap();
    struct Wakes(CoroutineId, &'static Executor, Log);
    impl Drop for Wakes {
        fn drop(&mut self) {
            wake_up(self.0);
            wake_up(current().unwrap());
            self.1.spawn(blocker(&self.2, 2, 1), Priority::DEFAULT).unwrap();
        }
    }
    let guard = Wakes(sleeper, executor, log.clone());
    let holder = async move {
        let _guard = guard;
        pending::<()>().await;
    };
    let holder = executor.spawn(holder, Priority::DEFAULT).unwrap();
    executor.run_until_stalled(0);
    cancel(holder);
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [1, 1, 2]);
    assert_eq!(executor.live_count(), 0);
}

#[test]
fn a_join_handle_yields_the_output() {
    let executor = executor!(21);
    let handle = executor.spawn_join(async { "done".to_string() }, Priority::DEFAULT).unwrap();
    assert!(!handle.is_finished());
    executor.run_until_stalled(0);
    assert!(handle.is_finished());
    assert_eq!(executor.block_on(handle), Ok("done".to_string()));
}

#[test]
fn a_join_handle_wakes_its_waiter_even_if_that_changes() {
    let executor = executor!(22);
    let gate = Arc::new(AtomicBool::new(false));
    let inner = gate.clone();
    let gated = poll_fn(
        move |_| if inner.load(Ordering::Relaxed) { Poll::Ready(5) } else { Poll::Pending },
    );
    let mut handle = executor.spawn_join(gated, Priority::DEFAULT).unwrap();
    let id = handle.id();
    executor.run_until_stalled(0);
    // First one waker, then another: only the last counts.
    let log = Log::default();
    let other = executor.spawn(blocker(&log, 1, 2), Priority::DEFAULT).unwrap();
    executor.run_until_stalled(0);
    let poll = |handle: &mut JoinHandle<i32>, waker: &Waker| {
        Pin::new(handle).poll(&mut Context::from_waker(waker))
    };
    assert!(poll(&mut handle, Waker::noop()).is_pending());
    assert!(poll(&mut handle, &waker_of(other)).is_pending());
    gate.store(true, Ordering::Relaxed);
    wake_up(id);
    executor.run_until_stalled(0);
    assert_eq!(log.take(), [1, 1]);
    assert_eq!(poll(&mut handle, Waker::noop()), Poll::Ready(Ok(5)));
}

#[test]
fn abort_yields_cancelled_and_a_finished_one_keeps_its_output() {
    let executor = executor!(23);
    let forever = executor.spawn_join(pending::<()>(), Priority::DEFAULT).unwrap();
    executor.run_until_stalled(0);
    forever.abort();
    assert_eq!(executor.block_on(forever), Err(JoinError::Cancelled));
    let finished = executor.spawn_join(async { 3 }, Priority::DEFAULT).unwrap();
    executor.run_until_stalled(0);
    finished.abort();
    assert_eq!(executor.block_on(finished), Ok(3));
}

#[test]
fn dropping_a_join_handle_detaches() {
    let executor = executor!(24);
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Counted(drops.clone());
    let handle = executor
        .spawn_join(
            async move {
                yield_now().await;
                counted
            },
            Priority::DEFAULT,
        )
        .unwrap();
    drop(handle);
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    executor.run_until_stalled(0);
    assert_eq!((drops.load(Ordering::Relaxed), executor.live_count()), (1, 0));
}

#[test]
fn a_panic_ends_one_coroutine_only() {
    let executor = executor!(25);
    let bad = executor
        .spawn_join(
            async {
                if true {
                    panic!("expected by this test")
                }
            },
            Priority::DEFAULT,
        )
        .unwrap();
    executor.spawn(async { panic!("expected by this test") }, Priority::DEFAULT).unwrap();
    let good = executor.spawn_join(async { 1 }, Priority::DEFAULT).unwrap();
    executor.run_until_stalled(0);
    assert!(executor.block_on(bad).is_err_and(|error| error.is_panic()));
    assert_eq!(executor.block_on(good), Ok(1));
    assert_eq!(executor.live_count(), 0);
}

#[test]
fn the_current_coroutine_is_known_inside_and_only_inside() {
    let executor = executor!(26);
    let handle = executor
        .spawn_join(
            async {
                yield_now().await;
                current()
            },
            Priority::DEFAULT,
        )
        .unwrap();
    assert_eq!(current(), None);
    let id = handle.id();
    assert_eq!(executor.block_on(handle), Ok(Some(id)));
    assert_eq!(current(), None);
}

#[test]
fn executors_nest_but_a_worker_does_not() {
    let outer = executor!(27);
    let inner = executor!(28);
    let nested = async move {
        let me = current();
        assert_eq!(outer.run_until_stalled(0), RunOutcome::Refused);
        let handle = inner.spawn_join(async { current() }, Priority::DEFAULT).unwrap();
        let id = handle.id();
        assert_eq!(inner.block_on(handle), Ok(Some(id)));
        assert_eq!(current(), me);
    };
    let handle = outer.spawn_join(nested, Priority::DEFAULT).unwrap();
    assert_eq!(outer.block_on(handle), Ok(()));
    assert_eq!(outer.run_until_stalled(1), RunOutcome::Refused);
}

#[test]
fn stop_is_obeyed_at_the_next_scheduling_point_until_taken_back() {
    let executor = executor!(29);
    let log = Log::default();
    let inner = log.clone();
    executor
        .spawn(
            async move {
                inner.push(1);
                executor.request_stop(true)
            },
            Priority::DEFAULT,
        )
        .unwrap();
    executor.spawn(blocker(&log, 2, 1), Priority::DEFAULT).unwrap();
    assert_eq!(executor.run_until_stalled(0), RunOutcome::StopRequested);
    assert_eq!(executor.run_until_stalled(0), RunOutcome::StopRequested);
    assert!(!executor.prepare_park(0), "a worker that shall stop does not park");
    assert_eq!(log.take(), [1]);
    executor.request_stop(false);
    assert_eq!(executor.run_until_stalled(0), RunOutcome::Stalled);
    assert_eq!(log.take(), [2]);
}

#[test]
fn setting_up_wrongly_is_an_answer() {
    static EXECUTOR: Executor = Executor::with_number(30);
    static TWIN: Executor = Executor::with_number(30);
    static STATE: WorkerState = WorkerState::new();
    assert_eq!(EXECUTOR.spawn(async {}, Priority::DEFAULT), Err(SpawnError::NotStarted));
    assert_eq!(EXECUTOR.add_worker(0, &STATE), Err(AddWorkerError::NotStarted));
    assert_eq!(EXECUTOR.run_until_stalled(0), RunOutcome::Refused);
    let host = Box::leak(Host::new());
    // SAFETY: the hooks do what they should, and live for ever.
    unsafe {
        assert_eq!(EXECUTOR.start(&host.hooks()), Ok(()));
        assert_eq!(EXECUTOR.start(&host.hooks()), Err(StartError::NumberTaken));
        assert_eq!(TWIN.start(&host.hooks()), Err(StartError::NumberTaken));
    }
    assert_eq!(EXECUTOR.spawn(async {}, Priority::DEFAULT), Err(SpawnError::NotStarted));
    assert_eq!(EXECUTOR.add_worker(64, &STATE), Err(AddWorkerError::NumberOutOfRange));
    host.bytes_left.store(0, Ordering::Relaxed);
    assert_eq!(EXECUTOR.add_worker(63, &STATE), Err(AddWorkerError::OutOfMemory));
    host.bytes_left.store(usize::MAX, Ordering::Relaxed);
    assert_eq!(EXECUTOR.add_worker(63, &STATE), Ok(()));
    assert_eq!(EXECUTOR.add_worker(63, &STATE), Err(AddWorkerError::NumberTaken));
    EXECUTOR.spawn(async {}, Priority::DEFAULT).unwrap();
    assert_eq!(EXECUTOR.run_until_stalled(63), RunOutcome::Stalled);
    assert_eq!(EXECUTOR.live_count(), 0);
}

#[test]
fn no_memory_is_an_error_and_drops_the_future() {
    static EXECUTOR: Executor = Executor::with_number(31);
    static STATE: WorkerState = WorkerState::new();
    let host = Box::leak(Host::new());
    // SAFETY: the hooks do what they should, and live for ever.
    unsafe { EXECUTOR.start(&host.hooks()) }.unwrap();
    EXECUTOR.add_worker(0, &STATE).unwrap();
    host.bytes_left.store(0, Ordering::Relaxed);
    let drops = Arc::new(AtomicUsize::new(0));
    let counted = Counted(drops.clone());
    let refused = EXECUTOR.spawn(async move { drop(counted) }, Priority::DEFAULT);
    assert_eq!((refused, drops.load(Ordering::Relaxed)), (Err(SpawnError::OutOfMemory), 1));
    let counted = Counted(drops.clone());
    assert!(EXECUTOR.spawn_join(async move { counted }, Priority::DEFAULT).is_err());
    assert_eq!((EXECUTOR.live_count(), drops.load(Ordering::Relaxed)), (0, 2));
    // And not for ever.
    host.bytes_left.store(usize::MAX, Ordering::Relaxed);
    EXECUTOR.spawn(async {}, Priority::DEFAULT).unwrap();
    assert_eq!(EXECUTOR.run_until_stalled(0), RunOutcome::Stalled);
}

#[test]
fn any_future_of_the_ecosystem_works() {
    use futures_util::future::{Either, join_all, select};
    use futures_util::stream::{FuturesUnordered, StreamExt};
    let executor = executor!(32);
    let work = async move {
        let handles = (0..10).map(|n| {
            executor
                .spawn_join(
                    async move {
                        yield_now().await;
                        n
                    },
                    Priority::DEFAULT,
                )
                .unwrap()
        });
        let sum: i32 = join_all(handles).await.into_iter().map(Result::unwrap).sum();
        let unordered: FuturesUnordered<_> = (0..10)
            .map(|n| executor.spawn_join(async move { n }, level(n as u8)).unwrap())
            .collect();
        let other: i32 =
            unordered.map(Result::unwrap).fold(0, |sum, n| async move { sum + n }).await;
        let never = executor.spawn_join(pending::<i32>(), Priority::DEFAULT).unwrap();
        let quick = executor.spawn_join(async { 100 }, Priority::DEFAULT).unwrap();
        let first = match select(never, quick).await {
            Either::Left(_) => unreachable!("it is never ready"),
            Either::Right((output, never)) => {
                never.abort();
                output.unwrap()
            }
        };
        sum + other + first
    };
    let handle = executor.spawn_join(work, Priority::DEFAULT).unwrap();
    assert_eq!(executor.block_on(handle), Ok(190));
    assert_eq!(executor.run_until_done(), RunOutcome::Stalled);
    assert_eq!(executor.live_count(), 0);
}

static BLOCKED_POLLS: AtomicUsize = AtomicUsize::new(0);
static BLOCKED_DROPS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn count_poll(_data: *mut (), _id: u64) -> bool {
    BLOCKED_POLLS.fetch_add(1, Ordering::SeqCst);
    true
}

unsafe extern "C" fn count_drop(_data: *mut ()) {
    BLOCKED_DROPS.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn one_that_begins_blocked_is_polled_once_woken_and_dropped_in_any_case() {
    static VTABLE: FutureVTable = FutureVTable { poll: count_poll, drop: count_drop, kind: 0 };
    let executor = executor!(33);
    let spawn = || {
        // SAFETY: the functions touch counters only and ignore the data word.
        unsafe { executor.spawn_raw_blocked(std::ptr::null_mut(), &VTABLE, level(5)) }.unwrap()
    };
    let (woken, cancelled, left) = (spawn(), spawn(), spawn());
    assert_eq!(executor.run_until_stalled(0), RunOutcome::Stalled);
    assert_eq!((BLOCKED_POLLS.load(Ordering::SeqCst), executor.live_count()), (0, 3));
    assert!(wake_up(woken) && cancel(cancelled));
    assert_eq!(executor.run_until_stalled(0), RunOutcome::Stalled);
    assert_eq!(BLOCKED_POLLS.load(Ordering::SeqCst), 1);
    assert_eq!((BLOCKED_DROPS.load(Ordering::SeqCst), executor.live_count()), (2, 1));
    assert!(!wake_up(woken) && !cancel(cancelled) && wake_up(left));
    assert_eq!(executor.run_until_stalled(0), RunOutcome::Stalled);
    assert_eq!((BLOCKED_DROPS.load(Ordering::SeqCst), executor.live_count()), (3, 0));
}
