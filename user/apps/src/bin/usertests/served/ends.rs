//! Calls that are cancelled, callers and servers that end, servers that never answer.

use alloc::vec;
use core::future::{Future, poll_fn};
use core::pin::Pin;
use core::task::Poll;

use cops::abi::served::{Reply, Request, operation};
use cops::process::Resource;
use cops::time::{Duration, Instant, sleep};

use super::by_hand::{Hand, later, status};
use super::pages::Opened;
use super::*;
use crate::harness::{start, start_tied};
use crate::raw::Asked;

tests! { served:
    a_cancelled_call_leaves_its_buffer,
    a_call_cancelled_after_the_reply_forgets_the_node,
    nodes_of_calls_cancelled_before_the_reply_are_forgotten,
    a_server_dies_with_requests_of_cancelled_calls,
    a_dropped_read_moves_no_position,
    a_seek_waits_for_a_call_that_uses_the_position,
    listings_of_one_open_directory_take_turns,
    callers_are_killed,
    a_server_that_dies,
    a_server_that_dies_with_many_callers,
    a_server_that_asks_itself,
    what_is_pending_is_charged,
    a_server_without_memory_forgets_nodes,
}

/// Argument of a process that asks once.
pub const ASK: &str = "ask";
/// Argument of a process that serves a file system and asks for a name in it.
pub const ASK_MYSELF: &str = "ask-myself";
const HERE: usize = AT_FDCWD as usize;

/// The code of a process that has the result of its call.
fn code(result: Result<usize, Errno>) -> ExitCode {
    ExitCode(match result {
        Ok(_) => 0,
        Err(error) => error as u8,
    })
}

pub fn ask() -> ExitCode {
    let mut bytes = [0u8; 128];
    let place = bytes.as_mut_ptr().addr();
    code(raw::call(number::NEWFSTATAT, [HERE, c"/disk/f".as_ptr().addr(), place, 0]))
}

pub fn ask_myself() -> ExitCode {
    ask()
}

/// Asks for the status of `/disk/f`, to be cancelled or forgotten.
fn ask_later(into: &mut [u8]) -> Asked {
    let place = into.as_mut_ptr().expose_provenance();
    raw::ask(number::NEWFSTATAT, [HERE, c"/disk/f".as_ptr().addr(), place, 0])
}

fn memory_used() -> Result<u64, Failure> {
    Ok(cops::process::quota(0, Resource::Memory)?.used)
}

async fn a_cancelled_call_leaves_its_buffer() -> Outcome {
    const MARK: u8 = 0x6b;
    let mut hand = Hand::mounted().await?;
    let opening = task::spawn_join(
        async { OpenOptions::new().read(true).open("/disk/f").await },
        Priority::DEFAULT,
    );
    let (request, rest) = hand.next().await?;
    hand.answer(&request, &rest)?;
    let file = soon("open", opening).await???;
    let fd = cops::io::AsFd::as_fd(&file).raw() as usize;
    let mut buffer = vec![MARK; 100];
    let place = buffer.as_mut_ptr().expose_provenance();
    let read = |offset: usize| match raw::ask(number::PREAD64, [fd, place, 100, offset]) {
        Asked::InFlight(handle) => Ok(handle),
        Asked::Done(result) => Err(Failure(format!("a read: {result:?}"))),
    };
    // Cancelled before the server reads it: the server does not see it.
    let (first, second) = (read(1)?, read(2)?);
    check!(first.cancel()?, "the first read has completed");
    let (request, _) = hand.next().await?;
    check_equal!((request.operation, request.first), (operation::READ, 2), "what was read");
    // Cancelled while the server has it: the reply comes too late.
    check!(second.cancel()?, "the second read has completed");
    let reply = Reply { id: request.id, ..Reply::default() };
    check_equal!(hand.reply(reply, &[1; 100]), Err(ENOENT), "a late reply");
    check!(buffer.iter().all(|&byte| byte == MARK), "a cancelled read has written");
    // One that is not cancelled gets its bytes.
    let third = read(3)?;
    let (request, _) = hand.next().await?;
    let reply = Reply { id: request.id, ..Reply::default() };
    check_equal!(hand.reply(reply, &[1; 100]), Ok(Reply::BYTES + 100), "a reply");
    until("the result", || Ok(buffer.iter().all(|&byte| byte == 1))).await?;
    check!(!third.cancel()?, "it is still in flight");
    Ok(())
}

