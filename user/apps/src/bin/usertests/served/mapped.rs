//! Mapped files of a server by hand: which requests mappings make, and when what was written to
//! them is written back.

use alloc::vec;

use cops::abi::linux::map_flags::FIXED;
use cops::abi::served::{Reply, Request, operation};
use cops::abi::syscall::{map_flags, protection, sync_flags};
use cops::fs::File;
use cops::io::AsFd;
use cops::process::Resource;

use super::by_hand::{honest, later};
use super::kept::of_server;
use super::pages::{LENGTH, Opened, PAGE, contents};
use super::*;
use crate::forks::{Pipe, fork};
use crate::raw::{Asked, peek, poke};

tests! { served:
    mapped_files_are_read_once,
    mapped_pages_are_written_back,
    mapped_pages_of_two_mappings_are_written_back,
    mapped_pages_are_looked_through_in_portions,
    mapped_pages_of_many_callers_are_not_lost,
    mapped_pages_of_many_callers_and_kept_writes_are_not_lost,
    mapped_pages_of_others_stay_dirty,
    mapped_pages_outlive_their_mapping,
    mapped_pages_change_with_a_write,
    mapped_pages_are_not_put_over_a_write,
    mapped_files_are_read_between_changes,
    mapped_pages_appear_when_the_file_grows,
    mapped_files_are_not_cut,
    mappings_that_are_cancelled_reserve_nothing,
    mapped_pages_that_the_server_refuses_stay_dirty,
    mapped_pages_stay_when_their_server_goes,
    mapped_files_are_charged,
}

const PAGES: usize = 4;
const SHARED: usize = map_flags::SHARED;
const RW: usize = protection::READ | protection::WRITE;

impl Opened {
    pub fn fd(&self) -> usize {
        self.file.as_fd().raw() as usize
    }

    /// The next request, which is this operation, and what follows it.
    pub async fn next(&mut self, operation: u16) -> Result<(Request, Vec<u8>), Failure> {
        let (request, rest) = self.hand.next().await?;
        check_equal!(request.operation, operation, "the operation of {request:?}");
        Ok((request, rest))
    }

    fn answer(&self, request: &Request, rest: &[u8]) -> Outcome {
        let (mut reply, data) = honest(request, rest);
        reply.status.size = LENGTH as u64;
        check_equal!(self.hand.reply(reply, &data), Ok(Reply::BYTES + data.len()), "a reply");
        Ok(())
    }

    /// Answers the next request, which is this operation.
    async fn serves(&mut self, operation: u16) -> Result<(Request, Vec<u8>), Failure> {
        let (request, rest) = self.next(operation).await?;
        self.answer(&request, &rest)?;
        Ok((request, rest))
    }

    /// Begins to map the file.
    fn begin_map(&self, flags: usize) -> JoinHandle<Result<usize, Errno>> {
        let arguments = [0, PAGES * PAGE, RW, flags, self.fd(), 0];
        task::spawn_join(later(number::MMAP, arguments), Priority::DEFAULT)
    }

    /// Begins to write `count` bytes of 0x7a at `offset`.
    fn begin_write(&mut self, offset: usize, count: usize) -> JoinHandle<Result<usize, Errno>> {
        self.memory.fill(0x7a);
        let from = self.memory.as_ptr().expose_provenance();
        let arguments = [self.fd(), from, count, offset];
        task::spawn_join(later(number::PWRITE64, arguments), Priority::DEFAULT)
    }

    /// Maps the file without a request.
    async fn map_again(&mut self, flags: usize) -> Result<usize, Failure> {
        let mapping = self.begin_map(flags);
        Ok(soon("mmap", mapping).await???)
    }

    /// Maps the file, of this age, for the first time.
    async fn map(&mut self, age: u8) -> Result<usize, Failure> {
        let mapping = self.begin_map(SHARED);
        self.serves(operation::GET_STATUS).await?;
        let (request, _) = self.next(operation::READ).await?;
        check_equal!((request.first, request.second), (0, 16_384), "what is read");
        self.fill(&request, &contents(age))?;
        Ok(soon("mmap", mapping).await???)
    }

