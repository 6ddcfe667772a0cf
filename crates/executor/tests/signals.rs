//! A wake waits for nothing: real signal handlers that wake, while the thread that they interrupt
//! is itself about to wake, to sleep, or to wake up.
//!
//! A wake that took a lock would wait here for the thread that it has interrupted, for ever: then
//! the test ends by its limit.
#![cfg(unix)]
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use cops_executor::*;

/// Of the coroutine that handlers wake.
static WOKEN_BY_HANDLERS: AtomicU64 = AtomicU64::new(0);
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// How long signals are sent: as many as the machine has time for.
const STRESS: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(100);

extern "C" fn handler(_signal: libc::c_int) {
    if let Some(id) = CoroutineId::from_raw(WOKEN_BY_HANDLERS.load(SeqCst)) {
        wake_up(id);
    }
    HANDLED.fetch_add(1, SeqCst);
}

fn install() {
    // SAFETY: a plain handler that makes atomic updates and wakes, which is what is tested.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
    }
}

/// Fails, by ending the process, if `work` does not end: a thread that waits in a handler cannot be
/// stopped otherwise.
fn within_limit(work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    let working = thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    if is_done.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        eprintln!(
            "a wake in a signal handler waits; {} handlers have returned",
            HANDLED.load(SeqCst)
        );
        std::process::abort();
    }
    working.join().unwrap();
}

/// Signals go to a worker that parks whenever it can, and to a thread that wakes it whenever it
/// can.
#[test]
fn a_handler_wakes_while_its_thread_wakes_or_parks() {
    install();
    within_limit(|| {
        let runtime = Runtime::new(1).unwrap();
        // SAFETY: `pthread_self` has no preconditions; it only returns the calling thread.
        let worker = runtime.spawn_at(async { unsafe { libc::pthread_self() } }, Priority::DEFAULT);
        let worker = runtime.block_on(worker).unwrap();
        let polls = Arc::new(AtomicU64::new(0));
        let counted = polls.clone();
        let woken = runtime.spawn_at(
            std::future::poll_fn::<(), _>(move |_| {
                counted.fetch_add(1, SeqCst);
                std::task::Poll::Pending
            }),
            Priority::DEFAULT,
        );
        let id = woken.id();
        WOKEN_BY_HANDLERS.store(id.raw(), SeqCst);
        let ends = Arc::new(AtomicBool::new(false));
        let waking = thread::spawn({
            let ends = ends.clone();
            move || {
                while !ends.load(SeqCst) {
                    wake_up(id);
                }
            }
        });
        let waker = std::os::unix::thread::JoinHandleExt::as_pthread_t(&waking);
        let began = Instant::now();
        while began.elapsed() < STRESS {
            // SAFETY: both threads are alive: they end after `ends` is set, below.
            unsafe {
                assert_eq!(libc::pthread_kill(waker, libc::SIGUSR1), 0);
                assert_eq!(libc::pthread_kill(worker, libc::SIGUSR1), 0);
            }
            // Signals that have not been handled yet are merged.
            thread::yield_now();
        }
        assert_ne!(HANDLED.load(SeqCst), 0);
        ends.store(true, SeqCst);
        waking.join().unwrap();
        // And none is lost: from here on a handler alone wakes it.
        for _ in 0..50 {
            let before = polls.load(SeqCst);
            // SAFETY: the worker's thread lives as long as the runtime.
            assert_eq!(unsafe { libc::pthread_kill(worker, libc::SIGUSR1) }, 0);
            while polls.load(SeqCst) == before {
                thread::yield_now();
            }
        }
        WOKEN_BY_HANDLERS.store(0, SeqCst);
        woken.abort();
    });
}
