//! Files that can be written: names, contents, links, the current directory, devices.

use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cops::abi::Errno::{self, *};
use cops::abi::file::{Status, Usage, at, mode, open};
use cops::abi::syscall::{self as number, AT_FDCWD};
use cops::io::{AsFd, Fd};
use cops::process::Resource;
use cops::task::{self, Priority};

use crate::harness::{Failure, Outcome, Test, soon};
use crate::raw::{self, BAD_ADDRESSES};
use crate::{check, check_equal, tests};
use times::{times_and_permissions, times_never_go_back};

mod times;

tests! { temporary:
    what_is_written_is_read,
    flags_of_open,
    an_open_without_a_number_changes_nothing,
    appended_lines_stay_whole,
    lengths,
    sparse_files,
    what_is_cut_off_leaves_nothing,
    directories,
    listings_are_complete,
    links_and_loops,
    links_are_charged_with_their_targets,
    renames,
    several_names,
    files_without_a_name_live_while_open,
    the_current_directory,
    long_and_deep_paths,
    times_and_permissions,
    times_never_go_back,
    devices,
    bad_arguments,
    other_file_systems,
    the_quota_is_a_full_disk,
    pages_come_back,
    racing_for_names,
    programs,
    large_files_and_directories,
}

const HERE: usize = AT_FDCWD as usize;

/// Whether the tests use the file system at [`SERVED`].
static IS_SERVED: AtomicBool = AtomicBool::new(false);
/// Where a process serves a file system.
pub const SERVED: &str = "/disk";
/// The tests that hold for any file system.
pub const OF_ANY_FILE_SYSTEM: [&str; 16] = [
    "what_is_written_is_read",
    "flags_of_open",
    "an_open_without_a_number_changes_nothing",
    "appended_lines_stay_whole",
    "lengths",
    "directories",
    "listings_are_complete",
    "links_and_loops",
    "renames",
    "several_names",
    "the_current_directory",
    "long_and_deep_paths",
    "times_and_permissions",
    "times_never_go_back",
    "racing_for_names",
    "programs",
];

/// Runs a test of this module with files at [`SERVED`].
pub async fn run_served(name: &str) -> cops::process::ExitCode {
    IS_SERVED.store(true, Relaxed);
    let is_it = |test: &&Test| test.name.strip_prefix("temporary::") == Some(name);
    crate::harness::run_here(TESTS.iter().find(is_it), name).await
}

/// As [`raw::refused`], of a call that may have to wait for a server.
fn refused<const COUNT: usize>(
    what: &str,
    number: usize,
    arguments: [usize; COUNT],
    error: Errno,
) -> Outcome {
    if !IS_SERVED.load(Relaxed) {
        return raw::refused(what, number, arguments, &[error]);
    }
    check_equal!(raw::call(number, arguments), Err(error), "{what}");
    Ok(())
}

/// A directory of this test in `/tmp`, or in a served file system. It is removed with all that is
/// in it.
struct Place(String);

impl Place {
    fn new() -> Result<Self, Failure> {
        let base = if IS_SERVED.load(Relaxed) { SERVED } else { "/tmp" };
        let path = format!("{base}/{}", cops::process::id());
        make_directory(&path)?;
        Ok(Self(path))
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = chdir("/");
        remove_all(&self.0);
    }
}

fn remove_all(path: &str) {
    let is_directory = status(path, at::NO_FOLLOW).is_ok_and(|it| it.kind() == mode::DIRECTORY);
    if is_directory {
        while let Ok(names) = list(path)
            && !names.is_empty()
        {
            for name in names {
                remove_all(&format!("{path}/{name}"));
            }
        }
    }
    let _ = unlink(path, if is_directory { at::REMOVE_DIRECTORY } else { 0 });
}

fn text(path: &str) -> CString {
    CString::new(path).unwrap_or_default()
}

fn open_at(path: &str, flags: u32) -> Result<Fd, Errno> {
    let path = text(path);
    let arguments = [HERE, path.as_ptr().addr(), flags as usize, 0o666];
    raw::call(number::OPENAT, arguments).map(|fd| Fd::from_raw(fd as i32))
}

const CREATE: u32 = open::CREATE | open::READ_WRITE;

fn fd(file: &Fd) -> usize {
    file.as_fd().raw() as usize
}

fn write(file: &Fd, bytes: &[u8]) -> Result<usize, Errno> {
    raw::call(number::WRITE, [fd(file), bytes.as_ptr().addr(), bytes.len()])
}

fn read(file: &Fd, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; length];
    let count = raw::call(number::READ, [fd(file), bytes.as_mut_ptr().addr(), length])?;
    bytes.truncate(count);
    Ok(bytes)
}

fn seek(file: &Fd, to: usize) -> Result<usize, Errno> {
    raw::call(number::LSEEK, [fd(file), to, 0])
}

fn contents(path: &str) -> Result<Vec<u8>, Errno> {
    let file = open_at(path, open::READ_ONLY)?;
    let mut all = Vec::new();
    loop {
        let part = read(&file, 16 * 1024)?;
        if part.is_empty() {
            return Ok(all);
        }
        all.extend(part);
    }
}

fn make(path: &str, bytes: &[u8]) -> Result<(), Errno> {
    let file = open_at(path, CREATE | open::TRUNCATE)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        rest = &rest[write(&file, rest)?..];
    }
    Ok(())
}

fn one_path(number: usize, path: &str, more: [usize; 2]) -> Result<usize, Errno> {
    let path = text(path);
    raw::call(number, [HERE, path.as_ptr().addr(), more[0], more[1]])
}

fn make_directory(path: &str) -> Result<usize, Errno> {
    one_path(number::MKDIRAT, path, [0o777, 0])
}

fn unlink(path: &str, flags: usize) -> Result<usize, Errno> {
    one_path(number::UNLINKAT, path, [flags, 0])
}

fn remove_directory(path: &str) -> Result<usize, Errno> {
    unlink(path, at::REMOVE_DIRECTORY)
}

