//! One scheduler across the boundary: harts are assigned by priority, ceiling and share. SPEC 3.2
//! to 3.5, decision 10.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec;
use alloc::vec::Vec;
use core::future::{Future as _, poll_fn};
use core::pin::pin;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use core::task::{Context, Waker};

use cops::abi::Errno;
use cops::abi::layout::PAGE_BYTES;
use cops::abi::page::NO_LEVEL;
use cops::abi::syscall::{self as number, map_flags, protection};
use cops::inspect::{self, state};
use cops::io::{Read, Write, fill, pipe};
use cops::memory::statistics;
use cops::net::{Ipv4Addr, TcpListener, TcpStream};
use cops::process::{self, Child, ExitCode};
use cops::sync::Event;
use cops::task::{self, Priority, yield_now};
use cops::time::{Duration, Instant, sleep, sleep_until, timeout};
use futures_util::future::join_all;

use crate::harness::{
    Failure, Outcome, PATIENCE, PROGRAM, become_level, errno, harts, level, run, soon, start,
    time_is_counted, until,
};
use crate::interrupts::page;
use crate::processes::HELPER;
use crate::raw::{self, system_page};
use crate::{check, check_equal, tests};

tests! { scheduling:
    clock_and_current_enter_no_kernel,
    switching_enters_no_kernel,
    system_page_shows_what_runs,
    ceilings_are_inherited,
    ceilings_are_not_raised,
    ceilings_by_the_parent_later,
    a_raised_ceiling_counts_in_the_run_queue,
    ceilings_of_starts_in_flight,
    ceiling_caps_a_lying_bitmap,
    urgent_beside_spinners,
    between_two_polls_a_worker_keeps_its_level,
    another_hart_is_interrupted,
    a_result_counts_until_it_has_woken,
    order_across_processes,
    fair_to_a_single_virtual_cpu,
    fair_to_processes_that_do_not_fork,
    share_for_the_less_urgent,
    a_transfer_yields_to_what_is_more_urgent,
    interrupted_coroutine_is_suspended,
    a_blocked_virtual_cpu_leaves_its_work,
    a_queued_virtual_cpu_is_as_urgent_as_its_process,
}

/// The helpers of these tests.
pub fn help(arguments: &[&str]) -> Option<ExitCode> {
    Some(match arguments {
        ["ceiling"] => ExitCode(process::ceiling().level()),
        ["ceiling-of-child", ceiling] => ceiling_of_child(ceiling),
        ["claim-everything"] => claim_everything(),
        ["spin-at", at] => spin_at(at),
        ["spin-for-a-while-at", at] => spin_for_a_while_at(at),
        ["start-some"] => start_some(),
        ["spin-on-all"] => spin_on_all(),
        ["spin-in-children"] => spin_in_children(),
        ["work", milliseconds] => {
            work(milliseconds.parse().unwrap_or(0));
            ExitCode::SUCCESS
        }
        ["block-with-work"] => block_with_work(),
        ["outrank-spinners"] => outrank_spinners(),
        ["classes", port, first, deadline_ms] => classes(port, first, deadline_ms),
        _ => return None,
    })
}

fn start_below(arguments: &[&str], ceiling: u8) -> Result<Child, Failure> {
    Ok(process::spawn_below(PROGRAM, arguments, Some(level(ceiling)))?)
}

pub async fn end_all(children: &mut [Child]) -> Outcome {
    for child in children.iter_mut() {
        child.kill()?;
    }
    for child in children {
        child.wait().await?;
    }
    Ok(())
}

async fn clock_and_current_enter_no_kernel() -> Outcome {
    let before = statistics()?.system_calls;
    let mut sum = 0;
    for _ in 0..10_000 {
        sum += Instant::now().elapsed().as_nanos() + u128::from(task::current().is_some());
    }
    core::hint::black_box(sum);
    let calls = statistics()?.system_calls - before;
    check!(calls < 50, "{calls} system calls for 10,000 looks at clock and coroutine");
    Ok(())
}

/// Two coroutines that switch 10^6 times.
async fn switching_enters_no_kernel() -> Outcome {
    const SWITCHES: u32 = 1_000_000;
    let before = statistics()?;
    let switch = || {
        task::spawn_join(
            async {
                for _ in 0..SWITCHES / 2 {
                    yield_now().await;
                }
            },
            Priority::DEFAULT,
        )
    };
    let (one, other) = (switch(), switch());
    let both = timeout(Duration::from_secs(25), join_all([one, other])).await;
    for switched in both.map_err(|_| Failure("a million switches took more than 25 s".into()))? {
        switched?;
    }
    let after = statistics()?;
    let calls = after.system_calls - before.system_calls;
    // Calls of the process that waits for this one, and of this test's time limit.
    check!(calls < 100, "{calls} system calls for {SWITCHES} switches");
    cops::println!("# {calls} system calls for {SWITCHES} switches");
    Ok(())
}