    /// Makes a call that waits, and answers its requests: these operations. Returns those.
    pub async fn serve<const COUNT: usize>(
        &mut self,
        (number, arguments): (usize, [usize; COUNT]),
        operations: &[u16],
    ) -> Result<Vec<(Request, Vec<u8>)>, Failure> {
        let call = task::spawn_join(later(number, arguments), Priority::DEFAULT);
        let mut requests = Vec::new();
        for &operation in operations {
            requests.push(self.serves(operation).await?);
        }
        let result: Result<usize, Errno> = soon("the call", call).await??;
        check!(result.is_ok(), "call {number}: {result:?}");
        Ok(requests)
    }

    /// Writes back, with a call and these operations. Returns where the first one writes, and what.
    async fn sync<const COUNT: usize>(
        &mut self,
        call: (usize, [usize; COUNT]),
        operations: &[u16],
    ) -> Result<(u64, Vec<u8>), Failure> {
        let requests = self.serve(call, operations).await?;
        let first = requests.into_iter().next();
        let (request, data) = first.ok_or(Failure("no request".into()))?;
        Ok((request.first, data))
    }

    pub fn fsync(&self) -> (usize, [usize; 1]) {
        (number::FSYNC, [self.fd()])
    }

    /// There is no request before this one.
    async fn is_quiet(&mut self) -> Outcome {
        let mut bytes = [0u8; 128];
        let place = bytes.as_mut_ptr().expose_provenance();
        self.serve((number::FSTAT, [self.fd(), place]), &[operation::GET_STATUS]).await?;
        Ok(())
    }
}

const WRITTEN: &[u16] = &[operation::WRITE, operation::SYNCHRONISE];
const CLEAN: &[u16] = &[operation::SYNCHRONISE];

fn msync(at: usize) -> (usize, [usize; 3]) {
    (number::MSYNC, [at, PAGES * PAGE, sync_flags::SYNC])
}

fn unmap(at: usize) -> Outcome {
    check_equal!(raw::call(number::MUNMAP, [at, PAGES * PAGE]), Ok(0), "munmap");
    Ok(())
}

/// The bytes of the word at `at`.
fn bytes_at(at: usize) -> [u8; 8] {
    peek(at).to_ne_bytes()
}

/// The mapping has this file, with zeros behind its end.
fn has(at: usize, expected: &[u8]) -> Outcome {
    for offset in (0..3 * PAGE).step_by(8) {
        let byte = |at: usize| expected.get(at).copied().unwrap_or(0);
        let expected: [u8; 8] = core::array::from_fn(|index| byte(offset + index));
        check_equal!(bytes_at(at + offset), expected, "the bytes at {offset}");
    }
    Ok(())
}

async fn mapped_files_are_read_once() -> Outcome {
    let mut opened = Opened::new().await?;
    let at = opened.map(1).await?;
    has(at, &contents(1))?;
    // Other mappings, and reads, find the same pages.
    let (another, private) =
        (opened.map_again(SHARED).await?, opened.map_again(map_flags::PRIVATE).await?);
    has(another, &contents(1))?;
    has(private, &contents(1))?;
    poke(private, 7);
    poke(at + PAGE, 0x2222_2222_2222_2222);
    check_equal!(opened.kept(PAGE, 9)?, [&[0x22; 8][..], &[17]].concat(), "what was written");
    check_equal!(bytes_at(another + PAGE), [0x22; 8], "in another mapping");
    check_equal!(opened.kept(0, 8)?, [1; 8], "what was written to a private mapping");
    check_equal!(opened.kept(LENGTH - 2, 100)?, [33; 2], "the end");
    check_equal!(opened.kept(LENGTH, 100)?.len(), 0, "bytes behind the end");
    // Behind the end of the file there is nothing.
    let beyond = raw::call(number::GETRANDOM, [at + 3 * PAGE, 8, 0]);
    check_equal!(beyond, Err(EFAULT), "behind the end");
    for at in [at, another, private] {
        unmap(at)?;
    }
    check_equal!(opened.serves(operation::WRITE).await?.0.first, PAGE as u64, "what is written");
    opened.is_quiet().await?;
    // The kept pages are as good as those of the server, also those that were written.
    let mapping = opened.begin_map(SHARED);
    opened.serves(operation::GET_STATUS).await?;
    let at = soon("mmap", mapping).await???;
    check_equal!((bytes_at(at), bytes_at(at + PAGE)), ([1; 8], [0x22; 8]), "the pages");
    unmap(at)
}

