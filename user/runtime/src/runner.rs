//! The explicit runner: a `main` that is not a coroutine and runs the coroutines of its process by
//! itself. SPEC 2.4.
//!
//! May touch: the loop of the calling virtual CPU, nothing else.

use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::start::Main;
use crate::task::{self, Priority};
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

/// [`run`] was called inside a coroutine; nothing was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InsideCoroutine;

impl fmt::Display for InsideCoroutine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("only a main that is not a coroutine can run coroutines")
    }
}

impl core::error::Error for InsideCoroutine {}

/// Runs coroutines of this process on the calling virtual CPU, the most urgent first.
///
/// For programs with `#[cops::main(explicit_runner)]`: their `main` is not a coroutine. It may be
/// called any number of times; a coroutine that is spawned between two calls begins in the next
/// one. (Virtual CPUs from [`alloc_cpu`](crate::task::alloc_cpu) always run coroutines and may
/// begin it earlier; a spawn outside of `run` does not wake one that sleeps.)
///
/// Between two calls, functions of this library that wait block the virtual CPU. Results for
/// coroutines are then delivered by the other virtual CPUs, at the latest after a time slice (10
/// ms), or by the next call. The kernel gives such a `main` the default priority. When `main`
/// returns, the process ends, including all coroutines.
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
/// [`InsideCoroutine`], if a coroutine calls it: an `async fn main`, a `main` without
/// `explicit_runner`, or any spawned coroutine. A coroutine waits with `.await`, and lets others
/// run with [`yield_now`](crate::task::yield_now).
pub fn run(until: Until) -> Result<(), InsideCoroutine> {
    let worker = worker::current_index().ok_or(InsideCoroutine)?;
    loop {
        if !worker::run_until_stalled(worker) {
            return Err(InsideCoroutine);
        }
        if until == Until::Stalled || is_empty() {
            return Ok(());
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
    task::spawn(async { CODE.store(main.await.0, Relaxed) }, Priority::DEFAULT);
    match run(Until::Empty) {
        Ok(()) => process::exit(CODE.load(Relaxed)),
        Err(error) => fatal(format_args!("{error}")),
    }
}

fn is_empty() -> bool {
    EXECUTOR.live_count() == 0
}
