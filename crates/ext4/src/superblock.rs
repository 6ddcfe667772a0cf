//! The superblock, and what of it never changes while the file system is open.

use alloc::vec::Vec;

use crate::bytes::{high, low, pair, part, put_u16, put_u32, u16_at, u32_at, wide};
use crate::checksum::crc32c;
use crate::error::{Error, Result};
use crate::features::{
    Features, INCOMPAT_64BIT, INCOMPAT_CHECKSUM_SEED, INCOMPAT_RECOVER, RO_MANY_SUBDIRECTORIES,
    RO_SPARSE_SUPER,
};
use crate::inode::ROOT;

/// Position and length of the superblock on the disk.
pub const POSITION: u64 = 1024;
pub const SIZE: usize = 1024;

const FREE_BLOCKS: usize = 0x0C;
const FREE_INODES: usize = 0x10;
const MOUNT_TIME: usize = 0x2C;
const WRITE_TIME: usize = 0x30;
const MOUNT_COUNT: usize = 0x34;
const STATE: usize = 0x3A;
const INCOMPATIBLE: usize = 0x60;
const FIRST_ORPHAN: usize = 0xE8;
const FREE_BLOCKS_HIGH: usize = 0x158;
const CHECKSUM: usize = 0x3FC;
const STATE_ERRORS: u16 = 2;

/// Where the structures of a group are.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
}

/// Sizes, counts and places. Read once.
#[derive(Debug)]
pub struct Layout {
    pub features: Features,
    pub block_size: usize,
    pub blocks: u64,
    pub first_data_block: u64,
    pub blocks_per_group: u32,
    pub inodes: u32,
    pub inodes_per_group: u32,
    pub inode_size: usize,
    pub first_inode: u32,
    pub descriptor_size: usize,
    pub extra_size: u16,
    pub reserved_blocks: u64,
    pub journal_inode: u32,
    /// The register with which every checksum begins.
    pub seed: u32,
    /// Blocks behind a superblock that group descriptors take or may take when the disk grows.
    pub descriptor_blocks: u64,
    pub places: Vec<Place>,
    /// Blocks that belong to no file, as (first, length), ascending.
    pub system: Vec<(u64, u64)>,
}

