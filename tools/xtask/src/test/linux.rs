//! Programs for Linux in `./cops exec`: C programs of `user/linux`, built with the static C library
//! of Debian. Each prints what it finds wrong; a few outputs are compared.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::exec::{cops_exec_within, status};
use super::{Case, Context, busybox, step};
use crate::build::linux::{compile, package};
use crate::cli::Machine as MachineOptions;
use crate::error::{Because, Outcome};
use crate::packages;
use crate::process::{Captured, capture};
use crate::qemu::console::{Ending, Transcript, follow};
use crate::qemu::machine::Machine;
use crate::qemu::portions;
use crate::terminal::Progress;
use crate::workspace::Workspace;

/// A run of a program.
struct Test {
    name: &'static str,
    /// The file in `user/linux`, without `.c`.
    program: &'static str,
    arguments: &'static [&'static str],
    /// Numbers of harts, each for a run of its own.
    harts: &'static [&'static str],
    status: i32,
    /// The last line of standard output.
    last_line: &'static str,
    /// A part of standard error; empty for no line beside those about unknown calls.
    message: &'static str,
}

/// Time limit of a program, which only a hang reaches: most take about a second, and the longest
/// half a minute with 4 harts on a busy host with 2 cores.
const LIMIT: Duration = Duration::from_secs(240);

/// The program that runs for as many seconds as its argument says, and its time limit.
const STRESS: &str = "stress";
const STRESS_LIMIT: Duration = Duration::from_secs(300);

const ONE: &[&str] = &["1"];
/// The program that uses a served file system: `/bin/memfs` serves it and starts the program.
const SERVED: &str = "served";
/// Where it does; programs with this argument use it too.
const SERVED_PLACE: &str = "/disk";
/// The program that maps files, also those of a served file system.
const MAPPING: &str = "mapping";
/// The program that moves mappings, which runs on this host's Linux too.
const REMAP: &str = "remap";
/// The program of `./cops bench files`, which runs on this host's Linux too.
const FILES: &str = "files";
/// The program about times of changes, which runs on this host's Linux too.
const CHANGED: &str = "changed";

/// The programs that are not in C, by their packages in `user/linux`.
const PACKAGES: [(&str, &[&str]); 2] = [("rust", &["event-loop"]), ("peers", &["matrix", "tasks"])];

/// Programs that other programs start: a program, and the one that it starts.
const STARTED: [(&str, &str); 1] = [("costs", "seven")];

