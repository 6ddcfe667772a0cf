//! The explicit runner: an ordinary `main` that runs the coroutines of its process itself, when it wants to. SPEC 2.4.
//!
//! May touch: the loop of the calling virtual CPU, nothing else.

use core::fmt;

use crate::worker::{self, EXECUTOR};

/// When [`run`] is to return.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// When no coroutine is ready: those that are left wait for something, or are polled by other virtual CPUs. Does
    /// not wait.
    Stalled,
    /// When all coroutines have exited, on whichever virtual CPU. Sleeps in the kernel while none is ready; for ever, if one of them
    /// waits for something that never comes.
    Empty,
}

/// [`run`] was called inside a coroutine, which its virtual CPU is polling. Nothing was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InsideCoroutine;

impl fmt::Display for InsideCoroutine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("coroutines are run by a main that is none")
    }
}

impl core::error::Error for InsideCoroutine {}

/// Runs coroutines of this process on the calling virtual CPU, the most urgent first.
///
/// For programs whose `main` is no coroutine: those that say `#[cops::main(explicit_runner)]`. May be called as often as they
/// like; what is spawned between two calls begins in the next. (Virtual CPUs from [`alloc_cpu`](crate::task::alloc_cpu) run coroutines all
/// the time, and may come by earlier; one that sleeps is not woken by a spawn outside of this.) Between two calls, whatever of this
/// library can wait makes its virtual CPU wait; results for coroutines are taken by the other virtual CPUs, at the latest after a
/// slice (10 ms), or by the next call. The kernel counts such a `main` as of the default priority. When such a `main` returns the process ends, with whatever coroutines there are.
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
/// [`InsideCoroutine`], if it is called by one: in an `async fn main`, a `main` without `explicit_runner`, or anything
/// spawned. There, awaiting is how to wait, and [`yield_now`](crate::task::yield_now) lets others run.
pub fn run(until: Until) -> Result<(), InsideCoroutine> {
    // The low byte is the virtual CPU's number, which is its worker's.
    let worker = u32::from(worker::current_word() as u8);
    loop {
        if !worker::run_until_stalled(worker) {
            return Err(InsideCoroutine);
        }
        if until == Until::Stalled || is_empty() {
            return Ok(());
        }
        // Looked at again once it is marked as parked: the exit of the last one wakes those that are.
        worker::park(worker, is_empty);
    }
}

fn is_empty() -> bool {
    EXECUTOR.live_count() == 0
}
