//! The bound on order by itself: two workers, fifty ordinary coroutines that yield, and an urgent
//! one that one of them wakes.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::task::Poll;
use std::thread;

use cops_executor::*;

use crate::order::Order;
use crate::stage::Stage;

const ORDINARY: usize = 50;
const ROUNDS: u64 = 500;

/// The proposition of the crate's documentation: once an urgent coroutine is announced, no worker
/// that comes to a scheduling point begins a less urgent poll before the urgent one's. So at most
/// one such poll a worker begins, the one that it had picked already. `order` says how that is
/// observed.
#[test]
fn with_two_workers_urgent_ones_wait_for_at_most_one_poll_a_worker() {
    let stage = Stage::new(99, 2);
    let order = Arc::new(Order::new());
    let urgent = order.clone();
    let urgent = poll_fn(move |_| if urgent.answer() { Poll::Ready(()) } else { Poll::Pending });
    order.set_urgent(stage.executor.spawn(urgent, Priority::MOST_URGENT).unwrap());
    let most = Arc::new(AtomicU64::new(0));
    for number in 0..ORDINARY {
        let (order, most) = (order.clone(), most.clone());
        let ordinary = async move {
            let mut polls = 0;
            while order.rounds() < ROUNDS {
                order.poll_begins(stage, current_worker_of(stage.executor.number().unwrap()));
                polls += 1;
                // Now and then one of them wakes the urgent one, and keeps its own worker busy for
                // a while, so that the other has to come for it.
                if number == 0 && polls % 2 == 0 {
                    order.announce();
                    for _ in 0..20 {
                        thread::yield_now();
                    }
                }
                yield_now().await;
            }
            most.fetch_max(polls, Relaxed);
        };
        stage.executor.spawn(ordinary, Priority::DEFAULT).unwrap();
    }
    stage.with_workers(1, || {
        while order.rounds() < ROUNDS {
            thread::yield_now();
        }
        order.end();
        stage.wait_until_empty(|| ());
    });
    let steals: u64 = stage.records.iter().map(|record| record.steals.load(Relaxed)).sum();
    println!("{steals} steals, {} polls of each", most.load(Relaxed));
}
