//! Results of asynchronous calls: the wake ring, its overflow, cancelling. SPEC 3.8, 3.9.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use core::task::Poll;

use cops::abi::ring::RING_ENTRIES;
use cops::abi::{Errno, syscall as number};
use cops::io::{AsFd, Fd, Read, Write, pipe};
use cops::memory::statistics;
use cops::task::{self, Priority, yield_now};
use cops::time::{Duration, Instant, sleep, timeout};
use cops::{read, write};
use futures_util::future::{Either, join_all, poll_fn, select};

use crate::harness::{Failure, Outcome, PATIENCE, soon, until};
use crate::raw::{self, Asked};
use crate::{check, check_equal, tests};

tests! { results:
    macros_both_ways,
    at_once_makes_no_coroutine,
    ring_overflow,
    ring_overflow_on_four_cpus,
    cancelled_read_leaves_buffer,
    cancelled_owned_read_keeps_bytes,
    forgotten_read_leaves_buffer,
    cancel_races_with_completion,
    timeout_on_read,
    select_of_two,
    closed_while_in_flight,
    unmapped_buffer_is_pinned,
    stale_handle_cancels_nothing,
    memory_of_calls_comes_back,
    handles_outlive_the_memory_of_their_calls,
    results_of_strangers,
    no_leftovers_for_a_new_descriptor,
}

/// Polls once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_fn(|context| match Pin::new(&mut *future).poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// `read!` and `write!`, synchronous and as futures, from the same definition.
async fn macros_both_ways() -> Outcome {
    let name = task::current().ok_or(Failure("no coroutine".into()))?;
    let (reader, writer) = pipe()?;
    let mut buffer = [0; 8];
    check_equal!(write!(writer, b"one"), Ok(3), "synchronous write");
    check_equal!(read!(reader, &mut buffer), Ok(3), "synchronous read");
    check_equal!(&buffer[..3], b"one", "bytes");
    check_equal!(write!(writer, b"three", name).await, Ok(5), "asynchronous write");
    check_equal!(read!(reader, &mut buffer, name).await, Ok(5), "asynchronous read");
    check_equal!(&buffer[..5], b"three", "bytes");
    check_equal!(
        read!(writer, &mut buffer, name).await,
        Err(Errno::EBADF),
        "reading from the wrong end"
    );
    Ok(())
}

async fn at_once_makes_no_coroutine() -> Outcome {
    let (mut reader, mut writer) = pipe()?;
    let before = statistics()?;
    for _ in 0..100 {
        writer.write_all(b"x").await?;
        reader.read_exact(&mut [0]).await?;
    }
    let after = statistics()?;
    // The counters are for the whole machine: the process that waits for this one may have made a
    // call or two.
    let deferred = after.calls_deferred - before.calls_deferred;
    check!(deferred < 10, "{deferred} of 200 calls were deferred");
    let at_once = after.calls_completed_at_once - before.calls_completed_at_once;
    check!(at_once >= 200, "{at_once} of 200 calls completed at once");
    Ok(())
}

/// Many more reads complete than the ring has room for while no worker takes results out of it,
/// until `overflows` results have found the ring full.
async fn overflow(reads: usize, overflows: u64) -> Outcome {
    check!(reads > RING_ENTRIES as usize, "too few reads for the ring to overflow");
    let before = statistics()?;
    let (reader, mut writer) = pipe()?;
    let reader = Arc::new(reader);
    let done = Arc::new(AtomicUsize::new(0));
    for _ in 0..reads {
        let (reader, done) = (reader.clone(), done.clone());
        task::spawn(
            async move {
                let mut reader = ManuallyReader(reader.as_fd().raw());
                if reader.read(&mut [0]).await == Ok(1) {
                    done.fetch_add(1, Relaxed);
                }
            },
            Priority::DEFAULT,
        );
    }
    // Less urgent, so that all of them wait before this coroutine continues.
    let name = task::current().ok_or(Failure("no coroutine".into()))?;
    task::set_priority(name, Priority::LEAST_URGENT);
    until("all reads are in flight", || {
        Ok(statistics()?.calls_deferred - before.calls_deferred >= reads as u64)
    })
    .await?;
    writer.write_all(&vec![1; reads]).await?;
    // Outside of the executor, while the kernel completes the reads.
    let begin = Instant::now();
    while statistics()?.ring_overflows - before.ring_overflows < overflows {
        check!(begin.elapsed() < PATIENCE, "too few results found the ring full");
    }
    until("the reads are over", || Ok(done.load(Relaxed) >= reads)).await?;
    check_equal!(done.load(Relaxed), reads, "reads that got a byte");
    let overflows = statistics()?.ring_overflows - before.ring_overflows;
    cops::println!("# {reads} results, {overflows} found the ring full");
    Ok(())
}

