//! Attributes of inodes and of the file system.

use crate::block::Check;
use crate::device::BlockDevice;
use crate::error::{Error, Result};
use crate::inode::{ACCESSED, CHANGED, CREATED, Inode, Kind, MODIFIED, Time};
use crate::shared::Source;
use crate::superblock;
use crate::{Ext4, Layout};

/// What an inode says about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The number of the inode.
    pub inode: u32,
    /// Changes when the number is used for another file.
    pub generation: u32,
    /// What it is.
    pub kind: Kind,
    /// Kind and permissions, as Linux's `st_mode`.
    pub mode: u16,
    /// The owner.
    pub user: u32,
    /// The owning group.
    pub group: u32,
    /// Names of the inode.
    pub links: u32,
    /// Bytes.
    pub size: u64,
    /// Space on the disk in units of 512 bytes.
    pub sectors: u64,
    /// The last access, as far as a caller stores it: reading does not.
    pub accessed: Time,
    /// The last change of the content.
    pub modified: Time,
    /// The last change of the inode.
    pub changed: Time,
    /// When it was made.
    pub created: Time,
}

/// Which attributes [`Ext4::set_attributes`] changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// The lower twelve bits of the mode.
    pub permissions: Option<u16>,
    /// Owner and group.
    pub owner: Option<(u32, u32)>,
    /// The last access.
    pub accessed: Option<Time>,
    /// The last change of the content.
    pub modified: Option<Time>,
}

/// Sizes and free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks of the disk.
    pub blocks: u64,
    /// Free ones.
    pub free_blocks: u64,
    /// Free ones without those that Linux reserves for root. This library lets every caller have
    /// them.
    pub available_blocks: u64,
    /// Inodes of the disk.
    pub inodes: u32,
    /// Free ones.
    pub free_inodes: u32,
    /// Bytes of the longest name.
    pub longest_name: u32,
}

impl Attributes {
    pub(crate) fn of(inode: &Inode, layout: &Layout) -> Result<Attributes> {
        let (user, group) = inode.owner();
        Ok(Attributes {
            inode: inode.number,
            generation: inode.generation(),
            kind: inode.kind()?,
            mode: inode.mode(),
            user,
            group,
            links: u32::from(inode.links()),
            size: inode.size(),
            sectors: inode.sectors(layout),
            accessed: inode.time(ACCESSED),
            modified: inode.time(MODIFIED),
            changed: inode.time(CHANGED),
            created: inode.time(CREATED),
        })
    }
}

impl<D: BlockDevice> Ext4<D> {
    /// The attributes of an inode.
    ///
    /// # Errors
    ///
    /// [`Error::Stale`] if the number names no file.
    pub async fn attributes(&self, inode: u32) -> Result<Attributes> {
        let view = self.core.view().await;
        Attributes::of(&Inode::load(&view, inode).await?, &self.core.layout)
    }

    /// Changes attributes of an inode; `now` becomes the time of the change.
    ///
    /// # Errors
    ///
    /// [`Error::Stale`] if the number names no file, [`Error::Invalid`] if permissions have bits
    /// beyond the lower twelve, [`Error::NotPermitted`] if the inode is immutable, or if it is
    /// append-only and not only its times become `now`.
    pub async fn set_attributes(
        &self,
        inode: u32,
        set: SetAttributes,
        now: Time,
    ) -> Result<Attributes> {
        let mut change = self.change().await?;
        let mut inode = Inode::load(&change, inode).await?;
        let touches = set.accessed.into_iter().chain(set.modified).all(|time| time == now);
        inode.must_be_changeable(set.permissions.is_none() && set.owner.is_none() && touches)?;
        if let Some(permissions) = set.permissions {
            if permissions & 0xF000 != 0 {
                return Err(Error::Invalid);
            }
            inode.set_mode(inode.mode() & 0xF000 | permissions);
        }
        if let Some((user, group)) = set.owner {
            inode.set_owner(user, group);
        }
        for (field, time) in [(ACCESSED, set.accessed), (MODIFIED, set.modified)] {
            if let Some(time) = time {
                inode.set_time(field, time);
            }
        }
        inode.set_time(CHANGED, now);
        inode.store(&mut change).await?;
        let attributes = Attributes::of(&inode, &self.core.layout)?;
        change.publish().await?;
        Ok(attributes)
    }

    /// Sizes and free space of the file system.
    ///
    /// # Errors
    ///
    /// [`Error::Device`].
    pub async fn statistics(&self) -> Result<Statistics> {
        let view = self.core.view().await;
        let layout = &self.core.layout;
        let (block, at) = layout.superblock_place();
        let block = view.block(block, Check::None).await?;
        let bytes = block.get(at..).unwrap_or(&[]);
        let free_blocks = superblock::free_blocks(bytes).min(layout.blocks);
        Ok(Statistics {
            block_size: layout.block_size as u32,
            blocks: layout.blocks,
            free_blocks,
            available_blocks: free_blocks.saturating_sub(layout.reserved_blocks),
            inodes: layout.inodes,
            free_inodes: superblock::free_inodes(bytes),
            longest_name: crate::directory::LONGEST_NAME as u32,
        })
    }
}
