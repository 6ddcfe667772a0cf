//! No portion of the kernel's work is long, whatever the size of its data (SPEC 3.13a).
//!
//! Each test makes the kernel work on something large, and then reads what the kernel has measured.
//! Without the boot argument `portions=on` the kernel measures nothing, and a test only shows that
//! the operation works. `./cops test --only portions` runs all tests with it, counting
//! instructions, and judges the measurements of the whole run.

use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::sync::atomic::Ordering::Relaxed;

use cops::abi::Errno;
use cops::abi::file::open;
use cops::abi::inspect::{PortionRecord, portion};
use cops::abi::layout::PAGE_BYTES;
use cops::abi::ring::RING_ENTRIES;
use cops::abi::syscall::{
    self as number, ARGUMENT_BYTES_MAX, ARGUMENTS_MAX, AT_FDCWD, CALLS_IN_FLIGHT_MAX,
    CLOCK_NANOSLEEP, futex, protection,
};
use cops::inspect;
use cops::process::{Child, ExitCode, Resource};

use crate::harness::{Failure, Outcome, errno, soon, start};
use crate::interrupts::page;
use crate::processes::HELPER;
use crate::raw::{self, Asked};
use crate::results::own_calls;
use crate::{check, check_equal, forks, tests};

tests! { bounded:
    many_regions,
    end_with_many_regions,
    end_with_many_files,
    end_with_many_sleeps,
    end_with_many_results,
    many_arguments,
    many_children,
    files_of_many_children,
    copies_of_large_processes,
    long_output,
    long_lists,
    many_waiters_on_a_futex,
}

/// Second argument of this program for a process of one of these tests.
pub const BOUNDED: &str = "bounded";

/// The kernel's measurements when this was created.
struct Watch(Vec<PortionRecord>);

impl Watch {
    fn begin() -> Result<Self, Failure> {
        Ok(Self(inspect::portions()?))
    }

    /// Fails if a portion since the beginning was the longest of its kind, and too long.
    fn end(self) -> Outcome {
        for now in inspect::portions()? {
            let is_same = |before: &&PortionRecord| {
                (before.kind, before.detail, before.hart) == (now.kind, now.detail, now.hart)
            };
            let before = self.0.iter().find(is_same).map_or(0, |before| before.longest);
            let what = match now.kind {
                portion::SYSTEM_CALL => number::name(now.detail as usize).unwrap_or("?"),
                portion::SERVICE => inspect::text(&now.name),
                _ => "",
            };
            check!(
                now.longest <= portion::LIMIT.max(before),
                "{} {what} ({}): {} instructions in one portion, {:#x} {:#x} {:#x}",
                portion::name(now.kind),
                now.detail,
                now.longest,
                now.about,
                now.about_1,
                now.about_2
            );
        }
        Ok(())
    }
}

/// Number of regions that the process may still create, or fewer if there is less memory: each is a
/// page.
fn regions() -> Result<usize, Failure> {
    let room = cops::process::quota(0, Resource::Memory)?.room as usize;
    // The regions' records and the page tables are charged too.
    let regions = (room / PAGE_BYTES * 7 / 8).min(65_400) & !1;
    check!(regions > 10_000, "memory for {regions} regions only");
    Ok(regions)
}

const CREATE: usize = (open::CREATE | open::READ_WRITE) as usize;
const READ_WRITE: usize = protection::READ | protection::WRITE;

fn protect(address: usize, bytes: usize, rights: usize) -> Result<usize, Errno> {
    raw::call(number::MPROTECT, [address, bytes, rights])
}

/// Maps pages of which every other one is read-only, so that each is a region.
fn make_regions(regions: usize) -> Result<usize, Failure> {
    let start = raw::map(regions)?;
    for page in (0..regions).step_by(2) {
        protect(start + page * PAGE_BYTES, PAGE_BYTES, protection::READ)?;
    }
    Ok(start)
}

