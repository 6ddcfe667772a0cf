//! Algorithm 1 of the paper COPS: a producer and a consumer share a message queue. When it is full,
//! the producer wakes the consumer by its id and yields; the consumer takes everything and blocks.
//!
//! The process ends as in the paper (Fig. 3): when no coroutine is left, not when `main` returns.
//!
//! Two things differ. The paper's loops never end; these end after [`MESSAGES`]. And in the paper
//! the producer is the more urgent one. Here, a coroutine that yields goes behind those of its own
//! level and never lets a less urgent one run, so the consumer has the more urgent level: it runs
//! as soon as it is woken.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::collections::VecDeque;
use core::future::poll_fn;
use core::task::Poll;

use cops::println;
use cops::process::ExitCode;
use cops::task::{CoroutineId, Priority, spawn, wake_up, yield_now};
use cops::thread::sync::Mutex;

const MESSAGES: u32 = 100;
const CAPACITY: usize = 8;

static MSG_QUEUE: Mutex<VecDeque<u32>> = Mutex::new(VecDeque::new());

#[cops::main(until_empty)]
async fn main() -> ExitCode {
    let consumer_cid = spawn(consumer(), Priority::saturating(0));
    spawn(producer(consumer_cid), Priority::saturating(1));
    ExitCode(3)
}

async fn consumer() {
    let (mut sum, mut count, mut rounds) = (0, 0, 0);
    while count < MESSAGES {
        let message = MSG_QUEUE.lock().pop_front();
        match message {
            Some(message) => {
                sum += message;
                count += 1;
            }
            None => {
                rounds += 1;
                blocked().await;
            }
        }
    }
    println!("consumed {count} messages with sum {sum}, blocked {rounds} times");
}

async fn producer(cid: CoroutineId) {
    for message in 0..MESSAGES {
        while MSG_QUEUE.lock().len() == CAPACITY {
            wake_up(cid);
            yield_now().await;
        }
        MSG_QUEUE.lock().push_back(message);
    }
    wake_up(cid);
}

/// Suspends the calling coroutine until `wake_up` is called with its id.
async fn blocked() {
    let mut was_polled = false;
    poll_fn(|_| {
        if was_polled {
            return Poll::Ready(());
        }
        was_polled = true;
        Poll::Pending
    })
    .await;
}
