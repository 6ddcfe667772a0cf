//! Reads that stand: one call for all that a connection receives. Decision 51.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use core::task::Poll;

use cops::abi::ring::RING_ENTRIES;
use cops::abi::standing::{BLOCK_BYTES_MAX, HEADER_BYTES, result};
use cops::abi::{Errno, syscall as number};
use cops::inspect::{self, state};
use cops::io::{AsFd, Error, Read, Write, pipe};
use cops::memory::statistics;
use cops::net::{Incoming, OwnedWriteHalf, TcpStream};
use cops::process;
use cops::sync::Event;
use cops::task::{self, Priority, yield_now};
use cops::time::{Duration, Instant, sleep, timeout};
use cops::{read, write};
use futures_util::future::{join, join_all};

use crate::harness::{Failure, Outcome, PATIENCE, errno, harts, soon, until};
use crate::network::pair;
use crate::raw::{self, Asked};
use crate::{check, check_equal, tests};

tests! { standing:
    one_call_for_many_messages,
    more_than_the_block_holds,
    pieces_of_any_size,
    many_connections_on_four_cpus,
    the_rest_of_a_message,
    what_is_left_is_read_otherwise,
    what_is_left_comes_at_once,
    others_run_before_what_is_left_is_read,
    what_is_more_urgent_runs_before_what_was_left_is_used,
    reads_are_cancel_safe,
    cancelling_races_with_arrivals,
    what_is_dropped_is_read_by_others,
    what_a_dropped_fill_has_read_comes_first,
    a_fill_that_is_not_polled_takes_nothing,
    a_reset_is_not_lost_with_a_dropped_read,
    another_coroutine_continues,
    the_end_of_a_stream,
    a_full_ring_ends_it,
    a_turn_that_lies,
    its_priority_follows_the_coroutine,
    bad_arguments,
}

/// One end that reads with a standing read, and the other end.
async fn incoming(capacity: usize) -> Result<(Incoming, OwnedWriteHalf, TcpStream), Failure> {
    let (client, server) = pair().await?;
    let (reader, writer) = server.into_split();
    Ok((reader.incoming(capacity)?, writer, client))
}

/// The byte at this place of a stream.
fn byte(place: usize) -> u8 {
    (place % 251) as u8
}

fn bytes(range: core::ops::Range<usize>) -> Vec<u8> {
    range.map(byte).collect()
}

/// A thousand requests and answers need two calls that wait, one for each direction.
async fn one_call_for_many_messages() -> Outcome {
    const ROUNDS: usize = 500;
    let (mut server, mut answers, client) = incoming(16).await?;
    let (client, mut requests) = client.into_split();
    let mut client = client.incoming(16)?;
    let before = statistics()?;
    let echo = task::spawn_join(
        async move {
            let mut request = [0; 16];
            while let Ok(count @ 1..) = server.read(&mut request).await {
                answers.write_all(&request[..count]).await?;
            }
            Ok::<_, Error>(())
        },
        Priority::DEFAULT,
    );
    let asking = async {
        for round in 0..ROUNDS {
            let request = [byte(round); 16];
            requests.write_all(&request).await?;
            let mut answer = [0; 16];
            client.read_exact(&mut answer).await?;
            check_equal!(answer, request, "the answer to request {round}");
        }
        Ok::<_, Failure>(())
    };
    soon("all answers", asking).await??;
    let deferred = statistics()?.calls_deferred - before.calls_deferred;
    // The counter is for the whole machine: the process that waits for this one makes calls too.
    check!(deferred < 50, "{deferred} calls were deferred for {ROUNDS} requests and answers");
    drop(requests);
    soon("the end of the echo", echo).await???;
    Ok(())
}

/// What arrives while the block is full waits in the connection, and the program asks for it.
async fn more_than_the_block_holds() -> Outcome {
    const MESSAGES: usize = 40;
    let (mut reader, _writer, mut client) = incoming(10).await?;
    let sent = Arc::new(Event::new());
    let all_sent = sent.clone();
    // One coroutine, so that it is one call.
    let reading = task::spawn_join(
        async move {
            let (mut all, mut part) = (Vec::new(), [0; 4]);
            let count = reader.read(&mut part).await?;
            all.extend_from_slice(&part[..count]);
            all_sent.wait().await;
            while all.len() < 7 * MESSAGES {
                let count = reader.read(&mut part).await?;
                all.extend_from_slice(&part[..count]);
            }
            Ok::<_, Error>(all)
        },
        Priority::DEFAULT,
    );
    sleep(Duration::from_millis(2)).await;
    for message in 0..MESSAGES {
        client.write_all(&bytes(7 * message..7 * (message + 1))).await?;
        sleep(Duration::from_micros(200)).await;
    }
    sent.set();
    let all = soon("all bytes", reading).await???;
    check!(all == bytes(0..7 * MESSAGES), "what was read is not what was sent: {all:?}");
    Ok(())
}