impl Layout {
    /// Reads `bytes`, the superblock of a disk that has `device_size` bytes.
    pub fn read(bytes: &[u8], device_size: u64) -> Result<Layout> {
        if bytes.len() != SIZE || u16_at(bytes, 0x38) != 0xEF53 {
            return Err(Error::Corrupt("no ext4 superblock"));
        }
        if u32_at(bytes, 0x4C) != 1 {
            return Err(Error::Unsupported("a superblock of revision 0"));
        }
        let features = Features {
            compatible: u32_at(bytes, 0x5C),
            incompatible: u32_at(bytes, INCOMPATIBLE),
            read_only_compatible: u32_at(bytes, 0x64),
        };
        features.check()?;
        if features.checksums() {
            if bytes.get(0x175) != Some(&1) {
                return Err(Error::Unsupported("a checksum other than crc32c"));
            }
            if u32_at(bytes, CHECKSUM) != crc32c(!0, part(bytes, 0, CHECKSUM)) {
                return Err(Error::Corrupt("superblock checksum"));
            }
        }
        let wrong = Err(Error::Corrupt("superblock geometry"));
        let Some(block_size @ 1024..=4096) = 1024_usize.checked_shl(u32_at(bytes, 0x18).min(30))
        else {
            return Err(Error::Unsupported("blocks of more than 4096 bytes"));
        };
        let sixty_four = features.incompatible & INCOMPAT_64BIT != 0;
        let upper = |at| if sixty_four { u32_at(bytes, at) } else { 0 };
        let blocks = wide(upper(0x150), u32_at(bytes, 0x04));
        let first_data_block = u64::from(u32_at(bytes, 0x14));
        let blocks_per_group = u32_at(bytes, 0x20);
        let inodes_per_group = u32_at(bytes, 0x28);
        let inode_size = usize::from(u16_at(bytes, 0x58));
        let descriptor_size = if sixty_four { usize::from(u16_at(bytes, 0xFE)) } else { 32 };
        let bits = block_size as u32 * 8;
        if first_data_block != u64::from(block_size == 1024)
            || u32_at(bytes, 0x1C) != u32_at(bytes, 0x18)
            || blocks <= first_data_block + 8
            || blocks > 1 << 48
            || blocks.checked_mul(block_size as u64).is_none_or(|size| size > device_size)
            || blocks_per_group == 0
            || blocks_per_group > bits
            || !blocks_per_group.is_multiple_of(8)
            || inodes_per_group == 0
            || inodes_per_group > bits
            || !inodes_per_group.is_multiple_of(8)
            || !inode_size.is_power_of_two()
            || !(128..=block_size).contains(&inode_size)
            || !descriptor_size.is_power_of_two()
            || !(32..=block_size).contains(&descriptor_size)
            || (sixty_four && descriptor_size < 64)
        {
            return wrong;
        }
        let groups = (blocks - first_data_block).div_ceil(u64::from(blocks_per_group));
        let inodes = u32_at(bytes, 0x00);
        let first_inode = u32_at(bytes, 0x54);
        if u64::from(inodes) != groups * u64::from(inodes_per_group)
            || !(11..=inodes_per_group).contains(&first_inode)
        {
            return wrong;
        }
        let per_block = (block_size / descriptor_size) as u64;
        let used = groups.div_ceil(per_block);
        let descriptor_blocks = used + u64::from(u16_at(bytes, 0xCE));
        if descriptor_blocks >= u64::from(blocks_per_group) {
            return wrong;
        }
        let seed = match features.incompatible & INCOMPAT_CHECKSUM_SEED {
            0 => crc32c(!0, part(bytes, 0x68, 16)),
            _ => u32_at(bytes, 0x270),
        };
        Ok(Layout {
            features,
            block_size,
            blocks,
            first_data_block,
            blocks_per_group,
            inodes,
            inodes_per_group,
            inode_size,
            first_inode,
            descriptor_size,
            extra_size: u16_at(bytes, 0x15E).clamp(28, 32),
            reserved_blocks: wide(upper(0x154), u32_at(bytes, 0x08)),
            journal_inode: u32_at(bytes, 0xE0),
            seed,
            descriptor_blocks,
            places: Vec::new(),
            system: Vec::new(),
        })
    }

    pub fn groups(&self) -> u32 {
        (self.blocks - self.first_data_block).div_ceil(u64::from(self.blocks_per_group)) as u32
    }