fn two_paths(number: usize, one: &str, two: &str, flags: usize) -> Result<usize, Errno> {
    let (one, two) = (text(one), text(two));
    raw::call(number, [HERE, one.as_ptr().addr(), HERE, two.as_ptr().addr(), flags])
}

fn rename(from: &str, to: &str, flags: usize) -> Result<usize, Errno> {
    two_paths(number::RENAMEAT2, from, to, flags)
}

fn link(from: &str, to: &str) -> Result<usize, Errno> {
    two_paths(number::LINKAT, from, to, 0)
}

fn symbolic_link(target: &str, path: &str) -> Result<usize, Errno> {
    let (target, path) = (text(target), text(path));
    raw::call(number::SYMLINKAT, [target.as_ptr().addr(), HERE, path.as_ptr().addr()])
}

fn read_link(path: &str) -> Result<String, Errno> {
    let mut bytes = vec![0u8; 256];
    let count = one_path(number::READLINKAT, path, [bytes.as_mut_ptr().addr(), bytes.len()])?;
    bytes.truncate(count);
    String::from_utf8(bytes).map_err(|_| EIO)
}

fn status(path: &str, flags: usize) -> Result<Status, Errno> {
    let mut bytes = [0; Status::BYTES];
    one_path(number::NEWFSTATAT, path, [bytes.as_mut_ptr().addr(), flags])?;
    Ok(Status::from_bytes(&bytes))
}

fn chdir(path: &str) -> Result<usize, Errno> {
    let path = text(path);
    raw::call(number::CHDIR, [path.as_ptr().addr()])
}

fn working() -> Result<String, Errno> {
    let mut bytes = vec![0u8; 4096];
    let count = raw::call(number::GETCWD, [bytes.as_mut_ptr().addr(), bytes.len()])?;
    bytes.truncate(count - 1);
    String::from_utf8(bytes).map_err(|_| EIO)
}

fn list(path: &str) -> Result<Vec<String>, Errno> {
    let entries = cops::fs::read_directory(path)
        .map_err(|error| crate::harness::errno(error).unwrap_or(EIO))?;
    Ok(entries.into_iter().map(|entry| entry.name).collect())
}

fn truncate(path: &str, length: usize) -> Result<usize, Errno> {
    let path = text(path);
    raw::call(number::TRUNCATE, [path.as_ptr().addr(), length])
}

async fn what_is_written_is_read() -> Outcome {
    let place = Place::new()?;
    let path = place.path("file");
    let data: Vec<u8> = (0..100_000).map(|at| (at % 251) as u8).collect();
    make(&path, &data)?;
    check_equal!(status(&path, 0)?.size, 100_000, "size");
    check!(contents(&path)? == data, "other bytes");
    let file = open_at(&path, open::READ_WRITE)?;
    for at in [0, 1, 4095, 4096, 8190, 99_990] {
        seek(&file, at)?;
        check_equal!(write(&file, b"0123456789"), Ok(10), "written at {at}");
        seek(&file, at)?;
        check_equal!(read(&file, 10)?, b"0123456789", "read at {at}");
    }
    check_equal!(status(&path, 0)?.size, 100_000, "size");
    let place = b"xyz".as_ptr().addr();
    check_equal!(raw::call(number::PWRITE64, [fd(&file), place, 3, 50_000]), Ok(3), "pwrite64");
    check_equal!(&contents(&path)?[49_999..50_004], &[50, b'x', b'y', b'z', 54], "around it");
    Ok(())
}

async fn flags_of_open() -> Outcome {
    let place = Place::new()?;
    let path = place.path("file");
    check_equal!(open_at(&path, open::READ_ONLY).err(), Some(ENOENT), "open of nothing");
    drop(open_at(&path, CREATE)?);
    let exclusive = CREATE | open::EXCLUSIVE;
    check_equal!(open_at(&path, exclusive).err(), Some(EEXIST), "exclusive, and it exists");
    drop(open_at(&place.path("other"), exclusive)?);
    make(&path, b"12345")?;
    let reader = open_at(&path, open::READ_ONLY)?;
    check_equal!(write(&reader, b"x"), Err(EBADF), "write to a file open for reading");
    let writer = open_at(&path, open::WRITE_ONLY)?;
    check_equal!(read(&writer, 4), Err(EBADF), "read of a file open for writing");
    drop(open_at(&path, open::WRITE_ONLY | open::TRUNCATE)?);
    check_equal!(status(&path, 0)?.size, 0, "size of a truncated file");
    check_equal!(open_at(&path, open::DIRECTORY).err(), Some(ENOTDIR), "as a directory");
    check_equal!(open_at(&place.0, open::WRITE_ONLY).err(), Some(EISDIR), "a directory, to write");
    check_equal!(open_at(&place.path("file/"), CREATE).err(), Some(ENOTDIR), "with a slash");
    check_equal!(open_at(&place.path("none/"), CREATE).err(), Some(EISDIR), "with a slash");
    check_equal!(open_at(&place.path("file/x"), CREATE).err(), Some(ENOTDIR), "below a file");
    check_equal!(open_at(&place.path("no/x"), CREATE).err(), Some(ENOENT), "below nothing");
    for writes in [open::WRITE_ONLY, open::READ_WRITE, open::TRUNCATE] {
        check_equal!(open_at("/bin/hello", writes).err(), Some(EROFS), "the root image");
    }
    check_equal!(open_at("/bin/new", CREATE).err(), Some(EROFS), "a new file of the root image");
    let mask = raw::call(number::UMASK, [0o077])?;
    drop(open_at(&place.path("masked"), CREATE)?);
    check_equal!(status(&place.path("masked"), 0)?.mode & 0o777, 0o600, "permissions");
    check_equal!(raw::call(number::UMASK, [mask]), Ok(0o077), "the mask before");
    Ok(())
}

