//! Priority that is donated to the holder of a lock.

use alloc::format;
use alloc::vec::Vec;
use core::hint::{black_box, spin_loop};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cops::process::ExitCode;
use cops::sync::{Mutex, Semaphore};
use cops::task::{self, Priority};
use cops::thread::{self, Builder};
use cops::time::{Duration, Instant, sleep};

use crate::harness::{Failure, Outcome, harts, run, start_tied};
use crate::processes::HELPER;
use crate::raw;
use crate::{check, check_equal, tests};

use cops::abi::Errno::ESRCH;
use cops::abi::page::MAX_CPUS;
use cops::abi::syscall::{COPS_DONATE_PRIORITY, HOLDER_UNKNOWN};

tests! { donation:
    the_holder_of_the_heap_does_not_wait_for_what_is_less_urgent,
    the_holder_of_a_semaphore_does_not_wait_for_what_is_less_urgent,
    the_holder_of_a_mutex_does_not_wait_for_what_is_less_urgent,
    what_is_polled_becomes_urgent_while_it_has_no_hart,
    a_donation_lasts_for_a_moment,
    only_those_of_the_process_can_be_named,
}

/// The argument of the helper with coroutines.
pub const SEMAPHORE: &str = "share-a-semaphore";

/// That of the one with a mutex, of which a coroutine inherits.
pub const MUTEX: &str = "share-a-mutex";

/// That of the one with a coroutine of which another one changes the priority.
pub const CHANGED: &str = "change-what-is-polled";

/// That of the one that donates once.
pub const ONCE: &str = "donate-once";

/// The one in the middle computes for so long, and then sleeps for a moment. A busy host takes the
/// processor from a hart for less than half of that.
const COMPUTES: Duration = Duration::from_millis(360);
const SLEEPS: Duration = Duration::from_millis(5);
const PERIODS: u32 = 16;
/// More urgent than the one in the middle, and less.
const URGENT: Priority = Priority::saturating(10);
const LESS_URGENT: Priority = Priority::saturating(40);

static IS_OVER: AtomicBool = AtomicBool::new(false);

pub fn help(arguments: &[&str]) -> Option<ExitCode> {
    match arguments {
        ["compute-in-the-middle"] => compute_in_the_middle(),
        ["share-the-heap"] => Some(share_the_heap()),
        _ => None,
    }
}

/// All harts compute for a while and then none, again and again.
fn compute_in_the_middle() -> Option<ExitCode> {
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..harts() {
            let computing = move || {
                for period in 1.. {
                    let end = (COMPUTES + SLEEPS) * period;
                    while begin.elapsed() < end - SLEEPS {
                        spin_loop();
                    }
                    thread::sleep(end.saturating_sub(begin.elapsed()));
                }
            };
            let _ = Builder::new()
                .priority(Priority::saturating(20))
                .spawn_scoped(scope, computing)
                .ok()?;
        }
        Some(ExitCode::SUCCESS)
    })
}

/// Asks for it now and then, for all periods. Returns how often that took long.
fn use_now_and_then(use_it: impl Fn()) -> u8 {
    let begin = Instant::now();
    let mut long = 0;
    while begin.elapsed() < (COMPUTES + SLEEPS) * PERIODS {
        thread::sleep(Duration::from_millis(1));
        let asked = Instant::now();
        use_it();
        long += u8::from(asked.elapsed() > COMPUTES / 2);
    }
    IS_OVER.store(true, Relaxed);
    long
}

fn use_all_the_time(use_it: impl Fn()) {
    while !IS_OVER.load(Relaxed) {
        use_it();
    }
}

/// An urgent thread uses the heap now and then, a less urgent one all the time.
fn share_the_heap() -> ExitCode {
    const BYTES: usize = 2048;
    let use_it = || drop(black_box(Vec::<u8>::with_capacity(BYTES)));
    let urgent = Builder::new().priority(URGENT).spawn(move || use_now_and_then(use_it));
    let other = Builder::new().priority(LESS_URGENT).spawn(move || use_all_the_time(use_it));
    let (Ok(urgent), Ok(other)) = (urgent, other) else { return ExitCode(99) };
    let (Ok(long), Ok(())) = (urgent.join(), other.join());
    ExitCode(long)
}

