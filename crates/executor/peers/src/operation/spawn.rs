//! Spawn, run, exit: a parent spawns `batch` empty coroutines, waits until all have finished, and
//! does it again.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::DEFAULT_LEVEL;
use crate::gate::Gate;
use crate::runtime::Runtime;
use crate::sample::{Clock, Sample};

/// 16 bytes, finished at its first poll.
struct Empty {
    gate: &'static Gate,
    weight: u64,
}

impl Future for Empty {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        black_box(self.weight);
        self.gate.finish_alone();
        Poll::Ready(())
    }
}

/// An operation is a coroutine from spawn to exit, and its share of the parent's wake and poll.
pub fn run<R: Runtime>(runtime: R, batch: u32, rounds: u64) -> Sample {
    let gate = Gate::leak(0);
    let clock = Clock::new();
    let slots = runtime.slots::<Empty>(batch as usize);
    runtime.run(async move {
        clock.start();
        for _ in 0..rounds {
            gate.close(u64::from(batch));
            for number in 0..batch as usize {
                runtime.spawn(slots, number, Empty { gate, weight: 16 }, DEFAULT_LEVEL);
            }
            gate.wait().await;
        }
        clock.stop();
    });
    gate.assert_open();
    clock.sample(u64::from(batch) * rounds)
}
