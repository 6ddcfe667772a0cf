//! Asynchronous calls, all of them: an [`Operation`] says what the kernel is asked to do, [`Call`] is the
//! future that asks and waits, [`wait`] does the same synchronously. SPEC 3.9.
//!
//! The first poll enters the kernel with the id of the coroutine and a token that names a `slot`. Either the
//! operation completes at once; or the kernel keeps it as a kernel coroutine of the same priority, and its
//! result comes through the wake [`ring`] into the slot, which wakes whoever polled last.
//!
//! # Memory
//! While a call is in flight the kernel may write to the memory it was given, and Rust lets a future be
//! forgotten without being dropped, which ends the borrows in it. So an operation in flight lets the kernel
//! *write* only to memory that is not borrowed: the slot's scratch memory, or a heap block that the operation owns
//! and that a forgotten operation leaks. (The kernel *reads* borrowed memory: a forgotten write sends what it finds
//! there, which is wrong and yet harmless to memory.)
//!
//! # Dropping
//! A dropped call is cancelled: afterwards the kernel touches none of its memory. If it turns out to have completed,
//! its [`Operation::abandon`] keeps what would otherwise be lost: see [`leftover`].
//!
//! May touch: the kernel, by the raw call, and the memory of the operations.
#![allow(unsafe_code)]

mod in_flight;
pub mod leftover;
pub(crate) mod limit;
mod repeat;
pub mod ring;
mod slot;

use core::future::Future;
use core::mem;
use core::num::NonZeroU64;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};

use cops_abi::errno::{CallResult, decode};
use cops_abi::syscall::CallHandle;
use cops_abi::{CoroutineId, Errno};

pub(crate) use in_flight::set_priority_of;
pub use repeat::{Converted, Partial, Whole};
use slot::Lease;
pub use slot::{SCRATCH_BYTES, Scratch};

/// Number and arguments of a call.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// From `cops_abi::syscall`.
    pub number: usize,
    /// What they mean depends on the number.
    pub arguments: [usize; 6],
}

/// Where a call leaves its results beside the one in a register.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// The call is over before the operation is used again: it may write to memory that the operation borrows.
    Synchronous(*mut Scratch),
    /// The call may outlast every borrow: it writes to the scratch memory, or to what the operation owns.
    Asynchronous(*mut Scratch),
}

impl Mode {
    /// Memory for short results, valid until the call is over.
    pub fn scratch(self) -> *mut Scratch {
        match self {
            Mode::Synchronous(scratch) | Mode::Asynchronous(scratch) => scratch,
        }
    }
}

/// Something the kernel can be asked to do that may have to wait.
///
/// # Safety
/// The kernel may access the memory that [`request`](Self::request) names until the call is over. What it writes to
/// must be, in [`Mode::Asynchronous`], the scratch memory or memory that the operation owns outside of itself, which
/// is not freed when the operation is forgotten, nor accessed by it before `finish` or `abandon`. What it reads must
/// stay mapped as long as the operation is not dropped. An operation may be moved at any time.
pub unsafe trait Operation: Unpin {
    /// What the caller gets.
    type Output;

    /// The answer, if it is known without the kernel. Asked once, before anything else.
    fn shortcut(&mut self) -> Option<Self::Output> {
        None
    }

    /// What to ask. Asked again if the kernel could not take the call.
    fn request(&mut self, mode: Mode) -> Request;

    /// The call is over; makes the output of its result.
    fn finish(&mut self, result: CallResult, scratch: &Scratch) -> Self::Output;

    /// The call has succeeded, but the future was dropped: keeps what must not be lost.
    fn abandon(&mut self, value: usize, scratch: &Scratch) {
        let _ = (value, scratch);
    }
}

/// Performs `operation` while the whole virtual CPU waits. No other coroutine runs on it meanwhile.
pub fn wait<O: Operation>(mut operation: O) -> O::Output {
    wait_for(&mut operation)
}

fn wait_for<O: Operation>(operation: &mut O) -> O::Output {
    if let Some(output) = operation.shortcut() {
        return output;
    }
    let mut scratch = Scratch::default();
    let Request { number, arguments } = operation.request(Mode::Synchronous(&raw mut scratch));
    // SAFETY: `Operation` promises its memory; coroutine 0 makes the call synchronous, so the scratch outlives it.
    let (value, _) = unsafe { crate::arch::system_call(number, arguments, 0, 0) };
    operation.finish(decode(value), &scratch)
}

