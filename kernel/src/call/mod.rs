//! Calls that can wait, synchronous and asynchronous alike.
//!
//! A call is an [`Operation`]. It is tried at once; most of the time that is all. Only if it has to
//! wait does it get a *cell* from the pool and a kernel coroutine, which inherits the priority of
//! the coroutine that called and finishes the operation on whatever hart it runs. The result goes
//! to the process's wake ring (asynchronous) or into the registers of the virtual CPU that waits
//! (synchronous): see [`Delivery`].
//!
//! The life of a cell, and who does what under its lock:
//!
//! ```text
//!            submit                     poll: operation ready
//!   free ------------> in flight ---------------------------> delivering
//!    ^                    |                                      |    |
//!    |    cancel, exit    v                          ring has room    | ring full
//!    +<---------------- (operation dropped, buffers unpinned)    |    v
//!    +<----------------------------------------------------------+   undelivered
//!    +<------------------------------- refill_ring, exit ----------------+
//! ```
//!
//! Cancelling takes the operation out of its cell under the cell's lock, which a poll holds while
//! it copies: when `cancel` returns, the kernel has touched the buffers for the last time.
//!
//! Lock order: a process's ring, then a cell. A poll delivers after it has released its cell.

mod cell;
mod operation;
mod pool;
mod quota;

pub use cell::UndeliveredList;
pub use operation::{AddressOut, Operation};
pub use pool::{CellIndex, wait_node};
pub use quota::CallsInFlight;

use alloc::sync::Arc;
use core::num::NonZeroU64;

use cops_abi::Priority;
use cops_abi::errno::{CallResult, encode};
use cops_abi::ring::Completion;

use crate::mm;
use crate::task::{COUNTERS, Process};
use crate::trace::{self, Event};

/// Where the result of a call goes.
#[derive(Clone, Copy, Debug)]
pub enum Delivery {
    /// Into the process's wake ring, for this coroutine and token.
    Ring { coroutine: u64, token: u64 },
    /// Into the registers of the virtual CPU with this index, which sleeps until then.
    Cpu { index: usize },
}

/// What became of a call that was submitted.
#[must_use]
pub enum Submitted {
    /// It has completed; nothing was made for it.
    Done(CallResult),
    /// It is in flight; the handle can cancel it.
    InFlight(NonZeroU64),
}

/// A call in flight.
struct Call {
    process: Arc<Process>,
    operation: Operation,
    delivery: Delivery,
    level: u8,
}

/// Tries `operation`, and if it has to wait, lets a kernel coroutine of priority `level` finish it.
///
/// `begin_waiting` is called once it is certain that the call waits and before it can complete.
pub fn submit(
    process: &Arc<Process>,
    mut operation: Operation,
    delivery: Delivery,
    level: u8,
    begin_waiting: impl FnOnce(),
) -> Submitted {
    if let Some(result) = operation.attempt(process) {
        if let Delivery::Ring { .. } = delivery {
            COUNTERS.calls_completed_at_once.add(1);
        }
        return Submitted::Done(result);
    }
    // Back-pressure: nothing was consumed or changed by the attempt, so the caller may simply try again.
    if let Err(error) = process.calls_in_flight.begin() {
        return Submitted::Done(Err(error));
    }
    let call = Call { process: process.clone(), operation, delivery, level };
    // Before another hart can complete it.
    trace_call(process, delivery, |process, coroutine, token| Event::CallBegin {
        process,
        coroutine,
        token,
        level,
    });
    match mm::admit().and_then(|()| cell::start(call, Priority::saturating(u32::from(level)), begin_waiting))
    {
        Ok(handle) => {
            COUNTERS.calls_deferred.add(1);
            COUNTERS.calls_in_flight.add(1);
            Submitted::InFlight(handle)
        }
        Err(error) => {
            trace_call(process, delivery, |process, coroutine, token| Event::CallCancelled {
                process,
                coroutine,
                token,
            });
            process.calls_in_flight.end(1);
            Submitted::Done(Err(error))
        }
    }
}

/// A trace point about an asynchronous call; what a synchronous one does, its virtual CPU does.
#[inline(always)]
fn trace_call(process: &Process, delivery: Delivery, event: impl FnOnce(u32, u64, u64) -> Event) {
    if trace::is_on()
        && let Delivery::Ring { coroutine, token } = delivery
    {
        trace::emit(move || event(process.id, coroutine, token));
    }
}

/// Hands over the result of a call whose operation is done. The cell is no longer locked. Returns the process that called.
fn deliver(call: Call, result: CallResult, cell: CellIndex) -> Arc<Process> {
    let Call { process, operation, delivery, level } = call;
    // Unpins the buffers before the process can learn that it has them back.
    drop(operation);
    COUNTERS.calls_in_flight.subtract(1);
    trace_call(&process, delivery, |process, coroutine, token| Event::CallComplete {
        process,
        coroutine,
        token,
    });
    match delivery {
        Delivery::Ring { coroutine, token } => {
            let completion = Completion { coroutine, token, result: encode(result) };
            if process.complete(completion, level, cell) {
                pool::release(cell);
                pool::shrink();
                process.calls_in_flight.end(1);
            }
        }
        Delivery::Cpu { index } => {
            pool::release(cell);
            pool::shrink();
            process.calls_in_flight.end(1);
            process.end_waiting(index, encode(result));
        }
    }
    process
}

/// Cancels the call that `handle` names.
///
/// `Ok(0)`: it was in flight and is gone; no result will come and no buffer of it be touched.
/// `Ok(1)`: it had completed; its result is in the ring, on its way there, or waits for room.
///
/// # Errors
/// `EINVAL` for a handle that never was one of this process.
pub fn cancel(process: &Arc<Process>, handle: u64) -> CallResult {
    match cell::take_out(process, handle)? {
        Some(call) => {
            discard(call);
            Ok(0)
        }
        None => Ok(1),
    }
}

/// Has the call that `handle` names finished with priority `level`. `Ok(0)`: from now on; `Ok(1)`: it has completed.
///
/// # Errors
/// `EINVAL` for a handle that never was one of this process.
pub fn set_priority(process: &Arc<Process>, handle: u64, level: u8) -> CallResult {
    cell::set_priority(process, handle, level).map(|in_flight| usize::from(!in_flight))
}

/// Cells that the reaper looks at in one portion when a process ends.
const PORTION_CELLS: usize = 16;

/// Cancels calls of `process`, which has ended, in a portion of the cells, from number `first` on. Returns the number to go
/// on with, if there is more to look at. For the reaper.
pub fn cancel_some(process: &Arc<Process>, first: usize) -> Option<usize> {
    // A process that has ended submits nothing, so its calls in flight can only become fewer.
    if process.calls_in_flight.count() == 0 {
        return None;
    }
    cell::take_out_some(process, first, PORTION_CELLS, discard)
}

fn discard(call: Call) {
    trace_call(&call.process, call.delivery, |process, coroutine, token| Event::CallCancelled {
        process,
        coroutine,
        token,
    });
    COUNTERS.calls_in_flight.subtract(1);
    COUNTERS.calls_cancelled.add(1);
    call.process.calls_in_flight.end(1);
}

/// Frees a cell whose result has been delivered from the overflow list. [`shrink`] follows when some have been freed.
pub fn free_delivered(cell: CellIndex) {
    pool::release(cell);
}

/// Frees some of the memory of calls that are over. Returns whether there may be more.
pub fn shrink() -> bool {
    pool::shrink()
}
