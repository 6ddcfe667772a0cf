//! A block in memory, and how its content is checked when it comes from the disk.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::bytes::{u16_at, u32_at};
use crate::checksum::crc32c;
use crate::directory;
use crate::error::{Error, Result};
use crate::extent::node;
use crate::superblock::{Layout, descriptor};

/// The content of a block. Never changes: a change makes a new one.
pub(crate) type Block = Arc<Vec<u8>>;

/// What a block is expected to be. Looked at when the block is read from the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Check {
    /// Data of a file, or a structure that its user checks.
    None,
    /// A directory block; the register after the inode's number and generation.
    Directory(u32),
    /// A node of an extent tree; the register, and its depth.
    Extents(u32, u16),
}

impl Check {
    pub fn run(self, layout: &Layout, block: &[u8]) -> Result<()> {
        let checksums = layout.features.checksums();
        match self {
            Check::None => Ok(()),
            Check::Directory(seed) => {
                if checksums && !directory::is_sealed(block, seed) {
                    return Err(Error::Corrupt("directory checksum"));
                }
                directory::check(block, checksums)
            }
            Check::Extents(seed, depth) => {
                node::check(block, depth)?;
                let tail = node::tail(block);
                if checksums
                    && u32_at(block, tail) != crc32c(seed, block.get(..tail).unwrap_or(&[]))
                {
                    return Err(Error::Corrupt("extent checksum"));
                }
                Ok(())
            }
        }
    }
}

/// The register of a bitmap's checksum.
pub(crate) fn bitmap_checksum(layout: &Layout, bitmap: &[u8], bits: u32) -> u32 {
    crc32c(layout.seed, bitmap.get(..bits as usize / 8).unwrap_or(&[]))
}

/// Fails if a bitmap does not have the checksum that its group's descriptor states.
pub(crate) fn check_bitmap(
    layout: &Layout,
    group: &[u8],
    field: descriptor::Field,
    bitmap: &[u8],
    bits: u32,
) -> Result<()> {
    if layout.features.checksums()
        && !descriptor::has_checksum(group, field, bitmap_checksum(layout, bitmap, bits))
    {
        return Err(Error::Corrupt("bitmap checksum"));
    }
    Ok(())
}

/// The number of names of an attribute block, and its checksum, are all that deleting needs of it.
pub(crate) fn is_attribute_block(block: &[u8]) -> bool {
    u32_at(block, 0) == 0xEA02_0000 && u16_at(block, 8) == 1
}
