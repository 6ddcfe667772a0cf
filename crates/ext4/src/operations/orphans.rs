//! Inodes that wait to be deleted or truncated: the list that begins in the superblock.
//!
//! An inode is in the list while it has no name but is held, and while blocks are taken from it in
//! more than one step. If a crash interrupts that, the next mount (ours, Linux's, or `e2fsck`)
//! continues it: an inode without names is deleted, another one is truncated to its size.

use super::yield_now;
use crate::Ext4;
use crate::allocate;
use crate::block::{Check, is_attribute_block};
use crate::bytes::{put_u32, u32_at};
use crate::change::Change;
use crate::checksum::{crc32c, crc32c_without};
use crate::device::BlockDevice;
use crate::error::{Error, Result};
use crate::extent::{self, Progress};
use crate::inode::{Inode, Time};
use crate::shared::Source;
use crate::superblock;

/// Steps that one call of [`continue_orphans`](Ext4::continue_orphans) makes at most.
const MOST_STEPS: u32 = 16;

/// The inode before this one in the list, or 0 if it is the first. `None` if it is not in the list.
async fn before<D: BlockDevice>(change: &Change<'_, D>, inode: u32) -> Option<u32> {
    match change.orphans.get(&inode) {
        Some(before) => *before,
        None => change.core().state.lock().await.orphans.get(&inode).copied(),
    }
}

/// Puts an inode at the head of the list. The caller stores it.
pub(crate) async fn add<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
) -> Result<()> {
    if before(change, inode.number).await.is_some() {
        // A truncation that was interrupted left it there.
        return Ok(());
    }
    let bytes = change.superblock().await?;
    let first = superblock::first_orphan(bytes);
    inode.set_deletion(first);
    superblock::set_first_orphan(bytes, inode.number);
    change.orphans.insert(inode.number, Some(0));
    if first != 0 {
        change.orphans.insert(first, Some(inode.number));
    }
    Ok(())
}

/// Takes an inode out of the list. The caller stores it.
pub(crate) async fn remove<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
) -> Result<()> {
    let wrong = Error::Corrupt("list of orphans");
    let before = before(change, inode.number).await.ok_or(wrong)?;
    let next = inode.deletion();
    inode.set_deletion(0);
    if before == 0 {
        let bytes = change.superblock().await?;
        if superblock::first_orphan(bytes) != inode.number {
            return Err(wrong);
        }
        superblock::set_first_orphan(bytes, next);
    } else {
        let mut before = Inode::load_any(change, before).await?;
        if before.deletion() != inode.number {
            return Err(wrong);
        }
        before.set_deletion(next);
        before.store(change).await?;
    }
    if next != 0 {
        change.orphans.insert(next, Some(before));
    }
    change.orphans.insert(inode.number, None);
    Ok(())
}

