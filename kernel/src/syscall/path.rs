//! Calls that name files: each becomes a [`PathCall`], which may have to wait.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::errno::CallResult;
use cops_abi::file::{Status, Time, Usage, at, open};
use cops_abi::{Errno, syscall as number};
use cops_algorithms::path::Walk;
use cops_fallible::{List, Text, try_box};

use super::arguments::{Arguments, Directory};
use crate::call::{Operation, PathCall, Second, Then, store_status};
use crate::fs::{self, Ask, Change, Descriptor, File, Keep, NodeRef, Object, Terms};
use crate::mm::{self, Access, PinnedBuffer, UserRange};
use crate::process::Process;
use crate::sched::timer;

/// Flags of `newfstatat`.
const STATUS_FLAGS: usize = at::NO_FOLLOW | at::NO_AUTOMOUNT | at::EMPTY_PATH;
/// Flags of `statx`.
const EXTENDED_FLAGS: usize = STATUS_FLAGS | at::SYNCHRONISATION;
/// Flags of `faccessat2`.
const ACCESS_FLAGS: usize = at::NO_FOLLOW | at::EFFECTIVE | at::EMPTY_PATH;
/// Modes of `faccessat`: to execute, write and read.
const ACCESS_MODES: usize = 7;
/// The bits of permissions.
const PERMISSIONS: usize = 0o7777;
/// `renameat2`: does not replace.
const NO_REPLACE: usize = 1;
/// Times of `utimensat`, in the place of nanoseconds: now, and as it is.
const NOW: u64 = 0x3fff_ffff;
const OMIT: u64 = 0x3fff_fffe;

/// Either an operation, or a call that is completed.
pub enum Started {
    Operation(Operation),
    Done(CallResult),
}

impl From<CallResult> for Started {
    fn from(result: CallResult) -> Self {
        Self::Done(result)
    }
}

/// The paths and directories among the arguments of a call.
struct Paths<'a> {
    process: &'a Arc<Process>,
    args: &'a Arguments<'a>,
}

