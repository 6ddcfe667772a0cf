//! Tests `./cops profile` on a short load on the matrix server; and that entering the kernel costs
//! no more than it did.

use clap::Parser;

use super::{Case, Context, step};
use crate::cli::{Bench, Cli, Command};
use crate::commands::bench::{closed, papers, switch};
use crate::commands::profile::{Profiler, Served, check_version};
use crate::error::{Because, Failure, Outcome};
use crate::profile::stages;
use crate::switch_budget::SwitchBudget;
use crate::terminal::Progress;

/// Connections, and requests of each.
const CONNECTIONS: u32 = 64;
const REQUESTS: u32 = 100;
const MEMORY: &str = "512M";

/// Functions of each side that serve each request: each side is recognised, and by its name.
const EXPECTED: [(&str, &str); 4] = [
    ("kernel", "cops_kernel::syscall::dispatch"),
    ("kernel", "cops_net::"),
    ("vdso", "cops_executor::"),
    ("matrix-server", "matrix_server::"),
];

const COSTS: &str = "costs of switches and of entering the kernel";
const FEW: &str = "few coroutines take fewer instructions than few threads";
const HARTS: &str = "a request takes hardly more instructions with 4 harts than with 1";
/// How much more, at most. Measured: 1.05; two counts of the same machine differ by a hundredth or
/// two, by the pace of the client.
const MORE_WITH_HARTS: f64 = 1.15;

/// `./cops bench NAME --icount`, with its other options as they are if none is given.
fn counted(name: &str) -> Outcome<Bench> {
    let words = ["cops", "bench", name, "--quick", "--icount"];
    match Cli::try_parse_from(words).because(|| format!("there is no bench {name}"))?.command {
        Command::Bench(bench) => Ok(bench),
        _ => Err(Failure::new(format!("{words:?} is no bench"))),
    }
}

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let prepared = context.prepared()?;
    let mut step = step("profile, 1 hart");
    let mut cases = Vec::new();
    match check_version(&prepared.qemu) {
        Ok(()) => {
            let profiler = Profiler::new(context.workspace, prepared, Progress::Transient)?;
            step.detail("running");
            let served = profiler.serve(context.workspace, MEMORY, CONNECTIONS, REQUESTS)?;
            cases.push(Case::judged("every instruction is counted once", &exactness(&served)));
            cases.push(Case::judged("instructions are those of their functions", &names(&served)));
            let wrong = stages::too_expensive(&served.profile);
            cases.push(Case::judged("the budget of a request, by stage", &wrong));
        }
        Err(failure) => context.note(format!("the profiler is skipped: {failure}")),
    }

    if context.is_chosen(COSTS) {
        let budget = SwitchBudget::read(context.workspace)?;
        let mut lines = Vec::new();
        for part in switch::PARTS {
            step.detail(part);
            lines.extend(switch::counted(prepared, &counted("switch")?, part)?);
        }
        let wrong = budget.exceeded(|operation| switch::median(&lines, operation));
        cases.push(Case::judged(COSTS, &wrong));
    }
    if context.is_chosen(HARTS) {
        step.detail("a request with 1 hart and with 4");
        let counted = |harts| {
            let mut bench = counted("closed")?;
            bench.machine.smp = harts;
            closed::instructions(context.workspace, prepared, &bench)
        };
        let (one, four) = (counted(1)?, counted(4)?);
        let wrong = (four > one * MORE_WITH_HARTS)
            .then(|| format!("{one:.0} instructions a request with 1 hart, {four:.0} with 4"));
        cases.push(Case::judged(HARTS, &Vec::from_iter(wrong)));
    }
    if context.is_chosen(FEW) {
        step.detail("coroutines and threads");
        let wrong = papers::check_few(prepared, &counted("ring")?)?;
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