async fn mapped_pages_are_written_back() -> Outcome {
    let mut opened = Opened::new().await?;
    let at = opened.map(1).await?;
    opened.sync(opened.fsync(), CLEAN).await?;
    opened.sync(msync(at), CLEAN).await?;
    let mut expected = contents(1);
    poke(at + PAGE + 8, 0x3333_3333_3333_3333);
    expected[PAGE + 8..PAGE + 16].fill(0x33);
    let page = (PAGE as u64, expected[PAGE..2 * PAGE].to_vec());
    check_equal!(opened.sync(opened.fsync(), WRITTEN).await?, page, "what fsync writes");
    // The mapping can still be written without a fault.
    check_equal!(opened.sync(opened.fsync(), WRITTEN).await?, page, "what fsync writes again");
    check_equal!(
        opened.sync((number::SYNC, []), &[operation::WRITE, operation::SYNCHRONISE_ALL]).await?,
        page,
        "what sync writes"
    );
    check_equal!(opened.sync(msync(at), WRITTEN).await?, page, "what msync writes");
    // It has made the mapping read-only, until the next write.
    opened.sync(msync(at), CLEAN).await?;
    opened.sync(opened.fsync(), CLEAN).await?;
    poke(at + PAGE + 8, 0x4444_4444_4444_4444);
    expected[PAGE + 8..PAGE + 16].fill(0x44);
    let page = (PAGE as u64, expected[PAGE..2 * PAGE].to_vec());
    check_equal!(opened.sync(msync(at), WRITTEN).await?, page, "what msync writes");
    // Pages in order are one request, which ends with the file.
    for page in 0..3 {
        poke(at + page * PAGE, 0x5555_5555_5555_5555);
        expected[page * PAGE..page * PAGE + 8].fill(0x55);
    }
    poke(at + 3 * PAGE - 8, 1);
    check_equal!(opened.sync(msync(at), WRITTEN).await?, (0, expected.clone()), "three pages");
    // What a call writes into a mapping is written by the program.
    check_equal!(raw::call(number::GETRANDOM, [at + 16, 8, 0]), Ok(8), "getrandom");
    expected[16..24].copy_from_slice(&bytes_at(at + 16));
    let first = (0, expected[..PAGE].to_vec());
    check_equal!(opened.sync(msync(at), WRITTEN).await?, first, "what a call has written");
    // Rights that are taken and returned leave nothing out.
    for rights in [protection::READ, RW] {
        raw::call(number::MPROTECT, [at, PAGES * PAGE, rights])?;
    }
    poke(at, 0x6666_6666_6666_6666);
    expected[..8].fill(0x66);
    let first = (0, expected[..PAGE].to_vec());
    check_equal!(opened.sync(msync(at), WRITTEN).await?, first, "after mprotect");
    opened.sync(msync(at), CLEAN).await?;
    unmap(at)?;
    opened.is_quiet().await
}

/// `msync` of two mappings, of which another call is writing back the first one.
async fn mapped_pages_of_two_mappings_are_written_back() -> Outcome {
    const HALF: usize = PAGES * PAGE;
    let mut opened = Opened::new().await?;
    let anonymous = map_flags::PRIVATE | map_flags::ANONYMOUS;
    let at = raw::call(number::MMAP, [0, 2 * HALF, RW, anonymous, usize::MAX, 0])?;
    let map = |at: usize| [at, HALF, RW, SHARED | FIXED, opened.fd(), 0];
    let [first, second] = [at, at + HALF].map(map);
    let mapping = task::spawn_join(later(number::MMAP, first), Priority::DEFAULT);
    opened.serves(operation::GET_STATUS).await?;
    let (request, _) = opened.next(operation::READ).await?;
    opened.fill(&request, &contents(1))?;
    check_equal!(soon("mmap", mapping).await??, Ok(at), "the first mapping");
    let mapping = later(number::MMAP, second);
    check_equal!(soon("mmap", mapping).await?, Ok(at + HALF), "the second mapping");
    poke(at, 7);
    let sync = |length: usize| {
        let arguments = [at, length, sync_flags::SYNC];
        task::spawn_join(later(number::MSYNC, arguments), Priority::DEFAULT)
    };
    let one = sync(HALF);
    let (write, data) = opened.next(operation::WRITE).await?;
    let both = sync(2 * HALF);
    // The second call waits for the turn.
    opened.is_quiet().await?;
    opened.answer(&write, &data)?;
    for _ in 0..3 {
        opened.serves(operation::SYNCHRONISE).await?;
    }
    for syncing in [one, both] {
        check_equal!(soon("msync", syncing).await??, Ok(0), "msync");
    }
    unmap(at)?;
    unmap(at + HALF)
}

