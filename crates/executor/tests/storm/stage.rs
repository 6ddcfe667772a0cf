//! The threads: workers that run and park, one outside that meddles, and the rounds.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use cops_executor::*;

use crate::actor::World;
use crate::mood::Mood;
use crate::{Random, require};

const MOST_WORKERS: usize = 4;
/// How long a round lasts before all are asked to end.
const ROUND: Duration = Duration::from_millis(700);
/// How long the workers run before they are stopped and everything is checked.
const STRETCH: Duration = Duration::from_millis(5);
/// How long all workers must have been parked, with coroutines left, for those to count as lost.
/// Nothing else could wake them.
const LOST_AFTER: Duration = Duration::from_secs(20);

/// An executor of its own with so many threads.
pub struct Stage {
    pub executor: &'static Executor,
    pub records: [WorkerState; MOST_WORKERS],
    pub workers: u32,
    threads: [OnceLock<Thread>; MOST_WORKERS],
    notified: [AtomicBool; MOST_WORKERS],
    over: AtomicBool,
    paused: AtomicBool,
    at_rest: AtomicU32,
    pub checks: AtomicU64,
    /// Workers that sleep, or are about to.
    asleep: AtomicU32,
    pub parks: AtomicU64,
}

unsafe extern "C" fn grow(_: *mut (), bytes: usize) -> *mut u8 {
    // SAFETY: the core never requests zero bytes, which is all that `alloc_zeroed` requires.
    unsafe { alloc_zeroed(Layout::from_size_align(bytes, 64).unwrap()) }
}

unsafe extern "C" fn release(_: *mut (), memory: *mut u8, bytes: usize) {
    // SAFETY: the core passes memory from `grow` with the size that it requested, and does not use
    // it any more.
    unsafe { dealloc(memory, Layout::from_size_align(bytes, 64).unwrap()) }
}

unsafe extern "C" fn notify(context: *mut (), worker: u32) {
    // SAFETY: the context is a stage that is never freed.
    let stage = unsafe { &*context.cast_const().cast::<Stage>() };
    stage.rouse(worker);
}

