//! The nodes of file systems in memory. Lock order: the names of the file system, then a node's
//! state.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::any::Any;

use cops_abi::Errno;
use cops_abi::file::{Status, Time, Usage, mode};
use cops_algorithms::dirent;
use cops_algorithms::tree::Listed as Found;
use cops_fallible::{Text, try_arc};
use cops_lock::Mutex;

use super::shared::SharedFile;
use super::{MemoryFiles, Names, TEMPORARY, charge_name};
use crate::disk::{Disk, disk};
use crate::fs::contents::{Contents, sweep};
use crate::fs::node::{Attempt, Change, Device, Listed, New, Node, NodeRef};
use crate::fs::served::Ask;
use crate::mm::frames::FRAME_BYTES;
use crate::mm::quota::{self, Amounts, Charge, Family, Kind};
use crate::mm::{self, FaultError, Frame, MemoryObject, PinnedBuffer, next_object_number};
use crate::sched::timer;

/// A node.
pub struct Inode {
    files: Arc<MemoryFiles>,
    pub(super) number: u64,
    /// Its number as a memory object.
    as_object: u64,
    state: Mutex<State>,
    pub(super) body: Body,
    /// Its shared mappings. Lock order: the contents, then this.
    pub(super) mapped: Mutex<Weak<SharedFile>>,
    _charge: Charge,
}

#[derive(Clone, Copy)]
struct State {
    permissions: u32,
    accessed: Time,
    modified: Time,
    changed: Time,
}

/// What a node is, with its contents.
pub(super) enum Body {
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

impl Inode {
    /// A node with this number, which its names will have; `charge` is what it costs.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn new(
        files: Arc<MemoryFiles>,
        number: u64,
        body: Body,
        permissions: u32,
        charge: Charge,
    ) -> Result<Arc<Self>, Errno> {
        let time = timer::file_time();
        let state = State { permissions, accessed: time, modified: time, changed: time };
        let (as_object, state) = (next_object_number(), Mutex::new(state));
        let mapped = Mutex::default();
        Ok(try_arc(Self { files, number, as_object, state, body, mapped, _charge: charge })?)
    }

    /// The names, to be changed.
    fn writable(&self) -> Result<&Mutex<Names>, Errno> {
        if self.files.is_read_only { Err(Errno::EROFS) } else { self.files.names() }
    }

    fn is_written(&self) {
        let mut state = self.state.lock();
        state.modified = timer::file_time();
        state.changed = state.modified;
    }