async fn system_page_shows_what_runs() -> Outcome {
    become_level(17).await;
    // So that the kernel is entered in this state.
    statistics()?;
    let bitmap = system_page().bitmap.load(Relaxed);
    check!(bitmap & 1 << 17 != 0, "level 17 runs, and the system bitmap is {bitmap:#x}");
    let mine = process::id();
    let records = system_page().hart.iter().take(harts());
    let shown: Vec<_> = records
        .map(|hart| (hart.process.load(Relaxed), hart.current_priority.load(Relaxed)))
        .collect();
    check!(
        shown.contains(&(mine, 17)),
        "process {mine} runs at level 17, and the harts are {shown:?}"
    );
    check!(shown.iter().all(|&(_, level)| level <= NO_LEVEL), "levels that are none: {shown:?}");
    become_level(18).await;
    statistics()?;
    let bitmap = system_page().bitmap.load(Relaxed);
    check!(bitmap & 1 << 17 == 0, "level 17 is over, and the system bitmap is {bitmap:#x}");
    Ok(())
}

fn ceiling_of_child(ceiling: &str) -> ExitCode {
    let ceiling = ceiling.parse().ok().map(level);
    let code = process::spawn_below(PROGRAM, &[HELPER, "ceiling"], ceiling)
        .map_err(errno)
        .and_then(|child| cops::wait!(Some(child.id())).map_err(Some));
    match code {
        Ok((_, status)) => ExitCode(status.code().unwrap_or(90)),
        Err(Some(Errno::EPERM)) => ExitCode(91),
        Err(_) => ExitCode(92),
    }
}

async fn code_below(arguments: &[&str], ceiling: u8) -> Result<Option<u8>, Failure> {
    Ok(soon("the end of a process", start_below(arguments, ceiling)?.wait()).await??.code())
}

async fn ceilings_are_inherited() -> Outcome {
    check_equal!(process::ceiling(), Priority::MOST_URGENT, "ceiling of a test");
    for ceiling in [0, 7, 63] {
        let code = code_below(&[HELPER, "ceiling"], ceiling).await?;
        check_equal!(code, Some(ceiling), "ceiling of a child");
        let code = code_below(&[HELPER, "ceiling-of-child", "inherited"], ceiling).await?;
        check_equal!(code, Some(ceiling), "ceiling of a child's child");
    }
    let code = code_below(&[HELPER, "ceiling-of-child", "30"], 20).await?;
    check_equal!(code, Some(30), "ceiling of a child's child that was given a lower one");
    Ok(())
}

async fn ceilings_are_not_raised() -> Outcome {
    let code = code_below(&[HELPER, "ceiling-of-child", "10"], 20).await?;
    check_equal!(code, Some(91), "a child that wants more for its own child");
    process::lower_ceiling(level(33))?;
    check_equal!(process::ceiling(), level(33), "ceiling after lowering it");
    let raised = process::lower_ceiling(level(32)).err().and_then(errno);
    check_equal!(raised, Some(Errno::EPERM), "raising it");
    let raised =
        process::spawn_below(PROGRAM, &[HELPER, "ceiling"], Some(level(32))).err().and_then(errno);
    check_equal!(raised, Some(Errno::EPERM), "a child above it");
    let share = process::set_share_of_less_urgent(10).err().and_then(errno);
    check_equal!(share, Some(Errno::EPERM), "setting the share as a child");
    Ok(())
}

async fn ceilings_by_the_parent_later() -> Outcome {
    let mut child = start(&[HELPER, "sleep", "100000"])?;
    child.set_ceiling(level(50))?;
    child.set_ceiling(level(40))?;
    let stranger =
        crate::raw::call(cops::abi::syscall::COPS_SET_CEILING, [process::parent_id() as usize, 60]);
    check_equal!(stranger, Err(Errno::EPERM), "the ceiling of a process that is not a child");
    let absent = crate::raw::call(cops::abi::syscall::COPS_SET_CEILING, [0x7fff_0000, 60]);
    check_equal!(absent, Err(Errno::ESRCH), "the ceiling of an unused id");
    let wrong = crate::raw::call(cops::abi::syscall::COPS_SET_CEILING, [child.id() as usize, 64]);
    check_equal!(wrong, Err(Errno::EINVAL), "a level that is none");
    end_all(&mut [child]).await
}

