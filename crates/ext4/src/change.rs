//! One changing operation: collects changed blocks, and publishes them together.
//!
//! Dropping a `Change` without [`Change::publish`] leaves everything as it was. So an operation
//! that fails half-way, or is dropped, changes nothing.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::future::Future;

use cops_executor::sync::MutexGuard;

use crate::block::{Block, Check, bitmap_checksum};
use crate::device::BlockDevice;
use crate::error::{Error, Result};
use crate::shared::{Core, Source};
use crate::state::{Freed, Status};
use crate::superblock::{self, descriptor};

/// Metadata blocks that an operation may change. Operations that could change more work in steps.
const MOST_METADATA: usize = 256;

pub(crate) struct Change<'a, D> {
    core: &'a Core<D>,
    turn: MutexGuard<'a, ()>,
    blocks: BTreeMap<u64, (Block, Status)>,
    metadata: usize,
    freed: Vec<Freed>,
    /// Groups of which a bitmap changed: checksums are computed at the end.
    pub block_bitmaps: BTreeSet<u32>,
    pub inode_bitmaps: BTreeSet<u32>,
    groups: BTreeSet<u32>,
    superblock: bool,
    /// Inodes that have another inode before them in the list of orphans, or leave it.
    pub orphans: BTreeMap<u32, Option<u32>>,
    /// An inode that the caller holds from the publication on.
    pub holds: Option<u32>,
}

