//! File systems in memory: the root image, which is read-only, `/tmp`, and `/dev`.
//!
//! The names of a file system are in a [`Tree`] behind one lock, which is held for one operation on
//! it. Nodes that are not named any more live as long as they are open. Lock order: the tree, then
//! a node's state.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cops_abi::Errno;
use cops_abi::file::{Status, Time, Usage, device_number, mode};
use cops_algorithms::tree::{Listed, ROOT, Removed, Tree};
use cops_fallible::{Text, try_arc};
use spin::{Mutex, Once};

use super::contents::{Contents, sweep};
use super::image::root as root_archive;
use super::node::{Attempt, Change, Device, Entry, New, Node, NodeRef};
use crate::arch;
use crate::disk::{Disk, disk};
use crate::drivers::random;
use crate::mm::frames::FRAME_BYTES;
use crate::mm::quota::{self, Amounts, Charge, Family, Kind};
use crate::mm::{self, PinnedBuffer};
use crate::sched::timer;

/// Memory that is charged for a node, and for a name in addition to its length.
const NODE_BYTES: u64 = 512;
const NAME_BYTES: u64 = 256;

/// The types of file systems, as Linux numbers them.
const TEMPORARY: u64 = 0x0102_1994;
/// Numbers of file systems.
static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// The names: each node, and the charge for each name.
type Names = Tree<Arc<Inode>, Charge>;

/// A file system.
pub struct MemoryFiles {
    number: u64,
    is_read_only: bool,
    names: Once<Mutex<Names>>,
}

/// A node.
pub struct Inode {
    files: Arc<MemoryFiles>,
    number: u64,
    kind: u32,
    state: Mutex<State>,
    body: Body,
    _charge: Charge,
}

#[derive(Clone, Copy)]
struct State {
    permissions: u32,
    accessed: Time,
    modified: Time,
    changed: Time,
}

enum Body {
    Directory,
    /// A file of the root image.
    Image(&'static [u8]),
    /// `None` only while it is dropped.
    File(Mutex<Option<Box<Contents>>>),
    Link(Text),
    Device(Device, u64),
}

impl Body {
    fn kind(&self) -> u32 {
        match self {
            Body::Directory => mode::DIRECTORY,
            Body::Image(_) | Body::File(_) => mode::REGULAR,
            Body::Link(_) => mode::LINK,
            Body::Device(Device::Disk, _) => mode::BLOCK_DEVICE,
            Body::Device(..) => mode::CHARACTER_DEVICE,
        }
    }
}

fn now() -> Time {
    const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;
    let nanoseconds =
        timer::nanoseconds_from_ticks(arch::now_ticks()).saturating_add(timer::epoch_nanoseconds());
    Time {
        seconds: (nanoseconds / NANOSECONDS_PER_SECOND) as i64,
        nanoseconds: (nanoseconds % NANOSECONDS_PER_SECOND) as u32,
    }
}

impl MemoryFiles {
    /// A file system with an empty root.
    fn new(is_read_only: bool, permissions: u32) -> Result<Arc<Self>, Errno> {
        let number = LAST_NUMBER.fetch_add(1, Relaxed) + 1;
        let files = try_arc(Self { number, is_read_only, names: Once::new() })?;
        let root =
            files.inode(ROOT, Body::Directory, permissions, Charge::nothing(Family::ROOT))?;
        let tree = Tree::new(root, [random::next(), random::next()])?;
        files.names.call_once(|| Mutex::new(tree));
        Ok(files)
    }

    fn names(&self) -> Result<&Mutex<Names>, Errno> {
        self.names.get().ok_or(Errno::EIO)
    }

    fn inode(
        self: &Arc<Self>,
        number: u64,
        body: Body,
        permissions: u32,
        charge: Charge,
    ) -> Result<Arc<Inode>, Errno> {
        let time = now();
        let state = State { permissions, accessed: time, modified: time, changed: time };
        Ok(try_arc(Inode {
            files: self.clone(),
            number,
            kind: body.kind(),
            state: Mutex::new(state),
            body,
            _charge: charge,
        })?)
    }

