//! Free blocks and free inodes: bitmaps, and the counts in descriptors and superblock.

mod bitmap;
mod inodes;

pub(crate) use self::inodes::{allocate_inode, free_inode};

use alloc::sync::Arc;

use crate::block::{Block, Check, check_bitmap};
use crate::bytes::{any_bit, set_bits};
use crate::change::Change;
use crate::device::BlockDevice;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::shared::Source;
use crate::state::{Freed, Status};
use crate::superblock::{self, Layout, descriptor};

/// Where to look first for blocks of an inode that has none: its group.
pub(crate) fn goal_of<S: Source>(source: &S, inode: &Inode) -> u64 {
    let layout = source.layout();
    layout.group_start(layout.inode_group(inode.number).0)
}

/// Allocates a block for a structure of an inode, near `goal`.
pub(crate) async fn metadata_block<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
    goal: u64,
) -> Result<u64> {
    Ok(allocate(change, inode, goal, 1).await?.0)
}

/// Allocates up to `want` consecutive blocks, near `goal`; returns the first and how many.
pub(crate) async fn allocate<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
    goal: u64,
    want: u32,
) -> Result<(u64, u32)> {
    let core = change.core();
    let layout = &core.layout;
    let goal = goal.clamp(layout.first_data_block, layout.blocks - 1);
    let (first_group, first_index) = layout.group_of(goal);
    let groups = layout.groups();
    for step in 0..groups {
        let group = (first_group + step) % groups;
        let free = descriptor::get(&descriptor_of(change, group).await?, descriptor::FREE_BLOCKS);
        if free == 0 {
            continue;
        }
        let mut available = (*block_bitmap(change, group).await?).clone();
        let start = layout.group_start(group);
        let length = layout.group_blocks(group);
        for (freed, count) in change.freed_in(start, u64::from(length)).await {
            let first = (freed - start) as u32;
            set_bits(&mut available, first, first + count, true);
        }
        let from = if step == 0 { first_index } else { 0 };
        let Some((index, count)) = bitmap::find_run(&available, length, from, want) else {
            continue;
        };
        let first = start + u64::from(index);
        if !layout.is_for_files(first, u64::from(count)) {
            return Err(Error::Corrupt("block bitmap"));
        }
        mark(change, group, index, count, true).await?;
        inode.count_blocks(layout, u64::from(count), true);
        return Ok((first, count));
    }
    Err(Error::NoSpace)
}

/// Frees blocks of an inode. `metadata` says that the journal may have their content.
pub(crate) async fn free<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
    start: u64,
    length: u32,
    metadata: bool,
) -> Result<()> {
    let core = change.core();
    let layout = &core.layout;
    if !layout.is_for_files(start, u64::from(length)) {
        return Err(Error::Corrupt("blocks of an extent"));
    }
    let (mut at, mut left) = (start, length);
    while left > 0 {
        let (group, index) = layout.group_of(at);
        let count = left.min(layout.group_blocks(group).saturating_sub(index)).max(1);
        mark(change, group, index, count, false).await?;
        change.note_freed(Freed { start: at, length: count, metadata });
        at += u64::from(count);
        left = left.saturating_sub(count);
    }
    inode.count_blocks(layout, u64::from(length), false);
    Ok(())
}

/// The bytes of a group's descriptor.
pub(crate) async fn descriptor_of<S: Source>(
    source: &S,
    group: u32,
) -> Result<alloc::vec::Vec<u8>> {
    let layout = source.layout();
    let (block, at) = layout.descriptor_place(group);
    let block = source.block(block, Check::None).await?;
    let bytes = block.get(at..at + layout.descriptor_size);
    Ok(bytes.ok_or(Error::Corrupt("group descriptor"))?.to_vec())
}

/// The bitmap of a group's blocks.
async fn block_bitmap<S: Source>(source: &S, group: u32) -> Result<Block> {
    let layout = source.layout();
    let descriptor = descriptor_of(source, group).await?;
    let place = layout.places.get(group as usize).ok_or(Error::Corrupt("group"))?;
    if layout.features.checksums()
        && descriptor::flags(&descriptor) & descriptor::BLOCKS_UNUSED != 0
    {
        return Ok(Arc::new(initial_bitmap(layout, group)));
    }
    let bitmap = source.block(place.block_bitmap, Check::None).await?;
    let field = descriptor::BLOCK_BITMAP_CHECKSUM;
    // A bitmap that has changed is sealed when the change is published.
    if !source.has_changed(place.block_bitmap) {
        check_bitmap(layout, &descriptor, field, &bitmap, layout.blocks_per_group)?;
    }
    Ok(bitmap)
}

/// The bitmap of a group of which only the system uses blocks.
fn initial_bitmap(layout: &Layout, group: u32) -> alloc::vec::Vec<u8> {
    let mut bitmap = alloc::vec![0; layout.block_size];
    let start = layout.group_start(group);
    let length = layout.group_blocks(group);
    let end = start + u64::from(length);
    for (first, count) in &layout.system {
        let (from, to) = ((*first).max(start), (first + count).min(end));
        if from < to {
            set_bits(&mut bitmap, (from - start) as u32, (to - start) as u32, true);
        }
    }
    set_bits(&mut bitmap, length, layout.block_size as u32 * 8, true);
    bitmap
}

/// Marks blocks of a group as used or free.
async fn mark<D: BlockDevice>(
    change: &mut Change<'_, D>,
    group: u32,
    index: u32,
    count: u32,
    used: bool,
) -> Result<()> {
    let core = change.core();
    let layout = &core.layout;
    let bitmap = block_bitmap(change, group).await?;
    let place = layout.places.get(group as usize).ok_or(Error::Corrupt("group"))?;
    if any_bit(&bitmap, index, index + count, used) {
        return Err(Error::Corrupt("block bitmap"));
    }
    let uninitialised =
        descriptor::flags(&descriptor_of(change, group).await?) & descriptor::BLOCKS_UNUSED != 0;
    if uninitialised {
        *change.fresh(place.block_bitmap, Status::Metadata)? = (*bitmap).clone();
    }
    let bytes = change.edit(place.block_bitmap, Check::None).await?;
    set_bits(bytes, index, index + count, used);
    change.block_bitmaps.insert(group);
    let bytes = change.descriptor(group).await?;
    descriptor::clear_flag(bytes, descriptor::BLOCKS_UNUSED);
    let free = descriptor::get(bytes, descriptor::FREE_BLOCKS);
    let left = if used { free.checked_sub(count) } else { free.checked_add(count) };
    let left = left.ok_or(Error::Corrupt("count of free blocks"))?;
    descriptor::set(bytes, descriptor::FREE_BLOCKS, left);
    let bytes = change.superblock().await?;
    let free = superblock::free_blocks(bytes);
    let count = u64::from(count);
    // It can be any number, and only statistics depend on it.
    let free = if used { free.saturating_sub(count) } else { free.saturating_add(count) };
    superblock::set_free_blocks(bytes, free.min(layout.blocks));
    Ok(())
}
