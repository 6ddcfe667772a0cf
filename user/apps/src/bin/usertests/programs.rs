//! Processes that replace their program.
#![allow(unsafe_code)]

use alloc::ffi::CString;
use alloc::vec;
use alloc::vec::Vec;

use cops::abi::Errno;
use cops::abi::syscall::{
    self as number, ARGUMENT_BYTES_MAX, ARGUMENTS_MAX, CLOCK_NANOSLEEP, signal,
};
use cops::process::ExitCode;
use cops::time::{Duration, sleep};
use cops::wait;

use crate::forks::{Pipe, fork};
use crate::harness::{Outcome, PROGRAM, run, soon, start};
use crate::processes::HELPER;
use crate::raw::{self, Asked, BAD_ADDRESSES};
use crate::{check, check_equal, tests};

tests! { programs:
    another_program_in_the_same_process,
    an_error_changes_nothing,
    with_other_virtual_cpus,
    calls_in_flight_end_with_the_program,
    files_stay_open,
    a_hundred_programs,
    killed_at_any_moment,
    arguments_at_the_limits,
}

/// Strings of a program, as the kernel takes them.
struct Strings {
    _strings: Vec<CString>,
    pointers: Vec<usize>,
}

impl Strings {
    fn new(words: &[&str]) -> Self {
        let strings: Vec<_> = words.iter().filter_map(|word| CString::new(*word).ok()).collect();
        let pointers = strings.iter().map(|text| text.as_ptr().expose_provenance());
        Self { pointers: pointers.chain([0]).collect(), _strings: strings }
    }

    fn address(&self) -> usize {
        self.pointers.as_ptr().expose_provenance()
    }
}

/// Replaces this program by `path`. Returns only if that fails.
pub fn execute(path: &str, words: &[&str]) -> Errno {
    let strings = Strings::new(words);
    let environment = Strings::new(&["HOME=/", "EMPTY="]);
    let Ok(path) = CString::new(path) else { return Errno::EINVAL };
    let path = path.as_ptr().expose_provenance();
    match raw::call(number::EXECVE, [path, strings.address(), environment.address()]) {
        Ok(_) => Errno::EIO,
        Err(error) => error,
    }
}

/// Replaces this program by this program, as a helper.
fn execute_helper(arguments: &[&str]) -> Errno {
    let words: Vec<_> = [PROGRAM, HELPER].iter().chain(arguments).copied().collect();
    execute(PROGRAM, &words)
}

/// The helpers.
pub fn help(arguments: &[&str]) -> Option<ExitCode> {
    Some(match arguments {
        ["exec", rest @ ..] => {
            execute_helper(rest);
            ExitCode(97)
        }
        ["exec-often", count] => match count.parse::<u32>() {
            Ok(0) => ExitCode(5),
            Ok(count) => {
                execute_helper(&["exec-often", &alloc::format!("{}", count - 1)]);
                ExitCode(97)
            }
            Err(_) => ExitCode(96),
        },
        ["is-process", expected] => ExitCode(u8::from(expected.parse() != Ok(cops::process::id()))),
        ["say", descriptor] => {
            let descriptor = descriptor.parse().unwrap_or(0);
            let written = raw::call(number::WRITE, [descriptor, b"!".as_ptr().addr(), 1]);
            ExitCode(u8::from(written != Ok(1)))
        }
        _ => return None,
    })
}

async fn another_program_in_the_same_process() -> Outcome {
    let status = run(&[HELPER, "exec", "exit", "7"]).await?;
    check_equal!(status.code(), Some(7), "the exit code of the second program");
    let child = fork(|| {
        let me = alloc::format!("{}", raw::call(number::GETPID, []).unwrap_or(0));
        execute_helper(&["is-process", &me]);
        97
    })?;
    check_equal!(wait!(Some(child))?.1.code(), Some(0), "a program started by a copy");
    let child = fork(|| {
        execute("/bin/hello", &["hello"]);
        97
    })?;
    check_equal!(wait!(Some(child))?.1.code(), Some(0), "/bin/hello");
    let status = run(&[HELPER, "exec", "abort"]).await?;
    check_equal!(status.signal(), Some(signal::SIGABRT), "a second program that aborts");
    Ok(())
}

