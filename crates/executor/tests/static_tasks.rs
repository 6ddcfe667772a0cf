//! Coroutines in statics: the static is taken, freed and taken again; what does not fit is refused;
//! nothing leaks.

use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use cops_executor::{
    CoroutineId, Executor, Priority, SpawnError, StartError, StaticMemory, StaticTask, WorkerState,
    cancel, future_size, memory_for, yield_now,
};

/// Counts how often it is dropped.
struct Counted(&'static AtomicU32);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

async fn count(drops: &'static AtomicU32, yields: u32) {
    let _counted = Counted(drops);
    for _ in 0..yields {
        yield_now().await;
    }
}

#[test]
fn a_static_is_free_again_when_its_coroutine_has_exited() {
    static EXECUTOR: Executor = Executor::with_number(0);
    static TASK: StaticTask<{ future_size(&count) }> = StaticTask::new();
    static DROPS: AtomicU32 = AtomicU32::new(0);
    EXECUTOR.start_on_host(1).unwrap();
    let mut ids = Vec::new();
    for round in 0..3 {
        let id = EXECUTOR.spawn_static(&TASK, count(&DROPS, round), Priority::DEFAULT).unwrap();
        assert!(!ids.contains(&id));
        ids.push(id);
        assert!(TASK.is_occupied());
        EXECUTOR.run_until_stalled(0);
        assert!(!TASK.is_occupied());
        assert_eq!(DROPS.load(Ordering::Relaxed), round + 1);
    }
}

#[test]
fn an_occupied_static_refuses_and_drops_the_second() {
    static EXECUTOR: Executor = Executor::with_number(1);
    static TASK: StaticTask<64> = StaticTask::new();
    static FIRST: AtomicU32 = AtomicU32::new(0);
    static SECOND: AtomicU32 = AtomicU32::new(0);
    EXECUTOR.start_on_host(1).unwrap();
    let held = Counted(&FIRST);
    let first = async move {
        let _held = held;
        pending().await
    };
    let id = EXECUTOR.spawn_static(&TASK, first, Priority::DEFAULT).unwrap();
    EXECUTOR.run_until_stalled(0);
    let held = Counted(&SECOND);
    let second = async move { drop(held) };
    assert_eq!(EXECUTOR.spawn_static(&TASK, second, Priority::DEFAULT), Err(SpawnError::Occupied));
    assert_eq!((FIRST.load(Ordering::Relaxed), SECOND.load(Ordering::Relaxed)), (0, 1));
    // Cancelling frees it too.
    assert!(cancel(id));
    EXECUTOR.run_until_stalled(0);
    assert_eq!(FIRST.load(Ordering::Relaxed), 1);
    EXECUTOR.spawn_static(&TASK, async {}, Priority::DEFAULT).unwrap();
    EXECUTOR.run_until_stalled(0);
}

#[test]
fn a_refused_spawn_leaves_the_static_free_and_drops_the_future() {
    static EXECUTOR: Executor = Executor::with_number(2);
    static TASK: StaticTask<{ future_size(&count) }> = StaticTask::new();
    static DROPS: AtomicU32 = AtomicU32::new(0);
    let held = Counted(&DROPS);
    let future = async move { drop(held) };
    assert_eq!(
        EXECUTOR.spawn_static(&TASK, future, Priority::DEFAULT),
        Err(SpawnError::NotStarted)
    );
    assert_eq!((DROPS.load(Ordering::Relaxed), TASK.is_occupied()), (1, false));
}

#[test]
fn a_place_is_taken_until_the_future_is_dropped() {
    static EXECUTOR: Executor = Executor::with_number(3);
    static TASK: StaticTask<64> = StaticTask::new();
    static REFUSED: AtomicU32 = AtomicU32::new(0);
    EXECUTOR.start_on_host(1).unwrap();
    /// Spawns into its own place in its destructor: the place is not free yet.
    struct Greedy;
    impl Drop for Greedy {
        fn drop(&mut self) {
            if EXECUTOR.spawn_static(&TASK, async {}, Priority::DEFAULT)
                == Err(SpawnError::Occupied)
            {
                REFUSED.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    let greedy = Greedy;
    let future = async move { drop(greedy) };
    EXECUTOR.spawn_static(&TASK, future, Priority::DEFAULT).unwrap();
    let successor = async {
        EXECUTOR.spawn_static(&TASK, async {}, Priority::DEFAULT).expect("it is free now");
    };
    EXECUTOR.spawn(successor, Priority::LEAST_URGENT).unwrap();
    EXECUTOR.run_until_stalled(0);
    assert_eq!((REFUSED.load(Ordering::Relaxed), EXECUTOR.live_count()), (1, 0));
}

#[test]
fn futures_of_any_alignment_up_to_eight_and_of_no_size_fit() {
    static EXECUTOR: Executor = Executor::with_number(4);
    static WORD: StaticTask<32> = StaticTask::new();
    static NOTHING: StaticTask<0> = StaticTask::new();
    EXECUTOR.start_on_host(1).unwrap();
    let aligned = |kept: u64| async move {
        yield_now().await;
        assert_eq!((&raw const kept).addr() % 8, 0);
        assert_eq!(kept, u64::MAX);
    };
    EXECUTOR.spawn_static(&WORD, aligned(u64::MAX), Priority::DEFAULT).unwrap();
    /// No bytes at all.
    struct Nothing;
    impl Future for Nothing {
        type Output = ();
        fn poll(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> Poll<()> {
            Poll::Ready(())
        }
    }
    EXECUTOR.spawn_static(&NOTHING, Nothing, Priority::DEFAULT).unwrap();
    EXECUTOR.run_until_stalled(0);
    assert!(!WORD.is_occupied() && !NOTHING.is_occupied());
}

/// An executor that has nothing but statics: no box, no thread, no hook of ours.
#[test]
fn static_memory_is_what_was_computed_and_ends_in_an_error() {
    const COROUTINES: u32 = 3;
    const BYTES: usize = memory_for(1, COROUTINES);
    static EXECUTOR: Executor = Executor::with_number(5);
    static TWIN: Executor = Executor::with_number(6);
    static MEMORY: StaticMemory<BYTES> = StaticMemory::new();
    static WORKERS: [WorkerState; 2] = [WorkerState::new(), WorkerState::new()];
    static TASKS: [StaticTask<8>; 4096] = [const { StaticTask::new() }; 4096];
    static RUN: AtomicU32 = AtomicU32::new(0);
    EXECUTOR.start_static(&MEMORY, |_| ()).unwrap();
    assert_eq!(TWIN.start_static(&MEMORY, |_| ()), Err(StartError::MemoryTaken));
    EXECUTOR.add_worker(0, &WORKERS[0]).unwrap();
    let mut spawned: Vec<CoroutineId> = Vec::new();
    for task in &TASKS {
        let future = poll_fn(|_| {
            RUN.fetch_add(1, Ordering::Relaxed);
            Poll::Ready(())
        });
        match EXECUTOR.spawn_static(task, future, Priority::DEFAULT) {
            Ok(id) => spawned.push(id),
            Err(error) => {
                assert_eq!(error, SpawnError::OutOfMemory);
                assert!(!task.is_occupied());
                break;
            }
        }
    }
    // Segments are whole.
    assert!(spawned.len() >= COROUTINES as usize && spawned.len() < TASKS.len());
    assert_eq!(MEMORY.used(), BYTES);
    assert!(EXECUTOR.add_worker(1, &WORKERS[1]).is_err());
    EXECUTOR.run_until_stalled(0);
    assert_eq!(RUN.load(Ordering::Relaxed) as usize, spawned.len());
    assert_eq!(EXECUTOR.live_count(), 0);
}

#[test]
fn memory_is_free_after_a_start_that_failed() {
    static STARTED: Executor = Executor::with_number(8);
    static OTHER: Executor = Executor::with_number(8);
    static FREE: Executor = Executor::with_number(9);
    static MEMORY: StaticMemory<{ memory_for(1, 1) }> = StaticMemory::new();
    static UNUSED: StaticMemory<{ memory_for(1, 1) }> = StaticMemory::new();
    static WORKER: WorkerState = WorkerState::new();
    static TASK: StaticTask<8> = StaticTask::new();
    static NOTIFIED: AtomicU32 = AtomicU32::new(0);
    STARTED.start_static(&UNUSED, |_| ()).unwrap();
    for executor in [&OTHER, &STARTED] {
        let result = executor.start_static(&MEMORY, |_| unreachable!("it was not started"));
        assert_eq!(result, Err(StartError::NumberTaken));
    }
    FREE.start_static(&MEMORY, |_| _ = NOTIFIED.fetch_add(1, Ordering::Relaxed)).unwrap();
    assert_eq!(OTHER.start_static(&MEMORY, |_| ()), Err(StartError::MemoryTaken));
    FREE.add_worker(0, &WORKER).unwrap();
    assert!(FREE.prepare_park(0));
    FREE.spawn_static(&TASK, std::future::ready(()), Priority::DEFAULT).unwrap();
    FREE.finish_park(0);
    assert_eq!(NOTIFIED.load(Ordering::Relaxed), 1);
}

#[test]
fn a_parked_worker_is_notified_by_the_function_given() {
    static EXECUTOR: Executor = Executor::with_number(7);
    static MEMORY: StaticMemory<{ memory_for(1, 1) }> = StaticMemory::new();
    static WORKER: WorkerState = WorkerState::new();
    static TASK: StaticTask<8> = StaticTask::new();
    static NOTIFIED: AtomicU32 = AtomicU32::new(0);
    EXECUTOR
        .start_static(&MEMORY, |worker| {
            assert_eq!(NOTIFIED.fetch_add(1, Ordering::Relaxed), worker)
        })
        .unwrap();
    EXECUTOR.add_worker(0, &WORKER).unwrap();
    assert!(EXECUTOR.prepare_park(0));
    EXECUTOR.spawn_static(&TASK, std::future::ready(()), Priority::DEFAULT).unwrap();
    EXECUTOR.finish_park(0);
    assert_eq!(NOTIFIED.load(Ordering::Relaxed), 1);
}