/// Sends `total` bytes in pieces of changing sizes, now at once and now after a pause.
async fn send_pieces(
    writer: &mut impl Write<Error = Error>,
    total: usize,
    seed: usize,
) -> Result<(), Error> {
    let (mut sent, mut step) = (0, seed);
    while sent < total {
        step = (step * 31 + 17) % 1009;
        let end = (sent + 1 + step % 97).min(total);
        writer.write_all(&bytes(sent..end)).await?;
        sent = end;
        match step % 5 {
            0 => sleep(Duration::from_micros(step as u64 % 400)).await,
            1 | 2 => yield_now().await,
            _ => {}
        }
    }
    Ok(())
}

async fn receive_pieces(reader: &mut Incoming, total: usize, seed: usize) -> Outcome {
    let (mut received, mut step) = (0, seed);
    while received < total {
        step = (step * 29 + 11) % 1013;
        let mut part = [0; 128];
        let size = 1 + step % part.len();
        let count = soon("bytes", reader.read(&mut part[..size])).await??;
        check!(count > 0, "the stream ended after {received} of {total} bytes");
        let expected = bytes(received..received + count);
        check!(part[..count] == expected, "wrong bytes at {received}");
        received += count;
        if step % 7 == 0 {
            yield_now().await;
        }
    }
    Ok(())
}

async fn pieces_of_any_size() -> Outcome {
    const TOTAL: usize = 20_000;
    for capacity in [1, 5, 64, 1000] {
        let (mut reader, _writer, mut client) = incoming(capacity).await?;
        let sending = async move { send_pieces(&mut client, TOTAL, capacity).await };
        let sending = task::spawn_join(sending, Priority::DEFAULT);
        let total = if capacity == 1 { TOTAL / 10 } else { TOTAL };
        receive_pieces(&mut reader, total, capacity).await?;
        drop(reader);
        drop(_writer);
        // It fails if not everything was read.
        let _ = soon("the sender", sending).await??;
    }
    Ok(())
}

/// Workers take results from the ring at the same time.
async fn many_connections_on_four_cpus() -> Outcome {
    const CONNECTIONS: usize = 24;
    const TOTAL: usize = 3000;
    task::alloc_cpu(3)?;
    let mut all = Vec::new();
    for number in 0..CONNECTIONS {
        let (mut reader, _writer, mut client) = incoming(1 + 7 * number).await?;
        let priority = Priority::saturating(20 + number as u32);
        let sending = async move { send_pieces(&mut client, TOTAL, number).await };
        let sending = task::spawn_join(sending, priority);
        let receiving = async move {
            let outcome = receive_pieces(&mut reader, TOTAL, number).await;
            drop(_writer);
            outcome
        };
        let receiving = task::spawn_join(receiving, priority);
        all.push(async move {
            receiving.await??;
            sending.await??;
            Ok::<_, Failure>(())
        });
    }
    for outcome in soon("all connections", join_all(all)).await? {
        outcome?;
    }
    Ok(())
}

