//! What is done at the end of a path: with a name in a directory, or with a node.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::file::{Status, mode, open};
use cops_abi::syscall::PATH_BYTES_MAX;
use cops_fallible::{Text, try_arc};

use super::{PathCall, Step, Then};
use crate::fs::{self, Ask, Attempt, Change, Device, File, New, NodeRef};
use crate::mm::PinnedBuffer;
use crate::process::Process;

/// Maximum number of bytes that one `getdents64` stores.
pub const LIST_BYTES_MAX: usize = 768;

/// Maximum number of levels that the path of the current directory has.
const LEVELS_MAX: usize = cops_algorithms::tree::LEVELS_MAX;

impl PathCall {
    /// What is done with a name in a directory, whether it exists or not.
    pub(super) fn finish_place(
        &mut self,
        process: &Arc<Process>,
        at: &NodeRef,
        name: Text,
        has_slash: bool,
    ) -> Result<Option<Step>, Errno> {
        let payer = process.family;
        match &mut self.then {
            Then::MakeDirectory { permissions } => {
                let new = New::Directory;
                drop(attempt!(at.make(&name, new, *permissions, payer, &mut self.ask)));
            }
            // With a slash it would name a directory.
            Then::MakeLink { .. } if has_slash => return Err(Errno::ENOENT),
            Then::MakeLink { target } => {
                drop(attempt!(at.make(&name, New::Link(target), 0o777, payer, &mut self.ask)));
            }
            Then::Unlink { of_directory: false } if has_slash => {
                let found = attempt!(fs::look_up(at, &name, &mut self.ask));
                let error = if fs::is_directory(&found) { Errno::EISDIR } else { Errno::ENOTDIR };
                return Err(error);
            }
            Then::Unlink { of_directory } => {
                let is_covered = attempt!(is_covered(at, &name, &mut self.ask));
                if *of_directory && &*name != "." && is_covered {
                    return Err(Errno::EBUSY);
                }
                attempt!(at.unlink(&name, *of_directory, &mut self.ask));
            }
            Then::Rename { to, .. } if to.first.is_none() => {
                if has_slash {
                    must_be_directory(attempt!(fs::look_up(at, &name, &mut self.ask)))?;
                }
                to.first = Some((at.clone(), name));
                return self.walk_second();
            }
            Then::Rename { to, no_replace } => {
                let Some((from, old)) = &to.first else { return Err(Errno::EIO) };
                same_file_system(from, at)?;
                if has_slash {
                    must_be_directory(attempt!(fs::look_up(from, old, &mut self.ask)))?;
                }
                if attempt!(is_covered(from, old, &mut self.ask)) {
                    return Err(Errno::EBUSY);
                }
                match is_covered(at, &name, &mut self.ask) {
                    Some(Ok(true)) => return Err(Errno::EBUSY),
                    Some(Ok(false) | Err(Errno::ENOENT)) => {}
                    other => drop(attempt!(other)),
                }
                attempt!(from.rename(old, (at, &name), *no_replace, payer, &mut self.ask));
            }
            Then::Link { to } => {
                let Some((node, _)) = &to.first else { return Err(Errno::EIO) };
                same_file_system(node, at)?;
                attempt!(at.link(&name, node, payer, &mut self.ask));
            }
            _ => return Err(Errno::EIO),
        }
        Ok(Some(Step::Done(0)))
    }