/// A durable write of a file with many pages, of which the last one is dirty.
async fn mapped_pages_are_looked_through_in_portions() -> Outcome {
    const MANY: usize = 200;
    let mut opened = Opened::new().await?;
    let arguments = [0, MANY * PAGE, RW, SHARED, opened.fd(), 0];
    let mapping = task::spawn_join(later(number::MMAP, arguments), Priority::DEFAULT);
    let (request, rest) = opened.next(operation::GET_STATUS).await?;
    let (mut reply, data) = honest(&request, &rest);
    reply.status.size = ((MANY + 1) * PAGE) as u64;
    check_equal!(opened.hand.reply(reply, &data), Ok(Reply::BYTES), "a reply");
    let all = vec![1; MANY * PAGE];
    for _ in 0..MANY / PAGES {
        let (request, _) = opened.next(operation::READ).await?;
        opened.fill(&request, &all)?;
    }
    let at = soon("mmap", mapping).await???;
    poke(at + (MANY - 1) * PAGE, 7);
    let path = c"/disk/f".as_ptr().expose_provenance();
    let flags = (open::READ_WRITE | open::DATA_DURABLE) as usize;
    let opening = later(number::OPENAT, [AT_FDCWD as usize, path, flags, 0]);
    let opening = task::spawn_join(opening, Priority::DEFAULT);
    opened.serves(operation::LOOK_UP).await?;
    opened.serves(operation::SET_STATUS).await?;
    let fd = soon("open", opening).await???;
    let place = opened.memory.as_ptr().expose_provenance();
    let writing = later(number::PWRITE64, [fd, place, PAGE, MANY * PAGE]);
    let writing = task::spawn_join(writing, Priority::DEFAULT);
    opened.serves(operation::WRITE).await?;
    let (back, _) = opened.serves(operation::WRITE).await?;
    check_equal!(back.first, ((MANY - 1) * PAGE) as u64, "what is written back");
    opened.serves(operation::SYNCHRONISE).await?;
    check_equal!(soon("pwrite", writing).await??, Ok(PAGE), "pwrite");
    raw::call(number::CLOSE, [fd])?;
    check_equal!(raw::call(number::MUNMAP, [at, MANY * PAGE]), Ok(0), "munmap");
    Ok(())
}

/// The words of a page that the test writes and reads.
const CHECKED: [usize; 2] = [0, PAGE - 8];

/// One of several callers: gives its page of the file increasing numbers, through a mapping or with
/// a write, and finds the last one each time. The numbers of the others never become less.
async fn changes_a_page(file: Arc<File>, own: usize, (callers, rounds): (usize, u64)) -> Outcome {
    let fd = file.as_fd().raw() as usize;
    let mut seen = vec![0; callers];
    for round in 1..=rounds {
        if (round as usize + own).is_multiple_of(3) {
            let words = vec![round; PAGE / 8];
            let place = words.as_ptr().expose_provenance();
            let write = later(number::PWRITE64, [fd, place, PAGE, own * PAGE]).await;
            check_equal!(write, Ok(PAGE), "write {round} of page {own}");
        } else {
            let at = later(number::MMAP, [0, callers * PAGE, RW, SHARED, fd, 0]).await?;
            for (page, seen) in seen.iter_mut().enumerate() {
                let found = peek(at + page * PAGE);
                check!(found >= *seen, "page {page}: {found} after {seen}");
                *seen = found;
            }
            check_equal!(seen[own], round - 1, "page {own} in its mapping");
            for word in CHECKED {
                poke(at + own * PAGE + word, round);
            }
            if round % 4 == 0 {
                let sync = [at, callers * PAGE, sync_flags::SYNC];
                check_equal!(later(number::MSYNC, sync).await, Ok(0), "msync");
            }
            check_equal!(raw::call(number::MUNMAP, [at, callers * PAGE]), Ok(0), "munmap");
        }
        if round.is_multiple_of(2) {
            check_equal!(later(number::FSYNC, [fd]).await, Ok(0), "fsync");
        }
        let mut words = vec![0u64; PAGE / 8];
        let place = words.as_mut_ptr().expose_provenance();
        let read = later(number::PREAD64, [fd, place, PAGE, own * PAGE]).await;
        check_equal!(read, Ok(PAGE), "read {round} of page {own}");
        check_equal!(CHECKED.map(|word| words[word / 8]), [round; 2], "page {own}");
    }
    Ok(())
}

