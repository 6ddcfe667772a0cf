//! The tree of all file systems: the root image, `/tmp`, `/dev` and `/dev/shm`, and those that
//! processes serve.

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_fallible::List;
use spin::{Once, RwLock};

use super::file::{File, Object};
use super::memory;
use super::node::{Attempt, NodeRef, is_directory};
use super::proc;
use super::served::{Ask, ServedNode, Terms};
use crate::mm::quota::Family;

/// Maximum number of file systems besides the root.
const MOUNTS_MAX: usize = 32;

/// A file system in the place of a directory.
struct Mount {
    /// The directory.
    covered: NodeRef,
    root: NodeRef,
    /// Their identities, which every look-up compares.
    covered_identity: (u64, u64),
    root_identity: (u64, u64),
}

impl Mount {
    fn new(covered: NodeRef, root: NodeRef) -> Self {
        let (covered_identity, root_identity) = (covered.identity(), root.identity());
        Self { covered, root, covered_identity, root_identity }
    }

    /// Whether its server is gone.
    fn is_closed(&self) -> bool {
        self.root.served().is_some_and(ServedNode::is_closed)
    }
}

struct Mounts {
    root: NodeRef,
    /// Where files without names are.
    nameless: Arc<memory::MemoryFiles>,
    others: RwLock<List<Mount>>,
}

static MOUNTS: Once<Mounts> = Once::new();

/// Makes the tree, of which the root image has been read.
///
/// # Panics
/// Without memory, which can happen only at boot.
pub fn mount() {
    let mounts = make();
    assert!(mounts.is_ok(), "there is memory for the directories of the root image");
    if let Ok(mounts) = mounts {
        MOUNTS.call_once(|| mounts);
    }
}

fn make() -> Result<Mounts, Errno> {
    let root = memory::root_image(&["tmp", "dev", "disk", "proc"])?;
    let mut others = List::new();
    let mut mounted = |at: &NodeRef, name: &str, files: NodeRef| {
        let covered = at.look_up(name, &mut Ask::default()).unwrap_or(Err(Errno::EIO))?;
        others.try_push(Mount::new(covered, files))?;
        Ok::<_, Errno>(())
    };
    let devices = memory::devices()?.root()?;
    mounted(&root, "tmp", memory::temporary()?.root()?)?;
    mounted(&root, "dev", devices.clone())?;
    mounted(&devices, "shm", memory::temporary()?.root()?)?;
    mounted(&root, "proc", proc::root(memory::next_number())?)?;
    Ok(Mounts { root, nameless: memory::temporary()?, others: RwLock::new(others) })
}

/// The tree.
///
/// # Panics
/// Before [`mount`].
fn mounts() -> &'static Mounts {
    MOUNTS.get().expect("no path is used before the file systems are mounted")
}

/// The root of all paths.
///
/// # Panics
/// Before [`mount`].
pub fn root() -> &'static NodeRef {
    &mounts().root
}

/// A new file in memory without a name, which `payer` pays for.
///
/// # Errors
/// `ENOMEM`; `ENOSPC` if the quota is used up.
pub fn make_nameless(payer: Family) -> Result<NodeRef, Errno> {
    mounts().nameless.make_nameless(payer)
}

/// What `name` names in directory `at`, across the borders of file systems.
pub fn look_up(at: &NodeRef, name: &str, ask: &mut Ask) -> Attempt<NodeRef> {
    if name == ".." {
        let covered = covered_by(at);
        return covered.as_ref().unwrap_or(at).look_up(name, ask);
    }
    if at.served().is_some() {
        // Nothing is mounted there.
        return if name == "." { Some(Ok(at.clone())) } else { at.look_up(name, ask) };
    }
    Some(at.look_up(name, ask)?.map(|found| {
        let identity = found.identity();
        let others = mounts().others.read();
        let mount = others.iter().find(|mount| mount.covered_identity == identity);
        mount.map(|mount| mount.root.clone()).unwrap_or(found)
    }))
}

/// The directory in the place of which `node`, the root of a file system, is found.
pub fn covered_by(node: &NodeRef) -> Option<NodeRef> {
    let identity = node.identity();
    let others = mounts().others.read();
    let mount = others.iter().find(|mount| mount.root_identity == identity)?;
    Some(mount.covered.clone())
}

/// Puts the file system of the server `file`, of which the root is node `number`, at directory
/// `at`, on these terms.
///
/// # Errors
/// `ENOTDIR`; `EBUSY` for the root of a file system of which the server is not gone, or if the
/// server's file system is mounted; `EINVAL` if `file` is not a server, or `at` is in a file system
/// that a process serves; `ENOSPC` if there are too many; `EIO`, `ENOMEM`.
pub fn mount_served(at: &NodeRef, file: &File, number: u64, terms: Terms) -> Result<(), Errno> {
    let Object::FileServer(server) = &file.object else { return Err(Errno::EINVAL) };
    if !is_directory(at) {
        return Err(Errno::ENOTDIR);
    }
    let identity = at.identity();
    let is_root = identity == root().identity();
    // What is dropped is dropped without the lock.
    let mut before = None;
    let mut others = mounts().others.write();
    let same = others.iter().position(|mount| mount.root_identity == identity);
    let covered = match same.and_then(|index| others.get(index)) {
        Some(mount) if mount.is_closed() => mount.covered.clone(),
        Some(_) => return Err(Errno::EBUSY),
        None if is_root => return Err(Errno::EBUSY),
        None if at.served().is_some() => return Err(Errno::EINVAL),
        None => at.clone(),
    };
    if same.is_none() {
        if others.len() >= MOUNTS_MAX {
            return Err(Errno::ENOSPC);
        }
        others.try_reserve(1)?;
    }
    let mount = Mount::new(covered, ServedNode::root(server.connection(), number, terms)?);
    match same.and_then(|index| others.get_mut(index)) {
        Some(place) => before = Some(core::mem::replace(place, mount)),
        // There is room.
        None => drop(others.push_within_capacity(mount)),
    }
    drop(others);
    drop(before);
    Ok(())
}

/// Removes the file system with root `node`, which a process serves. Files of it stay open.
///
/// # Errors
/// `EINVAL` if it is no such root.
pub fn unmount(node: &NodeRef) -> Result<(), Errno> {
    let identity = node.identity();
    let mut others = mounts().others.write();
    let is_it = |mount: &Mount| mount.root_identity == identity && mount.root.served().is_some();
    let index = others.iter().position(is_it).ok_or(Errno::EINVAL)?;
    let mount = others.remove(index);
    drop(others);
    // Without the lock: dropping the root wakes the server, which reads the end.
    drop(mount);
    Ok(())
}

/// The file system with this index among those besides the root: the directory that it covers, and
/// its root.
pub fn mounted(index: usize) -> Option<(NodeRef, NodeRef)> {
    let others = mounts().others.read();
    others.get(index).map(|mount| (mount.covered.clone(), mount.root.clone()))
}

/// The root of the first file system with a number above `after` that a process serves, and its
/// number.
pub fn served_after(after: u64) -> Option<(u64, NodeRef)> {
    let others = mounts().others.read();
    let served = others.iter().filter(|mount| mount.root.served().is_some() && !mount.is_closed());
    let next = served.filter(|mount| mount.root_identity.0 > after);
    let first = next.min_by_key(|mount| mount.root_identity.0)?;
    Some((first.root_identity.0, first.root.clone()))
}