/// A ceiling that becomes more urgent counts for a process that waits for a hart, also if it has
/// never had one.
async fn a_raised_ceiling_counts_in_the_run_queue() -> Outcome {
    become_level(0).await;
    let mut spinner = start_below(&[HELPER, "spin-at", "10"], 60)?;
    all_at(core::slice::from_ref(&spinner), 60).await?;
    let mut others = Vec::new();
    for _ in 0..harts() {
        others.push(start(&[HELPER, "spin-at", "40"])?);
    }
    all_at(&others, 40).await?;
    let mut newcomer = start_below(&[HELPER, "spin-at", "10"], 60)?;
    let used = |child: &Child| -> Result<u64, Failure> {
        let all = inspect::processes()?;
        let record = all.iter().find(|one| one.process == child.id());
        record.map(|one| one.run_ticks).ok_or_else(|| Failure("a child has ended".into()))
    };
    sleep(Duration::from_millis(20)).await;
    let before = used(&spinner)?;
    sleep(Duration::from_millis(20)).await;
    check_equal!(used(&spinner)?, before, "time of a process below those that spin");
    check_equal!(used(&newcomer)?, 0, "time of a newcomer below those that spin");
    // Its level is the default one, above theirs.
    newcomer.set_ceiling(level(20))?;
    until("the newcomer runs", || Ok(used(&newcomer)? > 0)).await?;
    spinner.set_ceiling(level(20))?;
    until("the process that spins runs", || Ok(used(&spinner)? > before)).await?;
    others.extend([spinner, newcomer]);
    end_all(&mut others).await
}

/// Number of processes that [`start_some`] starts. Each is charged 4 MB, and the quota of a test is
/// an eighth of the machine's memory.
const STARTED: usize = 6;

/// Starts processes, then sleeps.
fn start_some() -> ExitCode {
    let children: Result<Vec<_>, _> =
        (0..STARTED).map(|_| start(&[HELPER, "sleep", "100000"])).collect();
    let slept = cops::sleep!(Duration::from_secs(100));
    ExitCode(u8::from(children.is_err() || slept.is_err()))
}

/// A ceiling that is set while a process starts others also holds for a start that has begun.
async fn ceilings_of_starts_in_flight() -> Outcome {
    // More urgent than the child, so that it is interrupted in the middle of a start.
    become_level(5).await;
    for round in 0..12 {
        let mut child = start(&[HELPER, "start-some"])?;
        let begun = || -> Result<Vec<inspect::ProcessRecord>, Failure> {
            let all = inspect::processes()?.into_iter();
            Ok(all.filter(|process| process.parent == child.id()).collect())
        };
        while begun()?.is_empty() {
            sleep(Duration::from_micros(100)).await;
        }
        sleep(Duration::from_micros(61 * round)).await;
        let lowered =
            crate::raw::call(cops::abi::syscall::COPS_SET_CEILING, [child.id() as usize, 50]);
        check_equal!(lowered, Ok(0), "lowering the ceiling of a process that starts others");
        until("all are started", || {
            let begun = begun()?;
            Ok(begun.len() == STARTED && begun.iter().all(|process| process.polls > 0))
        })
        .await?;
        let grandchildren = begun()?;
        for process in &grandchildren {
            check_equal!(process.ceiling, 50, "round {round}: the ceiling of a grandchild");
            process::kill(process.process, cops::abi::syscall::signal::SIGKILL)?;
        }
        end_all(core::slice::from_mut(&mut child)).await?;
        // Before others are charged to the same quota.
        until("all have ended", || {
            let all = inspect::processes()?;
            let is_there = |gone: &inspect::ProcessRecord| {
                all.iter().any(|process| process.process == gone.process)
            };
            Ok(!grandchildren.iter().any(is_there))
        })
        .await?;
    }
    Ok(())
}

/// Publishes the most urgent levels in its page and spins.
fn claim_everything() -> ExitCode {
    loop {
        for worker in &page().workers {
            worker.ready.store(u64::MAX, Relaxed);
            worker.posted.store(u64::MAX, Relaxed);
            worker.current_priority.store(0, Relaxed);
        }
        page().ceiling.store(0, Relaxed);
    }
}

fn spin_at(at: &str) -> ExitCode {
    if let (Some(id), Ok(at)) = (task::current(), at.parse()) {
        task::set_priority(id, level(at));
    }
    // The kernel reads it at its next opportunity.
    loop {
        core::hint::spin_loop();
    }
}

/// Spins, but not for ever: a process that cannot run because of it fails instead of hanging.
fn spin_for_a_while_at(at: &str) -> ExitCode {
    if let (Some(id), Ok(at)) = (task::current(), at.parse()) {
        task::set_priority(id, level(at));
    }
    let begin = Instant::now();
    while begin.elapsed() < SPIN_FOR {
        core::hint::spin_loop();
    }
    ExitCode::SUCCESS
}

const SPIN_FOR: Duration = Duration::from_millis(500);

/// Less than a time slice: a more urgent coroutine does not wait for the end of one. Judged only
/// where time is counted.
const SLACK: Duration = Duration::from_millis(1);

/// Waits until all of these have run, and are at `level` or as urgent as their ceiling allows.
pub async fn all_at(children: &[Child], level: u32) -> Outcome {
    until("all that spin have begun", || {
        let all = inspect::processes()?;
        let has_begun = |child: &Child| {
            all.iter()
                .any(|one| one.process == child.id() && one.run_ticks > 0 && one.level == level)
        };
        Ok(children.iter().all(has_begun))
    })
    .await
}

