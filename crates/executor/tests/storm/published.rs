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

/// While the urgent coroutine is ready, the worker publishes that it waits, or that it has taken it
/// up.
///
/// The observer is another thread, and its looks stand for the interrupts of the worker's own
/// processor. It sees the worker's stores in program order, which x86 keeps for all stores and for
/// all loads; on another machine it could see what an interrupt never does.
#[test]
#[cfg(target_arch = "x86_64")]
fn urgent_work_is_published_from_the_wake_to_the_poll() {
    let stage = Stage::new(98, 1);
    let turn = Turn::default();
    populate(stage, &turn);
    let record = &stage.records[0];
    let (mut looks, mut missed) = (0, 0);
    stage.with_workers(1, || {
        loop {
            let before = turn.load(SeqCst);
            if before >= 2 * ROUNDS {
                break;
            }
            let waits = record.waiting() & URGENT.bit() != 0;
            let is_taken = record.taken_priority() == Some(URGENT);
            if before % 2 == 1 && turn.load(SeqCst) == before {
                looks += 1;
                missed += u32::from(!waits && !is_taken);
            }
        }
        stage.wait_until_empty(|| ());
    });
    println!("{looks} looks");
    assert!(looks > 0);
    assert_eq!(missed, 0, "looks at which the urgent coroutine was nowhere");
}