const TESTS: [Test; 62] = [
    Test {
        name: "hello: stdio, arguments, clocks, exit code",
        program: "hello",
        arguments: &["a", "b c"],
        harts: &["1", "4"],
        status: 7,
        last_line: "line 999",
        message: "system call 4096 does not exist here",
    },
    Test {
        name: "papers: chains of threads, with semaphores and pipes",
        program: "papers",
        arguments: &["check"],
        harts: &["1", "4"],
        status: 0,
        last_line: "papers are in order",
        message: "",
    },
    Test {
        name: "memory: malloc, mmap, mremap, madvise, brk",
        program: "memory",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "memory is in order",
        message: "",
    },
    Test {
        name: "vfork: children that borrow memory",
        program: "vfork",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "children are in order",
        message: "",
    },
    Test {
        name: "remap: mremap that moves",
        program: REMAP,
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "moves are in order",
        message: "",
    },
    Test {
        name: "mapping: shared memory, mapped files, futexes between processes",
        program: MAPPING,
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "mappings are in order",
        message: "",
    },
    Test {
        name: "mapping: the same of a file system that a process serves",
        program: MAPPING,
        arguments: &[SERVED_PLACE],
        harts: &["1", "4"],
        status: 0,
        last_line: "mappings are in order",
        message: "",
    },
    Test {
        name: "sweeps: what happens between two portions of a wake of many",
        program: "sweeps",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "sweeps are in order",
        message: "",
    },
    Test {
        name: "futexes: wakes, signals, ends and stops of threads that wait",
        program: "futexes",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "futexes are in order",
        message: "",
    },
    Test {
        name: "transfers: reads and writes of many bytes, cut short",
        program: "transfers",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "transfers are in order",
        message: "",
    },
    Test {
        name: "buffers: readv, writev and their relatives, of many bytes and many buffers",
        program: "buffers",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "buffers are in order",
        message: "",
    },
    Test {
        name: "locks: flock, ranges, deadlocks, many of all",
        program: "locks",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "locks are in order",
        message: "",
    },
    Test {
        name: "timers: timerfd with read, poll and epoll",
        program: "timers",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "timers are in order",
        message: "",
    },
    Test {
        name: "timeouts: SO_RCVTIMEO and SO_SNDTIMEO of pairs and TCP",
        program: "timeouts",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "timeouts are in order",
        message: "",
    },
    Test {
        name: "datagrams: UDP sockets over loopback",
        program: "datagrams",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "datagrams are in order",
        message: "",
    },
    Test {
        name: "datagrams: over Ethernet, to the server of QEMU",
        program: "datagrams",
        arguments: &["10.0.2.2"],
        harts: &["1", "4"],
        status: 0,
        last_line: "the server has answered",
        message: "",
    },
    Test {
        name: "limits: descriptors, memory, after fork and exec",
        program: "limits",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "limits are in order",
        message: "",
    },
    Test {
        name: "stress: processes at random for a minute, of which nothing is left",
        program: STRESS,
        arguments: &["60", "1"],
        harts: &["4"],
        status: 0,
        last_line: "nothing is left",
        message: "",
    },
    Test {
        name: "stress: the same for ten seconds",
        program: STRESS,
        arguments: &["10", "2"],
        harts: &["1"],
        status: 0,
        last_line: "nothing is left",
        message: "",
    },
    Test {
        name: "queued: real-time signals, signals taken without a handler",
        program: "queued",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "signals are in order",
        message: "",
    },
    Test {
        name: "alarms: once, repeatedly, replaced, after fork and exec",
        program: "alarms",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "alarms are in order",
        message: "",
    },
    Test {
        name: "processes: fork, exec, wait, pipes",
        program: "processes",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "processes are in order",
        message: "",
    },
    Test {
        name: "exec: threads, scripts, files in memory",
        program: "exec",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "execve is in order",
        message: "",
    },
    Test {
        name: "moment: fork beside threads that write, stopped, killed, interrupted",
        program: "moment",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "each child has the memory of one moment",
        message: "",
    },
    Test {
        name: "starting: signals to many while one of them is being started",
        program: "starting",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "signals reach processes that are being started",
        message: "",
    },
    Test {
        name: "served: files of a file system that a process serves",
        program: SERVED,
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "served files are in order",
        message: "",
    },
    Test {
        name: "jobs: groups, sessions, stopped processes",
        program: "jobs",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "jobs are in order",
        message: "",
    },
    Test {
        name: "proc: files about processes and the machine, hostile opens",
        program: "procfs",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "/proc is in order",
        message: "",
    },
    Test {
        name: "terminal: sessions, foreground, background, hang-up",
        program: "terminal",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "the terminal is in order",
        message: "",
    },
    Test {
        name: "counter: eight threads under a mutex",
        program: "counter",
        arguments: &[],
        harts: &["1", "4"],
        status: 7,
        last_line: "800000",
        message: "",
    },
    Test {
        name: "threads: conditions, barriers, time-outs, 500 at once",
        program: "threads",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "threads are in order",
        message: "",
    },
    Test {
        name: "hostile: futexes, clone, threads to the limit",
        program: "hostile",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "no harm was done",
        message: "system call 435 does not exist here",
    },
    Test {
        name: "priorities: a less urgent thread waits",
        program: "priorities",
        arguments: &[],
        harts: ONE,
        status: 0,
        last_line: "priorities are in order",
        message: "",
    },
    Test {
        name: "inherit: an inversion that is removed, chains of locks",
        program: "inherit",
        arguments: &["one"],
        harts: ONE,
        status: 0,
        last_line: "inheritance is in order",
        message: "",
    },
    Test {
        name: "inherit: locks, deadlocks, owners that end",
        program: "inherit",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "inheritance is in order",
        message: "",
    },
    Test {
        name: "together: inheritance between processes",
        program: "together",
        arguments: &["one"],
        harts: ONE,
        status: 0,
        last_line: "processes lock together",
        message: "",
    },
    Test {
        name: "together: locks of several processes, owners that end",
        program: "together",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "processes lock together",
        message: "",
    },
    Test {
        name: "daemons: what is left to a child by a process that ends",
        program: "daemons",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "nothing ends with its maker",
        message: "",
    },
    Test {
        name: "changed: what changes the status of a file in /tmp",
        program: CHANGED,
        arguments: &[],
        harts: &["1"],
        status: 0,
        last_line: "times of changes are in order",
        message: "",
    },
    Test {
        name: "newer: close_range, memfd_create, sync_file_range",
        program: "newer",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "newer calls are in order",
        message: "",
    },
    Test {
        name: "line: processes that wait for each other's locks, and a crowd",
        program: "line",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "the line has gone",
        message: "",
    },
    Test {
        name: "robust: mutexes of threads that execve ends",
        program: "robust",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "no mutex is lost",
        message: "",
    },
    leave("the first thread ends first", &["main-first"], 5, "the other thread", ""),
    leave("a fault of one thread", &["fault"], 139, "", "cannot read 0x8"),
    leave("the first thread returns", &["return"], 6, "the first thread", ""),
    Test {
        name: "signals: handlers, masks, interrupted calls",
        program: "signals",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "signals are in order",
        message: "no stack for the handler of a signal",
    },
    Test {
        name: "polling: ppoll, pselect6, eventfd",
        program: "polling",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "polling is in order",
        message: "",
    },
    Test {
        name: "epolling: epoll by level, by edge, one-shot",
        program: "epolling",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "epoll is in order",
        message: "",
    },
    Test {
        name: "overtaking: an urgent watcher does not wait for others",
        program: "overtaking",
        arguments: &[],
        harts: ONE,
        status: 0,
        last_line: "the urgent ones are first",
        message: "",
    },
    Test {
        name: "watchers: 30,000 entries, thousands of watchers",
        program: "watchers",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "no watch is left",
        message: "",
    },
    Test {
        name: "sockets: pairs, TCP, options, an event loop",
        program: "sockets",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "sockets are in order",
        message: "",
    },
    Test {
        name: "costs: each row, with what it did",
        program: "costs",
        arguments: &[],
        harts: &["1", "4"],
        status: 0,
        last_line: "all rows",
        message: "",
    },
    Test {
        name: "files: in memory, up to 256 threads, contents checked",
        program: FILES,
        arguments: &["/tmp", "1", "1", "make"],
        harts: &["1", "4"],
        status: 0,
        last_line: "all rows",
        message: "",
    },
    Test {
        name: "files: the same of a file system that a process serves",
        program: FILES,
        arguments: &[SERVED_PLACE, "1", "1", "make"],
        harts: &["1", "4"],
        status: 0,
        last_line: "all rows",
        message: "",
    },
    Test {
        name: "rust: threads, channels, files, children, tokio",
        program: "event-loop",
        arguments: &[],
        harts: &["1", "4"],
        status: 9,
        last_line: "rust is in order",
        message: "",
    },
    Test {
        name: "matrix: the servers of ./cops bench peers, by threads, epoll and tokio",
        program: "matrix",
        arguments: &["check", "threads", "thread", "epoll", "tokio", "tokio-one"],
        harts: &["1", "4"],
        status: 0,
        last_line: "servers are in order",
        message: "",
    },
    Test {
        name: "tasks: chains of tasks of tokio, with semaphores and pipes",
        program: "tasks",
        arguments: &["check"],
        harts: &["1", "4"],
        status: 0,
        last_line: "tasks are in order",
        message: "",
    },
    Test { status: 139, message: "cannot read 0xa", ..fault("a bad read", &["read"]) },
    Test { status: 139, message: "cannot write", ..fault("a write to code", &["write"]) },
    Test { status: 139, message: "cannot write", ..fault("a stack without end", &["stack"]) },
    Test { status: 132, message: "illegal", ..fault("an illegal instruction", &["illegal"]) },
    Test { status: 134, ..fault("abort", &["abort"]) },
];

