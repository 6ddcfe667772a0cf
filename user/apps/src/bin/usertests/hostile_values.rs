//! System calls with invalid values: ranges, times, socket addresses, processes, virtual CPUs,
//! handles. Each must fail with the right error, and the process continues.

use alloc::vec::Vec;

use cops::abi::file::ioctl;
use cops::abi::layout::{
    MAP_START, PAGE_BYTES, PROCESS_PAGE, RING_PAGES, SYSTEM_PAGE, USER_END, VDSO,
};
use cops::abi::quota::ONLY_ASK;
use cops::abi::syscall::{self as number, AT_FDCWD, SpawnOptions, map_flags, protection, signal};
use cops::abi::{Errno, Errno::*};
use cops::io::{Fd, pipe, terminal};
use cops::net::{Ipv4Addr, TcpListener};
use cops::process::{self, Resource, quota};

use crate::harness::{Failure, Outcome};
use crate::hostile_arguments::number_of;
use crate::raw::{self, Asked, BAD_ADDRESSES, Garbage};
use crate::{check, check_equal, tests};

tests! { values:
    bad_mappings,
    shared_pages_stay,
    bad_times,
    bad_sockets,
    bad_processes,
    bad_quotas,
    bad_terminals,
    bad_options_of_new_processes,
    ignored_signals,
    bad_parking_and_cpus,
    bad_cancels,
    garbage_coroutine_ids,
}

async fn bad_mappings() -> Outcome {
    const ANONYMOUS: usize = map_flags::PRIVATE | map_flags::ANONYMOUS;
    const READ_WRITE: usize = protection::READ | protection::WRITE;
    const NO_FD: usize = usize::MAX;
    let map = |what: &str, arguments: [usize; 6], errors: &[Errno]| {
        raw::refused(what, number::MMAP, arguments, errors)
    };
    map("mmap of nothing", [0, 0, READ_WRITE, ANONYMOUS, NO_FD, 0], &[EINVAL])?;
    for length in [usize::MAX, 1 << 63, USER_END, usize::MAX - PAGE_BYTES + 2] {
        map("mmap of everything", [0, length, READ_WRITE, ANONYMOUS, NO_FD, 0], &[ENOMEM, EINVAL])?;
    }
    let executable = READ_WRITE | protection::EXECUTE;
    map(
        "writable and executable",
        [0, PAGE_BYTES, executable, ANONYMOUS, NO_FD, 0],
        &[EINVAL, EACCES, EPERM],
    )?;
    map("unknown protection", [0, PAGE_BYTES, 8, ANONYMOUS, NO_FD, 0], &[EINVAL])?;
    map("unknown flags", [0, PAGE_BYTES, READ_WRITE, ANONYMOUS | 1, NO_FD, 0], &[EINVAL])?;
    map("no flags", [0, PAGE_BYTES, READ_WRITE, 0, NO_FD, 0], &[EBADF])?;
    map("no file", [0, PAGE_BYTES, READ_WRITE, map_flags::PRIVATE, 0, 1], &[EINVAL])?;
    map("neither private nor shared", [0, PAGE_BYTES, READ_WRITE, 0x20, NO_FD, 0], &[EINVAL])?;

    let page = raw::call(number::MMAP, [0, PAGE_BYTES, READ_WRITE, ANONYMOUS, NO_FD, 0])?;
    check!((MAP_START..USER_END).contains(&page), "mmap chose {page:#x}");
    raw::refused(
        "mprotect to write and execute",
        number::MPROTECT,
        [page, PAGE_BYTES, executable],
        &[EINVAL, EACCES, EPERM],
    )?;
    raw::refused(
        "mprotect across the end",
        number::MPROTECT,
        [page, 1 << 30, READ_WRITE],
        &[ENOMEM, EINVAL],
    )?;
    raw::refused(
        "mprotect off a page",
        number::MPROTECT,
        [page + 1, PAGE_BYTES, READ_WRITE],
        &[EINVAL],
    )?;
    raw::refused("munmap off a page", number::MUNMAP, [page + 1, PAGE_BYTES], &[EINVAL])?;
    raw::refused("munmap of nothing", number::MUNMAP, [page, 0], &[EINVAL])?;
    for &bad in BAD_ADDRESSES.iter().filter(|&&bad| bad >= USER_END - 1) {
        raw::refused(
            "munmap",
            number::MUNMAP,
            [bad & !(PAGE_BYTES - 1), PAGE_BYTES],
            &[EINVAL, ENOMEM],
        )?;
        raw::refused(
            "mprotect",
            number::MPROTECT,
            [bad & !(PAGE_BYTES - 1), PAGE_BYTES, 1],
            &[EINVAL, ENOMEM],
        )?;
    }
    for length in [usize::MAX, 1 << 63, usize::MAX - page + 1] {
        raw::refused("munmap of everything", number::MUNMAP, [page, length], &[EINVAL, ENOMEM])?;
        raw::refused(
            "mprotect of everything",
            number::MPROTECT,
            [page, length, 1],
            &[EINVAL, ENOMEM],
        )?;
    }
    check_equal!(raw::call(number::MUNMAP, [page, PAGE_BYTES]), Ok(0), "munmap");
    raw::refused("read into what was unmapped", number::READ, [0, page, 16], &[EFAULT])?;
    Ok(())
}

