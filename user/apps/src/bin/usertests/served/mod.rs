//! File systems that a process serves: by the library, by hand, and by a server that lies, dies or
//! does nothing.
//!
//! Only the first process may open `/dev/fs`. It starts each of these tests with some of its
//! descriptors ([`start`]), and removes afterwards what the test has mounted ([`tidy`]).

pub mod by_hand;
mod ends;
mod execution;
mod kept;
mod lies;
mod mapped;
mod order;
pub mod pages;
mod urgency;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use cops::abi::Errno::{self, *};
use cops::abi::file::{Usage, at, open};
use cops::abi::syscall::{self as number, AT_FDCWD};
use cops::fs::server::Server;
use cops::fs::{self, OpenOptions};
use cops::io::{Fd, Read, Seek, SeekFrom, Write, synchronise};
use cops::process::ExitCode;
use cops::task::{self, JoinHandle, Priority};
use futures_util::future::join_all;

use crate::harness::{Failure, Outcome, PROGRAM, Test, errno, run, soon, until};
use crate::temporary::{OF_ANY_FILE_SYSTEM, SERVED};
use crate::{check, check_equal, raw, tests};
use tree::{ROOT, Tree};

#[path = "../../memfs/tree.rs"]
mod tree;

tests! { served:
    is_a_file_system,
    the_library_s_calls,
    a_shared_position_moves_once_for_each_write,
    bad_mounts,
    directories_with_a_file_system_keep_their_names,
    paths_in_flight_are_charged,
}

/// All tests of this group.
pub fn all() -> impl Iterator<Item = &'static Test> {
    [
        TESTS,
        ends::TESTS,
        execution::TESTS,
        kept::TESTS,
        lies::TESTS,
        mapped::TESTS,
        order::TESTS,
        pages::TESTS,
        urgency::TESTS,
    ]
    .into_iter()
    .flatten()
}

/// First argument of this program for a process that runs one of the tests of any file system in
/// the served one.
pub const HELPER: &str = "--served";
/// Argument of a process that runs all tests of any file system, in what is mounted at
/// [`SERVED`]: the stage `disk` does so with ext4.
const ALL: &str = "all";
/// How the names of these tests begin.
pub const GROUP: &str = "served::";

/// The descriptors of `/dev/fs` that a test gets.
pub const SERVERS: [usize; 2] = [300, 301];

/// Starts this program in another process, with the descriptors. For the first process.
pub fn start(arguments: &[&str]) -> Result<u32, Failure> {
    let path = c"/dev/fs".as_ptr().addr();
    for server in SERVERS {
        let fd =
            raw::call(number::OPENAT, [AT_FDCWD as usize, path, open::READ_WRITE as usize, 0])?;
        raw::call(number::DUP3, [fd, server, 0])?;
        raw::call(number::CLOSE, [fd])?;
    }
    let pid = crate::forks::fork(|| {
        let words: Vec<&str> = [PROGRAM].iter().chain(arguments).copied().collect();
        let _ = crate::programs::execute(PROGRAM, &words);
        99
    });
    for server in SERVERS {
        raw::call(number::CLOSE, [server])?;
    }
    Ok(pid?)
}

/// Removes what a test has mounted. For the first process.
pub fn tidy() {
    for path in [c"/disk", c"/tmp/mounted"] {
        while raw::call(number::UMOUNT2, [path.as_ptr().addr(), 0]).is_ok() {}
    }
    let mounted = [AT_FDCWD as usize, c"/tmp/mounted".as_ptr().addr(), at::REMOVE_DIRECTORY];
    let _ = raw::call(number::UNLINKAT, mounted);
}

/// A descriptor of `/dev/fs`.
fn server(index: usize) -> Server {
    Server::from_fd(Fd::from_raw(SERVERS[index] as i32))
}

/// Makes every request of the process in `arguments`.
pub async fn help(arguments: &[&str]) -> ExitCode {
    if let Some(code) = execution::help(arguments) {
        return code;
    }
    match arguments {
        [ends::ASK_MYSELF] => ends::ask_myself(),
        [ends::ASK] => ends::ask(),
        [ALL] => all_of_any_file_system().await,
        [name] => crate::temporary::run_served(name).await,
        _ => ExitCode::FAILURE,
    }
}

