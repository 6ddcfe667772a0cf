//! The nodes of `/proc`.

use alloc::sync::Arc;
use core::fmt::Write;

use cops_abi::Errno;
use cops_abi::file::{Status, Usage, mode};
use cops_algorithms::dirent;
use cops_fallible::{Text, try_arc};
use cops_lock::Mutex;

use super::names::{self, Destination, NAMES, PROCESS, ROOT, Subject, What};
use super::{Facts, Found, KIND, TEXT_BYTES_MAX, facts};
use crate::fs::file::{File, Object};
use crate::fs::mounts::{covered_by, root};
use crate::fs::node::{Attempt, Change, Device, Listed, New, Node, NodeRef, is_directory};
use crate::fs::served::Ask;
use crate::mm::PinnedBuffer;
use crate::mm::quota::{Amounts, Charge, Family, Kind};
use crate::sched::{ProcessId, timer};

/// Memory that is charged for a node.
const NODE_BYTES: u64 = 512;
/// Bytes of a read that is not from a text.
const PIECE_BYTES: usize = 1024;
/// Levels of a directory of which the path is shown.
const LEVELS_MAX: usize = 16;
/// In listings: numbers of processes and descriptors are behind these places.
const PROCESSES_PLACE: u64 = 1 << 32;
const DESCRIPTORS_PLACE: u64 = 1 << 16;
/// In the number of a node: the process is above the other bits; a bit for descriptors.
const PROCESS_SHIFT: u32 = 32;
const DESCRIPTOR_BIT: u64 = 1 << 31;

/// A node, made by a look-up.
pub struct ProcNode {
    file_system: u64,
    what: What,
    /// 0 if it is not about a process.
    process: ProcessId,
    /// The process that has looked it up.
    viewer: ProcessId,
    payer: Option<Family>,
    /// What was read first, and is read on.
    text: Mutex<Option<Kept>>,
    _charge: Option<Charge>,
}

struct Kept {
    text: Text,
    _charge: Option<Charge>,
}

fn charge(payer: Option<Family>, bytes: u64) -> Result<Option<Charge>, Errno> {
    payer.map(|payer| Charge::new(payer, &Amounts::of(Kind::Memory, bytes))).transpose()
}

