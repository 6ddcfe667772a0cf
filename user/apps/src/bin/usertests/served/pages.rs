//! Pages of served files that the kernel keeps: which reads are requests, and that none finds what
//! was before a change that has ended.

use alloc::vec;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use cops::abi::served::{DATA_BYTES_MAX, Reply, Request, operation};
use cops::fs::File;
use cops::io::AsFd;
use cops::process::Resource;

use super::by_hand::{Hand, later, status};
use super::*;
use crate::raw::{Asked, Handle};

tests! { served:
    pages_are_requested_once,
    pages_are_read_ahead,
    pages_that_are_read_ahead_do_not_come,
    pages_change_with_a_write,
    pages_of_a_reply_from_before_a_write_are_not_kept,
    pages_change_with_a_write_that_was_cancelled,
    pages_end_with_their_file,
    pages_are_those_of_a_file_system,
    pages_are_never_from_before_a_write_that_has_ended,
    pages_of_a_server_that_lies,
    pages_go_with_their_server,
    cancelled_changes_are_charged_until_they_are_answered,
}

pub const PAGE: usize = 4096;
/// Bytes of the file in most tests: two pages and a part of a third one.
pub const LENGTH: usize = 10_000;

/// The contents of a file, of the given age.
pub fn contents(age: u8) -> Vec<u8> {
    (0..LENGTH).map(|at| (at / PAGE) as u8 * 16 + age).collect()
}

/// `/disk/f` of a server by hand.
pub struct Opened {
    pub hand: Hand,
    pub file: File,
    pub memory: Vec<u8>,
}

impl Opened {
    pub async fn new() -> Result<Self, Failure> {
        Self::with(Hand::mounted_cached().await?).await
    }

    /// The file of a server that has just been mounted.
    pub async fn with(mut hand: Hand) -> Result<Self, Failure> {
        let options = async { OpenOptions::new().read(true).write(true).open("/disk/f").await };
        let opening = task::spawn_join(options, Priority::DEFAULT);
        // It looks the name up, and asks whether the file can be changed.
        for _ in 0..2 {
            let (request, rest) = hand.next().await?;
            hand.answer(&request, &rest)?;
        }
        let file = soon("open", opening).await???;
        Ok(Self { hand, file, memory: vec![0; 2 * DATA_BYTES_MAX] })
    }

    fn transfer(&mut self, number: usize, offset: usize, length: usize) -> Asked {
        let place = self.memory.as_mut_ptr().expose_provenance();
        raw::ask(number, [self.file.as_fd().raw() as usize, place, length, offset])
    }

    /// A read that is no request. Returns what it has read.
    pub fn kept(&mut self, offset: usize, length: usize) -> Result<&[u8], Failure> {
        match self.transfer(number::PREAD64, offset, length) {
            Asked::Done(result) => Ok(&self.memory[..result?]),
            Asked::InFlight(handle) => {
                handle.cancel()?;
                Err(Failure(format!("{length} bytes at {offset} are requested")))
            }
        }
    }

    /// A read or write that is a request, which is returned.
    pub async fn asked(
        &mut self,
        number: usize,
        offset: usize,
        length: usize,
    ) -> Result<(Handle, Request), Failure> {
        match self.transfer(number, offset, length) {
            Asked::Done(result) => {
                Err(Failure(format!("{length} bytes at {offset}: {result:?} without a request")))
            }
            Asked::InFlight(handle) => Ok((handle, self.hand.next().await?.0)),
        }
    }

    /// Checks that a read is a request, and cancels it.
    async fn is_asked(&mut self, offset: usize) -> Outcome {
        let (handle, _) = self.asked(number::PREAD64, offset, 1).await?;
        check!(handle.cancel()?, "the read has completed");
        Ok(())
    }

