//! embassy-executor: its raw executor on this thread. Its tasks live in slots that are never freed,
//! so it allocates nothing. A program that does not know beforehand how many tasks of which types
//! it will have must box the futures: [`EmbassyBoxed`].
//!
//! Where something is always ready it spins, with a pender that does nothing, as its
//! `platform-spin`; where a worker must sleep, the pender unparks the thread. With the feature
//! `embassy-priority` it sorts what is ready by priority.
#![allow(unsafe_code)]

use std::future::Future;
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};

use embassy_executor::raw::{Executor, TaskStorage};
use embassy_executor::{SendSpawner, SpawnToken};

use super::{Runtime, Setup, Task};

/// embassy-executor.
#[derive(Clone, Copy)]
pub struct Embassy {
    executor: &'static Executor,
    spawner: SendSpawner,
    signal: Option<&'static Signal>,
}

/// SAFETY: `executor` is not Sync, as `poll` must not be called twice at a time. Only `run` calls
/// it, which only the thread that started this calls, once.
unsafe impl Send for Embassy {}

/// "You have work", for a thread that sleeps.
struct Signal {
    raised: AtomicBool,
    thread: Thread,
}

#[unsafe(export_name = "__pender")]
fn pender(context: *mut ()) {
    // SAFETY: null, or the leaked signal of `start`.
    if let Some(signal) = unsafe { context.cast::<Signal>().as_ref() }
        && !signal.raised.swap(true, Ordering::AcqRel)
    {
        signal.thread.unpark();
    }
}

impl Runtime for Embassy {
    type Slots<F: Task> = &'static [TaskStorage<F>];

    fn start(setup: Setup) -> Self {
        assert_eq!(setup.workers, 1, "an executor belongs to a thread");
        let signal = setup.sleeps.then(|| {
            &*Box::leak(Box::new(Signal {
                raised: AtomicBool::new(false),
                thread: thread::current(),
            }))
        });
        let context =
            signal.map_or(ptr::null_mut(), |signal| ptr::from_ref(signal).cast_mut().cast());
        let executor: &'static Executor = Box::leak(Box::new(Executor::new(context)));
        Embassy { executor, spawner: executor.spawner().make_send(), signal }
    }

    fn slots<F: Task>(self, count: usize) -> &'static [TaskStorage<F>] {
        (0..count).map(|_| TaskStorage::new()).collect::<Vec<_>>().leak()
    }

    fn spawn<F: Task>(self, slots: Self::Slots<F>, number: usize, future: F, level: u32) {
        let Ok(token) = slots[number].spawn(|| future) else { panic!("the slot is free") };
        set_level(&token, level);
        self.spawner.spawn(token);
    }

    fn run<P: Task>(self, parent: P) {
        let done: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let ends = async {
            parent.await;
            done.store(true, Ordering::Relaxed);
        };
        self.spawn(self.slots(1), 0, ends, 32);
        while !done.load(Ordering::Relaxed) {
            // SAFETY: not reentrant: this is the only place, and no task calls `run`.
            unsafe { self.executor.poll() };
            if let Some(signal) = self.signal
                && !signal.raised.swap(false, Ordering::AcqRel)
                && !done.load(Ordering::Relaxed)
            {
                thread::park();
            }
        }
    }
}

/// Its priorities rise with urgency.
#[cfg(feature = "embassy-priority")]
fn set_level<S>(token: &SpawnToken<S>, level: u32) {
    token.metadata().set_priority((63 - level) as u8);
}

#[cfg(not(feature = "embassy-priority"))]
fn set_level<S>(_: &SpawnToken<S>, _: u32) {}

/// embassy-executor, its slots holding boxes.
#[derive(Clone, Copy)]
pub struct EmbassyBoxed(Embassy);

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Runtime for EmbassyBoxed {
    type Slots<F: Task> = &'static [TaskStorage<Boxed>];

    fn start(setup: Setup) -> Self {
        EmbassyBoxed(Embassy::start(setup))
    }

    fn slots<F: Task>(self, count: usize) -> Self::Slots<F> {
        self.0.slots::<Boxed>(count)
    }

    fn spawn<F: Task>(self, slots: Self::Slots<F>, number: usize, future: F, level: u32) {
        self.0.spawn::<Boxed>(slots, number, Box::pin(future), level);
    }

    fn run<P: Task>(self, parent: P) {
        self.0.run(parent);
    }
}
