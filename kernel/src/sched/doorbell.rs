//! When the network card is notified of frames that are to be sent (decision 59).
//!
//! A notification makes the device work: it wakes a thread of the emulator or of a hypervisor,
//! which then sends what it finds, and waits again. If each answer of a burst is notified by
//! itself, the device wakes for each, and so do the peers and this hart. So a notification is
//! *owed* for a moment, and the frames that are published meanwhile need none of their own. It is
//! given
//!
//! - before this hart sleeps, and when a virtual CPU leaves it, so a single answer does not wait;
//! - before user mode is entered, if the process has nothing ready that is as urgent as what it
//!   runs, or if the notification has been owed for [`OWED_MICROSECONDS`], on a busy machine for
//!   [`OWED_WHEN_BUSY_MICROSECONDS`];
//! - otherwise at the next timer interrupt, which comes within [`LATEST_MICROSECONDS`]. So a
//!   program that computes for long delays the answers of others by no more;
//! - after some portions of the kernel without any of these, if it has been owed for that long.
//!
//! All of it is on the hart that owes the notification: another hart may give it, too. There is one
//! card. The transitions are `cops_algorithms::doorbell`, which the model checker explores.
#![forbid(unsafe_code)]

use cops_algorithms::doorbell::{BeforeUserMode, Bounds, Owed};
use spin::Once;

use super::{arrivals, timer};
use crate::arch;
use crate::drivers::virtio_net::Notifier;

/// For how long a notification is owed while a process has other work that is as urgent.
const OWED_MICROSECONDS: u64 = 100;

/// The same on a machine that is so busy that frames are looked for: no hart has slept for long.
const OWED_WHEN_BUSY_MICROSECONDS: u64 = 400;

/// For how long it is owed at most.
const LATEST_MICROSECONDS: u64 = 1000;

static NOTIFIER: Once<Notifier> = Once::new();
static OWED: Owed = Owed::new();

/// From now on notifications are for this card.
pub fn install(notifier: Notifier) {
    NOTIFIER.call_once(|| notifier);
}

fn bounds() -> Bounds {
    let is_busy = arrivals::are_awaited();
    let peers = if is_busy { OWED_WHEN_BUSY_MICROSECONDS } else { OWED_MICROSECONDS };
    Bounds {
        peers_ticks: timer::ticks_from_microseconds(peers),
        latest_ticks: timer::ticks_from_microseconds(LATEST_MICROSECONDS),
    }
}

/// The card wants to be notified of frames that have been published.
pub fn owe() {
    OWED.owe(arch::now_ticks());
}

/// Whether a notification is owed.
#[inline]
pub fn is_owed() -> bool {
    OWED.is_owed()
}

/// Gives the notification that is owed. Interrupt handlers may call this.
#[inline]
pub fn settle() {
    if is_owed() {
        take_and_notify();
    }
}

#[cold]
#[inline(never)]
fn take_and_notify() {
    if OWED.take() {
        notify();
    }
}

fn notify() {
    if let Some(notifier) = NOTIFIER.get() {
        notifier.notify();
    }
}

/// This hart has run coroutines of the kernel for some portions: gives the notification if it has
/// been owed for long.
pub fn settle_late() {
    if is_owed() && OWED.take_if_late(arch::now_ticks(), bounds()) {
        notify();
    }
}

/// User mode is about to be entered: gives the notification, or sees to it that the clock
/// interrupts soon enough. `has_peers`: the process has other work that is as urgent as what it
/// runs.
#[inline]
pub fn settle_before_user_mode(has_peers: bool) {
    if has_peers {
        settle_among_peers();
    } else {
        settle();
    }
}

fn settle_among_peers() {
    match OWED.before_user_mode(arch::now_ticks(), true, bounds()) {
        BeforeUserMode::Nothing => {}
        BeforeUserMode::Notify => notify(),
        BeforeUserMode::InterruptBy(deadline_ticks) => timer::interrupt_by(deadline_ticks),
    }
}
