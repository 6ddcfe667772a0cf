//! The executor, its virtual workers, and coroutines that are watched.
#![allow(unsafe_code)]

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::thread;

use cops_executor::{
    CoroutineId, Executor, Hooks, Priority, RunOutcome, WorkerState, cancel, current_worker_of,
    set_priority, wake_up,
};

use super::monitor::{Key, Monitor, Seen};
use super::stage::Stage;
use crate::common::Host;

/// From a notification until the worker runs.
const UNPARK_NANOS: u64 = 2_000;
/// A worker that may not park although it finds nothing looks again after this.
const LOOK_AGAIN_NANOS: u64 = 100;
/// How often it may in a row: in lock step no worker is ever in the middle of a scheduling point,
/// so hardly.
const LOOKS: u32 = 100;

static NUMBERS: AtomicU8 = AtomicU8::new(0);

pub struct World {
    executor: &'static Executor,
    number: u8,
    workers: usize,
    stage: Stage,
    monitor: Mutex<Monitor>,
    ids: Mutex<Vec<CoroutineId>>,
    memory: Box<Host>,
}

/// What a coroutine wants after a poll.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Yield,
    Block,
    End,
}

/// What was seen until everything had ended.
pub struct Report {
    pub classes: Vec<Seen>,
    pub polls: u64,
    pub faults: Vec<String>,
}

/// A poll, as the coroutine sees it.
pub struct Turn {
    world: &'static World,
    worker: usize,
    pub key: Key,
}

impl Turn {
    /// The poll takes this long; others go on meanwhile.
    pub fn spend(&self, nanos: u64) {
        self.world.stage.spend(self.worker, nanos);
    }

    pub fn now(&self) -> u64 {
        self.world.stage.now()
    }
}

impl World {
    pub fn new(workers: usize, classes: usize) -> &'static World {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        assert_ne!(number, u8::MAX, "executors are numbered from 0 to 255");
        let world: &'static World = Box::leak(Box::new(World {
            executor: Box::leak(Box::new(Executor::with_number(number))),
            number,
            workers,
            stage: Stage::new(workers),
            monitor: Mutex::new(Monitor::new(workers, classes)),
            ids: Mutex::new(Vec::new()),
            memory: Host::new(),
        }));
        let context = ptr::from_ref(world).cast_mut().cast();
        let hooks =
            Hooks { context, grow, release, notify, preempt: None, external: None, relax: None };
        // SAFETY: the functions do what `Hooks` says, with a context that lives for ever.
        unsafe { world.executor.start(&hooks) }.unwrap();
        for worker in 0..workers {
            let state: &'static WorkerState = Box::leak(Box::default());
            world.executor.add_worker(worker as u32, state).unwrap();
        }
        world
    }

    /// 0: none.
    pub fn set_aging(&self, period: u32) {
        self.executor.set_aging(NonZeroU32::new(period));
    }

    pub fn monitor(&self) -> MutexGuard<'_, Monitor> {
        self.monitor.lock().unwrap()
    }

    pub fn now(&self) -> u64 {
        self.stage.now()
    }

    /// Makes a coroutine that does `behaviour` at each poll.
    pub fn spawn(
        &'static self,
        class: usize,
        level: u8,
        behaviour: impl FnMut(&Turn) -> Next + Send + Unpin + 'static,
    ) -> Key {
        let key = self.monitor().spawn(class, level, self.now());
        let watched = Watched { world: self, key, behaviour };
        let id = self.executor.spawn(watched, Priority::new(level).unwrap()).unwrap();
        self.ids.lock().unwrap().push(id);
        key
    }

    pub fn wake(&self, key: Key) {
        self.monitor().wake(key, self.now());
        self.answers(key, wake_up(self.id(key)));
    }

    pub fn cancel(&self, key: Key) {
        if !self.monitor().is_gone(key) {
            self.monitor().cancel(key, self.now());
            self.answers(key, cancel(self.id(key)));
        }
    }

    pub fn set_level(&self, key: Key, level: u8) {
        self.monitor().set_level(key, level);
        self.answers(key, set_priority(self.id(key), Priority::new(level).unwrap()));
    }

    fn id(&self, key: Key) -> CoroutineId {
        self.ids.lock().unwrap()[key]
    }

    /// The executor says false of a coroutine that has exited, and of no other.
    fn answers(&self, key: Key, answer: bool) {
        let mut monitor = self.monitor();
        if answer == monitor.is_gone(key) {
            monitor.faults.push(format!("the answer about {key} is {answer}"));
        }
    }

    /// Runs the workers, and `source` on a thread that is none, until none has anything to do;
    /// then `close`, which shall make all that are left end.
    pub fn play(
        &'static self,
        source: impl FnOnce(&Source),
        close: impl FnOnce(&Source),
    ) -> Report {
        thread::scope(|scope| {
            for worker in 0..self.workers {
                scope.spawn(move || self.work(worker));
            }
            let stage = Source { world: self };
            source(&stage);
            stage.until_quiet();
            self.monitor().recording = false;
            close(&stage);
            stage.until_quiet();
            self.executor.request_stop(true);
            stage.until_quiet();
            let mut monitor = self.monitor();
            let left = monitor.left();
            if !left.is_empty() || self.executor.live_count() != 0 {
                monitor.faults.push(format!("never ended: coroutines of the classes {left:?}"));
            }
            Report {
                classes: std::mem::take(&mut monitor.classes),
                polls: monitor.polls,
                faults: std::mem::take(&mut monitor.faults),
            }
        })
    }

    /// What a thread of a host does (`run_until_done`), in virtual time.
    fn work(&'static self, worker: usize) {
        self.stage.enter(worker);
        let mut looks = 0;
        // Until a stop is requested.
        while self.executor.run_until_stalled(worker as u32) == RunOutcome::Stalled {
            if self.executor.prepare_park(worker as u32) {
                looks = 0;
                self.stage.sleep(worker);
                self.executor.finish_park(worker as u32);
            } else if looks < LOOKS {
                looks += 1;
                self.stage.spend(worker, LOOK_AGAIN_NANOS);
            } else {
                self.monitor().faults.push(format!("worker {worker} neither finds work nor parks"));
                break;
            }
        }
        self.stage.leave();
    }
}