/// `open` takes its number first: without one, no file is created or truncated. A call that fails
/// gives its number up.
async fn an_open_without_a_number_changes_nothing() -> Outcome {
    let place = Place::new()?;
    let (kept, new) = (place.path("kept"), place.path("new"));
    make(&kept, b"kept")?;
    let spare = open_at(&kept, open::READ_ONLY)?;
    let used = cops::process::quota(0, Resource::Descriptors)?.used;
    raw::call(number::COPS_QUOTA, [0, Resource::Descriptors as usize, used as usize, 0])?;
    let truncate = open::WRITE_ONLY | open::TRUNCATE;
    for flags in [truncate, truncate | open::CREATE] {
        check_equal!(open_at(&kept, flags).err(), Some(EMFILE), "truncated");
    }
    check_equal!(status(&kept, 0)?.size, 4, "the size of a file that was not opened");
    for flags in [CREATE, CREATE | open::EXCLUSIVE] {
        check_equal!(open_at(&new, flags).err(), Some(EMFILE), "created");
    }
    check_equal!(status(&new, 0).err(), Some(ENOENT), "a file that was not opened");
    drop(spare);
    check_equal!(open_at(&new, open::READ_ONLY).err(), Some(ENOENT), "nothing");
    check_equal!(open_at(&kept, open::DIRECTORY).err(), Some(ENOTDIR), "not a directory");
    check_equal!(open_at(&kept, CREATE | open::EXCLUSIVE).err(), Some(EEXIST), "one that exists");
    drop(open_at(&kept, truncate)?);
    check_equal!(status(&kept, 0)?.size, 0, "the size of a file that was opened");
    drop(open_at(&new, CREATE | open::EXCLUSIVE)?);
    Ok(())
}

/// Lines that several coroutines append are not mixed.
async fn appended_lines_stay_whole() -> Outcome {
    const EACH: usize = 100;
    let place = Place::new()?;
    let path = place.path("log");
    let mut writers = Vec::new();
    for letter in [b'a', b'b', b'c'] {
        let file = open_at(&path, CREATE | open::APPEND)?;
        writers.push(task::spawn_join(
            async move {
                for _ in 0..EACH {
                    let mut line = vec![letter; 70];
                    line.push(b'\n');
                    if write(&file, &line) != Ok(71) {
                        return false;
                    }
                    task::yield_now().await;
                }
                true
            },
            Priority::DEFAULT,
        ));
    }
    for writer in writers {
        check!(soon("a writer", writer).await??, "a write failed");
    }
    let all = contents(&path)?;
    check_equal!(all.len(), 3 * EACH * 71, "bytes");
    for line in all.chunks(71) {
        check!(line[..70].iter().all(|&byte| byte == line[0]) && line[70] == b'\n', "a mixed line");
    }
    Ok(())
}

async fn lengths() -> Outcome {
    let place = Place::new()?;
    let path = place.path("file");
    make(&path, &[7; 10_000])?;
    for length in [9_999, 5_000, 4_096, 4_095, 20_000, 1, 0] {
        check_equal!(truncate(&path, length), Ok(0), "truncate to {length}");
        check_equal!(status(&path, 0)?.size, length as u64, "size");
    }
    make(&path, &[7; 10_000])?;
    truncate(&path, 5_000)?;
    let file = open_at(&path, open::READ_WRITE)?;
    check_equal!(raw::call(number::FTRUNCATE, [fd(&file), 12_000]), Ok(0), "ftruncate");
    let all = contents(&path)?;
    check!(all[..5_000].iter().all(|&byte| byte == 7), "the beginning has changed");
    check!(all[5_000..].iter().all(|&byte| byte == 0), "what was cut off is there again");
    let reader = open_at(&path, open::READ_ONLY)?;
    raw::refused("a file for reading", number::FTRUNCATE, [fd(&reader), 1], &[EINVAL])?;
    raw::refused("a negative length", number::FTRUNCATE, [fd(&file), usize::MAX], &[EINVAL])?;
    raw::refused("nothing", number::FTRUNCATE, [9999, 1], &[EBADF])?;
    let too_long = isize::MAX as usize;
    refused("a huge length", number::FTRUNCATE, [fd(&file), too_long], EFBIG)?;
    check_equal!(truncate(&place.0, 1), Err(EISDIR), "truncate of a directory");
    check_equal!(truncate(&place.path("none"), 1), Err(ENOENT), "truncate of nothing");
    check_equal!(truncate("/bin/hello", 1), Err(EROFS), "truncate in the root image");
    Ok(())
}

fn memory_used() -> Result<u64, Failure> {
    Ok(cops::process::quota(0, Resource::Memory)?.used)
}

/// Pages that were not written take no memory and are zeros.
async fn sparse_files() -> Outcome {
    let place = Place::new()?;
    let file = open_at(&place.path("file"), CREATE)?;
    let before = memory_used()?;
    for at in [0, 1 << 20, 1 << 30, 1 << 40] {
        seek(&file, at)?;
        check_equal!(write(&file, b"x"), Ok(1), "written at {at:#x}");
    }
    let more = memory_used()? - before;
    check_equal!(more, 4 * 4096, "memory of four pages");
    seek(&file, (1 << 30) - 4)?;
    check_equal!(read(&file, 8)?, b"\0\0\0\0x\0\0\0", "around a page");
    check_equal!(raw::call(number::FTRUNCATE, [fd(&file), 1 << 20]), Ok(0), "ftruncate");
    crate::harness::until("the memory", || Ok(memory_used()? - before == 4096)).await
}

/// A page is written where there was none before, and cut off again, each time further on.
async fn what_is_cut_off_leaves_nothing() -> Outcome {
    const STRIDE: usize = 64 * 4096;
    const ROUNDS: usize = 4000;
    let place = Place::new()?;
    let file = open_at(&place.path("file"), CREATE)?;
    let charged = memory_used()?;
    let before = cops::memory::statistics()?.frames_free;
    for at in (1..=ROUNDS).map(|round| round * STRIDE) {
        let write = [fd(&file), c"x".as_ptr().expose_provenance(), 1, at];
        check_equal!(raw::call(number::PWRITE64, write), Ok(1), "written at {at:#x}");
        check_equal!(raw::call(number::FTRUNCATE, [fd(&file), at]), Ok(0), "ftruncate");
    }
    let taken = before.saturating_sub(cops::memory::statistics()?.frames_free);
    // A node for each round would be some 1,300 frames.
    check!(taken < 400, "{taken} frames are missing");
    crate::harness::until("the memory", || Ok(memory_used()? == charged)).await
}