/// Whatever is wrong, the program goes on, with its memory, its files and its calls in flight.
async fn an_error_changes_nothing() -> Outcome {
    let memory = vec![7u8; 100_000];
    let (data, mut byte) = (Pipe::new()?, 0u8);
    let place = (&raw mut byte).expose_provenance();
    let Asked::InFlight(read) = raw::ask(number::READ, [data.reader, place, 1]) else {
        return Err(crate::harness::Failure("a read of an empty pipe did not wait".into()));
    };
    let few = ["x"];
    let many = vec!["x"; ARGUMENTS_MAX + 1];
    let long = "x".repeat(ARGUMENT_BYTES_MAX);
    check_equal!(execute("/bin/none", &few), Errno::ENOENT, "no such program");
    check_equal!(execute("", &few), Errno::ENOENT, "an empty path");
    check_equal!(execute("/bin", &few), Errno::EACCES, "a directory");
    check_equal!(execute("/etc/init", &few), Errno::ENOEXEC, "a file that is no program");
    check_equal!(execute(PROGRAM, &many), Errno::E2BIG, "too many arguments");
    check_equal!(execute(PROGRAM, &[&long]), Errno::E2BIG, "long arguments");
    let path = c"/bin/hello".as_ptr().addr();
    let good = Strings::new(&few);
    let bad_pointers = [0x37_0000_0000usize, 0];
    let bad_strings = bad_pointers.as_ptr().addr();
    for &bad in BAD_ADDRESSES {
        raw::refused("path", number::EXECVE, [bad, good.address(), 0], &[Errno::EFAULT])?;
        raw::refused("argv", number::EXECVE, [path, bad, 0], &[Errno::EFAULT])?;
        if bad != 0 {
            raw::refused("envp", number::EXECVE, [path, good.address(), bad], &[Errno::EFAULT])?;
        }
    }
    raw::refused("a string", number::EXECVE, [path, bad_strings, 0], &[Errno::EFAULT])?;
    let strings = [path, good.address(), bad_strings];
    raw::refused("a string of the environment", number::EXECVE, strings, &[Errno::EFAULT])?;
    check!(memory.iter().all(|&byte| byte == 7), "the memory has changed");
    data.signal()?;
    crate::harness::until("a read that was in flight", || {
        // SAFETY: the kernel writes the byte at any time, so it is read as volatile.
        Ok(unsafe { (&raw const byte).read_volatile() } == b'x')
    })
    .await?;
    check!(!read.cancel()?, "the read is still in flight");
    data.close();
    Ok(())
}

extern "C" fn park_for_ever(_index: usize) -> ! {
    loop {
        let _ = raw::call(number::COPS_PARK, []);
    }
}

extern "C" fn spin_for_ever(_index: usize) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

extern "C" fn execute_here(index: usize) -> ! {
    let words = [HELPER, "exit", "9"];
    let strings: Vec<_> = [PROGRAM].iter().chain(&words).copied().collect();
    execute(PROGRAM, &strings);
    let _ = raw::call(number::EXIT_GROUP, [90 + index]);
    park_for_ever(index)
}

/// The other virtual CPUs end, whichever of them calls, and the new program can have as many.
async fn with_other_virtual_cpus() -> Outcome {
    let add = |count: usize, entry: extern "C" fn(usize) -> !| {
        raw::call(number::COPS_ALLOC_CPU, [count, entry as *const () as usize])
    };
    for round in 0..6 {
        let child = fork(|| {
            let _ = (add(2, park_for_ever), add(2, spin_for_ever));
            if round % 2 == 0 {
                execute_helper(&["exit", "9"]);
                return 97;
            }
            let _ = add(3, execute_here);
            park_for_ever(0)
        })?;
        check_equal!(wait!(Some(child))?.1.code(), Some(9), "round {round}");
    }
    Ok(())
}

/// The new program begins with none of the calls and results of the old one.
async fn calls_in_flight_end_with_the_program() -> Outcome {
    let data = Pipe::new()?;
    let child = fork(|| {
        let mut place = vec![0u8; 5000];
        let buffer = place.as_mut_ptr().expose_provenance();
        let times = [[1000usize, 0], [0, 0]];
        for round in 0..300 {
            // Reads and sleeps that stay in flight, and sleeps of which the results wait.
            let _ = raw::ask(number::READ, [data.reader, buffer, 5000]);
            let time = times[round % 2].as_ptr().addr();
            let _ = raw::ask(CLOCK_NANOSLEEP, [1, 0, time]);
        }
        execute_helper(&["sleep", "1"]);
        97
    })?;
    check_equal!(wait!(Some(child))?.1.code(), Some(0), "a program after calls in flight");
    data.close();
    Ok(())
}

async fn files_stay_open() -> Outcome {
    let data = Pipe::new()?;
    let child = fork(|| {
        execute_helper(&["say", &alloc::format!("{}", data.writer)]);
        97
    })?;
    check_equal!(wait!(Some(child))?.1.code(), Some(0), "a program that writes to a pipe");
    check_equal!(data.wait(), Ok(1), "what it has written");
    data.close();
    Ok(())
}

async fn a_hundred_programs() -> Outcome {
    let status = run(&[HELPER, "exec-often", "100"]).await?;
    check_equal!(status.code(), Some(5), "the last of a hundred programs");
    Ok(())
}

async fn killed_at_any_moment() -> Outcome {
    for round in 0..40 {
        let mut child = start(&[HELPER, "exec-often", "100000"])?;
        sleep(Duration::from_micros(3_000 + 170 * round)).await;
        child.kill()?;
        let status = soon("the end of a process killed in execve", child.wait()).await??;
        check_equal!(status.signal(), Some(signal::SIGKILL), "how it ended");
    }
    Ok(())
}

/// The environment counts too.
async fn arguments_at_the_limits() -> Outcome {
    let words = ["arguments", "0", "0"];
    let environment_bytes = "HOME=/".len() + "EMPTY=".len() + 2;
    let used: usize = [PROGRAM, HELPER].iter().chain(&words).map(|word| word.len() + 1).sum();
    for (more, expected) in [(0, None), (1, Some(Errno::E2BIG))] {
        let long = "x".repeat(ARGUMENT_BYTES_MAX - used - environment_bytes - 1 + more);
        let child = fork(|| {
            let error = execute_helper(&[words[0], words[1], words[2], &long]);
            if error == Errno::E2BIG { 33 } else { 97 }
        })?;
        // The helper finds one argument too many.
        let code = if expected.is_some() { 33 } else { 1 };
        check_equal!(wait!(Some(child))?.1.code(), Some(code), "{} bytes", long.len());
    }
    Ok(())
}
