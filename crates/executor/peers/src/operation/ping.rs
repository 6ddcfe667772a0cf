//! Wakes across threads: two tasks, each with a thread of its own that sleeps while its task waits,
//! hand a turn to and fro; or one task and a plain thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::DEFAULT_LEVEL;
use crate::gate::Gate;
use crate::runtime::{Runtime, Setup};
use crate::sample::{Clock, Sample};

/// What the two share. Turns count up; the even ones are side 0's.
struct Table {
    turn: AtomicU64,
    turns: u64,
    wakers: [OnceLock<Waker>; 2],
    finished: [&'static Gate; 2],
}

impl Table {
    fn leak(rounds: u64) -> &'static Table {
        Box::leak(Box::new(Table {
            turn: AtomicU64::new(0),
            turns: 2 * rounds,
            wakers: [OnceLock::new(), OnceLock::new()],
            finished: [Gate::leak(1), Gate::leak(1)],
        }))
    }

    /// Takes a turn if it is `side`'s; whether `side` has taken its last.
    fn take_turn(&self, side: u64) -> bool {
        let mut turn = self.turn.load(Ordering::SeqCst);
        if turn < self.turns && turn % 2 == side {
            turn += 1;
            self.turn.store(turn, Ordering::SeqCst);
            // Partner: the fence where a waker is left: its owner sees the turn, or we its waker.
            fence(Ordering::SeqCst);
            if let Some(other) = self.wakers[1 - side as usize].get() {
                other.wake_by_ref();
            }
        }
        turn + 1 >= self.turns + side
    }
}

/// 16 bytes.
struct Side {
    table: &'static Table,
    side: u64,
}

impl Future for Side {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (table, side) = (self.table, self.side);
        if table.wakers[side as usize].get().is_none() {
            let _ = table.wakers[side as usize].set(context.waker().clone());
            fence(Ordering::SeqCst);
        }
        if table.take_turn(side) {
            table.finished[side as usize].finish();
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

const SETUP: Setup = Setup { workers: 1, sleeps: true };

fn run_side<R: Runtime>(table: &'static Table, side: u64) {
    let runtime = R::start(SETUP);
    let slots = runtime.slots::<Side>(1);
    runtime.run(async move {
        runtime.spawn(slots, 0, Side { table, side }, DEFAULT_LEVEL);
        table.finished[side as usize].wait().await;
    });
}

/// An operation is one wake of the other side, until it has run.
pub fn run<R: Runtime>(is_foreign: bool, rounds: u64) -> Sample {
    let table = Table::leak(rounds);
    let clock = Clock::new();
    let other = thread::spawn(move || run_side::<R>(table, 1));
    // Side 1 waits for the first turn from here on.
    table.wakers[1].wait();
    clock.start();
    if is_foreign {
        run_plainly(table, 0);
    } else {
        run_side::<R>(table, 0);
    }
    other.join().expect("the other side does not panic");
    clock.stop();
    assert_eq!(table.turn.load(Ordering::SeqCst), table.turns, "every turn was taken");
    clock.sample(table.turns)
}

/// The same between two plain threads.
pub fn run_threads(rounds: u64) -> Sample {
    let table = Table::leak(rounds);
    let clock = Clock::new();
    let other = thread::spawn(move || run_plainly(table, 1));
    table.wakers[1].wait();
    clock.start();
    run_plainly(table, 0);
    other.join().expect("the other side does not panic");
    clock.stop();
    assert_eq!(table.turn.load(Ordering::SeqCst), table.turns, "every turn was taken");
    clock.sample(table.turns)
}

/// A thread as a side: it parks while it waits.
fn run_plainly(table: &'static Table, side: u64) {
    struct Unparks(Thread);
    impl Wake for Unparks {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
        fn wake_by_ref(self: &std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(std::sync::Arc::new(Unparks(thread::current())));
    let is_first = table.wakers[side as usize].set(waker).is_ok();
    assert!(is_first, "one thread a side");
    fence(Ordering::SeqCst);
    while !table.take_turn(side) {
        thread::park();
    }
}
