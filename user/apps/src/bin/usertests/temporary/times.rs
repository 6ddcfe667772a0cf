//! Permissions, and the times of files.

use cops::time::{Duration, sleep};

use super::*;

pub async fn times_and_permissions() -> Outcome {
    let place = Place::new()?;
    let path = place.path("file");
    make(&path, b"x")?;
    let file = open_at(&path, open::READ_WRITE)?;
    check_equal!(raw::call(number::FCHMOD, [fd(&file), 0o640]), Ok(0), "fchmod");
    check_equal!(status(&path, 0)?.mode & 0o7777, 0o640, "permissions");
    check_equal!(one_path(number::FCHMODAT, &path, [0o100, 0]), Ok(0), "fchmodat");
    check_equal!(status(&path, 0)?.mode & 0o7777, 0o100, "permissions");
    check_equal!(
        one_path(number::FCHMODAT, "/bin/hello", [0o100, 0]),
        Err(EROFS),
        "the root image"
    );
    check_equal!(raw::call(number::FCHOWN, [fd(&file), 0, 0]), Ok(0), "fchown to the only user");
    raw::refused("fchown", number::FCHOWN, [fd(&file), 1000, 0], &[EPERM])?;
    let owner = one_path(number::FCHOWNAT, &path, [0, usize::MAX]);
    check_equal!(owner, Ok(0), "fchownat to the only user");
    const OMIT: u64 = 0x3fff_fffe;
    let times = [100u64, 5, 200, 6];
    let set = |times: &[u64; 4]| one_path(number::UTIMENSAT, &path, [times.as_ptr().addr(), 0]);
    check_equal!(set(&times), Ok(0), "utimensat");
    let now = status(&path, 0)?;
    check_equal!((now.accessed.seconds, now.accessed.nanoseconds), (100, 5), "when read");
    check_equal!((now.modified.seconds, now.modified.nanoseconds), (200, 6), "when written");
    check_equal!(set(&[0, OMIT, 300, 0]), Ok(0), "utimensat of one time");
    let now = status(&path, 0)?;
    check_equal!((now.accessed.seconds, now.modified.seconds), (100, 300), "the times");
    check_equal!(set(&[0, 1_000_000_000, 0, 0]), Err(EINVAL), "a bad time");
    let by_number = [fd(&file), 0, times.as_ptr().addr(), 0];
    check_equal!(raw::call(number::UTIMENSAT, by_number), Ok(0), "of an open file");
    check_equal!(status(&path, 0)?.modified.seconds, 200, "when written");
    check_equal!(write(&file, b"y"), Ok(1), "a write");
    check!(status(&path, 0)?.modified.seconds != 200, "a write has not changed the time");
    for call in [number::FSYNC, number::FDATASYNC] {
        check_equal!(raw::call(call, [fd(&file)]), Ok(0), "fsync");
        raw::refused("fsync of nothing", call, [9999], &[EBADF])?;
        raw::refused("fsync of the console", call, [1], &[EINVAL])?;
    }
    check_equal!(raw::call(number::SYNC, []), Ok(0), "sync");
    Ok(())
}

/// Whatever changes a file, and whatever keeps what is written: no time that a program sees is
/// earlier than one that it has seen.
pub async fn times_never_go_back() -> Outcome {
    const ROUNDS: usize = 60;
    let place = Place::new()?;
    let path = place.path("file");
    make(&path, &[b'x'; 100])?;
    let file = open_at(&path, open::READ_WRITE)?;
    let append = open_at(&path, open::READ_WRITE | open::APPEND)?;
    let byte = b"y";
    let at = byte.as_ptr().addr();
    let mut last = status(&path, 0)?;
    let mut written = 0u64;
    for round in 0..ROUNDS {
        for change in 0..5 {
            let (what, result) = match change {
                0 => ("pwrite", raw::call(number::PWRITE64, [fd(&file), at, 1, round])),
                1 => ("a write at the end", raw::call(number::WRITE, [fd(&append), at, 1])),
                2 => ("utimensat", one_path(number::UTIMENSAT, &path, [0, 0])),
                3 => ("ftruncate", raw::call(number::FTRUNCATE, [fd(&file), 150])),
                _ => ("fchmod", raw::call(number::FCHMOD, [fd(&file), 0o600])),
            };
            check!(result.is_ok(), "{what}: {result:?}");
            let now = status(&path, 0)?;
            check!(now.modified >= last.modified, "{what}: written {:?}, then {:?}", last, now);
            check!(now.changed >= last.changed, "{what}: changed {:?}, then {:?}", last, now);
            written += u64::from(now.modified > last.modified);
            last = now;
        }
        // So that rounds are in many steps of the clock.
        let short = Duration::from_micros(500 + 37 * round as u64);
        sleep(short).await;
    }
    check!(written > 5, "the time of the last write has changed {written} times");
    Ok(())
}