/// Callers on all harts map, write, synchronise and read a file at the same time, in a bounded
/// number of rounds.
async fn mapped_pages_of_many_callers_are_not_lost() -> Outcome {
    are_not_lost(start_cached_tree().await?).await
}

/// The same, and the kernel keeps the writes.
async fn mapped_pages_of_many_callers_and_kept_writes_are_not_lost() -> Outcome {
    are_not_lost(start_tree_keeping_writes().await?).await
}

async fn are_not_lost(running: Running) -> Outcome {
    const CALLERS: usize = 6;
    const ROUNDS: u64 = 60;
    let options = OpenOptions::new().read(true).write(true).create(true).open("/disk/shared");
    let file = Arc::new(options.await?);
    file.set_len((CALLERS * PAGE) as u64).await?;
    let callers = (0..CALLERS).map(|own| {
        let calls = changes_a_page(file.clone(), own, (CALLERS, ROUNDS));
        task::spawn_join(calls, Priority::saturating(30 + (own % 3) as u32))
    });
    let callers: Vec<_> = callers.collect();
    for ended in soon("the callers", join_all(callers)).await? {
        let ended: Outcome = ended?;
        ended?;
    }
    let fd = file.as_fd().raw() as usize;
    check_equal!(later(number::FSYNC, [fd]).await, Ok(0), "fsync");
    let found = of_server(&running, &file, CALLERS * PAGE).await?;
    check_equal!(found.len(), CALLERS * PAGE, "the length");
    for page in 0..CALLERS {
        for word in CHECKED.map(|word| page * PAGE + word) {
            let bytes = found[word..].first_chunk().copied().unwrap_or_default();
            check_equal!(u64::from_le_bytes(bytes), ROUNDS, "page {page} of the server");
        }
    }
    drop(file);
    running.expect_nodes(1).await
}

/// What another mapping can still write is written again by the next call.
async fn mapped_pages_of_others_stay_dirty() -> Outcome {
    let mut opened = Opened::new().await?;
    let at = opened.map(1).await?;
    let (written, end) = (Pipe::new()?, Pipe::new()?);
    poke(at, 0x1111_1111_1111_1111);
    let child = fork(|| {
        poke(at, 0x2222_2222_2222_2222);
        let _ = written.signal();
        let _ = end.wait();
        0
    })?;
    written.wait()?;
    for time in ["once", "once more"] {
        check_equal!(opened.sync(msync(at), WRITTEN).await?.1[..8], [0x22; 8], "{time}");
    }
    end.signal()?;
    check_equal!(raw::call(number::WAIT4, [child as usize, 0, 0, 0]), Ok(child as usize), "wait");
    written.close();
    end.close();
    Ok(())
}

async fn mapped_pages_outlive_their_mapping() -> Outcome {
    let mut opened = Opened::new().await?;
    let at = opened.map(1).await?;
    poke(at + 2 * PAGE, 0x7777_7777_7777_7777);
    unmap(at)?;
    let (write, data) = opened.next(operation::WRITE).await?;
    check_equal!((write.first, data.len()), (2 * PAGE as u64, LENGTH - 2 * PAGE), "the write");
    check_equal!(data[..8], [0x77; 8], "what is written");
    // Until the server has it, a read finds it here, and another length has to wait.
    check_equal!(opened.kept(2 * PAGE, 8)?, [0x77; 8], "what a read finds");
    let cut = task::spawn_join(later(number::FTRUNCATE, [opened.fd(), 100]), Priority::DEFAULT);
    opened.is_quiet().await?;
    opened.answer(&write, &data)?;
    let (cutting, rest) = opened.next(operation::SET_STATUS).await?;
    opened.answer(&cutting, &rest)?;
    check_equal!(soon("ftruncate", cut).await??, Ok(0), "ftruncate");
    opened.is_quiet().await
}

