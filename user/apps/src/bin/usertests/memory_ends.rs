//! Programs that exhaust the kernel's memory or its limits, through pipes, files and calls. Each
//! reaches its peak and ends, and then all resources are free again.

use alloc::vec::Vec;

use cops::abi::Errno;
use cops::abi::syscall::{
    AT_FDCWD, CLOSE, GETRANDOM, MMAP, MUNMAP, OPENAT, PIPE2, READ, WRITE, map_flags, protection,
};
use cops::memory::statistics;
use cops::time::{Duration, sleep};

use crate::harness::{Failure, Outcome};
use crate::raw::{self, Asked};
use crate::results::own_calls;
use crate::{check, check_equal, tests};

tests! { memory_ends:
    pipes_take_all_memory,
    pipes_take_fragmented_memory,
    open_files_to_the_limit,
    thirty_thousand_waiters,
    a_hundred_thousand_cancelled_reads,
}

const PAGE: usize = 4096;
/// Maximum number of bytes that one write moves.
const PART: usize = 4 * PAGE;
static DATA: [u8; PART] = [0x5a; PART];

struct RawPipe {
    reader: usize,
    writer: usize,
}

fn raw_pipe() -> Result<RawPipe, Errno> {
    let mut ends = [0u32; 2];
    raw::call(PIPE2, [ends.as_mut_ptr().addr(), 0])?;
    Ok(RawPipe { reader: ends[0] as usize, writer: ends[1] as usize })
}

/// Writes until there is no room. Returns the number of bytes, and the error, if any.
fn fill(pipe: &RawPipe) -> Result<(usize, Option<Errno>), Failure> {
    let mut bytes = 0;
    loop {
        match raw::ask(WRITE, [pipe.writer, DATA.as_ptr().addr(), DATA.len()]) {
            Asked::Done(Ok(count)) => bytes += count,
            Asked::Done(Err(error)) => return Ok((bytes, Some(error))),
            Asked::InFlight(handle) => {
                handle.cancel()?;
                return Ok((bytes, None));
            }
        }
    }
}

/// Fills pipes until no memory or no descriptor is left. Returns the number of bytes in them.
fn fill_pipes() -> Result<usize, Failure> {
    let mut total = 0;
    loop {
        let pipe = match raw_pipe() {
            Ok(pipe) => pipe,
            Err(Errno::ENOMEM | Errno::EMFILE) => return Ok(total),
            Err(other) => return Err(Failure(alloc::format!("pipe2: {other:?}"))),
        };
        let (bytes, error) = fill(&pipe)?;
        total += bytes;
        match error {
            None => {}
            Some(Errno::ENOMEM) => return Ok(total),
            Some(other) => return Err(Failure(alloc::format!("write: {other:?}"))),
        }
    }
}

async fn pipes_take_all_memory() -> Outcome {
    let free = statistics()?.frames_free as usize * PAGE;
    let total = fill_pipes()?;
    check!(total > 16 << 20 || total > free / 4, "{total} bytes went into pipes, of {free} free");
    // The existing pipes still work.
    let pipe = RawPipe { reader: 3, writer: 4 };
    let mut byte = 0u8;
    check_equal!(raw::call(READ, [pipe.reader, (&raw mut byte).addr(), 1]), Ok(1), "bytes read");
    check_equal!(byte, 0x5a, "byte read");
    Ok(())
}

/// Half of the memory is free, but no two adjacent frames are.
async fn pipes_take_fragmented_memory() -> Outcome {
    let flags = map_flags::PRIVATE | map_flags::ANONYMOUS;
    let mut pages = statistics()?.frames_free as usize * 7 / 8;
    let rights = protection::READ | protection::WRITE;
    // As much as the process's quota allows.
    let start = loop {
        match raw::call(MMAP, [0, pages * PAGE, rights, flags, usize::MAX, 0]) {
            Err(Errno::ENOMEM) if pages > 1024 => pages -= pages / 8,
            other => break other?,
        }
    };
    let mut touched = 0;
    // The kernel accesses the pages, so that exhausted memory is an error here and does not end
    // this process.
    while touched < pages && raw::call(GETRANDOM, [start + touched * PAGE, 1, 0]).is_ok() {
        touched += 1;
    }
    let before = statistics()?.frames_free as usize;
    // Unmaps every second page, for as many regions as a process may have.
    for page in (0..touched).step_by(2).take(30_000) {
        raw::call(MUNMAP, [start + page * PAGE, PAGE])?;
    }
    let freed = (statistics()?.frames_free as usize - before) * PAGE;
    let total = fill_pipes()?;
    check!(
        total > freed / 2,
        "{total} bytes went into pipes, after {freed} were freed page by page"
    );
    Ok(())
}

