//! The explicit runner: a thread, or a `main` that is not a coroutine, runs the coroutines of its
//! process by itself. SPEC 2.4.
//!
//! May touch: the loop of the calling virtual CPU. [`seats`] does the same for threads.

pub(crate) mod seats;

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use cops_abi::Errno;

use crate::start::Main;
use crate::task;
use crate::worker::{self, EXECUTOR};
use crate::{fatal, process};

/// When [`run`] returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// When no coroutine is ready: the remaining ones wait, or are polled by other virtual CPUs.
    /// Does not wait.
    Stalled,
    /// When all coroutines have exited, on all virtual CPUs. Sleeps in the kernel while none is
    /// ready, forever if one of them waits for an event that never comes.
    Empty,
}

/// Why [`run`] has done nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunError {
    /// It was called inside a coroutine.
    InsideCoroutine,
    /// A thread called it, and there is no virtual CPU for it: `EAGAIN` if the process has as many
    /// as it may, `ENOMEM`.
    NoVirtualCpu(Errno),
}

impl fmt::Display for RunError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InsideCoroutine => formatter.write_str("a coroutine cannot run coroutines"),
            Self::NoVirtualCpu(error) => {
                write!(formatter, "no virtual CPU for this thread to run coroutines on: {error}")
            }
        }
    }
}

impl core::error::Error for RunError {}

/// Runs coroutines of this process on the calling thread, the most urgent first.
///
/// For a `main` with `#[cops::main(explicit_runner)]`, which is not a coroutine, and for threads of
/// [`cops::thread`](crate::thread) in any program. It may be called any number of times, and by
/// several threads at the same time: each begins the most urgent coroutine that is ready. A
/// coroutine that is spawned between two calls begins in the next one. (Virtual CPUs from
/// [`alloc_cpu`](crate::task::alloc_cpu) always run coroutines and may begin it earlier; a spawn
/// outside of `run` does not wake one that sleeps. The same is true of that of a `main` that is a
/// coroutine.)
///
/// Between two calls, functions of this library that wait block the caller. Results for coroutines
/// are then delivered by the other virtual CPUs, at the latest after a time slice (10 ms), or by
/// the next call. The kernel gives a `main` with `explicit_runner` the default priority. When
/// `main` returns, the process ends, including all coroutines.
///
/// While a thread is in `run`, the kernel schedules it by the priorities of its coroutines: a
/// virtual CPU takes its place, with a stack of 1 MiB, whatever the size of the thread's own. The
/// first calls make these virtual CPUs, which count among the eight of a process (at most that many
/// threads run coroutines at a time) and stay. Coroutines that run there see the handle and the
/// values of the thread.
///
/// ```ignore
/// use cops::sync::{signal, wait_on};
/// use cops::task::{self, Priority, Until};
///
/// #[cops::main(explicit_runner)]
/// fn main() -> Result<(), Box<dyn core::error::Error>> {
///     task::spawn(wait_on(7), Priority::DEFAULT);
///     task::run(Until::Stalled)?;
///     assert_eq!(task::live_count(), 1);
///     signal(7)?;
///     task::run(Until::Empty)?;
///     assert_eq!(task::live_count(), 0);
///     Ok(())
/// }
/// ```
///
/// # Errors
/// [`RunError::InsideCoroutine`], if a coroutine calls it: an `async fn main`, a `main` without
/// `explicit_runner`, or any spawned coroutine. A coroutine waits with `.await`, and lets others
/// run with [`yield_now`](crate::task::yield_now). [`RunError::NoVirtualCpu`], if a thread calls
/// it.
pub fn run(until: Until) -> Result<(), RunError> {
    match worker::current_index() {
        Some(worker) if run_on(worker, until) => {
            worker::leave();
            Ok(())
        }
        Some(_) => Err(RunError::InsideCoroutine),
        None => seats::run(until).map_err(RunError::NoVirtualCpu),
    }
}

/// Runs coroutines on the calling virtual CPU. Returns false, and does nothing, if that polls one.
fn run_on(worker: u32, until: Until) -> bool {
    loop {
        let has_run = match until {
            Until::Stalled => worker::run_until_stalled(worker),
            Until::Empty => worker::run_until_parking(worker, || false),
        };
        if !has_run {
            return false;
        }
        if until == Until::Stalled || is_empty() {
            return true;
        }
        // `is_empty` is checked again after the worker is marked as parked, because the exit of the
        // last coroutine wakes the parked workers.
        worker::park(worker, is_empty);
    }
}

/// Runs `main` as a coroutine, and all others, until all have exited on all virtual CPUs. Then ends
/// the process with the code of `main`. For `#[cops::main(until_empty)]`.
pub fn run_until_empty(main: Main) -> ! {
    // If `main` never returns, neither does `run`.
    static CODE: AtomicU8 = AtomicU8::new(0);
    task::spawn_main(async { CODE.store(main.await.0, Relaxed) });
    match run(Until::Empty) {
        Ok(()) => process::exit(CODE.load(Relaxed)),
        Err(error) => fatal(format_args!("{error}")),
    }
}

fn is_empty() -> bool {
    EXECUTOR.live_count() == 0
}
