//! Starts children in rounds, kills some of them during their run, and checks what is left.

use alloc::ffi::CString;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use cops::abi::file::at;
use cops::abi::syscall::{self as number, signal};
use cops::fs;
use cops::memory::{Statistics, statistics};
use cops::process::{self, Child, ExitCode};
use cops::task::{self, Priority};
use cops::time::{Duration, Instant, sleep, timeout};
use cops::{inspect, print, println, trace};

use crate::child::Habits;
use crate::garbage::Garbage;
use crate::holdings::Holdings;
use crate::kernel::call;
use crate::linux::{self, Results};
use crate::{CHILD, PROGRAM};

/// Number of children in a round.
const CHILDREN: usize = 4;
/// Number of calls that each child makes.
const CALLS_EACH: u64 = 2500;
/// The children's ceiling; the supervisor is more urgent.
const CEILING: u32 = 40;
/// Interval at which the supervisor checks the children.
const STEP: Duration = Duration::from_millis(1);
/// Number of checks without a call by any child, after which the remaining children are assumed to
/// wait forever.
const IDLE_STEPS: u32 = 15;
/// Longer than the end of a process and its cleanup take on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The options of the command line.
pub struct Options {
    calls: u64,
    seed: u64,
    first: u64,
    /// The Linux program that makes the calls; none: this program does.
    linux: Option<String>,
}

impl Options {
    pub fn parse(words: &[&str]) -> Option<Self> {
        let mut options = Self { calls: 100_000, seed: 1, first: 0, linux: None };
        for word in words {
            match word.split_once('=')? {
                ("calls", value) => options.calls = value.parse().ok()?,
                ("seed", value) => options.seed = value.parse().ok()?,
                ("first", value) => options.first = value.parse().ok()?,
                ("linux", program) => options.linux = Some(program.into()),
                _ => return None,
            }
        }
        Some(options)
    }
}

/// The reason why the run ends.
type Fault = String;

/// Totals so far.
#[derive(Default)]
struct Sum {
    rounds: u64,
    calls: u64,
    started: u64,
    killed: u64,
    faulted: u64,
    /// What Linux programs have reported.
    linux: Results,
}

