//! Calls that can wait, both synchronous and asynchronous.
//!
//! A call is an [`Operation`]. It is attempted immediately, and most calls complete then. Only a
//! call that has to wait, or has more to do than one portion, gets a *cell* from the pool and a
//! kernel coroutine. The coroutine inherits
//! the priority of the calling coroutine and completes the operation on any hart. The result is
//! written to the process's wake ring (asynchronous) or into the registers of the waiting virtual
//! CPU (synchronous): see [`Delivery`].
//!
//! A call that is executed in portions by its virtual CPU itself (`process/resumable.rs`) makes
//! such a call in order to wait ([`Operation::Answer`]).
//!
//! The states of a cell and its transitions, all under its lock:
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
//! A standing read stays in flight while its results are delivered (`standing`).
//!
//! Cancelling takes the operation out of its cell under the cell's lock, which a poll holds while
//! it copies. So after `cancel` returns, the kernel does not access the buffers any more.
//!
//! Lock order: a process's ring, then a cell. A poll delivers after it has unlocked its cell. Only
//! the results of a standing read are delivered with its cell locked: what the ring's lock is held
//! for are the cells of results, and no cell with a call is one of those.

mod cell;
mod child;
mod datagram;
mod epoll;
mod file_lock;
mod futex;
mod limited;
mod lock;
mod long;
mod map;
mod message;
mod operation;
mod path;
mod pieces;
mod poll;
mod polled;
mod pool;
mod receive;
mod standing;
mod together;
mod transfer;

pub use child::{ChildWait, INFORMATION_BYTES, USAGE_BYTES, usage_of};
pub use datagram::{DatagramCall, DatagramOptions};
pub use epoll::EpollWait;
pub use file_lock::{FileLockCall, LockAction, Part};
pub use futex::FutexWait;
use limited::Limited;
pub use lock::LockWait;
pub use long::{LongRequest, LongTransfer, PART_ENTRIES};
pub use map::{MapCall, SyncMemory};
pub use message::{NamePlace, socket_address};
pub use operation::{AddressOut, Operation};
pub use path::{LIST_BYTES_MAX, PathCall, Second, Then, store_status};
pub use pieces::{ENTRY_BYTES, Pieces};
pub use poll::{Form, PollCall, Sets};
pub use polled::service as polling_service;
use pool::CellIndex;
pub use receive::Receive;
pub use standing::StandingRead;
pub use transfer::Transfer;

use alloc::sync::Arc;
use core::num::NonZeroU64;

use cops_abi::errno::{CallResult, encode};
use cops_abi::ring::Completion;
use cops_abi::{CoroutineId, Errno, Priority};

use crate::counters::COUNTERS;
use crate::mm;
use crate::process::{self, Process};
use crate::sched::Asked;
use crate::trace::{self, Event};

/// Registers the cells with `process`, which keeps results in them. Called once at boot.
pub fn register() {
    process::set_calls(&cell::Cells);
}

/// Where the result of a call is delivered.
#[derive(Clone, Copy, Debug)]
pub enum Delivery {
    /// In the process's wake ring, for this coroutine and token.
    Ring { coroutine: u64, token: u64 },
    /// In the registers of the virtual CPU with this index, which sleeps until then.
    Cpu { index: usize },
    /// Nowhere: the virtual CPU with this index, which sleeps until then, repeats its call.
    Again { index: usize },
    /// Nowhere: the alarm of the process rings, if it still has this number.
    Alarm { number: u64 },
}

impl Delivery {
    /// Counts a call with this delivery as in flight.
    ///
    /// # Errors
    /// `EAGAIN` and `ENOMEM` at the limits of the process, if no virtual CPU sleeps
    /// until the call ends.
    fn begin(self, process: &Process) -> Result<(), Errno> {
        if self.is_synchronous() {
            process.calls_in_flight.begin_synchronous();
            return Ok(());
        }
        process.calls_in_flight.begin()
    }

    /// A call with this delivery has ended.
    fn end(self, process: &Process) {
        if self.is_synchronous() {
            process.calls_in_flight.end_synchronous();
        } else {
            process.calls_in_flight.end(1);
        }
    }

    fn is_synchronous(self) -> bool {
        matches!(self, Delivery::Cpu { .. } | Delivery::Again { .. })
    }
}

/// The outcome of submitting a call.
#[must_use]
pub enum Submitted {
    /// It has completed; no cell or coroutine was made for it.
    Done(CallResult),
    /// It is in flight; the handle can cancel it.
    InFlight(NonZeroU64),
}

/// A call in flight.
struct Call {
    process: Arc<Process>,
    operation: Operation,
    delivery: Delivery,
    /// What the caller asked for, and what the ceiling has allowed of that.
    asked: Asked,
    priority: Priority,
}

