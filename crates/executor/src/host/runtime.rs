//! Runtimes: an executor, and threads that are made for it.

use std::fmt;
use std::future::Future;
use std::io;
use std::num::NonZero;
use std::string::String;
use std::sync::atomic::Ordering;
use std::thread;
use std::vec::Vec;

use super::drive::{Moment, drive};
use super::handle::Handle;
use super::lease;
use super::record::Record;
use crate::core::{MAX_WORKERS, NO_WORKER, Priority};
use crate::front::{JoinHandle, current};

/// An executor with threads of its own.
///
/// Workers sleep while nothing is ready. With feature `reactor` an idle one sleeps in the reactor
/// of `async-io` and runs what an event wakes without a hop to another thread; busy ones look at it
/// between polls, at most every 50 microseconds. `async_io::{Async, Timer}` work in every
/// coroutine.
///
/// Priorities are strict, as everywhere in this crate, and coroutines are not preempted: an urgent
/// one waits for the poll that is under way on each worker. Long computations should `yield_now`
/// now and then; blocking code belongs on its own thread or in a pool such as that of the crate
/// `blocking`, with an `unblock` that can be awaited here.
///
/// # The end
///
/// Dropping the runtime stops its workers when the polls under way return, and waits for their
/// threads. Then every coroutine that is left is dropped, on one of those threads, without being
/// polled again; its join handle yields [`JoinError::Cancelled`](crate::JoinError::Cancelled).
/// Dropped on one of its own workers, the runtime stops in the same way, but without waiting.
/// [`finish`](Runtime::finish) waits for all coroutines first.
///
/// A panic ends one coroutine; its join handle yields
/// [`JoinError::Panicked`](crate::JoinError::Panicked) with the panic's payload. A panic in the
/// destructor of a coroutine's future ends the program.
///
/// ```
/// use cops_executor::{Priority, Runtime, yield_now};
///
/// let runtime = Runtime::new(2)?;
/// let batch = runtime.spawn_at(
///     async {
///         let mut sum = 0_u64;
///         for n in 1..=1_000 {
///             sum += n;
///             yield_now().await;
///         }
///         sum
///     },
///     Priority::LEAST_URGENT,
/// );
/// let urgent = runtime.spawn_at(async { "first" }, Priority::MOST_URGENT);
/// assert_eq!(runtime.block_on(urgent)?, "first");
/// assert_eq!(runtime.block_on(batch)?, 500_500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Runtime {
    handle: Handle,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Runtime {
    /// A runtime of `workers` threads (1 to 64).
    ///
    /// # Errors
    ///
    /// As [`Builder::build`].
    ///
    /// ```
    /// # use cops_executor::Runtime;
    /// let runtime = Runtime::new(2)?;
    /// assert_eq!(runtime.block_on(async { 42 }), 42);
    /// assert!(Runtime::new(65).is_err());
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn new(workers: u32) -> Result<Runtime, BuildError> {
        Runtime::builder().workers(workers).build()
    }

    /// Begins to configure a runtime. By default it has a worker for each processor that this
    /// program may use.
    ///
    /// ```
    /// # use cops_executor::Runtime;
    /// let runtime = Runtime::builder().workers(1).build()?;
    /// assert_eq!(runtime.block_on(async { 42 }), 42);
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn builder() -> Builder {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Builder {
            workers: (processors.min(MAX_WORKERS as usize)) as u32,
            name: String::from("cops-worker"),
            stack_bytes: None,
        }
    }

    /// A handle to spawn with from anywhere.
    ///
    /// ```
    /// # use cops_executor::{Priority, Runtime};
    /// # let runtime = Runtime::new(1)?;
    /// let handle = runtime.handle();
    /// let spawned = std::thread::spawn(move || handle.spawn_at(async { "elsewhere" }, Priority::DEFAULT)).join().unwrap();
    /// assert_eq!(runtime.block_on(spawned), Ok("elsewhere"));
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Makes a coroutine of `future`, with the caller's priority: see [`Handle::spawn`].
    ///
    /// # Panics
    ///
    /// If there are 2^24 - 1 coroutines.
    ///
    /// ```
    /// # use cops_executor::Runtime;
    /// let runtime = Runtime::new(1)?;
    /// let four = runtime.spawn(async { 2 + 2 });
    /// assert_eq!(runtime.block_on(four), Ok(4));
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }

    /// Makes a coroutine of `future`, at this priority: see [`Handle::spawn_at`].
    ///
    /// # Panics
    ///
    /// If there are 2^24 - 1 coroutines.
    ///
    /// ```
    /// # use cops_executor::{Priority, Runtime};
    /// # let runtime = Runtime::new(1)?;
    /// let four = runtime.spawn_at(async { 2 + 2 }, Priority::DEFAULT);
    /// assert_eq!(runtime.block_on(four), Ok(4));
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    #[inline]
    pub fn spawn_at<F>(&self, future: F, priority: Priority) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn_at(future, priority)
    }

    /// Polls `future` on this thread: see [`Handle::block_on`].
    ///
    /// # Panics
    ///
    /// On a worker of this runtime.
    ///
    /// ```
    /// # use cops_executor::{Runtime};
    /// # let runtime = Runtime::new(1)?;
    /// assert_eq!(runtime.block_on(async { 2 + 2 }), 4);
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Waits until all coroutines have exited, then ends the runtime. Coroutines may go on to spawn
    /// others, which are waited for too.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use cops_executor::{Runtime, yield_now};
    ///
    /// let runtime = Runtime::new(2)?;
    /// let ended = Arc::new(AtomicU32::new(0));
    /// for _ in 0..10 {
    ///     let ended = ended.clone();
    ///     runtime.spawn(async move { yield_now().await; ended.fetch_add(1, Ordering::Relaxed) });
    /// }
    /// runtime.finish();
    /// assert_eq!(ended.load(Ordering::Relaxed), 10);
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// On a worker of this runtime, which would wait for itself.
    pub fn finish(mut self) {
        let record = self.handle.record;
        assert!(!is_worker_of(record), "finish on a worker of the same runtime");
        record.finishing.store(true, Ordering::SeqCst);
        // Those that sleep look again. One that was about to sleep finds the token.
        (0..record.workers()).for_each(|worker| record.wake(worker));
        self.join();
    }

    /// Ends the runtime without waiting for polls under way. Coroutines are dropped when the last
    /// of these has returned.
    ///
    /// ```
    /// use cops_executor::{JoinError, Priority, Runtime};
    ///
    /// let runtime = Runtime::new(1)?;
    /// let handle = runtime.handle();
    /// let endless = runtime.spawn_at(std::future::pending::<()>(), Priority::DEFAULT);
    /// runtime.shutdown_background();
    /// assert_eq!(handle.block_on(endless), Err(JoinError::Cancelled));
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn shutdown_background(mut self) {
        self.threads.clear();
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A worker catches the panics of coroutines; there is no other that we could report
            // better than it did.
            let _ = thread.join();
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let record = self.handle.record;
        // In this order: head of `lease`. After `finish` the executor may be another's by now.
        if lease::close(record, self.handle.tenancy) {
            record.executor.request_stop(true);
        }
        if is_worker_of(record) {
            self.threads.clear();
        }
        self.join();
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Runtime")
            .field("handle", &self.handle)
            .field("workers", &self.threads.len())
            .finish()
    }
}