async fn many_regions() -> Outcome {
    let regions = regions()?;
    let bytes = regions * PAGE_BYTES;
    // Present pages, some in each page table.
    const TOUCHED: usize = 3000;
    let watch = Watch::begin()?;
    let start = make_regions(regions)?;
    for page in (1..regions).step_by(2).take(TOUCHED) {
        raw::poke(start + page * PAGE_BYTES, page as u64);
    }
    check_equal!(protect(start, bytes, protection::READ), Ok(0), "mprotect of all regions");
    check_equal!(protect(start, bytes, READ_WRITE), Ok(0), "mprotect of one region");
    for page in (1..regions).step_by(2).take(TOUCHED) {
        check_equal!(raw::peek(start + page * PAGE_BYTES), page as u64, "page {page}");
        raw::poke(start + page * PAGE_BYTES, 0);
    }
    // Unmaps every other page, and then requests two pages, which fit into no hole.
    for page in (0..regions).step_by(2) {
        raw::call(number::MUNMAP, [start + page * PAGE_BYTES, PAGE_BYTES])?;
    }
    let behind = raw::map(2)?;
    check!(behind >= start + bytes - PAGE_BYTES, "two pages at {behind:#x}, in a hole of one");
    let between = raw::map(1)?;
    check_equal!(between, start, "the lowest hole");
    // At a hole it fails, and the regions before the hole have been changed.
    check_equal!(
        protect(start, bytes, protection::READ),
        Err(Errno::ENOMEM),
        "mprotect over holes"
    );
    check_equal!(
        raw::call(number::MUNMAP, [start, bytes + 16 * PAGE_BYTES]),
        Ok(0),
        "munmap of all"
    );
    watch.end()
}

/// Runs a part of a test in a process of its own, to its end.
async fn apart(what: &str) -> Outcome {
    let watch = Watch::begin()?;
    let mut child = start(&[HELPER, BOUNDED, what])?;
    let status = soon("the end of a process", child.wait()).await??;
    check!(status.code() == Some(0), "{what}: {status}");
    watch.end()
}

async fn end_with_many_regions() -> Outcome {
    apart("regions").await
}

async fn end_with_many_files() -> Outcome {
    apart("files").await
}

async fn end_with_many_sleeps() -> Outcome {
    apart("sleeps").await
}

async fn end_with_many_results() -> Outcome {
    apart("results").await
}

