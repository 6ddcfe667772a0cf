//! User-level interrupts: when they are delivered, when they are suppressed, and that the
//! interrupted code is not affected. SPEC 3.8, decision 11.
#![allow(unsafe_code)]

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::Future;
use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use cops::abi::interrupt::{CpuPhase, status};
use cops::abi::layout::PROCESS_PAGE;
use cops::abi::page::ProcessPage;
use cops::memory::statistics;
use cops::process::ExitCode;
use cops::task::{self, Priority, yield_now};
use cops::time::{Duration, Instant, sleep};
use futures_util::future::join_all;

use crate::harness::{
    Failure, Outcome, PATIENCE, become_level, harts, level, run, soon, time_is_counted, until,
};
use crate::processes::HELPER;
use crate::registers::{spin_floats, spin_integers};
use crate::{check, check_equal, tests};

tests! { interrupts:
    integer_registers_in_a_storm,
    floating_point_registers_in_a_storm,
    registers_in_a_storm_on_four_cpus,
    urgent_result_is_announced,
    less_urgent_result_is_not_delivered_at_once,
    overdue_result_is_delivered,
    parked_cpu_takes_the_result,
    busy_cpu_takes_the_result,
    masked,
    garbage_handler,
    phases_are_shown,
}

pub fn page() -> &'static ProcessPage {
    // SAFETY: the kernel maps a `ProcessPage` at this address as long as the process lives, and all
    // its fields are atomics.
    unsafe { &*with_exposed_provenance::<ProcessPage>(PROCESS_PAGE) }
}

/// Number of interrupts taken by any process.
fn taken() -> Result<u64, Failure> {
    Ok(statistics()?.user_interrupts_taken)
}

