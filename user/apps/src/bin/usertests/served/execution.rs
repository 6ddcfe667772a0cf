//! Programs in served file systems: that they are executed, whatever the server does meanwhile.

use core::pin::pin;
use core::sync::atomic::AtomicUsize;

use cops::abi::file::Status;
use cops::abi::served::operation::{self, GET_STATUS, LOOK_UP};
use cops::abi::served::{DATA_BYTES_MAX, Reply, Request};
use cops::abi::syscall::signal;
use cops::process::{self, Child, Resource};
use cops::time::{Duration, timeout};
use futures_util::future::{Either, select};

use super::by_hand::{Hand, honest, later};
use super::*;
use crate::forks::Pipe;
use crate::harness::{start, start_tied};
use crate::programs::execute;
use crate::raw::Asked;

tests! { served:
    programs_are_executed,
    programs_of_kept_pages_are_executed,
    a_program_is_read_in_large_pieces,
    a_program_of_kept_pages_is_read_once,
    a_program_is_killed_while_it_is_loaded,
    a_process_is_stopped_while_its_program_is_loaded,
    other_virtual_cpus_run_while_a_program_is_loaded,
    a_server_dies_while_programs_are_loaded,
    a_server_lies_about_a_program,
    a_server_lies_about_a_program_of_kept_pages,
    a_server_executes_its_own_program,
    a_load_is_charged,
}

/// Argument of a process that replaces its program by the one that follows, with the arguments
/// that follow. If that fails, the error is its exit code.
const EXECUTE: &str = "execute";
/// The same, but it starts another process and ends as that one.
const SPAWN: &str = "spawn";
/// Argument before another one: the current directory.
const IN: &str = "in";
/// Argument of a program that checks its path.
const EXECUTED: &str = "executed";
/// The exit code of this program as an interpreter, to which the number of arguments is added.
const AS_INTERPRETER: u8 = 50;

/// A small program, which ends with 0.
const SMALL: &str = "/bin/hello";
const HERE: usize = AT_FDCWD as usize;

/// The processes of these tests.
pub fn help(arguments: &[&str]) -> Option<ExitCode> {
    Some(match arguments {
        [IN, directory, rest @ ..] => {
            let path = format!("{directory}\0");
            if let Err(error) = raw::call(number::CHDIR, [path.as_ptr().addr()]) {
                return Some(ExitCode(error as u8));
            }
            return help(rest);
        }
        [EXECUTE, path, rest @ ..] => {
            let words: Vec<&str> = [path].into_iter().chain(rest).copied().collect();
            ExitCode(execute(path, &words) as u8)
        }
        [SPAWN, path, rest @ ..] => match cops::process::spawn(path, rest) {
            Ok(child) => match cops::wait!(Some(child.id())) {
                Ok((_, status)) => ExitCode(status.shell_code()),
                Err(_) => ExitCode::FAILURE,
            },
            Err(error) => ExitCode(errno(error).map_or(99, |error| error as u8)),
        },
        [EXECUTED, path] => is_executed_at(path),
        // As the interpreter of a script.
        [path, rest @ ..] if path.contains("script") => ExitCode(AS_INTERPRETER + rest.len() as u8),
        _ => return None,
    })
}

/// Whether this program is the one at `path`, which can be opened.
fn is_executed_at(path: &str) -> ExitCode {
    let mut bytes = [0u8; 200];
    let (own, place) = (c"/proc/self/exe".as_ptr().addr(), bytes.as_mut_ptr().expose_provenance());
    let length = raw::call(number::READLINKAT, [HERE, own, place, bytes.len()]).unwrap_or(0);
    if &bytes[..length] != path.as_bytes() {
        return ExitCode(1);
    }
    let mut head = [0u8; 4];
    let read = raw::call(number::OPENAT, [HERE, own, 0, 0]).and_then(|fd| {
        raw::call(number::READ, [fd, head.as_mut_ptr().expose_provenance(), head.len()])
    });
    if read != Ok(4) || head != *b"\x7fELF" {
        return ExitCode(2);
    }
    // Once more, by that name.
    let words = [path, HELPER, "script", "one"];
    ExitCode(execute("/proc/self/exe", &words) as u8)
}