impl<'a, D: BlockDevice> Change<'a, D> {
    /// `turn` is the guard of `core.changes`.
    pub fn new(core: &'a Core<D>, turn: MutexGuard<'a, ()>) -> Change<'a, D> {
        Change {
            core,
            turn,
            blocks: BTreeMap::new(),
            metadata: 0,
            freed: Vec::new(),
            block_bitmaps: BTreeSet::new(),
            inode_bitmaps: BTreeSet::new(),
            groups: BTreeSet::new(),
            superblock: false,
            orphans: BTreeMap::new(),
            holds: None,
        }
    }

    /// What all operations share.
    pub fn core(&self) -> &'a Core<D> {
        self.core
    }

    /// Metadata blocks changed so far.
    pub fn metadata(&self) -> usize {
        self.metadata
    }

    /// The bytes of a metadata block, to be changed.
    pub async fn edit(&mut self, number: u64, check: Check) -> Result<&mut Vec<u8>> {
        self.edit_as(number, check, Status::Metadata).await
    }

    /// The bytes of a block of a file, to be changed.
    pub async fn edit_data(&mut self, number: u64) -> Result<&mut Vec<u8>> {
        self.edit_as(number, Check::None, Status::Data).await
    }

    async fn edit_as(&mut self, number: u64, check: Check, status: Status) -> Result<&mut Vec<u8>> {
        let block = match self.blocks.contains_key(&number) {
            true => None,
            false => Some(self.core.block(number, check).await?),
        };
        self.enter(number, block, status)
    }

    /// The bytes of a block without regard to its old content: zeros.
    pub fn fresh(&mut self, number: u64, status: Status) -> Result<&mut Vec<u8>> {
        let zeros = Arc::new(vec![0; self.core.layout.block_size]);
        self.enter(number, Some(zeros), status)
    }

    fn enter(&mut self, number: u64, block: Option<Block>, status: Status) -> Result<&mut Vec<u8>> {
        if let Some(block) = block {
            let before = self.blocks.insert(number, (block, status));
            if before.is_none() && status == Status::Metadata {
                self.metadata += 1;
                if self.metadata > MOST_METADATA {
                    return Err(Error::TooLarge);
                }
            }
        }
        let (block, _) = self.blocks.get_mut(&number).ok_or(Error::Corrupt("block number"))?;
        Ok(Arc::make_mut(block))
    }

    /// The bytes of a whole block of a file, replaced.
    pub fn replace_data(&mut self, number: u64, content: &[u8]) {
        self.blocks.insert(number, (Arc::new(content.to_vec()), Status::Data));
    }

    /// Notes blocks that are free from now on.
    pub fn note_freed(&mut self, freed: Freed) {
        let blocks = freed.start..freed.start + u64::from(freed.length);
        while let Some((&number, &(_, status))) = self.blocks.range(blocks.clone()).next() {
            self.blocks.remove(&number);
            self.metadata -= usize::from(status == Status::Metadata);
        }
        self.freed.push(freed);
    }

    /// The blocks of a group that must not be allocated yet, as (first, length).
    pub async fn freed_in(&self, start: u64, length: u64) -> Vec<(u64, u32)> {
        let mut freed = self.core.state.lock().await.freed_in(start, length);
        let own = self.freed.iter().filter(|freed| (start..start + length).contains(&freed.start));
        freed.extend(own.map(|freed| (freed.start, freed.length)));
        freed
    }

    /// The superblock, to be changed.
    pub async fn superblock(&mut self) -> Result<&mut [u8]> {
        self.superblock = true;
        let (block, at) = self.core.layout.superblock_place();
        let bytes = self.edit(block, Check::None).await?;
        bytes.get_mut(at..at + superblock::SIZE).ok_or(Error::Corrupt("superblock"))
    }

    /// A group's descriptor, to be changed.
    pub async fn descriptor(&mut self, group: u32) -> Result<&mut [u8]> {
        self.groups.insert(group);
        let (block, at) = self.core.layout.descriptor_place(group);
        let size = self.core.layout.descriptor_size;
        let bytes = self.edit(block, Check::None).await?;
        bytes.get_mut(at..at + size).ok_or(Error::Corrupt("group descriptor"))
    }

    /// Computes the checksums that cover more than one changed structure.
    async fn seal(&mut self) -> Result<()> {
        let core = self.core;
        let layout = &core.layout;
        if layout.features.checksums() {
            for group in core::mem::take(&mut self.block_bitmaps) {
                let Some(place) = layout.places.get(group as usize) else { continue };
                let bitmap = self.block(place.block_bitmap, Check::None).await?;
                let checksum = bitmap_checksum(layout, &bitmap, layout.blocks_per_group);
                let bytes = self.descriptor(group).await?;
                descriptor::set(bytes, descriptor::BLOCK_BITMAP_CHECKSUM, checksum);
            }
            for group in core::mem::take(&mut self.inode_bitmaps) {
                let Some(place) = layout.places.get(group as usize) else { continue };
                let bitmap = self.block(place.inode_bitmap, Check::None).await?;
                let checksum = bitmap_checksum(layout, &bitmap, layout.inodes_per_group);
                let bytes = self.descriptor(group).await?;
                descriptor::set(bytes, descriptor::INODE_BITMAP_CHECKSUM, checksum);
            }
        }
        for group in core::mem::take(&mut self.groups) {
            let bytes = self.descriptor(group).await?;
            descriptor::seal(bytes, group, layout);
        }
        if self.superblock {
            superblock::seal(self.superblock().await?, &layout.features);
        }
        Ok(())
    }

    /// Makes all changes visible at once.
    pub async fn publish(mut self) -> Result<()> {
        self.seal().await?;
        let Change { core, turn: _turn, blocks, freed, orphans, holds, .. } = self;
        let _all = core.readers.exclude().await;
        let mut state = core.state.lock().await;
        state.publish(blocks, &freed, orphans);
        if let Some(inode) = holds {
            *state.held.entry(inode).or_insert(0) += 1;
        }
        Ok(())
    }
}

impl<D: BlockDevice> Source for Change<'_, D> {
    type Device = D;

    fn core(&self) -> &Core<D> {
        self.core
    }

    fn has_changed(&self, number: u64) -> bool {
        self.blocks.contains_key(&number)
    }

    fn block(&self, number: u64, check: Check) -> impl Future<Output = Result<Block>> + Send {
        let own = self.blocks.get(&number).map(|(block, _)| block.clone());
        let core = self.core;
        async move {
            match own {
                Some(block) => Ok(block),
                None => core.block(number, check).await,
            }
        }
    }
}
