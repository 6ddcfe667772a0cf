//! Unimportant requests that are not answered keep no urgent one from the server, and a request
//! that becomes more urgent while the server has it is handled so.

use alloc::vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};

use cops::abi::file::{Status, mode};
use cops::abi::served::{
    DATA_BYTES_MAX, Reply, UNANSWERED_MAX, UNANSWERED_URGENT_MAX, number_and_level, operation,
};
use cops::fs::server::{Entries, FileSystem, Result as ServerResult};
use cops::thread::Builder;
use cops::time::{Duration, sleep};
use futures_util::future::join;

use super::by_hand::{Hand, deny};
use super::order::{LESS_URGENT, URGENT, all_have_asked, caller};
use super::*;
use crate::harness::{become_level, level};

tests! { served:
    many_unanswered_requests_keep_no_urgent_one,
    a_reply_makes_room_also_without_its_caller,
    a_server_reads_that_a_request_is_more_urgent,
    the_request_of_a_thread_follows_its_level,
    handlers_that_do_not_end_keep_no_urgent_request,
    a_handler_is_as_urgent_as_its_request_becomes,
    a_handler_is_as_urgent_as_the_reader_of_its_page,
}

/// The level of what computes.
const MEDIUM: u8 = 20;
/// Unimportant requests beyond those that a server is given.
const MORE: usize = 20;
const FILE: u64 = 2;

/// Sends so many unimportant requests, more than the server is given, and reads what it is given.
/// Returns the callers and the ids.
async fn fill(hand: &mut Hand) -> Result<(Vec<JoinHandle<Option<Errno>>>, Vec<u64>), Failure> {
    let all = UNANSWERED_MAX + MORE;
    let callers = (0..all).map(|index| caller(format!("x{index:04}"), LESS_URGENT));
    let callers: Vec<_> = callers.collect();
    let me = cops::process::id();
    until("all calls", || Ok(ends::calls_of(me)? as usize >= all)).await?;
    let mut ids = Vec::with_capacity(all);
    for _ in 0..UNANSWERED_MAX {
        let (request, _) = hand.next().await?;
        check_equal!(request.priority, LESS_URGENT, "the level of a request");
        ids.push(request.id);
    }
    sleep(Duration::from_millis(20)).await;
    hand.finds_nothing()?;
    Ok((callers, ids))
}

/// Answers these requests and those that are not read, and waits for the callers, of which so many
/// have their answers.
async fn answer_all(
    hand: &mut Hand,
    ids: Vec<u64>,
    callers: Vec<JoinHandle<Option<Errno>>>,
    answered: usize,
) -> Outcome {
    for &id in &ids {
        check_equal!(deny(hand.fd(), id), Ok(Reply::BYTES), "a reply");
    }
    for _ in answered + ids.len()..callers.len() {
        let (request, _) = hand.next().await?;
        check_equal!(deny(hand.fd(), request.id), Ok(Reply::BYTES), "a reply");
    }
    for found in soon("the callers", join_all(callers)).await? {
        check_equal!(found?, Some(ENOENT), "what a caller found");
    }
    Ok(())
}