impl Running {
    /// Makes a file with these permissions.
    async fn put(&self, path: &str, bytes: &[u8], permissions: usize) -> Outcome {
        fs::write(path, bytes).await?;
        let path = format!("{path}\0");
        let change = later(number::FCHMODAT, [HERE, path.as_ptr().addr(), permissions]);
        check_equal!(soon("fchmodat", change).await?, Ok(0), "fchmodat");
        Ok(())
    }

    /// Programs, scripts and interpreters are executed, by path, from a directory, and by link.
    async fn executes_programs(&self) -> Outcome {
        let (program, small) = (fs_read(PROGRAM).await?, fs_read(SMALL).await?);
        fs::create_dir("/disk/d").await?;
        self.put("/disk/d/program", &program, 0o755).await?;
        self.put("/disk/small", &small, 0o100).await?;
        self.put("/disk/script", b"#!/disk/d/program --served\n", 0o755).await?;
        self.put("/disk/d/script", b"#!../small\n", 0o755).await?;
        self.put("/disk/other-script", b"#!/bin/usertests --served", 0o755).await?;
        self.put("/disk/no-rights", &small, 0o644).await?;
        self.put("/disk/no-program", b"nothing of the kind", 0o755).await?;
        self.put("/disk/empty", b"", 0o755).await?;
        self.put("/disk/cut", &small[..5000], 0o755).await?;
        for (target, path) in
            [(c"small", c"/disk/link"), (c"/disk/d", c"/disk/far"), (c"loop", c"/disk/loop")]
        {
            let [target, path] = [target, path].map(|text| text.as_ptr().addr());
            let made = later(number::SYMLINKAT, [target, HERE, path]);
            check_equal!(soon("symlinkat", made).await?, Ok(0), "symlinkat");
        }
        let found = "/disk/d/program";
        let words = [found, HELPER, EXECUTED, found];
        let (good, two) = (AS_INTERPRETER + 1, ["one", "two"]);
        let cases: &[(&str, &[&str], u8)] = &[
            ("/", &[&words[0..1], &words[1..]].concat(), good),
            ("/disk", &["d/program", HELPER, EXECUTED, found], good),
            ("/disk/d", &["./program", HELPER, EXECUTED, found], good),
            ("/disk/d", &["../far/program", HELPER, EXECUTED, found], good),
            ("/disk/d", &["../../disk/d/../d/program", HELPER, EXECUTED, found], good),
            ("/disk/d", &["/bin/usertests", HELPER, "script"], AS_INTERPRETER),
            ("/disk", &["link"], 0),
            ("/disk", &["/disk/script", two[0], two[1]], AS_INTERPRETER + 2),
            ("/disk", &["other-script", two[0]], AS_INTERPRETER + 1),
            ("/disk/d", &["script"], 0),
            // The interpreter is found from the current directory.
            ("/disk", &["d/script"], ENOENT as u8),
            ("/", &["/disk/none"], ENOENT as u8),
            ("/", &["/disk/small/x"], ENOTDIR as u8),
            ("/", &["/disk/loop"], ELOOP as u8),
            ("/", &["/disk/d"], EACCES as u8),
            ("/", &["/disk"], EACCES as u8),
            ("/", &["/disk/no-rights"], EACCES as u8),
            ("/", &["/disk/no-program"], ENOEXEC as u8),
            ("/", &["/disk/empty"], ENOEXEC as u8),
            ("/", &["/disk/cut"], ENOEXEC as u8),
        ];
        for (directory, words, code) in cases {
            for how in [EXECUTE, SPAWN] {
                let all = [&[HELPER, IN, directory, how], *words].concat();
                let status = run(&all).await?;
                check_equal!(status.code(), Some(*code), "{how} {words:?} in {directory}");
            }
        }
        Ok(())
    }
}

async fn programs_are_executed() -> Outcome {
    start_tree().await?.executes_programs().await
}

async fn programs_of_kept_pages_are_executed() -> Outcome {
    start_cached_tree().await?.executes_programs().await
}

/// A server by hand with a program at every name that begins with `f`.
struct Serving {
    hand: Hand,
    program: Vec<u8>,
    /// Its number.
    number: u64,
    /// The positions and lengths that were read.
    reads: Vec<(usize, usize)>,
}

impl Serving {
    async fn new(hand: Hand) -> Result<Self, Failure> {
        Ok(Self { hand, program: fs_read(SMALL).await?, number: 10, reads: Vec::new() })
    }

