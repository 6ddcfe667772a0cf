//! What ended processes and programs that could not be started leave behind is freed in time.

use alloc::vec::Vec;

use cops::inspect;
use cops::process::{self, Child, ExitCode, Resource, spawn, spawn_below};
use cops::task::{self, Priority, yield_now};
use cops::time::Duration;

use crate::harness::{Failure, Outcome, PROGRAM, harts, start, until};
use crate::processes::HELPER;
use crate::{check, tests};

tests! { leftovers:
    a_failed_start_does_not_wait_for_less_urgent_work,
}

/// The pages of a process: its end takes the reaper hundreds of portions.
const PAGES: u64 = 4096;
/// Other memory that the process which looks at its quota may need meanwhile. The program that it
/// cannot start is larger.
const SLACK_BYTES: u64 = 128 << 10;
/// Number of looks at the quota after a failed start, each after some milliseconds.
const LOOKS: u32 = 2000;

/// The helpers of these tests.
pub fn help(arguments: &[&str]) -> Option<ExitCode> {
    Some(match arguments {
        ["parent-of-large"] => match start(&[HELPER, "stay-large"]) {
            Ok(_) => stay(),
            Err(_) => ExitCode(1),
        },
        ["stay-large"] => {
            let mut block = Vec::new();
            block.resize(PAGES as usize * 4096, 1u8);
            core::hint::black_box(&block);
            stay()
        }
        ["fail-to-start"] => fail_to_start(),
        _ => return None,
    })
}

fn stay() -> ExitCode {
    loop {
        let _ = cops::sleep!(Duration::from_secs(1000));
    }
}

/// Starts a program that gets no virtual CPU, and waits until the memory of the attempt is free.
fn fail_to_start() -> ExitCode {
    let used = || process::quota(0, Resource::Memory).map_or(u64::MAX, |quota| quota.used);
    if process::set_quota(0, Resource::Cpus, 1).is_err() {
        return ExitCode(2);
    }
    // Allocates what sleeps need.
    let _ = cops::sleep!(Duration::from_millis(1));
    let enough = used() + SLACK_BYTES;
    if spawn(PROGRAM, &[HELPER, "exit", "0"]).is_ok() {
        return ExitCode(3);
    }
    // The reaper is less urgent than this process.
    if harts() == 1 && used() <= enough {
        return ExitCode(4);
    }
    for _ in 0..LOOKS {
        if used() <= enough {
            return ExitCode::SUCCESS;
        }
        let _ = cops::sleep!(Duration::from_millis(2));
    }
    ExitCode(5)
}

/// A process of a low ceiling is being freed while less urgent programs than the reaper compute on
/// all harts. The memory of a program that a more urgent process could not start is freed all the
/// same.
async fn a_failed_start_does_not_wait_for_less_urgent_work() -> Outcome {
    if let Some(id) = task::current() {
        task::set_priority(id, Priority::saturating(2));
    }
    yield_now().await;
    let below = |helper: &str, ceiling| -> Result<Child, Failure> {
        Ok(spawn_below(PROGRAM, &[HELPER, helper], Some(Priority::saturating(ceiling)))?)
    };
    let mut parent = below("parent-of-large", 60)?;
    let mut large = 0;
    until("the large process has its memory", || {
        let all = inspect::processes()?;
        let found = all.iter().find(|one| one.parent == parent.id() && one.pages >= PAGES);
        large = found.map_or(0, |one| one.process);
        Ok(large != 0)
    })
    .await?;
    let mut spinners = Vec::new();
    for _ in 0..harts() + 1 {
        spinners.push(below("compute", 40)?);
    }
    until("all that compute have begun", || {
        let all = inspect::processes()?;
        let has_begun =
            |child: &Child| all.iter().any(|one| one.process == child.id() && one.run_ticks > 0);
        Ok(spinners.iter().all(has_begun))
    })
    .await?;
    process::kill(large, cops::abi::syscall::signal::SIGKILL)?;
    let status = below("fail-to-start", 20)?.wait().await?;
    for child in spinners.iter_mut().chain([&mut parent]) {
        child.kill()?;
    }
    for child in spinners.iter_mut().chain([&mut parent]) {
        child.wait().await?;
    }
    check!(status.success(), "the start that was to fail: {status}");
    Ok(())
}
