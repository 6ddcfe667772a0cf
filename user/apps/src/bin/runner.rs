//! A program with a `main` that is not a coroutine and runs its coroutines itself, or has threads
//! that do. SPEC 2.4.
//!
//! ```text
//! runner CASE
//! ```
//!
//! Exits with 0 if the case succeeds; otherwise prints the reason. The guest tests (`rendezvous`)
//! run the cases.
#![no_std]
#![no_main]

extern crate alloc;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::cell::Cell;
use core::hint::black_box;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use cops::Arguments;
use cops::abi::Errno;
use cops::io;
use cops::memory::statistics;
use cops::process::{self, Resource};
use cops::sync::{self, Mutex, MutexGuard, signal, spsc, wait_on};
use cops::task::{self, Priority, RunError, Until, yield_now};
use cops::thread::{self, LocalKey};
use cops::time::{Duration, Instant, sleep};

/// Fails the case unless the condition holds.
macro_rules! check {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

type Outcome = Result<(), String>;

const FOREVER: Duration = Duration::from_secs(1_000_000);

#[cops::main(explicit_runner)]
fn main(mut arguments: Arguments) -> Outcome {
    match arguments.nth(1) {
        Some("stalled") => until_stalled(),
        Some("empty") => until_empty(),
        Some("inside") => inside(),
        Some("several") => several(),
        Some("meanwhile") => others_run_meanwhile(),
        Some("thread") => on_a_thread(),
        Some("threads") => on_threads(),
        Some("crowd") => on_more_threads_than_may(),
        Some("left") => left_alone(),
        Some("block-on") => block_on_beside_one_that_yields(),
        Some("block-on-left") => left_by_block_on(),
        Some("queued") => leaves_a_queued_call(),
        Some("without-memory") => spawn_without_memory(),
        _ => Err("usage: runner stalled|empty|inside|several|meanwhile|thread|threads|crowd|left|\
            block-on|block-on-left|queued|without-memory"
            .into()),
    }
}

/// Locks what coroutines share. There is one virtual CPU, and no coroutine awaits while it holds
/// the lock, so the lock is free.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.try_lock().expect("the lock is free")
}

fn run(until: Until) -> Outcome {
    task::run(until).map_err(|error| format!("{error}"))
}

/// No coroutine runs before the runner does; then the most urgent is first; the runner returns when
/// all others wait.
fn until_stalled() -> Outcome {
    const KEY: u64 = 7;
    check!(task::current().is_none(), "main is a coroutine");
    let order = Arc::new(Mutex::new(Vec::new()));
    for level in [40, 3, 63, 0, 20] {
        let order = order.clone();
        task::spawn(async move { lock(&order).push(level) }, Priority::saturating(level));
    }
    check!(lock(&order).is_empty(), "{:?} ran before the runner", lock(&order));
    run(Until::Stalled)?;
    check!(*lock(&order) == vec![0, 3, 20, 40, 63], "they ran in the order {:?}", lock(&order));
    run(Until::Stalled)?;

    task::spawn(wait_on(KEY), Priority::DEFAULT);
    task::spawn(sleep(Duration::from_secs(1000)), Priority::DEFAULT);
    run(Until::Stalled)?;
    check!(task::live_count() == 2, "{} are left instead of two that wait", task::live_count());
    signal(KEY).map_err(|error| format!("{error}"))?;
    check!(task::live_count() == 2, "a signal polled a coroutine");
    run(Until::Stalled)?;
    // The sleeper ends with the process.
    check!(task::live_count() == 1, "{} are left instead of the sleeper", task::live_count());
    Ok(())
}

/// It returns when all coroutines have ended, and sleeps meanwhile.
fn until_empty() -> Outcome {
    const STEPS: u32 = 10;
    const STEP: Duration = Duration::from_millis(20);
    run(Until::Empty)?;
    let ended = Arc::new(AtomicUsize::new(0));
    let (begin, before) = (Instant::now(), system_calls()?);
    for _ in 0..3 {
        let ended = ended.clone();
        task::spawn(
            async move {
                for _ in 0..STEPS {
                    sleep(STEP).await;
                }
                // Includes a coroutine that is spawned last of all.
                let last = async move {
                    ended.fetch_add(1, Relaxed);
                };
                task::spawn(last, Priority::LEAST_URGENT);
            },
            Priority::DEFAULT,
        );
    }
    run(Until::Empty)?;
    let calls = system_calls()? - before;
    check!(ended.load(Relaxed) == 3, "{} of 3 have ended", ended.load(Relaxed));
    check!(task::live_count() == 0, "{} are left", task::live_count());
    check!(begin.elapsed() >= STEP * STEPS, "they slept for {:?} only", begin.elapsed());
    check!(calls < 400, "{calls} system calls in {} sleeps", 3 * STEPS);
    Ok(())
}