async fn ring_overflow() -> Outcome {
    overflow(1000, 1000 - u64::from(RING_ENTRIES)).await
}

/// Other virtual CPUs may take results meanwhile; all of them arrive.
async fn ring_overflow_on_four_cpus() -> Outcome {
    task::alloc_cpu(3)?;
    overflow(3000, 0).await
}

async fn cancelled_read_leaves_buffer() -> Outcome {
    for length in [1, 16, 17, 4000] {
        let (mut reader, mut writer) = pipe()?;
        let mut buffer = vec![0xa5; length];
        {
            let mut read = pin!(reader.read(&mut buffer));
            check!(poll_once(&mut read).await.is_none(), "a read of an empty pipe is over");
        }
        writer.write_all(b"after the cancel").await?;
        sleep(Duration::from_millis(5)).await;
        check!(
            buffer.iter().all(|&byte| byte == 0xa5),
            "the buffer of {length} bytes was written to"
        );
        let mut all = [0; 16];
        reader.read_exact(&mut all).await?;
        check_equal!(&all, b"after the cancel", "what the next read got");
    }
    Ok(())
}

/// A read into an owned buffer that is dropped after it completed: the next read gets the bytes.
async fn cancelled_owned_read_keeps_bytes() -> Outcome {
    let (mut reader, mut writer) = pipe()?;
    {
        let mut fill = pin!(cops::io::fill(&reader, vec![0u8; 100], 0));
        check!(poll_once(&mut fill).await.is_none(), "a read of an empty pipe is over");
        writer.write_all(b"kept").await?;
        sleep(Duration::from_millis(5)).await;
    }
    let mut all = [0; 4];
    soon("the bytes kept", reader.read_exact(&mut all)).await??;
    check_equal!(&all, b"kept", "what the next read got");
    Ok(())
}

/// Safe code may forget a future. The kernel must not write to its former buffer.
async fn forgotten_read_leaves_buffer() -> Outcome {
    for length in [16, 1000] {
        let (reader, mut writer) = pipe()?;
        let mut buffer = vec![0xa5; length];
        let mut read = Box::pin(async {
            let mut reader = ManuallyReader(reader.as_fd().raw());
            reader.read(&mut buffer).await
        });
        check!(poll_once(&mut read).await.is_none(), "a read of an empty pipe is over");
        core::mem::forget(read);
        writer.write_all(&vec![0x5a; length]).await?;
        sleep(Duration::from_millis(5)).await;
        check!(
            buffer.iter().all(|&byte| byte == 0xa5),
            "the buffer of {length} bytes was written to"
        );
    }
    Ok(())
}

/// Reads a descriptor that has another owner.
struct ManuallyReader(i32);

impl ManuallyReader {
    async fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let fd = core::mem::ManuallyDrop::new(Fd::from_raw(self.0));
        let name = task::current().ok_or(Errno::EINVAL)?;
        read!(*fd, buffer, name).await
    }
}

/// Reads with very short time limits while another coroutine writes: every byte arrives once and in
/// order, however often the limit and the data come at the same moment.
async fn cancel_races_with_completion() -> Outcome {
    const BYTES: usize = 4000;
    task::alloc_cpu(2)?;
    let (mut reader, mut writer) = pipe()?;
    task::spawn(
        async move {
            for place in 0..BYTES {
                if writer.write_all(&[place as u8]).await.is_err() {
                    return;
                }
                match place % 3 {
                    0 => sleep(Duration::from_micros(place as u64 % 300)).await,
                    1 => yield_now().await,
                    _ => {}
                }
            }
        },
        Priority::DEFAULT,
    );
    let (mut place, mut cancels) = (0, 0);
    let mut buffer = [0; 64];
    let begin = Instant::now();
    while place < BYTES {
        let length = 1 + place % 40;
        let limit = Duration::from_micros(place as u64 * 7 % 400);
        match timeout(limit, reader.read(&mut buffer[..length])).await {
            Err(_) => {
                cancels += 1;
                // With a time limit of zero, no other coroutine would ever run here.
                yield_now().await;
            }
            Ok(count) => {
                let count = count?;
                check!(count > 0, "the end after {place} bytes");
                for &byte in &buffer[..count] {
                    check_equal!(byte, place as u8, "byte {place}");
                    place += 1;
                }
            }
        }
        check!(begin.elapsed() < PATIENCE, "only {place} bytes in {PATIENCE:?}");
    }
    check!(cancels > 0, "no read was ever cancelled");
    cops::println!("# {cancels} reads cancelled");
    Ok(())
}