/// Frees blocks behind the end, or all to delete the inode; one step.
pub(crate) async fn shrink<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
    delete: bool,
) -> Result<Progress> {
    if !inode.has_blocks()? {
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
    /// Finishes what an inode in the list waits for: its deletion if it has no name and is not
    /// held, otherwise its truncation. Other operations come between the steps, and may finish it.
    /// After an error, or if this future is dropped,
    /// [`continue_orphans`](Ext4::continue_orphans) goes on.
    pub(crate) async fn finish_orphan(&self, number: u32, now: Time) -> Result<()> {
        {
            let mut state = self.core.state.lock().await;
            if !state.orphans.contains_key(&number) {
                return Ok(());
            }
            state.unfinished.insert(number, now);
        }
        while self.step(self.change().await?, number, now).await? == Progress::More {
            yield_now().await;
        }
        Ok(())
    }

    /// Deletes an inode that has lost its last name, unless it is held: then the last release does
    /// that. The operation that removed the name has succeeded, so it does not fail if the deletion
    /// does, which is continued later.
    pub(crate) async fn delete_unnamed(&self, number: u32, now: Time) {
        let is_held = self.core.state.lock().await.held.contains_key(&number);
        if !is_held {
            let _ = self.finish_orphan(number, now).await;
        }
    }

    /// Continues what [`finish_orphan`](Ext4::finish_orphan) and truncations have not finished, for
    /// at most [`MOST_STEPS`] steps. Returns whether something was freed. What fails once more is
    /// left to the next call. Without `waits`, it ends when another operation changes something.
    pub(crate) async fn continue_orphans(&self, waits: bool) -> bool {
        let mut has_freed = false;
        let mut from = 0;
        for _ in 0..MOST_STEPS {
            let next = {
                let state = self.core.state.lock().await;
                state.unfinished.range(from..).next().map(|(number, now)| (*number, *now))
            };
            let Some((number, now)) = next else { break };
            let change = match waits {
                true => self.change().await,
                false => match self.core.changes.try_lock() {
                    Some(turn) => self.change_with(turn).await,
                    None => break,
                },
            };
            let Ok(change) = change else { break };
            let progress = self.step(change, number, now).await;
            has_freed |= progress.is_ok();
            from = if progress == Ok(Progress::More) { number } else { number.saturating_add(1) };
            yield_now().await;
        }
        has_freed
    }

    /// One step towards what an inode in the list waits for. `Finished` if nothing is left to do.
    async fn step(&self, change: Change<'_, D>, number: u32, now: Time) -> Result<Progress> {
        let result = self.try_step(change, number, now).await;
        if let Err(Error::Corrupt(_) | Error::Unsupported(_)) = result {
            // It would be the same the next time.
            self.core.state.lock().await.unfinished.remove(&number);
        }
        result
    }

    async fn try_step(
        &self,
        mut change: Change<'_, D>,
        number: u32,
        now: Time,
    ) -> Result<Progress> {
        let mut inode = Inode::load_any(&change, number).await?;
        let unnamed = inode.links() == 0;
        let stays = {
            let mut state = self.core.state.lock().await;
            if !state.orphans.contains_key(&number) {
                state.unfinished.remove(&number);
                return Ok(Progress::Finished);
            }
            unnamed && state.held.contains_key(&number)
        };
        let progress = shrink(&mut change, &mut inode, unnamed && !stays).await?;
        if progress == Progress::Finished && !stays {
            remove(&mut change, &mut inode).await?;
            if unnamed {
                delete(&mut change, &mut inode, now).await?;
            }
        }
        inode.store(&mut change).await?;
        change.publish().await?;
        if progress == Progress::Finished && stays {
            self.core.state.lock().await.has_shortened(number);
        }
        Ok(progress)
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
            let is_cut = {
                let state = self.core.state.lock().await;
                let is_due = inode.links() > 0 || state.unfinished.contains_key(&number);
                is_due && state.orphans.contains_key(&number)
            };
            if !is_cut {
                return Ok((change, inode));
            }
            drop(change);
            self.finish_orphan(number, now).await?;
        }
    }

    /// The inode behind `before` in the list, or the first one for 0; 0 at the end.
    async fn orphan_after(&self, before: u32) -> Result<u32> {
        let view = self.core.view().await;
        if before != 0 {
            return Ok(Inode::load_any(&view, before).await?.deletion());
        }
        let (block, at) = self.core.layout.superblock_place();
        let block = view.block(block, Check::None).await?;
        Ok(superblock::first_orphan(block.get(at..).unwrap_or(&[])))
    }

    /// Works through the list that a crash left. At mount: no inode is held. An inode of block
    /// lists stays in the list, for Linux or `e2fsck`.
    pub(crate) async fn finish_orphans(&self, now: Time) -> Result<()> {
        let wrong = Error::Corrupt("list of orphans");
        // The last one of those that stay.
        let mut before = 0;
        for _ in 0..=self.core.layout.inodes {
            let number = self.orphan_after(before).await?;
            if number == 0 {
                return Ok(());
            }
            if number > self.core.layout.inodes || number < self.core.layout.first_inode {
                return Err(wrong);
            }
            let known = self.core.state.lock().await.orphans.insert(number, before);
            if known.is_some_and(|known| known != before) {
                // The list is a circle.
                return Err(wrong);
            }
            match self.finish_orphan(number, now).await {
                Ok(()) => {}
                Err(Error::Unsupported(_)) => before = number,
                Err(error) => return Err(error),
            }
        }
        Err(wrong)
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
    /// Those of the deletion, which [`checkpoint`](Ext4::checkpoint) then repeats; the reference is
    /// gone in any case.
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
