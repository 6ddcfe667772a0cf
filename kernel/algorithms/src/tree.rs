//! The names of a file system: directories, what they name, links, renames.
//!
//! Nodes have numbers that are never reused. A directory is a map from a *key* to an entry. The key
//! is a hash of the name with a secret seed, and a counter for names with the same hash. It is also
//! the entry's place in a listing, so a listing that is continued misses no entry and repeats none,
//! whatever is created and removed meanwhile. Every operation takes O(log n) steps, except that a
//! directory that is moved needs a step for each level above its new place, of which there may be
//! [`LEVELS_MAX`].
//!
//! An operation that fails has changed nothing.

use core::hash::Hasher;

use cops_abi::Errno;
use cops_fallible::map::Spare;
use cops_fallible::{Map, OutOfMemory, Text};

/// Maximum number of levels above the new place of a directory that is moved.
pub const LEVELS_MAX: usize = 128;
/// The number of the root.
pub const ROOT: u64 = 1;

/// Bits of a key below the hash: a counter.
const COUNTER_BITS: u32 = 14;
/// Keys below this are not used, so that a listing has places for `.` and `..`.
pub const KEYS_MIN: u64 = 1 << COUNTER_BITS;

/// The names of a file system, with a value for each node and a token for each name.
#[derive(Debug)]
pub struct Tree<V, T> {
    nodes: Map<u64, Node<V, T>>,
    last_number: u64,
    seed: [u64; 2],
}

#[derive(Debug)]
struct Node<V, T> {
    value: V,
    /// Number of names; of a directory: 2, and one for each directory in it.
    links: u32,
    /// Of a directory.
    directory: Option<Directory<T>>,
}

#[derive(Debug)]
struct Directory<T> {
    /// The directory that it is in; its own number for the root.
    parent: u64,
    /// Its key there.
    key: u64,
    entries: Map<u64, Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    name: Text,
    number: u64,
    token: T,
}

/// An entry of a listing.
#[derive(Debug, PartialEq, Eq)]
pub struct Listed<'a, V> {
    /// Where the listing goes on: behind this key.
    pub key: u64,
    /// The name.
    pub name: &'a str,
    /// The node.
    pub number: u64,
    /// Its value.
    pub value: &'a V,
}

/// What an operation has removed, to be dropped where that may take long.
#[derive(Debug)]
pub struct Removed<V, T> {
    /// The node, if that was its last name.
    pub value: Option<V>,
    /// The name's token.
    pub token: Option<T>,
}

