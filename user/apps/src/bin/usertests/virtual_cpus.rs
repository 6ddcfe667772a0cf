//! Several virtual CPUs: they share the work, park, and are woken. SPEC 3.10.
#![allow(unsafe_code)]

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cops::abi::interrupt::CpuPhase;
use cops::abi::layout::PROCESS_PAGE;
use cops::abi::page::{MAX_CPUS, ProcessPage};
use cops::abi::syscall::{COPS_PARK, COPS_UNPARK, SCHED_YIELD, WRITE};
use cops::io::{Fd, Read, Write, pipe};
use cops::memory::statistics;
use cops::process::{self, Resource};
use cops::task::{self, JoinHandle, Priority, yield_now};
use cops::time::{Duration, Instant, sleep};
use futures_util::future::join_all;

use crate::harness::{Failure, Outcome, PATIENCE, harts, soon};
use crate::raw::{self, Garbage};
use crate::{check, check_equal, tests};

tests! { virtual_cpus:
    as_many_as_there_may_be,
    all_take_part,
    wakes_cross,
    idle_ones_park,
    calls_from_all,
    exit_ends_all,
    long_poll_keeps_nothing_waiting,
    workers_leave,
    the_kernel_asks_to_leave,
    one_that_leaves_needs_another,
    one_that_leaves_sleeps,
    one_that_leaves_attempts_queued_calls,
}

/// The process's page.
fn page() -> &'static ProcessPage {
    let page = with_exposed_provenance::<ProcessPage>(PROCESS_PAGE);
    // SAFETY: the kernel maps a `ProcessPage` at this address as long as the process lives, and all
    // its fields are atomics.
    unsafe { &*page }
}

/// Polls that each virtual CPU has made, as its worker publishes them.
fn polls() -> Vec<u64> {
    page().workers.iter().map(|worker| worker.polls.load(Relaxed)).collect()
}

async fn as_many_as_there_may_be() -> Outcome {
    check_equal!(task::alloc_cpu(1)?, 2, "virtual CPUs after one more");
    check_equal!(task::alloc_cpu(2)?, 4, "virtual CPUs after two more");
    check_equal!(task::alloc_cpu(MAX_CPUS - 4)?, MAX_CPUS, "virtual CPUs after all");
    let after = task::alloc_cpu(1);
    check!(after.is_err() || after == Ok(MAX_CPUS), "virtual CPUs after one too many: {after:?}");
    sleep(Duration::from_millis(20)).await;
    Ok(())
}

/// Long work is not left to one of four virtual CPUs.
async fn all_take_part() -> Outcome {
    task::alloc_cpu(3)?;
    let workers: Vec<_> = (0..100u64)
        .map(|seed| {
            task::spawn_join(
                async move {
                    let mut value = seed;
                    for _ in 0..100 {
                        for _ in 0..2000 {
                            value = core::hint::black_box(
                                value.wrapping_mul(6364136223846793005).wrapping_add(1),
                            );
                        }
                        yield_now().await;
                    }
                    value
                },
                Priority::DEFAULT,
            )
        })
        .collect();
    for worker in soon("100 coroutines", join_all(workers)).await? {
        worker?;
    }
    let polls = polls();
    cops::println!("# polls of each: {:?}", &polls[..4]);
    check!(polls.iter().sum::<u64>() >= 10_000, "fewer polls than there were turns: {polls:?}");
    check!(
        polls[..4].iter().filter(|&&polls| polls > 100).count() >= 2,
        "one did it all: {polls:?}"
    );
    Ok(())
}

/// Two coroutines pass a token back and forth, on any virtual CPU.
async fn wakes_cross() -> Outcome {
    task::alloc_cpu(3)?;
    let pairs = (0..20).map(|_| async {
        let (to_other, from_one) = cops::sync::channel::<u32>(1);
        let (to_one, from_other) = cops::sync::channel::<u32>(1);
        task::spawn(
            async move {
                while let Some(value) = from_one.receive().await {
                    if to_one.send(value + 1).await.is_err() {
                        return;
                    }
                }
            },
            Priority::DEFAULT,
        );
        let mut value = 0;
        for _ in 0..200 {
            let _ = to_other.send(value).await;
            value = from_other.receive().await.unwrap_or(0) + 1;
        }
        value
    });
    let pairs: Vec<_> = pairs.map(|pair| task::spawn_join(pair, Priority::DEFAULT)).collect();
    for value in soon("20 pairs", join_all(pairs)).await? {
        check_equal!(value?, 400, "what a pair counted to");
    }
    Ok(())
}