fn system_calls() -> Result<u64, String> {
    statistics().map(|statistics| statistics.system_calls).map_err(|error| format!("{error}"))
}

/// A coroutine that calls the runner gets an error, and nothing is polled inside it.
fn inside() -> Outcome {
    let answers = Arc::new(Mutex::new(Vec::new()));
    let polled_under_it = Arc::new(AtomicBool::new(false));
    {
        let (answers, polled) = (answers.clone(), polled_under_it.clone());
        task::spawn(
            async move {
                let seen = polled.clone();
                task::spawn(async move { seen.store(true, Relaxed) }, Priority::MOST_URGENT);
                for until in [Until::Stalled, Until::Empty] {
                    let answer = task::run(until);
                    lock(&answers).push((answer, polled.load(Relaxed)));
                }
            },
            Priority::DEFAULT,
        );
    }
    run(Until::Empty)?;
    let expected = vec![(Err(RunError::InsideCoroutine), false); 2];
    check!(*lock(&answers) == expected, "answers {:?}", lock(&answers));
    check!(polled_under_it.load(Relaxed), "the other one never ran");
    Ok(())
}

/// With several virtual CPUs, the last coroutine may exit on any of them: the runner notices each
/// time.
fn several() -> Outcome {
    const ROUNDS: usize = 100;
    const EACH: usize = 20;
    task::alloc_cpu(3).map_err(|error| format!("{error}"))?;
    let ended = Arc::new(AtomicUsize::new(0));
    for round in 1..=ROUNDS {
        for index in 0..EACH {
            let ended = ended.clone();
            task::spawn(
                async move {
                    for _ in 0..index {
                        yield_now().await;
                    }
                    if index % 10 == 0 {
                        sleep(Duration::from_micros(300)).await;
                    }
                    ended.fetch_add(1, Relaxed);
                },
                Priority::saturating(index as u32),
            );
        }
        run(Until::Empty)?;
        let ended = ended.load(Relaxed);
        check!(ended == round * EACH, "{ended} instead of {} have ended", round * EACH);
    }
    Ok(())
}

/// A thread is the runner, while `main` waits for it.
fn on_a_thread() -> Outcome {
    const STEP: Duration = Duration::from_millis(5);
    static SEEN: LocalKey<Cell<u32>> = LocalKey::new(|| Cell::new(0));
    let order = Arc::new(Mutex::new(Vec::new()));
    let push = |level: u8, order: &Arc<Mutex<Vec<u8>>>| {
        let order = order.clone();
        let seen = async move {
            lock(&order).push(level);
            SEEN.with(|seen| seen.set(seen.get() + 1));
        };
        task::spawn(seen, Priority::saturating(level.into()));
    };
    for level in [40, 3, 63] {
        push(level, &order);
    }
    let theirs = order.clone();
    let (answer_sent, mut answer) = sync::oneshot();
    let thread = thread::spawn(move || -> Outcome {
        for level in [20, 0] {
            push(level, &theirs);
        }
        check!(lock(&theirs).is_empty(), "{:?} ran before the runner", lock(&theirs));
        run(Until::Stalled)?;
        check!(*lock(&theirs) == vec![0, 3, 20, 40, 63], "the order {:?}", lock(&theirs));
        // They have seen the values and the handle of this thread.
        check!(SEEN.with(Cell::get) == 5, "{} have seen this thread's value", SEEN.with(Cell::get));
        let me = thread::current().id();
        let inside = async move {
            let _ = answer_sent.send((thread::current().id() == me, task::run(Until::Stalled)));
        };
        task::spawn(inside, Priority::DEFAULT);
        run(Until::Stalled)?;
        // It sleeps until the results of calls arrive, and the last coroutine has ended.
        let begin = Instant::now();
        for _ in 0..10 {
            task::spawn(
                async {
                    for _ in 0..4 {
                        sleep(STEP).await;
                    }
                },
                Priority::DEFAULT,
            );
        }
        let before = system_calls()?;
        run(Until::Empty)?;
        check!(begin.elapsed() >= STEP * 4, "they slept for {:?} only", begin.elapsed());
        check!(task::live_count() == 0, "{} are left", task::live_count());
        let calls = system_calls()? - before;
        check!(calls < 300, "{calls} system calls in 40 sleeps");
        check!(task::current().is_none(), "the thread is a coroutine");
        Ok(())
    });
    let Ok(result) = thread.join();
    result?;
    let answer = thread::block_on(answer.receive()).ok_or("no answer")?;
    check!(answer == (true, Err(RunError::InsideCoroutine)), "a coroutine got {answer:?}");
    // And `main` again.
    push(1, &order);
    run(Until::Empty)?;
    check!(lock(&order).last() == Some(&1), "main ran nothing afterwards");
    check!(SEEN.with(Cell::get) == 1, "the value of main is {}", SEEN.with(Cell::get));
    Ok(())
}

