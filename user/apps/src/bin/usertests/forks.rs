//! Processes that are copies of others: what the two share, and what neither sees of the other.
#![allow(unsafe_code)]

use alloc::vec;
use alloc::vec::Vec;
use core::hint::black_box;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use cops::abi::Errno;
use cops::abi::layout::PAGE_BYTES;
use cops::abi::syscall::{self as number, clone_flags, protection, signal};
use cops::memory::statistics;
use cops::process::{self, ExitCode, Resource};
use cops::time::{Duration, sleep};
use cops::{inspect, wait};

use crate::harness::{Failure, Outcome, run, start, until};
use crate::processes::HELPER;
use crate::raw::{self, Asked};
use crate::{check, check_equal, tests};

tests! { forks:
    each_has_its_own_memory,
    a_copy_of_a_copy,
    rights_that_change_do_not_join_them,
    registers_are_copied,
    the_last_owner_copies_nothing,
    other_harts_are_interrupted_for_several_pages_at_once,
    a_read_in_flight_lands_in_the_parent,
    a_write_in_flight_sends_no_secrets,
    a_copy_stands_still,
    files_are_shared,
    files_of_a_copy_that_was_not_completed,
    bad_requests,
    a_copy_is_charged,
    many_copies_of_a_large_process,
    a_bomb_of_copies,
}

const FORK: usize = signal::SIGCHLD as usize;

/// Starts a copy of this process that executes `child` and ends with its result.
pub fn fork(child: impl FnOnce() -> u8) -> Result<u32, Errno> {
    match raw::call(number::CLONE, [FORK, 0, 0, 0, 0])? {
        0 => end(child()),
        pid => Ok(pid as u32),
    }
}

/// Ends this process without any of the library's work.
fn end(code: u8) -> ! {
    loop {
        let _ = raw::call(number::EXIT_GROUP, [usize::from(code)]);
    }
}

/// Waits for a child that must end with 0.
fn expect_success(what: &str, pid: u32) -> Outcome {
    let (_, status) = wait!(Some(pid))?;
    check!(status.success(), "{what}: the child ended with {status}");
    Ok(())
}

/// A pipe by its numbers, for calls without the library.
pub struct Pipe {
    pub reader: usize,
    pub writer: usize,
}

impl Pipe {
    pub fn new() -> Result<Self, Errno> {
        let mut ends = [0u32; 2];
        raw::call(number::PIPE2, [ends.as_mut_ptr().expose_provenance(), 0])?;
        Ok(Self { reader: ends[0] as usize, writer: ends[1] as usize })
    }

    /// Passes a byte on.
    pub fn signal(&self) -> Result<usize, Errno> {
        raw::call(number::WRITE, [self.writer, b"x".as_ptr().addr(), 1])
    }

    /// Waits for a byte.
    pub fn wait(&self) -> Result<usize, Errno> {
        let mut byte = 0u8;
        raw::call(number::READ, [self.reader, (&raw mut byte).expose_provenance(), 1])
    }

    pub fn close(self) {
        let _ = raw::call(number::CLOSE, [self.reader]);
        let _ = raw::call(number::CLOSE, [self.writer]);
    }
}

static IN_DATA: AtomicU64 = AtomicU64::new(1);