async fn directories() -> Outcome {
    let place = Place::new()?;
    let inner = place.path("d");
    check_equal!(make_directory(&inner), Ok(0), "mkdirat");
    check_equal!(make_directory(&inner), Err(EEXIST), "of one that exists");
    check_equal!(make_directory(&place.path("with-slash/")), Ok(0), "with a slash");
    check_equal!(make_directory(&place.path("no/d")), Err(ENOENT), "below nothing");
    check_equal!(make_directory(&place.path(".")), Err(EEXIST), "of itself");
    check_equal!(make_directory("/d"), Err(EROFS), "in the root image");
    check_equal!(make_directory("/bin"), Err(EEXIST), "of one of the root image");
    check_equal!(status(&place.0, 0)?.links, 4, "links of a directory with two");
    make(&place.path("d/file"), b"")?;
    check_equal!(remove_directory(&inner), Err(ENOTEMPTY), "rmdir of a full directory");
    check_equal!(unlink(&inner, 0), Err(EISDIR), "unlink of a directory");
    check_equal!(remove_directory(&place.path("d/file")), Err(ENOTDIR), "rmdir of a file");
    check_equal!(unlink(&place.path("d/file/"), 0), Err(ENOTDIR), "unlink with a slash");
    check_equal!(unlink(&place.path("d/file"), 0), Ok(0), "unlink");
    check_equal!(unlink(&place.path("d/file"), 0), Err(ENOENT), "unlink of nothing");
    check_equal!(remove_directory(&place.path("d/.")), Err(EINVAL), "rmdir of .");
    check_equal!(remove_directory(&place.path("d/..")), Err(ENOTEMPTY), "rmdir of ..");
    let handle = open_at(&inner, open::DIRECTORY)?;
    check_equal!(remove_directory(&inner), Ok(0), "rmdir");
    check_equal!(status(&place.0, 0)?.links, 3, "links of a directory with one");
    let name = c"x".as_ptr().addr();
    let create = [fd(&handle), name, CREATE as usize, 0];
    check_equal!(raw::call(number::OPENAT, create), Err(ENOENT), "in a removed directory");
    let mounted = if IS_SERVED.load(Relaxed) { SERVED } else { "/tmp" };
    check_equal!(remove_directory(mounted), Err(EBUSY), "rmdir of a file system");
    check_equal!(unlink("/bin/hello", 0), Err(EROFS), "unlink in the root image");
    Ok(())
}

async fn listings_are_complete() -> Outcome {
    const COUNT: usize = 300;
    let place = Place::new()?;
    for name in 0..COUNT {
        drop(open_at(&place.path(&format!("name-{name}")), CREATE)?);
    }
    let directory = open_at(&place.0, open::DIRECTORY)?;
    let mut buffer = [0u8; 400];
    let mut names = Vec::new();
    let mut gone = 0;
    loop {
        let arguments = [fd(&directory), buffer.as_mut_ptr().addr(), buffer.len()];
        let count = raw::call(number::GETDENTS64, arguments)?;
        let mut rest = &buffer[..count];
        while let Some(length) = rest.get(16..18) {
            let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
            let name = rest[19..length].split(|&byte| byte == 0).next().unwrap_or_default();
            names.push(String::from_utf8_lossy(name).into_owned());
            rest = &rest[length..];
        }
        if count == 0 {
            break;
        }
        // While it is listed, others come and go. Not for ever: new ones may be the last of the
        // listing.
        if gone < COUNT / 15 {
            drop(open_at(&place.path(&format!("new-{gone}")), CREATE)?);
            unlink(&place.path(&format!("name-{gone}")), 0)?;
            gone += 1;
        }
    }
    check_equal!(names[..2], [String::from("."), String::from("..")], "the first two");
    for name in gone..COUNT {
        let wanted = format!("name-{name}");
        let count = names.iter().filter(|name| **name == wanted).count();
        check_equal!(count, 1, "entries called {wanted}");
    }
    seek(&directory, 0)?;
    let arguments = [fd(&directory), buffer.as_mut_ptr().addr(), buffer.len()];
    check!(raw::call(number::GETDENTS64, arguments)? > 0, "nothing after a seek to the start");
    // At the place of the first name, which a server has to find.
    seek(&directory, 2)?;
    refused("a short buffer", number::GETDENTS64, [fd(&directory), arguments[1], 8], EINVAL)
}

