//! Memory that processes share: what is charged for it, how it ends, and how much there may be. The
//! stage `linux` tests what programs do with it (`mapping.c`).
#![allow(unsafe_code)]

use alloc::vec::Vec;

use cops::abi::Errno;
use cops::abi::layout::PAGE_BYTES;
use cops::abi::linux::map_flags as more_flags;
use cops::abi::syscall::{self as number, futex, map_flags, protection, signal};
use cops::process::{self, Resource};
use cops::wait;

use crate::forks::{Pipe, fork};
use crate::harness::{Failure, Outcome, until};
use crate::raw::{self, Asked};
use crate::{check, check_equal, tests};

tests! { shared:
    the_maker_pays_once,
    a_maker_that_ends_leaves_its_copies,
    more_than_the_quota,
    tables_for_shared_pages_are_charged,
    many_objects,
    a_call_in_flight_keeps_its_page,
    pages_of_calls_in_flight_stay_charged,
    a_coroutine_is_woken_by_another_process,
    a_storm_of_copies,
}

const READ_WRITE: usize = protection::READ | protection::WRITE;

/// New shared memory.
fn share(pages: usize, flags: usize) -> Result<usize, Errno> {
    let flags = map_flags::SHARED | map_flags::ANONYMOUS | flags;
    raw::call(number::MMAP, [0, pages * PAGE_BYTES, READ_WRITE, flags, usize::MAX, 0])
}

fn unmap(address: usize, pages: usize) -> Result<usize, Errno> {
    raw::call(number::MUNMAP, [address, pages * PAGE_BYTES])
}

fn expect_success(what: &str, pid: u32) -> Outcome {
    let (_, status) = wait!(Some(pid))?;
    check!(status.success(), "{what}: the child ended with {status}");
    Ok(())
}

fn used_pages() -> Result<usize, Failure> {
    Ok(process::quota(0, Resource::Memory)?.used as usize / PAGE_BYTES)
}

fn each_page(address: usize, pages: usize) -> impl Iterator<Item = usize> {
    (address..address + pages * PAGE_BYTES).step_by(PAGE_BYTES)
}

/// The memory is charged when it is made, and not again for accesses and for copies that access it.
async fn the_maker_pays_once() -> Outcome {
    const PAGES: usize = 3000;
    const COPIES: usize = 10;
    let before = used_pages()?;
    let mapped = share(PAGES, 0)?;
    let made = used_pages()? - before;
    check!((PAGES..PAGES + 8).contains(&made), "{made} pages are charged for {PAGES}");
    let (to_child, to_parent) = (Pipe::new()?, Pipe::new()?);
    let mut children = Vec::new();
    for copy in 0..COPIES {
        children.push(fork(|| {
            each_page(mapped, PAGES).for_each(|page| raw::poke(page + copy * 8, copy as u64 + 1));
            let _ = to_parent.signal();
            u8::from(to_child.wait().is_err())
        })?);
    }
    for _ in 0..COPIES {
        to_parent.wait()?;
    }
    for page in each_page(mapped, PAGES) {
        let all = (0..COPIES).all(|copy| raw::peek(page + copy * 8) == copy as u64 + 1);
        check!(all, "page {page:#x} lacks what a copy has written");
    }
    let own = used_pages()? - before;
    // Each copy costs some thousand pages itself: its program, its tables, its heap.
    let of_copies = own - made;
    check!(of_copies < COPIES * PAGES / 2, "{of_copies} pages are charged for {COPIES} copies");
    (0..COPIES).try_for_each(|_| to_child.signal().map(drop))?;
    children.into_iter().try_for_each(|child| expect_success("a copy", child))?;
    unmap(mapped, PAGES)?;
    until("the charge to be gone", || Ok(used_pages()? <= before + 8)).await?;
    to_child.close();
    to_parent.close();
    Ok(())
}

/// A process makes memory, copies itself, and ends: its copies keep the memory, which stays charged
/// until the last of them has ended.
async fn a_maker_that_ends_leaves_its_copies() -> Outcome {
    const PAGES: usize = 500;
    const COPIES: usize = 12;
    let before = used_pages()?;
    let (to_copies, to_parent) = (Pipe::new()?, Pipe::new()?);
    let maker = fork(|| {
        let Ok(mapped) = share(PAGES, 0) else { return 1 };
        raw::poke(mapped, 77);
        for copy in 1..=COPIES {
            let copied = fork(|| {
                each_page(mapped, PAGES).skip(1).for_each(|page| raw::poke(page, copy as u64));
                let _ = to_parent.signal();
                let _ = to_copies.wait();
                u8::from(raw::peek(mapped) != 77)
            });
            if copied.is_err() {
                return 2;
            }
        }
        0
    })?;
    expect_success("the maker", maker)?;
    for _ in 0..COPIES {
        to_parent.wait()?;
    }
    let now = used_pages()?;
    check!(now >= before + PAGES, "{now} pages are charged, {before} before, {PAGES} in use");
    (0..COPIES).try_for_each(|_| to_copies.signal().map(drop))?;
    until("the charge to be gone", || Ok(used_pages()? <= before + 8)).await?;
    to_copies.close();
    to_parent.close();
    Ok(())
}

