//! Assigns the tags of the translation caches to address spaces.

use crate::arch::{self, Asid};
use spin::{Mutex, Once};

const WORDS: usize = 65536 / 64;

/// A bit for each tag in use. Tag 0 is always in use: by the kernel's own space, and by spaces made
/// when all other tags were in use.
struct Pool {
    used: [u64; WORDS],
    /// Where the search begins. Moving on postpones the reuse of a freed tag.
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

/// Number of tags that the machine has.
static COUNT: Once<usize> = Once::new();

/// Determines the number of tags. Called once, at boot, before interrupts are enabled.
pub fn initialise() {
    COUNT.call_once(arch::asid_count);
}

/// A tag that no existing space has, or the shared one if there is none.
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

/// Frees a tag. No hart's translation cache contains it any more.
pub(super) fn free(asid: Asid) {
    if asid != Asid(0) {
        POOL.lock().used[usize::from(asid.0) / 64] &= !(1 << (asid.0 % 64));
    }
}
