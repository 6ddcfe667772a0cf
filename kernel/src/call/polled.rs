//! Calls that are polled: the kernel's half of the model `ktuc` of the papers (decision 56).
//!
//! One service, the papers' kernel thread, attempts all submitted calls in turn for as long as
//! there are any, whether or not anything has arrived. A submitted call has a cell, and neither a
//! coroutine nor a place in a queue.
//!
//! Lock order: a cell, then the list. The service holds one of them at a time.
#![forbid(unsafe_code)]

use core::future::poll_fn;
use core::task::Poll;

use cops_abi::syscall::kernel_model::POLLING;
use cops_abi::{Errno, Priority};
use cops_fallible::List;
use cops_lock::Mutex;

use super::cell::{self, Visit};
use super::{Delivery, Operation};
use crate::fs::Object;
use crate::process::Process;
use crate::sched::{Service, set_priority};

/// How many calls one portion attempts. The first one that completes ends it.
const PER_PORTION: usize = 8;

/// Maximum number of submitted calls, with those that have ended and that the service has not
/// visited since.
const SUBMITTED_MAX: usize = 1 << 16;

/// The calls, by their handles, in no order.
static SUBMITTED: Mutex<List<u64>> = Mutex::new(List::new());
static SERVICE: Service = Service::new();

/// Whether `operation` of `process`, which has to wait, is polled.
#[inline]
pub(super) fn takes(process: &Process, operation: &Operation, delivery: Delivery) -> bool {
    process.kernel_model() == POLLING && is_pollable(operation, delivery)
}

#[cold]
fn is_pollable(operation: &Operation, delivery: Delivery) -> bool {
    let Delivery::Ring { .. } = delivery else { return false };
    let file = match operation {
        Operation::Read { file, .. } | Operation::Write { file, .. } => file,
        Operation::Standing(read) => &read.file,
        _ => return false,
    };
    matches!(file.object, Object::Socket(_))
}

/// Lets the service attempt the call with this `handle`, of this `priority`.
///
/// # Errors
/// `ENOMEM`, `EAGAIN`.
pub(super) fn submit(handle: u64, priority: Priority) -> Result<(), Errno> {
    let mut submitted = SUBMITTED.lock();
    if submitted.len() >= SUBMITTED_MAX {
        return Err(Errno::EAGAIN);
    }
    let is_first = submitted.is_empty();
    submitted.try_push(handle)?;
    drop(submitted);
    if is_first {
        if let Some(service) = SERVICE.id() {
            set_priority(service, priority);
        }
        SERVICE.wake();
    }
    Ok(())
}

/// The service coroutine. Its level is that of the least urgent call of its last pass, or of a
/// worker of their processes that is less urgent and not parked, so that it keeps none of them from
/// the hart: it never sleeps while there are calls.
pub async fn service() {
    SERVICE.begin();
    let mut next = 0;
    let mut least_urgent = None;
    poll_fn(|context| {
        for _ in 0..PER_PORTION {
            let submitted = SUBMITTED.lock();
            let handle = match submitted.get(next) {
                Some(handle) => *handle,
                None if submitted.is_empty() => return Poll::<()>::Pending,
                None => {
                    drop(submitted);
                    next = 0;
                    if let (Some(level), Some(me)) = (least_urgent.take(), SERVICE.id()) {
                        set_priority(me, level);
                    }
                    break;
                }
            };
            drop(submitted);
            match cell::visit(handle) {
                Visit::InVain(priority) => {
                    next += 1;
                    least_urgent = Some(least_urgent.map_or(priority, |least: Priority| {
                        if least.is_more_urgent_than(priority) { priority } else { least }
                    }));
                }
                Visit::Over { has_completed } => {
                    let mut submitted = SUBMITTED.lock();
                    if let Some(last) = submitted.pop()
                        && let Some(place) = submitted.get_mut(next)
                    {
                        *place = last;
                    }
                    if has_completed {
                        break;
                    }
                }
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
