//! Adding an extent to a tree.

use super::node::{self, Extent};
use super::{Place, Step, edit, seal, walk};
use crate::allocate;
use crate::change::Change;
use crate::device::BlockDevice;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::shared::Source;
use crate::state::Status;

/// Adds an extent for blocks of the file that have none, or that are unwritten: then it replaces
/// that part of the unwritten extent. The caller stores the inode.
pub(crate) async fn insert<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
    extent: Extent,
) -> Result<()> {
    let (steps, leaf) = walk(change, inode, extent.logical).await?;
    let step = steps.last().copied().ok_or(Error::Corrupt("extent tree"))?;
    if let Some(at) = step.position {
        let before = node::extent(leaf.bytes(), at);
        if before.end() > u64::from(extent.logical) {
            return replace(change, inode, step.place, at, before, extent).await;
        }
    }
    add(change, inode, extent).await
}

/// Writes into the middle of an unwritten extent: up to three extents take its place.
async fn replace<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
    place: Place,
    at: usize,
    before: Extent,
    extent: Extent,
) -> Result<()> {
    if !before.unwritten || extent.end() > before.end() {
        return Err(Error::Corrupt("overlapping extents"));
    }
    let skipped = extent.logical - before.logical;
    let written = skipped + extent.length;
    let head = Extent { length: skipped, ..before };
    let tail = Extent {
        logical: before.logical + written,
        physical: before.physical + u64::from(written),
        length: before.length - written,
        unwritten: true,
    };
    if skipped > 0 {
        edit(change, inode, place, |node| node::set_entry(node, at, &head.write())).await?;
        add(change, inode, extent).await?;
    } else {
        edit(change, inode, place, |node| node::set_entry(node, at, &extent.write())).await?;
    }
    if tail.length > 0 {
        add(change, inode, tail).await?;
    }
    Ok(())
}

/// Adds an extent for blocks that have none.
async fn add<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
    extent: Extent,
) -> Result<()> {
    // Each round splits one node, from the root's level towards the leaf, or adds a level.
    for _ in 0..=2 * node::DEEPEST {
        let (steps, leaf) = walk(change, inode, extent.logical).await?;
        let step = steps.last().copied().ok_or(Error::Corrupt("extent tree"))?;
        let done = match joined(leaf.bytes(), step, extent) {
            Some((at, joined)) => {
                edit(change, inode, step.place, |node| node::set_entry(node, at, &joined.write()))
                    .await?;
                true
            }
            None if step.count < step.max => {
                let at = step.position.map_or(0, |at| at + 1);
                edit(change, inode, step.place, |node| node::insert(node, at, &extent.write()))
                    .await?;
                true
            }
            None => false,
        };
        if done {
            return lower_keys(change, inode, &steps, extent.logical).await;
        }
        let inner = steps.get(..steps.len() - 1).unwrap_or(&[]);
        match inner.iter().rposition(|step| step.count < step.max) {
            Some(level) => split(change, inode, &steps, level + 1).await?,
            None => grow(change, inode).await?,
        }
    }
    Err(Error::Corrupt("extent tree"))
}

/// The entry that the extent continues or precedes, with both together.
fn joined(leaf: &[u8], step: Step, extent: Extent) -> Option<(usize, Extent)> {
    if let Some(at) = step.position
        && let Some(joined) = node::extent(leaf, at).joined(&extent)
    {
        return Some((at, joined));
    }
    let at = step.position.map_or(0, |at| at + 1);
    let next = (at < step.count).then(|| node::extent(leaf, at))?;
    extent.joined(&next).map(|joined| (at, joined))
}

/// Lowers the keys above a leaf if its first extent now begins earlier.
async fn lower_keys<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
    steps: &[Step],
    logical: u32,
) -> Result<()> {
    for step in steps.iter().rev().skip(1) {
        let at = step.position.unwrap_or(0);
        let node = match step.place {
            Place::Root => super::root(inode)?,
            Place::Block(number) => {
                super::Node::Block(change.block(number, crate::block::Check::None).await?)
            }
        };
        if node::first(node.bytes(), at) <= logical {
            return Ok(());
        }
        edit(change, inode, step.place, |node| node::set_first(node, at, logical)).await?;
    }
    Ok(())
}

/// Moves a part of the node at `level` into a new one. Its parent has room.
async fn split<D: BlockDevice>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
    steps: &[Step],
    level: usize,
) -> Result<()> {
    let (Some(parent), Some(step)) = (steps.get(level - 1), steps.get(level)) else {
        return Err(Error::Corrupt("extent tree"));
    };
    let Place::Block(number) = step.place else { return Err(Error::Corrupt("extent tree")) };
    // A file that grows at its end leaves full nodes behind.
    let appends = step.position == Some(step.count - 1);
    let keep = if appends { step.count - 1 } else { step.count / 2 }.max(1);
    let old = change.block(number, crate::block::Check::None).await?;
    let new = allocate::metadata_block(change, inode, number).await?;
    let first = node::first(&old, keep);
    let core = change.core();
    let seed = inode.seed(&core.layout);
    let bytes = change.fresh(new, Status::Metadata)?;
    node::initialise(bytes, node::depth(&old));
    for at in keep..step.count {
        node::set_entry(bytes, at - keep, node::entry(&old, at));
    }
    node::set_count(bytes, step.count - keep);
    seal(bytes, seed, core.layout.features.checksums());
    edit(change, inode, step.place, |node| {
        (keep..step.count).for_each(|at| node::set_entry(node, at, &[0; node::ENTRY]));
        node::set_count(node, keep);
    })
    .await?;
    let at = parent.position.map_or(0, |at| at + 1);
    edit(change, inode, parent.place, |node| node::insert(node, at, &node::index(first, new))).await
}

/// Moves the root's entries into a new block, which becomes the only child of the root.
async fn grow<D: BlockDevice>(change: &mut Change<'_, D>, inode: &mut Inode) -> Result<()> {
    let old: alloc::vec::Vec<u8> = inode.root().to_vec();
    let depth = node::depth(&old);
    if depth >= node::DEEPEST {
        return Err(Error::TooLarge);
    }
    let goal = allocate::goal_of(change, inode);
    let new = allocate::metadata_block(change, inode, goal).await?;
    let core = change.core();
    let seed = inode.seed(&core.layout);
    let bytes = change.fresh(new, Status::Metadata)?;
    node::initialise(bytes, depth);
    for at in 0..node::count(&old) {
        node::set_entry(bytes, at, node::entry(&old, at));
    }
    node::set_count(bytes, node::count(&old));
    seal(bytes, seed, core.layout.features.checksums());
    let root = inode.root_mut();
    node::initialise(root, depth + 1);
    node::insert(root, 0, &node::index(node::first(&old, 0), new));
    Ok(())
}