async fn timeout_on_read() -> Outcome {
    let (mut reader, mut writer) = pipe()?;
    let mut buffer = [0; 8];
    let limit = Duration::from_millis(20);
    let begin = Instant::now();
    check!(
        timeout(limit, reader.read(&mut buffer)).await.is_err(),
        "a read of an empty pipe is over"
    );
    check!(begin.elapsed() >= limit, "the limit was reached after {:?}", begin.elapsed());
    writer.write_all(b"late").await?;
    check_equal!(timeout(limit, reader.read(&mut buffer)).await?, Ok(4), "the next read");
    Ok(())
}

/// Of two reads, the one with data wins, and the other loses nothing.
async fn select_of_two() -> Outcome {
    let (mut left, mut left_writer) = pipe()?;
    let (mut right, mut right_writer) = pipe()?;
    for round in 0..50u8 {
        let (mut a, mut b) = ([0; 4], [0; 4]);
        let writer = if round % 2 == 0 { &mut left_writer } else { &mut right_writer };
        {
            let (left, right) = (pin!(left.read(&mut a)), pin!(right.read(&mut b)));
            let mut both = pin!(select(left, right));
            check!(poll_once(&mut both).await.is_none(), "one of two empty pipes has something");
            writer.write_all(&[round]).await?;
            match soon("one of two reads", both).await? {
                Either::Left((count, _)) if round % 2 == 0 => {
                    check_equal!(count?, 1, "bytes on the left")
                }
                Either::Right((count, _)) if round % 2 == 1 => {
                    check_equal!(count?, 1, "bytes on the right")
                }
                _ => return Err(Failure("the wrong side won".into())),
            }
        }
        check_equal!([a[0], b[0]][usize::from(round % 2)], round, "byte of round {round}");
    }
    Ok(())
}

/// The calls of this process in flight, as the kernel counts them.
pub fn own_calls() -> Result<u64, Failure> {
    let own = crate::inspection::find(cops::process::id())?;
    Ok(own.map_or(0, |own| own.calls_in_flight))
}