async fn links_and_loops() -> Outcome {
    let place = Place::new()?;
    make(&place.path("file"), b"contents")?;
    make_directory(&place.path("d"))?;
    symbolic_link("file", &place.path("link"))?;
    check_equal!(read_link(&place.path("link"))?, "file", "where it leads");
    check_equal!(contents(&place.path("link"))?, b"contents", "through the link");
    check_equal!(status(&place.path("link"), 0)?.kind(), mode::REGULAR, "its target's type");
    check_equal!(status(&place.path("link"), at::NO_FOLLOW)?.kind(), mode::LINK, "its type");
    let flags = open::READ_ONLY | open::NO_FOLLOW;
    check_equal!(open_at(&place.path("link"), flags).err(), Some(ELOOP), "not followed");
    let exclusive = CREATE | open::EXCLUSIVE;
    check_equal!(open_at(&place.path("link"), exclusive).err(), Some(EEXIST), "exclusive");
    check_equal!(symbolic_link("x", &place.path("link")), Err(EEXIST), "one that exists");
    check_equal!(symbolic_link("", &place.path("empty")), Err(ENOENT), "to nowhere");
    check_equal!(read_link(&place.path("file")), Err(EINVAL), "readlink of a file");
    // Absolute, upward, through another link, and to what does not exist.
    symbolic_link(&place.path("file"), &place.path("d/absolute"))?;
    symbolic_link("../link", &place.path("d/upward"))?;
    check_equal!(contents(&place.path("d/absolute"))?, b"contents", "absolute");
    check_equal!(contents(&place.path("d/upward"))?, b"contents", "upward");
    symbolic_link("d", &place.path("to-d"))?;
    check_equal!(contents(&place.path("to-d/upward"))?, b"contents", "in the middle");
    check_equal!(status(&place.path("to-d/"), at::NO_FOLLOW)?.kind(), mode::DIRECTORY, "a slash");
    symbolic_link("new", &place.path("dangling"))?;
    check_equal!(contents(&place.path("dangling")).err(), Some(ENOENT), "to what does not exist");
    drop(open_at(&place.path("dangling"), CREATE)?);
    check_equal!(status(&place.path("new"), 0)?.size, 0, "created through a link");
    // Loops.
    symbolic_link("loop", &place.path("loop"))?;
    symbolic_link("b", &place.path("a"))?;
    symbolic_link("a", &place.path("b"))?;
    for name in ["loop", "a", "loop/x", "a/b"] {
        check_equal!(open_at(&place.path(name), CREATE).err(), Some(ELOOP), "{name}");
        check_equal!(status(&place.path(name), 0).err(), Some(ELOOP), "{name}");
    }
    // A chain of forty is followed, one of forty-one is not.
    symbolic_link("file", &place.path("chain-1"))?;
    for number in 2..=41 {
        symbolic_link(&format!("chain-{}", number - 1), &place.path(&format!("chain-{number}")))?;
    }
    check_equal!(contents(&place.path("chain-40"))?, b"contents", "through forty links");
    check_equal!(contents(&place.path("chain-41")).err(), Some(ELOOP), "through forty-one");
    Ok(())
}

/// What a symbolic link says is the memory of the process that has made it.
async fn links_are_charged_with_their_targets() -> Outcome {
    const LINKS: u64 = 100;
    const LENGTH: usize = 4000;
    let place = Place::new()?;
    let target = "x/".repeat(LENGTH / 2);
    let before = memory_used()?;
    for link in 0..LINKS {
        symbolic_link(&target, &place.path(&format!("{link}")))?;
    }
    let charged = memory_used()? - before;
    check!(charged >= LINKS * LENGTH as u64, "only {charged} bytes are charged");
    for link in 0..LINKS {
        unlink(&place.path(&format!("{link}")), 0)?;
    }
    crate::harness::until("the memory", || Ok(memory_used()? < before + LENGTH as u64)).await
}

async fn renames() -> Outcome {
    const NO_REPLACE: usize = 1;
    let place = Place::new()?;
    let path = |name: &str| place.path(name);
    make(&path("a"), b"a")?;
    make(&path("b"), b"b")?;
    make_directory(&path("d"))?;
    make_directory(&path("d/e"))?;
    check_equal!(rename(&path("a"), &path("b"), NO_REPLACE), Err(EEXIST), "without replacing");
    check_equal!(rename(&path("a"), &path("b"), 0), Ok(0), "replacing");
    check_equal!(contents(&path("b"))?, b"a", "what was renamed");
    check_equal!(status(&path("a"), 0).err(), Some(ENOENT), "the old name");
    check_equal!(rename(&path("a"), &path("c"), 0), Err(ENOENT), "nothing");
    check_equal!(rename(&path("b"), &path("d"), 0), Err(EISDIR), "a file over a directory");
    check_equal!(rename(&path("d"), &path("b"), 0), Err(ENOTDIR), "a directory over a file");
    check_equal!(rename(&path("d"), &path("d/e/x"), 0), Err(EINVAL), "into itself");
    check_equal!(rename(&path("d/e"), &path("d"), 0), Err(ENOTEMPTY), "over its parent");
    check_equal!(rename(&path("d/."), &path("x"), 0), Err(EBUSY), "of .");
    check_equal!(rename(&path("b"), &path("b"), 0), Ok(0), "to itself");
    check_equal!(rename(&path("b"), &path("x/"), 0), Err(ENOTDIR), "a file, with a slash");
    check_equal!(rename(&path("d/e"), &path("f"), 0), Ok(0), "a directory");
    check_equal!(status(&path("d"), 0)?.links, 2, "links of where it was");
    chdir(&path("f"))?;
    check_equal!(working()?, path("f"), "its path");
    rename(&path("f"), &path("d/g"), 0)?;
    check_equal!(working()?, path("d/g"), "its new path");
    check_equal!(rename(&path("b"), "/b", 0), Err(EXDEV), "to another file system");
    check_equal!(rename("/tmp", "/x", 0), Err(EBUSY), "of a file system");
    check_equal!(rename("/bin", "/tmp", 0), Err(EBUSY), "over a file system");
    check_equal!(rename("/bin/hello", "/bin/x", 0), Err(EROFS), "in the root image");
    check_equal!(rename(&path("b"), &path("x"), 2), Err(EINVAL), "flags");
    Ok(())
}

async fn several_names() -> Outcome {
    let place = Place::new()?;
    let path = |name: &str| place.path(name);
    make(&path("one"), b"1")?;
    check_equal!(link(&path("one"), &path("two")), Ok(0), "linkat");
    let (one, two) = (status(&path("one"), 0)?, status(&path("two"), 0)?);
    check_equal!((one.number, one.links), (two.number, 2), "the node of both");
    make(&path("two"), b"changed")?;
    check_equal!(contents(&path("one"))?, b"changed", "through the other name");
    unlink(&path("one"), 0)?;
    check_equal!(contents(&path("two"))?, b"changed", "after the first name is gone");
    check_equal!(status(&path("two"), 0)?.links, 1, "links");
    check_equal!(link(&path("two"), &path("two")), Err(EEXIST), "to itself");
    check_equal!(link(&path("none"), &path("x")), Err(ENOENT), "of nothing");
    check_equal!(link(&place.0, &path("x")), Err(EPERM), "of a directory");
    check_equal!(link(&path("two"), "/bin/x"), Err(EXDEV), "to another file system");
    symbolic_link("two", &path("link"))?;
    check_equal!(link(&path("link"), &path("link-2")), Ok(0), "of a link");
    check_equal!(read_link(&path("link-2"))?, "two", "the link's other name");
    check_equal!(
        two_paths(number::LINKAT, &path("link"), &path("3"), at::FOLLOW),
        Ok(0),
        "followed"
    );
    check_equal!(status(&path("3"), at::NO_FOLLOW)?.number, two.number, "the link's target");
    Ok(())
}

