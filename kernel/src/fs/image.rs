//! The root image: a read-only archive in memory, packed by the build and found through the device
//! tree.

use cops_abi::Errno;
use cops_fallible::{List, OutOfMemory, Text};
use spin::Once;
use tar_no_std::TarArchiveRef;

/// One file of the image.
#[derive(Debug)]
pub struct Entry {
    /// Path without a leading slash.
    pub path: Text,
    /// The contents.
    pub data: &'static [u8],
}

/// The files by path, sorted.
#[derive(Debug, Default)]
pub struct RootImage {
    entries: List<Entry>,
}

/// The file or directory at a path.
pub enum Node {
    /// A file.
    File(&'static Entry),
    /// A directory, as its path with a trailing slash (empty for the root).
    Directory(Text),
}

static ROOT: Once<RootImage> = Once::new();

/// Makes `archive` the root image; only the first call has an effect. Returns the number of files
/// in it.
///
/// # Panics
/// Without memory for the list of files, which can happen only at boot.
pub fn set_root(archive: &'static [u8]) -> usize {
    let root = ROOT.call_once(|| match RootImage::new(archive) {
        Ok(root) => root,
        Err(OutOfMemory) => panic!("no memory for the list of files"),
    });
    root.entries.len()
}

/// The root image; empty if none was found.
pub fn root() -> &'static RootImage {
    ROOT.call_once(RootImage::default)
}

impl RootImage {
    fn new(archive: &'static [u8]) -> Result<Self, OutOfMemory> {
        let Ok(archive) = TarArchiveRef::new(archive) else { return Ok(Self::default()) };
        let mut entries: List<Entry> = List::new();
        for entry in archive.entries() {
            let name = entry.filename();
            let Ok(name) = name.as_str() else { continue };
            let path = normalize(name)?;
            // Of two files with the same name the last one counts, as when unpacking the archive.
            match entries.binary_search_by(|other| (*other.path).cmp(&path)) {
                Ok(index) => entries[index].data = entry.data(),
                Err(index) => entries.try_insert(index, Entry { path, data: entry.data() })?,
            }
        }
        Ok(Self { entries })
    }

    /// Finds the file or directory at `path`; relative paths start at the root.
    ///
    /// # Errors
    /// `ENOENT`, `ENOMEM`.
    pub fn look_up(&'static self, path: &str) -> Result<Node, Errno> {
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
