//! Tests `./cops exec` as a child process with standard streams and an exit code, and how
//! `./cops trace` ends.

use std::fs::OpenOptions;
use std::io::{self, pipe};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Case, Context, cops, step};
use crate::build::vdso;
use crate::cli::Machine as MachineOptions;
use crate::error::{Because, Outcome};
use crate::process::{Captured, capture};
use crate::qemu::console::{Ending, Transcript, follow};
use crate::qemu::machine::Machine;

/// Time limit of one run of xtask; a boot takes about a second.
const LIMIT: Duration = Duration::from_secs(180);

type Check = fn(&Captured) -> Vec<String>;

/// Name, arguments of `./cops exec`, check of the result.
const TESTS: [(&str, &[&str], Check); 8] = [
    ("arguments are printed, exit 0", &["/bin/hello", "a", "b c"], |result| {
        let mut wrong = status(result, 0);
        wrong.extend(nothing_on_stderr(result));
        if result.stdout != "hello from COPS, 2 arguments\na\nb c\n" {
            wrong.push(format!("standard output is {:?}", result.stdout));
        }
        wrong
    }),
    ("a fault is 139 and one line", &["/bin/fault"], |result| {
        let mut wrong = status(result, 139);
        if result.stderr.lines().count() != 1 {
            wrong.push(format!("not one line on standard error: {:?}", result.stderr));
        }
        wrong
    }),
    ("one hart", &["--smp", "1", "/bin/hello"], |result| status(result, 0)),
    ("eight harts", &["--smp", "8", "/bin/hello"], |result| status(result, 0)),
    (
        "a server is ended at the time limit with 124",
        &["--timeout", "3", "/bin/echo-server"],
        |result| status(result, 124),
    ),
    (
        "an option that would have no effect is refused",
        &["/bin/matrix-client", "--jitter-seed", "7"],
        |result| refused(result, "--jitter-seed needs --period-us"),
    ),
    (
        "a period in which requests without end are due is refused",
        &["--timeout", "20", "/bin/matrix-client", "--period-us", "0"],
        |result| refused(result, "--period-us must be at least 1"),
    ),
    ("a program that is not there", &["/bin/no-such-program"], |result| {
        let mut wrong = status(result, 125);
        if !result.stderr.contains("/bin/no-such-program") || !result.stderr.contains("/bin/hello")
        {
            wrong.push(format!(
                "the message names neither the program nor those there are: {:?}",
                result.stderr
            ));
        }
        wrong
    }),
];

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    // Built once here, with visible progress.
    context.prepared()?;
    let mut cases = Vec::new();
    for (name, arguments, check) in TESTS.into_iter().filter(|(name, ..)| context.is_chosen(name)) {
        let result = cops_exec(name, arguments)?;
        let mut wrong = check(&result);
        if !wrong.is_empty() {
            wrong.push(result.everything());
        }
        cases.push(Case::judged(name, &wrong));
    }
    let name = "output that is lost";
    if context.is_chosen(name) {
        cases.push(Case::judged(name, &lost_output(name)?));
    }
    let name = "output that is closed, or lost by a command that runs nothing";
    if context.is_chosen(name) {
        cases.push(Case::judged(name, &closed_output()?));
    }
    let name = "another scheduler serves in another order, and one that is none is refused";
    if context.is_chosen(name) {
        cases.push(Case::judged(name, &other_scheduler(context, name)?));
    }
    let name = "harts that wait awake are woken by the clock, by devices, and by each other";
    if context.is_chosen(name) {
        cases.push(Case::judged(name, &waiting_awake(name)?));
    }
    let name = "random numbers depend on the machine's seed, and on nothing else in a counted run";
    if context.is_chosen(name) {
        cases.push(Case::judged(name, &seed_decides(name)?));
    }
    let name = "boot arguments that are no numbers are named, with what is used instead";
    if context.is_chosen(name) {
        cases.push(Case::judged(name, &wrong_numbers_are_named(context)?));
    }
    let name = "a program that is ended has a trace until then";
    if context.is_chosen(name) {
        cases.push(Case::judged(name, &trace_of_what_is_ended(context, name)?));
    }
    let name = "a machine that lacks an extension says so";
    if context.is_chosen(name) {
        cases.push(Case::judged(name, &missing_extension_is_named(context)?));
    }
    Ok(cases)
}

/// Runs programs with output that this host cannot write. That is a failure; a program that has
/// failed keeps its status.
fn lost_output(name: &str) -> Outcome<Vec<String>> {
    let mut wrong = Vec::new();
    for (redirection, program, code) in [
        ("> /dev/full", "/bin/hello", 125),
        ("2> /dev/full", "/bin/hello", 0),
        ("2> /dev/full", "/bin/fault", 139),
    ] {
        let ours = cops()?;
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec \"$@\" {redirection}"), "sh"]);
        command.arg(ours.get_program()).args(ours.get_args()).args(["exec", program]);
        command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut step = step(name);
        let result = capture(&mut command, Some(LIMIT), |line| step.detail(line))?;
        let mut faults = status(&result, code);
        let is_said = result.stderr.contains("standard output could not be written");
        if is_said != (code == 125) {
            faults.push("that output was lost is said if it was, and only then".to_owned());
        }
        if !faults.is_empty() {
            faults.push(format!("{program} {redirection}: {}", result.everything()));
        }
        wrong.extend(faults);
    }
    Ok(wrong)
}