/// Runs all rounds. The supervisor is more urgent than its children.
pub async fn run(options: Options) -> ExitCode {
    let seed = options.seed;
    println!("# fuzz: calls={} seed={seed} first={}", options.calls, options.first);
    let rounds = task::spawn_join(
        async move {
            let mut sum = Sum::default();
            let outcome = all_rounds(&options, &mut sum).await;
            (sum, outcome)
        },
        Priority::MOST_URGENT,
    );
    let Ok((sum, outcome)) = rounds.await else { return ExitCode::FAILURE };
    print!(
        "fuzz: seed={seed} rounds={} calls={} processes={} killed={} faulted={}",
        sum.rounds, sum.calls, sum.started, sum.killed, sum.faulted
    );
    print_linux(&sum.linux);
    println!();
    match outcome {
        Ok(()) => {
            println!("fuzz: nothing wrong");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            println!("fuzz: FAULT: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// What Linux programs have reported, without what other values of the line say.
fn print_linux(results: &Results) {
    let (reached, known) = results.reached();
    if known == 0 {
        return;
    }
    print!(" reached={reached} known={known}");
    for (name, value) in results.all() {
        if !matches!(name, "calls" | "processes" | "killed") {
            print!(" {name}={value}");
        }
    }
}

async fn all_rounds(options: &Options, sum: &mut Sum) -> Result<(), Fault> {
    let (seed, mut round) = (options.seed, options.first);
    // Once before the first measurement, because the kernel keeps some of what it allocates on
    // first use.
    let program = options.linux.as_deref().unwrap_or(PROGRAM);
    let mut nap = start(program, &[crate::NAP, "0"])?;
    wait(&mut nap).await?;
    while sum.calls < options.calls {
        println!("# round {round}, {} calls made", sum.calls);
        self::round(options, round, sum)
            .await
            .map_err(|fault| format!("round {round} of seed {seed}: {fault}"))?;
        sum.rounds += 1;
        round += 1;
    }
    sum.linux.check_reached()
}

fn start(program: &str, arguments: &[&str]) -> Result<Child, Fault> {
    process::spawn_below(program, arguments, Some(Priority::saturating(CEILING)))
        .map_err(|error| format!("cannot start a process: {error}"))
}

/// Waits for the end of a child that is about to end.
async fn wait(child: &mut Child) -> Result<process::ExitStatus, Fault> {
    match timeout(PATIENCE, child.wait()).await {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(error)) => Err(format!("waiting for process {}: {error}", child.id())),
        Err(_) => {
            let state = inspect::processes().ok().and_then(|all| {
                all.iter()
                    .find(|one| one.process == child.id())
                    .map(|one| inspect::state::name(one.state))
            });
            Err(format!("process {} was killed and does not end; it is {state:?}", child.id()))
        }
    }
}

/// A child, and when to kill it.
struct Running {
    child: Child,
    /// Number of calls of all children after which it is killed.
    until: u64,
}

async fn round(options: &Options, round: u64, sum: &mut Sum) -> Result<(), Fault> {
    let mut garbage =
        Garbage::new((options.seed ^ round << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round);
    // The first numbers of a generator with few bits set in its seed are small.
    for _ in 0..8 {
        garbage.next();
    }
    let before = Holdings::now().map_err(|error| format!("{error}"))?;
    match &options.linux {
        Some(program) => run_linux(program, garbage.next(), sum).await?,
        None => run_children(&mut garbage, sum).await?,
    }
    end_copies().await?;
    empty_directory("/tmp")?;
    // Any process may switch tracing on.
    let _ = trace::switch(false);
    wait_until_free(&before).await
}

/// The calls of a round, by Linux programs.
async fn run_linux(program: &str, seed: u64, sum: &mut Sum) -> Result<(), Fault> {
    let calls = CALLS_EACH * CHILDREN as u64;
    let ceiling = Priority::saturating(CEILING);
    linux::make_calls(program, ceiling, seed, calls, &mut sum.linux).await?;
    sum.calls = sum.linux.get("calls");
    sum.started = sum.linux.get("processes");
    sum.killed = sum.linux.get("killed");
    sum.faulted = sum.linux.get("faulted");
    Ok(())
}

/// The calls of a round, by children that are this program.
async fn run_children(garbage: &mut Garbage, sum: &mut Sum) -> Result<(), Fault> {
    let calls_before = now()?.system_calls;
    let mut running = Vec::new();
    for _ in 0..CHILDREN {
        let cpus = 1 + garbage.below(4);
        let mut habits = garbage.below(32);
        // Rare, because these end children early or fill the console.
        if garbage.below(4) != 0 {
            habits &= !(Habits::SCRIBBLES_HANDLER | Habits::WAITS);
        }
        if garbage.below(8) != 0 {
            habits &= !Habits::KEEPS_CONSOLE;
        }
        let words = [
            format!("{}", garbage.next()),
            format!("{CALLS_EACH}"),
            format!("{cpus}"),
            format!("{habits}"),
        ];
        let [seed, calls, cpus, habits] = &words;
        let child = start(PROGRAM, &[CHILD, seed, calls, cpus, habits])?;
        let until = match garbage.below(2) {
            0 => garbage.below(CALLS_EACH * CHILDREN as u64),
            _ => u64::MAX,
        };
        running.push(Running { child, until });
        sum.started += 1;
    }
    follow(running, calls_before, sum).await
}

/// Ends the processes that children have made by copying themselves, and those that these make
/// meanwhile. No other process has children that wait for them.
async fn end_copies() -> Result<(), Fault> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let me = process::id();
        let all = inspect::processes().map_err(|error| format!("{error}"))?;
        let killed = all
            .iter()
            .filter(|one| one.process != me)
            .filter(|one| process::kill(one.process, signal::SIGKILL).is_ok())
            .count();
        if killed == 0 {
            return Ok(());
        }
        sleep(STEP).await;
    }
    Err(format!("after {} s there are still copies of children", PATIENCE.as_secs()))
}

/// Removes everything in the directory `path`. Files that children have made outlive them.
fn empty_directory(path: &str) -> Result<(), Fault> {
    let entries = fs::read_directory(path).map_err(|error| format!("{path}: {error}"))?;
    for entry in entries {
        let path = format!("{path}/{}", entry.name);
        let is_directory = entry.kind == fs::Kind::Directory;
        if is_directory {
            empty_directory(&path)?;
        }
        let flags = if is_directory { at::REMOVE_DIRECTORY } else { 0 };
        let name = CString::new(path.as_str()).map_err(|error| format!("{path}: {error}"))?;
        call(number::UNLINKAT, [number::AT_FDCWD as usize, name.as_ptr().addr(), flags])
            .map_err(|error| format!("cannot remove {path}: {error}"))?;
    }
    Ok(())
}

/// Waits until all children have ended. Kills those that have reached their limit of calls, and
/// those that wait forever.
async fn follow(mut running: Vec<Running>, before: u64, sum: &mut Sum) -> Result<(), Fault> {
    let mut own_calls = 0;
    let (mut last, mut idle_steps) = (0, 0);
    while !running.is_empty() {
        sleep(STEP).await;
        let made = now()?.system_calls - before;
        idle_steps = if made > last + 8 * running.len() as u64 { 0 } else { idle_steps + 1 };
        last = made;
        let mut index = 0;
        while let Some(one) = running.get_mut(index) {
            let kill = made > one.until || idle_steps > IDLE_STEPS;
            if kill {
                // It may have ended by itself.
                let _ = one.child.kill();
                own_calls += 1;
            }
            own_calls += 4;
            let ended = if kill {
                Some(wait(&mut one.child).await?)
            } else {
                match timeout(Duration::ZERO, one.child.wait()).await {
                    Ok(status) => Some(status.map_err(|error| format!("{error}"))?),
                    Err(_) => None,
                }
            };
            match ended {
                Some(status) => {
                    sum.killed += u64::from(kill);
                    sum.faulted += u64::from(!kill && status.signal().is_some());
                    running.swap_remove(index);
                }
                None => index += 1,
            }
        }
        own_calls += 3;
    }
    let made = now()?.system_calls - before;
    sum.calls += made.saturating_sub(own_calls);
    Ok(())
}

fn now() -> Result<Statistics, Fault> {
    statistics().map_err(|error| format!("{error}"))
}

/// Waits until the kernel uses no more than `before`.
async fn wait_until_free(before: &Holdings) -> Result<(), Fault> {
    let excess = before.wait_until_free().await.map_err(|error| format!("{error}"))?;
    if excess.iter().all(|&(_, amount)| amount == 0) {
        return Ok(());
    }
    let processes: Vec<_> = inspect::processes()
        .map(|all| {
            all.iter()
                .map(|one| (one.process, one.parent, one.pages, inspect::state::name(one.state)))
                .collect()
        })
        .unwrap_or_default();
    let coroutines: Vec<_> =
        inspect::coroutines(0).map(|all| all.iter().map(coroutine).collect()).unwrap_or_default();
    Err(format!(
        "left behind: {excess:?}; processes (number, parent, state): {processes:?}; kernel coroutines: {coroutines:?}"
    ))
}

/// A short description of a kernel coroutine.
fn coroutine(one: &inspect::CoroutineRecord) -> String {
    let (name, state) = (inspect::text(&one.name), inspect::state::name(one.state));
    format!("{name} {:#x} {state} at {} on {}", one.coroutine, one.priority, one.worker)
}
