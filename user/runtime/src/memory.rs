//! Memory that may be refused, the kernel's counters, and random numbers.
//!
//! May touch: memory that it has just allocated.
#![allow(unsafe_code)]

use alloc::alloc::{Layout, alloc};
use alloc::boxed::Box;
use core::ptr::{self, NonNull};

pub use cops_abi::statistics::Statistics;

/// So many words, all zero; `None` if there is no memory for them.
///
/// The same as a `Vec` of that capacity that is filled with zeros, in a quarter of the instructions
/// if it is short.
#[must_use]
pub fn zeroed_words(count: usize) -> Option<Box<[u64]>> {
    if count == 0 {
        return Some(Box::default());
    }
    let layout = Layout::array::<u64>(count).ok()?;
    // SAFETY: the layout is not empty.
    let words = NonNull::new(unsafe { alloc(layout) })?.cast::<u64>();
    // SAFETY: the memory has room for `count` words, is aligned for them, and belongs to this
    // function. The box gets it with the layout with which it was allocated, and initialised.
    unsafe {
        words.as_ptr().write_bytes(0, count);
        Some(Box::from_raw(ptr::slice_from_raw_parts_mut(words.as_ptr(), count)))
    }
}

/// The current values of the kernel's counters.
///
/// # Errors
/// A kernel of this version returns none.
pub fn statistics() -> crate::io::Result<Statistics> {
    Ok(crate::system::statistics()?)
}

/// Fills `bytes` with random numbers from the kernel's generator. They are suitable for keys only
/// if the boot loader provided a seed; `docs/abi.md` describes their quality.
///
/// # Errors
/// A kernel of this version returns none.
pub fn random(mut bytes: &mut [u8]) -> crate::io::Result<()> {
    while !bytes.is_empty() {
        let count = crate::system::random(bytes)?;
        bytes = bytes.get_mut(count.max(1)..).unwrap_or_default();
    }
    Ok(())
}
