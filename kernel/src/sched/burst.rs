//! Bursts: the calls that one service wakes in one portion are attempted by that service, without a
//! poll of their own coroutines (decision 55).
//!
//! A service that is about to wake calls through wait queues does so in [`burst`]. On its hart,
//! `WaitQueue::wake_one` then collects the calls instead of waking them. When the service holds no
//! lock any more, each is attempted, or its coroutine is woken: `call` decides that.
//!
//! A wait list has handed a collected call its wake, as if its coroutine had been woken: until it
//! has been attempted, what must not be lost is known only here. So nothing may leave [`burst`]
//! before all have been passed on. The kernel is not preempted, and an interrupt handler uses no
//! wait queue: only the service itself uses the record of its hart.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::{attempt_calls, wake_by_number};
use crate::arch;

/// Maximum number of calls that are attempted in a burst; the coroutines of others are woken.
const CALLS_MAX: usize = 4;

/// A call that was woken: the number of its cell, and that of its coroutine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    pub cell: u32,
    pub coroutine: u64,
}

/// What a hart has collected. Atomic only because statics are shared; there are no races.
struct Collected {
    is_open: AtomicBool,
    count: AtomicUsize,
    cells: [AtomicU32; CALLS_MAX],
    coroutines: [AtomicU64; CALLS_MAX],
}

static COLLECTED: [Collected; arch::MAX_HARTS] = [const {
    Collected {
        is_open: AtomicBool::new(false),
        count: AtomicUsize::new(0),
        cells: [const { AtomicU32::new(0) }; CALLS_MAX],
        coroutines: [const { AtomicU64::new(0) }; CALLS_MAX],
    }
}; arch::MAX_HARTS];

/// Executes `act`, which leaves no lock held, and then attempts the calls that it has woken.
pub fn burst<R>(act: impl FnOnce() -> R) -> R {
    let collected = &COLLECTED[arch::hart_index()];
    if collected.is_open.swap(true, Relaxed) {
        return act();
    }
    let result = act();
    let mut woken = [Woken::default(); CALLS_MAX];
    let count = collected.count.load(Relaxed);
    for (place, woken) in woken[..count].iter_mut().enumerate() {
        let (cell, coroutine) = (&collected.cells[place], &collected.coroutines[place]);
        *woken = Woken { cell: cell.load(Relaxed), coroutine: coroutine.load(Relaxed) };
    }
    collected.count.store(0, Relaxed);
    // Attempts wake others, which are not part of this burst.
    collected.is_open.store(false, Relaxed);
    if count > 0 {
        attempt_calls(&woken[..count]);
    }
    result
}

/// A wait list has handed its wake to this call: collects it in a burst, otherwise wakes its
/// coroutine.
#[inline]
pub(super) fn wake(woken: Woken) {
    let collected = &COLLECTED[arch::hart_index()];
    let count = collected.count.load(Relaxed);
    if !collected.is_open.load(Relaxed) || count == CALLS_MAX {
        return wake_by_number(woken.coroutine);
    }
    collected.cells[count].store(woken.cell, Relaxed);
    collected.coroutines[count].store(woken.coroutine, Relaxed);
    collected.count.store(count + 1, Relaxed);
}
