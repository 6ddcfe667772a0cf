//! The disk, `/dev/vda`: run if the machine has one. `./cops test` gives it one of [`BYTES`] bytes,
//! where each word contains its own position, and finds afterwards on the host what
//! [`writes_are_on_the_host`] has written.

mod places;

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cops::abi::Errno::{self, *};
use cops::abi::file::open;
use cops::abi::syscall::{self as number, AT_FDCWD};
use cops::io::{Fd, Read, pipe, read_at, synchronise, write_at};
use cops::task::{self, Priority, yield_now};
use cops::time::Duration;
use futures_util::future::join_all;

use crate::harness::{Failure, Outcome, soon, start};
use crate::hostile_arguments::number_of;
use crate::raw::{self, Asked};
use crate::{check, check_equal, tests};
use places::{
    places_are_read, places_of_a_file_that_becomes_shorter,
    places_of_a_file_that_has_become_shorter, places_that_cannot_be,
};

tests! { disk:
    reads_what_the_host_wrote,
    positions_and_lengths,
    many_requests_in_flight,
    cancelled_requests_touch_nothing,
    urgent_requests_overtake,
    writes_are_on_the_host,
    only_for_the_first_process,
    places_are_read,
    places_that_cannot_be,
    places_of_a_file_that_becomes_shorter,
    places_of_a_file_that_has_become_shorter,
}

/// Size of the disk.
const BYTES: u64 = 16 << 20;
/// The first byte that tests write. What is before still contains what the host wrote.
const WRITTEN_FROM: u64 = BYTES / 2;
/// Bytes that most tests read at a time.
const READ_BYTES: usize = 16 * 1024;
/// Added to a position, it is the word that tests write there.
const WRITTEN: u64 = 0x5741_5200_0000_0000;

fn open_disk(flags: u32) -> Result<Fd, Errno> {
    let arguments = [AT_FDCWD as usize, c"/dev/vda".as_ptr().addr(), flags as usize, 0];
    raw::call(number::OPENAT, arguments).map(|fd| Fd::from_raw(fd as i32))
}

/// Whether the machine has a disk.
pub fn exists() -> bool {
    open_disk(open::READ_ONLY).err() != Some(ENXIO)
}

/// Words of the disk from position `offset` on, each its position plus `plus`.
fn check_words(offset: u64, words: &[u64], plus: u64) -> Outcome {
    for (index, &word) in words.iter().enumerate() {
        let expected = offset + 8 * index as u64 + plus;
        check!(word == expected, "the disk has {word:#x} at {:#x}", expected - plus);
    }
    Ok(())
}

/// Reads `bytes` bytes at `offset` as words.
async fn read_words(disk: &Fd, offset: u64, bytes: usize) -> Result<Vec<u64>, Failure> {
    let (count, words) =
        soon("reading the disk", read_at(disk, offset, vec![0u64; bytes / 8])).await?;
    check_equal!(count?, bytes, "bytes read at {offset:#x}");
    Ok(words)
}

async fn reads_what_the_host_wrote() -> Outcome {
    let mut disk = open_disk(open::READ_ONLY)?;
    for (offset, bytes) in [(0, 512), (512, 1024), (4096 - 512, 4096), (WRITTEN_FROM - 8192, 8192)]
    {
        check_words(offset, &read_words(&disk, offset, bytes).await?, 0)?;
    }
    // The same by the position, which every read moves on.
    for step in 0..3u64 {
        let mut bytes = [0; 1024];
        check_equal!(disk.read(&mut bytes).await?, 1024, "bytes of read {step}");
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|chunk| chunk.try_into().map_or(0, u64::from_le_bytes))
            .collect();
        check_words(step * 1024, &words, 0)?;
    }
    check_equal!(raw::call(number::LSEEK, [number_of(&disk), 0, 1])?, 3072, "the position");
    check_equal!(raw::call(number::LSEEK, [number_of(&disk), 0, 2])? as u64, BYTES, "the end");
    Ok(())
}