/// A header, and then the rest into memory of the program.
async fn the_rest_of_a_message() -> Outcome {
    const LENGTH: usize = 3000;
    let (mut reader, _writer, mut client) = incoming(16).await?;
    for message in 0..20 {
        client.write_all(&bytes(message..message + LENGTH)).await?;
        let mut header = [0; 8];
        soon("a header", reader.read_exact(&mut header)).await??;
        check!(header[..] == bytes(message..message + 8), "the header of message {message}");
        let mut buffer = vec![0_u8; LENGTH];
        buffer[..8].copy_from_slice(&header);
        let (result, buffer) = soon("the rest", reader.fill(buffer, 8)).await?;
        result?;
        check!(buffer == bytes(message..message + LENGTH), "message {message} is not as sent");
    }
    // The rest arrives later, at once or in two parts: it is for the read that waits for it.
    for message in 0..20 {
        let later = async move {
            let middle = if message % 2 == 0 { LENGTH } else { 1000 };
            for range in [0..8, 8..middle, middle..LENGTH] {
                client.write_all(&bytes(range)).await?;
                sleep(Duration::from_millis(1)).await;
            }
            Ok::<_, Error>(client)
        };
        let sending = task::spawn_join(later, Priority::DEFAULT);
        let mut header = [0; 8];
        soon("a header", reader.read_exact(&mut header)).await??;
        let (result, buffer) = soon("the rest", reader.fill(vec![0_u8; LENGTH - 8], 0)).await?;
        result?;
        check!(header[..] == bytes(0..8), "the header of message {message}");
        check!(buffer == bytes(8..LENGTH), "message {message} is not as sent");
        client = soon("the sender", sending).await???;
    }
    // Also without a header, while the call stands.
    check!(timeout(Duration::from_millis(2), reader.read(&mut [0])).await.is_err(), "no bytes");
    client.write_all(b"all of it").await?;
    let (result, buffer) = soon("all of it", reader.fill(vec![0_u8; 9], 0)).await?;
    result?;
    check_equal!(&buffer[..], b"all of it", "the bytes");
    Ok(())
}

/// What had no room in the block is read by another read, and the standing one waits on without a
/// call of its own: for what comes next, and for the end.
async fn what_is_left_is_read_otherwise() -> Outcome {
    const LENGTH: usize = 3000;
    const MESSAGES: usize = 100;
    let (mut reader, _writer, mut client) = incoming(16).await?;
    let mut calls = 0;
    for message in 0..MESSAGES {
        let sent = bytes(message..message + LENGTH);
        let sending = async {
            // The reader waits by then, in a call that stands.
            sleep(Duration::from_millis(1)).await;
            client.write_all(&sent).await
        };
        let receiving = async {
            let mut header = [0; 8];
            reader.read_exact(&mut header).await?;
            let before = statistics()?.system_calls;
            let (result, rest) = reader.fill(vec![0_u8; LENGTH - 8], 0).await;
            result?;
            // The next read waits.
            let early = timeout(Duration::ZERO, reader.read(&mut [0])).await;
            check!(early.is_err(), "more than was sent");
            calls += statistics()?.system_calls - before;
            check!(header[..] == sent[..8] && rest == sent[8..], "message {message}");
            Ok::<_, Failure>(())
        };
        let (sent, received) = soon("a message", join(sending, receiving)).await?;
        sent?;
        received?;
    }
    // The read of the rest and that of the counters; some room for other processes.
    check!(calls < 5 * MESSAGES as u64 / 2, "{calls} system calls for {MESSAGES} messages");
    // Nothing else reads it, and nothing comes behind it: it goes through the block, part by part.
    let sent = bytes(0..LENGTH);
    let sending = async {
        sleep(Duration::from_millis(1)).await;
        client.write_all(&sent).await
    };
    let mut all = vec![0; LENGTH];
    let parts = join(sending, reader.read_exact(&mut all));
    let (is_sent, is_read) = soon("a message in parts", parts).await?;
    is_sent?;
    is_read?;
    check!(all == sent, "the message in parts is not as sent");
    // The stream ends within what is left: the other read says so, and so does the standing one.
    let sending = async move {
        sleep(Duration::from_millis(1)).await;
        client.write_all(&sent[..LENGTH / 2]).await
    };
    let receiving = async {
        reader.read_exact(&mut [0; 8]).await?;
        let (result, _) = reader.fill(vec![0_u8; LENGTH - 8], 0).await;
        check!(matches!(result, Err(Error::UnexpectedEnd)), "half a message: {result:?}");
        Ok::<_, Failure>(())
    };
    let (is_sent, is_read) = soon("half a message", join(sending, receiving)).await?;
    is_sent?;
    is_read?;
    check_equal!(soon("the end", reader.read(&mut [0])).await??, 0, "the end");
    Ok(())
}

