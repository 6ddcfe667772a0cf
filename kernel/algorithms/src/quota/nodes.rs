//! The memory of the tree's nodes.
//!
//! Nodes are in chunks, so that a node more or less copies no others: a family remains as long as
//! something is charged to it, so any number of ended processes can have left nodes. Chunks with
//! room are a list, and so are the free places of chunks. Every operation takes a bounded number of
//! steps, except that the array of pointers to chunks is copied when it doubles.
//!
//! An empty chunk is freed if another one has room. So at most one is kept for the next process.

use alloc::boxed::Box;
use core::ops::{Index, IndexMut};

use cops_fallible::{List, OutOfMemory, try_box};

use super::Node;

/// Nodes of a chunk, as many as its word of bits has: with their pointer in a page.
const CHUNK: usize = u32::BITS as usize;
/// The end of a list.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Chunk {
    /// A bit for each node.
    used: u32,
    nodes: [Option<Node>; CHUNK],
    /// Its neighbours among the chunks with room, if it has room.
    before: u32,
    next: u32,
}

/// A place for a chunk.
#[derive(Clone, Debug)]
enum Place {
    Chunk(Box<Chunk>),
    Free { next: u32 },
}

/// All nodes, by their indices.
#[derive(Debug)]
pub(super) struct Nodes {
    places: List<Place>,
    /// The first chunk with room.
    with_room: u32,
    /// The first free place.
    free: u32,
    length: usize,
    /// The number of the last node's life.
    last_life: u32,
}

impl Default for Nodes {
    fn default() -> Self {
        Self::new()
    }
}

/// Only for tests, which try a change on a copy.
#[cfg(test)]
impl Clone for Nodes {
    fn clone(&self) -> Self {
        Self { places: List::try_from_iter(self.places.iter().cloned()).unwrap(), ..*self }
    }
}

/// The node with this index, which there is: all indices come from the nodes.
impl Index<u32> for Nodes {
    type Output = Node;

    #[inline]
    fn index(&self, index: u32) -> &Node {
        let Some(node) = self.get(index) else { unreachable!("family {index} has no node") };
        node
    }
}

impl IndexMut<u32> for Nodes {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Node {
        let Some(node) = self.get_mut(index) else { unreachable!("family {index} has no node") };
        node
    }
}

impl Nodes {
    /// Memory of a node, its part of a chunk included.
    pub(super) const NODE_BYTES: u64 = (size_of::<Chunk>().div_ceil(CHUNK)) as u64;

    pub(super) const fn new() -> Self {
        Self { places: List::new(), with_room: NONE, free: NONE, length: 0, last_life: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.length
    }

    /// How many chunks there are.
    #[cfg(test)]
    pub(super) fn chunks(&self) -> usize {
        self.places.iter().filter(|place| matches!(place, Place::Chunk(_))).count()
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Node> {
        let Place::Chunk(chunk) = self.places.get(index as usize / CHUNK)? else { return None };
        chunk.nodes[index as usize % CHUNK].as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut Node> {
        self.chunk(index / CHUNK as u32)?.nodes[index as usize % CHUNK].as_mut()
    }

    /// Adds a node, with a life that no other node has. Returns its index. The first one has index
    /// 0 and life 1.
    ///
    /// # Errors
    /// [`OutOfMemory`]; nothing has changed.
    pub(super) fn insert(&mut self, node: Node) -> Result<u32, OutOfMemory> {
        if self.with_room == NONE {
            self.add_chunk()?;
        }
        let number = self.with_room;
        let Some(chunk) = self.chunk(number) else { return Err(OutOfMemory) };
        let place = chunk.used.trailing_ones();
        chunk.used |= 1 << place;
        if chunk.used == u32::MAX {
            self.unlink(number);
        }
        self.length += 1;
        self.last_life = self.last_life.wrapping_add(1).max(1);
        let life = self.last_life;
        if let Some(chunk) = self.chunk(number) {
            chunk.nodes[place as usize] = Some(Node { life, ..node });
        }
        Ok(number * CHUNK as u32 + place)
    }

    /// Removes the node with this index, which there is.
    pub(super) fn remove(&mut self, index: u32) {
        let number = index / CHUNK as u32;
        let Some(chunk) = self.chunk(number) else { return };
        let was_full = chunk.used == u32::MAX;
        chunk.nodes[index as usize % CHUNK] = None;
        chunk.used &= !(1 << (index % CHUNK as u32));
        let is_empty = chunk.used == 0;
        self.length -= 1;
        if was_full {
            self.link(number);
        }
        let is_alone = |chunk: &mut Chunk| chunk.before == NONE && chunk.next == NONE;
        if is_empty && !self.chunk(number).is_none_or(is_alone) {
            self.unlink(number);
            self.places[number as usize] = Place::Free { next: self.free };
            self.free = number;
        }
    }

    fn chunk(&mut self, number: u32) -> Option<&mut Chunk> {
        match self.places.get_mut(number as usize)? {
            Place::Chunk(chunk) => Some(chunk),
            Place::Free { .. } => None,
        }
    }

    /// Adds a chunk with room, in a free place if there is one.
    fn add_chunk(&mut self) -> Result<(), OutOfMemory> {
        let nodes = [const { None }; CHUNK];
        let chunk = Place::Chunk(try_box(Chunk { used: 0, nodes, before: NONE, next: NONE })?);
        let number = self.free;
        match self.places.get_mut(number as usize) {
            Some(place) => {
                if let Place::Free { next } = core::mem::replace(place, chunk) {
                    self.free = next;
                }
                self.link(number);
            }
            None => {
                let number = self.places.len() as u32;
                self.places.try_push(chunk)?;
                self.link(number);
            }
        }
        Ok(())
    }

    /// Puts a chunk in front of the others with room.
    fn link(&mut self, number: u32) {
        let next = self.with_room;
        if let Some(chunk) = self.chunk(next) {
            chunk.before = number;
        }
        if let Some(chunk) = self.chunk(number) {
            (chunk.before, chunk.next) = (NONE, next);
        }
        self.with_room = number;
    }

    /// Takes a chunk out of those with room.
    fn unlink(&mut self, number: u32) {
        let Some(chunk) = self.chunk(number) else { return };
        let (before, next) = (chunk.before, chunk.next);
        (chunk.before, chunk.next) = (NONE, NONE);
        match self.chunk(before) {
            Some(chunk) => chunk.next = next,
            None => self.with_room = next,
        }
        if let Some(chunk) = self.chunk(next) {
            chunk.before = before;
        }
    }
}