/// Heap, stack, data and mapped pages: what one writes, the other does not see, in either order.
async fn each_has_its_own_memory() -> Outcome {
    const PAGES: usize = 70;
    let mapped = raw::map(PAGES)?;
    let page = |index: usize| mapped + index * PAGE_BYTES;
    (0..PAGES - 2).for_each(|index| raw::poke(page(index), index as u64));
    let mut on_heap = vec![1u64; 2000];
    let mut on_stack = black_box([1u64; 64]);
    IN_DATA.store(1, SeqCst);
    let (to_child, to_parent) = (Pipe::new()?, Pipe::new()?);
    let child = fork(|| {
        let _ = to_child.wait();
        let old = (0..PAGES - 2).all(|index| raw::peek(page(index)) == index as u64);
        let others = on_heap.iter().chain(&black_box(on_stack)).all(|&word| word == 1);
        if !old || !others || IN_DATA.load(SeqCst) != 1 {
            return 1;
        }
        // Those that neither has touched yet are zero in both.
        if raw::peek(page(PAGES - 2)) != 0 {
            return 2;
        }
        (0..PAGES).for_each(|index| raw::poke(page(index), 1_000_000));
        on_heap.fill(3);
        on_stack.fill(3);
        IN_DATA.store(3, SeqCst);
        let _ = to_parent.signal();
        let _ = to_child.wait();
        let mine = (0..PAGES).all(|index| raw::peek(page(index)) == 1_000_000);
        u8::from(!mine || IN_DATA.load(SeqCst) != 3) * 3
    })?;
    // The first pages and the heap before the child writes there, the others after that.
    (0..PAGES / 2).for_each(|index| raw::poke(page(index), 77));
    on_heap[..1000].fill(2);
    IN_DATA.store(2, SeqCst);
    raw::poke(page(PAGES - 2), 77);
    to_child.signal()?;
    to_parent.wait()?;
    (0..PAGES / 2).for_each(|index| raw::poke(page(index), 78));
    for index in PAGES / 2..PAGES - 2 {
        check_equal!(raw::peek(page(index)), index as u64, "page {index} of the parent");
    }
    check_equal!(raw::peek(page(PAGES - 2)), 77, "a page written by the parent first");
    check_equal!(raw::peek(page(PAGES - 1)), 0, "a page that only the child has written");
    check!(on_heap[..1000].iter().all(|&word| word == 2), "the heap of the parent");
    check!(on_heap[1000..].iter().all(|&word| word == 1), "the heap of the parent, unwritten");
    check!(black_box(on_stack).iter().all(|&word| word == 1), "the stack of the parent");
    check_equal!(IN_DATA.load(SeqCst), 2, "the data of the parent");
    to_child.signal()?;
    to_child.close();
    to_parent.close();
    expect_success("memory", child)
}

/// Four generations with the same pages.
async fn a_copy_of_a_copy() -> Outcome {
    const PAGES: usize = 5;
    fn generation(number: u64, mapped: usize) -> u8 {
        if (0..PAGES).any(|index| raw::peek(mapped + index * PAGE_BYTES) != number * 10) {
            return number as u8;
        }
        if number == 4 {
            return 0;
        }
        (0..PAGES).for_each(|index| raw::poke(mapped + index * PAGE_BYTES, (number + 1) * 10));
        let Ok(child) = fork(|| generation(number + 1, mapped)) else { return 20 };
        (0..PAGES).for_each(|index| raw::poke(mapped + index * PAGE_BYTES, 99));
        match wait!(Some(child)) {
            Ok((_, status)) => status.code().unwrap_or(21),
            Err(_) => 22,
        }
    }
    let mapped = raw::map(PAGES)?;
    (0..PAGES).for_each(|index| raw::poke(mapped + index * PAGE_BYTES, 10));
    let child = fork(|| generation(1, mapped))?;
    expect_success("generations", child)?;
    check_equal!(raw::peek(mapped), 10, "what the first generation sees");
    Ok(())
}

/// A page that is made read-only and writable again is still that of one process.
async fn rights_that_change_do_not_join_them() -> Outcome {
    let mapped = raw::map(2)?;
    raw::poke(mapped, 5);
    raw::poke(mapped + PAGE_BYTES, 5);
    let protect = |rights| raw::call(number::MPROTECT, [mapped, 2 * PAGE_BYTES, rights]);
    let both = protection::READ | protection::WRITE;
    let (to_child, to_parent) = (Pipe::new()?, Pipe::new()?);
    let child = fork(|| {
        if protect(protection::READ).is_err() || protect(both).is_err() {
            return 1;
        }
        raw::poke(mapped, 6);
        let _ = to_parent.signal();
        let _ = to_child.wait();
        u8::from(raw::peek(mapped) != 6 || raw::peek(mapped + PAGE_BYTES) != 5) * 2
    })?;
    to_parent.wait()?;
    check_equal!(raw::peek(mapped), 5, "what the child has written after mprotect");
    protect(0)?;
    protect(both)?;
    raw::poke(mapped, 7);
    raw::poke(mapped + PAGE_BYTES, 7);
    to_child.signal()?;
    to_child.close();
    to_parent.close();
    expect_success("rights", child)
}

