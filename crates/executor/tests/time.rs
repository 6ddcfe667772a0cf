//! What `time` promises: exact moments by a clock that is set by hand, and many timers.

use std::future::{Future, pending, ready};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as PlainMutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use cops_executor::time::*;
use cops_executor::*;
use proptest::prelude::*;

macro_rules! executor {
    ($number:literal) => {{
        static EXECUTOR: Executor = Executor::with_number($number);
        EXECUTOR.start_on_host(1).unwrap();
        &EXECUTOR
    }};
}

/// What is leaked: kept, so that Miri takes it for what statics have.
static KEPT: PlainMutex<Vec<&'static Timers<ManualClock>>> = PlainMutex::new(Vec::new());

fn timers() -> &'static Timers<ManualClock> {
    let timers: &'static _ = Box::leak(Box::new(Timers::new(ManualClock::new())));
    KEPT.lock().unwrap().push(timers);
    timers
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Counts wakes.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn sleepers_are_woken_at_their_time_and_in_order() {
    let (executor, timers) = (executor!(10), timers());
    let log = Arc::new(PlainMutex::new(Vec::new()));
    for nanoseconds in [50, 20, 50, 70, 20, 0] {
        let log = log.clone();
        let sleeper = async move {
            timers.sleep(Duration::from_nanos(nanoseconds)).await;
            log.lock().unwrap().push((timers.clock().now_ticks(), nanoseconds));
        };
        executor.spawn(sleeper, Priority::DEFAULT).unwrap();
    }
    executor.run_until_stalled(0);
    assert_eq!(timers.count(), 5);
    assert_eq!(timers.next_deadline(), Some(20));
    timers.clock().advance_to(19);
    assert_eq!(timers.fire_due(), Fired { count: 0, next_deadline: Some(20) });
    timers.clock().advance_to(20);
    assert_eq!(timers.fire_due(), Fired { count: 2, next_deadline: Some(50) });
    executor.run_until_stalled(0);
    timers.clock().advance_to(1_000);
    assert_eq!(timers.fire_due(), Fired { count: 3, next_deadline: None });
    executor.run_until_stalled(0);
    assert_eq!(
        *log.lock().unwrap(),
        [(0, 0), (20, 20), (20, 20), (1_000, 50), (1_000, 50), (1_000, 70)]
    );
    assert_eq!(executor.live_count(), 0);
}