impl<V: Clone, T> Tree<V, T> {
    /// A tree with a root. `seed` should be secret.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(root: V, seed: [u64; 2]) -> Result<Self, OutOfMemory> {
        let mut nodes = Map::new();
        let directory = Some(Directory { parent: ROOT, key: 0, entries: Map::new() });
        nodes.try_insert(ROOT, Node { value: root, links: 2, directory })?;
        Ok(Self { nodes, last_number: ROOT, seed })
    }

    /// The first key that a name can have.
    fn first_key(&self, name: &str) -> u64 {
        #[allow(deprecated, reason = "core has no other keyed hash that withstands chosen names")]
        let mut hasher = core::hash::SipHasher::new_with_keys(self.seed[0], self.seed[1]);
        hasher.write(name.as_bytes());
        // 63 bits, so that a key is also a place in a file.
        (hasher.finish() >> 1 & !(KEYS_MIN - 1)).max(KEYS_MIN)
    }

    fn directory(&self, number: u64) -> Result<&Directory<T>, Errno> {
        let node = self.nodes.get(&number).ok_or(Errno::ENOENT)?;
        node.directory.as_ref().ok_or(Errno::ENOTDIR)
    }

    fn entries(&mut self, number: u64) -> Option<&mut Map<u64, Entry<T>>> {
        Some(&mut self.nodes.get_mut(&number)?.directory.as_mut()?.entries)
    }

    /// The key and the node of a name, or the key that a new entry of this name would get.
    fn find(&self, directory: u64, name: &str) -> Result<Result<(u64, u64), u64>, Errno> {
        let entries = &self.directory(directory)?.entries;
        let first = self.first_key(name);
        let mut free = first;
        let mut next = entries.at_or_after(&first);
        while let Some((&key, entry)) = next
            && key >> COUNTER_BITS == first >> COUNTER_BITS
        {
            if &*entry.name == name {
                return Ok(Ok((key, entry.number)));
            }
            if key == free {
                free += 1;
            }
            next = entries.at_or_after(&(key + 1));
        }
        if free >> COUNTER_BITS == first >> COUNTER_BITS {
            Ok(Err(free))
        } else {
            Err(Errno::ENOSPC)
        }
    }

    /// The key of a name that is there.
    fn key_of(&self, directory: u64, name: &str) -> Result<(u64, u64), Errno> {
        match name {
            "." | ".." => Err(Errno::EINVAL),
            _ => self.find(directory, name)?.map_err(|_| Errno::ENOENT),
        }
    }

    /// The key for a name that is not there.
    fn key_for(&self, directory: u64, name: &str) -> Result<u64, Errno> {
        match name {
            "." | ".." => Err(Errno::EEXIST),
            _ => self.find(directory, name)?.err().ok_or(Errno::EEXIST),
        }
    }

    fn is_directory(&self, number: u64) -> bool {
        self.nodes.get(&number).is_some_and(|node| node.directory.is_some())
    }

    /// The node that `name` names in a directory, also `.` and `..`.
    ///
    /// # Errors
    /// `ENOENT`, also in a directory that has been removed; `ENOTDIR`.
    pub fn look_up(&self, directory: u64, name: &str) -> Result<&V, Errno> {
        let number = match name {
            "." => directory,
            ".." => self.directory(directory)?.parent,
            _ => self.find(directory, name)?.map_err(|_| Errno::ENOENT)?.1,
        };
        self.directory(directory)?;
        self.nodes.get(&number).map(|node| &node.value).ok_or(Errno::ENOENT)
    }

    /// Number of names of a node; 0 if it has been removed.
    #[must_use]
    pub fn links(&self, number: u64) -> u32 {
        self.nodes.get(&number).map_or(0, |node| node.links)
    }

    /// Creates a node. `make` makes its value of its number.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `ENOTDIR`, `ENOMEM`, and that of `make`.
    pub fn insert(
        &mut self,
        parent: u64,
        name: &str,
        is_directory: bool,
        token: T,
        make: impl FnOnce(u64) -> Result<V, Errno>,
    ) -> Result<V, Errno> {
        let key = self.key_for(parent, name)?;
        let text = Text::try_from_str(name)?;
        let (for_node, for_entry) = (Spare::try_new()?, Spare::try_new()?);
        let number = self.last_number + 1;
        let value = make(number)?;
        // From here on nothing fails.
        self.last_number = number;
        let directory = is_directory.then(|| Directory { parent, key, entries: Map::new() });
        let node =
            Node { value: value.clone(), links: if is_directory { 2 } else { 1 }, directory };
        let _ = self.nodes.insert_with(for_node, number, node);
        if let Some(entries) = self.entries(parent) {
            let _ = entries.insert_with(for_entry, key, Entry { name: text, number, token });
        }
        self.add_links(parent, is_directory.into());
        Ok(value)
    }

    /// Gives node `number`, which is not a directory, another name.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT` if it has been removed, `ENOTDIR`, `EPERM` for a directory, `EMLINK`,
    /// `ENOMEM`.
    pub fn link(&mut self, parent: u64, name: &str, number: u64, token: T) -> Result<(), Errno> {
        let node = self.nodes.get(&number).ok_or(Errno::ENOENT)?;
        if node.directory.is_some() {
            return Err(Errno::EPERM);
        }
        if node.links == u32::MAX {
            return Err(Errno::EMLINK);
        }
        let key = self.key_for(parent, name)?;
        let text = Text::try_from_str(name)?;
        let spare = Spare::try_new()?;
        if let Some(entries) = self.entries(parent) {
            let _ = entries.insert_with(spare, key, Entry { name: text, number, token });
        }
        self.add_links(number, 1);
        Ok(())
    }

    /// Removes a name: of an empty directory if `of_directory`, otherwise of something else.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EISDIR`, `ENOTEMPTY`; `EINVAL` for `.`, `ENOTEMPTY` for `..`.
    pub fn remove(
        &mut self,
        parent: u64,
        name: &str,
        of_directory: bool,
    ) -> Result<Removed<V, T>, Errno> {
        match (name, of_directory) {
            ("." | "..", false) => return Err(Errno::EISDIR),
            ("..", true) => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        let (key, number) = self.key_of(parent, name)?;
        match (self.is_directory(number), of_directory) {
            (true, false) => return Err(Errno::EISDIR),
            (false, true) => return Err(Errno::ENOTDIR),
            (true, true) if !self.directory(number)?.entries.is_empty() => {
                return Err(Errno::ENOTEMPTY);
            }
            _ => {}
        }
        let token = self.entries(parent).and_then(|entries| entries.remove(&key));
        let value = self.unlink(parent, number);
        Ok(Removed { value, token: token.map(|entry| entry.token) })
    }

    /// A name of `number` in `parent` is gone. Returns the node if it was the last one.
    fn unlink(&mut self, parent: u64, number: u64) -> Option<V> {
        if self.is_directory(number) {
            self.subtract_link(parent);
            return self.nodes.remove(&number).map(|node| node.value);
        }
        self.subtract_link(number);
        if self.links(number) > 0 {
            return None;
        }
        self.nodes.remove(&number).map(|node| node.value)
    }

    fn add_links(&mut self, number: u64, count: u32) {
        if let Some(node) = self.nodes.get_mut(&number) {
            node.links += count;
        }
    }

    fn subtract_link(&mut self, number: u64) {
        if let Some(node) = self.nodes.get_mut(&number) {
            node.links -= 1;
        }
    }

    /// Whether directory `number` is `above`, or below it.
    fn is_within(&self, mut number: u64, above: u64) -> Result<bool, Errno> {
        for _ in 0..LEVELS_MAX {
            if number == above {
                return Ok(true);
            }
            if number == ROOT {
                return Ok(false);
            }
            number = self.directory(number)?.parent;
        }
        Err(Errno::ENAMETOOLONG)
    }

    /// Gives what is `name` in directory `from` the name `new_name` in directory `to`, in the place
    /// of what has that name, unless `no_replace`. Returns what was replaced, and the token that is
    /// not needed any more.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EEXIST`, `EISDIR`, `ENOTEMPTY`; `EINVAL` to move a directory into
    /// itself; `EBUSY` for `.` and `..`; `ENAMETOOLONG` below [`LEVELS_MAX`] levels; `ENOMEM`.
    pub fn rename(
        &mut self,
        (from, name): (u64, &str),
        (to, new_name): (u64, &str),
        no_replace: bool,
        token: T,
    ) -> Result<Removed<V, T>, Errno> {
        if [name, new_name].iter().any(|name| matches!(*name, "." | "..")) {
            return Err(Errno::EBUSY);
        }
        let (old_key, number) = self.find(from, name)?.map_err(|_| Errno::ENOENT)?;
        let target = self.find(to, new_name)?;
        let moves_directory = self.is_directory(number);
        if let Ok((_, replaced)) = target {
            if no_replace {
                return Err(Errno::EEXIST);
            }
            if replaced == number {
                return Ok(Removed { value: None, token: Some(token) });
            }
            match (moves_directory, self.is_directory(replaced)) {
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                _ => {}
            }
        }
        if moves_directory && from != to && self.is_within(to, number)? {
            return Err(Errno::EINVAL);
        }
        if let Ok((_, replaced)) = target
            && self.is_directory(replaced)
            && !self.directory(replaced)?.entries.is_empty()
        {
            return Err(Errno::ENOTEMPTY);
        }
        // What the new entry needs is allocated before anything changes.
        let new_key = match target {
            Ok((key, _)) => key,
            Err(key) => key,
        };
        let text = Text::try_from_str(new_name)?;
        let spare = Spare::try_new()?;
        let entry = Entry { name: text, number, token };

        let old = self.entries(from).and_then(|entries| entries.remove(&old_key));
        let before =
            self.entries(to).and_then(|entries| entries.insert_with(spare, new_key, entry));
        if moves_directory {
            self.subtract_link(from);
            self.add_links(to, 1);
            let moved = self.nodes.get_mut(&number).and_then(|node| node.directory.as_mut());
            if let Some(directory) = moved {
                (directory.parent, directory.key) = (to, new_key);
            }
        }
        let value = match target {
            Ok((_, replaced)) => self.unlink(to, replaced),
            Err(_) => None,
        };
        // Two tokens are left over if there was an entry before: one of them is enough for it.
        drop(before);
        Ok(Removed { value, token: old.map(|entry| entry.token) })
    }

    /// The first entry of a directory with a key above `after`.
    ///
    /// # Errors
    /// `ENOENT` if it has been removed, `ENOTDIR`.
    pub fn list(&self, directory: u64, after: u64) -> Result<Option<Listed<'_, V>>, Errno> {
        let from = after.checked_add(1).ok_or(Errno::EINVAL)?;
        let next = self.directory(directory)?.entries.at_or_after(&from);
        Ok(next.and_then(|(&key, entry)| {
            let value = &self.nodes.get(&entry.number)?.value;
            Some(Listed { key, name: &entry.name, number: entry.number, value })
        }))
    }

    /// The directory that a directory is in, and its name there; `None` for the root.
    ///
    /// # Errors
    /// `ENOENT` if it has been removed, `ENOTDIR`.
    pub fn place(&self, directory: u64) -> Result<Option<(&V, &str)>, Errno> {
        let Directory { parent, key, .. } = self.directory(directory)?;
        if directory == ROOT {
            return Ok(None);
        }
        let entry = self.directory(*parent)?.entries.get(key).ok_or(Errno::ENOENT)?;
        let value = self.nodes.get(parent).map(|node| &node.value).ok_or(Errno::ENOENT)?;
        Ok(Some((value, &entry.name)))
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
