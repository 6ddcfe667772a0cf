//! What a worker publishes about its urgent work: a kernel that stops it between any two of its
//! instructions must see it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::task::Poll;
use std::time::{Duration, Instant};

use cops_executor::*;

use crate::stage::Stage;

/// The observer sees at least so many turns, and has so many looks within a turn. On a busy host
/// the worker can have all those turns before the observer has a processor, so it continues until
/// the observer has seen enough.
const TURNS: u64 = 20_000;
const LOOKS: u32 = 20;
const LIMIT: Duration = Duration::from_secs(60);
const URGENT: Priority = Priority::MOST_URGENT;

/// The urgent coroutine's turn: odd from the moment at which it was woken to its poll, even
/// otherwise.
type Turn = Arc<AtomicU64>;

/// Woken by a less urgent one again and again, so that the worker begins it each time after
/// something else.
fn populate(stage: &'static Stage, turn: &Turn, is_over: &Arc<AtomicBool>) {
    let (at_poll, is_at_end) = (turn.clone(), is_over.clone());
    let urgent = poll_fn(move |_| {
        if at_poll.load(SeqCst) % 2 == 1 {
            at_poll.fetch_add(1, SeqCst);
        }
        if is_at_end.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    });
    let urgent = stage.executor.spawn(urgent, URGENT).unwrap();
    let (turn, is_over) = (turn.clone(), is_over.clone());
    let waker = async move {
        while !is_over.load(SeqCst) {
            wake_up(urgent);
            turn.fetch_add(1, SeqCst);
            yield_now().await;
        }
        // It may not have been polled since.
        wake_up(urgent);
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
    let (turn, is_over) = (Turn::default(), Arc::default());
    populate(stage, &turn, &is_over);
    let record = &stage.records[0];
    // Looks within different turns, and those at which it was nowhere.
    let (mut looks, mut missed, mut last) = (0, 0, 0);
    let start = Instant::now();
    stage.with_workers(1, || {
        while start.elapsed() < LIMIT {
            let before = turn.load(SeqCst);
            if before >= 2 * TURNS && looks >= LOOKS {
                break;
            }
            let waits = record.waiting() & URGENT.bit() != 0;
            let is_taken = record.taken_priority() == Some(URGENT);
            if before % 2 == 1 && turn.load(SeqCst) == before {
                looks += u32::from(before != last);
                missed += u32::from(!waits && !is_taken);
                last = before;
            }
        }
        is_over.store(true, SeqCst);
        stage.wait_until_empty(|| ());
    });
    let turns = turn.load(SeqCst) / 2;
    println!("{looks} looks in {turns} turns");
    assert!(looks >= LOOKS && turns >= TURNS, "{looks} looks in {turns} turns and {LIMIT:?}");
    assert_eq!(missed, 0, "looks at which the urgent coroutine was nowhere");
}
