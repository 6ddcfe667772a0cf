//! Asynchronous calls. An [`Operation`] defines the request, [`Call`] is the future that makes it
//! and waits, and [`wait`] does the same synchronously. SPEC 3.9.
//!
//! The first poll enters the kernel with the id of the coroutine and a token that identifies a
//! `slot`. Either the operation completes at once; or the kernel keeps it as a kernel coroutine of
//! the same priority, and its result comes through the wake [`ring`] into the slot, which wakes the
//! waker of the last poll.
//!
//! # Memory
//! While a call is in flight, the kernel may write to the memory it was given. Rust allows a future
//! to be forgotten without being dropped, which ends the borrows in it. So an operation in flight
//! lets the kernel *write* only to memory that is not borrowed: the slot's scratch memory, or a
//! heap block that the operation owns and that leaks if the operation is forgotten. (The kernel
//! *reads* borrowed memory: a forgotten write sends whatever is there, which is wrong but
//! memory-safe.)
//!
//! # Dropping
//! A dropped call is cancelled: afterwards the kernel accesses none of its memory. If it turns out
//! to have completed, [`Operation::abandon`] or [`Operation::abandon_error`] keeps what would
//! otherwise be lost: see [`leftover`].
//!
//! May touch: the kernel, by the raw call, and the memory of the operations.
#![allow(unsafe_code)]

mod counted;
mod in_flight;
pub mod leftover;
pub(crate) mod limit;
mod repeat;
pub mod ring;
mod slot;
pub mod standing;

use core::future::Future;
use core::mem;
use core::num::NonZeroU64;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use cops_abi::errno::{CallResult, decode};
use cops_abi::syscall::CallHandle;
use cops_abi::{CoroutineId, Errno};

pub(crate) use in_flight::{install, renew_priority_of};
pub use repeat::{Converted, Partial, Whole};
use slot::Lease;
pub use slot::{SCRATCH_BYTES, Scratch};

/// Number and arguments of a call.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// One of the numbers in `cops_abi::syscall`.
    pub number: usize,
    /// Their meaning depends on the number.
    pub arguments: [usize; 6],
}

/// How a call is made, and where it stores results besides the one in a register.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// The call ends before the operation is used again, so it may write to memory that the
    /// operation borrows.
    Synchronous(*mut Scratch),
    /// The call may outlast every borrow: it may write only to the scratch memory or to memory that
    /// the operation owns.
    Asynchronous(*mut Scratch),
}

impl Mode {
    /// Memory for short results, valid until the call ends.
    pub fn scratch(self) -> *mut Scratch {
        match self {
            Mode::Synchronous(scratch) | Mode::Asynchronous(scratch) => scratch,
        }
    }
}

/// A request to the kernel that may have to wait.
///
/// # Safety
/// The kernel may access the memory that [`request`](Self::request) names until the call ends.
///
/// - In [`Mode::Asynchronous`], the memory that it writes to must be the scratch memory, or memory
///   that the operation owns outside of itself. That memory must not be freed when the operation is
///   forgotten, and the operation must not access it before `finish` or `abandon`.
/// - The memory that it reads must stay mapped until the operation is dropped.
///
/// An operation may be moved at any time.
pub unsafe trait Operation: Unpin {
    /// The result for the caller.
    type Output;

    /// The result, if there is one without a call that may wait. Called once, before anything else.
    fn shortcut(&mut self) -> Option<Self::Output> {
        None
    }

    /// The system call to make. Called again if the kernel could not take the call.
    fn request(&mut self, mode: Mode) -> Request;

    /// The call has completed; makes the output from its result.
    fn finish(&mut self, result: CallResult, scratch: &Scratch) -> Self::Output;

    /// The call has succeeded, but the future was dropped: keeps what must not be lost.
    fn abandon(&mut self, value: usize, scratch: &Scratch) {
        let _ = (value, scratch);
    }

    /// The call has failed, but the future was dropped: keeps the error, if the kernel would not
    /// report it again.
    fn abandon_error(&mut self, error: Errno) {
        let _ = error;
    }
}

/// Performs `operation` synchronously: the virtual CPU waits, and no other coroutine runs on it
/// meanwhile.
pub fn wait<O: Operation>(mut operation: O) -> O::Output {
    wait_for(&mut operation)
}

fn wait_for<O: Operation>(operation: &mut O) -> O::Output {
    if let Some(output) = operation.shortcut() {
        return output;
    }
    let mut scratch = Scratch::default();
    let Request { number, arguments } = operation.request(Mode::Synchronous(&raw mut scratch));
    // SAFETY: `Operation` guarantees that its memory is valid for the call. Coroutine 0 makes the
    // call synchronous, so it ends before `scratch` is dropped.
    let (value, _) = unsafe { crate::arch::system_call(number, arguments, 0, 0) };
    operation.finish(decode(value), &scratch)
}

/// The future of an operation.
///
/// Does nothing before it is first polled. Polled outside of a coroutine, it waits synchronously.
/// Dropping it cancels the operation; the function that returns it documents what that means.
#[must_use = "a call does nothing unless awaited"]
#[derive(Debug)]
pub struct Call<O: Operation> {
    operation: O,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not submitted yet. Contains the coroutine for which to submit it, if not the polling one.
    New(Option<CoroutineId>),
    /// Not submitted yet: something more urgent came first. Only in [`Whole`], for the polling one.
    Yielded,
    /// The kernel rejected it because too many calls are in flight.
    Queued(Lease, CoroutineId),
    InFlight(Lease, CallHandle, CoroutineId),
    Over,
}