async fn open_files_to_the_limit() -> Outcome {
    let path = c"/etc/init";
    let mut count = 0;
    let error = loop {
        match raw::call(OPENAT, [AT_FDCWD as usize, path.as_ptr().addr(), 0]) {
            Ok(number) => {
                check_equal!(number, count + 3, "number of a new file");
                count += 1;
            }
            Err(error) => break error,
        }
    };
    check!(matches!(error, Errno::EMFILE | Errno::ENOMEM), "after {count} files: {error:?}");
    // The lowest free number, wherever it is.
    for number in [3 + count / 2, 3 + count / 3] {
        check_equal!(raw::call(CLOSE, [number]), Ok(0), "closing");
        let again = raw::call(OPENAT, [AT_FDCWD as usize, path.as_ptr().addr(), 0]);
        check_equal!(again, Ok(number), "number of the next file");
    }
    Ok(())
}

/// Waits until this many calls of this process are in flight.
async fn in_flight(expected: u64) -> Outcome {
    let mut steps = 0;
    loop {
        let now = own_calls()?;
        // This coroutine's own sleep has ended when it checks.
        if now == expected {
            return Ok(());
        }
        steps += 1;
        check!(steps < 2_000, "{now} calls in flight instead of {expected}");
        sleep(Duration::from_millis(5)).await;
    }
}

async fn thirty_thousand_waiters() -> Outcome {
    const WAITERS: usize = 30_000;
    static mut PLACE: u8 = 0;
    let place = (&raw mut PLACE).addr();
    let before = own_calls()?;
    let pipe = raw_pipe()?;
    let mut waiting = 0;
    while waiting < WAITERS {
        match raw::ask(READ, [pipe.reader, place, 1]) {
            Asked::InFlight(_) => waiting += 1,
            // A quota or the end of memory: as many as possible.
            Asked::Done(Err(Errno::EAGAIN | Errno::ENOMEM)) => break,
            Asked::Done(other) => {
                return Err(Failure(alloc::format!("a read of an empty pipe: {other:?}")));
            }
        }
    }
    check!(waiting > 1_000, "only {waiting} reads wait");
    in_flight(before + waiting as u64).await?;
    // One byte completes one read, two bytes two.
    check_equal!(raw::call(WRITE, [pipe.writer, DATA.as_ptr().addr(), 1]), Ok(1), "bytes written");
    in_flight(before + waiting as u64 - 1).await?;
    check_equal!(raw::call(WRITE, [pipe.writer, DATA.as_ptr().addr(), 2]), Ok(2), "bytes written");
    in_flight(before + waiting as u64 - 3).await?;
    // The end of the stream completes all of them. Results for which the ring has no room count
    // until they are taken.
    check_equal!(raw::call(CLOSE, [pipe.writer]), Ok(0), "closing");
    in_flight(before).await
}

/// The wakers of cancelled calls do not stay queued: neither memory nor time grows with them.
async fn a_hundred_thousand_cancelled_reads() -> Outcome {
    const ROUNDS: usize = 100_000;
    const PARTS: usize = 10;
    let pipe = raw_pipe()?;
    let mut byte = 0u8;
    let place = (&raw mut byte).addr();
    // The counter is that of the hart that answers, without the time in which any hart slept: with
    // several harts it counts no instructions of this test, and can even become smaller.
    let is_counted = raw::system_page().harts.load(core::sync::atomic::Ordering::Relaxed) == 1;
    let mut costs = Vec::new();
    let mut heap = Vec::new();
    for _ in 0..PARTS {
        let begin = statistics()?.instructions;
        for _ in 0..ROUNDS / PARTS {
            match raw::ask(READ, [pipe.reader, place, 1]) {
                Asked::InFlight(handle) => {
                    check!(handle.cancel()?, "a read of an empty pipe completed")
                }
                Asked::Done(other) => return Err(Failure(alloc::format!("{other:?}"))),
            }
        }
        let end = statistics()?;
        if is_counted {
            costs.push((end.instructions - begin) / (ROUNDS / PARTS) as u64);
        }
        heap.push(end.heap_used_bytes);
    }
    cops::println!("# instructions per round: {costs:?}; heap: {heap:?}");
    let (first, last) = (heap[0], heap[PARTS - 1]);
    check!(last <= first + 4096, "the heap grew from {first} to {last} bytes");
    if let (Some(&first), Some(&last)) = (costs.first(), costs.last()) {
        check!(last <= first * 5 / 4, "a round took {first} instructions at first, {last} at last");
    }
    Ok(())
}