    /// Answers a read of whole pages with what a file has there.
    pub fn fill(&self, request: &Request, contents: &[u8]) -> Outcome {
        check_equal!(request.operation, operation::READ, "the request");
        let from = contents.get(request.first as usize..).unwrap_or_default();
        let data = &from[..from.len().min(request.second as usize)];
        let reply = Reply { id: request.id, ..Reply::default() };
        check_equal!(self.hand.reply(reply, data), Ok(Reply::BYTES + data.len()), "a reply");
        Ok(())
    }

    /// All of a file of this age is kept.
    async fn filled(&mut self, age: u8) -> Outcome {
        let (_, request) = self.asked(number::PREAD64, 0, 1).await?;
        check_equal!((request.first, request.second), (0, 16_384), "what is read");
        self.fill(&request, &contents(age))?;
        check_equal!(self.kept(0, LENGTH)?, &contents(age)[..], "the file");
        Ok(())
    }

    /// Makes a write and answers it.
    pub async fn write(&mut self, offset: usize, length: usize) -> Outcome {
        let (_, request) = self.asked(number::PWRITE64, offset, length).await?;
        self.answer_write(&request)
    }

    pub fn answer_write(&self, request: &Request) -> Outcome {
        check_equal!(request.operation, operation::WRITE, "the request");
        check_equal!(self.hand.answer(request, &[]), Ok(Reply::BYTES), "a reply");
        Ok(())
    }
}

async fn pages_are_requested_once() -> Outcome {
    let mut opened = Opened::new().await?;
    opened.filled(1).await?;
    let all = contents(1);
    for (offset, length) in [(0, 1), (1, PAGE), (PAGE - 1, 2), (100, 9_000), (PAGE, 2 * PAGE)] {
        let end = LENGTH.min(offset + length);
        check_equal!(opened.kept(offset, length)?, &all[offset..end], "{length} at {offset}");
    }
    for (offset, count) in
        [(LENGTH - 3, 3), (LENGTH, 0), (LENGTH + 1, 0), (3 * PAGE, 0), (1 << 40, 0)]
    {
        check_equal!(opened.kept(offset, 100)?.len(), count, "bytes at {offset}");
    }
    // Into two buffers.
    let (mut one, mut other) = ([0u8; 5], [0u8; 7]);
    let parts = [
        [one.as_mut_ptr().expose_provenance(), one.len()],
        [other.as_mut_ptr().expose_provenance(), other.len()],
    ];
    let fd = opened.file.as_fd().raw() as usize;
    let offset = PAGE - 6;
    match raw::ask(number::PREADV, [fd, parts.as_ptr().expose_provenance(), 2, offset]) {
        Asked::Done(result) => check_equal!(result, Ok(12), "bytes in two buffers"),
        Asked::InFlight(_) => return Err(Failure("preadv makes a request".into())),
    }
    check_equal!([&one[..], &other[..]].concat(), &all[offset..offset + 12], "two buffers");
    Ok(())
}

impl Opened {
    /// The first request of a file that is read in order, and those that are read ahead.
    async fn ahead(&mut self, offset: usize, count: usize) -> Result<Vec<Request>, Failure> {
        let (_, own) = self.asked(number::PREAD64, offset, DATA_BYTES_MAX).await?;
        let mut requests = vec![own];
        for _ in 0..count {
            requests.push(self.hand.next().await?.0);
        }
        for (request, at) in requests.iter().zip((offset..).step_by(DATA_BYTES_MAX)) {
            let asked = (request.operation, request.first, request.second);
            let expected = (operation::READ, at as u64, DATA_BYTES_MAX as u64);
            check_equal!(asked, expected, "what is read at {at}");
        }
        Ok(requests)
    }
}

