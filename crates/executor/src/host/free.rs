//! The functions that most programs get by with: they mean the runtime that the caller is in.

use std::future::Future;
use std::time::Duration;

use super::clock::{HostClock, timers};
use super::handle::Handle;
use super::local::{self, LocalRuntime};
use crate::core::Priority;
use crate::front::JoinHandle;
use crate::front::child::inherited;
use crate::time::{Elapsed, Interval, Sleep};

/// Makes a coroutine of `future` on the runtime that the caller is in, with the caller's priority:
/// see [`Handle::spawn`].
///
/// # Panics
///
/// Outside of a runtime: in neither a coroutine nor a `block_on`. If there are 2^24 - 1 coroutines.
///
/// ```
/// use cops_executor::{block_on, spawn};
/// let sum = block_on(async {
///     let (left, right) = (spawn(async { 1 }), spawn(async { 2 }));
///     Ok::<_, cops_executor::JoinError>(left.await? + right.await?)
/// });
/// assert_eq!(sum, Ok(3));
/// ```
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    here().spawn(future)
}

/// As [`spawn`], with the priority of the caller's choice.
///
/// # Panics
///
/// As `spawn`.
///
/// ```
/// use cops_executor::{Priority, block_on, current, priority, spawn, spawn_at};
/// let inherited = block_on(async {
///     let child = async { spawn(async { current().and_then(priority) }).await };
///     spawn_at(child, Priority::MOST_URGENT).await
/// });
/// assert_eq!(inherited, Ok(Ok(Some(Priority::MOST_URGENT))));
/// ```
pub fn spawn_at<F>(future: F, priority: Priority) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    here().spawn_at(future, priority)
}

/// Makes a coroutine of `future`, which need not be `Send`, on the [`LocalRuntime`] that the caller
/// is in, with the caller's priority. It runs on this thread only.
///
/// # Panics
///
/// Outside of a `LocalRuntime` and of the free [`block_on`]; on a worker of a
/// [`Runtime`](crate::Runtime), because its other workers would steal the coroutine. If there are
/// 2^24 - 1 coroutines.
///
/// ```
/// use cops_executor::{block_on, spawn_local};
/// use std::{cell::RefCell, rc::Rc};
/// let words = Rc::new(RefCell::new(Vec::new()));
/// block_on(async {
///     let shared = words.clone();
///     spawn_local(async move { shared.borrow_mut().push("on the same thread") }).await
/// })?;
/// assert_eq!(*words.borrow(), ["on the same thread"]);
/// # Ok::<(), cops_executor::JoinError>(())
/// ```
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    spawn_local_at(future, inherited())
}

/// As [`spawn_local`], with the priority of the caller's choice.
///
/// # Panics
///
/// As `spawn_local`.
///
/// ```
/// use cops_executor::{Priority, block_on, current, priority, spawn_local_at};
/// let seen = block_on(async {
///     spawn_local_at(async { current().and_then(priority) }, Priority::LEAST_URGENT).await
/// });
/// assert_eq!(seen, Ok(Some(Priority::LEAST_URGENT)));
/// ```
pub fn spawn_local_at<F>(future: F, priority: Priority) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    match local::spawn_here(future, priority) {
        Ok(handle) => handle,
        Err(_) => panic!("spawn_local outside of a LocalRuntime and of the free block_on"),
    }
}

/// Runs a [`LocalRuntime`] of this thread until `future` is finished, and returns its output: all
/// that a program of one thread needs.
///
/// Coroutines that are left are dropped then, without being polled again.
///
/// # Panics
///
/// If all 256 executors of the program are in use: [`LocalRuntime::new`] returns an error instead.
///
/// ```
/// use cops_executor::{block_on, sleep, spawn};
/// use std::time::Duration;
/// let answer = block_on(async {
///     let answer = spawn(async { sleep(Duration::from_millis(1)).await; 42 });
///     answer.await
/// });
/// assert_eq!(answer, Ok(42));
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    match LocalRuntime::new() {
        Ok(runtime) => runtime.block_on(future),
        Err(error) => panic!("block_on: {error}"),
    }
}

/// Waits for at least `duration`, from this call on, by the host's clock: see
/// [`Timers::sleep`](crate::time::Timers::sleep). Cancel-safe.
///
/// To be awaited in a runtime: its workers fire it. See [`timers`].
///
/// ```
/// use cops_executor::{block_on, sleep};
/// use std::time::{Duration, Instant};
/// let start = Instant::now();
/// block_on(sleep(Duration::from_millis(2)));
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// ```
pub fn sleep(duration: Duration) -> Sleep<'static, HostClock> {
    timers().sleep(duration)
}

/// The output of `future`, if it comes within `limit` from this call on; otherwise `future` is
/// dropped: see [`Timers::timeout`](crate::time::Timers::timeout). Cancel-safe if `future` is.
///
/// To be awaited in a runtime, as [`sleep`].
///
/// A [`JoinHandle`] that is dropped detaches its coroutine, which runs on. To cancel the coroutine
/// at the limit, pass [`abort_on_drop`](JoinHandle::abort_on_drop).
///
/// # Errors
///
/// [`Elapsed`].
///
/// ```
/// use cops_executor::{block_on, spawn, time::Elapsed, timeout};
/// use std::{future::pending, time::Duration};
/// let limit = Duration::from_millis(1);
/// block_on(async {
///     assert_eq!(timeout(Duration::from_secs(60), async { 1 }).await, Ok(1));
///     assert_eq!(timeout(limit, pending::<()>()).await, Err(Elapsed));
///     let request = spawn(pending::<()>()).abort_on_drop();
///     assert_eq!(timeout(limit, request).await, Err(Elapsed), "and it is cancelled");
/// });
/// ```
pub fn timeout<F: Future>(
    limit: Duration,
    future: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> {
    timers().timeout(limit, future)
}

/// Ticks every `period` by the host's clock, for the first time one period from now: see
/// [`Timers::interval`](crate::time::Timers::interval).
///
/// # Panics
///
/// If `period` is zero.
///
/// ```
/// use cops_executor::{block_on, interval};
/// use std::time::Duration;
/// let mut ticks = interval(Duration::from_millis(1));
/// assert!(block_on(async { ticks.tick().await + ticks.tick().await }) >= 2);
/// ```
pub fn interval(period: Duration) -> Interval<'static, HostClock> {
    timers().interval(period)
}

/// The runtime that the caller is in.
fn here() -> Handle {
    Handle::current().expect("spawn in neither a coroutine nor a block_on of a runtime")
}
