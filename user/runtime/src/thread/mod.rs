//! Threads, in the shape of `std::thread`: each has a stack of its own, a priority, and blocks
//! alone. [`sync`] has mutexes, condition variables and what else threads wait for.
//!
//! A program uses threads for code that blocks, and coroutines for everything else; both may be in
//! one process:
//!
//! | | coroutine | thread |
//! | --- | --- | --- |
//! | runs on | the virtual CPUs of [`alloc_cpu`](crate::task::alloc_cpu), which run the executor | itself: it is a virtual CPU without an executor |
//! | costs | its future and at most 40 bytes | a stack, a guard page, and a record in the kernel |
//! | a call that waits | suspends the coroutine | blocks this thread |
//! | waits for the other kind by | a channel of [`crate::sync`], or any future | [`block_on`] |
//! | is started by the other kind with | [`task::spawn`](crate::task::spawn) | [`spawn`] |
//!
//! A thread may call everything that is not a coroutine's: calls wait synchronously, wakers and
//! [`wake_up`](crate::task::wake_up) work, [`task::spawn`](crate::task::spawn) hands a coroutine to
//! the executor. The kernel schedules threads by their priorities, which are the 64 levels of
//! coroutines, limited by the ceiling of the process.
//!
//! ```ignore
//! use cops::task::{self, Priority};
//! use cops::thread;
//!
//! let thread = thread::spawn(|| {
//!     let sum = task::spawn_join(async { 2 + 2 }, Priority::DEFAULT);
//!     thread::block_on(sum)
//! });
//! let sum = thread.join();
//! ```
//!
//! # Panics and the end
//! A panic in any thread ends the process, as everywhere in this library: so [`JoinHandle::join`]
//! cannot fail, and no lock is ever poisoned. When `main` returns, the process ends with all its
//! threads, and nothing of them is dropped.
//!
//! # In coroutines
//! The functions here that wait ([`JoinHandle::join`], [`park`], [`sleep`], [`sync`]) block the
//! whole virtual CPU when a coroutine calls them: no other coroutine runs there meanwhile.
//! [`block_on`] panics there.
//!
//! The modules: `handle` names threads and parks them, `builder` starts and joins them, `scoped`
//! lets them borrow, `local` keeps values for each, `start` is their first and last instructions,
//! and `stack` their memory.

mod blocking;
mod builder;
mod handle;
mod local;
mod scoped;
mod stack;
mod start;
pub mod sync;

use crate::time::{Duration, Instant, Sleep};

pub use blocking::block_on;
pub use builder::{Builder, DEFAULT_STACK_BYTES, JoinHandle, MIN_STACK_BYTES, spawn};
pub use handle::{Thread, ThreadId, current, park, park_timeout};
pub use local::LocalKey;
pub use scoped::{Scope, ScopedJoinHandle, scope};
pub(crate) use start::{Local, begin};

/// Blocks the calling thread for at least `duration`.
pub fn sleep(duration: Duration) {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        if crate::call::wait(Sleep::until(end)).is_err() {
            // The kernel has no memory for a timer at the moment.
            yield_now();
        }
    }
}

/// Lets the kernel run another thread that is at least as urgent.
pub fn yield_now() {
    crate::system::yield_cpu();
}

/// Number of threads that can run at the same time: that of the machine's harts.
#[must_use]
pub fn available_parallelism() -> usize {
    crate::shared::system_page().harts.load(core::sync::atomic::Ordering::Relaxed).max(1) as usize
}