    /// The first block of a group.
    pub fn group_start(&self, group: u32) -> u64 {
        self.first_data_block + u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// Blocks of a group; the last one may be shorter.
    pub fn group_blocks(&self, group: u32) -> u32 {
        let left = self.blocks.saturating_sub(self.group_start(group));
        left.min(u64::from(self.blocks_per_group)) as u32
    }

    /// The group of a block and its number there. `block` is one of the disk.
    pub fn group_of(&self, block: u64) -> (u32, u32) {
        let inside = block.saturating_sub(self.first_data_block);
        let per_group = u64::from(self.blocks_per_group);
        ((inside / per_group) as u32, (inside % per_group) as u32)
    }

    /// Whether a group begins with a copy of the superblock and the descriptors.
    pub fn has_superblock(&self, group: u32) -> bool {
        let power_of = |base: u32| {
            let mut power = base;
            while power < group {
                power = power.saturating_mul(base);
            }
            power == group
        };
        self.features.read_only_compatible & RO_SPARSE_SUPER == 0
            || group <= 1
            || power_of(3)
            || power_of(5)
            || power_of(7)
    }

    /// The block that has the superblock, and its position there.
    pub fn superblock_place(&self) -> (u64, usize) {
        let size = self.block_size as u64;
        (POSITION / size, (POSITION % size) as usize)
    }

    /// The block that has a group's descriptor, and its position there.
    pub fn descriptor_place(&self, group: u32) -> (u64, usize) {
        let at = group as usize * self.descriptor_size;
        (self.first_data_block + 1 + (at / self.block_size) as u64, at % self.block_size)
    }

    /// The block that has an inode, and its position there. Fails for numbers that do not exist.
    pub fn inode_place(&self, number: u32) -> Result<(u64, usize)> {
        if number == 0 || number > self.inodes {
            return Err(Error::Stale);
        }
        let (group, index) = self.inode_group(number);
        let place = self.places.get(group as usize).ok_or(Error::Stale)?;
        let at = index as usize * self.inode_size;
        Ok((place.inode_table + (at / self.block_size) as u64, at % self.block_size))
    }

    /// Whether a directory may have an entry for an inode: it exists, and is not one of the system,
    /// such as the journal.
    pub fn is_named(&self, number: u32) -> bool {
        number == ROOT || (self.first_inode..=self.inodes).contains(&number)
    }

    /// The group of an inode and its number there.
    pub fn inode_group(&self, number: u32) -> (u32, u32) {
        let index = number.saturating_sub(1);
        (index / self.inodes_per_group, index % self.inodes_per_group)
    }

    pub fn inode_table_blocks(&self) -> u64 {
        (self.inodes_per_group as usize * self.inode_size).div_ceil(self.block_size) as u64
    }

    /// Computes [`system`](Layout::system) from the places of all groups.
    pub fn find_system_blocks(&mut self) -> Result<()> {
        let table = self.inode_table_blocks();
        let mut system = Vec::new();
        for (group, place) in (0..).zip(&self.places) {
            if self.has_superblock(group) {
                system.push((self.group_start(group), 1 + self.descriptor_blocks));
            }
            system.push((place.block_bitmap, 1));
            system.push((place.inode_bitmap, 1));
            system.push((place.inode_table, table));
        }
        self.add_system_blocks(system)
    }

    /// Adds blocks to [`system`](Layout::system), as (first, length). None may be there already.
    pub fn add_system_blocks(&mut self, more: Vec<(u64, u64)>) -> Result<()> {
        let mut system = more;
        system.extend_from_slice(&self.system);
        system.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (start, length) in system {
            let end = start.checked_add(length).filter(|end| *end <= self.blocks);
            if start < self.first_data_block || end.is_none() {
                return Err(Error::Corrupt("block of the system"));
            }
            match merged.last_mut() {
                Some(last) if last.0 + last.1 > start => {
                    return Err(Error::Corrupt("overlapping blocks of the system"));
                }
                Some(last) if last.0 + last.1 == start => last.1 += length,
                _ => merged.push((start, length)),
            }
        }
        self.system = merged;
        Ok(())
    }

    /// Whether a file may have these blocks: they exist, and none belongs to the system.
    pub fn is_for_files(&self, start: u64, length: u64) -> bool {
        let Some(end) = start.checked_add(length) else { return false };
        let after = self.system.partition_point(|(first, _)| *first < end);
        let reaches = |(first, count): &(u64, u64)| first + count > start;
        start > self.first_data_block
            && length > 0
            && end <= self.blocks
            && !after.checked_sub(1).and_then(|i| self.system.get(i)).is_some_and(reaches)
    }

    pub fn many_subdirectories(&self) -> bool {
        self.features.read_only_compatible & RO_MANY_SUBDIRECTORIES != 0
    }
}

/// The changing part. `bytes` is a superblock that [`Layout::read`] has accepted.
pub fn free_blocks(bytes: &[u8]) -> u64 {
    wide(u32_at(bytes, FREE_BLOCKS_HIGH), u32_at(bytes, FREE_BLOCKS))
}

pub fn set_free_blocks(bytes: &mut [u8], count: u64) {
    put_u32(bytes, FREE_BLOCKS, low(count));
    put_u32(bytes, FREE_BLOCKS_HIGH, high(count));
}

pub fn free_inodes(bytes: &[u8]) -> u32 {
    u32_at(bytes, FREE_INODES)
}

pub fn set_free_inodes(bytes: &mut [u8], count: u32) {
    put_u32(bytes, FREE_INODES, count);
}

/// The first inode of the list of those that wait to be deleted or truncated, or 0.
pub fn first_orphan(bytes: &[u8]) -> u32 {
    u32_at(bytes, FIRST_ORPHAN)
}

pub fn set_first_orphan(bytes: &mut [u8], inode: u32) {
    put_u32(bytes, FIRST_ORPHAN, inode);
}

pub fn has_errors(bytes: &[u8]) -> bool {
    u16_at(bytes, STATE) & STATE_ERRORS != 0
}

/// Marks the journal as one that must be replayed, or as empty.
pub fn set_recover(bytes: &mut [u8], recover: bool) {
    let word = u32_at(bytes, INCOMPATIBLE) & !INCOMPAT_RECOVER;
    put_u32(bytes, INCOMPATIBLE, word | if recover { INCOMPAT_RECOVER } else { 0 });
}

/// Counts a mount at `seconds`.
pub fn set_mounted(bytes: &mut [u8], seconds: u32) {
    put_u32(bytes, MOUNT_TIME, seconds);
    put_u32(bytes, WRITE_TIME, seconds);
    let count = u16_at(bytes, MOUNT_COUNT).saturating_add(1);
    put_u16(bytes, MOUNT_COUNT, count);
}

/// Stores the checksum.
pub fn seal(bytes: &mut [u8], features: &Features) {
    if features.checksums() {
        let checksum = crc32c(!0, part(bytes, 0, CHECKSUM));
        put_u32(bytes, CHECKSUM, checksum);
    }
}

/// Group descriptors.
pub mod descriptor {
    use super::{Layout, Place, pair, put_u16, u16_at, u32_at, wide};
    use crate::checksum::{crc32c, crc32c_without};