/// How late sleeps of one millisecond end, sorted.
async fn latenesses(count: usize) -> Vec<Duration> {
    let mut all = Vec::new();
    for _ in 0..count {
        let deadline = Instant::now() + Duration::from_millis(1);
        sleep_until(deadline).await;
        all.push(deadline.elapsed());
    }
    all.sort_unstable();
    all
}

/// A process at its ceiling that publishes the most urgent levels does not get a hart before a
/// process above that ceiling.
async fn ceiling_caps_a_lying_bitmap() -> Outcome {
    let alone = latenesses(50).await[25];
    let mut liars = Vec::new();
    for _ in 0..harts() {
        liars.push(start_below(&[HELPER, "claim-everything"], 50)?);
    }
    all_at(&liars, 50).await?;
    // At level 32: more urgent than the ceiling, less urgent than the false claims.
    let all = soon("sleeps beside liars", latenesses(50)).await?;
    cops::println!("# beside {} liars: p50 {:?}, max {:?}", liars.len(), all[25], all[49]);
    check!(
        !time_is_counted() || all[49] < alone + SLACK,
        "a sleep was late by {:?}; alone half of them by {alone:?}",
        all[49]
    );
    end_all(&mut liars).await
}

/// A coroutine of level 0 that wakes while all harts run user code that never enters the kernel
/// does not wait for the end of a time slice.
async fn urgent_beside_spinners() -> Outcome {
    let alone = latenesses(50).await[25];
    let mut spinners = Vec::new();
    for _ in 0..harts() + 1 {
        spinners.push(start(&[HELPER, "spin-at", "63"])?);
    }
    become_level(0).await;
    all_at(&spinners, 63).await?;
    let before = statistics()?;
    let all = soon("sleeps beside spinners", latenesses(100)).await?;
    // On a busy host, most wakes find a hart in the kernel, so the test continues until there is
    // something to judge.
    let interrupted = async {
        while harts() > 1 && statistics()?.preemptions - before.preemptions < 20 {
            latenesses(5).await;
        }
        Ok::<_, Failure>(())
    };
    soon("twenty interrupts for what is more urgent", interrupted).await??;
    let after = statistics()?;
    let preemptions = after.preemptions - before.preemptions;
    let taken = after.interprocessor_interrupts_taken - before.interprocessor_interrupts_taken;
    cops::println!(
        "# beside {} spinners: p50 {:?}, max {:?}, {preemptions} interrupts sent for that, {taken} of any kind taken",
        spinners.len(),
        all[50],
        all[99]
    );
    if time_is_counted() {
        check!(
            all[99] < alone + SLACK,
            "a sleep was late by {:?}; alone half of them by {alone:?}",
            all[99]
        );
    } else {
        // The host determines how soon an emulated hart notices an interrupt; the test judges that
        // it is sent and taken. Two interrupts for the same hart may be merged.
        check!(taken * 2 >= preemptions, "{preemptions} interrupts were sent, and {taken} taken");
    }
    end_all(&mut spinners).await
}

/// A worker that is interrupted between two polls has taken a coroutine from its queue, and does
/// not publish its level yet. It keeps the level that it had: a process that spins at a level
/// between that and the default one would keep the hart, and that coroutine would never run.
///
/// This test makes such a moment last for several interrupts of the clock.
async fn between_two_polls_a_worker_keeps_its_level() -> Outcome {
    const MOMENT: Duration = Duration::from_millis(50);
    let mut spinners = Vec::new();
    for _ in 0..harts() {
        spinners.push(start(&[HELPER, "spin-for-a-while-at", "16"])?);
    }
    become_level(0).await;
    all_at(&spinners, 16).await?;
    let mine = &page().workers[0].current_priority;
    let own = mine.swap(NO_LEVEL, Relaxed);
    let begin = Instant::now();
    while begin.elapsed() < MOMENT {
        core::hint::spin_loop();
    }
    let late = begin.elapsed() - MOMENT;
    mine.store(own, Relaxed);
    if time_is_counted() {
        check!(late < SLACK, "without a level for {MOMENT:?}, it was without a hart for {late:?}");
    }
    end_all(&mut spinners).await
}

