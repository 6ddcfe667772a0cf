//! A block of a directory as bytes: entries one behind the other, in linear order.
//!
//! An entry has a header of 8 bytes (inode, length of the entry, length of the name, type) and the
//! name. Its length reaches to the next entry, so it may include free space; an entry without an
//! inode is free as a whole. With checksums the last 12 bytes look like a free entry and have the
//! checksum. An entry never moves, so its position is a stable one for readers.

use crate::bytes::{part, put_bytes, put_u16, put_u32, u16_at, u32_at};
use crate::checksum::crc32c;
use crate::error::{Error, Result};

const HEADER: usize = 8;
const TAIL: usize = 12;
const TAIL_TYPE: u8 = 0xDE;
/// Longest name.
pub const LONGEST_NAME: usize = 255;

/// An entry of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Where it begins in the block.
    pub at: usize,
    pub inode: u32,
    pub kind: u8,
    pub name: &'a [u8],
    /// Bytes up to the next entry.
    length: usize,
}

/// All entries of a block with an inode, in order. Stops at an entry that is not well-formed.
pub fn entries(block: &[u8], checksums: bool) -> impl Iterator<Item = Entry<'_>> {
    all(block, checksums).filter(|entry| entry.inode != 0)
}

fn end(block: &[u8], checksums: bool) -> usize {
    block.len().saturating_sub(if checksums { TAIL } else { 0 })
}

fn all(block: &[u8], checksums: bool) -> impl Iterator<Item = Entry<'_>> {
    let end = end(block, checksums);
    let mut at = 0;
    core::iter::from_fn(move || {
        let entry = read(block, at, end)?;
        at += entry.length;
        Some(entry)
    })
}

fn read(block: &[u8], at: usize, end: usize) -> Option<Entry<'_>> {
    if at + HEADER > end {
        return None;
    }
    let length = usize::from(u16_at(block, at + 4));
    let name = usize::from(*block.get(at + 6)?);
    if length < HEADER + 4
        || !length.is_multiple_of(4)
        || at + length > end
        || HEADER + name > length
    {
        return None;
    }
    Some(Entry {
        at,
        inode: u32_at(block, at),
        kind: *block.get(at + 7)?,
        name: part(block, at + HEADER, name),
        length,
    })
}

/// Fails unless the entries fill a block exactly.
pub fn check(block: &[u8], checksums: bool) -> Result<()> {
    let covered: usize = all(block, checksums).map(|entry| entry.length).sum();
    if covered == end(block, checksums) { Ok(()) } else { Err(Error::Corrupt("directory block")) }
}

/// The length of an entry for a name of so many bytes.
fn needed(name: usize) -> usize {
    (HEADER + name).next_multiple_of(4)
}

fn write(block: &mut [u8], at: usize, length: usize, inode: u32, kind: u8, name: &[u8]) {
    put_u32(block, at, inode);
    put_u16(block, at + 4, length as u16);
    put_bytes(block, at + 6, &[name.len() as u8, kind]);
    put_bytes(block, at + HEADER, name);
}

/// Makes an empty block, with its checksum still to be computed.
pub fn initialise(block: &mut [u8], checksums: bool) {
    block.fill(0);
    let end = end(block, checksums);
    write(block, 0, end, 0, 0, b"");
    if checksums {
        write(block, end, TAIL, 0, TAIL_TYPE, b"");
    }
}

/// The first entry with room for a name of `name` bytes: its position, its length, and the bytes
/// that it needs itself.
fn room(block: &[u8], checksums: bool, name: usize) -> Option<(usize, usize, usize)> {
    all(block, checksums).find_map(|entry| {
        let used = if entry.inode == 0 { 0 } else { needed(entry.name.len()) };
        (entry.length >= used + needed(name)).then_some((entry.at, entry.length, used))
    })
}

/// Whether an entry with a name of `name` bytes fits.
pub fn has_room(block: &[u8], checksums: bool, name: usize) -> bool {
    room(block, checksums, name).is_some()
}

/// Adds an entry, if there is room. The name is not in the block.
pub fn add(block: &mut [u8], checksums: bool, inode: u32, kind: u8, name: &[u8]) -> bool {
    let Some((at, length, used)) = room(block, checksums, name.len()) else { return false };
    if used > 0 {
        put_u16(block, at + 4, used as u16);
    }
    write(block, at + used, length - used, inode, kind, name);
    true
}

/// Removes the entry with this name: the one before it takes its space.
pub fn remove(block: &mut [u8], checksums: bool, name: &[u8]) -> bool {
    let mut before: Option<(usize, usize)> = None;
    let mut found = None;
    for entry in all(block, checksums) {
        if entry.inode != 0 && entry.name == name {
            found = Some((entry.at, entry.length));
            break;
        }
        before = Some((entry.at, entry.length));
    }
    let Some((at, length)) = found else { return false };
    match before {
        Some((previous, space)) => put_u16(block, previous + 4, (space + length) as u16),
        None => put_u32(block, at, 0),
    }
    true
}

/// Makes the entry with this name one of another inode.
pub fn replace(block: &mut [u8], checksums: bool, name: &[u8], inode: u32, kind: u8) -> bool {
    let found = entries(block, checksums).find(|entry| entry.name == name).map(|entry| entry.at);
    let Some(at) = found else { return false };
    put_u32(block, at, inode);
    put_bytes(block, at + 7, &[kind]);
    true
}