/// A write through the file is seen by mappings when it has ended.
async fn mapped_pages_change_with_a_write() -> Outcome {
    let mut opened = Opened::new().await?;
    let at = opened.map(1).await?;
    opened.memory.fill(0x7a);
    let (_, request) = opened.asked(number::PWRITE64, PAGE - 4, 16).await?;
    has(at, &contents(1))?;
    opened.answer_write(&request)?;
    let mut expected = contents(1);
    expected[PAGE - 4..PAGE + 12].fill(0x7a);
    has(at, &expected)?;
    // Of one of which the server has performed a part, that part.
    let (_, request) = opened.asked(number::PWRITE64, 100, 50).await?;
    let reply = Reply { id: request.id, value: 10, ..Reply::default() };
    check_equal!(opened.hand.reply(reply, &[]), Ok(Reply::BYTES), "a reply");
    expected[100..110].fill(0x7a);
    has(at, &expected)?;
    // One that the server refuses.
    let (_, request) = opened.asked(number::PWRITE64, 200, 50).await?;
    let reply = Reply { id: request.id, error: 28, ..Reply::default() };
    check_equal!(opened.hand.reply(reply, &[]), Ok(Reply::BYTES), "a reply");
    has(at, &expected)?;
    // What another write has changed meanwhile is not lost with a page that is written back.
    poke(at + 2 * PAGE, 0x1010_1010_1010_1010);
    expected[2 * PAGE..2 * PAGE + 8].fill(0x10);
    opened.sync(msync(at), WRITTEN).await?;
    poke(at + 2 * PAGE, 0x1212_1212_1212_1212);
    expected[2 * PAGE..2 * PAGE + 8].fill(0x12);
    let (number, arguments) = msync(at);
    let syncing = task::spawn_join(later(number, arguments), Priority::DEFAULT);
    let (back, _) = opened.next(operation::WRITE).await?;
    let writing = opened.begin_write(2 * PAGE + 8, 8);
    opened.is_quiet().await?;
    opened.answer(&back, &[])?;
    expected[2 * PAGE + 8..2 * PAGE + 16].fill(0x7a);
    // Now both go on.
    for _ in 0..2 {
        let (request, rest) = opened.hand.next().await?;
        match request.operation {
            operation::WRITE => opened.answer_write(&request)?,
            _ => opened.answer(&request, &rest)?,
        }
    }
    check_equal!(soon("msync", syncing).await??, Ok(0), "msync");
    check_equal!(soon("pwrite", writing).await??, Ok(8), "pwrite");
    has(at, &expected)?;
    let page = (2 * PAGE as u64, expected[2 * PAGE..].to_vec());
    check_equal!(opened.sync(msync(at), WRITTEN).await?, page, "both");
    unmap(at)
}

/// What mappings have left is not sent while a write is under way: the server could perform both in
/// one order, and reply in the other one.
async fn mapped_pages_are_not_put_over_a_write() -> Outcome {
    let mut opened = Opened::new().await?;
    let at = opened.map(1).await?;
    poke(at + 2 * PAGE, 0x1313_1313_1313_1313);
    opened.memory.fill(0x7a);
    let (_, write) = opened.asked(number::PWRITE64, 2 * PAGE + 8, 8).await?;
    unmap(at)?;
    opened.is_quiet().await?;
    opened.answer_write(&write)?;
    let (back, data) = opened.serves(operation::WRITE).await?;
    check_equal!((back.first, data.len()), (2 * PAGE as u64, LENGTH - 2 * PAGE), "what is sent");
    check_equal!((&data[..8], &data[8..16]), (&[0x13; 8][..], &[0x7a; 8][..]), "both writes");
    opened.is_quiet().await
}

