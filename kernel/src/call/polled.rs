//! Calls that are polled: the kernel's half of the model `ktuc` of the papers (decision 56).
//!
//! One service, the papers' kernel thread, attempts all submitted calls in turn for as long as
//! there are any, whether or not anything has arrived. A submitted call has a cell, and neither a
//! coroutine nor a place in a queue.
//!
//! The calls are in a hash table, which grows and shrinks a bucket at a time. A call that is
//! cancelled leaves it at once. So there are at most as many entries as calls in flight, which are
//! charged.
//!
//! Lock order: a cell, then the list. The service holds one of them at a time.
#![forbid(unsafe_code)]

use core::future::poll_fn;
use core::task::Poll;

use cops_abi::syscall::kernel_model::POLLING;
use cops_abi::{Errno, Priority};
use cops_fallible::{Cursor, Table};
use cops_lock::Mutex;

use super::cell::{self, Visit};
use super::{Delivery, Operation};
use crate::fs::Object;
use crate::process::Process;
use crate::sched::{Service, set_priority};

/// How many calls one portion attempts. The first one that completes ends it.
const PER_PORTION: usize = 8;
/// How many buckets one portion looks at: up to every other one has a call.
const BUCKETS_PER_PORTION: usize = 4 * PER_PORTION;

/// The handles of the calls.
static SUBMITTED: Mutex<Table<u64, ()>> = Mutex::new(Table::new(0));
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
/// `ENOMEM`.
pub(super) fn submit(handle: u64, priority: Priority) -> Result<(), Errno> {
    let mut submitted = SUBMITTED.lock();
    let is_first = submitted.is_empty();
    submitted.try_insert(handle, ())?;
    drop(submitted);
    if is_first {
        if let Some(service) = SERVICE.id() {
            set_priority(service, priority);
        }
        SERVICE.wake();
    }
    Ok(())
}

/// The service shall not attempt the call with this `handle` any more: it is cancelled.
pub(super) fn withdraw(handle: u64) {
    SUBMITTED.lock().remove(&handle);
}

/// How far a pass over the calls has come.
#[derive(Default)]
struct Pass {
    bucket: Cursor,
    /// Calls of the bucket that have been attempted.
    attempted: usize,
}

/// What is next in a pass.
enum Next {
    Call(u64),
    Bucket,
    Over,
    NoCalls,
}

impl Pass {
    /// The next call, or one step towards it. A call that is there during the whole pass is met,
    /// unless an earlier one of its bucket goes meanwhile: then the next pass meets it.
    fn next(&mut self) -> Next {
        let submitted = SUBMITTED.lock();
        if submitted.is_empty() {
            *self = Self::default();
            return Next::NoCalls;
        }
        let (mut calls, next_bucket) = submitted.bucket(self.bucket);
        if let Some((handle, ())) = calls.nth(self.attempted) {
            return Next::Call(*handle);
        }
        *self = Self { bucket: next_bucket.unwrap_or_default(), attempted: 0 };
        if next_bucket.is_some() { Next::Bucket } else { Next::Over }
    }
}

/// The service coroutine. Its level is that of the least urgent call of its last pass, or of a
/// worker of their processes that is less urgent and not parked, so that it keeps none of them from
/// the hart: it never sleeps while there are calls.
pub async fn service() {
    SERVICE.begin();
    let mut pass = Pass::default();
    let mut least_urgent = None;
    poll_fn(|context| {
        let (mut calls, mut buckets) = (0, 0);
        while calls < PER_PORTION && buckets < BUCKETS_PER_PORTION {
            let handle = match pass.next() {
                Next::Call(handle) => handle,
                Next::Bucket => {
                    buckets += 1;
                    continue;
                }
                Next::NoCalls => return Poll::<()>::Pending,
                Next::Over => {
                    if let (Some(level), Some(me)) = (least_urgent.take(), SERVICE.id()) {
                        set_priority(me, level);
                    }
                    break;
                }
            };
            calls += 1;
            match cell::visit(handle) {
                Visit::InVain(priority) => {
                    pass.attempted += 1;
                    least_urgent = Some(least_urgent.map_or(priority, |least: Priority| {
                        if least.is_more_urgent_than(priority) { priority } else { least }
                    }));
                }
                Visit::Over { has_completed } => {
                    withdraw(handle);
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
