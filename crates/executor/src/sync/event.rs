//! An event: something that has happened or has not (manual reset).

use ::core::fmt;
use ::core::future::poll_fn;
use ::core::pin::pin;

use super::monitor::{Line, Monitor, Resource, Ticket, Wakes};
use crate::core::CoroutineId;

/// Something that has happened, or has not. Any number of coroutines wait for it.
///
/// ```
/// # use cops_executor::{Executor, Priority};
/// use cops_executor::sync::Event;
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// static CONFIGURED: Event = Event::new();
///
/// let server = EXECUTOR.spawn_join(
///     async {
///         CONFIGURED.wait().await;
///         "serving"
///     },
///     Priority::DEFAULT,
/// )?;
/// EXECUTOR.run_until_stalled(0);
/// assert!(!server.is_finished());
/// CONFIGURED.set();
/// assert_eq!(EXECUTOR.block_on(server)?, "serving");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Event {
    monitor: Monitor<Happened>,
}

struct Happened {
    set: bool,
    /// The number of the next waiter, which is its demand.
    next: u64,
    /// Those of lower numbers are to go on, though the event may have been cleared meanwhile.
    released: u64,
    /// Some of these may wait still.
    releasing: bool,
    line: Line<Happened>,
}

impl Resource for Happened {
    type Demand = u64;
    type Grant = ();

    fn accept(&mut self, _: u64) {
        self.set = true;
        self.released = self.next;
        self.releasing = true;
    }

    fn try_now(&mut self, demand: &mut u64, _: Option<CoroutineId>) -> Option<()> {
        if self.set {
            return Some(());
        }
        *demand = self.next;
        self.next += 1;
        None
    }

    fn line(&mut self, _: u64) -> &mut Line<Self> {
        &mut self.line
    }

    fn distribute(&mut self, wakes: &mut Wakes) {
        let released = self.released;
        while self.releasing && !wakes.is_full() {
            self.releasing = self.line.grant_where(|number| number < released, (), wakes);
        }
    }

    fn release_grant(&mut self, _: u64, (): (), _: &mut Wakes) {}
}

impl Event {
    /// It has not happened.
    ///
    /// ```
    /// # use cops_executor::sync::Event;
    /// static STARTED: Event = Event::new();
    /// assert!(!STARTED.is_set());
    /// ```
    #[must_use]
    pub const fn new() -> Event {
        Event {
            monitor: Monitor::new(Happened {
                set: false,
                next: 0,
                released: 0,
                releasing: false,
                line: Line::new(),
            }),
        }
    }

    /// Sets the event: all waiters continue, the most urgent first, even if it is cleared at once;
    /// later callers do not wait.
    ///
    /// In any context, interrupt handlers included: it does not wait.
    ///
    /// ```
    /// # use cops_executor::sync::Event;
    /// let event = Event::new();
    /// event.set();
    /// assert!(event.is_set());
    /// ```
    pub fn set(&self) {
        self.monitor.post(1);
    }

    /// It has not happened any more. Not in interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::sync::Event;
    /// let event = Event::new();
    /// event.set();
    /// assert!(event.is_set());
    /// event.clear();
    /// assert!(!event.is_set());
    /// ```
    pub fn clear(&self) {
        self.monitor.with(|happened, _| happened.set = false);
    }

    /// Whether it has happened. Not in interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::sync::Event;
    /// assert!(!Event::new().is_set());
    /// ```
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.monitor.with(|happened, _| happened.set)
    }

    /// Waits until it has happened. Cancel-safe.
    ///
    /// A future that is dropped gives up its place; the event is never used up. In coroutines, and
    /// wherever futures are polled; not in interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, sync::Event};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// static READY: Event = Event::new();
    /// let waiter = EXECUTOR.spawn_join(READY.wait(), Priority::DEFAULT)?;
    /// EXECUTOR.spawn(async { READY.set() }, Priority::LEAST_URGENT)?;
    /// EXECUTOR.block_on(waiter)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn wait(&self) {
        let mut ticket = pin!(Ticket::new(&self.monitor, 0));
        poll_fn(|context| ticket.as_mut().poll(context, |_, ()| ())).await;
    }
}

impl Default for Event {
    fn default() -> Event {
        Event::new()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Event").field("set", &self.is_set()).finish_non_exhaustive()
    }
}
