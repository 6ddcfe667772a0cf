//! A `no_std` executor for stackless coroutines with 64 priorities: find-first-set, pop, poll.
//!
//! A coroutine is a future with an id and a [`Priority`]. Each worker (a thread, a hart, a virtual
//! CPU) keeps one FIFO list for each priority, and a bitmap of the lists that are not empty.
//! Picking what to run is finding the lowest bit and taking the head of that list, whatever the
//! number of coroutines. Waking is one atomic update and one push into a lock-free inbox: it takes
//! no lock and no memory, so an interrupt handler may do it.
//!
//! ```
//! use cops_executor::{JoinError, Priority, block_on, spawn_at, yield_now};
//!
//! block_on(async {
//!     let background = async {
//!         let mut steps = 0;
//!         while steps < 1_000 {
//!             steps += 1;
//!             yield_now().await;
//!         }
//!         steps
//!     };
//!     let background = spawn_at(background, Priority::LEAST_URGENT);
//!     let urgent = spawn_at(async { "first" }, Priority::MOST_URGENT);
//!     assert_eq!(urgent.await?, "first");
//!     assert!(!background.is_finished());
//!     assert_eq!(background.await?, 1_000);
//!     Ok::<(), JoinError>(())
//! })?;
//! # Ok::<(), JoinError>(())
//! ```
//!
//! # Where to begin
//!
//! | you have | you take |
//! | --- | --- |
//! | a program of one thread, or futures that are not `Send` | [`block_on`], or [`LocalRuntime`] |
//! | a program with several threads | [`Runtime`], and its [`Handle`] for other threads |
//! | either | [`spawn`] (the caller's priority), [`spawn_at`], [`spawn_local`], [`JoinSet`], [`sleep`], [`timeout`], [`yield_now`](yield_now()) |
//! | values to pass, or something to share | [`sync::channel()`] (bounded, several senders), [`sync::oneshot()`], [`sync::Mutex`], [`sync::Semaphore`], [`sync::Event`] |
//! | threads of your own that shall be workers, in a program with `std` | [`Executor`] in a static, [`start_on_host`](Executor::start_on_host) |
//! | firmware without an allocator | [`Executor`], [`StaticTask`], [`StaticMemory`], [`time::Timers`] |
//! | a kernel | [`Executor`], [`Hooks`], [`WorkerState`] |
//!
//! # Modules and features
//!
//! Each module may use those before it, and no other (`tests/rooms.rs`).
//!
//! | | |
//! | --- | --- |
//! | [`core`] | the scheduler. It knows no types, has no statics and cannot panic: it is what COPS links into the image that its kernel and its processes share |
//! | `image` | for COPS: a core in such an image, found by name and called through a table |
//! | `front` | what is compiled into each program: generic spawn, join handles, wakers, the registry that finds an executor by an id. All of it is at the root of this documentation |
//! | [`sync`] | mutex with inheritance, semaphore, event, channels |
//! | [`time`] | sleeping and time limits by a clock of the program's choice |
//! | `host` | threads as workers, the reactor, the host's clock. At the root too |
//!
//! | feature | what it adds |
//! | --- | --- |
//! | (none) | the core, ids, priorities, [`WorkerState`] |
//! | `static-tasks` | the front without an allocator: coroutines live in statics |
//! | `alloc`, `front` | all of the front, over a core that is linked |
//! | `image` | all of the front, over a core in an image |
//! | `exports` | the list of the core's functions, for what builds an image |
//! | `std` (default) | the front on a host: workers are threads (`Runtime`), and a panic ends one coroutine |
//! | `reactor` | on a host: idle workers drive the reactor of `async-io`, so its sockets and timers work |
//!
//! Without `std` the program identifies the current worker by a function that the linker finds, and
//! supplies memory and notification by [`Hooks`]:
//!
//! ```text
//! #[unsafe(no_mangle)]
//! extern "C" fn _cops_executor_current_worker() -> u32 {
//!     cops_executor::encode_current_worker(0, this_hart())
//! }
//! ```
//!
//! It must name the right worker inside interrupt handlers too: the wake of a coroutine by itself
//! is noted at its worker without an atomic update.
//!
//! Without an allocator, [`StaticTask`] is where coroutines live, and [`StaticMemory`] what the
//! executor itself needs. The repository has programs for a bare RV32IMAC machine, with timers, in
//! `crates/executor/firmware`.
//!
//! # 32-bit machines
//!
//! - **64-bit atomics** come from the crate `portable-atomic` where the machine has none. How they
//!   are made is for the program to say, in its own `Cargo.toml`; if it says nothing, this crate
//!   does not compile:
//!
//!   ```toml
//!   # One hart or core in machine mode: they are made by disabling interrupts.
//!   portable-atomic = { version = "1.15", features = ["unsafe-assume-single-core"] }
//!   # Several: by a lock, with interrupts disabled.
//!   portable-atomic = { version = "1.15", features = ["unsafe-assume-privileged"] }
//!   ```
//!
//!   With its feature `fallback` alone, they are made by locks that an interrupt handler may find
//!   held by the code that it interrupts: then nothing may be woken in interrupt handlers.
//! - **Numbers**: four executors (256 with `std`), each of up to 4,095 coroutines at once; memory
//!   is taken for 16 of them at a time. A coroutine is 32 bytes beside its future.
//! - **A slot serves 1,048,575 coroutines**, then it is retired, so that no waker, however old,
//!   reaches a stranger ([`CoroutineId`]). So what is spawned over and over uses up 32 bytes for
//!   each million, and the executor ends after 4 billion. A coroutine that loops costs nothing of
//!   this kind.
//!
//! # Guarantees
//!
//! - **Wakes.** A wake that happens after a poll has begun leads to another poll. Waking is
//!   idempotent. Waking, cancelling or changing a coroutine that has exited does nothing, even when
//!   the slot is used by another one. What the waker wrote before, the poll sees.
//! - **Polls.** One worker at a time, never after the future has finished, never after it was
//!   dropped. The future is dropped exactly once, by a worker.
//! - **Order on one worker.** The coroutine polled next is always one of the most urgent that are
//!   ready, and among those the one that became ready first. One that yields comes after all that
//!   became ready before or during its poll. (Checked against a model with random histories:
//!   `tests/model.rs`.)
//! - **Idle workers.** A parked worker is woken for what becomes ready, at once or, if it was woken
//!   in vain just before, within a millisecond; also while the worker that made it ready is in a
//!   long poll. Once awake it takes the most urgent of what waits anywhere. (On a host; other
//!   hosts: [`Executor::set_quiet`], [`Executor::rely_on_offers`] and [`Hooks::preempt`].
//!   `tests/idle.rs`, `tests/loom_idle.rs`.)
//! - **Cost.** All of it O(1) in the number of coroutines; O(workers) at a scheduling point. 40
//!   bytes a coroutine beside its future.
//! - **Memory.** A slot (those 40 bytes) that a coroutine has left is used again by the next one on
//!   any worker, and is never freed, because a waker may refer to it for ever. So an executor holds
//!   slots for the most coroutines that were alive at the same time, rounded up to 256: 4 MB after
//!   a peak of 100,000 ([`core::memory_for`], `tests/slots.rs`). Where a lock stays held for 200
//!   looks, a spawn takes a new slot rather than wait. The futures themselves are freed; with `std`
//!   up to 64 MiB of each size are kept for coroutines to come.
//!
//! # Contexts
//!
//! Unless its documentation says otherwise, a function may be called on any thread or hart, in
//! coroutines and outside of them, but not in interrupt handlers. Kernel and user mode make no
//! difference: only the program's [`Hooks`] and `park` make system calls and, with `std`, threads
//! that go to sleep.
//!
//! | | in a coroutine | outside of one | in an interrupt handler |
//! | --- | --- | --- | --- |
//! | wakers, `wake_up`, `cancel`, `set_priority`, `AbortHandle::abort` | yes | yes | yes |
//! | looking: `current`, `priority`, `base_priority`, `live_count`, `inspect`, `coroutines`, `most_urgent`, `waiting` | yes | yes | yes |
//! | `Event::set`, `Semaphore::add_permits`, `Mutex::try_lock`, `Timers::fire_due`, `set_aging` | yes | yes | yes |
//! | `spawn_static`, `spawn_raw`, `request_stop` | yes | yes | if its hook (`grow`, `notify`) may be |
//! | other spawns, dropping a `MutexGuard`, all else of `sync` and `time` | yes | yes | no |
//! | awaiting | yes | under `block_on` or any other executor | no |
//! | `run` and its kin, `block_on`, `prepare_park` | not of the same worker: refused, or a panic | one thread or hart for each worker | no |
//!
//! A signal handler counts as an interrupt handler where `std` parks threads without a lock: Linux,
//! Android, FreeBSD, OpenBSD, Windows. There a wake makes at most one system call, which does not
//! block, and takes no lock (`tests/signals.rs`). As any call in a handler it may change `errno`.
//!
//! # Cancelling
//!
//! A coroutine that is cancelled, by [`cancel`] or a handle, is not polled again: its future is
//! dropped by a worker, at the end of the poll under way if there is one. All futures of this crate
//! may be dropped at any time, which is what `select`, a time limit, or cancelling does to them.
//! What happens then:
//!
//! | future | dropped before it was ready |
//! | --- | --- |
//! | [`JoinHandle`] | the coroutine runs on, detached; by reference nothing is lost |
//! | [`AbortOnDrop`] | the coroutine is cancelled |
//! | [`JoinSet::join_next`] | nothing was taken; dropping the set itself cancels its members |
//! | [`JoinSet::shutdown`] | the members are cancelled, and some may not be dropped yet |
//! | [`yield_now()`] | nothing |
//! | [`Mutex::lock`](sync::Mutex::lock) | the place is given up, what was lent to the holder ends; if the lock was granted, the next has it |
//! | [`Semaphore::acquire`](sync::Semaphore::acquire) | the place is given up, granted permits go to the next |
//! | [`Event::wait`](sync::Event::wait) | nothing |
//! | [`Sender::send`](sync::Sender::send) | nothing was sent; the value is dropped |
//! | [`Receiver::receive`](sync::Receiver::receive), [`OneshotReceiver::receive`](sync::OneshotReceiver::receive) | nothing was taken |
//! | [`Rendezvous::wait_on`](sync::Rendezvous::wait_on) | a signal that was granted goes to the next, or is remembered |
//! | [`Sleep`](time::Sleep), [`Interval::tick`](time::Interval::tick) | the deadline is forgotten; a tick is not lost |
//! | [`timeout`], [`Timers::timeout`](time::Timers::timeout) | its future is dropped |
//!
//! # Proposition: priorities with several workers
//!
//! Let coroutine U, of priority p, be announced: made ready, and the call that did it has returned.
//! *No worker that reaches a scheduling point after that begins a poll less urgent than p before
//! U's poll begins*, unless U has been taken by a worker that has not begun to poll it yet. Hence
//! at most one less urgent poll begins on each worker after the announcement, the one that it had
//! picked already.
//!
//! *Why.* A coroutine that is ready is in one inbox or one list of one worker V. Its level is
//! marked in V's record: in `posted` while it is in the inbox (the mark is set before the
//! announcement ends, and is cleared only when the inbox is emptied), in `ready` while it waits in
//! the list, and on its way from one to the other in `ready` before it goes from `posted`
//! ([`WorkerState::waiting`]). At a scheduling point a worker drains its own inbox and looks at the
//! marks of all others. If V is itself, it begins the most urgent of its lists, which is at least
//! as urgent as U. If V is another and publishes something more urgent than the worker has, it
//! takes V's lock, drains V's inbox, and takes the most urgent there, if that is as urgent as what
//! was published; otherwise it looks again. If V's lock is held, a thread is at a scheduling point
//! there and takes the most urgent; the worker looks again rather than run something less urgent.
//! (The fast path between two polls is taken only while none of this would find anything: it ends
//! as soon as one of the marks that it looks at says otherwise.)
//!
//! *Limits.* Looking again ends after 200 times: if the host suspends a worker under the lock (some
//! tens of instructions), the others go on with what they have, and count that in
//! [`WorkerState::skipped_steals`]. When an idle worker takes half of what waits at another, a
//! third that looks at the first before and at the second after sees neither; it may run one less
//! urgent coroutine for each such transfer. And a long poll is a long poll:
//! [`Executor::most_urgent`] and the hook `preempt` are for ending it early.
//!
//! `tests/storm` has each less urgent poll look whether an announced one still waits, and asserts
//! the bound exactly, with these limits; `tests/notify.rs` fixes which worker steals what;
//! `tests/simulator` has several workers take turns in virtual time and asserts the bound at each
//! of some hundred thousand polls.
//!
//! # Peers and starvation
//!
//! Peers are coroutines of the same priority. Each worker serves its peers round-robin. Between
//! workers only stealing keeps the balance: a worker with nothing ready takes half of what waits at
//! another, and a worker takes what is more urgent than its own. No worker steals a peer of what it
//! has. So a worker that always has something more urgent does not serve its less urgent
//! coroutines, and if the other workers always have some of their own, these wait, although their
//! peers elsewhere run.
//!
//! Strict priorities starve less urgent coroutines as long as there is enough more urgent work;
//! that is their purpose. [`Executor::set_aging`] gives every waiting level a share: of every so
//! many polls *of each worker* one goes to a less urgent level of that worker. It cures both.
#![no_std]
#![warn(missing_docs)]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(any(feature = "std", test, cops_perturb))]
extern crate std;

pub mod core;
#[cfg(all(test, not(feature = "image")))]
#[allow(dead_code)]
#[path = "image/elf.rs"]
mod elf;
#[cfg(feature = "static-tasks")]
mod front;
#[cfg(feature = "std")]
mod host;
#[cfg(feature = "image")]
pub mod image;
#[cfg(feature = "static-tasks")]
pub mod sync;
#[cfg(feature = "static-tasks")]
pub mod time;

/// Has the README's example compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use crate::core::{CoroutineId, Priority, WorkerState};
#[cfg(feature = "static-tasks")]
pub use crate::front::*;
#[cfg(feature = "std")]
pub use crate::host::{
    BuildError, Builder, Handle, HostClock, LocalRuntime, Runtime, block_on, interval, sleep,
    spawn, spawn_at, spawn_local, spawn_local_at, timeout, timers,
};
#[cfg(feature = "static-tasks")]
pub use crate::sync::set_priority;