/// Makes a linear block of one that belongs to a hash index, or leaves it as it is. The entries of
/// an index are invisible behind `..` or behind an entry without an inode.
pub fn remove_index(block: &mut [u8], is_first: bool, checksums: bool) {
    if !checksums {
        // Only the tail is missing for a linear block. Without tails, a leaf without names looks
        // like a node of the index, and there can be any number of such leaves.
        return;
    }
    let size = block.len();
    let end = end(block, checksums);
    let at = if is_first { 12 } else { 0 };
    let is_dot_dot = u16_at(block, at + 6) == 0x0202 && u16_at(block, at + 8) == 0x2E2E;
    let empty = u32_at(block, 0) == 0;
    // Leaves have their tail in place and so are never covered by a single entry.
    if usize::from(u16_at(block, at + 4)) != size - at || !(is_dot_dot || (!is_first && empty)) {
        return;
    }
    let keep = if is_first { at + 12 } else { 8 };
    if let Some(rest) = block.get_mut(keep..) {
        rest.fill(0);
    }
    put_u16(block, at + 4, (end - at) as u16);
    write(block, end, TAIL, 0, TAIL_TYPE, b"");
}

/// Stores the checksum.
pub fn seal(block: &mut [u8], seed: u32, checksums: bool) {
    if checksums {
        let end = end(block, true);
        let checksum = crc32c(seed, part(block, 0, end));
        put_u32(block, end + HEADER, checksum);
    }
}

/// Whether the checksum is right.
pub fn is_sealed(block: &[u8], seed: u32) -> bool {
    let end = end(block, true);
    let expected = [0, 0, 0, 0, TAIL as u8, 0, 0, TAIL_TYPE];
    part(block, end, HEADER) == expected
        && u32_at(block, end + HEADER) == crc32c(seed, part(block, 0, end))
}

/// Fails unless a name can be that of a new entry.
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > LONGEST_NAME {
        return Err(Error::NameTooLong);
    }
    let special = matches!(name, b"" | b"." | b"..");
    let forbidden = name.iter().any(|byte| matches!(byte, 0 | b'/'));
    if special || forbidden { Err(Error::Invalid) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn names(block: &[u8], checksums: bool) -> Vec<Vec<u8>> {
        entries(block, checksums).map(|entry| entry.name.to_vec()).collect()
    }

    #[test]
    fn entries_are_added_into_the_space_of_removed_ones() {
        for checksums in [false, true] {
            let mut block = vec![0; 1024];
            initialise(&mut block, checksums);
            let mut count = 0;
            while add(
                &mut block,
                checksums,
                20 + count,
                1,
                alloc::format!("name {count:3}").as_bytes(),
            ) {
                count += 1;
            }
            assert_eq!(count as usize, if checksums { 1012 / 16 } else { 1024 / 16 });
            assert!(remove(&mut block, checksums, b"name   7"));
            assert!(remove(&mut block, checksums, b"name   0"));
            assert!(!remove(&mut block, checksums, b"name   0"));
            assert_eq!(check(&block, checksums), Ok(()));
            assert!(add(&mut block, checksums, 9, 1, b"other"));
            assert!(add(&mut block, checksums, 9, 1, b"another"));
            assert!(!add(&mut block, checksums, 9, 1, b"x"));
            assert!(replace(&mut block, checksums, b"other", 77, 2));
            let found = entries(&block, checksums).find(|entry| entry.name == b"other");
            assert_eq!(found.map(|entry| (entry.inode, entry.kind)), Some((77, 2)));
            assert_eq!(names(&block, checksums).len(), count as usize);
            seal(&mut block, 5, checksums);
            assert!(!checksums || (is_sealed(&block, 5) && !is_sealed(&block, 6)));
        }
    }

    #[test]
    fn a_block_of_an_index_becomes_a_linear_one() {
        for checksums in [false, true] {
            let mut block = vec![0xAA; 1024];
            write(&mut block, 0, 12, 2, 2, b".");
            write(&mut block, 12, 1012, 2, 2, b"..");
            remove_index(&mut block, true, checksums);
            assert_eq!(check(&block, checksums), Ok(()));
            assert_eq!(names(&block, checksums), [b".".to_vec(), b"..".to_vec()]);
            let mut inner = vec![0xAA; 1024];
            write(&mut inner, 0, 1024, 0, 0, b"");
            remove_index(&mut inner, false, checksums);
            assert_eq!(check(&inner, checksums), Ok(()));
            let mut leaf = vec![0; 1024];
            initialise(&mut leaf, checksums);
            assert!(add(&mut leaf, checksums, 3, 1, b"kept"));
            remove_index(&mut leaf, false, checksums);
            assert_eq!(names(&leaf, checksums), [b"kept".to_vec()]);
        }
    }

    #[test]
    fn malformed_blocks_are_refused() {
        let mut block = vec![0; 1024];
        initialise(&mut block, false);
        assert!(add(&mut block, false, 3, 1, b"name"));
        for (at, value) in [(4, 0), (4, 7), (4, 2000), (4, 8)] {
            let mut bad = block.clone();
            put_u16(&mut bad, at, value);
            assert!(check(&bad, false).is_err(), "{value} at {at}");
        }
    }
}
