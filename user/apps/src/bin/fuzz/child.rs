//! A process that makes random calls.
//!
//! All calls go directly to the kernel. The user library's executor uses the page that this program
//! overwrites, so nothing here awaits, allocates after the start, or returns.

use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use cops::abi::page::{MAX_CPUS, ProcessPage};
use cops::abi::syscall as number;
use cops::process::ExitCode;

use crate::arguments::{CHILDREN, DESCRIPTORS, HANDLES, any_call};
use crate::garbage::Garbage;
use crate::kernel::{call, raw};
use crate::pages::page_half_words;
use crate::{arguments, memory, pages};

/// What a child does besides its calls, as bits.
pub struct Habits;

impl Habits {
    /// Writes random values into the shared pages.
    pub const SCRIBBLES: u64 = 1;
    /// Also overwrites the address of the interrupt handler, which soon ends the process.
    pub const SCRIBBLES_HANDLER: u64 = 2;
    /// Keeps the console open, so that its output is visible.
    pub const KEEPS_CONSOLE: u64 = 4;
    /// Takes results from the ring, as a normal program does; otherwise the ring stays full.
    pub const TAKES_RESULTS: u64 = 8;
    /// Makes half of the calls that wait synchronously; otherwise one in sixteen.
    pub const WAITS: u64 = 16;
}

static SEED: AtomicU64 = AtomicU64::new(0);
static HABITS: AtomicU64 = AtomicU64::new(0);
/// Number of calls that this process has still to make.
static CALLS_LEFT: AtomicUsize = AtomicUsize::new(0);

/// Makes the calls that `words` specify: seed, number, virtual CPUs, habits.
pub fn run(words: &[&str]) -> ExitCode {
    let [seed, calls, cpus, habits] = words else { return ExitCode(2) };
    let number = |text: &str| text.parse::<u64>().unwrap_or(1);
    SEED.store(number(seed), Relaxed);
    HABITS.store(number(habits), Relaxed);
    CALLS_LEFT.store(number(calls) as usize, Relaxed);
    memory::prepare();
    arguments::prepare();
    if !has(Habits::KEEPS_CONSOLE) {
        for descriptor in 0..3 {
            let _ = call(number::CLOSE, [descriptor]);
        }
    }
    let entry = begin as *const () as usize;
    let _ = call(number::COPS_ALLOC_CPU, [(number(cpus) as usize).clamp(1, MAX_CPUS) - 1, entry]);
    make_calls(0)
}

/// Entry point of each further virtual CPU. No worker of the library runs there.
extern "C" fn begin(cpu: usize) -> ! {
    make_calls(cpu)
}

fn has(habit: u64) -> bool {
    HABITS.load(Relaxed) & habit != 0
}

fn make_calls(cpu: usize) -> ! {
    let seed =
        SEED.load(Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(cpu as u64 * 2 + 1);
    let mut garbage = Garbage::new(seed);
    let entry = begin as *const () as usize;
    loop {
        if CALLS_LEFT.fetch_sub(1, Relaxed) as isize <= 0 {
            let _ = call(number::EXIT_GROUP, [0]);
        }
        if has(Habits::SCRIBBLES) && garbage.below(4) == 0 {
            scribble(&mut garbage);
        }
        if has(Habits::TAKES_RESULTS) {
            take_results();
        }
        let (number, arguments) = any_call(cpu, &mut garbage, entry);
        // Most calls that wait are made asynchronously, because a virtual CPU that waits makes no
        // more calls.
        let waits = garbage.below(if has(Habits::WAITS) { 2 } else { 16 }) == 0;
        let (coroutine, token) = (if waits { 0 } else { garbage.nasty() }, garbage.nasty());
        let (result, handle) = raw(number, arguments, coroutine, token);
        if handle != 0 {
            HANDLES.keep(handle as usize);
        } else if let Ok(value) = result {
            remember(number, value, &arguments);
        }
    }
}

/// Keeps results that later calls can use.
fn remember(number: usize, value: usize, arguments: &[usize; 6]) {
    match number {
        number::OPENAT
        | number::DUP
        | number::DUP3
        | number::SOCKET
        | number::EVENTFD2
        | number::EPOLL_CREATE1
        | number::ACCEPT
        | number::ACCEPT4 => DESCRIPTORS.keep(value),
        number::COPS_SPAWN_PROCESS => CHILDREN.keep(value),
        number::PIPE2 => {
            // The address at which both numbers are stored. If another call has unmapped it
            // meanwhile, this process ends.
            let ends = crate::kernel::words_at(arguments[0] & !7, 1)[0].load(Relaxed);
            DESCRIPTORS.keep(ends as u32 as usize);
            DESCRIPTORS.keep((ends >> 32) as usize);
        }
        _ => {}
    }
}

/// Marks everything in the ring as taken.
fn take_results() {
    let [head, tail] = [offset_of!(ProcessPage, ring.head), offset_of!(ProcessPage, ring.tail)];
    let halves = page_half_words();
    halves[head / 4].store(halves[tail / 4].load(Relaxed), Relaxed);
}

/// Writes random values into the pages shared with the kernel.
fn scribble(garbage: &mut Garbage) {
    // The ring's indices, the workers, and the interrupt registers of the virtual CPUs.
    let end = offset_of!(ProcessPage, executor);
    for _ in 0..1 + garbage.below(8) {
        pages::scribble(garbage, has(Habits::SCRIBBLES_HANDLER), end);
    }
}