/// A program that asks for what is left gets it as the result of that call.
async fn what_is_left_comes_at_once() -> Outcome {
    let (client, server) = pair().await?;
    let (fd, block) = (server.as_fd().raw() as usize, vec![0_u64; 2]);
    let address = block.as_ptr().expose_provenance();
    let Asked::InFlight(handle) = raw::ask(number::COPS_READ_STANDING, [fd, address, 16]) else {
        return Err(Failure("a read without bytes is over".into()));
    };
    let number = handle.number() as usize;
    let turn = || raw::peek(address) as u32;
    let received = || raw::peek(address + HEADER_BYTES).to_le_bytes();
    let resume = || {
        raw::poke(address, 0);
        raw::call(number::COPS_RESUME_READ, [number])
    };
    raw::poke(address, 1);
    check_equal!(write!(client, &bytes(0..10)), Ok(10), "a write");
    until("the full block is wanted", || Ok(turn() == 2)).await?;
    check_equal!(resume(), Ok(result(8, 2)), "ten bytes");
    check_equal!((turn(), &received()[..]), (2, &bytes(0..8)[..]), "the first eight");
    check_equal!(resume(), Ok(result(2, 0)), "the last two");
    check_equal!((turn(), &received()[..2]), (1, &bytes(8..10)[..]), "they are all");
    // From now on it waits for the connection again.
    check_equal!(write!(client, &[77]), Ok(1), "a write");
    until("the block is wanted again", || Ok(turn() == 2)).await?;
    check_equal!(resume(), Ok(result(1, 0)), "another byte");
    check_equal!((resume(), turn()), (Ok(0), 0), "nothing");
    check_equal!(write!(client, &[78]), Ok(1), "a write");
    until("the block is filled", || Ok(turn() == 1)).await?;
    check_equal!(received()[0], 78, "what came through the ring");
    // The end of the stream comes through the ring, too.
    drop(client);
    until("the call is over", || {
        check_equal!(resume(), Ok(0), "the end");
        Ok(!handle.again().cancel()?)
    })
    .await?;
    drop((handle, block));
    Ok(())
}

/// So that the rest of a message arrives meanwhile.
async fn others_run_before_what_is_left_is_read() -> Outcome {
    if harts() > 1 {
        // The other one may run there, later.
        return Ok(());
    }
    let (mut reader, _writer, mut client) = incoming(8).await?;
    let mut got = [0; 12];
    // Sent when the call is in flight.
    let sending = async {
        sleep(Duration::from_millis(1)).await;
        client.write_all(&bytes(0..12)).await
    };
    let (is_read, is_sent) =
        soon("the first", join(reader.read_exact(&mut got[..8]), sending)).await?;
    is_read?;
    is_sent?;
    let has_run = Arc::new(AtomicBool::new(false));
    let other = has_run.clone();
    task::spawn(async move { other.store(true, Relaxed) }, task::current_priority());
    soon("what is left", reader.read_exact(&mut got[8..])).await??;
    check!(has_run.load(Relaxed), "what is left was read before others ran");
    check_equal!(got[..], bytes(0..12)[..], "what was read");
    Ok(())
}

/// A call for what is left makes room for a writer, which is more urgent than the reader.
async fn what_is_more_urgent_runs_before_what_was_left_is_used() -> Outcome {
    const TOTAL: usize = 100_000;
    const PIECE: usize = 1000;
    if harts() > 1 {
        // There the writer may become ready at any moment.
        return Ok(());
    }
    let (mut reader, _writer, mut client) = incoming(1024).await?;
    let writing = async move {
        for piece in 0..TOTAL / PIECE {
            client.write_all(&bytes(piece * PIECE..(piece + 1) * PIECE)).await?;
        }
        Ok::<_, Error>(())
    };
    let writing = task::spawn_join(writing, Priority::MOST_URGENT);
    let writer = writing.id();
    let is_ready = || {
        let all = inspect::coroutines(process::id()).unwrap_or_default();
        all.iter().any(|one| one.coroutine == writer.raw() && one.state == state::READY)
    };
    let (mut received, mut waits, mut overtaken) = (0, 0, 0);
    while received < TOTAL {
        let mut part = [0; 64];
        let reading = poll_fn(|context| {
            let poll = pin!(reader.read(&mut part)).poll(context);
            match (is_ready(), poll.is_ready()) {
                (true, true) => overtaken += 1,
                (true, false) => waits += 1,
                (false, _) => {}
            }
            poll
        });
        let count = soon("bytes", reading).await??;
        check!(part[..count] == bytes(received..received + count), "wrong bytes at {received}");
        received += count;
    }
    soon("the writer", writing).await???;
    // A packet may also come late, while the reader takes what it has.
    check!(waits >= 10 && overtaken * 10 <= waits, "the writer: {waits} first, {overtaken} later");
    Ok(())
}