/// The future of an operation.
///
/// Does nothing before it is first polled. Polled outside of a coroutine, it waits synchronously. Dropping it
/// cancels the operation: see the documentation of whoever returns it for what that means there.
#[must_use = "a call does nothing unless awaited"]
#[derive(Debug)]
pub struct Call<O: Operation> {
    operation: O,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Not asked yet; in whose name, if not the polling coroutine's.
    New(Option<CoroutineId>),
    /// The kernel would not take it now.
    Queued(Lease, CoroutineId),
    InFlight(Lease, CallHandle, CoroutineId),
    Over,
}

impl<O: Operation> Call<O> {
    /// The operation as a future, in the name of the coroutine that polls it.
    pub fn new(operation: O) -> Self {
        Self { operation, state: State::New(None) }
    }

    /// The operation as a future, in the name of `coroutine`: the kernel's part inherits its priority.
    pub fn named(operation: O, coroutine: CoroutineId) -> Self {
        Self { operation, state: State::New(Some(coroutine)) }
    }

    /// The same, with the kernel's errors as I/O errors.
    pub fn converted<T>(self) -> Converted<O>
    where
        O: Operation<Output = Result<T, Errno>>,
    {
        Converted(self)
    }

    fn submit(&mut self, lease: Lease, coroutine: CoroutineId, waker: &Waker) -> Poll<O::Output> {
        let Request { number, arguments } =
            self.operation.request(Mode::Asynchronous(lease.scratch_pointer()));
        let inherited = in_flight::inherited();
        // Before the kernel hears of it: another worker may meet the result before this call returns.
        lease.arm(waker, coroutine.raw());
        limit::enter();
        in_flight::enter(coroutine);
        // SAFETY: `Operation` promises its memory and the lease that of the slot, both until the call is over.
        let (value, handle) =
            unsafe { crate::arch::system_call(number, arguments, coroutine.raw(), lease.token()) };
        if let Some(handle) = NonZeroU64::new(handle) {
            lease.set_handle(handle.get());
            in_flight::check_priority(coroutine, inherited, handle.get());
            self.state = State::InFlight(lease, CallHandle(handle), coroutine);
            return Poll::Pending;
        }
        lease.disarm();
        leave(coroutine);
        match decode(value) {
            Err(Errno::EAGAIN) => {
                limit::queue(&lease, waker);
                self.state = State::Queued(lease, coroutine);
                Poll::Pending
            }
            result => Poll::Ready(self.operation.finish(result, &lease.scratch())),
        }
    }
}

impl<O: Operation> Future for Call<O> {
    type Output = O::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<O::Output> {
        let call = &mut *self;
        let waker = context.waker();
        match mem::replace(&mut call.state, State::Over) {
            State::New(name) => {
                let Some(coroutine) = name.or_else(crate::task::current) else {
                    return Poll::Ready(wait_for(&mut call.operation));
                };
                if let Some(output) = call.operation.shortcut() {
                    return Poll::Ready(output);
                }
                let Some(lease) = slot::lease() else {
                    return Poll::Ready(call.operation.finish(Err(Errno::ENOMEM), &Scratch::default()));
                };
                call.submit(lease, coroutine, waker)
            }
            State::Queued(lease, coroutine) if lease.poll_granted(waker) => {
                call.submit(lease, coroutine, waker)
            }
            State::InFlight(lease, handle, coroutine) => match lease.poll(waker) {
                Some(result) => {
                    leave(coroutine);
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
            State::Over => panic!("a call was polled after it was over"),
        }
    }
}

impl<O: Operation> Drop for Call<O> {
    fn drop(&mut self) {
        match mem::replace(&mut self.state, State::Over) {
            State::New(_) | State::Over => {}
            State::Queued(lease, _) => {
                if lease.unqueue() {
                    limit::grant_next();
                }
            }
            State::InFlight(lease, handle, coroutine) => {
                if let Some(Ok(value)) = cancel(&lease, handle) {
                    self.operation.abandon(value, &lease.scratch());
                }
                leave(coroutine);
            }
        }
    }
}

/// A call of `coroutine` is over, whichever way.
fn leave(coroutine: CoroutineId) {
    in_flight::leave(coroutine);
    limit::leave();
}

/// Ends a call in flight: its result, if it had completed. Afterwards the kernel uses none of its memory.
fn cancel(lease: &Lease, handle: CallHandle) -> Option<CallResult> {
    if lease.result().is_none() && crate::system::cancel(handle) == crate::system::Cancelled::Gone {
        lease.disarm();
        return None;
    }
    loop {
        if let Some(result) = lease.result() {
            return Some(result);
        }
        // In the ring, behind it, or in the hands of another worker that lost its hart for a moment.
        ring::drain();
        if lease.result().is_none() {
            crate::system::yield_cpu();
        }
    }
}
