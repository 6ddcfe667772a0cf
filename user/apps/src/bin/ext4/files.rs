//! The operations of a served file system, by those of the ext4 library: nodes are inodes.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use cops::abi::Errno;
use cops::abi::file::{Status, Time, Usage};
use cops::fs::server::{Change, Entries, FileSystem, PLACES_MAX, Result, Written};
use cops::sync::Mutex;
use cops::task::{self, Priority};
use cops_ext4::{Attributes, Error, Ext4, Kind, New, ReadAhead, SetAttributes};

use super::disk::Disk;
use super::now;

/// The type of the file system, as Linux numbers it.
const EXT4: u64 = 0xef53;
/// Size of the blocks that [`Usage`] counts.
const BLOCK_BYTES: u64 = 4096;
/// Entries of a directory that are read at a time.
const ENTRIES: usize = 32;

/// A file system.
pub struct Files {
    ext4: Arc<Ext4<Disk>>,
    /// The recent reads of files that are in use.
    reads: Mutex<BTreeMap<u32, ReadAhead>>,
}

/// The error for the caller.
fn errno(error: Error) -> Errno {
    match error {
        Error::Stale => Errno::ENOENT,
        other => Errno::from_number(other.errno()).unwrap_or(Errno::EIO),
    }
}

/// The number of an inode.
fn inode(node: u64) -> Result<u32> {
    u32::try_from(node).map_err(|_| Errno::ENOENT)
}