async fn reads_are_cancel_safe() -> Outcome {
    let (mut reader, _writer, mut client) = incoming(32).await?;
    for round in 0..20 {
        let late = timeout(Duration::from_micros(300), reader.read(&mut [0; 8])).await;
        check!(late.is_err(), "a read without bytes is over");
        client.write_all(&[round; 4]).await?;
        if round % 2 == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        let mut all = [0; 4];
        soon("the bytes", reader.read_exact(&mut all)).await??;
        check_equal!(all, [round; 4], "the bytes of round {round}");
    }
    Ok(())
}

/// The call is cancelled and made anew while bytes arrive: each of them is read once and in order.
async fn cancelling_races_with_arrivals() -> Outcome {
    const TOTAL: usize = 4000;
    task::alloc_cpu(2)?;
    let (mut reader, _writer, mut client) = incoming(24).await?;
    let sending = async move { send_pieces(&mut client, TOTAL, 5).await };
    let sending = task::spawn_join(sending, Priority::DEFAULT);
    let mut all = Vec::new();
    let mut part = [0; 24];
    let begin = Instant::now();
    while all.len() < TOTAL {
        check!(begin.elapsed() < PATIENCE, "{} of {TOTAL} bytes arrived", all.len());
        let limit = Duration::from_micros(all.len() as u64 % 200);
        if let Ok(result) = timeout(limit, reader.read(&mut part)).await {
            all.extend_from_slice(&part[..result?]);
        } else if let Ok((result, some)) = timeout(limit, reader.fill(vec![0_u8; 1], 0)).await {
            // It has cancelled the standing read.
            result?;
            all.extend_from_slice(&some);
        }
    }
    check!(all == bytes(0..TOTAL), "what was read is not what was sent");
    soon("the sender", sending).await???;
    Ok(())
}

/// What has arrived for a standing read that is dropped, and was not read, is for the next read.
async fn what_is_dropped_is_read_by_others() -> Outcome {
    for (has_read, is_on_its_way) in [(false, false), (true, false), (false, true)] {
        let (mut reader, writer, mut client) = incoming(32).await?;
        let late = timeout(Duration::from_millis(1), reader.read(&mut [0; 8])).await;
        check!(late.is_err(), "a read without bytes is over");
        client.write_all(b"abcdef").await?;
        let begin = Instant::now();
        while is_on_its_way && begin.elapsed() < Duration::from_millis(30) {
            // Outside of the executor: the result stays in the ring.
            core::hint::spin_loop();
        }
        if !is_on_its_way {
            sleep(Duration::from_millis(2)).await;
        }
        let mut part = [0; 2];
        if has_read {
            soon("two bytes", reader.read_exact(&mut part)).await??;
            check_equal!(&part, b"ab", "the first bytes");
        }
        drop(reader);
        client.write_all(b"gh").await?;
        let expected: &[u8] = if has_read { b"cdefgh" } else { b"abcdefgh" };
        let mut all = Vec::new();
        while all.len() < expected.len() {
            let mut part = [0; 16];
            let name = task::current().ok_or(Failure("no coroutine".into()))?;
            let count = soon("the rest", read!(writer, &mut part, name)).await??;
            check!(count > 0, "the stream ended");
            all.extend_from_slice(&part[..count]);
        }
        check_equal!(&all[..], expected, "what others have read");
    }
    Ok(())
}

/// A read of the rest of a message is dropped when its bytes have arrived, while the call stands.
async fn what_a_dropped_fill_has_read_comes_first() -> Outcome {
    let (mut reader, _writer, mut client) = incoming(8).await?;
    for message in 0..3 {
        let sent = bytes(message..message + 16);
        let sending = async {
            // The reader waits by then, in a call that stands.
            sleep(Duration::from_millis(1)).await;
            client.write_all(&sent[..8]).await
        };
        let mut header = [0; 8];
        let reading = join(reader.read_exact(&mut header), sending);
        let (is_read, is_sent) = soon("a header", reading).await?;
        is_read?;
        is_sent?;
        check!(header[..] == sent[..8], "the header of message {message}");
        {
            let mut rest = pin!(reader.fill(vec![0_u8; 8], 0));
            let is_over = poll_fn(|context| Poll::Ready(rest.as_mut().poll(context).is_ready()));
            check!(!is_over.await, "a read without bytes is over");
            client.write_all(&sent[8..12]).await?;
            // Its result arrives, and is not taken.
            sleep(Duration::from_millis(2)).await;
        }
        client.write_all(&sent[12..]).await?;
        let mut rest = [0; 8];
        soon("the rest", reader.read_exact(&mut rest)).await??;
        check_equal!(rest[..], sent[8..], "the rest of message {message}");
    }
    Ok(())
}

