//! Inodes: the fields of the disk's structure, loading and storing.

use alloc::vec::Vec;

use crate::block::Check;
use crate::bytes::{high, low, pair, put_bytes, put_u16, put_u32, u16_at, u32_at, wide};
use crate::change::Change;
use crate::checksum::{crc32c, crc32c_without};
use crate::device::BlockDevice;
use crate::error::{Error, Result};
use crate::shared::Source;
use crate::superblock::Layout;

/// The number of the root directory.
pub const ROOT: u32 = 2;

const CHECKSUM: usize = 0x7C;
const CHECKSUM_HIGH: usize = 0x82;
const BLOCK: usize = 0x28;
/// Bytes of `i_block`: the root of the extent tree, or the target of a short link.
pub const BLOCK_SIZE: usize = 60;
const FLAG_IMMUTABLE: u32 = 0x10;
const FLAG_APPEND: u32 = 0x20;
const FLAG_INDEX: u32 = 0x1000;
const FLAG_HUGE: u32 = 0x4_0000;
pub const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_INLINE: u32 = 0x1000_0000;

/// Lists name the blocks of an inode, as in ext3 and after `chattr -e`.
pub const BLOCK_LISTS: Error = Error::Unsupported("a file of block lists instead of extents");

/// A moment: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Seconds since the beginning of 1970.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file with bytes.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
}

const KINDS: [(Kind, u16, u8); 7] = [
    (Kind::Pipe, 0x1000, 5),
    (Kind::CharacterDevice, 0x2000, 3),
    (Kind::Directory, 0x4000, 2),
    (Kind::BlockDevice, 0x6000, 4),
    (Kind::Regular, 0x8000, 1),
    (Kind::Symlink, 0xA000, 7),
    (Kind::Socket, 0xC000, 6),
];

impl Kind {
    /// The kind that a mode states.
    pub fn of_mode(mode: u16) -> Option<Kind> {
        KINDS.iter().find(|kind| kind.1 == mode & 0xF000).map(|kind| kind.0)
    }

    /// The kind that a directory entry states.
    pub fn of_entry(byte: u8) -> Option<Kind> {
        KINDS.iter().find(|kind| kind.2 == byte).map(|kind| kind.0)
    }

    /// The upper bits of the mode.
    pub fn mode(self) -> u16 {
        KINDS.iter().find(|kind| kind.0 == self).map_or(0, |kind| kind.1)
    }

    /// The type in a directory entry.
    pub fn entry(self) -> u8 {
        KINDS.iter().find(|kind| kind.0 == self).map_or(0, |kind| kind.2)
    }
}

/// One of the four times of an inode: position of the seconds, and of the extra bits.
#[derive(Clone, Copy)]
pub struct TimeField(usize, usize);
pub const ACCESSED: TimeField = TimeField(0x08, 0x8C);
pub const CHANGED: TimeField = TimeField(0x0C, 0x84);
pub const MODIFIED: TimeField = TimeField(0x10, 0x88);
pub const CREATED: TimeField = TimeField(0x90, 0x94);

/// An inode in memory: a copy of the disk's bytes.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub number: u32,
    bytes: Vec<u8>,
}

macro_rules! fields {
    ($($get:ident, $set:ident, $type:ty, $read:ident, $write:ident, $at:literal;)*) => {$(
        pub fn $get(&self) -> $type { $read(&self.bytes, $at) }
        pub fn $set(&mut self, value: $type) { $write(&mut self.bytes, $at, value) }
    )*};
}

impl Inode {
    fields! {
        mode, set_mode, u16, u16_at, put_u16, 0x00;
        links, set_links, u16, u16_at, put_u16, 0x1A;
        deletion, set_deletion, u32, u32_at, put_u32, 0x14;
        flags, set_flags, u32, u32_at, put_u32, 0x20;
        generation, set_generation, u32, u32_at, put_u32, 0x64;
    }

    /// Reads an inode that is in use. Fails with `Stale` if it is not.
    pub async fn load<S: Source>(source: &S, number: u32) -> Result<Inode> {
        let inode = Inode::load_any(source, number).await?;
        if inode.mode() == 0 || (inode.links() == 0 && inode.deletion_is_a_time(source.layout())) {
            return Err(Error::Stale);
        }
        if inode.flags() & FLAG_INLINE != 0 {
            return Err(Error::Corrupt("inline data without the feature"));
        }
        Ok(inode)
    }

    /// As [`load`](Inode::load), also if it is in no use.
    pub async fn load_any<S: Source>(source: &S, number: u32) -> Result<Inode> {
        let layout = source.layout();
        let (block, at) = layout.inode_place(number)?;
        let block = source.block(block, Check::None).await?;
        let bytes = block.get(at..at + layout.inode_size).ok_or(Error::Corrupt("inode"))?;
        let inode = Inode { number, bytes: bytes.to_vec() };
        if layout.features.checksums() && inode.mode() != 0 && !inode.is_sealed(layout) {
            return Err(Error::Corrupt("inode checksum"));
        }
        Ok(inode)
    }

