//! The kernel's half of the models of the papers: threads that block in the kernel, threads that
//! retry, and calls that are polled. Decision 56.

use alloc::sync::Arc;
use alloc::{format, vec};
use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use cops::abi::{Errno, syscall as number};
use cops::io::{AsFd, Read, Write};
use cops::memory::statistics;
use cops::model::{KernelModel, set_kernel_model};
use cops::net::{Shutdown, TcpStream};
use cops::task::{self, Priority, yield_now};
use cops::thread::{self, JoinHandle};
use cops::time::{Duration, sleep, timeout};

use crate::harness::{Failure, Outcome, PATIENCE, become_level};
use crate::network::pair;
use crate::raw::{self, Asked};
use crate::{check, check_equal, tests};

tests! { models:
    blocked_threads_make_no_coroutine,
    retrying_threads_make_no_coroutine,
    two_threads_read_one_connection,
    blocked_writes_continue,
    the_end_wakes_a_blocked_thread,
    a_process_ends_with_blocked_threads,
    a_process_ends_with_retrying_threads,
    polled_calls_complete,
    polled_calls_are_cancelled,
    cancelled_polled_calls_take_no_room,
    a_process_ends_with_polled_calls,
    a_time_limit_makes_a_call,
    unknown_models,
}

const ROUNDS: usize = 50;

/// A thread that reads byte by byte to the end and counts, and its count.
fn reader(stream: &Arc<TcpStream>, count: &Arc<AtomicUsize>) -> JoinHandle<()> {
    let (stream, count) = (stream.clone(), count.clone());
    thread::spawn(move || {
        let mut byte = [0];
        while let Ok(1) = cops::read!(stream.as_fd(), &mut byte) {
            count.fetch_add(1, SeqCst);
        }
    })
}

/// Waits without a call that waits, and so without a kernel coroutine.
async fn spin_until(count: &AtomicUsize, value: usize) {
    while count.load(SeqCst) < value {
        yield_now().await;
    }
}

async fn no_coroutine_in(model: KernelModel) -> Outcome {
    set_kernel_model(model)?;
    let (mut client, server) = pair().await?;
    let (server, count) = (Arc::new(server), Arc::new(AtomicUsize::new(0)));
    let thread = reader(&server, &count);
    client.write_all(&[0]).await?;
    spin_until(&count, 1).await;
    let before = statistics()?;
    for round in 2..ROUNDS {
        client.write_all(&[round as u8]).await?;
        spin_until(&count, round).await;
    }
    let deferred = statistics()?.calls_deferred - before.calls_deferred;
    check_equal!(deferred, 0, "calls with a kernel coroutine");
    client.shutdown(Shutdown::Write)?;
    let Ok(()) = thread.join();
    Ok(())
}

async fn blocked_threads_make_no_coroutine() -> Outcome {
    no_coroutine_in(KernelModel::Threads).await
}

async fn retrying_threads_make_no_coroutine() -> Outcome {
    no_coroutine_in(KernelModel::RetryingThreads).await
}

/// An event wakes both, and one finds nothing. None of them is left asleep at the end.
async fn two_threads_read_one_connection() -> Outcome {
    set_kernel_model(KernelModel::Threads)?;
    let (mut client, server) = pair().await?;
    let (server, count) = (Arc::new(server), Arc::new(AtomicUsize::new(0)));
    let threads = [reader(&server, &count), reader(&server, &count)];
    for round in 1..=ROUNDS {
        client.write_all(&[1, 2, 3]).await?;
        spin_until(&count, 3 * round).await;
    }
    client.shutdown(Shutdown::Write)?;
    for thread in threads {
        let Ok(()) = thread.join();
    }
    check_equal!(count.load(SeqCst), 3 * ROUNDS, "bytes");
    Ok(())
}

/// A thread writes much more than the buffers hold.
async fn blocked_writes_continue() -> Outcome {
    const BYTES: usize = 1 << 20;
    set_kernel_model(KernelModel::Threads)?;
    let (mut client, server) = pair().await?;
    let thread = thread::spawn(move || {
        let bytes = vec![7; 16 << 10];
        let mut left = BYTES;
        while left > 0 {
            match cops::write!(server.as_fd(), &bytes[..left.min(bytes.len())]) {
                Ok(count) => left -= count,
                Err(_) => return left,
            }
        }
        0
    });
    let mut received = 0;
    let mut buffer = vec![0; 5000];
    loop {
        match timeout(PATIENCE, client.read(&mut buffer)).await?? {
            0 => break,
            count => {
                check!(buffer[..count].iter().all(|byte| *byte == 7), "other bytes at {received}");
                received += count;
            }
        }
    }
    check_equal!(received, BYTES, "bytes");
    check_equal!(thread.join(), Ok(0), "bytes not written");
    Ok(())
}

async fn the_end_wakes_a_blocked_thread() -> Outcome {
    set_kernel_model(KernelModel::Threads)?;
    for how in [Shutdown::Write, Shutdown::Both] {
        let (client, server) = pair().await?;
        let (server, count) = (Arc::new(server), Arc::new(AtomicUsize::new(0)));
        let thread = reader(&server, &count);
        sleep(Duration::from_millis(5)).await;
        client.shutdown(how)?;
        let Ok(()) = thread.join();
        check_equal!(count.load(SeqCst), 0, "bytes");
    }
    Ok(())
}

