//! The first and last instructions of a thread, and what the thread pointer refers to.
//!
//! May touch: the thread pointer's target, the top of new stacks.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::string::ToString;
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use cops_abi::errno::decode;
use cops_abi::syscall::clone_flags;
use cops_abi::{Errno, Priority};
use cops_executor::NO_CURRENT_WORKER;

use super::handle::Thread;
use super::local::{self, Values};
use super::stack::{self, Stack};
use crate::{arch, system, worker};

/// What belongs to a thread or a virtual CPU, and is found through its thread pointer. That of a
/// thread is at the top of its stack.
#[repr(C, align(16))]
pub(crate) struct Local {
    /// The executor's word for the worker that this is. The first field: the hottest. That of a
    /// thread changes while a virtual CPU runs coroutines for it: see `runner::seats`.
    worker: AtomicU32,
    /// The kernel's id of the thread while it runs, 0 when its stack is no longer in use. Written
    /// by the kernel.
    running: AtomicU32,
    /// Made at the first use on a virtual CPU; accessed only by the thread itself once it runs.
    thread: UnsafeCell<Option<Thread>>,
    /// What a new thread does; taken by it.
    entry: UnsafeCell<Option<Box<dyn FnOnce() + Send>>>,
    /// The stack that this lies on; taken by the thread when it ends.
    stack: UnsafeCell<Option<Stack>>,
    /// Accessed only by the thread itself.
    pub(super) values: Values,
}

// SAFETY: `running` and `worker` are atomic. The other fields are accessed by one thread at a time:
// its starter before it runs, then itself, or the virtual CPU that runs coroutines for it while it
// waits for that.
unsafe impl Sync for Local {}

impl Local {
    /// That of a virtual CPU.
    pub(crate) const fn of_worker(worker: u32) -> Self {
        Self {
            worker: AtomicU32::new(worker),
            running: AtomicU32::new(0),
            thread: UnsafeCell::new(None),
            entry: UnsafeCell::new(None),
            stack: UnsafeCell::new(None),
            values: Values::new(),
        }
    }

    /// The executor's word.
    #[inline(always)]
    pub(crate) fn worker(&self) -> u32 {
        self.worker.load(Relaxed)
    }

    /// The kernel's id of the thread, which runs.
    #[inline]
    pub(crate) fn id(&self) -> u32 {
        self.running.load(Relaxed)
    }

    /// Sets the executor's word.
    pub(crate) fn set_worker(&self, worker: u32) {
        self.worker.store(worker, Relaxed);
    }

    /// Whether the thread has ended and left its stack.
    pub(super) fn has_ended(&self) -> bool {
        self.running.load(Acquire) == 0
    }

    /// The priority of the thread, which is the calling one. Makes no handle.
    pub(super) fn priority(&self) -> Priority {
        // SAFETY: only the thread itself accesses this field once it runs, and the reference ends
        // here.
        let thread = unsafe { &*self.thread.get() };
        thread.as_ref().map_or(Priority::DEFAULT, Thread::priority)
    }

    /// The handle of the thread, which is the calling one.
    pub(super) fn thread(&self) -> Thread {
        // SAFETY: only the thread itself accesses this field once it runs, and this function
        // neither calls itself nor keeps the reference.
        let thread = unsafe { &mut *self.thread.get() };
        if let Some(thread) = thread {
            return thread.clone();
        }
        let name = (self.worker() as u8 == 0).then(|| "main".to_string());
        thread.insert(Thread::new(name, Priority::DEFAULT)).clone()
    }
}

/// Starts a thread that does `entry` on `stack`. With an error, `entry` has been dropped.
pub(super) fn start(
    stack: Stack,
    thread: Thread,
    entry: Box<dyn FnOnce() + Send>,
) -> Result<(), Errno> {
    const FLAGS: usize = clone_flags::THREAD_SHARES
        | clone_flags::SET_TLS
        | clone_flags::CHILD_SET_TID
        | clone_flags::CHILD_CLEAR_TID;
    let named = thread.clone();
    let place = stack.local();
    let local = Local {
        thread: UnsafeCell::new(Some(thread)),
        entry: UnsafeCell::new(Some(entry)),
        ..Local::of_worker(NO_CURRENT_WORKER)
    };
    // SAFETY: the place is inside the stack's memory, which is mapped, and no thread uses it.
    unsafe { place.write(local) };
    // SAFETY: as above; no other reference exists.
    let number = unsafe { &raw const (*place.as_ptr()).running };
    let (top, number) = (place.as_ptr().expose_provenance(), number.expose_provenance());
    // SAFETY: as above. From here on, the stack is that of the thread, which finds it here.
    unsafe { *(*place.as_ptr()).stack.get() = Some(stack) };
    // SAFETY: the stack ends below the value at its top, which is aligned to 16 bytes and stays
    // there until `running` is 0: see `stack`.
    match decode(unsafe { arch::start_thread(FLAGS, top, top, number) }) {
        Ok(id) => {
            // The thread stores the same, so that it does not matter which is first.
            named.0.number.store(id as u32, Release);
            Ok(())
        }
        Err(error) => {
            // SAFETY: there is no thread, so the value is this function's alone.
            let mut local = unsafe { place.read() };
            if let Some(stack) = local.stack.get_mut().take() {
                stack.recycle();
            }
            Err(error)
        }
    }
}

/// A new thread begins here, with its thread pointer set.
pub(crate) extern "C" fn begin() -> ! {
    let Some(local) = worker::current_local() else {
        crate::fatal(format_args!("a thread has no thread pointer"));
    };
    local.thread().0.number.store(local.id(), Release);
    // SAFETY: only this thread accesses the field.
    let entry = unsafe { (*local.entry.get()).take() };
    if let Some(entry) = entry {
        entry();
    }
    // `entry` has dropped the result if there is no handle; that may have made values.
    local::drop_all();
    // SAFETY: as above, for both fields.
    let (thread, stack) = unsafe { ((*local.thread.get()).take(), (*local.stack.get()).take()) };
    drop(thread);
    if let Some(stack) = stack {
        stack::retire(stack);
    }
    system::exit_thread()
}
