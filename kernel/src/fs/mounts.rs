//! The tree of all file systems: the root image, `/tmp` and `/dev`.

use alloc::sync::Arc;

use cops_abi::Errno;
use spin::Once;

use super::memory::{self, MemoryFiles};
use super::node::{Attempt, NodeRef};

/// A file system in the place of a directory.
struct Mount {
    /// The directory.
    covered: NodeRef,
    root: NodeRef,
}

struct Mounts {
    root: NodeRef,
    others: [Mount; 2],
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
    let root = memory::root_image(&["tmp", "dev"])?;
    let mounted = |name: &str, files: Arc<MemoryFiles>| {
        let covered = root.look_up(name).unwrap_or(Err(Errno::EIO))?;
        Ok::<_, Errno>(Mount { covered, root: files.root()? })
    };
    let temporary = mounted("tmp", memory::temporary()?)?;
    let devices = mounted("dev", memory::devices()?)?;
    Ok(Mounts { root, others: [temporary, devices] })
}

/// The root of all paths.
///
/// # Panics
/// Before [`mount`].
pub fn root() -> &'static NodeRef {
    &MOUNTS.get().expect("no path is used before the file systems are mounted").root
}

fn others() -> &'static [Mount] {
    MOUNTS.get().map_or(&[], |mounts| &mounts.others)
}

/// What `name` names in directory `at`, across the borders of file systems.
pub fn look_up(at: &NodeRef, name: &str) -> Attempt<NodeRef> {
    if name == ".." {
        return covered_by(at).unwrap_or(at).look_up(name);
    }
    Some(at.look_up(name)?.map(|found| {
        let identity = found.identity();
        let mount = others().iter().find(|mount| mount.covered.identity() == identity);
        mount.map_or(found, |mount| mount.root.clone())
    }))
}

/// The directory in the place of which `node`, the root of a file system, is found.
pub fn covered_by(node: &NodeRef) -> Option<&'static NodeRef> {
    let identity = node.identity();
    let mount = others().iter().find(|mount| mount.root.identity() == identity)?;
    Some(&mount.covered)
}
