//! Inodes that wait to be deleted or truncated: the list that begins in the superblock.
//!
//! An inode is in the list while it has no name but is held, and while blocks are taken from it in
//! more than one step. If a crash interrupts that, the next mount (ours, Linux's, or `e2fsck`)
//! continues it: an inode without names is deleted, another one is truncated to its size.

use crate::Ext4;
use crate::allocate;
use crate::block::{Check, is_attribute_block};
use crate::bytes::{put_u32, u32_at};
use crate::change::Change;
use crate::checksum::{crc32c, crc32c_without};
use crate::device::BlockDevice;
use crate::error::{Error, Result};
use crate::extent::{self, Progress};
use crate::inode::{Inode, Kind, Time};
use crate::shared::Source;
use crate::superblock;

/// Puts an inode at the head of the list. The caller stores it.
pub(crate) async fn add<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
) -> Result<()> {
    if change.core().state.lock().await.orphans.contains(&inode.number) {
        // A truncation that was interrupted left it there.
        return Ok(());
    }
    let bytes = change.superblock().await?;
    inode.set_deletion(superblock::first_orphan(bytes));
    superblock::set_first_orphan(bytes, inode.number);
    change.orphans.push((inode.number, true));
    Ok(())
}

/// Takes an inode out of the list. The caller stores it.
pub(crate) async fn remove<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
) -> Result<()> {
    let next = inode.deletion();
    inode.set_deletion(0);
    change.orphans.push((inode.number, false));
    let bytes = change.superblock().await?;
    let first = superblock::first_orphan(bytes);
    if first == inode.number {
        superblock::set_first_orphan(bytes, next);
        return Ok(());
    }
    let mut at = first;
    let most = change.core().layout.inodes;
    for _ in 0..most {
        if at == 0 || at > most {
            break;
        }
        let mut before = Inode::load_any(change, at).await?;
        if before.deletion() == inode.number {
            before.set_deletion(next);
            return before.store(change).await;
        }
        at = before.deletion();
    }
    Err(Error::Corrupt("list of orphans"))
}

/// Whether the content of an inode is in blocks, rather than in the inode itself.
pub(crate) fn has_blocks(inode: &Inode) -> bool {
    let kind = inode.kind();
    inode.has_extents() && matches!(kind, Ok(Kind::Regular | Kind::Directory | Kind::Symlink))
}

/// Frees blocks behind the end, or all if the inode has no name and is not held; one step.
pub(crate) async fn shrink<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
    delete: bool,
) -> Result<Progress> {
    if !has_blocks(inode) {
        return Ok(Progress::Finished);
    }
    let size = if delete { 0 } else { inode.size() };
    let from = size.div_ceil(change.core().layout.block_size as u64);
    let from = u32::try_from(from).map_err(|_| Error::Corrupt("size of a file"))?;
    let directory = inode.is_directory();
    extent::remove_from(change, inode, from, directory).await
}

/// Deletes an inode that has no blocks and no name. The caller stores it.
async fn delete<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
    now: Time,
) -> Result<()> {
    release_attributes(change, inode).await?;
    allocate::free_inode(change, inode).await?;
    inode.set_size(0);
    let after_all_inodes = change.core().layout.inodes.saturating_add(1);
    inode.set_deletion(u32::try_from(now.seconds).unwrap_or(0).max(after_all_inodes));
    Ok(())
}

/// Frees the block of extended attributes, unless other inodes share it.
async fn release_attributes<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
) -> Result<()> {
    let number = inode.attribute_block();
    if number == 0 {
        return Ok(());
    }
    let core = change.core();
    if !core.layout.is_for_files(number, 1) {
        return Err(Error::Corrupt("attribute block"));
    }
    let block = change.block(number, Check::None).await?;
    if !is_attribute_block(&block) {
        return Err(Error::Corrupt("attribute block"));
    }
    let users = u32_at(&block, 4);
    if users <= 1 {
        return allocate::free(change, inode, number, 1, true).await;
    }
    let seed = crc32c(core.layout.seed, &number.to_le_bytes());
    let bytes = change.edit(number, Check::None).await?;
    put_u32(bytes, 4, users - 1);
    if core.layout.features.checksums() {
        let checksum = crc32c_without(seed, bytes, 16, 4);
        put_u32(bytes, 16, checksum);
    }
    Ok(())
}

impl<D: BlockDevice> Ext4<D> {
    /// Finishes what an inode in the list waits for, unless it has no name and is held.
    pub(crate) async fn finish_orphan(&self, number: u32, now: Time) -> Result<()> {
        let mut change = self.change().await?;
        loop {
            let (listed, held) = {
                let state = self.core.state.lock().await;
                (state.orphans.contains(&number), state.held.contains_key(&number))
            };
            if !listed {
                return Ok(());
            }
            let mut inode = Inode::load_any(&change, number).await?;
            let unnamed = inode.links() == 0;
            if unnamed && held {
                return Ok(());
            }
            let progress = shrink(&mut change, &mut inode, unnamed).await?;
            if progress == Progress::Finished {
                remove(&mut change, &mut inode).await?;
                if unnamed {
                    delete(&mut change, &mut inode, now).await?;
                }
            }
            inode.store(&mut change).await?;
            change = self.next(change).await?;
        }
    }

    /// Begins a change of a file's content. If a truncation of the file was interrupted, finishes
    /// it first: otherwise old content would appear where the file grows.
    pub(crate) async fn change_content(
        &self,
        number: u32,
        now: Time,
    ) -> Result<(Change<'_, D>, Inode)> {
        loop {
            let change = self.change().await?;
            let inode = Inode::load(&change, number).await?;
            let listed = self.core.state.lock().await.orphans.contains(&number);
            if inode.links() == 0 || !listed {
                return Ok((change, inode));
            }
            drop(change);
            self.finish_orphan(number, now).await?;
        }
    }

    /// Works through the list that a crash left. At mount: no inode is held.
    pub(crate) async fn finish_orphans(&self, now: Time) -> Result<()> {
        for _ in 0..=self.core.layout.inodes {
            let first = {
                let (block, at) = self.core.layout.superblock_place();
                let block = self.core.block(block, Check::None).await?;
                superblock::first_orphan(block.get(at..).unwrap_or(&[]))
            };
            if first == 0 {
                return Ok(());
            }
            if first > self.core.layout.inodes || first < self.core.layout.first_inode {
                return Err(Error::Corrupt("list of orphans"));
            }
            self.core.state.lock().await.orphans.insert(first);
            self.finish_orphan(first, now).await?;
        }
        Err(Error::Corrupt("list of orphans"))
    }

    /// Keeps an inode alive although its last name may be removed: a file is open. Each call needs
    /// one of [`release`](Ext4::release).
    pub async fn retain(&self, inode: u32) {
        *self.core.state.lock().await.held.entry(inode).or_insert(0) += 1;
    }

    /// Ends a [`retain`](Ext4::retain). The last one deletes the file if it has no name.
    ///
    /// # Errors
    ///
    /// Those of the deletion, which the next mount then repeats; the reference is gone in any case.
    pub async fn release(&self, inode: u32, now: Time) -> Result<()> {
        {
            let mut state = self.core.state.lock().await;
            match state.held.get_mut(&inode) {
                None => return Ok(()),
                Some(count) if *count > 1 => {
                    *count -= 1;
                    return Ok(());
                }
                Some(_) => state.held.remove(&inode),
            };
        }
        self.finish_orphan(inode, now).await
    }
}
