//! Taking blocks from the end of a file, a bounded part at a time.

use super::node::{self, Extent};
use super::{Node, Place, edit, walk};
use crate::allocate;
use crate::change::Change;
use crate::device::BlockDevice;
use crate::error::{Error, Result};
use crate::inode::Inode;

/// Metadata blocks that one step of a removal may change.
const MOST_METADATA: usize = 48;
/// Extents and nodes that one step may free.
const MOST_EXTENTS: usize = 128;
/// Blocks at which a step ends. They are freed by ranges, but each of them may be in the cache.
const MOST_BLOCKS: u32 = 1 << 16;

/// How far a removal came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Finished,
    /// There are more blocks; the next step continues in a change of its own.
    More,
}

/// Frees the blocks of a file from `from` on, beginning with the last one. `metadata` says that
/// they are in the journal: the blocks of a directory. The caller stores the inode.
pub(crate) async fn remove_from<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
    from: u32,
    metadata: bool,
) -> Result<Progress> {
    let mut blocks = 0;
    for _ in 0..MOST_EXTENTS {
        if change.metadata() >= MOST_METADATA || blocks >= MOST_BLOCKS {
            return Ok(Progress::More);
        }
        let (steps, leaf) = walk(change, inode, u32::MAX).await?;
        let step = steps.last().copied().ok_or(Error::Corrupt("extent tree"))?;
        let Some(at) = step.position else {
            // The leaf is empty.
            if steps.len() == 1 {
                return Ok(Progress::Finished);
            }
            prune(change, inode, &steps).await?;
            continue;
        };
        let extent = node::extent(leaf.bytes(), at);
        if extent.end() <= u64::from(from) {
            break;
        }
        let keep = from.saturating_sub(extent.logical);
        let start = extent.physical + u64::from(keep);
        allocate::free(change, inode, start, extent.length - keep, metadata).await?;
        blocks += extent.length - keep;
        let rest = Extent { length: keep, ..extent };
        edit(change, inode, step.place, |node| match keep {
            0 => node::remove(node, at),
            _ => node::set_entry(node, at, &rest.write()),
        })
        .await?;
        if keep == 0 && step.count == 1 && steps.len() > 1 {
            prune(change, inode, &steps).await?;
        }
        if keep > 0 {
            break;
        }
    }
    let (_, leaf) = walk(change, inode, u32::MAX).await?;
    let count = node::count(leaf.bytes());
    let left = count.checked_sub(1).map(|last| node::extent(leaf.bytes(), last).end());
    if left.is_some_and(|end| end > u64::from(from)) {
        return Ok(Progress::More);
    }
    flatten(change, inode).await?;
    Ok(Progress::Finished)
}

/// Frees the empty leaf at the end of `steps`, and every node above that becomes empty.
async fn prune<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
    steps: &[super::Step],
) -> Result<()> {
    for pair in steps.windows(2).rev() {
        let [parent, child] = pair else { break };
        if let Place::Block(number) = child.place {
            allocate::free(change, inode, number, 1, true).await?;
        }
        let at = parent.position.unwrap_or(0);
        edit(change, inode, parent.place, |node| node::remove(node, at)).await?;
        if parent.count > 1 {
            return Ok(());
        }
    }
    // The root is empty: the tree has no level any more.
    node::set_depth(inode.root_mut(), 0);
    Ok(())
}

/// Moves the entries of the only leaf into the root, if they fit.
async fn flatten<D: BlockDevice>(change: &mut Change<'_, D>, inode: &mut Inode) -> Result<()> {
    if node::depth(inode.root()) != 1 || node::count(inode.root()) != 1 {
        return Ok(());
    }
    let child = node::child(inode.root(), 0);
    let leaf = super::load(&*change, inode, child, 0).await?;
    if node::count(leaf.bytes()) > node::max(inode.root()) {
        return Ok(());
    }
    allocate::free(change, inode, child, 1, true).await?;
    copy(inode.root_mut(), &leaf);
    Ok(())
}

fn copy(root: &mut [u8], leaf: &Node) {
    let bytes = leaf.bytes();
    node::initialise(root, 0);
    for at in 0..node::count(bytes) {
        node::set_entry(root, at, node::entry(bytes, at));
    }
    node::set_count(root, node::count(bytes));
}