/// A file is read for a mapping when the server has answered what changes it, also if the call has
/// gone; and what changes it waits for the reads.
async fn mapped_files_are_read_between_changes() -> Outcome {
    let mut opened = Opened::new().await?;
    let (handle, write) = opened.asked(number::PWRITE64, PAGE, 8).await?;
    let mapping = opened.begin_map(SHARED);
    opened.is_quiet().await?;
    check!(handle.cancel()?, "the write has completed");
    opened.is_quiet().await?;
    let reply = Reply { id: write.id, value: 8, ..Reply::default() };
    check_equal!(opened.hand.reply(reply, &[]), Err(ENOENT), "a late reply");
    let (status, rest) = opened.next(operation::GET_STATUS).await?;
    let writing = opened.begin_write(8, 8);
    let arguments = [opened.fd(), 4 * PAGE];
    let cut = task::spawn_join(later(number::FTRUNCATE, arguments), Priority::DEFAULT);
    opened.is_quiet().await?;
    opened.answer(&status, &rest)?;
    // The read, the write and the change of the length, one after the other.
    let mut served = contents(1);
    for _ in 0..3 {
        let (request, rest) = opened.hand.next().await?;
        opened.is_quiet().await?;
        match request.operation {
            operation::READ => opened.fill(&request, &served)?,
            operation::WRITE => {
                served[8..16].fill(0x7a);
                opened.answer_write(&request)?;
            }
            _ => {
                served.resize(4 * PAGE, 0);
                opened.answer(&request, &rest)?;
            }
        }
    }
    let at = soon("mmap", mapping).await???;
    check_equal!(soon("pwrite", writing).await??, Ok(8), "pwrite");
    check_equal!(soon("ftruncate", cut).await??, Ok(0), "ftruncate");
    check_equal!((bytes_at(at), bytes_at(at + 8)), ([1; 8], [0x7a; 8]), "what was written");
    check_equal!(bytes_at(at + 3 * PAGE), [0; 8], "a new page");
    unmap(at)
}

/// Pages behind the end come into being with it.
async fn mapped_pages_appear_when_the_file_grows() -> Outcome {
    let mut opened = Opened::new().await?;
    let at = opened.map(1).await?;
    let last = at + 3 * PAGE;
    let is_there = || raw::call(number::GETRANDOM, [last + 8, 1, 0]);
    check_equal!(is_there(), Err(EFAULT), "the last page");
    // In the page in which the file ends.
    opened.memory.fill(0x7a);
    opened.write(LENGTH, 8).await?;
    check_equal!(bytes_at(at + LENGTH), [0x7a; 8], "what was written");
    check_equal!(is_there(), Err(EFAULT), "the last page");
    // In a page behind it, at the end of the file.
    raw::call(number::FCNTL, [opened.fd(), 4, open::APPEND as usize])?;
    let (_, request) = opened.asked(number::PWRITE64, 0, 8).await?;
    let place = 3 * PAGE as u64 + 16;
    let reply = Reply { id: request.id, value: 8, place, ..Reply::default() };
    check_equal!(opened.hand.reply(reply, &[]), Ok(Reply::BYTES), "a reply");
    raw::call(number::FCNTL, [opened.fd(), 4, 0])?;
    check_equal!((bytes_at(last), bytes_at(last + 8)), ([0; 8], [0x7a; 8]), "a new page");
    unmap(at)?;
    // Dirty, since it was not the server that it came from.
    let (request, _) = opened.serves(operation::WRITE).await?;
    check_equal!(request.first, 2 * PAGE as u64, "what is written back");
    opened.is_quiet().await
}

async fn mapped_files_are_not_cut() -> Outcome {
    let mut opened = Opened::new().await?;
    let at = opened.map(1).await?;
    let fd = opened.fd();
    let cut = later(number::FTRUNCATE, [fd, LENGTH - 1]);
    check_equal!(soon("ftruncate", cut).await?, Err(ETXTBSY), "a shorter file");
    let longer = (number::FTRUNCATE, [fd, 4 * PAGE]);
    opened.serve(longer, &[operation::SET_STATUS]).await?;
    check_equal!(bytes_at(at + 3 * PAGE), [0; 8], "a new page");
    unmap(at)?;
    opened.serve((number::FTRUNCATE, [fd, 1]), &[operation::SET_STATUS]).await?;
    opened.is_quiet().await
}

async fn mappings_that_are_cancelled_reserve_nothing() -> Outcome {
    // More than one portion of the call replaces.
    const REPLACED: usize = 80;
    let mut opened = Opened::new().await?;
    // It keeps the pages, so the others need no request.
    let at = opened.map(1).await?;
    for pause in 0..40 {
        let area = raw::map(REPLACED)?;
        for page in 0..REPLACED {
            poke(area + page * PAGE, 1);
        }
        let arguments = [area, REPLACED * PAGE, RW, SHARED | FIXED, opened.fd(), 0];
        let Asked::InFlight(handle) = raw::ask(number::MMAP, arguments) else {
            return Err(Failure("mmap does not wait".into()));
        };
        for _ in 0..pause / 4 {
            task::yield_now().await;
        }
        // Later ones are complete.
        let is_cancelled = handle.cancel()?;
        check!(is_cancelled || pause > 0, "the first one has completed");
        check_equal!(raw::call(number::MUNMAP, [area, REPLACED * PAGE]), Ok(0), "munmap");
    }
    unmap(at)
}