/// When something becomes ready while its own hart runs something more urgent, and all others run
/// user code that never enters the kernel, one of those is interrupted. Otherwise it would wait for
/// the end of a time slice.
///
/// The host determines how soon an emulated hart notices. So the test judges that an interrupt is
/// taken before the ready coroutine has begun. Nothing else in this test makes one hart interrupt
/// another.
async fn another_hart_is_interrupted() -> Outcome {
    const ROUNDS: u64 = 100;
    if harts() == 1 {
        // There is no other hart.
        return Ok(());
    }
    task::alloc_cpu(1)?;
    let mut spinners = Vec::new();
    for _ in 0..harts() + 1 {
        spinners.push(start(&[HELPER, "spin-at", "63"])?);
    }
    become_level(10).await;
    all_at(&spinners, 63).await?;
    let (mut sent, mut taken) = (0, 0);
    for _ in 0..ROUNDS {
        let begun = alloc::sync::Arc::new(AtomicU32::new(0));
        let before = statistics()?;
        // The second spawn makes the other, parked virtual CPU look for work; this one continues.
        for _ in 0..2 {
            let begun = begun.clone();
            task::spawn(async move { _ = begun.fetch_add(1, Relaxed) }, level(20));
        }
        let begin = Instant::now();
        while begun.load(Relaxed) == 0 {
            check!(begin.elapsed() < PATIENCE, "what was spawned has not begun");
            core::hint::spin_loop();
        }
        let after = statistics()?;
        sent += u64::from(after.preemptions > before.preemptions);
        taken += u64::from(
            after.interprocessor_interrupts_taken > before.interprocessor_interrupts_taken,
        );
        // Both end, and the other virtual CPU parks.
        while begun.load(Relaxed) < 2 {
            yield_now().await;
        }
        work(1);
    }
    cops::println!("# in {ROUNDS} rounds: sent in {sent}, taken in {taken}");
    check!(sent * 10 > ROUNDS, "an interrupt was sent in {sent} of {ROUNDS} rounds only");
    check!(taken * 2 > sent, "an interrupt was sent in {sent} rounds, and taken in {taken}");
    end_all(&mut spinners).await
}

/// The waker of a coroutine that a result wakes. It touches a page for the first time, so that the
/// kernel is entered after the result has left the ring and before the coroutine is ready.
struct Faulting {
    waker: Waker,
    page: usize,
    took: Arc<AtomicU64>,
}

impl Wake for Faulting {
    fn wake(self: Arc<Self>) {
        let begin = Instant::now();
        raw::poke(self.page, 1);
        self.took.store(begin.elapsed().as_nanos() as u64, Relaxed);
        self.waker.wake_by_ref();
    }
}

/// A process that takes a result out of the ring is as urgent as the coroutine that waits for it,
/// also if it enters the kernel in between. Otherwise it would wait for the end of a less urgent
/// process's slice, or of several.
async fn a_result_counts_until_it_has_woken() -> Outcome {
    const ROUNDS: usize = 15;
    const HALF_A_SLICE: Duration = Duration::from_millis(5);
    become_level(10).await;
    let mut spinners = Vec::new();
    // One more would not begin: a process begins at a level that is less urgent than theirs.
    for _ in 0..harts() {
        spinners.push(start(&[HELPER, "spin-at", "20"])?);
    }
    all_at(&spinners, 20).await?;
    let flags = map_flags::PRIVATE | map_flags::ANONYMOUS;
    let rights = protection::READ | protection::WRITE;
    let bytes = ROUNDS * PAGE_BYTES;
    let pages = raw::call(number::MMAP, [0, bytes, rights, flags, usize::MAX, 0])?;
    let mut faults = Vec::new();
    for page in (pages..pages + bytes).step_by(PAGE_BYTES) {
        let took = Arc::new(AtomicU64::new(0));
        let mut sleeping = pin!(sleep(Duration::from_millis(1)));
        poll_fn(|context| {
            let (waker, took) = (context.waker().clone(), took.clone());
            let faulting = Waker::from(Arc::new(Faulting { waker, page, took }));
            sleeping.as_mut().poll(&mut Context::from_waker(&faulting))
        })
        .await;
        faults.push(Duration::from_nanos(took.load(Relaxed)));
    }
    raw::call(number::MUNMAP, [pages, bytes])?;
    // Before the checks: with them on all harts, nothing less urgent runs after a failure.
    end_all(&mut spinners).await?;
    // On a busy host a sleep may be over before the kernel knows of it; then no waker runs.
    faults.retain(|fault| *fault > Duration::ZERO);
    faults.sort_unstable();
    let rounds = faults.len();
    check!(2 * rounds > ROUNDS, "{rounds} of {ROUNDS} sleeps ended by their waker");
    let median = faults[rounds / 2];
    cops::println!("# a page fault on the way: p50 {median:?}, max {:?}", faults[rounds - 1]);
    check!(median < HALF_A_SLICE, "half of the page faults took {median:?}");
    Ok(())
}

/// Number of coroutines of each of the two processes in [`order_across_processes`].
const CLASSES: u8 = 8;

