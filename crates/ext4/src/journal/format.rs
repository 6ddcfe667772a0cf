//! The blocks of a jbd2 journal as bytes. All numbers are big-endian.

use alloc::vec::Vec;

use crate::bytes::{
    be16_at, be32_at, be64_at, high, low, part, put_be16, put_be32, put_be64, put_bytes, wide,
};
use crate::checksum::{crc32c, crc32c_without};
use crate::error::{Error, Result};

/// Begins every block of the journal that is not the copy of a block. A copy that begins so is
/// stored with zeros there, and its tag says that it was *escaped*.
pub const MAGIC: u32 = 0xC03B_3998;
pub const DESCRIPTOR: u32 = 1;
pub const COMMIT: u32 = 2;
const SUPERBLOCK: u32 = 4;
pub const REVOKE: u32 = 5;

const FEATURE_REVOKE: u32 = 0x1;
const FEATURE_64BIT: u32 = 0x2;
const FEATURE_CHECKSUMS: u32 = 0x10;
const CHECKSUM_CRC32C: u8 = 4;

const FLAG_ESCAPED: u32 = 1;
const FLAG_SAME_UUID: u32 = 2;
const FLAG_LAST: u32 = 8;

const HEADER: usize = 12;
const UUID: usize = 16;

/// Sizes of the tags, and whether there are checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    pub wide: bool,
    pub checksums: bool,
    pub uuid: [u8; UUID],
    seed: u32,
}

/// What a descriptor says about one copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    pub block: u64,
    pub escaped: bool,
    pub checksum: u32,
}

/// The type and the sequence number of a block, if it is one of the journal's own.
pub fn header(block: &[u8]) -> Option<(u32, u32)> {
    (be32_at(block, 0) == MAGIC).then(|| (be32_at(block, 4), be32_at(block, 8)))
}

fn put_header(block: &mut [u8], kind: u32, sequence: u32) {
    put_be32(block, 0, MAGIC);
    put_be32(block, 4, kind);
    put_be32(block, 8, sequence);
}

/// Whether the copy of a block has to be escaped.
pub fn must_be_escaped(block: &[u8]) -> bool {
    be32_at(block, 0) == MAGIC
}

impl Format {
    fn new(wide: bool, checksums: bool, uuid: [u8; UUID]) -> Format {
        Format { wide, checksums, uuid, seed: crc32c(!0, &uuid) }
    }

    fn tag_size(&self) -> usize {
        match (self.checksums, self.wide) {
            (true, _) => 16,
            (false, true) => 12,
            (false, false) => 8,
        }
    }

    /// Bytes at the end of descriptors and revocations.
    fn tail(&self) -> usize {
        if self.checksums { 4 } else { 0 }
    }

    /// Tags that fit into a descriptor.
    pub fn tags_of_block(&self, block_size: usize) -> usize {
        (block_size - HEADER - UUID - self.tail()) / self.tag_size()
    }

    /// Numbers that fit into a revocation.
    pub fn revocations_of_block(&self, block_size: usize) -> usize {
        (block_size - 16 - self.tail()) / self.number_size()
    }

