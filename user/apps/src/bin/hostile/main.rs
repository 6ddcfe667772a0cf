//! A program that tries to harm the kernel, or other programs on the same machine.
//!
//! ```text
//! hostile KIND [VIRTUAL_CPUS [SEED]]
//! ```
//!
//! It does what its kind is named after, on all its virtual CPUs (by default as many as it can
//! get), until it is killed. The seed determines all random choices. All calls go directly to the
//! kernel: the user library's executor uses a page that these programs overwrite, so nothing here
//! awaits, allocates after the start, or returns. `/bin/victim` measures the effect on a normal
//! program.
#![no_std]
#![no_main]

extern crate alloc;

mod calls;
mod crowds;
mod garbage;
mod greed;
mod kernel;
mod lies;
mod pages;
mod wakes;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use cops::abi::page::MAX_CPUS;
use cops::process::ExitCode;
use cops::{Arguments, println};
use garbage::Garbage;

/// A kind of harmful behaviour.
struct Kind {
    name: &'static str,
    /// The function of each virtual CPU; gets its number and a random generator of its own.
    run: fn(usize, Garbage) -> !,
}

const KINDS: [Kind; 20] = [
    Kind { name: "bitmap-all", run: lies::bitmap_all },
    Kind { name: "bitmap-random", run: lies::bitmap_random },
    Kind { name: "page-garbage", run: lies::keep_writing_garbage },
    Kind { name: "page-garbage-once", run: lies::page_garbage },
    Kind { name: "index-race", run: lies::index_race },
    Kind { name: "overflow-forger", run: lies::overflow_forger },
    Kind { name: "spin", run: greed::spin },
    Kind { name: "yield-storm", run: greed::yield_storm },
    Kind { name: "trap-storm", run: greed::trap_storm },
    Kind { name: "spawn-wide", run: greed::spawn_wide },
    Kind { name: "spawn-deep", run: greed::spawn_deep },
    Kind { name: "spawn-churn", run: greed::spawn_churn },
    Kind { name: "memory-churn", run: greed::memory_churn },
    Kind { name: "wake-forger", run: wakes::wake_forger },
    Kind { name: "call-storm", run: calls::call_storm },
    Kind { name: "close-pending", run: calls::close_pending },
    Kind { name: "pipe-readers", run: crowds::pipe_readers },
    Kind { name: "pipe-readers-many", run: crowds::pipe_readers_many },
    Kind { name: "kernel-crowd", run: crowds::kernel_crowd },
    Kind { name: "console-flood", run: calls::console_flood },
];

/// The kind for further virtual CPUs. Their entry point gets only their number.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);
static SEED: AtomicU64 = AtomicU64::new(1);

#[cops::main]
fn main(arguments: Arguments) -> ExitCode {
    let arguments: Vec<&str> = arguments.skip(1).collect();
    let (name, cpus, seed) = match arguments.as_slice() {
        ["exit", ..] => return ExitCode::SUCCESS,
        [name] => (*name, MAX_CPUS, 1),
        [name, cpus] => (*name, cpus.parse().unwrap_or(MAX_CPUS), 1),
        [name, cpus, seed] => (*name, cpus.parse().unwrap_or(MAX_CPUS), seed.parse().unwrap_or(1)),
        _ => ("", 0, 0),
    };
    let Some(index) = KINDS.iter().position(|kind| kind.name == name) else {
        println!("usage: hostile KIND [VIRTUAL_CPUS [SEED]]");
        for kind in &KINDS {
            println!("  {}", kind.name);
        }
        return ExitCode(2);
    };
    CHOSEN.store(index, Relaxed);
    SEED.store(seed, Relaxed);
    kernel::add_virtual_cpus(cpus.clamp(1, MAX_CPUS) - 1, begin);
    do_harm(0)
}

/// Entry point of each further virtual CPU. No worker of the library runs there.
extern "C" fn begin(cpu: usize) -> ! {
    do_harm(cpu)
}

/// The seed on the command line.
fn seed() -> u64 {
    SEED.load(Relaxed)
}

fn do_harm(cpu: usize) -> ! {
    let seed = seed().wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(cpu as u64 + 1);
    (KINDS[CHOSEN.load(Relaxed) % KINDS.len()].run)(cpu, Garbage::new(seed))
}