/// A program that the kernel ends, by the argument that says how.
const fn fault(name: &'static str, arguments: &'static [&'static str]) -> Test {
    Test {
        name,
        program: "fault",
        arguments,
        harts: ONE,
        status: 0,
        last_line: "before the end",
        message: "",
    }
}

/// A process with several threads that ends, by the argument that says how.
const fn leave(
    name: &'static str,
    arguments: &'static [&'static str],
    status: i32,
    last_line: &'static str,
    message: &'static str,
) -> Test {
    Test { name, program: "leave", arguments, harts: &["1", "4"], status, last_line, message }
}

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let chosen: Vec<&Test> = TESTS.iter().filter(|test| context.is_chosen(test.name)).collect();
    let mut cases = busybox::run(context)?;
    if chosen.is_empty() {
        return Ok(cases);
    }
    packages::ensure(&[packages::LINUX_GCC], Progress::Lines)?;
    context.prepared()?;
    let folder = build(context.workspace, &chosen)?;
    let path = &*folder;
    let folder = folder.to_string_lossy();
    for test in chosen {
        for harts in test.harts {
            let name = format!("{}, {harts} hart(s)", test.name);
            let mut words = vec!["--smp", harts, "--add", &*folder];
            let program = words_of(test);
            words.extend(program.iter().map(String::as_str));
            let limit = if test.program == STRESS { STRESS_LIMIT } else { LIMIT };
            let result = cops_exec_within(&name, &words, limit)?;
            cases.push(Case::judged(name, &judge(test, &result)));
        }
        if MEASURED.contains(&test.program) {
            let name = format!("{}, portions", test.name);
            cases.push(Case::judged(name, &too_long(context, path, &words_of(test))?));
        }
    }
    if path.join(FILES).exists() {
        let arguments = ["1", "1", "make"];
        cases.extend(on_this_host(context, path, FILES, &arguments, "all rows")?);
    }
    if path.join(CHANGED).exists() {
        cases.extend(on_this_host(context, path, CHANGED, &[], "times of changes are in order")?);
    }
    if path.join(REMAP).exists() {
        cases.extend(on_this_host(context, path, REMAP, &[], "moves are in order")?);
    }
    Ok(cases)
}

