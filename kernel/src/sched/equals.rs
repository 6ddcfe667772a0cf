//! What each hart has done since a virtual CPU let equally urgent coroutines of the kernel run
//! first: a reason to let more of them run, or none (`cops_algorithms::turn`).
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering::Relaxed};

use cops_abi::Priority;
use cops_algorithms::priority::AtomicPriority;
use cops_algorithms::turn::LetThrough;

use super::ProcessId;
use super::account::Account;
use crate::arch;

/// The record of one hart. Only that hart uses it. A switching coroutine that continues on another
/// hart finds what was done there, which is as good a reason.
struct Equals {
    process: AtomicU32,
    level: AtomicPriority,
    charge: AtomicI64,
    others_behind: AtomicBool,
}

static EQUALS: [Equals; arch::MAX_HARTS] = [const {
    Equals {
        process: AtomicU32::new(0),
        level: AtomicPriority::new(Priority::MOST_URGENT),
        charge: AtomicI64::new(0),
        others_behind: AtomicBool::new(false),
    }
}; arch::MAX_HARTS];

/// On this hart, a virtual CPU of the process with this `account` lets equals run first, after
/// `used_charge` in its slice.
pub(super) fn let_through(account: &Account, used_charge: i64) {
    let record = &EQUALS[arch::hart_index()];
    record.process.store(account.process(), Relaxed);
    record.level.store(account.vruntime.level());
    record.charge.store(account.vruntime.settled() + used_charge, Relaxed);
    record.others_behind.store(false, Relaxed);
}

/// The kernel has worked on this hart for the process with this `account`.
pub(super) fn note_work(account: &Account) {
    let record = &EQUALS[arch::hart_index()];
    let process: ProcessId = record.process.load(Relaxed);
    let through =
        LetThrough { process, level: record.level.load(), charge: record.charge.load(Relaxed) };
    if through.is_behind(account.process(), account.vruntime.level(), account.vruntime.settled()) {
        record.others_behind.store(true, Relaxed);
    }
}

/// Whether the kernel has worked on this hart for a process with a smaller charge since a virtual
/// CPU last let equals run first.
pub fn others_are_behind() -> bool {
    EQUALS[arch::hart_index()].others_behind.load(Relaxed)
}