    /// The reply to a request.
    fn reply(&mut self, request: &Request, rest: &[u8]) -> (Reply, Vec<u8>) {
        let (mut reply, mut data) = honest(request, rest);
        if reply.status.number == 2 || request.node == self.number {
            let (number, size) = (self.number, self.program.len() as u64);
            reply.status = Status { number, size, ..by_hand::status(2) };
        }
        if request.operation == operation::READ {
            let (first, length) = (request.first as usize, request.second as usize);
            self.reads.push((first, length));
            let from = self.program.get(first..).unwrap_or_default();
            data = from[..length.min(from.len())].to_vec();
        }
        (reply, data)
    }

    async fn answer_next(&mut self) -> Outcome {
        let (request, rest) = self.hand.next().await?;
        self.answer(&request, &rest)
    }

    fn answer(&mut self, request: &Request, rest: &[u8]) -> Outcome {
        let (reply, data) = self.reply(request, rest);
        check_equal!(self.hand.reply(reply, &data), Ok(Reply::BYTES + data.len()), "a reply");
        Ok(())
    }

    /// As [`Self::until`], until `child` has ended. Returns its exit code.
    async fn until_ended(
        &mut self,
        mut child: Child,
        change: impl FnMut(&Request, &mut Reply, &mut Vec<u8>),
    ) -> Result<Option<u8>, Failure> {
        Ok(self.until(soon("a process", child.wait()), change).await???.code())
    }

    /// Answers requests with what `change` makes of the replies, each after a while, until `end`.
    async fn until<R>(
        &mut self,
        end: impl Future<Output = R>,
        mut change: impl FnMut(&Request, &mut Reply, &mut Vec<u8>),
    ) -> Result<R, Failure> {
        let mut end = pin!(end);
        loop {
            let next = match select(end.as_mut(), pin!(self.hand.next())).await {
                Either::Left((end, _)) => return Ok(end),
                Either::Right((next, _)) => next,
            };
            let (request, rest) = next?;
            cops::time::sleep(Duration::from_micros(300)).await;
            let (mut reply, mut data) = self.reply(&request, &rest);
            change(&request, &mut reply, &mut data);
            let written = self.hand.reply(reply, &data);
            let is_too_long = data.len() as u64 > request.second;
            let expected = if is_too_long { Err(EINVAL) } else { Ok(Reply::BYTES + data.len()) };
            check_equal!(written, expected, "a reply");
        }
    }

    /// Executes the program in another process, as its replies say.
    async fn execute(&mut self, how: &str) -> Result<Option<u8>, Failure> {
        self.reads.clear();
        let child = start(&[HELPER, how, "/disk/f"])?;
        self.until_ended(child, |_, _, _| ()).await
    }
}

async fn a_program_is_read_in_large_pieces() -> Outcome {
    let mut serving = Serving::new(Hand::mounted().await?).await?;
    for how in [EXECUTE, SPAWN] {
        check_equal!(serving.execute(how).await?, Some(0), "{how}");
        let (reads, length) = (&serving.reads, serving.program.len());
        check!(reads.len() <= length / DATA_BYTES_MAX + 8, "{reads:?} of {length}");
        let is_within = |&(first, count): &(usize, usize)| first + count <= length;
        check!(reads.iter().all(is_within), "{reads:?} of {length}");
    }
    Ok(())
}

async fn a_program_of_kept_pages_is_read_once() -> Outcome {
    let mut serving = Serving::new(Hand::mounted_cached().await?).await?;
    check_equal!(serving.execute(EXECUTE).await?, Some(0), "the first time");
    let (reads, length) = (&serving.reads, serving.program.len());
    check!((1..=length / DATA_BYTES_MAX + 2).contains(&reads.len()), "{reads:?} of {length}");
    for how in [SPAWN, EXECUTE] {
        check_equal!(serving.execute(how).await?, Some(0), "{how} again");
        check!(serving.reads.is_empty(), "{how} again: {:?}", serving.reads);
    }
    Ok(())
}

