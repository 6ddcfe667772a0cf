//! Futures around a [`Call`]: one that converts errors to I/O errors, and one that repeats a call
//! until all of its work is done.
//!
//! They are written by hand, because each `async fn` in between would store its arguments twice in
//! every idle connection.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use cops_abi::Errno;
use cops_abi::errno::CallResult;

use super::{Call, Operation, State};
use crate::io::{Error, Result};
use crate::worker;

/// A [`Call`] that returns I/O errors.
#[must_use = "a call does nothing unless awaited"]
#[derive(Debug)]
pub struct Converted<O: Operation>(pub(super) Call<O>);

impl<O, T> Future for Converted<O>
where
    O: Operation<Output = core::result::Result<T, Errno>>,
{
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        Pin::new(&mut self.0).poll(context).map_err(Error::Kernel)
    }
}

/// An operation that may do only part of its work.
pub trait Partial: Operation {
    /// What [`Whole`] yields.
    type Whole;

    /// Whether no work is left; also called before the first call.
    fn is_done(&self) -> bool;

    /// Processes the output of a call, and advances past what it has done.
    fn proceed(&mut self, output: Self::Output) -> CallResult;

    /// The final output.
    fn conclude(&mut self, result: Result<()>) -> Self::Whole;
}

/// Repeats an operation until all of its work is done. Before each call it lets coroutines run that
/// are more urgent than the current one, once: the call may take longer than all else of a poll.
///
/// Not cancel-safe: a part may have been done.
#[must_use = "a call does nothing unless awaited"]
#[derive(Debug)]
pub struct Whole<O: Partial>(Call<O>);

impl<O: Partial> Whole<O> {
    /// Performs all of `operation`.
    pub fn new(operation: O) -> Self {
        Self(Call::new(operation))
    }

    /// The operation, of which no call is in flight.
    pub(crate) fn operation(&mut self) -> &mut O {
        debug_assert!(matches!(self.0.state, State::New(_)));
        &mut self.0.operation
    }
}

impl<O: Partial> Future for Whole<O> {
    type Output = O::Whole;

    /// Fails with [`Error::UnexpectedEnd`] if a call moves nothing.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<O::Whole> {
        let call = &mut self.0;
        while !call.operation.is_done() {
            if matches!(call.state, State::New(_)) && worker::is_urged() {
                call.state = State::Yielded;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let output = ready!(Pin::new(&mut *call).poll(context));
            match call.operation.proceed(output) {
                Ok(1..) => call.state = State::New(None),
                Ok(0) => return Poll::Ready(call.operation.conclude(Err(Error::UnexpectedEnd))),
                Err(errno) => return Poll::Ready(call.operation.conclude(Err(errno.into()))),
            }
        }
        Poll::Ready(call.operation.conclude(Ok(())))
    }
}