impl Paths<'_> {
    /// The directory in which a path begins: its argument has number `index`.
    fn base(&self, index: usize, path: &Text) -> Result<NodeRef, Errno> {
        if path.as_bytes().starts_with(b"/") {
            return Ok(fs::root_directory().clone());
        }
        match self.args.directory(index) {
            Directory::Working => Ok(self.process.files.lock().working()),
            Directory::Other => {
                let file = self.args.file(index)?;
                let node = file.node().map_err(|_| Errno::ENOTDIR)?;
                if fs::is_directory(node) { Ok(node.clone()) } else { Err(Errno::ENOTDIR) }
            }
        }
    }

    /// A call for a path: the argument `index` is its directory, the next one the path.
    fn call(&self, index: usize, follows: bool, then: Then) -> Result<Started, Errno> {
        let path = self.args.path(index + 1)?;
        let base = self.base(index, &path)?;
        start(PathCall::new(base, Walk::new(path)?, follows, then))
    }

    /// As [`Self::call`], for a path without a directory.
    fn in_working(&self, index: usize, then: Then) -> Result<Started, Errno> {
        let path = self.args.path(index)?;
        let base = if path.as_bytes().starts_with(b"/") {
            fs::root_directory().clone()
        } else {
            self.process.files.lock().working()
        };
        start(PathCall::new(base, Walk::new(path)?, true, then))
    }

    /// As [`Self::call`], for the second path of a call.
    fn second(&self, index: usize) -> Result<Second, Errno> {
        let path = self.args.path(index + 1)?;
        let base = self.base(index, &path)?;
        Ok(Second::new(base, Walk::new(path)?))
    }

    /// A call for an open file.
    fn of_file(&self, then: Then) -> Result<Started, Errno> {
        let file = self.args.file(0)?;
        start(PathCall::of_node(file.node()?.clone(), then))
    }

    /// Memory for a result.
    fn memory(&self, index: usize, bytes: usize) -> Result<PinnedBuffer, Errno> {
        Ok(self.pin(self.args.structure(index, bytes)?)?)
    }

    fn pin(&self, range: UserRange) -> Result<PinnedBuffer, mm::FaultError> {
        PinnedBuffer::new(&self.process.space, range, Access::Write)
    }

    /// The status of a path; of an open file if the path is empty and that is allowed.
    fn status(
        &self,
        flags: usize,
        into: PinnedBuffer,
        is_extended: bool,
    ) -> Result<Started, Errno> {
        if flags & at::EMPTY_PATH != 0
            && self.args.path(1)?.is_empty()
            && matches!(self.args.directory(0), Directory::Other)
        {
            return status_of_file(self.args.file(0)?, into, is_extended);
        }
        self.call_or_working(flags, Then::Status { into, is_extended })
    }

    /// As [`Self::call`] with these flags; an empty path may name the directory itself.
    fn call_or_working(&self, flags: usize, then: Then) -> Result<Started, Errno> {
        let path = self.args.path(1)?;
        let base = self.base(0, &path)?;
        if path.is_empty() && flags & at::EMPTY_PATH != 0 {
            return start(PathCall::of_node(base, then));
        }
        start(PathCall::new(base, Walk::new(path)?, flags & at::NO_FOLLOW == 0, then))
    }

    /// Permissions without those that the process masks.
    fn permissions(&self, index: usize) -> u32 {
        (self.args.number(index) & PERMISSIONS) as u32 & !self.process.files.lock().mask
    }

    /// The times of `utimensat`.
    fn times(&self, index: usize) -> Result<Change, Errno> {
        const BYTES: usize = 32;
        let now = timer::file_time();
        let mut bytes = [0; BYTES];
        let Some(range) = self.args.optional_structure(index, BYTES)? else {
            return Ok(Change { accessed: Some(now), modified: Some(now), ..Change::default() });
        };
        self.process.space.copy_in(range, &mut bytes)?;
        let [accessed, modified] = [0, 16].map(|at| {
            let word = |at: usize| {
                let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
                word.map_or(0, |word| u64::from_le_bytes(*word))
            };
            match word(at + 8) {
                NOW => Ok(Some(now)),
                OMIT => Ok(None),
                nanoseconds @ ..1_000_000_000 => {
                    Ok(Some(Time { seconds: word(at) as i64, nanoseconds: nanoseconds as u32 }))
                }
                _ => Err(Errno::EINVAL),
            }
        });
        Ok(Change { accessed: accessed?, modified: modified?, ..Change::default() })
    }

    /// The owner in arguments `index` and the next one: only the one user there is, or none.
    fn owner(&self, index: usize) -> Result<Change, Errno> {
        let is_known = |id: usize| matches!(id as u32, 0 | u32::MAX);
        if is_known(self.args.number(index)) && is_known(self.args.number(index + 1)) {
            Ok(Change::default())
        } else {
            Err(Errno::EPERM)
        }
    }
}

/// What the options of `mount` say: `fd=N`, with `root=NODE` or without, what there is of
/// `keep=pages` and `keep=writes`, and the descriptor of `disk=N`.
fn served_by(options: &str) -> Option<(Descriptor, u64, Keep, Option<Descriptor>)> {
    const ROOT: u64 = 1;
    let (mut descriptor, mut root, mut keep, mut disk) = (None, ROOT, Keep::Nothing, None);
    for option in options.split(',') {
        match option.split_once('=')? {
            ("fd", number) => descriptor = Some(Descriptor(number.parse().ok()?)),
            ("disk", number) => disk = Some(Descriptor(number.parse().ok()?)),
            ("root", number) => root = number.parse().ok().filter(|&root| root != 0)?,
            ("keep", "pages") => keep = Keep::Pages,
            ("keep", "writes") => keep = Keep::Writes,
            _ => return None,
        }
    }
    Some((descriptor?, root, keep, disk))
}

fn start(call: PathCall) -> Result<Started, Errno> {
    mm::admit()?;
    Ok(Started::Operation(Operation::Path(try_box(call)?)))
}