/// After each number of replies. Whether the server has read the last request or not.
async fn a_program_is_killed_while_it_is_loaded() -> Outcome {
    let mut serving = Serving::new(Hand::mounted().await?).await?;
    serving.execute(EXECUTE).await?;
    // Besides the reads: a name, and a status.
    let requests = serving.reads.len() + 2;
    for how in [EXECUTE, SPAWN] {
        for replies in 0..requests {
            let child = start_tied(&[HELPER, how, "/disk/f"])?;
            for _ in 0..replies {
                serving.answer_next().await?;
            }
            let is_read = replies % 2 == 0;
            let last = if is_read { Some(serving.hand.next().await?) } else { None };
            if !is_read {
                let id = child.id();
                until("its request", || Ok(ends::calls_of(id)? == 1)).await?;
            }
            child.end().await?;
            if let Some((request, rest)) = last {
                let (reply, data) = serving.reply(&request, &rest);
                let written = serving.hand.reply(reply, &data);
                // That to a look-up is accepted, because it names a node.
                let length = Reply::BYTES + data.len();
                let is_named = request.operation == operation::LOOK_UP;
                let expected = if is_named { Ok(length) } else { Err(ENOENT) };
                check_equal!(written, expected, "{how}: a late reply");
            }
        }
    }
    Ok(())
}

async fn a_process_is_stopped_while_its_program_is_loaded() -> Outcome {
    const STOPPED: usize = 2;
    const CONTINUED: usize = 8;
    let wait_for = |id: u32, option: usize| {
        let mut word = 0i32;
        let place = (&raw mut word).expose_provenance();
        raw::call(number::WAIT4, [id as usize, place, option, 0]).map(|_| word)
    };
    let mut serving = Serving::new(Hand::mounted().await?).await?;
    for how in [EXECUTE, SPAWN] {
        let child = start(&[HELPER, how, "/disk/f"])?;
        let id = child.id();
        for _ in 0..3 {
            serving.answer_next().await?;
        }
        let (request, rest) = serving.hand.next().await?;
        cops::process::kill(id, signal::SIGSTOP)?;
        let stopped = i32::from(signal::SIGSTOP) << 8 | 0x7f;
        check_equal!(wait_for(id, STOPPED), Ok(stopped), "{how}: it is stopped");
        serving.answer(&request, &rest)?;
        // The call takes the reply. The process does not go on.
        until("the end of its wait", || Ok(ends::calls_of(id)? == 0)).await?;
        let next = timeout(Duration::from_millis(30), serving.hand.next()).await;
        check!(next.is_err(), "{how}: a request of a stopped process");
        cops::process::kill(id, signal::SIGCONT)?;
        check_equal!(wait_for(id, CONTINUED), Ok(0xffff), "{how}: it goes on");
        let code = serving.until_ended(child, |_, _, _| ()).await?;
        check_equal!(code, Some(0), "{how}: its end");
    }
    Ok(())
}

/// The ends of pipes of [`answer_pipe`].
static ASKED: AtomicUsize = AtomicUsize::new(0);
static ANSWERED: AtomicUsize = AtomicUsize::new(0);

/// A virtual CPU that answers each byte with another one.
extern "C" fn answer_pipe(_index: usize) -> ! {
    let mut byte = 0u8;
    let place = (&raw mut byte).expose_provenance();
    loop {
        let _ = raw::call(number::READ, [ASKED.load(Relaxed), place, 1]);
        let _ = raw::call(number::WRITE, [ANSWERED.load(Relaxed), place, 1]);
    }
}