impl<O: Operation> Call<O> {
    /// The operation as a future, made for the coroutine that polls it.
    pub fn new(operation: O) -> Self {
        Self { operation, state: State::New(None) }
    }

    /// The operation as a future, made for `coroutine`: the kernel's part inherits its priority.
    pub fn named(operation: O, coroutine: CoroutineId) -> Self {
        Self { operation, state: State::New(Some(coroutine)) }
    }

    /// The same future with the kernel's errors converted to I/O errors.
    pub fn converted<T>(self) -> Converted<O>
    where
        O: Operation<Output = Result<T, Errno>>,
    {
        Converted(self)
    }

    /// `had_turn`: the kernel has rejected it before.
    fn submit(
        &mut self,
        lease: Lease,
        coroutine: CoroutineId,
        waker: &Waker,
        had_turn: bool,
    ) -> Poll<O::Output> {
        let Request { number, arguments } =
            self.operation.request(Mode::Asynchronous(lease.scratch_pointer()));
        // Before the system call, because another worker may get the result before this call
        // returns.
        lease.arm(coroutine.raw());
        limit::begin();
        let inherited = in_flight::begin(coroutine, &lease);
        // SAFETY: `Operation` guarantees the validity of its memory, and the lease that of the
        // slot, both until the call ends.
        let (value, handle) =
            unsafe { crate::arch::system_call(number, arguments, coroutine.raw(), lease.token()) };
        if let Some(handle) = NonZeroU64::new(handle) {
            lease.set_handle(handle.get());
            lease.register(waker);
            in_flight::check_priority(coroutine, inherited, handle.get());
            self.state = State::InFlight(lease, CallHandle(handle), coroutine);
            return Poll::Pending;
        }
        lease.disarm();
        match decode(value) {
            Err(Errno::EAGAIN) => {
                in_flight::end(coroutine, &lease);
                limit::queue(&lease, waker, had_turn);
                self.state = State::Queued(lease, coroutine);
                Poll::Pending
            }
            result => {
                end(coroutine, &lease);
                Poll::Ready(self.operation.finish(result, &lease.scratch()))
            }
        }
    }
}

impl<O: Operation> Future for Call<O> {
    type Output = O::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<O::Output> {
        let call = &mut *self;
        let waker = context.waker();
        match mem::replace(&mut call.state, State::Over) {
            state @ (State::New(_) | State::Yielded) => {
                let name = if let State::New(name) = state { name } else { None };
                let Some(coroutine) = name.or_else(crate::task::current) else {
                    return Poll::Ready(wait_for(&mut call.operation));
                };
                if let Some(output) = call.operation.shortcut() {
                    return Poll::Ready(output);
                }
                let Some(lease) = slot::lease() else {
                    return Poll::Ready(
                        call.operation.finish(Err(Errno::ENOMEM), &Scratch::default()),
                    );
                };
                call.submit(lease, coroutine, waker, false)
            }
            State::Queued(lease, coroutine) if lease.poll_granted(waker) => {
                call.submit(lease, coroutine, waker, true)
            }
            State::InFlight(lease, handle, coroutine) => match lease.poll(waker) {
                Some(result) => {
                    end(coroutine, &lease);
                    Poll::Ready(call.operation.finish(result, &lease.scratch()))
                }
                None => {
                    call.state = State::InFlight(lease, handle, coroutine);
                    Poll::Pending
                }
            },
            waiting @ State::Queued(..) => {
                call.state = waiting;
                Poll::Pending
            }
            State::Over => panic!("a call was polled after it had completed"),
        }
    }
}

impl<O: Operation> Drop for Call<O> {
    fn drop(&mut self) {
        match mem::replace(&mut self.state, State::Over) {
            State::New(_) | State::Yielded | State::Over => {}
            State::Queued(lease, _) => limit::give_up(&lease),
            State::InFlight(lease, handle, coroutine) => {
                match cancel(&lease, handle) {
                    Some(Ok(value)) => self.operation.abandon(value, &lease.scratch()),
                    Some(Err(error)) => self.operation.abandon_error(error),
                    None => {}
                }
                end(coroutine, &lease);
            }
        }
    }
}

/// A call of `coroutine` has ended: completed or cancelled.
fn end(coroutine: CoroutineId, lease: &Lease) {
    in_flight::end(coroutine, lease);
    limit::end();
}

/// Cancels a call in flight. Returns its result if it had completed. Afterwards the kernel uses
/// none of its memory.
fn cancel(lease: &Lease, handle: CallHandle) -> Option<CallResult> {
    if lease.result().is_none() && crate::system::cancel(handle) == crate::system::Cancelled::Gone {
        lease.disarm();
        return None;
    }
    Some(arrived(lease))
}

/// The result of a call that has completed.
fn arrived(lease: &Lease) -> CallResult {
    const YIELDS_BEFORE_BACK_OFF: u32 = 3;
    let mut yields = 0;
    loop {
        if let Some(result) = lease.result() {
            return result;
        }
        // The result is in the ring, waits in the kernel, or is being delivered by another worker
        // that was preempted.
        ring::drain();
        if lease.result().is_none() {
            crate::system::yield_cpu();
            yields += 1;
            if yields > YIELDS_BEFORE_BACK_OFF {
                // That worker may be less urgent than this one, which then continues at once.
                crate::system::wait_for_any_holder();
            }
        }
    }
}
