//! Names in a directory: finding, adding and removing them.

use alloc::vec::Vec;

use crate::allocate;
use crate::block::{Block, Check};
use crate::change::Change;
use crate::device::{BlockDevice, LONGEST_REQUEST};
use crate::directory;
use crate::error::{Error, Result};
use crate::extent::{self, Extent};
use crate::inode::{Inode, Kind};
use crate::shared::Source;
use crate::state::Status;

/// An entry that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub inode: u32,
    /// The block that has it.
    block: u64,
}

/// How blocks of this directory are checked when they come from the disk. Those of a hash index are
/// not linear, so they are only looked at.
fn check_of<S: Source>(source: &S, directory: &Inode) -> Check {
    match directory.has_index() {
        true => Check::None,
        false => Check::Directory(directory.seed(source.layout())),
    }
}

/// The number of a directory's blocks. It has no holes, so there are at most as many as the disk
/// has: extents that repeat the same blocks do not make a search longer than that.
pub(crate) fn blocks_of<S: Source>(source: &S, directory: &Inode) -> Result<u32> {
    let layout = source.layout();
    let blocks = directory.size().div_ceil(layout.block_size as u64);
    let possible = u32::try_from(blocks).ok().filter(|_| blocks <= layout.blocks);
    possible.ok_or(Error::Corrupt("size of a directory"))
}

/// Blocks of a directory from `index` on, with their numbers on the disk: as many as lie together.
pub(crate) async fn some_blocks<S: Source>(
    source: &S,
    directory: &Inode,
    index: u32,
) -> Result<Vec<(u64, Block)>> {
    let mapping = extent::map(source, directory, index).await?;
    let Some(first) = mapping.physical else { return Err(Error::Corrupt("hole in a directory")) };
    let left = blocks_of(source, directory)?.saturating_sub(index).max(1);
    let count = mapping.length.min(left).min(LONGEST_REQUEST as u32);
    if count > 1 {
        // Fills the cache with one request.
        let check = check_of(source, directory);
        source.core().file_blocks(first, count as usize, check).await?;
    }
    let mut blocks = Vec::new();
    for number in (first..).take(count as usize) {
        blocks.push((number, source.block(number, check_of(source, directory)).await?));
    }
    Ok(blocks)
}

/// Looks for a name.
pub(crate) async fn find<S: Source>(source: &S, directory: &Inode, name: &[u8]) -> Result<Found> {
    directory.must_be_directory()?;
    let checksums = source.layout().features.checksums() && !directory.has_index();
    let blocks = blocks_of(source, directory)?;
    let mut index = 0;
    while index < blocks {
        let some = some_blocks(source, directory, index).await?;
        for (number, block) in &some {
            let found = directory::entries(block, checksums).find(|entry| entry.name == name);
            if let Some(entry) = found {
                if !source.layout().is_named(entry.inode) {
                    return Err(Error::Corrupt("inode of a directory entry"));
                }
                return Ok(Found { inode: entry.inode, block: *number });
            }
        }
        index += some.len() as u32;
    }
    Err(Error::NotFound)
}

/// Makes a directory with a hash index a linear one, which the format allows.
async fn make_linear<D: BlockDevice>(
    change: &mut Change<'_, D>,
    directory: &mut Inode,
) -> Result<()> {
    let core = change.core();
    let checksums = core.layout.features.checksums();
    let seed = directory.seed(&core.layout);
    for index in 0..blocks_of(change, directory)? {
        let mapping = extent::map(change, directory, index).await?;
        let number = mapping.physical.ok_or(Error::Corrupt("hole in a directory"))?;
        let mut linear = (*change.block(number, Check::None).await?).clone();
        directory::remove_index(&mut linear, index == 0, checksums);
        directory::check(&linear, checksums)?;
        directory::seal(&mut linear, seed, checksums);
        if linear != *change.block(number, Check::None).await? {
            *change.edit(number, Check::None).await? = linear;
        }
    }
    directory.clear_index();
    Ok(())
}

