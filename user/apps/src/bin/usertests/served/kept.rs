//! Writes that the kernel keeps: which writes are requests, when the others are sent, and that none
//! is lost.

use alloc::vec;

use cops::abi::file::{Status, Time};
use cops::abi::served::{ASKS_FOR_SOLID, Reply, Request, WRITTEN_AT, operation};
use cops::fs::File;
use cops::fs::server::FileSystem;
use cops::io::AsFd;
use cops::process::Resource;

use super::by_hand::{Hand, later, status};
use super::ends::calls_of;
use super::pages::{LENGTH, Opened, PAGE, contents};
use super::*;
use crate::programs::execute;
use crate::raw::Asked;

tests! { served:
    kept_writes_are_sent_by_fsync,
    kept_writes_are_within_what_needs_no_space,
    kept_writes_need_the_rest_of_a_page,
    kept_writes_are_in_the_status,
    kept_writes_that_the_server_refuses_stay,
    kept_writes_that_the_server_counts_wrongly_stay,
    kept_writes_of_a_closed_file_are_sent,
    kept_writes_and_another_length,
    kept_writes_do_not_overtake_those_of_a_call_that_has_gone,
    kept_writes_wait_for_those_that_are_being_sent,
    kept_writes_are_not_put_over_a_write_that_is_a_request,
    kept_writes_come_before_a_write_that_is_a_request,
    kept_writes_come_after_a_write_of_a_call_that_has_gone,
    kept_writes_of_a_program_are_waited_for,
    kept_pages_have_a_limit,
    kept_pages_are_charged,
    kept_writes_are_those_of_a_file_system,
    kept_writes_are_those_of_a_model,
    durable_writes_are_not_kept,
}

/// A file of which so many bytes need no more space, as the server says.
struct Kept {
    opened: Opened,
    length: usize,
    solid: usize,
    /// When it was made: before all writes.
    begun: Time,
}

impl Kept {
    async fn new(length: usize, solid: usize) -> Result<Self, Failure> {
        let begun = cops::fs::server::now();
        let opened = Opened::with(Hand::mounted_keeping_writes().await?).await?;
        Ok(Self { opened, length, solid, begun })
    }

    /// The file of the other tests, of which all pages are kept.
    async fn filled() -> Result<Self, Failure> {
        let mut this = Self::new(LENGTH, LENGTH).await?;
        let (_, request) = this.opened.asked(number::PREAD64, 0, 1).await?;
        this.opened.fill(&request, &contents(1))?;
        this.begin().await?;
        Ok(this)
    }

    /// The first write asks for the length.
    async fn begin(&mut self) -> Outcome {
        self.opened.memory.fill(0x77);
        let place = self.opened.memory.as_ptr().expose_provenance();
        let writing = self.begins(number::PWRITE64, [self.opened.fd(), place, PAGE, 0]);
        let (request, _) = self.opened.next(operation::GET_STATUS).await?;
        self.answers_status(&request)?;
        // Until then its bytes are taken from the memory, on any hart.
        check_equal!(soon("the write", writing).await??, Ok(PAGE), "the write");
        self.has(0, &[0x77; PAGE])
    }

    fn answers_status(&self, request: &Request) -> Outcome {
        check_equal!(request.operation, operation::GET_STATUS, "the request");
        // Blocks of the status promise nothing.
        let size = self.length as u64;
        let status = Status { size, blocks: size.div_ceil(512), ..status(2) };
        let value = if request.flags & ASKS_FOR_SOLID != 0 { self.solid as u64 } else { 0 };
        let reply = Reply { id: request.id, status, value, ..Reply::default() };
        check_equal!(self.opened.hand.reply(reply, &[]), Ok(Reply::BYTES), "a reply");
        Ok(())
    }

    /// A write that is no request, of bytes of this value.
    fn writes(&mut self, offset: usize, length: usize, value: u8) -> Outcome {
        self.opened.memory.fill(value);
        let place = self.opened.memory.as_ptr().expose_provenance();
        match raw::ask(number::PWRITE64, [self.opened.fd(), place, length, offset]) {
            Asked::Done(result) => check_equal!(result, Ok(length), "a write at {offset}"),
            Asked::InFlight(handle) => {
                handle.cancel()?;
                return Err(Failure(format!("{length} bytes at {offset} are requested")));
            }
        }
        Ok(())
    }