/// Runs commands that print many lines, with output that has no reader, which is no failure, and
/// on a full disk.
fn closed_output() -> Outcome<Vec<String>> {
    let closed = || pipe().map(|(_, writer)| Stdio::from(writer));
    let full = || OpenOptions::new().write(true).open("/dev/full").map(Stdio::from);
    let cannot = || "cannot run our own program".into();
    let mut wrong = Vec::new();
    for words in [&["test", "--list"][..], &["help"]] {
        for (output, code) in [(&closed as &dyn Fn() -> io::Result<Stdio>, 0), (&full, 125)] {
            for hides_errors in [false, true] {
                let stderr = if hides_errors { output() } else { Ok(Stdio::piped()) };
                let mut command = cops()?;
                command.args(words).stdin(Stdio::null());
                command.stdout(output().because(cannot)?).stderr(stderr.because(cannot)?);
                let child = command.spawn().because(cannot)?;
                let result = child.wait_with_output().because(cannot)?;
                let said = String::from_utf8_lossy(&result.stderr);
                let is_said = said.starts_with("cops: ")
                    && said.contains("could not be written")
                    && said.lines().count() == 1;
                let is_right = if hides_errors || code == 0 { said.is_empty() } else { is_said };
                if result.status.code() != Some(code) || !is_right {
                    wrong.push(format!("{words:?}: {}, not {code}: {said:?}", result.status));
                }
            }
        }
    }
    Ok(wrong)
}

/// Boots with the built scheduler, with the one without priorities, and with a file that is none.
fn other_scheduler(context: &Context<'_>, name: &str) -> Outcome<Vec<String>> {
    let first_come = vdso::first_come(context.workspace);
    let none = context.workspace.root.join("Cargo.toml");
    let [first_come, none] = [&first_come, &none].map(|path| path.to_string_lossy());
    let program = ["/bin/measure", "order"];
    let mut wrong = Vec::new();
    for (more, code, expected) in [
        (&[][..], 0, "order: 0 20 40 50\n"),
        (&["--scheduler", &*first_come], 0, "order: 40 20 50 0\n"),
        (&["--scheduler", &*none], 125, ""),
    ] {
        let result = cops_exec(name, &[more, &program].concat())?;
        wrong.extend(status(&result, code));
        if result.stdout != expected || (code != 0 && !result.stderr.contains("ELF")) {
            wrong.push(format!("{more:?}: {}", result.everything()));
        }
    }
    Ok(wrong)
}

fn waiting_awake(name: &str) -> Outcome<Vec<String>> {
    let command = ["--smp", "2", "--idle", "poll", "--verbose", "/bin/usertests"];
    let mut wrong = Vec::new();
    for tests in ["virtual_cpus::wakes_cross", "timers::", "network::"] {
        let result = cops_exec(name, &[&command[..], &[tests]].concat())?;
        wrong.extend(status(&result, 0));
        if !result.stderr.contains("harts without work wait awake") {
            wrong.push(format!("they do not: {}", result.everything()));
        }
    }
    Ok(wrong)
}

/// Boots on harts without one of the extensions that the kernel is built for.
fn missing_extension_is_named(context: &Context<'_>) -> Outcome<Vec<String>> {
    let prepared = context.prepared()?;
    let machine = MachineOptions::new(2, "512M");
    let mut wrong = Vec::new();
    for cpu in ["rv64,zba=false", "rv64,zbb=false", "rv64,zbs=false"] {
        let mut boot = prepared.boot(&machine, &["/bin/hello".to_owned()], &[])?;
        boot.cpu = cpu;
        let machine = Machine::start(&prepared.qemu, &boot)?;
        let ending = follow(machine, Some(Instant::now() + LIMIT), &mut Transcript::default());
        if !matches!(&ending, Ending::Broken(why) if why.contains("COPS needs harts with Zba, Zbb"))
        {
            wrong.push(format!("{cpu}: {ending:?}"));
        }
    }
    Ok(wrong)
}

