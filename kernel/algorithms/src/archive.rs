//! The files of an archive by path: what a path names, and what a directory contains.

use cops_abi::Errno;
use cops_fallible::{List, OutOfMemory, Text};

/// One file of the archive.
#[derive(Debug)]
pub struct Entry {
    /// Path without a leading slash.
    pub path: Text,
    /// The contents; the path to which it leads if it is a symbolic link.
    pub data: &'static [u8],
    /// Whether it is a symbolic link.
    pub is_link: bool,
}

/// The files by path, sorted.
#[derive(Debug, Default)]
pub struct Archive {
    entries: List<Entry>,
}

/// The file or directory at a path.
#[derive(Debug)]
pub enum Node<'a> {
    /// A file.
    File(&'a Entry),
    /// A directory, as its path with a trailing slash (empty for the root).
    Directory(Text),
}

impl Archive {
    /// Adds a file. Of two files with the same path the last one counts, as when an archive is
    /// unpacked.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn add(&mut self, path: &str, data: &'static [u8]) -> Result<(), OutOfMemory> {
        self.put(path, data, false)
    }

    /// Like [`Self::add`], for a symbolic link to `target`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn add_link(&mut self, path: &str, target: &'static str) -> Result<(), OutOfMemory> {
        self.put(path, target.as_bytes(), true)
    }

    fn put(&mut self, path: &str, data: &'static [u8], is_link: bool) -> Result<(), OutOfMemory> {
        let path = normalize(path)?;
        match self.entries.binary_search_by(|other| (*other.path).cmp(&path)) {
            Ok(index) => {
                let entry = &mut self.entries[index];
                (entry.data, entry.is_link) = (data, is_link);
            }
            Err(index) => self.entries.try_insert(index, Entry { path, data, is_link })?,
        }
        Ok(())
    }

    /// Number of files.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no files.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All files, in the order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Finds the file or directory at `path`; relative paths start at the root.
    ///
    /// # Errors
    /// `ENOENT`, `ENOMEM`.
    pub fn look_up(&self, path: &str) -> Result<Node<'_>, Errno> {
        let mut path = normalize(path)?;
        if let Ok(index) = self.entries.binary_search_by(|entry| (*entry.path).cmp(&*path)) {
            return Ok(Node::File(&self.entries[index]));
        }
        if !path.is_empty() {
            path.try_push_str("/")?;
        }
        if path.is_empty() || self.entries.iter().any(|entry| entry.path.starts_with(&*path)) {
            return Ok(Node::Directory(path));
        }
        Err(Errno::ENOENT)
    }

    /// The names directly in `directory` (in the form of [`Node::Directory`]), each with whether it
    /// is a directory.
    pub fn list(&self, directory: &str) -> impl Iterator<Item = (&str, bool)> {
        let mut previous = ("", false);
        let rest = self.entries.iter().filter_map(move |entry| entry.path.strip_prefix(directory));
        let names =
            rest.map(|rest| rest.split_once('/').map_or((rest, false), |(name, _)| (name, true)));
        // The entries are sorted, so those of one directory are adjacent.
        names.filter(move |&name| core::mem::replace(&mut previous, name) != name)
    }
}

/// Removes empty parts and `.`, and resolves `..` within the root.
fn normalize(path: &str) -> Result<Text, OutOfMemory> {
    let mut normal = Text::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                let end = normal.rfind('/').unwrap_or(0);
                normal.truncate(end);
            }
            part => {
                if !normal.is_empty() {
                    normal.try_push_str("/")?;
                }
                normal.try_push_str(part)?;
            }
        }
    }
    Ok(normal)
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::string::String;
    use std::vec::Vec;

    fn archive(paths: &[&str]) -> Archive {
        let mut archive = Archive::default();
        for path in paths {
            archive.add(path, b"").unwrap();
        }
        archive
    }

    #[track_caller]
    fn names(archive: &Archive, path: &str, expected: &[(&str, bool)]) {
        let Node::Directory(directory) = archive.look_up(path).unwrap() else { panic!("a file") };
        assert_eq!(archive.list(&directory).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn paths_name_files_and_directories() {
        let archive = archive(&["./bin/sh", "bin/top", "/etc/init", "bin.txt", "readme"]);
        for path in ["bin/sh", "/bin/sh", "./bin//sh", "etc/../bin/./sh", "../../bin/sh"] {
            assert!(
                matches!(archive.look_up(path), Ok(Node::File(file)) if &*file.path == "bin/sh")
            );
        }
        let root = [("bin.txt", false), ("bin", true), ("etc", true), ("readme", false)];
        names(&archive, "", &root);
        names(&archive, "/bin/..", &root);
        names(&archive, "bin/", &[("sh", false), ("top", false)]);
        for path in ["bi", "bin/s", "bin/sh/x", "readme.txt"] {
            assert_eq!(archive.look_up(path).err(), Some(Errno::ENOENT), "{path}");
        }
    }

    #[test]
    fn a_link_and_a_file_replace_each_other() {
        let mut archive = archive(&["bin/ls"]);
        let is_link = |archive: &Archive| archive.iter().next().is_some_and(|one| one.is_link);
        archive.add_link("bin/ls", "busybox").unwrap();
        assert!(is_link(&archive) && archive.entries[0].data == b"busybox");
        archive.add("./bin/ls", b"file").unwrap();
        assert!(!is_link(&archive) && archive.len() == 1);
    }

    #[test]
    fn the_last_file_of_a_path_counts() {
        let mut archive = archive(&["a/b"]);
        archive.add("/a/./b", b"new").unwrap();
        assert_eq!(archive.len(), 1);
        assert!(matches!(archive.look_up("a/b"), Ok(Node::File(file)) if file.data == b"new"));
    }

    proptest! {
        #[test]
        fn any_path_is_resolved_within_the_root(parts in prop::collection::vec("(\\.|\\.\\.||a|bc)", 0..12)) {
            let path = parts.join("/");
            let mut model: Vec<&str> = Vec::new();
            for part in &parts {
                match &**part {
                    "" | "." => {}
                    ".." => drop(model.pop()),
                    part => model.push(part),
                }
            }
            let normal: String = model.join("/");
            prop_assert_eq!(&*normalize(&path).unwrap(), &*normal);
        }
    }
}
