//! A node of an extent tree as bytes: a header and up to `max` entries of 12 bytes.

use crate::bytes::{part, put_bytes, put_u16, put_u32, u16_at, u32_at, wide};
use crate::error::{Error, Result};

pub const HEADER: usize = 12;
pub const ENTRY: usize = 12;
const MAGIC: u16 = 0xF30A;
/// Deepest tree: the format's limit.
pub const DEEPEST: u16 = 5;
/// Blocks of an extent that is written, and of one that is allocated but reads as zeros.
pub const LONGEST: u32 = 32_768;
pub const LONGEST_UNWRITTEN: u32 = 32_767;

/// Consecutive blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub logical: u32,
    pub physical: u64,
    pub length: u32,
    /// Allocated, and reads as zeros.
    pub unwritten: bool,
}

impl Extent {
    pub fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.length)
    }

    fn read(entry: &[u8]) -> Extent {
        let length = u32::from(u16_at(entry, 4));
        let unwritten = length > LONGEST;
        Extent {
            logical: u32_at(entry, 0),
            physical: wide(u32::from(u16_at(entry, 6)), u32_at(entry, 8)),
            length: if unwritten { length - LONGEST } else { length },
            unwritten,
        }
    }

    pub fn write(&self) -> [u8; ENTRY] {
        let mut entry = [0; ENTRY];
        put_u32(&mut entry, 0, self.logical);
        put_u16(&mut entry, 4, (self.length + if self.unwritten { LONGEST } else { 0 }) as u16);
        put_u16(&mut entry, 6, (self.physical >> 32) as u16);
        put_u32(&mut entry, 8, self.physical as u32);
        entry
    }

    /// The extent of both, if `next` continues this one.
    pub fn joined(&self, next: &Extent) -> Option<Extent> {
        let longest = if self.unwritten { LONGEST_UNWRITTEN } else { LONGEST };
        let fits = self.end() == u64::from(next.logical)
            && self.physical + u64::from(self.length) == next.physical
            && self.unwritten == next.unwritten
            && self.length + next.length <= longest;
        fits.then(|| Extent { length: self.length + next.length, ..*self })
    }
}

/// An entry of an inner node: the first block that the child may have, and the child.
pub fn index(first: u32, child: u64) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    put_u32(&mut entry, 0, first);
    put_u32(&mut entry, 4, child as u32);
    put_u16(&mut entry, 8, (child >> 32) as u16);
    entry
}

pub fn count(node: &[u8]) -> usize {
    usize::from(u16_at(node, 2))
}

pub fn max(node: &[u8]) -> usize {
    usize::from(u16_at(node, 4))
}

pub fn depth(node: &[u8]) -> u16 {
    u16_at(node, 6)
}

/// Entries that fit into a node of `size` bytes.
pub fn capacity(size: usize) -> usize {
    // A block has four bytes left for the checksum in any case.
    size.saturating_sub(HEADER) / ENTRY
}

/// The position of the checksum of a node in a block.
pub fn tail(node: &[u8]) -> usize {
    HEADER + ENTRY * max(node)
}

/// Makes an empty node.
pub fn initialise(node: &mut [u8], depth: u16) {
    let max = capacity(node.len());
    node.fill(0);
    put_u16(node, 0, MAGIC);
    put_u16(node, 4, max as u16);
    put_u16(node, 6, depth);
}

pub fn set_depth(node: &mut [u8], depth: u16) {
    put_u16(node, 6, depth);
}

pub fn set_count(node: &mut [u8], count: usize) {
    put_u16(node, 2, count as u16);
}

pub fn entry(node: &[u8], at: usize) -> &[u8] {
    part(node, HEADER + at * ENTRY, ENTRY)
}

pub fn set_entry(node: &mut [u8], at: usize, entry: &[u8]) {
    put_bytes(node, HEADER + at * ENTRY, entry);
}

/// The first block of an entry of either kind.
pub fn first(node: &[u8], at: usize) -> u32 {
    u32_at(entry(node, at), 0)
}

pub fn set_first(node: &mut [u8], at: usize, first: u32) {
    put_u32(node, HEADER + at * ENTRY, first);
}

