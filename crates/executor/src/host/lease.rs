//! Executors for runtimes. An executor has a number of 256, ids and wakers that may outlive
//! everything, and so is never freed: a runtime leases one, and the next may have it.
//!
//! When a lease ends, no coroutine is left on the executor. So:
//!
//! - `tenancy` is odd while a runtime has it, and goes up when one comes or goes. A handle knows
//!   the tenancy that it is for.
//! - The runtime's end closes the tenancy, then stops the workers. The last thread to leave sweeps:
//!   it cancels all coroutines and runs what that makes ready, which drops the futures and polls
//!   none. Then it returns the executor.
//! - A thread that spawns and is no worker looks at the tenancy *afterwards*. If it is another, the
//!   newcomer is cancelled and must be run for that: by the next tenant's workers, or by the sweep,
//!   or, if the executor is idle, by the spawner, which sweeps once more.
//!
//! No coroutine is overlooked: a spawn and the look that follows, the closing and the sweep that
//! follows, are sequentially consistent, so that the look sees the closing, or the sweep the
//! newcomer. A spawner that finds the executor not idle has had the lock before the sweep's last
//! section under it, which checks `live_count` and sees the newcomer.

use std::boxed::Box;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::vec::Vec;

use super::record::Record;
use crate::core::CoroutineId;
use crate::front::executor::Executor;
use crate::front::registry;

/// Executors that no runtime has, all swept.
static IDLE: Mutex<Vec<&'static Record>> = Mutex::new(Vec::new());

fn idle() -> MutexGuard<'static, Vec<&'static Record>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes an executor that has at least `workers` workers. `None` if all numbers are in use: by
/// runtimes that have not ended, and by executors of the program's own.
///
/// The executor may have been another runtime's. Its slots count generations on, so an id, a waker
/// or a handle of an earlier runtime names no coroutine of this one.
pub(super) fn take(workers: u32, is_local: bool) -> Option<(&'static Record, u64)> {
    let mut idle = idle();
    // One with workers to spare does too, but the others look at their records at each scheduling
    // point. One with too few gets more; that is for when there is no other number, since the
    // memory of a worker is never freed.
    let same = idle
        .iter()
        .position(|record| record.workers() == workers)
        .map(|place| idle.swap_remove(place));
    let record = same.or_else(|| start(workers)).or_else(|| {
        let difference = |record: &Record| record.workers().abs_diff(workers);
        let nearest = (0..idle.len()).min_by_key(|&place| difference(idle[place]))?;
        Some(idle.swap_remove(nearest))
    })?;
    record.grow_to(workers);
    record.finishing.store(false, Ordering::Relaxed);
    record.is_local.store(is_local, Ordering::Relaxed);
    record.threads.store(workers, Ordering::Relaxed);
    Some((record, record.tenancy.fetch_add(1, Ordering::SeqCst).wrapping_add(1)))
}

/// Starts an executor with an unused number. From the end: programs number their own from 0.
fn start(workers: u32) -> Option<&'static Record> {
    (0..=u8::MAX).rev().filter(|&number| registry::executor(number).is_none()).find_map(|number| {
        // It may have been taken since; then this one is leaked.
        Record::start(Box::leak(Box::new(Executor::with_number(number))), workers).ok()
    })
}

/// Ends a tenancy: from now on its handles spawn in vain. False if it has ended before.
pub(super) fn close(record: &Record, tenancy: u64) -> bool {
    let next = tenancy.wrapping_add(1);
    record.tenancy.compare_exchange(tenancy, next, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// A thread of the runtime leaves for good, and its tenancy is closed. The last one sweeps.
pub(super) fn leave(record: &'static Record) {
    // What the others did on the executor comes before what the last one does.
    if record.threads.fetch_sub(1, Ordering::AcqRel) == 1 {
        sweep(record);
    }
}

/// To be called after a spawn on behalf of `tenancy` by a thread that is no worker of this
/// executor.
#[inline(never)]
pub(super) fn check(record: &'static Record, tenancy: u64, newcomer: CoroutineId) {
    fence(Ordering::SeqCst);
    if record.tenancy.load(Ordering::SeqCst) != tenancy {
        refuse(record, newcomer);
    }
}

#[cold]
fn refuse(record: &'static Record, newcomer: CoroutineId) {
    registry::cancel(newcomer);
    let found = {
        let mut idle = idle();
        let place = idle.iter().position(|&other| std::ptr::eq(other, record));
        place.map(|place| idle.swap_remove(place))
    };
    if let Some(record) = found {
        sweep(record);
    }
}

/// Drops all coroutines of an executor that no worker runs, and returns it.
fn sweep(record: &'static Record) {
    let executor = record.executor;
    executor.request_stop(false);
    fence(Ordering::SeqCst);
    loop {
        while executor.live_count() != 0 {
            for coroutine in executor.coroutines() {
                registry::cancel(coroutine.id);
            }
            executor.run_until_stalled(0);
            // One that is left is about to be announced by its spawner.
            if executor.live_count() != 0 {
                thread::yield_now();
            }
        }
        let mut idle = idle();
        if executor.live_count() == 0 {
            idle.push(record);
            return;
        }
    }
}
