//! `memcpy`, `memmove`, `memset`, `memcmp` and `bcmp` for harts that load and store words at any
//! address.
//!
//! The compiler calls these functions for large copies, and for those with a length that it does
//! not know. The versions that come with Rust work on every RISC-V hart: where source and
//! destination are not aligned alike, they copy short regions byte by byte. COPS asks more of its
//! harts (decision 25), so here every region is copied in words, whatever its address.
//!
//! Nothing is copied or filled byte by byte. A region that is no multiple of a word ends with a
//! word that overlaps the one before it: 13 bytes are the words at 0 and at 5.
//!
//! The kernel and the user library link this crate. In both, its symbols replace the weak ones of
//! Rust's own library.
#![no_std]
// The compiler must not recognise the loops below as copies and call the very function that they
// are in.
#![no_builtins]
#![warn(missing_docs)]
// On a host only the tests use them.
#![cfg_attr(not(any(test, target_os = "none")), allow(dead_code))]
#![allow(unsafe_code)]

use core::cmp::Ordering;

/// The largest unit that is loaded and stored at once.
const WORD: usize = size_of::<u64>();
/// What one iteration of a loop copies: enough words in flight that the loop's own instructions are
/// a quarter of it.
const BLOCK: usize = 4 * WORD;

type Block = [u64; 4];

/// Loads a `T` from any address.
///
/// # Safety
/// `size_of::<T>()` bytes can be read at `from + offset`.
#[inline(always)]
unsafe fn load<T>(from: *const u8, offset: usize) -> T {
    // SAFETY: the caller's condition; an unaligned read needs no alignment. `T` is an integer or an
    // array of integers here, for which every pattern of bits is valid.
    unsafe { from.add(offset).cast::<T>().read_unaligned() }
}

/// Stores a `T` to any address.
///
/// # Safety
/// `size_of::<T>()` bytes can be written at `to + offset`.
#[inline(always)]
unsafe fn store<T>(to: *mut u8, offset: usize, value: T) {
    // SAFETY: the caller's condition; an unaligned write needs no alignment.
    unsafe { to.add(offset).cast::<T>().write_unaligned(value) }
}

/// Copies 0 to [`BLOCK`] bytes. The regions may overlap, because everything is loaded before
/// anything is stored.
///
/// # Safety
/// `length` bytes can be read at `from` and written at `to`.
#[inline(always)]
unsafe fn copy_up_to_a_block(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: each branch accesses offsets below `length` only: the first bytes of a size that is
    // at most `length`, and the last bytes of that size.
    unsafe {
        if length >= 2 * WORD {
            let head: [u64; 2] = load(from, 0);
            let tail: [u64; 2] = load(from, length - 2 * WORD);
            store(to, 0, head);
            store(to, length - 2 * WORD, tail);
        } else if length >= WORD {
            let (head, tail): (u64, u64) = (load(from, 0), load(from, length - WORD));
            store(to, 0, head);
            store(to, length - WORD, tail);
        } else if length >= 4 {
            let (head, tail): (u32, u32) = (load(from, 0), load(from, length - 4));
            store(to, 0, head);
            store(to, length - 4, tail);
        } else if length > 0 {
            // 1 to 3 bytes: the first, the last, and the one in the middle.
            let (head, middle, tail): (u8, u8, u8) =
                (load(from, 0), load(from, length / 2), load(from, length - 1));
            store(to, 0, head);
            store(to, length / 2, middle);
            store(to, length - 1, tail);
        }
    }
}

/// Copies from the lowest address to the highest. The regions may overlap if `to` is below `from`.
///
/// # Safety
/// `length` bytes can be read at `from` and written at `to`.
#[inline(always)]
unsafe fn copy_forward(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: all offsets are below `length`: the loop ends where less than a block is left, and
    // the tail is the last block.
    unsafe {
        if length <= BLOCK {
            return copy_up_to_a_block(to, from, length);
        }
        // First of all, because the stores below may overwrite it where the regions overlap.
        let tail: Block = load(from, length - BLOCK);
        let mut done = 0;
        while done < length - BLOCK {
            let block: Block = load(from, done);
            store(to, done, block);
            done += BLOCK;
        }
        store(to, length - BLOCK, tail);
    }
}