/// Eight coroutines of every second level from `first` on, ready at the same time. Reports over TCP
/// when each of them began.
fn classes(port: &str, first: &str, deadline_ms: &str) -> ExitCode {
    let (Ok(port), Ok(first), Ok(wait)) =
        (port.parse::<u16>(), first.parse::<u8>(), deadline_ms.parse())
    else {
        return ExitCode(2);
    };
    // It would otherwise continue at level 0, as the main coroutine.
    task::set_strict_yielding(true);
    let go = alloc::sync::Arc::new(Event::new());
    let handles: Vec<_> = (0..CLASSES)
        .map(|class| {
            let go = go.clone();
            let body = async move {
                go.wait().await;
                let begin = Instant::now();
                work(15);
                begin
            };
            task::spawn_join(body, level(first + 2 * class))
        })
        .collect();
    task::spawn(
        async move {
            let reported: Result<(), Failure> = async {
                let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
                let boot = Instant::boot();
                let deadline = boot + Duration::from_millis(wait);
                sleep_until(deadline).await;
                go.set();
                let mut lines = String::new();
                for (class, handle) in handles.into_iter().enumerate() {
                    let begin = handle.await?.duration_since(boot);
                    lines += &format!("{} {}\n", usize::from(first) + 2 * class, begin.as_nanos());
                }
                stream.write_all(lines.as_bytes()).await?;
                Ok(())
            }
            .await;
            process::exit(u8::from(reported.is_err()));
        },
        level(0),
    );
    // All the rest happens in the coroutines above, when this one has ended.
    RUN_ON
}

/// Exit code of a helper that runs until one of its coroutines ends it.
pub const RUN_ON: ExitCode = ExitCode(250);

/// Two processes with eight classes each, all ready at once, strict yielding: they begin in order
/// of priority, on one hart across both processes.
async fn order_across_processes() -> Outcome {
    become_level(1).await;
    let order = classes_by_their_beginning().await?;
    cops::println!("# on {} harts: {order:?}", harts());
    check_equal!(order.len(), 2 * usize::from(CLASSES), "coroutines that ran");
    let overtaken_by =
        |index: usize| order[..index].iter().filter(|&&other| other > order[index]).count();
    if harts() == 1 {
        let overtakings: usize = (0..order.len()).map(overtaken_by).sum();
        check_equal!(overtakings, 0, "pairs that began out of order: {order:?}");
    }
    // Each process has one virtual CPU. With several harts the two run side by side, so only the
    // order within each process is guaranteed.
    for parity in [0, 1] {
        let own: Vec<_> = order.iter().filter(|&&class| class % 2 == parity).collect();
        check!(own.is_sorted(), "out of order within a process: {order:?}");
    }
    Ok(())
}

async fn classes_by_their_beginning() -> Result<Vec<usize>, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = format!("{}", listener.local_address()?.port());
    let deadline = Instant::now().duration_since(Instant::boot()).as_millis() + 400;
    let deadline = format!("{deadline}");
    let mut children = Vec::new();
    for first in ["20", "21"] {
        children.push(start(&[HELPER, "classes", &port, first, &deadline])?);
    }
    let mut runs: Vec<(u64, usize)> = Vec::new();
    for _ in 0..2 {
        let mut stream = soon("a connection", listener.accept()).await??;
        let mut text = Vec::new();
        let mut chunk = [0; 512];
        loop {
            match soon("a report", stream.read(&mut chunk)).await?? {
                0 => break,
                count => text.extend_from_slice(&chunk[..count]),
            }
        }
        for line in core::str::from_utf8(&text)?.lines() {
            let (class, begin) =
                line.split_once(' ').ok_or(Failure(format!("{line:?} is no report")))?;
            runs.push((begin.parse()?, class.parse()?));
        }
    }
    for child in &mut children {
        check_equal!(
            soon("the end of a process", child.wait()).await??.code(),
            Some(0),
            "a child's code"
        );
    }
    runs.sort_unstable();
    Ok(runs.into_iter().map(|(_, class)| class).collect())
}

/// Computes for about this time on its own hart.
fn work(milliseconds: u64) {
    let mut value = milliseconds;
    for _ in 0..milliseconds * WORK_PER_MILLISECOND {
        value = core::hint::black_box(value.wrapping_mul(6364136223846793005).wrapping_add(1));
    }
}

const WORK_PER_MILLISECOND: u64 = 20_000;

fn spin_on_all() -> ExitCode {
    for _ in 0..7 {
        task::spawn(async { claim_nothing() }, Priority::DEFAULT);
    }
    if task::alloc_cpu(7).is_err() {
        return ExitCode(1);
    }
    claim_nothing()
}

fn claim_nothing() -> ! {
    loop {
        core::hint::spin_loop();
    }
}

fn spin_in_children() -> ExitCode {
    for _ in 0..7 {
        if start(&[HELPER, "compute"]).is_err() {
            return ExitCode(1);
        }
    }
    claim_nothing()
}

/// How long a process of the default level takes for 60 ms of work.
async fn time_of_work() -> Result<Duration, Failure> {
    let begin = Instant::now();
    let mut child = start_below(&[HELPER, "work", "60"], Priority::DEFAULT.level())?;
    let status = soon("a worker's share", child.wait()).await??;
    check_equal!(status.code(), Some(0), "a worker's code");
    Ok(begin.elapsed())
}