    fn number_size(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// The checksum of a copy, as it is in the journal.
    pub fn copy_checksum(&self, sequence: u32, copy: &[u8]) -> u32 {
        crc32c(crc32c(self.seed, &sequence.to_be_bytes()), copy)
    }

    /// Whether a copy has the checksum of its tag.
    pub fn is_copy_good(&self, tag: &Tag, sequence: u32, copy: &[u8]) -> bool {
        !self.checksums || tag.checksum == self.copy_checksum(sequence, copy)
    }

    pub fn write_descriptor(&self, block: &mut [u8], sequence: u32, tags: &[Tag]) {
        block.fill(0);
        put_header(block, DESCRIPTOR, sequence);
        let mut at = HEADER;
        for (index, tag) in tags.iter().enumerate() {
            let mut flags = if tag.escaped { FLAG_ESCAPED } else { 0 };
            flags |= if index > 0 { FLAG_SAME_UUID } else { 0 };
            flags |= if index + 1 == tags.len() { FLAG_LAST } else { 0 };
            put_be32(block, at, low(tag.block));
            if self.checksums {
                put_be32(block, at + 4, flags);
                put_be32(block, at + 8, high(tag.block));
                put_be32(block, at + 12, tag.checksum);
            } else {
                put_be16(block, at + 6, flags as u16);
                if self.wide {
                    put_be32(block, at + 8, high(tag.block));
                }
            }
            at += self.tag_size();
            if index == 0 {
                put_bytes(block, at, &self.uuid);
                at += UUID;
            }
        }
        self.seal(block);
    }

    /// The tags of a descriptor. Fails if the last one does not say that it is.
    pub fn tags(&self, block: &[u8]) -> Result<Vec<Tag>> {
        let mut tags = Vec::new();
        let mut at = HEADER;
        let end = block.len() - self.tail();
        while at + self.tag_size() <= end {
            let flags = match self.checksums {
                true => be32_at(block, at + 4),
                false => u32::from(be16_at(block, at + 6)),
            };
            let upper = if self.checksums || self.wide { be32_at(block, at + 8) } else { 0 };
            tags.push(Tag {
                block: wide(if self.wide { upper } else { 0 }, be32_at(block, at)),
                escaped: flags & FLAG_ESCAPED != 0,
                checksum: if self.checksums { be32_at(block, at + 12) } else { 0 },
            });
            if flags & FLAG_LAST != 0 {
                return Ok(tags);
            }
            at += self.tag_size() + if flags & FLAG_SAME_UUID == 0 { UUID } else { 0 };
        }
        Err(Error::Corrupt("journal descriptor"))
    }

    pub fn write_revocations(&self, block: &mut [u8], sequence: u32, numbers: &[u64]) {
        block.fill(0);
        put_header(block, REVOKE, sequence);
        put_be32(block, 12, (16 + numbers.len() * self.number_size()) as u32);
        for (index, number) in numbers.iter().enumerate() {
            match self.wide {
                true => put_be64(block, 16 + index * 8, *number),
                false => put_be32(block, 16 + index * 4, low(*number)),
            }
        }
        self.seal(block);
    }

    /// The numbers of a revocation.
    pub fn revocations(&self, block: &[u8]) -> Vec<u64> {
        let used = (be32_at(block, 12) as usize).min(block.len() - self.tail());
        (16..used)
            .step_by(self.number_size())
            .filter(|at| at + self.number_size() <= used)
            .map(|at| if self.wide { be64_at(block, at) } else { u64::from(be32_at(block, at)) })
            .collect()
    }

    /// The record that makes a transaction valid. Its time is 0: the library has no clock, and a
    /// replay does not read it.
    pub fn write_commit(&self, block: &mut [u8], sequence: u32) {
        block.fill(0);
        put_header(block, COMMIT, sequence);
        if self.checksums {
            let checksum = crc32c(self.seed, block);
            put_be32(block, 16, checksum);
        }
    }

    pub fn is_commit_good(&self, block: &[u8]) -> bool {
        !self.checksums || be32_at(block, 16) == crc32c_without(self.seed, block, 16, 4)
    }

    fn seal(&self, block: &mut [u8]) {
        if self.checksums {
            let at = block.len() - 4;
            let checksum = crc32c_without(self.seed, block, at, 4);
            put_be32(block, at, checksum);
        }
    }

    /// Whether a descriptor or a revocation has the right checksum.
    pub fn is_sealed(&self, block: &[u8]) -> bool {
        let at = block.len() - 4;
        !self.checksums || be32_at(block, at) == crc32c_without(self.seed, block, at, 4)
    }
}

/// What the superblock of a journal says.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub format: Format,
    /// Blocks of the journal; number 0 is its superblock.
    pub length: u32,
    /// The first block of the log.
    pub first: u32,
    /// The sequence number of the transaction at `start`.
    pub sequence: u32,
    /// Where the oldest transaction is that may not be in its place; 0 if there is none.
    pub start: u32,
}

impl Head {
    /// A journal without blocks.
    pub fn absent() -> Head {
        let format = Format::new(false, false, [0; UUID]);
        Head { format, length: 1, first: 0, sequence: 0, start: 0 }
    }