async fn positions_and_lengths() -> Outcome {
    let disk = open_disk(open::READ_WRITE)?;
    let fd = number_of(&disk);
    let buffer = vec![0u64; 4096];
    let place = buffer.as_ptr().expose_provenance();
    for (what, length, offset, error) in [
        ("within a sector", 512, 8, EINVAL),
        ("less than a sector", 511, 0, EINVAL),
        ("at no position", 512, usize::MAX / 512 * 512, EINVAL),
    ] {
        raw::refused(what, number::PREAD64, [fd, place, length, offset], &[error])?;
        raw::refused(what, number::PWRITE64, [fd, place, length, offset], &[error])?;
    }
    let end = BYTES as usize;
    check_equal!(raw::call(number::PREAD64, [fd, place, 512, end])?, 0, "bytes at the end");
    check_equal!(raw::call(number::PREAD64, [fd, place, 4096, end - 512])?, 512, "the last bytes");
    check_equal!(raw::call(number::PREAD64, [fd, place, 700, 0])?, 512, "whole sectors of 700");
    check_equal!(raw::call(number::PREAD64, [fd, place, 0, 0])?, 0, "bytes of nothing");
    raw::refused("at the end", number::PWRITE64, [fd, place, 512, end], &[ENOSPC])?;
    let reader = open_disk(open::READ_ONLY)?;
    raw::refused("read-only", number::PWRITE64, [number_of(&reader), place, 512, 0], &[EBADF])?;
    let writer = open_disk(open::WRITE_ONLY)?;
    raw::refused("write-only", number::PREAD64, [number_of(&writer), place, 512, 0], &[EBADF])?;
    raw::refused("bad memory", number::PREAD64, [fd, 8, 512, 0], &[EFAULT])?;
    let (pipe, _writer) = pipe()?;
    raw::refused("a pipe", number::FSYNC, [number_of(&pipe)], &[EINVAL])?;
    raw::refused("nothing", number::FSYNC, [4711], &[EBADF])?;
    Ok(())
}

