//! Instructions of each way to enter the kernel, measured from before the call in the program until
//! after it.

use alloc::vec::Vec;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;

use cops::abi::syscall::GETPID;
use cops::io::{self, Fd, Read, pipe};
use cops::process::spawn;

use crate::counter::{call, instructions};
use crate::summary::Summary;

const ROUNDS: usize = 500;
/// Unmeasured rounds at the beginning, which create what is allocated on first use.
const WARM_UP: usize = 20;

/// Runs all measurements, each in a coroutine, on one virtual CPU.
pub async fn run() -> io::Result<()> {
    let (mut reader, writer) = pipe()?;
    synchronous_calls(&reader, &writer)?;
    let plain_write = at_once(&mut reader, &writer).await?;
    that_waits(&mut reader, &writer, plain_write).await?;
    crate::switches::coroutines("coroutine-switch").await;
    processes().await
}

/// Starting a small program, and its whole life.
async fn processes() -> io::Result<()> {
    let mut starts = Vec::new();
    let mut lives = Vec::new();
    for _ in 0..20 {
        let before = instructions();
        let mut child = spawn("/bin/hostile", &["exit"])?;
        let started = instructions();
        child.wait().await?;
        starts.push(started - before);
        lives.push(instructions() - before);
    }
    Summary::of(starts).print_cost("spawn-process");
    Summary::of(lives).print_cost("spawn-exit-wait");
    Ok(())
}

/// Measures `operation` many times, each time after `prepare`.
fn measure<T>(mut prepare: impl FnMut() -> T, mut operation: impl FnMut(T)) -> Summary {
    let mut values = Vec::with_capacity(ROUNDS);
    for round in 0..WARM_UP + ROUNDS {
        let prepared = prepare();
        let before = instructions();
        operation(prepared);
        let after = instructions();
        if round >= WARM_UP {
            values.push(after - before);
        }
    }
    Summary::of(values)
}

fn synchronous_calls(reader: &Fd, writer: &Fd) -> io::Result<()> {
    measure(|| (), |()| ()).print_cost("nothing");
    measure(
        || (),
        |()| {
            call(GETPID);
        },
    )
    .print_cost("sync-getpid");
    let mut byte = [0];
    // An error here also occurs in `at_once`, which reports it.
    let fill = || {
        let _ = cops::write!(writer, &[1]);
    };
    measure(fill, |()| {
        let _ = cops::read!(reader, &mut byte);
    })
    .print_cost("sync-read-at-once");
    Ok(())
}

/// An asynchronous read of a byte that is already there. Returns the cost of a write without a
/// waiting reader.
async fn at_once(reader: &mut Fd, writer: &Fd) -> io::Result<u64> {
    let mut reads = Vec::with_capacity(ROUNDS);
    let mut writes = Vec::with_capacity(ROUNDS);
    for round in 0..WARM_UP + ROUNDS {
        let begin = instructions();
        cops::write!(writer, &[1])?;
        let written = instructions();
        let mut byte = [0];
        reader.read(&mut byte).await?;
        let read = instructions();
        if round >= WARM_UP {
            writes.push(written - begin);
            reads.push(read - written);
        }
    }
    let writes = Summary::of(writes);
    writes.print_cost("sync-write-at-once");
    Summary::of(reads).print_cost("async-read-at-once");
    Ok(writes.at(500))
}

/// An asynchronous read of a byte that is not there yet. Measures the first half, until the call is
/// in flight, and the second half, from the write that completes it (without the write itself)
/// until the reader resumes.
async fn that_waits(reader: &mut Fd, writer: &Fd, plain_write: u64) -> io::Result<()> {
    let mut submissions = Vec::with_capacity(ROUNDS);
    let mut completions = Vec::with_capacity(ROUNDS);
    for round in 0..WARM_UP + ROUNDS {
        let mut byte = [0];
        let mut read = pin!(reader.read(&mut byte));
        let mut submission = 0;
        poll_fn(|context| {
            let before = instructions();
            let is_pending = read.as_mut().poll(context).is_pending();
            submission = instructions() - before;
            // It will be polled again by the await below.
            if is_pending { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let before = instructions();
        cops::write!(writer, &[1])?;
        read.await?;
        let after = instructions();
        if round >= WARM_UP {
            submissions.push(submission);
            completions.push((after - before).saturating_sub(plain_write));
        }
    }
    Summary::of(submissions).print_cost("async-read-submitted");
    Summary::of(completions).print_cost("async-read-completed");
    Ok(())
}