/// The world outside of all workers: what it does comes from a foreign context.
pub struct Source {
    world: &'static World,
}

impl Source {
    pub fn spend(&self, nanos: u64) {
        self.world.stage.spend(self.world.workers, nanos);
    }

    pub fn until(&self, at: u64) {
        self.spend(at.saturating_sub(self.world.now()));
    }

    fn until_quiet(&self) {
        self.world.stage.sleep(self.world.workers);
    }
}

struct Watched<B> {
    world: &'static World,
    key: Key,
    behaviour: B,
}

impl<B> Watched<B> {
    fn worker(&self) -> Option<usize> {
        let worker = current_worker_of(self.world.number) as usize;
        (worker < self.world.workers).then_some(worker)
    }
}

impl<B: FnMut(&Turn) -> Next + Unpin> Future for Watched<B> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let (world, key) = (this.world, this.key);
        let worker = this.worker().expect("polled by a worker");
        world.monitor().begin(key, worker, world.now(), true);
        let next = (this.behaviour)(&Turn { world, worker, key });
        match next {
            Next::End => return Poll::Ready(()),
            Next::Block => {}
            Next::Yield => {
                world.monitor().wake(key, world.now());
                context.waker().wake_by_ref();
            }
        }
        // From here to the scheduling point no virtual time passes.
        world.monitor().pause(key, world.now());
        Poll::Pending
    }
}

impl<B> Drop for Watched<B> {
    fn drop(&mut self) {
        self.world.monitor().end(self.key, self.worker(), self.world.now());
    }
}

fn world<'a>(context: *mut ()) -> &'a World {
    // SAFETY: the context is the world that `World::new` leaked, so it lives for ever.
    unsafe { &*context.cast() }
}

unsafe extern "C" fn notify(context: *mut (), worker: u32) {
    world(context).stage.rouse(worker as usize, UNPARK_NANOS);
}

unsafe extern "C" fn grow(context: *mut (), bytes: usize) -> *mut u8 {
    let memory = world(context).memory.hooks();
    // SAFETY: the caller's promise, and the context that belongs to the function.
    unsafe { (memory.grow)(memory.context, bytes) }
}

unsafe extern "C" fn release(_: *mut (), _: *mut u8, _: usize) {}
