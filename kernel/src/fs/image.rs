//! The root image: a read-only archive in memory, packed by the build and found through the device tree.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use cops_abi::Errno;
use spin::Once;
use tar_no_std::TarArchiveRef;

/// One file of the image.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Path without a leading slash.
    pub path: String,
    /// What it holds.
    pub data: &'static [u8],
}

/// The files by path, sorted.
#[derive(Debug, Default)]
pub struct RootImage {
    entries: Vec<Entry>,
}

/// What a path names.
pub enum Node<'a> {
    /// A file.
    File(&'a Entry),
    /// A directory, by its path with a trailing slash (empty: the root).
    Directory(String),
}

static ROOT: Once<RootImage> = Once::new();

/// Makes `archive` the root image; only the first call counts. Returns how many files it holds.
pub fn set_root(archive: &'static [u8]) -> usize {
    ROOT.call_once(|| RootImage::new(archive)).entries.len()
}

/// The root image; empty if none was found.
pub fn root() -> &'static RootImage {
    ROOT.call_once(RootImage::default)
}

impl RootImage {
    fn new(archive: &'static [u8]) -> Self {
        let Ok(archive) = TarArchiveRef::new(archive) else { return Self::default() };
        let mut entries: Vec<Entry> = archive
            .entries()
            .filter_map(|entry| {
                let name = entry.filename();
                let path = normalize(name.as_str().ok()?);
                Some(Entry { path, data: entry.data() })
            })
            .collect();
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        // The last of two files with one name wins, as when an archive is unpacked.
        entries.reverse();
        entries.dedup_by(|a, b| a.path == b.path);
        entries.reverse();
        Self { entries }
    }

    /// What lies at `path`; relative paths start at the root.
    ///
    /// # Errors
    /// `ENOENT`.
    pub fn look_up(&self, path: &str) -> Result<Node<'_>, Errno> {
        let path = normalize(path);
        if let Ok(index) = self.entries.binary_search_by(|entry| entry.path.as_str().cmp(&path)) {
            return Ok(Node::File(&self.entries[index]));
        }
        let prefix = if path.is_empty() { path } else { path + "/" };
        if prefix.is_empty() || self.entries.iter().any(|entry| entry.path.starts_with(&prefix)) {
            return Ok(Node::Directory(prefix));
        }
        Err(Errno::ENOENT)
    }

    /// The names directly in `directory` (as [`Node::Directory`] gives it), each with whether it is a directory itself.
    pub fn list(&self, directory: &str) -> Vec<(String, bool)> {
        let mut names: Vec<(String, bool)> = self
            .entries
            .iter()
            .filter_map(|entry| entry.path.strip_prefix(directory))
            .map(|rest| match rest.split_once('/') {
                Some((name, _)) => (name.to_string(), true),
                None => (rest.to_string(), false),
            })
            .collect();
        names.dedup();
        names
    }
}

/// Removes empty parts and `.`, resolves `..` within the root.
fn normalize(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
