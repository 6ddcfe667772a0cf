//! A growable array.

use alloc::vec::Vec;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};

use super::OutOfMemory;

/// A growable array that can fail to grow. It dereferences to a slice.
#[derive(Debug, PartialEq, Eq)]
pub struct List<T>(Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> List<T> {
    /// An empty list; allocates nothing.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// An empty list with room for exactly `count`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_with_capacity(count: usize) -> Result<Self, OutOfMemory> {
        let mut list = Vec::new();
        list.try_reserve_exact(count).map_err(|_| OutOfMemory)?;
        Ok(Self(list))
    }

    /// A list of what `items` yields.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_from_iter(items: impl IntoIterator<Item = T>) -> Result<Self, OutOfMemory> {
        let mut list = Self::new();
        for item in items {
            list.try_push(item)?;
        }
        Ok(list)
    }

    /// A copy of `items`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_from_slice(items: &[T]) -> Result<Self, OutOfMemory>
    where
        T: Copy,
    {
        let mut list = Self::new();
        list.try_extend_from_slice(items)?;
        Ok(list)
    }

    /// Makes room for `more` items.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the list is as it was.
    pub fn try_reserve(&mut self, more: usize) -> Result<(), OutOfMemory> {
        self.0.try_reserve(more).map_err(|_| OutOfMemory)
    }

    /// Appends an item.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the item is dropped.
    pub fn try_push(&mut self, item: T) -> Result<(), OutOfMemory> {
        self.try_reserve(1)?;
        self.0.push(item);
        Ok(())
    }

    /// Appends an item if the capacity suffices; otherwise returns the item.
    ///
    /// # Errors
    /// The item.
    pub fn push_within_capacity(&mut self, item: T) -> Result<(), T> {
        if self.0.len() == self.0.capacity() {
            return Err(item);
        }
        self.0.push(item);
        Ok(())
    }

    /// Inserts an item before the one at `index`.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the item is dropped.
    ///
    /// # Panics
    /// If `index` is beyond the end.
    pub fn try_insert(&mut self, index: usize, item: T) -> Result<(), OutOfMemory> {
        self.try_reserve(1)?;
        self.0.insert(index, item);
        Ok(())
    }

    /// Appends copies of `items`.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the list is as it was.
    pub fn try_extend_from_slice(&mut self, items: &[T]) -> Result<(), OutOfMemory>
    where
        T: Copy,
    {
        self.try_reserve(items.len())?;
        self.0.extend_from_slice(items);
        Ok(())
    }

    /// Makes the list `length` items long, with copies of `item` where it grows.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the list is as it was.
    pub fn try_resize(&mut self, length: usize, item: T) -> Result<(), OutOfMemory>
    where
        T: Copy,
    {
        self.try_reserve(length.saturating_sub(self.0.len()))?;
        self.0.resize(length, item);
        Ok(())
    }

    /// Appends at most `count` items, and returns how many. `fill` writes them: it is given their
    /// memory, and returns those that it has written, from the first one on. So nothing has to be
    /// written twice.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the list is as it was.
    ///
    /// # Panics
    /// If `fill` returns other memory.
    #[allow(unsafe_code)]
    pub fn try_extend_with(
        &mut self,
        count: usize,
        fill: impl for<'a> FnOnce(&'a mut [MaybeUninit<T>]) -> &'a mut [T],
    ) -> Result<usize, OutOfMemory>
    where
        T: Copy,
    {
        self.try_reserve(count)?;
        let room = &mut self.0.spare_capacity_mut()[..count];
        let begin = room.as_ptr().cast::<T>();
        let filled = fill(room);
        assert!(core::ptr::eq(filled.as_ptr(), begin) && filled.len() <= count);
        let filled = filled.len();
        // SAFETY: the next `filled` items are initialised, since there was a reference to exactly
        // them as items. They are within the capacity, which was reserved above.
        unsafe { self.0.set_len(self.0.len() + filled) };
        Ok(filled)
    }

    /// Removes the last item.
    pub fn pop(&mut self) -> Option<T> {
        self.0.pop()
    }

    /// Removes the item at `index`; the items after it move up.
    ///
    /// # Panics
    /// If there is none.
    pub fn remove(&mut self, index: usize) -> T {
        self.0.remove(index)
    }

    /// Keeps the items for which `keep` is true.
    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.0.retain(keep);
    }

    /// Drops the items from `length` on.
    pub fn truncate(&mut self, length: usize) {
        self.0.truncate(length);
    }

    /// Removes all items and returns them in order; keeps the memory.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        self.0.drain(..)
    }

    /// Removes the items of `range`, in order.
    pub fn drain_range(&mut self, range: core::ops::Range<usize>) -> impl Iterator<Item = T> {
        self.0.drain(range)
    }

    /// Drops all items; keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Number of items that fit without growing.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// The items as `alloc`'s type, for external crates that require it.
    pub fn into_vec(self) -> Vec<T> {
        self.0
    }
}

impl<T> Deref for List<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<T> IntoIterator for List<T> {
    type Item = T;
    type IntoIter = alloc::vec::IntoIter<T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a List<T> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut List<T> {
    type Item = &'a mut T;
    type IntoIter = core::slice::IterMut<'a, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}