/// Several threads and `main` run coroutines in turn and at the same time: each coroutine is
/// polled, on whatever worker it blocked.
fn on_threads() -> Outcome {
    const THREADS: usize = 3;
    const ROUNDS: usize = 100;
    const EACH: usize = 10;
    let ended = Arc::new(AtomicUsize::new(0));
    let work = |ended: &Arc<AtomicUsize>| {
        for index in 0..EACH {
            let ended = ended.clone();
            task::spawn(
                async move {
                    for _ in 0..index {
                        yield_now().await;
                    }
                    sleep(Duration::from_micros(100 * index as u64)).await;
                    ended.fetch_add(1, Relaxed);
                },
                Priority::saturating(index as u32),
            );
        }
    };
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let ended = ended.clone();
            thread::spawn(move || -> Outcome {
                for round in 0..ROUNDS {
                    work(&ended);
                    run(if (round + number) % 3 == 0 { Until::Empty } else { Until::Stalled })?;
                }
                run(Until::Empty)
            })
        })
        .collect();
    for _ in 0..ROUNDS {
        work(&ended);
        run(Until::Stalled)?;
    }
    for thread in threads {
        let Ok(result) = thread.join();
        result?;
    }
    run(Until::Empty)?;
    let (ended, expected) = (ended.load(Relaxed), (THREADS + 1) * ROUNDS * EACH);
    check!(ended == expected, "{ended} instead of {expected} have ended");
    Ok(())
}

/// A process has eight virtual CPUs: `main`, and seven threads that run coroutines at a time.
fn on_more_threads_than_may() -> Outcome {
    const THREADS: usize = 12;
    const SEATS: usize = 7;
    let begun = Arc::new(AtomicUsize::new(0));
    // As long as this one waits, no `run` returns.
    task::spawn(wait_on(7), Priority::DEFAULT);
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let begun = begun.clone();
            thread::spawn(move || {
                let result = task::run(Until::Empty);
                begun.fetch_add(1, Relaxed);
                result
            })
        })
        .collect();
    while begun.load(Relaxed) < THREADS - SEATS {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(20));
    let refused = begun.load(Relaxed);
    check!(refused == THREADS - SEATS, "{refused} of {THREADS} threads were refused");
    signal(7).map_err(|error| format!("{error}"))?;
    run(Until::Stalled)?;
    let mut results = [0; 2];
    for thread in threads {
        let Ok(result) = thread.join();
        match result {
            Ok(()) => results[0] += 1,
            Err(RunError::NoVirtualCpu(Errno::EAGAIN)) => results[1] += 1,
            Err(error) => return Err(format!("a thread got: {error}")),
        }
    }
    check!(results == [SEATS, THREADS - SEATS], "served and refused: {results:?}");
    // The seats serve other threads now.
    for _ in 0..20 {
        task::spawn(async {}, Priority::DEFAULT);
        let Ok(result) = thread::spawn(|| run(Until::Empty)).join();
        result?;
    }
    Ok(())
}

/// Passes a value to a coroutine that has last run on a worker which runs no coroutines any more,
/// and gets one from it. Both ends are those of a thread, which is no worker.
fn exchange(
    mut requests: spsc::Sender<u32>,
    mut answers: spsc::Receiver<u32>,
) -> thread::JoinHandle<Option<u32>> {
    thread::spawn(move || {
        thread::block_on(requests.send(1)).ok()?;
        thread::block_on(answers.receive())
    })
}

/// A coroutine that adds 1, and the other ends.
fn adder() -> (spsc::Sender<u32>, spsc::Receiver<u32>) {
    let (requests, mut waiting) = spsc::channel::<u32>(1);
    let (mut finished, answers) = spsc::channel(1);
    task::spawn(
        async move {
            while let Some(number) = waiting.receive().await {
                let _ = finished.send(number + 1).await;
            }
        },
        Priority::DEFAULT,
    );
    (requests, answers)
}

/// `main` has run a coroutine, and waits for a thread: another virtual CPU, which sleeps, comes for
/// what the thread makes ready.
fn left_alone() -> Outcome {
    task::alloc_cpu(1).map_err(|error| format!("{error}"))?;
    for round in 0..50 {
        let (requests, answers) = adder();
        run(Until::Stalled)?;
        if round % 2 == 0 {
            // The other one certainly sleeps.
            thread::sleep(Duration::from_millis(2));
        }
        let Ok(answer) = exchange(requests, answers).join();
        check!(answer == Some(2), "round {round}: {answer:?}");
    }
    run(Until::Empty)
}

