//! Futexes and threads of a native process. The stage `linux` tests the same calls through the C
//! library.
#![allow(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use cops::abi::Errno::{EAGAIN, EFAULT, EINVAL, ENOSYS, ETIMEDOUT};
use cops::abi::syscall::{self as number, clone_flags, futex};

use crate::harness::{Failure, Outcome};
use crate::raw::{self, Asked, Handle};
use crate::{check, check_equal, tests};

tests! { futexes:
    errors_of_futex,
    a_cancelled_wait_passes_its_wake_on,
    the_most_urgent_is_woken_first,
    threads_start_wait_and_end,
    threads_are_no_workers,
}

fn address(word: &AtomicU32) -> usize {
    word.as_ptr().expose_provenance()
}

fn wait(word: &AtomicU32) -> Result<Handle, Failure> {
    match raw::ask(number::FUTEX, [address(word), futex::WAIT, 0, 0, 0, 0]) {
        Asked::InFlight(handle) => Ok(handle),
        Asked::Done(result) => Err(Failure(format!("a wait is over at once: {result:?}"))),
    }
}

fn wake(word: &AtomicU32, count: usize) -> Result<usize, Failure> {
    Ok(raw::call(number::FUTEX, [address(word), futex::WAKE, count, 0, 0, 0])?)
}

async fn errors_of_futex() -> Outcome {
    let word = AtomicU32::new(0);
    let at = address(&word);
    let soon = [0u64, 1000];
    let soon = soon.as_ptr().expose_provenance();
    let try_it = |what: &str, arguments: [usize; 6], error| {
        raw::refused(what, number::FUTEX, arguments, &[error])
    };
    try_it("another value", [at, futex::WAIT, 1, 0, 0, 0], EAGAIN)?;
    try_it("a deadline in the past", [at, futex::WAIT_BITSET, 0, soon, 0, 1], ETIMEDOUT)?;
    try_it("no bits", [at, futex::WAIT_BITSET, 0, 0, 0, 0], EINVAL)?;
    try_it("no bits to wake", [at, futex::WAKE_BITSET, 1, 0, 0, 0], EINVAL)?;
    try_it("not aligned", [at + 1, futex::WAIT, 0, 0, 0, 0], EINVAL)?;
    try_it("an unknown operation", [at, 50, 0, 0, 0, 0], ENOSYS)?;
    try_it("real time for a wake", [at, futex::WAKE | futex::CLOCK_REALTIME, 0, 0, 0, 0], ENOSYS)?;
    try_it("another value to move", [at, futex::CMP_REQUEUE, 1, 1, at, 9], EAGAIN)?;
    try_it("moved to nowhere", [at, futex::REQUEUE, 1, 1, at + 2, 0], EINVAL)?;
    try_it("fewer than none", [at, futex::REQUEUE, 1, usize::MAX, at, 0], EINVAL)?;
    for &bad in raw::BAD_ADDRESSES {
        let error = if bad % 4 == 0 { EFAULT } else { EINVAL };
        try_it("a bad address", [bad, futex::WAIT, 0, 0, 0, 0], error)?;
        try_it("a bad time", [at, futex::WAIT, 0, bad.max(1), 0, 0], EFAULT)?;
    }
    check_equal!(wake(&word, 5)?, 0, "waiters that are not there");
    Ok(())
}

/// Two wait and one is woken. If it is cancelled before it has its result, the other one gets the
/// wake. The calls are less urgent than this process, so with one hart that is always so.
async fn a_cancelled_wait_passes_its_wake_on() -> Outcome {
    let mut passed_on = 0;
    for _ in 0..200 {
        let word = AtomicU32::new(0);
        let (first, second) = (wait(&word)?, wait(&word)?);
        for handle in [&first, &second] {
            raw::call(number::COPS_SET_CALL_PRIORITY, [handle.number() as usize, 60])?;
        }
        check_equal!(wake(&word, 1)?, 1, "woken");
        let was_in_flight = first.cancel()?;
        passed_on += usize::from(was_in_flight);
        check_equal!(wake(&word, 9)?, usize::from(!was_in_flight), "waiters left");
        let _ = second.cancel()?;
    }
    check!(passed_on > 0, "no wake was passed on");
    Ok(())
}

async fn the_most_urgent_is_woken_first() -> Outcome {
    let word = AtomicU32::new(0);
    let mut waits = vec![wait(&word)?, wait(&word)?, wait(&word)?];
    for (handle, level) in waits.iter().zip([40, 20, 30]) {
        raw::call(number::COPS_SET_CALL_PRIORITY, [handle.number() as usize, level])?;
    }
    check_equal!(wake(&word, 2)?, 2, "woken");
    // Of the three only the least urgent one still waits.
    let first = waits.remove(0);
    check!(first.cancel()?, "the least urgent one was woken");
    check_equal!(wake(&word, 9)?, 0, "waiters left");
    for handle in waits {
        let _ = handle.cancel()?;
    }
    Ok(())
}

const STACK_BYTES: usize = 16 * 1024;

