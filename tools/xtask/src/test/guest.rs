//! `/bin/usertests` in QEMU: every system call with good and bad arguments, isolation, the wake ring, the network.

use std::time::{Duration, Instant};

use super::{Case, Context, step, tap};
use crate::cli::Machine as MachineOptions;
use crate::error::Outcome;
use crate::qemu::console::{Ending, Transcript, follow};
use crate::qemu::machine::Machine;

/// One hart shows what is wrong in itself, four what is wrong between harts.
const HARTS: [u32; 2] = [1, 4];
/// For one boot with all tests.
const LIMIT: Duration = Duration::from_secs(180);

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let prepared = context.prepared()?;
    let mut argv = vec!["/bin/usertests".to_owned()];
    argv.extend(context.options.filter.clone());
    let mut cases = Vec::new();
    for harts in HARTS {
        let mut step = step(format!("usertests, {harts} harts"));
        let options = MachineOptions { smp: harts, mem: "512M".into(), verbose: false };
        // Several tests measure time, which a busy host takes: what fails is said, and has a second and a third boot to pass in.
        for boots_left in (0..3).rev() {
            let boot = prepared.boot(&options, &argv, &[])?;
            let machine = Machine::start(&prepared.qemu, &boot)?;
            step.detail("running");
            let mut transcript = Transcript::default();
            let ending = follow(machine, Some(Instant::now() + LIMIT), &mut transcript);
            let judged = judge(harts, &ending, &transcript);
            let failed: Vec<_> = judged.iter().filter(|case| case.failure.is_some()).collect();
            if failed.is_empty() || boots_left == 0 {
                cases.extend(judged);
                break;
            }
            for case in failed {
                eprintln!(
                    "  once more, since this failed: {}: {}",
                    case.name,
                    case.failure.as_deref().unwrap_or_default()
                );
            }
        }
    }
    Ok(cases)
}

/// The reported tests, and one more: that the boot ended as they say.
fn judge(harts: u32, ending: &Ending, transcript: &Transcript) -> Vec<Case> {
    let mut cases = tap::cases(&String::from_utf8_lossy(&transcript.stdout));
    let any_failed = cases.iter().any(|case| case.failure.is_some());
    let is_consistent = match ending {
        Ending::Status(0) => !any_failed,
        Ending::Status(1) => any_failed,
        _ => false,
    };
    cases.push(if is_consistent {
        Case::passed("end")
    } else {
        let said =
            [&transcript.kernel, &transcript.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        Case::failed("end", format!("{ending:?} after these tests\n{}", said.concat()))
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
}