/// More than the heap of this process may grow during a test, which is charged too.
const OWN_BYTES: u64 = 1 << 20;

async fn files_without_a_name_live_while_open() -> Outcome {
    const PAGES: u64 = 2 * OWN_BYTES / 4096;
    let place = Place::new()?;
    let path = place.path("file");
    let before = memory_used()?;
    let file = open_at(&path, CREATE)?;
    for _ in 0..PAGES {
        write(&file, &[3; 4096])?;
    }
    unlink(&path, 0)?;
    seek(&file, 0)?;
    check_equal!(read(&file, 8)?, [3; 8], "after unlink");
    check_equal!(write(&file, b"more"), Ok(4), "a write after unlink");
    check!(memory_used()? > before + PAGES * 4096, "its pages are not charged");
    drop(open_at(&path, CREATE | open::EXCLUSIVE)?);
    unlink(&path, 0)?;
    drop(file);
    crate::harness::until("the memory", || Ok(memory_used()? <= before + OWN_BYTES)).await
}

async fn the_current_directory() -> Outcome {
    check_equal!(working()?, "/", "at the start");
    let place = Place::new()?;
    make_directory(&place.path("d"))?;
    check_equal!(chdir(&place.0), Ok(0), "chdir");
    check_equal!(working()?, place.0, "getcwd");
    make("file", b"here")?;
    check_equal!(contents(&place.path("file"))?, b"here", "a relative path");
    check_equal!(contents("d/../file")?, b"here", "a path with ..");
    check_equal!(chdir("d"), Ok(0), "to a relative path");
    check_equal!(working()?, place.path("d"), "getcwd");
    check_equal!(contents("../file")?, b"here", "upward");
    check_equal!(chdir("../file"), Err(ENOTDIR), "to a file");
    check_equal!(chdir("none"), Err(ENOENT), "to nothing");
    check_equal!(chdir("../../.."), Ok(0), "to the root");
    check_equal!(working()?, "/", "getcwd at the root");
    check_equal!(chdir(".."), Ok(0), "above the root");
    let directory = open_at(&place.path("d"), open::DIRECTORY)?;
    check_equal!(raw::call(number::FCHDIR, [fd(&directory)]), Ok(0), "fchdir");
    check_equal!(working()?, place.path("d"), "getcwd after fchdir");
    raw::refused("fchdir to nothing", number::FCHDIR, [9999], &[EBADF])?;
    raw::refused("fchdir to the console", number::FCHDIR, [1], &[ENOTDIR])?;
    let mut bytes = [0u8; 4];
    let buffer = bytes.as_mut_ptr().addr();
    refused("a short buffer", number::GETCWD, [buffer, 4], ERANGE)?;
    raw::refused("no buffer", number::GETCWD, [buffer, 0], &[EINVAL])?;
    // Another process begins at the root.
    let status = crate::harness::run(&[crate::processes::HELPER, "exit", "0"]).await?;
    check!(status.code() == Some(0), "{status}");
    remove_directory(&place.path("d"))?;
    check_equal!(working(), Err(ENOENT), "of a directory that was removed");
    check_equal!(open_at("x", CREATE).err(), Some(ENOENT), "in it");
    // Paths that begin at a descriptor.
    let directory = open_at(&place.0, open::DIRECTORY)?;
    let relative = [fd(&directory), c"file".as_ptr().addr(), 0, 0];
    drop(Fd::from_raw(raw::call(number::OPENAT, relative)? as i32));
    let file = open_at(&place.path("file"), 0)?;
    raw::refused("from a file", number::OPENAT, [fd(&file), relative[1], 0, 0], &[ENOTDIR])?;
    raw::refused("from the console", number::OPENAT, [1, relative[1], 0, 0], &[ENOTDIR])?;
    raw::refused("from nothing", number::OPENAT, [9999, relative[1], 0, 0], &[EBADF])
}

/// A path of thousands of components is walked in portions.
async fn long_and_deep_paths() -> Outcome {
    let place = Place::new()?;
    make_directory(&place.path("d"))?;
    make(&place.path("d/file"), b"found")?;
    let long = format!("{}/{}file", place.0, "d/../".repeat(800).clone() + "d/");
    check!(long.len() < 4096, "the path is too long");
    check_equal!(contents(&long)?, b"found", "a path of {} bytes", long.len());
    let longer = "d/../".repeat(820) + "x";
    check_equal!(status(&longer, 0).err(), Some(ENAMETOOLONG), "a path of {} bytes", longer.len());
    let name = "n".repeat(255);
    make(&place.path(&name), b"")?;
    check_equal!(status(&place.path(&"n".repeat(256)), 0).err(), Some(ENAMETOOLONG), "a name");
    // Deeper than any path is long: by one relative directory after the other.
    chdir(&place.0)?;
    let mut depth = 0;
    for _ in 0..200 {
        make_directory("deep")?;
        chdir("deep")?;
        depth += 1;
    }
    check_equal!(working(), Err(ENAMETOOLONG), "the path of directory {depth}");
    make_directory("last")?;
    if !IS_SERVED.load(Relaxed) {
        let moved = rename(&place.path("d"), "last/d", 0);
        check_equal!(moved, Err(ENAMETOOLONG), "a directory moved below too many");
    }
    remove_directory("last")?;
    for _ in 0..depth {
        chdir("..")?;
        remove_directory("deep")?;
    }
    check_equal!(working()?, place.0, "back");
    Ok(())
}

