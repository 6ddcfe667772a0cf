//! What a worker publishes about its urgent work: a kernel that stops it between any two of its
//! instructions must see it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::task::Poll;

use cops_executor::*;

use crate::stage::Stage;

const ROUNDS: u64 = 20_000;
const URGENT: Priority = Priority::MOST_URGENT;

/// The urgent coroutine's turn: odd from the moment at which it was woken to its poll, even
/// otherwise.
type Turn = Arc<AtomicU64>;

/// Woken by a less urgent one again and again, so that the worker begins it each time after
/// something else.
fn populate(stage: &'static Stage, turn: &Turn) {
    let at_poll = turn.clone();
    let urgent = poll_fn(move |_| {
        if at_poll.load(SeqCst) % 2 == 1 {
            at_poll.fetch_add(1, SeqCst);
        }
        if at_poll.load(SeqCst) >= 2 * ROUNDS { Poll::Ready(()) } else { Poll::Pending }
    });
    let urgent = stage.executor.spawn(urgent, URGENT).unwrap();
    let turn = turn.clone();
    let waker = async move {
        while turn.load(SeqCst) < 2 * ROUNDS {
            wake_up(urgent);
            turn.fetch_add(1, SeqCst);
            yield_now().await;
        }
    };
    stage.executor.spawn(waker, Priority::DEFAULT).unwrap();
}

/// While the urgent coroutine is ready, the worker publishes that it waits, or that it is polled.
///
/// The observer is another thread, and its looks stand for the interrupts of the worker's own
/// processor. Each worker of the test is observed in program order, which x86 keeps for all stores
/// and for all loads; another machine could show the observer what an interrupt would never see.
#[test]
#[cfg(target_arch = "x86_64")]
fn urgent_work_is_published_from_the_wake_to_the_poll() {
    let stage = Stage::new(98, 1);
    let turn = Turn::default();
    populate(stage, &turn);
    let record = &stage.records[0];
    let mut looks = 0; let mut polled=0;
    stage.with_workers(1, || {
        loop {
            let before = turn.load(SeqCst);
            if before >= 2 * ROUNDS {
                break;
            }
            let waiting = record.waiting() & URGENT.bit() != 0;
            let is_polled = record.current_priority() == Some(URGENT);
            if before % 2 == 1 && turn.load(SeqCst) == before {
                looks += 1; polled += u64::from(is_polled && !waiting);
                assert!(waiting || is_polled, "turn {before}: the urgent coroutine is nowhere");
            }
        }
        stage.wait_until_empty(|| ());
    });
    println!("{looks} looks, {polled}");
    assert!(looks > 0);
}
