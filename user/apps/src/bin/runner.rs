//! A program with a `main` that is not a coroutine and runs its coroutines itself. SPEC 2.4.
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
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use cops::Arguments;
use cops::memory::statistics;
use cops::sync::{Mutex, MutexGuard, signal, wait_on};
use cops::task::{self, InsideCoroutine, Priority, Until, yield_now};
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

#[cops::main(explicit_runner)]
fn main(mut arguments: Arguments) -> Outcome {
    match arguments.nth(1) {
        Some("stalled") => until_stalled(),
        Some("empty") => until_empty(),
        Some("inside") => inside(),
        Some("several") => several(),
        Some("meanwhile") => others_run_meanwhile(),
        _ => Err("usage: runner stalled|empty|inside|several|meanwhile".into()),
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
    let expected = vec![(Err(InsideCoroutine), false); 2];
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
