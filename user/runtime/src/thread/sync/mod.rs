//! What threads wait for, in the shape of `std::sync`: mutex, condition variable, lock for readers
//! and a writer, semaphore, barrier, and values that are made once.
//!
//! Each is a word or two. Without contention, none enters the kernel; a thread that has to wait
//! sleeps there, on a futex, and is woken by priority: of several waiting threads, the most urgent
//! that waits longest. A lock is not handed over: a thread that runs may take it before the woken
//! one does.
//!
//! No lock is poisoned, because a panic ends the process. So `lock` returns the guard itself.
//!
//! These block a whole virtual CPU when a coroutine calls them. Between a thread and a coroutine,
//! use a channel or a mutex of [`crate::sync`] with [`block_on`](super::block_on) in the thread, or
//! these where the coroutine only holds the lock for a moment and never across an `.await`.
//!
//! A thread that ends while it holds a lock (its guard was forgotten) leaves it locked for ever,
//! as with `std`. A thread cannot be killed alone: a signal that kills ends the whole process.

mod barrier;
mod condvar;
mod mutex;
mod once;
mod rwlock;
mod semaphore;

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{MappedMutexGuard, Mutex, MutexGuard, RawMutex};
pub use once::{LazyLock, Once, OnceLock};
pub use rwlock::{RawRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Semaphore, SemaphoreGuard};