/// The status of an open file: stored, or a call that waits for the server of the file.
fn status_of_file(
    file: Arc<File>,
    into: PinnedBuffer,
    is_extended: bool,
) -> Result<Started, Errno> {
    if let Object::Served(served) = &file.object {
        let then = Then::Status { into, is_extended };
        return start(PathCall::of_node(served.node().clone(), then));
    }
    let status = file.attempt_status(&mut Ask::default()).unwrap_or(Err(Errno::EIO))?;
    store_status(&status, &into, is_extended);
    Ok(Started::Done(Ok(0)))
}

/// `getdents64(fd, buffer, length)`; of the buffer at most [`crate::call::LIST_BYTES_MAX`] bytes.
fn list(paths: &Paths<'_>) -> Result<Started, Errno> {
    let file: Arc<File> = paths.args.file(0)?;
    let range = paths.args.range_of_at_most(1, crate::call::LIST_BYTES_MAX)?;
    let node = file.node().map_err(|_| Errno::ENOTDIR)?.clone();
    let into = paths.pin(range)?;
    start(PathCall::of_node(node, Then::List { file, into }))
}

/// The calls of this module. `None` for another number.
#[inline(never)]
pub fn dispatch(
    process: &Arc<Process>,
    number: usize,
    args: &Arguments<'_>,
) -> Result<Option<Started>, Errno> {
    let paths = Paths { process, args };
    Ok(Some(match number {
        number::OPENAT => {
            let flags = args.number(2) as u32;
            let creates_new = open::CREATE | open::EXCLUSIVE;
            let follows = flags & open::NO_FOLLOW == 0 && flags & creates_new != creates_new;
            let permissions = paths.permissions(3);
            paths.call(0, follows, Then::Open { flags, permissions, number: None })?
        }
        number::GETDENTS64 => list(&paths)?,
        number::NEWFSTATAT => {
            let flags = args.flags(3, STATUS_FLAGS)?;
            paths.status(flags, paths.memory(2, Status::BYTES)?, false)?
        }
        number::STATX => {
            let flags = args.flags(2, EXTENDED_FLAGS)?;
            paths.status(flags, paths.memory(4, Status::EXTENDED_BYTES)?, true)?
        }
        number::FSTAT => {
            let file = args.file(0)?;
            status_of_file(file, paths.memory(1, Status::BYTES)?, false)?
        }
        number::FACCESSAT => {
            let mode = args.flags(2, ACCESS_MODES)?;
            paths.call(0, true, Then::Access { mode })?
        }
        number::FACCESSAT2 => {
            let mode = args.flags(2, ACCESS_MODES)?;
            let flags = args.flags(3, ACCESS_FLAGS)?;
            paths.call_or_working(flags, Then::Access { mode })?
        }
        number::MKDIRAT => {
            paths.call(0, false, Then::MakeDirectory { permissions: paths.permissions(2) })?
        }
        number::UNLINKAT => {
            let of_directory = args.flags(2, at::REMOVE_DIRECTORY)? != 0;
            paths.call(0, false, Then::Unlink { of_directory })?
        }
        number::SYMLINKAT => {
            let target = args.path(0)?;
            if target.is_empty() {
                return Err(Errno::ENOENT);
            }
            paths.call(1, false, Then::MakeLink { target })?
        }
        number::LINKAT => {
            let flags = args.flags(4, at::FOLLOW)?;
            paths.call(0, flags != 0, Then::Link { to: paths.second(2)? })?
        }
        number::RENAMEAT2 => {
            let no_replace = args.flags(4, NO_REPLACE)? != 0;
            paths.call(0, false, Then::Rename { to: paths.second(2)?, no_replace })?
        }
        number::READLINKAT => {
            if args.signed(3) <= 0 {
                return Err(Errno::EINVAL);
            }
            let into = paths.pin(args.range(2)?)?;
            paths.call(0, false, Then::ReadLink { into })?
        }
        number::CHDIR => paths.in_working(0, Then::ChangeDirectory)?,
        number::FCHDIR => {
            let file = args.file(0)?;
            let node = file.node().map_err(|_| Errno::ENOTDIR)?.clone();
            start(PathCall::of_node(node, Then::ChangeDirectory))?
        }
        number::GETCWD => {
            if args.number(1) == 0 {
                return Err(Errno::EINVAL);
            }
            let into = paths.pin(args.range(0)?)?;
            let working = process.files.lock().working();
            start(PathCall::of_node(working, Then::Where { into, names: List::new() }))?
        }
        number::TRUNCATE => {
            let length = args.offset(1)?;
            paths.in_working(0, Then::Resize { length })?
        }
        number::FTRUNCATE => {
            let (file, length) = (args.file(0)?, args.offset(1)?);
            if !file.is_writable() || file.is_directory() {
                return Err(Errno::EINVAL);
            }
            start(PathCall::of_node(file.node()?.clone(), Then::Resize { length }))?
        }
        number::FCHMOD => {
            let permissions = Some((args.number(1) & PERMISSIONS) as u32);
            paths.of_file(Then::Change(Change { permissions, ..Change::default() }))?
        }
        number::FCHMODAT => {
            let permissions = Some((args.number(2) & PERMISSIONS) as u32);
            paths.call(0, true, Then::Change(Change { permissions, ..Change::default() }))?
        }
        number::FCHOWN => {
            // The descriptor is examined first.
            drop(args.file(0)?);
            paths.of_file(Then::Change(paths.owner(1)?))?
        }
        number::FCHOWNAT => {
            let flags = args.flags(4, at::NO_FOLLOW | at::EMPTY_PATH)?;
            paths.call_or_working(flags, Then::Change(paths.owner(2)?))?
        }
        number::UTIMENSAT => {
            let flags = args.flags(3, at::NO_FOLLOW)?;
            let change = Then::Change(paths.times(2)?);
            if args.number(1) == 0 {
                paths.of_file(change)?
            } else {
                paths.call(0, flags == 0, change)?
            }
        }
        number::STATFS => {
            paths.in_working(0, Then::Usage { into: paths.memory(1, Usage::BYTES)? })?
        }
        number::FSTATFS => {
            drop(args.file(0)?);
            paths.of_file(Then::Usage { into: paths.memory(1, Usage::BYTES)? })?
        }
        number::SYNC => match fs::served_after(0) {
            // Files in memory keep nothing back.
            None => Ok(0).into(),
            Some((after, root)) => {
                start(PathCall::of_node(root, Then::SynchroniseAll { after, file: 0 }))?
            }
        },
        number::MOUNT => {
            if &*args.path(2)? != "served" {
                return Err(Errno::ENODEV);
            }
            args.flags(3, 0)?;
            let (server, root, keep, disk) = served_by(&args.path(4)?).ok_or(Errno::EINVAL)?;
            let server = process.files.lock().get(server)?;
            if !matches!(server.object, Object::FileServer(_)) {
                return Err(Errno::EINVAL);
            }
            let has_disk = disk.is_some();
            if let Some(disk) = disk {
                let disk = process.files.lock().get(disk)?;
                if !matches!(disk.object, Object::Disk { .. }) || keep == Keep::Nothing {
                    return Err(Errno::EINVAL);
                }
                // The server could read it all the same.
                if !disk.is_readable() {
                    return Err(Errno::EBADF);
                }
            }
            paths.in_working(1, Then::Mount { server, root, terms: Terms { keep, has_disk } })?
        }
        number::UMOUNT2 => {
            args.flags(1, 0)?;
            process.check_authority_over_machine()?;
            paths.in_working(0, Then::Unmount)?
        }
        number::UMASK => {
            let mask = (args.number(0) & 0o777) as u32;
            let before = core::mem::replace(&mut process.files.lock().mask, mask);
            Ok(before as usize).into()
        }
        _ => return Ok(None),
    }))
}
