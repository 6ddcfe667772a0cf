//! Keyed rendezvous, priority inheritance, and the explicit runner. SPEC 2.4.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};

use cops::memory::statistics;
use cops::process;
use cops::sync::{Event, Full, Mutex, Rendezvous, Semaphore, signal, wait_on};
use cops::task::{self, JoinHandle, RunError, Until, yield_now};
use cops::time::{Duration, timeout};
use futures_util::future::join_all;

use crate::coroutines::let_others_run;
use crate::harness::{Failure, Outcome, level, soon};
use crate::{check, check_equal, tests};

tests! { rendezvous:
    signal_before_wait,
    wait_before_signal,
    most_urgent_first,
    given_up,
    bounded,
    order_does_not_matter,
    mutex_raises_its_holder,
    semaphore_raises_no_holder,
    locks_stay_out_of_the_kernel,
    runner_until_stalled,
    runner_until_empty,
    runner_inside_a_coroutine,
    runner_with_several_cpus,
    runner_while_others_run,
    runner_on_a_thread,
    runner_on_threads,
    runner_on_more_threads_than_may,
    runner_that_leaves_a_coroutine_alone,
    runner_that_blocks_on_a_future,
    runner_that_computes_after_block_on,
    runner_without_memory_for_a_thread,
}

async fn signal_before_wait() -> Outcome {
    signal(1)?;
    signal(1)?;
    signal(2)?;
    soon("the first signal", wait_on(1)).await?;
    soon("the second signal", wait_on(1)).await?;
    let third = timeout(Duration::from_millis(20), wait_on(1)).await;
    check!(third.is_err(), "two signals released three");
    soon("the signal of another key", wait_on(2)).await
}

async fn wait_before_signal() -> Outcome {
    let waiters: Vec<_> = (0..3).map(|key| task::spawn_join(wait_on(key), level(5))).collect();
    yield_now().await;
    check!(waiters.iter().all(|waiter| !waiter.is_finished()), "a waiter did not wait");
    for (key, waiter) in waiters.into_iter().enumerate() {
        check!(!waiter.is_finished(), "another key released the waiter of {key}");
        signal(key as u64)?;
        soon("a signal", waiter).await??;
    }
    Ok(())
}

/// Each signal releases one waiter: the most urgent, and among equal priorities the one that came
/// first.
async fn most_urgent_first() -> Outcome {
    const LEVELS: [u8; 6] = [30, 10, 30, 5, 10, 20];
    let met: Arc<Rendezvous<4>> = Arc::new(Rendezvous::new());
    let last = Arc::new(AtomicUsize::new(usize::MAX));
    let mut waiters = Vec::new();
    for (index, urgency) in LEVELS.into_iter().enumerate() {
        let (met, last) = (met.clone(), last.clone());
        waiters.push(task::spawn_join(
            async move {
                met.wait_on(9).await;
                last.store(index, Relaxed);
            },
            level(urgency),
        ));
        // So that they arrive in this order, whatever their priorities.
        let_others_run().await?;
    }
    let mut order = Vec::new();
    for released in 1..=LEVELS.len() {
        met.signal(9)?;
        let_others_run().await?;
        order.push(last.load(Relaxed));
        let finished = waiters.iter().filter(|waiter| waiter.is_finished()).count();
        check_equal!(finished, released, "waiters that {released} signals released");
    }
    check_equal!(order, [3, 1, 4, 5, 0, 2], "order of release");
    Ok(())
}

/// A signal granted to a waiter that is dropped before it sees it passes to the next.
async fn given_up() -> Outcome {
    let met: Arc<Rendezvous<4>> = Arc::new(Rendezvous::new());
    let wait = || {
        let met = met.clone();
        async move { met.wait_on(3).await }
    };
    let (first, second) =
        (task::spawn_join(wait(), level(40)), task::spawn_join(wait(), level(40)));
    let_others_run().await?;
    met.signal(3)?;
    first.abort();
    soon("the signal that was passed on", second).await??;
    check!(soon("the end of the first", first).await?.is_err(), "the first was not cancelled");
    check_equal!(met.remembered(3), 0, "signals that are left");
    Ok(())
}

