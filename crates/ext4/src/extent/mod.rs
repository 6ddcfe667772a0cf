//! The extent tree of an inode: where the blocks of a file are.

mod insert;
pub(crate) mod node;
mod remove;

use alloc::vec::Vec;

pub(crate) use self::insert::insert;
pub(crate) use self::node::Extent;
pub(crate) use self::remove::{Progress, remove_from};

use crate::block::{Block, Check};
use crate::bytes::put_u32;
use crate::change::Change;
use crate::checksum::crc32c;
use crate::device::BlockDevice;
use crate::error::{Error, Result};
use crate::inode::{BLOCK_LISTS, Inode};
use crate::shared::Source;

/// Where a block of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The block of the disk, if there is one.
    pub physical: Option<u64>,
    /// It reads as zeros although there is one.
    pub unwritten: bool,
    /// For so many blocks of the file the same holds, consecutively.
    pub length: u32,
}

/// The place of a node: `i_block` of the inode, or a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Root,
    Block(u64),
}

/// A node on the way from the root to a leaf.
#[derive(Clone, Copy, Debug)]
struct Step {
    place: Place,
    count: usize,
    max: usize,
    /// The entry that was followed, or the one at or before which the searched block is.
    position: Option<usize>,
}

/// A copy of a node.
enum Node {
    Root([u8; crate::inode::BLOCK_SIZE]),
    Block(Block),
}

impl Node {
    fn bytes(&self) -> &[u8] {
        match self {
            Node::Root(bytes) => bytes,
            Node::Block(block) => block,
        }
    }
}

fn root(inode: &Inode) -> Result<Node> {
    if !inode.has_extents() {
        return Err(BLOCK_LISTS);
    }
    let bytes = inode.root().try_into().map_err(|_| Error::Corrupt("inode"))?;
    Ok(Node::Root(bytes))
}

async fn load<S: Source>(source: &S, inode: &Inode, child: u64, depth: u16) -> Result<Node> {
    let layout = source.layout();
    if !layout.is_for_files(child, 1) {
        return Err(Error::Corrupt("block of an extent node"));
    }
    let check = Check::Extents(inode.seed(layout), depth);
    let block = source.block(child, check).await?;
    node::check_header(&block, depth)?;
    Ok(Node::Block(block))
}

/// The nodes from the root to the leaf that has, or would have, a block of the file.
async fn walk<S: Source>(source: &S, inode: &Inode, logical: u32) -> Result<(Vec<Step>, Node)> {
    let mut node = root(inode)?;
    let mut depth = node::depth(node.bytes());
    node::check_header(node.bytes(), depth)?;
    let mut place = Place::Root;
    let mut steps = Vec::new();
    loop {
        let bytes = node.bytes();
        let position = node::position(bytes, logical);
        let position = if depth == 0 { position } else { position.or(Some(0)) };
        let step = Step { place, count: node::count(bytes), max: node::max(bytes), position };
        steps.push(step);
        if depth == 0 {
            return Ok((steps, node));
        }
        if step.count == 0 {
            return Err(Error::Corrupt("empty extent node"));
        }
        let child = node::child(bytes, position.unwrap_or(0));
        depth -= 1;
        node = load(source, inode, child, depth).await?;
        place = Place::Block(child);
    }
}

/// The blocks of the nodes on the way to block `logical` of a file.
pub(crate) async fn nodes<S: Source>(source: &S, inode: &Inode, logical: u32) -> Result<Vec<u64>> {
    let (steps, _) = walk(source, inode, logical).await?;
    let blocks = steps.iter().filter_map(|step| match step.place {
        Place::Root => None,
        Place::Block(number) => Some(number),
    });
    Ok(blocks.collect())
}

/// Where block `logical` of a file is.
pub(crate) async fn map<S: Source>(source: &S, inode: &Inode, logical: u32) -> Result<Mapping> {
    let layout = source.layout();
    let mut node = root(inode)?;
    let mut depth = node::depth(node.bytes());
    node::check_header(node.bytes(), depth)?;
    // Where the next extent behind a hole begins, as far as the nodes above know.
    let mut next = u32::MAX;
    loop {
        let bytes = node.bytes();
        let position = node::position(bytes, logical);
        let following = position.map_or(0, |at| at + 1);
        if following < node::count(bytes) {
            next = next.min(node::first(bytes, following));
        }
        let hole = Mapping {
            physical: None,
            unwritten: false,
            length: next.saturating_sub(logical).max(1),
        };
        let Some(at) = position else { return Ok(hole) };
        if depth == 0 {
            let extent = node::extent(bytes, at);
            if !layout.is_for_files(extent.physical, u64::from(extent.length)) {
                return Err(Error::Corrupt("blocks of an extent"));
            }
            let offset = logical - extent.logical;
            return Ok(if offset < extent.length {
                Mapping {
                    physical: Some(extent.physical + u64::from(offset)),
                    unwritten: extent.unwritten,
                    length: extent.length - offset,
                }
            } else {
                hole
            });
        }
        depth -= 1;
        node = load(source, inode, node::child(bytes, at), depth).await?;
    }
}

/// Leaves that [`written`] looks at.
const MOST_LEAVES: usize = 16;

/// How many blocks of a file, from the first one on, are written, of `most`: up to the first that
/// is in a hole or unwritten. Fewer if that is in a later leaf than the search looks at.
pub(crate) async fn written<S: Source>(source: &S, inode: &Inode, most: u32) -> Result<u32> {
    let mut next = 0;
    for _ in 0..MOST_LEAVES {
        if next >= most {
            break;
        }
        let (_, leaf) = walk(source, inode, next).await?;
        let bytes = leaf.bytes();
        let Some(from) = node::position(bytes, next) else { break };
        for at in from..node::count(bytes) {
            let extent = node::extent(bytes, at);
            let end = u32::try_from(extent.end()).unwrap_or(u32::MAX);
            if extent.logical > next || end <= next || extent.unwritten {
                return Ok(next.min(most));
            }
            next = end;
        }
    }
    Ok(next.min(most))
}

/// Makes the tree of a new inode.
pub(crate) fn initialise(inode: &mut Inode) {
    inode.set_flags(inode.flags() | crate::inode::FLAG_EXTENTS);
    node::initialise(inode.root_mut(), 0);
}

/// Changes a node, and computes its checksum.
async fn edit<D: BlockDevice, T>(
    change: &mut Change<'_, D>,
    inode: &mut Inode,
    place: Place,
    act: impl FnOnce(&mut [u8]) -> T,
) -> Result<T> {
    match place {
        Place::Root => Ok(act(inode.root_mut())),
        Place::Block(number) => {
            let core = change.core();
            let seed = inode.seed(&core.layout);
            let bytes = change.edit(number, Check::None).await?;
            let result = act(bytes);
            seal(bytes, seed, core.layout.features.checksums());
            Ok(result)
        }
    }
}

fn seal(bytes: &mut [u8], seed: u32, checksums: bool) {
    if checksums {
        let tail = node::tail(bytes);
        let checksum = crc32c(seed, bytes.get(..tail).unwrap_or(&[]));
        put_u32(bytes, tail, checksum);
    }
}
