//! A program that serves the ext4 file system of the disk at `/disk`, and runs another program.
//!
//! ```text
//! ext4 PROGRAM [ARGUMENT...]
//! ```
//!
//! Must be the first process, which alone may open the disk. PROGRAM gets the console. When it has
//! ended, all other processes get `SIGTERM`, and `SIGKILL` if some use the file system still after
//! two seconds. Then it is unmounted and closed, so that the disk needs no replay. Exits as PROGRAM
//! does. Without a disk, or with another file system on it, it says so and runs PROGRAM
//! all the same.
#![no_std]
#![no_main]

extern crate alloc;

mod disk;
mod files;

use alloc::sync::Arc;
use alloc::vec::Vec;

use cops::Arguments;
use cops::abi::syscall::signal;
use cops::fs::OpenOptions;
use cops::fs::server::{self, Server, unmount};
use cops::io::{AsFd, Result};
use cops::process::{self, ExitCode};
use cops::sync::Event;
use cops::task::{self, JoinHandle, Priority};
use cops::time::{Duration, Elapsed, sleep, timeout};
use cops_ext4::{Ext4, Time};

use disk::Disk;
use files::Files;

const PLACE: &str = "/disk";
/// The part of the machine's memory in which blocks are kept, and the smallest number of blocks.
const CACHE_PART: u64 = 16;
const CACHE_BLOCKS_MIN: usize = 4096;
/// Size of a block, as far as the size of the cache is concerned.
const BLOCK_BYTES: u64 = 4096;
/// How often changes are made durable without being asked.
const SYNC_INTERVAL: Duration = Duration::from_secs(5);
/// How long other processes have to end after `SIGTERM`.
const GRACE: Duration = Duration::from_secs(2);

#[cops::main]
async fn main(arguments: Arguments) -> Result<ExitCode> {
    let words: Vec<&str> = arguments.skip(1).collect();
    let Some((program, rest)) = words.split_first() else {
        cops::eprintln!("usage: ext4 PROGRAM [ARGUMENT...]");
        return Ok(ExitCode(2));
    };
    let served = match Disk::open().await {
        Ok(disk) => Served::start(disk).await?,
        Err(error) => {
            cops::eprintln!("ext4: /dev/vda: {error}");
            None
        }
    };
    let mut child = process::spawn(program, rest)?;
    let status = child.wait().await?;
    if let Some(served) = served {
        served.end().await?;
    }
    Ok(ExitCode(status.shell_code()))
}

/// The time for the file system. A file that is written several times in a step of it gets one
/// time, and its inode is stored once.
fn now() -> Time {
    let now = server::now();
    Time { seconds: now.seconds, nanoseconds: now.nanoseconds }
}

/// Number of blocks to keep in memory.
async fn cache_blocks() -> usize {
    let text = cops::fs::read("/proc/meminfo").await.unwrap_or_default();
    let text = core::str::from_utf8(&text).unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let blocks = kibibytes.unwrap_or(0) * 1024 / CACHE_PART / BLOCK_BYTES;
    CACHE_BLOCKS_MIN.max(blocks as usize)
}

/// A file system that is served.
struct Served {
    files: Arc<Ext4<Disk>>,
    serving: JoinHandle<Result<()>>,
    writing_back: JoinHandle<()>,
    /// Whether the coroutine that writes back is to end.
    stop: Arc<Event>,
}

impl Served {
    /// Opens the file system of `disk` and mounts it. `None` if the disk has none; a message has
    /// said why.
    async fn start(disk: Disk) -> Result<Option<Self>> {
        let files = match Ext4::open(disk, cache_blocks().await, now()).await {
            Ok(files) => Arc::new(files),
            Err(error) => {
                cops::eprintln!("ext4: /dev/vda: {error}");
                return Ok(None);
            }
        };
        let server = Server::open().await?;
        // With it, the kernel reads where `Files::places` says.
        let disk = OpenOptions::new().read(true).open("/dev/vda").await?;
        server.mount_on_disk(PLACE, cops_ext4::ROOT.into(), disk.as_fd()).await?;
        let serving = task::spawn_join(server.serve(Files::new(files.clone())), Priority::DEFAULT);
        let stop = Arc::new(Event::new());
        let writing_back = write_back(files.clone(), stop.clone());
        let writing_back = task::spawn_join(writing_back, Priority::LEAST_URGENT);
        Ok(Some(Self { files, serving, writing_back, stop }))
    }

    /// Unmounts and closes it. Ends the other processes, which could use it without end.
    async fn end(mut self) -> Result<()> {
        unmount(PLACE).await?;
        // Without other processes, these fail.
        let _ = process::kill_all(signal::SIGTERM);
        let served = match timeout(GRACE, &mut self.serving).await {
            Ok(served) => served,
            Err(Elapsed) => {
                let _ = process::kill_all(signal::SIGKILL);
                self.serving.await
            }
        };
        if let Ok(served) = served {
            served?;
        }
        // Not cancelled: a write that has begun must not come after those of `close`.
        self.stop.set();
        let _ = self.writing_back.await;
        let mut files = self.files;
        // The last handlers have replied, and are about to drop their references.
        let files = loop {
            match Arc::try_unwrap(files) {
                Ok(files) => break files,
                Err(shared) => files = shared,
            }
            sleep(Duration::from_millis(1)).await;
        };
        if let Err(error) = files.close().await {
            cops::eprintln!("ext4: the disk was not closed: {error}");
        }
        Ok(())
    }
}

/// Makes changes durable now and then, and keeps the journal short, until it is to `stop`.
async fn write_back(files: Arc<Ext4<Disk>>, stop: Arc<Event>) {
    while let Err(Elapsed) = timeout(SYNC_INTERVAL, stop.wait()).await {
        // What the kernel keeps comes first. It fails for want of memory only, and the next one
        // comes soon.
        let _ = cops::fs::synchronise_all().await;
        if let Err(error) = files.checkpoint().await {
            cops::eprintln!("ext4: writing back: {error}");
        }
    }
}
