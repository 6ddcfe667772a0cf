//! Yielding: to the back of one's own queue.

use ::core::future::Future;
use ::core::pin::Pin;
use ::core::task::{Context, Poll};

/// Lets everything run that is ready and at least as urgent, then goes on.
pub const fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// The future of [`yield_now`]: pending once, and woken at once.
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
