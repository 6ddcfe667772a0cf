//! A thread that polls one future and sleeps in between.
//!
//! Both ways keep a wake that comes before the sleep, as a token: the next sleep returns at once. That is what
//! `core::park` asks of a host. A wake that comes while the future is polled leads to another poll.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

/// When a thread that sleeps shall poll again, though nobody wakes it. Set by the future whenever it is pending.
pub(super) type Alarm = Cell<Option<Instant>>;

/// Polls `future` on this thread until it is ready. A worker's sleep.
///
/// In between the thread sleeps in the reactor, if no other thread does, and hands out events itself; a waker
/// of the future interrupts that. If the future wakes itself, it is polled again after a look at the reactor
/// that does not wait.
#[cfg(feature = "reactor")]
pub(super) fn block_on_worker<F: Future>(future: F, alarm: &Alarm) -> F::Output {
    let (mut future, mut timer) = (pin!(future), async_io::Timer::never());
    async_io::block_on(std::future::poll_fn(move |context| {
        let polled = future.as_mut().poll(context);
        if polled.is_pending()
            && let Some(at) = alarm.get()
        {
            timer.set_at(at);
            if std::pin::Pin::new(&mut timer).poll(context).is_ready() {
                context.waker().wake_by_ref();
            }
        }
        polled
    }))
}

/// Polls `future` on this thread until it is ready. A worker's sleep.
#[cfg(not(feature = "reactor"))]
pub(super) fn block_on_worker<F: Future>(future: F, alarm: &Alarm) -> F::Output {
    block_on_until(future, alarm)
}

/// Polls `future` on this thread until it is ready, and leaves the reactor to the workers.
///
/// A thread that is no worker, but drives the reactor, would have to hand each event to a worker.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    block_on_until(future, &Alarm::default())
}

fn block_on_until<F: Future>(future: F, alarm: &Alarm) -> F::Output {
    let token = Arc::new(Token { woken: AtomicBool::new(true), thread: thread::current() });
    let waker = Waker::from(token.clone());
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        // Acquire: what the waker wrote before it woke.
        if !token.woken.swap(false, Ordering::Acquire) {
            // `unpark` leaves a token too, so it does not matter whether it comes before this.
            match alarm.get() {
                None => {
                    thread::park();
                    continue;
                }
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    if !left.is_zero() {
                        thread::park_timeout(left);
                        continue;
                    }
                }
            }
        }
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

struct Token {
    woken: AtomicBool,
    thread: Thread,
}

impl Wake for Token {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Who finds it set has nothing to do: whoever set it unparks, and the thread has not looked since.
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}
