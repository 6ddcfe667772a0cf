//! What coroutines share: mutex with priority inheritance, semaphore, event, keyed rendezvous, channels.
//!
//! All but the channel are the executor's ([`cops_executor::sync`] has the guarantees on order, cancelling and contexts): who waits
//! is served by priority, and whoever holds a [`Mutex`] that somebody more urgent waits for is as urgent as that one until it unlocks.
//! Nothing of it enters the kernel, unless another virtual CPU lost its hart under one of the short locks inside: then
//! the waiter gives its own away.
//!
//! What a holder inherits counts for the order of coroutines and for calls that it makes from then on. A call of it that the kernel
//! had before keeps the priority that it was made with.
//!
//! # Why the channel is another
//!
//! [`channel`] is `futures-intrusive`'s, under the lock of this library: who waits is served in the order of coming. Servers hand
//! each message over by two channels of one sender and one receiver each. There is nobody to choose from by priority there, and
//! keeping that choice open costs 3 per cent of a request: 22,400 instructions instead of 21,700 (`./cops bench closed --icount`).

use futures_intrusive::buffer::GrowingHeapBuf;
use futures_intrusive::channel::shared::{self, GenericReceiver, GenericSender};

use crate::lock::RawLock;

pub use cops_executor::sync::{Event, Full, Mutex, MutexGuard, OneshotReceiver, OneshotSender, Permit};
pub use cops_executor::sync::{Rendezvous, Semaphore, oneshot, signal, wait_on};
pub use futures_intrusive::channel::{TryReceiveError, TrySendError};

/// What waiters do when a lock inside of all this stays taken: its holder may have lost its hart.
static STAND_ASIDE: fn() = crate::system::stand_aside;

/// Once, before there are coroutines.
pub(crate) fn install() {
    cops_executor::sync::set_contention_hook(&STAND_ASIDE);
}

/// The end of a [`channel`] where values go in; may be cloned. `send(value).await` waits for room and gives the
/// value back if nobody will ever receive it.
pub type Sender<T> = GenericSender<RawLock, T, GrowingHeapBuf<T>>;

/// The end of a [`channel`] where values come out; may be cloned, and each value goes to one receiver.
/// `receive().await` is `None` when the channel is empty and all senders are gone.
pub type Receiver<T> = GenericReceiver<RawLock, T, GrowingHeapBuf<T>>;

/// A queue of at most `capacity` values. It takes memory only for as many as there ever were at once. Who waits is served in the
/// order of coming.
///
/// Cancel-safe: a dropped `receive` takes nothing, a dropped `send` has sent or not.
#[must_use]
pub fn channel<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    shared::generic_channel(capacity)
}
