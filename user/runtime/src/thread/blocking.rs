//! A thread waits for a future.
//!
//! May touch: the word of the calling thread's wakes, the loop of the calling virtual CPU.

use alloc::sync::Arc;
use alloc::task::Wake;
use core::future::Future;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Acquire};
use core::task::{Context, Poll, Waker};

use super::handle::current;
use crate::{system, task, worker};

/// Polls `future` on the calling thread, which sleeps in between, until it is ready. An
/// [`unpark`](super::Thread::unpark) meanwhile is for the next [`park`](super::park).
///
/// For futures that something else completes: a [`JoinHandle`](crate::task::JoinHandle), a channel,
/// an event. A call to the kernel blocks the thread in its first poll instead, since there is no
/// coroutine to deliver the result to: `select` and `timeout` of two calls wait for one after the
/// other. For those, spawn a coroutine and wait for its handle.
///
/// In a `main` with `explicit_runner`, coroutines run meanwhile, as in
/// [`task::run`].
///
/// A future that calls `block_on` itself may be polled once more after each call that has slept.
///
/// # Panics
/// In a coroutine, which waits with `.await`.
pub fn block_on<F: Future>(future: F) -> F::Output {
    assert!(task::current().is_none(), "a coroutine waits with .await, not with block_on");
    let future = pin!(future);
    match worker::current_index() {
        Some(index) => on_worker(index, future),
        None => on_thread(future),
    }
}

fn on_thread<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    let thread = current().0;
    let waker = Waker::from(thread.clone());
    let mut context = Context::from_waker(&waker);
    let mut has_taken = false;
    loop {
        has_taken |= thread.take_wake();
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            if has_taken {
                // If a poll of another future called this function, the wake may be that one's.
                thread.leave_wake();
            }
            return output;
        }
        thread.wait_for_wake();
    }
}

/// Wakes a virtual CPU that runs coroutines between the polls of its future.
struct WorkerWaker {
    is_woken: AtomicBool,
    index: u32,
}

impl Wake for WorkerWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A wake during `park` finds the virtual CPU in the kernel, or makes it return at once.
        if !self.is_woken.swap(true, AcqRel) {
            system::unpark(self.index);
        }
    }
}

fn on_worker<F: Future>(index: u32, mut future: Pin<&mut F>) -> F::Output {
    let state = Arc::new(WorkerWaker { is_woken: AtomicBool::new(true), index });
    let waker = Waker::from(state.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        if state.is_woken.swap(false, AcqRel)
            && let Poll::Ready(output) = future.as_mut().poll(&mut context)
        {
            worker::leave();
            return output;
        }
        let is_woken = || state.is_woken.load(Acquire);
        worker::run_until_parking(index, is_woken);
        if !is_woken() {
            worker::park(index, is_woken);
        }
    }
}
