//! Frames that arrive while their hart is busy: looked for instead of interrupting (decision 59).
//!
//! An interrupt for a frame that has to wait for its turn anyway is work for nothing, and in QEMU
//! it costs as much as a quarter of a request. So the receiver of the network card, when it has
//! received all frames, can wait in [`next`] instead of for an interrupt. Until it is woken the
//! card does not interrupt, and each hart that is about to enter user mode looks whether frames
//! have come. The receiver is woken as well
//!
//! - before its hart sleeps, and before another one does if frames have come;
//! - by the timer interrupt of its hart, if no hart has looked for [`LATEST_MICROSECONDS`]: by it a
//!   program that computes for long is interrupted.
//!
//! It goes back to interrupts after that, after a look that comes late after the one before, and if
//! it finds no frame: otherwise a frame for something urgent would wait, again and again, while
//! something less urgent computes.
//!
//! A receiver that has had its share of the hart rests in [`rest`], although there are frames
//! (decision 73). It ends in the same ways, except for the looks.
//!
//! The transitions are `cops_algorithms::arrivals`, which the model checker explores.
#![forbid(unsafe_code)]

use core::future::poll_fn;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use core::task::Poll;

use cops_algorithms::arrivals::{Arrivals, LastLook};
use cops_executor::CoroutineId;
use spin::Once;

use super::timer;
use crate::arch;
use crate::counters::COUNTERS;
use crate::drivers::virtio_net::Returned;

/// The time after which the receiver looks by itself, while user mode runs, and how long it rests:
/// as long as the shortest slice.
pub const LATEST_MICROSECONDS: u64 = 1000;

static ARRIVALS: Arrivals = Arrivals::new();

/// The card's count of frames.
static ARRIVED: Once<Returned> = Once::new();

/// A frame that is found longer after the last look than this is found late.
const LATE_MICROSECONDS: u64 = 500;

/// When a hart last looked, or the receiver began to wait or to rest.
static LAST_LOOK: LastLook = LastLook::new();

/// The clock has woken it, or a late look.
static IS_LATE: AtomicBool = AtomicBool::new(false);

/// How often each hart has slept. Only that hart writes its own.
static SLEEPS: [AtomicU64; arch::MAX_HARTS] = [const { AtomicU64::new(0) }; arch::MAX_HARTS];

/// This hart, and the number of times that it has slept. While they stay the same, it is busy.
pub fn sleeps() -> (usize, u64) {
    let hart = arch::hart_index();
    (hart, SLEEPS[hart].load(Relaxed))
}

/// From now on arrivals are those of this card.
pub fn install(arrived: Returned) {
    ARRIVED.call_once(|| arrived);
}

/// Waits until a frame may have come after the first `received`. The card does not interrupt
/// meanwhile. Returns whether that was in time: not if the clock or a late look ended the wait.
pub async fn next(received: u16) -> bool {
    wait(|receiver, hart| ARRIVALS.begin(receiver, received, hart)).await
}

/// Lets others run for [`LATEST_MICROSECONDS`], or until no one else wants the hart. The card does
/// not interrupt meanwhile.
pub async fn rest() {
    wait(|receiver, hart| ARRIVALS.begin_rest(receiver, hart)).await;
}

/// Waits after `begin`. Returns whether that ended in time.
async fn wait(mut begin: impl FnMut(u64, usize)) -> bool {
    let mut is_first = true;
    poll_fn(|_| {
        if is_first && let Some(me) = cops_executor::current() {
            is_first = false;
            LAST_LOOK.begin(arch::now_ticks());
            IS_LATE.store(false, Relaxed);
            begin(me.raw(), arch::hart_index());
            timer::interrupt_by(due_ticks());
            return Poll::Pending;
        }
        // Whatever the reason of this wake: the receiver looks.
        ARRIVALS.end();
        Poll::Ready(!IS_LATE.load(Relaxed))
    })
    .await
}

/// When the clock wakes the receiver.
fn due_ticks() -> u64 {
    LAST_LOOK.due_ticks(timer::ticks_from_microseconds(LATEST_MICROSECONDS))
}

/// The timer interrupt: wakes the receiver if it has waited for too long on this hart. Returns when
/// it is to be woken by the next one; `u64::MAX`: not at all.
pub fn on_timer(now_ticks: u64) -> u64 {
    if !ARRIVALS.waits_on(arch::hart_index()) {
        return u64::MAX;
    }
    let due_ticks = due_ticks();
    if now_ticks < due_ticks {
        return due_ticks;
    }
    IS_LATE.store(true, Relaxed);
    wake(ARRIVALS.take());
    u64::MAX
}

/// Whether the receiver waits here.
#[inline]
pub fn are_awaited() -> bool {
    ARRIVALS.is_awaited()
}

/// Wakes the receiver that was taken. Returns whether it was there.
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
pub fn look(now_ticks: u64) {
    let Some(arrived) = ARRIVED.get() else { return };
    // Looks do not prolong a rest.
    if ARRIVALS.rests() {
        return;
    }
    let unseen_ticks = LAST_LOOK.look(now_ticks);
    let receiver = ARRIVALS.look(arrived.count());
    if receiver == 0 {
        return;
    }
    if unseen_ticks > timer::ticks_from_microseconds(LATE_MICROSECONDS) {
        IS_LATE.store(true, Relaxed);
    }
    COUNTERS.device_interrupt_ticks.set(now_ticks);
    wake(receiver);
}

/// This hart is to sleep: returns whether it may. If not, the receiver was woken.
pub fn begin_sleep() -> bool {
    !are_awaited() || !take_before_sleep()
}

/// Wakes the receiver, which waits, if it is this hart's, rests, or a frame has come. Returns
/// whether it did.
#[cold]
#[inline(never)]
fn take_before_sleep() -> bool {
    let arrived = ARRIVED.get().map_or(0, |arrived| arrived.count());
    wake(ARRIVALS.begin_sleep(arch::hart_index(), arrived))
}

/// This hart has slept.
pub fn note_sleep() {
    let sleeps = &SLEEPS[arch::hart_index()];
    sleeps.store(sleeps.load(Relaxed).wrapping_add(1), Relaxed);
}
