//! Programs that take more than their share of time, processes or memory.

use core::ffi::CStr;
use core::hint::{black_box, spin_loop};

use cops::abi::page::MAX_CPUS;
use cops::abi::syscall::{self as number, map_flags, protection};

use crate::garbage::Garbage;
use crate::kernel::{call, sleep_microseconds};
use crate::lies::claim_to_be_urgent;

/// Computes forever, claims the most urgent level, and never enters the kernel.
pub fn spin(cpu: usize, _garbage: Garbage) -> ! {
    claim_to_be_urgent(cpu);
    loop {
        spin_loop();
    }
}

/// Yields as soon as it has a time slice, to get a new one.
pub fn yield_storm(cpu: usize, _garbage: Garbage) -> ! {
    claim_to_be_urgent(cpu);
    loop {
        let _ = call(number::SCHED_YIELD, []);
    }
}

/// Keeps the kernel busy with cheap and expensive calls.
pub fn trap_storm(cpu: usize, mut garbage: Garbage) -> ! {
    claim_to_be_urgent(cpu);
    loop {
        match garbage.below(4) {
            0 => call(number::GETPID, []),
            1 => match garbage.nasty() as usize {
                // These would end the process.
                number::EXIT | number::EXIT_GROUP => continue,
                any => call(any, []),
            },
            2 => call(number::COPS_UNPARK, [garbage.below(MAX_CPUS as u64) as usize]),
            _ => call(number::KILL, [garbage.nasty() as usize, 0]),
        }
        .ok();
    }
}

/// Starts this program again with `kind` and this seed.
pub fn start(kind: &CStr, cpus: &CStr, seed: u64) -> bool {
    let path = c"/bin/hostile";
    // Twenty digits suffice; the remaining bytes stay zero.
    let mut digits = [0u8; 24];
    let (mut rest, mut place) = (seed, 20);
    loop {
        place -= 1;
        digits[place] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let seed = digits[place..].as_ptr().cast();
    let arguments = [path.as_ptr(), kind.as_ptr(), cpus.as_ptr(), seed, core::ptr::null()];
    let addresses = arguments.map(|argument| argument.addr());
    call(number::COPS_SPAWN_PROCESS, [path.as_ptr().addr(), addresses.as_ptr().addr()]).is_ok()
}

/// Starts as many computing children as possible, and keeps trying.
pub fn spawn_wide(cpu: usize, _garbage: Garbage) -> ! {
    claim_to_be_urgent(cpu);
    loop {
        start(c"spin", c"1", 1);
    }
}

/// Each child starts children in the same way.
pub fn spawn_deep(cpu: usize, mut garbage: Garbage) -> ! {
    claim_to_be_urgent(cpu);
    loop {
        start(c"spawn-deep", c"1", garbage.below(1 << 32));
        if garbage.below(4) == 0 {
            sleep_microseconds(200);
        }
    }
}

/// Starts children that end at once and are never waited for.
pub fn spawn_churn(cpu: usize, _garbage: Garbage) -> ! {
    claim_to_be_urgent(cpu);
    loop {
        if !start(c"exit", c"1", 1) {
            // Processes that have ended keep their places until they are waited for.
            let _ = call(number::WAIT4, [usize::MAX, 0, number::WNOHANG, 0]);
        }
    }
}

/// Maps, accesses and unmaps memory, so that frames and page tables are allocated and freed and all
/// harts must flush translations.
pub fn memory_churn(cpu: usize, mut garbage: Garbage) -> ! {
    const MEBIBYTE: usize = 1 << 20;
    claim_to_be_urgent(cpu);
    let rights = protection::READ | protection::WRITE;
    let flags = map_flags::PRIVATE | map_flags::ANONYMOUS;
    loop {
        let bytes = (1 + garbage.below(4) as usize) * MEBIBYTE;
        let Ok(address) = call(number::MMAP, [0, bytes, rights, flags, usize::MAX, 0]) else {
            continue;
        };
        // The kernel accesses the memory for this process, by writing random numbers to each page.
        for page in (0..bytes).step_by(4096) {
            let _ = call(number::GETRANDOM, [black_box(address + page), 8, 0]);
        }
        let _ = call(number::MUNMAP, [address, bytes]);
    }
}
