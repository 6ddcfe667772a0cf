//! `sync` under threads: nothing is lost, nothing is there twice, no coroutine sleeps for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use cops_executor::sync::*;
use cops_executor::time::{ManualClock, Timers};
use cops_executor::*;

const WORKERS: u32 = 3;
const COROUTINES: u64 = if cfg!(miri) { 6 } else { 60 };
const ROUNDS: u64 = if cfg!(miri) { 3 } else { 400 };

macro_rules! executor {
    ($number:literal) => {{
        static EXECUTOR: Executor = Executor::with_number($number);
        EXECUTOR.start_on_host(WORKERS).unwrap();
        &EXECUTOR
    }};
}

/// Runs all workers until all coroutines have exited; `beside` runs on another thread until then.
/// None may have panicked.
fn run(executor: &'static Executor, handles: Vec<JoinHandle<()>>, beside: impl Fn() + Sync) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                beside();
                thread::yield_now();
            }
        });
        let workers: Vec<_> =
            (0..WORKERS).map(|_| scope.spawn(|| executor.run_until_done())).collect();
        for worker in workers {
            worker.join().unwrap();
        }
        over.store(true, Ordering::Release);
    });
    assert_eq!(executor.live_count(), 0);
    for handle in handles {
        assert_eq!(executor.block_on(handle), Ok(()));
    }
}

fn some_level(number: u64) -> Priority {
    Priority::new((number * 7 % 64) as u8).unwrap()
}

