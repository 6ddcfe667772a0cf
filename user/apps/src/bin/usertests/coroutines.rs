//! Coroutines on one virtual CPU: order, priorities, joining, cancelling. SPEC 2.1-2.3.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use cops::io::{Read, Write, pipe};
use cops::process::{self, Resource};
use cops::sync::Event;
use cops::task::{self, CoroutineId, JoinError, Priority, SpawnError, yield_now};
use cops::time::{Duration, sleep};
use log::Log;

use crate::harness::{Failure, Outcome, level, soon};
use crate::{check, check_equal, tests};

tests! { coroutines:
    outputs_arrive,
    urgent_first,
    woken_urgent_overtakes,
    completed_call_overtakes,
    urgent_wake_then_less_urgent_work,
    peers_take_turns,
    priority_can_change,
    wake_up_is_idempotent,
    dead_ids_wake_nothing,
    aborted,
    thousands,
    no_memory_for_another_one,
}

/// A log of the coroutines that ran, in order.
mod log {
    use alloc::sync::Arc;
    use alloc::vec::Vec;
    use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

    /// A log for a fixed number of entries.
    #[derive(Clone)]
    pub struct Log(Arc<(AtomicUsize, Vec<AtomicU32>)>);

    impl Log {
        pub fn new(room: usize) -> Self {
            Self(Arc::new((
                AtomicUsize::new(0),
                (0..room).map(|_| AtomicU32::new(u32::MAX)).collect(),
            )))
        }

        pub fn add(&self, entry: u32) {
            let place = self.0.0.fetch_add(1, Relaxed);
            if let Some(slot) = self.0.1.get(place) {
                slot.store(entry, Relaxed);
            }
        }

        pub fn entries(&self) -> Vec<u32> {
            let count = self.0.0.load(Relaxed);
            self.0.1.iter().take(count).map(|entry| entry.load(Relaxed)).collect()
        }
    }
}

/// Lets all ready coroutines run.
pub async fn let_others_run() -> Result<(), Failure> {
    let name = task::current().ok_or(Failure("no coroutine".into()))?;
    let before = task::current_priority();
    task::set_priority(name, Priority::LEAST_URGENT);
    yield_now().await;
    task::set_priority(name, before);
    Ok(())
}

async fn outputs_arrive() -> Outcome {
    let handles: Vec<_> = (0..1000u64)
        .map(|value| task::spawn_join(async move { value * value }, Priority::DEFAULT))
        .collect();
    for (value, handle) in (0..1000u64).zip(handles) {
        check_equal!(soon("an output", handle).await??, value * value, "output of {value}");
    }
    Ok(())
}

async fn urgent_first() -> Outcome {
    let log = Log::new(64);
    // All become ready at once, in an order that is not that of their priorities.
    for index in (0..60).map(|place| (place * 7 % 60) as u8) {
        let log = log.clone();
        task::spawn(async move { log.add(index.into()) }, level(index));
    }
    let_others_run().await?;
    let expected: Vec<u32> = (0..60).collect();
    check_equal!(log.entries(), expected, "order of 60 levels");
    Ok(())
}

/// An urgent coroutine that is woken runs before the thousand others that were ready already.
async fn woken_urgent_overtakes() -> Outcome {
    let log = Log::new(4000);
    let woken = Arc::new(AtomicBool::new(false));
    let urgent = {
        let (log, woken) = (log.clone(), woken.clone());
        task::spawn(
            async move {
                while !woken.load(Relaxed) {
                    core::future::poll_fn(|_| {
                        if woken.load(Relaxed) {
                            core::task::Poll::Ready(())
                        } else {
                            core::task::Poll::Pending
                        }
                    })
                    .await;
                }
                log.add(1_000_000);
            },
            level(3),
        )
    };
    yield_now().await;
    for index in 0..1000 {
        let (log, woken) = (log.clone(), woken.clone());
        task::spawn(
            async move {
                log.add(index);
                if index == 10 {
                    woken.store(true, Relaxed);
                    task::wake_up(urgent);
                }
            },
            level(40),
        );
    }
    let_others_run().await?;
    let entries = log.entries();
    check_equal!(entries.len(), 1001, "coroutines that ran");
    check_equal!(
        entries.iter().position(|&entry| entry == 1_000_000),
        Some(11),
        "when the urgent one ran"
    );
    Ok(())
}