/// It neither takes what is in the block nor withdraws the call.
async fn a_fill_that_is_not_polled_takes_nothing() -> Outcome {
    let (mut reader, _writer, mut client) = incoming(16).await?;
    client.write_all(&bytes(0..12)).await?;
    let mut part = [0; 4];
    for round in 0..3 {
        soon("a part", reader.read_exact(&mut part)).await??;
        check!(part[..] == bytes(4 * round..4 * round + 4), "part {round} is not as sent");
        drop(reader.fill(vec![0_u8; 4], 0));
    }
    Ok(())
}

/// The connection is reset while a read is in flight that is dropped: the next read says so, once.
async fn a_reset_is_not_lost_with_a_dropped_read() -> Outcome {
    async fn reset(mut writer: impl Write<Error = Error>, client: TcpStream) -> Outcome {
        // The client is closed with bytes that it has not read.
        writer.write_all(b"never read").await?;
        sleep(Duration::from_millis(1)).await;
        drop(client);
        // The result arrives, and is not taken.
        sleep(Duration::from_millis(2)).await;
        Ok(())
    }
    let is_reset = |what: &str, result: Result<(), Error>| -> Outcome {
        check_equal!(result.err().and_then(errno), Some(Errno::ECONNRESET), "{what}");
        Ok(())
    };
    // A standing read that another read replaces.
    let (mut reader, mut writer, client) = incoming(8).await?;
    let late = timeout(Duration::from_millis(1), reader.read(&mut [0; 8])).await;
    check!(late.is_err(), "a read without bytes is over");
    reset(&mut writer, client).await?;
    let (result, _) = soon("a fill", reader.fill(vec![0_u8; 8], 0)).await?;
    is_reset("a fill after a standing read", result)?;
    check_equal!(soon("the end", reader.read(&mut [0])).await??, 0, "bytes after a reset");
    // One that is dropped.
    let (mut reader, mut writer, client) = incoming(8).await?;
    let late = timeout(Duration::from_millis(1), reader.read(&mut [0; 8])).await;
    check!(late.is_err(), "a read without bytes is over");
    reset(&mut writer, client).await?;
    drop(reader);
    let result = soon("a read", writer.as_fd().read(&mut [0])).await?;
    is_reset("a read after a standing one", result.map(drop))?;
    // A read of its own, into a few bytes or into a block, and one into memory that it owns.
    for size in [8, 100] {
        let (client, server) = pair().await?;
        let (mut reader, mut writer) = server.into_split();
        let mut buffer = vec![0; size];
        let mut reading = alloc::boxed::Box::pin(reader.read(&mut buffer));
        let is_over = poll_fn(|context| Poll::Ready(reading.as_mut().poll(context).is_ready()));
        check!(!is_over.await, "a read without bytes is over");
        reset(&mut writer, client).await?;
        drop(reading);
        is_reset("a read", soon("a read", reader.read(&mut [0])).await?.map(drop))?;
        check_equal!(soon("the end", reader.read(&mut [0])).await??, 0, "bytes after a reset");
    }
    let (client, server) = pair().await?;
    let (mut reader, mut writer) = server.into_split();
    let mut filling = alloc::boxed::Box::pin(reader.fill(vec![0_u8; 8], 0));
    let is_over = poll_fn(|context| Poll::Ready(filling.as_mut().poll(context).is_ready()));
    check!(!is_over.await, "a read without bytes is over");
    reset(&mut writer, client).await?;
    drop(filling);
    let number = reader.as_fd().raw();
    drop((reader, writer));
    // It was for the descriptor, which is closed: another one of this number has no error.
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(pair().await?);
    }
    let ends = others.iter_mut().flat_map(|(one, other)| [one, other]);
    let mut same = ends.filter(|end| end.as_fd().raw() == number);
    let end = same.next().ok_or(Failure("no descriptor has this number again".into()))?;
    let early = timeout(Duration::from_millis(1), end.read(&mut [0])).await;
    check!(early.is_err(), "a new connection has a result: {early:?}");
    Ok(())
}

