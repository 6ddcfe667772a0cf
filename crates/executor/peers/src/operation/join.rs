//! Join: a parent spawns a coroutine with an output and awaits it, again and again.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::runtime::Joins;
use crate::sample::{Clock, Sample};

/// 16 bytes, finished at its first poll.
struct Value {
    value: u64,
    weight: u64,
}

impl Future for Value {
    type Output = u64;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u64> {
        black_box(self.weight);
        Poll::Ready(self.value)
    }
}

/// An operation is a coroutine from spawn to the output in its parent's hands.
pub fn run<R: Joins>(runtime: R, rounds: u64) -> Sample {
    let clock = Clock::new();
    runtime.run(async move {
        let mut sum = 0;
        clock.start();
        for value in 1..=rounds {
            sum += runtime.spawn_join(Value { value, weight: 16 }).await;
        }
        clock.stop();
        assert_eq!(sum, rounds * (rounds + 1) / 2, "each output once");
    });
    clock.sample(rounds)
}