impl ProcNode {
    /// The node of `what` of `process`, for process `viewer`, charged to `payer`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(
        file_system: u64,
        what: What,
        process: ProcessId,
        viewer: ProcessId,
        payer: Option<Family>,
    ) -> Result<Self, Errno> {
        let _charge = charge(payer, NODE_BYTES)?;
        Ok(Self { file_system, what, process, viewer, payer, text: Mutex::new(None), _charge })
    }

    /// Another node, for the caller in `ask`.
    fn node(&self, what: What, process: ProcessId, ask: &Ask) -> Result<NodeRef, Errno> {
        let node = Self::new(self.file_system, what, process, ask.caller(), ask.payer())?;
        Ok(try_arc(node)?)
    }

    /// The number within the file system.
    fn number(&self) -> u64 {
        let of_process = u64::from(self.process) << PROCESS_SHIFT;
        match self.what {
            What::Directory(ROOT) => 1,
            What::Descriptor(descriptor) => of_process | DESCRIPTOR_BIT | descriptor as u64,
            what => {
                let index = names::index_of(what, self.process != 0);
                of_process | index.map_or(2, |index| index as u64 + 3)
            }
        }
    }

    /// # Errors
    /// `ENOENT` if its process has been waited for.
    fn must_exist(&self, facts: &dyn Facts) -> Result<(), Errno> {
        let exists = self.process == 0 || facts.process_from(self.process) == Some(self.process);
        if exists { Ok(()) } else { Err(Errno::ENOENT) }
    }

    /// # Errors
    /// `EACCES` unless `viewer` may see what is not for all.
    fn must_be_for(&self, viewer: ProcessId, facts: &dyn Facts) -> Result<(), Errno> {
        if facts.may_examine(viewer, self.process) { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// The directory of which the names are in [`NAMES`].
    ///
    /// # Errors
    /// `ENOTDIR`.
    fn directory(&self) -> Result<names::Directory, Errno> {
        match self.what {
            What::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn find(&self, name: &str, ask: &Ask) -> Result<NodeRef, Errno> {
        let facts = facts()?;
        match (name, self.what) {
            (".", What::Directory(_) | What::Descriptors) => {
                return self.node(self.what, self.process, ask);
            }
            ("..", What::Directory(_) | What::Descriptors) => {
                let (above, process) = self.above();
                return self.node(What::Directory(above), process, ask);
            }
            (_, What::Descriptors) => {
                self.must_exist(facts)?;
                self.must_be_for(ask.caller(), facts)?;
                let descriptor = names::number(name).ok_or(Errno::ENOENT)?;
                drop(facts.open_file(self.process, descriptor)?);
                return self.node(What::Descriptor(descriptor), self.process, ask);
            }
            _ => {}
        }
        let directory = self.directory()?;
        self.must_exist(facts)?;
        if let Some((_, what)) = names::find(directory, name) {
            return self.node(what, self.process, ask);
        }
        let number = names::number(name).and_then(|number| ProcessId::try_from(number).ok());
        let id = number.filter(|&id| directory == ROOT && id != 0).ok_or(Errno::ENOENT)?;
        if facts.process_from(id) != Some(id) {
            return Err(Errno::ENOENT);
        }
        self.node(What::Directory(PROCESS), id, ask)
    }

    /// The directory above this one, and its process.
    fn above(&self) -> (names::Directory, ProcessId) {
        match self.what {
            What::Descriptors => (PROCESS, self.process),
            what => {
                let entry = names::index_of(what, false).and_then(|index| NAMES.get(index));
                (entry.map_or(ROOT, |entry| entry.directory), 0)
            }
        }
    }

    /// The text at `offset`, which is made anew at the beginning.
    fn read_text(
        &self,
        subject: Subject,
        offset: u64,
        buffer: &PinnedBuffer,
    ) -> Result<usize, Errno> {
        let mut kept = self.text.lock();
        if kept.is_none() || offset == 0 {
            // Its charge is returned before the new one is made.
            *kept = None;
            let text = facts()?.text(subject, self.process)?;
            let _charge = charge(self.payer, text.len() as u64)?;
            *kept = Some(Kept { text, _charge });
        }
        let text = kept.as_ref().map_or(&[][..], |kept| kept.text.as_bytes());
        let text = &text[..text.len().min(TEXT_BYTES_MAX)];
        let rest = usize::try_from(offset).ok().and_then(|offset| text.get(offset..));
        let rest = rest.unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer.write_at(0, &rest[..count]);
        Ok(count)
    }

    fn read_bytes(
        &self,
        subject: names::Bytes,
        offset: u64,
        buffer: &PinnedBuffer,
    ) -> Result<usize, Errno> {
        let mut bytes = [0; PIECE_BYTES];
        let bytes = &mut bytes[..buffer.len().min(PIECE_BYTES)];
        let count = facts()?.bytes(subject, self.process, offset, bytes)?;
        buffer.write_at(0, &bytes[..count]);
        Ok(count)
    }

    fn entry_after(&self, after: u64, records: &mut [u8], ask: &Ask) -> Result<Listed, Errno> {
        let facts = facts()?;
        if self.must_exist(facts).is_err() {
            return Ok(Listed::End);
        }
        let mut digits = Text::new();
        let (place, name, kind, what, process) = if let What::Descriptors = self.what {
            self.must_be_for(ask.caller(), facts)?;
            let from = after.saturating_sub(DESCRIPTORS_PLACE - 1) as usize;
            let Some(found) = facts.descriptor_from(self.process, from) else {
                return Ok(Listed::End);
            };
            write!(digits, "{found}").map_err(|_| Errno::ENOMEM)?;
            let place = DESCRIPTORS_PLACE + found as u64;
            (place, &*digits, mode::LINK, What::Descriptor(found), self.process)
        } else {
            let directory = self.directory()?;
            // The places up to 2 are the beginning; entry `n` has place `n + 3`.
            let from = usize::try_from(after.saturating_sub(2)).unwrap_or(usize::MAX);
            if let Some((index, entry)) = names::name_from(directory, from) {
                (index as u64 + 3, entry.name, kind_of(entry.what), entry.what, self.process)
            } else if directory == ROOT {
                let from = after.saturating_sub(PROCESSES_PLACE - 1);
                let from = ProcessId::try_from(from).unwrap_or(ProcessId::MAX).max(1);
                let Some(id) = facts.process_from(from) else { return Ok(Listed::End) };
                write!(digits, "{id}").map_err(|_| Errno::ENOMEM)?;
                let place = PROCESSES_PLACE + u64::from(id);
                (place, &*digits, mode::DIRECTORY, What::Directory(PROCESS), id)
            } else {
                return Ok(Listed::End);
            }
        };
        let number = Self::new(self.file_system, what, process, 0, None)?.number();
        let bytes = dirent::put(records, &dirent::Record { number, place, name, kind });
        Ok(bytes.map_or(Listed::NoRoom, |bytes| Listed::Records { bytes, place }))
    }

    /// Where a link of a process leads.
    fn follow(&self, which: Destination, viewer: ProcessId) -> Result<Found, Errno> {
        let facts = facts()?;
        self.must_be_for(viewer, facts)?;
        facts.destination(which, self.process)
    }

    fn open_file(&self, descriptor: usize, viewer: ProcessId) -> Result<Arc<File>, Errno> {
        let facts = facts()?;
        self.must_be_for(viewer, facts)?;
        facts.open_file(self.process, descriptor)
    }

    fn find_target(&self, ask: &mut Ask) -> Attempt<Text> {
        let found = match self.what {
            What::Own => {
                let mut text = Text::new();
                return Some(match ask.caller() {
                    0 => Err(Errno::ENOENT),
                    caller => write!(text, "{caller}").map(|()| text).map_err(|_| Errno::ENOMEM),
                });
            }
            What::Link(which) => self.follow(which, ask.caller()),
            What::Descriptor(descriptor) => {
                match self.open_file(descriptor, ask.caller()).map(|file| described(&file)) {
                    Ok(Described::Text(text)) => return Some(text),
                    Ok(Described::Directory(node)) => Ok(Found { node, path: None }),
                    Err(error) => Err(error),
                }
            }
            _ => Err(Errno::EINVAL),
        };
        match found {
            Ok(Found { path: Some(path), .. }) if path.is_empty() => Some(Err(Errno::ENAMETOOLONG)),
            Ok(Found { path: Some(path), .. }) => Some(Ok(path)),
            Ok(Found { node, path: None }) => path_of(node, ask),
            Err(error) => Some(Err(error)),
        }
    }
}

/// The type of a node.
fn kind_of(what: What) -> u32 {
    match what {
        What::Directory(_) | What::Descriptors => mode::DIRECTORY,
        What::Text(_) | What::Bytes(_) => mode::REGULAR,
        What::Own | What::Link(_) | What::Descriptor(_) => mode::LINK,
    }
}

/// What a link to an open file shows.
enum Described {
    /// This text.
    Text(Result<Text, Errno>),
    /// The path of this directory.
    Directory(NodeRef),
}

fn described(file: &File) -> Described {
    let mut text = Text::new();
    let number = file.number;
    let written = match &file.object {
        Object::ConsoleInput | Object::ConsoleOutput | Object::ConsoleError | Object::Console => {
            text.write_str("/dev/console")
        }
        Object::Node { node, .. } if is_directory(node) => {
            return Described::Directory(node.clone());
        }
        Object::Served(served) if is_directory(served.node()) => {
            return Described::Directory(served.node().clone());
        }
        Object::Node { node, .. } => write!(text, "file:[{}]", node.identity().1),
        Object::Served(served) => write!(text, "file:[{}]", served.node().identity().1),
        Object::Device { device, .. } => text.write_str(match device {
            Device::Null => "/dev/null",
            Device::Zero => "/dev/zero",
            Device::Full => "/dev/full",
            Device::Random => "/dev/urandom",
            Device::Console => "/dev/console",
            Device::Disk => "/dev/vda",
            Device::FileServer => "/dev/fs",
        }),
        Object::FileServer(_) => text.write_str("/dev/fs"),
        Object::Disk { .. } => text.write_str("/dev/vda"),
        Object::PipeReader(_) | Object::PipeWriter(_) => write!(text, "pipe:[{number}]"),
        Object::Socket(_) | Object::Datagrams(_) | Object::Paired(_) => {
            write!(text, "socket:[{number}]")
        }
        Object::Event(_) => text.write_str("anon_inode:[eventfd]"),
        Object::Timer(_) => text.write_str("anon_inode:[timerfd]"),
        Object::Epoll(_) => text.write_str("anon_inode:[eventpoll]"),
    };
    Described::Text(written.map(|()| text).map_err(|_| Errno::ENOMEM))
}

/// The path of a directory, unless that is very long.
pub fn path_of(mut at: NodeRef, ask: &mut Ask) -> Attempt<Text> {
    let mut path = Text::new();
    for _ in 0..LEVELS_MAX {
        if at.identity() == root().identity() {
            let is_root = path.is_empty();
            return Some(if is_root {
                Text::try_from_str("/").map_err(Errno::from)
            } else {
                Ok(path)
            });
        }
        if let Some(covered) = covered_by(&at) {
            at = covered;
            continue;
        }
        let (above, name) = match at.place(ask)? {
            Ok(Some(place)) => place,
            Ok(None) => return Some(Err(Errno::ENOENT)),
            Err(error) => return Some(Err(error)),
        };
        let mut longer = Text::new();
        if write!(longer, "/{name}{path}").is_err() {
            return Some(Err(Errno::ENOMEM));
        }
        (at, path) = (above, longer);
    }
    Some(Err(Errno::ENAMETOOLONG))
}

impl Node for ProcNode {
    fn identity(&self) -> (u64, u64) {
        (self.file_system, self.number())
    }

    fn kind(&self) -> u32 {
        kind_of(self.what)
    }

    fn status(&self, _ask: &mut Ask) -> Attempt<Status> {
        let status = || {
            self.must_exist(facts()?)?;
            let permissions = match self.what {
                What::Directory(_) => 0o555,
                What::Descriptors => 0o500,
                What::Bytes(names::Bytes::Environment) => 0o400,
                What::Text(_) | What::Bytes(_) => 0o444,
                What::Own | What::Link(_) => 0o777,
                What::Descriptor(_) => 0o700,
            };
            let now = timer::real_time();
            Ok(Status {
                file_system: self.file_system,
                number: self.number(),
                mode: self.kind() | permissions,
                links: if self.kind() == mode::DIRECTORY { 2 } else { 1 },
                accessed: now,
                modified: now,
                changed: now,
                ..Status::default()
            })
        };
        Some(status())
    }

    fn read(&self, offset: u64, buffer: &PinnedBuffer) -> Attempt<usize> {
        Some(match self.what {
            What::Text(subject) => self.read_text(subject, offset, buffer),
            What::Bytes(subject) => self.read_bytes(subject, offset, buffer),
            What::Directory(_) | What::Descriptors => Err(Errno::EISDIR),
            What::Own | What::Link(_) | What::Descriptor(_) => Err(Errno::EINVAL),
        })
    }

    fn write(&self, _: Option<u64>, _: &PinnedBuffer, _: Family) -> Attempt<(u64, usize)> {
        Some(Err(Errno::EACCES))
    }

    fn resize(self: Arc<Self>, _length: u64, _ask: &mut Ask) -> Attempt<()> {
        Some(Err(Errno::EACCES))
    }

    fn change(&self, change: Change, _ask: &mut Ask) -> Attempt<()> {
        // Changing nothing asks whether it can be written.
        let changes_nothing = change.permissions.is_none() && change.modified.is_none();
        Some(Err(if changes_nothing { Errno::EACCES } else { Errno::EPERM }))
    }

    fn look_up(&self, name: &str, ask: &mut Ask) -> Attempt<NodeRef> {
        Some(self.find(name, ask))
    }

    fn make(
        &self,
        name: &str,
        _new: New<'_>,
        _permissions: u32,
        _payer: Family,
        ask: &mut Ask,
    ) -> Attempt<NodeRef> {
        Some(Err(if self.find(name, ask).is_ok() { Errno::EEXIST } else { Errno::ENOENT }))
    }

    fn link(&self, _name: &str, _node: &NodeRef, _payer: Family, _ask: &mut Ask) -> Attempt<()> {
        Some(Err(Errno::EPERM))
    }

    fn unlink(&self, name: &str, _of_directory: bool, ask: &mut Ask) -> Attempt<()> {
        Some(Err(self.find(name, ask).map_or_else(|error| error, |_| Errno::EPERM)))
    }

    fn rename(
        &self,
        name: &str,
        _to: (&NodeRef, &str),
        _no_replace: bool,
        _payer: Family,
        ask: &mut Ask,
    ) -> Attempt<()> {
        Some(Err(self.find(name, ask).map_or_else(|error| error, |_| Errno::EPERM)))
    }

    fn list(&self, after: u64, records: &mut [u8], ask: &mut Ask) -> Attempt<Listed> {
        Some(self.entry_after(after, records, ask))
    }

    fn place(&self, ask: &mut Ask) -> Attempt<Option<(NodeRef, Text)>> {
        let place = || {
            let (above, process) = match self.what {
                What::Directory(ROOT) => return Ok(None),
                What::Directory(_) | What::Descriptors => self.above(),
                _ => return Err(Errno::ENOTDIR),
            };
            self.must_exist(facts()?)?;
            let mut name = Text::new();
            match names::index_of(self.what, false).and_then(|index| NAMES.get(index)) {
                Some(entry) => name.write_str(entry.name),
                None => write!(name, "{}", self.process),
            }
            .map_err(|_| Errno::ENOMEM)?;
            Ok(Some((self.node(What::Directory(above), process, ask)?, name)))
        };
        Some(place())
    }

    fn destination(&self, ask: &Ask) -> Result<Option<NodeRef>, Errno> {
        match self.what {
            What::Link(which) => Ok(Some(self.follow(which, ask.caller())?.node)),
            What::Descriptor(descriptor) => {
                let file = self.open_file(descriptor, ask.caller())?;
                Ok(file.node().ok().cloned())
            }
            _ => Ok(None),
        }
    }

    fn may_open(&self) -> Result<(), Errno> {
        match self.what {
            What::Bytes(names::Bytes::Environment | names::Bytes::Regions) | What::Descriptors => {
                self.must_be_for(self.viewer, facts()?)
            }
            _ => Ok(()),
        }
    }

    fn target(&self, ask: &mut Ask) -> Attempt<Text> {
        self.find_target(ask)
    }

    fn usage(&self, _ask: &mut Ask) -> Attempt<Usage> {
        Some(Ok(Usage { kind: KIND, ..Usage::default() }))
    }
}
