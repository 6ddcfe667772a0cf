//! `/proc`: the names of files that tell about processes and the machine.
//!
//! Nothing is stored: a node is made when its name is looked up, and exists as long as it is open.
//! What the files contain comes from [`Facts`], which the room `inspect` implements (decision 38).

mod names;
mod node;

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_fallible::{Text, try_arc};
use spin::Once;

use super::file::File;
use super::node::NodeRef;
use crate::sched::ProcessId;

pub use names::{Bytes, Destination, Subject};
use names::{ROOT, What};
use node::ProcNode;
pub use node::path_of;

/// The type of the file system, as Linux numbers it.
const KIND: u64 = 0x9fa0;

/// What the files contain.
pub trait Facts: Sync {
    /// The process with the lowest number from `id` on, also if it has ended.
    fn process_from(&self, id: ProcessId) -> Option<ProcessId>;

    /// Whether process `viewer` may see what only a process itself and its ancestors may see of
    /// process `id`.
    fn may_examine(&self, viewer: ProcessId, id: ProcessId) -> bool;

    /// The text of a file of `id`; of the machine's if `id` is 0. At most [`TEXT_BYTES_MAX`] bytes
    /// of it are used.
    ///
    /// # Errors
    /// `ESRCH`, `ENOMEM`.
    fn text(&self, subject: Subject, id: ProcessId) -> Result<Text, Errno>;

    /// The bytes of a file of `id` from `offset` on, into `bytes`. Returns their number, 0 at the
    /// end.
    ///
    /// # Errors
    /// `ESRCH`.
    fn bytes(
        &self,
        subject: Bytes,
        id: ProcessId,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, Errno>;

    /// Where a link of process `id` leads, and the path at which it was found, if that is known.
    ///
    /// # Errors
    /// `ENOENT` if there is no such process, or if it has ended.
    fn destination(&self, which: Destination, id: ProcessId) -> Result<Found, Errno>;

    /// The open file of process `id` with this descriptor.
    ///
    /// # Errors
    /// `ENOENT`.
    fn open_file(&self, id: ProcessId, descriptor: usize) -> Result<Arc<File>, Errno>;

    /// The first descriptor of process `id` from `from` on.
    fn descriptor_from(&self, id: ProcessId, from: usize) -> Option<usize>;
}

/// Where a link leads.
pub struct Found {
    /// The file or directory.
    pub node: NodeRef,
    /// Its path; `None` for a directory, which is asked for it.
    pub path: Option<Text>,
}

/// Maximum length of a text.
pub const TEXT_BYTES_MAX: usize = 4096;

static FACTS: Once<&dyn Facts> = Once::new();

/// Sets the implementation of [`Facts`]. Called once at boot.
pub fn set_facts(facts: &'static dyn Facts) {
    FACTS.call_once(|| facts);
}

/// What the files contain.
///
/// # Errors
/// `EIO` before [`set_facts`].
fn facts() -> Result<&'static dyn Facts, Errno> {
    FACTS.get().copied().ok_or(Errno::EIO)
}

/// The file system `number`.
///
/// # Errors
/// `ENOMEM`.
pub fn root(number: u64) -> Result<NodeRef, Errno> {
    let what = What::Directory(ROOT);
    let node: NodeRef = try_arc(ProcNode::new(number, what, 0, 0, None)?)?;
    Ok(node)
}
