//! What each hart has done since a virtual CPU let equally urgent coroutines of the kernel run
//! first: a reason to let more of them run, or none; and whether virtual CPUs alternate on it
//! (`cops_algorithms::turn`).
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering::Relaxed};

use cops_abi::Priority;
use cops_algorithms::priority::AtomicPriority;
use cops_algorithms::turn::LetThrough;

use super::ProcessId;
use super::account::Account;
use crate::arch;

/// The record of one hart. Only that hart uses it. A switching coroutine that continues on another
/// hart finds what was done there, which is as good a reason.
struct Through {
    process: AtomicU32,
    priority: AtomicPriority,
    vruntime: AtomicI64,
    others_behind: AtomicBool,
    /// The switching coroutine that was the last one to run its virtual CPU here.
    switcher: AtomicUsize,
}

static THROUGH: [Through; arch::MAX_HARTS] = [const {
    Through {
        process: AtomicU32::new(0),
        priority: AtomicPriority::new(Priority::MOST_URGENT),
        vruntime: AtomicI64::new(0),
        others_behind: AtomicBool::new(false),
        switcher: AtomicUsize::new(0),
    }
}; arch::MAX_HARTS];

/// On this hart, a virtual CPU of the process with this `account` lets peers run first, after
/// `used_charge` in its slice.
pub(super) fn let_through(account: &Account, used_vruntime: i64) {
    let record = &THROUGH[arch::hart_index()];
    record.process.store(account.process(), Relaxed);
    record.priority.store(account.vruntime().priority());
    record.vruntime.store(account.vruntime().without_open_slices() + used_vruntime, Relaxed);
    record.others_behind.store(false, Relaxed);
}

/// The kernel has worked on this hart for the process with this `account`.
#[inline]
pub(super) fn note_work(account: &Account) {
    note(account, LetThrough::is_behind);
}

/// The same for work that threads of the process wait for.
pub(super) fn note_awaited(account: &Account) {
    note(account, LetThrough::is_awaited);
}

#[inline]
fn note(account: &Account, is_reason: impl Fn(LetThrough, ProcessId, Priority, i64) -> bool) {
    let record = &THROUGH[arch::hart_index()];
    let through = LetThrough {
        process: record.process.load(Relaxed),
        priority: record.priority.load(),
        vruntime: record.vruntime.load(Relaxed),
    };
    let (priority, vruntime) =
        (account.vruntime().priority(), account.vruntime().without_open_slices());
    if is_reason(through, account.process(), priority, vruntime) {
        record.others_behind.store(true, Relaxed);
    }
}

/// Whether the kernel has worked on this hart for a process with a smaller charge, or for threads
/// that wait for the work, since a virtual CPU last let peers run first.
pub fn others_are_behind() -> bool {
    THROUGH[arch::hart_index()].others_behind.load(Relaxed)
}

/// Switching coroutine `number` is about to run its virtual CPU on this hart. Returns whether
/// another one has done so since this one did.
#[inline]
pub(super) fn alternates(number: usize) -> bool {
    let last = &THROUGH[arch::hart_index()].switcher;
    if last.load(Relaxed) == number {
        return false;
    }
    last.store(number, Relaxed);
    true
}