    /// The inode bitmap on the disk is not initialised: no inode is used.
    pub const INODES_UNUSED: u16 = 1;
    /// The block bitmap on the disk is not initialised.
    pub const BLOCKS_UNUSED: u16 = 2;
    const CHECKSUM: usize = 0x1E;

    /// A number of 32 bits in two halves; short descriptors lack the upper one.
    #[derive(Clone, Copy)]
    pub struct Field(usize, usize);
    pub const FREE_BLOCKS: Field = Field(0x0C, 0x2C);
    pub const FREE_INODES: Field = Field(0x0E, 0x2E);
    pub const DIRECTORIES: Field = Field(0x10, 0x30);
    pub const UNUSED_INODES: Field = Field(0x1C, 0x32);
    pub const BLOCK_BITMAP_CHECKSUM: Field = Field(0x18, 0x38);
    pub const INODE_BITMAP_CHECKSUM: Field = Field(0x1A, 0x3A);

    pub fn get(bytes: &[u8], Field(low, high): Field) -> u32 {
        pair(u16_at(bytes, high), u16_at(bytes, low))
    }

    pub fn set(bytes: &mut [u8], Field(low, high): Field, value: u32) {
        put_u16(bytes, low, value as u16);
        put_u16(bytes, high, (value >> 16) as u16);
    }

    /// Whether a stored checksum is `expected`, as far as the descriptor has room for it.
    pub fn has_checksum(bytes: &[u8], field: Field, expected: u32) -> bool {
        let mask = if bytes.len() >= 64 { u32::MAX } else { 0xFFFF };
        get(bytes, field) == expected & mask
    }

    pub fn flags(bytes: &[u8]) -> u16 {
        u16_at(bytes, 0x12)
    }

    pub fn clear_flag(bytes: &mut [u8], flag: u16) {
        let flags = flags(bytes) & !flag;
        put_u16(bytes, 0x12, flags);
    }

    pub fn place(bytes: &[u8]) -> Place {
        let at = |low, high| wide(u32_at(bytes, high), u32_at(bytes, low));
        Place {
            block_bitmap: at(0x00, 0x20),
            inode_bitmap: at(0x04, 0x24),
            inode_table: at(0x08, 0x28),
        }
    }

    fn checksum(bytes: &[u8], group: u32, layout: &Layout) -> u16 {
        let seed = crc32c(layout.seed, &group.to_le_bytes());
        crc32c_without(seed, bytes, CHECKSUM, 2) as u16
    }

    pub fn is_sealed(bytes: &[u8], group: u32, layout: &Layout) -> bool {
        !layout.features.checksums() || u16_at(bytes, CHECKSUM) == checksum(bytes, group, layout)
    }

    pub fn seal(bytes: &mut [u8], group: u32, layout: &Layout) {
        if layout.features.checksums() {
            let checksum = checksum(bytes, group, layout);
            put_u16(bytes, CHECKSUM, checksum);
        }
    }
}
