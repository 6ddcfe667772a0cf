//! Inodes: allocating and freeing.

use alloc::sync::Arc;

use super::{bitmap, descriptor_of};
use crate::block::{Block, Check, check_bitmap};
use crate::bytes::{bit, set_bit};
use crate::change::Change;
use crate::device::BlockDevice;
use crate::error::{Error, Result};
use crate::inode::{Inode, Kind};
use crate::shared::Source;
use crate::state::Status;
use crate::superblock::{self, descriptor};

async fn inode_bitmap<S: Source>(source: &S, group: u32) -> Result<Block> {
    let layout = source.layout();
    let descriptor = descriptor_of(source, group).await?;
    let place = layout.places.get(group as usize).ok_or(Error::Corrupt("group"))?;
    if layout.features.checksums()
        && descriptor::flags(&descriptor) & descriptor::INODES_UNUSED != 0
    {
        let mut bitmap = alloc::vec![0; layout.block_size];
        let all = layout.block_size as u32 * 8;
        (layout.inodes_per_group..all).for_each(|index| set_bit(&mut bitmap, index, true));
        return Ok(Arc::new(bitmap));
    }
    let bitmap = source.block(place.inode_bitmap, Check::None).await?;
    if !source.has_changed(place.inode_bitmap) {
        let field = descriptor::INODE_BITMAP_CHECKSUM;
        check_bitmap(layout, &descriptor, field, &bitmap, layout.inodes_per_group)?;
    }
    Ok(bitmap)
}

/// Allocates an inode near its directory and returns it without content; the caller stores it.
pub(crate) async fn allocate_inode<D: BlockDevice>(
    change: &mut Change<'_, D>,
    parent: u32,
    kind: Kind,
) -> Result<Inode> {
    let core = change.core();
    let layout = &core.layout;
    let groups = layout.groups();
    let first_group = layout.inode_group(parent).0;
    for step in 0..groups {
        let group = (first_group + step) % groups;
        let descriptor = descriptor_of(change, group).await?;
        if descriptor::get(&descriptor, descriptor::FREE_INODES) == 0 {
            continue;
        }
        let found = inode_bitmap(change, group).await?;
        let least = if group == 0 { layout.first_inode - 1 } else { 0 };
        let Some(index) = bitmap::find_one(&found, layout.inodes_per_group, 0, least) else {
            continue;
        };
        let unused = descriptor::get(&descriptor, descriptor::UNUSED_INODES);
        let never_used = unused >= layout.inodes_per_group - index;
        mark(change, group, index, true, kind == Kind::Directory).await?;
        let number = group * layout.inodes_per_group + index + 1;
        // Its bytes on the disk may be anything if no inode of the group was ever used.
        let before = Inode::load_any(change, number).await;
        let before = match before {
            Err(Error::Corrupt(_)) => Inode::blank(layout, number),
            other => other?,
        };
        if before.links() != 0 && !never_used {
            return Err(Error::Corrupt("inode bitmap"));
        }
        return Ok(Inode::fresh(layout, &before, kind));
    }
    Err(Error::NoSpace)
}

/// Frees an inode without blocks. The caller stores it with a time of deletion.
pub(crate) async fn free_inode<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &Inode,
) -> Result<()> {
    let core = change.core();
    let (group, index) = core.layout.inode_group(inode.number);
    mark(change, group, index, false, inode.is_directory()).await
}

async fn mark<D: BlockDevice>(
    change: &mut Change<'_, D>,
    group: u32,
    index: u32,
    used: bool,
    directory: bool,
) -> Result<()> {
    let core = change.core();
    let layout = &core.layout;
    let bitmap = inode_bitmap(change, group).await?;
    let place = layout.places.get(group as usize).ok_or(Error::Corrupt("group"))?;
    if bit(&bitmap, index) == used {
        return Err(Error::Corrupt("inode bitmap"));
    }
    let descriptor = descriptor_of(change, group).await?;
    if descriptor::flags(&descriptor) & descriptor::INODES_UNUSED != 0 {
        *change.fresh(place.inode_bitmap, Status::Metadata)? = (*bitmap).clone();
    }
    set_bit(change.edit(place.inode_bitmap, Check::None).await?, index, used);
    change.inode_bitmaps.insert(group);
    let bytes = change.descriptor(group).await?;
    descriptor::clear_flag(bytes, descriptor::INODES_UNUSED);
    let step = |before: u32, more: bool| {
        let after = if more { before.checked_add(1) } else { before.checked_sub(1) };
        after.ok_or(Error::Corrupt("count of inodes"))
    };
    let free = step(descriptor::get(bytes, descriptor::FREE_INODES), !used)?;
    descriptor::set(bytes, descriptor::FREE_INODES, free);
    if directory {
        let directories = step(descriptor::get(bytes, descriptor::DIRECTORIES), used)?;
        descriptor::set(bytes, descriptor::DIRECTORIES, directories);
    }
    if used && layout.features.checksums() {
        let behind = layout.inodes_per_group - index - 1;
        let unused = descriptor::get(bytes, descriptor::UNUSED_INODES).min(behind);
        descriptor::set(bytes, descriptor::UNUSED_INODES, unused);
    }
    let bytes = change.superblock().await?;
    let free = superblock::free_inodes(bytes);
    let free = if used { free.saturating_sub(1) } else { free.saturating_add(1) };
    superblock::set_free_inodes(bytes, free);
    Ok(())
}