/// Each part of a long file, in order.
async fn pages_are_read_ahead() -> Outcome {
    const PART: usize = DATA_BYTES_MAX;
    let all: Vec<u8> = (0..20 * PART).map(|at| (at / PAGE) as u8).collect();
    let mut opened = Opened::new().await?;
    for request in opened.ahead(0, 0).await? {
        opened.fill(&request, &all)?;
    }
    // The more has been read in order, the more is read ahead.
    let requests = opened.ahead(PART, 1).await?;
    opened.fill(&requests[0], &all)?;
    // A read of what is coming makes no request, and waits.
    let Asked::InFlight(_) = opened.transfer(number::PREAD64, 2 * PART, PART) else {
        return Err(Failure("a read of what is coming does not wait".into()));
    };
    opened.memory[0] = 0xff;
    opened.fill(&requests[1], &all)?;
    until("the read", || Ok(opened.memory[0] == all[2 * PART])).await?;
    check_equal!(opened.kept(PART, PART)?, &all[PART..2 * PART], "the second part");
    for request in opened.ahead(3 * PART, 3).await? {
        opened.fill(&request, &all)?;
    }
    for request in opened.ahead(7 * PART, 5).await? {
        opened.fill(&request, &all)?;
    }
    check_equal!(opened.kept(12 * PART, PART)?, &all[12 * PART..13 * PART], "a part");
    // The file ends there: nothing is asked for behind it.
    for request in opened.ahead(13 * PART, 5).await? {
        opened.fill(&request, &all[..16 * PART + 10])?;
    }
    check_equal!(opened.kept(16 * PART, PART)?, &[64; 10], "the end");
    check_equal!(opened.kept(30 * PART, PART)?.len(), 0, "bytes behind the end");
    Ok(())
}

/// A call that waits for them asks itself if they have changed, and fails if the server goes.
async fn pages_that_are_read_ahead_do_not_come() -> Outcome {
    const PART: usize = DATA_BYTES_MAX;
    let all = vec![1; 4 * PART];
    let mut opened = Opened::new().await?;
    for request in opened.ahead(0, 0).await? {
        opened.fill(&request, &all)?;
    }
    let requests = opened.ahead(PART, 1).await?;
    opened.fill(&requests[0], &all)?;
    let Asked::InFlight(_) = opened.transfer(number::PREAD64, 2 * PART, 1) else {
        return Err(Failure("a read of what is coming does not wait".into()));
    };
    let (_, write) = opened.asked(number::PWRITE64, 2 * PART, 1).await?;
    opened.answer_write(&write)?;
    opened.fill(&requests[1], &all)?;
    // What was read is from before the write.
    let (again, _) = opened.hand.next().await?;
    check_equal!((again.operation, again.first), (operation::READ, 2 * PART as u64), "a request");
    let ahead = opened.hand.next().await?.0;
    check_equal!(ahead.first, 3 * PART as u64, "what is read ahead");
    opened.fill(&again, &all)?;
    let fd = opened.file.as_fd().raw() as usize;
    let place = opened.memory.as_mut_ptr().expose_provenance();
    let read = later(number::PREAD64, [fd, place, 1, 3 * PART]);
    let read = task::spawn_join(read, Priority::DEFAULT);
    task::yield_now().await;
    let Opened { hand, file, .. } = opened;
    hand.close();
    check_equal!(soon("the read", read).await??, Err(EIO), "a read without a server");
    drop(file);
    Ok(())
}

async fn pages_change_with_a_write() -> Outcome {
    let mut opened = Opened::new().await?;
    opened.filled(1).await?;
    let (_, request) = opened.asked(number::PWRITE64, PAGE + 5, 1).await?;
    // Until it has ended, the file may be as before.
    check_equal!(opened.kept(0, LENGTH)?, &contents(1)[..], "the file before the write");
    opened.answer_write(&request)?;
    for offset in [0, PAGE - 1, 2 * PAGE, LENGTH] {
        let expected = contents(1).get(offset).copied();
        check_equal!(opened.kept(offset, 1)?.first().copied(), expected, "byte {offset}");
    }
    let (_, request) = opened.asked(number::PREAD64, PAGE, 1).await?;
    // The page before is kept, so the file seems to be read in order.
    check_equal!((request.first, request.second), (4096, 16_384), "what is read");
    opened.fill(&request, &contents(2))?;
    check_equal!(opened.kept(PAGE, 1)?, &contents(2)[PAGE..=PAGE], "the page that was written");
    check_equal!(opened.kept(0, 1)?, &contents(1)[..1], "another page");
    // One that ends in the page before the last one leaves the end as it was.
    opened.write(PAGE, PAGE).await?;
    check_equal!(opened.kept(LENGTH, 1)?.len(), 0, "bytes at the end");
    // One that goes beyond the end does not.
    opened.write(LENGTH + 50_000, 1).await?;
    opened.is_asked(LENGTH - 1).await?;
    opened.is_asked(LENGTH).await?;
    check_equal!(opened.kept(0, 1)?, &contents(1)[..1], "the first page");
    Ok(())
}