/// Waits until at most `count` calls of this process are in flight. Does not use the library's
/// timeout, which is a call in flight itself.
async fn own_calls_are(count: u64) -> Outcome {
    let begin = Instant::now();
    while own_calls()? > count {
        check!(begin.elapsed() < PATIENCE, "{} calls in flight instead of {count}", own_calls()?);
        sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// The buffer of a read in flight is unmapped, and its memory used for something else: the bytes
/// are not written there.
async fn unmapped_buffer_is_pinned() -> Outcome {
    use cops::abi::syscall::{map_flags, protection};
    const PAGE: usize = 4096;
    const PAGES: usize = 64;
    let map = |bytes| {
        let flags = map_flags::PRIVATE | map_flags::ANONYMOUS;
        raw::call(
            number::MMAP,
            [0, bytes, protection::READ | protection::WRITE, flags, usize::MAX, 0],
        )
    };
    for _ in 0..20 {
        let (reader, mut writer) = pipe()?;
        let buffer = map(PAGE)?;
        raw::poke(buffer, 1);
        let before = own_calls()?;
        let fd = reader.as_fd().raw() as usize;
        let Asked::InFlight(_) = raw::ask(number::READ, [fd, buffer, 64]) else {
            return Err(Failure("a read of an empty pipe is over".into()));
        };
        raw::call(number::MUNMAP, [buffer, PAGE])?;
        // Frames that have just become free are allocated first.
        let others = map(PAGES * PAGE)?;
        for page in 0..PAGES {
            raw::poke(others + page * PAGE, 0x1111);
        }
        writer.write_all(&[0xee; 64]).await?;
        own_calls_are(before).await?;
        for page in 0..PAGES {
            for word in 0..8 {
                let expected = if word == 0 { 0x1111 } else { 0 };
                let found = raw::peek(others + page * PAGE + word * 8);
                check_equal!(
                    found,
                    expected,
                    "word {word} of page {page}, which no call was given"
                );
            }
        }
        raw::call(number::MUNMAP, [others, PAGES * PAGE])?;
    }
    Ok(())
}

/// A handle identifies one call, even when a later call uses the same memory in the kernel.
async fn stale_handle_cancels_nothing() -> Outcome {
    let forever = [1_000_000usize, 0];
    let ask = || match raw::ask(number::CLOCK_NANOSLEEP, [1, 0, forever.as_ptr().addr()]) {
        Asked::InFlight(handle) => Ok(handle),
        Asked::Done(other) => Err(Failure(alloc::format!("a sleep for ever: {other:?}"))),
    };
    let mut stale = Vec::new();
    for _ in 0..100 {
        let handle = ask()?;
        stale.push(handle.again());
        check!(handle.cancel()?, "a sleep for ever had completed");
    }
    let living = ask()?;
    for handle in stale {
        check!(!handle.cancel()?, "a handle of a call that was cancelled names one in flight");
    }
    check!(living.cancel()?, "the handle of an earlier call ended this one");
    Ok(())
}

/// The descriptor of a read in flight is closed: the read ends or can still be cancelled.
async fn closed_while_in_flight() -> Outcome {
    let (reader, writer) = pipe()?;
    let mut buffer = [0u8; 64];
    let fd = reader.as_fd().raw() as usize;
    let Asked::InFlight(handle) = raw::ask(number::READ, [fd, buffer.as_mut_ptr().addr(), 64])
    else {
        return Err(Failure("a read of an empty pipe is over".into()));
    };
    drop(reader);
    let mut writer = writer;
    // The call in flight still holds the pipe, so this may succeed; or there is no reader any more.
    let _ = writer.write(b"x").await;
    drop(writer);
    handle.cancel()?;
    Ok(())
}

/// Results with forged tokens reach no coroutine.
async fn results_of_strangers() -> Outcome {
    let (reader, mut writer) = pipe()?;
    let mut buffer = [0u8; 64];
    let fd = reader.as_fd().raw() as usize;
    let place = buffer.as_mut_ptr().addr();
    let mut handles = Vec::new();
    let before = own_calls()?;
    for _ in 0..500 {
        if let Asked::InFlight(handle) = raw::ask(number::READ, [fd, place, 1]) {
            handles.push(handle);
        }
    }
    check_equal!(handles.len(), 500, "reads in flight");
    writer.write_all(&[1; 500]).await?;
    own_calls_are(before).await?;
    for handle in handles {
        check!(!handle.cancel()?, "a read for which there was a byte had not completed");
    }
    // The library's own calls still work.
    let sleeps = (0..100).map(|_| sleep(Duration::from_millis(5)));
    soon("sleeps", join_all(sleeps)).await?;
    Ok(())
}

/// Bytes kept from a cancelled read belong to that descriptor, not to a later one with the same
/// number.
async fn no_leftovers_for_a_new_descriptor() -> Outcome {
    let (reader, mut writer) = pipe()?;
    let old = reader.as_fd().raw();
    {
        let mut reader = ManuallyReader(old);
        let mut buffer = [0; 4];
        let mut read = pin!(reader.read(&mut buffer));
        check!(poll_once(&mut read).await.is_none(), "a read of an empty pipe is over");
        writer.write_all(b"old!").await?;
        sleep(Duration::from_millis(5)).await;
    }
    drop((reader, writer));
    let (mut reader, mut writer) = pipe()?;
    check_equal!(reader.as_fd().raw(), old, "the new pipe's number");
    writer.write_all(b"new!").await?;
    let mut buffer = [0; 4];
    reader.read_exact(&mut buffer).await?;
    check_equal!(&buffer, b"new!", "what the new pipe yields");
    Ok(())
}

/// So many sleeps; their handles.
fn sleeps(count: usize) -> Result<Vec<raw::Handle>, Failure> {
    let time = [1_000_000usize, 0];
    let mut handles = Vec::with_capacity(count);
    while handles.len() < count {
        match raw::ask(number::CLOCK_NANOSLEEP, [1, 0, time.as_ptr().addr()]) {
            Asked::InFlight(handle) => handles.push(handle),
            Asked::Done(result) => return Err(Failure(alloc::format!("a sleep: {result:?}"))),
        }
    }
    Ok(handles)
}

/// Less than the kernel's heap needs for the cell and the timer of a sleep, and more than for one
/// of the two.
const CALL_BYTES: u64 = 250;

/// The kernel frees the memory of calls when they are over, not when the process ends.
async fn memory_of_calls_comes_back() -> Outcome {
    const COUNT: usize = 6000;
    let handles = sleeps(COUNT)?;
    let at_most = statistics()?.heap_used_bytes;
    for handle in handles {
        check!(handle.cancel()?, "a sleep for ever had completed");
    }
    let freed = at_most.saturating_sub(statistics()?.heap_used_bytes) / COUNT as u64;
    check!(freed > CALL_BYTES, "{freed} bytes freed of each call");
    Ok(())
}

/// A handle names its own call only, also when the memory of that has been freed and allocated
/// anew.
async fn handles_outlive_the_memory_of_their_calls() -> Outcome {
    const COUNT: usize = 2000;
    let old = sleeps(COUNT)?;
    let stale: Vec<_> = old.iter().flat_map(|handle| [handle.again(), handle.again()]).collect();
    for handle in old {
        check!(handle.cancel()?, "a sleep for ever had completed");
    }
    let (without_memory, beside_others) = stale.split_at(COUNT);
    for handle in without_memory {
        check!(!handle.again().cancel()?, "a handle of a cancelled call names one in flight");
    }
    let new = sleeps(COUNT)?;
    for handle in without_memory.iter().chain(beside_others) {
        check!(!handle.again().cancel()?, "a handle of a cancelled call names a later one");
    }
    for handle in new {
        check!(handle.cancel()?, "the handle of an earlier call ended this one");
    }
    Ok(())
}