/// The same for a kernel call that completes.
async fn completed_call_overtakes() -> Outcome {
    let log = Log::new(20_000);
    let (mut reader, mut writer) = pipe()?;
    {
        let log = log.clone();
        task::spawn(
            async move {
                if reader.read_exact(&mut [0]).await.is_ok() {
                    log.add(1_000_000);
                }
            },
            level(3),
        );
    }
    yield_now().await;
    for index in 0..500 {
        let log = log.clone();
        task::spawn(
            async move {
                for _ in 0..20 {
                    log.add(index);
                    yield_now().await;
                }
            },
            level(40),
        );
    }
    writer.write_all(&[1]).await?;
    let_others_run().await?;
    let entries = log.entries();
    let place = entries.iter().position(|&entry| entry == 1_000_000);
    // Far more than the kernel needs to complete the read, far less than there was to do.
    check!(
        place.is_some_and(|place| place < 3000),
        "the urgent one ran at {place:?} of {}",
        entries.len()
    );
    Ok(())
}

/// The process is woken for a most urgent coroutine and continues with a less urgent one. The
/// kernel then has work of a level in between, and must run it. (Earlier, the process kept the
/// urgency with which it had been woken, and the hart spun.)
async fn urgent_wake_then_less_urgent_work() -> Outcome {
    let (mut reader, mut writer) = pipe()?;
    let received = task::spawn_join(async move { reader.read(&mut [0; 8]).await }, level(1));
    let woken = Arc::new(Event::new());
    let wakes = woken.clone();
    task::spawn(
        async move {
            sleep(Duration::from_millis(20)).await;
            wakes.set();
        },
        Priority::MOST_URGENT,
    );
    // So that the process last ran for this coroutine before it becomes idle.
    sleep(Duration::from_millis(5)).await;
    woken.wait().await;
    writer.write_all(b"between").await?;
    check_equal!(soon("the read in between", received).await??, Ok(7), "bytes read");
    Ok(())
}

async fn peers_take_turns() -> Outcome {
    let log = Log::new(400);
    for index in 0..10 {
        let log = log.clone();
        task::spawn(
            async move {
                for _ in 0..20 {
                    log.add(index);
                    yield_now().await;
                }
            },
            Priority::DEFAULT,
        );
    }
    let_others_run().await?;
    let expected: Vec<u32> = (0..20).flat_map(|_| 0..10).collect();
    check_equal!(log.entries(), expected, "turns of peers");
    Ok(())
}

async fn priority_can_change() -> Outcome {
    let log = Log::new(8);
    let spawn = |entry: u32, urgency: u8| {
        let log = log.clone();
        task::spawn(async move { log.add(entry) }, level(urgency))
    };
    let (first, second, third) = (spawn(1, 40), spawn(2, 41), spawn(3, 42));
    check!(task::set_priority(third, level(5)), "the third is gone");
    check!(task::set_priority(first, level(50)), "the first is gone");
    check_equal!(task::priority(third), Some(level(5)), "priority of the third");
    check_equal!(task::priority(second), Some(level(41)), "priority of the second");
    let_others_run().await?;
    check_equal!(log.entries(), [3, 2, 1], "order after the changes");
    check!(!task::set_priority(first, level(5)), "the first is still there");
    Ok(())
}

