//! Runs `/bin/usertests` on one hart with counted instructions while the kernel measures itself: no
//! portion of any kind may be longer than SPEC 3.13a allows.
//!
//! The stage `guest` judges the tests themselves; here they only have to run to the end.

use super::guest;
use super::{Case, Context};
use crate::error::Outcome;
use crate::qemu::console::Ending;
use crate::qemu::portions::{self, LIMIT, Portion};

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let (ending, transcript) = guest::counted(context)?;
    Ok(judge(ending, &String::from_utf8_lossy(&transcript.kernel)))
}

/// A case for each kind of portion, and another one: that the boot ran to its end and measured
/// something.
fn judge(ending: &Ending, kernel: &str) -> Vec<Case> {
    let measured = portions::parse(kernel);
    let mut cases: Vec<Case> = measured.iter().map(judge_one).collect();
    let has = |kind: &str| measured.iter().any(|portion| portion.kind == kind);
    let missing: Vec<&str> = ["system-call", "fault", "service", "call", "run-queue"]
        .into_iter()
        .filter(|kind| !has(kind))
        .collect();
    cases.push(match ending {
        Ending::Status(0 | 1) if missing.is_empty() => Case::passed("end"),
        other => {
            Case::failed("end", format!("{other:?}; nothing measured of: {missing:?}\n{kernel}"))
        }
    });
    cases
}

fn judge_one(portion: &Portion) -> Case {
    let name = portion.name();
    if portion.is_too_long() {
        let why = format!(
            "{} instructions without a point at which something more urgent takes the hart; {LIMIT} are allowed; about it: {}",
            portion.longest, portion.about
        );
        return Case::failed(name, why);
    }
    Case::passed(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "\
portion: kind=system-call what=MPROTECT hart=0 longest=50001 count=1 about=0x0,0x0,0x0,0x0
portion: kind=fault what= hart=0 longest=50000 count=1 about=0x0,0x0,0x0,0x0
portion: kind=service what=timer hart=0 longest=1 count=1 about=0x0,0x0,0x0,0x0
portion: kind=call what=read hart=0 longest=1 count=1 about=0x0,0x0,0x0,0x0
portion: kind=run-queue what=enqueue hart=0 longest=1 count=1 about=0x0,0x0,0x0,0x0
";

    fn failed(ending: Ending, kernel: &str) -> Vec<String> {
        let cases = judge(&ending, kernel);
        cases.into_iter().filter(|case| case.failure.is_some()).map(|case| case.name).collect()
    }

    #[test]
    fn one_instruction_too_many_fails() {
        assert_eq!(failed(Ending::Status(0), LINES), ["system-call/MPROTECT"]);
        assert_eq!(
            failed(Ending::Status(1), &LINES.replace("50001", "50000")),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_boot_that_measured_nothing_fails() {
        assert_eq!(failed(Ending::Status(0), ""), ["end"]);
        assert_eq!(failed(Ending::TimedOut, &LINES.replace("50001", "1")), ["end"]);
    }
}
