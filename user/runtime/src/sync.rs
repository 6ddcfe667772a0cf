//! Synchronisation of coroutines: mutex with priority inheritance, semaphore, event, keyed
//! rendezvous, channels.
//!
//! All are the executor's ([`cops_executor::sync`] documents order, cancellation and contexts).
//! Waiters are served by priority, and the holder of a [`Mutex`] inherits the priority of its most
//! urgent waiter until it unlocks.
//!
//! An inherited priority applies to the order of coroutines, to calls that the holder makes from
//! then on, and to those that it has in flight: the kernel's part of them becomes as urgent. (Not
//! to one for which the whole virtual CPU waits: [`wait`](crate::call::wait).)
//!
//! None of this enters the kernel, with two exceptions. For each call in flight of a coroutine that
//! inherits another priority than before, there is one system call. And if another virtual CPU was
//! preempted while it held one of the short internal locks, the waiter sleeps for a moment.
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
