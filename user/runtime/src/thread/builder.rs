//! Starting threads and waiting for their end.
//!
//! May touch: the results of threads.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::convert::Infallible;
use core::fmt;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release},
};

use cops_abi::{Errno, Priority};

use super::handle::{Thread, current};
use super::scoped::Running;
use super::stack::Stack;
use super::{Local, local, start};
use crate::io::Result;
use crate::{heap, system, task, worker};

/// Size of a thread's stack, unless [`Builder::stack_size`] says otherwise. All of it is charged to
/// the process when the thread starts, and a page takes a frame when it is first used.
pub const DEFAULT_STACK_BYTES: usize = 64 * 1024;

/// The smallest stack. Formatting text takes about half of it.
pub const MIN_STACK_BYTES: usize = 8 * 1024;

/// Where a thread leaves its result.
pub(super) struct Packet<T> {
    /// 1 when the result is there.
    is_done: AtomicU32,
    result: UnsafeCell<Option<T>>,
}

// SAFETY: the thread writes the result before it sets `is_done`; the handle, of which there is one,
// reads it afterwards.
unsafe impl<T: Send> Sync for Packet<T> {}

impl<T> Packet<T> {
    fn finish(&self, result: T) {
        // SAFETY: called once, by the thread, and nothing reads it before the store below.
        unsafe { *self.result.get() = Some(result) };
        self.is_done.store(1, Release);
        system::futex_wake(&self.is_done, u32::MAX >> 1);
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done.load(Acquire) != 0
    }

    /// Waits for the result; called by the only handle, which ends with this.
    pub(super) fn wait(&self) -> T {
        while !self.is_done() {
            let _ = system::futex_wait(&self.is_done, 0, None);
        }
        // SAFETY: the thread has written it and does not access it again.
        match unsafe { (*self.result.get()).take() } {
            Some(result) => result,
            None => crate::fatal(format_args!("a thread has no result")),
        }
    }
}

/// What a new thread is to be.
///
/// ```ignore
/// use cops::task::Priority;
/// use cops::thread::Builder;
///
/// let thread = Builder::new()
///     .name("sampler".into())
///     .stack_size(16 * 1024)
///     .priority(Priority::saturating(8))
///     .spawn(|| sample())?;
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing before `spawn`"]
pub struct Builder {
    name: Option<String>,
    stack_bytes: usize,
    priority: Option<Priority>,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// A thread without a name, with a stack of [`DEFAULT_STACK_BYTES`] and the priority of its
    /// creator: the coroutine or thread that starts it.
    pub fn new() -> Self {
        Self { name: None, stack_bytes: DEFAULT_STACK_BYTES, priority: None }
    }

    /// Its name.
    pub fn name(mut self, name: String) -> Self {
        self.name = Some(name);
        self
    }

    /// The size of its stack, which is rounded up to pages and at least [`MIN_STACK_BYTES`]. An
    /// access to the page below it ends the process by `SIGSEGV`.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_bytes = bytes;
        self
    }

    /// Its priority.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Starts a thread that calls `act`. Dropping the handle detaches the thread.
    ///
    /// # Errors
    /// `ENOMEM` if there is no memory for it, or the quota of the process for memory is used up.
    /// `EAGAIN` at the quota for virtual CPUs, or if the process has 4,096 threads; a thread counts
    /// until its hart has left it, which is soon after [`JoinHandle::join`] returns. `act` has been
    /// dropped.
    pub fn spawn<F, T>(self, act: F) -> Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: nothing that the thread accesses is borrowed.
        let (thread, packet) = unsafe { self.start(act, None) }?;
        Ok(JoinHandle { thread, packet })
    }

    /// Starts a thread that calls `act` and then tells `running` that it has ended.
    ///
    /// # Safety
    /// `running`, and what `act` and its result borrow, live until the thread has told `running`;
    /// forever if that is `None`.
    pub(super) unsafe fn start<'scope, F, T>(
        self,
        act: F,
        running: Option<&'scope Running>,
    ) -> Result<(Thread, Arc<Packet<T>>)>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let inherited = match task::current() {
            Some(_) => task::current_priority(),
            // Not by a handle, which a virtual CPU may have no memory to make.
            None => worker::current_local().map_or(Priority::DEFAULT, Local::priority),
        };
        let thread = Thread::try_new(self.name, self.priority.unwrap_or(inherited));
        let thread = thread.ok_or(Errno::ENOMEM)?;
        let is_done = AtomicU32::new(0);
        let packet = heap::try_arc(Packet { is_done, result: UnsafeCell::new(None) });
        let packet = packet.ok_or(Errno::ENOMEM)?;
        let ours = packet.clone();
        let asked = self.priority;
        let entry = heap::try_box(move || {
            if let Some(priority) = asked {
                // Before anything else, so that no call of it is made with another priority.
                let _ = current().set_priority(priority);
            }
            let result = act();
            local::drop_all();
            packet.finish(result);
            // If there is no handle any more, this drops the result, which may borrow.
            drop(packet);
            if let Some(running) = running {
                running.end();
            }
        });
        let entry: Box<dyn FnOnce() + Send + 'scope> = entry.ok_or(Errno::ENOMEM)?;
        // SAFETY: only the lifetime changes; by this function's contract, everything lives until
        // the thread no longer uses it.
        let entry = unsafe {
            core::mem::transmute::<Box<dyn FnOnce() + Send + 'scope>, Box<dyn FnOnce() + Send>>(
                entry,
            )
        };
        let stack = Stack::new(self.stack_bytes.max(MIN_STACK_BYTES)).ok_or(Errno::ENOMEM)?;
        start::start(stack, thread.clone(), entry)?;
        if let Some(priority) = asked
            && priority.is_more_urgent_than(inherited)
        {
            // It does not wait for a hart with its creator's priority. Fails if it has ended.
            let _ = thread.set_priority(priority);
        }
        Ok((thread, ours))
    }
}

/// Starts a thread that calls `act`, with the properties of [`Builder::new`].
///
/// # Panics
/// If there is no memory for it or no virtual CPU left; see [`Builder::spawn`].
pub fn spawn<F, T>(act: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match Builder::new().spawn(act) {
        Ok(handle) => handle,
        Err(error) => panic!("thread: {error}"),
    }
}

/// A thread's result. Dropping it detaches the thread.
#[must_use = "dropping the handle detaches the thread"]
pub struct JoinHandle<T> {
    thread: Thread,
    packet: Arc<Packet<T>>,
}

impl<T> JoinHandle<T> {
    /// Waits for the result. Blocks the calling thread; in a coroutine, the whole virtual CPU.
    ///
    /// # Errors
    /// None: a panic ends the process. It is a `Result` so that programs read as with `std`, and
    /// `let Ok(value) = handle.join();` is complete.
    pub fn join(self) -> core::result::Result<T, Infallible> {
        Ok(self.packet.wait())
    }

    /// Whether the result is there, so that [`join`](Self::join) does not block.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.packet.is_done()
    }

    /// The thread.
    #[must_use]
    pub fn thread(&self) -> &Thread {
        &self.thread
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("JoinHandle").field(&self.thread).finish()
    }
}