async fn wake_up_is_idempotent() -> Outcome {
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = polls.clone();
    let id = task::spawn(
        core::future::poll_fn(move |_| {
            counted.fetch_add(1, Relaxed);
            core::task::Poll::<()>::Pending
        }),
        Priority::DEFAULT,
    );
    let_others_run().await?;
    check_equal!(polls.load(Relaxed), 1, "polls after it was spawned");
    for round in 2..20 {
        for _ in 0..5 {
            check!(task::wake_up(id), "it is gone");
        }
        let_others_run().await?;
        check_equal!(polls.load(Relaxed), round, "polls after five wakes at once");
    }
    check!(task::cancel(id), "it is gone");
    let_others_run().await?;
    check!(!task::wake_up(id), "it is still there");
    Ok(())
}

/// Ids of coroutines that have ended refer to none, even when their slot is reused.
async fn dead_ids_wake_nothing() -> Outcome {
    let dead: Vec<CoroutineId> =
        (0..100).map(|_| task::spawn(async {}, Priority::DEFAULT)).collect();
    let_others_run().await?;
    let polls = Arc::new(AtomicUsize::new(0));
    let alive: Vec<CoroutineId> = (0..100)
        .map(|_| {
            let polls = polls.clone();
            task::spawn(
                core::future::poll_fn(move |_| {
                    polls.fetch_add(1, Relaxed);
                    core::task::Poll::<()>::Pending
                }),
                Priority::DEFAULT,
            )
        })
        .collect();
    let_others_run().await?;
    check_equal!(polls.load(Relaxed), 100, "polls of those alive");
    for &id in &dead {
        check!(!task::wake_up(id) && !task::cancel(id), "{id:?} is still there");
    }
    let_others_run().await?;
    check_equal!(polls.load(Relaxed), 100, "polls after the dead were woken");
    for id in alive {
        check!(task::cancel(id), "{id:?} is gone");
    }
    let_others_run().await?;
    Ok(())
}

/// Increments a counter when it is dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

async fn aborted() -> Outcome {
    let drops = Arc::new(AtomicUsize::new(0));
    let handles: Vec<_> = (0..50)
        .map(|_| {
            let guard = Dropped(drops.clone());
            task::spawn_join(
                async move {
                    let _guard = guard;
                    sleep(Duration::from_secs(1000)).await;
                },
                Priority::DEFAULT,
            )
        })
        .collect();
    let_others_run().await?;
    check_equal!(drops.load(Relaxed), 0, "dropped before");
    for handle in &handles {
        handle.abort();
    }
    for handle in handles {
        let output = soon("the end of what was aborted", handle).await?;
        check!(matches!(output, Err(JoinError::Cancelled)), "output {output:?}");
    }
    check_equal!(drops.load(Relaxed), 50, "dropped after");
    Ok(())
}

async fn thousands() -> Outcome {
    const COUNT: usize = 20_000;
    let before = task::live_count();
    let sum = Arc::new(AtomicUsize::new(0));
    for index in 0..COUNT {
        let sum = sum.clone();
        task::spawn(
            async move {
                yield_now().await;
                sum.fetch_add(index, Relaxed);
            },
            level((index % 64) as u8),
        );
    }
    check_equal!(task::live_count(), before + COUNT as u64, "coroutines alive");
    while task::live_count() > before {
        let_others_run().await?;
    }
    check_equal!(sum.load(Relaxed), COUNT * (COUNT - 1) / 2, "sum of what they added");
    Ok(())
}

async fn no_memory_for_another_one() -> Outcome {
    let used = process::quota(0, Resource::Memory)?.used;
    process::set_quota(0, Resource::Memory, used + (1 << 20))?;
    let mut spawned = 0;
    let error = loop {
        let state = [spawned as u8; 5000];
        let waits = async move {
            core::future::pending::<()>().await;
            core::hint::black_box(&state);
        };
        match task::try_spawn(waits, Priority::LEAST_URGENT) {
            Ok(_) if spawned < 1000 => spawned += 1,
            Ok(_) => return Err(Failure("memory has no end".into())),
            Err(error) => break error,
        }
    };
    check_equal!(error, SpawnError::OutOfMemory, "the error");
    check!(spawned > 20, "after {spawned}");
    Ok(())
}