async fn pages_of_a_reply_from_before_a_write_are_not_kept() -> Outcome {
    let mut opened = Opened::new().await?;
    let (_, read) = opened.asked(number::PREAD64, 0, 1).await?;
    let (_, write) = opened.asked(number::PWRITE64, PAGE, 1).await?;
    opened.answer_write(&write)?;
    // The server has read the file before the write, and answers now.
    opened.fill(&read, &contents(1))?;
    until("the read", || Ok(opened.memory[0] == 1)).await?;
    opened.is_asked(0).await?;
    opened.filled(2).await
}

async fn pages_change_with_a_write_that_was_cancelled() -> Outcome {
    let mut opened = Opened::new().await?;
    opened.filled(1).await?;
    let (handle, request) = opened.asked(number::PWRITE64, PAGE, 1).await?;
    check!(handle.cancel()?, "the write has completed");
    check_equal!(opened.kept(0, LENGTH)?, &contents(1)[..], "the file before the answer");
    // The server has performed it nevertheless.
    check_equal!(opened.hand.answer(&request, &[]), Err(ENOENT), "a late reply");
    opened.is_asked(PAGE).await?;
    check_equal!(opened.hand.answer(&request, &[]), Err(ENOENT), "a second one");
    // One that the server has not read is never performed.
    opened.write(0, LENGTH).await?;
    opened.filled(2).await?;
    match opened.transfer(number::PWRITE64, 0, 1) {
        Asked::InFlight(handle) => check!(handle.cancel()?, "the write has completed"),
        Asked::Done(result) => return Err(Failure(format!("a write: {result:?}"))),
    }
    check_equal!(opened.kept(PAGE, 1)?, &contents(2)[PAGE..=PAGE], "the file");
    Ok(())
}

async fn pages_end_with_their_file() -> Outcome {
    let mut opened = Opened::new().await?;
    let fd = opened.file.as_fd().raw() as usize;
    opened.filled(1).await?;
    // Another length.
    let resized = task::spawn_join(later(number::FTRUNCATE, [fd, 5000]), Priority::DEFAULT);
    let (request, rest) = opened.hand.next().await?;
    check_equal!(request.operation, operation::SET_STATUS, "the request");
    opened.hand.answer(&request, &rest)?;
    check_equal!(soon("ftruncate", resized).await??, Ok(0), "ftruncate");
    opened.is_asked(0).await?;
    opened.filled(2).await?;
    // More at the end, where that is.
    let mode = open::APPEND as usize;
    raw::call(number::FCNTL, [fd, 4, mode])?;
    opened.write(0, 100).await?;
    raw::call(number::FCNTL, [fd, 4, 0])?;
    opened.is_asked(0).await?;
    opened.filled(3).await?;
    // Another file that gets the number: the server has deleted this one, and made one.
    let other = async { OpenOptions::new().write(true).create(true).open("/disk/other").await };
    let making = task::spawn_join(other, Priority::DEFAULT);
    loop {
        let (request, rest) = opened.hand.next().await?;
        check_equal!(opened.hand.answer(&request, &rest), Ok(Reply::BYTES), "a reply");
        if request.operation == operation::CREATE {
            break;
        }
    }
    let other = soon("open", making).await???;
    opened.is_asked(0).await?;
    drop(other);
    Ok(())
}

