//! The queue between two threads of a connection: a mutex and two condition variables. Or, in the
//! retrying models, a mutex alone, and threads that look and yield.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use cops::thread::sync::{Condvar, Mutex};
use cops::thread::yield_now;

/// How a thread waits for a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// It sleeps until it is notified.
    Sleeps,
    /// It locks, looks, unlocks and yields, over and over, as in the sources of the papers.
    Polls,
}

/// One producer and one consumer use it.
struct Queue<T> {
    state: Mutex<State<T>>,
    not_empty: Condvar,
    not_full: Condvar,
    capacity: usize,
    waiting: Waiting,
}

struct State<T> {
    items: VecDeque<T>,
    /// One of the ends is dropped.
    is_closed: bool,
    /// The thread of the other end sleeps, so a change is worth a call to the kernel.
    has_sleeper: bool,
}

impl<T> Queue<T> {
    fn close(&self) {
        self.state.lock().is_closed = true;
        self.not_empty.notify_one();
        self.not_full.notify_one();
    }

    /// Calls `attempt` until it has a result, and waits for `change` in between. Then tells the
    /// thread of the other end, which waits for `other`, if it sleeps.
    fn wait<R>(
        &self,
        change: &Condvar,
        other: &Condvar,
        mut attempt: impl FnMut(&mut State<T>) -> Option<R>,
    ) -> R {
        let mut state = self.state.lock();
        loop {
            if let Some(result) = attempt(&mut state) {
                // Not both ends sleep: the queue is neither full nor empty for one of them.
                let must_notify = core::mem::take(&mut state.has_sleeper);
                drop(state);
                if must_notify {
                    other.notify_one();
                }
                return result;
            }
            state = match self.waiting {
                Waiting::Sleeps => {
                    state.has_sleeper = true;
                    change.wait(state)
                }
                Waiting::Polls => {
                    drop(state);
                    yield_now();
                    self.state.lock()
                }
            };
        }
    }
}

/// The end for putting messages in.
pub struct Sender<T>(Arc<Queue<T>>);

/// The end for taking messages out.
pub struct Receiver<T>(Arc<Queue<T>>);

/// A queue for `capacity` messages.
pub fn channel<T>(capacity: usize, waiting: Waiting) -> (Sender<T>, Receiver<T>) {
    let items = VecDeque::with_capacity(capacity);
    let state = State { items, is_closed: false, has_sleeper: false };
    let queue = Arc::new(Queue {
        state: Mutex::new(state),
        not_empty: Condvar::new(),
        not_full: Condvar::new(),
        capacity,
        waiting,
    });
    (Sender(queue.clone()), Receiver(queue))
}

impl<T> Sender<T> {
    /// Waits for room. `Err`: the other end is dropped.
    pub fn send(&self, message: T) -> Result<(), ()> {
        let queue = &*self.0;
        let mut message = Some(message);
        queue.wait(&queue.not_full, &queue.not_empty, |state| {
            if state.is_closed {
                return Some(Err(()));
            }
            if state.items.len() == queue.capacity {
                return None;
            }
            state.items.extend(message.take());
            Some(Ok(()))
        })
    }
}

impl<T> Receiver<T> {
    /// Waits for a message. `None`: the other end is dropped, and the queue is empty.
    pub fn receive(&self) -> Option<T> {
        let queue = &*self.0;
        queue.wait(&queue.not_empty, &queue.not_full, |state| match state.items.pop_front() {
            None if !state.is_closed => None,
            end_or_message => Some(end_or_message),
        })
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}
