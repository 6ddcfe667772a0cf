//! Yield among many: each coroutine wakes itself and returns, until it has done so `rounds` times.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::DEFAULT_LEVEL;
use crate::gate::Gate;
use crate::runtime::Runtime;
use crate::sample::{Clock, Sample};

/// 16 bytes and no state machine, so that executors are measured and not the compiler.
struct Yields<const WORKS: bool> {
    left: u64,
    gate: &'static Gate,
}

impl<const WORKS: bool> Future for Yields<WORKS> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.left == 0 {
            self.gate.finish();
            return Poll::Ready(());
        }
        self.left -= 1;
        if WORKS {
            work();
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Some 50 ns on processors of today: each step waits for the product of the one before.
const STEPS_OF_WORK: u32 = 90;

fn work() {
    let mut product = 1_u64;
    for _ in 0..STEPS_OF_WORK {
        product = black_box(product).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    black_box(product);
}

/// An operation is a yield: the wake, the return, and the pick of the next.
pub fn run<R: Runtime, const WORKS: bool>(
    runtime: R,
    coroutines: u32,
    levels: u32,
    rounds: u64,
) -> Sample {
    let gate = Gate::leak(u64::from(coroutines));
    let clock = Clock::new();
    let slots = runtime.slots::<Yields<WORKS>>(coroutines as usize);
    runtime.run(async move {
        for number in 0..coroutines {
            let level = if levels == 1 { DEFAULT_LEVEL } else { number % levels };
            runtime.spawn(slots, number as usize, Yields::<WORKS> { left: rounds, gate }, level);
        }
        clock.start();
        gate.wait().await;
        clock.stop();
    });
    // A coroutine that finishes once has been polled `rounds + 1` times.
    gate.assert_open();
    clock.sample(u64::from(coroutines) * rounds)
}