/// Adds an entry. The name is not in the directory. The caller stores the directory's inode.
pub(crate) async fn add<D: BlockDevice>(
    change: &mut Change<'_, D>,
    directory: &mut Inode,
    inode: u32,
    kind: Kind,
    name: &[u8],
) -> Result<()> {
    if directory.has_index() {
        make_linear(change, directory).await?;
    }
    let core = change.core();
    let layout = &core.layout;
    let checksums = layout.features.checksums();
    let seed = directory.seed(layout);
    let blocks = blocks_of(change, directory)?;
    let mut index = 0;
    while index < blocks {
        let some = some_blocks(change, directory, index).await?;
        for (number, block) in &some {
            if directory::has_room(block, checksums, name.len()) {
                let block = change.edit(*number, Check::None).await?;
                directory::add(block, checksums, inode, kind.entry(), name);
                directory::seal(block, seed, checksums);
                return Ok(());
            }
        }
        index += some.len() as u32;
    }
    let goal = match blocks {
        0 => allocate::goal_of(change, directory),
        _ => extent::map(change, directory, blocks - 1).await?.physical.map_or(0, |last| last + 1),
    };
    let (number, _) = allocate::allocate(change, directory, goal, 1).await?;
    let added = Extent { logical: blocks, physical: number, length: 1, unwritten: false };
    extent::insert(change, directory, added).await?;
    directory.set_size((u64::from(blocks) + 1) * layout.block_size as u64);
    let block = change.fresh(number, Status::Metadata)?;
    directory::initialise(block, checksums);
    if !directory::add(block, checksums, inode, kind.entry(), name) {
        return Err(Error::NameTooLong);
    }
    directory::seal(block, seed, checksums);
    Ok(())
}

/// Changes the block with an entry that was found.
async fn edit<D: BlockDevice>(
    change: &mut Change<'_, D>,
    directory: &mut Inode,
    found: Found,
    act: impl FnOnce(&mut [u8], bool) -> bool,
) -> Result<()> {
    if directory.has_index() {
        make_linear(change, directory).await?;
    }
    let core = change.core();
    let checksums = core.layout.features.checksums();
    let seed = directory.seed(&core.layout);
    let block = change.edit(found.block, Check::None).await?;
    if !act(block, checksums) {
        return Err(Error::Corrupt("directory block"));
    }
    directory::seal(block, seed, checksums);
    Ok(())
}

/// Removes an entry that was found.
pub(crate) async fn remove<D: BlockDevice>(
    change: &mut Change<'_, D>,
    directory: &mut Inode,
    found: Found,
    name: &[u8],
) -> Result<()> {
    edit(change, directory, found, |block, checksums| directory::remove(block, checksums, name))
        .await
}

/// Makes an entry that was found one of another inode.
pub(crate) async fn replace<D: BlockDevice>(
    change: &mut Change<'_, D>,
    directory: &mut Inode,
    found: Found,
    name: &[u8],
    inode: u32,
    kind: Kind,
) -> Result<()> {
    edit(change, directory, found, |block, checksums| {
        directory::replace(block, checksums, name, inode, kind.entry())
    })
    .await
}

/// Makes the first block of a new directory.
pub(crate) async fn initialise<D: BlockDevice>(
    change: &mut Change<'_, D>,
    directory: &mut Inode,
    parent: u32,
) -> Result<()> {
    add(change, directory, directory.number, Kind::Directory, b".").await?;
    add(change, directory, parent, Kind::Directory, b"..").await
}

/// Whether a directory has no names but `.` and `..`.
pub(crate) async fn is_empty<S: Source>(source: &S, directory: &Inode) -> Result<bool> {
    let checksums = source.layout().features.checksums() && !directory.has_index();
    let blocks = blocks_of(source, directory)?;
    let mut index = 0;
    while index < blocks {
        let some = some_blocks(source, directory, index).await?;
        let has_names = |block: &Block| {
            let mut entries = directory::entries(block, checksums);
            entries.any(|entry| !matches!(entry.name, b"." | b".."))
        };
        if some.iter().any(|(_, block)| has_names(block)) {
            return Ok(false);
        }
        index += some.len() as u32;
    }
    Ok(true)
}