    /// Creates a node in directory `parent`, whatever the file system is for.
    fn add(
        self: &Arc<Self>,
        parent: u64,
        name: &str,
        body: Body,
        permissions: u32,
        payer: Option<Family>,
    ) -> Result<Arc<Inode>, Errno> {
        let (of_name, of_node) = charges(name, payer)?;
        let is_directory = matches!(body, Body::Directory);
        let mut names = self.names()?.lock();
        names.insert(parent, name, is_directory, of_name, |number| {
            self.inode(number, body, permissions, of_node)
        })
    }

    /// The root.
    ///
    /// # Errors
    /// `ENOENT`, which does not happen.
    pub fn root(&self) -> Result<NodeRef, Errno> {
        let names = self.names()?.lock();
        names.look_up(ROOT, ".").map(|root| root.clone() as NodeRef)
    }
}

/// The charges for a name and for its node.
fn charges(name: &str, payer: Option<Family>) -> Result<(Charge, Charge), Errno> {
    let charge = |bytes| match payer {
        Some(payer) => {
            Charge::new(payer, &Amounts::of(Kind::Memory, bytes)).map_err(|_| Errno::ENOSPC)
        }
        None => Ok(Charge::nothing(Family::ROOT)),
    };
    Ok((charge(NAME_BYTES + name.len() as u64)?, charge(NODE_BYTES)?))
}

/// The file system of the root image, with `directories` in its root besides what the image has.
///
/// # Errors
/// `ENOMEM`.
pub fn root_image(directories: &[&str]) -> Result<NodeRef, Errno> {
    let files = MemoryFiles::new(true, 0o555)?;
    let find = |parent: u64, name: &str| {
        let names = files.names()?.lock();
        names.look_up(parent, name).map(|node| node.number)
    };
    let directory = |parent: u64, name: &str| match find(parent, name) {
        Err(Errno::ENOENT) => {
            files.add(parent, name, Body::Directory, 0o555, None).map(|node| node.number)
        }
        found => found,
    };
    for entry in root_archive().iter() {
        let (above, name) = entry.path.rsplit_once('/').unwrap_or(("", &entry.path));
        let mut parent = ROOT;
        for part in above.split('/').filter(|part| !part.is_empty()) {
            parent = directory(parent, part)?;
        }
        match files.add(parent, name, Body::Image(entry.data), 0o555, None) {
            // A file and a directory of the same name: the first one counts.
            Ok(_) | Err(Errno::EEXIST | Errno::ENOTDIR) => {}
            Err(error) => return Err(error),
        }
    }
    for name in directories {
        directory(ROOT, name)?;
    }
    files.root()
}

/// An empty file system that can be written.
///
/// # Errors
/// `ENOMEM`.
pub fn temporary() -> Result<Arc<MemoryFiles>, Errno> {
    MemoryFiles::new(false, 0o777)
}

/// The devices.
///
/// # Errors
/// `ENOMEM`.
pub fn devices() -> Result<Arc<MemoryFiles>, Errno> {
    let files = MemoryFiles::new(true, 0o555)?;
    let devices = [
        ("null", Device::Null, device_number(1, 3)),
        ("zero", Device::Zero, device_number(1, 5)),
        ("full", Device::Full, device_number(1, 7)),
        ("random", Device::Random, device_number(1, 8)),
        ("urandom", Device::Random, device_number(1, 9)),
        ("tty", Device::Console, device_number(5, 0)),
        ("console", Device::Console, device_number(5, 1)),
        ("vda", Device::Disk, device_number(254, 0)),
    ];
    for (name, device, number) in devices {
        files.add(ROOT, name, Body::Device(device, number), 0o666, None)?;
    }
    Ok(files)
}

impl Inode {
    /// The names, to be changed.
    fn writable(&self) -> Result<&Mutex<Names>, Errno> {
        if self.files.is_read_only { Err(Errno::EROFS) } else { self.files.names() }
    }

    fn is_written(&self) {
        let mut state = self.state.lock();
        state.modified = now();
        state.changed = state.modified;
    }