async fn mapped_pages_that_the_server_refuses_stay_dirty() -> Outcome {
    let mut opened = Opened::new().await?;
    let at = opened.map(1).await?;
    for page in 0..3 {
        poke(at + page * PAGE, 0x5555_5555_5555_5555);
    }
    let refused = [(28, 0, ENOSPC), (5, 0, EIO), (0, 0, EIO), (0, PAGE as u64 - 1, EIO)];
    for (error, value, expected) in refused {
        let (number, arguments) = msync(at);
        let syncing = task::spawn_join(later(number, arguments), Priority::DEFAULT);
        let (request, _) = opened.next(operation::WRITE).await?;
        check_equal!((request.first, request.second), (0, LENGTH as u64), "what is written");
        let reply = Reply { id: request.id, error, value, ..Reply::default() };
        check_equal!(opened.hand.reply(reply, &[]), Ok(Reply::BYTES), "a reply");
        check_equal!(soon("msync", syncing).await??, Err(expected), "msync");
    }
    // A part of it: the rest follows.
    let (number, arguments) = msync(at);
    let syncing = task::spawn_join(later(number, arguments), Priority::DEFAULT);
    let (request, _) = opened.next(operation::WRITE).await?;
    let reply = Reply { id: request.id, value: 5000, ..Reply::default() };
    check_equal!(opened.hand.reply(reply, &[]), Ok(Reply::BYTES), "a reply");
    let (request, _) = opened.serves(operation::WRITE).await?;
    let rest = (PAGE as u64, (LENGTH - PAGE) as u64);
    check_equal!((request.first, request.second), rest, "what is written then");
    opened.serves(operation::SYNCHRONISE).await?;
    check_equal!(soon("msync", syncing).await??, Ok(0), "msync");
    // One that is cancelled while the server has it.
    poke(at, 1);
    let [number, at_, length, flags] = [number::MSYNC, at, PAGE, sync_flags::SYNC];
    let Asked::InFlight(handle) = raw::ask(number, [at_, length, flags]) else {
        return Err(Failure("msync does not wait".into()));
    };
    let (request, rest) = opened.next(operation::WRITE).await?;
    check!(handle.cancel()?, "msync has completed");
    // The next one waits until that is answered.
    check_equal!(opened.hand.answer(&request, &rest), Err(ENOENT), "a late reply");
    opened.sync(msync(at), WRITTEN).await?;
    opened.sync(msync(at), CLEAN).await?;
    unmap(at)
}

async fn mapped_pages_stay_when_their_server_goes() -> Outcome {
    let mut opened = Opened::new().await?;
    let at = opened.map(1).await?;
    poke(at + 8, 0x3333_3333_3333_3333);
    let fd = opened.fd();
    let Opened { hand, file, .. } = opened;
    hand.close();
    check_equal!((bytes_at(at), bytes_at(at + 8)), ([1; 8], [0x33; 8]), "the mapping");
    let arguments = [0, PAGE, RW, SHARED, fd, 64 * PAGE];
    let more = soon("mmap", later(number::MMAP, arguments)).await?;
    check!(more.is_err() || more.is_ok_and(|at| at > 0), "{more:?}");
    let (number, arguments) = msync(at);
    check_equal!(soon("msync", later(number, arguments)).await?, Err(EIO), "msync");
    unmap(at)?;
    drop(file);
    Ok(())
}

/// The process that maps a file pays for its pages, and a mapping beyond its quota fails.
async fn mapped_files_are_charged() -> Outcome {
    let used = || -> Result<u64, Failure> { Ok(cops::process::quota(0, Resource::Memory)?.used) };
    let mut opened = Opened::new().await?;
    let before = used()?;
    let at = opened.map(1).await?;
    let more = used()?.saturating_sub(before);
    check!(more >= 3 * PAGE as u64, "{more} bytes are charged for 3 pages");
    unmap(at)?;
    until("no charge", || Ok(used()?.saturating_sub(before) < 2 * PAGE as u64)).await
}