/// Sleeps of an urgent coroutine end, one per millisecond, while less urgent coroutines spin with
/// all registers in use.
async fn storm(spinners: usize, spin: fn(u64) -> Vec<usize>) -> Outcome {
    if spinners > 1 {
        task::alloc_cpu(spinners - 1)?;
    }
    let before = taken()?;
    let woken = Arc::new(AtomicU64::new(0));
    for index in 0..300 {
        let woken = woken.clone();
        let sleep = sleep(Duration::from_millis(20) + Duration::from_micros(1300 * index));
        let sleeper = async move {
            sleep.await;
            woken.fetch_add(1, Relaxed);
        };
        task::spawn(sleeper, level(5));
    }
    // More urgent than the spinning coroutines, less urgent than the sleeping ones.
    yield_now().await;
    // On a loaded host many sleeps end at once and cause one interrupt, so more sleeps are needed.
    let stormy = move || {
        let taken = taken().map_or(0, |taken| taken - before);
        taken >= 20
    };
    let more = task::spawn_join(
        async move {
            while !stormy() {
                sleep(Duration::from_millis(1)).await;
            }
        },
        level(5),
    );
    let spinning: Vec<_> = (1..=spinners as u64)
        .map(|seed| {
            let spin_on = async move {
                let mut wrong = spin(seed);
                while wrong.is_empty() && !stormy() {
                    wrong = spin(seed);
                }
                wrong
            };
            task::spawn_join(spin_on, level(63))
        })
        .collect();
    for wrong in soon("those that spin", join_all(spinning)).await? {
        let wrong = wrong?;
        check!(wrong.is_empty(), "registers {wrong:?} changed (32: control and status)");
    }
    let taken = taken()? - before;
    cops::println!(
        "# {taken} interrupts while {spinners} spun, {} sleeps over",
        woken.load(Relaxed)
    );
    check!(taken >= 20, "{taken} interrupts are no storm");
    soon("the last sleep", more).await??;
    soon("sleeps", async {
        while woken.load(Relaxed) < 300 {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

async fn integer_registers_in_a_storm() -> Outcome {
    storm(1, spin_integers).await
}

async fn floating_point_registers_in_a_storm() -> Outcome {
    storm(1, spin_floats).await
}

async fn registers_in_a_storm_on_four_cpus() -> Outcome {
    storm(4, spin_floats).await
}

/// Spins until `done` returns true; returns false if the limit is reached first.
fn spin_until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < limit {
        if done() {
            return true;
        }
        core::hint::spin_loop();
    }
    false
}

fn shows(level: u8) -> bool {
    page().workers[0].waiting() & 1 << level != 0
}

/// A coroutine that sleeps 25 ms at `level`, and increments a counter when it runs again.
async fn sleeper(at: u8) -> Arc<AtomicUsize> {
    let (asleep, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (begun, ended) = (asleep.clone(), over.clone());
    let body = async move {
        begun.store(1, Relaxed);
        sleep(Duration::from_millis(25)).await;
        ended.store(1, Relaxed);
    };
    task::spawn(body, level(at));
    while asleep.load(Relaxed) == 0 {
        yield_now().await;
    }
    over
}

/// While the only virtual CPU is inside a poll, a result for a more urgent coroutine appears in its
/// bitmap at once.
async fn urgent_result_is_announced() -> Outcome {
    become_level(50).await;
    let before = taken()?;
    let over = still_asleep(|| sleeper(4)).await?;
    let announced = spin_until(PATIENCE, || shows(4));
    check!(announced, "the bitmap never showed it");
    check_equal!(over.load(Relaxed), 0, "coroutines that ran in the middle of a poll");
    check!(taken()? > before, "no interrupt was taken");
    yield_now().await;
    check_equal!(over.load(Relaxed), 1, "coroutines that ran at the next scheduling point");
    Ok(())
}

/// A result for a coroutine that is less urgent than the poll does not interrupt the poll: it is
/// read at the next scheduling point.
async fn less_urgent_result_is_not_delivered_at_once() -> Outcome {
    if harts() == 1 {
        // With one hart, the kernel does no less urgent work either during the poll: see
        // `overdue_result_is_delivered`.
        return Ok(());
    }
    become_level(4).await;
    let suppressed = || Ok::<_, Failure>(statistics()?.user_interrupts_suppressed);
    let first = suppressed()?;
    for _ in 0..20 {
        let over = sleeper_below(50, Duration::from_millis(60)).await;
        if over.load(Relaxed) == 1 {
            // The host did not run this hart for so long that the sleep has already ended.
            continue;
        }
        let before = suppressed()?;
        // During the poll the result arrives, and the kernel decides not to interrupt a virtual
        // CPU; or the time slice ends meanwhile, which is another reason to interrupt and depends
        // on the host.
        let mut arrived = false;
        let begin = Instant::now();
        while !arrived && begin.elapsed() < PATIENCE {
            arrived = suppressed()? > before || over.load(Relaxed) == 1 || shows(50);
        }
        check!(arrived, "the result never came");
        check_equal!(over.load(Relaxed), 0, "coroutines that ran in the middle of a poll");
        until("the sleep is over", || Ok(over.load(Relaxed) == 1)).await?;
    }
    check!(
        suppressed()? > first,
        "each of 20 results that were less urgent than the poll interrupted it at once"
    );
    Ok(())
}

/// At the latest at the end of the time slice, the queues contain what has arrived, however urgent.
async fn overdue_result_is_delivered() -> Outcome {
    become_level(4).await;
    if harts() == 1 {
        // The kernel's part of the sleep is also less urgent than the poll: nothing arrives before
        // the poll returns.
        let over = sleeper_below(50, Duration::from_millis(200)).await;
        let arrived = spin_until(Duration::from_millis(300), || shows(50));
        check!(
            !arrived && over.load(Relaxed) == 0,
            "the kernel did something less urgent in the meantime"
        );
        return Ok(());
    }
    let over = still_asleep(|| sleeper_below(50, Duration::from_millis(20))).await?;
    check!(spin_until(PATIENCE, || shows(50)), "the bitmap never showed it");
    check_equal!(over.load(Relaxed), 0, "coroutines that ran in the middle of a poll");
    Ok(())
}

/// Starts a sleeper that still sleeps when the caller continues; it cannot run before the caller's
/// poll ends. On a loaded host, a hart may not run for longer than a sleep: then it starts another
/// one.
async fn still_asleep<S: Future<Output = Arc<AtomicUsize>>>(
    start: impl Fn() -> S,
) -> Result<Arc<AtomicUsize>, Failure> {
    for _ in 0..100 {
        let over = start().await;
        if over.load(Relaxed) == 0 {
            return Ok(over);
        }
    }
    Err(Failure("each of 100 sleeps was over before the poll went on".into()))
}

/// Like [`sleeper`], for a sleeper that is less urgent than the caller; the caller sleeps for 5 ms
/// so that the sleeper can begin.
async fn sleeper_below(at: u8, duration: Duration) -> Arc<AtomicUsize> {
    let over = Arc::new(AtomicUsize::new(0));
    let ended = over.clone();
    let body = async move {
        sleep(duration).await;
        ended.store(1, Relaxed);
    };
    task::spawn(body, level(at));
    sleep(Duration::from_millis(5)).await;
    over
}

/// One virtual CPU is in a long poll, the other is parked: the result does not wait for the end of
/// the poll.
async fn parked_cpu_takes_the_result() -> Outcome {
    task::alloc_cpu(1)?;
    // With a single hart, nothing less urgent than the poll is done, not even in the kernel.
    let levels: &[u8] = if harts() == 1 { &[3] } else { &[3, 50] };
    for &at in levels {
        become_level(20).await;
        let over = sleeper_below(at, Duration::from_millis(25)).await;
        let begin = Instant::now();
        let ran = spin_until(PATIENCE, || over.load(Relaxed) == 1);
        check!(ran, "level {at}: it waited for the end of the poll");
        cops::println!("# level {at}: over after {:?} of a poll at level 20", begin.elapsed());
    }
    Ok(())
}

/// One virtual CPU is in a long poll, the other has short polls: that one finds the result. The
/// long poll is not interrupted, by which what waits would become ready behind it.
///
/// If the host suspends a hart for a slice, short polls look like a long one there. So with several
/// harts some rounds may fail.
async fn busy_cpu_takes_the_result() -> Outcome {
    const ROUNDS: u64 = 20;
    const LONG: Duration = Duration::from_secs(1);
    task::alloc_cpu(1)?;
    let (mut late, before) = (0, taken()?);
    for _ in 0..ROUNDS {
        let (is_over, left) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(2)));
        let polls = Arc::new(AtomicUsize::new(0));
        for _ in 0..2 {
            let (is_over, left, polls) = (is_over.clone(), left.clone(), polls.clone());
            let short = async move {
                while is_over.load(Relaxed) == 0 {
                    polls.fetch_add(1, Relaxed);
                    yield_now().await;
                }
                left.fetch_sub(1, Relaxed);
            };
            task::spawn(short, Priority::DEFAULT);
        }
        let over = sleeper(Priority::DEFAULT.level()).await;
        let begun = polls.load(Relaxed);
        let ran = spin_until(LONG, || over.load(Relaxed) == 1);
        let is_alone = polls.load(Relaxed) == begun;
        is_over.store(1, Relaxed);
        check!(ran || !is_alone, "the other virtual CPU does nothing");
        late += u64::from(!ran);
        until("all have ended", || Ok(left.load(Relaxed) == 0)).await?;
    }
    let interrupts = taken()? - before;
    cops::println!("# {late} of {ROUNDS} waited for the end of a poll, {interrupts} interrupts");
    if time_is_counted() {
        check_equal!((late, interrupts), (0, 0), "results that were late, and interrupts");
    }
    check!(late * 2 <= ROUNDS, "{late} of {ROUNDS} waited for the end of a long poll");
    Ok(())
}

/// With its enable bit off, a virtual CPU is not interrupted, and loses nothing.
async fn masked() -> Outcome {
    become_level(50).await;
    let record = &page().cpus[0];
    record.status.fetch_and(!status::ENABLE, Relaxed);
    let over = sleeper(4).await;
    let announced = spin_until(Duration::from_millis(100), || shows(4));
    record.status.fetch_or(status::ENABLE, Relaxed);
    check!(!announced, "it was interrupted");
    yield_now().await;
    yield_now().await;
    check_equal!(over.load(Relaxed), 1, "coroutines that ran at the next scheduling point");
    Ok(())
}

/// A process with an invalid handler address ends because of it, and no other process does.
async fn garbage_handler() -> Outcome {
    const SIGSEGV: u8 = 11;
    let status = run(&[HELPER, "garbage-handler"]).await?;
    check_equal!(status.signal(), Some(SIGSEGV), "how it ended");
    Ok(())
}

/// Runs in another process: gets interrupted with an invalid handler address.
pub fn interrupt_into_garbage() -> ExitCode {
    task::spawn(
        async {
            loop {
                sleep(Duration::from_millis(2)).await;
            }
        },
        level(1),
    );
    task::spawn(
        async {
            page().posted.handler.store(0xdead_beef_0000, Relaxed);
            spin_until(PATIENCE, || false);
            cops::process::exit(1);
        },
        level(40),
    );
    // This virtual CPU runs the main coroutine; another one runs the coroutine above.
    if task::alloc_cpu(1).is_err() || cops::sleep!(PATIENCE).is_err() {
        return ExitCode(2);
    }
    ExitCode(3)
}

/// The page tells the state of each virtual CPU as the kernel sees it.
async fn phases_are_shown() -> Outcome {
    task::alloc_cpu(2)?;
    // The others begin when they get a hart.
    until("one works, the others have nothing to do", || {
        let phases: Vec<_> = page().cpus[..4]
            .iter()
            .map(|cpu| CpuPhase::from_number(cpu.phase.load(Relaxed)))
            .collect();
        check_equal!(
            phases[3],
            Some(CpuPhase::Absent),
            "phase of a virtual CPU that there is not: {phases:?}"
        );
        let running = phases[..3].iter().filter(|&&phase| phase == Some(CpuPhase::Running)).count();
        let parked = phases[..3].iter().filter(|&&phase| phase == Some(CpuPhase::Parked)).count();
        Ok(running == 1 && parked == 2)
    })
    .await
}