    /// The file's contents. `EINVAL` if it is none that can be written.
    fn contents(&self) -> Result<&Mutex<Option<Box<Contents>>>, Errno> {
        match &self.body {
            Body::File(contents) => Ok(contents),
            Body::Image(_) => Err(Errno::EROFS),
            Body::Directory => Err(Errno::EISDIR),
            Body::Link(_) | Body::Device(..) => Err(Errno::EINVAL),
        }
    }

    fn find(&self, name: &str) -> Result<NodeRef, Errno> {
        let names = self.files.names()?.lock();
        names.look_up(self.number, name).map(|found| found.clone() as NodeRef)
    }

    fn create(
        &self,
        name: &str,
        new: New<'_>,
        permissions: u32,
        payer: Family,
    ) -> Result<NodeRef, Errno> {
        if self.files.is_read_only {
            // What exists comes first, as on Linux.
            return match self.find(name) {
                Ok(_) => Err(Errno::EEXIST),
                Err(Errno::ENOENT) => Err(Errno::EROFS),
                Err(error) => Err(error),
            };
        }
        mm::admit()?;
        let body = match new {
            New::Directory => Body::Directory,
            New::File => Body::File(Mutex::new(Some(Contents::new()?))),
            New::Link(target) => {
                let mut text = Text::new();
                text.try_push_str(target)?;
                Body::Link(text)
            }
        };
        let made = self.files.add(self.number, name, body, permissions, Some(payer))?;
        self.is_written();
        Ok(made)
    }

    fn remove(&self, name: &str, of_directory: bool) -> Result<(), Errno> {
        let removed = self.writable()?.lock().remove(self.number, name, of_directory)?;
        self.is_written();
        self.is_removed(removed);
        Ok(())
    }

    /// A name is gone. Its node is dropped here, without a lock.
    fn is_removed(&self, removed: Removed<Arc<Inode>, Charge>) {
        if let Some(node) = &removed.value {
            node.state.lock().changed = now();
        }
    }

    fn entry_after(&self, after: u64) -> Result<Option<Entry>, Errno> {
        let names = self.files.names()?.lock();
        let Some(Listed { key, name, number, value }) = names.list(self.number, after)? else {
            return Ok(None);
        };
        let mut text = Text::new();
        text.try_push_str(name)?;
        Ok(Some(Entry { place: key, name: text, number, kind: value.kind }))
    }

    fn place_of(&self) -> Result<Option<(NodeRef, Text)>, Errno> {
        let names = self.files.names()?.lock();
        let Some((parent, name)) = names.place(self.number)? else { return Ok(None) };
        let mut text = Text::new();
        text.try_push_str(name)?;
        Ok(Some((parent.clone() as NodeRef, text)))
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        if let Body::File(contents) = &mut self.body
            && let Some(contents) = contents.get_mut().take()
        {
            sweep(contents);
        }
    }
}

impl Node for Inode {
    fn identity(&self) -> (u64, u64) {
        (self.files.number, self.number)
    }

    fn kind(&self) -> u32 {
        self.kind
    }

    fn status(&self) -> Status {
        let (size, device) = match &self.body {
            Body::Directory => (0, 0),
            Body::Image(bytes) => (bytes.len() as u64, 0),
            Body::File(contents) => (contents.lock().as_ref().map_or(0, |file| file.len()), 0),
            Body::Link(target) => (target.len() as u64, 0),
            Body::Device(Device::Disk, number) => (disk().map_or(0, Disk::bytes), *number),
            Body::Device(_, number) => (0, *number),
        };
        let links = self.files.names().map_or(0, |names| names.lock().links(self.number));
        let state = *self.state.lock();
        Status {
            file_system: self.files.number,
            number: self.number,
            mode: self.kind | state.permissions,
            links,
            device,
            size,
            blocks: size.div_ceil(FRAME_BYTES as u64) * (FRAME_BYTES as u64 / 512),
            accessed: state.accessed,
            modified: state.modified,
            changed: state.changed,
            ..Status::default()
        }
    }

    fn device(&self) -> Option<Device> {
        match self.body {
            Body::Device(device, _) => Some(device),
            _ => None,
        }
    }

