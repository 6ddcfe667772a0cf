//! Calls that a service has woken in a burst, attempted by that service instead of their coroutines
//! (decision 55).
//!
//! An attempt here is what a poll of the call's coroutine does, under the same lock, for the same
//! account. It is made only if it is short and nothing that is ready is more urgent than the call:
//! then the coroutine would be next, or one of its peers. Otherwise the coroutine is woken.
//!
//! Several results of one process and level are announced once.
#![allow(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Priority;

use super::cell::{self, Attempted};
use super::{Call, Operation};
use crate::process::{Process, RUN_QUEUE};
use crate::sched::{Woken, kernel_waiting, wake_by_number};

/// Maximum number of bytes that an attempt may copy: with its bookkeeping some 1,500 instructions.
const SHORT_BYTES: usize = 2048;

/// Attempts the calls that a burst has woken, or wakes their coroutines.
// SAFETY: the symbol and the signature are those that `sched` declares, and nothing else in the
// kernel defines this symbol.
#[unsafe(export_name = "cops_attempt_calls")]
fn attempt_calls(woken: &[Woken]) {
    // A process with results in its ring for coroutines of this level.
    let mut unannounced: Option<(Arc<Process>, Priority)> = None;
    for &Woken { cell, coroutine } in woken {
        let announce = |process: &Arc<Process>, priority| match &unannounced {
            Some((last, level)) if Arc::ptr_eq(last, process) && *level == priority => {}
            _ => {
                if let Some((last, level)) = unannounced.replace((process.clone(), priority)) {
                    last.announce(level);
                }
            }
        };
        match cell::attempt(cell, coroutine, is_next, announce) {
            Attempted::Refused => wake_by_number(coroutine),
            Attempted::Ended => cell::end_coroutine(coroutine),
            Attempted::Waits | Attempted::Gone => {}
        }
    }
    if let Some((last, level)) = unannounced {
        last.announce(level);
    }
}

/// Whether the attempt of this call is short, and nothing that is ready is to come before it.
fn is_next(call: &Call) -> bool {
    let bytes = match &call.operation {
        // Its coroutine comes after the process, which may make room.
        Operation::Standing(_) if !call.process.ring_seems_to_have_room() => return false,
        Operation::Standing(read) => read.bytes_max(),
        Operation::Read { buffer, .. } => buffer.len(),
        _ => return false,
    };
    let waiting = Priority::most_urgent_in(kernel_waiting() | RUN_QUEUE.levels());
    bytes <= SHORT_BYTES && !waiting.is_some_and(|other| other.is_more_urgent_than(call.priority))
}
