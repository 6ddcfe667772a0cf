//! Names: look up, create, link, unlink, read a directory.

use alloc::vec::Vec;

use super::{Attributes, entries, file, orphans, with_space};
use crate::Ext4;
use crate::allocate::allocate_inode;
use crate::device::BlockDevice;
use crate::directory::{self, check_name};
use crate::error::{Error, Result};
use crate::extent;
use crate::inode::{ACCESSED, CHANGED, CREATED, Inode, Kind, MODIFIED, Time};
use crate::shared::Source;

/// A new inode: permissions (the lower twelve bits), owner, and the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct New {
    /// The lower twelve bits of the mode.
    pub permissions: u16,
    /// The owner.
    pub user: u32,
    /// The owning group.
    pub group: u32,
    /// All four times of the inode, and the times of its directory.
    pub now: Time,
    /// Whether the caller holds the new inode, as after [`Ext4::retain`].
    pub hold: bool,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode.
    pub inode: u32,
    /// What it is; absent if the entry does not say it.
    pub kind: Option<Kind>,
    /// The name.
    pub name: Vec<u8>,
    /// Where [`Ext4::read_directory`] continues behind this entry.
    pub next: u64,
}

/// What a new inode begins with.
enum Content<'a> {
    None,
    Directory,
    Target(&'a [u8]),
}

impl<D: BlockDevice> Ext4<D> {
    /// The file that has a name in a directory; also `.` and `..`.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::NameTooLong`].
    pub async fn lookup(&self, directory: u32, name: &[u8]) -> Result<Attributes> {
        self.find(directory, name, false).await
    }

    /// As [`lookup`](Ext4::lookup), and the caller holds the inode, as after
    /// [`retain`](Ext4::retain). It cannot be deleted in between.
    ///
    /// # Errors
    ///
    /// As `lookup`; then nothing is held.
    pub async fn lookup_and_retain(&self, directory: u32, name: &[u8]) -> Result<Attributes> {
        self.find(directory, name, true).await
    }

    async fn find(&self, directory: u32, name: &[u8], hold: bool) -> Result<Attributes> {
        if name.len() > directory::LONGEST_NAME {
            return Err(Error::NameTooLong);
        }
        let view = self.core.view().await;
        let directory = Inode::load(&view, directory).await?;
        let found = entries::find(&view, &directory, name).await?;
        let inode = match Inode::load(&view, found.inode).await {
            Err(Error::Stale) => return Err(Error::Corrupt("a name of a deleted inode")),
            other => other?,
        };
        let attributes = Attributes::of(&inode, &self.core.layout)?;
        if hold {
            // The view still exists, so no deletion has been published since the search.
            self.retain(attributes.inode).await;
        }
        Ok(attributes)
    }

    /// Names of a directory from `position` on, at most `most`. 0 is the beginning; an entry says
    /// where to go on. Positions stay valid while names come and go: a name that is there all the
    /// time is returned exactly once.
    ///
    /// # Errors
    ///
    /// [`Error::NotDirectory`].
    pub async fn read_directory(
        &self,
        directory: u32,
        position: u64,
        most: usize,
    ) -> Result<Vec<Entry>> {
        let view = self.core.view().await;
        let directory = Inode::load(&view, directory).await?;
        directory.must_be_directory()?;
        let layout = &self.core.layout;
        let size = layout.block_size as u64;
        let checksums = layout.features.checksums() && !directory.has_index();
        let blocks = entries::blocks_of(&view, &directory)?;
        let mut found = Vec::new();
        let mut index = u32::try_from(position / size).unwrap_or(u32::MAX);
        while index < blocks && found.len() < most {
            let some = entries::some_blocks(&view, &directory, index).await?;
            for (_, block) in &some {
                let start = u64::from(index) * size;
                for entry in directory::entries(block, checksums) {
                    let at = start + entry.at as u64;
                    if at >= position && found.len() < most {
                        found.push(Entry {
                            inode: entry.inode,
                            kind: Kind::of_entry(entry.kind),
                            name: entry.name.to_vec(),
                            next: at + 1,
                        });
                    }
                }
                index += 1;
            }
        }
        Ok(found)
    }

