//! The levels of calls in flight: they follow the coroutines that wait for them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use cops::inspect::{self, state};
use cops::io::{Read, Write, pipe};
use cops::memory::statistics;
use cops::sync::Mutex;
use cops::task;

use crate::harness::{Failure, Outcome, become_level, level, soon, until};
use crate::{check_equal, tests};

tests! { call_levels:
    set_priority_reaches_calls_in_flight,
    set_priority_reaches_the_kernels_half,
    set_priority_lowers_no_call_below_what_its_coroutine_inherits,
}

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
    let mut halves = Vec::new();
    until("the kernel's half of a read", || {
        halves = blocked_in_kernel()?;
        halves.retain(|one| {
            one.priority == level && before.iter().all(|other| other.coroutine != one.coroutine)
        });
        Ok(!halves.is_empty())
    })
    .await?;
    check_equal!(halves.len(), 1, "kernel coroutines that this read has made: {halves:?}");
    Ok(halves[0].coroutine)
}

/// The level of a kernel coroutine.
fn level_of(half: u64) -> Result<Option<u32>, Failure> {
    let found = inspect::coroutines(0)?.into_iter().find(|one| one.coroutine == half);
    Ok(found.map(|one| one.priority))
}

/// A coroutine that waits in a call has a mutex for which a more urgent one waits.
async fn set_priority_lowers_no_call_below_what_its_coroutine_inherits() -> Outcome {
    become_level(60).await;
    let (mut reader, mut writer) = pipe()?;
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
    let waiter = task::spawn_join(async move { drop(mutex.lock().await) }, level(10));
    until("what it inherits", || Ok(task::priority(holder.id()) == Some(level(10)))).await?;
    for (at, expected) in [(30, 10), (7, 7), (50, 10)] {
        task::set_priority(holder.id(), level(at));
        check_equal!(level_of(half)?, Some(expected), "the kernel's half, of one of level {at}");
    }
    writer.write_all(b"x").await?;
    check_equal!(soon("the byte", holder).await???, 1, "bytes read");
    soon("the waiter", waiter).await??;
    Ok(())
}