/// The time of the work beside as many others as there are harts.
async fn time_beside(others: &str) -> Result<Duration, Failure> {
    let mut all = Vec::new();
    for _ in 0..harts() {
        all.push(start_below(&[HELPER, others], Priority::DEFAULT.level())?);
    }
    all_at(&all, Priority::DEFAULT.level().into()).await?;
    // Until they have all the virtual CPUs and children that they want.
    sleep(Duration::from_millis(200)).await;
    let time = time_of_work().await?;
    end_all(&mut all).await?;
    Ok(time)
}

/// Greedy processes get no more time than processes that merely spin.
async fn fair_beside(greedy: &str) -> Outcome {
    become_level(2).await;
    let alone = time_of_work().await?;
    let modest = time_beside("compute").await?;
    let beside = time_beside(greedy).await?;
    cops::println!(
        "# 60 ms of work: {alone:?} alone, {modest:?} beside spinners, {beside:?} beside {greedy}"
    );
    // One of two processes at the same level; its end is work of the kernel at their level.
    // Earlier, the reaper yielded to the spinner for a whole time slice after each of its portions,
    // and the end of a process of 600 frames took 400 ms.
    check!(
        !time_is_counted() || modest < alone * 2 + Duration::from_millis(20),
        "{alone:?} alone, {modest:?} beside one equal"
    );
    // Counted on one hart. On several harts, the host determines how much of a time slice is work.
    check!(
        !time_is_counted() || beside < modest * 3 / 2,
        "{modest:?} beside spinners, {beside:?} beside {greedy}"
    );
    Ok(())
}

async fn fair_to_a_single_virtual_cpu() -> Outcome {
    fair_beside("spin-on-all").await
}

async fn fair_to_processes_that_do_not_fork() -> Outcome {
    let outcome = fair_beside("spin-in-children").await;
    // The children of the killed processes are orphans and continue to run: the end of the test
    // would wait for them in vain.
    for id in process::id() + 1..process::id() + 200 {
        let _ = process::kill(id, cops::abi::syscall::signal::SIGKILL);
    }
    outcome
}

/// Less urgent processes starve beside more urgent ones, unless they have a share.
async fn share_for_the_less_urgent() -> Outcome {
    become_level(2).await;
    let mut spinners = Vec::new();
    for _ in 0..harts() + 1 {
        spinners.push(start(&[HELPER, "spin-at", "40"])?);
    }
    all_at(&spinners, 40).await?;
    let mut starved = start_below(&[HELPER, "work", "5"], 60)?;
    let early = timeout(Duration::from_millis(300), starved.wait()).await.is_ok();
    let before = process::set_share_of_less_urgent(300)?;
    let late = timeout(PATIENCE, starved.wait()).await;
    process::set_share_of_less_urgent(before)?;
    end_all(&mut spinners).await?;
    check!(!early, "it did not starve without a share");
    check_equal!(before, 0, "the share before");
    check!(late.is_ok(), "it starved with a share");
    Ok(())
}

/// Changing the priority of a coroutine changes that of the kernel's part of its calls, and costs
/// nothing if it has none.
/// A transfer that need not wait ends the poll before its call, but only for what is more urgent.
async fn a_transfer_yields_to_what_is_more_urgent() -> Outcome {
    become_level(20).await;
    let (reader, mut writer) = pipe()?;
    for (at, yields) in [(19, true), (20, false), (21, false)] {
        let has_run = Arc::new(AtomicBool::new(false));
        let other = has_run.clone();
        let other = task::spawn_join(async move { other.store(true, Relaxed) }, level(at));
        writer.write_all(b"x").await?;
        check_equal!(has_run.load(Relaxed), yields, "one of level {at} before a write");
        soon("the other one", other).await??;
        let other = has_run.clone();
        has_run.store(false, Relaxed);
        let other = task::spawn_join(async move { other.store(true, Relaxed) }, level(at));
        let (result, byte) = fill(&reader, vec![0_u8], 0).await;
        result?;
        check_equal!(byte[..], *b"x", "what was read");
        check_equal!(has_run.load(Relaxed), yields, "one of level {at} before a read");
        soon("the other one", other).await??;
    }
    Ok(())
}

