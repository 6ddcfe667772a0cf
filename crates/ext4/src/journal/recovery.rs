//! Opening the journal: finding its blocks, and replaying what a crash left.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use super::format::{COMMIT, DESCRIPTOR, Head, REVOKE, header};
use super::{Journal, Run, SHORTEST, commit};
use crate::bytes::put_be32;
use crate::device::BlockDevice;
use crate::error::{Error, Result};
use crate::extent;
use crate::inode::Inode;
use crate::shared::{Core, Source};
use crate::superblock::Layout;

/// Reads the journal's superblock and replays the log. Afterwards every block is in its place, and
/// the log is empty and ready for transactions.
pub(crate) async fn open<S: Source>(source: &S) -> Result<Journal> {
    let core = source.core();
    let layout = &core.layout;
    let inode = Inode::load(source, layout.journal_inode).await?;
    let size = layout.block_size;
    let blocks = inode.size() / size as u64;
    let blocks = u32::try_from(blocks).map_err(|_| Error::Corrupt("size of the journal"))?;
    let mut runs = Vec::new();
    let mut nodes = BTreeSet::new();
    let mut logical = 0;
    while logical < blocks {
        nodes.extend(extent::nodes(source, &inode, logical).await?);
        let mapping = extent::map(source, &inode, logical).await?;
        let physical = mapping.physical.ok_or(Error::Corrupt("hole in the journal"))?;
        runs.push(Run { logical, physical, length: mapping.length });
        logical = logical.saturating_add(mapping.length);
    }
    let first = runs.first().ok_or(Error::Corrupt("size of the journal"))?.physical;
    let mut superblock = vec![0; size];
    core.device.read(first * size as u64, &mut superblock).await?;
    let head = Head::read(&superblock)?;
    let good = crate::bytes::be32_at(&superblock, 12) as usize == size
        && (SHORTEST..=blocks).contains(&head.length)
        && (1..head.length / 2).contains(&head.first)
        && (head.start == 0 || (head.first..head.length).contains(&head.start));
    if !good {
        return Err(Error::Corrupt("journal superblock"));
    }
    let mut journal = Journal {
        runs,
        nodes,
        head,
        superblock,
        next: head.first,
        used: 0,
        sequence: head.sequence,
        interrupted: false,
    };
    if head.start != 0 {
        journal.sequence = replay(core, &journal).await?;
        core.device.flush().await?;
    }
    // The number of a transaction that the crash cut off is not used again.
    journal.sequence = journal.sequence.wrapping_add(1);
    journal.head.sequence = journal.sequence;
    journal.head.start = journal.head.first;
    journal.head.set_format(is_wide(layout), layout.features.checksums());
    commit::write_superblock(core, &mut journal).await?;
    Ok(journal)
}

fn is_wide(layout: &Layout) -> bool {
    layout.features.incompatible & crate::features::INCOMPAT_64BIT != 0
}

/// Marks the log as empty, so that nothing has to be replayed. Every block is in its place.
pub(crate) async fn close<D: BlockDevice>(core: &Core<D>) -> Result<()> {
    let mut journal = core.journal.lock().await;
    commit::checkpoint_locked(core, &mut journal).await?;
    journal.head.start = 0;
    commit::write_superblock(core, &mut journal).await
}

async fn read<D: BlockDevice>(core: &Core<D>, journal: &Journal, at: u32) -> Result<Vec<u8>> {
    let size = core.layout.block_size;
    let mut block = vec![0; size];
    core.device.read(journal.physical(at)? * size as u64, &mut block).await?;
    Ok(block)
}

/// A transaction with a commit record.
struct Complete {
    sequence: u32,
    /// Position of its first block, and how many blocks it has with the record.
    start: u32,
    length: u32,
}

/// Writes every block of complete transactions to its place. Returns the sequence number behind the
/// last one.
async fn replay<D: BlockDevice>(core: &Core<D>, journal: &Journal) -> Result<u32> {
    let transactions = scan(core, journal).await?;
    let mut revoked = BTreeMap::new();
    for transaction in &transactions {
        revocations(core, journal, transaction, &mut revoked).await?;
    }
    for transaction in &transactions {
        copy(core, journal, transaction, &revoked).await?;
    }
    let last = transactions.last().map(|transaction| transaction.sequence.wrapping_add(1));
    Ok(last.unwrap_or(journal.head.sequence))
}

