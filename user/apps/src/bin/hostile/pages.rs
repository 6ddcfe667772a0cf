//! The pages shared with the kernel as plain words, and writing random values into them. Included
//! by several programs.
#![allow(unsafe_code)]

use core::mem::offset_of;
use core::ptr::with_exposed_provenance;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use cops::abi::interrupt::PostedDescriptor;
use cops::abi::layout::{PAGE_BYTES, PROCESS_PAGE, RING_PAGES};
use cops::abi::page::ProcessPage;
use cops::abi::ring::RING_PAGE_COUNT;

use crate::garbage::Garbage;

/// Words of the process page.
pub const PAGE_WORDS: usize = PAGE_BYTES / 8;
/// Words of the wake ring.
pub const RING_WORDS: usize = RING_PAGE_COUNT * PAGE_BYTES / 8;
/// Index of the word in the page that is the address of the interrupt handler.
const HANDLER_WORD: usize =
    (offset_of!(ProcessPage, posted) + offset_of!(PostedDescriptor, handler)) / 8;
/// Index of the word in the page at which the ring's indices begin; the workers follow them.
const INDICES_WORD: usize = offset_of!(ProcessPage, ring) / 8;

/// The process page as words.
pub fn page_words() -> &'static [AtomicU64; PAGE_WORDS] {
    // SAFETY: the kernel maps the page at this address as long as the process lives, and every bit
    // pattern is a valid integer.
    unsafe { &*with_exposed_provenance(PROCESS_PAGE) }
}

/// The halves of the words of the page, for 32-bit fields.
pub fn page_half_words() -> &'static [AtomicU32; 2 * PAGE_WORDS] {
    // SAFETY: the kernel maps the page at this address as long as the process lives, and every bit
    // pattern is a valid integer.
    unsafe { &*with_exposed_provenance(PROCESS_PAGE) }
}

/// The wake ring as words.
pub fn ring_words() -> &'static [AtomicU64; RING_WORDS] {
    // SAFETY: the kernel maps the ring's pages at this address as long as the process lives, and
    // every bit pattern is a valid integer.
    unsafe { &*with_exposed_provenance(RING_PAGES) }
}

/// Writes a random value to a random place of the page or the ring; to the address of the interrupt
/// handler only if `with_handler`. The words from the ring's indices to the offset `end` in the
/// page are written more often than others.
pub fn scribble(garbage: &mut Garbage, with_handler: bool, end: usize) {
    let used = end / 8 - INDICES_WORD;
    let spared = if with_handler { PAGE_WORDS } else { HANDLER_WORD };
    match garbage.below(4) {
        0 => {
            let word = garbage.below(PAGE_WORDS as u64) as usize;
            if word != spared {
                page_words()[word].store(garbage.nasty(), Relaxed);
            }
        }
        1 => {
            let half = garbage.below(2 * PAGE_WORDS as u64) as usize;
            if half / 2 != spared {
                page_half_words()[half].store(garbage.nasty() as u32, Relaxed);
            }
        }
        // The indices and the workers, which are only few of the words.
        2 => page_words()[INDICES_WORD + garbage.below(used as u64) as usize]
            .store(garbage.nasty(), Relaxed),
        _ => {
            ring_words()[garbage.below(RING_WORDS as u64) as usize].store(garbage.nasty(), Relaxed)
        }
    }
}
