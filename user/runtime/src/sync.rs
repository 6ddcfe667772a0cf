//! Synchronisation of coroutines: mutex with priority inheritance, semaphore, event, keyed
//! rendezvous, channels.
//!
//! All except the channel are the executor's ([`cops_executor::sync`] documents order, cancellation
//! and contexts). Waiters are served by priority, and the holder of a [`Mutex`] inherits the
//! priority of its most urgent waiter until it unlocks. None of this enters the kernel, except when
//! another virtual CPU was preempted while it held one of the short internal locks: then the waiter
//! sleeps for a moment.
//!
//! An inherited priority applies to the order of coroutines and to calls that the holder makes from
//! then on. A call that is already in flight keeps the priority with which it was made.
//!
//! # Why the channel is different
//!
//! [`channel`] is that of `futures-intrusive`, with the lock of this library; its waiters are
//! served in order of arrival. Servers pass each message through two channels with one sender and
//! one receiver each. There is no choice by priority to make there, and supporting one would cost 3
//! per cent of a request: 22,400 instructions instead of 21,700 (`./cops bench closed --icount`).

use futures_intrusive::buffer::GrowingHeapBuf;
use futures_intrusive::channel::shared::{self, GenericReceiver, GenericSender};

use crate::lock::RawLock;

pub use cops_executor::sync::{
    Event, Full, Mutex, MutexGuard, OneshotReceiver, OneshotSender, Permit,
};
pub use cops_executor::sync::{Rendezvous, Semaphore, oneshot, signal, wait_on};
pub use futures_intrusive::channel::{TryReceiveError, TrySendError};

/// What a waiter does when an internal lock stays taken, because its holder may have been
/// preempted.
static BACK_OFF: fn() = crate::system::back_off;

/// Called once, before there are coroutines.
pub(crate) fn install() {
    cops_executor::sync::set_contention_hook(&BACK_OFF);
}

/// The sending end of a [`channel`]; may be cloned. `send(value).await` waits for room, and returns
/// the value if all receivers are gone.
pub type Sender<T> = GenericSender<RawLock, T, GrowingHeapBuf<T>>;

/// The receiving end of a [`channel`]; may be cloned, and each value goes to one receiver.
/// `receive().await` returns `None` when the channel is empty and all senders are gone.
pub type Receiver<T> = GenericReceiver<RawLock, T, GrowingHeapBuf<T>>;

/// Creates a queue of at most `capacity` values. Its memory grows with the largest number of values
/// ever queued. Waiters are served in order of arrival.
///
/// Cancel-safe: a dropped `receive` takes nothing; a dropped `send` has either sent or not.
#[must_use]
pub fn channel<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    shared::generic_channel(capacity)
}
