//! A wake from a plain thread: from before the call until the task's poll begins. Its worker is
//! parked, or polls 100 others.
//!
//! Of all wakes of a run the median counts: one that the system's scheduler has interrupted says
//! nothing of the runtime.

use std::future::{Future, poll_fn};
use std::hint::spin_loop;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use super::{DEFAULT_LEVEL, slot_for};
use crate::gate::Gate;
use crate::runtime::{Runtime, Setup};
use crate::sample::{Clock, Sample};

/// Between the end of a wake and the next. Time enough for a worker to go to sleep.
const PAUSE: Duration = Duration::from_micros(50);
/// Yielding coroutines, where the worker is busy.
const OTHERS: u64 = 100;

struct Stage {
    epoch: Instant,
    /// When the last wake began, in nanoseconds after `epoch`.
    woken_ns: AtomicU64,
    /// What each wake took so far.
    took_ns: Vec<AtomicU64>,
    /// Wakes that have led to a poll.
    polled: AtomicU64,
    waker: OnceLock<Waker>,
    ended: AtomicBool,
    finished: &'static Gate,
}

impl Stage {
    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// The poll of the task that is woken.
    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.waker.get().is_none() {
            let _ = self.waker.set(context.waker().clone());
            return Poll::Pending;
        }
        let now = self.now_ns();
        let wake = self.polled.load(Ordering::Relaxed);
        let woken = self.woken_ns.load(Ordering::Acquire);
        self.took_ns[wake as usize].store(now - woken, Ordering::Relaxed);
        self.polled.store(wake + 1, Ordering::Release);
        if wake + 1 == self.took_ns.len() as u64 {
            self.ended.store(true, Ordering::Relaxed);
            self.finished.finish();
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// The thread that wakes.
    fn wake_all(&self) {
        let waker = self.waker.wait();
        for wake in 0..self.took_ns.len() as u64 {
            let pause_ends = Instant::now() + PAUSE;
            while Instant::now() < pause_ends {
                spin_loop();
            }
            self.woken_ns.store(self.now_ns(), Ordering::Release);
            waker.wake_by_ref();
            while self.polled.load(Ordering::Acquire) == wake {
                spin_loop();
            }
        }
    }
}

/// Yields until the wakes are over.
struct Other(&'static Stage);

impl Future for Other {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0.ended.load(Ordering::Relaxed) {
            self.0.finished.finish();
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// An operation is a wake.
pub fn run<R: Runtime>(is_busy: bool, wakes: u64) -> Sample {
    let others = if is_busy { OTHERS } else { 0 };
    let stage: &'static Stage = Box::leak(Box::new(Stage {
        epoch: Instant::now(),
        woken_ns: AtomicU64::new(0),
        took_ns: (0..wakes).map(|_| AtomicU64::new(0)).collect(),
        polled: AtomicU64::new(0),
        waker: OnceLock::new(),
        ended: AtomicBool::new(false),
        finished: Gate::leak(1 + others),
    }));
    let clock = Clock::new();
    let runtime = R::start(Setup { workers: 1, sleeps: true });
    let waking = thread::spawn(|| stage.wake_all());
    let woken = poll_fn(|context| stage.poll(context));
    let (slot, slots) = (slot_for(runtime, &woken), runtime.slots::<Other>(others as usize));
    runtime.run(async move {
        clock.start();
        runtime.spawn(slot, 0, woken, DEFAULT_LEVEL);
        for number in 0..others as usize {
            runtime.spawn(slots, number, Other(stage), DEFAULT_LEVEL);
        }
        stage.finished.wait().await;
        clock.stop();
    });
    waking.join().expect("it does not panic");
    stage.finished.assert_open();
    let mut took: Vec<u64> =
        stage.took_ns.iter().map(|took| took.load(Ordering::Relaxed)).collect();
    took.sort_unstable();
    Sample { nanoseconds: took[took.len() / 2] * wakes, ..clock.sample(wakes) }
}
