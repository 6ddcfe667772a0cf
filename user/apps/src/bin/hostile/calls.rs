//! Calls in flight, in every state in which something can happen to them.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use cops::abi::page::MAX_CPUS;
use cops::abi::syscall::{self as number, map_flags, protection};

use crate::garbage::Garbage;
use crate::kernel::{ask, call};
use crate::lies::claim_to_be_urgent;

/// Memory that calls read from and write to; its contents do not matter.
static BYTES: [AtomicU8; 4096] = [const { AtomicU8::new(0) }; 4096];

/// A pipe as two descriptor numbers.
pub struct Pipe {
    ends: [i32; 2],
}

impl Pipe {
    /// Creates a pipe; the descriptors are invalid if that fails.
    pub fn new() -> Self {
        let mut ends = [-1; 2];
        let _ = call(number::PIPE2, [(&raw mut ends).addr(), 0]);
        Self { ends }
    }

    /// Arguments of a `read` from it.
    pub fn reading(&self, bytes: usize) -> [usize; 3] {
        [self.ends[0] as usize, BYTES.as_ptr().addr(), bytes.min(BYTES.len())]
    }

    /// Arguments of a `write` into it.
    pub fn writing(&self, bytes: usize) -> [usize; 3] {
        [self.ends[1] as usize, BYTES.as_ptr().addr(), bytes.min(BYTES.len())]
    }

    /// Closes both ends, in random order, regardless of calls in flight.
    pub fn close(&self, garbage: &mut Garbage) {
        let first = garbage.below(2) as usize;
        let _ = call(number::CLOSE, [self.ends[first] as usize]);
        let _ = call(number::CLOSE, [self.ends[1 - first] as usize]);
    }
}

/// A time in the past or the near future.
fn soon(garbage: &mut Garbage) -> [usize; 2] {
    [0, garbage.below(400_000) as usize]
}

/// Makes a random call that makes the kernel read the shared pages. None waits forever: if all
/// virtual CPUs sleep, a result of one of these calls wakes one.
pub fn random_call(garbage: &mut Garbage, pipe: &Pipe) {
    let (id, token) = (garbage.nasty(), garbage.nasty());
    match garbage.below(10) {
        0 | 1 => drop(ask(number::READ, pipe.reading(1), id, token)),
        2 | 3 => drop(ask(number::WRITE, pipe.writing(1), id, token)),
        4 => {
            // It may be refused.
            let _ =
                ask(number::CLOCK_NANOSLEEP, [1, 0, soon(garbage).as_ptr().addr(), 0], id, token);
        }
        5 => drop(call(number::COPS_REFILL_RING, [])),
        6 if garbage.below(2) == 0 => drop(call(number::SCHED_YIELD, [])),
        6 => drop(call(number::COPS_DONATE_PRIORITY, [garbage.below(MAX_CPUS as u64) as usize])),
        7 => drop(call(number::COPS_UNPARK, [garbage.below(MAX_CPUS as u64) as usize])),
        8 => {
            if let Err(handle) = ask(number::READ, pipe.reading(1), id, token) {
                let _ = call(number::COPS_CANCEL, [handle as usize]);
            }
        }
        _ => {
            let time = soon(garbage);
            if ask(number::CLOCK_NANOSLEEP, [1, 0, time.as_ptr().addr(), 0], id, token).is_err() {
                let _ = call(number::COPS_PARK, []);
            }
        }
    }
}

/// Marks all results so far as taken, so that there is room for more.
pub fn forget_results() {
    let ring = &crate::kernel::page().ring;
    ring.head.store(ring.tail.load(Relaxed), Relaxed);
    let _ = call(number::COPS_REFILL_RING, []);
}

/// As many calls as the kernel takes, all of which complete soon. Their results are never read,
/// only marked as taken.
pub fn call_storm(cpu: usize, mut garbage: Garbage) -> ! {
    claim_to_be_urgent(cpu);
    loop {
        let time = soon(&mut garbage);
        let (id, token) = (garbage.nasty(), garbage.nasty());
        if let Ok(Err(_)) = ask(number::CLOCK_NANOSLEEP, [1, 0, time.as_ptr().addr(), 0], id, token)
        {
            // Too many calls: mark the results so far as taken.
            forget_results();
        }
    }
}

/// Closes descriptors with pending reads, writes and accepts, and unmaps buffers of pending reads,
/// on all virtual CPUs at once.
pub fn close_pending(cpu: usize, mut garbage: Garbage) -> ! {
    claim_to_be_urgent(cpu);
    let rights = protection::READ | protection::WRITE;
    let flags = map_flags::PRIVATE | map_flags::ANONYMOUS;
    loop {
        let pipe = Pipe::new();
        let memory = call(number::MMAP, [0, 8192, rights, flags, usize::MAX, 0]).unwrap_or(0);
        let [reading_end, ..] = pipe.reading(0);
        let mut handles = [0; 4];
        for handle in &mut handles {
            let asked =
                ask(number::READ, [reading_end, memory, 8192], garbage.nasty(), garbage.nasty());
            *handle = asked.err().unwrap_or(0);
        }
        // Fills the pipe, and then waits.
        for _ in 0..garbage.below(40) {
            if ask(number::WRITE, pipe.writing(4096), garbage.nasty(), garbage.nasty()).is_err() {
                break;
            }
        }
        if garbage.below(2) == 0 {
            let _ = call(number::MUNMAP, [memory, 8192]);
            pipe.close(&mut garbage);
        } else {
            pipe.close(&mut garbage);
            let _ = call(number::MUNMAP, [memory, 8192]);
        }
        for handle in handles {
            let _ = call(number::COPS_CANCEL, [handle as usize]);
        }
        forget_results();
        // Descriptors of other virtual CPUs of this process, mostly in use.
        let _ = call(number::CLOSE, [3 + garbage.below(40) as usize]);
    }
}

/// Writes to the console forever, as much at once as one call takes.
pub fn console_flood(cpu: usize, _garbage: Garbage) -> ! {
    const TEXT: [u8; 4096] = {
        let mut text = [b'~'; 4096];
        let mut at = 63;
        while at < text.len() {
            text[at] = b'\n';
            at += 64;
        }
        text
    };
    claim_to_be_urgent(cpu);
    loop {
        let _ = call(number::WRITE, [1, TEXT.as_ptr().addr(), TEXT.len()]);
    }
}