/// Memory beyond the quota is refused when it is made. Without a reservation it is refused when it
/// is accessed: that ends the process.
async fn more_than_the_quota() -> Outcome {
    let room = process::quota(0, Resource::Memory)?.room as usize / PAGE_BYTES;
    check_equal!(share(room + 1, 0), Err(Errno::ENOMEM), "more than the quota");
    // Two of which each would fit.
    let first = share(room / 3 * 2, 0)?;
    check_equal!(share(room / 3 * 2, 0), Err(Errno::ENOMEM), "twice two thirds");
    unmap(first, room / 3 * 2)?;
    let greedy = fork(|| {
        let Ok(mapped) = share(room + 1, more_flags::NORESERVE) else { return 1 };
        each_page(mapped, room + 1).for_each(|page| raw::poke(page, 1));
        2
    })?;
    let (_, status) = wait!(Some(greedy))?;
    let signal = status.signal();
    let ended = signal == Some(signal::SIGKILL) || signal == Some(signal::SIGBUS);
    check!(ended, "without a reservation: {status}");
    until("the memory to be free", || {
        Ok(process::quota(0, Resource::Memory)?.room as usize / PAGE_BYTES > room / 10 * 9)
    })
    .await
}

/// A copy accesses shared pages that it does not pay for, each with a page table of its own. It
/// gets no more tables than its quota permits.
async fn tables_for_shared_pages_are_charged() -> Outcome {
    const TABLES: usize = 2000;
    const ROOM: usize = 256;
    const TABLE_PAGES: usize = 512;
    let pages = TABLES * TABLE_PAGES;
    let mapped = share(pages, more_flags::NORESERVE)?;
    let one_for_each_table = || each_page(mapped, pages).step_by(TABLE_PAGES);
    one_for_each_table().for_each(|page| raw::poke(page, 1));
    let greedy = fork(|| {
        let Ok(used) = used_pages() else { return 1 };
        let limit = (used + ROOM) * PAGE_BYTES;
        if raw::call(number::COPS_QUOTA, [0, 0, limit, 0]).is_err() {
            return 2;
        }
        one_for_each_table().for_each(|page| raw::poke(page, 2));
        3
    })?;
    let (_, status) = wait!(Some(greedy))?;
    let signal = status.signal();
    let ended = signal == Some(signal::SIGKILL) || signal == Some(signal::SIGBUS);
    check!(ended, "{TABLES} tables in room for {ROOM}: {status}");
    let accessed = one_for_each_table().filter(|&page| raw::peek(page) == 2).count();
    check!((ROOM / 2..=ROOM).contains(&accessed), "{accessed} tables in room for {ROOM}");
    unmap(mapped, pages)?;
    Ok(())
}

/// Thousands of objects of one page, in a process and its copy, unmapped with one call.
async fn many_objects() -> Outcome {
    const OBJECTS: usize = 30_000;
    const TOUCHED: usize = 700;
    let start = share(1, more_flags::NORESERVE)?;
    for object in 1..OBJECTS {
        let mapped = share(1, more_flags::NORESERVE)?;
        check_equal!(mapped, start + object * PAGE_BYTES, "object {object}");
    }
    let touched = || each_page(start, OBJECTS).step_by(OBJECTS / TOUCHED);
    touched().for_each(|page| raw::poke(page, page as u64));
    let child = fork(|| {
        let same = touched().all(|page| raw::peek(page) == page as u64);
        touched().for_each(|page| raw::poke(page + 8, 1));
        let unmapped = unmap(start, OBJECTS);
        u8::from(!same || unmapped.is_err())
    })?;
    expect_success("the copy", child)?;
    check!(touched().all(|page| raw::peek(page + 8) == 1), "a page has not been shared");
    // Every other one first, so that the numbers of mappings are used again.
    for page in each_page(start, 2000).step_by(2) {
        unmap(page, 1)?;
    }
    let again = share(1, more_flags::NORESERVE)?;
    check_equal!((again, raw::peek(again)), (start, 0), "a page that is mapped anew");
    unmap(start, OBJECTS)?;
    Ok(())
}

/// A read in flight into a shared page, which its process unmaps: the other process gets the bytes.
async fn a_call_in_flight_keeps_its_page() -> Outcome {
    let mapped = share(1, 0)?;
    let (data, to_parent) = (Pipe::new()?, Pipe::new()?);
    let child = fork(|| {
        let asked = raw::ask(number::READ, [data.reader, mapped, 8]);
        let Asked::InFlight(_) = asked else { return 1 };
        if unmap(mapped, 1).is_err() {
            return 2;
        }
        let _ = to_parent.signal();
        // Ends when it is killed.
        loop {
            let _ = raw::call(number::SCHED_YIELD, []);
        }
    })?;
    to_parent.wait()?;
    raw::call(number::WRITE, [data.writer, b"12345678".as_ptr().addr(), 8])?;
    until("the bytes in the page", || Ok(raw::peek(mapped).to_le_bytes() == *b"12345678")).await?;
    process::kill(child, signal::SIGKILL)?;
    let (_, status) = wait!(Some(child))?;
    check_equal!(status.signal(), Some(signal::SIGKILL), "how the child ended");
    unmap(mapped, 1)?;
    data.close();
    to_parent.close();
    Ok(())
}