/// Copies from the highest address to the lowest. The regions may overlap if `to` is above `from`.
///
/// # Safety
/// `length` bytes can be read at `from` and written at `to`.
#[inline(always)]
unsafe fn copy_backward(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: all offsets are below `length`: `left` is above a block when a block is taken from
    // it.
    unsafe {
        if length <= BLOCK {
            return copy_up_to_a_block(to, from, length);
        }
        let head: Block = load(from, 0);
        let mut left = length;
        while left > BLOCK {
            left -= BLOCK;
            let block: Block = load(from, left);
            store(to, left, block);
        }
        store(to, 0, head);
    }
}

/// Fills `length` bytes with `byte`.
///
/// # Safety
/// `length` bytes can be written at `to`.
#[inline(always)]
unsafe fn fill(to: *mut u8, byte: u8, length: usize) {
    let word = u64::from_ne_bytes([byte; WORD]);
    // SAFETY: all offsets are below `length`, as in the functions that copy.
    unsafe {
        if length > BLOCK {
            let mut done = 0;
            while done < length - BLOCK {
                store(to, done, [word; 4]);
                done += BLOCK;
            }
            store(to, length - BLOCK, [word; 4]);
        } else if length >= 2 * WORD {
            store(to, 0, [word; 2]);
            store(to, length - 2 * WORD, [word; 2]);
        } else if length >= WORD {
            store(to, 0, word);
            store(to, length - WORD, word);
        } else if length >= 4 {
            store(to, 0, word as u32);
            store(to, length - 4, word as u32);
        } else if length > 0 {
            store(to, 0, byte);
            store(to, length / 2, byte);
            store(to, length - 1, byte);
        }
    }
}

/// The order of two regions of `length` bytes, decided by the first byte that differs.
///
/// # Safety
/// `length` bytes can be read at both addresses.
#[inline(always)]
unsafe fn compare(one: *const u8, other: *const u8, length: usize) -> Ordering {
    // SAFETY: all offsets are below `length`: whole blocks while there are any, from the first that
    // differs whole words, then the last word, which overlaps what was found equal.
    unsafe {
        // What is long is mostly equal, and a block needs fewer instructions than its words.
        let mut equal = 0;
        while length - equal >= BLOCK {
            let (a, b): (Block, Block) = (load(one, equal), load(other, equal));
            if (a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) != 0 {
                break;
            }
            equal += BLOCK;
        }
        if length >= WORD {
            let mut done = equal.min(length - WORD);
            loop {
                let (a, b): (u64, u64) = (load(one, done), load(other, done));
                if a != b {
                    // As numbers, words are in the order of their first bytes if these are the most
                    // significant.
                    return u64::from_be_bytes(a.to_ne_bytes())
                        .cmp(&u64::from_be_bytes(b.to_ne_bytes()));
                }
                if done == length - WORD {
                    return Ordering::Equal;
                }
                done = (done + WORD).min(length - WORD);
            }
        }
        let mut done = 0;
        while done < length {
            let (a, b): (u8, u8) = (load(one, done), load(other, done));
            if a != b {
                return a.cmp(&b);
            }
            done += 1;
        }
        Ordering::Equal
    }
}

