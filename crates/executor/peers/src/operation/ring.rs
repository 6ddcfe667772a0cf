//! Wang's test A: a ring in which each wakes the next and blocks, so that one at a time is ready.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use cops_executor::{CoroutineId, current, wake_up};

use super::DEFAULT_LEVEL;
use crate::gate::Gate;
use crate::runtime::Runtime;
use crate::sample::{Clock, Sample};

/// By what the next one is woken.
pub trait Name: Send + Sync + 'static {
    /// Of the task that is polled with this context.
    fn of(context: &Context<'_>) -> Self;
    /// Wakes it.
    fn wake(&self);
}

impl Name for Waker {
    fn of(context: &Context<'_>) -> Self {
        context.waker().clone()
    }

    fn wake(&self) {
        self.wake_by_ref();
    }
}

impl Name for CoroutineId {
    fn of(_: &Context<'_>) -> Self {
        current().expect("a coroutine asks")
    }

    fn wake(&self) {
        // False: the next one has done its last turn.
        wake_up(*self);
    }
}

struct Ring<N> {
    names: Vec<OnceLock<N>>,
    registered: &'static Gate,
    finished: &'static Gate,
}

/// 16 bytes.
struct Passes<N: 'static> {
    ring: &'static Ring<N>,
    left: u32,
    number: u16,
    is_registered: bool,
}

impl<N: Name> Future for Passes<N> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let names = &self.ring.names;
        if !self.is_registered {
            let is_first = names[self.number as usize].set(N::of(context)).is_ok();
            assert!(is_first, "each has a place of its own");
            self.is_registered = true;
            self.ring.registered.finish();
            return Poll::Pending;
        }
        let next = (self.number as usize + 1) % RING;
        if let Some(next) = names[next].get() {
            next.wake();
        }
        self.left -= 1;
        if self.left == 0 {
            self.ring.finished.finish();
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

/// Coroutines in the ring.
pub const RING: usize = 1_000;

/// An operation is a pass: the wake, the return, and the pick of the one woken.
pub fn run<R: Runtime, N: Name>(runtime: R, rounds: u64) -> Sample {
    let ring: &'static Ring<N> = Box::leak(Box::new(Ring {
        names: (0..RING).map(|_| OnceLock::new()).collect(),
        registered: Gate::leak(RING as u64),
        finished: Gate::leak(RING as u64),
    }));
    let clock = Clock::new();
    let slots = runtime.slots::<Passes<N>>(RING);
    runtime.run(async move {
        for number in 0..RING {
            let task =
                Passes { ring, left: rounds as u32, number: number as u16, is_registered: false };
            runtime.spawn(slots, number, task, DEFAULT_LEVEL);
        }
        ring.registered.wait().await;
        clock.start();
        ring.names[0].get().expect("all are registered").wake();
        ring.finished.wait().await;
        clock.stop();
    });
    // Each pass needs the one before it: that all have finished means that all were made, once.
    ring.finished.assert_open();
    clock.sample(RING as u64 * rounds)
}
