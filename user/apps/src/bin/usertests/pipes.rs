//! Pipes, between coroutines of one process.

use alloc::vec;
use alloc::vec::Vec;

use cops::abi::Errno;
use cops::io::{Error, Fd, Read, Write, pipe};
use cops::task::{self, Priority};

use crate::harness::{Outcome, soon};
use crate::{check, check_equal, tests};

tests! { pipes:
    bytes_in_order,
    every_alignment,
    nothing_to_move,
    end_after_writer,
    broken_pipe,
    broken_pipe_while_waiting,
    chain,
    owned_buffers,
}

/// The byte at this place of the test's data: its period has no common factor with the length of a
/// buffer.
pub fn pattern(place: usize) -> u8 {
    (place % 251) as u8
}

async fn write_pattern(mut writer: Fd, bytes: usize, step: usize) -> cops::io::Result<()> {
    let data: Vec<u8> = (0..bytes).map(pattern).collect();
    for part in data.chunks(step) {
        writer.write_all(part).await?;
    }
    Ok(())
}

async fn bytes_in_order() -> Outcome {
    const BYTES: usize = 300_000;
    for (write_step, read_step) in
        [(1000, 1000), (1, 16), (60_000, 17), (333, 60_000), (BYTES, BYTES)]
    {
        let bytes = if write_step == 1 { 3000 } else { BYTES };
        let (mut reader, writer) = pipe()?;
        let done = task::spawn_join(write_pattern(writer, bytes, write_step), Priority::DEFAULT);
        let mut buffer = vec![0; read_step];
        let mut place = 0;
        loop {
            let count = soon("reading", reader.read(&mut buffer)).await??;
            if count == 0 {
                break;
            }
            for &byte in &buffer[..count] {
                check_equal!(byte, pattern(place), "byte {place} of {write_step}/{read_step}");
                place += 1;
            }
        }
        check_equal!(place, bytes, "bytes read");
        done.await??;
    }
    Ok(())
}

/// Copies between all alignments, and of all lengths around a word: the bytes around stay
/// unchanged.
async fn every_alignment() -> Outcome {
    const MARK: u8 = 0xee;
    let (mut reader, mut writer) = pipe()?;
    for length in [1, 7, 8, 15, 16, 23, 24, 25, 31, 33, 63, 100, 600, 5000] {
        for (from, to) in (0..8).flat_map(|from| (0..8).map(move |to| (from, to))) {
            let data: Vec<u8> = (0..from + length).map(|place| pattern(place + length)).collect();
            soon("writing", writer.write_all(&data[from..])).await??;
            let mut buffer = vec![MARK; to + length + 16];
            let mut done = 0;
            while done < length {
                // The pipe's chunks are read one after the other, so what follows begins at other
                // alignments.
                let end = to + length;
                done += soon("reading", reader.read(&mut buffer[to + done..end])).await??;
            }
            let is_untouched = |bytes: &[u8]| bytes.iter().all(|&byte| byte == MARK);
            check!(
                buffer[to..to + length] == data[from..]
                    && is_untouched(&buffer[..to])
                    && is_untouched(&buffer[to + length..]),
                "{length} bytes from {from} to {to}: {buffer:x?}"
            );
        }
    }
    Ok(())
}

/// A transfer of no bytes does not wait, whatever the state of the other end.
async fn nothing_to_move() -> Outcome {
    let (mut reader, mut writer) = pipe()?;
    check_equal!(
        soon("reading nothing", reader.read(&mut [])).await?,
        Ok(0),
        "bytes of an empty pipe"
    );
    check_equal!(cops::read!(reader, &mut []), Ok(0), "bytes of an empty pipe, synchronously");
    let full = vec![0; 1000];
    while cops::time::timeout(cops::time::Duration::from_millis(20), writer.write(&full))
        .await
        .is_ok()
    {}
    check_equal!(
        soon("writing nothing", writer.write(&[])).await?,
        Ok(0),
        "bytes into a full pipe"
    );
    let (result, buffer) =
        soon("filling nothing", cops::io::fill(&reader, vec![1u8; 4], 4)).await?;
    check_equal!((result, buffer), (Ok(()), vec![1; 4]), "filling from the end on");
    Ok(())
}

async fn end_after_writer() -> Outcome {
    let (mut reader, mut writer) = pipe()?;
    writer.write_all(b"last").await?;
    drop(writer);
    let mut buffer = [0; 16];
    check_equal!(reader.read(&mut buffer).await?, 4, "bytes before the end");
    for _ in 0..3 {
        check_equal!(reader.read(&mut buffer).await?, 0, "bytes at the end");
    }
    Ok(())
}

async fn broken_pipe() -> Outcome {
    let (reader, mut writer) = pipe()?;
    drop(reader);
    check_equal!(
        writer.write(b"x").await,
        Err(Error::Kernel(Errno::EPIPE)),
        "write without a reader"
    );
    Ok(())
}

/// A write that waits for room fails when the last reader is closed.
async fn broken_pipe_while_waiting() -> Outcome {
    let (reader, writer) = pipe()?;
    let waiting = task::spawn_join(write_pattern(writer, 1 << 20, 1 << 20), Priority::DEFAULT);
    cops::time::sleep(cops::time::Duration::from_millis(20)).await;
    drop(reader);
    let result = soon("the end of a write without a reader", waiting).await??;
    check_equal!(result, Err(Error::Kernel(Errno::EPIPE)), "write without a reader");
    Ok(())
}

/// A byte passes through a hundred pipes and as many coroutines.
async fn chain() -> Outcome {
    let (first, mut entrance) = pipe()?;
    let mut exit = first;
    for _ in 0..100 {
        let (next, mut writer) = pipe()?;
        let mut reader = core::mem::replace(&mut exit, next);
        task::spawn(
            async move {
                let mut byte = [0];
                while let Ok(1) = reader.read(&mut byte).await {
                    if writer.write_all(&byte).await.is_err() {
                        return;
                    }
                }
            },
            Priority::DEFAULT,
        );
    }
    for value in 0..20u8 {
        entrance.write_all(&[value]).await?;
        let mut byte = [0];
        soon("a byte through the chain", exit.read_exact(&mut byte)).await??;
        check_equal!(byte[0], value, "byte through the chain");
    }
    drop(entrance);
    check_equal!(
        soon("the end through the chain", exit.read(&mut [0; 4])).await??,
        0,
        "bytes at the end"
    );
    Ok(())
}

/// A read into a buffer that the call owns: the same bytes, and the buffer is returned.
async fn owned_buffers() -> Outcome {
    let (reader, writer) = pipe()?;
    let done = task::spawn_join(write_pattern(writer, 40_000, 7000), Priority::DEFAULT);
    let (result, buffer) = soon("filling", cops::io::fill(&reader, vec![0u8; 30_000], 5)).await?;
    result?;
    for (place, &byte) in buffer.iter().skip(5).enumerate() {
        check_equal!(byte, pattern(place), "byte {place}");
    }
    check_equal!(&buffer[..5], &[0; 5], "what was not to be filled");
    let (result, buffer) = soon("filling", cops::io::fill(&reader, vec![0u64; 10_000], 0)).await?;
    check_equal!(result, Err(Error::UnexpectedEnd), "more than there is");
    check_equal!(buffer.len(), 10_000, "length of the buffer");
    done.await??;
    Ok(())
}
