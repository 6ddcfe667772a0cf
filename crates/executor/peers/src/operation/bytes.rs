//! Bytes of a coroutine: what lives on the heap after 10,000 have been spawned and polled, that was
//! not there before.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::DEFAULT_LEVEL;
use crate::gate::Gate;
use crate::runtime::Runtime;
use crate::sample::{Clock, Sample};

/// Bytes of the future itself.
pub const FUTURE_BYTES: u64 = size_of::<Pending>() as u64;
const COROUTINES: usize = 10_000;

/// 16 bytes; never ends.
struct Pending {
    gate: &'static Gate,
    was_polled: bool,
}

impl Future for Pending {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        assert!(!self.was_polled, "it was not woken");
        self.was_polled = true;
        // As far as the runtime can tell, it may still be woken: async-executor drops a task that
        // has no waker left.
        std::mem::forget(context.waker().clone());
        self.gate.finish();
        Poll::Pending
    }
}

/// `live` tells how many bytes live on the heap.
pub fn run<R: Runtime>(runtime: R, live: fn() -> u64) -> Sample {
    let gate = Gate::leak(COROUTINES as u64);
    let clock = Clock::new();
    let bytes: &'static std::sync::OnceLock<u64> = Box::leak(Box::default());
    runtime.run(async move {
        clock.start();
        let before = live();
        let slots = runtime.slots::<Pending>(COROUTINES);
        for number in 0..COROUTINES {
            runtime.spawn(slots, number, Pending { gate, was_polled: false }, DEFAULT_LEVEL);
        }
        gate.wait().await;
        bytes.set(live() - before).expect("once");
        clock.stop();
    });
    gate.assert_open();
    Sample { bytes: *bytes.get().expect("the parent ran"), ..clock.sample(COROUTINES as u64) }
}