/// While there is no work, there is hardly any system call, and the clock still wakes.
async fn idle_ones_park() -> Outcome {
    task::alloc_cpu(3)?;
    sleep(Duration::from_millis(50)).await;
    let before = statistics()?;
    sleep(Duration::from_millis(300)).await;
    let after = statistics()?;
    let calls = after.system_calls - before.system_calls;
    check!(calls < 200, "{calls} system calls in 300 ms of doing nothing");
    Ok(())
}

async fn calls_from_all() -> Outcome {
    task::alloc_cpu(3)?;
    let total = Arc::new(AtomicUsize::new(0));
    let begin = Instant::now();
    let workers: Vec<_> = (0..40)
        .map(|index| {
            let total = total.clone();
            task::spawn_join(
                async move {
                    let (mut reader, mut writer) = pipe()?;
                    for round in 0..20u8 {
                        let (sent, received) = futures_util::future::join(
                            async {
                                sleep(Duration::from_micros(u64::from(round) * 37 % 500)).await;
                                writer.write_all(&[round]).await
                            },
                            async {
                                let mut byte = [0];
                                reader.read_exact(&mut byte).await.map(|()| byte[0])
                            },
                        )
                        .await;
                        sent?;
                        total.fetch_add(usize::from(received? == round), Relaxed);
                    }
                    Ok::<_, cops::io::Error>(index)
                },
                Priority::DEFAULT,
            )
        })
        .collect();
    for (index, worker) in soon("40 coroutines", join_all(workers)).await?.into_iter().enumerate() {
        check_equal!(worker??, index, "output");
    }
    check_equal!(total.load(Relaxed), 800, "right bytes");
    cops::println!("# 800 pipes' worth of reads in {:?}", begin.elapsed());
    Ok(())
}

/// The process ends with all its virtual CPUs, computing and sleeping ones.
async fn exit_ends_all() -> Outcome {
    task::alloc_cpu(3)?;
    for _ in 0..2 {
        task::spawn(
            async {
                loop {
                    core::hint::spin_loop();
                }
            },
            Priority::LEAST_URGENT,
        );
    }
    // Synchronously, so that this virtual CPU does not compute and others must.
    cops::sleep!(Duration::from_millis(50))?;
    Ok(())
}

/// A parked virtual CPU takes over what a coroutine makes ready in a long poll.
async fn long_poll_keeps_nothing_waiting() -> Outcome {
    task::alloc_cpu(1)?;
    // With a single hart, nothing less urgent than the poll is done.
    let levels: &[u32] = if harts() == 1 { &[3] } else { &[3, 50] };
    for &level in levels {
        sleep(Duration::from_millis(5)).await;
        if let Some(id) = task::current() {
            task::set_priority(id, Priority::saturating(20));
        }
        yield_now().await;
        let begun = Arc::new(AtomicUsize::new(0));
        let begins = begun.clone();
        task::spawn(async move { begins.store(1, Relaxed) }, Priority::saturating(level));
        let begin = Instant::now();
        while begun.load(Relaxed) == 0 {
            check!(begin.elapsed() < PATIENCE, "level {level}: it waited for the end of the poll");
            core::hint::spin_loop();
        }
    }
    Ok(())
}

/// Workers are asked to leave their work to others all the time, as the kernel does, also to such
/// as are parked, are asked to leave themselves, or do not exist. All that is ready is done, and so
/// is what waits for results.
async fn workers_leave() -> Outcome {
    const CPUS: usize = 4;
    const ROUNDS: usize = 300;
    task::alloc_cpu(CPUS - 1)?;
    let mut all = Vec::new();
    for _ in 0..20 {
        let ((mut reader, mut writer), (mut answers, mut answerer)) = (pipe()?, pipe()?);
        all.push(task::spawn_join(
            async move {
                for round in 0..ROUNDS {
                    writer.write_all(&[round as u8]).await?;
                    let mut byte = [0];
                    answers.read_exact(&mut byte).await?;
                    check_equal!(byte, [round as u8], "the answer");
                }
                Ok(())
            },
            Priority::DEFAULT,
        ));
        all.push(task::spawn_join(
            async move {
                for _ in 0..ROUNDS {
                    let mut byte = [0];
                    reader.read_exact(&mut byte).await?;
                    yield_now().await;
                    answerer.write_all(&byte).await?;
                }
                Ok(())
            },
            Priority::DEFAULT,
        ));
    }
    let is_over = Arc::new(AtomicUsize::new(0));
    let over = is_over.clone();
    let asking = task::spawn_join(
        async move {
            let mut garbage = Garbage::new(70);
            let mut obeyed = 0;
            while over.load(Relaxed) == 0 {
                let (asked, heir) = (garbage.next() % CPUS, garbage.next() % (CPUS + 1));
                let request = &page().cpus[asked].leave_to;
                obeyed += usize::from(request.swap(heir as u32 + 1, Relaxed) == 0);
                yield_now().await;
            }
            obeyed
        },
        Priority::DEFAULT,
    );
    let ends = soon("40 coroutines", join_all(all)).await;
    is_over.store(1, Relaxed);
    for end in ends? {
        end??;
    }
    let obeyed = soon("the one that asks", asking).await??;
    cops::println!("# {obeyed} requests to leave");
    check!(obeyed > 50, "only {obeyed} requests to leave");
    Ok(())
}