    /// An inode of zeros.
    pub fn blank(layout: &Layout, number: u32) -> Inode {
        Inode { number, bytes: alloc::vec![0; layout.inode_size] }
    }

    /// A deleted inode has the time of its deletion where an orphan has the number of the next.
    fn deletion_is_a_time(&self, layout: &Layout) -> bool {
        self.deletion() > layout.inodes
    }

    /// An inode without content, in place of `before`.
    pub fn fresh(layout: &Layout, before: &Inode, kind: Kind) -> Inode {
        let mut inode = Inode::blank(layout, before.number);
        inode.set_generation(before.generation().wrapping_add(1));
        inode.set_mode(kind.mode());
        if layout.inode_size > 128 {
            put_u16(&mut inode.bytes, 0x80, layout.extra_size);
        }
        inode
    }

    /// Stores the inode, unless it is as it was.
    pub async fn store<D: BlockDevice>(&mut self, change: &mut Change<'_, D>) -> Result<()> {
        let core = change.core();
        let layout = &core.layout;
        let (block, at) = layout.inode_place(self.number)?;
        let is_stored = {
            let before = change.block(block, Check::None).await?;
            before.get(at..at + self.bytes.len()) == Some(&self.bytes[..])
        };
        if is_stored {
            return Ok(());
        }
        if layout.features.checksums() {
            let checksum = self.checksum(layout);
            put_u16(&mut self.bytes, CHECKSUM, checksum as u16);
            if self.has(CHECKSUM_HIGH + 2) {
                put_u16(&mut self.bytes, CHECKSUM_HIGH, (checksum >> 16) as u16);
            }
        }
        put_bytes(change.edit(block, Check::None).await?, at, &self.bytes);
        Ok(())
    }

    /// Whether the inode has the field that ends at `end`.
    fn has(&self, end: usize) -> bool {
        end <= 128
            || (self.bytes.len() > 128 && end <= 128 + usize::from(u16_at(&self.bytes, 0x80)))
    }

    /// The register of the checksums of blocks that belong to this inode.
    pub fn seed(&self, layout: &Layout) -> u32 {
        let seed = crc32c(layout.seed, &self.number.to_le_bytes());
        crc32c(seed, &self.generation().to_le_bytes())
    }

    fn checksum(&self, layout: &Layout) -> u32 {
        let seed = self.seed(layout);
        if !self.has(CHECKSUM_HIGH + 2) {
            return crc32c_without(seed, &self.bytes, CHECKSUM, 2);
        }
        let (first, rest) = self.bytes.split_at(CHECKSUM_HIGH.min(self.bytes.len()));
        let first = crc32c_without(seed, first, CHECKSUM, 2);
        crc32c_without(first, rest, 0, 2)
    }

    fn is_sealed(&self, layout: &Layout) -> bool {
        let expected = self.checksum(layout);
        let found = u16_at(&self.bytes, CHECKSUM);
        match self.has(CHECKSUM_HIGH + 2) {
            true => pair(u16_at(&self.bytes, CHECKSUM_HIGH), found) == expected,
            false => found == expected as u16,
        }
    }

    pub fn kind(&self) -> Result<Kind> {
        Kind::of_mode(self.mode()).ok_or(Error::Corrupt("mode of an inode"))
    }

    pub fn is_directory(&self) -> bool {
        self.mode() & 0xF000 == Kind::Directory.mode()
    }

    /// Fails unless the inode is a directory.
    pub fn must_be_directory(&self) -> Result<()> {
        if self.is_directory() { Ok(()) } else { Err(Error::NotDirectory) }
    }

    pub fn size(&self) -> u64 {
        wide(u32_at(&self.bytes, 0x6C), u32_at(&self.bytes, 0x04))
    }

    pub fn set_size(&mut self, size: u64) {
        put_u32(&mut self.bytes, 0x04, low(size));
        put_u32(&mut self.bytes, 0x6C, high(size));
    }

    pub fn owner(&self) -> (u32, u32) {
        let of = |low, high| pair(u16_at(&self.bytes, high), u16_at(&self.bytes, low));
        (of(0x02, 0x78), of(0x18, 0x7A))
    }

    pub fn set_owner(&mut self, user: u32, group: u32) {
        for (low, high, value) in [(0x02, 0x78, user), (0x18, 0x7A, group)] {
            put_u16(&mut self.bytes, low, value as u16);
            put_u16(&mut self.bytes, high, (value >> 16) as u16);
        }
    }

    /// Blocks of the disk in units of 512 bytes.
    pub fn sectors(&self, layout: &Layout) -> u64 {
        let stored = wide(u32::from(u16_at(&self.bytes, 0x74)), u32_at(&self.bytes, 0x1C));
        let unit = if self.flags() & FLAG_HUGE == 0 { 1 } else { layout.block_size as u64 / 512 };
        stored.saturating_mul(unit)
    }