async fn another_coroutine_continues() -> Outcome {
    let (mut reader, _writer, mut client) = incoming(32).await?;
    for round in 0..10_u8 {
        // It is left waiting by one coroutine, and continued by another one.
        let waiting = async move {
            let late = timeout(Duration::from_micros(500), reader.read(&mut [0; 8])).await;
            (late.is_err(), reader)
        };
        let priority = Priority::saturating(20 + u32::from(round));
        let (was_late, mut back) = soon("a wait", task::spawn_join(waiting, priority)).await??;
        check!(was_late, "a read without bytes is over");
        client.write_all(&[round; 3]).await?;
        let mut all = [0; 3];
        soon("the bytes", back.read_exact(&mut all)).await??;
        check_equal!(all, [round; 3], "the bytes of round {round}");
        reader = back;
    }
    Ok(())
}

async fn the_end_of_a_stream() -> Outcome {
    let (mut reader, _writer, mut client) = incoming(8).await?;
    let late = timeout(Duration::from_millis(1), reader.read(&mut [0; 8])).await;
    check!(late.is_err(), "a read without bytes is over");
    client.write_all(b"the last words").await?;
    drop(client);
    let mut all = [0; 14];
    soon("the last words", reader.read_exact(&mut all)).await??;
    check_equal!(&all, b"the last words", "before the end");
    for _ in 0..3 {
        check_equal!(soon("the end", reader.read(&mut [0; 8])).await??, 0, "bytes after the end");
    }
    // The peer resets: it is closed with bytes that it has not read.
    let (mut reader, mut writer, client) = incoming(8).await?;
    let late = timeout(Duration::from_millis(1), reader.read(&mut [0; 8])).await;
    check!(late.is_err(), "a read without bytes is over");
    writer.write_all(b"never read").await?;
    sleep(Duration::from_millis(1)).await;
    drop(client);
    let error = soon("a reset", reader.read(&mut [0; 8])).await?.err().and_then(errno);
    check_equal!(error, Some(Errno::ECONNRESET), "a reset");
    Ok(())
}

/// A ring without room: the call ends with what has arrived, which waits for room like any result.
async fn a_full_ring_ends_it() -> Outcome {
    const CONNECTIONS: usize = RING_ENTRIES as usize + 20;
    let before = statistics()?;
    let mut all = Vec::new();
    for _ in 0..CONNECTIONS {
        all.push(incoming(8).await?);
    }
    let ready = statistics()?.calls_deferred;
    let mut clients = Vec::new();
    let mut reading = Vec::new();
    for (mut reader, writer, client) in all {
        clients.push(client);
        reading.push(task::spawn_join(
            async move {
                let mut got = Vec::new();
                let mut part = [0; 8];
                while got.len() < 4 {
                    match reader.read(&mut part).await {
                        Ok(count @ 1..) => got.extend_from_slice(&part[..count]),
                        _ => break,
                    }
                }
                drop(writer);
                got
            },
            Priority::DEFAULT,
        ));
    }
    let name = task::current().ok_or(Failure("no coroutine".into()))?;
    task::set_priority(name, Priority::LEAST_URGENT);
    until("all reads stand", || Ok(statistics()?.calls_deferred - ready >= CONNECTIONS as u64))
        .await?;
    // Outside of the executor, while the kernel delivers.
    for client in &clients {
        check_equal!(write!(client, b"ab"), Ok(2), "a write");
    }
    let begin = Instant::now();
    while statistics()?.ring_overflows == before.ring_overflows {
        check!(begin.elapsed() < PATIENCE, "no result found the ring full");
    }
    yield_now().await;
    for client in &mut clients {
        client.write_all(b"cd").await?;
    }
    for got in soon("all bytes", join_all(reading)).await? {
        check_equal!(&got?[..], b"abcd", "what one of them has read");
    }
    Ok(())
}

/// A program that changes the turn of its block as it likes: it gets bytes or none, and nothing
/// else happens.
async fn a_turn_that_lies() -> Outcome {
    let (client, server) = pair().await?;
    let (fd, block) = (server.as_fd().raw() as usize, vec![0_u64; 8]);
    let address = block.as_ptr().expose_provenance();
    let arguments = [fd, address, 64];
    let Asked::InFlight(handle) = raw::ask(number::COPS_READ_STANDING, arguments) else {
        return Err(Failure("a read without bytes is over".into()));
    };
    for step in 0..2000_u64 {
        check_equal!(write!(client, &[step as u8]), Ok(1), "a write");
        raw::poke(address, [0, 0, 1, 2, 77, u64::MAX][step as usize % 6]);
        if step % 3 == 0 {
            raw::call(number::COPS_RESUME_READ, [handle.number() as usize])?;
        }
        if step % 64 == 0 {
            yield_now().await;
        }
    }
    let number = handle.number();
    raw::poke(address, 1);
    handle.cancel()?;
    check_equal!(raw::call(number::COPS_RESUME_READ, [number as usize]), Ok(0), "after the end");
    drop(block);
    Ok(())
}