/// An urgent coroutine uses a semaphore now and then, a less urgent one all the time.
pub async fn share_a_semaphore() -> ExitCode {
    static SEMAPHORE: Semaphore = Semaphore::new(1);
    let use_it = || drop(black_box(SEMAPHORE.try_acquire(1)));
    if task::alloc_cpu(1).is_err() {
        return ExitCode(99);
    }
    let other = task::spawn_join(async move { use_all_the_time(use_it) }, LESS_URGENT);
    let urgent = task::spawn_join(async move { use_now_and_then(use_it) }, URGENT);
    let (Ok(long), Ok(())) = (urgent.await, other.await) else { return ExitCode(99) };
    ExitCode(long)
}

/// A less urgent coroutine locks a mutex and computes, all in one poll, again and again. So it is
/// preempted with the mutex locked, and inherits of an urgent one while it has no hart.
pub async fn share_a_mutex() -> ExitCode {
    static MUTEX: Mutex<()> = Mutex::new(());
    const LOCKED: Duration = Duration::from_millis(2);
    if task::alloc_cpu(1).is_err() {
        return ExitCode(99);
    }
    let computing = async {
        while !IS_OVER.load(Relaxed) {
            let guard = MUTEX.lock().await;
            let begin = Instant::now();
            while begin.elapsed() < LOCKED {
                spin_loop();
            }
            drop(guard);
        }
    };
    let asking = async {
        let begin = Instant::now();
        let mut long = 0;
        while begin.elapsed() < (COMPUTES + SLEEPS) * PERIODS {
            // The whole virtual CPU sleeps: so the other one has locked it by then.
            thread::sleep(Duration::from_millis(1));
            let asked = Instant::now();
            drop(MUTEX.lock().await);
            long += u8::from(asked.elapsed() > COMPUTES / 2);
        }
        IS_OVER.store(true, Relaxed);
        long
    };
    let other = task::spawn_join(computing, LESS_URGENT);
    let urgent = task::spawn_join(asking, URGENT);
    let (Ok(long), Ok(())) = (urgent.await, other.await) else { return ExitCode(99) };
    ExitCode(long)
}

/// A coroutine that always computes has no hart when another one makes it the more urgent of the
/// two, and then computes too, without a system call. Returns how often that had no effect.
pub async fn change_what_is_polled() -> ExitCode {
    static IS_ASKED: AtomicBool = AtomicBool::new(false);
    if task::alloc_cpu(1).is_err() {
        return ExitCode(99);
    }
    let answering = async {
        while !IS_OVER.load(Relaxed) {
            if IS_ASKED.load(Relaxed) {
                // On one hart, the other one has none before this is less urgent again.
                task::current().map(|own| task::set_priority(own, LESS_URGENT));
                IS_ASKED.store(false, Relaxed);
            }
        }
    };
    let other = task::spawn_join(answering, LESS_URGENT);
    let answerer = other.id();
    let asking = async move {
        let mut late = 0;
        for _ in 0..PERIODS {
            task::set_priority(answerer, LESS_URGENT);
            // The other one loses its hart to the one in the middle.
            thread::sleep(COMPUTES / 4);
            IS_ASKED.store(true, Relaxed);
            task::set_priority(answerer, URGENT);
            let begin = Instant::now();
            while IS_ASKED.load(Relaxed) && begin.elapsed() < COMPUTES / 4 {
                spin_loop();
            }
            late += u8::from(IS_ASKED.swap(false, Relaxed));
        }
        IS_OVER.store(true, Relaxed);
        late
    };
    let urgent = task::spawn_join(asking, Priority::saturating(15));
    let (Ok(late), Ok(())) = (urgent.await, other.await) else { return ExitCode(99) };
    ExitCode(late)
}