/// The tests of files hold as they do without pages in the kernel.
async fn pages_are_those_of_a_file_system() -> Outcome {
    start_cached_tree().await?.is_a_file_system().await
}

/// How often each page has been written.
static WRITTEN: [AtomicU64; WRITTEN_PAGES] = [const { AtomicU64::new(0) }; WRITTEN_PAGES];
const WRITTEN_PAGES: usize = 6;

/// Reads a page, which has the number of the last write that had ended before, or a later one, in
/// all of its words. Returns the number.
async fn read_written(file: &File, page: usize) -> Result<u64, Failure> {
    let least = WRITTEN[page].load(SeqCst);
    let mut words = vec![0u64; PAGE / 8];
    let place = words.as_mut_ptr().expose_provenance();
    let fd = file.as_fd().raw() as usize;
    let count = later(number::PREAD64, [fd, place, PAGE, page * PAGE]).await?;
    // Before the first write, the file ends before the page.
    let words = &words[..count / 8];
    let found = words.first().copied().unwrap_or(0);
    check!(found >= least, "page {page}: {found} after {least}");
    check!(words.iter().all(|&word| word == found), "page {page}: parts of two writes");
    Ok(found)
}

/// Writers give their pages increasing numbers, and read their page and another one after each
/// write; others only read.
async fn pages_are_never_from_before_a_write_that_has_ended() -> Outcome {
    const ROUNDS: u64 = 100;
    let running = start_cached_tree().await?;
    let options =
        OpenOptions::new().read(true).write(true).create(true).open("/disk/pages").await?;
    let file = Arc::new(options);
    let writers = (0..WRITTEN_PAGES).map(|page| {
        let file = file.clone();
        let writing = async move {
            let fd = file.as_fd().raw() as usize;
            for round in 1..=ROUNDS {
                let words = vec![round; PAGE / 8];
                let place = words.as_ptr().expose_provenance();
                let write = later(number::PWRITE64, [fd, place, PAGE, page * PAGE]);
                check_equal!(write.await, Ok(PAGE), "write {round} of page {page}");
                WRITTEN[page].store(round, SeqCst);
                check_equal!(read_written(&file, page).await?, round, "page {page}");
                read_written(&file, (page + round as usize) % WRITTEN_PAGES).await?;
            }
            Ok(())
        };
        task::spawn_join(writing, Priority::saturating(30 + (page % 3) as u32))
    });
    let writers: Vec<_> = writers.collect();
    let readers = (0..2 * WRITTEN_PAGES).map(|index| {
        let file = file.clone();
        let reading = async move {
            while read_written(&file, index % WRITTEN_PAGES).await? < ROUNDS {
                task::yield_now().await;
            }
            Ok(())
        };
        // Less urgent than all writers, as reads of what is kept never wait.
        task::spawn_join(reading, Priority::saturating(40 + (index % 5) as u32))
    });
    let readers: Vec<_> = readers.collect();
    for ended in soon("the writers", join_all(writers)).await? {
        let ended: Outcome = ended?;
        ended?;
    }
    for ended in soon("the readers", join_all(readers)).await? {
        let ended: Outcome = ended?;
        ended?;
    }
    drop(file);
    running.expect_nodes(1).await
}