/// The symbols, with the contracts of C. On a host they are the C library's.
#[cfg(target_os = "none")]
mod symbols {
    /// Copies `length` bytes that do not overlap; returns `to`.
    ///
    /// # Safety
    /// As C's `memcpy`.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
        // SAFETY: C's contract is the condition of `copy_forward`.
        unsafe { super::copy_forward(to, from, length) };
        to
    }

    /// Copies `length` bytes that may overlap; returns `to`.
    ///
    /// # Safety
    /// As C's `memmove`.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
        // SAFETY: C's contract; the direction is the one that is right where the regions overlap.
        // As unsigned numbers, `to - from` is less than `length` only if `to` lies in the source.
        unsafe {
            if (to as usize).wrapping_sub(from as usize) < length {
                super::copy_backward(to, from, length);
            } else {
                super::copy_forward(to, from, length);
            }
        }
        to
    }

    /// Fills `length` bytes with the low byte of `value`; returns `to`.
    ///
    /// # Safety
    /// As C's `memset`.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memset(to: *mut u8, value: i32, length: usize) -> *mut u8 {
        // SAFETY: C's contract is the condition of `fill`.
        unsafe { super::fill(to, value as u8, length) };
        to
    }

    /// The order of two regions: negative, 0, or positive.
    ///
    /// # Safety
    /// As C's `memcmp`.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, length: usize) -> i32 {
        // SAFETY: C's contract is the condition of `compare`.
        unsafe { super::compare(one, other, length) as i32 }
    }

    /// 0 if the two regions are equal.
    ///
    /// # Safety
    /// As BSD's `bcmp`.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, length: usize) -> i32 {
        // SAFETY: C's contract is the condition of `compare`.
        unsafe { super::compare(one, other, length) as i32 }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    /// More than three blocks, so that every path has a length on each side of it.
    const LONGEST: usize = 3 * BLOCK + WORD + 1;
    const ROOM: usize = LONGEST + 2 * BLOCK;

    /// Bytes that all differ from their neighbours, and from 0.
    fn bytes() -> Vec<u8> {
        (0..ROOM).map(|place| (place * 7 + 1) as u8 | 1).collect()
    }

    #[test]
    fn every_length_is_copied_at_every_distance_and_nothing_else() {
        for length in 0..=LONGEST {
            for shift in 0..WORD {
                let source = bytes();
                let mut target = std::vec![0; ROOM];
                // SAFETY: `shift + length` and `3 + length` are at most ROOM.
                unsafe {
                    copy_forward(target.as_mut_ptr().add(3), source.as_ptr().add(shift), length)
                };
                assert!(target[..3].iter().chain(&target[3 + length..]).all(|&byte| byte == 0));
                assert_eq!(target[3..3 + length], source[shift..shift + length]);
            }
        }
    }

    #[test]
    fn regions_that_overlap_are_moved_as_if_through_a_copy() {
        for length in 0..=LONGEST {
            for distance in 0..=2 * BLOCK {
                let mut down = bytes();
                let mut expected = bytes();
                expected.copy_within(distance..distance + length, 0);
                let start = down.as_mut_ptr();
                // SAFETY: `distance + length` is at most ROOM.
                unsafe { copy_forward(start, start.add(distance), length) };
                assert_eq!(down, expected, "{length} bytes down by {distance}");

                let mut up = bytes();
                let mut expected = bytes();
                expected.copy_within(0..length, distance);
                let start = up.as_mut_ptr();
                // SAFETY: `distance + length` is at most ROOM.
                unsafe { copy_backward(start.add(distance), start, length) };
                assert_eq!(up, expected, "{length} bytes up by {distance}");
            }
        }
    }

    #[test]
    fn every_length_is_filled_and_nothing_else() {
        for length in 0..=LONGEST {
            let mut target = std::vec![0; ROOM];
            // SAFETY: `5 + length` is at most ROOM.
            unsafe { fill(target.as_mut_ptr().add(5), 0xA5, length) };
            let expected = |place: usize| if (5..5 + length).contains(&place) { 0xA5 } else { 0 };
            assert!((0..ROOM).all(|place| target[place] == expected(place)), "{length}");
        }
    }

    #[test]
    fn the_first_difference_decides() {
        for length in 0..=LONGEST {
            let one = bytes();
            let order = |other: &[u8]| {
                // SAFETY: both have ROOM bytes, and `1 + length` is at most that.
                unsafe { compare(one.as_ptr().add(1), other.as_ptr().add(1), length) }
            };
            assert_eq!(order(&one), Ordering::Equal);
            for place in 1..1 + length {
                let mut other = bytes();
                other[place] ^= 0x80;
                // What comes later says the opposite.
                other[place + 1..].iter_mut().for_each(|byte| *byte ^= 0x80);
                let expected = one[place].cmp(&other[place]);
                assert_eq!(order(&other), expected, "{length} bytes, different from {place}");
            }
            let mut other = bytes();
            other[1 + length] ^= 1;
            other[0] ^= 1;
            assert_eq!(order(&other), Ordering::Equal, "bytes beside the {length} compared ones");
        }
    }
}