    /// What is done with a node.
    pub(super) fn finish(
        &mut self,
        process: &Arc<Process>,
        node: NodeRef,
    ) -> Result<Option<Step>, Errno> {
        match &mut self.then {
            Then::Open { flags, .. } => {
                let flags = *flags;
                attempt!(check_open(&node, flags, &mut self.ask));
                // What can fail comes before the file is changed.
                let file = open_node(process, node.clone(), flags)?;
                if flags & open::TRUNCATE != 0 && node.kind() == mode::REGULAR {
                    attempt!(node.clone().resize(0, &mut self.ask));
                }
                return self.then.install(file).map(|number| Some(Step::Done(number)));
            }
            Then::Status { into, is_extended } => {
                let status = attempt!(node.status(&mut self.ask));
                store_status(&status, into, *is_extended);
            }
            Then::Access { mode: asked } => {
                let status = attempt!(node.status(&mut self.ask));
                let may_execute = status.kind() != mode::REGULAR || status.mode & 0o111 != 0;
                if *asked & 1 != 0 && !may_execute {
                    return Err(Errno::EACCES);
                }
                if *asked & 2 != 0 && node.device().is_none() {
                    // Changing nothing fails where nothing can be changed.
                    attempt!(node.change(Change::default(), &mut self.ask));
                }
            }
            Then::ReadLink { into } => {
                let target = attempt!(node.target(&mut self.ask));
                let count = target.len().min(into.len());
                into.write_at(0, &target.as_bytes()[..count]);
                return Ok(Some(Step::Done(count)));
            }
            Then::ChangeDirectory => {
                let node = must_be_directory(node)?;
                process.files.lock().set_working(node);
            }
            Then::Resize { length } => attempt!(node.clone().resize(*length, &mut self.ask)),
            Then::Change(change) => attempt!(node.change(*change, &mut self.ask)),
            Then::Usage { into } => {
                let usage = attempt!(node.usage(&mut self.ask));
                into.write_at(0, &usage.to_bytes());
            }
            Then::Synchronise => attempt!(node.synchronise(&mut self.ask)),
            Then::Seek { file, offset, whence } => {
                let position = attempt!(file.attempt_seek(*offset, *whence, &mut self.ask));
                return Ok(Some(Step::Done(position)));
            }
            Then::Map(call) => {
                return Ok(call.attempt(process, &node, &mut self.ask)?.map(Step::Done));
            }
            Then::SynchroniseMemory(memory) => {
                let is_done = memory.attempt(process, &mut self.ask)?;
                return Ok(is_done.then_some(Step::Done(0)));
            }
            Then::SynchroniseAll { .. } => return self.synchronise_next(&node),
            Then::Mount { server, root, terms } => {
                fs::mount_served(&node, server, *root, *terms)?;
            }
            Then::Unmount => fs::unmount(&node)?,
            Then::List { file, into } => {
                let mut bytes = [0; LIST_BYTES_MAX];
                let bytes = &mut bytes[..into.len().min(LIST_BYTES_MAX)];
                let count = attempt!(file.attempt_list(bytes, &mut self.ask));
                into.write_at(0, &bytes[..count]);
                return Ok(Some(Step::Done(count)));
            }
            Then::Where { .. } => return self.climb(&node),
            _ => return Err(Errno::EIO),
        }
        Ok(Some(Step::Done(0)))
    }

    /// Does one more step of `sync`: writes back the next file with dirty pages of the file system
    /// of `node`, or makes what was written to that durable. No error ends `sync`, and it reports
    /// none.
    fn synchronise_next(&mut self, node: &NodeRef) -> Result<Option<Step>, Errno> {
        let Then::SynchroniseAll { after, file } = &mut self.then else { return Err(Errno::EIO) };
        if let Some(served) = node.served()
            && *file < u64::MAX
            && (self.ask.turn().is_some() || self.ask.is_fresh())
        {
            let dirty = match self.ask.turn() {
                Some(dirty) => Ok(dirty.clone()),
                None => served.next_dirty(*file),
            };
            match dirty {
                Ok(dirty) => {
                    // If the server refuses the pages of a file, they stay dirty, and the next file
                    // is written back.
                    if dirty.write_back(&mut self.ask).is_none() {
                        return Ok(None);
                    }
                    *file = dirty.number();
                }
                Err(next) => *file = next.unwrap_or(u64::MAX),
            }
            return Ok(Some(Step::Again));
        }
        // This file system first, and then those behind it, even if it fails.
        if node.synchronise_all(&mut self.ask).is_none() {
            return Ok(None);
        }
        let Some((number, next)) = fs::served_after(*after) else { return Ok(Some(Step::Done(0))) };
        (*after, *file) = (number, 0);
        self.at = next;
        Ok(Some(Step::Again))
    }

