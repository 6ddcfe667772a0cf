//! Wakes for coroutines and virtual CPUs of others.

use core::sync::atomic::Ordering::Relaxed;

use cops::abi::syscall as number;

use crate::calls::Pipe;
use crate::garbage::Garbage;
use crate::kernel::{ask, call, page};
use crate::lies::claim_to_be_urgent;
use crate::pages::ring_words;

/// Forges ids of every invalid kind: none, the kernel's, another process's, one of a coroutine that
/// has ended, one with an index out of range; virtual CPUs that do not exist; calls of others.
pub fn wake_forger(cpu: usize, mut garbage: Garbage) -> ! {
    claim_to_be_urgent(cpu);
    let pipe = Pipe::new();
    loop {
        // The format of ids: generation | executor | index. The kernel's executor has number 0, and
        // so has that of each process.
        let generation = [0, 1, 2, 7, u32::MAX as u64][garbage.below(5) as usize];
        let executor = [0, 0, 1, 255][garbage.below(4) as usize];
        let index = [0, 1, 2, 3, 17, (1 << 24) - 1][garbage.below(6) as usize];
        let id = generation << 32 | executor << 24 | index;
        match garbage.below(6) {
            // The kernel returns the id with the result, to this process only.
            0 => drop(ask(number::READ, pipe.reading(1), id, id)),
            1 => drop(ask(number::WRITE, pipe.writing(1), id, id)),
            2 => drop(call(number::COPS_UNPARK, [garbage.nasty() as usize])),
            // Handles belong to a process: the owner of this one is another process.
            3 => drop(call(number::COPS_CANCEL, [garbage.nasty() as usize])),
            4 => drop(call(number::COPS_CANCEL, [id as usize])),
            // As if the kernel had written it.
            _ => {
                let place = garbage.below(256) as usize * 4;
                ring_words()[place].store(id, Relaxed);
                ring_words()[place + 1].store(garbage.nasty(), Relaxed);
                page().ring.tail.fetch_add(1, Relaxed);
            }
        }
    }
}
