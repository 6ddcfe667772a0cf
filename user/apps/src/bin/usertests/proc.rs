//! `/proc`, as a native program sees it. The formats are tested by `user/linux/procfs.c`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use cops::abi::Errno;
use cops::fs::{self, File, Kind};
use cops::io::Read;
use cops::process::{self, Resource};

use crate::harness::{Outcome, PROGRAM, errno};
use crate::{check, check_equal, tests};

tests! { proc:
    a_native_program_is_shown,
    a_listing_has_files_and_processes,
    open_files_and_texts_are_charged,
}

async fn text(path: &str) -> cops::io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(path).await?).into_owned())
}

async fn a_native_program_is_shown() -> Outcome {
    let id = process::id();
    check_equal!(text("/proc/self/comm").await?, "usertests\n", "comm");
    let stat = text(&format!("/proc/{id}/stat")).await?;
    check!(stat.starts_with(&format!("{id} (usertests) R ")), "stat: {stat}");
    check_equal!(stat.split(' ').count(), 52, "fields of {stat}");
    let status = text("/proc/self/status").await?;
    check!(status.contains("SigCgt:\t0000000000000000\n"), "status: {status}");
    let arguments = fs::read("/proc/self/cmdline").await?;
    check!(arguments.ends_with(&[0]), "cmdline: {arguments:?}");
    check!(text("/proc/self/maps").await?.contains(" r-xp "), "maps");
    let program = fs::read("/proc/self/exe").await?;
    check_equal!(program.len(), fs::read(PROGRAM).await?.len(), "length of exe");
    Ok(())
}

async fn a_listing_has_files_and_processes() -> Outcome {
    let entries = fs::read_directory("/proc")?;
    let own = format!("{}", process::id());
    for (name, kind) in [("uptime", Kind::File), ("sys", Kind::Directory), (&own, Kind::Directory)]
    {
        let found = entries.iter().filter(|entry| entry.name == name && entry.kind == kind).count();
        check_equal!(found, 1, "entries of /proc called {name}");
    }
    check!(fs::read_directory("/proc/self/fd")?.len() >= 3, "descriptors");
    Ok(())
}

/// Each open file is charged, and so is the text that it keeps.
async fn open_files_and_texts_are_charged() -> Outcome {
    const FILES: u64 = 200;
    const BYTES_MIN: u64 = 512 + 500;
    let used = || process::quota(0, Resource::Memory).map(|quota| quota.used);
    let before = used()?;
    let mut files = Vec::new();
    for _ in 0..FILES {
        let mut file = File::open("/proc/self/status")?;
        check!(file.read(&mut [0; 16]).await? > 0, "the beginning of a text");
        files.push(file);
    }
    let grown = used()? - before;
    check!(grown >= FILES * BYTES_MIN, "{FILES} open files are charged {grown} bytes");
    drop(files);
    // Without memory there is an error, and nothing is left.
    let quota = process::quota(0, Resource::Memory)?;
    process::set_quota(0, Resource::Memory, quota.used + 1024)?;
    let mut refused = None;
    let mut held = Vec::with_capacity(64);
    while refused.is_none() && held.len() < held.capacity() {
        match File::open("/proc/self/status") {
            Ok(file) => held.push(file),
            Err(error) => refused = errno(error),
        }
    }
    drop(held);
    check_equal!(refused, Some(Errno::ENOMEM), "an open beyond the quota");
    Ok(())
}