    /// Makes an empty file, or a named pipe or socket.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`], [`Error::NoSpace`], [`Error::NameTooLong`], [`Error::Invalid`] for a name
    /// that is not possible or another kind, [`Error::NotPermitted`] in an immutable directory.
    pub async fn create(
        &self,
        directory: u32,
        name: &[u8],
        kind: Kind,
        new: New,
    ) -> Result<Attributes> {
        if !matches!(kind, Kind::Regular | Kind::Pipe | Kind::Socket) {
            return Err(Error::Invalid);
        }
        with_space!(self, self.make(directory, name, kind, new, Content::None))
    }

    /// Makes an empty directory.
    ///
    /// # Errors
    ///
    /// As [`create`](Ext4::create), and [`Error::TooManyLinks`].
    pub async fn create_directory(
        &self,
        directory: u32,
        name: &[u8],
        new: New,
    ) -> Result<Attributes> {
        let kind = Kind::Directory;
        with_space!(self, self.make(directory, name, kind, new, Content::Directory))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    ///
    /// As [`create`](Ext4::create); [`Error::NameTooLong`] if the target does not fit into a block,
    /// [`Error::NotFound`] if it is empty.
    pub async fn create_link(
        &self,
        directory: u32,
        name: &[u8],
        target: &[u8],
        new: New,
    ) -> Result<Attributes> {
        if target.len() >= self.core.layout.block_size {
            return Err(Error::NameTooLong);
        }
        if target.is_empty() {
            return Err(Error::NotFound);
        }
        with_space!(self, self.make(directory, name, Kind::Symlink, new, Content::Target(target)))
    }

    async fn make(
        &self,
        directory: u32,
        name: &[u8],
        kind: Kind,
        new: New,
        content: Content<'_>,
    ) -> Result<Attributes> {
        check_name(name)?;
        if new.permissions & 0xF000 != 0 {
            return Err(Error::Invalid);
        }
        let mut change = self.change().await?;
        let mut parent = Inode::load(&change, directory).await?;
        must_be_free(&change, &parent, name).await?;
        let mut inode = allocate_inode(&mut change, parent.number, kind).await?;
        inode.set_mode(kind.mode() | new.permissions);
        inode.set_owner(new.user, new.group);
        inode.set_links(1);
        for field in [ACCESSED, CHANGED, MODIFIED, CREATED] {
            inode.set_time(field, new.now);
        }
        match content {
            Content::None if kind == Kind::Regular => extent::initialise(&mut inode),
            Content::None => {}
            Content::Target(target) => file::set_target(&mut change, &mut inode, target).await?,
            Content::Directory => {
                extent::initialise(&mut inode);
                inode.set_links(2);
                entries::initialise(&mut change, &mut inode, parent.number).await?;
                parent.count_link(&self.core.layout, true)?;
            }
        }
        inode.store(&mut change).await?;
        entries::add(&mut change, &mut parent, inode.number, kind, name).await?;
        touch(&mut parent, new.now);
        parent.store(&mut change).await?;
        let attributes = Attributes::of(&inode, &self.core.layout)?;
        change.holds = new.hold.then_some(inode.number);
        change.publish().await?;
        Ok(attributes)
    }

    /// Gives an inode one more name.
    ///
    /// # Errors
    ///
    /// [`Error::NotPermitted`] for a directory, and if the inode is immutable or append-only;
    /// [`Error::TooManyLinks`], and those of [`create`](Ext4::create).
    pub async fn link(
        &self,
        inode: u32,
        directory: u32,
        name: &[u8],
        now: Time,
    ) -> Result<Attributes> {
        with_space!(self, self.link_once(inode, directory, name, now))
    }

    async fn link_once(
        &self,
        inode: u32,
        directory: u32,
        name: &[u8],
        now: Time,
    ) -> Result<Attributes> {
        check_name(name)?;
        let mut change = self.change().await?;
        let mut parent = Inode::load(&change, directory).await?;
        let mut inode = Inode::load(&change, inode).await?;
        if inode.is_directory() {
            return Err(Error::NotPermitted);
        }
        if inode.links() == 0 {
            return Err(Error::NotFound);
        }
        must_be_free(&change, &parent, name).await?;
        inode.must_be_changeable(false)?;
        inode.count_link(&self.core.layout, true)?;
        inode.set_time(CHANGED, now);
        inode.store(&mut change).await?;
        let kind = inode.kind()?;
        entries::add(&mut change, &mut parent, inode.number, kind, name).await?;
        touch(&mut parent, now);
        parent.store(&mut change).await?;
        let attributes = Attributes::of(&inode, &self.core.layout)?;
        change.publish().await?;
        Ok(attributes)
    }

    /// Removes a name of what is no directory. With the last name the file is deleted, unless it is
    /// [held](Ext4::retain): then with the last reference.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`], [`Error::IsDirectory`]; [`Error::NotPermitted`] if the inode or the
    /// directory is immutable or append-only; [`Error::Unsupported`] for the last name of a file of
    /// block lists.
    pub async fn unlink(&self, directory: u32, name: &[u8], now: Time) -> Result<()> {
        self.remove_name(directory, name, now, false).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::NotEmpty`], [`Error::Invalid`] for
    /// `.`; [`Error::NotPermitted`] and [`Error::Unsupported`] as [`unlink`](Ext4::unlink).
    pub async fn remove_directory(&self, directory: u32, name: &[u8], now: Time) -> Result<()> {
        self.remove_name(directory, name, now, true).await
    }

    async fn remove_name(
        &self,
        directory: u32,
        name: &[u8],
        now: Time,
        is_directory: bool,
    ) -> Result<()> {
        match name {
            b"." => return Err(Error::Invalid),
            b".." => return Err(Error::NotEmpty),
            _ => check_name(name)?,
        }
        let mut change = self.change().await?;
        let mut parent = Inode::load(&change, directory).await?;
        let found = entries::find(&change, &parent, name).await?;
        let mut inode = Inode::load(&change, found.inode).await?;
        must_be_removable(&parent, &inode)?;
        match (inode.is_directory(), is_directory) {
            (true, false) => return Err(Error::IsDirectory),
            (false, true) => return Err(Error::NotDirectory),
            _ => {}
        }
        entries::remove(&mut change, &mut parent, found, name).await?;
        drop_name(&mut change, &mut parent, &mut inode, now).await?;
        touch(&mut parent, now);
        parent.store(&mut change).await?;
        let number = inode.number;
        let unnamed = inode.links() == 0;
        change.publish().await?;
        if unnamed {
            self.delete_unnamed(number, now).await;
        }
        Ok(())
    }
}

/// Counts one name less of an inode, and stores it. Without a name it is an orphan. A directory
/// must be empty, and its parent has one link less. The last name of an inode of block lists cannot
/// be dropped.
pub(super) async fn drop_name<D: BlockDevice>(
    change: &mut crate::change::Change<'_, D>,
    parent: &mut Inode,
    inode: &mut Inode,
    now: Time,
) -> Result<()> {
    let core = change.core();
    if inode.is_directory() {
        if inode.number == parent.number || inode.number == crate::ROOT {
            return Err(Error::Corrupt("a directory in itself"));
        }
        if !entries::is_empty(change, inode).await? {
            return Err(Error::NotEmpty);
        }
        inode.set_links(0);
        parent.count_link(&core.layout, false)?;
    } else {
        inode.count_link(&core.layout, false)?;
    }
    inode.set_time(CHANGED, now);
    if inode.links() == 0 {
        // Fails if the blocks could not be freed: then the name stays.
        inode.has_blocks()?;
        orphans::add(change, inode).await?;
    }
    inode.store(change).await
}

/// Fails if a directory has the name already, has been removed, or is immutable.
pub(super) async fn must_be_free<S: Source>(
    source: &S,
    directory: &Inode,
    name: &[u8],
) -> Result<()> {
    directory.must_be_directory()?;
    if directory.links() == 0 {
        return Err(Error::NotFound);
    }
    match entries::find(source, directory, name).await {
        Ok(_) => Err(Error::Exists),
        Err(Error::NotFound) => directory.must_be_changeable(true),
        Err(error) => Err(error),
    }
}

/// Fails if a directory must not lose a name of an inode: one of both is immutable or append-only.
pub(super) fn must_be_removable(directory: &Inode, inode: &Inode) -> Result<()> {
    directory.must_be_changeable(false)?;
    inode.must_be_changeable(false)
}

/// The content of a directory has changed.
pub(super) fn touch(directory: &mut Inode, now: Time) {
    directory.set_time(MODIFIED, now);
    directory.set_time(CHANGED, now);
}