/// The floating-point registers too.
async fn registers_are_copied() -> Outcome {
    let mut sums = [0.0f64; 8];
    for (index, sum) in sums.iter_mut().enumerate() {
        *sum = black_box(index as f64) * 1.5 + 0.25;
    }
    let child = fork(|| {
        let same = sums.iter().enumerate().all(|(index, &sum)| sum == index as f64 * 1.5 + 0.25);
        u8::from(!same)
    })?;
    expect_success("registers", child)?;
    check_equal!(sums[7], 10.75, "registers of the parent");
    Ok(())
}

/// When the child has ended, the parent writes to its pages without another copy.
async fn the_last_owner_copies_nothing() -> Outcome {
    const PAGES: usize = 256;
    let mapped = raw::map(PAGES)?;
    let write = |value| (0..PAGES).for_each(|page| raw::poke(mapped + page * PAGE_BYTES, value));
    write(1);
    let child = fork(|| 0)?;
    expect_success("copy", child)?;
    let before = statistics()?.frames_free;
    write(2);
    let taken = before.saturating_sub(statistics()?.frames_free);
    check!(taken < PAGES as u64 / 4, "{taken} frames taken for {PAGES} pages of the last owner");
    Ok(())
}

/// The parent has reads in flight when it forks: their bytes arrive in the parent, though it has
/// written to the pages in between, and not in the child.
async fn a_read_in_flight_lands_in_the_parent() -> Outcome {
    const READS: usize = 40;
    let mapped = raw::map(READS)?;
    let place = |read: usize| mapped + read * PAGE_BYTES;
    (0..READS).for_each(|read| raw::poke(place(read), 0));
    let (data, to_child, to_parent) = (Pipe::new()?, Pipe::new()?, Pipe::new()?);
    for read in 0..READS {
        match raw::ask(number::READ, [data.reader, place(read), 8]) {
            Asked::InFlight(_) => {}
            Asked::Done(result) => return Err(Failure(alloc::format!("read: {result:?}"))),
        }
    }
    let child = fork(|| {
        let _ = to_child.wait();
        let seen = (0..READS).any(|read| raw::peek(place(read)) != 0);
        (0..READS).for_each(|read| raw::poke(place(read), 4));
        let _ = to_parent.signal();
        u8::from(seen)
    })?;
    // Each on the page of a read.
    (0..READS).for_each(|read| raw::poke(place(read) + 64, 1));
    let word = 0x0102_0304_0506_0708u64;
    for _ in 0..READS {
        raw::call(number::WRITE, [data.writer, (&raw const word).addr(), 8])?;
    }
    until("reads that were in flight at a fork", || {
        Ok((0..READS).all(|read| raw::peek(place(read)) == word))
    })
    .await?;
    to_child.signal()?;
    to_parent.wait()?;
    check!((0..READS).all(|read| raw::peek(place(read)) == word), "what the child has written");
    check!((0..READS).all(|read| raw::peek(place(read) + 64) == 1), "what the parent has written");
    data.close();
    to_child.close();
    to_parent.close();
    expect_success("reads", child)
}