    /// One level up; at the root, stores the path.
    fn climb(&mut self, node: &NodeRef) -> Result<Option<Step>, Errno> {
        if let Some(covered) = fs::covered_by(node) {
            self.at = covered;
            return Ok(Some(Step::Again));
        }
        let place = attempt!(node.place(&mut self.ask));
        let Then::Where { into, names } = &mut self.then else { return Err(Errno::EIO) };
        if let Some((parent, name)) = place {
            if names.len() >= LEVELS_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            names.try_push(name)?;
            self.at = parent;
            return Ok(Some(Step::Again));
        }
        let length: usize = names.iter().map(|name| name.len() + 1).sum();
        let length = length.max(1);
        if length >= PATH_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if length + 1 > into.len() {
            return Err(Errno::ERANGE);
        }
        let mut at = 0;
        for name in names.iter().rev() {
            into.write_at(at, b"/");
            into.write_at(at + 1, name.as_bytes());
            at += name.len() + 1;
        }
        into.write_at(0, b"/");
        into.write_at(length, &[0]);
        Ok(Some(Step::Done(length + 1)))
    }
}

/// Stores a status.
pub fn store_status(status: &Status, into: &PinnedBuffer, is_extended: bool) {
    if is_extended {
        into.write_at(0, &status.to_extended_bytes());
    } else {
        into.write_at(0, &status.to_bytes());
    }
}

fn must_be_directory(node: NodeRef) -> Result<NodeRef, Errno> {
    if fs::is_directory(&node) { Ok(node) } else { Err(Errno::ENOTDIR) }
}

/// Whether another file system is found in the place of the directory with this name, which stays
/// then. There is none in a file system that a process serves.
fn is_covered(at: &NodeRef, name: &str, ask: &mut Ask) -> Attempt<bool> {
    if at.served().is_some() {
        return Some(Ok(false));
    }
    let found = fs::look_up(at, name, ask)?;
    Some(found.map(|found| fs::covered_by(&found).is_some()))
}

fn same_file_system(one: &NodeRef, other: &NodeRef) -> Result<(), Errno> {
    if one.identity().0 == other.identity().0 { Ok(()) } else { Err(Errno::EXDEV) }
}

/// Whether a node that exists may be opened so; `None` if the call has to wait.
fn check_open(node: &NodeRef, flags: u32, ask: &mut Ask) -> Option<Result<(), Errno>> {
    if let Err(error) = node.may_open() {
        return Some(Err(error));
    }
    let kind = node.kind();
    let writes = flags & open::ACCESS_MODE != open::READ_ONLY || flags & open::TRUNCATE != 0;
    if flags & open::CREATE != 0 && flags & open::EXCLUSIVE != 0 {
        return Some(Err(Errno::EEXIST));
    }
    Some(match kind {
        mode::LINK => Err(Errno::ELOOP),
        mode::DIRECTORY if writes || flags & open::CREATE != 0 => Err(Errno::EISDIR),
        mode::DIRECTORY => Ok(()),
        _ if flags & open::DIRECTORY != 0 => Err(Errno::ENOTDIR),
        mode::REGULAR if writes => node.change(Change::default(), ask)?,
        _ => Ok(()),
    })
}

/// The open file of `node`, without a descriptor yet.
pub(super) fn open_node(process: &Process, node: NodeRef, flags: u32) -> Result<Arc<File>, Errno> {
    if let Some(Device::Disk | Device::FileServer) = node.device() {
        // The disk has the files of all processes, and a served file system is seen by all.
        process.check_authority_over_machine()?;
    }
    let file = try_arc(File::of_node(node, flags, process.family)?)?;
    process.files.lock().pay_for(&file)?;
    Ok(file)
}