#[test]
fn a_mutex_excludes_under_cancelling_and_changing_priorities() {
    let executor = executor!(10);
    static COUNTERS: [Mutex<u64>; 3] = [const { Mutex::new(0) }; 3];
    let inside: Arc<[AtomicU64; 3]> = Arc::default();
    let done = Arc::new(AtomicU64::new(0));
    let handles: Vec<_> = (0..COROUTINES)
        .map(|number| {
            let (inside, done) = (inside.clone(), done.clone());
            let work = async move {
                for round in 0..ROUNDS {
                    // In ascending order: no deadlock.
                    let first = ((number + round) % 3) as usize;
                    let mut guard = COUNTERS[first].lock().await;
                    assert_eq!(inside[first].fetch_add(1, Ordering::Relaxed), 0);
                    if round % 3 == 0 {
                        yield_now().await;
                    }
                    if first < 2 && round % 5 == 0 {
                        *COUNTERS[first + 1].lock().await += 1;
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    *guard += 1;
                    assert_eq!(inside[first].fetch_sub(1, Ordering::Relaxed), 1);
                    drop(guard);
                    done.fetch_add(1, Ordering::Relaxed);
                    // A wait that is given up.
                    let timers = Timers::new(ManualClock::new());
                    let _ = timers.timeout(Duration::ZERO, COUNTERS[first].lock()).await;
                }
            };
            executor.spawn_join(work, some_level(number)).unwrap()
        })
        .collect();
    let ids: Vec<_> = handles.iter().map(JoinHandle::id).collect();
    let turn = AtomicU64::new(0);
    run(executor, handles, || {
        let turn = turn.fetch_add(1, Ordering::Relaxed);
        set_priority(ids[(turn * 11 % COROUTINES) as usize], some_level(turn));
    });
    let sum: u64 =
        COUNTERS.iter().map(|counter| *counter.try_lock().expect("no coroutine holds it")).sum();
    assert_eq!(sum, done.load(Ordering::Relaxed));
}

#[test]
fn permits_are_neither_lost_nor_made() {
    let executor = executor!(11);
    let mut handles = Vec::new();
    static SEMAPHORE: Semaphore = Semaphore::new(5);
    let out = Arc::new(AtomicUsize::new(0));
    for number in 0..COROUTINES {
        let out = out.clone();
        let work = async move {
            for round in 0..ROUNDS {
                let count = 1 + ((number + round) % 5) as usize;
                let permit = SEMAPHORE.acquire(count).await;
                assert!(out.fetch_add(count, Ordering::Relaxed) + count <= 5);
                if round % 2 == 0 {
                    yield_now().await;
                }
                out.fetch_sub(count, Ordering::Relaxed);
                drop(permit);
                let timers = Timers::new(ManualClock::new());
                let _ = timers.timeout(Duration::ZERO, SEMAPHORE.acquire(5)).await;
            }
        };
        handles.push(executor.spawn_join(work, some_level(number)).unwrap());
    }
    run(executor, handles, || SEMAPHORE.add_permits(0));
    assert_eq!(SEMAPHORE.available(), 5);
}

#[test]
fn every_value_is_received_once() {
    let executor = executor!(12);
    let mut handles = Vec::new();
    let (sender, receiver) = channel(4);
    let (sum, count) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    for number in 0..COROUTINES {
        let sender = sender.clone();
        let send = async move {
            for round in 0..ROUNDS {
                sender.send(number * ROUNDS + round).await.unwrap();
            }
        };
        handles.push(executor.spawn_join(send, some_level(number)).unwrap());
        let (receiver, sum, count) = (receiver.clone(), sum.clone(), count.clone());
        let receive = async move {
            loop {
                let timers = Timers::new(ManualClock::new());
                let received = match timers.timeout(Duration::ZERO, receiver.receive()).await {
                    Ok(received) => received,
                    Err(_) => receiver.receive().await,
                };
                let Some(value) = received else { return };
                sum.fetch_add(value, Ordering::Relaxed);
                count.fetch_add(1, Ordering::Relaxed);
            }
        };
        handles.push(executor.spawn_join(receive, some_level(number + 3)).unwrap());
    }
    drop((sender, receiver));
    run(executor, handles, || ());
    let all = COROUTINES * ROUNDS;
    assert_eq!(
        (count.load(Ordering::Relaxed), sum.load(Ordering::Relaxed)),
        (all, all * (all - 1) / 2)
    );
}

#[test]
fn signals_meet_their_waiters() {
    let executor = executor!(13);
    let mut handles = Vec::new();
    static MEET: Rendezvous<64> = Rendezvous::new();
    for number in 0..COROUTINES {
        let wait = async move {
            for _ in 0..ROUNDS {
                MEET.wait_on(number % 7).await;
            }
        };
        handles.push(executor.spawn_join(wait, some_level(number)).unwrap());
        let signal = async move {
            for _ in 0..ROUNDS {
                while MEET.signal(number % 7).is_err() {
                    yield_now().await;
                }
                if number % 3 == 0 {
                    yield_now().await;
                }
            }
        };
        handles.push(executor.spawn_join(signal, some_level(number + 1)).unwrap());
    }
    run(executor, handles, || ());
    assert!((0..7).all(|key| MEET.remembered(key) == 0));
}

#[test]
fn an_event_that_is_set_from_another_thread_releases_all_waiters() {
    let executor = executor!(14);
    let mut handles = Vec::new();
    static EVENT: Event = Event::new();
    for number in 0..COROUTINES {
        let wait = async {
            for _ in 0..ROUNDS {
                EVENT.wait().await;
                EVENT.clear();
            }
        };
        handles.push(executor.spawn_join(wait, some_level(number)).unwrap());
    }
    run(executor, handles, || EVENT.set());
}

#[test]
fn no_coroutine_keeps_what_it_inherited() {
    let executor = executor!(15);
    let mut handles = Vec::new();
    static MUTEXES: [Mutex<()>; 4] = [const { Mutex::new(()) }; 4];
    // The urgent come when a thread outside sets `COME`, and the others are there as long as they
    // are: so some hold what the urgent want.
    static COME: Event = Event::new();
    static URGENT_LEFT: AtomicU64 = AtomicU64::new(0);
    let is_urgent = |number| some_level(number).level() < 32;
    URGENT_LEFT.store(
        (0..COROUTINES).filter(|&number| is_urgent(number)).count() as u64,
        Ordering::Relaxed,
    );
    let raised = Arc::new(AtomicU64::new(0));
    for number in 0..COROUTINES {
        let raised = raised.clone();
        let work = async move {
            let id = current().expect("in a coroutine");
            let mut round = 0;
            while if is_urgent(number) {
                round < ROUNDS / 10 + 1
            } else {
                URGENT_LEFT.load(Ordering::Relaxed) != 0
            } {
                if is_urgent(number) {
                    COME.clear();
                    COME.wait().await;
                }
                let first = ((number + round) % 3) as usize;
                let lower = MUTEXES[first].lock().await;
                yield_now().await;
                let upper = MUTEXES[first + 1].lock().await;
                yield_now().await;
                let urgency = priority(id).unwrap();
                raised.fetch_add(
                    urgency.is_more_urgent_than(some_level(number)) as u64,
                    Ordering::Relaxed,
                );
                drop(lower);
                drop(upper);
                assert_eq!(priority(id), Some(some_level(number)), "it holds nothing any more");
                round += 1;
            }
            URGENT_LEFT.fetch_sub(is_urgent(number) as u64, Ordering::Relaxed);
        };
        handles.push(executor.spawn_join(work, some_level(number)).unwrap());
    }
    run(executor, handles, || COME.set());
    assert!(cfg!(miri) || raised.load(Ordering::Relaxed) != 0, "a priority was raised");
    assert!(MUTEXES.iter().all(|mutex| !mutex.is_locked()));
}