    /// The file has this, which is read without a request.
    fn has(&mut self, offset: usize, expected: &[u8]) -> Outcome {
        self.opened.memory.fill(0);
        check_equal!(self.opened.kept(offset, expected.len())?, expected, "bytes at {offset}");
        Ok(())
    }

    /// The next request is a write of the kernel's. Returns it with its data.
    async fn sent(&mut self) -> Result<(Request, Vec<u8>), Failure> {
        let (request, data) = self.opened.next(operation::WRITE).await?;
        check_equal!(request.flags, WRITTEN_AT, "flags");
        let (seconds, nanoseconds) =
            (request.second / 1_000_000_000, request.second % 1_000_000_000);
        let written = Time { seconds: seconds as i64, nanoseconds: nanoseconds as u32 };
        let possible = self.begun..=cops::fs::server::now();
        check!(possible.contains(&written), "it was written at {written:?}, not {possible:?}");
        Ok((request, data))
    }

    fn takes(&self, request: &Request, bytes: usize) -> Outcome {
        let reply = Reply { id: request.id, value: bytes as u64, ..Reply::default() };
        check_equal!(self.opened.hand.reply(reply, &[]), Ok(Reply::BYTES), "a reply");
        Ok(())
    }

    fn refuses(&self, request: &Request, error: u32) -> Outcome {
        let reply = Reply { id: request.id, error, ..Reply::default() };
        check_equal!(self.opened.hand.reply(reply, &[]), Ok(Reply::BYTES), "a reply");
        Ok(())
    }

    /// Begins a call.
    fn begins<const COUNT: usize>(
        &self,
        number: usize,
        arguments: [usize; COUNT],
    ) -> JoinHandle<Result<usize, Errno>> {
        task::spawn_join(later(number, arguments), Priority::DEFAULT)
    }

    fn begins_fsync(&self) -> JoinHandle<Result<usize, Errno>> {
        self.begins(number::FSYNC, [self.opened.fd()])
    }

    /// The next request is this one, which succeeds.
    async fn serves(&mut self, operation: u16) -> Outcome {
        let (request, rest) = self.opened.next(operation).await?;
        self.opened.hand.answer(&request, &rest)?;
        Ok(())
    }

    /// There is no request before this one.
    async fn is_quiet(&mut self) -> Outcome {
        let mut bytes = [0u8; 128];
        let place = bytes.as_mut_ptr().expose_provenance();
        let asking = self.begins(number::FSTATFS, [self.opened.fd(), place]);
        self.serves(operation::USAGE).await?;
        check_equal!(soon("fstatfs", asking).await??, Ok(0), "fstatfs");
        Ok(())
    }

    /// Serves what `fsync` sends, and performs it on `served`.
    async fn serves_fsync(
        &mut self,
        syncing: JoinHandle<Result<usize, Errno>>,
        served: &mut [u8],
    ) -> Outcome {
        loop {
            let (request, data) = self.opened.hand.next().await?;
            if request.operation == operation::SYNCHRONISE {
                self.opened.hand.answer(&request, &data)?;
                break;
            }
            check_equal!(request.operation, operation::WRITE, "the request");
            served[request.first as usize..][..data.len()].copy_from_slice(&data);
            self.takes(&request, data.len())?;
        }
        check_equal!(soon("fsync", syncing).await??, Ok(0), "fsync");
        Ok(())
    }

    /// There is nothing to send.
    async fn is_clean(&mut self) -> Outcome {
        let syncing = self.begins_fsync();
        self.serves(operation::SYNCHRONISE).await?;
        check_equal!(soon("fsync", syncing).await??, Ok(0), "fsync");
        Ok(())
    }
}