/// Signals without a waiter are rejected when there is no room, and do not affect those that are
/// remembered.
async fn bounded() -> Outcome {
    let met = Rendezvous::<8>::new();
    for key in 0..8 {
        met.signal(key)?;
    }
    check_equal!(met.signal(8), Err(Full), "a signal of a ninth key");
    met.signal(3)?;
    for key in [0, 1, 2, 3, 3, 4, 5, 6, 7] {
        soon("a signal that was remembered", met.wait_on(key)).await?;
    }
    check_equal!(met.signal(8), Ok(()), "a signal of a ninth key, later");
    Ok(())
}

/// Pairs meet by keys on four virtual CPUs, in any order of arrival.
async fn order_does_not_matter() -> Outcome {
    const PAIRS: u64 = 100;
    const MEETINGS: u64 = 50;
    task::alloc_cpu(3)?;
    // Two keys per pair, and never more than two pending signals of a pair, so there is room.
    static MET: Rendezvous<256> = Rendezvous::new();
    let side = |own: u64, other: u64| async move {
        for meeting in 0..MEETINGS {
            if (meeting + own).is_multiple_of(3) {
                yield_now().await;
            }
            MET.signal(other)?;
            MET.wait_on(own).await;
        }
        Ok::<(), Full>(())
    };
    let sides: Vec<_> = (0..2 * PAIRS)
        .map(|own| task::spawn_join(side(own, own ^ 1), level((own % 64) as u8)))
        .collect();
    for side in soon("100 pairs", join_all(sides)).await? {
        side??;
    }
    let left: u32 = (0..2 * PAIRS).map(|key| MET.remembered(key)).sum();
    check_equal!(left, 0, "signals that are left");
    Ok(())
}

const HOLDER: u8 = 50;
const SPINNER: u8 = 20;
const URGENT: u8 = 0;
/// Number of turns that the spinner takes before it stops.
const SPINS: usize = 10_000;

/// What happened while the urgent coroutine waited for the holder.
struct Inversion {
    /// Turns of the spinner in between until the urgent coroutine got the lock.
    spins: usize,
    /// The level of the holder while the urgent one waits, and after the release.
    raised: u8,
    after: u8,
}

/// Acquires any kind of lock.
type Hold = fn() -> Pin<Box<dyn Future<Output = Box<dyn Send>> + Send>>;