/// A program on this host's Linux, by user-mode QEMU if there is one: the program itself is right.
/// Its arguments are a directory and `arguments`.
fn on_this_host(
    context: &Context<'_>,
    folder: &Path,
    program: &str,
    arguments: &[&str],
    last_line: &str,
) -> Outcome<Option<Case>> {
    let Some(emulator) = packages::qemu_user() else {
        context.note(format!("{program} is not run on this host: it has no user-mode QEMU"));
        return Ok(None);
    };
    let place = context.prepared()?.scratch_file(program);
    std::fs::create_dir_all(&place).because(|| format!("cannot make {}", place.display()))?;
    let mut command = Command::new(emulator);
    command.arg(folder.join(program)).arg(&place).args(arguments);
    let captured = capture(&mut command, Some(LIMIT), |_| ())?;
    let last = captured.stdout.lines().last();
    let is_right = captured.succeeded() && last == Some(last_line);
    let wrong = if is_right { Vec::new() } else { vec![captured.everything()] };
    let _ = std::fs::remove_dir_all(&place);
    Ok(Some(Case::judged(format!("{program}: on this host"), &wrong)))
}

/// The program and its arguments, behind the server that it needs.
fn words_of(test: &Test) -> Vec<String> {
    let mut words = Vec::new();
    if test.program == SERVED || test.arguments.contains(&SERVED_PLACE) {
        words.push("/bin/memfs".to_owned());
        if test.program == MAPPING {
            words.push("--cached".to_owned());
        }
    }
    words.push(format!("/{}", test.program));
    words.extend(test.arguments.iter().map(|&word| word.to_owned()));
    words
}