/// A read that waits finds an urgent request at once, and an unimportant one when it becomes
/// urgent, or replies have made room.
async fn many_unanswered_requests_keep_no_urgent_one() -> Outcome {
    let mut hand = Hand::mounted().await?;
    let server = hand.fd();
    let (mut callers, mut ids) = fill(&mut hand).await?;
    let send = async {
        all_have_asked().await;
        callers.push(caller("x-urgent".into(), URGENT));
    };
    let (next, ()) = join(hand.next(), send).await;
    let request = next?.0;
    check_equal!(request.priority, URGENT, "the level of the request beside many others");
    check_equal!(number_and_level(request.id).1, level(URGENT as u8), "the level in its id");
    check_equal!(deny(server, request.id), Ok(Reply::BYTES), "a reply");
    hand.finds_nothing()?;
    // Not any number of them.
    let urgent = (0..=UNANSWERED_URGENT_MAX).map(|index| caller(format!("x-{index}"), URGENT));
    callers.extend(urgent);
    let mut taken = Vec::new();
    for _ in 0..UNANSWERED_URGENT_MAX {
        let (request, _) = hand.next().await?;
        check_equal!(request.priority, URGENT, "the level of an urgent request");
        taken.push(request.id);
    }
    sleep(Duration::from_millis(20)).await;
    hand.finds_nothing()?;
    let first = taken[0];
    let reply = async {
        all_have_asked().await;
        deny(server, first)
    };
    let (next, replied) = join(hand.next(), reply).await;
    check_equal!(replied, Ok(Reply::BYTES), "a reply to an urgent request");
    let request = next?.0;
    check_equal!(request.priority, URGENT, "the level of the request for which there is room");
    deny(server, request.id)?;
    for &id in &taken[1..] {
        deny(server, id)?;
    }
    hand.finds_nothing()?;
    // The last one of those that are not read becomes urgent.
    let last = callers[UNANSWERED_MAX + MORE - 1].id();
    let hurry = async {
        all_have_asked().await;
        task::set_priority(last, level(URGENT as u8));
    };
    let (next, ()) = join(hand.next(), hurry).await;
    let (request, name) = next?;
    let last = format!("x{:04}", UNANSWERED_MAX + MORE - 1);
    check_equal!((request.priority, &name[..]), (URGENT, last.as_bytes()), "what became urgent");
    deny(server, request.id)?;
    // There is room for one.
    let first = ids.swap_remove(0);
    let reply = async {
        all_have_asked().await;
        deny(server, first)
    };
    let (next, replied) = join(hand.next(), reply).await;
    check_equal!(replied, Ok(Reply::BYTES), "a reply");
    let request = next?.0;
    check_equal!(request.priority, LESS_URGENT, "the level of the next unimportant one");
    ids.push(request.id);
    hand.finds_nothing()?;
    // The urgent ones, and the first and the last one of the others.
    answer_all(&mut hand, ids, callers, UNANSWERED_URGENT_MAX + 4).await
}

/// A caller that leaves makes no room: the server still handles its request.
async fn a_reply_makes_room_also_without_its_caller() -> Outcome {
    const LEAVING: usize = 5;
    let mut hand = Hand::mounted().await?;
    let (mut callers, mut ids) = fill(&mut hand).await?;
    for caller in callers.drain(..LEAVING) {
        task::cancel(caller.id());
        check!(soon("a cancelled caller", caller).await?.is_err(), "it has not been cancelled");
    }
    sleep(Duration::from_millis(20)).await;
    hand.finds_nothing()?;
    for id in ids.drain(..LEAVING) {
        check_equal!(deny(hand.fd(), id), Err(ENOENT), "a reply to a caller that has left");
    }
    for _ in 0..LEAVING {
        ids.push(hand.next().await?.0.id);
    }
    hand.finds_nothing()?;
    answer_all(&mut hand, ids, callers, 0).await
}

async fn a_server_reads_that_a_request_is_more_urgent() -> Outcome {
    let mut hand = Hand::mounted().await?;
    let callers: Vec<_> = (0..2).map(|index| caller(format!("x{index}"), LESS_URGENT)).collect();
    let (first, second) = (hand.next().await?.0, hand.next().await?.0);
    let raise = |of: &JoinHandle<_>, to| task::set_priority(of.id(), Priority::saturating(to));
    let raises = async {
        all_have_asked().await;
        raise(&callers[1], URGENT);
    };
    // It wakes a read that waits.
    let (message, ()) = join(hand.next_message(), raises).await;
    let header = message?.0;
    check_equal!(header.operation, operation::RAISE, "the operation");
    check_equal!((header.id, header.priority), (second.id, URGENT), "what is more urgent");
    hand.finds_nothing()?;
    // Less urgent, and as before: the server knows that.
    raise(&callers[1], 45);
    sleep(Duration::from_millis(20)).await;
    raise(&callers[1], URGENT);
    sleep(Duration::from_millis(20)).await;
    hand.finds_nothing()?;
    // One that is answered is not spoken of.
    raise(&callers[0], 3);
    sleep(Duration::from_millis(20)).await;
    deny(hand.fd(), first.id)?;
    hand.finds_nothing()?;
    deny(hand.fd(), second.id)?;
    soon("the callers", join_all(callers)).await?;
    Ok(())
}

