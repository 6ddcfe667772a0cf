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
//! If it finds no frame then, it goes back to interrupts. The transitions are
//! `cops_algorithms::arrivals`, which the model checker explores.
#![forbid(unsafe_code)]

use core::future::poll_fn;
use core::task::Poll;

use cops_algorithms::arrivals::Arrivals;
use cops_executor::CoroutineId;
use spin::Once;

use super::timer;
use crate::arch;
use crate::drivers::virtio_net::Returned;

/// The time after which the receiver looks by itself, while user mode runs: as long as the shortest
/// slice.
const LATEST_MICROSECONDS: u64 = 1000;

static ARRIVALS: Arrivals = Arrivals::new();

/// The card's count of frames.
static ARRIVED: Once<Returned> = Once::new();

/// The number of times that a hart has gone to sleep. While it stays the same, all are busy.
pub fn sleeps() -> u64 {
    ARRIVALS.sleeps()
}

/// From now on arrivals are those of this card.
pub fn install(arrived: Returned) {
    ARRIVED.call_once(|| arrived);
}

/// Waits until a frame may have come after the first `received`. The card does not interrupt
/// meanwhile. Returns false at once if a hart sleeps: the card is to interrupt.
pub async fn next(received: u16) -> bool {
    let mut is_first = true;
    poll_fn(|_| {
        if is_first && let Some(me) = cops_executor::current() {
            is_first = false;
            if !ARRIVALS.begin(me.raw(), received) {
                return Poll::Ready(false);
            }
            timer::interrupt_by(latest_look(arch::now_ticks()));
            return Poll::Pending;
        }
        // Whatever the reason of this wake: the receiver looks.
        ARRIVALS.end();
        Poll::Ready(true)
    })
    .await
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
    ARRIVALS.is_awaited()
}

/// Wakes the receiver if it waits here. Returns whether it did.
#[inline]
pub fn wake_receiver() -> bool {
    wake(ARRIVALS.take())
}

/// Wakes the receiver that was taken.
fn wake(receiver: u64) -> bool {
    match CoroutineId::from_raw(receiver) {
        Some(receiver) => {
            cops_executor::wake_up(receiver);
            true
        }
        None => false,
    }
}

/// A hart is about to enter user mode while the receiver waits here: wakes it if a frame has come.
pub fn look() {
    if let Some(arrived) = ARRIVED.get() {
        wake(ARRIVALS.look(arrived.count()));
    }
}

/// A hart goes to sleep: returns whether it may. If not, the receiver was woken. Either way the
/// hart calls [`end_sleep`] afterwards.
pub fn begin_sleep() -> bool {
    !wake(ARRIVALS.begin_sleep())
}

/// A hart that was to sleep runs again; `has_slept`: it did sleep.
pub fn end_sleep(has_slept: bool) {
    ARRIVALS.end_sleep(has_slept);
}