/// Pages that the kernel shares with the process can be neither made writable nor replaced.
async fn shared_pages_stay() -> Outcome {
    const REFUSALS: &[Errno] = &[EINVAL, EACCES, EPERM, ENOMEM];
    for page in [VDSO, SYSTEM_PAGE] {
        for rights in [protection::WRITE, protection::READ | protection::WRITE] {
            raw::refused(
                "mprotect of a shared page",
                number::MPROTECT,
                [page, PAGE_BYTES, rights],
                REFUSALS,
            )?;
        }
    }
    for page in [PROCESS_PAGE, RING_PAGES, SYSTEM_PAGE] {
        let rights = protection::READ | protection::EXECUTE;
        raw::refused(
            "mprotect of a shared page",
            number::MPROTECT,
            [page, PAGE_BYTES, rights],
            REFUSALS,
        )?;
    }
    for page in [PROCESS_PAGE, RING_PAGES, SYSTEM_PAGE, VDSO] {
        raw::refused("munmap of a shared page", number::MUNMAP, [page, PAGE_BYTES], REFUSALS)?;
    }
    Ok(())
}

async fn bad_times() -> Outcome {
    for time in [[0usize, 1_000_000_000], [0, usize::MAX], [usize::MAX, 0], [1 << 63, 0]] {
        let address = time.as_ptr().addr();
        raw::refused("clock_nanosleep", number::CLOCK_NANOSLEEP, [1, 0, address], &[EINVAL])?;
    }
    let forever = [isize::MAX as usize, 0usize];
    let Asked::InFlight(handle) =
        raw::ask(number::CLOCK_NANOSLEEP, [1, 0, forever.as_ptr().addr()])
    else {
        return Err(Failure("a sleep for ever is over".into()));
    };
    check!(handle.cancel()?, "a sleep for ever had completed");
    let mut time = [0usize; 2];
    let place = time.as_mut_ptr().addr();
    for clock in [2, 99, usize::MAX] {
        raw::refused("clock_gettime", number::CLOCK_GETTIME, [clock, place], &[EINVAL])?;
        raw::refused("clock_nanosleep", number::CLOCK_NANOSLEEP, [clock, 0, place], &[EINVAL])?;
    }
    raw::refused("clock_nanosleep's flags", number::CLOCK_NANOSLEEP, [1, 2, place], &[EINVAL])?;
    Ok(())
}

