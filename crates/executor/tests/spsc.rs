//! The channel with one sender and one receiver: order, bound, ends, and no wake is lost.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use cops_executor::sync::spsc::channel;
use cops_executor::sync::{SendError, TryReceiveError, TrySendError};
use proptest::prelude::*;

/// Longer than any wait on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Counts its wakes.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Counter {
    fn take(&self) -> usize {
        self.0.swap(0, SeqCst)
    }
}

fn counter() -> (Arc<Counter>, Waker) {
    let counter = Arc::new(Counter::default());
    (counter.clone(), Waker::from(counter))
}

fn poll<F: Future>(future: F, waker: &Waker) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(waker))
}

#[test]
fn a_full_channel_makes_the_sender_wait_and_one_wake_suffices() {
    let (mut sender, mut receiver) = channel(2);
    let (wakes, waker) = counter();
    assert_eq!(sender.try_send(1), Ok(()));
    assert_eq!(poll(sender.send(2), &waker), Poll::Ready(Ok(())));
    assert_eq!(sender.try_send(3), Err(TrySendError::Full(3)));
    let mut third = Box::pin(sender.send(3));
    assert!(poll(third.as_mut(), &waker).is_pending());
    assert_eq!(wakes.take(), 0);
    assert_eq!(receiver.try_receive(), Ok(1));
    assert_eq!(wakes.take(), 1);
    // The sender has been woken, and does not wait any more.
    assert_eq!(receiver.try_receive(), Ok(2));
    assert_eq!(wakes.take(), 0);
    assert_eq!(poll(third.as_mut(), &waker), Poll::Ready(Ok(())));
    drop(third);
    assert_eq!(receiver.try_receive(), Ok(3));
    assert_eq!(receiver.try_receive(), Err(TryReceiveError::Empty));
}

#[test]
fn the_waker_of_the_last_poll_is_woken() {
    let (mut sender, mut receiver) = channel(1);
    let ((first, first_waker), (second, second_waker)) = (counter(), counter());
    {
        let mut receiving = Box::pin(receiver.receive());
        assert!(poll(receiving.as_mut(), &first_waker).is_pending());
        assert!(poll(receiving.as_mut(), &second_waker).is_pending());
    }
    assert_eq!(sender.try_send(1), Ok(()));
    assert_eq!((first.take(), second.take()), (0, 1));
    // The future is gone, and has taken nothing.
    assert_eq!(receiver.try_receive(), Ok(1));
    assert_eq!(Arc::strong_count(&first), 2, "a waker was kept after the wake");
    assert_eq!(Arc::strong_count(&second), 2, "a waker was kept after the wake");
}

#[test]
fn the_end_of_the_sender_releases_the_receiver_after_the_last_value() {
    let (mut sender, mut receiver) = channel(4);
    let (wakes, waker) = counter();
    assert!(poll(receiver.receive(), &waker).is_pending());
    sender.try_send(1).unwrap();
    sender.try_send(2).unwrap();
    assert_eq!(wakes.take(), 1);
    assert_eq!(poll(receiver.receive(), &waker), Poll::Ready(Some(1)));
    assert_eq!(poll(receiver.receive(), &waker), Poll::Ready(Some(2)));
    assert!(poll(receiver.receive(), &waker).is_pending());
    drop(sender);
    assert_eq!(wakes.take(), 1);
    assert_eq!(poll(receiver.receive(), &waker), Poll::Ready(None));
    assert_eq!(receiver.try_receive(), Err(TryReceiveError::Closed));
}

