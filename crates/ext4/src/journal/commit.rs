//! Commits and checkpoints.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use super::Journal;
use super::format::{Tag, must_be_escaped};
use crate::block::Block;
use crate::bytes::put_be32;
use crate::device::{BlockDevice, write_blocks};
use crate::error::{Error, Result};
use crate::shared::Core;
use crate::state::Transaction;

/// Makes everything durable that was published before the call.
///
/// If this fails, or if its future is dropped, nothing is lost: the next commit begins anew with
/// the same blocks and whatever has changed since.
pub(crate) async fn commit<D: BlockDevice>(core: &Core<D>) -> Result<()> {
    let mut journal = core.journal.lock().await;
    let (data, metadata, revoked) = {
        let mut state = core.state.lock().await;
        state.snapshot();
        let Transaction { data, metadata, revoked, .. } = state.in_flight();
        if state.in_flight().is_empty() {
            return Ok(());
        }
        (listed(data), listed(metadata), revoked.iter().copied().collect::<Vec<u64>>())
    };
    let size = core.layout.block_size;
    if metadata.is_empty() && revoked.is_empty() {
        write_blocks(&core.device, size, &data).await?;
        core.device.flush().await?;
        core.state.lock().await.committed();
        return Ok(());
    }
    let needed = log_blocks(&journal, size, metadata.len(), revoked.len());
    if needed > journal.capacity() - 1 {
        return Err(Error::TooLarge);
    }
    if journal.interrupted {
        // What the interrupted commit left in the log could be taken for a part of this one.
        checkpoint_locked(core, &mut journal).await?;
        journal.sequence = journal.sequence.wrapping_add(1);
        move_start(core, &mut journal).await?;
        journal.interrupted = false;
    }
    if journal.used + needed > journal.capacity() - 1 {
        checkpoint_locked(core, &mut journal).await?;
    }
    journal.interrupted = true;
    let mut blocks = data;
    let record = journal.advance(journal.next, needed - 1);
    blocks.extend(log(&journal, size, &metadata, &revoked)?);
    blocks.sort_unstable_by_key(|(number, _)| *number);
    write_blocks(&core.device, size, &blocks).await?;
    core.device.flush().await?;
    let mut bytes = vec![0; size];
    journal.head.format.write_commit(&mut bytes, journal.sequence);
    core.device.write(journal.physical(record)? * size as u64, &bytes).await?;
    core.device.flush().await?;
    journal.next = journal.advance(journal.next, needed);
    journal.used += needed;
    journal.sequence = journal.sequence.wrapping_add(1);
    core.state.lock().await.committed();
    journal.interrupted = false;
    Ok(())
}

fn listed(blocks: &alloc::collections::BTreeMap<u64, Block>) -> Vec<(u64, Block)> {
    blocks.iter().map(|(number, block)| (*number, block.clone())).collect()
}

/// Blocks of the log that a transaction takes.
fn log_blocks(journal: &Journal, block_size: usize, metadata: usize, revoked: usize) -> u32 {
    let format = &journal.head.format;
    let descriptors = metadata.div_ceil(format.tags_of_block(block_size));
    let revocations = revoked.div_ceil(format.revocations_of_block(block_size));
    (descriptors + metadata + revocations + 1) as u32
}

/// The blocks of a transaction but for the commit record, with their places on the disk.
fn log(
    journal: &Journal,
    block_size: usize,
    metadata: &[(u64, Block)],
    revoked: &[u64],
) -> Result<Vec<(u64, Block)>> {
    let format = &journal.head.format;
    let mut blocks: Vec<Block> = Vec::new();
    for chunk in revoked.chunks(format.revocations_of_block(block_size)) {
        let mut bytes = vec![0; block_size];
        format.write_revocations(&mut bytes, journal.sequence, chunk);
        blocks.push(Arc::new(bytes));
    }
    for chunk in metadata.chunks(format.tags_of_block(block_size)) {
        let mut tags = Vec::new();
        let mut copies = Vec::new();
        for (number, block) in chunk {
            let escaped = must_be_escaped(block);
            let copy = if escaped {
                let mut bytes = (**block).clone();
                put_be32(&mut bytes, 0, 0);
                Arc::new(bytes)
            } else {
                block.clone()
            };
            let checksum = format.copy_checksum(journal.sequence, &copy);
            tags.push(Tag { block: *number, escaped, checksum });
            copies.push(copy);
        }
        let mut bytes = vec![0; block_size];
        format.write_descriptor(&mut bytes, journal.sequence, &tags);
        blocks.push(Arc::new(bytes));
        blocks.append(&mut copies);
    }
    let place =
        |(index, block)| Ok((journal.physical(journal.advance(journal.next, index))?, block));
    (0..).zip(blocks).map(place).collect()
}

/// Writes what is in the log to its place, so that the log is empty.
pub(crate) async fn checkpoint<D: BlockDevice>(core: &Core<D>) -> Result<()> {
    let mut journal = core.journal.lock().await;
    checkpoint_locked(core, &mut journal).await
}

pub(super) async fn checkpoint_locked<D: BlockDevice>(
    core: &Core<D>,
    journal: &mut Journal,
) -> Result<()> {
    let blocks = core.state.lock().await.to_checkpoint();
    write_blocks(&core.device, core.layout.block_size, &blocks).await?;
    core.device.flush().await?;
    move_start(core, journal).await?;
    core.state.lock().await.checkpointed();
    Ok(())
}

/// Makes the log begin where the next transaction goes.
async fn move_start<D: BlockDevice>(core: &Core<D>, journal: &mut Journal) -> Result<()> {
    journal.head.start = journal.next;
    journal.head.sequence = journal.sequence;
    write_superblock(core, journal).await?;
    journal.used = 0;
    Ok(())
}

/// Writes the journal's superblock, durably.
pub(super) async fn write_superblock<D: BlockDevice>(
    core: &Core<D>,
    journal: &mut Journal,
) -> Result<()> {
    let head = journal.head;
    head.write(&mut journal.superblock);
    let position = journal.physical(0)? * core.layout.block_size as u64;
    core.device.write(position, &journal.superblock).await?;
    core.device.flush().await?;
    Ok(())
}
