//! The executors of this program by number, so that an id alone finds its executor; and what can be
//! done with an id alone.
//!
//! Only executors that live for ever are entered, and none is removed: a lookup needs no count and
//! no lock.

use crate::core::atomic::unmodelled::{AtomicPtr, Ordering, load_published};
use ::core::ptr;

use super::calls;
use super::current::{current_worker_of, state};
use super::executor::Executor;
use crate::core::{CoroutineId, Priority, id::LAST_EXECUTOR};

const COUNT: usize = LAST_EXECUTOR as usize + 1;

static EXECUTORS: [AtomicPtr<Executor>; COUNT] = [const { AtomicPtr::new(ptr::null_mut()) }; COUNT];

/// Enters an executor; false if the number is taken.
pub(crate) fn enter(number: u8, executor: &'static Executor) -> bool {
    let executor = ptr::from_ref(executor).cast_mut();
    EXECUTORS.get(number as usize).is_some_and(|place| {
        place
            .compare_exchange(ptr::null_mut(), executor, Ordering::Release, Ordering::Relaxed)
            .is_ok()
    })
}

/// Takes back an entry of an executor that has not begun to use the number.
pub(crate) fn withdraw(number: u8) {
    if let Some(place) = EXECUTORS.get(number as usize) {
        place.store(ptr::null_mut(), Ordering::Release);
    }
}

#[allow(unsafe_code)]
#[inline(always)]
pub(crate) fn executor(number: u8) -> Option<&'static Executor> {
    // SAFETY: the pointer is null, or `enter` stored it from a `&'static` reference.
    unsafe { load_published(EXECUTORS.get(number as usize)?).as_ref() }
}

/// Makes a blocked coroutine ready; one that runs will run again; one that is ready stays where it
/// is.
///
/// The same mechanism as its `Waker`. Lock-free, allocates nothing, makes no system call; may be
/// called in an interrupt handler. False if the coroutine has exited.
///
/// ```
/// # use std::{future::poll_fn, sync::atomic::{AtomicBool, Ordering}, task::Poll};
/// # use cops_executor::{Executor, Priority, wake_up};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// static OPEN: AtomicBool = AtomicBool::new(false);
/// let gate = poll_fn(|_| if OPEN.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending });
/// let id = EXECUTOR.spawn(gate, Priority::DEFAULT)?;
/// EXECUTOR.run_until_stalled(0);
/// OPEN.store(true, Ordering::Relaxed);
/// assert!(wake_up(id));
/// EXECUTOR.run_until_stalled(0);
/// assert!(!wake_up(id), "it has exited");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[inline]
pub fn wake_up(id: CoroutineId) -> bool {
    wake_up_raw(id.raw())
}

/// As `wake_up`, of the bits of an id.
#[cfg(feature = "std")]
#[inline(always)]
pub(crate) fn wake_up_raw(id: u64) -> bool {
    // What yields wakes itself: that needs no atomic update and, with an image, no call.
    state().is_some_and(|worker| worker.wakes_itself(id)) || wake_another(id)
}

#[cfg(feature = "std")]
#[inline(never)]
fn wake_another(id: u64) -> bool {
    // No valid id has generation 0; the core finds no coroutine for such an id.
    let number = (id >> 24) as u8;
    executor(number)
        .is_some_and(|executor| calls::wake(&executor.core, id, current_worker_of(number)))
}

/// As `wake_up`, of the bits of an id. Without a thread-local of the record, both ways look up
/// executor and worker: once.
#[cfg(not(feature = "std"))]
#[inline(always)]
pub(crate) fn wake_up_raw(id: u64) -> bool {
    // No valid id has generation 0; the core finds no coroutine for such an id.
    let number = (id >> 24) as u8;
    let Some(executor) = executor(number) else { return false };
    let here = current_worker_of(number);
    // What yields wakes itself: that needs no atomic update and, with an image, no call.
    executor.state(here).is_some_and(|worker| worker.wakes_itself(id))
        || wake_another(executor, id, here)
}

