//! Yielding: to the back of one's own queue.

use ::core::future::Future;
use ::core::pin::Pin;
use ::core::task::{Context, Poll};

/// Lets everything run that is ready and at least as urgent, then goes on.
///
/// To be awaited in coroutines; under anything else that polls futures it is pending once.
/// Cancel-safe: there is nothing to lose. Never fails.
///
/// ```
/// use cops_executor::{Executor, Priority, sync::channel, yield_now};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// let (log, entries) = channel(4);
/// for name in ["a", "b"] {
///     let log = log.clone();
///     EXECUTOR.spawn(
///         async move {
///             log.try_send(name).unwrap();
///             yield_now().await;
///             log.try_send(name).unwrap();
///         },
///         Priority::DEFAULT,
///     )?;
/// }
/// EXECUTOR.run_until_stalled(0);
/// let order: Vec<_> = std::iter::from_fn(|| entries.try_receive().ok()).collect();
/// assert_eq!(order, ["a", "b", "a", "b"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub const fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// The future of [`yield_now`]: pending once, and woken at once.
///
/// ```
/// use cops_executor::yield_now;
/// use std::{future::Future, pin::pin, task::{Context, Waker}};
/// let mut context = Context::from_waker(Waker::noop());
/// let mut turn = pin!(yield_now());
/// assert!(turn.as_mut().poll(&mut context).is_pending());
/// assert!(turn.as_mut().poll(&mut context).is_ready());
/// ```
#[must_use = "await it"]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