async fn kept_writes_are_sent_by_fsync() -> Outcome {
    let mut file = Kept::filled().await?;
    file.writes(0, LENGTH, 2)?;
    file.writes(PAGE - 1, 2, 3)?;
    let mut expected = vec![2; LENGTH];
    expected[PAGE - 1..=PAGE].fill(3);
    file.has(0, &expected)?;
    let syncing = file.begins_fsync();
    let (request, data) = file.sent().await?;
    check_equal!(request.first, 0, "where it begins");
    check!(data == expected, "other bytes");
    file.takes(&request, LENGTH)?;
    file.serves(operation::SYNCHRONISE).await?;
    check_equal!(soon("fsync", syncing).await??, Ok(0), "fsync");
    file.has(0, &expected)?;
    file.has(LENGTH, &[])?;
    file.is_clean().await?;
    // One page, of which only a part is written: the rest is known.
    file.writes(PAGE + 1, 1, 4)?;
    expected[PAGE + 1] = 4;
    file.has(0, &expected)?;
    let syncing = file.begins_fsync();
    let (request, data) = file.sent().await?;
    check_equal!(request.first, PAGE as u64, "where it begins");
    check!(data == expected[PAGE..2 * PAGE], "other bytes");
    // While it is being sent, it is written again.
    file.writes(PAGE, 1, 5)?;
    expected[PAGE] = 5;
    file.takes(&request, PAGE)?;
    file.serves(operation::SYNCHRONISE).await?;
    check_equal!(soon("fsync", syncing).await??, Ok(0), "fsync");
    file.has(0, &expected)?;
    let syncing = file.begins_fsync();
    let (request, data) = file.sent().await?;
    check!(data == expected[PAGE..2 * PAGE], "other bytes of the second write");
    file.takes(&request, PAGE)?;
    file.serves(operation::SYNCHRONISE).await?;
    check_equal!(soon("fsync", syncing).await??, Ok(0), "fsync");
    file.is_clean().await
}

async fn kept_writes_are_within_what_needs_no_space() -> Outcome {
    // All blocks are counted, and there is a hole, or a block without content.
    let mut file = Kept::new(LENGTH, PAGE - 1).await?;
    let (_, request) = file.opened.asked(number::PWRITE64, PAGE, PAGE).await?;
    file.answers_status(&request)?;
    let (request, _) = file.opened.next(operation::WRITE).await?;
    check_equal!(request.flags, 0, "flags of a write that is a request");
    file.opened.answer_write(&request)?;
    // What has been written from there on needs no more space.
    file.opened.write(0, 2 * PAGE).await?;
    file.writes(0, 2 * PAGE, 1)?;
    file.opened.write(PAGE, PAGE + 1).await?;
    // It makes the file longer, or does so with a hole.
    file.opened.write(3 * PAGE, PAGE).await?;
    file.opened.write(3 * PAGE, PAGE).await?;
    // At the end, where that is.
    raw::call(number::FCNTL, [file.opened.fd(), 4, open::APPEND as usize])?;
    file.opened.write(0, PAGE).await?;
    raw::call(number::FCNTL, [file.opened.fd(), 4, 0])?;
    file.writes(0, PAGE, 2)
}

async fn kept_writes_need_the_rest_of_a_page() -> Outcome {
    let mut file = Kept::new(LENGTH, LENGTH).await?;
    file.begin().await?;
    // Nothing is known of the second page, and all of the third one is written.
    file.opened.write(PAGE, PAGE - 1).await?;
    file.opened.write(2 * PAGE - 1, 2).await?;
    file.opened.write(2 * PAGE, LENGTH - 2 * PAGE - 1).await?;
    file.writes(2 * PAGE, LENGTH - 2 * PAGE, 1)?;
    file.writes(LENGTH - 1, 1, 2)?;
    file.has(LENGTH - 2, &[1, 2])?;
    // A request that writes a page which is here changes it.
    file.opened.memory.fill(3);
    file.opened.write(PAGE - 1, 2).await?;
    file.has(PAGE - 2, &[0x77, 3])
}