/// The server has counted the node that its reply names, so a message about its end comes in any
/// case.
async fn a_call_cancelled_after_the_reply_forgets_the_node() -> Outcome {
    const ROUNDS: u64 = 50;
    let mut hand = Hand::mounted().await?;
    let mut bytes = [0u8; 128];
    for round in 0..ROUNDS {
        let Asked::InFlight(handle) = ask_later(&mut bytes) else {
            return Err(Failure("it is not in flight".into()));
        };
        let (request, _) = hand.next().await?;
        check_equal!(request.operation, operation::LOOK_UP, "the request");
        let reply = Reply { id: request.id, status: status(2), ..Reply::default() };
        hand.reply(reply, &[])?;
        if round % 2 == 0 {
            // Its coroutine may take the reply first, and ask for the status.
            sleep(Duration::from_millis(1)).await;
        }
        handle.cancel()?;
    }
    // A last call, before which all others are read.
    let last = task::spawn_join(async { fs::metadata("/disk/x").await.err() }, Priority::DEFAULT);
    loop {
        let (request, rest) = hand.next().await?;
        // Cancelled between its two requests.
        let _ = hand.answer(&request, &rest);
        if rest == b"x" {
            break;
        }
    }
    soon("the last call", last).await??;
    let forgotten = |hand: &Hand| hand.forgotten.iter().map(|&(_, count)| count).sum::<u64>();
    while forgotten(&hand) < ROUNDS {
        // There is nothing but nodes to be forgotten.
        let trigger =
            task::spawn_join(async { fs::metadata("/disk/x").await.err() }, Priority::DEFAULT);
        let (request, rest) = hand.next().await?;
        hand.answer(&request, &rest)?;
        soon("a call", trigger).await??;
    }
    check_equal!(forgotten(&hand), ROUNDS, "uses of nodes that have ended");
    check!(hand.forgotten.iter().all(|&(node, _)| node == 2), "{:?}", hand.forgotten);
    Ok(())
}

/// Less than what is charged for 300 look-ups without answers, and more than the lists of this
/// program may have grown by.
const PENDING: u64 = 100_000;

/// Sends so many look-ups of `/disk/f`, and cancels each while the server has it. Returns the ids.
async fn cancelled_look_ups(hand: &mut Hand, count: usize) -> Result<Vec<u64>, Failure> {
    let mut bytes = [0u8; 128];
    let mut ids = Vec::with_capacity(count);
    for _ in 0..count {
        let Asked::InFlight(handle) = ask_later(&mut bytes) else {
            return Err(Failure("it is not in flight".into()));
        };
        let (request, _) = hand.next().await?;
        check_equal!(request.operation, operation::LOOK_UP, "the request");
        check!(handle.cancel()?, "it has completed");
        ids.push(request.id);
    }
    Ok(ids)
}

/// The kernel ends the use of a node that a reply names in vain, so the handler need not: it would
/// be one of which the kernel knows nothing, and such handlers could be any number.
async fn nodes_of_calls_cancelled_before_the_reply_are_forgotten() -> Outcome {
    const CALLS: usize = 300;
    let mut hand = Hand::mounted().await?;
    let before = memory_used()?;
    let ids = cancelled_look_ups(&mut hand, CALLS).await?;
    check!(memory_used()? > before + PENDING, "what the server has not answered is charged");
    // An error names no node, and nothing is to be forgotten.
    let (denied, named) = ids.split_at(CALLS / 2);
    for &id in denied {
        check_equal!(super::by_hand::deny(hand.fd(), id), Err(ENOENT), "a late error");
    }
    for &id in named {
        let reply = Reply { id, status: status(2), ..Reply::default() };
        check_equal!(hand.reply(reply, &[]), Ok(Reply::BYTES), "a late reply");
        check_equal!(hand.reply(reply, &[]), Err(ENOENT), "the same once more");
    }
    // Nodes come before a request if there are many, and after it otherwise.
    for _ in 0..4 {
        let call = async { fs::metadata("/disk/x").await.err() };
        let call = task::spawn_join(call, Priority::DEFAULT);
        let (request, rest) = hand.next().await?;
        hand.answer(&request, &rest)?;
        soon("a call", call).await??;
    }
    let count: u64 = hand.forgotten.iter().map(|&(_, count)| count).sum();
    check_equal!(count as usize, named.len(), "uses of nodes that have ended");
    check!(hand.forgotten.iter().all(|&(node, _)| node == 2), "{:?}", hand.forgotten);
    until("the end of the charge", || Ok(memory_used()? < before + PENDING)).await
}