/// The system starts in spite of them.
fn wrong_numbers_are_named(context: &Context<'_>) -> Outcome<Vec<String>> {
    let prepared = context.prepared()?;
    let machine = MachineOptions::new(1, "128M");
    let mut boot = prepared.boot(&machine, &["/bin/hello".to_owned()], &[])?;
    boot.boot_arguments.extend(["tcp-buffer=2k".to_owned(), "tcp-connections=7".to_owned()]);
    let machine = Machine::start(&prepared.qemu, &boot)?;
    let mut transcript = Transcript::default();
    let ending = follow(machine, Some(Instant::now() + LIMIT), &mut transcript);
    let mut wrong = Vec::new();
    if ending.exit_status() != 0 {
        wrong.push(format!("{ending:?}"));
    }
    let log = String::from_utf8_lossy(&transcript.kernel);
    for expected in [
        "boot argument tcp-buffer=\"2k\" is not a number from 1024 to 65536: using 4096",
        "boot argument tcp-connections=\"7\" is not a number from 64 to 65536: using 64",
    ] {
        if log.matches(expected).count() != 1 {
            wrong.push(format!("not once {expected:?} in the log: {log}"));
        }
    }
    Ok(wrong)
}

/// Time and date are the same in counted runs; only the emulator's seed differs.
fn seed_decides(name: &str) -> Outcome<Vec<String>> {
    let mut drawn = Vec::new();
    let mut wrong = Vec::new();
    for seed in ["1", "1", "2"] {
        let result = cops_exec(name, &["--icount", "--seed", seed, "/bin/random"])?;
        wrong.extend(status(&result, 0));
        let text = result.stdout.trim_end();
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            wrong.push(format!("no 16 bytes in hexadecimal: {}", result.everything()));
        }
        drawn.push(text.to_owned());
    }
    if drawn[0] != drawn[1] {
        wrong.push(format!("{} and {} with the same seed", drawn[0], drawn[1]));
    }
    if drawn[1] == drawn[2] {
        wrong.push(format!("{} with two seeds", drawn[1]));
    }
    Ok(wrong)
}

/// Traces a server, which does not end by itself, to a time limit and to Ctrl-C.
fn trace_of_what_is_ended(context: &Context<'_>, name: &str) -> Outcome<Vec<String>> {
    let mut step = step(name);
    let ours = cops()?;
    let mut wrong = Vec::new();
    // Without `--foreground` there are two signals, to the command and to its process group.
    let interrupted = ["--foreground", "--preserve-status", "--signal", "INT", "5"];
    for (limit, more, code) in
        [(&[][..], &["--timeout", "3"][..], 124), (&interrupted, &["--smp", "2"], 130)]
    {
        let scratch = context.workspace.scratch()?;
        let file = scratch.file("trace.json");
        let mut command = match limit {
            [] => Command::new(ours.get_program()),
            limit => {
                let mut command = Command::new("timeout");
                command.args(limit).arg(ours.get_program());
                command
            }
        };
        command.args(ours.get_args()).arg("trace").args(more);
        command.args(["--records", "1000", "--out"]).arg(&file).arg("/bin/echo-server");
        command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let result = capture(&mut command, Some(LIMIT), |line| step.detail(line))?;
        let mut faults = status(&result, code);
        // The command has read the file back.
        if !file.exists() || !result.stderr.contains("trace.json: ") {
            faults.push("there is no trace".to_owned());
        }
        if !faults.is_empty() {
            faults.push(result.everything());
        }
        wrong.extend(faults);
    }
    Ok(wrong)
}

/// Successive boots, each of which must print hello and end with 0.
pub fn boots(context: &Context<'_>) -> Outcome<Vec<Case>> {
    context.prepared()?;
    let count = context.options.boots;
    let mut cases = Vec::new();
    for number in 1..=count {
        let name = format!("boot {number} of {count}");
        let result = cops_exec(&name, &["--smp", "4", "/bin/hello", "boot"])?;
        let mut wrong = status(&result, 0);
        if !result.stdout.contains("boot") {
            wrong.push("hello did not print its argument".to_owned());
        }
        if !wrong.is_empty() {
            wrong.push(result.everything());
        }
        cases.push(Case::judged(name, &wrong));
    }
    Ok(cases)
}

/// Runs this program as `./cops exec`.
pub(super) fn cops_exec(name: &str, arguments: &[&str]) -> Outcome<Captured> {
    cops_exec_within(name, arguments, LIMIT)
}

/// Like [`cops_exec`], with another time limit.
pub(super) fn cops_exec_within(
    name: &str,
    arguments: &[&str],
    limit: Duration,
) -> Outcome<Captured> {
    let mut step = step(name);
    capture(cops()?.arg("exec").args(arguments), Some(limit), |line| step.detail(line))
}

pub(super) fn status(result: &Captured, expected: i32) -> Vec<String> {
    let code = result.status.and_then(|status| status.code());
    if code == Some(expected) {
        Vec::new()
    } else {
        vec![format!("{}, not exit code {expected}", result.ending())]
    }
}

/// Faults of a result that should say why the arguments are wrong.
fn refused(result: &Captured, why: &str) -> Vec<String> {
    let mut wrong = status(result, 2);
    if !result.stderr.contains(why) {
        wrong.push(format!("the message does not say why: {:?}", result.stderr));
    }
    wrong
}

fn nothing_on_stderr(result: &Captured) -> Vec<String> {
    if result.stderr.is_empty() {
        Vec::new()
    } else {
        vec![format!("standard error has {:?}", result.stderr)]
    }
}
