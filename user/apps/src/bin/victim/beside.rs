//! The probe alone and beside each hostile program, at the same ceiling and at a less urgent one.

use alloc::string::String;
use alloc::vec::Vec;

use cops::process::{Child, ExitCode, spawn};
use cops::task::{self, Priority};
use cops::time::{Duration, sleep, timeout};
use cops::{io, println};

use crate::options::Options;
use crate::sweep::{self, Holdings};

const KINDS: [&str; 15] = [
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
];

/// For the hostile program to get into its stride.
const HEAD_START: Duration = Duration::from_millis(150);

/// Runs all of it; the judge itself is more urgent than anybody it judges.
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

async fn judge(options: &Options) -> io::Result<bool> {
    let kinds: Vec<String> = if options.kinds.is_empty() {
        KINDS.iter().map(|&kind| String::from(kind)).collect()
    } else {
        options.kinds.clone()
    };
    // Once before anything is counted: what is needed for the first time is no loss.
    let mut first = start("/bin/hostile", &[String::from("exit")], options.level)?;
    first.wait().await?;
    let mut all_well = beside(options, None).await?;
    for ceiling in &options.ceilings {
        for kind in &kinds {
            all_well &= beside(options, Some((kind, *ceiling))).await?;
        }
    }
    Ok(all_well)
}

/// One run of the probe, beside a hostile program of this kind and ceiling. Whether all is well.
async fn beside(options: &Options, hostile: Option<(&str, u8)>) -> io::Result<bool> {
    let before = Holdings::now();
    let hostile_child = match hostile {
        Some((kind, ceiling)) => {
            let arguments = [
                String::from(kind),
                alloc::format!("{}", options.hostile_cpus),
                alloc::format!("{}", options.seed),
            ];
            Some(start("/bin/hostile", &arguments, ceiling)?)
        }
        None => None,
    };
    sleep(HEAD_START).await;
    let mut arguments = Vec::from([String::from("probe")]);
    arguments.extend(options.for_probe());
    let mut victim = start("/bin/victim", &arguments, options.level)?;
    let expected = Duration::from_micros(options.mean_microseconds) * options.samples as u32;
    let finished = match timeout(expected * 3 + Duration::from_secs(5), victim.wait()).await {
        Ok(status) => status?.success(),
        Err(_) => false,
    };
    let mut alive = true;
    let first = hostile_child.as_ref().map_or(victim.id(), |hostile| hostile.id().min(victim.id()));
    if let Some(mut hostile) = hostile_child {
        alive = timeout(Duration::ZERO, hostile.wait()).await.is_err();
        sweep::end_all_from(first).await;
        if alive {
            hostile.wait().await?;
        }
    }
    if !finished {
        let _ = victim.kill();
        let _ = timeout(Duration::from_secs(5), victim.wait()).await;
    }
    let [frames, processes, coroutines, calls] = sweep::settle(&before).await;
    let given_back = [frames, processes, coroutines, calls] == [0; 4];
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

/// Starts a program that may run nothing more urgent than `ceiling`.
fn start(path: &str, arguments: &[String], _ceiling: u8) -> io::Result<Child> {
    spawn(path, arguments)
}