impl Stage {
    pub fn new(number: u8, workers: u32) -> &'static Stage {
        let stage: &'static Stage = Box::leak(Box::new(Stage {
            executor: Box::leak(Box::new(Executor::with_number(number))),
            records: [const { WorkerState::new() }; MOST_WORKERS],
            workers,
            threads: [const { OnceLock::new() }; MOST_WORKERS],
            notified: [const { AtomicBool::new(false) }; MOST_WORKERS],
            over: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            at_rest: AtomicU32::new(0),
            checks: AtomicU64::new(0),
            asleep: AtomicU32::new(0),
            parks: AtomicU64::new(0),
        }));
        let context = std::ptr::from_ref(stage).cast_mut().cast();
        let hooks =
            Hooks { context, grow, release, notify, preempt: None, external: None, relax: None };
        // SAFETY: the hooks do what they should, and the stage is never freed.
        unsafe { stage.executor.start(&hooks) }.unwrap();
        for worker in 0..workers {
            stage.executor.add_worker(worker, &stage.records[worker as usize]).unwrap();
        }
        stage
    }

    /// Rounds until `end`, one at least.
    pub fn run(&'static self, seed: u64, end: Instant) {
        let mut rounds = 0;
        let (mut polls, mut steals, mut skipped) = (0, 0, 0);
        let mut begun = 0;
        self.with_workers(seed, || {
            loop {
                let world = World::new(self, Mood::of(rounds));
                world.populate(seed.wrapping_add(rounds * 1_000));
                self.meddle(&world, seed ^ rounds);
                world.end();
                self.wait_until_empty(|| world.describe());
                world.balances();
                begun += world.begun();
                rounds += 1;
                if Instant::now() >= end {
                    break;
                }
            }
        });
        self.is_sound();
        for record in &self.records {
            polls += record.polls.load(Relaxed);
            steals += record.steals.load(Relaxed);
            skipped += u64::from(record.skipped_steals.load(Relaxed));
        }
        let parks = self.parks.load(Relaxed);
        println!(
            "{} workers: {rounds} rounds, {} checks, {begun} coroutines, {polls} polls, {steals} steals ({skipped} given up), \
             {parks} parks",
            self.workers,
            self.checks.load(Relaxed)
        );
    }

    /// Has the workers run while this thread does `act`.
    pub fn with_workers(&'static self, seed: u64, act: impl FnOnce()) {
        thread::scope(|scope| {
            for worker in 0..self.workers {
                scope.spawn(move || self.work(worker, seed));
            }
            act();
            self.over.store(true, SeqCst);
            (0..self.workers).for_each(|worker| self.rouse(worker));
        });
    }

    fn rouse(&self, worker: u32) {
        self.notified[worker as usize].store(true, SeqCst);
        if let Some(thread) = self.threads[worker as usize].get() {
            thread.unpark();
        }
    }

    /// A worker's thread.
    fn work(&self, worker: u32, seed: u64) {
        let me = worker as usize;
        let mut random = Random(seed ^ u64::from(worker) << 40);
        self.threads[me].set(thread::current()).expect("one thread a worker");
        while !self.over.load(SeqCst) {
            if self.paused.load(SeqCst) {
                self.at_rest.fetch_add(1, SeqCst);
                while self.paused.load(SeqCst) {
                    thread::yield_now();
                }
                self.at_rest.fetch_sub(1, SeqCst);
            }
            let budget = if random.below(4) == 0 { 1 + random.next() % 20 } else { u64::MAX };
            if self.executor.run(worker, budget) != RunOutcome::Stalled {
                continue;
            }
            if !self.executor.core().prepare_park(worker) {
                thread::yield_now();
                continue;
            }
            self.parks.fetch_add(1, Relaxed);
            self.asleep.fetch_add(1, SeqCst);
            while !self.notified[me].swap(false, SeqCst) {
                thread::park();
            }
            self.asleep.fetch_sub(1, SeqCst);
            self.executor.core().finish_park(worker);
        }
    }

    /// For a round: this thread, which is no worker, wakes, moves, cancels and spawns too.
    fn meddle(&self, world: &Arc<World>, seed: u64) {
        let mut random = Random(seed);
        let begin = Instant::now();
        while begin.elapsed() < ROUND {
            let stretch = Instant::now();
            while stretch.elapsed() < STRETCH {
                for _ in 0..world.mood.meddling {
                    world.meddle(&mut random);
                }
                world.refill(&mut random);
                // Where there are few processors, the workers want them.
                thread::sleep(Duration::from_micros(50));
            }
            self.check();
        }
    }

    /// Stops the workers in the middle of what they do, and checks every list.
    fn check(&self) {
        self.paused.store(true, SeqCst);
        self.executor.core().request_stop(true);
        while self.at_rest.load(SeqCst) != self.workers {
            thread::yield_now();
        }
        self.is_sound();
        self.executor.core().request_stop(false);
        self.paused.store(false, SeqCst);
        while self.at_rest.load(SeqCst) != 0 {
            thread::yield_now();
        }
        self.checks.fetch_add(1, SeqCst);
    }

    /// Lists, inboxes and bitmaps are as they should be. Only while the workers are at rest.
    fn is_sound(&self) {
        if let Err(what) = self.executor.core().verify() {
            require(false, what);
        }
    }

    /// Waits until all coroutines have exited; fails, after `describe`, if some never do.
    pub fn wait_until_empty(&self, describe: impl Fn()) {
        let mut quiet_since = None;
        while self.executor.live_count() != 0 {
            thread::sleep(Duration::from_micros(200));
            let all_asleep = self.asleep.load(SeqCst) == self.workers
                && self.notified.iter().all(|notified| !notified.load(SeqCst));
            if !all_asleep {
                quiet_since = None;
                continue;
            }
            if quiet_since.get_or_insert_with(Instant::now).elapsed() > LOST_AFTER {
                describe();
                require(false, "no coroutine is lost");
            }
        }
        // At rest: a worker that has just run the last one may still hold its lock, which `verify`
        // waits for.
        while self.asleep.load(SeqCst) != self.workers {
            thread::yield_now();
        }
        self.is_sound();
    }
}