async fn kept_writes_are_in_the_status() -> Outcome {
    let mut file = Kept::filled().await?;
    let mut bytes = [0u8; 128];
    let place = bytes.as_mut_ptr().expose_provenance();
    for by_path in [false, true] {
        file.writes(0, 1, 1)?;
        let path = c"/disk/f".as_ptr().expose_provenance();
        let asking = match by_path {
            false => file.begins(number::FSTAT, [file.opened.fd(), place]),
            true => file.begins(number::NEWFSTATAT, [AT_FDCWD as usize, path, place, 0]),
        };
        if by_path {
            file.serves(operation::LOOK_UP).await?;
        }
        let (request, _) = file.sent().await?;
        file.takes(&request, PAGE)?;
        let (request, _) = file.opened.next(operation::GET_STATUS).await?;
        file.answers_status(&request)?;
        check_equal!(soon("stat", asking).await??, Ok(0), "stat");
    }
    // Times that are set are not changed by what is sent later.
    file.writes(0, 1, 2)?;
    let times = [[5usize, 0], [6, 0]];
    let place = times.as_ptr().expose_provenance();
    let setting = file.begins(number::UTIMENSAT, [file.opened.fd(), 0, place, 0]);
    let (request, _) = file.sent().await?;
    file.takes(&request, PAGE)?;
    file.serves(operation::SET_STATUS).await?;
    check_equal!(soon("utimensat", setting).await??, Ok(0), "utimensat");
    file.is_clean().await
}

async fn kept_writes_that_the_server_refuses_stay() -> Outcome {
    let mut file = Kept::filled().await?;
    file.writes(0, LENGTH, 2)?;
    for (number, error) in [(28, ENOSPC), (12, ENOMEM), (5, EIO)] {
        let syncing = file.begins_fsync();
        let (request, data) = file.sent().await?;
        check!(data == [2; LENGTH], "other bytes");
        file.refuses(&request, number)?;
        check_equal!(soon("fsync", syncing).await??, Err(error), "fsync");
        file.has(0, &[2; LENGTH])?;
    }
    // Closed, it is tried once more.
    let Kept { opened, length, solid, begun } = file;
    let Opened { hand, file, memory } = opened;
    drop(file);
    let other = OpenOptions::new().open("/dev/null").await?;
    let opened = Opened { hand, file: other, memory };
    let mut file = Kept { opened, length, solid, begun };
    let (request, data) = file.sent().await?;
    check!(data == [2; LENGTH], "other bytes");
    file.takes(&request, LENGTH)
}

/// The server replies that it has written what cannot be.
async fn kept_writes_that_the_server_counts_wrongly_stay() -> Outcome {
    let mut file = Kept::filled().await?;
    let syncing = file.begins_fsync();
    let (request, _) = file.sent().await?;
    file.takes(&request, PAGE)?;
    file.serves(operation::SYNCHRONISE).await?;
    check_equal!(soon("fsync", syncing).await??, Ok(0), "fsync");
    file.writes(PAGE, PAGE, 2)?;
    // The last one ends before the first byte that was sent.
    for count in [0, PAGE + 1, usize::MAX, usize::MAX - PAGE + 1] {
        let syncing = file.begins_fsync();
        let (request, data) = file.sent().await?;
        check_equal!(request.first, PAGE as u64, "where it begins");
        check!(data == [2; PAGE], "other bytes");
        file.takes(&request, count)?;
        check_equal!(soon("fsync", syncing).await??, Err(EIO), "fsync after {count}");
        file.has(PAGE, &[2; PAGE])?;
    }
    let syncing = file.begins_fsync();
    let (request, data) = file.sent().await?;
    check!(data == [2; PAGE], "other bytes");
    file.takes(&request, PAGE)?;
    file.serves(operation::SYNCHRONISE).await?;
    check_equal!(soon("fsync", syncing).await??, Ok(0), "fsync");
    file.is_clean().await
}

async fn kept_writes_of_a_closed_file_are_sent() -> Outcome {
    let file = Kept::filled().await?;
    let Kept { opened, .. } = file;
    let Opened { mut hand, file, .. } = opened;
    drop(file);
    let (request, data) = hand.next().await?;
    check_equal!((request.operation, request.first), (operation::WRITE, 0), "the request");
    check!(data == [0x77; PAGE], "other bytes");
    // Not before it has been sent.
    check!(!hand.forgotten.contains(&(2, 1)), "the file is forgotten");
    let reply = Reply { id: request.id, value: PAGE as u64, ..Reply::default() };
    check_equal!(hand.reply(reply, &[]), Ok(Reply::BYTES), "a reply");
    // What is forgotten comes before the next request.
    let asking = async { fs::metadata("/disk/x").await.err().and_then(errno) };
    let asking = task::spawn_join(asking, Priority::DEFAULT);
    while !hand.forgotten.contains(&(2, 1)) {
        let (request, rest) = hand.next().await?;
        hand.answer(&request, &rest)?;
        if request.operation == operation::LOOK_UP {
            break;
        }
    }
    check_equal!(soon("stat", asking).await??, Some(ENOENT), "stat of another name");
    check!(hand.forgotten.contains(&(2, 1)), "the file is not forgotten");
    Ok(())
}