/// A program is executed from there, with the contents that it has.
async fn programs() -> Outcome {
    let place = Place::new()?;
    let (path, script) = (place.path("program"), place.path("script"));
    let from = open_at("/bin/hello", open::READ_ONLY)?;
    let mut all = Vec::new();
    loop {
        let part = read(&from, 16_384)?;
        if part.is_empty() {
            break;
        }
        all.extend_from_slice(&part);
    }
    make(&path, &all)?;
    make(&script, format!("#!{path}").as_bytes())?;
    let executed = |path: &str, code: u8| {
        let child = crate::forks::fork(|| crate::programs::execute(path, &["program"]) as u8)?;
        let (_, status) = cops::wait!(Some(child))?;
        check_equal!(status.code(), Some(code), "{path}");
        Ok::<(), Failure>(())
    };
    executed(&path, EACCES as u8)?;
    for path in [&path, &script] {
        check_equal!(one_path(number::FCHMODAT, path, [0o700, 0]), Ok(0), "fchmodat");
    }
    executed(&path, 0)?;
    executed(&script, 0)?;
    chdir(&place.0)?;
    executed("program", 0)?;
    executed("./script", 0)?;
    // Open for writing, too, and with other contents afterwards.
    let file = open_at(&path, open::READ_WRITE)?;
    executed("program", 0)?;
    check_equal!(write(&file, b"x"), Ok(1), "a write");
    executed("program", ENOEXEC as u8)?;
    check_equal!(seek(&file, 0), Ok(0), "lseek");
    check_equal!(write(&file, b"\x7f"), Ok(1), "a write");
    executed("program", 0)?;
    check_equal!(raw::call(number::FTRUNCATE, [fd(&file), 5000]), Ok(0), "ftruncate");
    executed("program", ENOEXEC as u8)
}

async fn devices() -> Outcome {
    let null = open_at("/dev/null", open::READ_WRITE)?;
    check_equal!(read(&null, 8)?, b"", "of null");
    check_equal!(write(&null, &[1; 5000]), Ok(5000), "to null");
    let zero = open_at("/dev/zero", open::READ_WRITE)?;
    check_equal!(read(&zero, 5000)?, [0; 5000], "of zero");
    check_equal!(write(&zero, b"x"), Ok(1), "to zero");
    let full = open_at("/dev/full", open::READ_WRITE)?;
    check_equal!(read(&full, 8)?, [0; 8], "of full");
    check_equal!(write(&full, b"x"), Err(ENOSPC), "to full");
    for path in ["/dev/random", "/dev/urandom"] {
        let random = open_at(path, open::READ_ONLY)?;
        let (one, two) = (read(&random, 32)?, read(&random, 32)?);
        check!(one.len() == 32 && one != two, "{path}: {one:x?} and {two:x?}");
    }
    let tty = open_at("/dev/tty", open::READ_WRITE)?;
    check_equal!(write(&tty, b"# to the terminal\n"), Ok(18), "to the terminal");
    check_equal!(status("/dev/null", 0)?.kind(), mode::CHARACTER_DEVICE, "type");
    check_equal!(status("/dev/null", 0)?.device, 0x103, "number");
    let writer = open_at("/dev/zero", open::WRITE_ONLY)?;
    check_equal!(read(&writer, 1), Err(EBADF), "of a device open for writing");
    check_equal!(unlink("/dev/null", 0), Err(EROFS), "unlink of a device");
    drop(open_at("/dev/null", CREATE | open::TRUNCATE)?);
    Ok(())
}

/// Each call with paths and results at addresses that no program should pass.
async fn bad_arguments() -> Outcome {
    let good = c"/tmp".as_ptr().addr();
    let file = open_at("/tmp", open::DIRECTORY)?;
    for &bad in BAD_ADDRESSES {
        let fault = |what: &str, number: usize, arguments: [usize; 5]| {
            raw::refused(what, number, arguments, &[EFAULT])
        };
        for (what, number) in [
            ("mkdirat", number::MKDIRAT),
            ("unlinkat", number::UNLINKAT),
            ("faccessat", number::FACCESSAT),
            ("fchmodat", number::FCHMODAT),
        ] {
            fault(what, number, [HERE, bad, 0, 0, 0])?;
        }
        for (what, number) in [("chdir", number::CHDIR), ("truncate", number::TRUNCATE)] {
            fault(what, number, [bad, 0, 0, 0, 0])?;
        }
        fault("symlinkat", number::SYMLINKAT, [bad, HERE, good, 0, 0])?;
        fault("symlinkat", number::SYMLINKAT, [good, HERE, bad, 0, 0])?;
        for (what, number) in [("linkat", number::LINKAT), ("renameat2", number::RENAMEAT2)] {
            fault(what, number, [HERE, bad, HERE, good, 0])?;
            fault(what, number, [HERE, good, HERE, bad, 0])?;
        }
        fault("readlinkat", number::READLINKAT, [HERE, good, bad, 8, 0])?;
        fault("getcwd", number::GETCWD, [bad, 8, 0, 0, 0])?;
        fault("statfs", number::STATFS, [good, bad, 0, 0, 0])?;
        fault("fstatfs", number::FSTATFS, [fd(&file), bad, 0, 0, 0])?;
        if bad != 0 {
            fault("utimensat's path", number::UTIMENSAT, [HERE, bad, 0, 0, 0])?;
            fault("utimensat", number::UTIMENSAT, [HERE, good, bad, 0, 0])?;
        }
    }
    raw::refused("unlinkat's flags", number::UNLINKAT, [HERE, good, 1], &[EINVAL])?;
    raw::refused("linkat's flags", number::LINKAT, [HERE, good, HERE, good, 1], &[EINVAL])?;
    raw::refused("readlinkat's length", number::READLINKAT, [HERE, good, good, 0], &[EINVAL])?;
    let empty = c"".as_ptr().addr();
    for number in [number::MKDIRAT, number::UNLINKAT, number::FACCESSAT, number::OPENAT] {
        raw::refused("an empty path", number, [HERE, empty, 0, 0], &[ENOENT])?;
    }
    let not_text = [0xffu8, 0xfe, 0];
    let not_text = not_text.as_ptr().addr();
    raw::refused("a path that is no text", number::MKDIRAT, [HERE, not_text, 0], &[EINVAL])
}