/// Starts a thread that calls `entry` with `argument` and ends with code 0. `running` is not 0
/// until it has ended.
fn start(
    entry: extern "C" fn(usize),
    argument: usize,
    stack: &mut Vec<u8>,
    running: &AtomicU32,
) -> Result<usize, Failure> {
    let flags =
        clone_flags::THREAD_SHARES | clone_flags::CHILD_CLEAR_TID | clone_flags::CHILD_SET_TID;
    stack.resize(STACK_BYTES, 0);
    let top = (stack.as_mut_ptr().expose_provenance() + STACK_BYTES) & !15;
    let result: isize;
    running.store(1, SeqCst);
    // SAFETY: the new thread begins after the call, on a stack of its own, with the registers of
    // this one. It calls `entry` and never leaves this block; this thread skips that part.
    unsafe {
        asm!(
            "ecall",
            "bnez a0, 1f",
            "mv   a0, {argument}",
            "jalr {entry}",
            "li   a0, 0",
            "li   a6, 0",
            "li   a7, {exit}",
            "ecall",
            "1:",
            argument = in(reg) argument,
            entry = in(reg) entry,
            exit = const number::EXIT,
            inlateout("a0") flags => result,
            in("a1") top,
            in("a2") 0,
            in("a3") 0,
            in("a4") running.as_ptr().expose_provenance(),
            in("a6") 0,
            in("a7") number::CLONE,
            in("t0") 0,
            clobber_abi("C"),
        );
    }
    if result < 0 {
        return Err(Failure(format!("clone: {result}")));
    }
    Ok(result as usize)
}

/// Waits until a thread has ended.
fn join(running: &AtomicU32) {
    loop {
        let now = running.load(SeqCst);
        if now == 0 {
            return;
        }
        let _ = raw::call(number::FUTEX, [address(running), futex::WAIT, now as usize, 0, 0, 0]);
    }
}

static SUM: AtomicUsize = AtomicUsize::new(0);
static GATE: AtomicU32 = AtomicU32::new(0);

extern "C" fn add_at_gate(number: usize) {
    while GATE.load(SeqCst) == 0 {
        let _ = raw::call(number::FUTEX, [address(&GATE), futex::WAIT, 0, 0, 0, 0]);
    }
    SUM.fetch_add(number, SeqCst);
}

async fn threads_start_wait_and_end() -> Outcome {
    const COUNT: usize = 20;
    let before = cops::process::quota(0, cops::process::Resource::Cpus)?.used;
    let mut stacks: Vec<Vec<u8>> = (0..COUNT).map(|_| Vec::new()).collect();
    for _ in 0..3 {
        let running: Vec<AtomicU32> = (0..COUNT).map(|_| AtomicU32::new(0)).collect();
        GATE.store(0, SeqCst);
        SUM.store(0, SeqCst);
        let mut ids = Vec::new();
        for (number, (running, stack)) in running.iter().zip(&mut stacks).enumerate() {
            ids.push(start(add_at_gate, number, stack, running)?);
        }
        ids.sort_unstable();
        ids.dedup();
        check_equal!(ids.len(), COUNT, "different ids");
        let own = crate::inspection::find(cops::process::id())?;
        check_equal!(own.map(|own| own.cpus as usize), Some(COUNT + 1), "virtual CPUs and threads");
        GATE.store(1, SeqCst);
        wake(&GATE, i32::MAX as usize)?;
        running.iter().for_each(join);
        check_equal!(SUM.load(SeqCst), COUNT * (COUNT - 1) / 2, "sum");
        // A thread is charged until its hart has left it, which is after it has cleared its word.
        while cops::process::quota(0, cops::process::Resource::Cpus)?.used > before {
            raw::call(number::SCHED_YIELD, [])?;
        }
    }
    Ok(())
}

static RESULTS: [AtomicUsize; 3] = [const { AtomicUsize::new(1) }; 3];

extern "C" fn try_calls_of_workers(_: usize) {
    let code = |result: Result<usize, cops::abi::Errno>| match result {
        Ok(value) => value,
        Err(error) => error as usize,
    };
    RESULTS[0].store(code(raw::call(number::COPS_PARK, [])), SeqCst);
    RESULTS[1].store(code(raw::call(number::COPS_UNPARK, [8])), SeqCst);
    RESULTS[2].store(code(raw::call(number::CLONE, [17, 0, 0, 0, 0])), SeqCst);
}

/// Only a worker can park, be unparked, or fork.
async fn threads_are_no_workers() -> Outcome {
    let running = AtomicU32::new(0);
    let mut stack = Vec::new();
    start(try_calls_of_workers, 0, &mut stack, &running)?;
    join(&running);
    for result in &RESULTS {
        check_equal!(result.load(SeqCst), EINVAL as usize, "a call of workers");
    }
    for flags in [clone_flags::THREAD, clone_flags::THREAD_SHARES | 1, usize::MAX] {
        raw::refused("clone", number::CLONE, [flags, 0, 0, 0, 0], &[EINVAL])?;
    }
    Ok(())
}