/// Finds the complete transactions, up to the first block that does not continue them.
async fn scan<D: BlockDevice>(core: &Core<D>, journal: &Journal) -> Result<Vec<Complete>> {
    let format = &journal.head.format;
    let mut transactions = Vec::new();
    let mut sequence = journal.head.sequence;
    let (mut at, mut start, mut length) = (journal.head.start, journal.head.start, 0);
    let mut seen = 0;
    // A log that is full of valid blocks without end would be a ring.
    while seen < journal.capacity() {
        let block = read(core, journal, at).await?;
        let Some((kind, found)) = header(&block) else { break };
        if found != sequence {
            break;
        }
        let blocks = match kind {
            DESCRIPTOR if format.is_sealed(&block) => match format.tags(&block) {
                Ok(tags) => 1 + tags.len() as u32,
                Err(_) => break,
            },
            REVOKE if format.is_sealed(&block) => 1,
            COMMIT if format.is_commit_good(&block) => {
                transactions.push(Complete { sequence, start, length: length + 1 });
                sequence = sequence.wrapping_add(1);
                length = 0;
                seen += 1;
                at = journal.advance(at, 1);
                start = at;
                continue;
            }
            _ => break,
        };
        seen += blocks;
        length += blocks;
        at = journal.advance(at, blocks);
    }
    Ok(transactions)
}

/// Collects the revocations of a transaction: for each block the last transaction that has one.
async fn revocations<D: BlockDevice>(
    core: &Core<D>,
    journal: &Journal,
    transaction: &Complete,
    revoked: &mut BTreeMap<u64, u32>,
) -> Result<()> {
    let format = &journal.head.format;
    let mut offset = 0;
    while offset < transaction.length {
        let block = read(core, journal, journal.advance(transaction.start, offset)).await?;
        offset += 1;
        match header(&block) {
            Some((REVOKE, _)) => {
                for number in format.revocations(&block) {
                    revoked.insert(number, transaction.sequence);
                }
            }
            Some((DESCRIPTOR, _)) => offset += format.tags(&block)?.len() as u32,
            _ => {}
        }
    }
    Ok(())
}

/// Whether sequence number `a` is that of `b` or a later one; the numbers wrap around.
fn is_not_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) < 1 << 31
}

/// Writes the copies of a transaction to their places.
async fn copy<D: BlockDevice>(
    core: &Core<D>,
    journal: &Journal,
    transaction: &Complete,
    revoked: &BTreeMap<u64, u32>,
) -> Result<()> {
    let format = &journal.head.format;
    let size = core.layout.block_size;
    let mut offset = 0;
    while offset < transaction.length {
        let block = read(core, journal, journal.advance(transaction.start, offset)).await?;
        offset += 1;
        let Some((DESCRIPTOR, _)) = header(&block) else { continue };
        for tag in format.tags(&block)? {
            let mut copy = read(core, journal, journal.advance(transaction.start, offset)).await?;
            offset += 1;
            let is_revoked =
                revoked.get(&tag.block).is_some_and(|by| is_not_before(*by, transaction.sequence));
            if is_revoked {
                continue;
            }
            if tag.block >= core.layout.blocks {
                return Err(Error::Corrupt("block number in the journal"));
            }
            if !format.is_copy_good(&tag, transaction.sequence, &copy) {
                return Err(Error::Corrupt("checksum of a copy in the journal"));
            }
            if tag.escaped {
                put_be32(&mut copy, 0, super::format::MAGIC);
            }
            core.device.write(tag.block * size as u64, &copy).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_not_before;

    #[test]
    fn sequence_numbers_wrap_around() {
        assert!(is_not_before(5, 5) && is_not_before(6, 5) && !is_not_before(4, 5));
        assert!(is_not_before(2, u32::MAX) && !is_not_before(u32::MAX, 2));
    }
}
