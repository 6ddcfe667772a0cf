//! Futures around a [`Call`]: one that speaks of I/O errors, one that repeats a call until it has done all of it.
//!
//! Written by hand, because each `async fn` in between keeps its arguments twice, in every idle connection.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};

use cops_abi::Errno;
use cops_abi::errno::CallResult;

use super::{Call, Operation, State};
use crate::io::{Error, Result};

/// A [`Call`] whose errors are I/O errors.
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

/// An operation that may do only a part of what it is for.
pub trait Partial: Operation {
    /// What [`Whole`] yields.
    type Whole;

    /// Whether nothing is left to do, also before the first call.
    fn is_done(&self) -> bool;

    /// Takes the result of a call apart; what it moved is no longer to be moved.
    fn proceed(&mut self, output: Self::Output) -> CallResult;

    /// The end of it all.
    fn conclude(&mut self, result: Result<()>) -> Self::Whole;
}

/// Repeats an operation until all of it is done.
///
/// Not cancel-safe: a part may have been done.
#[must_use = "a call does nothing unless awaited"]
#[derive(Debug)]
pub struct Whole<O: Partial>(Call<O>);

impl<O: Partial> Whole<O> {
    /// All of `operation`.
    pub fn new(operation: O) -> Self {
        Self(Call::new(operation))
    }
}

impl<O: Partial> Future for Whole<O> {
    type Output = O::Whole;

    /// Ends with [`Error::UnexpectedEnd`] if a call moves nothing.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<O::Whole> {
        let call = &mut self.0;
        while !call.operation.is_done() {
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
