//! Many threads, bounded: nothing is lost, doubled, polled by two, polled after its end, or dropped
//! twice.
//!
//! Each test has a watchdog: a wake that is lost shows as a coroutine that never ends.

mod common;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use common::random::Random;
use common::require;
use cops_executor::*;

/// How long all workers must have been parked, with coroutines left and nothing outside that could
/// wake them, for those to count as lost; and how long a test may take if it never comes to that.
const LOST_AFTER: Duration = Duration::from_secs(20);
const WATCHDOG: Duration = Duration::from_secs(if cfg!(miri) { 3_000 } else { 600 });

/// Under Miri, which looks for data races, much fewer will do.
const fn fewer(number: usize, under_miri: usize) -> usize {
    if cfg!(miri) { under_miri } else { number }
}

/// Runs `workers` threads until all coroutines have exited, and fails if some never do. `outside`
/// runs on a thread of its own meanwhile.
fn run_all(executor: &'static Executor, workers: u32, outside: impl FnOnce() + Send) {
    let (done, watched) = channel::<()>();
    let is_alone = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_alone_now = &is_alone;
        let watchdog = scope.spawn(move || watch(executor, workers, is_alone_now, &watched));
        let threads: Vec<_> =
            (0..workers).map(|_| scope.spawn(|| executor.run_until_done())).collect();
        outside();
        is_alone.store(true, Ordering::SeqCst);
        for thread in threads {
            let outcome = thread.join().unwrap();
            assert_eq!(
                outcome,
                RunOutcome::Stalled,
                "{} coroutines never ended",
                executor.live_count()
            );
        }
        drop(done);
        watchdog.join().unwrap();
    });
    assert_eq!(executor.live_count(), 0);
    assert_eq!(executor.core().verify(), Ok(()));
}

/// Stops the workers if they sleep for good though coroutines are left.
fn watch(executor: &Executor, workers: u32, is_alone: &AtomicBool, done: &Receiver<()>) {
    let begun = Instant::now();
    let mut asleep_since = None;
    while done.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
        let all_parked = executor.core().parked().count_ones() == workers;
        if !all_parked || !is_alone.load(Ordering::SeqCst) {
            asleep_since = None;
        } else if asleep_since.get_or_insert_with(Instant::now).elapsed() > LOST_AFTER {
            executor.request_stop(true);
        }
        if begun.elapsed() > WATCHDOG {
            executor.request_stop(true);
        }
    }
}

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn priority(&mut self) -> Priority {
        Priority::saturating(self.next() as u32 % 64)
    }
}

/// What every coroutine here checks of itself.
struct Watched<F> {
    inner: F,
    polling: AtomicBool,
    finished: bool,
    drops: Arc<AtomicUsize>,
}

impl<F: Future<Output = ()> + Unpin> Future for Watched<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        require(!this.polling.swap(true, Ordering::AcqRel), "polled by one worker at a time");
        require(!this.finished, "never polled after its end");
        let polled = Pin::new(&mut this.inner).poll(context);
        this.finished = polled.is_ready();
        require(this.polling.swap(false, Ordering::AcqRel), "polled by one worker at a time");
        polled
    }
}