/// Programs that make the kernel work on much, measured (SPEC 3.13a).
const MEASURED: [&str; 16] = [
    "newer",
    "memory",
    REMAP,
    "mapping",
    "threads",
    "hostile",
    "exec",
    "epolling",
    "watchers",
    "jobs",
    "procfs",
    "transfers",
    "buffers",
    "locks",
    "timers",
    "datagrams",
];

/// Runs a program on one hart with counted instructions, while the kernel measures itself. Returns
/// the portions that are too long.
fn too_long(context: &Context<'_>, folder: &Path, words: &[String]) -> Outcome<Vec<String>> {
    let prepared = context.prepared()?;
    let options = MachineOptions::new(1, "512M");
    let mut boot = prepared.boot(&options, words, &[folder.to_owned()])?;
    portions::measure(&mut boot);
    let machine = Machine::start(&prepared.qemu, &boot)?;
    let mut transcript = Transcript::default();
    let ending = follow(machine, Some(Instant::now() + MEASURED_LIMIT), &mut transcript);
    let measured = portions::parse(&String::from_utf8_lossy(&transcript.kernel));
    let mut wrong: Vec<String> = measured
        .iter()
        .filter(|portion| portion.is_too_long())
        .map(|portion| format!("{}: {} about {}", portion.name(), portion.longest, portion.about))
        .collect();
    if !matches!(ending, Ending::Status(0)) || measured.is_empty() {
        wrong.push(format!("{ending:?}, {} kinds of portions measured", measured.len()));
    }
    Ok(wrong)
}

/// Time limit of a counted run, which takes some seconds on an idle machine.
const MEASURED_LIMIT: Duration = Duration::from_secs(300);

/// Builds the programs; returns the folder that has them, and nothing else.
fn build(workspace: &Workspace, tests: &[&Test]) -> Outcome<PathBuf> {
    let folder = workspace.target.join("linux");
    // A program of an earlier run would be in every root image.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).because(|| format!("cannot make {}", folder.display()))?;
    let mut step = step("programs for Linux");
    for test in tests {
        let program = folder.join(test.program);
        if program.exists() {
            continue;
        }
        if let Some((name, programs)) =
            PACKAGES.iter().find(|(_, programs)| programs.contains(&test.program))
        {
            package(workspace, name, programs, &folder, &mut step)?;
            continue;
        }
        compile(workspace, test.program, &folder, &mut step)?;
        for (_, started) in STARTED.iter().filter(|(starter, _)| *starter == test.program) {
            compile(workspace, started, &folder, &mut step)?;
        }
    }
    step.done();
    Ok(folder)
}

fn judge(test: &Test, result: &Captured) -> Vec<String> {
    let mut wrong = status(result, test.status);
    if result.stdout.lines().last().unwrap_or_default() != test.last_line {
        wrong.push(format!("the last line of standard output is not {:?}", test.last_line));
    }
    if !result.stderr.contains(test.message) {
        wrong.push(format!("standard error does not contain {:?}", test.message));
    }
    if !wrong.is_empty() {
        wrong.push(result.everything());
    }
    wrong
}
