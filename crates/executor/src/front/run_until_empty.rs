//! The explicit runner (SPEC 2.4): run on the calling thread until all coroutines have exited.

use super::executor::Executor;
use super::outcome::RunOutcome;

impl Executor {
    /// Runs coroutines on the calling thread or hart as worker `worker`, until all have exited
    /// (`Stalled`) or a stop is requested.
    ///
    /// While nothing is ready, `park` is called: it sleeps until this worker is notified
    /// ([`Hooks::notify`](crate::Hooks), which may come before it begins to sleep and must not be
    /// lost). It may return early. To return instead of sleeping there is
    /// [`run_until_stalled`](Executor::run_until_stalled); with `std`, `run_until_done` brings its
    /// own `park`. `StopRequested` and `Refused` are as of [`run`](Executor::run).
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, RunOutcome, wake_up};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// # let mut polls = 0;
    /// let twice = std::future::poll_fn(move |_| {
    ///     polls += 1;
    ///     if polls == 2 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    /// });
    /// let id = EXECUTOR.spawn(twice, Priority::DEFAULT)?;
    /// // In earnest: `wfi`, or the park of a thread.
    /// let outcome = EXECUTOR.run_until_empty(0, || assert!(wake_up(id)));
    /// assert_eq!(outcome, RunOutcome::Stalled);
    /// assert_eq!(EXECUTOR.live_count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_until_empty(&self, worker: u32, mut park: impl FnMut()) -> RunOutcome {
        loop {
            match self.run_until_stalled(worker) {
                RunOutcome::Stalled => {}
                other => return other,
            }
            if self.prepare_park(worker) {
                // Checked after the mark: the thread that lets the last one exit notifies those
                // that are marked.
                if self.live_count() != 0 {
                    park();
                }
                self.finish_park(worker);
            }
            if self.live_count() == 0 {
                return RunOutcome::Stalled;
            }
        }
    }
}