/// A child starts a write of a page that both have, which has to wait, and unmaps the page. What
/// the parent writes there later is not sent.
async fn a_write_in_flight_sends_no_secrets() -> Outcome {
    let mapped = raw::map(1)?;
    (0..PAGE_BYTES).step_by(8).for_each(|at| raw::poke(mapped + at, 0x1111_1111_1111_1111));
    let (data, to_child, to_parent) = (Pipe::new()?, Pipe::new()?, Pipe::new()?);
    let filler = vec![0x22u8; PAGE_BYTES];
    // Until the next write has to wait.
    let waiting = loop {
        match raw::ask(number::WRITE, [data.writer, filler.as_ptr().addr(), PAGE_BYTES]) {
            Asked::InFlight(handle) => break handle,
            Asked::Done(result) => result?,
        };
    };
    check!(waiting.cancel()?, "a write into a full pipe had completed");
    let child = fork(|| {
        let Asked::InFlight(_) = raw::ask(number::WRITE, [data.writer, mapped, PAGE_BYTES]) else {
            return 1;
        };
        let unmapped = raw::call(number::MUNMAP, [mapped, PAGE_BYTES]);
        let _ = to_parent.signal();
        // The write ends with the process, so not before it has been taken.
        let _ = to_child.wait();
        u8::from(unmapped.is_err()) * 2
    })?;
    to_parent.wait()?;
    (0..PAGE_BYTES).step_by(8).for_each(|at| raw::poke(mapped + at, 0x3333_3333_3333_3333));
    let mut buffer = vec![0u8; PAGE_BYTES];
    let mut from_child = 0;
    while from_child < PAGE_BYTES {
        let place = buffer.as_mut_ptr().expose_provenance();
        let count = raw::call(number::READ, [data.reader, place, PAGE_BYTES])?;
        check!(!buffer[..count].contains(&0x33), "the child has sent what the parent wrote later");
        from_child += buffer[..count].iter().filter(|&&byte| byte == 0x11).count();
    }
    to_child.signal()?;
    data.close();
    to_child.close();
    to_parent.close();
    expect_success("write", child)
}

/// Where [`scribble`] writes, and whether it is to end.
static SCRIBBLED: AtomicUsize = AtomicUsize::new(0);
const SCRIBBLED_PAGES: usize = 4;

/// A second virtual CPU, without the library: writes to the same pages for ever.
extern "C" fn scribble(_index: usize) -> ! {
    let mut value = 0;
    loop {
        value += 1;
        match SCRIBBLED.load(SeqCst) {
            0 => break,
            mapped => {
                (0..SCRIBBLED_PAGES).for_each(|page| raw::poke(mapped + page * PAGE_BYTES, value));
            }
        }
    }
    loop {
        let _ = raw::call(number::EXIT, [0]);
    }
}

/// Another virtual CPU of the parent writes while the parent forks: what a child has once seen in
/// its pages stays there. (A hart that still had the old translations would write into them.)
async fn a_copy_stands_still() -> Outcome {
    let mapped = raw::map(SCRIBBLED_PAGES)?;
    (0..SCRIBBLED_PAGES).for_each(|page| raw::poke(mapped + page * PAGE_BYTES, 0));
    SCRIBBLED.store(mapped, SeqCst);
    raw::call(number::COPS_ALLOC_CPU, [1, scribble as *const () as usize])?;
    let mut outcome = Ok(());
    for round in 0..30 {
        let child = fork(|| {
            let look = || -> Vec<u64> {
                let pages = (0..SCRIBBLED_PAGES).map(|page| mapped + page * PAGE_BYTES);
                pages.map(raw::peek).collect()
            };
            let first = look();
            let still = (0..200).all(|_| {
                let _ = raw::call(number::SCHED_YIELD, []);
                look() == first
            });
            u8::from(!still)
        })?;
        outcome = expect_success(&alloc::format!("round {round}"), child);
        if outcome.is_err() {
            break;
        }
    }
    SCRIBBLED.store(0, SeqCst);
    outcome
}

/// While another virtual CPU runs, a write to a page of which a copy exists has to interrupt its
/// hart. That takes long, and everything else that uses the memory waits: so pages that follow each
/// other are copied together. Pages of the last owner change no translation that another hart could
/// have.
async fn other_harts_are_interrupted_for_several_pages_at_once() -> Outcome {
    const PAGES: usize = 256;
    let (mapped, scribbled) = (raw::map(PAGES)?, raw::map(SCRIBBLED_PAGES)?);
    let write = |value| (0..PAGES).for_each(|page| raw::poke(mapped + page * PAGE_BYTES, value));
    write(1);
    (0..SCRIBBLED_PAGES).for_each(|page| raw::poke(scribbled + page * PAGE_BYTES, 0));
    SCRIBBLED.store(scribbled, SeqCst);
    raw::call(number::COPS_ALLOC_CPU, [1, scribble as *const () as usize])?;
    until("the other virtual CPU", || Ok(raw::peek(scribbled) > 0)).await?;
    let to_child = Pipe::new()?;
    let child = fork(|| {
        let _ = to_child.wait();
        u8::from((0..PAGES).any(|page| raw::peek(mapped + page * PAGE_BYTES) != 1))
    })?;
    let before = statistics()?.remote_flushes;
    write(2);
    let copied = statistics()?.remote_flushes - before;
    to_child.signal()?;
    expect_success("copied together", child)?;
    let before = statistics()?.remote_flushes;
    expect_success("the last owner", fork(|| 0)?)?;
    write(3);
    let owned = statistics()?.remote_flushes - before;
    SCRIBBLED.store(0, SeqCst);
    to_child.close();
    check!(
        (0..PAGES).all(|page| raw::peek(mapped + page * PAGE_BYTES) == 3),
        "a page does not have what was written last"
    );
    let limit = PAGES as u64 / 4;
    check!(
        copied < limit && owned < limit,
        "{copied} flushes on other harts for {PAGES} copies, {owned} for pages of the last owner"
    );
    Ok(())
}

