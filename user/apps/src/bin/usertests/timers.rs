//! Clocks and sleeping.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use core::task::Poll;

use cops::abi::Errno::{self, EINVAL, ENOMEM};
use cops::abi::syscall::{
    CLOCK_GETTIME, CLOCK_MONOTONIC, CLOCK_NANOSLEEP, CLOCK_REALTIME, TIMER_ABSTIME,
};
use cops::process::{self, Resource};
use cops::sync::channel;
use cops::task::{self, Priority};
use cops::time::{Duration, Instant, sleep, sleep_until, timeout};
use futures_util::future::join_all;

use crate::harness::{Failure, Outcome, PATIENCE, harts, soon, start, time_is_counted};
use crate::processes::HELPER;
use crate::raw::{self, Asked};
use crate::{check, check_equal, scheduling, tests};

tests! { timers:
    never_too_early,
    in_order,
    zero_and_past,
    synchronous_sleep,
    time_limits,
    clocks_agree,
    real_time,
    many,
    cancelled,
    a_sleep_that_is_raised_before_it_ends_ends_in_time,
    a_sleep_that_is_raised_after_it_was_due_ends_at_once,
    a_sleep_without_memory_lets_others_run,
}

async fn never_too_early() -> Outcome {
    for microseconds in [1, 10, 100, 999, 1000, 1001, 5000, 20_000] {
        let duration = Duration::from_micros(microseconds);
        for _ in 0..5 {
            let begin = Instant::now();
            sleep(duration).await;
            let slept = begin.elapsed();
            check!(slept >= duration, "slept {slept:?} instead of {duration:?}");
            let is_late = time_is_counted() && slept > duration + Duration::from_millis(1);
            check!(!is_late, "slept {slept:?} instead of {duration:?}");
        }
    }
    Ok(())
}

async fn in_order() -> Outcome {
    const COUNT: usize = 50;
    let (sender, receiver) = channel(COUNT);
    let begin = Instant::now() + Duration::from_millis(50);
    // Spawned in an order that is not that of their deadlines.
    for index in (0..COUNT).map(|index| index * 17 % COUNT) {
        let sender = sender.clone();
        let deadline = begin + Duration::from_millis(4) * index as u32;
        task::spawn(
            async move {
                sleep_until(deadline).await;
                let _ = sender.send((index, Instant::now() >= deadline)).await;
            },
            Priority::DEFAULT,
        );
    }
    let mut woken = Vec::new();
    for _ in 0..COUNT {
        let Some((index, in_time)) = soon("the next timer", receiver.receive()).await? else {
            break;
        };
        check!(in_time, "timer {index} came too early");
        woken.push(index);
    }
    // With several harts, two sleeps that are both due when the host runs a hart complete at the
    // same time.
    if !time_is_counted() {
        woken.sort_unstable();
    }
    check_equal!(woken, (0..COUNT).collect::<Vec<_>>(), "the timers that came");
    Ok(())
}

async fn zero_and_past() -> Outcome {
    let begin = Instant::now();
    for _ in 0..100 {
        sleep(Duration::ZERO).await;
        sleep_until(begin).await;
        check_equal!(cops::sleep!(Duration::ZERO), Ok(()), "synchronous sleep of no time");
    }
    let took = begin.elapsed();
    check!(
        !time_is_counted() || took < Duration::from_millis(100),
        "sleeping for no time took {took:?}"
    );
    Ok(())
}

async fn synchronous_sleep() -> Outcome {
    for milliseconds in [1, 7, 30] {
        let duration = Duration::from_millis(milliseconds);
        let begin = Instant::now();
        cops::sleep!(duration)?;
        check!(begin.elapsed() >= duration, "slept {:?} instead of {duration:?}", begin.elapsed());
    }
    Ok(())
}

async fn time_limits() -> Outcome {
    let short = Duration::from_millis(10);
    let begin = Instant::now();
    check!(timeout(short, core::future::pending::<()>()).await.is_err(), "what never comes came");
    check!(begin.elapsed() >= short, "the limit came after {:?}", begin.elapsed());
    check_equal!(timeout(short, async { 5 }).await, Ok(5), "what is there at once");
    check_equal!(
        timeout(Duration::from_secs(100), sleep(short)).await,
        Ok(()),
        "what comes in time"
    );
    check_equal!(
        timeout(Duration::ZERO, async { 6 }).await,
        Ok(6),
        "what is there, within no time"
    );
    Ok(())
}

