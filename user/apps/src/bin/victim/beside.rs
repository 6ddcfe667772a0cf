//! Runs the probe alone and beside each hostile program, at the same ceiling and at a less urgent
//! one.

use alloc::string::String;
use alloc::vec::Vec;

use cops::inspect::{self, state};
use cops::process::{ExitCode, spawn_below};
use cops::task::{self, Priority};
use cops::time::{Duration, Instant, sleep, timeout};
use cops::{io, println};

use crate::holdings::Holdings;
use crate::options::Options;
use crate::sweep;

const KINDS: [&str; 18] = [
    "bitmap-all",
    "bitmap-random",
    "page-garbage",
    "index-race",
    "overflow-forger",
    "spin",
    "yield-storm",
    "trap-storm",
    "spawn-wide",
    "spawn-deep",
    "spawn-churn",
    "memory-churn",
    "wake-forger",
    "call-storm",
    "close-pending",
    "pipe-readers",
    "pipe-readers-many",
    "kernel-crowd",
];

/// From the victim's start until it begins to measure, so that the hostile program is fully active.
const HEAD_START: Duration = Duration::from_millis(200);

/// Limit for the programs that have started this one to wait for its end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs all measurements. The judge itself is more urgent than any measured program.
pub async fn run(options: &Options) -> ExitCode {
    let options = options.clone();
    let judged = task::spawn_join(async move { judge(&options).await }, Priority::MOST_URGENT);
    match judged.await {
        Ok(Ok(true)) => ExitCode::SUCCESS,
        Ok(Ok(false)) | Err(_) => ExitCode::FAILURE,
        Ok(Err(error)) => {
            println!("victim: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The requested kinds of hostile programs, or all.
pub fn kinds(options: &Options) -> Vec<String> {
    if options.kinds.is_empty() { KINDS.map(String::from).into() } else { options.kinds.clone() }
}

async fn judge(options: &Options) -> io::Result<bool> {
    let kinds = kinds(options);
    // Once before the first measurement, because what is allocated on first use is not a leak.
    spawn_below("/bin/hostile", &["exit"], Some(level(options.level)))?.wait().await?;
    ancestors_wait().await?;
    let mut all_well = beside(options, None).await?;
    // A machine that is as busy as possible, but without a shared resource.
    all_well &= beside(options, Some(("busy", 63))).await?;
    for ceiling in &options.ceilings {
        for kind in &kinds {
            all_well &= beside(options, Some((kind, *ceiling))).await?;
        }
    }
    println!("end: all_well={}", u8::from(all_well));
    Ok(all_well)
}

/// Returns when the programs that have started this one wait for its end. Their calls count in the
/// measurements of what is in use, and on a busy host a parent may make its last one late.
async fn ancestors_wait() -> io::Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let me = cops::process::id();
        let is_waiting = |one: &inspect::ProcessRecord| {
            one.process == me || matches!(one.state, state::BLOCKED | state::PARKED | state::ENDED)
        };
        if inspect::processes()?.iter().all(is_waiting) {
            return Ok(());
        }
        sleep(Duration::from_millis(2)).await;
    }
    println!("victim: another program runs");
    Ok(())
}

/// One run of the probe, beside a hostile program of this kind and ceiling. Returns whether it
/// succeeded.
async fn beside(options: &Options, hostile: Option<(&str, u8)>) -> io::Result<bool> {
    let before = Holdings::now()?;
    // The victim is started first, because it was there before the hostile program.
    let mut arguments = Vec::from([String::from("probe")]);
    arguments.extend(options.for_probe(HEAD_START));
    let mut victim = spawn_below("/bin/victim", &arguments, Some(level(options.level)))?;
    sleep(HEAD_START / 4).await;
    let hostile_child = match hostile {
        Some((kind, ceiling)) => {
            let arguments = [
                String::from(if kind == "busy" { "spin" } else { kind }),
                alloc::format!("{}", options.hostile_cpus),
                alloc::format!("{}", options.seed),
            ];
            Some(spawn_below("/bin/hostile", &arguments, Some(level(ceiling)))?)
        }
        None => None,
    };
    let expected =
        HEAD_START + Duration::from_micros(options.mean_microseconds) * options.samples as u32;
    let finished = match timeout(expected * 3 + Duration::from_secs(5), victim.wait()).await {
        Ok(status) => status?.success(),
        Err(_) => false,
    };
    let mut alive = true;
    if let Some(mut hostile) = hostile_child {
        alive = timeout(Duration::ZERO, hostile.wait()).await.is_err();
        sweep::end_all_from(victim.id().min(hostile.id())).await;
        if alive {
            hostile.wait().await?;
        }
    }
    if !finished {
        // Whether it has ended by itself or was killed makes no difference here.
        let _ = victim.kill();
        let _ = timeout(Duration::from_secs(5), victim.wait()).await;
    }
    let [frames, processes, coroutines, connections, calls] =
        before.wait_until_free().await?.map(|(_, amount)| amount);
    let given_back = [frames, processes, coroutines, connections, calls] == [0; 5];
    let (kind, ceiling) = hostile.unwrap_or(("alone", options.level));
    println!(
        "run: kind={kind} ceiling={ceiling} victim_ceiling={} finished={} hostile_alive={} frames_left={frames} \
         processes_left={processes} coroutines_left={coroutines} calls_left={calls}",
        options.level,
        u8::from(finished),
        u8::from(alive),
    );
    Ok(finished && given_back)
}

pub fn level(level: u8) -> Priority {
    Priority::saturating(level.into())
}
