//! False values in the page shared with the kernel.

use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;

use cops::abi::page::{MAX_CPUS, ProcessPage};
use cops::abi::syscall as number;

use crate::calls::{self, Pipe};
use crate::garbage::Garbage;
use crate::greed::start;
use crate::kernel::{ask, call, page, sleep_microseconds};
use crate::pages;

/// Claims that virtual CPU `cpu` runs a coroutine of the most urgent priority.
pub fn claim_to_be_urgent(cpu: usize) {
    let worker = &page().workers[cpu % MAX_CPUS];
    worker.current_priority.store(0, Relaxed);
    worker.current_id.store(1 << 32, Relaxed);
}

/// Sets every bit of every bitmap, forever. Half of the virtual CPUs do nothing else; the others
/// park and are unparked, so that the kernel reads the bits when it queues them.
pub fn bitmap_all(cpu: usize, _garbage: Garbage) -> ! {
    loop {
        for worker in &page().workers {
            worker.ready.store(u64::MAX, Relaxed);
            worker.posted.store(u64::MAX, Relaxed);
        }
        claim_to_be_urgent(cpu);
        if !cpu.is_multiple_of(2) {
            let _ = call(number::COPS_UNPARK, [cpu.wrapping_add(2) % MAX_CPUS]);
            let _ = call(number::COPS_PARK, []);
        }
    }
}

/// Sets and clears random bits.
pub fn bitmap_random(cpu: usize, mut garbage: Garbage) -> ! {
    loop {
        let worker = &page().workers[garbage.below(MAX_CPUS as u64) as usize];
        let bits = garbage.next();
        match garbage.below(4) {
            0 => worker.ready.store(bits, Relaxed),
            1 => worker.posted.store(bits, Relaxed),
            2 => worker.current_priority.store(bits as u32, Relaxed),
            _ => worker.ready.store(1 << (bits % 64), Relaxed),
        }
        if !cpu.is_multiple_of(2) && garbage.below(64) == 0 {
            let _ = call(number::SCHED_YIELD, []);
        }
    }
}

/// A process that overwrites its own page may end because of it. So this process does not do that
/// itself, but keeps two children doing it, and restarts each with a new seed when it has ended.
pub fn keep_writing_garbage(cpu: usize, mut garbage: Garbage) -> ! {
    if cpu != 0 {
        loop {
            sleep_microseconds(1_000_000);
        }
    }
    let mut alive = 0;
    loop {
        if alive < 2 && start(c"page-garbage-once", c"8", garbage.below(1 << 32)) {
            alive += 1;
        }
        if alive == 2 && call(number::WAIT4, [usize::MAX, 0, 0, 0]).is_ok() {
            alive -= 1;
        }
    }
}

/// Overwrites every field of the page and the ring with random values, between calls that make the
/// kernel read them. With an even seed it does not change the handler's address, so that the
/// process lives longer.
pub fn page_garbage(cpu: usize, mut garbage: Garbage) -> ! {
    // The ring's indices and the workers.
    let end = offset_of!(ProcessPage, cpus);
    let with_handler = !crate::seed().is_multiple_of(2);
    let pipe = Pipe::new();
    loop {
        for _ in 0..garbage.below(200) {
            pages::scribble(&mut garbage, with_handler, end);
        }
        calls::random_call(&mut garbage, &pipe);
        if cpu == 0 && garbage.below(50) == 0 {
            sleep_microseconds(garbage.below(300) as usize);
        }
    }
}

/// Changes the ring's indices while the kernel writes results: virtual CPUs with even numbers
/// change them, those with odd numbers make calls.
pub fn index_race(cpu: usize, mut garbage: Garbage) -> ! {
    let pipe = Pipe::new();
    loop {
        if cpu != 0 && cpu.is_multiple_of(2) {
            let tail = page().ring.tail.load(Relaxed);
            let head = match garbage.below(6) {
                0 => tail,
                1 => tail.wrapping_add(1),
                2 => tail.wrapping_sub(256),
                3 => tail.wrapping_sub(257),
                4 => tail ^ 1 << 31,
                _ => garbage.next() as u32,
            };
            page().ring.head.store(head, Relaxed);
            if garbage.below(16) == 0 {
                page().ring.tail.store(garbage.next() as u32, Relaxed);
            }
        } else {
            let _ = ask(number::WRITE, pipe.writing(1), garbage.nasty(), garbage.nasty());
            let _ = ask(number::READ, pipe.reading(1), garbage.nasty(), garbage.nasty());
            let _ = ask(number::READ, pipe.reading(1), garbage.nasty(), garbage.nasty());
            let _ = ask(number::WRITE, pipe.writing(1), garbage.nasty(), garbage.nasty());
            let _ = call(number::COPS_REFILL_RING, []);
        }
    }
}

/// Never takes its results, so that they wait behind the full ring, and sets the overflow flag and
/// the number of workers that take results to random values.
pub fn overflow_forger(cpu: usize, mut garbage: Garbage) -> ! {
    let pipe = Pipe::new();
    loop {
        page().ring.overflowed.store(garbage.below(2) as u32, Relaxed);
        page().ring.taking.store(garbage.below(3) as u32, Relaxed);
        match garbage.below(8) {
            0 => {
                let _ = call(number::COPS_REFILL_RING, []);
            }
            // Marks everything as taken: the next results overwrite the ring.
            1 => page().ring.head.store(page().ring.tail.load(Relaxed), Relaxed),
            2 if !cpu.is_multiple_of(2) => {
                let _ = call(number::COPS_PARK, []);
            }
            _ => {
                let _ = ask(number::READ, pipe.reading(1), garbage.nasty(), garbage.nasty());
                let _ = ask(number::WRITE, pipe.writing(1), garbage.nasty(), garbage.nasty());
            }
        }
    }
}
