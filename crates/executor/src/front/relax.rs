//! What a thread does after it has looked at a held lock for a while: it lets the system run
//! another thread, which may be the lock's holder. Used by the core, as `Hooks::relax`, and by the
//! lock of the synchronisation objects.

use std::thread;

pub(crate) fn relax() {
    #[cfg(all(test, not(feature = "image"), not(loom)))]
    tests::note();
    thread::yield_now();
}

#[cfg(all(test, not(feature = "image"), not(loom)))]
mod tests {
    use std::boxed::Box;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use crate::Executor;
    use crate::core::RUN_STALLED;
    use crate::front::lock::SpinLock;

    std::thread_local! {
        /// What is set when this thread calls `relax`.
        static NOTE: Cell<Option<&'static AtomicBool>> = const { Cell::new(None) };
    }

    pub(crate) fn note() {
        if let Some(note) = NOTE.get() {
            note.store(true, Ordering::Relaxed);
        }
    }

    /// Runs `lock` on another thread, while the caller holds the lock that it waits for, until that
    /// thread calls `relax`; then calls `release`. False if `relax` was not called for 30 seconds:
    /// a thread that spins calls it within microseconds of its processor.
    fn calls_relax(lock: impl FnOnce() + Send, release: impl FnOnce()) -> bool {
        let called: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        thread::scope(|scope| {
            scope.spawn(|| {
                NOTE.set(Some(called));
                lock();
            });
            let end = Instant::now() + Duration::from_secs(30);
            while !called.load(Ordering::Relaxed) && Instant::now() < end {
                thread::yield_now();
            }
            let was_called = called.load(Ordering::Relaxed);
            release();
            was_called
        })
    }

    /// The holder has lost its processor, perhaps to the worker that looks.
    #[test]
    fn a_worker_that_finds_only_a_held_lock_lets_the_holder_run() {
        static EXECUTOR: Executor = Executor::with_number(204);
        EXECUTOR.start_on_host(2).unwrap();
        let core = EXECUTOR.core();
        let holder = core.worker(1).unwrap();
        let held = holder.try_lock().unwrap();
        let parks = || assert!(!core.prepare_park(0), "it parks beside a held lock");
        assert!(calls_relax(parks, || drop(held)), "a worker that is about to park");
        assert!(core.prepare_park(0), "it does not park although there is nothing to do");
        core.finish_park(0);

        // What the holder has published cannot be taken.
        let held = holder.try_lock().unwrap();
        holder.state().ready.store(1 << 5, Ordering::Relaxed);
        let runs = || assert_eq!(core.run(0, u64::MAX), RUN_STALLED);
        let release = || {
            holder.state().ready.store(0, Ordering::Relaxed);
            drop(held);
        };
        assert!(calls_relax(runs, release), "a worker that wants to steal");
    }

    #[test]
    fn a_thread_that_waits_for_a_lock_lets_the_holder_run() {
        static EXECUTOR: Executor = Executor::with_number(203);
        EXECUTOR.start_on_host(2).unwrap();
        let worker = EXECUTOR.core().worker(0).unwrap();
        // As another worker that has lost its processor while it steals.
        let held = worker.try_lock().unwrap();
        assert!(
            calls_relax(|| drop(worker.lock()), || drop(held)),
            "a worker that waits for its own lock"
        );

        let lock = SpinLock::new();
        assert!(lock.try_lock());
        let waits = || {
            lock.lock();
            assert!(lock.unlock());
        };
        assert!(
            calls_relax(waits, || assert!(lock.unlock())),
            "a lock of the synchronisation objects"
        );
    }
}