    pub fn read(block: &[u8]) -> Result<Head> {
        let Some((SUPERBLOCK, _)) = header(block) else {
            return Err(Error::Corrupt("journal superblock"));
        };
        let (compatible, incompatible) = (be32_at(block, 36), be32_at(block, 40));
        if compatible & !1 != 0 || be32_at(block, 44) != 0 {
            return Err(Error::Unsupported("a journal feature that is younger than this library"));
        }
        match incompatible & !(FEATURE_REVOKE | FEATURE_64BIT | FEATURE_CHECKSUMS) {
            0 if compatible & 1 == 0 => {}
            0 => return Err(Error::Unsupported("journal_checksum of version 1")),
            unknown if unknown & 0x4 != 0 => {
                return Err(Error::Unsupported("journal_async_commit"));
            }
            unknown if unknown & 0x8 != 0 => {
                return Err(Error::Unsupported("journal_checksum of version 2"));
            }
            unknown if unknown & 0x20 != 0 => return Err(Error::Unsupported("fast_commit")),
            _ => {
                return Err(Error::Unsupported(
                    "a journal feature that is younger than this library",
                ));
            }
        }
        let checksums = incompatible & FEATURE_CHECKSUMS != 0;
        if checksums && be32_at(block, 252) != superblock_checksum(block) {
            return Err(Error::Corrupt("checksum of the journal superblock"));
        }
        let uuid = part(block, 48, UUID).try_into().unwrap_or([0; UUID]);
        Ok(Head {
            format: Format::new(incompatible & FEATURE_64BIT != 0, checksums, uuid),
            length: be32_at(block, 16),
            first: be32_at(block, 20),
            sequence: be32_at(block, 24),
            start: be32_at(block, 28),
        })
    }

    /// The format of an empty journal that this library is going to write.
    pub fn set_format(&mut self, wide: bool, checksums: bool) {
        self.format = Format::new(wide, checksums, self.format.uuid);
    }

    /// Stores the head into the block from which it was read.
    pub fn write(&self, block: &mut [u8]) {
        let wide = if self.format.wide { FEATURE_64BIT } else { 0 };
        let checksums = if self.format.checksums { FEATURE_CHECKSUMS } else { 0 };
        put_be32(block, 24, self.sequence);
        put_be32(block, 28, self.start);
        put_be32(block, 40, FEATURE_REVOKE | wide | checksums);
        if self.format.checksums {
            put_bytes(block, 80, &[CHECKSUM_CRC32C]);
            let checksum = superblock_checksum(block);
            put_be32(block, 252, checksum);
        }
    }
}

fn superblock_checksum(block: &[u8]) -> u32 {
    crc32c_without(!0, part(block, 0, 1024), 252, 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn tags_and_revocations_survive_in_every_format() {
        for (wide, checksums) in [(false, false), (false, true), (true, false), (true, true)] {
            let format = Format::new(wide, checksums, [7; 16]);
            let upper = if wide { 5 << 32 } else { 0 };
            let most = format.tags_of_block(1024) as u64;
            let tags: Vec<Tag> = (0..most)
                .map(|block| Tag {
                    block: block | upper,
                    escaped: block % 3 == 0,
                    checksum: if checksums { 9 } else { 0 },
                })
                .collect();
            let mut block = vec![0xAA; 1024];
            format.write_descriptor(&mut block, 12, &tags);
            assert_eq!(header(&block), Some((DESCRIPTOR, 12)));
            assert!(format.is_sealed(&block));
            assert_eq!(format.tags(&block), Ok(tags));
            let numbers: Vec<u64> =
                (0..format.revocations_of_block(1024) as u64).map(|block| block | upper).collect();
            format.write_revocations(&mut block, 12, &numbers);
            assert!(format.is_sealed(&block));
            assert_eq!(format.revocations(&block), numbers);
            format.write_commit(&mut block, 13);
            assert!(format.is_commit_good(&block));
            block[60] ^= 1;
            assert_eq!(format.is_commit_good(&block), !checksums);
        }
    }

    #[test]
    fn malformed_blocks_end() {
        let format = Format::new(true, true, [7; 16]);
        assert_eq!(format.tags(&[0; 1024]), Err(Error::Corrupt("journal descriptor")));
        assert!(format.revocations(&[0xFF; 1024]).len() <= 128);
    }
}