fn is_worker_of(record: &Record) -> bool {
    current::current_worker_of(record.number) != NO_WORKER
}

/// How a [`Runtime`] shall be.
///
/// ```
/// use cops_executor::{Priority, Runtime};
///
/// let runtime = Runtime::builder().workers(2).name("service").stack_bytes(256 << 10).build()?;
/// let name = runtime.spawn_at(async { std::thread::current().name().map(String::from) }, Priority::DEFAULT);
/// assert!(runtime.block_on(name)?.unwrap().starts_with("service-"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is only words until `build`"]
pub struct Builder {
    workers: u32,
    name: String,
    stack_bytes: Option<usize>,
}

impl Builder {
    /// Threads, 1 to 64.
    ///
    /// Checked by [`build`](Builder::build).
    ///
    /// ```
    /// # use cops_executor::Runtime;
    /// assert!(Runtime::builder().workers(1).build().is_ok());
    /// assert!(Runtime::builder().workers(0).build().is_err());
    /// ```
    pub fn workers(mut self, workers: u32) -> Builder {
        self.workers = workers;
        self
    }

    /// What threads are called: this, a dash, and the worker's number. Linux shows the first 15
    /// bytes.
    ///
    /// ```
    /// # use cops_executor::{Priority, Runtime};
    /// let runtime = Runtime::builder().workers(1).name("mail").build()?;
    /// let name = runtime.spawn_at(async { std::thread::current().name().map(String::from) }, Priority::DEFAULT);
    /// assert_eq!(runtime.block_on(name), Ok(Some(String::from("mail-0"))));
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.name = name.into();
        self
    }

    /// The stack of each thread, in bytes. Coroutines have none, but their polls run on it.
    ///
    /// ```
    /// # use cops_executor::Runtime;
    /// let runtime = Runtime::builder().workers(1).stack_bytes(256 << 10).build()?;
    /// # drop(runtime);
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn stack_bytes(mut self, bytes: usize) -> Builder {
        self.stack_bytes = Some(bytes);
        self
    }

    /// Makes the runtime and starts its threads.
    ///
    /// # Errors
    ///
    /// See [`BuildError`]. Nothing is left over then but what is kept for the next runtime.
    ///
    /// ```
    /// # use cops_executor::{BuildError, Runtime};
    /// assert!(matches!(Runtime::builder().workers(65).build(), Err(BuildError::WorkersOutOfRange)));
    /// ```
    pub fn build(self) -> Result<Runtime, BuildError> {
        if !(1..=MAX_WORKERS).contains(&self.workers) {
            return Err(BuildError::WorkersOutOfRange);
        }
        let (record, tenancy) =
            lease::take(self.workers, false).ok_or(BuildError::NumbersExhausted)?;
        let mut runtime = Runtime { handle: Handle { record, tenancy }, threads: Vec::new() };
        for worker in 0..self.workers {
            match self.start(record, tenancy, worker) {
                Ok(thread) => runtime.threads.push(thread),
                Err(error) => {
                    // Those that are there are stopped with the runtime; these leave before they
                    // came.
                    lease::close(record, tenancy);
                    record.executor.request_stop(true);
                    (worker..self.workers).for_each(|_| lease::leave(record));
                    return Err(BuildError::Thread(error));
                }
            }
        }
        Ok(runtime)
    }

    fn start(
        &self,
        record: &'static Record,
        tenancy: u64,
        worker: u32,
    ) -> io::Result<thread::JoinHandle<()>> {
        let mut thread = thread::Builder::new().name(std::format!("{}-{worker}", self.name));
        if let Some(bytes) = self.stack_bytes {
            thread = thread.stack_size(bytes);
        }
        thread.spawn(move || {
            let finished = |_: Moment| {
                let finishing = record.finishing.load(Ordering::SeqCst);
                (finishing && record.executor.live_count() == 0).then_some(())
            };
            // Finished, or stopped by the thread that has closed it. (A panic here would be one of
            // the reactor. Then the executor is not swept, and is not used again.)
            if let Some(claim) = record.claim(worker) {
                let _ = drive(record, worker, claim, finished);
            }
            lease::close(record, tenancy);
            lease::leave(record);
        })
    }
}

/// Why a runtime is not built.
///
/// ```
/// use cops_executor::Runtime;
/// assert_eq!(Runtime::new(0).unwrap_err().to_string(), "a runtime has 1 to 64 workers");
/// ```
#[derive(Debug)]
pub enum BuildError {
    /// It shall have no workers, or more than 64.
    WorkersOutOfRange,
    /// A program has 256 executors at most, and none is free: there are too many runtimes and
    /// executors in statics.
    NumbersExhausted,
    /// The system does not give another thread.
    Thread(io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::WorkersOutOfRange => formatter.write_str("a runtime has 1 to 64 workers"),
            BuildError::NumbersExhausted => {
                formatter.write_str("all 256 executors of this program are in use")
            }
            BuildError::Thread(error) => {
                write!(formatter, "a worker's thread cannot be started: {error}")
            }
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BuildError::Thread(error) => Some(error),
            _ => None,
        }
    }
}
