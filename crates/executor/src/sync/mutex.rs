//! The mutex: one word, which identifies the holder.
//!
//! ```text
//!   FREE ──lock: one exchange──► id of the holder ──unlock: one exchange──► FREE
//!                                  │ a waiter comes        ▲ the last waiter got it, or gave up
//!                                  ▼                       │
//!                               CONTENDED: the holder is in the table of contended mutexes (`contended`)
//! ```
//!
//! Unlocking a contended mutex hands it over to the most urgent waiter, even before that one is
//! polled: no newcomer takes it in between, and the remaining waiters raise the new holder.
#![allow(unsafe_code)]

use ::core::cell::UnsafeCell;
use ::core::fmt;
use ::core::future::poll_fn;
use ::core::marker::PhantomData;
use ::core::ops::{Deref, DerefMut};
use ::core::pin::{Pin, pin};
use ::core::ptr;
use ::core::task::{Context, Poll};

use super::contended::{FREE, Record, table, word_of};
use super::inheritance::Contended;
use super::queue::{Link, Node, node};
use super::waiting::FOR_MUTEXES;
use crate::core::atomic::{AtomicU64, Ordering};
use crate::front::registry::current;

/// A value that one coroutine at a time may use, also across an `.await`; with priority
/// inheritance.
///
/// While a more urgent coroutine waits for it, the coroutine that locked it runs at the waiter's
/// priority, so that nothing in between delays the urgent one for longer than the lock is held. If
/// the holder itself waits for another mutex, the holder of that one is raised too, and so on. On
/// unlocking it keeps what it inherits by other mutexes that it holds. When a waiter gives up or
/// changes its priority, this is undone or adjusted at once; or, if another thread is changing the
/// waiters of some mutex at this moment, as soon as it has done that. `set_priority` on a holder
/// that is raised changes what it goes back to.
///
/// Unlocking gives the mutex to the most urgent waiter, and among those to the one that came first.
///
/// Locking and unlocking without contention is one atomic update each. It is not reentrant: a
/// second lock by the holder waits for ever. If the holder is no coroutine (a future under
/// `block_on`), no priority is raised.
///
/// ```
/// # use cops_executor::{Executor, Priority, priority, yield_now};
/// use cops_executor::sync::Mutex;
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// static ACCOUNTS: Mutex<u64> = Mutex::new(100);
///
/// let batch = async {
///     let mut accounts = ACCOUNTS.lock().await;
///     yield_now().await;
///     *accounts += 1;
/// };
/// let batch = EXECUTOR.spawn(batch, Priority::LEAST_URGENT)?;
/// EXECUTOR.run(0, 1);
/// let urgent = EXECUTOR.spawn_join(async { *ACCOUNTS.lock().await }, Priority::MOST_URGENT)?;
/// EXECUTOR.run(0, 1);
/// assert_eq!(priority(batch), Some(Priority::MOST_URGENT), "as long as the urgent one waits for it");
/// assert_eq!(EXECUTOR.block_on(urgent)?, 101);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Mutex<T: ?Sized> {
    word: AtomicU64,
    value: UnsafeCell<T>,
}

// SAFETY: the value goes from one holder to the next, one at a time.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}
// SAFETY: moving the mutex moves the value, so it may be sent wherever the value may.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}

impl<T> Mutex<T> {
    /// A mutex that is not locked.
    ///
    /// ```
    /// # use cops_executor::sync::Mutex;
    /// static COUNT: Mutex<u32> = Mutex::new(0);
    /// assert!(!COUNT.is_locked());
    /// ```
    #[must_use]
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { word: AtomicU64::new(FREE), value: UnsafeCell::new(value) }
    }

    /// The value.
    ///
    /// ```
    /// # use cops_executor::sync::Mutex;
    /// assert_eq!(Mutex::new(1).into_inner(), 1);
    /// ```
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for its turn.
    ///
    /// Cancel-safe: a future that is dropped gives up its place, ends the inheritance that it
    /// caused, and passes the mutex on if it had got it. A time limit: `timers.timeout(duration,
    /// mutex.lock())` ([`Timers`](crate::time::Timers)). Not in interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// use cops_executor::sync::Mutex;
    /// let count = Mutex::new(0);
    /// EXECUTOR.block_on(async { *count.lock().await += 1 });
    /// assert_eq!(count.into_inner(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn lock(&self) -> MutexGuard<'_, T> {
        if let Some(guard) = self.try_lock() {
            return guard;
        }
        let mut wait = pin!(Wait::new(&self.word));
        let word = poll_fn(|context| wait.as_mut().poll(context)).await;
        MutexGuard { mutex: self, word, _value: PhantomData }
    }

    /// Locks it if it is free. In any context, interrupt handlers included; but a guard must not be
    /// dropped in one, unless the mutex is used only in interrupt handlers on that hart.
    ///
    /// ```
    /// # use cops_executor::sync::Mutex;
    /// let mutex = Mutex::new(1);
    /// let guard = mutex.try_lock().unwrap();
    /// assert!(mutex.try_lock().is_none());
    /// drop(guard);
    /// assert!(mutex.try_lock().is_some());
    /// ```
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let word = word_of(current());
        // Acquire pairs with the Release of the unlock.
        self.word.compare_exchange(FREE, word, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(MutexGuard { mutex: self, word, _value: PhantomData })
    }

    /// The value of a mutex that is not shared.
    ///
    /// ```
    /// # use cops_executor::sync::Mutex;
    /// let mut mutex = Mutex::new(1);
    /// *mutex.get_mut() += 1;
    /// assert_eq!(mutex.into_inner(), 2);
    /// ```
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Whether it is locked. In any context.
    ///
    /// ```
    /// # use cops_executor::sync::Mutex;
    /// let mutex = Mutex::new(1);
    /// let guard = mutex.try_lock();
    /// assert!(mutex.is_locked());
    /// drop(guard);
    /// assert!(!mutex.is_locked());
    /// ```
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.word.load(Ordering::Relaxed) != FREE
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Mutex").field("locked", &self.is_locked()).finish_non_exhaustive()
    }
}

