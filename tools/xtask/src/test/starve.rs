//! Runs `/bin/starve` in QEMU: each of the kernel's allocations fails once while every kind of
//! system call is made, and the kernel must neither panic nor leak.
//!
//! On one hart, so that allocations always have the same order, with counted instructions, so that
//! times are the same too.

use std::time::Duration;

use super::{Case, Context, step, tap};
use crate::cli::Machine as MachineOptions;
use crate::error::Outcome;
use crate::qemu::command::Idle;
use crate::qemu::console::{Ending, Transcript, follow_while_it_writes};
use crate::qemu::machine::Machine;

/// A boot without output for this time has hung.
const SILENCE: Duration = Duration::from_secs(400);

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let prepared = context.prepared()?;
    let mut argv = vec!["/bin/starve".to_owned()];
    argv.extend(context.options.filter().map(str::to_owned));
    let mut step = step("starve, 1 hart");
    let options = MachineOptions::new(1, "128M");
    let mut boot = prepared.boot(&options, &argv, &[])?;
    boot.boot_arguments.push("fail-allocation=on".into());
    boot.count_instructions = Some(Idle::Skipped);
    let machine = Machine::start(&prepared.qemu, &boot)?;
    step.detail("running");
    let mut transcript = Transcript::default();
    let ending = follow_while_it_writes(machine, SILENCE, &mut transcript);
    Ok(judge(&ending, &transcript))
}

/// The reported scenarios, and another one: that the end of the boot matches them, and that
/// allocations did fail.
fn judge(ending: &Ending, transcript: &Transcript) -> Vec<Case> {
    let stdout = String::from_utf8_lossy(&transcript.stdout);
    let mut cases = tap::cases(&stdout);
    let failed = stdout
        .lines()
        .find_map(|line| line.strip_prefix("# ")?.split(' ').next()?.parse::<u64>().ok());
    cases.push(match (ending, failed) {
        (Ending::Status(0), Some(1..)) => Case::passed("end"),
        (other, failed) => {
            let kernel = String::from_utf8_lossy(&transcript.kernel);
            Case::failed(
                "end",
                format!("{other:?}; {failed:?} allocations failed\n{kernel}\n{stdout}"),
            )
        }
    });
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(ending: Ending, stdout: &str) -> Vec<bool> {
        let transcript = Transcript { stdout: stdout.into(), ..Transcript::default() };
        judge(&ending, &transcript).iter().map(|case| case.failure.is_none()).collect()
    }

    #[test]
    fn a_run_in_which_nothing_failed_is_no_run() {
        let report = "1..1\nok files: 12 allocations failed\n# 12 allocations failed\n";
        assert_eq!(judged(Ending::Status(0), report), [true, true]);
        assert_eq!(judged(Ending::Status(0), &report.replace("12", "0")), [true, false]);
        assert_eq!(judged(Ending::Status(101), report), [true, false]);
        assert_eq!(judged(Ending::Status(1), &report.replace("ok", "not ok")), [false, false]);
    }
}