async fn its_priority_follows_the_coroutine() -> Outcome {
    let standing_at = |level: u32| -> Result<usize, Failure> {
        let all = inspect::coroutines(0)?;
        let is_one = |one: &&inspect::CoroutineRecord| {
            one.state == state::BLOCKED && inspect::text(&one.name).is_empty()
        };
        Ok(all.iter().filter(is_one).filter(|one| one.priority == level).count())
    };
    let (mut reader, _writer, mut client) = incoming(8).await?;
    let reading = task::spawn_join(
        async move {
            let mut all = Vec::new();
            let mut part = [0; 2];
            while let Ok(count @ 1..) = reader.read(&mut part).await {
                all.extend_from_slice(&part[..count]);
            }
            all
        },
        Priority::saturating(41),
    );
    until("the kernel's half", || Ok(standing_at(41)? == 1)).await?;
    for (round, level) in [7, 55, 13].into_iter().enumerate() {
        task::set_priority(reading.id(), Priority::saturating(level));
        // It attempts once more with its new priority.
        until("the kernel's half at its new level", || Ok(standing_at(level)? == 1)).await?;
        client.write_all(&[round as u8; 2]).await?;
        sleep(Duration::from_millis(2)).await;
    }
    drop(client);
    check_equal!(soon("the end", reading).await??, [0, 0, 1, 1, 2, 2], "what was read");
    Ok(())
}

async fn bad_arguments() -> Outcome {
    use number::COPS_READ_STANDING;
    let (_client, server) = pair().await?;
    let (pipe_reader, _pipe_writer) = pipe()?;
    let block = vec![0_u64; BLOCK_BYTES_MAX / 8 + 2];
    let address = block.as_ptr().expose_provenance();
    let fd = server.as_fd().raw() as usize;
    let refused = |what: &str, arguments: [usize; 3], error: Errno| -> Outcome {
        match raw::ask(COPS_READ_STANDING, arguments) {
            Asked::Done(result) => check_equal!(result, Err(error), "{what}"),
            Asked::InFlight(handle) => {
                handle.cancel()?;
                return Err(Failure(alloc::format!("{what}: it is in flight")));
            }
        }
        Ok(())
    };
    refused("no descriptor", [99, address, 64], Errno::EBADF)?;
    let pipe_fd = pipe_reader.as_fd().raw() as usize;
    refused("a pipe", [pipe_fd, address, 64], Errno::EOPNOTSUPP)?;
    refused("no room", [fd, address, HEADER_BYTES], Errno::EINVAL)?;
    refused("nothing", [fd, address, 0], Errno::EINVAL)?;
    refused("too long", [fd, address, BLOCK_BYTES_MAX + 1], Errno::EINVAL)?;
    for offset in [1, 2, 4, 7] {
        refused("not aligned", [fd, address + offset, 64], Errno::EINVAL)?;
    }
    for &bad in raw::BAD_ADDRESSES {
        refused("a bad address", [fd, bad, 64], Errno::EFAULT)?;
    }
    let synchronous = raw::call(COPS_READ_STANDING, [fd, address, 64]);
    check_equal!(synchronous, Err(Errno::EINVAL), "a synchronous call");
    for handle in [0, 1, usize::MAX] {
        let resumed = raw::call(number::COPS_RESUME_READ, [handle]);
        check_equal!(resumed, Err(Errno::EINVAL), "the handle {handle}");
    }
    // A plain read does not stand.
    let read = [fd, address, 8];
    let Asked::InFlight(handle) = raw::ask(number::READ, read) else {
        return Err(Failure("a read without bytes is over".into()));
    };
    check_equal!(
        raw::call(number::COPS_RESUME_READ, [handle.number() as usize]),
        Err(Errno::EINVAL),
        "a plain read"
    );
    handle.cancel()?;
    Ok(())
}