/// Gives a mutex back that its holder locked with `word`.
fn unlock(mutex: &AtomicU64, word: u64) {
    // Release pairs with the Acquire of the next lock.
    if mutex.compare_exchange(word, FREE, Ordering::Release, Ordering::Relaxed).is_err() {
        hand_over(mutex);
    }
}

#[cold]
fn hand_over(mutex: &AtomicU64) {
    let table = table().lock();
    let waker = table.hand_over(mutex);
    let unlocked = table.unlock();
    if let Some(waker) = waker {
        waker.wake();
    }
    drop(unlocked);
}

/// A waiter. To be pinned; its node is in the table's care while it waits.
struct Wait<'a> {
    mutex: &'a AtomicU64,
    /// What the mutex's word is, or would be, while it is ours.
    word: u64,
    phase: Phase,
    node: Node<Record>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Waiting,
    Done,
}

// SAFETY: what the node holds may go to other threads; others reach it under the table's lock.
unsafe impl Send for Wait<'_> {}

impl<'a> Wait<'a> {
    const fn new(mutex: &'a AtomicU64) -> Wait<'a> {
        Wait { mutex, word: FREE, phase: Phase::New, node: Node::new(Record::of(0)) }
    }

    /// Ready, with the word to unlock with, once the mutex is ours.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u64> {
        // SAFETY: the node, the only field that must not move, is not moved out of this reference.
        let this = unsafe { self.get_unchecked_mut() };
        let here: Link<Record> = ptr::from_ref(&this.node);
        let owner = current();
        // Cloned before and dropped after the lock: it may be foreign.
        let waker = context.waker().clone();
        let table = table().lock();
        let (ready, _old_waker) = match this.phase {
            Phase::New => {
                // SAFETY: pinned; ours until it is linked; `drop` takes it out, at the latest.
                unsafe {
                    let old = node::set_waker(here, waker);
                    match table.contend(this.mutex, here, owner) {
                        Contended::Acquired => {
                            this.phase = Phase::Done;
                            this.word = word_of(owner);
                            (true, node::take_waker(here))
                        }
                        Contended::Waiting => {
                            this.phase = Phase::Waiting;
                            (false, old)
                        }
                    }
                }
            }
            // SAFETY: the table's lock is held. In this phase the node, which is pinned, was linked
            // by `contend` and perhaps granted since.
            Phase::Waiting => unsafe {
                if table.is_granted(here) {
                    this.phase = Phase::Done;
                    this.word = word_of(node::owner(here));
                    FOR_MUTEXES.leave(node::owner(here));
                    (true, Some(waker))
                } else {
                    let old = node::set_waker(here, waker);
                    table.look_again(here, owner);
                    (false, old)
                }
            },
            Phase::Done => panic!("polled after it was ready"),
        };
        drop(table);
        if ready { Poll::Ready(this.word) } else { Poll::Pending }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.phase != Phase::Waiting {
            return;
        }
        let here: Link<Record> = ptr::from_ref(&self.node);
        let table = table().lock();
        // SAFETY: the table's lock is held. In this phase the node, which is pinned, was linked by
        // `contend` and perhaps granted since.
        let (granted, owner, waker) = unsafe {
            let granted = table.is_granted(here);
            if !granted {
                table.give_up(self.mutex, here);
            }
            (granted, node::owner(here), node::take_waker(here))
        };
        let unlocked = table.unlock();
        drop(waker);
        FOR_MUTEXES.leave(owner);
        if granted {
            unlock(self.mutex, word_of(owner));
        }
        drop(unlocked);
    }
}

/// Access to the value of a [`Mutex`] until it is dropped.
///
/// May be sent to another coroutine; the one that locked goes on inheriting until it is dropped.
///
/// Not to be dropped in interrupt handlers (see [`Mutex::try_lock`]). A panic does not poison: the
/// mutex is unlocked.
///
/// ```
/// # use cops_executor::sync::{Mutex, MutexGuard};
/// let list = Mutex::new(vec![1]);
/// let mut guard: MutexGuard<'_, Vec<u32>> = list.try_lock().unwrap();
/// guard.push(2);
/// drop(guard);
/// assert_eq!(list.into_inner(), [1, 2]);
/// ```
#[must_use = "the mutex is unlocked when this is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// What the mutex's word was when it became ours.
    word: u64,
    /// Shared and sent as a `&mut T` is.
    _value: PhantomData<&'a mut T>,
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: there is one guard at a time, and it is borrowed.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: there is one guard at a time, and it is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        unlock(&self.mutex.word, self.word);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, formatter)
    }
}