/// Reads in flight into shared memory of which nothing is mapped any more: its maker pays for the
/// pages until the reads end.
async fn pages_of_calls_in_flight_stay_charged() -> Outcome {
    const CALLS: usize = 100;
    const PAGES_EACH: usize = 5;
    const PAGES: usize = CALLS * PAGES_EACH;
    let data = Pipe::new()?;
    let mut asked = Vec::with_capacity(CALLS);
    let before = used_pages()?;
    for _ in 0..CALLS {
        let mapped = share(PAGES_EACH, 0)?;
        let bytes = PAGES_EACH * PAGE_BYTES;
        match raw::ask(number::READ, [data.reader, mapped, bytes]) {
            Asked::InFlight(handle) => asked.push(handle),
            Asked::Done(result) => {
                return Err(Failure(alloc::format!("a read of an empty pipe: {result:?}")));
            }
        }
        unmap(mapped, PAGES_EACH)?;
    }
    let held = used_pages()? - before;
    check!(held >= PAGES, "{held} pages are charged for {PAGES} in flight");
    for handle in asked {
        check!(handle.cancel()?, "a read that has ended");
    }
    until("the charge to be gone", || Ok(used_pages()? <= before + 8)).await?;
    data.close();
    Ok(())
}

/// Asynchronous waits of this process, woken by another one, in portions; and a wait of a process
/// that is killed, which takes no wake from others.
async fn a_coroutine_is_woken_by_another_process() -> Outcome {
    const WAITERS: usize = 100;
    let word = share(1, 0)?;
    let wait = || raw::ask(number::FUTEX, [word, futex::WAIT, 0, 0, 0, 0]);
    let wake = |count: usize| raw::call(number::FUTEX, [word, futex::WAKE, count, 0, 0, 0]);
    let victim = fork(|| {
        let _ = raw::call(number::FUTEX, [word, futex::WAIT, 0, 0, 0, 0]);
        1
    })?;
    // It waits when it can be moved to where it is.
    let moved = || raw::call(number::FUTEX, [word, futex::REQUEUE, 0, 1, word, 0]);
    until("the victim to wait", || Ok(moved()? == 1)).await?;
    process::kill(victim, signal::SIGKILL)?;
    let (_, status) = wait!(Some(victim))?;
    check_equal!(status.signal(), Some(signal::SIGKILL), "how the victim ended");
    check_equal!(wake(1)?, 0, "waiters after the end of the victim");
    let mut handles = Vec::new();
    for _ in 0..WAITERS {
        match wait() {
            Asked::InFlight(handle) => handles.push(handle),
            Asked::Done(result) => {
                return Err(Failure(alloc::format!("a wait is over at once: {result:?}")));
            }
        }
    }
    let child = fork(|| u8::from(wake(WAITERS / 2) != Ok(WAITERS / 2)))?;
    expect_success("the process that wakes", child)?;
    check_equal!(wake(WAITERS)?, WAITERS / 2, "those that were left");
    // The results have no takers.
    for handle in handles {
        let _ = handle.cancel()?;
    }
    unmap(word, 1)?;
    Ok(())
}

/// Processes that map, copy themselves, write, unmap and end, in four families at once.
async fn a_storm_of_copies() -> Outcome {
    const FAMILIES: usize = 4;
    const ROUNDS: usize = 25;
    fn copies(depth: usize, common: usize, seed: usize) -> u8 {
        let own = share(40, 0);
        let child = fork(|| {
            for page in each_page(common, 40) {
                raw::poke(page + 8 * (seed % 500), 1);
            }
            if let Ok(own) = own {
                raw::poke(own + seed % 40 * PAGE_BYTES, 5);
            }
            if depth > 0 { copies(depth - 1, common, seed * 7 + 3) } else { 0 }
        });
        let mut failed = 0;
        if let Ok(child) = child {
            if seed.is_multiple_of(3) {
                let _ = process::kill(child, signal::SIGKILL);
            }
            let mut status = 0i32;
            let place = (&raw mut status).expose_provenance();
            let waited = raw::call(number::WAIT4, [child as usize, place, 0, 0]);
            // Killed, or 0.
            failed = u8::from(waited != Ok(child as usize) || status & 0x7f == 0 && status != 0);
            if status == 0
                && let Ok(own) = own
                && raw::peek(own + seed % 40 * PAGE_BYTES) != 5
            {
                failed = 2;
            }
        }
        if let Ok(own) = own
            && unmap(own + 20 * PAGE_BYTES, 20).is_err()
        {
            failed = 3;
        }
        failed
    }
    for round in 0..ROUNDS {
        let common = share(40, 0)?;
        let mut families = Vec::new();
        for family in 0..FAMILIES {
            families.push(fork(|| copies(3, common, round * FAMILIES + family))?);
        }
        for family in families {
            expect_success(&alloc::format!("round {round}"), family)?;
        }
        unmap(common, 40)?;
    }
    Ok(())
}