async fn kept_writes_and_another_length() -> Outcome {
    let mut file = Kept::filled().await?;
    file.writes(0, LENGTH, 2)?;
    let cutting = file.begins(number::FTRUNCATE, [file.opened.fd(), 5000]);
    // What is dirty is sent first.
    let (request, data) = file.sent().await?;
    check!(data == [2; LENGTH], "other bytes");
    // A write that comes meanwhile is a request afterwards.
    let place = file.opened.memory.as_ptr().expose_provenance();
    let writing = file.begins(number::PWRITE64, [file.opened.fd(), place, PAGE, 0]);
    file.is_quiet().await?;
    file.takes(&request, LENGTH)?;
    let (cut, _) = file.opened.next(operation::SET_STATUS).await?;
    file.is_quiet().await?;
    file.opened.hand.answer(&cut, &[])?;
    check_equal!(soon("ftruncate", cutting).await??, Ok(0), "ftruncate");
    let (write, _) = file.opened.next(operation::WRITE).await?;
    check_equal!(write.flags, 0, "flags");
    file.opened.answer_write(&write)?;
    check_equal!(soon("pwrite", writing).await??, Ok(PAGE), "pwrite");
    // The length is asked for again.
    (file.length, file.solid) = (5000, 5000);
    file.begin().await?;
    file.writes(PAGE, 5000 - PAGE, 3)?;
    file.opened.write(PAGE, 5001 - PAGE).await
}

/// A request of a call that has gone is performed before what is sent later.
async fn kept_writes_do_not_overtake_those_of_a_call_that_has_gone() -> Outcome {
    let mut file = Kept::filled().await?;
    let fsync = [file.opened.fd()];
    let Asked::InFlight(handle) = raw::ask(number::FSYNC, fsync) else {
        return Err(Failure("fsync does not wait".into()));
    };
    let (first, _) = file.sent().await?;
    check!(handle.cancel()?, "fsync has completed");
    file.writes(0, PAGE, 9)?;
    let syncing = file.begins_fsync();
    // The next request is not one to write.
    file.is_quiet().await?;
    let reply = Reply { id: first.id, value: PAGE as u64, ..Reply::default() };
    check_equal!(file.opened.hand.reply(reply, &[]), Err(ENOENT), "a late reply");
    let (second, data) = file.sent().await?;
    check!(data[..PAGE] == [9; PAGE], "other bytes");
    file.takes(&second, data.len())?;
    file.serves(operation::SYNCHRONISE).await?;
    check_equal!(soon("fsync", syncing).await??, Ok(0), "fsync");
    // The server goes while such a request is not answered: the next call does not wait for it.
    file.writes(0, PAGE, 10)?;
    let Asked::InFlight(handle) = raw::ask(number::FSYNC, fsync) else {
        return Err(Failure("fsync does not wait".into()));
    };
    file.sent().await?;
    check!(handle.cancel()?, "fsync has completed");
    let syncing = file.begins_fsync();
    let Kept { opened: Opened { hand, file, .. }, .. } = file;
    hand.close();
    check_equal!(soon("fsync", syncing).await??, Err(EIO), "fsync without a server");
    drop(file);
    Ok(())
}

/// `fsync` waits for pages that another call is sending, although none is dirty.
async fn kept_writes_wait_for_those_that_are_being_sent() -> Outcome {
    let mut file = Kept::filled().await?;
    let first = file.begins_fsync();
    let (request, data) = file.sent().await?;
    let second = file.begins_fsync();
    // It has not asked to synchronise.
    file.is_quiet().await?;
    file.takes(&request, data.len())?;
    for _ in 0..2 {
        file.serves(operation::SYNCHRONISE).await?;
    }
    for syncing in [first, second] {
        check_equal!(soon("fsync", syncing).await??, Ok(0), "fsync");
    }
    Ok(())
}