/// Ends with threads in calls. What they hold is counted after the test.
async fn end_in(model: KernelModel) -> Outcome {
    set_kernel_model(model)?;
    let count = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let (mut client, server) = pair().await?;
        let (before, server) = (count.load(SeqCst), Arc::new(server));
        for _ in 0..3 {
            drop(reader(&server, &count));
        }
        client.write_all(&[1]).await?;
        spin_until(&count, before + 1).await;
        // Both ends stay open to the end of the process.
        core::mem::forget((client, server));
    }
    Ok(())
}

async fn a_process_ends_with_blocked_threads() -> Outcome {
    end_in(KernelModel::Threads).await
}

async fn a_process_ends_with_retrying_threads() -> Outcome {
    end_in(KernelModel::RetryingThreads).await
}

/// Both kinds of reads, which wait each time.
async fn polled_calls_complete() -> Outcome {
    set_kernel_model(KernelModel::Polling)?;
    let (client, server) = pair().await?;
    let (reader, mut answers) = server.into_split();
    let mut standing = reader.incoming(16)?;
    let echo = task::spawn_join(
        async move {
            let mut request = [0; 16];
            while let Ok(count @ 1..) = standing.read(&mut request).await {
                answers.write_all(&request[..count]).await?;
            }
            Ok::<_, cops::io::Error>(())
        },
        Priority::DEFAULT,
    );
    let (mut plain, mut requests) = client.into_split();
    for round in 0..ROUNDS {
        let request = [round as u8; 16];
        requests.write_all(&request).await?;
        let mut answer = [0; 16];
        timeout(PATIENCE, plain.read_exact(&mut answer)).await??;
        check_equal!(answer, request, "answer {round}");
    }
    requests.shutdown(Shutdown::Write)?;
    timeout(PATIENCE, echo).await???;
    Ok(())
}

async fn polled_calls_are_cancelled() -> Outcome {
    set_kernel_model(KernelModel::Polling)?;
    let (mut client, mut server) = pair().await?;
    let mut buffer = [0; 4];
    for round in 0..ROUNDS as u8 {
        let limit = Duration::from_micros(u64::from(round) * 10);
        let early = timeout(limit, server.read(&mut buffer)).await;
        check!(early.is_err(), "a read before a write: {early:?}");
        client.write_all(&[round; 4]).await?;
        timeout(PATIENCE, server.read_exact(&mut buffer)).await??;
        check_equal!(buffer, [round; 4], "bytes");
    }
    Ok(())
}

/// With one hart the kernel thread that polls does not run meanwhile: it is as urgent as the first
/// call, which waits all the time, and this coroutine never does.
async fn cancelled_polled_calls_take_no_room() -> Outcome {
    const CALLS: usize = 70_000;
    const FRAMES: u64 = 200;
    set_kernel_model(KernelModel::Polling)?;
    let (_client, server) = pair().await?;
    let mut byte = 0u8;
    let arguments = [server.as_fd().raw() as usize, (&raw mut byte).expose_provenance(), 1];
    become_level(Priority::LEAST_URGENT.level()).await;
    let Asked::InFlight(first) = raw::ask(number::READ, arguments) else {
        return Err(Failure("a read of nothing has completed".into()));
    };
    become_level(1).await;
    let before = statistics()?.frames_free;
    for call in 0..CALLS {
        match raw::ask(number::READ, arguments) {
            Asked::InFlight(handle) => check!(handle.cancel()?, "read {call} has completed"),
            Asked::Done(result) => return Err(Failure(format!("read {call}: {result:?}"))),
        }
    }
    let taken = before.saturating_sub(statistics()?.frames_free);
    check!(first.cancel()?, "the first read has completed");
    check!(taken < FRAMES, "{taken} frames are in use, after {CALLS} calls that were cancelled");
    Ok(())
}

async fn a_process_ends_with_polled_calls() -> Outcome {
    set_kernel_model(KernelModel::Polling)?;
    for _ in 0..20 {
        let (client, mut server) = pair().await?;
        task::spawn(
            async move {
                let _ = server.read(&mut [0; 8]).await;
            },
            Priority::DEFAULT,
        );
        core::mem::forget(client);
    }
    sleep(Duration::from_millis(2)).await;
    Ok(())
}

/// A timer must end it, so the kernel makes a coroutine as usual.
async fn a_time_limit_makes_a_call() -> Outcome {
    set_kernel_model(KernelModel::Threads)?;
    // The kernel counts in microseconds, and 0 would be no limit.
    for limit in [Duration::from_millis(20), Duration::from_nanos(500)] {
        let (_client, server) = pair().await?;
        server.set_write_timeout(Some(limit))?;
        let thread = thread::spawn(move || {
            let bytes = [0; 4096];
            loop {
                if let Err(error) = cops::write!(server.as_fd(), &bytes) {
                    return error;
                }
            }
        });
        check_equal!(thread.join(), Ok(Errno::EAGAIN), "a write to a client that does not read");
    }
    Ok(())
}

async fn unknown_models() -> Outcome {
    for model in [4, 255, 256, usize::MAX] {
        raw::refused(
            "a model that there is not",
            number::COPS_SET_KERNEL_MODEL,
            [model, 0, 0, 0, 0, 0],
            &[Errno::EINVAL],
        )?;
    }
    Ok(())
}
