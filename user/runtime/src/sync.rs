//! Synchronisation of coroutines: mutex with priority inheritance, semaphore, event, keyed
//! rendezvous, channels.
//!
//! All are the executor's ([`cops_executor::sync`] documents order, cancellation and contexts).
//! Waiters are served by priority, and the holder of a [`Mutex`] inherits the priority of its most
//! urgent waiter until it unlocks. None of this enters the kernel, except when another virtual CPU
//! was preempted while it held one of the short internal locks: then the waiter sleeps for a
//! moment.
//!
//! An inherited priority applies to the order of coroutines and to calls that the holder makes from
//! then on. A call that is already in flight keeps the priority with which it was made, until that
//! of the coroutine is set.
//!
//! Where one coroutine passes values to one other, as in a server that handles a connection in
//! stages, use [`spsc`]: there is no choice by priority to make, so it costs less than
//! [`channel`](channel()).

pub use cops_executor::sync::{
    Event, Full, Mutex, MutexGuard, OneshotReceiver, OneshotSender, Permit, Receiver, Rendezvous,
    Semaphore, SendError, Sender, TryReceiveError, TrySendError, channel, oneshot, signal, spsc,
    wait_on,
};

/// What a waiter does when an internal lock stays taken, because its holder may have been
/// preempted.
static WAIT: fn() = crate::system::wait_for_any_holder;

/// Called once, before there are coroutines.
pub(crate) fn install() {
    cops_executor::sync::set_contention_hook(&WAIT);
}