async fn a_server_dies_with_requests_of_cancelled_calls() -> Outcome {
    const CALLS: usize = 300;
    let mut hand = Hand::mounted().await?;
    let before = memory_used()?;
    cancelled_look_ups(&mut hand, CALLS).await?;
    check!(memory_used()? > before + PENDING, "what the server has not answered is charged");
    hand.close();
    // It is still mounted.
    until("the end of the charge", || Ok(memory_used()? < before + PENDING)).await
}

/// Reads two bytes of `/disk/f`, and drops the read after the server has replied. Returns where it
/// has read.
async fn read_and_drop(opened: &mut Opened) -> Result<u64, Failure> {
    let Opened { hand, file, .. } = opened;
    let mut buffer = [0; 2];
    let mut read = file.read(&mut buffer);
    let is_ready = poll_fn(|context| Poll::Ready(Pin::new(&mut read).poll(context).is_ready()));
    check!(!is_ready.await, "a read without its server");
    let (request, rest) = hand.next().await?;
    check_equal!(request.operation, operation::READ, "the request");
    hand.answer(&request, &rest)?;
    // The kernel completes the call meanwhile.
    sleep(Duration::from_millis(5)).await;
    Ok(request.first)
}

async fn a_dropped_read_moves_no_position() -> Outcome {
    let mut opened = Opened::with(Hand::mounted().await?).await?;
    check_equal!(read_and_drop(&mut opened).await?, 0, "where the first read begins");
    check_equal!(opened.file.seek(SeekFrom::Current(1)).await?, 1, "the position, one further");
    check_equal!(read_and_drop(&mut opened).await?, 1, "where the second read begins");
    check_equal!(opened.file.seek(SeekFrom::Start(3)).await?, 3, "another position");
    check_equal!(read_and_drop(&mut opened).await?, 3, "where a read after a seek begins");
    let Opened { mut hand, mut file, .. } = opened;
    let writing = task::spawn_join(async move { file.write(b"x").await }, Priority::DEFAULT);
    let (request, rest) = hand.next().await?;
    hand.answer(&request, &rest)?;
    check_equal!((request.operation, request.first), (operation::WRITE, 3), "the write");
    check_equal!(soon("the write", writing).await???, 1, "bytes");
    Ok(())
}

/// Otherwise the read would move the position when it ends, and the seek would be lost.
async fn a_seek_waits_for_a_call_that_uses_the_position() -> Outcome {
    let mut opened = Opened::with(Hand::mounted().await?).await?;
    let fd = opened.fd();
    let place = opened.memory.as_mut_ptr().expose_provenance();
    let begins = |number, arguments: [usize; 3]| {
        task::spawn_join(later(number, arguments), Priority::DEFAULT)
    };
    // From the beginning, from the position, and from the end, which is asked for afterwards.
    for (offset, whence, expected) in [(100, 0, 100), (100, 1, 204), (100, 2, 104)] {
        check_equal!(raw::call(number::LSEEK, [fd, 100, 0]), Ok(100), "the first position");
        let reading = begins(number::READ, [fd, place, 10]);
        let (read, rest) = opened.next(operation::READ).await?;
        check_equal!(read.first, 100, "where it reads");
        let seeking = begins(number::LSEEK, [fd, offset, whence]);
        opened.hand.finds_nothing()?;
        opened.hand.answer(&read, &rest)?;
        check_equal!(soon("read", reading).await??, Ok(4), "read");
        if whence == 2 {
            let (status, rest) = opened.next(operation::GET_STATUS).await?;
            // Another call that uses the position waits now.
            let reading = begins(number::READ, [fd, place, 10]);
            opened.hand.finds_nothing()?;
            opened.hand.answer(&status, &rest)?;
            let (read, rest) = opened.next(operation::READ).await?;
            check_equal!(read.first, 104, "where the other call reads");
            opened.hand.answer(&read, &rest)?;
            check_equal!(soon("read", reading).await??, Ok(4), "read");
        }
        check_equal!(soon("lseek", seeking).await??, Ok(expected), "whence {whence}");
        let position = if whence == 2 { expected + 4 } else { expected };
        check_equal!(raw::call(number::LSEEK, [fd, 0, 1]), Ok(position), "the position");
    }
    // One that is cancelled leaves the turn to the next one.
    let Asked::InFlight(first) = raw::ask(number::READ, [fd, place, 10]) else {
        return Err(Failure("a read does not wait".into()));
    };
    opened.next(operation::READ).await?;
    let Asked::InFlight(second) = raw::ask(number::LSEEK, [fd, 7, 0]) else {
        return Err(Failure("a seek does not wait".into()));
    };
    let third = begins(number::LSEEK, [fd, 8, 0]);
    check!(second.cancel()?, "the seek has completed");
    check!(first.cancel()?, "the read has completed");
    check_equal!(soon("lseek", third).await??, Ok(8), "lseek");
    check_equal!(raw::call(number::LSEEK, [fd, 0, 1]), Ok(8), "the position");
    Ok(())
}

