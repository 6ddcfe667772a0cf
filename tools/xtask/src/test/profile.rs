//! Tests `./cops profile` on a short load on the matrix server; and that entering the kernel costs
//! no more than it did.

use std::time::Duration;

use super::{Case, Context, step};
use crate::cli::{Bench, Machine as MachineOptions, Measurement};
use crate::commands::bench::papers;
use crate::commands::profile::{Profiler, Served, check_version};
use crate::error::Outcome;
use crate::profile::stages;
use crate::qemu::console::{Transcript, follow_while_it_writes};
use crate::qemu::machine::Machine;
use crate::terminal::Progress;

/// Connections, and requests of each.
const CONNECTIONS: u32 = 16;
const REQUESTS: u32 = 40;
/// A boot without output for this time has hung.
const SILENCE: Duration = Duration::from_secs(400);

/// Functions of each side that serve each request: each side is recognised, and by its name.
const EXPECTED: [(&str, &str); 4] = [
    ("kernel", "cops_kernel::syscall::dispatch"),
    ("kernel", "cops_net::"),
    ("vdso", "cops_executor::"),
    ("matrix-server", "matrix_server::"),
];

/// What `/bin/measure costs` measures, and the instructions that it may take: some 3% more than
/// when this was written. Raise a number only for something that is worth it, and say so.
///
/// Programs for Linux have cost a native call some 20 instructions (which personality, a thread or
/// a worker, signals), and files that are not pipes or sockets a read or write another 50. Watches,
/// served file systems and stopped processes have cost a read that waits 150.
const COSTS: [(&str, u64); 5] = [
    ("sync-getpid", 425),
    ("sync-read-at-once", 1240),
    ("async-read-at-once", 1665),
    ("async-read-submitted", 2103),
    ("async-read-completed", 3800),
];

const FEW: &str = "few coroutines take fewer instructions than few threads";

/// A measurement in counted instructions.
fn counted(name: Measurement) -> Bench {
    let machine = MachineOptions { smp: 1, mem: "512M".into(), verbose: false };
    Bench { name, quick: true, icount: true, connections: None, json: None, machine }
}

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let prepared = context.prepared()?;
    let mut step = step("profile, 1 hart");
    let mut cases = Vec::new();
    match check_version(&prepared.qemu) {
        Ok(()) => {
            let profiler = Profiler::new(context.workspace, prepared, Progress::Transient)?;
            step.detail("running");
            let served = profiler.serve(context.workspace, CONNECTIONS, REQUESTS)?;
            cases.push(Case::judged("every instruction is counted once", &exactness(&served)));
            cases.push(Case::judged("instructions are those of their functions", &names(&served)));
            let wrong = stages::too_expensive(&served.profile);
            cases.push(Case::judged("the budget of a request, by stage", &wrong));
        }
        Err(failure) => context.note(format!("the profiler is skipped: {failure}")),
    }

    let machine = MachineOptions { smp: 1, mem: "512M".into(), verbose: false };
    let mut boot = prepared.boot(&machine, &["/bin/measure".into(), "costs".into()], &[])?;
    boot.make_repeatable();
    let mut transcript = Transcript::default();
    follow_while_it_writes(Machine::start(&prepared.qemu, &boot)?, SILENCE, &mut transcript);
    cases.push(Case::judged("costs of entering the kernel", &costs(&transcript.stdout)));
    if context.is_chosen(FEW) {
        step.detail("coroutines and threads");
        let wrong = papers::check_few(prepared, &counted(Measurement::Ring))?;
        cases.push(Case::judged(FEW, &wrong));
    }
    Ok(cases)
}

fn exactness(served: &Served) -> Vec<String> {
    if served.is_exact() { Vec::new() } else { vec![served.check()] }
}

fn names(served: &Served) -> Vec<String> {
    let total_of = |is_it: &dyn Fn(&str, &str) -> bool| -> i64 {
        let paths = served.profile.paths.iter().filter(|(path, _)| {
            let frame = path.last().and_then(|frame| frame.split_once(':'));
            frame.is_some_and(|(side, function)| is_it(side, function))
        });
        paths.map(|(_, &instructions)| instructions).sum()
    };
    let requests = served.profile.requests.unwrap_or_default().cast_signed();
    let mut wrong = Vec::new();
    for (wanted, name) in EXPECTED {
        let instructions = total_of(&|side, function| side == wanted && function.contains(name));
        if instructions < requests {
            wrong.push(format!("{wanted} {name}: {instructions} for {requests} requests"));
        }
    }
    let unknown = total_of(&|_, function| function == "?");
    if unknown * 100 > served.profile.total() {
        wrong.push(format!("{unknown} instructions are of no function"));
    }
    wrong
}

fn costs(stdout: &[u8]) -> Vec<String> {
    let stdout = String::from_utf8_lossy(stdout);
    let mut wrong = Vec::new();
    for (operation, most) in COSTS {
        let measured = stdout.lines().find_map(|line| {
            let line = line.strip_prefix("cost: ")?;
            let mut words = line.split(' ');
            words.next().filter(|word| word.strip_prefix("op=") == Some(operation))?;
            words.find_map(|word| word.strip_prefix("p50=")?.parse::<u64>().ok())
        });
        if measured.is_none_or(|measured| measured > most) {
            wrong.push(format!("{operation}: {measured:?} instructions, {most} are allowed"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_that_rose_or_is_missing_is_found() {
        let lines =
            COSTS.map(|(operation, most)| format!("cost: op={operation} count=1 p50={most}\n"));
        let text = lines.concat();
        assert_eq!(costs(text.as_bytes()), Vec::<String>::new());
        let (_, most) = COSTS[0];
        let risen = text.replace(&format!("p50={most}"), &format!("p50={}", most + 1));
        assert_eq!(costs(risen.as_bytes()).len(), 1);
        assert_eq!(costs(b"").len(), COSTS.len());
    }
}