fn kernel_time(clock: usize) -> Result<Duration, Errno> {
    let mut time = [0u64; 2];
    raw::call(CLOCK_GETTIME, [clock, time.as_mut_ptr().addr()])
        .map(|_| Duration::new(time[0], time[1] as u32))
}

/// The machine's clock returns today's date, and from boot on real time advances with the monotonic
/// clock.
async fn real_time() -> Outcome {
    /// 2020-01-01.
    const THEN: Duration = Duration::from_secs(1_577_836_800);
    const YEARS: Duration = Duration::from_secs(100 * 365 * 86_400);
    const ALLOWED: Duration = Duration::from_secs(1);
    let mut last = kernel_time(CLOCK_REALTIME)?;
    check!((THEN..THEN + YEARS).contains(&last), "real time is {last:?}");
    // Successive readings on one virtual CPU: monotonic, real, monotonic. Delays of the host
    // between them widen the range.
    let boot = last - kernel_time(CLOCK_MONOTONIC)?;
    for _ in 0..100 {
        let before = kernel_time(CLOCK_MONOTONIC)?;
        let now = kernel_time(CLOCK_REALTIME)?;
        let after = kernel_time(CLOCK_MONOTONIC)?;
        check!(now >= last, "real time went back from {last:?} to {now:?}");
        let range = boot + before..=boot + after + ALLOWED;
        check!(range.contains(&now), "real time is {now:?}, not in {range:?}");
        last = now;
        sleep(Duration::from_millis(1)).await;
    }
    // A deadline on this clock is a real time.
    let begin = kernel_time(CLOCK_MONOTONIC)?;
    let deadline = kernel_time(CLOCK_REALTIME)? + Duration::from_millis(20);
    let words = [deadline.as_secs(), u64::from(deadline.subsec_nanos())];
    let slept =
        raw::call(CLOCK_NANOSLEEP, [CLOCK_REALTIME, TIMER_ABSTIME, words.as_ptr().addr(), 0])?;
    check_equal!(slept, 0, "the result of a sleep until a moment of real time");
    let (end, real) = (kernel_time(CLOCK_MONOTONIC)?, kernel_time(CLOCK_REALTIME)?);
    check!(real >= deadline, "woke at {real:?}, before {deadline:?}");
    let slept = end - begin;
    check!(!time_is_counted() || slept < ALLOWED, "slept {slept:?} for 20 ms");
    raw::refused("a third clock", CLOCK_GETTIME, [2, words.as_ptr().addr()], &[EINVAL])?;
    Ok(())
}

/// The kernel's monotonic clock and the one that is read without the kernel agree, and neither goes
/// back.
async fn clocks_agree() -> Outcome {
    let kernel_time = || kernel_time(CLOCK_MONOTONIC);
    let (own, kernel) = (Instant::now(), kernel_time()?);
    let (mut last_own, mut last_kernel) = (own, kernel);
    for _ in 0..200 {
        let (now_own, now_kernel) = (Instant::now(), kernel_time()?);
        check!(now_own >= last_own && now_kernel >= last_kernel, "a clock went back");
        (last_own, last_kernel) = (now_own, now_kernel);
        sleep(Duration::from_micros(100)).await;
    }
    let (own, kernel) = (own.elapsed(), kernel_time()? - kernel);
    let difference = own.abs_diff(kernel);
    // With several harts, the host may run something else between the two readings.
    let allowed = if time_is_counted() { Duration::from_millis(1) } else { PATIENCE };
    check!(difference < allowed, "{own:?} by one clock, {kernel:?} by the other");
    Ok(())
}

async fn many() -> Outcome {
    let begin = Arc::new(Instant::now());
    let sleeps: Vec<_> = (0..2000u64)
        .map(|index| {
            let begin = begin.clone();
            let duration = Duration::from_micros(index * 7919 % 300_000);
            task::spawn_join(
                async move {
                    sleep_until(*begin + duration).await;
                    begin.elapsed() >= duration
                },
                Priority::DEFAULT,
            )
        })
        .collect();
    for slept in soon("2000 sleeps", join_all(sleeps)).await? {
        check!(slept?, "a sleep was too short");
    }
    Ok(())
}

/// Cancelled sleeps leave nothing that fires later.
async fn cancelled() -> Outcome {
    for _ in 0..500 {
        let long = sleep(Duration::from_secs(100));
        check!(timeout(Duration::from_micros(50), long).await.is_err(), "a long sleep was short");
    }
    Ok(())
}

/// The crowd sleeps for so long, while the programs are started that keep all harts.
const CROWD_SLEEPS: Duration = Duration::from_millis(150);