impl<F> Drop for Watched<F> {
    fn drop(&mut self) {
        require(!self.polling.load(Ordering::Acquire), "never dropped during its poll");
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

fn watched<F>(drops: &Arc<AtomicUsize>, inner: F) -> Watched<F> {
    Watched { inner, polling: AtomicBool::new(false), finished: false, drops: drops.clone() }
}

/// Ends once `tokens` has been raised to `wanted`; blocks otherwise. The side that raises it wakes
/// this.
fn wants(tokens: &'static AtomicU32, wanted: u32) -> impl Future<Output = ()> + Send + Unpin {
    poll_fn(
        move |_| {
            if tokens.load(Ordering::Relaxed) < wanted { Poll::Pending } else { Poll::Ready(()) }
        },
    )
}

#[test]
fn no_wake_is_lost_between_threads_that_park() {
    static EXECUTOR: Executor = Executor::with_number(60);
    const COROUTINES: usize = fewer(50, 4);
    const TOKENS: u32 = fewer(400, 6) as u32;
    static COUNTERS: [AtomicU32; COROUTINES] = [const { AtomicU32::new(0) }; COROUTINES];
    EXECUTOR.start_on_host(3).unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    let ids: Vec<_> = COUNTERS
        .iter()
        .map(|counter| {
            EXECUTOR.spawn(watched(&drops, wants(counter, TOKENS)), Priority::DEFAULT).unwrap()
        })
        .collect();
    run_all(&EXECUTOR, 3, || {
        // Relaxed on purpose: that the poll sees the token is the wake's doing.
        for _ in 0..TOKENS {
            for (counter, &id) in COUNTERS.iter().zip(&ids) {
                counter.fetch_add(1, Ordering::Relaxed);
                wake_up(id);
            }
            // Let them park.
            thread::sleep(Duration::from_micros(20));
        }
    });
    assert_eq!(drops.load(Ordering::Relaxed), COROUTINES);
}

#[test]
fn two_that_wake_each_other_never_sleep_both() {
    static EXECUTOR: Executor = Executor::with_number(61);
    const ROUNDS: u32 = fewer(20_000, 40) as u32;
    static TURN: AtomicU32 = AtomicU32::new(0);
    static IDS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    EXECUTOR.start_on_host(2).unwrap();
    for (me, slot) in IDS.iter().enumerate() {
        let player = poll_fn(move |_| {
            let turn = TURN.load(Ordering::Relaxed);
            if turn >= ROUNDS {
                return Poll::Ready(());
            }
            if turn as usize % 2 == me {
                TURN.store(turn + 1, Ordering::Relaxed);
                // The last one also frees the other.
                CoroutineId::from_raw(IDS[1 - me].load(Ordering::Relaxed)).map(wake_up);
                if turn + 1 >= ROUNDS {
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        });
        slot.store(EXECUTOR.spawn(player, Priority::DEFAULT).unwrap().raw(), Ordering::Relaxed);
    }
    run_all(&EXECUTOR, 2, || {});
    assert_eq!(TURN.load(Ordering::Relaxed), ROUNDS);
}

#[test]
fn a_storm_of_everything_keeps_every_rule() {
    static EXECUTOR: Executor = Executor::with_number(62);
    const COROUTINES: usize = fewer(200, 8);
    const STORM: usize = fewer(300_000, 300);
    static STOP: AtomicBool = AtomicBool::new(false);
    EXECUTOR.start_on_host(3).unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    let mut seed = Random(1);
    let ids: Vec<_> = (0..COROUTINES)
        .map(|number| {
            let mut random = Random(number as u64);
            // Yields, blocks, changes its own urgency, as it falls.
            let wild = poll_fn(move |context| {
                if STOP.load(Ordering::Relaxed) {
                    return Poll::Ready(());
                }
                match random.below(4) {
                    0 => context.waker().wake_by_ref(),
                    1 => {
                        set_priority(current().unwrap(), random.priority());
                    }
                    _ => {}
                }
                Poll::Pending
            });
            EXECUTOR.spawn(watched(&drops, wild), seed.priority()).unwrap()
        })
        .collect();
    let storm = |seed: u64| {
        let mut random = Random(seed);
        for _ in 0..STORM {
            let id = ids[random.below(COROUTINES)];
            match random.below(4_000) {
                0 => drop(cancel(id)),
                1..1_600 => drop(set_priority(id, random.priority())),
                _ => drop(wake_up(id)),
            }
        }
    };
    run_all(&EXECUTOR, 3, || {
        thread::scope(|scope| {
            scope.spawn(|| storm(77));
            storm(78);
        });
        STOP.store(true, Ordering::Release);
        for &id in &ids {
            wake_up(id);
        }
    });
    assert_eq!(drops.load(Ordering::Relaxed), COROUTINES);
}

#[test]
fn slots_are_reused_across_workers_without_a_stranger_being_woken() {
    static EXECUTOR: Executor = Executor::with_number(63);
    const FAMILIES: u32 = fewer(60, 4) as u32;
    const GENERATIONS: u32 = fewer(1_000, 10) as u32;
    static ENDED: AtomicU32 = AtomicU32::new(0);
    static MOST_ALIVE: AtomicU64 = AtomicU64::new(0);
    EXECUTOR.start_on_host(3).unwrap();
    /// Ends at once, and leaves a child, its own id, and a wake for an ancestor that is gone.
    fn descend(left: u32, ancestor: Option<CoroutineId>, random: u64) {
        let mut random = Random(random);
        let priority = random.priority();
        let child = async move {
            let me = current().expect("a coroutine has an id");
            assert!(ancestor.is_none_or(|ancestor| ancestor != me));
            if left > 0 {
                descend(left - 1, Some(me), random.next());
                MOST_ALIVE.fetch_max(EXECUTOR.live_count(), Ordering::Relaxed);
            }
            // The coroutine that has the ancestor's slot now must not be woken by this.
            if let Some(ancestor) = ancestor {
                yield_now().await;
                if !wake_up(ancestor) {
                    assert!(!cancel(ancestor));
                }
            }
            ENDED.fetch_add(1, Ordering::Relaxed);
        };
        EXECUTOR.spawn(child, priority).unwrap();
    }
    for family in 0..FAMILIES {
        descend(GENERATIONS, None, family as u64);
    }
    run_all(&EXECUTOR, 3, || {});
    assert_eq!(ENDED.load(Ordering::Relaxed), FAMILIES * (GENERATIONS + 1));
    let slots = EXECUTOR.core().slots_used() as u64;
    // Not one for each: a coroutine has exited before its slot is free, and a spawn gives up
    // looking for a free one when the host has suspended a worker under its lock. Without looking
    // again there were ten times as many.
    let alive = MOST_ALIVE.load(Ordering::Relaxed);
    assert!(slots <= 3 * alive, "{slots} slots for at most {alive} at a time");
}

#[test]
fn joins_and_aborts_race() {
    static EXECUTOR: Executor = Executor::with_number(64);
    const PAIRS: usize = fewer(2_000, 30);
    static FINISHED: AtomicUsize = AtomicUsize::new(0);
    static CANCELLED: AtomicUsize = AtomicUsize::new(0);
    EXECUTOR.start_on_host(3).unwrap();
    for pair in 0..PAIRS {
        let mut random = Random(pair as u64);
        let rounds = random.below(4);
        let worker = async move {
            for _ in 0..rounds {
                yield_now().await;
            }
            pair
        };
        let handle = EXECUTOR.spawn_join(worker, random.priority()).unwrap();
        let abort = random.below(2) == 0;
        let joiner = async move {
            if abort {
                handle.abort();
            }
            match handle.await {
                Ok(output) => {
                    assert_eq!(output, pair);
                    FINISHED.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    assert!(abort && error == JoinError::Cancelled);
                    CANCELLED.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        EXECUTOR.spawn(joiner, random.priority()).unwrap();
    }
    run_all(&EXECUTOR, 3, || {});
    assert_eq!(FINISHED.load(Ordering::Relaxed) + CANCELLED.load(Ordering::Relaxed), PAIRS);
    assert!(FINISHED.load(Ordering::Relaxed) >= PAIRS / fewer(4, 8));
}

/// From outside, when all workers are parked: one of them must be notified, each time.
#[test]
fn a_wake_is_polled_though_all_workers_are_parked() {
    static EXECUTOR: Executor = Executor::with_number(66);
    const WORKERS: u32 = 3;
    const ROUNDS: u32 = fewer(2_000, 10) as u32;
    static TOKENS: AtomicU32 = AtomicU32::new(0);
    static POLLED: AtomicU32 = AtomicU32::new(0);
    EXECUTOR.start_on_host(WORKERS).unwrap();
    let sleeper = poll_fn(|_| {
        let tokens = TOKENS.load(Ordering::Relaxed);
        POLLED.store(tokens, Ordering::Release);
        if tokens == ROUNDS { Poll::Ready(()) } else { Poll::Pending }
    });
    let id = EXECUTOR.spawn(sleeper, Priority::DEFAULT).unwrap();
    run_all(&EXECUTOR, WORKERS, || {
        for round in 1..=ROUNDS {
            while EXECUTOR.core().parked() != (1 << WORKERS) - 1 {
                thread::yield_now();
            }
            TOKENS.store(round, Ordering::Relaxed);
            assert!(wake_up(id));
            let woken = Instant::now();
            while POLLED.load(Ordering::Acquire) != round {
                thread::yield_now();
                // Only to end a test that has failed: nothing else can happen any more.
                let is_lost =
                    EXECUTOR.core().parked() == (1 << WORKERS) - 1 && woken.elapsed() > LOST_AFTER;
                require(!is_lost, "a wake is polled though all workers were parked");
            }
        }
    });
}
