//! What coroutines share: [`Mutex`] with priority inheritance, [`Semaphore`], [`Event`],
//! [`channel()`], [`spsc`], [`oneshot()`], [`Rendezvous`].
//!
//! # Order
//!
//! Waiters are served by priority, and within a priority in the order of arrival. The priority is
//! the one that the coroutine has when something is handed over, what it inherits included: if it
//! changes while it waits, it comes to stand at the end of its new level. (`set_priority` wakes a
//! coroutine that waits for anything but a mutex, so that it takes what it may have now: a poll in
//! vain, if that is nothing.) A future that is polled outside of this crate's coroutines counts as
//! [`Priority::DEFAULT`](crate::Priority::DEFAULT).
//!
//! What is handed over belongs to the waiter from then on; no newcomer takes it before that waiter
//! is polled. A newcomer need not queue if no waiter is at least as urgent.
//!
//! # Cancelling
//!
//! Every future here may be dropped at any time. It gives up its place, and what it was granted and
//! has not seen goes to the next. Leaking one (`mem::forget`) that waits is safe, and like a
//! coroutine that never ends: what it is granted is lost.
//!
//! # Memory
//!
//! Waiting allocates nothing: the nodes of the queues lie in the waiting futures. Channels allocate
//! when they are made.
//!
//! # Contexts
//!
//! Each object has a spin lock that is held for a bounded number of steps (up to 64 for linking a
//! waiter, up to 15 waiters granted; all waiters are looked at only after a waiter's priority was
//! changed) and under which no foreign code runs: wakers are cloned before, woken and dropped
//! after. All contended mutexes have one such lock together. So in interrupt handlers nothing of
//! this may be called, *except* what never waits and says so: [`Event::set`],
//! [`Semaphore::add_permits`] (and dropping a [`Permit`]), [`Mutex::try_lock`] (not dropping its
//! guard), and outside of here `wake_up`, `set_priority`, `cancel`. The same goes for an executor
//! that runs in interrupt handlers, as far as it shares objects with what it interrupts.
//!
//! # Select and join
//!
//! From `futures-util`:
//!
//! ```
//! # use cops_executor::Executor;
//! use cops_executor::sync::{Event, oneshot};
//! use futures_util::future::{Either, join, select};
//! use std::pin::pin;
//! # static EXECUTOR: Executor = Executor::new();
//! # EXECUTOR.start_on_host(1)?;
//!
//! let (stop, (sender, mut answers)) = (Event::new(), oneshot());
//! let client = async {
//!     match select(pin!(answers.receive()), pin!(stop.wait())).await {
//!         Either::Left((answer, _)) => answer,
//!         Either::Right(_) => None,
//!     }
//! };
//! let server = async { sender.send(42) };
//! assert_eq!(EXECUTOR.block_on(join(client, server)), (Some(42), Ok(())));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "alloc")]
mod channel;
#[cfg(feature = "alloc")]
mod channel_error;
#[cfg(feature = "alloc")]
mod channel_state;
mod contended;
mod event;
mod holders;
mod inheritance;
mod inheritors;
mod levels;
mod monitor;
mod mutex;
#[cfg(feature = "alloc")]
mod oneshot;
mod queue;
mod rendezvous;
mod semaphore;
#[cfg(feature = "alloc")]
pub mod spsc;
mod steps;
mod waiting;

#[cfg(feature = "alloc")]
pub use self::channel::{Receiver, Sender, channel};
#[cfg(feature = "alloc")]
pub use self::channel_error::{SendError, TryReceiveError, TrySendError};
#[cfg(loom)]
#[doc(hidden)]
pub use self::contended::begin_sync_model;
pub use self::event::Event;
pub use self::inheritance::set_priority;
pub use self::inheritors::set_inheritance_hook;
pub use self::mutex::{Mutex, MutexGuard};
#[cfg(feature = "alloc")]
pub use self::oneshot::{OneshotReceiver, OneshotSender, oneshot};
pub use self::rendezvous::{Full, Rendezvous};
#[cfg(not(loom))]
pub use self::rendezvous::{signal, wait_on};
pub use self::semaphore::{Permit, Semaphore};
#[cfg(all(not(loom), not(feature = "std")))]
pub use crate::front::lock::set_contention_hook;