async fn bad_sockets() -> Outcome {
    raw::refused("socket's domain", number::SOCKET, [99, 1, 0], &[EAFNOSUPPORT])?;
    raw::refused(
        "socket's type",
        number::SOCKET,
        [2, 99, 0],
        &[EINVAL, EPROTONOSUPPORT, EOPNOTSUPP],
    )?;
    raw::refused("socket's protocol", number::SOCKET, [2, 1, 99], &[EPROTONOSUPPORT, EINVAL])?;
    let socket = Fd::from_raw(raw::call(number::SOCKET, [2, 1, 0])? as i32);
    let fd = number_of(&socket);
    let address = [2u8, 0, 0, 9, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let place = address.as_ptr().addr();
    for length in [0, 1, 15] {
        raw::refused("bind to a short address", number::BIND, [fd, place, length], &[EINVAL])?;
        raw::refused(
            "connect to a short address",
            number::CONNECT,
            [fd, place, length],
            &[EINVAL],
        )?;
    }
    let strange = [99u8; 28];
    let strange = strange.as_ptr().addr();
    raw::refused(
        "bind to a strange family",
        number::BIND,
        [fd, strange, 28],
        &[EAFNOSUPPORT, EINVAL],
    )?;
    raw::refused(
        "connect to a strange family",
        number::CONNECT,
        [fd, strange, 28],
        &[EAFNOSUPPORT, EINVAL],
    )?;
    raw::refused("shutdown of nothing", number::SHUTDOWN, [fd, 3], &[EINVAL])?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    raw::refused(
        "accept4's flags",
        number::ACCEPT4,
        [number_of(&listener), 0, 0, 1 << 20],
        &[EINVAL],
    )?;
    Ok(())
}

async fn bad_processes() -> Outcome {
    raw::refused("kill an unused id", number::KILL, [0x7fff_0000, 9], &[ESRCH])?;
    raw::refused("kill a strange id", number::KILL, [usize::MAX / 2, 9], &[ESRCH, EINVAL])?;
    raw::refused("strange signal", number::KILL, [cops::process::id() as usize, 99], &[EINVAL])?;
    check_equal!(
        raw::call(number::KILL, [cops::process::id() as usize, 0]),
        Ok(0),
        "signal 0 to itself"
    );
    raw::refused("wait without a child", number::WAIT4, [usize::MAX, 0, 0, 0], &[ECHILD])?;
    raw::refused("wait for a stranger", number::WAIT4, [1, 0, 0, 0], &[ECHILD])?;
    raw::refused("wait4's options", number::WAIT4, [usize::MAX, 0, 1 << 20, 0], &[EINVAL])?;

    let arguments = [c"x".as_ptr().addr(), 0];
    let list = arguments.as_ptr().addr();
    let spawn = |what: &str, path: &core::ffi::CStr, errors: &[Errno]| {
        raw::refused(what, number::COPS_SPAWN_PROCESS, [path.as_ptr().addr(), list], errors)
    };
    spawn("no such program", c"/bin/no-such-program", &[ENOENT])?;
    spawn("no path", c"", &[ENOENT])?;
    spawn("a directory as a program", c"/bin", &[EISDIR, EACCES, ENOEXEC])?;
    spawn("a text as a program", c"/etc/init", &[ENOEXEC])?;
    let long = alloc::vec![b'a'; 300];
    let long = alloc::ffi::CString::new(long)?;
    spawn("a path without end", &long, &[ENAMETOOLONG])?;
    raw::refused(
        "openat without end",
        number::OPENAT,
        [AT_FDCWD as usize, long.as_ptr().addr(), 0, 0],
        &[ENAMETOOLONG],
    )?;

    let program = c"/bin/hello";
    let mut many: Vec<usize> = alloc::vec![c"a".as_ptr().addr(); number::ARGUMENTS_MAX + 1];
    many.push(0);
    let too_many = [program.as_ptr().addr(), many.as_ptr().addr()];
    raw::refused("too many arguments", number::COPS_SPAWN_PROCESS, too_many, &[E2BIG])?;
    let long = alloc::ffi::CString::new(alloc::vec![b'a'; number::ARGUMENT_BYTES_MAX])?;
    let one = [long.as_ptr().addr(), 0];
    let too_long = [program.as_ptr().addr(), one.as_ptr().addr()];
    raw::refused("too long an argument", number::COPS_SPAWN_PROCESS, too_long, &[E2BIG])?;
    Ok(())
}

/// Process ids that no process has.
const NO_PROCESSES: [usize; 4] = [0x7fff_0000, 1 << 32, 1 << 63, usize::MAX];

async fn bad_quotas() -> Outcome {
    let before = quota(0, Resource::Memory)?.limit;
    for kind in [6, 1 << 32, usize::MAX] {
        raw::refused("quota's kind", number::COPS_QUOTA, [0, kind, ONLY_ASK, 0], &[EINVAL])?;
        raw::refused("quota's kind, to set it", number::COPS_QUOTA, [0, kind, 1, 0], &[EINVAL])?;
    }
    for process in NO_PROCESSES {
        raw::refused(
            "quota of no process",
            number::COPS_QUOTA,
            [process, 0, ONLY_ASK, 0],
            &[ESRCH],
        )?;
        raw::refused("quota for no process", number::COPS_QUOTA, [process, 0, 1, 0], &[ESRCH])?;
    }
    for resource in 0..Resource::ALL.len() {
        raw::refused(
            "a higher quota",
            number::COPS_QUOTA,
            [0, resource, ONLY_ASK - 1, 0],
            &[EPERM],
        )?;
    }
    check_equal!(quota(0, Resource::Memory)?.limit, before, "the limit after calls that failed");
    Ok(())
}

async fn bad_terminals() -> Outcome {
    let ask = |request: usize, value: i32| {
        let mut word = value;
        raw::call(number::IOCTL, [0, request, (&raw mut word).expose_provenance()])
    };
    // It belongs to no session, and this process leads none.
    for request in [ioctl::GET_FOREGROUND, ioctl::SET_FOREGROUND, ioctl::GET_SESSION] {
        check_equal!(ask(request, 1), Err(ENOTTY), "request {request:#x}");
    }
    check_equal!(ask(ioctl::LEAVE_TERMINAL, 0), Err(ENOTTY), "to leave a free terminal");
    check_equal!(ask(ioctl::TAKE_TERMINAL, 0), Err(EPERM), "to take it for another's session");
    process::begin_session()?;
    check_equal!(ask(ioctl::TAKE_TERMINAL, 0), Ok(0), "to take it");
    let own = process::id();
    for (group, error) in
        [(-1, EINVAL), (i32::MIN, EINVAL), (0, ESRCH), (i32::MAX, ESRCH), (1, EPERM)]
    {
        check_equal!(ask(ioctl::SET_FOREGROUND, group), Err(error), "group {group}");
    }
    for &bad in BAD_ADDRESSES {
        for request in [ioctl::GET_FOREGROUND, ioctl::SET_FOREGROUND, ioctl::GET_SESSION] {
            raw::refused("ioctl", number::IOCTL, [0, request, bad], &[EFAULT])?;
        }
    }
    check_equal!(terminal::foreground()?, own, "the foreground after calls that failed");
    // Its own group gets SIGHUP.
    process::ignore_signals(1 << (signal::SIGHUP - 1));
    check_equal!(ask(ioctl::LEAVE_TERMINAL, 0), Ok(0), "to leave it");
    check_equal!(ask(ioctl::LEAVE_TERMINAL, 0), Err(ENOTTY), "to leave it again");
    Ok(())
}

async fn bad_options_of_new_processes() -> Outcome {
    let good = SpawnOptions { files: [-1; 3], group: -1, foreground: 0, local: 0 };
    let (path, list) = (c"/bin/hello", [c"/bin/hello".as_ptr(), core::ptr::null()]);
    let start = |options: &SpawnOptions| {
        let options = core::ptr::from_ref(options).addr();
        raw::call(
            number::COPS_SPAWN_PROCESS,
            [path.as_ptr().addr(), list.as_ptr().addr(), 0, options],
        )
    };
    for (what, options, error) in [
        ("a file that is not open", SpawnOptions { files: [-1, 999, -1], ..good }, EBADF),
        ("no file", SpawnOptions { files: [-1, -1, -2], ..good }, EBADF),
        ("no group", SpawnOptions { group: -2, ..good }, EINVAL),
        ("a group that does not exist", SpawnOptions { group: i32::MAX, ..good }, EPERM),
        ("the foreground without a group", SpawnOptions { foreground: 1, ..good }, EINVAL),
        ("no foreground", SpawnOptions { group: 0, foreground: 2, ..good }, EINVAL),
        ("unknown flags", SpawnOptions { group: 0, foreground: 1, local: 4, ..good }, EINVAL),
        ("no terminal", SpawnOptions { group: 0, foreground: 1, ..good }, ENOTTY),
    ] {
        check_equal!(start(&options), Err(error), "{what}");
    }
    for &bad in BAD_ADDRESSES.iter().filter(|&&bad| bad != 0) {
        let arguments = [path.as_ptr().addr(), list.as_ptr().addr(), 0, bad];
        raw::refused("options", number::COPS_SPAWN_PROCESS, arguments, &[EFAULT])?;
    }
    Ok(())
}

/// A program cannot ignore what ends or stops it for certain.
async fn ignored_signals() -> Outcome {
    let all = u64::MAX as usize;
    check_equal!(raw::call(number::COPS_IGNORE_SIGNALS, [all]), Ok(0), "ignored before");
    for ignored in [signal::SIGTERM, signal::SIGINT, signal::SIGTSTP, signal::SIGHUP] {
        process::kill(process::id(), ignored)?;
    }
    let unforced = all & !(1 << (signal::SIGKILL - 1) | 1 << (signal::SIGSTOP - 1));
    let before = raw::call(number::COPS_IGNORE_SIGNALS, [0]);
    check_equal!(before, Ok(unforced & isize::MAX as usize), "what was ignored");
    Ok(())
}

async fn bad_parking_and_cpus() -> Outcome {
    for cpu in [1, 7, 8, 99, usize::MAX, 1 << 32] {
        raw::refused("unpark of no virtual CPU", number::COPS_UNPARK, [cpu], &[EINVAL, ESRCH])?;
    }
    // A wake that comes first makes the next park return at once; several wakes count as one.
    for _ in 0..3 {
        check_equal!(raw::call(number::COPS_UNPARK, [0]), Ok(0), "unpark");
    }
    check_equal!(raw::call(number::COPS_PARK, []), Ok(0), "park after unpark");
    for count in [9, 1000, usize::MAX] {
        let entry = bad_parking_and_cpus as *const () as usize;
        raw::refused(
            "virtual CPUs without end",
            number::COPS_ALLOC_CPU,
            [count, entry],
            &[EINVAL],
        )?;
    }
    for &bad in BAD_ADDRESSES.iter().filter(|&&bad| bad >= USER_END) {
        raw::refused(
            "a virtual CPU in nowhere",
            number::COPS_ALLOC_CPU,
            [1, bad],
            &[EINVAL, EFAULT],
        )?;
    }
    Ok(())
}

/// A handle that names no call in flight: an error, or "it had completed" if the kernel cannot
/// distinguish it from a completed call; never "it was in flight and is cancelled".
async fn bad_cancels() -> Outcome {
    let mut garbage = Garbage::new(0xbad);
    let handles =
        [0, 1, usize::MAX, 1 << 32, 1 << 63].into_iter().chain((0..100).map(|_| garbage.next()));
    for handle in handles {
        let result = raw::call(number::COPS_CANCEL, [handle]);
        check!(matches!(result, Ok(1) | Err(EINVAL | ESRCH)), "cancel of {handle:#x}: {result:?}");
    }
    // No results must arrive for those that "had completed".
    check_equal!(raw::call(number::COPS_REFILL_RING, []), Ok(0), "results that wait");
    Ok(())
}

/// The kernel returns coroutine id and token unchanged and does not use them otherwise.
async fn garbage_coroutine_ids() -> Outcome {
    let (reader, _writer) = pipe()?;
    let mut buffer = [0u8; 16];
    let place = buffer.as_mut_ptr().addr();
    for _ in 0..100 {
        let Asked::InFlight(handle) = raw::ask(number::READ, [number_of(&reader), place, 16])
        else {
            return Err(Failure("a read of an empty pipe is over".into()));
        };
        check!(handle.cancel()?, "a read of an empty pipe had completed");
    }
    Ok(())
}
