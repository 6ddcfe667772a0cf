//! Tests the shell through `./cops shell`: types keys and reads answers, also beside hostile
//! programs.
//!
//! Times are not judged: each answer is waited for, up to a limit that is only reached if the shell
//! never answers.

use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::{Case, Context, cops, step};
use crate::busybox;
use crate::error::{Because, Failure, Outcome};
use crate::interrupt;

/// Time limit of one answer. The slowest includes a boot.
const LIMIT: Duration = Duration::from_secs(120);
/// Number of bytes of output shown of a failed session.
const SHOWN_BYTES: usize = 2_000;
/// Maximum number of bytes that a flooding program may print between a command and its answer; they
/// are buffered in the emulator and in pipes.
const FLOOD_BYTES_MAX: usize = 2 << 20;

const CONTROL_C: &str = "\x03";
const CONTROL_D: &str = "\x04";
const CONTROL_Z: &str = "\x1a";
const UP: &str = "\x1b[A";
const PROMPT: &str = "$ ";

/// A step of a session.
enum Step {
    /// Type this.
    Type(&'static str),
    /// Wait until this is printed, after the text that was waited for before.
    See(&'static str),
    /// The same, with a limit on the bytes printed before it.
    SeeWithin(&'static str, usize),
}

use Step::{See, SeeWithin, Type};

/// Name, arguments of `./cops shell`, and what is typed and printed. Each session begins at the
/// first prompt and ends with `exit 7`, which must be its status.
type Described = (&'static str, &'static [&'static str], &'static [Step]);

/// A session of a shell that has busybox.
const WITH_BUSYBOX: Described = (
    "cat and ls are those of busybox, ps is that of COPS",
    &[],
    &[
        Type("ls -d /bin | cat -n\n"),
        See("\n     1\t/bin\n$ "),
        Type("ps\n"),
        See("POLLS"),
        See("bin/ps\n$ "),
    ],
);

/// The sessions of a shell with or without busybox.
const SESSIONS: [Described; 14] = [
    (
        "a program reads exactly what is typed",
        &[],
        &[
            Type("copy\n/bin/copy\n"),
            See("copy\n/bin/copy\n/bin/copy\n"),
            Type("second line\n"),
            See("second line\nsecond line\n"),
            Type(CONTROL_D),
            See(PROMPT),
            Type("echo back\n"),
            See("echo back\nback\n"),
            See(PROMPT),
        ],
    ),
    (
        "lines are edited",
        &[],
        &[
            Type("echo wrongx\x7f\x08\x08\x08\x08\x08right\n"),
            See("\nright\n"),
            See(PROMPT),
            Type("echo wrong\x03"),
            See("^C\n$ "),
            Type("copy\naxb\x7f\x7fc\n"),
            See("\nac\n"),
            Type(CONTROL_D),
            See(PROMPT),
        ],
    ),
    (
        "q ends top",
        &[],
        &[
            Type("top -d 0.05\n"),
            See("bin/top"),
            See("bin/top"),
            Type("q"),
            See(PROMPT),
            Type("echo back\n"),
            See("echo back\nback\n"),
            See(PROMPT),
        ],
    ),
    (
        "Ctrl-C ends the foreground, whatever it does",
        &["--smp", "2"],
        &[
            Type("copy\n"),
            See("copy\n"),
            Type(CONTROL_C),
            See("^C\n$ "),
            Type("hostile spin\n"),
            See("spin\n"),
            Type(CONTROL_C),
            See("^C\n$ "),
            // A program that reads keys has no echo.
            Type("top -d 0.05\n"),
            See("bin/top"),
            Type(CONTROL_C),
            See("\n$ "),
            Type("hostile console-flood\n"),
            See("~~~~"),
            Type(CONTROL_C),
            See("\n$ "),
            Type("echo back\n"),
            See("\nback\n"),
            // None of them is left.
            Type("wait\n"),
            See("wait\n"),
            See(PROMPT),
            Type("ps\n"),
            See("POLLS"),
            See("bin/shell\n"),
            See("bin/ps\n$ "),
        ],
    ),
    (
        "& starts in the background, and the end is reported",
        &[],
        &[
            Type("hello one two &\n"),
            See("[1] 2\n"),
            Type("wait\n"),
            See("[1] ended: hello one two (exit code 0)\n$ "),
            // A program in the background that reads is stopped until it is in the foreground.
            Type("copy &\n"),
            See("[1] 3\n"),
            // Reported before the next prompt, be that before or after this command.
            Type("wait\n"),
            See("[1] stopped: copy\n$ "),
            Type("echo not for copy\n"),
            See("\nnot for copy\n"),
            Type("jobs\n"),
            See("[1] 3 copy (stopped)\n$ "),
            Type("fg\n"),
            See("fg\ncopy\n"),
            Type("for copy\n"),
            See("for copy\nfor copy\n"),
            Type(CONTROL_D),
            See(PROMPT),
            Type("fault &\n"),
            See("[1] 4\n"),
            Type("wait\n"),
            See("[1] ended: fault (killed by signal 11)\n$ "),
        ],
    ),
    (
        "beside programs that compute at their most urgent level on every hart",
        &["--smp", "2"],
        &[
            Type("hostile spin &\n"),
            See("[1] 2\n$ "),
            Type("hostile spin &\n"),
            See("[2] 3\n$ "),
            Type("jobs\n"),
            See("[2] 3 hostile spin\n$ "),
            // A program in the foreground runs too.
            Type("hello\n"),
            See("hello from COPS, 0 arguments\n$ "),
            // Their ends are reported after either command.
            Type("kill 1 %2\nwait\n"),
            See("(killed by signal 15)\n"),
            See("(killed by signal 15)\n"),
            Type("echo back\n"),
            See("\nback\n$ "),
        ],
    ),
    (
        "beside a program that floods the console",
        &["--smp", "2"],
        &[
            Type("hostile console-flood &\n"),
            See("~~~~"),
            Type("jobs\n"),
            SeeWithin("[1] 2 hostile console-flood\n", FLOOD_BYTES_MAX),
            Type("jobs\n"),
            SeeWithin("[1] 2 hostile console-flood\n", FLOOD_BYTES_MAX),
            Type("kill %1\nwait\n"),
            See("(killed by signal 15)\n"),
            Type("echo back\n"),
            See("\nback\n$ "),
        ],
    ),
    (
        "beside programs that start others",
        &["--smp", "2"],
        &[
            Type("hostile spawn-churn &\n"),
            See("[1] "),
            See(PROMPT),
            Type("hostile spawn-wide 1 &\n"),
            See("[2] "),
            See(PROMPT),
            Type("jobs\n"),
            See("[1] "),
            See("hostile spawn-churn\n[2] "),
            See("hostile spawn-wide 1\n$ "),
            Type("kill %1 %2\nwait\n"),
            See("(killed by signal 15)\n"),
            See("(killed by signal 15)\n"),
            Type("hello\n"),
            See("hello from COPS, 0 arguments\n$ "),
        ],
    ),
    (
        "Ctrl-Z stops the foreground, bg and fg make it go on",
        &["--smp", "2"],
        &[
            Type("copy\none\n"),
            See("one\none\n"),
            Type(CONTROL_Z),
            See("^Z\n[1] stopped: copy\n$ "),
            Type("echo $?; jobs\n"),
            See("\n148\n[1] 2 copy (stopped)\n$ "),
            Type("fg\n"),
            See("fg\ncopy\n"),
            Type("two\n"),
            See("two\ntwo\n"),
            Type(CONTROL_Z),
            See("[1] stopped: copy\n$ "),
            Type("hostile spin\n"),
            See("spin\n"),
            Type(CONTROL_Z),
            See("^Z\n[2] stopped: hostile spin\n$ "),
            Type("bg %2\n"),
            See("bg %2\n[2] hostile spin\n$ "),
            Type("jobs\n"),
            See("[1] 2 copy (stopped)\n[2] 3 hostile spin\n$ "),
            Type("fg %2\n"),
            See("fg %2\nhostile spin\n"),
            Type(CONTROL_C),
            See("^C\n$ "),
            Type("kill %1\nwait\n"),
            See("[1] ended: copy (killed by signal 15)\n$ "),
        ],
    ),
    (
        "pipelines, their groups, and their status",
        &["--smp", "2"],
        &[
            Type("echo a b | copy | copy\n"),
            See("| copy\na b\n$ "),
            Type("copy | copy | copy\nthrough\n"),
            See("through\nthrough\n"),
            Type(CONTROL_D),
            See(PROMPT),
            // All of a pipeline is stopped, goes on, and ends.
            Type("copy | copy\n"),
            See("copy | copy\n"),
            Type(CONTROL_Z),
            See("stopped: copy | copy\n$ "),
            // What is typed before `fg` has said what it does is echoed before that too.
            Type("fg\n"),
            See("fg\ncopy | copy\n"),
            Type("again\n"),
            See("again\nagain\n"),
            Type(CONTROL_C),
            See("^C\n$ "),
            Type("jobs; fault | copy; echo $?; copy </etc/none | fault; echo $?\n"),
            See("\n0\n"),
            See("139\n$ "),
            Type("hello | true; echo status $?\n"),
            See("\nstatus 0\n$ "),
        ],
    ),
    (
        "redirections, directories, variables, quotes",
        &[],
        &[
            Type("echo 'one  two' > /tmp/a; echo three >> /tmp/a; copy /tmp/a\n"),
            See("copy /tmp/a\none  two\nthree\n$ "),
            Type("copy < /tmp/a | copy > /tmp/b; copy /tmp/b\n"),
            See("copy /tmp/b\none  two\nthree\n$ "),
            Type("copy /none 2> /tmp/c; echo $?; copy /tmp/c\n"),
            See("\n1\nerror: no such file"),
            See(PROMPT),
            Type("copy /none > /tmp/d 2>&1; copy /tmp/d\n"),
            See("copy /tmp/d\nerror: no such file"),
            See(PROMPT),
            Type("cd /tmp; pwd; copy a | copy\n"),
            See("\n/tmp\none  two\nthree\n$ "),
            Type("A='x  y'; echo \"$A\" $A '$A' \\$A\n"),
            See("\nx  y x y $A $A\n$ "),
            Type("export A; shell\n"),
            See("COPS shell; try `help`.\n$ "),
            Type("echo \"<$A>\"; exit 5\n"),
            See("\n<x  y>\n$ "),
            Type("echo $? 'and no more\n"),
            See("$ "),
            Type("echo $?\n"),
            See("\n2\n$ "),
        ],
    ),
    (
        "lists, conditions, and the status of each",
        &[],
        &[
            Type("true && echo yes || echo no; false && echo no || echo yes again\n"),
            See("\nyes\nyes again\n$ "),
            Type("nothing-of-this-name; echo $?\n"),
            See("\n127\n$ "),
            Type("hello && fault; echo $?; false; echo $?\n"),
            See("arguments\n139\n1\n$ "),
            // Ctrl-C ends the whole line, and the shell lives on.
            Type("copy; echo not this\n"),
            See("this\n"),
            Type(CONTROL_C),
            See("^C\n$ "),
            Type("echo $?\n"),
            See("\n130\n$ "),
            Type("echo a |; echo $?\n"),
            See(PROMPT),
            Type("echo $?\n"),
            See("\n2\n$ "),
        ],
    ),
    (
        "history and completion",
        &[],
        &[
            Type("echo first\n"),
            See("\nfirst\n$ "),
            Type("echo second\n"),
            See("\nsecond\n$ "),
            Type(UP),
            Type(UP),
            Type("\x7f\x7f\x7f\x7f\x7fagain\n"),
            See("\nagain\n$ "),
            Type("hel\tlo\x01\x0bhell\t\n"),
            See("\nhello from COPS, 0 arguments\n$ "),
            Type("ls /bi\t| copy\n"),
            See("\nusertests\n"),
            See(PROMPT),
        ],
    ),
    (
        "a shell in the shell",
        &[],
        &[
            Type("shell\n"),
            See("COPS shell; try `help`.\n$ "),
            Type("copy\n"),
            See("copy\n"),
            Type("inner\n"),
            See("inner\ninner\n"),
            Type(CONTROL_C),
            See("^C\n$ "),
            Type("exit 3\n"),
            See("exit 3\n$ "),
            Type("copy\nouter\n"),
            See("outer\nouter\n"),
            Type(CONTROL_D),
            See(PROMPT),
        ],
    ),
];

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    // Built once here, with visible progress.
    context.prepared()?;
    let mut cases = Vec::new();
    let has_busybox = busybox::for_shell(context.workspace).is_some();
    if !has_busybox {
        context.note("the shell has no busybox, and is tested without it");
    }
    let sessions = SESSIONS.into_iter().chain(has_busybox.then_some(WITH_BUSYBOX));
    for (name, arguments, steps) in sessions.filter(|(name, ..)| context.is_chosen(name)) {
        let mut step = step(name);
        let mut session = Session::start(arguments)?;
        let result = session.play(steps, |what| step.detail(what));
        cases.push(match result {
            Ok(()) => Case::passed(name),
            Err(failure) => Case::failed(name, format!("{failure}\n{}", session.shown())),
        });
    }
    Ok(cases)
}

/// A running `./cops shell`. Dropping it ends it.
struct Session {
    child: Child,
    output: Receiver<Vec<u8>>,
    printed: Vec<u8>,
    /// End of the text that has been waited for.
    seen: usize,
    _guard: interrupt::Guard,
}

impl Session {
    fn start(arguments: &[&str]) -> Outcome<Self> {
        let mut child = cops()?
            .arg("shell")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Its position among the lines of standard output is not defined, so it is not checked.
            .stderr(Stdio::null())
            .spawn()
            .because(|| "cannot start ./cops shell".into())?;
        let guard = interrupt::guard(&child);
        let (sender, output) = channel();
        let mut stream =
            child.stdout.take().ok_or_else(|| Failure::new("the shell has no output"))?;
        std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(count @ 1..) = stream.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, output, printed: Vec::new(), seen: 0, _guard: guard })
    }

    /// Plays the steps between the first prompt and the end.
    fn play(&mut self, steps: &[Step], mut progress: impl FnMut(&str)) -> Outcome<()> {
        self.see(PROMPT, usize::MAX)?;
        for step in steps {
            match step {
                Type(text) => self.enter(text)?,
                See(text) => {
                    progress(text);
                    self.see(text, usize::MAX)?;
                }
                SeeWithin(text, limit) => {
                    progress(text);
                    self.see(text, *limit)?;
                }
            }
        }
        self.enter("exit 7\n")?;
        let deadline = Instant::now() + LIMIT;
        while self.receive(deadline)? {}
        let status = self.child.wait().because(|| "cannot wait for ./cops shell".into())?;
        if status.code() == Some(7) {
            Ok(())
        } else {
            Err(Failure::new(format!("`exit 7` gave {status}")))
        }
    }

    fn enter(&mut self, text: &str) -> Outcome<()> {
        let input =
            self.child.stdin.as_mut().ok_or_else(|| Failure::new("the shell has no input"))?;
        input
            .write_all(text.as_bytes())
            .and_then(|()| input.flush())
            .because(|| format!("cannot type {text:?}"))
    }

    /// Waits until `text` is printed, with at most `limit` bytes before it.
    fn see(&mut self, text: &str, limit: usize) -> Outcome<()> {
        let deadline = Instant::now() + LIMIT;
        let mut searched = self.seen;
        loop {
            let place = self.printed[searched..]
                .windows(text.len())
                .position(|window| window == text.as_bytes());
            if let Some(place) = place {
                let place = searched + place;
                let before = place - self.seen;
                self.seen = place + text.len();
                return if before <= limit {
                    Ok(())
                } else {
                    Err(Failure::new(format!(
                        "{before} bytes were printed before {text:?}, more than {limit}"
                    )))
                };
            }
            searched = self.printed.len().saturating_sub(text.len()).max(self.seen);
            if !self.receive(deadline)? {
                return Err(Failure::new(format!("the session ended before it printed {text:?}")));
            }
        }
    }

    /// Receives the next output. Returns false at the end.
    fn receive(&mut self, deadline: Instant) -> Outcome<bool> {
        match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(bytes) => {
                self.printed.extend_from_slice(&bytes);
                Ok(true)
            }
            Err(RecvTimeoutError::Disconnected) => Ok(false),
            Err(RecvTimeoutError::Timeout) => Err(Failure::new(format!(
                "nothing came for {} s after {:?}",
                LIMIT.as_secs(),
                tail(&self.printed[..self.seen], 60)
            ))),
        }
    }

    fn shown(&self) -> String {
        tail(&self.printed, SHOWN_BYTES)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Both fail only if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tail(bytes: &[u8], length: usize) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(length)..]).into_owned()
}
