//! The levels of calls in flight: they follow the coroutines that wait for them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::pin::pin;

use cops::inspect::{self, state};
use cops::io::{Fd, Read, Write, pipe};
use cops::memory::statistics;
use cops::process::{self, ExitCode};
use cops::sync::Mutex;
use cops::task::{self, JoinHandle};
use cops::thread::{Builder, block_on};
use futures_util::future::{select, select_all};

use crate::harness::{Failure, Outcome, PROGRAM, become_level, level, soon, until};
use crate::processes::HELPER;
use crate::scheduling::end_all;
use crate::{check, check_equal, tests};
use counted::Counted;

/// What the library notes of a coroutine's calls.
#[path = "../../../../runtime/src/call/counted.rs"]
mod counted;

tests! { call_levels:
    set_priority_reaches_calls_in_flight,
    set_priority_reaches_the_kernels_half,
    set_priority_lowers_no_call_below_what_its_coroutine_inherits,
    a_call_in_flight_inherits_with_its_coroutine,
    each_of_several_calls_in_flight_inherits,
    calls_of_a_chain_of_holders_inherit,
    calls_in_flight_follow_the_ceiling,
    a_call_that_a_thread_makes_for_a_coroutine_has_its_level,
    calls_are_counted_with_their_slots,
}

/// Argument of this program for a process with calls in flight.
pub const WAIT_IN_CALLS: &str = "wait-in-calls";

async fn set_priority_reaches_calls_in_flight() -> Outcome {
    let (mut reader, mut writer) = pipe()?;
    let blocked = task::spawn_join(
        async move {
            let mut byte = [0];
            reader.read_exact(&mut byte).await.map(|()| byte[0])
        },
        level(40),
    );
    let idle = task::spawn_join(core::future::pending::<()>(), level(40));
    // Less urgent than both, so both block before this continues.
    become_level(60).await;
    // Others may make calls meanwhile: the smallest number of ten changes.
    let calls = |id| {
        (0..10u8)
            .map(|index| {
                let before = statistics().map_or(0, |now| now.system_calls);
                task::set_priority(id, level(30 + index));
                statistics().map_or(0, |now| now.system_calls) - before
            })
            .min()
    };
    check_equal!(
        calls(blocked.id()),
        Some(2),
        "system calls for one with a call in flight, and to count them"
    );
    check_equal!(calls(idle.id()), Some(1), "system calls for one without, and to count them");
    writer.write_all(b"x").await?;
    check_equal!(soon("the byte", blocked).await???, b'x', "what was read");
    idle.abort();
    Ok(())
}

/// The kernel coroutine that completes a call is as urgent as the coroutine that waits for it, even
/// after that has changed.
async fn set_priority_reaches_the_kernels_half() -> Outcome {
    become_level(60).await;
    let (mut reader, mut writer) = pipe()?;
    let before = blocked_in_kernel()?;
    let blocked = task::spawn_join(async move { reader.read(&mut [0; 8]).await }, level(41));
    let half = new_half(&before, 41).await?;
    for at in [7, 55, 0] {
        task::set_priority(blocked.id(), level(at));
        check_equal!(level_of(half)?, Some(u32::from(at)), "priority of the kernel's half");
    }
    writer.write_all(b"x").await?;
    check_equal!(soon("the byte", blocked).await???, 1, "bytes read");
    Ok(())
}

/// The kernel coroutines of calls that wait.
fn blocked_in_kernel() -> Result<Vec<inspect::CoroutineRecord>, Failure> {
    let all = inspect::coroutines(0)?.into_iter();
    let is_one = |one: &inspect::CoroutineRecord| {
        one.state == state::BLOCKED && inspect::text(&one.name).is_empty()
    };
    Ok(all.filter(is_one).collect())
}

/// The kernel coroutine of a call at this level that was not there `before`.
async fn new_half(before: &[inspect::CoroutineRecord], level: u32) -> Result<u64, Failure> {
    new_halves::<1>(before, level).await.map(|[half]| half)
}

/// The kernel coroutines of calls at this level that were not there `before`.
async fn new_halves<const COUNT: usize>(
    before: &[inspect::CoroutineRecord],
    level: u32,
) -> Result<[u64; COUNT], Failure> {
    let mut halves = Vec::new();
    until("the kernel's halves of reads", || {
        halves = blocked_in_kernel()?;
        halves.retain(|one| {
            one.priority == level && before.iter().all(|other| other.coroutine != one.coroutine)
        });
        Ok(halves.len() >= COUNT)
    })
    .await?;
    check_equal!(halves.len(), COUNT, "kernel coroutines that these reads have made: {halves:?}");
    Ok(core::array::from_fn(|index| halves[index].coroutine))
}

/// The level of a kernel coroutine.
fn level_of(half: u64) -> Result<Option<u32>, Failure> {
    let found = inspect::coroutines(0)?.into_iter().find(|one| one.coroutine == half);
    Ok(found.map(|one| one.priority))
}

/// A coroutine of level 41 that has a mutex and waits in a read.
struct Held {
    mutex: Arc<Mutex<()>>,
    holder: JoinHandle<cops::io::Result<usize>>,
    /// The kernel's half of the read.
    half: u64,
    /// What it writes ends the read.
    writer: Fd,
}