pub fn child(node: &[u8], at: usize) -> u64 {
    let entry = entry(node, at);
    wide(u32::from(u16_at(entry, 8)), u32_at(entry, 4))
}

pub fn extent(node: &[u8], at: usize) -> Extent {
    Extent::read(entry(node, at))
}

/// The last entry that begins at `logical` or before.
pub fn position(node: &[u8], logical: u32) -> Option<usize> {
    let (mut low, mut high) = (0, count(node));
    while low < high {
        let middle = low.midpoint(high);
        if first(node, middle) <= logical { low = middle + 1 } else { high = middle }
    }
    low.checked_sub(1)
}

/// Inserts an entry before entry `at`. There is room.
pub fn insert(node: &mut [u8], at: usize, entry: &[u8]) {
    let count = count(node);
    let from = HEADER + at * ENTRY;
    let end = HEADER + count * ENTRY;
    if at <= count && end + ENTRY <= node.len() {
        node.copy_within(from..end, from + ENTRY);
        set_entry(node, at, entry);
        set_count(node, count + 1);
    }
}

/// Removes entry `at`.
pub fn remove(node: &mut [u8], at: usize) {
    let count = count(node);
    if at < count {
        let from = HEADER + at * ENTRY;
        node.copy_within(from + ENTRY..HEADER + count * ENTRY, from);
        set_entry(node, count - 1, &[0; ENTRY]);
        set_count(node, count - 1);
    }
}

/// Fails unless the header is one of a node of this depth: every use of a node checks this.
pub fn check_header(node: &[u8], expected_depth: u16) -> Result<()> {
    let good = u16_at(node, 0) == MAGIC
        && count(node) <= max(node)
        && (4..=capacity(node.len())).contains(&max(node))
        && depth(node) == expected_depth
        && expected_depth <= DEEPEST;
    if good { Ok(()) } else { Err(Error::Corrupt("header of an extent node")) }
}

/// Fails unless a node that comes from the disk has entries in order.
pub fn check(node: &[u8], expected_depth: u16) -> Result<()> {
    check_header(node, expected_depth)?;
    let mut next = 0_u64;
    for at in 0..count(node) {
        let begin = u64::from(first(node, at));
        if begin < next {
            return Err(Error::Corrupt("order of extents"));
        }
        next = match expected_depth {
            0 if extent(node, at).length == 0 => return Err(Error::Corrupt("empty extent")),
            0 => extent(node, at).end(),
            _ => begin + 1,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(logical: u32, physical: u64, length: u32) -> Extent {
        Extent { logical, physical, length, unwritten: false }
    }

    #[test]
    fn entries_stay_in_order_and_are_found() {
        let mut node = [0; 60];
        initialise(&mut node, 0);
        for (place, extent) in [(0, at(10, 100, 5)), (0, at(2, 50, 3)), (2, at(20, 9, 1))] {
            insert(&mut node, place, &extent.write());
        }
        assert_eq!(check(&node, 0), Ok(()));
        assert_eq!(
            (position(&node, 1), position(&node, 2), position(&node, 30)),
            (None, Some(0), Some(2))
        );
        remove(&mut node, 1);
        assert_eq!((count(&node), extent(&node, 1)), (2, at(20, 9, 1)));
        insert(&mut node, 1, &at(3, 7, 1).write());
        assert_eq!(check(&node, 0), Err(Error::Corrupt("order of extents")));
    }

    #[test]
    fn extents_join_up_to_their_limits() {
        assert_eq!(at(0, 8, 2).joined(&at(2, 10, 3)), Some(at(0, 8, 5)));
        assert_eq!(at(0, 8, 2).joined(&at(2, 11, 3)), None);
        assert_eq!(at(0, 8, 32_000).joined(&at(32_000, 32_008, 769)), None);
        let unwritten = Extent { unwritten: true, ..at(0, 1, LONGEST_UNWRITTEN) };
        assert_eq!(Extent::read(&unwritten.write()), unwritten);
        assert_eq!(Extent::read(&at(0, 1, LONGEST).write()), at(0, 1, LONGEST));
    }
}
