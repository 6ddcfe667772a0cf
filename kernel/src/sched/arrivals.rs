//! Frames that arrive while all harts are busy: looked for instead of interrupting (decision 59).
//!
//! An interrupt for a frame that has to wait for its turn anyway is work for nothing, and in QEMU
//! it costs as much as a quarter of a request. So the receiver of the network card, when it has
//! received all frames, can wait in [`next`] instead of for an interrupt. Until it is woken the
//! card does not interrupt, and each hart that is about to enter user mode looks whether frames
//! have come. The receiver is woken as well
//!
//! - before a hart sleeps;
//! - by the timer interrupt of its hart, which then comes within [`LATEST_MICROSECONDS`]: by it a
//!   program that computes for long is interrupted.
//!
//! If it finds no frame then, it goes back to interrupts.
#![forbid(unsafe_code)]

use core::future::poll_fn;
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering::*};
use core::task::Poll;

use cops_executor::CoroutineId;
use spin::Once;

use super::timer;
use crate::arch;
use crate::drivers::virtio_net::Returned;

/// The time after which the receiver looks by itself, while user mode runs: as long as the shortest
/// slice.
const LATEST_MICROSECONDS: u64 = 1000;

/// The receiver that waits; 0 if none does.
static WAITER: AtomicU64 = AtomicU64::new(0);

/// The card's count of frames, and its value when the receiver had received all of them.
static ARRIVED: Once<Returned> = Once::new();
static RECEIVED: AtomicU16 = AtomicU16::new(0);

/// How often harts have gone to sleep.
static SLEEPS: AtomicU64 = AtomicU64::new(0);

/// The number of times that a hart has gone to sleep. While it stays the same, all are busy.
pub fn sleeps() -> u64 {
    SLEEPS.load(Relaxed)
}

/// From now on arrivals are those of this card.
pub fn install(arrived: Returned) {
    ARRIVED.call_once(|| arrived);
}

/// Waits until a frame may have come after the first `received`. The card does not interrupt
/// meanwhile.
pub async fn next(received: u16) {
    let mut is_first = true;
    poll_fn(|_| {
        if is_first && let Some(me) = cops_executor::current() {
            is_first = false;
            // A look that sees the one store and not the other wakes in vain, or leaves it to the
            // next look.
            RECEIVED.store(received, Relaxed);
            WAITER.store(me.raw(), Release);
            timer::interrupt_by(latest_look(arch::now_ticks()));
            return Poll::Pending;
        }
        // Whatever the reason of this wake: the receiver looks.
        WAITER.store(0, Relaxed);
        Poll::Ready(())
    })
    .await;
}

/// When the receiver that begins to wait at `now_ticks` looks by itself.
fn latest_look(now_ticks: u64) -> u64 {
    now_ticks.saturating_add(timer::ticks_from_microseconds(LATEST_MICROSECONDS))
}

/// The timer interrupt: wakes the receiver if it waits here. Returns when it is to be woken again,
/// or `u64::MAX`: it will most likely wait again, and the clock is armed once for both.
pub fn on_timer(now_ticks: u64) -> u64 {
    if wake_receiver() { latest_look(now_ticks) } else { u64::MAX }
}

/// Whether the receiver waits here.
#[inline]
pub fn are_awaited() -> bool {
    WAITER.load(Relaxed) != 0
}

/// Wakes the receiver if it waits here. Returns whether it did.
#[inline]
pub fn wake_receiver() -> bool {
    are_awaited() && wake()
}

#[cold]
#[inline(never)]
fn wake() -> bool {
    match CoroutineId::from_raw(WAITER.swap(0, Acquire)) {
        Some(receiver) => {
            cops_executor::wake_up(receiver);
            true
        }
        None => false,
    }
}

/// A hart is about to enter user mode while the receiver waits here: wakes it if a frame has come.
pub fn look() {
    if ARRIVED.get().is_some_and(|arrived| arrived.count() != RECEIVED.load(Relaxed)) {
        wake();
    }
}

/// A hart goes to sleep.
pub fn count_sleep() {
    SLEEPS.fetch_add(1, Relaxed);
}