    /// Something else than what it contains has changed, as a name.
    fn is_changed(&self) {
        self.state.lock().changed = timer::file_time();
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
                let text = Text::try_from_str(target)?;
                Body::Link(text)
            }
        };
        let made = self.files.add(self.number, name, body, permissions, Some(payer))?;
        self.is_written();
        Ok(made)
    }

    fn remove(&self, name: &str, of_directory: bool) -> Result<(), Errno> {
        let mut names = self.writable()?.lock();
        let node = names.look_up(self.number, name).cloned();
        let removed = names.remove(self.number, name, of_directory)?;
        drop(names);
        self.is_written();
        if let Ok(node) = node {
            // It may have other names.
            node.is_changed();
        }
        // Without the lock.
        drop(removed);
        Ok(())
    }

    fn entry_after(&self, after: u64, records: &mut [u8]) -> Result<Listed, Errno> {
        let names = self.files.names()?.lock();
        let Some(Found { key: place, name, number, value }) = names.list(self.number, after)?
        else {
            return Ok(Listed::End);
        };
        let record = dirent::Record { number, place, name, kind: value.kind() };
        let bytes = dirent::put(records, &record);
        Ok(bytes.map_or(Listed::NoRoom, |bytes| Listed::Records { bytes, place }))
    }

    fn place_of(&self) -> Result<Option<(NodeRef, Text)>, Errno> {
        let names = self.files.names()?.lock();
        let Some((parent, name)) = names.place(self.number)? else { return Ok(None) };
        let text = Text::try_from_str(name)?;
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

impl MemoryObject for Inode {
    #[allow(clippy::misnamed_getters, reason = "it has another number as a node")]
    fn number(&self) -> u64 {
        self.as_object
    }

    fn page(&self, page: u64, payer: Family) -> Result<Frame, FaultError> {
        // A file of the root image is mapped as copies, because its bytes are not in whole frames.
        let Body::File(contents) = &self.body else { return Err(FaultError::NoPage) };
        contents.lock().as_mut().ok_or(FaultError::NoPage)?.frame(page, payer)
    }

    fn copy_page(&self, page: u64) -> Result<Frame, FaultError> {
        match &self.body {
            Body::Image(bytes) => {
                let page = usize::try_from(page).map_err(|_| FaultError::NoPage)?;
                let page = bytes.chunks(FRAME_BYTES).nth(page).ok_or(FaultError::NoPage)?;
                Ok(Frame::with_bytes(page)?)
            }
            Body::File(contents) => {
                contents.lock().as_ref().ok_or(FaultError::NoPage)?.copy_page(page)
            }
            Body::Directory | Body::Link(_) | Body::Device(..) => Err(FaultError::NoPage),
        }
    }

    fn constant_page(&self, page: u64) -> Option<Frame> {
        let Body::Image(bytes) = self.body else { return None };
        let start = usize::try_from(page).ok()?.checked_mul(FRAME_BYTES)?;
        Frame::of_constant(bytes.get(start..)?.get(..FRAME_BYTES)?)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Node for Inode {
    fn identity(&self) -> (u64, u64) {
        (self.files.number, self.number)
    }

    fn kind(&self) -> u32 {
        self.body.kind()
    }

    fn status(&self, _ask: &mut Ask) -> Attempt<Status> {
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
        Some(Ok(Status {
            file_system: self.files.number,
            number: self.number,
            mode: self.kind() | state.permissions,
            links,
            device,
            size,
            blocks: size.div_ceil(FRAME_BYTES as u64) * (FRAME_BYTES as u64 / 512),
            accessed: state.accessed,
            modified: state.modified,
            changed: state.changed,
            ..Status::default()
        }))
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

    fn image(&self) -> Option<&'static [u8]> {
        match &self.body {
            Body::Image(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn object(self: Arc<Self>) -> Result<Arc<dyn MemoryObject>, Errno> {
        match self.body {
            Body::Image(_) | Body::File(_) => Ok(self),
            Body::Directory | Body::Link(_) | Body::Device(..) => Err(Errno::ENODEV),
        }
    }

    fn shared_object(self: Arc<Self>) -> Result<Arc<dyn MemoryObject>, Errno> {
        self.as_shared()
    }

    fn read_into(&self, offset: u64, bytes: &mut [u8]) -> Attempt<usize> {
        Some(match &self.body {
            Body::File(contents) => {
                Ok(contents.lock().as_ref().map_or(0, |file| file.read_into(offset, bytes)))
            }
            _ => Err(Errno::EACCES),
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

    fn resize(self: Arc<Self>, length: u64, _ask: &mut Ask) -> Attempt<()> {
        let resize = || {
            let mut contents = self.contents()?.lock();
            let file = contents.as_mut().ok_or(Errno::EIO)?;
            if length < file.len() && self.is_mapped() {
                return Err(Errno::ETXTBSY);
            }
            file.resize(length)?;
            drop(contents);
            self.is_written();
            Ok(())
        };
        Some(resize())
    }

    fn change(&self, change: Change, _ask: &mut Ask) -> Attempt<()> {
        if self.files.is_read_only {
            return Some(Err(Errno::EROFS));
        }
        if change.is_empty() {
            return Some(Ok(()));
        }
        let mut state = self.state.lock();
        state.permissions = change.permissions.unwrap_or(state.permissions);
        state.accessed = change.accessed.unwrap_or(state.accessed);
        state.modified = change.modified.unwrap_or(state.modified);
        state.changed = timer::file_time();
        Some(Ok(()))
    }

    fn look_up(&self, name: &str, _ask: &mut Ask) -> Attempt<NodeRef> {
        Some(self.find(name))
    }

    fn make(
        &self,
        name: &str,
        new: New<'_>,
        permissions: u32,
        payer: Family,
        _ask: &mut Ask,
    ) -> Attempt<NodeRef> {
        Some(self.create(name, new, permissions, payer))
    }

    fn link(&self, name: &str, node: &NodeRef, payer: Family, _ask: &mut Ask) -> Attempt<()> {
        let link = || {
            let names = self.writable()?;
            let charge = charge_name(name, Some(payer))?;
            let (_, number) = node.identity();
            let mut names = names.lock();
            names.link(self.number, name, number, charge)?;
            let node = names.look_up(self.number, name).cloned();
            drop(names);
            self.is_written();
            node?.is_changed();
            Ok(())
        };
        Some(link())
    }

    fn unlink(&self, name: &str, of_directory: bool, _ask: &mut Ask) -> Attempt<()> {
        Some(self.remove(name, of_directory))
    }

    fn rename(
        &self,
        name: &str,
        (to, new_name): (&NodeRef, &str),
        no_replace: bool,
        payer: Family,
        _ask: &mut Ask,
    ) -> Attempt<()> {
        let rename = || {
            let names = self.writable()?;
            let charge = charge_name(new_name, Some(payer))?;
            let (from, to) = ((self.number, name), (to.identity().1, new_name));
            let mut names = names.lock();
            let replaced = names.look_up(to.0, new_name).cloned().ok();
            let removed = names.rename(from, to, no_replace, charge)?;
            let moved = names.look_up(to.0, new_name).cloned()?;
            let directory = names.look_up(to.0, ".").cloned()?;
            drop(names);
            // Two names of one node stay.
            if !replaced.as_ref().is_some_and(|replaced| Arc::ptr_eq(replaced, &moved)) {
                self.is_written();
                directory.is_written();
                moved.is_changed();
                replaced.as_ref().inspect(|replaced| replaced.is_changed());
            }
            // Without the lock.
            drop(removed);
            Ok(())
        };
        Some(rename())
    }

    fn list(&self, after: u64, records: &mut [u8], _ask: &mut Ask) -> Attempt<Listed> {
        Some(self.entry_after(after, records))
    }

    fn place(&self, _ask: &mut Ask) -> Attempt<Option<(NodeRef, Text)>> {
        Some(self.place_of())
    }

    fn target(&self, _ask: &mut Ask) -> Attempt<Text> {
        let target = || {
            let Body::Link(target) = &self.body else { return Err(Errno::EINVAL) };
            let text = Text::try_from_str(target)?;
            Ok(text)
        };
        Some(target())
    }

    fn usage(&self, _ask: &mut Ask) -> Attempt<Usage> {
        let memory = |amounts: Amounts| amounts.get(Kind::Memory) / FRAME_BYTES as u64;
        let (limit, used) = quota::state(Family::ROOT)
            .map_or((0, 0), |(limits, used)| (memory(limits), memory(used)));
        let free = if self.files.is_read_only { 0 } else { limit.saturating_sub(used) };
        // There is room for as many files as blocks.
        Some(Ok(Usage { kind: TEMPORARY, blocks: limit, free_blocks: free, files: [limit, free] }))
    }
}