#[test]
fn a_sleep_that_is_dropped_leaves_nothing() {
    let timers = timers();
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    let mut sleeps: Vec<_> = (1..=100).map(|ticks| Box::pin(timers.sleep_until(ticks))).collect();
    for sleep in &mut sleeps {
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        // Again: the same place, another waker.
        assert!(sleep.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(timers.count(), 100);
    // Every other one, and the first.
    let mut number = 0;
    sleeps.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    assert_eq!((timers.count(), timers.next_deadline()), (50, Some(2)));
    timers.clock().advance_to(10);
    assert_eq!(timers.fire_due().count, 5);
    drop(sleeps);
    assert_eq!((timers.count(), timers.next_deadline()), (0, None));
    assert_eq!(count.0.load(Ordering::Relaxed), 5);
    drop(waker);
    assert_eq!(Arc::strong_count(&count), 1, "no waker is kept");
}

#[test]
fn a_sleep_counts_from_its_making_and_is_ready_also_if_no_worker_fires() {
    let timers = timers();
    let mut sleep = pin!(timers.sleep(Duration::from_nanos(10)));
    timers.clock().advance_to(5);
    assert!(poll_once(sleep.as_mut()).is_pending());
    assert_eq!(timers.next_deadline(), Some(10));
    timers.clock().advance_to(10);
    assert!(poll_once(sleep).is_ready());
}

#[test]
fn a_time_limit_prefers_the_output() {
    let (executor, timers) = (executor!(11), timers());
    let limit = Duration::from_nanos(10);
    assert_eq!(executor.block_on(timers.timeout(limit, ready(1))), Ok(1));
    let mut late = pin!(timers.timeout(limit, pending::<()>()));
    assert!(poll_once(late.as_mut()).is_pending());
    let mut in_time = pin!(timers.timeout(limit, timers.sleep_until(10)));
    assert!(poll_once(in_time.as_mut()).is_pending());
    timers.clock().advance_to(10);
    assert_eq!(poll_once(late), Poll::Ready(Err(Elapsed)));
    assert_eq!(poll_once(in_time), Poll::Ready(Ok(())), "both are ready");
    assert_eq!(poll_once(pin!(timers.timeout(Duration::MAX, ready(())))), Poll::Ready(Ok(())));
}

#[test]
fn an_interval_keeps_its_times_and_counts_what_it_missed() {
    let timers = timers();
    let mut interval = timers.interval(Duration::from_nanos(100));
    let mut ticks = Vec::new();
    for now in [99, 100, 150, 200, 530, 599, 600] {
        timers.clock().advance_to(now);
        if let Poll::Ready(periods) = poll_once(pin!(interval.tick())) {
            ticks.push((now, periods));
        }
    }
    assert_eq!(ticks, [(100, 1), (200, 1), (530, 3), (600, 1)]);
}

/// A clock of 2^63 ticks a second.
struct Fastest;

impl Clock for Fastest {
    fn now_ticks(&self) -> u64 {
        0
    }

    fn ticks_per_second(&self) -> u64 {
        1 << 63
    }
}

/// A clock of 3 ticks a second that keeps the last deadline it was told.
struct Told {
    told: AtomicU64,
    now: AtomicU64,
}

impl Clock for Told {
    fn now_ticks(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn ticks_per_second(&self) -> u64 {
        3
    }

    fn deadline_set(&self, deadline_ticks: u64) {
        self.told.store(deadline_ticks, Ordering::Relaxed);
    }
}

#[test]
fn the_clock_is_told_of_earlier_deadlines_only() {
    let timers = Timers::new(Told { told: AtomicU64::new(0), now: AtomicU64::new(0) });
    let mut sleeps = Vec::new();
    let mut told = Vec::new();
    for deadline in [50, 60, 40, 45, 40] {
        sleeps.push(Box::pin(timers.sleep_until(deadline)));
        assert!(poll_once(sleeps.last_mut().unwrap().as_mut()).is_pending());
        told.push(timers.clock().told.swap(0, Ordering::Relaxed));
    }
    assert_eq!(told, [50, 0, 40, 0, 0]);
}

/// A timer of the hardware for all workers. While one worker is about to set it for the first time,
/// another one does so, by `meanwhile`.
struct Shared {
    compare: AtomicU64,
    meanwhile: PlainMutex<Option<fn()>>,
}

impl Clock for Shared {
    fn now_ticks(&self) -> u64 {
        0
    }

    fn ticks_per_second(&self) -> u64 {
        1_000
    }

    fn deadline_set(&self, deadline_ticks: u64) {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            std::thread::spawn(meanwhile).join().unwrap();
        }
        self.compare.store(deadline_ticks, Ordering::Relaxed);
    }
}

#[test]
fn a_shared_timer_has_the_earliest_deadline() {
    static TIMERS: Timers<Shared> =
        Timers::new(Shared { compare: AtomicU64::new(0), meanwhile: PlainMutex::new(None) });
    static SLEEPS: PlainMutex<Vec<Pin<Box<Sleep<'static, Shared>>>>> = PlainMutex::new(Vec::new());
    fn sleep_until(deadline: u64) {
        let mut sleep = Box::pin(TIMERS.sleep_until(deadline));
        assert!(poll_once(sleep.as_mut()).is_pending());
        SLEEPS.lock().unwrap().push(sleep);
    }
    *TIMERS.clock().meanwhile.lock().unwrap() = Some(|| sleep_until(50));
    sleep_until(100);
    assert_eq!(TIMERS.next_deadline(), Some(50));
    assert_eq!(TIMERS.clock().compare.load(Ordering::Relaxed), 50);
    sleep_until(60);
    sleep_until(40);
    assert_eq!(TIMERS.clock().compare.load(Ordering::Relaxed), 40);
}

#[test]
fn durations_are_rounded_up() {
    let timers = Timers::new(Told { told: AtomicU64::new(0), now: AtomicU64::new(100) });
    let ticks = |duration| timers.sleep(duration).deadline_ticks();
    assert_eq!(ticks(Duration::ZERO), 100);
    assert_eq!(ticks(Duration::from_nanos(1)), 101);
    assert_eq!(ticks(Duration::from_secs(1)), 103);
    assert_eq!(ticks(Duration::from_millis(1_001)), 104);
    assert_eq!(ticks(Duration::MAX), u64::MAX);
    let fastest = Timers::new(Fastest);
    assert_eq!(fastest.ticks_after(Duration::from_nanos(1)), (1 << 63) / 1_000_000_000 + 1);
    // The product with nanoseconds is more than 128 bits in the last three cases.
    for seconds in [2, 1 << 34, 1 << 36, 1 << 56, u64::MAX] {
        assert_eq!(fastest.ticks_after(Duration::from_secs(seconds)), u64::MAX, "{seconds} s");
    }
    assert_eq!(duration_of(1, 3), Duration::from_nanos(333_333_334));
    assert_eq!(duration_of(u64::MAX, 1), Duration::from_secs(u64::MAX));
}

#[test]
fn a_hundred_thousand_timers() {
    let timers = timers();
    const COUNT: u64 = if cfg!(miri) { 300 } else { 100_000 };
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    // A permutation: deadlines neither rise nor fall.
    let deadline = |number: u64| number * 7_919 % COUNT + 1;
    let mut sleeps: Vec<_> =
        (0..COUNT).map(|number| Box::pin(timers.sleep_until(deadline(number)))).collect();
    for sleep in &mut sleeps {
        assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    // A third gives up.
    let mut left: Vec<u64> = Vec::new();
    for number in (0..COUNT).rev() {
        if number % 3 == 0 {
            drop(sleeps.swap_remove(number as usize));
        } else {
            left.push(deadline(number));
        }
    }
    left.sort_unstable();
    assert_eq!(timers.count(), left.len());
    for (fired, &deadline) in left.iter().enumerate() {
        assert_eq!(timers.next_deadline(), Some(deadline));
        timers.clock().advance_to(deadline);
        assert_eq!(timers.fire_due().count, 1);
        assert_eq!(count.0.load(Ordering::Relaxed), fired + 1);
    }
    assert_eq!(timers.next_deadline(), None);
}

#[test]
fn threads_sleep_drop_and_fire_at_once() {
    let executor = executor!(12);
    let timers = timers();
    const SLEEPERS: u64 = if cfg!(miri) { 4 } else { 200 };
    let done = Arc::new(AtomicUsize::new(0));
    for number in 0..SLEEPERS {
        let done = done.clone();
        let sleeper = async move {
            for round in 0..20 {
                let limit = Duration::from_nanos(1 + (number * 31 + round * 17) % 50);
                if round % 2 == 0 {
                    timers.sleep(limit).await;
                } else {
                    let _ = timers.timeout(limit, timers.sleep(limit * 2)).await;
                }
            }
            done.fetch_add(1, Ordering::Relaxed);
        };
        executor.spawn(sleeper, Priority::DEFAULT).unwrap();
    }
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while done.load(Ordering::Relaxed) < SLEEPERS as usize {
                    timers.clock().advance(Duration::from_nanos(1));
                    timers.fire_due();
                    std::thread::yield_now();
                }
            });
        }
        executor.run_until_done();
    });
    assert_eq!(done.load(Ordering::Relaxed), SLEEPERS as usize);
    assert_eq!(timers.count(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 300 }))]

    #[test]
    fn each_sleep_is_woken_at_the_first_firing_after_its_deadline(
        deadlines in proptest::collection::vec(1..1_000_u64, 1..60),
        firings in proptest::collection::vec(1..1_000_u64, 1..20),
    ) {
        let timers = timers();
        let mut sleeps: Vec<_> = deadlines.iter().map(|&deadline| (deadline, Box::pin(timers.sleep_until(deadline)))).collect();
        for (_, sleep) in &mut sleeps {
            prop_assert!(poll_once(sleep.as_mut()).is_pending());
        }
        let mut firings = firings;
        firings.sort_unstable();
        for now in firings {
            timers.clock().advance_to(now);
            let due = sleeps.iter().filter(|(deadline, _)| *deadline <= now).count();
            let next = sleeps.iter().map(|(deadline, _)| *deadline).filter(|deadline| *deadline > now).min();
            prop_assert_eq!(timers.fire_due(), Fired { count: due, next_deadline: next });
            sleeps.retain(|(deadline, _)| *deadline > now);
        }
    }
}
