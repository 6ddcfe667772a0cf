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
//!   runs, or if the notification has been owed for [`OWED_MICROSECONDS`];
//! - otherwise at the next timer interrupt, which comes within [`LATEST_MICROSECONDS`]. So a
//!   program that computes for long delays the answers of others by no more.
//!
//! All of it is on the hart that owes the notification: another hart may give it, too. There is one
//! card.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering::*};

use spin::Once;

use super::timer;
use crate::arch;
use crate::drivers::virtio_net::Notifier;

/// For how long a notification is owed while a process has other work that is as urgent.
const OWED_MICROSECONDS: u64 = 100;

/// For how long it is owed at most.
const LATEST_MICROSECONDS: u64 = 1000;

static NOTIFIER: Once<Notifier> = Once::new();

/// Since when a notification is owed, in ticks; 0 if none is.
static OWED_SINCE: AtomicU64 = AtomicU64::new(0);

/// From now on notifications are for this card.
pub fn install(notifier: Notifier) {
    NOTIFIER.call_once(|| notifier);
}

/// The card wants to be notified of frames that have been published.
pub fn owe() {
    // One that is owed already keeps its time. `Release`: with the hart that gives it, the frames
    // are visible, which the device will look for.
    let now_ticks = arch::now_ticks().max(1);
    let _ = OWED_SINCE.compare_exchange(0, now_ticks, Release, Relaxed);
}

/// Whether a notification is owed.
#[inline]
pub fn is_owed() -> bool {
    OWED_SINCE.load(Relaxed) != 0
}

/// Gives the notification that is owed. Interrupt handlers may call this.
#[inline]
pub fn settle() {
    if is_owed() {
        ring();
    }
}

#[cold]
#[inline(never)]
fn ring() {
    if OWED_SINCE.swap(0, Acquire) != 0
        && let Some(notifier) = NOTIFIER.get()
    {
        notifier.notify();
    }
}

/// User mode is about to be entered: gives the notification, or sees to it that the clock
/// interrupts soon enough. `has_peers`: the process has other work that is as urgent as what it
/// runs.
pub fn settle_before_user_mode(has_peers: bool) {
    let now_ticks = arch::now_ticks();
    let owed_ticks = now_ticks.saturating_sub(OWED_SINCE.load(Relaxed));
    if !has_peers || owed_ticks >= timer::ticks_from_microseconds(OWED_MICROSECONDS) {
        ring();
    } else {
        let latest_ticks = timer::ticks_from_microseconds(LATEST_MICROSECONDS);
        timer::interrupt_by(now_ticks.saturating_add(latest_ticks));
    }
}