fn time_of(time: cops_ext4::Time) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn time_for(time: Time) -> cops_ext4::Time {
    cops_ext4::Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn status_of(attributes: &Attributes) -> Status {
    Status {
        number: attributes.inode.into(),
        mode: attributes.mode.into(),
        links: attributes.links,
        user: attributes.user,
        group: attributes.group,
        size: attributes.size,
        blocks: attributes.sectors,
        accessed: time_of(attributes.accessed),
        modified: time_of(attributes.modified),
        changed: time_of(attributes.changed),
        ..Status::default()
    }
}

/// A new inode of the only user, which is in use.
fn new(permissions: u32) -> New {
    New { permissions: (permissions & 0o7777) as u16, user: 0, group: 0, now: now(), hold: true }
}

/// The status of a node that is named, and in use.
fn named(found: cops_ext4::Result<Attributes>) -> Result<Status> {
    found.map(|attributes| status_of(&attributes)).map_err(errno)
}

impl Files {
    /// The file system that `ext4` has opened.
    pub fn new(ext4: Arc<Ext4<Disk>>) -> Self {
        Self { ext4, reads: Mutex::new(BTreeMap::new()) }
    }

    /// Notes that `count` bytes of a file were asked for at `offset`, and reads ahead if they
    /// continue what was read before. What is read ahead is less urgent than anything else, for
    /// nothing waits for it yet.
    async fn read_ahead(&self, inode: u32, offset: u64, count: usize) {
        let range = self.reads.lock().await.entry(inode).or_default().note(offset, count);
        let Some(range) = range else { return };
        let ext4 = self.ext4.clone();
        let ahead = async move {
            // A read of these bytes finds the error again.
            let _ = ext4.prefetch(inode, range.start, range.end - range.start).await;
        };
        // Without memory for the coroutine, nothing is read ahead.
        let _ = task::try_spawn(ahead, Priority::LEAST_URGENT);
    }
}

impl FileSystem for Files {
    async fn look_up(&self, directory: u64, name: &str) -> Result<Status> {
        let found = self.ext4.lookup_and_retain(inode(directory)?, name.as_bytes()).await;
        named(found)
    }

    async fn status(&self, node: u64) -> Result<Status> {
        Ok(status_of(&self.ext4.attributes(inode(node)?).await.map_err(errno)?))
    }

    async fn solid(&self, node: u64) -> u64 {
        let Ok(node) = inode(node) else { return 0 };
        self.ext4.solid(node).await.unwrap_or(0)
    }

    async fn read(&self, node: u64, offset: u64, into: &mut [u8]) -> Result<usize> {
        let node = inode(node)?;
        self.read_ahead(node, offset, into.len()).await;
        self.ext4.read(node, offset, into).await.map_err(errno)
    }

    async fn places(&self, node: u64, offset: u64, length: usize) -> Option<Vec<(u64, u64)>> {
        // An error shows when it is read.
        self.ext4.places(inode(node).ok()?, offset, length, PLACES_MAX).await.ok()?
    }

    async fn list(&self, directory: u64, after: u64, entries: &mut Entries) -> Result<()> {
        let (directory, mut after) = (inode(directory)?, after);
        loop {
            let found = self.ext4.read_directory(directory, after, ENTRIES).await.map_err(errno)?;
            let Some(last) = found.last() else { return Ok(()) };
            after = last.next;
            for entry in found {
                // Names that are not text cannot be in a path.
                let Ok(name) = core::str::from_utf8(&entry.name) else { continue };
                let kind = entry.kind.map_or(0, |kind| u32::from(kind.mode()));
                let is_listed = name != "." && name != "..";
                if is_listed && !entries.push(entry.next, entry.inode.into(), kind, name) {
                    return Ok(());
                }
            }
        }
    }

    async fn write(&self, node: u64, offset: Option<u64>, bytes: &[u8]) -> Result<Written> {
        let node = inode(node)?;
        let (start, count) = match offset {
            Some(offset) => {
                let count = self.ext4.write(node, offset, bytes, now()).await.map_err(errno)?;
                (offset, count)
            }
            None => self.ext4.append(node, bytes, now()).await.map_err(errno)?,
        };
        Ok(Written { count, end: start + count as u64 })
    }

    async fn write_kept(
        &self,
        node: u64,
        offset: u64,
        bytes: &[u8],
        time: Time,
    ) -> Result<Written> {
        let written = self.ext4.write(inode(node)?, offset, bytes, time_for(time)).await;
        let count = written.map_err(errno)?;
        Ok(Written { count, end: offset + count as u64 })
    }

    async fn change(&self, node: u64, change: Change) -> Result<()> {
        let node = inode(node)?;
        if let Some(length) = change.length {
            self.ext4.truncate(node, length, now()).await.map_err(errno)?;
        }
        let set = SetAttributes {
            permissions: change.permissions.map(|bits| (bits & 0o7777) as u16),
            owner: None,
            accessed: change.accessed.map(time_for),
            modified: change.modified.map(time_for),
        };
        if set != SetAttributes::default() {
            self.ext4.set_attributes(node, set, now()).await.map_err(errno)?;
        }
        Ok(())
    }

    async fn create(&self, directory: u64, name: &str, permissions: u32) -> Result<Status> {
        let (directory, new) = (inode(directory)?, new(permissions));
        let made = self.ext4.create(directory, name.as_bytes(), Kind::Regular, new).await;
        named(made)
    }

    async fn make_directory(&self, directory: u64, name: &str, permissions: u32) -> Result<Status> {
        let (directory, new) = (inode(directory)?, new(permissions));
        let made = self.ext4.create_directory(directory, name.as_bytes(), new).await;
        named(made)
    }

    async fn make_link(&self, directory: u64, name: &str, target: &str) -> Result<Status> {
        let (directory, new) = (inode(directory)?, new(0o777));
        let target = target.as_bytes();
        let made = self.ext4.create_link(directory, name.as_bytes(), target, new).await;
        named(made)
    }

    async fn read_link(&self, node: u64) -> Result<String> {
        let target = self.ext4.read_link(inode(node)?).await.map_err(errno)?;
        String::from_utf8(target).map_err(|_| Errno::EIO)
    }

    async fn link(&self, node: u64, directory: u64, name: &str) -> Result<()> {
        let (node, directory) = (inode(node)?, inode(directory)?);
        let linked = self.ext4.link(node, directory, name.as_bytes(), now()).await;
        linked.map(drop).map_err(errno)
    }

    async fn unlink(&self, directory: u64, name: &str) -> Result<()> {
        self.ext4.unlink(inode(directory)?, name.as_bytes(), now()).await.map_err(errno)
    }

    async fn remove_directory(&self, directory: u64, name: &str) -> Result<()> {
        let directory = inode(directory)?;
        self.ext4.remove_directory(directory, name.as_bytes(), now()).await.map_err(errno)
    }

    async fn rename(&self, from: (u64, &str), to: (u64, &str), no_replace: bool) -> Result<()> {
        let from = (inode(from.0)?, from.1.as_bytes());
        let to = (inode(to.0)?, to.1.as_bytes());
        self.ext4.rename(from, to, !no_replace, now()).await.map_err(errno)
    }

    async fn synchronise(&self, node: u64) -> Result<()> {
        self.ext4.sync_file(inode(node)?).await.map_err(errno)
    }

    async fn synchronise_all(&self) -> Result<()> {
        self.ext4.sync().await.map_err(errno)
    }

    async fn usage(&self) -> Result<Usage> {
        let found = self.ext4.statistics().await.map_err(errno)?;
        let blocks = |count: u64| count * u64::from(found.block_size) / BLOCK_BYTES;
        let (blocks, free_blocks) = (blocks(found.blocks), blocks(found.free_blocks));
        Ok(Usage { kind: EXT4, blocks, free_blocks, ..Usage::default() })
    }

    async fn forget(&self, node: u64, count: u64) {
        let Ok(node) = inode(node) else { return };
        self.reads.lock().await.remove(&node);
        for _ in 0..count {
            // What could not be deleted is deleted by a later checkpoint.
            let _ = self.ext4.release(node, now()).await;
        }
    }
}
