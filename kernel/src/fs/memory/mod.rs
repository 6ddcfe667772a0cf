//! File systems in memory: the root image, which is read-only, `/tmp`, and `/dev`.
//!
//! The names of a file system are in a [`Tree`] behind one lock, which is held for one operation on
//! it. Nodes that are not named any more live as long as they are open.

mod inode;
mod shared;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cops_abi::Errno;
use cops_abi::file::device_number;
use cops_algorithms::tree::{ROOT, Tree};
use cops_fallible::{Text, try_arc};
use cops_lock::Mutex;
use spin::Once;

use super::contents::Contents;
use super::image::root as root_archive;
use super::node::{Device, NodeRef};
use crate::drivers::random;
use crate::mm::quota::{Amounts, Charge, FAMILY_BYTES, Family, Kind};
use inode::{Body, Inode};

/// Memory that is charged for a node, and for a name; the length of a name, and of what a symbolic
/// link says, is added. Each may be the last thing that is left of a family.
const NODE_BYTES: u64 = 512 + FAMILY_BYTES;
const NAME_BYTES: u64 = 256 + FAMILY_BYTES;

/// The types of file systems, as Linux numbers them.
const TEMPORARY: u64 = 0x0102_1994;
/// Numbers of file systems.
static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// A number for another file system.
pub fn next_number() -> u64 {
    LAST_NUMBER.fetch_add(1, Relaxed) + 1
}

/// The names: each node, and the charge for each name.
type Names = Tree<Arc<Inode>, Charge>;

/// A file system.
pub struct MemoryFiles {
    number: u64,
    is_read_only: bool,
    names: Once<Mutex<Names>>,
}

impl MemoryFiles {
    /// A file system with an empty root.
    fn new(is_read_only: bool, permissions: u32) -> Result<Arc<Self>, Errno> {
        let number = next_number();
        let files = try_arc(Self { number, is_read_only, names: Once::new() })?;
        let charge = Charge::nothing(Family::ROOT);
        let root = Inode::new(files.clone(), ROOT, Body::Directory, permissions, charge)?;
        let tree = Tree::new(root, [random::next(), random::next()])?;
        files.names.call_once(|| Mutex::new(tree));
        Ok(files)
    }

    fn names(&self) -> Result<&Mutex<Names>, Errno> {
        self.names.get().ok_or(Errno::EIO)
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
        let text_bytes = if let Body::Link(target) = &body { target.len() as u64 } else { 0 };
        let (of_name, of_node) =
            (charge_name(name, payer)?, charge(NODE_BYTES + text_bytes, payer)?);
        let is_directory = matches!(body, Body::Directory);
        let mut names = self.names()?.lock();
        names.insert(parent, name, is_directory, of_name, |number| {
            Inode::new(self.clone(), number, body, permissions, of_node)
        })
    }

    /// A file that has lost its name: it exists as long as it is open or mapped.
    ///
    /// # Errors
    /// `ENOMEM`; `ENOSPC` if the quota is used up.
    pub fn make_nameless(self: &Arc<Self>, payer: Family) -> Result<NodeRef, Errno> {
        let name = "file";
        let body = Body::File(Mutex::new(Some(Contents::new()?)));
        let (of_name, of_node) =
            (charge_name(name, Some(payer))?, charge(NODE_BYTES, Some(payer))?);
        // The name gives it a number, which no other file has. It is there under this lock only.
        let mut names = self.names()?.lock();
        let made = names.insert(ROOT, name, false, of_name, |number| {
            Inode::new(self.clone(), number, body, 0o777, of_node)
        })?;
        let removed = names.remove(ROOT, name, false);
        drop(names);
        drop(removed?);
        Ok(made)
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

/// The charge for so many bytes; nothing for what the kernel creates itself.
fn charge(bytes: u64, payer: Option<Family>) -> Result<Charge, Errno> {
    match payer {
        Some(payer) => {
            Charge::new(payer, &Amounts::of(Kind::Memory, bytes)).map_err(|_| Errno::ENOSPC)
        }
        None => Ok(Charge::nothing(Family::ROOT)),
    }
}

/// The charge for a name.
fn charge_name(name: &str, payer: Option<Family>) -> Result<Charge, Errno> {
    charge(NAME_BYTES + name.len() as u64, payer)
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
        let body = match core::str::from_utf8(entry.data) {
            Ok(target) if entry.is_link => Body::Link(Text::try_from_str(target)?),
            _ => Body::Image(entry.data),
        };
        match files.add(parent, name, body, if entry.is_link { 0o777 } else { 0o555 }, None) {
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
        ("fs", Device::FileServer, device_number(10, 229)),
    ];
    // Where another file system is mounted: the C library keeps shared memory and semaphores there.
    files.add(ROOT, "shm", Body::Directory, 0o555, None)?;
    for (name, device, number) in devices {
        files.add(ROOT, name, Body::Device(device, number), 0o666, None)?;
    }
    Ok(files)
}
