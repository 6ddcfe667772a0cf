//! The features of an image: which of them this library implements, and the names of the others.

use crate::error::{Error, Result};

/// `s_feature_compat`: a journal.
pub const COMPAT_JOURNAL: u32 = 0x4;
/// `s_feature_incompat`: directory entries have the type of the inode.
pub const INCOMPAT_FILETYPE: u32 = 0x2;
/// The journal has to be replayed.
pub const INCOMPAT_RECOVER: u32 = 0x4;
/// Files are extents.
pub const INCOMPAT_EXTENTS: u32 = 0x40;
/// Group descriptors have 64 bytes, block numbers 48 bits.
pub const INCOMPAT_64BIT: u32 = 0x80;
/// The seed of checksums is stored.
pub const INCOMPAT_CHECKSUM_SEED: u32 = 0x2000;
const INCOMPAT_FLEX_GROUPS: u32 = 0x200;
/// `s_feature_ro_compat`: not all groups have copies of the superblock.
pub const RO_SPARSE_SUPER: u32 = 0x1;
/// Directories may have more subdirectories than the link count can hold.
pub const RO_MANY_SUBDIRECTORIES: u32 = 0x20;
/// Every structure has a checksum.
pub const RO_CHECKSUMS: u32 = 0x400;

/// What an image must have.
const REQUIRED: [(Word, u32, &str); 3] = [
    (Word::Compatible, COMPAT_JOURNAL, "an image without has_journal"),
    (Word::Incompatible, INCOMPAT_FILETYPE, "an image without filetype"),
    (Word::Incompatible, INCOMPAT_EXTENTS, "an image without extent"),
];

/// What an image may have. `dir_index` is among the compatible ones: a directory that has an index
/// loses it with its first change, which is what the format allows (`e2fsck -D` makes a new one).
const COMPATIBLE: u32 = COMPAT_JOURNAL | 0x1 | 0x8 | 0x10 | 0x20;
const INCOMPATIBLE: u32 = INCOMPAT_FILETYPE
    | INCOMPAT_RECOVER
    | INCOMPAT_EXTENTS
    | INCOMPAT_64BIT
    | INCOMPAT_FLEX_GROUPS
    | INCOMPAT_CHECKSUM_SEED;
/// `sparse_super`, `large_file`, `huge_file`, `dir_nlink`, `extra_isize`, `metadata_csum`.
const READ_ONLY_COMPATIBLE: u32 =
    RO_SPARSE_SUPER | 0x2 | 0x8 | RO_MANY_SUBDIRECTORIES | 0x40 | RO_CHECKSUMS;

#[derive(Clone, Copy)]
enum Word {
    Compatible,
    Incompatible,
    ReadOnlyCompatible,
}

/// Names as `mkfs.ext4 -O` spells them.
const NAMES: [(Word, u32, &str); 25] = [
    (Word::Compatible, 0x2, "imagic_inodes"),
    (Word::Compatible, 0x40, "lazy_bg"),
    (Word::Compatible, 0x200, "sparse_super2"),
    (Word::Compatible, 0x400, "fast_commit"),
    (Word::Compatible, 0x800, "stable_inodes"),
    (Word::Compatible, 0x1000, "orphan_file"),
    (Word::Incompatible, 0x1, "compression"),
    (Word::Incompatible, 0x8, "journal_dev"),
    (Word::Incompatible, 0x10, "meta_bg"),
    (Word::Incompatible, 0x100, "mmp"),
    (Word::Incompatible, 0x400, "ea_inode"),
    (Word::Incompatible, 0x1000, "dirdata"),
    (Word::Incompatible, 0x4000, "large_dir"),
    (Word::Incompatible, 0x8000, "inline_data"),
    (Word::Incompatible, 0x10000, "encrypt"),
    (Word::Incompatible, 0x20000, "casefold"),
    (Word::ReadOnlyCompatible, 0x4, "btree_dir"),
    (Word::ReadOnlyCompatible, 0x10, "uninit_bg"),
    (Word::ReadOnlyCompatible, 0x80, "has_snapshot"),
    (Word::ReadOnlyCompatible, 0x100, "quota"),
    (Word::ReadOnlyCompatible, 0x200, "bigalloc"),
    (Word::ReadOnlyCompatible, 0x1000, "read-only"),
    (Word::ReadOnlyCompatible, 0x2000, "project"),
    (Word::ReadOnlyCompatible, 0x8000, "verity"),
    (Word::ReadOnlyCompatible, 0x10000, "orphan_present"),
];

/// The three words of a superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    pub compatible: u32,
    pub incompatible: u32,
    pub read_only_compatible: u32,
}

impl Features {
    fn word(&self, word: Word) -> u32 {
        match word {
            Word::Compatible => self.compatible,
            Word::Incompatible => self.incompatible,
            Word::ReadOnlyCompatible => self.read_only_compatible,
        }
    }

    /// Fails with the name of the first feature that is missing or not implemented.
    pub fn check(&self) -> Result<()> {
        for (word, bit, name) in REQUIRED {
            if self.word(word) & bit == 0 {
                return Err(Error::Unsupported(name));
            }
        }
        let unknown = Features {
            compatible: self.compatible & !COMPATIBLE,
            incompatible: self.incompatible & !INCOMPATIBLE,
            read_only_compatible: self.read_only_compatible & !READ_ONLY_COMPATIBLE,
        };
        if unknown == Features::default() {
            return Ok(());
        }
        let named = NAMES.iter().find(|(word, bit, _)| unknown.word(*word) & bit != 0);
        Err(Error::Unsupported(named.map_or("one that is younger than this library", |n| n.2)))
    }

    pub fn checksums(&self) -> bool {
        self.read_only_compatible & RO_CHECKSUMS != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBIAN: Features =
        Features { compatible: 0x3C, incompatible: 0x2C2, read_only_compatible: 0x46B };

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        assert_eq!(DEBIAN.check(), Ok(()));
        let without = Features { incompatible: 0x282, ..DEBIAN };
        assert_eq!(without.check(), Err(Error::Unsupported("an image without extent")));
        let inline = Features { incompatible: DEBIAN.incompatible | 0x8000, ..DEBIAN };
        assert_eq!(inline.check(), Err(Error::Unsupported("inline_data")));
        let young = Features { compatible: DEBIAN.compatible | 1 << 31, ..DEBIAN };
        assert_eq!(young.check(), Err(Error::Unsupported("one that is younger than this library")));
    }
}