/// A position for the `index`-th of many reads, in no order.
fn scattered(index: usize) -> u64 {
    let places = WRITTEN_FROM / READ_BYTES as u64;
    (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % places * READ_BYTES as u64
}

/// More than the device can have at a time, so most calls wait for their turn.
async fn many_requests_in_flight() -> Outcome {
    const READERS: usize = 200;
    let disk = open_disk(open::READ_ONLY)?;
    let readers = (0..READERS).map(|index| {
        let disk = &disk;
        async move {
            let offset = scattered(index);
            check_words(offset, &read_words(disk, offset, READ_BYTES).await?, 0)
        }
    });
    join_all(readers).await.into_iter().collect()
}

async fn cancelled_requests_touch_nothing() -> Outcome {
    const ROUNDS: usize = 20;
    for _ in 0..ROUNDS {
        if cancel_requests().await? > 0 {
            return Ok(());
        }
        // On a loaded host, the device may have finished each time before the machine goes on.
        cops::time::sleep(Duration::from_millis(50)).await;
    }
    Err(Failure(format!("no call was cancelled in flight in {ROUNDS} rounds")))
}

/// Makes calls and cancels each at once. Returns how many have been cancelled.
async fn cancel_requests() -> Result<usize, Failure> {
    const CALLS: usize = 100;
    const MARK: u64 = 0x6b6b_6b6b_6b6b_6b6b;
    let disk = open_disk(open::READ_ONLY)?;
    let mut buffers: Vec<Vec<u64>> = (0..CALLS).map(|_| vec![0; READ_BYTES / 8]).collect();
    let mut cancelled = Vec::new();
    for (index, buffer) in buffers.iter_mut().enumerate() {
        let place = buffer.as_mut_ptr().expose_provenance();
        let offset = scattered(index) as usize;
        match raw::ask(number::PREAD64, [number_of(&disk), place, READ_BYTES, offset]) {
            Asked::Done(result) => return Err(Failure(format!("call {index}: {result:?}"))),
            // At once, while the device has the request.
            Asked::InFlight(handle) => {
                if handle.cancel()? {
                    buffer.fill(MARK);
                    cancelled.push(index);
                }
            }
        }
    }
    // What the device still has is finished by the time all of these are: they are behind it.
    for index in 0..CALLS {
        read_words(&disk, scattered(index), READ_BYTES).await?;
    }
    for &index in &cancelled {
        check!(buffers[index].iter().all(|&word| word == MARK), "buffer {index} was written");
    }
    raw::call(number::COPS_REFILL_RING, [])?;
    Ok(cancelled.len())
}

/// Beside many less urgent readers, an urgent read waits for those that the device has, but not for
/// all others.
async fn urgent_requests_overtake() -> Outcome {
    const READERS: usize = 400;
    const URGENT_READS: usize = 21;
    static FINISHED: AtomicUsize = AtomicUsize::new(0);
    static STOP: AtomicUsize = AtomicUsize::new(0);
    let disk: &'static Fd =
        alloc::boxed::Box::leak(alloc::boxed::Box::new(open_disk(open::READ_ONLY)?));
    let mut readers = Vec::new();
    for index in 0..READERS {
        let reader = async move {
            let mut step = index;
            while STOP.load(Relaxed) == 0 {
                let (count, _) = read_at(disk, scattered(step), vec![0u64; 512]).await;
                if count != Ok(4096) {
                    return Err(Failure(format!("{count:?} bytes")));
                }
                FINISHED.fetch_add(1, Relaxed);
                step += READERS;
            }
            Ok(())
        };
        readers.push(task::spawn_join(reader, priority(50)));
    }
    let urgent = task::spawn_join(
        async move {
            while FINISHED.load(Relaxed) < READERS {
                cops::time::sleep(Duration::from_millis(1)).await;
            }
            let mut waited = Vec::new();
            for index in 0..URGENT_READS {
                let before = FINISHED.load(Relaxed);
                let (count, _) = read_at(disk, scattered(index), vec![0u64; 512]).await;
                waited.push(FINISHED.load(Relaxed) - before);
                if count != Ok(4096) {
                    return Err(Failure(format!("{count:?} bytes")));
                }
                // The others' results are delivered meanwhile.
                yield_now().await;
            }
            waited.sort_unstable();
            Ok(waited)
        },
        priority(5),
    );
    let waited = soon("urgent reads", urgent).await??;
    STOP.store(1, Relaxed);
    let waited = waited?;
    for reader in readers {
        soon("a reader", reader).await???;
    }
    // In order of arrival, it would be all of them.
    let median = waited[URGENT_READS / 2];
    check!(median < READERS / 2, "an urgent read waits for {median} of {READERS}: {waited:?}");
    Ok(())
}

async fn writes_are_on_the_host() -> Outcome {
    const WRITERS: usize = 64;
    let disk = open_disk(open::READ_WRITE)?;
    let bytes_each = (BYTES - WRITTEN_FROM) / WRITERS as u64;
    let writers = (0..WRITERS as u64).map(|index| {
        let disk = &disk;
        async move {
            let mut offset = WRITTEN_FROM + index * bytes_each;
            let end = offset + bytes_each;
            while offset < end {
                let words = (0..READ_BYTES as u64 / 8).map(|word| offset + 8 * word + WRITTEN);
                let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
                let count = soon("writing", write_at(disk, offset, &bytes)).await??;
                check!(count > 0 && count % 512 == 0, "{count} bytes were written");
                offset += count as u64;
            }
            Ok::<(), Failure>(())
        }
    });
    join_all(writers).await.into_iter().collect::<Outcome>()?;
    soon("fsync", synchronise(&disk)).await??;
    for index in 0..WRITERS as u64 {
        let offset = WRITTEN_FROM + index * bytes_each;
        check_words(offset, &read_words(&disk, offset, READ_BYTES).await?, WRITTEN)?;
    }
    Ok(())
}

/// First argument of this program for a process that must not open the disk.
pub const HELPER: &str = "--disk";

/// Tries to open the disk, or another device with this name: 0 if that is not permitted.
pub fn help(name: &str) -> cops::process::ExitCode {
    let path = format!("/dev/{name}\0");
    let arguments = [AT_FDCWD as usize, path.as_ptr().addr(), open::READ_ONLY as usize, 0];
    let opened = raw::call(number::OPENAT, arguments);
    cops::process::ExitCode(u8::from(opened.err() != Some(EPERM)))
}

async fn only_for_the_first_process() -> Outcome {
    let status = soon("the helper", start(&[HELPER, "vda"])?.wait()).await??;
    check_equal!(status.code(), Some(0), "the exit code of a child that opens the disk");
    Ok(())
}

fn priority(level: u8) -> Priority {
    Priority::new(level).unwrap_or(Priority::DEFAULT)
}
