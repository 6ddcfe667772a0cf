//! Short writes into pipes and connections, of which the kernel copies the bytes at once: the bytes
//! that the program could read itself, all of them, and no others.
#![allow(unsafe_code)]

use alloc::vec;
use alloc::vec::Vec;
use core::ptr::with_exposed_provenance_mut;

use cops::abi::Errno;
use cops::abi::Errno::EFAULT;
use cops::abi::file::{control, open};
use cops::abi::layout::PAGE_BYTES;
use cops::abi::syscall::{COPS_TRY_WRITE, FCNTL, MPROTECT, MUNMAP, TRY_WRITE_BYTES_MAX, WRITE};
use cops::io::{Error, Read, Write, pipe};
use cops::time::{Duration, sleep};

use crate::harness::{Outcome, soon};
use crate::hostile_arguments::number_of;
use crate::network::pair;
use crate::pipes::pattern;
use crate::raw;
use crate::{check, check_equal, tests};

tests! { short_writes:
    across_pages,
    at_the_end_of_memory,
    of_memory_that_was_never_touched,
    until_a_connection_is_full,
    what_is_tried_never_waits,
}

/// Around the number of bytes that are copied at once, 256.
const LENGTHS: [usize; 9] = [1, 2, 8, 31, 100, 255, 256, 257, 300];

/// Two pages with the pattern, and a third one that this process may not read.
fn pages() -> Result<usize, Errno> {
    let start = raw::map(3)?;
    for place in 0..2 * PAGE_BYTES {
        let byte = with_exposed_provenance_mut::<u8>(start + place);
        // SAFETY: the kernel has just mapped this page for the test, readable and writable, and no
        // reference to it exists.
        unsafe { byte.write_volatile(pattern(place)) };
    }
    raw::call(MPROTECT, [start + 2 * PAGE_BYTES, PAGE_BYTES, 0])?;
    Ok(start)
}

/// Reads as many bytes as were written at `place` of the memory, and compares them.
async fn arrived(reader: &mut impl Read<Error = Error>, place: usize, length: usize) -> Outcome {
    let mut bytes = vec![0; length];
    soon("the bytes that were written", reader.read_exact(&mut bytes)).await??;
    let expected: Vec<u8> = (place..place + length).map(pattern).collect();
    check!(bytes == expected, "{length} bytes at {place}: {bytes:x?} instead of {expected:x?}");
    Ok(())
}

async fn across_pages() -> Outcome {
    let (mut reader, writer) = pipe()?;
    let (client, mut server) = pair().await?;
    let start = pages()?;
    for length in LENGTHS {
        for before in (0..=length).step_by(1 + length / 7) {
            let place = PAGE_BYTES - before;
            for file in [number_of(&writer), number_of(&client)] {
                let written = raw::call(WRITE, [file, start + place, length])?;
                check_equal!(written, length, "bytes written, {before} of them before the border");
            }
            arrived(&mut reader, place, length).await?;
            arrived(&mut server, place, length).await?;
        }
    }
    raw::call(MUNMAP, [start, 3 * PAGE_BYTES])?;
    Ok(())
}

/// With a page behind it that may not be read, and with none.
async fn at_the_end_of_memory() -> Outcome {
    let (mut reader, writer) = pipe()?;
    let (client, mut server) = pair().await?;
    let (start, end) = (pages()?, 2 * PAGE_BYTES);
    for is_unmapped in [false, true] {
        if is_unmapped {
            raw::call(MUNMAP, [start + end, PAGE_BYTES])?;
        }
        for length in LENGTHS {
            for file in [number_of(&writer), number_of(&client)] {
                for (place, length) in [(end - length, length + 1), (end, length)] {
                    raw::refused("a write", WRITE, [file, start + place, length], &[EFAULT])?;
                }
                raw::call(WRITE, [file, start + end - length, length])?;
            }
            // Nothing of what was refused.
            arrived(&mut reader, end - length, length).await?;
            arrived(&mut server, end - length, length).await?;
        }
    }
    raw::call(MUNMAP, [start, end])?;
    Ok(())
}