    fn read(&self, offset: u64, buffer: &PinnedBuffer) -> Attempt<usize> {
        Some(match &self.body {
            Body::Image(bytes) => {
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                let rest = bytes.get(offset..).unwrap_or_default();
                let count = rest.len().min(buffer.len());
                buffer.write_at(0, &rest[..count]);
                Ok(count)
            }
            Body::File(contents) => {
                Ok(contents.lock().as_ref().map_or(0, |file| file.read(offset, buffer)))
            }
            Body::Directory => Err(Errno::EISDIR),
            Body::Link(_) | Body::Device(..) => Err(Errno::EINVAL),
        })
    }

    fn write(
        &self,
        offset: Option<u64>,
        buffer: &PinnedBuffer,
        payer: Family,
    ) -> Attempt<(u64, usize)> {
        let write = || {
            let mut contents = self.contents()?.lock();
            let file = contents.as_mut().ok_or(Errno::EIO)?;
            let offset = offset.unwrap_or(file.len());
            let count = file.write(offset, buffer, payer)?;
            Ok((offset + count as u64, count))
        };
        let written = write();
        if written.is_ok() {
            self.is_written();
        }
        Some(written)
    }

    fn resize(&self, length: u64) -> Attempt<()> {
        let resize = || {
            let mut contents = self.contents()?.lock();
            contents.as_mut().ok_or(Errno::EIO)?.resize(length)?;
            drop(contents);
            self.is_written();
            Ok(())
        };
        Some(resize())
    }

    fn change(&self, change: Change) -> Attempt<()> {
        if self.files.is_read_only {
            return Some(Err(Errno::EROFS));
        }
        let mut state = self.state.lock();
        state.permissions = change.permissions.unwrap_or(state.permissions);
        state.accessed = change.accessed.unwrap_or(state.accessed);
        state.modified = change.modified.unwrap_or(state.modified);
        state.changed = now();
        Some(Ok(()))
    }

    fn look_up(&self, name: &str) -> Attempt<NodeRef> {
        Some(self.find(name))
    }

    fn make(&self, name: &str, new: New<'_>, permissions: u32, payer: Family) -> Attempt<NodeRef> {
        Some(self.create(name, new, permissions, payer))
    }

    fn link(&self, name: &str, node: &NodeRef, payer: Family) -> Attempt<()> {
        let link = || {
            let names = self.writable()?;
            let (charge, _) = charges(name, Some(payer))?;
            let (_, number) = node.identity();
            names.lock().link(self.number, name, number, charge)?;
            self.is_written();
            Ok(())
        };
        Some(link())
    }

    fn unlink(&self, name: &str, of_directory: bool) -> Attempt<()> {
        Some(self.remove(name, of_directory))
    }

    fn rename(
        &self,
        name: &str,
        (to, new_name): (&NodeRef, &str),
        no_replace: bool,
        payer: Family,
    ) -> Attempt<()> {
        let rename = || {
            let names = self.writable()?;
            let (charge, _) = charges(new_name, Some(payer))?;
            let (from, to) = ((self.number, name), (to.identity().1, new_name));
            let removed = names.lock().rename(from, to, no_replace, charge)?;
            self.is_written();
            self.is_removed(removed);
            Ok(())
        };
        Some(rename())
    }

    fn list(&self, after: u64) -> Attempt<Option<Entry>> {
        Some(self.entry_after(after))
    }

    fn place(&self) -> Attempt<Option<(NodeRef, Text)>> {
        Some(self.place_of())
    }

    fn target(&self) -> Attempt<Text> {
        let target = || {
            let Body::Link(target) = &self.body else { return Err(Errno::EINVAL) };
            let mut text = Text::new();
            text.try_push_str(target)?;
            Ok(text)
        };
        Some(target())
    }

    fn usage(&self) -> Usage {
        let memory = |amounts: Amounts| amounts.get(Kind::Memory) / FRAME_BYTES as u64;
        let (limit, used) = quota::state(Family::ROOT)
            .map_or((0, 0), |(limits, used)| (memory(limits), memory(used)));
        let free = if self.files.is_read_only { 0 } else { limit.saturating_sub(used) };
        Usage { kind: TEMPORARY, blocks: limit, free_blocks: free }
    }
}
