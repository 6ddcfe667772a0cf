//! Runs `/bin/usertests` in QEMU: every system call with valid and invalid arguments, isolation,
//! the wake ring, the network.
//!
//! There is one boot for each number of harts, and every test must pass at its first run. One hart
//! runs under `-icount`: time is a count of instructions, so judgements about time do not depend on
//! the host. Four harts run as threads of the host, and tests judge what happened and in which
//! order, but not how long it took.

use std::time::Duration;

use super::{Case, Context, step, tap};
use crate::cli::Machine as MachineOptions;
use crate::error::{Failure, Outcome};
use crate::process::last_lines;
use crate::qemu::command::Boot;
use crate::qemu::console::{Ending, Transcript, follow_while_it_writes};
use crate::qemu::machine::Machine;
use crate::qemu::portions;

/// One hart shows faults within a hart, four show faults between harts.
const HARTS: [u32; 2] = [1, 4];
/// A boot without output for this time has hung: `usertests` itself ends and reports a test that
/// hangs much earlier.
pub const SILENCE: Duration = Duration::from_secs(400);
/// Number of lines of a failed boot's output that are shown.
const SHOWN_LINES: usize = 12;
/// The exit code of `usertests` if no test has the filter in its name.
const NOTHING_CHOSEN: u8 = 2;

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let mut cases = Vec::new();
    for harts in HARTS {
        let timed;
        let (ending, transcript) = if harts == 1 {
            counted(context)?
        } else {
            timed = boot(context, harts, |_| ())?;
            &timed
        };
        let stdout = String::from_utf8_lossy(&transcript.stdout);
        if *ending == Ending::Status(NOTHING_CHOSEN) && !stdout.contains("1..") {
            // If other stages are chosen too, the filter may be for one of them.
            if context.options.only.is_empty() {
                return Ok(Vec::new());
            }
            return Err(Failure::new(stdout.trim().to_owned()));
        }
        cases.extend(judge(harts, ending, transcript));
    }
    Ok(cases)
}

/// The boot on one hart with counted instructions, during which the kernel measures its portions.
/// The stage `portions` uses the same boot.
pub fn counted<'a>(context: &'a Context<'_>) -> Outcome<&'a (Ending, Transcript)> {
    context.counted_usertests(|| boot(context, 1, portions::measure))
}

/// Runs the chosen tests in a machine that `adjust` has modified.
fn boot(
    context: &Context<'_>,
    harts: u32,
    adjust: impl FnOnce(&mut Boot),
) -> Outcome<(Ending, Transcript)> {
    let prepared = context.prepared()?;
    let mut argv = vec!["/bin/usertests".to_owned()];
    argv.extend(context.options.filter().map(str::to_owned));
    let mut step = step(format!("usertests, {harts} harts"));
    let options = MachineOptions::new(harts, "512M");
    let mut boot = prepared.boot(&options, &argv, &[])?;
    adjust(&mut boot);
    let machine = Machine::start(&prepared.qemu, &boot)?;
    step.detail("running");
    let mut transcript = Transcript::default();
    let ending = follow_while_it_writes(machine, SILENCE, &mut transcript);
    Ok((ending, transcript))
}

/// The reported tests, and another one: that the end of the boot matches them.
pub fn judge(harts: u32, ending: &Ending, transcript: &Transcript) -> Vec<Case> {
    let stdout = String::from_utf8_lossy(&transcript.stdout);
    let mut cases = tap::cases(&stdout);
    let any_failed = cases.iter().any(|case| case.failure.is_some());
    let is_consistent = match ending {
        Ending::Status(0) => !any_failed,
        Ending::Status(1) => any_failed,
        _ => false,
    };
    cases.push(if is_consistent {
        Case::passed("end")
    } else {
        let begun =
            stdout.lines().rev().find_map(|line| line.strip_prefix("# begin ")).unwrap_or("none");
        let said = [&transcript.kernel, &transcript.stderr]
            .map(|text| String::from_utf8_lossy(text).into_owned());
        let why = match ending {
            Ending::TimedOut => format!("nothing was written for {} s", SILENCE.as_secs()),
            other => format!("{other:?}"),
        };
        Case::failed(
            "end",
            format!(
                "{why}; the last test that began: {begun}\n{}\nlast output:\n{}",
                said.concat(),
                last_lines(&stdout, SHOWN_LINES)
            ),
        )
    });
    for case in &mut cases {
        case.name = format!("{harts} harts/{}", case.name);
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(ending: Ending, stdout: &str) -> Vec<bool> {
        let transcript = Transcript { stdout: stdout.into(), ..Transcript::default() };
        judge(4, &ending, &transcript).iter().map(|case| case.failure.is_none()).collect()
    }

    #[test]
    fn the_ending_must_agree_with_the_tests() {
        assert_eq!(judged(Ending::Status(0), "1..1\nok a\n"), [true, true]);
        assert_eq!(judged(Ending::Status(1), "1..1\nnot ok a: no\n"), [false, true]);
        assert_eq!(judged(Ending::Status(0), "1..1\nnot ok a: no\n"), [false, false]);
        assert_eq!(judged(Ending::Status(1), "1..1\nok a\n"), [true, false]);
        assert_eq!(judged(Ending::Status(101), "1..1\nok a\n"), [true, false]);
        assert_eq!(judged(Ending::TimedOut, "1..2\nok a\n"), [true, false, false]);
    }

    #[test]
    fn a_hang_names_the_test_that_hangs() {
        let stdout = "1..2\n# begin a\nok a\n# begin b\n";
        let transcript = Transcript { stdout: stdout.into(), ..Transcript::default() };
        let cases = judge(1, &Ending::TimedOut, &transcript);
        let end = cases.last().and_then(|case| case.failure.as_deref()).unwrap();
        assert!(end.contains("the last test that began: b"), "{end}");
    }
}