/// A write that is a request, and pages with other bytes that are to be sent meanwhile. They are
/// sent after its reply, with what it has written: otherwise the server could perform both in one
/// order and reply in the other one.
async fn kept_writes_are_not_put_over_a_write_that_is_a_request() -> Outcome {
    let mut file = Kept::filled().await?;
    let mut served = contents(1);
    let mut expected = served.clone();
    expected[..PAGE].fill(0x77);
    for round in 0..2 {
        if round == 0 {
            // The page is dirty before.
            file.writes(LENGTH - 200, 200, 2)?;
            expected[LENGTH - 200..].fill(2);
        }
        // It makes the file longer.
        let (place, end) = (served.len() - 100, served.len() + 100);
        file.opened.memory.fill(3 + round);
        let (_, write) = file.opened.asked(number::PWRITE64, place, 200).await?;
        for contents in [&mut served, &mut expected] {
            contents.resize(end, 0);
            contents[place..].fill(3 + round);
        }
        if round == 1 {
            // The page was clean, and is kept again.
            let other = [9u8; 10];
            let from = other.as_ptr().expose_provenance();
            let wrote = raw::call(number::PWRITE64, [file.opened.fd(), from, 10, 2 * PAGE]);
            check_equal!(wrote, Ok(10), "a write beside it");
            expected[2 * PAGE..2 * PAGE + 10].fill(9);
        }
        let syncing = file.begins_fsync();
        file.is_quiet().await?;
        file.takes(&write, 200)?;
        file.serves_fsync(syncing, &mut served).await?;
        check!(served == expected, "round {round}: what the server has");
    }
    file.is_clean().await
}

/// The same, if the pages are being sent already.
async fn kept_writes_come_before_a_write_that_is_a_request() -> Outcome {
    let mut file = Kept::filled().await?;
    let mut served = contents(1);
    file.writes(LENGTH - 200, 200, 2)?;
    file.opened.memory.fill(3);
    let syncing = file.begins_fsync();
    let (first, data) = file.sent().await?;
    served[..PAGE].copy_from_slice(&data);
    let place = file.opened.memory.as_ptr().expose_provenance();
    let writing = file.begins(number::PWRITE64, [file.opened.fd(), place, 200, LENGTH - 100]);
    file.is_quiet().await?;
    file.takes(&first, data.len())?;
    let (second, data) = file.sent().await?;
    served[2 * PAGE..].copy_from_slice(&data);
    check_equal!(served[LENGTH - 100..], [2; 100], "what was kept");
    file.is_quiet().await?;
    file.takes(&second, data.len())?;
    // Now both go on.
    for _ in 0..2 {
        let (request, rest) = file.opened.hand.next().await?;
        match request.operation {
            operation::WRITE => {
                check_equal!(rest, [3; 200], "the write");
                file.takes(&request, 200)?;
            }
            _ => _ = file.opened.hand.answer(&request, &rest)?,
        }
    }
    check_equal!(soon("pwrite", writing).await??, Ok(200), "pwrite");
    check_equal!(soon("fsync", syncing).await??, Ok(0), "fsync");
    file.is_clean().await
}

/// What is kept after such a write was cancelled is sent when the server has answered it.
async fn kept_writes_come_after_a_write_of_a_call_that_has_gone() -> Outcome {
    let mut file = Kept::filled().await?;
    let mut served = contents(1);
    file.opened.memory.fill(3);
    let (handle, write) = file.opened.asked(number::PWRITE64, LENGTH - 100, 200).await?;
    check!(handle.cancel()?, "the write has completed");
    file.writes(LENGTH - 100, 100, 4)?;
    let syncing = file.begins_fsync();
    file.is_quiet().await?;
    served.resize(LENGTH + 100, 3);
    served[LENGTH - 100..].fill(3);
    let reply = Reply { id: write.id, value: 200, ..Reply::default() };
    check_equal!(file.opened.hand.reply(reply, &[]), Err(ENOENT), "a late reply");
    file.serves_fsync(syncing, &mut served).await?;
    check_equal!(served[LENGTH - 100..LENGTH], [4; 100], "what the server has");
    file.is_clean().await
}