/// The classic inversion: level 50 holds the lock, level 0 waits for it, level 20 has work for a
/// long time.
async fn invert(lock: Hold) -> Result<Inversion, Failure> {
    let (held, spins, done) =
        (Arc::new(Event::new()), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (raised, after) = (Arc::new(AtomicU8::new(99)), Arc::new(AtomicU8::new(99)));
    let own = || task::current_priority().level();
    let holder = {
        let (held, raised, after) = (held.clone(), raised.clone(), after.clone());
        async move {
            let guard = lock().await;
            held.set();
            for _ in 0..100 {
                yield_now().await;
            }
            raised.store(own(), Relaxed);
            drop(guard);
            after.store(own(), Relaxed);
        }
    };
    let holder = task::spawn_join(holder, level(HOLDER));
    soon("the lock", held.wait()).await?;
    let spinner: JoinHandle<()> = {
        let (spins, done) = (spins.clone(), done.clone());
        let spin = async move {
            while !done.load(Relaxed) && spins.fetch_add(1, Relaxed) < SPINS - 1 {
                yield_now().await;
            }
        };
        task::spawn_join(spin, level(SPINNER))
    };
    let urgent = async move {
        let _guard = lock().await;
        done.store(true, Relaxed);
        spins.load(Relaxed)
    };
    let urgent = task::spawn_join(urgent, level(URGENT));
    let spins = soon("the urgent one's turn", urgent).await??;
    soon("the others' end", spinner).await??;
    soon("the others' end", holder).await??;
    Ok(Inversion { spins, raised: raised.load(Relaxed), after: after.load(Relaxed) })
}

async fn mutex_raises_its_holder() -> Outcome {
    static LOCK: Mutex<()> = Mutex::new(());
    let Inversion { spins, raised, after } = invert(|| {
        Box::pin(async {
            let guard: Box<dyn Send> = Box::new(LOCK.lock().await);
            guard
        })
    })
    .await?;
    check_equal!(spins, 0, "turns of the one in between");
    check_equal!(raised, URGENT, "level of the holder while it is waited for");
    check_equal!(after, HOLDER, "level of the holder afterwards");
    Ok(())
}

/// The counter-test: a semaphore does not know which coroutine will release a permit, so it raises
/// none, and the spinner in between takes all its turns.
async fn semaphore_raises_no_holder() -> Outcome {
    static PERMITS: Semaphore = Semaphore::new(1);
    let Inversion { spins, raised, after } = invert(|| {
        Box::pin(async {
            let permit: Box<dyn Send> = Box::new(PERMITS.acquire(1).await);
            permit
        })
    })
    .await?;
    check_equal!(spins, SPINS, "turns of the one in between");
    check_equal!((raised, after), (HOLDER, HOLDER), "levels of the holder");
    Ok(())
}

/// Uncontended locks make no system calls.
async fn locks_stay_out_of_the_kernel() -> Outcome {
    const COUNT: u64 = 1_000_000;
    let (mutex, semaphore, met) = (Mutex::new(0), Semaphore::new(1), Rendezvous::<4>::new());
    let before = statistics()?.system_calls;
    for key in 0..COUNT {
        *mutex.lock().await += 1;
        if key % 10 == 0 {
            drop(semaphore.acquire(1).await);
            met.signal(key)?;
            met.wait_on(key).await;
        }
    }
    let calls = statistics()?.system_calls - before;
    check_equal!(mutex.into_inner(), COUNT, "count under the mutex");
    // The counter is for the whole machine, and includes the calls of this measurement and of the
    // process that waits for this test.
    check!(calls <= 20, "{calls} system calls for {COUNT} locks");
    Ok(())
}

/// Runs `/bin/runner`, with a `main` that is not a coroutine.
async fn runner(case: &str) -> Outcome {
    let mut child = process::spawn("/bin/runner", &[case])?;
    let status = soon("the end of the runner", child.wait()).await??;
    check_equal!(status.code(), Some(0), "how the runner ended");
    Ok(())
}

async fn runner_until_stalled() -> Outcome {
    runner("stalled").await
}

async fn runner_until_empty() -> Outcome {
    runner("empty").await
}

async fn runner_inside_a_coroutine() -> Outcome {
    for until in [Until::Stalled, Until::Empty] {
        check_equal!(task::run(until), Err(RunError::InsideCoroutine), "a coroutine as runner");
    }
    runner("inside").await
}

async fn runner_with_several_cpus() -> Outcome {
    runner("several").await
}

async fn runner_while_others_run() -> Outcome {
    runner("meanwhile").await
}

async fn runner_on_a_thread() -> Outcome {
    runner("thread").await
}

async fn runner_on_threads() -> Outcome {
    runner("threads").await
}

async fn runner_on_more_threads_than_may() -> Outcome {
    runner("crowd").await
}

async fn runner_that_leaves_a_coroutine_alone() -> Outcome {
    runner("left").await
}

async fn runner_that_blocks_on_a_future() -> Outcome {
    runner("block-on").await
}

async fn runner_that_computes_after_block_on() -> Outcome {
    runner("block-on-left").await
}

async fn runner_without_memory_for_a_thread() -> Outcome {
    runner("without-memory").await
}
