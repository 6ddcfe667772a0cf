//! Renaming: one change, so that a crash leaves the old name or the new one.

use super::entries::{self, Found};
use super::names::{drop_name, must_be_removable, touch};
use super::with_space;
use crate::Ext4;
use crate::change::Change;
use crate::device::BlockDevice;
use crate::directory::check_name;
use crate::error::{Error, Result};
use crate::inode::{CHANGED, Inode, Kind, Time};

impl<D: BlockDevice> Ext4<D> {
    /// Renames; replaces what has the new name, if `replace` allows it.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`]; [`Error::Exists`] without `replace`; [`Error::IsDirectory`] or
    /// [`Error::NotDirectory`] if only one of both is a directory; [`Error::NotEmpty`];
    /// [`Error::Invalid`] if a directory would become its own descendant; [`Error::NoSpace`];
    /// [`Error::NotPermitted`] if an inode or a directory that is concerned is immutable or
    /// append-only, except that an append-only directory may get a name;
    /// [`Error::Unsupported`] if a file of block lists would lose its last name.
    pub async fn rename(
        &self,
        from: (u32, &[u8]),
        to: (u32, &[u8]),
        replace: bool,
        now: Time,
    ) -> Result<()> {
        check_name(from.1)?;
        check_name(to.1)?;
        let unnamed = with_space!(self, self.rename_once(from, to, replace, now))?;
        if let Some(inode) = unnamed {
            self.delete_unnamed(inode, now).await;
        }
        Ok(())
    }

    /// Returns the inode that lost its last name.
    async fn rename_once(
        &self,
        (from_directory, from_name): (u32, &[u8]),
        (to_directory, to_name): (u32, &[u8]),
        replace: bool,
        now: Time,
    ) -> Result<Option<u32>> {
        let mut change = self.change().await?;
        let layout = &self.core.layout;
        let mut from = Inode::load(&change, from_directory).await?;
        let found = entries::find(&change, &from, from_name).await?;
        let mut inode = Inode::load(&change, found.inode).await?;
        let kind = inode.kind()?;
        let same = from_directory == to_directory;
        let mut to = Inode::load(&change, to_directory).await?;
        to.must_be_directory()?;
        if to.links() == 0 {
            return Err(Error::NotFound);
        }
        if kind == Kind::Directory && !same {
            must_not_be_above(&change, inode.number, &to).await?;
        }
        let target = match entries::find(&change, &to, to_name).await {
            Ok(_) if !replace => return Err(Error::Exists),
            Ok(target) if target.inode == inode.number => return Ok(None),
            Ok(target) => Some(target),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        must_be_removable(&from, &inode)?;
        to.must_be_changeable(true)?;
        // From here on `to` stands for both directories if they are the same.
        let mut unnamed = None;
        match target {
            Some(target) => {
                let mut old = Inode::load(&change, target.inode).await?;
                must_be_removable(&to, &old)?;
                match (old.is_directory(), kind == Kind::Directory) {
                    (true, false) => return Err(Error::IsDirectory),
                    (false, true) => return Err(Error::NotDirectory),
                    _ => {}
                }
                entries::replace(&mut change, &mut to, target, to_name, inode.number, kind).await?;
                drop_name(&mut change, &mut to, &mut old, now).await?;
                unnamed = (old.links() == 0).then_some(old.number);
            }
            None => entries::add(&mut change, &mut to, inode.number, kind, to_name).await?,
        }
        let source = if same { &mut to } else { &mut from };
        // An index may have been removed from the directory, but no entry has moved.
        entries::remove(&mut change, source, found, from_name).await?;
        if kind == Kind::Directory && !same {
            let parent = entries::find(&change, &inode, b"..").await?;
            let above = to.number;
            entries::replace(&mut change, &mut inode, parent, b"..", above, kind).await?;
            from.count_link(layout, false)?;
            to.count_link(layout, true)?;
        }
        inode.set_time(CHANGED, now);
        inode.store(&mut change).await?;
        touch(&mut to, now);
        to.store(&mut change).await?;
        if !same {
            touch(&mut from, now);
            from.store(&mut change).await?;
        }
        change.publish().await?;
        Ok(unnamed)
    }
}

/// Fails if `inode` is `directory` or above it.
async fn must_not_be_above<D: BlockDevice>(
    change: &Change<'_, D>,
    inode: u32,
    directory: &Inode,
) -> Result<()> {
    let mut at = directory.clone();
    for _ in 0..=change.core().layout.inodes {
        if at.number == inode {
            return Err(Error::Invalid);
        }
        if at.number == crate::ROOT {
            return Ok(());
        }
        let Found { inode: above, .. } = entries::find(change, &at, b"..").await?;
        at = Inode::load(change, above).await?;
    }
    Err(Error::Corrupt("directories in a circle"))
}
