//! A thread that is no worker, and polls one future.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Polls `future` on this thread until it is ready, and leaves the reactor to the workers.
///
/// A thread that is no worker, but drives the reactor, would have to hand each event to a worker.
///
/// A wake that comes before the sleep is kept, as a token: the next sleep returns at once. One that
/// comes while the future is polled leads to another poll.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let token = Arc::new(Token { woken: AtomicBool::new(true), thread: thread::current() });
    let waker = Waker::from(token.clone());
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        // Acquire: what the waker wrote before it woke.
        if !token.woken.swap(false, Ordering::Acquire) {
            // `unpark` leaves a token too, so it does not matter whether it comes before this.
            thread::park();
            continue;
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
        // A waker that finds it set has nothing to do: the one that set it unparks, and the thread
        // has not looked since.
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}