/// An urgent coroutine donates its priority once. Returns for how many milliseconds the less urgent
/// one, which always computes, then has a hart.
pub async fn donate_once() -> ExitCode {
    static IS_COUNTED: AtomicBool = AtomicBool::new(false);
    if task::alloc_cpu(1).is_err() {
        return ExitCode(99);
    }
    let computing = async {
        let (mut computed, mut last) = (Duration::ZERO, Instant::now());
        while !IS_OVER.load(Relaxed) {
            let now = Instant::now();
            let since = now.duration_since(core::mem::replace(&mut last, now));
            // Otherwise it had no hart.
            if IS_COUNTED.load(Relaxed) && since < Duration::from_millis(1) {
                computed += since;
            }
        }
        computed
    };
    let donating = async {
        let mut count = Ok(0);
        while count == Ok(0) {
            // Until the other one waits for a hart.
            thread::sleep(Duration::from_millis(1));
            count = raw::call(COPS_DONATE_PRIORITY, [HOLDER_UNKNOWN]);
        }
        IS_COUNTED.store(true, Relaxed);
        thread::sleep(COMPUTES / 2);
        IS_OVER.store(true, Relaxed);
        count
    };
    let other = task::spawn_join(computing, LESS_URGENT);
    let urgent = task::spawn_join(donating, URGENT);
    let (Ok(Ok(_)), Ok(computed)) = (urgent.await, other.await) else { return ExitCode(99) };
    ExitCode(computed.as_millis() as u8)
}

async fn a_donation_lasts_for_a_moment() -> Outcome {
    let middle = start_tied(&[HELPER, "compute-in-the-middle"])?;
    // It begins to compute.
    sleep(SLEEPS * 4).await;
    let status = run(&[HELPER, ONCE]).await?;
    middle.end().await?;
    let Some(milliseconds) = status.code() else { return Err(Failure(format!("{status}"))) };
    // It also has the time in which the one in the middle sleeps.
    let most = COMPUTES / 12 + SLEEPS;
    check!(u128::from(milliseconds) < most.as_millis(), "it has a hart for {milliseconds} ms");
    Ok(())
}

/// Runs this beside a process that is more urgent than the holder.
async fn runs_beside_the_middle(what: &str) -> Outcome {
    let middle = start_tied(&[HELPER, "compute-in-the-middle"])?;
    let status = run(&[HELPER, what]).await?;
    middle.end().await?;
    let Some(long) = status.code() else { return Err(Failure(format!("{status}"))) };
    check!(u32::from(long) <= PERIODS / 4, "in {PERIODS} periods it waited {long} times");
    Ok(())
}

async fn the_holder_of_the_heap_does_not_wait_for_what_is_less_urgent() -> Outcome {
    runs_beside_the_middle("share-the-heap").await
}

async fn the_holder_of_a_semaphore_does_not_wait_for_what_is_less_urgent() -> Outcome {
    runs_beside_the_middle(SEMAPHORE).await
}

async fn the_holder_of_a_mutex_does_not_wait_for_what_is_less_urgent() -> Outcome {
    runs_beside_the_middle(MUTEX).await
}

async fn what_is_polled_becomes_urgent_while_it_has_no_hart() -> Outcome {
    runs_beside_the_middle(CHANGED).await
}

async fn only_those_of_the_process_can_be_named() -> Outcome {
    for holder in [MAX_CPUS - 1, MAX_CPUS, 1 << 29, (1 << 30) - 1, 1 << 32, usize::MAX - 1] {
        check_equal!(raw::call(COPS_DONATE_PRIORITY, [holder]), Err(ESRCH), "{holder:#x}");
    }
    // The first virtual CPU, which has a hart.
    for holder in [0, HOLDER_UNKNOWN] {
        check_equal!(raw::call(COPS_DONATE_PRIORITY, [holder]), Ok(0), "{holder:#x}");
    }
    Ok(())
}