/// As long as virtual CPUs have harts of their own and are busy with short polls, the kernel tries
/// again and again whether one fewer would do as much. None has nothing to do here.
async fn the_kernel_asks_to_leave() -> Outcome {
    if harts() == 1 {
        return Ok(());
    }
    const CPUS: usize = 4;
    task::alloc_cpu(CPUS - 1)?;
    let is_over = Arc::new(AtomicUsize::new(0));
    let watch = Arc::new(AtomicUsize::new(BEGINS));
    let busy: Vec<_> = (0..8 * CPUS)
        .map(|_| {
            let (over, watch) = (is_over.clone(), watch.clone());
            let work = async move {
                while over.load(Relaxed) == 0 {
                    // Long enough to wake the others, with enough calls to be counted.
                    let begin = Instant::now();
                    while begin.elapsed() < Duration::from_millis(3) {
                        look_for_one_that_leaves(&watch, CPUS);
                    }
                    for _ in 0..50 {
                        let _ = raw::call(SCHED_YIELD, []);
                    }
                    yield_now().await;
                }
            };
            task::spawn_join(work, Priority::DEFAULT)
        })
        .collect();
    let tries = async {
        while watch.load(Relaxed) != HAS_LEFT {
            yield_now().await;
        }
    };
    let tried = soon("one that leaves", tries).await;
    is_over.store(1, Relaxed);
    soon("the others", join_all(busy)).await?;
    tried
}

/// What was seen of the virtual CPUs: nothing yet, all at work, and then one that is parked.
const BEGINS: usize = 0;
const ALL_WORK: usize = 1;
const HAS_LEFT: usize = 2;

/// Looked for all the time, and not only now and then: on a host that is busy, one may leave soon
/// after all have begun, and stay away.
fn look_for_one_that_leaves(watch: &AtomicUsize, count: usize) {
    let seen = match (watch.load(Relaxed), any_parked(count)) {
        (BEGINS, false) if !polls()[..count].contains(&0) => ALL_WORK,
        (ALL_WORK, true) => HAS_LEFT,
        _ => return,
    };
    watch.fetch_max(seen, Relaxed);
}

/// The argument of `park` of a worker that leaves.
const LEAVES: usize = 1;

/// A coroutine that reads a byte, and returns whether it got one; and where that is to be written.
fn read_a_byte() -> cops::io::Result<(JoinHandle<bool>, Fd)> {
    let (mut reader, writer) = pipe()?;
    let reading = task::spawn_join(
        async move {
            let mut byte = [0];
            reader.read_exact(&mut byte).await.is_ok()
        },
        Priority::DEFAULT,
    );
    Ok((reading, writer))
}

/// Whether one of the first `count` virtual CPUs is parked, which is never the one that polls the
/// caller.
fn any_parked(count: usize) -> bool {
    page().cpus[..count].iter().any(|cpu| cpu.phase.load(Relaxed) == CpuPhase::Parked as u32)
}

/// Whether the ring has results that no worker has taken.
fn has_results() -> bool {
    let ring = &page().ring;
    ring.tail.load(Relaxed) != ring.head.load(Relaxed)
}