/// A thread waits in a call while its level is set.
async fn the_request_of_a_thread_follows_its_level() -> Outcome {
    let mut hand = Hand::mounted().await?;
    let asks = || {
        let mut bytes = [0u8; 128];
        let place = bytes.as_mut_ptr().expose_provenance();
        raw::call(number::NEWFSTATAT, [AT_FDCWD as usize, c"/disk/x".as_ptr().addr(), place, 0])
            .err()
    };
    let thread = Builder::new().priority(level(LESS_URGENT as u8)).spawn(asks)?;
    let (request, _) = hand.next().await?;
    check_equal!(request.priority, LESS_URGENT, "the level of the request");
    thread.thread().set_priority(level(URGENT as u8))?;
    let (header, _) = hand.next_message().await?;
    check_equal!(header.operation, operation::RAISE, "the operation");
    check_equal!((header.id, header.priority), (request.id, URGENT), "what is more urgent");
    check_equal!(deny(hand.fd(), request.id), Ok(Reply::BYTES), "a reply");
    until("the end of the thread", || Ok(thread.is_finished())).await?;
    check_equal!(thread.join().ok().flatten(), Some(Errno::ENOENT), "what the thread found");
    Ok(())
}

/// A file system with one file. What is asked about some names and pages waits.
struct Waits {
    /// Names with `x` wait for that.
    is_open: AtomicBool,
    /// Handlers that wait, or have waited.
    begun: AtomicUsize,
    /// The level at which the last one began.
    level: AtomicU32,
}

impl Waits {
    fn new() -> Arc<Self> {
        let (is_open, level) = (AtomicBool::new(false), AtomicU32::new(0));
        Arc::new(Self { is_open, begun: AtomicUsize::new(0), level })
    }

    fn begins(&self) {
        self.level.store(task::current_priority().level().into(), Relaxed);
        self.begun.fetch_add(1, Relaxed);
    }

