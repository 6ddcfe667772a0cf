//! Authority: a process has authority over itself and its descendants only.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use cops::abi::Errno;
use cops::abi::syscall::{COPS_SET_CEILING, COPS_SET_SHARE, COPS_TRACE, KILL, signal};
use cops::abi::trace::operation;
use cops::process::{self, Child, ExitCode};
use cops::task::Priority;
use cops::time::{Duration, Instant, sleep};

use crate::harness::{Failure, Outcome, PROGRAM, soon, start, start_tied};
use crate::processes::HELPER;
use crate::{check, check_equal, raw, tests};

tests! { authority:
    a_process_has_none_over_others,
    a_process_has_it_over_itself,
    orphans_stay_below_their_grandparent,
    only_the_first_process_has_it_over_the_machine,
    a_process_that_does_not_exist,
}

/// The helpers. Their exit code is the number of an attempt that the kernel wrongly allowed.
pub fn help(arguments: &[&str]) -> Option<ExitCode> {
    Some(match arguments {
        ["attack", targets @ ..] => attack(targets),
        ["attack-machine"] => attack_machine(),
        ["fork", rest @ ..] => match start(&[&[HELPER][..], rest].concat()) {
            Ok(_) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        _ => return None,
    })
}

/// Tries everything on each of these processes, none of which is a descendant.
fn attack(targets: &[&str]) -> ExitCode {
    for (index, target) in targets.iter().enumerate() {
        let Ok(target) = target.parse::<usize>() else { return ExitCode(2) };
        let attempts = [
            raw::call(KILL, [target, 0]),
            raw::call(KILL, [target, signal::SIGKILL.into()]),
            raw::call(KILL, [target, signal::SIGTERM.into()]),
            raw::call(COPS_SET_CEILING, [target, 0]),
            raw::call(COPS_SET_CEILING, [target, 63]),
        ];
        for (attempt, outcome) in attempts.iter().enumerate() {
            if *outcome != Err(Errno::EPERM) {
                return ExitCode((10 + 10 * index + attempt) as u8);
            }
        }
    }
    ExitCode::SUCCESS
}

/// Tries to change what concerns all processes, and to read it.
fn attack_machine() -> ExitCode {
    let mut record = [0u64; 32];
    let place = record.as_mut_ptr().expose_provenance();
    let attempts = [
        raw::call(COPS_SET_SHARE, [500]),
        raw::call(COPS_TRACE, [operation::CONTROL, 1]),
        raw::call(COPS_TRACE, [operation::CONTROL, 0]),
        raw::call(COPS_TRACE, [operation::READ, 0, place, size_of_val(&record)]),
    ];
    let not_refused = attempts.iter().position(|outcome| *outcome != Err(Errno::EPERM));
    ExitCode(not_refused.map_or(0, |attempt| 10 + attempt as u8))
}

async fn a_process_has_none_over_others() -> Outcome {
    let sibling = start_tied(&[HELPER, "sleep", "100000"])?;
    let targets = [1, process::parent_id(), process::id(), sibling.id()].map(|id| format!("{id}"));
    let mut arguments: Vec<&str> = [HELPER, "attack"].to_vec();
    arguments.extend(targets.iter().map(String::as_str));
    for ceiling in [None, Some(Priority::LEAST_URGENT)] {
        let mut child = process::spawn_below(PROGRAM, &arguments, ceiling)?;
        let status = soon("the end of an attacker", child.wait()).await??;
        check_equal!(status.code(), Some(0), "the attempt that was allowed, ceiling {ceiling:?}");
    }
    check_equal!(raw::call(KILL, [sibling.id() as usize, 0]), Ok(0), "whether the sibling lives");
    sibling.end().await
}

async fn a_process_has_it_over_itself() -> Outcome {
    let own = process::id() as usize;
    check_equal!(raw::call(KILL, [own, 0]), Ok(0), "whether it lives");
    check_equal!(raw::call(COPS_SET_CEILING, [own, 1]), Ok(0), "lowering its own ceiling");
    check_equal!(raw::call(COPS_SET_CEILING, [own, 0]), Err(Errno::EPERM), "raising it again");
    Ok(())
}

/// The child of a child that has ended, found by its parent 0 and its number.
fn orphan() -> Result<Option<u32>, Failure> {
    let orphans = cops::inspect::processes()?;
    let mine =
        orphans.iter().filter(|process| process.parent == 0 && process.process > process::id());
    Ok(mine.map(|process| process.process).next())
}

/// A process with an ended parent is still a descendant of its grandparent.
async fn orphans_stay_below_their_grandparent() -> Outcome {
    let mut parent: Child = start(&[HELPER, "fork", "sleep", "100000"])?;
    let status = soon("the end of the parent", parent.wait()).await??;
    check_equal!(status.code(), Some(0), "how the parent ended");
    let Some(orphan) = orphan()? else { return Err(Failure("there is no orphan".into())) };
    let target = format!("{orphan}");
    // A process beside it still has no authority.
    let mut stranger = start(&[HELPER, "attack", &target])?;
    let status = soon("the end of an attacker", stranger.wait()).await??;
    check_equal!(status.code(), Some(0), "which attempt was not refused");
    check_equal!(raw::call(COPS_SET_CEILING, [orphan as usize, 40]), Ok(0), "its ceiling");
    process::kill(orphan, signal::SIGKILL)?;
    let begin = Instant::now();
    while raw::call(KILL, [orphan as usize, 0]) != Err(Errno::ESRCH) {
        check!(begin.elapsed() < Duration::from_secs(10), "the orphan does not end");
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// What concerns every process is for a process that has authority over every process, whatever the
/// ceiling.
async fn only_the_first_process_has_it_over_the_machine() -> Outcome {
    for ceiling in [Priority::MOST_URGENT, Priority::LEAST_URGENT] {
        let mut child = process::spawn_below(PROGRAM, &[HELPER, "attack-machine"], Some(ceiling))?;
        let status = soon("the end of an attacker", child.wait()).await??;
        check_equal!(status.code(), Some(0), "which attempt was not refused, ceiling {ceiling:?}");
    }
    Ok(())
}

async fn a_process_that_does_not_exist() -> Outcome {
    for absent in [999_999_999, u32::MAX as usize + 2, (-999_999_999isize) as usize] {
        check_equal!(raw::call(KILL, [absent, 9]), Err(Errno::ESRCH), "killing {absent}");
    }
    Ok(())
}
