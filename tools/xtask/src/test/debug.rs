//! Tests `./cops debug` with scripted commands: breakpoints in the kernel, in the vDSO and in a
//! program, each with a backtrace through all of them; the example in its help; Ctrl-C.

use std::process::Command;
use std::time::Duration;

use clap::CommandFactory;

use super::{Case, Context, cops, step};
use crate::cli::Cli;
use crate::error::{Failure, Outcome};
use crate::packages;
use crate::process::{Captured, capture};
use crate::terminal::Progress;

/// Time limit of a session: a boot in which gdb stops the machine some hundred times at most.
const LIMIT: Duration = Duration::from_secs(180);
/// Minimum number of frames of a backtrace.
const FRAMES_MIN: usize = 4;

/// A breakpoint, and the functions in its backtrace, innermost first; others may be between them.
struct Session {
    name: &'static str,
    breakpoint: &'static str,
    functions: &'static [&'static str],
}

/// Kernel and programs run the same vDSO: conditions distinguish their addresses.
const SESSIONS: [Session; 4] = [
    Session {
        name: "in the kernel",
        breakpoint: "hbreak cops_kernel::syscall::dispatch",
        functions: &["cops_kernel::syscall::dispatch", "cops_kernel::sched::executor::run_hart"],
    },
    Session {
        name: "in the vDSO, run by the kernel",
        breakpoint: "hbreak cops_wake if $pc > 0x4000000000",
        functions: &["cops_wake", "cops_kernel::"],
    },
    Session {
        name: "in the vDSO, run by a program",
        breakpoint: "hbreak cops_run if $pc < 0x4000000000",
        functions: &["cops_run", "cops::worker::"],
    },
    Session {
        // The vDSO, which the program has called, polls its caller.
        name: "in a program",
        breakpoint: "hbreak cops::io::console::print_to_stdout",
        functions: &[
            "cops::io::console::print_to_stdout",
            "hello::main",
            "cops_run",
            "cops::worker::",
        ],
    },
];

/// The name of the test of the help's example.
const EXAMPLE: &str = "the example of its help";
/// The name of the test of Ctrl-C.
const CTRL_C: &str = "Ctrl-C twice does not end the session";
/// Sends gdb's parent the signal of Ctrl-C, twice, as a terminal does while gdb handles it too.
/// Between the two there is time for the first one to be seen.
const INTERRUPT_TWICE: &str = "shell for each in 1 2; do \
     kill -INT $(sed -n 's/^PPid:[[:space:]]*//p' /proc/$PPID/status); sleep 0.5; done";

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    packages::ensure(&[packages::GDB], Progress::Lines)?;
    // Built once here, with visible progress.
    context.prepared()?;
    let mut cases = Vec::new();
    for session in SESSIONS.iter().filter(|session| context.is_chosen(session.name)) {
        let mut step = step(session.name);
        let mut command = cops()?;
        command.args(["debug", "--smp", "1"]);
        for gdb in [session.breakpoint, "continue", "bt 40", "kill"] {
            command.args(["--command", gdb]);
        }
        let result = capture(command.arg("/bin/hello"), Some(LIMIT), |line| step.detail(line))?;
        cases.push(case(session.name, &result, judge(&result.stdout, session.functions)));
    }
    if context.is_chosen(EXAMPLE) {
        let mut step = step(EXAMPLE);
        // Through a shell, because its words are quoted.
        let example = example()?.replace("./cops", "\"$@\"");
        let ours = cops()?;
        let mut command = Command::new("sh");
        command.args(["-c", &example, "sh"]).arg(ours.get_program()).args(ours.get_args());
        command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let result = capture(&mut command, Some(LIMIT), |line| step.detail(line))?;
        cases.push(case(EXAMPLE, &result, judge(&result.stdout, &["cops_kernel::boot::start"])));
    }
    if context.is_chosen(CTRL_C) {
        let mut step = step(CTRL_C);
        let mut command = cops()?;
        // gdb's `shell` uses this one.
        command.env("SHELL", "/bin/sh").args(["debug", "--smp", "1"]);
        let at_start = "hbreak cops_kernel::boot::start";
        for gdb in [INTERRUPT_TWICE, at_start, "continue", "bt", "kill"] {
            command.args(["--command", gdb]);
        }
        let result = capture(command.arg("/bin/hello"), Some(LIMIT), |line| step.detail(line))?;
        let mut wrong = judge(&result.stdout, &["cops_kernel::boot::start"]);
        if !result.succeeded() {
            wrong.push(format!("it ended with {}", result.ending()));
        }
        cases.push(case(CTRL_C, &result, wrong));
    }
    Ok(cases)
}

fn case(name: &str, result: &Captured, mut wrong: Vec<String>) -> Case {
    if !wrong.is_empty() {
        wrong.push(result.everything());
    }
    Case::judged(name, &wrong)
}

/// The example with gdb commands in the help.
fn example() -> Outcome<String> {
    let help = Cli::command()
        .find_subcommand("debug")
        .and_then(|debug| debug.get_after_help().map(ToString::to_string));
    let help = help.unwrap_or_default();
    let line = help.lines().map(str::trim).find(|line| line.starts_with("./cops debug --command"));
    line.map(str::to_owned)
        .ok_or_else(|| Failure::new("the help of ./cops debug has no example with --command"))
}

/// The faults in gdb's output.
fn judge(output: &str, functions: &[&str]) -> Vec<String> {
    // `#0  0x... in name (arguments) at file:line`, or without the address.
    let frames: Vec<&str> = output.lines().filter(|line| line.starts_with('#')).collect();
    let mut wrong = Vec::new();
    let is_start = functions.len() == 1;
    if frames.len() < FRAMES_MIN && !is_start {
        wrong.push(format!("{} frames, fewer than {FRAMES_MIN}", frames.len()));
    }
    let mut rest = frames.as_slice();
    for function in functions {
        match rest.iter().position(|frame| frame.contains(function)) {
            Some(place) => rest = &rest[place + 1..],
            None => {
                wrong.push(format!("no frame of {function}, or not in this order: {functions:?}"))
            }
        }
    }
    // The outermost function has no caller, which gdb shows as a frame at address 0.
    let is_unknown =
        |frame: &&&str| frame.contains(" in ?? ()") && !frame.contains("0x0000000000000000 in");
    if let Some(unknown) = frames.iter().find(is_unknown) {
        wrong.push(format!("a frame without a name: {unknown}"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "Breakpoint 1, a::b () at x.rs:1\n#0  a::b () at x.rs:1\n#1  0x12 in c::d (x=1) at y.rs:2\n#2  e ()\n#3  f ()\n";

    #[test]
    fn backtraces_are_judged_by_depth_names_and_order() {
        assert_eq!(judge(OUTPUT, &["a::b", "e"]), Vec::<String>::new());
        assert_eq!(judge(OUTPUT, &["e", "a::b"]).len(), 1);
        assert_eq!(judge(OUTPUT, &["a::b", "nothing"]).len(), 1);
        assert_eq!(judge("#0  a ()\n", &["a", "a"]).len(), 2);
        assert_eq!(
            judge(&format!("{OUTPUT}#4  0x0000000000000010 in ?? ()\n"), &["a::b", "e"]).len(),
            1
        );
    }

    #[test]
    fn the_help_has_an_example_to_run() {
        assert!(example().unwrap().contains("/bin/"));
    }
}