/// The status of a child that was forked, once it has ended.
async fn forked_end(child: u32) -> Result<i32, Failure> {
    let mut word = 0i32;
    let place = (&raw mut word).expose_provenance();
    // Without waiting: this process serves.
    while raw::call(number::WAIT4, [child as usize, place, 1, 0])? == 0 {
        cops::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(word)
}

async fn other_virtual_cpus_run_while_a_program_is_loaded() -> Outcome {
    let mut serving = Serving::new(Hand::mounted().await?).await?;
    let (asked, answered) = (Pipe::new()?, Pipe::new()?);
    ASKED.store(asked.reader, Relaxed);
    ANSWERED.store(answered.writer, Relaxed);
    for how in [EXECUTE, SPAWN] {
        let child = crate::forks::fork(|| {
            let entry = answer_pipe as extern "C" fn(usize) -> !;
            let _ = raw::call(number::COPS_ALLOC_CPU, [1, entry as *const () as usize]);
            match how {
                EXECUTE => execute("/disk/f", &["f"]) as u8,
                _ => {
                    let path = c"/disk/f".as_ptr().addr();
                    let words = [path, 0];
                    let words = words.as_ptr().expose_provenance();
                    // Not even with a coroutine and a token it is asynchronous.
                    let spawned = raw::ask(number::COPS_SPAWN_PROCESS, [path, words, 0, 0, 0]);
                    let Asked::Done(Ok(pid)) = spawned else { return 98 };
                    raw::call(number::WAIT4, [pid, 0, 0, 0]).is_err().into()
                }
            }
        })?;
        for _ in 0..3 {
            serving.answer_next().await?;
        }
        let (request, rest) = serving.hand.next().await?;
        for _ in 0..3 {
            asked.signal()?;
            check_equal!(answered.wait(), Ok(1), "{how}: what another virtual CPU has written");
        }
        serving.answer(&request, &rest)?;
        let end = soon("the program", forked_end(child));
        let code = serving.until(end, |_, _, _| ()).await???;
        check_equal!(code, 0, "{how}: how it ended");
    }
    asked.close();
    answered.close();
    Ok(())
}

async fn a_server_dies_while_programs_are_loaded() -> Outcome {
    const EACH: usize = 3;
    let mut serving = Serving::new(Hand::mounted().await?).await?;
    let mut children = Vec::new();
    for replies in 0..EACH {
        for how in [EXECUTE, SPAWN] {
            let child = start(&[HELPER, how, "/disk/f"])?;
            for _ in 0..2 * replies {
                serving.answer_next().await?;
            }
            // This one is never answered.
            serving.hand.next().await?;
            children.push(child);
        }
    }
    // One of them is stopped: the others do not depend on it.
    let stopped = children[0].id();
    // In a group of its own: the end of another process of an orphaned group is a hang-up for one
    // that is stopped.
    raw::call(number::SETPGID, [stopped as usize, stopped as usize])?;
    cops::process::kill(stopped, signal::SIGSTOP)?;
    serving.hand.close();
    for child in &mut children[1..] {
        let status = soon("a process", child.wait()).await??;
        check_equal!(status.code(), Some(EIO as u8), "the code of a process");
    }
    cops::process::kill(stopped, signal::SIGCONT)?;
    let status = soon("a process", children[0].wait()).await??;
    check_equal!(status.code(), Some(EIO as u8), "the code of the stopped process");
    Ok(())
}

/// Changes a word of eight bytes, if it is there.
fn set_word(data: &mut [u8], at: usize, word: u64) {
    if let Some(place) = data.get_mut(at..at + 8) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

/// What a server makes of a reply.
type Lie = fn(&Request, &mut Reply, &mut Vec<u8>);

/// Any exit code, or a fault of the program.
const ANY: u8 = 255;

/// What a server says, and the exit code of the process that believes it.
const LIES: &[(&str, Lie, u8)] = &[
    ("no data", |_, _, data| data.clear(), ENOEXEC as u8),
    ("short data", |_, _, data| data.truncate(1000), 0),
    ("no data behind the headers", no_data_behind_the_headers, ENOEXEC as u8),
    ("too much", too_much, EIO as u8),
    ("other bytes", |_, _, data| data.fill(7), ENOEXEC as u8),
    ("an error", |request, reply, data| fail(request, reply, data, 0, 28), ENOSPC as u8),
    ("an error later", |request, reply, data| fail(request, reply, data, 5000, 4), EIO as u8),
    ("a directory", |request, reply, _| is_directory(request, reply, LOOK_UP), EACCES as u8),
    ("another type", |request, reply, _| is_directory(request, reply, GET_STATUS), EIO as u8),
    ("no rights", |_, reply, _| reply.status.mode &= !0o111, EACCES as u8),
    ("no bytes", |_, reply, _| reply.status.size = 0, ENOEXEC as u8),
    ("few bytes", |_, reply, _| reply.status.size = 100, ENOEXEC as u8),
    ("the most bytes of all", |_, reply, _| reply.status.size = LAST, 0),
    ("more bytes", |_, reply, _| reply.status.size = LAST + 1, EIO as u8),
    ("headers at the end", |request, reply, data| headers_at(request, reply, data, LAST), NO),
    ("headers beyond", |request, reply, data| headers_at(request, reply, data, LAST * 2), NO),
    ("notes at the end", |request, reply, data| notes_at(request, reply, data, LAST - 9), ANY),
    ("notes beyond", |request, reply, data| notes_at(request, reply, data, LAST * 2), ANY),
];

/// The longest length of a file.
const LAST: u64 = i64::MAX as u64;
const NO: u8 = ENOEXEC as u8;

fn no_data_behind_the_headers(request: &Request, _: &mut Reply, data: &mut Vec<u8>) {
    if request.first > 1000 {
        data.clear();
    }
}

fn too_much(request: &Request, _: &mut Reply, data: &mut Vec<u8>) {
    if request.operation == operation::READ {
        data.resize(request.second as usize + 1, 0);
    }
}

/// The reads from this byte on fail.
fn fail(request: &Request, reply: &mut Reply, data: &mut Vec<u8>, from: u64, error: u32) {
    if request.operation == operation::READ && request.first >= from {
        reply.error = error;
        data.clear();
    }
}

fn is_directory(request: &Request, reply: &mut Reply, operation: u16) {
    if request.operation == operation {
        reply.status = by_hand::status(3);
    }
}

/// The program's headers are there.
fn headers_at(request: &Request, reply: &mut Reply, data: &mut [u8], place: u64) {
    reply.status.size = LAST;
    if request.first == 0 {
        set_word(data, 32, place);
    }
}

/// The first header is that of notes, which are there.
fn notes_at(request: &Request, reply: &mut Reply, data: &mut [u8], place: u64) {
    const NOTES: u64 = 4;
    reply.status.size = LAST;
    if request.first == 0 {
        for (at, word) in [(0, NOTES), (8, place), (32, 1000)] {
            set_word(data, 64 + at, word);
        }
    }
}

/// The error is that of the call, or the program faults.
async fn lies_are_believed_by_the_caller_only(hand: Hand, keeps_pages: bool) -> Outcome {
    let mut serving = Serving::new(hand).await?;
    for &(what, lie, code) in LIES {
        // Where pages are kept, a short reply is the end of the file.
        let code = if keeps_pages && what == "short data" { NO } else { code };
        for how in [EXECUTE, SPAWN] {
            // Of this one, no page is kept.
            serving.number += 1;
            let child = start(&[HELPER, how, "/disk/f"])?;
            let found = serving.until_ended(child, lie).await?;
            check!(code == ANY || found == Some(code), "{how}, {what}: {found:?} not {code}");
        }
    }
    serving.number += 1;
    check_equal!(serving.execute(EXECUTE).await?, Some(0), "afterwards");
    Ok(())
}

async fn a_server_lies_about_a_program() -> Outcome {
    lies_are_believed_by_the_caller_only(Hand::mounted().await?, false).await
}

async fn a_server_lies_about_a_program_of_kept_pages() -> Outcome {
    lies_are_believed_by_the_caller_only(Hand::mounted_cached().await?, true).await
}

/// A process that waits for itself can be killed like any other.
async fn a_server_executes_its_own_program() -> Outcome {
    let hand = Hand::mounted().await?;
    let child = crate::forks::fork(|| execute("/disk/f", &["f"]) as u8)?;
    hand.close();
    until("its call", || Ok(ends::calls_of(child)? == 1)).await?;
    cops::process::kill(child, signal::SIGKILL)?;
    let (_, status) = cops::wait!(Some(child))?;
    check_equal!(status.signal(), Some(signal::SIGKILL), "what has ended it");
    Ok(())
}

/// What a load keeps between its portions is charged.
async fn a_load_is_charged() -> Outcome {
    const LONG: usize = 15_000;
    let mut hand = Hand::mounted().await?;
    let (path, text) = (c"/disk/f".as_ptr().addr(), format!("{}\0", "a".repeat(LONG)));
    let mut charged = [0; 3];
    // What is allocated on first use is not a load's.
    for (charged, length) in charged.iter_mut().zip([1, 1, LONG]) {
        let words = [path, text[LONG - length..].as_ptr().addr(), 0];
        let child = crate::forks::fork(|| {
            let executed = raw::call(number::EXECVE, [path, words.as_ptr().addr(), 0]);
            executed.err().map_or(0, |error| error as u8)
        })?;
        let (request, _) = hand.next().await?;
        *charged = process::quota(0, Resource::Memory)?.used;
        let reply = Reply { id: request.id, error: ENOENT as u32, ..Reply::default() };
        check_equal!(hand.reply(reply, &[]), Ok(Reply::BYTES), "a reply");
        let status = soon("the child", forked_end(child)).await??;
        check_equal!(status, (ENOENT as i32) << 8, "how it ended");
    }
    let [_, short, long] = charged;
    check!(long >= short + LONG as u64 - 1000, "charged {short}, and {long} with {LONG} bytes");
    Ok(())
}