/// Runs the tests of any file system, each in a process of its own.
async fn all_of_any_file_system() -> ExitCode {
    for name in OF_ANY_FILE_SYSTEM {
        match run(&[HELPER, name]).await {
            Ok(status) if status.success() => cops::println!("ok {name}"),
            Ok(status) => {
                cops::println!("not ok {name}: {status}");
                return ExitCode::FAILURE;
            }
            Err(failure) => {
                cops::println!("not ok {name}: {failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// A tree that is served in this process at [`SERVED`].
struct Running {
    tree: Tree,
    _serving: JoinHandle<cops::io::Result<()>>,
}

async fn start_tree() -> Result<Running, Failure> {
    let server = server(0);
    server.mount(SERVED, ROOT).await?;
    Ok(serve_tree(server))
}

/// As [`start_tree`], and the kernel keeps pages of its files.
async fn start_cached_tree() -> Result<Running, Failure> {
    let server = server(0);
    server.mount_cached(SERVED, ROOT).await?;
    Ok(serve_tree(server))
}

/// As [`start_cached_tree`], and it keeps writes.
async fn start_tree_keeping_writes() -> Result<Running, Failure> {
    let server = server(0);
    server.mount_keeping_writes(SERVED, ROOT).await?;
    Ok(serve_tree(server))
}

fn serve_tree(server: Server) -> Running {
    let tree = Tree::new();
    let serving = task::spawn_join(server.serve(tree.clone()), Priority::DEFAULT);
    Running { tree, _serving: serving }
}

impl Running {
    /// The tests of any file system hold. After each, the server has been told of every node that
    /// is not used.
    async fn is_a_file_system(&self) -> Outcome {
        for name in OF_ANY_FILE_SYSTEM {
            let status = run(&[HELPER, name]).await?;
            check!(status.success(), "{name}: {status}");
            self.expect_nodes(0).await?;
        }
        Ok(())
    }

    /// Waits until the kernel uses no node, and as many nodes as that are left.
    async fn expect_nodes(&self, nodes: usize) -> Outcome {
        let now = async {
            while self.tree.count().await != (nodes, 0) {
                task::yield_now().await;
                cops::time::sleep(cops::time::Duration::from_millis(5)).await;
            }
        };
        let waited = soon("nodes that are not used", now).await;
        check!(waited.is_ok(), "nodes and used nodes: {:?}", self.tree.count().await);
        Ok(())
    }
}

/// The tests of files in `/tmp` hold here too. Afterwards the server has been told of every node
/// that is not used.
async fn is_a_file_system() -> Outcome {
    start_tree().await?.is_a_file_system().await
}

async fn the_library_s_calls() -> Outcome {
    let running = start_tree().await?;
    fs::create_dir("/disk/d").await?;
    let data: Vec<u8> = (0..50_000).map(|at| (at % 251) as u8).collect();
    fs::write("/disk/d/file", &data).await?;
    check_equal!(fs::metadata("/disk/d/file").await?.len(), 50_000, "size");
    let mut file = OpenOptions::new().read(true).write(true).open("/disk/d/file").await?;
    let mut all = Vec::new();
    let mut part = [0; 3000];
    loop {
        let count = file.read(&mut part).await?;
        all.extend_from_slice(&part[..count]);
        if count == 0 {
            break;
        }
    }
    check!(all == data, "other bytes");
    synchronise(&file).await?;
    check_equal!(running.tree.synchronised.load(Relaxed), 1, "calls of fsync at the server");
    check_equal!(file.metadata().await?.len(), 50_000, "fstat");
    file.set_len(5).await?;
    check_equal!(file.metadata().await?.len(), 5, "fstat after ftruncate");
    check_equal!(file.seek(SeekFrom::Start(2)).await?, 2, "lseek");
    file.write_all(b"ab").await?;
    check_equal!(file.seek(SeekFrom::Current(-1)).await?, 3, "lseek");
    check_equal!(file.read(&mut part).await?, 2, "bytes");
    check_equal!(&part[..2], &[b'b', 4], "what was written, and what was before");
    let mut log = OpenOptions::new().append(true).open("/disk/d/file").await?;
    log.write_all(b"xyz").await?;
    check_equal!(log.metadata().await?.len(), 8, "size after an append");
    fs::rename("/disk/d/file", "/disk/other").await?;
    let gone = fs::metadata("/disk/d/file").await.err().and_then(errno);
    check_equal!(gone, Some(ENOENT), "the old name");
    fs::remove_dir("/disk/d").await?;
    // A file without a name lives as long as it is open.
    fs::remove_file("/disk/other").await?;
    check_equal!(file.metadata().await?.len(), 8, "of a file without a name");
    check_equal!(running.tree.count().await.0, 1, "nodes");
    drop((file, log));
    running.expect_nodes(0).await
}

/// Writes through one descriptor follow each other, whatever the order of the replies.
async fn a_shared_position_moves_once_for_each_write() -> Outcome {
    const WRITERS: usize = 40;
    let running = start_tree().await?;
    let file = Arc::new(OpenOptions::new().write(true).create(true).open("/disk/file").await?);
    let writers = (0..WRITERS).map(|index| {
        let file = file.clone();
        let line = format!("{index:06}\n");
        let level = Priority::saturating(20 + (index % 7) as u32);
        task::spawn_join(
            async move {
                let write =
                    cops::io::WriteFrom::new(cops::io::AsFd::as_fd(&*file), line.as_bytes());
                cops::call::Call::new(write).await
            },
            level,
        )
    });
    let writers: Vec<_> = writers.collect();
    for written in soon("the writers", join_all(writers)).await? {
        check_equal!(written?, Ok(7), "bytes");
    }
    let all = String::from_utf8(fs_read("/disk/file").await?).unwrap_or_default();
    let mut lines: Vec<&str> = all.lines().collect();
    lines.sort_unstable();
    let expected: Vec<String> = (0..WRITERS).map(|index| format!("{index:06}")).collect();
    check_equal!(lines, expected, "the lines");
    drop(file);
    running.expect_nodes(1).await
}

/// The contents of a file, without a call that would stop the server in this process.
async fn fs_read(path: &str) -> Result<Vec<u8>, Failure> {
    let mut file = OpenOptions::new().read(true).open(path).await?;
    let mut all = Vec::new();
    let mut part = [0; 4096];
    loop {
        let count = file.read(&mut part).await?;
        if count == 0 {
            return Ok(all);
        }
        all.extend_from_slice(&part[..count]);
    }
}

/// A directory in the place of which another file system is found is neither renamed nor replaced.
async fn directories_with_a_file_system_keep_their_names() -> Outcome {
    for path in ["/tmp/mounted", "/tmp/other"] {
        fs::create_dir(path).await?;
    }
    let server = server(0);
    server.mount("/tmp/mounted", ROOT).await?;
    let _running = serve_tree(server);
    let rename = |from: &core::ffi::CStr, to: &core::ffi::CStr| {
        let (from, to) = (from.as_ptr().addr(), to.as_ptr().addr());
        let here = AT_FDCWD as usize;
        raw::call(number::RENAMEAT2, [here, from, here, to, 0])
    };
    check_equal!(rename(c"/tmp/mounted", c"/tmp/moved"), Err(EBUSY), "renamed");
    check_equal!(rename(c"/tmp/other", c"/tmp/mounted"), Err(EBUSY), "replaced");
    fs::metadata("/tmp/mounted").await?;
    fs::remove_dir("/tmp/other").await?;
    Ok(())
}

async fn bad_mounts() -> Outcome {
    let kind = c"served".as_ptr().addr();
    let here = c"/disk".as_ptr().addr();
    let good = c"fd=300".as_ptr().addr();
    let mount = |what: &str, path: usize, data: &core::ffi::CStr, error: Errno| {
        raw::refused(what, number::MOUNT, [0, path, kind, 0, data.as_ptr().addr()], &[error])
    };
    let other = c"ext4".as_ptr().addr();
    raw::refused("another type", number::MOUNT, [0, here, other, 0, good], &[ENODEV])?;
    raw::refused("flags", number::MOUNT, [0, here, kind, 1, good], &[EINVAL])?;
    for data in [c"", c"fd=", c"fd=x", c"fd=-1", c"root=1", c"fd=300,", c"fd=300,root=0", c"x=1"]
        .into_iter()
        .chain([c"fd=300,keep=", c"fd=300,keep=all", c"keep=pages"])
        .chain([c"fd=300,keep=pages,disk=", c"fd=300,keep=pages,disk=1", c"fd=300,disk=300"])
    {
        mount("data", here, data, EINVAL)?;
    }
    mount("a pipe or console", here, c"fd=1", EINVAL)?;
    mount("no descriptor", here, c"fd=299", EBADF)?;
    mount("nowhere", c"/none".as_ptr().addr(), c"fd=300", ENOENT)?;
    mount("a file", c"/bin/hello".as_ptr().addr(), c"fd=300", ENOTDIR)?;
    for path in [c"/", c"/tmp", c"/dev"] {
        mount("the root of another one", path.as_ptr().addr(), c"fd=300", EBUSY)?;
    }
    for &bad in raw::BAD_ADDRESSES {
        raw::refused("path", number::MOUNT, [0, bad, kind, 0, good], &[EFAULT])?;
        raw::refused("type", number::MOUNT, [0, here, bad, 0, good], &[EFAULT])?;
        raw::refused("data", number::MOUNT, [0, here, kind, 0, bad], &[EFAULT])?;
    }
    let status = run(&[crate::disk::HELPER, "fs"]).await?;
    check_equal!(status.code(), Some(0), "the exit code of a child that opens /dev/fs");
    raw::refused("by another process", number::UMOUNT2, [here, 0], &[EPERM])?;
    raw::refused("flags", number::UMOUNT2, [here, 1], &[EINVAL])?;
    let running = start_tree().await?;
    mount("twice", here, c"fd=301", EBUSY)?;
    mount("the same server", c"/tmp".as_ptr().addr(), c"fd=300", EBUSY)?;
    fs::create_dir("/disk/inner").await?;
    let second = server(1);
    let inner = second.mount("/disk/inner", 1).await.err().and_then(errno);
    check_equal!(inner, Some(EINVAL), "in a served one");
    // The same server at a second place.
    let options = [c"fd=300".as_ptr().addr()];
    let place = format!("/tmp/{}\0", cops::process::id());
    raw::call(number::MKDIRAT, [AT_FDCWD as usize, place.as_ptr().addr(), 0o777])?;
    let again = raw::call(number::MOUNT, [0, place.as_ptr().addr(), kind, 0, options[0]]);
    raw::call(number::UNLINKAT, [AT_FDCWD as usize, place.as_ptr().addr(), 0x200])?;
    check_equal!(again, Err(EBUSY), "one server at two places");
    let mut bytes = [0u8; Usage::BYTES];
    let usage = by_hand::later(number::STATFS, [here, bytes.as_mut_ptr().expose_provenance()]);
    check_equal!(soon("statfs", usage).await?, Ok(0), "statfs");
    check_equal!(bytes[..2], [0x34, 0x12], "its type");
    check_equal!(soon("sync", by_hand::later(number::SYNC, [])).await?, Ok(0), "sync");
    check_equal!(running.tree.synchronised.load(Relaxed), 1, "calls of sync at the server");
    running.expect_nodes(1).await
}

/// The texts of calls that wait for a server are charged.
async fn paths_in_flight_are_charged() -> Outcome {
    const COUNT: usize = 16;
    const BYTES: usize = 3900;
    let used = || cops::process::quota(0, cops::process::Resource::Memory).map(|quota| quota.used);
    let _silent = by_hand::Hand::mounted().await?;
    let [from, to] = ["f", "g"].map(|name| format!("{SERVED}{}{name}\0", "/".repeat(BYTES)));
    let mut handles = Vec::with_capacity(COUNT);
    let before = used()?;
    for _ in 0..COUNT {
        let [from, to] = [&from, &to].map(|text| text.as_ptr().addr());
        let here = AT_FDCWD as usize;
        match raw::ask(number::RENAMEAT2, [here, from, here, to, 0]) {
            raw::Asked::InFlight(handle) => handles.push(handle),
            raw::Asked::Done(result) => {
                return Err(Failure(format!("without a reply: {result:?}")));
            }
        }
    }
    // They walk the paths in their first portion.
    cops::time::sleep(cops::time::Duration::from_millis(20)).await;
    let held = used()?;
    check!(held >= before + (COUNT * 2 * BYTES) as u64, "charged {before}, then {held}");
    for handle in handles {
        check!(handle.cancel()?, "a call for which there is no reply is over");
    }
    let after = used()?;
    check!(after <= before + (64 << 10), "charged {before}, afterwards {after}");
    Ok(())
}