/// Otherwise both would list the same entries.
async fn listings_of_one_open_directory_take_turns() -> Outcome {
    let mut hand = Hand::mounted().await?;
    let path = c"/disk/d".as_ptr().expose_provenance();
    let flags = (open::READ_ONLY | open::DIRECTORY) as usize;
    let opening = later(number::OPENAT, [HERE, path, flags, 0]);
    let opening = task::spawn_join(opening, Priority::DEFAULT);
    let (request, rest) = hand.next().await?;
    hand.answer(&request, &rest)?;
    let fd = soon("open", opening).await???;
    check_equal!(raw::call(number::LSEEK, [fd, 5, 0]), Ok(5), "the place");
    let (mut one, mut other) = ([0u8; 64], [0u8; 64]);
    let lists = |into: &mut [u8; 64]| {
        let place = into.as_mut_ptr().expose_provenance();
        task::spawn_join(later(number::GETDENTS64, [fd, place, 64]), Priority::DEFAULT)
    };
    let first = lists(&mut one);
    let (request, _) = hand.next().await?;
    check_equal!((request.operation, request.first), (operation::LIST, 5), "the first request");
    let second = lists(&mut other);
    hand.finds_nothing()?;
    // Number, the place behind it, length, type and name.
    let mut record = [0u8; 24];
    (record[0], record[8], record[16], record[18], record[19]) = (2, 9, 24, 8, b'f');
    let reply = |id| Reply { id, ..Reply::default() };
    check_equal!(hand.reply(reply(request.id), &record), Ok(Reply::BYTES + 24), "a reply");
    let (request, _) = hand.next().await?;
    check_equal!((request.operation, request.first), (operation::LIST, 9), "the second request");
    check_equal!(hand.reply(reply(request.id), &[]), Ok(Reply::BYTES), "a reply");
    check_equal!(soon("one", first).await??, Ok(24), "the first listing");
    check_equal!(soon("the other", second).await??, Ok(0), "the second listing");
    check_equal!(one[..24], record, "what is listed");
    raw::call(number::CLOSE, [fd])?;
    Ok(())
}

async fn callers_are_killed() -> Outcome {
    let mut hand = Hand::mounted().await?;
    for is_read in [false, true] {
        let caller = start_tied(&[HELPER, ASK])?;
        // Its request is there.
        let request = if is_read { Some(hand.next().await?.0) } else { None };
        if !is_read {
            let id = caller.id();
            let waits = || Ok(calls_of(id)? == 1);
            until("the call of a caller", waits).await?;
        }
        caller.end().await?;
        if let Some(Request { id, .. }) = request {
            let reply = Reply { id, status: status(2), ..Reply::default() };
            // It is accepted, because it names a node.
            check_equal!(
                hand.reply(reply, &[]),
                Ok(Reply::BYTES),
                "a reply to a caller that was killed"
            );
        }
    }
    // And the server is as before.
    let mut caller = start(&[HELPER, ASK])?;
    for _ in 0..2 {
        let (request, rest) = hand.next().await?;
        check_equal!(hand.answer(&request, &rest), Ok(Reply::BYTES), "a reply");
    }
    check_equal!(soon("a caller", caller.wait()).await??.code(), Some(0), "its code");
    Ok(())
}

/// Calls in flight of a process.
pub fn calls_of(process: u32) -> Result<u64, Failure> {
    let processes = cops::inspect::processes()?;
    Ok(processes.iter().find(|one| one.process == process).map_or(0, |one| one.calls_in_flight))
}