/// What such a server says about its files harms the readers of these files only.
async fn pages_of_a_server_that_lies() -> Outcome {
    let mut opened = Opened::new().await?;
    let short = [&b"x"[..], &[]];
    for data in short {
        let (_, request) = opened.asked(number::PREAD64, 2 * PAGE, PAGE).await?;
        let reply = Reply { id: request.id, ..Reply::default() };
        check_equal!(opened.hand.reply(reply, data), Ok(Reply::BYTES + data.len()), "a reply");
        // The file ends there, until it is written.
        check_equal!(opened.kept(2 * PAGE + 1, 1)?.len(), 0, "bytes at the end");
        opened.write(2 * PAGE, 2 * PAGE).await?;
    }
    // More than was asked for.
    let (_, request) = opened.asked(number::PREAD64, 2 * PAGE, PAGE).await?;
    let reply = Reply { id: request.id, ..Reply::default() };
    let more = vec![1; request.second as usize + 1];
    check_equal!(opened.hand.reply(reply, &more), Err(EINVAL), "too much");
    opened.is_asked(2 * PAGE).await?;
    // Writes that end somewhere else, and that were larger than asked for.
    let fd = opened.file.as_fd().raw() as usize;
    raw::call(number::FCNTL, [fd, 4, open::APPEND as usize])?;
    for (value, place) in [(1, u64::MAX), (u64::MAX, 1), (0, 0), (u64::MAX, u64::MAX)] {
        let (_, request) = opened.asked(number::PWRITE64, 0, 1).await?;
        let reply = Reply { id: request.id, value, place, ..Reply::default() };
        check_equal!(opened.hand.reply(reply, &[]), Ok(Reply::BYTES), "a reply");
    }
    raw::call(number::FCNTL, [fd, 4, 0])?;
    // At the end of all files.
    let far = i64::MAX as usize - 10;
    let (_, request) = opened.asked(number::PREAD64, far, 100).await?;
    check!(request.first + request.second <= i64::MAX as u64, "{request:?}");
    let reply = Reply { id: request.id, ..Reply::default() };
    let data = vec![7; request.second as usize];
    check_equal!(opened.hand.reply(reply, &data), Ok(Reply::BYTES + data.len()), "a reply");
    check_equal!(opened.kept(far, 100)?, [7; 10], "the last bytes of all");
    Ok(())
}

async fn pages_go_with_their_server() -> Outcome {
    let mut opened = Opened::new().await?;
    opened.filled(1).await?;
    let Opened { hand, file, .. } = opened;
    hand.close();
    let mut byte = [0u8];
    let fd = file.as_fd().raw() as usize;
    let read = later(number::PREAD64, [fd, byte.as_mut_ptr().expose_provenance(), 1, 0]);
    check_equal!(soon("a read", read).await?, Err(EIO), "a page of a server that is gone");
    Ok(())
}

async fn cancelled_changes_are_charged_until_they_are_answered() -> Outcome {
    const CHANGES: usize = 1000;
    const MADE: &CStr = c"/disk/made";
    const NEW: u64 = 1_000;
    let used = || -> Result<u64, Failure> { Ok(cops::process::quota(0, Resource::Memory)?.used) };
    let mut opened = Opened::new().await?;
    let mut requests = Vec::with_capacity(CHANGES);
    let before = used()?;
    for _ in 0..CHANGES {
        let arguments = [AT_FDCWD as usize, MADE.as_ptr().addr(), 0o777];
        let Asked::InFlight(handle) = raw::ask(number::MKDIRAT, arguments) else {
            return Err(Failure("mkdirat without a request".into()));
        };
        let (request, _) = opened.hand.next().await?;
        check_equal!(request.operation, operation::MAKE_DIRECTORY, "the request");
        check!(handle.cancel()?, "the call has completed");
        requests.push(request.id);
    }
    let more = used()?.saturating_sub(before);
    check!(more >= CHANGES as u64 * 256, "{CHANGES} changes are charged with {more} bytes");
    let (answered, left) = requests.split_at(CHANGES / 2);
    for &id in answered {
        let reply = Reply { id, status: status(NEW), ..Reply::default() };
        check_equal!(opened.hand.reply(reply, &[]), Ok(Reply::BYTES), "a late reply");
    }
    let after = used()?.saturating_sub(before);
    check!(after < more * 3 / 4, "{after} of {more} bytes are charged for {} of them", left.len());
    // The server ends: what it has not answered is freed soon.
    let Opened { hand, file, .. } = opened;
    hand.close();
    drop(file);
    until("no charge", || Ok(used()?.saturating_sub(before) < 1 << 16)).await
}