/// A program is executed while a call writes its file back.
async fn kept_writes_of_a_program_are_waited_for() -> Outcome {
    const LOOKS: usize = 20;
    let mut file = Kept::filled().await?;
    let syncing = file.begins_fsync();
    let (write, data) = file.sent().await?;
    let child = crate::forks::fork(|| execute("/disk/f", &["f"]) as u8)?;
    file.serves(operation::LOOK_UP).await?;
    // Its call waits for the turn, and is not made again and again.
    let mut waits = 0;
    let mut waits_still = || {
        waits = if calls_of(child)? == 1 { waits + 1 } else { 0 };
        Ok(waits == LOOKS)
    };
    until("a call that waits", &mut waits_still).await?;
    file.takes(&write, data.len())?;
    for _ in 0..2 {
        let (request, rest) = file.opened.hand.next().await?;
        match request.operation {
            operation::SYNCHRONISE => _ = file.opened.hand.answer(&request, &rest)?,
            _ => file.answers_status(&request)?,
        }
    }
    check_equal!(soon("fsync", syncing).await??, Ok(0), "fsync");
    let (_, status) = cops::wait!(Some(child))?;
    check_equal!(status.code(), Some(ENOEXEC as u8), "the error of execve");
    Ok(())
}

/// The file of a server that says that it has space for a gibibyte. A part of what is written is
/// sent when it is much; nothing is kept above the limit.
async fn kept_pages_have_a_limit() -> Outcome {
    const MANY: usize = 30_000;
    let mut file = Kept::new(1 << 30, 1 << 30).await?;
    file.begin().await?;
    let memory = cops::fs::read("/proc/meminfo").await?;
    let text = core::str::from_utf8(&memory).unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total = total.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    // A half of an eighth: the other half is left for other files.
    let limit = total.unwrap_or(0) * 1024 / PAGE / 16;
    let place = file.opened.memory.as_ptr().expose_provenance();
    let mut kept = 1;
    for page in 1..MANY {
        match raw::ask(number::PWRITE64, [file.opened.fd(), place, PAGE, page * PAGE]) {
            Asked::Done(result) => check_equal!(result, Ok(PAGE), "page {page}"),
            Asked::InFlight(handle) => {
                check!(handle.cancel()?, "a write has completed");
                break;
            }
        }
        kept += 1;
    }
    check!(kept > limit / 2 && kept < limit + 16, "{kept} pages with a limit of {limit}");
    // The kernel has begun to send them by itself. What has been sent makes room.
    let (request, data) = file.sent().await?;
    file.takes(&request, data.len())?;
    file.sent().await?;
    file.writes(kept * PAGE, PAGE, 1)
}

async fn kept_pages_are_charged() -> Outcome {
    let mut file = Kept::filled().await?;
    let used = || -> Result<u64, Failure> { Ok(cops::process::quota(0, Resource::Memory)?.used) };
    let before = used()?;
    file.writes(PAGE, PAGE, 1)?;
    check!(used()? - before >= PAGE as u64, "{} bytes are charged", used()? - before);
    Ok(())
}

/// The tests of any file system hold.
async fn kept_writes_are_those_of_a_file_system() -> Outcome {
    start_tree_keeping_writes().await?.is_a_file_system().await
}