/// Attempts `operation`. If it has to wait, a kernel coroutine of the priority that is `asked` for,
/// as far as the ceiling allows, completes it.
///
/// `begin_waiting` is called with that coroutine when it is certain that the call waits, and before
/// it can complete.
pub fn submit(
    process: &Arc<Process>,
    mut operation: Operation,
    delivery: Delivery,
    asked: Asked,
    begin_waiting: impl FnOnce(CoroutineId),
) -> Submitted {
    if let Some(result) = operation.attempt(process) {
        if let Delivery::Ring { .. } = delivery {
            COUNTERS.calls_completed_at_once.add(1);
        }
        return Submitted::Done(result);
    }
    // Back-pressure: the attempt has not consumed or changed anything that is not reported, so the
    // caller may just try again.
    let done = operation.done();
    if let Delivery::Cpu { .. } = delivery {
        match operation.timeout() {
            Ok(None) => {}
            Ok(Some(microseconds)) => match Limited::new(operation, microseconds) {
                Ok(limited) => operation = Operation::Limited(limited),
                Err(error) => return Submitted::Done(done.ok_or(error)),
            },
            Err(error) => return Submitted::Done(Err(error)),
        }
    }
    if let Err(error) = delivery.begin(process) {
        return Submitted::Done(done.ok_or(error));
    }
    // Before another hart can complete it.
    trace_call(process, delivery, |id, coroutine, token| Event::CallBegin {
        process: id,
        coroutine,
        token,
        level: process.ceiling.allowed(asked).level(),
    });
    let started = match mm::admit() {
        Ok(()) if polled::takes(process, &operation, delivery) => {
            cell::start_polled(process.clone(), operation, delivery, asked)
        }
        Ok(()) => cell::start(process.clone(), operation, delivery, asked, begin_waiting),
        Err(error) => Err(error),
    };
    match started {
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
            delivery.end(process);
            Submitted::Done(done.ok_or(error))
        }
    }
}

/// A trace point of an asynchronous call. Synchronous calls are covered by the trace points of
/// their virtual CPU.
#[inline(always)]
fn trace_call(process: &Process, delivery: Delivery, event: impl FnOnce(u32, u64, u64) -> Event) {
    if trace::is_on()
        && let Delivery::Ring { coroutine, token } = delivery
    {
        trace::emit(move || event(process.id, coroutine, token));
    }
}

/// Delivers the result of a call, after its operation is dropped and its cell is unlocked.
fn deliver(
    process: &Arc<Process>,
    delivery: Delivery,
    priority: Priority,
    result: CallResult,
    cell: CellIndex,
) {
    COUNTERS.calls_in_flight.subtract(1);
    trace_call(process, delivery, |process, coroutine, token| Event::CallComplete {
        process,
        coroutine,
        token,
    });
    match delivery {
        Delivery::Ring { coroutine, token } => {
            let completion = Completion { coroutine, token, result: encode(result) };
            if process.complete(completion, priority, cell.number()) {
                pool::release_and_shrink(cell);
                delivery.end(process);
            }
        }
        Delivery::Cpu { index } => {
            pool::release_and_shrink(cell);
            process.end_waiting(index, encode(result));
            // Last: without calls in flight, the number may become that of another thread.
            delivery.end(process);
        }
        Delivery::Again { index } => {
            pool::release_and_shrink(cell);
            process.end_waiting_to_repeat(index);
            delivery.end(process);
        }
        Delivery::Alarm { number } => {
            pool::release_and_shrink(cell);
            match result {
                Ok(_) => process.alarm_rings(number),
                Err(_) => process.alarm_has_failed(number),
            }
            // Last: `exec` waits until there are no calls, and the alarm has begun the next one.
            delivery.end(process);
        }
    }
}

/// Cancels the call with this `handle`.
///
/// `Ok(0)`: it was in flight and is cancelled; no result will be delivered, and its buffers will
/// not be accessed. `Ok(1)`: it had completed; its result is in the ring, being delivered, or
/// waiting for room.
///
/// # Errors
/// `EINVAL` for a handle that this process never had.
pub fn cancel(process: &Arc<Process>, handle: u64) -> CallResult {
    match cell::take_out(process, handle)? {
        Some(call) => {
            discard(call);
            Ok(0)
        }
        None => Ok(1),
    }
}

/// Changes the priority with which the call with this `handle` is completed. `Ok(0)`: it has
/// changed; `Ok(1)`: the call has completed.
///
/// # Errors
/// `EINVAL` for a handle that this process never had.
pub fn set_priority(process: &Arc<Process>, handle: u64, asked: Asked) -> CallResult {
    cell::set_priority(process, handle, asked).map(|in_flight| usize::from(!in_flight))
}

/// The program has emptied the block of the standing read with this `handle`, and there may be
/// more. The result, if the block has been filled again; `Ok(0)`: the next one comes through the
/// ring, or the call has ended.
///
/// # Errors
/// `EINVAL` for a handle that this process never had.
pub fn resume_read(process: &Arc<Process>, handle: u64) -> CallResult {
    cell::resume_read(process, handle)
}

/// Cells that one portion of a search through all of them looks at.
const PORTION_CELLS: usize = 8;

/// Cancels calls of `process`, which has ended, in a portion of the cells, from number `first` on.
/// Returns the number to go on with, if there is more to look at. For the reaper.
fn cancel_some(process: &Arc<Process>, first: usize) -> Option<usize> {
    // A process that has ended submits nothing, so its calls in flight can only become fewer. (An
    // alarm that is just ringing starts a call, sees that the process has ended, and cancels it.)
    if process.calls_in_flight.count() == 0 {
        return None;
    }
    cell::take_out_some(process, first, PORTION_CELLS, discard)
}

/// Takes a call out of its cell for a signal; see [`process::Calls::interrupt`].
fn interrupt(process: &Arc<Process>, handle: u64) -> Option<Option<u64>> {
    let call = cell::take_out_if(process, handle, Operation::interrupt).ok()??;
    if let Delivery::Cpu { index } = call.delivery
        && let Some(result) = call.operation.cut_short(process)
    {
        process.end_waiting(index, encode(result));
        discard(call);
        return None;
    }
    let deadline_ticks = call.operation.deadline_ticks();
    discard(call);
    Some(deadline_ticks)
}

fn discard(call: Call) {
    trace_call(&call.process, call.delivery, |process, coroutine, token| Event::CallCancelled {
        process,
        coroutine,
        token,
    });
    COUNTERS.calls_in_flight.subtract(1);
    COUNTERS.calls_cancelled.add(1);
    call.delivery.end(&call.process);
}
