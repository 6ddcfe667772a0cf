//! Files and directories of the root image.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hint::black_box;

use cops::abi::Errno;
use cops::fs::{self, File, Kind, OpenOptions};
use cops::io::{AsFd, Read, Seek, SeekFrom, Write};

use cops::process::{self, ExitCode, Resource};
use cops::thread;

use crate::harness::{Outcome, PROGRAM, errno, run};
use crate::processes::HELPER;
use crate::{check, check_equal, tests};

tests! { files:
    missing,
    directory_lists_programs,
    read_and_seek,
    descriptors_are_limited,
    the_library_writes,
    a_dropped_open_leaves_no_descriptor,
    memory_ends_while_files_are_used,
}

/// The helpers.
pub fn help(arguments: &[&str]) -> Option<ExitCode> {
    (arguments == ["files-without-memory"]).then(use_files_without_memory)
}

async fn missing() -> Outcome {
    for path in ["/no/such/file", "/bin/no-such-program", "/bin/hello/x"] {
        let error = File::open(path).err().and_then(errno);
        check!(matches!(error, Some(Errno::ENOENT | Errno::ENOTDIR)), "open {path}: {error:?}");
    }
    Ok(())
}

async fn directory_lists_programs() -> Outcome {
    let entries = fs::read_directory("/bin")?;
    for name in ["hello", "usertests", "matrix-server"] {
        let found =
            entries.iter().filter(|entry| entry.name == name && entry.kind == Kind::File).count();
        check_equal!(found, 1, "entries of /bin called {name}");
    }
    let root = fs::read_directory("/")?;
    check!(
        root.iter().any(|entry| entry.name == "bin" && entry.kind == Kind::Directory),
        "no /bin in {root:?}"
    );
    Ok(())
}

async fn read_and_seek() -> Outcome {
    let whole = fs::read(PROGRAM).await?;
    check!(whole.starts_with(b"\x7fELF"), "{PROGRAM} begins with {:?}", whole.get(..4));
    let mut file = File::open(PROGRAM)?;
    let end = file.seek(SeekFrom::End(0)).await?;
    check_equal!(end, whole.len() as u64, "length of {PROGRAM}");
    check_equal!(file.read(&mut [0; 8]).await?, 0, "bytes at the end");
    for place in [0, 1, 4095, 4096, end - 5] {
        file.seek(SeekFrom::Start(place)).await?;
        let mut part = [0; 5];
        file.read_exact(&mut part).await?;
        check_equal!(
            whole.get(place as usize..place as usize + 5),
            Some(&part[..]),
            "bytes at {place}"
        );
        check_equal!(
            file.seek(SeekFrom::Current(0)).await?,
            place + 5,
            "position after reading at {place}"
        );
    }
    file.seek(SeekFrom::Start(end + 1000)).await?;
    check_equal!(file.read(&mut [0; 8]).await?, 0, "bytes beyond the end");
    Ok(())
}

/// The number of descriptors is limited; beyond the limit there is an error.
async fn descriptors_are_limited() -> Outcome {
    const MORE_THAN_ALLOWED: usize = 100_000;
    let mut open = alloc::vec::Vec::new();
    for _ in 0..MORE_THAN_ALLOWED {
        match File::open("/bin/hello") {
            Ok(file) => open.push(file),
            Err(error) => {
                check_equal!(errno(error), Some(Errno::EMFILE), "error of one descriptor too many");
                open.pop();
                File::open("/bin/hello")?;
                return Ok(());
            }
        }
    }
    Err(crate::harness::Failure("descriptors without end".into()))
}

