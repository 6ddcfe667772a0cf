//! Thousands of calls in flight, and therefore thousands of kernel coroutines that work for one
//! process.

use cops::abi::syscall as number;

use crate::calls::{Pipe, forget_results};
use crate::garbage::Garbage;
use crate::kernel::{ask, call, sleep_microseconds};
use crate::lies::claim_to_be_urgent;

/// Number of calls that become ready at the same moment in [`kernel_crowd`].
const CROWD: usize = 4_000;
/// Time in which [`kernel_crowd`] makes its calls, before all of them become ready.
const NOTICE_NANOSECONDS: usize = 40_000_000;

/// 2,000 reads pending on one pipe, into which one byte at a time is written.
pub fn pipe_readers(cpu: usize, _garbage: Garbage) -> ! {
    readers(cpu, 2_000)
}

/// The same with 15,000 reads.
pub fn pipe_readers_many(cpu: usize, _garbage: Garbage) -> ! {
    readers(cpu, 15_000)
}

fn readers(cpu: usize, count: usize) -> ! {
    only_the_first(cpu);
    claim_to_be_urgent(cpu);
    let pipe = Pipe::new();
    for _ in 0..count {
        let _ = ask(number::READ, pipe.reading(1), 1, 1);
    }
    loop {
        let _ = call(number::WRITE, pipe.writing(1));
        // One of the reads gets its byte; a new read replaces it.
        let _ = ask(number::READ, pipe.reading(1), 1, 1);
        forget_results();
    }
}

/// 4,000 sleeps that end at the same moment, repeatedly.
pub fn kernel_crowd(cpu: usize, _garbage: Garbage) -> ! {
    only_the_first(cpu);
    claim_to_be_urgent(cpu);
    loop {
        let mut time = [0usize; 2];
        let _ = call(number::CLOCK_GETTIME, [1, (&raw mut time).addr()]);
        time[1] += NOTICE_NANOSECONDS;
        if time[1] >= 1_000_000_000 {
            time = [time[0] + 1, time[1] - 1_000_000_000];
        }
        let until = [1, number::TIMER_ABSTIME, time.as_ptr().addr(), 0];
        for _ in 0..CROWD {
            let _ = ask(number::CLOCK_NANOSLEEP, until, 1, 1);
        }
        let _ = call(number::CLOCK_NANOSLEEP, until);
        forget_results();
    }
}

/// Makes all other virtual CPUs sleep.
fn only_the_first(cpu: usize) {
    if cpu != 0 {
        loop {
            sleep_microseconds(1_000_000_000);
        }
    }
}
