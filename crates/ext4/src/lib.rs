#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod ahead;
mod allocate;
mod block;
mod bytes;
mod change;
mod checksum;
mod device;
mod directory;
mod error;
mod extent;
mod features;
mod inode;
mod journal;
mod operations;
mod readers;
mod shared;
mod state;
mod superblock;

use alloc::vec;

use cops_executor::sync::Mutex;

pub use crate::ahead::ReadAhead;
pub use crate::device::{BlockDevice, DeviceError};
pub use crate::error::{Error, Result};
pub use crate::inode::{Kind, ROOT, Time};
pub use crate::operations::{Attributes, Entry, New, SetAttributes, Statistics};

use crate::readers::Readers;
use crate::shared::Core;
use crate::state::{Limits, State};
use crate::superblock::{Layout, descriptor};

/// The fewest blocks that a cache may have.
pub const SMALLEST_CACHE: usize = 1024;

/// An open file system. All operations take `&self` and may run at the same time.
pub struct Ext4<D> {
    core: Core<D>,
}

impl<D: BlockDevice> Ext4<D> {
    /// Opens the file system of a disk: replays the journal, and finishes deletions that a crash
    /// interrupted. One of a file of block lists stays for Linux or `e2fsck`. `cache` is the number
    /// of blocks that are kept in memory, at least [`SMALLEST_CACHE`].
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] with the name of a feature, [`Error::Corrupt`], [`Error::Device`].
    pub async fn open(device: D, cache: usize, now: Time) -> Result<Ext4<D>> {
        let limits = limits(cache, u32::MAX);
        let mut bytes = vec![0; superblock::SIZE];
        device.read(superblock::POSITION, &mut bytes).await?;
        let layout = with_places(&device, Layout::read(&bytes, device.size())?).await?;
        let core = Core {
            device,
            layout,
            changes: Mutex::new(()),
            readers: Readers::new(),
            state: Mutex::new(State::new(limits)),
            journal: Mutex::new(journal::Journal::absent()),
        };
        let journal = journal::open(&core.view().await).await?;
        let limits = self::limits(cache, journal.capacity());
        // The replay may have changed everything that was read before it.
        let Core { device, .. } = core;
        let mut bytes = vec![0; superblock::SIZE];
        device.read(superblock::POSITION, &mut bytes).await?;
        let mut layout = with_places(&device, Layout::read(&bytes, device.size())?).await?;
        layout.add_system_blocks(journal.blocks())?;
        if superblock::has_errors(&bytes) {
            return Err(Error::Corrupt("errors that an earlier mount recorded"));
        }
        superblock::set_recover(&mut bytes, true);
        superblock::set_mounted(&mut bytes, u32::try_from(now.seconds).unwrap_or(0));
        superblock::seal(&mut bytes, &layout.features);
        device.write(superblock::POSITION, &bytes).await?;
        device.flush().await?;
        let file_system = Ext4 {
            core: Core {
                device,
                layout,
                changes: Mutex::new(()),
                readers: Readers::new(),
                state: Mutex::new(State::new(limits)),
                journal: Mutex::new(journal),
            },
        };
        file_system.check_descriptors().await?;
        file_system.finish_orphans(now).await?;
        Ok(file_system)
    }

    /// Fails if a group's descriptor does not have the right checksum.
    async fn check_descriptors(&self) -> Result<()> {
        let view = self.core.view().await;
        for group in 0..self.core.layout.groups() {
            let bytes = allocate::descriptor_of(&view, group).await?;
            if !descriptor::is_sealed(&bytes, group, &self.core.layout) {
                return Err(Error::Corrupt("checksum of a group descriptor"));
            }
        }
        Ok(())
    }

    /// Makes everything durable that was changed before the call.
    ///
    /// # Errors
    ///
    /// [`Error::Device`]: nothing is lost, and the next call tries again.
    pub async fn sync(&self) -> Result<()> {
        journal::commit(&self.core).await
    }

    /// Makes all changes of a file durable. As ext4 has one journal, this is [`sync`](Ext4::sync).
    ///
    /// # Errors
    ///
    /// [`Error::Stale`] if the number names no file; [`Error::Device`].
    pub async fn sync_file(&self, inode: u32) -> Result<()> {
        self.attributes(inode).await?;
        self.sync().await
    }

    /// Commits, and writes all that is in the journal to its place. The longer the last one is ago,
    /// the more the next [`open`](Ext4::open) has to replay after a crash. Then continues deletions
    /// and truncations that an error or a dropped future has interrupted, a bounded part of them,
    /// and only as long as no other operation changes something.
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    pub async fn checkpoint(&self) -> Result<()> {
        journal::commit(&self.core).await?;
        journal::checkpoint(&self.core).await?;
        // What was changed before the call is durable: it does not wait for these.
        self.continue_orphans(false).await;
        Ok(())
    }

    /// Ends the work with the disk, after which it needs no replay. Returns the device. A file
    /// system that is dropped without this is like one after a crash.
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    pub async fn close(self) -> Result<D> {
        let core = self.core;
        journal::commit(&core).await?;
        journal::close(&core).await?;
        let mut bytes = vec![0; superblock::SIZE];
        core.device.read(superblock::POSITION, &mut bytes).await?;
        superblock::set_recover(&mut bytes, false);
        superblock::seal(&mut bytes, &core.layout.features);
        core.device.write(superblock::POSITION, &bytes).await?;
        core.device.flush().await?;
        Ok(core.device)
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> usize {
        self.core.layout.block_size
    }

    /// Blocks that are in memory now; their number has the bound that the crate's documentation
    /// states.
    pub async fn blocks_in_memory(&self) -> usize {
        self.core.state.lock().await.blocks_in_memory()
    }
}

/// How much may be in memory: `cache` blocks, of which changed ones are a part.
fn limits(cache: usize, journal: u32) -> Limits {
    let entries = cache.max(SMALLEST_CACHE);
    let quarter = entries / 4;
    Limits {
        entries,
        metadata: quarter.min(journal as usize / 4),
        data: quarter,
        committed: quarter,
    }
}

/// Reads the places of all groups' structures.
async fn with_places<D: BlockDevice>(device: &D, mut layout: Layout) -> Result<Layout> {
    let mut bytes = vec![0; layout.block_size];
    let mut loaded = None;
    for group in 0..layout.groups() {
        let (block, at) = layout.descriptor_place(group);
        if loaded != Some(block) {
            device.read(block * layout.block_size as u64, &mut bytes).await?;
            loaded = Some(block);
        }
        let place = descriptor::place(bytes.get(at..at + layout.descriptor_size).unwrap_or(&[]));
        layout.places.push(place);
    }
    layout.find_system_blocks()?;
    Ok(layout)
}