impl Held {
    async fn new() -> Result<Self, Failure> {
        let (mut reader, writer) = pipe()?;
        let before = blocked_in_kernel()?;
        let mutex = Arc::new(Mutex::new(()));
        let held = mutex.clone();
        let holder = async move {
            let guard = held.lock().await;
            let count = reader.read(&mut [0; 8]).await;
            drop(guard);
            count
        };
        let holder = task::spawn_join(holder, level(41));
        let half = new_half(&before, 41).await?;
        Ok(Self { mutex, holder, half, writer })
    }
}

/// A coroutine that waits in a call has a mutex for which a more urgent one waits.
async fn set_priority_lowers_no_call_below_what_its_coroutine_inherits() -> Outcome {
    become_level(60).await;
    let Held { mutex, holder, half, mut writer } = Held::new().await?;
    let waiter = task::spawn_join(async move { drop(mutex.lock().await) }, level(10));
    until("what it inherits", || Ok(task::priority(holder.id()) == Some(level(10)))).await?;
    check_equal!(level_of(half)?, Some(10), "the kernel's half, before anything is set");
    for (at, expected) in [(30, 10), (7, 7), (50, 10)] {
        task::set_priority(holder.id(), level(at));
        check_equal!(level_of(half)?, Some(expected), "the kernel's half, of one of level {at}");
    }
    writer.write_all(b"x").await?;
    check_equal!(soon("the byte", holder).await???, 1, "bytes read");
    soon("the waiter", waiter).await??;
    Ok(())
}

/// A coroutine that waits in a call has a mutex. Those that want it come, become more urgent, and
/// give up.
async fn a_call_in_flight_inherits_with_its_coroutine() -> Outcome {
    become_level(60).await;
    let Held { mutex, holder, half, mut writer } = Held::new().await?;
    let wants = |at| {
        let mutex = mutex.clone();
        task::spawn_join(async move { drop(mutex.lock().await) }, level(at))
    };
    let (less, more) = (wants(50), wants(20));
    until("what it inherits", || Ok(task::priority(holder.id()) == Some(level(20)))).await?;
    check_equal!(level_of(half)?, Some(20), "the kernel's half");
    task::set_priority(less.id(), level(5));
    check_equal!(level_of(half)?, Some(5), "the kernel's half, for one that has become urgent");
    less.abort();
    until("the end of the most urgent", || Ok(less.is_finished())).await?;
    check_equal!(level_of(half)?, Some(20), "the kernel's half, without the most urgent");
    more.abort();
    until("the end of the other one", || Ok(more.is_finished())).await?;
    check_equal!(level_of(half)?, Some(41), "the kernel's half, without any");
    writer.write_all(b"x").await?;
    check_equal!(soon("the byte", holder).await???, 1, "bytes read");
    Ok(())
}

/// Two calls in flight are found by their record, and more by a search.
async fn each_of_several_calls_in_flight_inherits() -> Outcome {
    each_inherits::<2>().await?;
    each_inherits::<3>().await?;
    each_inherits::<5>().await
}

/// The holder waits for whichever of so many reads ends first.
async fn each_inherits<const READS: usize>() -> Outcome {
    become_level(60).await;
    let (mut readers, mut ends) = (Vec::new(), Vec::new());
    for _ in 0..READS {
        let (reader, end) = pipe()?;
        readers.push(reader);
        ends.push(end);
    }
    let before = blocked_in_kernel()?;
    let mutex = Arc::new(Mutex::new(()));
    let held = mutex.clone();
    let holder = async move {
        let _guard = held.lock().await;
        let reads = readers
            .into_iter()
            .map(|mut reader| Box::pin(async move { reader.read(&mut [0; 8]).await }));
        select_all(reads).await.0
    };
    let holder = task::spawn_join(holder, level(41));
    let halves = new_halves::<READS>(&before, 41).await?;
    let waiter = task::spawn_join(async move { drop(mutex.lock().await) }, level(10));
    until("what it inherits", || Ok(task::priority(holder.id()) == Some(level(10)))).await?;
    for half in halves {
        check_equal!(level_of(half)?, Some(10), "one of {READS} halves of the kernel");
    }
    for end in ends.iter_mut().take(1) {
        end.write_all(b"x").await?;
    }
    check_equal!(soon("the holder", holder).await???, 1, "bytes read");
    soon("the waiter", waiter).await??;
    Ok(())
}