/// `main` waits for a future while some coroutine is always ready.
fn block_on_beside_one_that_yields() -> Outcome {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    let busy = async move {
        while !over.load(Relaxed) {
            yield_now().await;
        }
    };
    task::spawn(busy, Priority::LEAST_URGENT);
    let one = thread::block_on(task::spawn_join(async { 1 }, Priority::MOST_URGENT));
    check!(matches!(one, Ok(1)), "{one:?}");
    is_over.store(true, Relaxed);
    run(Until::Empty)
}

/// `main` computes after it has waited for a future: another virtual CPU, which sleeps, comes for
/// the urgent coroutine that is ready then.
fn left_by_block_on() -> Outcome {
    const ROUNDS: usize = 15;
    const PATIENCE: Duration = Duration::from_secs(1);
    task::alloc_cpu(1).map_err(|error| format!("{error}"))?;
    let mut waits = Vec::new();
    for _ in 0..ROUNDS {
        // The other one sleeps again.
        thread::sleep(Duration::from_millis(2));
        let has_begun = Arc::new(AtomicBool::new(false));
        let theirs = has_begun.clone();
        let begins = async move { theirs.store(true, Relaxed) };
        thread::block_on(async move {
            let _ = task::spawn_join(async {}, Priority::DEFAULT).await;
            task::spawn(begins, Priority::MOST_URGENT);
        });
        let begin = Instant::now();
        while !has_begun.load(Relaxed) && begin.elapsed() < PATIENCE {
            // With one hart, the other virtual CPU runs only now or at the end of a time slice.
            thread::yield_now();
        }
        waits.push(begin.elapsed());
    }
    waits.sort_unstable();
    // If the other one is not notified, most coroutines wait for the end of the computation.
    let usual = waits[ROUNDS / 2];
    check!(usual < Duration::from_millis(200), "it usually begins after {usual:?}");
    run(Until::Empty)
}

/// `main` has run a coroutine with a call that waits for room, and runs none any more. Does not
/// end; its parent makes room and ends it.
fn leaves_a_queued_call() -> Outcome {
    const HELD: u64 = 40;
    task::alloc_cpu(1).map_err(|error| format!("{error}"))?;
    process::set_quota(0, Resource::Calls, HELD).map_err(|error| format!("{error}"))?;
    for _ in 0..HELD {
        task::spawn(sleep(FOREVER), Priority::DEFAULT);
    }
    run(Until::Stalled)?;
    // The other virtual CPU sleeps, and has seen no call that waits.
    thread::sleep(Duration::from_millis(5));
    task::spawn(sleep(FOREVER), Priority::DEFAULT);
    run(Until::Stalled)?;
    thread::sleep(FOREVER);
    Ok(())
}

/// `main` starts its first thread without any memory. That needs no handle of its own.
fn spawn_without_memory() -> Outcome {
    const LARGEST: usize = 512;
    let fail = |error: io::Error| format!("{error}");
    // For the message.
    let reserve = black_box(vec![0u8; LARGEST]);
    let used = process::quota(0, Resource::Memory).map_err(fail)?.used;
    process::set_quota(0, Resource::Memory, used).map_err(fail)?;
    for bytes in (1..=LARGEST).rev() {
        let mut block = Vec::<u8>::new();
        while block.try_reserve_exact(bytes).is_ok() {
            // Otherwise the compiler leaves the allocation out, which then never fails.
            core::mem::forget(black_box(core::mem::take(&mut block)));
        }
    }
    let error = thread::Builder::new().spawn(|| ()).err();
    drop(reserve);
    check!(error == Some(io::Error::Kernel(Errno::ENOMEM)), "{error:?}");
    Ok(())
}

/// Another virtual CPU gets the result of a call while `main` computes and runs no coroutine.
fn others_run_meanwhile() -> Outcome {
    const PATIENCE: Duration = Duration::from_secs(5);
    task::alloc_cpu(1).map_err(|error| format!("{error}"))?;
    let woken = Arc::new(AtomicUsize::new(0));
    let counted = woken.clone();
    task::spawn(
        async move {
            for _ in 0..5 {
                sleep(Duration::from_millis(5)).await;
                counted.fetch_add(1, Relaxed);
            }
        },
        Priority::DEFAULT,
    );
    // Coroutines that are spawned here start here; the rest of their work may be done anywhere.
    run(Until::Stalled)?;
    let begin = Instant::now();
    while woken.load(Relaxed) < 5 {
        check!(
            begin.elapsed() < PATIENCE,
            "woken {} times while main computed",
            woken.load(Relaxed)
        );
        core::hint::spin_loop();
    }
    run(Until::Empty)
}