    /// Until the handler is urgent.
    async fn becomes_urgent(&self) {
        self.begins();
        while task::current_priority() != level(URGENT as u8) {
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Until one handler waits.
    async fn has_begun(&self) -> Outcome {
        until("a handler", || Ok(self.begun.load(Relaxed) == 1)).await?;
        check_equal!(self.level.load(Relaxed), LESS_URGENT, "the level at which it began");
        Ok(())
    }
}

/// What is served, shared with the test.
struct Shared(Arc<Waits>);

impl FileSystem for Shared {
    async fn look_up(&self, _directory: u64, name: &str) -> ServerResult<Status> {
        if name.starts_with('x') {
            self.0.begins();
            while !self.0.is_open.load(Relaxed) {
                sleep(Duration::from_millis(50)).await;
            }
        }
        if name.starts_with('r') {
            self.0.becomes_urgent().await;
        }
        if name == "f" { self.status(FILE).await } else { Err(ENOENT) }
    }

    async fn status(&self, node: u64) -> ServerResult<Status> {
        let status = match node {
            FILE => Status { size: 1 << 20, ..Status::new(mode::REGULAR, 0o755) },
            _ => Status::new(mode::DIRECTORY, 0o755),
        };
        Ok(Status { number: node, ..status })
    }

    async fn read(&self, _node: u64, offset: u64, into: &mut [u8]) -> ServerResult<usize> {
        if offset == 2 * DATA_BYTES_MAX as u64 {
            self.0.becomes_urgent().await;
        }
        into.fill(7);
        Ok(into.len())
    }

    async fn list(&self, _: u64, _: u64, _: &mut Entries) -> ServerResult<()> {
        Ok(())
    }
}

/// Something of medium urgency that computes, until it is dropped.
struct Computing(Arc<AtomicBool>);

impl Computing {
    fn start() -> Self {
        let computes = Arc::new(AtomicBool::new(true));
        let this = Self(computes.clone());
        let computing = async move {
            while computes.load(Relaxed) {
                core::hint::black_box((0..1000).sum::<u32>());
                task::yield_now().await;
            }
        };
        task::spawn(computing, level(MEDIUM));
        this
    }
}

impl Drop for Computing {
    fn drop(&mut self) {
        self.0.store(false, Relaxed);
    }
}

/// The library has as many unimportant requests in hand as the kernel gives it, and a program
/// computes: an urgent request is answered.
async fn handlers_that_do_not_end_keep_no_urgent_request() -> Outcome {
    let server = server(0);
    server.mount(SERVED, ROOT).await?;
    let waits = Waits::new();
    let serving = task::spawn_join(server.serve(Shared(waits.clone())), Priority::DEFAULT);
    let all = UNANSWERED_MAX + MORE;
    let callers = (0..all).map(|index| caller(format!("x{index:04}"), LESS_URGENT));
    let callers: Vec<_> = callers.collect();
    until("the handlers", || Ok(waits.begun.load(Relaxed) >= UNANSWERED_MAX)).await?;
    sleep(Duration::from_millis(20)).await;
    check_equal!(waits.begun.load(Relaxed), UNANSWERED_MAX, "unimportant requests in hand");
    become_level(URGENT as u8).await;
    let computing = Computing::start();
    let urgent = caller("urgent".into(), URGENT);
    check_equal!(soon("the urgent caller", urgent).await??, Some(ENOENT), "what it found");
    check_equal!(waits.begun.load(Relaxed), UNANSWERED_MAX, "unimportant requests in hand");
    drop(computing);
    waits.is_open.store(true, Relaxed);
    for found in soon("the callers", join_all(callers)).await? {
        check_equal!(found?, Some(ENOENT), "what a caller found");
    }
    check_equal!(waits.begun.load(Relaxed), all, "unimportant requests");
    drop(serving);
    Ok(())
}

/// A caller becomes urgent while its request is handled, and something computes.
async fn a_handler_is_as_urgent_as_its_request_becomes() -> Outcome {
    let server = server(0);
    server.mount(SERVED, ROOT).await?;
    let waits = Waits::new();
    let serving = task::spawn_join(server.serve(Shared(waits.clone())), Priority::DEFAULT);
    let asks = caller("r".into(), LESS_URGENT);
    waits.has_begun().await?;
    become_level(URGENT as u8).await;
    let computing = Computing::start();
    task::set_priority(asks.id(), level(URGENT as u8));
    check_equal!(soon("the caller", asks).await??, Some(ENOENT), "what it found");
    drop((computing, serving));
    Ok(())
}

/// The server reads ahead for an unimportant caller a page that an urgent one needs.
async fn a_handler_is_as_urgent_as_the_reader_of_its_page() -> Outcome {
    let server = server(0);
    server.mount_cached(SERVED, ROOT).await?;
    let waits = Waits::new();
    let serving = task::spawn_join(server.serve(Shared(waits.clone())), Priority::DEFAULT);
    let reads = async {
        let mut file = OpenOptions::new().read(true).open("/disk/f").await?;
        let mut part = vec![0; DATA_BYTES_MAX];
        for _ in 0..2 {
            file.read(&mut part).await?;
        }
        Ok::<_, Failure>(())
    };
    let unimportant = task::spawn_join(reads, Priority::saturating(LESS_URGENT));
    soon("the unimportant reads", unimportant).await???;
    waits.has_begun().await?;
    become_level(URGENT as u8).await;
    let mut file = OpenOptions::new().read(true).open("/disk/f").await?;
    file.seek(SeekFrom::Start(2 * DATA_BYTES_MAX as u64)).await?;
    let mut page = [0; 4096];
    let computing = Computing::start();
    let count = soon("the page", file.read(&mut page)).await??;
    check_equal!((count, page[0]), (4096, 7), "what was read");
    check_equal!(waits.begun.load(Relaxed), 1, "requests for the page");
    drop((computing, serving));
    Ok(())
}