async fn other_file_systems() -> Outcome {
    let mut bytes = [0u8; Usage::BYTES];
    let place = bytes.as_mut_ptr().addr();
    for path in [c"/", c"/tmp", c"/dev/null"] {
        check_equal!(raw::call(number::STATFS, [path.as_ptr().addr(), place]), Ok(0), "statfs");
        check_equal!(bytes[8..10], 4096u16.to_le_bytes(), "size of a block");
        check!(bytes[40..48] != [0; 8], "{path:?} has no room for files");
    }
    raw::refused("fstatfs of nothing", number::FSTATFS, [9999, place], &[EBADF])?;
    let systems = [status("/", 0)?, status("/tmp", 0)?, status("/dev", 0)?];
    check!(
        systems[0].file_system != systems[1].file_system
            && systems[1].file_system != systems[2].file_system,
        "file systems of the same number"
    );
    check_equal!(status("/tmp/..", 0)?.number, systems[0].number, "above /tmp");
    check_equal!(status("/tmp/../bin/../dev/.", 0)?.file_system, systems[2].file_system, "across");
    let names = list("/")?;
    check!(["bin", "tmp", "dev"].iter().all(|name| names.iter().any(|it| it == name)), "{names:?}");
    Ok(())
}

/// The memory of files is the writer's. A file that cannot grow keeps what it has.
async fn the_quota_is_a_full_disk() -> Outcome {
    let place = Place::new()?;
    let limit = memory_used()? + (1 << 20);
    raw::call(number::COPS_QUOTA, [0, 0, limit as usize, 0])?;
    let file = open_at(&place.path("file"), CREATE)?;
    let mut written = 0;
    let error = loop {
        match write(&file, &[9; 8192]) {
            Ok(count) => written += count,
            Err(error) => break error,
        }
        check!(written <= 1 << 20, "more than the quota");
    };
    check_equal!(error, ENOSPC, "the error");
    check!(written > 900_000, "only {written} bytes");
    check_equal!(status(&place.path("file"), 0)?.size, written as u64, "size");
    let mut names = 0;
    let error = loop {
        match make_directory(&place.path(&format!("name-{names}"))) {
            Ok(_) => names += 1,
            Err(error) => break error,
        }
        check!(names < 10_000, "names without end");
    };
    check_equal!(error, ENOSPC, "the error of one name too many");
    check_equal!(raw::call(number::FTRUNCATE, [fd(&file), 0]), Ok(0), "ftruncate");
    crate::harness::until("room", || Ok(write(&file, &[1; 4096]) == Ok(4096))).await
}

/// Everything that a process wrote and removed is free again.
async fn pages_come_back() -> Outcome {
    let place = Place::new()?;
    let before = memory_used()?;
    for round in 0..20 {
        let path = place.path(&format!("{round}"));
        make(&path, &vec![1; 200_000])?;
        rename(&path, &place.path("last"), 0)?;
    }
    unlink(&place.path("last"), 0)?;
    crate::harness::until("the memory", || Ok(memory_used()? <= before + OWN_BYTES)).await
}

/// Several virtual CPUs create, rename and remove the same names: each operation succeeds or fails
/// as if it were alone, and nothing is left.
async fn racing_for_names() -> Outcome {
    const ROUNDS: usize = 400;
    let place = Place::new()?;
    task::alloc_cpu(3)?;
    let mut racers = Vec::new();
    for racer in 0..4usize {
        let base = place.0.clone();
        racers.push(task::spawn_join(
            async move {
                let mut garbage = raw::Garbage::new(racer as u64 * 77 + 5);
                for _ in 0..ROUNDS {
                    let name =
                        |garbage: &mut raw::Garbage| format!("{base}/{}", garbage.next() % 4);
                    let (one, two) = (name(&mut garbage), name(&mut garbage));
                    let inner = format!("{one}/{}", garbage.next() % 4);
                    let result = match garbage.next() % 7 {
                        0 => make_directory(&one),
                        1 => open_at(&one, CREATE).map(|_| 0),
                        2 => open_at(&inner, CREATE).map(|_| 0),
                        3 => rename(&one, &two, 0),
                        4 => rename(&inner, &two, 0),
                        5 => unlink(&one, 0),
                        _ => remove_directory(&one),
                    };
                    let expected = [EEXIST, EISDIR, ENOTDIR, ENOENT, ENOTEMPTY, EINVAL];
                    if let Err(error) = result
                        && !expected.contains(&error)
                    {
                        return Err(error);
                    }
                    task::yield_now().await;
                }
                Ok(())
            },
            Priority::DEFAULT,
        ));
    }
    for racer in racers {
        check_equal!(soon("a racer", racer).await??, Ok(()), "a racer");
    }
    let before = list(&place.0)?;
    remove_all(&place.0);
    check_equal!(status(&place.0, 0).err(), Some(ENOENT), "after {before:?} was removed");
    Ok(())
}

/// A file of some megabytes and a directory of thousands of names, which no call meets in one
/// portion (`./cops test --only portions` measures them).
async fn large_files_and_directories() -> Outcome {
    const NAMES: usize = 3_000;
    let place = Place::new()?;
    let room = cops::process::quota(0, Resource::Memory)?.room as usize;
    let bytes = (room / 4).min(24 << 20);
    let path = place.path("large");
    let file = open_at(&path, CREATE)?;
    let block = vec![5u8; 16 * 1024];
    let mut written = 0;
    while written < bytes {
        written += write(&file, &block)?;
    }
    check_equal!(raw::call(number::FTRUNCATE, [fd(&file), bytes / 2 + 5]), Ok(0), "ftruncate");
    drop(file);
    unlink(&path, 0)?;
    for name in 0..NAMES {
        drop(open_at(&place.path(&format!("{name}")), CREATE)?);
    }
    check_equal!(list(&place.0)?.len(), NAMES, "names");
    Ok(())
}