/// With an image, this is a jump to its function.
#[cfg(not(feature = "std"))]
#[cfg_attr(feature = "image", inline(always))]
#[cfg_attr(not(feature = "image"), inline(never))]
fn wake_another(executor: &'static Executor, id: u64, here: u32) -> bool {
    calls::wake(&executor.core, id, here)
}

/// As `set_priority` of `sync`, which also moves waiters there.
pub(crate) fn set_own_priority(id: CoroutineId, priority: Priority) -> bool {
    executor(id.executor()).is_some_and(|executor| {
        calls::set_priority(&executor.core, id.raw(), priority.level() as u32, executor.here())
    })
}

/// The priority that a coroutine was given; `None` if it has exited. What it runs at may be more
/// urgent: [`priority`].
///
/// ```
/// # use cops_executor::{Executor, Priority, base_priority, set_priority};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// let id = EXECUTOR.spawn(std::future::pending(), Priority::DEFAULT)?;
/// set_priority(id, Priority::LEAST_URGENT);
/// assert_eq!(base_priority(id), Some(Priority::LEAST_URGENT));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn base_priority(id: CoroutineId) -> Option<Priority> {
    let level = calls::base_priority(&executor(id.executor())?.core, id.raw());
    Priority::new(level as u8)
}

/// Makes a coroutine at least as urgent as `inherited`, or no longer so. False if it has exited. As
/// `set_priority`, O(1) and without a lock.
pub(crate) fn set_inherited(id: CoroutineId, inherited: Option<Priority>) -> bool {
    let level = inherited.unwrap_or(Priority::LEAST_URGENT).level() as u32;
    executor(id.executor()).is_some_and(|executor| {
        calls::set_inherited(&executor.core, id.raw(), level, executor.here())
    })
}

/// The priority of a coroutine, `None` if it has exited.
///
/// What it runs at now: the one that it was given, or a more urgent one that it has inherited. In
/// any context, interrupt handlers included.
///
/// ```
/// # use cops_executor::{Executor, Priority, priority};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// let id = EXECUTOR.spawn(std::future::pending(), Priority::DEFAULT)?;
/// assert_eq!(priority(id), Some(Priority::DEFAULT));
/// cops_executor::cancel(id);
/// EXECUTOR.run_until_stalled(0);
/// assert_eq!(priority(id), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn priority(id: CoroutineId) -> Option<Priority> {
    let level = calls::priority(&executor(id.executor())?.core, id.raw());
    Priority::new(level as u8)
}

/// Has a worker drop the coroutine's future: right after the present poll if it runs, else when its
/// turn comes. May be called wherever [`wake_up`] may. False if the coroutine has exited.
///
/// ```
/// # use cops_executor::{Executor, Priority, cancel};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// let id = EXECUTOR.spawn(std::future::pending(), Priority::DEFAULT)?;
/// assert!(cancel(id));
/// assert_eq!(EXECUTOR.live_count(), 1, "until a worker drops it");
/// EXECUTOR.run_until_stalled(0);
/// assert!(!cancel(id), "it is gone");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cancel(id: CoroutineId) -> bool {
    executor(id.executor())
        .is_some_and(|executor| calls::cancel(&executor.core, id.raw(), executor.here()))
}

/// The coroutine that is being polled on this thread or hart; `None` outside of one.
///
/// In any context, interrupt handlers included.
///
/// ```
/// # use cops_executor::{Executor, Priority, current};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// let asks = EXECUTOR.spawn_join(async { current() }, Priority::DEFAULT)?;
/// let id = asks.id();
/// assert_eq!(EXECUTOR.block_on(asks)?, Some(id));
/// assert_eq!(current(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[inline]
pub fn current() -> Option<CoroutineId> {
    CoroutineId::from_raw(state()?.current_id.load(Ordering::Relaxed))
}