/// Calls wait, some of them read by the server; then the server is killed.
async fn a_server_that_dies() -> Outcome {
    let pipe = crate::forks::Pipe::new()?;
    let hand = Hand::mounted().await?;
    let child = crate::forks::fork(|| {
        // It has the descriptor too. It reads one request, and answers none.
        let mut memory = vec![0u8; 3 * 8192];
        let start = memory.as_mut_ptr().expose_provenance().next_multiple_of(4096);
        let read = raw::call(number::READ, [SERVERS[0], start, 8192]);
        let _ = pipe.signal();
        while raw::call(number::CLOCK_NANOSLEEP, [1, 0, [1000u64, 0].as_ptr().addr(), 0]).is_ok() {}
        read.is_err().into()
    })?;
    hand.close();
    let mut callers = Vec::new();
    for _ in 0..3 {
        callers.push(start(&[HELPER, ASK])?);
    }
    pipe.wait()?;
    for caller in &callers {
        let id = caller.id();
        until("the calls of the callers", || Ok(calls_of(id)? == 1)).await?;
    }
    cops::process::kill(child, 9)?;
    cops::wait!(Some(child))?;
    for mut caller in callers {
        let status = soon("a caller of a dead server", caller.wait()).await??;
        check_equal!(status.code(), Some(EIO as u8), "the code of a caller");
    }
    // Later calls fail at once, and another server can take the place.
    let path = c"/disk/f".as_ptr().addr();
    let mut bytes = [0u8; 128];
    let status = [HERE, path, bytes.as_mut_ptr().addr(), 0];
    raw::refused("a dead server", number::NEWFSTATAT, status, &[EIO])?;
    let list = fs::read_directory(SERVED).err().and_then(errno);
    check_equal!(list, Some(EIO), "a listing of its root");
    server(1).mount(SERVED, ROOT).await?;
    Ok(())
}

async fn a_server_that_dies_with_many_callers() -> Outcome {
    const CALLERS: usize = 2000;
    let hand = Hand::mounted().await?;
    let callers: Vec<_> = (0..CALLERS)
        .map(|index| {
            let asks = async { fs::metadata("/disk/f").await.err().and_then(errno) };
            task::spawn_join(asks, Priority::saturating(33 + (index % 20) as u32))
        })
        .collect();
    let me = cops::process::id();
    until("all calls", || Ok(calls_of(me)? as usize >= CALLERS)).await?;
    hand.close();
    for found in soon("the callers", join_all(callers)).await? {
        check_equal!(found?, Some(EIO), "what a caller found");
    }
    Ok(())
}

/// A process that waits for itself can be killed like any other.
async fn a_server_that_asks_itself() -> Outcome {
    let hand = Hand::mounted().await?;
    let child = crate::forks::fork(|| ask_myself().0)?;
    hand.close();
    until("its call", || Ok(calls_of(child)? == 1)).await?;
    cops::process::kill(child, 9)?;
    let (_, status) = cops::wait!(Some(child))?;
    check_equal!(status.signal(), Some(9), "what has ended it");
    Ok(())
}

/// The caller pays, until its call has ended.
async fn what_is_pending_is_charged() -> Outcome {
    const CALLS: usize = 5_000;
    let hand = Hand::mounted().await?;
    let mut bytes = [0u8; 128];
    let before = memory_used()?;
    let mut handles = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        match ask_later(&mut bytes) {
            Asked::InFlight(handle) => handles.push(handle),
            Asked::Done(result) => return Err(Failure(format!("a call: {result:?}"))),
        }
    }
    let more = memory_used()? - before;
    // What earlier tests have left, and is freed meanwhile, counts against it.
    check!(more >= CALLS as u64 * 448, "{CALLS} requests are charged with {more} bytes");
    for handle in handles {
        check!(handle.cancel()?, "it has completed");
    }
    let left = memory_used()?.saturating_sub(before);
    // The memory of this process has grown.
    check!(left < 1 << 19, "{left} bytes are still charged");
    hand.close();
    Ok(())
}

/// The kernel says only once that a node is not used any more. A server without memory for a buffer
/// or a coroutine takes notice, too.
async fn a_server_without_memory_forgets_nodes() -> Outcome {
    let running = start_tree().await?;
    let file = OpenOptions::new().write(true).create(true).open("/disk/f").await?;
    check_equal!(running.tree.count().await, (1, 1), "nodes and used nodes");
    let spare = core::hint::black_box(vec![0u8; 64 * 1024]);
    crate::files::use_the_heap_up()?;
    drop(file);
    // A call with a time would need memory.
    let begin = Instant::now();
    let mut found = running.tree.count().await;
    while found != (1, 0) && begin.elapsed() < Duration::from_secs(5) {
        task::yield_now().await;
        found = running.tree.count().await;
    }
    drop(spare);
    check_equal!(found, (1, 0), "nodes and used nodes without memory");
    Ok(())
}
