//! A hash table.

use core::hash::Hash;

use hashbrown::HashMap;

use super::OutOfMemory;

/// A hash table that can fail to grow.
#[derive(Debug)]
pub struct Table<K, V>(HashMap<K, V>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: Eq + Hash, V> Table<K, V> {
    /// An empty table; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for `more` entries.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the table is as it was.
    pub fn try_reserve(&mut self, more: usize) -> Result<(), OutOfMemory> {
        self.0.try_reserve(more).map_err(|_| OutOfMemory)
    }

    /// Inserts an entry; returns the value it replaces.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the table is unchanged, and key and value are dropped.
    pub fn try_insert(&mut self, key: K, value: V) -> Result<Option<V>, OutOfMemory> {
        self.try_reserve(1)?;
        Ok(self.0.insert(key, value))
    }

    /// The value of a key. Inserts the default value if there is none.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the table is as it was.
    pub fn try_get_or_default(&mut self, key: K) -> Result<&mut V, OutOfMemory>
    where
        V: Default,
    {
        self.try_reserve(1)?;
        Ok(self.0.entry(key).or_default())
    }

    /// Shrinks the table to memory for about `count` entries, or for its current entries if they
    /// are more.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the table is as it was.
    pub fn try_shrink_to(&mut self, count: usize) -> Result<(), OutOfMemory> {
        let mut smaller = HashMap::default();
        smaller.try_reserve(count.max(self.0.len())).map_err(|_| OutOfMemory)?;
        smaller.extend(self.0.drain());
        self.0 = smaller;
        Ok(())
    }

    /// Number of entries that fit without growing.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    /// A mutable reference to the value of a key.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    /// Whether there is an entry with this key.
    pub fn contains_key(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Removes an entry.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All entries, in arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter()
    }
}
