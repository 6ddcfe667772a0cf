//! The executor on an ordinary host: memory from the global allocator, workers that are threads.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::boxed::Box;
use std::future::Future;
use std::pin::pin;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::executor::{Executor, RunOutcome, StartError};
use crate::core::{Hooks, MAX_WORKERS, WorkerState};

/// Alignment that `Hooks::grow` promises.
const GROW_ALIGNMENT: usize = 64;
/// Polls between two looks of `block_on` at its own future.
const POLLS_PER_LOOK: u64 = 61;

/// Which thread is which worker: `Hooks::context`.
struct Threads([Mutex<Option<Thread>>; MAX_WORKERS as usize]);

static THREADS: [Threads; 256] = [const { Threads([const { Mutex::new(None) }; MAX_WORKERS as usize]) }; 256];

impl Executor {
    /// Starts it with workers 0 to `workers - 1` (1 to 64) that are to be threads of this program.
    ///
    /// # Panics
    ///
    /// If `workers` is not 1 to 64.
    pub fn start_on_host(&'static self, workers: u32) -> Result<(), StartError> {
        assert!((1..=MAX_WORKERS).contains(&workers), "1 to 64 workers, not {workers}");
        let threads: &'static Threads = &THREADS[self.number() as usize];
        let hooks = Hooks {
            context: ptr::from_ref(threads).cast_mut().cast(),
            grow,
            release,
            notify,
            preempt: None,
            external: None,
        };
        // SAFETY: the three functions below do what `Hooks` says.
        unsafe { self.start(&hooks) }?;
        for worker in 0..workers {
            let state: &'static WorkerState = Box::leak(Box::default());
            self.add_worker(worker, state).expect("a new executor takes workers while there is memory");
        }
        Ok(())
    }

    /// Runs coroutines on this thread as worker `worker`, sleeping while nothing is ready, until all have
    /// exited or a stop is requested.
    pub fn run_until_done(&'static self, worker: u32) -> RunOutcome {
        self.bind_thread(worker);
        loop {
            match self.run_until_stalled(worker) {
                RunOutcome::Stalled => {}
                other => return other,
            }
            if self.prepare_park(worker) {
                // After the mark: whoever lets the last one exit notifies those it sees marked.
                if self.live_count() != 0 {
                    thread::park();
                }
                self.finish_park(worker);
            } else {
                // There is something that we could not get: its worker was at a scheduling point, perhaps
                // suspended by the host there. Let it go on.
                thread::yield_now();
            }
            if self.live_count() == 0 {
                return RunOutcome::Stalled;
            }
        }
    }

    /// Runs coroutines on this thread as worker `worker` until `future`, which is polled in between on this
    /// thread and outside of any coroutine, is finished; returns its output.
    ///
    /// # Panics
    ///
    /// If a stop is requested, or `worker` does not exist or runs already: then `future` cannot be finished.
    pub fn block_on<F: Future>(&'static self, worker: u32, future: F) -> F::Output {
        self.bind_thread(worker);
        let main = Arc::new(MainWaker { woken: AtomicBool::new(true), thread: thread::current() });
        let waker = Waker::from(main.clone());
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            if main.woken.swap(false, Ordering::AcqRel)
                && let Poll::Ready(output) = future.as_mut().poll(&mut context)
            {
                return output;
            }
            let outcome = self.run(worker, POLLS_PER_LOOK);
            assert!(
                matches!(outcome, RunOutcome::Stalled | RunOutcome::BudgetUsed),
                "block_on cannot go on: {outcome:?}"
            );
            if outcome == RunOutcome::Stalled && self.prepare_park(worker) {
                // A wake of the main future unparks the thread, before or after this look.
                if !main.woken.load(Ordering::Acquire) {
                    thread::park();
                }
                self.finish_park(worker);
            }
        }
    }

    fn bind_thread(&self, worker: u32) {
        if let Some(place) = THREADS[self.number() as usize].0.get(worker as usize) {
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        }
    }
}

/// Wakes the future of `block_on`.
struct MainWaker {
    woken: AtomicBool,
    thread: Thread,
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, GROW_ALIGNMENT).ok().filter(|layout| layout.size() != 0)
}

unsafe extern "C" fn grow(_: *mut (), bytes: usize) -> *mut u8 {
    // SAFETY: the layout's size is not zero.
    layout(bytes).map_or(ptr::null_mut(), |layout| unsafe { alloc_zeroed(layout) })
}

unsafe extern "C" fn release(_: *mut (), memory: *mut u8, bytes: usize) {
    if let Some(layout) = layout(bytes) {
        // SAFETY: the core gives back what `grow` gave, with the same size.
        unsafe { dealloc(memory, layout) };
    }
}

unsafe extern "C" fn notify(context: *mut (), worker: u32) {
    // SAFETY: the context is one of `THREADS`, which is a static.
    let threads = unsafe { &*context.cast::<Threads>() };
    if let Some(place) = threads.0.get(worker as usize)
        && let Some(thread) = &*place.lock().unwrap_or_else(PoisonError::into_inner)
    {
        // The token that this leaves if the thread does not sleep yet makes its next park return.
        thread.unpark();
    }
}
