//! The CPU share that a normal program gets beside one or several hostile programs of the same
//! priority.

use alloc::string::String;
use alloc::vec::Vec;

use cops::process::{Child, ExitCode, spawn_below};
use cops::task::{self, Priority};
use cops::time::{Duration, sleep, timeout};
use cops::{io, println};

use crate::beside::{kinds, level};
use crate::options::Options;
use crate::sweep;

/// From the start of the normal program until it begins to work.
const HEAD_START: Duration = Duration::from_millis(200);

/// Runs all measurements. The judge itself is more urgent than what it measures.
pub async fn run(options: &Options) -> ExitCode {
    let options = options.clone();
    let judged = task::spawn_join(async move { judge(&options).await }, Priority::MOST_URGENT);
    match judged.await {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            println!("victim: {error}");
            ExitCode::FAILURE
        }
        Err(_) => ExitCode::FAILURE,
    }
}

async fn judge(options: &Options) -> io::Result<()> {
    beside(options, "alone", 0).await?;
    for kind in &kinds(options) {
        for &count in &options.crowds {
            beside(options, kind, count).await?;
        }
    }
    println!("end: all_well=1");
    Ok(())
}

/// Runs the work beside `count` hostile programs of this kind, at the same ceiling.
async fn beside(options: &Options, kind: &str, count: usize) -> io::Result<()> {
    let arguments = [
        String::from("work"),
        alloc::format!("delay-ms={}", HEAD_START.as_millis()),
        alloc::format!("work-ms={}", options.work_milliseconds),
        alloc::format!("level={}", options.level),
    ];
    let mut honest = spawn_below("/bin/victim", &arguments, Some(level(options.level)))?;
    sleep(HEAD_START / 4).await;
    let mut hostile: Vec<Child> = Vec::new();
    for number in 0..count {
        let arguments = [
            String::from(kind),
            alloc::format!("{}", options.hostile_cpus),
            alloc::format!("{}", options.seed + number as u64),
        ];
        hostile.push(spawn_below("/bin/hostile", &arguments, Some(level(options.level)))?);
    }
    let expected = HEAD_START + Duration::from_millis(options.work_milliseconds);
    let finished = match timeout(expected * 20 + Duration::from_secs(5), honest.wait()).await {
        Ok(status) => status?.success(),
        Err(_) => false,
    };
    if let Some(first) = hostile.first() {
        sweep::end_all_from(honest.id().min(first.id())).await;
    }
    for child in &mut hostile {
        child.wait().await?;
    }
    if !finished {
        let _ = honest.kill();
        let _ = timeout(Duration::from_secs(5), honest.wait()).await;
    }
    println!(
        "share: kind={kind} hostile={count} ceiling={} finished={}",
        options.level,
        u8::from(finished)
    );
    Ok(())
}
