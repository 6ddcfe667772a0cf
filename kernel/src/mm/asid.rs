//! Which tag of the translation caches belongs to which address space.

use crate::arch::{self, Asid};
use spin::{Mutex, Once};

const WORDS: usize = 65536 / 64;

/// A bit for each tag in use. Tag 0 always is: it belongs to the kernel's own space and to
/// those that came when all tags were taken.
struct Pool {
    used: [u64; WORDS],
    /// Where to look first, so that a freed tag rests as long as possible.
    next_word: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    used: {
        let mut used = [0; WORDS];
        used[0] = 1;
        used
    },
    next_word: 0,
});

/// How many tags the machine tells apart.
static COUNT: Once<usize> = Once::new();

/// Finds out how many tags there are. Once, at boot, before interrupts are on.
pub fn initialise() {
    COUNT.call_once(arch::asid_count);
}

/// A tag no living space has, or the shared one when there is none.
pub(super) fn allocate() -> Asid {
    let words = COUNT.get().copied().unwrap_or(1).div_ceil(64);
    let limit = COUNT.get().copied().unwrap_or(1);
    let mut pool = POOL.lock();
    for step in 0..words {
        let word = (pool.next_word + step) % words;
        let bit = pool.used[word].trailing_ones() as usize;
        if bit < 64 && word * 64 + bit < limit {
            pool.used[word] |= 1 << bit;
            pool.next_word = word;
            return Asid((word * 64 + bit) as u16);
        }
    }
    Asid(0)
}

/// Gives a tag back, which no hart's cache knows any more.
pub(super) fn free(asid: Asid) {
    if asid != Asid(0) {
        POOL.lock().used[usize::from(asid.0) / 64] &= !(1 << (asid.0 % 64));
    }
}
