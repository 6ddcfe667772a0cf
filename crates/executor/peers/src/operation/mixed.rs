//! 64 priorities at once: coroutines of random priorities in one random ring. Each in turn yields,
//! wakes the next of the ring, and waits until it has been woken as often itself.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use crate::gate::Gate;
use crate::runtime::Runtime;
use crate::sample::{Clock, Sample};

struct Place {
    waker: OnceLock<Waker>,
    /// Wakes that this one has not used. One worker: plain loads and stores do.
    credits: AtomicU32,
    next: u16,
}

struct Table {
    places: Vec<Place>,
    registered: &'static Gate,
    finished: &'static Gate,
}

#[derive(Clone, Copy)]
enum Step {
    Register,
    Yield,
    Exchange,
    Receive,
}

/// 16 bytes.
struct Mixes {
    table: &'static Table,
    left: u32,
    number: u16,
    step: Step,
}

impl Future for Mixes {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let table = self.table;
        let mine = &table.places[self.number as usize];
        match self.step {
            Step::Register => {
                assert!(mine.waker.set(context.waker().clone()).is_ok(), "polled once until woken");
                self.step = Step::Yield;
                table.registered.finish();
                return Poll::Pending;
            }
            Step::Yield => {
                self.step = Step::Exchange;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Step::Exchange => {
                let other = &table.places[mine.next as usize];
                other.credits.store(other.credits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                if let Some(waker) = other.waker.get() {
                    waker.wake_by_ref();
                }
                self.step = Step::Receive;
            }
            Step::Receive => {}
        }
        let credits = mine.credits.load(Ordering::Relaxed);
        if credits == 0 {
            return Poll::Pending;
        }
        mine.credits.store(credits - 1, Ordering::Relaxed);
        self.left -= 1;
        if self.left == 0 {
            table.finished.finish();
            return Poll::Ready(());
        }
        // On with the next round's yield, in this poll.
        self.step = Step::Exchange;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Marsaglia's xorshift: the same numbers for every runtime.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// For each coroutine, the one that it wakes: one cycle through all, so that the program cannot end
/// early in a part of it.
fn cycle(random: &mut Random, length: usize) -> Vec<u16> {
    // Sattolo's algorithm.
    let mut next: Vec<u16> = (0..length as u16).collect();
    for last in (1..length).rev() {
        next.swap(last, random.below(last as u64) as usize);
    }
    next
}

const COROUTINES: usize = 1_000;

/// An operation is a round of one coroutine: a yield, a wake of another, and the wait for one's
/// own.
pub fn run<R: Runtime>(runtime: R, rounds: u64) -> Sample {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let place = |next| Place { waker: OnceLock::new(), credits: AtomicU32::new(0), next };
    let table: &'static Table = Box::leak(Box::new(Table {
        places: cycle(&mut random, COROUTINES).into_iter().map(place).collect(),
        registered: Gate::leak(COROUTINES as u64),
        finished: Gate::leak(COROUTINES as u64),
    }));
    let clock = Clock::new();
    let slots = runtime.slots::<Mixes>(COROUTINES);
    runtime.run(async move {
        for number in 0..COROUTINES {
            let task =
                Mixes { table, left: rounds as u32, number: number as u16, step: Step::Register };
            runtime.spawn(slots, number, task, random.below(64) as u32);
        }
        table.registered.wait().await;
        clock.start();
        for place in &table.places {
            place.waker.get().expect("all are registered").wake_by_ref();
        }
        table.finished.wait().await;
        clock.stop();
    });
    table.finished.assert_open();
    let unused: u32 = table.places.iter().map(|place| place.credits.load(Ordering::Relaxed)).sum();
    assert_eq!(unused, 0, "each wake was sent once and used once");
    clock.sample(COROUTINES as u64 * rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_one_cycle_through_all() {
        let next = cycle(&mut Random(1), 1_000);
        let mut place = 0;
        for step in 1..=1_000 {
            place = next[place] as usize;
            assert_eq!(place == 0, step == 1_000);
        }
    }
}