/// Twenty holders of a mutex, each of which waits in a call and for the mutex of the next one. The
/// executor tells of eight at a time.
async fn calls_of_a_chain_of_holders_inherit() -> Outcome {
    const HOLDERS: usize = 20;
    become_level(60).await;
    let before = blocked_in_kernel()?;
    let mutexes: Arc<Vec<Mutex<()>>> = Arc::new((0..HOLDERS).map(|_| Mutex::new(())).collect());
    let (mut ends, mut holders) = (Vec::new(), Vec::new());
    // The last one first, so that each finds the next mutex taken.
    for index in (0..HOLDERS).rev() {
        let (mut reader, writer) = pipe()?;
        let mutexes = mutexes.clone();
        let holder = async move {
            let mut byte = [0];
            let _own = mutexes[index].lock().await;
            match mutexes.get(index + 1) {
                Some(next) => {
                    let next = pin!(async { drop(next.lock().await) });
                    select(next, pin!(reader.read(&mut byte))).await;
                }
                None => drop(reader.read(&mut byte).await),
            }
        };
        ends.push(writer);
        holders.push(task::spawn_join(holder, level(41)));
    }
    let halves = new_halves::<HOLDERS>(&before, 41).await?;
    let waiter = task::spawn_join(async move { drop(mutexes[0].lock().await) }, level(10));
    for holder in &holders {
        until("what it inherits", || Ok(task::priority(holder.id()) == Some(level(10)))).await?;
    }
    for half in halves {
        check_equal!(level_of(half)?, Some(10), "a half of the kernel");
    }
    drop(ends);
    for holder in holders {
        soon("a holder", holder).await??;
    }
    soon("the waiter", waiter).await??;
    Ok(())
}

/// The level of the calls of [`wait_in_calls`] without a ceiling.
const ASKED: u8 = 7;

/// A coroutine and a thread wait in a read.
pub async fn wait_in_calls() -> ExitCode {
    let (Ok((mut reader, _writer)), Ok((of_thread, _other_writer))) = (pipe(), pipe()) else {
        return ExitCode(1);
    };
    task::spawn(async move { _ = reader.read(&mut [0; 8]).await }, level(ASKED));
    let thread = Builder::new().priority(level(ASKED)).spawn(move || {
        let _ = cops::read!(of_thread, &mut [0; 8]);
    });
    match thread {
        Ok(_) => core::future::pending().await,
        Err(_) => ExitCode(2),
    }
}

/// Also what has begun under another ceiling. A call that stands may last as long as its process.
async fn calls_in_flight_follow_the_ceiling() -> Outcome {
    become_level(3).await;
    let before = blocked_in_kernel()?;
    let mut child = process::spawn_below(PROGRAM, &[HELPER, WAIT_IN_CALLS], Some(level(50)))?;
    let halves = new_halves::<2>(&before, 50).await?;
    for ceiling in [20, 60, 3, 8, 50] {
        child.set_ceiling(level(ceiling))?;
        for half in halves {
            let expected = u32::from(ceiling.max(ASKED));
            check_equal!(level_of(half)?, Some(expected), "a call below the ceiling {ceiling}");
        }
    }
    end_all(core::slice::from_mut(&mut child)).await
}

/// Also one of the most urgent level: a thread has no record of a worker, in which the level would
/// be 0.
async fn a_call_that_a_thread_makes_for_a_coroutine_has_its_level() -> Outcome {
    become_level(60).await;
    for at in [0, 17] {
        let before = blocked_in_kernel()?;
        let idle = task::spawn_join(core::future::pending::<()>(), level(at));
        let id = idle.id();
        let (reader, mut writer) = pipe()?;
        let thread = Builder::new().priority(level(41)).spawn(move || {
            let mut buffer = [0; 8];
            block_on(cops::read!(reader, &mut buffer, id))
        })?;
        let half = new_half(&before, u32::from(at)).await?;
        task::set_priority(id, level(30));
        check_equal!(level_of(half)?, Some(30), "the kernel's half, later");
        writer.write_all(b"x").await?;
        until("the end of the thread", || Ok(thread.is_finished())).await?;
        check_equal!(thread.join(), Ok(Ok(1)), "bytes read");
        idle.abort();
    }
    Ok(())
}

/// In each sequence of calls that begin and end in four slots, what is noted is what there is: all
/// slots, or that they have to be searched. The latter only after there were three calls at once.
async fn calls_are_counted_with_their_slots() -> Outcome {
    fn proceed(noted: Counted, slots: &mut Vec<u32>, most: usize, steps: u32) -> Outcome {
        let most = if slots.is_empty() { 0 } else { most.max(slots.len()) };
        match noted.slots() {
            Some(found) => {
                let mut found: Vec<u32> = found.into_iter().flatten().collect();
                let mut there = slots.clone();
                found.sort_unstable();
                there.sort_unstable();
                check_equal!(found, there, "the slots in {noted:?}");
            }
            None => check!(most > 2, "{slots:?} is not in {noted:?}"),
        }
        check_equal!(noted == Counted::NONE, slots.is_empty(), "{noted:?} is none");
        check_equal!(Counted::from_word(noted.word()), noted, "the word");
        for slot in [0, 1, 2, counted::SLOTS_MAX as u32 - 1] {
            if steps == 0 {
                break;
            }
            if let Some(place) = slots.iter().position(|&one| one == slot) {
                slots.remove(place);
                proceed(noted.without(slot), slots, most, steps - 1)?;
                slots.insert(place, slot);
            } else {
                slots.push(slot);
                proceed(noted.with(slot), slots, most, steps - 1)?;
                slots.pop();
            }
        }
        Ok(())
    }
    proceed(Counted::NONE, &mut Vec::new(), 0, 8)
}
