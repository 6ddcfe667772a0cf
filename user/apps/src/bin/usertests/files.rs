//! Files and directories of the root image.

use cops::abi::Errno;
use cops::fs::{self, File, Kind};
use cops::io::{Read, Seek, SeekFrom};

use crate::harness::{Outcome, PROGRAM, errno};
use crate::{check, check_equal, tests};

tests! { files:
    missing,
    directory_lists_programs,
    read_and_seek,
    descriptors_are_limited,
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
