//! A double-ended queue.

use alloc::collections::VecDeque;

use super::OutOfMemory;

/// A queue that can fail to grow.
#[derive(Debug)]
pub struct Queue<T>(VecDeque<T>);

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Queue<T> {
    /// An empty queue; allocates nothing.
    pub const fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Makes room for `more` items.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the queue is as it was.
    pub fn try_reserve(&mut self, more: usize) -> Result<(), OutOfMemory> {
        self.0.try_reserve(more).map_err(|_| OutOfMemory)
    }

    /// Appends an item.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the item is dropped.
    pub fn try_push_back(&mut self, item: T) -> Result<(), OutOfMemory> {
        self.try_reserve(1)?;
        self.0.push_back(item);
        Ok(())
    }

    /// Appends an item if the capacity suffices; otherwise returns the item.
    ///
    /// # Errors
    /// The item.
    pub fn push_back_within_capacity(&mut self, item: T) -> Result<(), T> {
        if self.0.len() == self.0.capacity() {
            return Err(item);
        }
        self.0.push_back(item);
        Ok(())
    }

    /// Removes the first item.
    pub fn pop_front(&mut self) -> Option<T> {
        self.0.pop_front()
    }

    /// The first item.
    pub fn front(&self) -> Option<&T> {
        self.0.front()
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Number of items that fit without growing.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// All items, in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// Removes all items and returns them in order; keeps the memory.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.0.drain(..)
    }

    /// Keeps the items for which `keep` is true.
    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.0.retain(keep);
    }
}