    /// Counts `blocks` more or fewer.
    pub fn count_blocks(&mut self, layout: &Layout, blocks: u64, more: bool) {
        let unit = if self.flags() & FLAG_HUGE == 0 { layout.block_size as u64 / 512 } else { 1 };
        let stored = wide(u32::from(u16_at(&self.bytes, 0x74)), u32_at(&self.bytes, 0x1C));
        let change = blocks * unit;
        let sum = if more { stored + change } else { stored.saturating_sub(change) };
        put_u32(&mut self.bytes, 0x1C, low(sum));
        put_u16(&mut self.bytes, 0x74, high(sum) as u16);
    }

    /// `i_block`.
    pub fn root(&self) -> &[u8] {
        self.bytes.get(BLOCK..BLOCK + BLOCK_SIZE).unwrap_or(&[])
    }

    pub fn root_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut(BLOCK..BLOCK + BLOCK_SIZE).unwrap_or(&mut [])
    }

    /// The block of extended attributes, or 0.
    pub fn attribute_block(&self) -> u64 {
        wide(u32::from(u16_at(&self.bytes, 0x76)), u32_at(&self.bytes, 0x68))
    }

    /// Whether content is in blocks that extents list.
    pub fn has_extents(&self) -> bool {
        self.flags() & FLAG_EXTENTS != 0
    }

    /// Whether the content is in blocks, and not in the inode itself. Fails if lists name the
    /// blocks: neither can they be found, nor can they be freed.
    pub fn has_blocks(&self) -> Result<bool> {
        match self.kind()? {
            Kind::Regular | Kind::Directory | Kind::Symlink if self.has_extents() => Ok(true),
            Kind::Symlink if (1..BLOCK_SIZE as u64).contains(&self.size()) => Ok(false),
            Kind::Regular | Kind::Directory | Kind::Symlink => Err(BLOCK_LISTS),
            _ => Ok(false),
        }
    }

    /// Whether the directory has a hash index.
    pub fn has_index(&self) -> bool {
        self.flags() & FLAG_INDEX != 0
    }

    pub fn clear_index(&mut self) {
        self.set_flags(self.flags() & !FLAG_INDEX);
    }

    /// Fails if the inode is immutable, or append-only unless the change only `appends`. To a
    /// directory, a new name is appended. As in Linux, these forbid more than changes of content.
    pub fn must_be_changeable(&self, appends: bool) -> Result<()> {
        let forbidden = if appends { FLAG_IMMUTABLE } else { FLAG_IMMUTABLE | FLAG_APPEND };
        if self.flags() & forbidden == 0 { Ok(()) } else { Err(Error::NotPermitted) }
    }

    pub fn time(&self, TimeField(seconds, extra): TimeField) -> Time {
        if !self.has(seconds + 4) {
            return Time::default();
        }
        let seconds = i64::from(u32_at(&self.bytes, seconds) as i32);
        if !self.has(extra + 4) {
            return Time { seconds, nanoseconds: 0 };
        }
        let extra = u32_at(&self.bytes, extra);
        let seconds = seconds + (i64::from(extra & 3) << 32);
        Time { seconds, nanoseconds: (extra >> 2).min(999_999_999) }
    }

    /// Stores a time; one that the format cannot express becomes the nearest one.
    pub fn set_time(&mut self, TimeField(seconds, extra): TimeField, time: Time) {
        if !self.has(seconds + 4) {
            return;
        }
        let wide = self.has(extra + 4);
        let latest = if wide { (3 << 32) + i64::from(i32::MAX) } else { i64::from(i32::MAX) };
        let clamped = time.seconds.clamp(i64::from(i32::MIN), latest);
        put_u32(&mut self.bytes, seconds, clamped as u32);
        if wide {
            let epoch = ((clamped - i64::from(clamped as i32)) >> 32) as u32 & 3;
            put_u32(&mut self.bytes, extra, time.nanoseconds.min(999_999_999) << 2 | epoch);
        }
    }

    /// Counts one name more or one less of a directory or another inode. A directory that has too
    /// many subdirectories has 1 as its count.
    pub fn count_link(&mut self, layout: &Layout, more: bool) -> Result<()> {
        const MOST: u16 = 65_000;
        let links = self.links();
        let links = match (self.is_directory(), more) {
            (true, _) if links == 1 => 1,
            (true, true) if links >= MOST => match layout.many_subdirectories() {
                true => 1,
                false => return Err(Error::TooManyLinks),
            },
            (false, true) if links >= MOST => return Err(Error::TooManyLinks),
            (_, true) => links + 1,
            (_, false) => links.checked_sub(1).ok_or(Error::Corrupt("link count"))?,
        };
        self.set_links(links);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_in_all_epochs() {
        let mut inode = Inode { number: 12, bytes: alloc::vec![0; 256] };
        put_u16(&mut inode.bytes, 0x80, 32);
        for seconds in [0, -1, 1_800_000_000, 1 << 31, 1 << 32, (3 << 32) + 5] {
            let time = Time { seconds, nanoseconds: 999_999_999 };
            inode.set_time(MODIFIED, time);
            assert_eq!(inode.time(MODIFIED), time);
        }
        inode.set_time(CREATED, Time { seconds: i64::MAX, nanoseconds: 0 });
        assert_eq!(inode.time(CREATED).seconds, (3 << 32) + i64::from(i32::MAX));
    }
}
