//! How long does the most urgent one wait? Among 1,000 that only yield, a coroutine of priority 0
//! is woken, and polls of others are counted that begin after the wake has returned and before its
//! own poll begins.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use super::slot_for;
use crate::gate::Gate;
use crate::runtime::Runtime;
use crate::sample::{Clock, Sample};

/// How long the plain thread sleeps between two looks whether a wake is due.
const GLANCE: Duration = Duration::from_micros(200);
/// Yielding coroutines.
const OTHERS: u32 = 1_000;
/// Polls of others between two trials.
const PAUSE: u64 = 3_333;
const LEAST_URGENT: u32 = 63;

/// Of a trial in which the wake has not returned.
const NOT_YET: u64 = u64::MAX;
/// Of a trial in which the urgent poll began before the wake had returned.
const BEGUN: u64 = u64::MAX - 1;

struct Stage {
    /// Polls of others that have begun.
    polls: AtomicU64,
    /// For each trial, what `polls` was when the wake returned.
    woken_at: Vec<AtomicU64>,
    trial: AtomicUsize,
    /// Whether the next wake is due as soon as `polls` has come to `due`.
    armed: AtomicBool,
    due: AtomicU64,
    ended: AtomicBool,
    urgent: OnceLock<Waker>,
    others: &'static Gate,
}

impl Stage {
    /// One trial, unless another thread is faster or it is not the time.
    fn try_wake(&self) {
        if self.polls.load(Ordering::SeqCst) >= self.due.load(Ordering::SeqCst)
            && self.armed.swap(false, Ordering::SeqCst)
            && let Some(urgent) = self.urgent.get()
        {
            let woken_at = &self.woken_at[self.trial.load(Ordering::SeqCst)];
            urgent.wake_by_ref();
            let now = self.polls.load(Ordering::SeqCst);
            // It may have begun already, or be at the next trial: then no other poll came between.
            let _ = woken_at.compare_exchange(NOT_YET, now, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

/// 16 bytes.
struct Other {
    stage: &'static Stage,
    wakes: bool,
}

impl Future for Other {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let stage = self.stage;
        stage.polls.fetch_add(1, Ordering::SeqCst);
        if stage.ended.load(Ordering::Relaxed) {
            stage.others.finish();
            return Poll::Ready(());
        }
        if self.wakes {
            stage.try_wake();
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// `trials` counts. The wake comes from one of the others, or from a thread that is no worker.
pub fn run<R: Runtime>(runtime: R, by_foreign_thread: bool, trials: u64) -> Sample {
    let stage: &'static Stage = Box::leak(Box::new(Stage {
        polls: AtomicU64::new(0),
        woken_at: (0..trials).map(|_| AtomicU64::new(NOT_YET)).collect(),
        trial: AtomicUsize::new(0),
        armed: AtomicBool::new(false),
        due: AtomicU64::new(0),
        ended: AtomicBool::new(false),
        urgent: OnceLock::new(),
        others: Gate::leak(u64::from(OTHERS)),
    }));
    let counts: &'static Mutex<Vec<u64>> = Box::leak(Box::default());
    let urgent_done = Gate::leak(1);
    let urgent = poll_fn(move |context| urgent(stage, counts, trials, context));
    let urgent = async move {
        urgent.await;
        stage.ended.store(true, Ordering::SeqCst);
        urgent_done.finish();
    };
    if by_foreign_thread {
        thread::spawn(move || {
            while !stage.ended.load(Ordering::Relaxed) {
                stage.try_wake();
                // It should not take a processor from the workers.
                thread::sleep(GLANCE);
            }
        });
    }
    let clock = Clock::new();
    let (urgent_slot, slots) =
        (slot_for(runtime, &urgent), runtime.slots::<Other>(OTHERS as usize));
    runtime.run(async move {
        runtime.spawn(urgent_slot, 0, urgent, 0);
        for number in 0..OTHERS as usize {
            runtime.spawn(slots, number, Other { stage, wakes: !by_foreign_thread }, LEAST_URGENT);
        }
        clock.start();
        stage.others.wait().await;
        urgent_done.wait().await;
        clock.stop();
    });
    stage.others.assert_open();
    let mut counts = std::mem::take(&mut *counts.lock().expect("no poll panicked"));
    assert_eq!(counts.len() as u64, trials, "each wake led to one poll");
    counts.sort_unstable();
    Sample { counts, ..clock.sample(trials) }
}

fn urgent(
    stage: &Stage,
    counts: &Mutex<Vec<u64>>,
    trials: u64,
    context: &mut Context<'_>,
) -> Poll<()> {
    if stage.urgent.get().is_none() {
        let _ = stage.urgent.set(context.waker().clone());
    } else {
        let trial = stage.trial.load(Ordering::SeqCst);
        let woken_at = stage.woken_at[trial].swap(BEGUN, Ordering::SeqCst);
        let polls = stage.polls.load(Ordering::SeqCst);
        let mut counts = counts.lock().expect("no poll panicked");
        counts.push(if woken_at == NOT_YET { 0 } else { polls - woken_at });
        if counts.len() as u64 == trials {
            return Poll::Ready(());
        }
        stage.trial.store(trial + 1, Ordering::SeqCst);
    }
    stage.due.store(stage.polls.load(Ordering::SeqCst) + PAUSE, Ordering::SeqCst);
    stage.armed.store(true, Ordering::SeqCst);
    Poll::Pending
}