/// The position in a file is shared, and a pipe is closed when both have closed it.
async fn files_are_shared() -> Outcome {
    let path = c"/bin/usertests";
    let file = raw::call(number::OPENAT, [number::AT_FDCWD as usize, path.as_ptr().addr(), 0])?;
    let mut bytes = [0u8; 4];
    let place = bytes.as_mut_ptr().expose_provenance();
    raw::call(number::READ, [file, place, 4])?;
    check_equal!(bytes, *b"\x7fELF", "the beginning of a program");
    let (data, to_child) = (Pipe::new()?, Pipe::new()?);
    let child = fork(|| {
        let read = raw::call(number::READ, [file, place, 4]);
        let closed = raw::call(number::CLOSE, [file]);
        // The parent's writing end keeps the pipe open.
        let byte = data.wait();
        let _ = raw::call(number::CLOSE, [data.writer]);
        let end = data.wait();
        u8::from((read, closed, byte, end) != (Ok(4), Ok(0), Ok(1), Ok(0)))
    })?;
    data.signal()?;
    let (_, status) = {
        let Pipe { reader, writer } = data;
        raw::call(number::CLOSE, [writer])?;
        let ended = wait!(Some(child))?;
        raw::call(number::CLOSE, [reader])?;
        ended
    };
    check!(status.success(), "files: the child ended with {status}");
    let offset = raw::call(number::LSEEK, [file, 0, 1])?;
    check_equal!(offset, 8, "the position after the child's read");
    to_child.close();
    raw::call(number::CLOSE, [file])?;
    Ok(())
}

/// A copy that fails has some of the files already. They are closed, and not all in one portion,
/// which is checked where the portions are measured.
async fn files_of_a_copy_that_was_not_completed() -> Outcome {
    const FILES: usize = 4000;
    const FIRST: usize = 500;
    let pipe = Pipe::new()?;
    for copy in 0..FILES {
        raw::call(number::DUP3, [pipe.writer, FIRST + copy, 0])?;
    }
    let used = process::quota(0, Resource::Descriptors)?.used;
    process::set_quota(0, Resource::Descriptors, used + FILES as u64 / 2)?;
    let copied = fork(|| 1);
    check_equal!(copied, Err(Errno::EMFILE), "a copy with too many files");
    for copy in 0..FILES {
        raw::call(number::CLOSE, [FIRST + copy])?;
    }
    raw::call(number::CLOSE, [pipe.writer])?;
    // No copy has the writing end.
    check_equal!(pipe.wait(), Ok(0), "a read at the end of the pipe");
    raw::call(number::CLOSE, [pipe.reader])?;
    Ok(())
}