/// While every hart computes at level 20, a crowd of sleeps at level 40 is due, so the kernel
/// serves that level later. One more sleep of that level, which ends at `end` after the crowd's, is
/// raised to level 1 at `raise`. Returns how late it ends.
async fn raised(end: Duration, raise: Duration) -> Result<Duration, Failure> {
    const CROWD: usize = 8;
    let Some(own) = task::current() else { return Err(Failure("no coroutine".into())) };
    let due = Instant::now() + CROWD_SLEEPS;
    let low = Priority::saturating(40);
    let crowd: Vec<_> = (0..CROWD).map(|_| task::spawn_join(sleep_until(due), low)).collect();
    let sleeper = async move {
        sleep_until(due + end).await;
        Instant::now()
    };
    let sleeper = task::spawn_join(sleeper, low);
    // Less urgent than those that sleep: all of them have begun when this sleep ends.
    task::set_priority(own, Priority::LEAST_URGENT);
    sleep(Duration::from_millis(10)).await;
    task::set_priority(own, Priority::saturating(1));
    task::yield_now().await;
    let mut spinners = Vec::new();
    for _ in 0..harts() {
        spinners.push(start(&[HELPER, "spin-at", "20"])?);
    }
    scheduling::all_at(&spinners, 20).await?;
    let is_early = Instant::now() < due;
    sleep_until(due + raise).await;
    task::set_priority(sleeper.id(), Priority::saturating(1));
    // The programs would keep a sleep that is not raised from ending.
    let limit = if time_is_counted() { Duration::from_millis(300) } else { PATIENCE };
    let ended = timeout(limit, sleeper).await;
    scheduling::end_all(&mut spinners).await?;
    for sleep in soon("the crowd", join_all(crowd)).await? {
        sleep?;
    }
    check!(is_early || !time_is_counted(), "the programs took too long to start");
    let Ok(ended) = ended else {
        return Err(Failure(format!("the sleep was late by more than {limit:?}")));
    };
    Ok(ended?.duration_since(due + end.max(raise)))
}

async fn a_sleep_that_is_raised_before_it_ends_ends_in_time() -> Outcome {
    let late = raised(Duration::from_millis(20), Duration::from_millis(10)).await?;
    check!(!time_is_counted() || late < Duration::from_millis(2), "the sleep was late by {late:?}");
    Ok(())
}

async fn a_sleep_that_is_raised_after_it_was_due_ends_at_once() -> Outcome {
    let late = raised(Duration::from_millis(5), Duration::from_millis(10)).await?;
    check!(!time_is_counted() || late < Duration::from_millis(2), "the sleep was late by {late:?}");
    Ok(())
}

/// The kernel has no memory for the call, so the library polls the clock.
async fn a_sleep_without_memory_lets_others_run() -> Outcome {
    const FOREVER: [usize; 2] = [1_000_000, 0];
    const STEPS: u32 = 1000;
    let own = task::current().ok_or(Failure("no coroutine".into()))?;
    let steps = Arc::new(AtomicU32::new(0));
    let counted = steps.clone();
    task::spawn(
        async move {
            for _ in 0..STEPS {
                counted.fetch_add(1, Relaxed);
                task::yield_now().await;
            }
        },
        Priority::DEFAULT,
    );
    process::set_quota(0, Resource::Memory, process::quota(0, Resource::Memory)?.used)?;
    let refused = loop {
        match raw::ask(CLOCK_NANOSLEEP, [1, 0, FOREVER.as_ptr().addr()]) {
            Asked::InFlight(_) => {}
            Asked::Done(result) => break result,
        }
    };
    check_equal!(refused, Err(ENOMEM), "the sleep for which there is no memory");
    let urgent = Priority::saturating(1);
    task::set_priority(own, urgent);
    sleep(Duration::from_millis(50)).await;
    check_equal!(steps.load(Relaxed), STEPS, "steps of a less urgent coroutine");
    check_equal!(task::current_priority(), urgent, "the priority after the sleep");

    let mut long = pin!(sleep(Duration::from_secs(1000)));
    let is_ready = poll_fn(|context| Poll::Ready(long.as_mut().poll(context).is_ready())).await;
    check!(!is_ready, "it has not slept");
    check_equal!(task::current_priority(), Priority::LEAST_URGENT, "the priority meanwhile");
    long.set(sleep(Duration::ZERO));
    check_equal!(task::current_priority(), urgent, "the priority after a sleep that was dropped");
    Ok(())
}