/// The helpers.
pub fn help(what: &str) -> ExitCode {
    let outcome = match what {
        "regions" => regions().and_then(make_regions).map(drop),
        "files" => open_files(),
        "sleeps" => sleeps(1_000_000).map(drop),
        "results" => results(),
        _ => Err(Failure(String::from("there is no such part"))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            cops::println!("# {what}: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn open_files() -> Outcome {
    let path = c"/bin/hello";
    let mut count = 0;
    loop {
        match raw::call(number::OPENAT, [AT_FDCWD as usize, path.as_ptr().addr(), 0]) {
            Ok(_) => count += 1,
            Err(Errno::EMFILE | Errno::ENOMEM | Errno::EAGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    check!(count > 500, "only {count} files");
    Ok(())
}

/// Starts sleeps of this many seconds, as many as the kernel takes.
fn sleeps(seconds: usize) -> Result<usize, Failure> {
    let time = [seconds, 0];
    for count in 0..=CALLS_IN_FLIGHT_MAX {
        match raw::ask(CLOCK_NANOSLEEP, [1, 0, time.as_ptr().addr()]) {
            Asked::InFlight(_) => {}
            Asked::Done(Err(Errno::EAGAIN | Errno::ENOMEM)) if count > 500 => return Ok(count),
            Asked::Done(other) => return Err(Failure(format!("sleep {count}: {other:?}"))),
        }
    }
    Ok(CALLS_IN_FLIGHT_MAX)
}

/// Reads of one pipe that all complete at once: most of their results find the ring full.
fn results() -> Outcome {
    let mut ends = [0u32; 2];
    raw::call(number::PIPE2, [ends.as_mut_ptr().expose_provenance(), 0])?;
    let mut byte = 0u8;
    let place = (&raw mut byte).expose_provenance();
    let mut count = 0;
    while let Asked::InFlight(_) = raw::ask(number::READ, [ends[0] as usize, place, 1]) {
        count += 1;
    }
    check!(count > 500, "only {count} reads");
    raw::call(number::CLOSE, [ends[1] as usize])?;
    // Until all have their result; otherwise there would be no list of them at the end.
    for _ in 0..100_000 {
        let waiting = own_calls()?;
        let ring = 512;
        if raw::call(number::COPS_REFILL_RING, [])? + ring + 16 >= waiting as usize {
            return refill();
        }
        raw::call(number::SCHED_YIELD, [])?;
    }
    Err(Failure(String::from("the reads are not over")))
}

/// With an empty ring and more results than it has room for, one call moves some of them: this one
/// does not fill it.
fn refill() -> Outcome {
    let ring = &page().ring;
    ring.head.store(ring.tail.load(Relaxed), Relaxed);
    let left = raw::call(number::COPS_REFILL_RING, [])?;
    let moved = ring.tail.load(Relaxed).wrapping_sub(ring.head.load(Relaxed));
    check!(left > 0 && moved > 0 && moved < RING_ENTRIES, "{moved} were moved, {left} are left");
    Ok(())
}

/// The maximum number and size of arguments.
async fn many_arguments() -> Outcome {
    let watch = Watch::begin()?;
    let names = ["exit", "0"];
    let used: usize =
        [crate::harness::PROGRAM, HELPER].iter().chain(&names).map(|word| word.len() + 1).sum();
    let each = (ARGUMENT_BYTES_MAX - used) / (ARGUMENTS_MAX - 4) - 1;
    let long = "x".repeat(each);
    let mut arguments = vec![HELPER, BOUNDED];
    arguments.resize(ARGUMENTS_MAX - 1, &long);
    let mut child = start(&arguments)?;
    soon("the end of a child", child.wait()).await??;
    watch.end()
}

/// As many children as there is memory for: starting and ending each, listing them, and changing
/// their ceiling.
async fn many_children() -> Outcome {
    let watch = Watch::begin()?;
    let mut children: Vec<Child> = Vec::new();
    while children.len() < 1000 && cops::memory::statistics()?.frames_free > 4096 {
        match cops::process::spawn("/bin/usertests", &[HELPER, "sleep", "60000"]) {
            Ok(child) => children.push(child),
            Err(_) => break,
        }
    }
    let count = children.len();
    let lowered = raw::call(number::COPS_SET_CEILING, [0, 33]);
    inspect::processes()?;
    for child in &mut children {
        // A child without memory for its heap has already ended.
        let _ = child.kill();
    }
    for child in &mut children {
        // The children that were last have left no memory for a call that waits; it comes back.
        while let Err(error) = soon("the end of a child", child.wait()).await? {
            check_equal!(errno(error), Some(Errno::ENOMEM), "the wait for a child");
            cops::thread::yield_now();
        }
    }
    check!(count > 20, "only {count} children");
    check_equal!(lowered, Ok(0), "set_ceiling");
    watch.end()
}

/// Children that end and leave a file each: the family of each remains in the tree of quotas.
async fn files_of_many_children() -> Outcome {
    const COUNT: usize = 2200;
    let watch = Watch::begin()?;
    let path = |child: usize| CString::new(format!("/tmp/left-{child}")).unwrap_or_default();
    for file in 0..COUNT {
        let child = forks::fork(|| {
            let path = path(file);
            let arguments = [AT_FDCWD as usize, path.as_ptr().addr(), CREATE, 0o600];
            u8::from(raw::call(number::OPENAT, arguments).is_err())
        })?;
        let (_, status) = cops::wait!(Some(child))?;
        check!(status.success(), "child {file} ended with {status}");
    }
    for file in 0..COUNT {
        raw::call(number::UNLINKAT, [AT_FDCWD as usize, path(file).as_ptr().addr(), 0])?;
    }
    watch.end()
}

/// Copies of a process with many regions, some of their pages present, and of one with many pages
/// and reads in flight.
async fn copies_of_large_processes() -> Outcome {
    let watch = Watch::begin()?;
    // Each region is charged to the copy too.
    let regions = (regions()? / 4) & !1;
    let mapped = make_regions(regions)?;
    for page in (1..regions).step_by(2) {
        raw::poke(mapped + page * PAGE_BYTES, page as u64);
    }
    let mut ends = [0u32; 2];
    raw::call(number::PIPE2, [ends.as_mut_ptr().expose_provenance(), 0])?;
    for page in (1..regions).step_by(2).take(100) {
        let read = [ends[0] as usize, mapped + page * PAGE_BYTES, PAGE_BYTES];
        check!(matches!(raw::ask(number::READ, read), Asked::InFlight(_)), "a read did not wait");
    }
    let child = forks::fork(|| {
        for page in (1..regions).step_by(2) {
            raw::poke(mapped + page * PAGE_BYTES, 1);
        }
        0
    })?;
    let (_, status) = cops::wait!(Some(child))?;
    check!(status.success(), "the copy ended with {status}");
    watch.end()
}

/// More output than the port takes at once, in one call and in many.
async fn long_output() -> Outcome {
    let watch = Watch::begin()?;
    let line = format!("# {}\n", "long output ".repeat(10));
    let text = line.repeat(64 * 1024 / line.len() / 4);
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let count = raw::call(number::WRITE, [1, rest.as_ptr().addr(), rest.len()])?;
        check!(count > 0, "nothing was written");
        rest = &rest[count..];
    }
    watch.end()
}

/// Lists the coroutines of a process with many, those of the kernel, and the files of the root
/// image.
async fn long_lists() -> Outcome {
    let watch = Watch::begin()?;
    for process in inspect::processes()? {
        inspect::coroutines(process.process)?;
    }
    inspect::coroutines(0)?;
    for path in [c"/", c"/bin"] {
        let directory = raw::call(number::OPENAT, [AT_FDCWD as usize, path.as_ptr().addr(), 0])?;
        let mut buffer = [0u8; 1024];
        let place = buffer.as_mut_ptr().expose_provenance();
        while raw::call(number::GETDENTS64, [directory, place, buffer.len()])? > 0 {}
    }
    watch.end()
}

/// As many waits on one futex as there can be: a wake of others, a move, a wake of all, and the end
/// of a process that waits.
async fn many_waiters_on_a_futex() -> Outcome {
    let watch = Watch::begin()?;
    let words = [0u32; 2];
    let [first, second] = [0, 1].map(|index| (&raw const words[index]).expose_provenance());
    let wait = || {
        let arguments = [first, futex::WAIT_BITSET, 0, 0, 0, 1];
        matches!(raw::ask(number::FUTEX, arguments), Asked::InFlight(_))
    };
    let count = (0..CALLS_IN_FLIGHT_MAX).take_while(|_| wait()).count();
    check!(count > 10_000, "only {count} waits");
    let sweep = |at, operation, value, other, mask| {
        raw::call(number::FUTEX, [at, operation, value, i32::MAX as usize, other, mask])
    };
    let all = i32::MAX as usize;
    check_equal!(sweep(first, futex::WAKE_BITSET, all, 0, 2), Ok(0), "of another bit");
    check_equal!(sweep(first, futex::REQUEUE, 0, second, 0), Ok(count), "moved");
    check_equal!(sweep(second, futex::WAKE, 5, 0, 0), Ok(5), "some");
    check_equal!(sweep(second, futex::REQUEUE, 7, second, 0), Ok(count - 5), "moved to itself");
    check_equal!(sweep(second, futex::WAKE, (count - 12) / 2, 0, 0), Ok((count - 12) / 2), "half");
    // The rest is woken by no one: this process ends with them.
    watch.end()
}