#[test]
fn the_end_of_the_receiver_drops_what_is_in_the_channel_and_releases_the_sender() {
    struct Value(Arc<AtomicUsize>);
    impl Drop for Value {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let value = || Value(dropped.clone());
    let (mut sender, receiver) = channel(1);
    let (wakes, waker) = counter();
    assert!(sender.try_send(value()).is_ok());
    let mut second = Box::pin(sender.send(value()));
    assert!(poll(second.as_mut(), &waker).is_pending());
    drop(receiver);
    assert_eq!((wakes.take(), dropped.load(SeqCst)), (1, 1));
    let Poll::Ready(Err(SendError(returned))) = poll(second.as_mut(), &waker) else {
        panic!("a send without a receiver did not fail");
    };
    drop(returned);
    drop(second);
    assert_eq!(dropped.load(SeqCst), 2);
    assert!(matches!(sender.try_send(value()), Err(TrySendError::Closed(_))));
    assert_eq!(dropped.load(SeqCst), 3);
}

#[test]
#[should_panic(expected = "a channel holds at least one value")]
fn a_channel_without_a_place_is_refused() {
    let _ = channel::<u8>(0);
}

#[derive(Clone, Debug)]
enum Step {
    Send,
    Receive,
    /// Polls, and drops the future if it is not ready.
    PollSend,
    PollReceive,
}

proptest! {
    /// Any sequence of steps does what a bounded queue does, and an end that waits is woken when
    /// that may have changed.
    #[test]
    fn it_is_a_bounded_queue(
        capacity in 1..5_usize,
        steps in prop::collection::vec(
            prop_oneof![
                Just(Step::Send), Just(Step::Receive), Just(Step::PollSend), Just(Step::PollReceive)
            ],
            0..60,
        ),
    ) {
        let (mut sender, mut receiver) = channel(capacity);
        let ((for_sender, sender_waker), (for_receiver, receiver_waker)) = (counter(), counter());
        let (mut sender_waits, mut receiver_waits) = (false, false);
        let mut model = VecDeque::new();
        for (number, step) in steps.into_iter().enumerate() {
            let (length, is_full) = (model.len(), model.len() == capacity);
            match step {
                Step::Send => {
                    let sent = sender.try_send(number);
                    prop_assert_eq!(sent.is_err(), is_full);
                    if sent.is_ok() {
                        model.push_back(number);
                    }
                }
                Step::PollSend => match poll(sender.send(number), &sender_waker) {
                    Poll::Ready(sent) => {
                        prop_assert_eq!(sent, Ok(()));
                        model.push_back(number);
                    }
                    Poll::Pending => {
                        prop_assert!(is_full);
                        sender_waits = true;
                    }
                },
                Step::Receive => prop_assert_eq!(receiver.try_receive().ok(), model.pop_front()),
                Step::PollReceive => match poll(receiver.receive(), &receiver_waker) {
                    Poll::Ready(value) => {
                        prop_assert!(value.is_some());
                        prop_assert_eq!(value, model.pop_front());
                    }
                    Poll::Pending => {
                        prop_assert!(model.is_empty());
                        receiver_waits = true;
                    }
                },
            }
            prop_assert!(model.len() <= capacity);
            prop_assert_eq!(receiver.seems_empty(), model.is_empty());
            let woken = model.len() < length && std::mem::take(&mut sender_waits);
            prop_assert_eq!(for_sender.take(), usize::from(woken));
            let woken = model.len() > length && std::mem::take(&mut receiver_waits);
            prop_assert_eq!(for_receiver.take(), usize::from(woken));
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls only after a wake, so that a lost one is noticed.
fn wait<F: Future>(what: &str, future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut future, begin) = (pin!(future), Instant::now());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park_timeout(PATIENCE);
        assert!(begin.elapsed() < PATIENCE, "lost wake: {what}");
    }
}

#[test]
fn two_threads_exchange_values_in_order() {
    const VALUES: usize = 20_000;
    let (mut requests, mut received) = channel(2);
    let (mut answers, mut answered) = channel(1);
    thread::scope(|scope| {
        scope.spawn(move || {
            while let Some(value) = wait("a request", received.receive()) {
                wait("room for an answer", answers.send(value)).unwrap();
            }
        });
        scope.spawn(move || {
            for value in 0..VALUES {
                wait("room for a request", requests.send(value)).unwrap();
            }
        });
        let mut next = 0;
        while let Some(value) = wait("an answer", answered.receive()) {
            assert_eq!(value, next);
            next += 1;
        }
        assert_eq!(next, VALUES);
    });
}
