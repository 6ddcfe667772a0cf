//! A hand-made image, whole and broken in every byte.

use std::vec::Vec;

use super::*;

const STRINGS: &[u8] = b"\0cops_wake\0cops_run\0";
const DYNAMIC: usize = 64 + 2 * 56;
const SYMBOLS: usize = DYNAMIC + 4 * 16;
const HASH: usize = SYMBOLS + 3 * SYMBOL_BYTES;
const NAMES: usize = HASH + 8;
const TOTAL: usize = 1024;
/// Miri is slow.
const EACH: usize = if cfg!(miri) { 37 } else { 1 };

fn put(image: &mut [u8], at: usize, value: u64, bytes: usize) {
    image[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
}

fn image() -> Vec<u8> {
    let mut image = std::vec![0; TOTAL];
    image[..6].copy_from_slice(b"\x7fELF\x02\x01");
    put(&mut image, 32, 64, 8);
    put(&mut image, 54, 56, 2);
    put(&mut image, 56, 2, 2);
    for (header, kind, address, bytes) in
        [(64, PROGRAM_HEADER_LOAD, 0, TOTAL), (120, PROGRAM_HEADER_DYNAMIC, DYNAMIC, 64)]
    {
        put(&mut image, header, kind as u64, 4);
        put(&mut image, header + 8, address as u64, 8);
        put(&mut image, header + 16, address as u64, 8);
        put(&mut image, header + 32, bytes as u64, 8);
    }
    for (number, (tag, value)) in
        [(DYNAMIC_HASH, HASH), (DYNAMIC_STRINGS, NAMES), (DYNAMIC_SYMBOLS, SYMBOLS), (0, 0)]
            .iter()
            .enumerate()
    {
        put(&mut image, DYNAMIC + number * 16, *tag, 8);
        put(&mut image, DYNAMIC + number * 16 + 8, *value as u64, 8);
    }
    // Symbol 0 is the null symbol; the others are defined in section 1.
    for (number, name, value) in [(1, 1, 0x300), (2, 11, 0x310)] {
        put(&mut image, SYMBOLS + number * SYMBOL_BYTES, name, 4);
        put(&mut image, SYMBOLS + number * SYMBOL_BYTES + 6, 1, 2);
        put(&mut image, SYMBOLS + number * SYMBOL_BYTES + 8, value, 8);
    }
    put(&mut image, HASH + 4, 3, 4);
    image[NAMES..NAMES + STRINGS.len()].copy_from_slice(STRINGS);
    image
}

fn find(image: &[u8], name: &str) -> Option<usize> {
    DynamicSymbols::in_bytes(image)?.find(name)
}

#[test]
fn exports_are_found_by_name() {
    let image = image();
    assert_eq!(find(&image, "cops_wake"), Some(0x300));
    assert_eq!(find(&image, "cops_run"), Some(0x310));
    assert_eq!(find(&image, "cops_ru"), None);
    assert_eq!(find(&image, ""), None);
}

#[test]
fn undefined_symbols_and_those_outside_are_no_exports() {
    let mut undefined = image();
    put(&mut undefined, SYMBOLS + SYMBOL_BYTES + 6, 0, 2);
    assert_eq!(find(&undefined, "cops_wake"), None);
    let mut outside = image();
    put(&mut outside, SYMBOLS + SYMBOL_BYTES + 8, TOTAL as u64, 8);
    assert_eq!(find(&outside, "cops_wake"), None);
}

#[test]
fn an_image_that_is_not_laid_out_by_our_script_is_refused() {
    for (at, value) in [(0, b'x'), (4, 1), (5, 2), (64 + 9, 1), (64 + 17, 1), (64, 7), (120, 7)] {
        let mut broken = image();
        broken[at] = value;
        assert_eq!(find(&broken, "cops_wake"), None, "byte {at}");
    }
}

#[test]
fn an_image_in_memory_is_as_long_as_its_header_says() {
    let image = image();
    // SAFETY: `image()` returns a complete image with all that its headers describe, and it is not
    // changed.
    #[allow(unsafe_code)]
    let symbols = unsafe { DynamicSymbols::of(image.as_ptr()) }.unwrap();
    assert_eq!(symbols.find("cops_run"), Some(0x310));
    assert_eq!(symbols.image.0.len(), TOTAL);
}

#[test]
fn any_wrong_byte_is_survived() {
    for at in (0..TOTAL).step_by(EACH) {
        for value in [0, 1, 0x7f, 0xff] {
            let mut broken = image();
            broken[at] = value;
            for name in ["cops_wake", "cops_none"] {
                if let Some(offset) = find(&broken, name) {
                    assert!(offset < TOTAL);
                }
            }
        }
    }
}

#[test]
fn any_end_is_survived() {
    let image = image();
    for length in (0..TOTAL).step_by(EACH) {
        let found = find(&image[..length], "cops_wake");
        assert!(found.is_none_or(|offset| offset < length));
    }
}