/// The library's functions, from the creation of a directory to its removal.
async fn the_library_writes() -> Outcome {
    let base = alloc::format!("/tmp/library-{}", cops::process::id());
    let path = |name: &str| alloc::format!("{base}/{name}");
    fs::create_dir(&base).await?;
    check_equal!(fs::create_dir(&base).await.err().and_then(errno), Some(Errno::EEXIST), "twice");
    check_equal!(fs::metadata(&base).await?.kind(), Kind::Directory, "type");
    fs::write(&path("a"), b"first line\n").await?;
    let mut log = OpenOptions::new().append(true).open(&path("a")).await?;
    log.write_all(b"second").await?;
    check_equal!(log.metadata().await?.len(), 17, "size");
    check_equal!(fs::read(&path("a")).await?, b"first line\nsecond", "what was written");
    let mut both = OpenOptions::new().read(true).write(true).open(&path("a")).await?;
    both.set_len(5).await?;
    let mut word = [0; 5];
    both.read_exact(&mut word).await?;
    check_equal!(&word, b"first", "what is left");
    let new = OpenOptions::new().write(true).create_new(true);
    check_equal!(new.open(&path("a")).await.err().and_then(errno), Some(Errno::EEXIST), "new");
    drop(new.open(&path("b")).await?);
    fs::rename(&path("a"), &path("b")).await?;
    check_equal!(fs::metadata(&path("b")).await?.len(), 5, "size of what was renamed");
    let names = fs::read_directory(&base)?;
    check!(names.len() == 1 && names[0].name == "b", "{names:?}");
    check_equal!(
        fs::remove_dir(&base).await.err().and_then(errno),
        Some(Errno::ENOTEMPTY),
        "a full directory"
    );
    fs::remove_file(&path("b")).await?;
    fs::remove_dir(&base).await?;
    check_equal!(fs::metadata(&base).await.err().and_then(errno), Some(Errno::ENOENT), "gone");
    check_equal!(
        File::create("/bin/x").await.err().and_then(errno),
        Some(Errno::EROFS),
        "in the root image"
    );
    check_equal!(fs::metadata("a\0b").await, Err(cops::io::Error::ZeroByte), "a zero in a path");
    Ok(())
}

/// An open of a long path is in flight. Dropped, it leaves nothing open.
async fn a_dropped_open_leaves_no_descriptor() -> Outcome {
    let lowest = || Ok::<_, cops::io::Error>(File::open("/bin/hello")?.as_fd().raw());
    let before = lowest()?;
    let long = "/bin/..".repeat(400) + "/bin/hello";
    for round in 0..20 {
        let opening = OpenOptions::new().read(true).open(&long);
        let _ = cops::time::timeout(cops::time::Duration::from_micros(round * 10), opening).await;
        check_equal!(lowest()?, before, "the lowest free descriptor after round {round}");
    }
    drop(OpenOptions::new().read(true).open(&long).await?);
    Ok(())
}

/// Uses the heap up, and its room to grow, for blocks of every size.
pub fn use_the_heap_up() -> cops::io::Result<()> {
    const LARGEST: usize = 64 * 1024;
    const SMALL: usize = 512;
    // Less than the heap grows by, but enough for what the kernel charges for an open file.
    const SPARE: u64 = 64 * 1024;
    let used = process::quota(0, Resource::Memory)?.used;
    process::set_quota(0, Resource::Memory, used + SPARE)?;
    let halves = core::iter::successors(Some(LARGEST), |bytes| Some(bytes / 2));
    let small = (1..=SMALL).rev().step_by(8);
    for bytes in halves.take_while(|&bytes| bytes > SMALL).chain(small) {
        let mut block = Vec::<u8>::new();
        while block.try_reserve_exact(bytes).is_ok() {
            // Otherwise the compiler leaves the allocation out, which then never fails.
            core::mem::forget(black_box(core::mem::take(&mut block)));
        }
    }
    Ok(())
}

/// Returns the number of the first function that did not fail with `ENOMEM`.
fn use_files_without_memory() -> ExitCode {
    // A thread, since only its `block_on` polls these futures.
    let Ok(code) = thread::spawn(|| {
        let Ok(file) = File::open("/bin/hello") else { return 98 };
        let small = black_box(Box::new(0u64));
        if use_the_heap_up().is_err() {
            return 99;
        }
        let errors = [
            thread::block_on(file.metadata()).err(),
            thread::block_on(fs::metadata("/bin/hello")).err(),
            thread::block_on(fs::rename("/bin/hello", "/bin/other")).err(),
            thread::block_on(OpenOptions::new().read(true).open("/bin/hello")).err(),
            File::open("/bin/hello").err(),
            thread::block_on(fs::read("/bin/hello")).err(),
            process::set_working_directory("/bin").err(),
            process::working_directory().err(),
            process::Command::new("/bin/hello").err(),
            {
                // Enough for the path, and not for the entries.
                drop(small);
                fs::read_directory("/bin").err()
            },
        ];
        let is_other = |error: Option<_>| error.and_then(errno) != Some(Errno::ENOMEM);
        errors.into_iter().position(is_other).map_or(0, |index| index as u8 + 1)
    })
    .join();
    ExitCode(code)
}

async fn memory_ends_while_files_are_used() -> Outcome {
    let status = run(&[HELPER, "files-without-memory"]).await?;
    check_equal!(status.code(), Some(0), "the first function without ENOMEM");
    Ok(())
}