/// A coroutine is running-suspended if its virtual CPU has lost its hart or waits in a synchronous
/// call.
async fn interrupted_coroutine_is_suspended() -> Outcome {
    become_level(2).await;
    let mut sleeping = start(&[HELPER, "sleep", "100000"])?;
    let mut spinners = Vec::new();
    for _ in 0..harts() + 1 {
        spinners.push(start(&[HELPER, "spin-at", "40"])?);
    }
    all_at(&spinners, 40).await?;
    until("a synchronous sleep", || {
        let all = inspect::processes()?;
        Ok(all.iter().any(|one| one.process == sleeping.id() && one.state == state::BLOCKED))
    })
    .await?;
    let coroutine = |pid| -> Result<u32, Failure> {
        let states = inspect::coroutines(pid)?;
        check_equal!(states.len(), 1, "coroutines of a process that has one");
        Ok(states[0].state)
    };
    let waiting = coroutine(sleeping.id())?;
    check!(
        [state::BLOCKED, state::SUSPENDED].contains(&waiting),
        "one that sleeps synchronously: {}",
        state::name(waiting)
    );
    // There are more spinning processes than harts, so one of them has no hart, a different one
    // each time. It is never in the state ready again.
    let mut suspended = 0;
    for _ in 0..20 {
        for child in &spinners {
            match coroutine(child.id())? {
                state::SUSPENDED => suspended += 1,
                state::RUNNING => {}
                other => return Err(Failure(format!("one that spins is {}", state::name(other)))),
            }
        }
        sleep(Duration::from_millis(3)).await;
    }
    check!(suspended > 0, "none of {} that spin was ever without a hart", spinners.len());
    sleeping.kill()?;
    sleeping.wait().await?;
    end_all(&mut spinners).await
}

/// A coroutine makes another one ready and then blocks its virtual CPU: a parked one takes over.
async fn a_blocked_virtual_cpu_leaves_its_work() -> Outcome {
    let status = run(&[HELPER, "block-with-work"]).await?;
    check_equal!(status.code(), Some(0), "coroutines that waited for the end of a call");
    Ok(())
}

fn block_with_work() -> ExitCode {
    const ROUNDS: u8 = 5;
    if task::alloc_cpu(1).is_err() {
        return ExitCode(99);
    }
    let mut left_alone = 0;
    for _ in 0..ROUNDS {
        // The other virtual CPU parks meanwhile.
        let slept = cops::sleep!(Duration::from_millis(20));
        let has_run = Arc::new(AtomicBool::new(false));
        let runs = has_run.clone();
        task::spawn(async move { runs.store(true, Relaxed) }, Priority::LEAST_URGENT);
        let blocked = cops::sleep!(Duration::from_millis(300));
        left_alone += u8::from(slept.is_err() || blocked.is_err() || !has_run.load(Relaxed));
    }
    ExitCode(left_alone)
}

/// A coroutine becomes ready while another virtual CPU of its process is in the run queue, at the
/// less urgent level of what it polls, behind the spinners of other processes: it moves before
/// them.
async fn a_queued_virtual_cpu_is_as_urgent_as_its_process() -> Outcome {
    let status = soon("the end of the helper", run(&[HELPER, "outrank-spinners"])).await??;
    check_equal!(status.code(), Some(0), "urgent coroutines that spinners kept from running");
    Ok(())
}

fn outrank_spinners() -> ExitCode {
    const ROUNDS: u8 = 3;
    const NOT_SET_UP: ExitCode = ExitCode(99);
    let Some(me) = task::current() else { return NOT_SET_UP };
    task::set_priority(me, level(5));
    if task::alloc_cpu(1).is_err() {
        return NOT_SET_UP;
    }
    let mut kept_waiting = 0;
    for blocks in [true, false].repeat(ROUNDS.into()) {
        // The other virtual CPU polls this one until the urgent one is ready.
        let (begun, may_end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (begins, ends) = (begun.clone(), may_end.clone());
        let long_poll = async move {
            begins.store(true, Relaxed);
            while !ends.load(Relaxed) {
                core::hint::spin_loop();
            }
        };
        task::spawn(long_poll, level(40));
        while !begun.load(Relaxed) {
            let _ = cops::sleep!(Duration::from_millis(1));
        }
        let spinner = [HELPER, "spin-at", "30"];
        let spinners: Result<Vec<_>, _> =
            (0..harts()).map(|_| process::spawn(PROGRAM, &spinner)).collect();
        let Ok(mut spinners) = spinners else { return NOT_SET_UP };
        // They get the harts, and the other virtual CPU waits for one.
        let _ = cops::sleep!(Duration::from_millis(50));
        let has_run = Arc::new(AtomicBool::new(false));
        let runs = has_run.clone();
        task::spawn(async move { runs.store(true, Relaxed) }, level(5));
        may_end.store(true, Relaxed);
        if blocks {
            let _ = cops::sleep!(Duration::from_millis(300));
        } else {
            // Its poll is of the same level, and enters the kernel.
            let begin = Instant::now();
            while !has_run.load(Relaxed) && begin.elapsed() < Duration::from_millis(500) {
                let _ = process::id();
            }
        }
        kept_waiting += u8::from(!has_run.load(Relaxed));
        if spinners.iter_mut().any(|spinner| spinner.kill().is_err()) {
            return NOT_SET_UP;
        }
    }
    ExitCode(kept_waiting)
}
