//! The memory of a child, and pointers into it and elsewhere.
//!
//! ```text
//! base                                 64 pages
//! | slots, one a virtual CPU | writable ... | read-only 4 | writable 4 | hole 2 | writable 6 | hole: what mmap gives next
//! ```

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cops::abi::layout::{
    PAGE_BYTES, PROCESS_PAGE, RING_PAGES, STACK_TOP, SYSTEM_PAGE, USER_END, VDSO,
};
use cops::abi::page::MAX_CPUS;
use cops::abi::syscall::{self as number, map_flags, protection};

use crate::garbage::Garbage;
use crate::kernel::{call, words_at};

/// Number of pages of the arena.
const PAGES: usize = 64;
/// The read-only pages.
const READ_ONLY: core::ops::Range<usize> = 48..52;
/// The unmapped pages.
const HOLE: core::ops::Range<usize> = 56..58;

/// Start of the arena.
static BASE: AtomicUsize = AtomicUsize::new(0);

/// Maps the arena.
pub fn prepare() {
    let rights = protection::READ | protection::WRITE;
    let flags = map_flags::PRIVATE | map_flags::ANONYMOUS;
    let Ok(base) = call(number::MMAP, [0, PAGES * PAGE_BYTES, rights, flags, usize::MAX, 0]) else {
        let _ = call(number::EXIT_GROUP, [4]);
        return;
    };
    let part = |pages: core::ops::Range<usize>| {
        (base + pages.start * PAGE_BYTES, pages.len() * PAGE_BYTES)
    };
    let (start, length) = part(READ_ONLY);
    let _ = call(number::MPROTECT, [start, length, protection::READ]);
    let (start, length) = part(HOLE);
    let _ = call(number::MUNMAP, [start, length]);
    BASE.store(base, Relaxed);
}

/// A page of virtual CPU `cpu` for the memory that its calls read: paths, addresses, times.
pub fn slot(cpu: usize) -> usize {
    BASE.load(Relaxed) + cpu % MAX_CPUS * PAGE_BYTES
}

/// Writes words into a slot.
pub fn fill(address: usize, words: &[u64]) {
    for (place, &word) in words_at(address, words.len()).iter().zip(words) {
        place.store(word, Relaxed);
    }
}

/// Writes bytes into a slot, padded with zeros to a whole word.
pub fn fill_bytes(address: usize, bytes: &[u8]) {
    for (index, chunk) in bytes.chunks(8).enumerate() {
        let word = chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        fill(address + index * 8, &[word]);
    }
    if bytes.len().is_multiple_of(8) {
        fill(address + bytes.len(), &[0]);
    }
}

/// A word-aligned address inside the arena.
fn inside(garbage: &mut Garbage) -> usize {
    BASE.load(Relaxed) + garbage.below((PAGES * PAGE_BYTES / 8) as u64) as usize * 8
}

/// An address near the beginning or the end of a mapping.
fn edge(garbage: &mut Garbage) -> usize {
    let pages = [0, READ_ONLY.start, READ_ONLY.end, HOLE.start, HOLE.end, PAGES];
    let page = pages[garbage.below(pages.len() as u64) as usize];
    (BASE.load(Relaxed) + page * PAGE_BYTES).wrapping_add_signed(garbage.below(33) as isize - 16)
}

/// A page of the process or the machine that the process has not mapped itself.
fn shared(garbage: &mut Garbage) -> usize {
    let pages = [PROCESS_PAGE, RING_PAGES, RING_PAGES + PAGE_BYTES, SYSTEM_PAGE, VDSO, STACK_TOP];
    pages[garbage.below(pages.len() as u64) as usize] + garbage.below(PAGE_BYTES as u64) as usize
}

/// An address that a process must not access: null, the first page, the kernel, non-canonical
/// addresses.
fn forbidden(garbage: &mut Garbage) -> usize {
    const ADDRESSES: [usize; 10] = [
        0,
        8,
        0xffff,
        0x37_0000_0000,
        USER_END - 8,
        USER_END,
        0x8000_0000_0000_0000,
        0xffff_ffc0_8020_0000,
        0xffff_fff0_0000_0000,
        usize::MAX - 7,
    ];
    ADDRESSES[garbage.below(ADDRESSES.len() as u64) as usize]
}

/// Any address; most are valid for some access.
pub fn pointer(garbage: &mut Garbage) -> usize {
    match garbage.below(64) {
        0..32 => inside(garbage),
        32..38 => inside(garbage) + garbage.below(8) as usize,
        38..48 => edge(garbage),
        48..54 => forbidden(garbage),
        54..59 => shared(garbage),
        // This program's code and the memory after it: a child that writes there ends soon.
        59 => 0x1_0000 + garbage.below(1 << 20) as usize,
        _ => garbage.nasty() as usize,
    }
}

/// The first address of a page, mostly in the arena's upper half.
pub fn page(garbage: &mut Garbage) -> usize {
    match garbage.below(16) {
        0 => pointer(garbage),
        1 => pointer(garbage) & !(PAGE_BYTES - 1),
        _ => {
            let half = (PAGES / 2) as u64;
            BASE.load(Relaxed) + (PAGES / 2 + garbage.below(half) as usize) * PAGE_BYTES
        }
    }
}

/// A number of bytes.
pub fn length(garbage: &mut Garbage) -> usize {
    match garbage.below(16) {
        0 | 1 => 0,
        2 | 3 => 1,
        4..8 => garbage.below(64) as usize,
        8..12 => garbage.below(5 * PAGE_BYTES as u64) as usize,
        12 => PAGE_BYTES,
        13 => (garbage.below(16) as usize) * PAGE_BYTES,
        _ => garbage.nasty() as usize,
    }
}