/// Requests that are no copy of a process, and a caller that is not virtual CPU 0.
async fn bad_requests() -> Outcome {
    for flags in [0, 9, FORK | clone_flags::VM, FORK | 0x1_0000, FORK | 1 << 40, usize::MAX] {
        let result = raw::call(number::CLONE, [flags, 0, 0, 0, 0]);
        check_equal!(result, Err(Errno::EINVAL), "clone({flags:#x})");
    }
    // An address for the number that is not the caller's has no effect.
    let flags = FORK | clone_flags::PARENT_SET_TID | clone_flags::CHILD_SET_TID;
    let kernel = 0xffff_ffc0_8020_0000;
    match raw::call(number::CLONE, [flags, 0, kernel, 0, 8])? {
        0 => end(0),
        pid => expect_success("bad addresses", pid as u32)?,
    }
    let (mut of_parent, mut of_child) = (0u32, 0u32);
    let places =
        [(&raw mut of_parent).expose_provenance(), (&raw mut of_child).expose_provenance()];
    match raw::call(number::CLONE, [flags, 0, places[0], 0, places[1]])? {
        0 => {
            let mine = black_box(&of_child);
            end(u8::from(*mine as usize != raw::call(number::GETPID, []).unwrap_or(0)))
        }
        pid => {
            expect_success("the child's number", pid as u32)?;
            let numbers = (*black_box(&of_parent), *black_box(&of_child));
            check_equal!(numbers, (pid as u32, 0), "the number in the parent");
        }
    }
    Ok(())
}

/// A copy that does not fit into the quota is not made.
async fn a_copy_is_charged() -> Outcome {
    let room = process::quota(0, Resource::Memory)?.room as usize;
    let mapped = raw::map(room / 10 * 9 / PAGE_BYTES)?;
    check_equal!(fork(|| 1).err(), Some(Errno::ENOMEM), "a copy of a process that holds all");
    check_equal!(wait!(None).err(), Some(Errno::ECHILD), "a child that does not exist");
    raw::call(number::MUNMAP, [mapped, room / 10 * 9 / PAGE_BYTES * PAGE_BYTES])?;
    let child = fork(|| 0)?;
    expect_success("a copy of a small process", child)
}

/// A hundred copies, each of which writes to some pages.
async fn many_copies_of_a_large_process() -> Outcome {
    let room = process::quota(0, Resource::Memory)?.room as usize;
    let pages = (room / 8 / PAGE_BYTES).min(4096);
    let mapped = raw::map(pages)?;
    (0..pages).for_each(|page| raw::poke(mapped + page * PAGE_BYTES, page as u64));
    let before = process::quota(0, Resource::Memory)?.used;
    for round in 0..100 {
        let child = fork(|| {
            let step = 1 + round * 7;
            (0..pages).step_by(step).for_each(|page| raw::poke(mapped + page * PAGE_BYTES, 0));
            u8::from((0..pages).any(|page| {
                let written = page.is_multiple_of(step);
                raw::peek(mapped + page * PAGE_BYTES) != if written { 0 } else { page as u64 }
            }))
        })?;
        expect_success("a large copy", child)?;
    }
    let after = process::quota(0, Resource::Memory)?.used;
    check!(after <= before + 64 * 1024, "{before} bytes were charged before, {after} afterwards");
    Ok(())
}

/// The helpers.
pub fn help(arguments: &[&str]) -> Option<ExitCode> {
    match arguments {
        ["bomb-of-copies"] => loop {
            // Parent and child go on.
            let _ = raw::call(number::CLONE, [FORK, 0, 0, 0, 0]);
        },
        _ => None,
    }
}

/// A process, and all its copies, start copies of themselves. An honest process beside them goes
/// on, and starts others; then all of them can be ended.
async fn a_bomb_of_copies() -> Outcome {
    let bomb = start(&[HELPER, "bomb-of-copies"])?;
    sleep(Duration::from_millis(100)).await;
    for code in 0..3 {
        let status = run(&[HELPER, "exit", &alloc::format!("{code}")]).await?;
        check_equal!(status.code(), Some(code), "a process beside the bomb");
    }
    process::set_quota(bomb.id(), Resource::Processes, 0)?;
    let mut bomb = bomb;
    until("the end of all copies", || {
        let mut alive = 0;
        for one in inspect::processes()? {
            // Only its own descendants can be killed.
            if one.process > bomb.id() && process::kill(one.process, signal::SIGKILL).is_ok() {
                alive += 1;
            }
        }
        Ok(alive == 0)
    })
    .await?;
    bomb.kill()?;
    let status = bomb.wait().await?;
    check_equal!(status.signal(), Some(signal::SIGKILL), "how the bomb ended");
    Ok(())
}