/// `park` of a worker that leaves: results are for another one that is active. Without one it
/// returns at once.
async fn one_that_leaves_needs_another() -> Outcome {
    task::alloc_cpu(1)?;
    let (reading, writer) = read_a_byte()?;
    // Would end a sleep that lasts.
    let alarm = task::spawn_join(sleep(PATIENCE / 3), Priority::DEFAULT);
    yield_now().await;
    let begin = Instant::now();
    while !any_parked(2) {
        check!(begin.elapsed() < PATIENCE, "the other virtual CPU does not park");
    }
    raw::call(WRITE, [writer.raw() as usize, c"1".as_ptr().addr(), 1])?;
    // The result stays in the ring as long as this poll goes on.
    while !has_results() {
        raw::call(SCHED_YIELD, [])?;
        check!(begin.elapsed() < PATIENCE, "there is no result");
    }
    let begin = Instant::now();
    raw::call(COPS_PARK, [LEAVES])?;
    check!(begin.elapsed() < PATIENCE / 6, "it slept, though no other one was active");
    check!(soon("the reader", reading).await??, "the byte does not arrive");
    alarm.abort();
    Ok(())
}

/// With another one that is active, results do not keep it awake.
async fn one_that_leaves_sleeps() -> Outcome {
    if harts() == 1 {
        return Ok(());
    }
    task::alloc_cpu(1)?;
    let (reading, writer) = read_a_byte()?;
    let (computes, parked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (says, sees) = (computes.clone(), parked.clone());
    yield_now().await;
    // A poll on the other virtual CPU, which ends when this one has parked.
    let other = task::spawn_join(
        async move {
            says.store(1, Relaxed);
            let begin = Instant::now();
            while !any_parked(2) && begin.elapsed() < PATIENCE / 3 {}
            sees.store(usize::from(any_parked(2)), Relaxed);
            for cpu in 0..2 {
                let _ = raw::call(COPS_UNPARK, [cpu]);
            }
        },
        Priority::DEFAULT,
    );
    let begin = Instant::now();
    while computes.load(Relaxed) == 0 {
        check!(begin.elapsed() < PATIENCE, "the other virtual CPU does not begin");
    }
    raw::call(WRITE, [writer.raw() as usize, c"1".as_ptr().addr(), 1])?;
    while !has_results() {
        check!(begin.elapsed() < PATIENCE, "there is no result");
    }
    // It may have been woken before. Not often: a result that has waited for a slice interrupts.
    for _ in 0..3 {
        if parked.load(Relaxed) == 0 {
            raw::call(COPS_PARK, [LEAVES])?;
        }
    }
    check_equal!(parked.load(Relaxed), 1, "parked with results in the ring");
    soon("the poll", other).await??;
    check!(soon("the reader", reading).await??, "the byte does not arrive");
    Ok(())
}

/// A worker leaves its work to one with a poll that does not end, and has a call that waits for
/// room: it does not sleep before that has been attempted again.
async fn one_that_leaves_attempts_queued_calls() -> Outcome {
    const HELD: u64 = 40;
    const FOREVER: Duration = Duration::from_secs(1_000_000);
    task::alloc_cpu(1)?;
    process::set_quota(0, Resource::Calls, HELD)?;
    for _ in 0..HELD {
        task::spawn(sleep(FOREVER), Priority::DEFAULT);
    }
    while process::quota(0, Resource::Calls)?.used < HELD {
        yield_now().await;
    }
    let own = task::current().map(|id| id.raw());
    let mut workers = page().workers.iter();
    let heir = workers.position(|worker| Some(worker.current_id.load(Relaxed)) == own);
    let heir = heir.ok_or(Failure("no virtual CPU polls this coroutine".into()))?;
    let (has_begun, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (begins, over) = (has_begun.clone(), is_over.clone());
    let queued = async move {
        // As the kernel asks. The worker looks when it has nothing else to do.
        page().cpus[1 - heir].leave_to.store(heir as u32 + 1, Relaxed);
        begins.store(1, Relaxed);
        // There is no room for this call; an attempt after the deadline needs none.
        sleep(Duration::from_millis(1)).await;
        over.store(1, Relaxed);
    };
    task::spawn(queued, Priority::DEFAULT);
    let begin = Instant::now();
    // In this poll, so that it is the other worker that takes the coroutine: on one hart after a
    // yield, on several because the stays in user mode are long.
    while is_over.load(Relaxed) == 0 {
        let step = has_begun.load(Relaxed);
        check!(
            begin.elapsed() < PATIENCE / 6,
            "the call is not attempted again ({step} has begun)"
        );
        let turn = Instant::now();
        while is_over.load(Relaxed) == 0 && turn.elapsed() < Duration::from_millis(5) {
            core::hint::spin_loop();
        }
        raw::call(SCHED_YIELD, [])?;
    }
    Ok(())
}