async fn of_memory_that_was_never_touched() -> Outcome {
    let (mut reader, writer) = pipe()?;
    let (client, mut server) = pair().await?;
    for file in [number_of(&writer), number_of(&client)] {
        let start = raw::map(1)?;
        check_equal!(raw::call(WRITE, [file, start + 40, 100])?, 100, "bytes written");
        raw::call(MUNMAP, [start, PAGE_BYTES])?;
    }
    let (mut piped, mut sent) = ([1; 100], [1; 100]);
    soon("zeros", reader.read_exact(&mut piped)).await??;
    soon("zeros", server.read_exact(&mut sent)).await??;
    check_equal!((piped, sent), ([0; 100], [0; 100]), "what was never written");
    Ok(())
}

/// A write reports as many bytes as are received, also the last one, for which there is not enough
/// room.
async fn until_a_connection_is_full() -> Outcome {
    const LENGTH: usize = 199;
    let (client, mut server) = pair().await?;
    let (file, start) = (number_of(&client), pages()?);
    raw::call(FCNTL, [file, control::SET_FLAGS, open::NON_BLOCKING as usize])?;
    let (mut parts, mut refusals) = (Vec::new(), 0);
    // Once more after the receiver's buffer has taken what it has room for.
    while refusals < 2 {
        match raw::call(WRITE, [file, start, LENGTH]) {
            Ok(written) => {
                parts.push(written);
                refusals = 0;
            }
            Err(error) => {
                check_equal!(error, Errno::EAGAIN, "a write into a full connection");
                refusals += 1;
                sleep(Duration::from_millis(30)).await;
            }
        }
        check!(parts.len() < 100_000, "a connection without an end");
    }
    check!(parts.iter().all(|part| (1..=LENGTH).contains(part)), "{parts:?}");
    for part in parts {
        arrived(&mut server, 0, part).await?;
    }
    raw::call(MUNMAP, [start, 3 * PAGE_BYTES])?;
    drop(client);
    check_equal!(soon("the end", server.read(&mut [0; 8])).await??, 0, "bytes beyond those");
    Ok(())
}

/// A call that tries writes what it can, or nothing, and says so; and a write of the library into a
/// connection that is full waits all the same.
async fn what_is_tried_never_waits() -> Outcome {
    const MESSAGE: [u8; 100] = [7; 100];
    let (mut reader, writer) = pipe()?;
    let (mut client, mut server) = pair().await?;
    let (start, console) = (pages()?, 1);
    for file in [number_of(&writer), number_of(&client)] {
        for length in [1, TRY_WRITE_BYTES_MAX] {
            let written = raw::call(COPS_TRY_WRITE, [file, start, length])?;
            check_equal!(written, length, "bytes written");
        }
        for (what, place, length) in [
            ("too many bytes", 0, TRY_WRITE_BYTES_MAX + 1),
            ("bytes on two pages", PAGE_BYTES - 1, 2),
            ("bytes that may not be read", 2 * PAGE_BYTES, 1),
        ] {
            raw::refused(what, COPS_TRY_WRITE, [file, start + place, length], &[Errno::EAGAIN])?;
        }
    }
    raw::refused("a console", COPS_TRY_WRITE, [console, start, 1], &[Errno::EAGAIN])?;
    for length in [1, TRY_WRITE_BYTES_MAX] {
        arrived(&mut reader, 0, length).await?;
        arrived(&mut server, 0, length).await?;
    }
    raw::call(MUNMAP, [start, 3 * PAGE_BYTES])?;

    let file = number_of(&client);
    let (mut accepted, mut refusals) = (0, 0);
    while refusals < 2 {
        let place = MESSAGE.as_ptr().expose_provenance();
        match raw::call(COPS_TRY_WRITE, [file, place, MESSAGE.len()]) {
            Ok(written) => (accepted, refusals) = (accepted + written, 0),
            Err(error) => {
                check_equal!(error, Errno::EAGAIN, "a write into a full connection");
                refusals += 1;
                sleep(Duration::from_millis(30)).await;
            }
        }
        check!(accepted < 1 << 24, "a connection without an end");
    }
    let more = cops::task::spawn_join(
        async move { client.write_all(&MESSAGE).await },
        cops::task::Priority::DEFAULT,
    );
    // It tries, and waits, before there is room again.
    sleep(Duration::from_millis(30)).await;
    let mut bytes = vec![0; accepted + MESSAGE.len()];
    soon("what waited, too", server.read_exact(&mut bytes)).await??;
    check!(bytes.iter().all(|&byte| byte == MESSAGE[0]), "other bytes than were sent");
    soon("the writer", more).await???;
    Ok(())
}