/// A write of a file that was opened with `O_DSYNC` or `O_SYNC` returns when it is durable.
async fn durable_writes_are_not_kept() -> Outcome {
    let mut file = Kept::filled().await?;
    file.writes(PAGE, PAGE, 2)?;
    for flags in [open::DATA_DURABLE, open::DURABLE] {
        let path = c"/disk/f".as_ptr().expose_provenance();
        let flags = (open::READ_WRITE | flags) as usize;
        let opening = file.begins(number::OPENAT, [AT_FDCWD as usize, path, flags, 0]);
        file.serves(operation::LOOK_UP).await?;
        file.serves(operation::SET_STATUS).await?;
        let fd = soon("open", opening).await???;
        check_equal!(raw::call(number::FCNTL, [fd, 3, 0])?, flags, "F_GETFL");
        raw::call(number::FCNTL, [fd, 4, 0])?;
        let place = file.opened.memory.as_ptr().expose_provenance();
        let writing = file.begins(number::PWRITE64, [fd, place, PAGE, 0]);
        let (request, _) = file.opened.next(operation::WRITE).await?;
        check_equal!(request.flags, 0, "flags of the request");
        file.opened.answer_write(&request)?;
        // With all that the kernel has kept of the file.
        if flags & open::DURABLE as usize == open::DATA_DURABLE as usize {
            let (request, data) = file.sent().await?;
            check_equal!(data.len(), 2 * PAGE, "bytes that were kept");
            file.takes(&request, data.len())?;
        }
        file.serves(operation::SYNCHRONISE).await?;
        check_equal!(soon("pwrite", writing).await??, Ok(PAGE), "pwrite");
        raw::call(number::CLOSE, [fd])?;
    }
    file.is_clean().await
}

/// What the server has of a file.
pub async fn of_server(running: &Running, file: &File, length: usize) -> Result<Vec<u8>, Failure> {
    let node = file.metadata().await?.status().number;
    let mut all = vec![0; length + 1];
    let mut done = 0;
    loop {
        let count = running.tree.read(node, done as u64, &mut all[done..]).await?;
        done += count;
        if count == 0 || done > length {
            all.truncate(done);
            return Ok(all);
        }
    }
}

/// Random calls on a file leave what they leave in a model; after each `fsync` the server has it.
async fn kept_writes_are_those_of_a_model() -> Outcome {
    const ROUNDS: usize = 1500;
    const MOST: usize = 12 * PAGE;
    let running = start_tree_keeping_writes().await?;
    let options = || OpenOptions::new().read(true).write(true).create(true).open("/disk/model");
    let mut files = vec![options().await?, options().await?];
    let mut random = raw::Garbage::new(52);
    let mut model: Vec<u8> = Vec::new();
    let mut next = |below: usize| random.next() % below;
    for round in 0..ROUNDS {
        let index = next(2);
        let fd = files[index].as_fd().raw() as usize;
        let at = match next(3) {
            0 => next(MOST),
            1 => next(MOST / PAGE) * PAGE,
            _ => next(model.len() + 1),
        };
        let length = match next(3) {
            0 => next(100),
            1 => PAGE * (1 + next(3)),
            _ => next(3 * PAGE),
        }
        .min(MOST - at);
        match next(16) {
            0..7 if length > 0 => {
                let data = vec![round as u8; length];
                let place = data.as_ptr().expose_provenance();
                let wrote = later(number::PWRITE64, [fd, place, length, at]).await;
                check_equal!(wrote, Ok(length), "round {round}: a write at {at}");
                if model.len() < at + length {
                    model.resize(at + length, 0);
                }
                model[at..at + length].fill(round as u8);
            }
            7..11 => {
                let mut data = vec![0u8; length];
                let place = data.as_mut_ptr().expose_provenance();
                let count = later(number::PREAD64, [fd, place, length, at]).await?;
                let expected = model.get(at..).unwrap_or_default();
                let expected = &expected[..expected.len().min(length)];
                let differs =
                    data[..count].iter().zip(expected).position(|(one, other)| one != other);
                check!(
                    count == expected.len() && differs.is_none(),
                    "round {round}: {count} of {length} bytes at {at}, {differs:?} differs"
                );
            }
            11 => {
                check_equal!(later(number::FTRUNCATE, [fd, at]).await, Ok(0), "ftruncate");
                model.resize(at, 0);
            }
            12 => {
                let length = files[index].metadata().await?.len();
                check_equal!(length, model.len() as u64, "round {round}: the length");
            }
            13 => {
                check_equal!(later(number::FSYNC, [fd]).await, Ok(0), "fsync");
                let found = of_server(&running, &files[index], model.len()).await?;
                check!(found == model, "round {round}: the server has another file");
            }
            14 => files[index] = options().await?,
            _ => {
                check_equal!(later(number::SYNC, []).await, Ok(0), "sync");
                let found = of_server(&running, &files[index], model.len()).await?;
                check!(found == model, "round {round}: after sync the server has another file");
            }
        }
    }
    drop(files);
    running.expect_nodes(1).await
}
