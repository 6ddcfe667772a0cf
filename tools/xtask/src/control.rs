//! The connection of `./cops top` to a running `./cops serve`: a Unix socket in the target folder,
//! named after the serving process.
//!
//! Each client gets one snapshot of the machine (`qemu::inspection`), or what went wrong, and then
//! the end of the stream; nothing is read. The socket belongs to the user of `./cops serve`, and
//! only that user can enter the folder, so other users get no access.

use std::fs::DirBuilder;
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Because, Failure, Outcome};
use crate::interrupt;
use crate::qemu::server::ANSWER_LIMIT;
use crate::workspace::Workspace;

/// Time limit for a client to read.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// Time limit for the server to answer: its own limit for the kernel, and some time for itself.
const READ_LIMIT: Duration = ANSWER_LIMIT.saturating_add(Duration::from_secs(10));
/// Interval at which Ctrl-C is checked while there is no answer.
const LOOK: Duration = Duration::from_millis(50);
/// Before the text that says what went wrong. No line of a snapshot begins with it.
const WRONG: &str = "wrong: ";
/// The file extension of sockets.
const EXTENSION: &str = "sock";

/// The listening end. Dropping it removes the socket.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Opens the socket of this process.
    pub fn open(workspace: &Workspace) -> Outcome<Self> {
        let folder = folder(workspace);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.because(|| format!("cannot make {}", folder.display()))?;
        let path = folder.join(format!("{}.{EXTENSION}", std::process::id()));
        // Left by an earlier process with this number that was killed.
        let _ = std::fs::remove_file(&path);
        let listener = short(&path, |path| UnixListener::bind(path))
            .because(|| format!("cannot open {}", path.display()))?;
        listener.set_nonblocking(true).because(|| format!("cannot use {}", path.display()))?;
        Ok(Self { listener, path })
    }

    /// The next client, if one has connected.
    pub fn accept(&self) -> Option<UnixStream> {
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nonblocking(false).ok()?;
        stream.set_write_timeout(Some(WRITE_LIMIT)).ok()?;
        Some(stream)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // If this fails, `servers` detects that the socket has no listener.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Sends a snapshot, or that there is none. An error means that the client has disconnected.
pub fn answer(mut stream: UnixStream, snapshot: Option<&str>) {
    let text = snapshot.map_or_else(
        || {
            format!(
                "{WRONG}the kernel did not write its inspection in {} s",
                ANSWER_LIMIT.as_secs()
            )
        },
        str::to_owned,
    );
    let _ = stream.write_all(text.as_bytes());
}

/// The snapshot of the server with process id `pid`.
pub fn ask(workspace: &Workspace, pid: u32) -> Outcome<String> {
    let path = folder(workspace).join(format!("{pid}.{EXTENSION}"));
    let gone = || format!("the ./cops serve with process id {pid} does not answer");
    let mut stream = short(&path, |path| UnixStream::connect(path)).because(gone)?;
    stream.set_read_timeout(Some(LOOK)).because(gone)?;
    let text = read(&mut stream, Instant::now() + READ_LIMIT).because(gone)?;
    match text.strip_prefix(WRONG) {
        Some(wrong) => Err(Failure::new(wrong)),
        None if text.is_empty() => Err(Failure::new(gone())),
        None => Ok(text),
    }
}

/// Reads to the end, until `deadline` or until a signal asks this program to end.
fn read(stream: &mut UnixStream, deadline: Instant) -> std::io::Result<String> {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(String::from_utf8_lossy(&text).into_owned()),
            Ok(length) => text.extend_from_slice(&buffer[..length]),
            Err(error) if matches!(error.kind(), Interrupted | TimedOut | WouldBlock) => {
                if Instant::now() >= deadline || interrupt::requested() {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// The process ids of all running servers. Removes the sockets of servers that were killed.
pub fn servers(workspace: &Workspace) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(folder(workspace)) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let pid = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        let Some(pid) = pid.filter(|_| path.extension().is_some_and(|end| end == EXTENSION)) else {
            continue;
        };
        if Path::new(&format!("/proc/{pid}")).exists() {
            found.push(pid);
        } else {
            let _ = std::fs::remove_file(&path);
        }
    }
    found.sort_unstable();
    found
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("serve")
}

/// Calls `use_it` with a short name of a socket, because its path may be longer than the 107 bytes
/// that a socket address can contain.
fn short<T>(path: &Path, use_it: impl FnOnce(&Path) -> std::io::Result<T>) -> std::io::Result<T> {
    use std::os::fd::AsRawFd;
    let folder = std::fs::File::open(path.parent().unwrap_or(Path::new(".")))?;
    let name = path.file_name().unwrap_or_default();
    use_it(&Path::new(&format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_any_length_are_reached() {
        let folder = std::env::temp_dir().join(format!(
            "cops-control-{}-{}",
            std::process::id(),
            "x".repeat(150)
        ));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("1.sock");
        let listener = short(&path, |path| UnixListener::bind(path)).unwrap();
        let client = std::thread::spawn({
            let path = path.clone();
            move || {
                let mut stream = short(&path, |path| UnixStream::connect(path)).unwrap();
                read(&mut stream, Instant::now() + READ_LIMIT).unwrap()
            }
        });
        answer(listener.accept().unwrap().0, Some("picture"));
        assert_eq!(client.join().unwrap(), "picture");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
