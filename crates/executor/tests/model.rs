//! Random histories against models that are easy to believe (`tests/history`): on one worker the
//! exact order of polls and drops, on several the level; every answer, every phase.

mod common;
mod history;

use history::{History, Operation, Script, Step, history_of, play};
use proptest::prelude::*;

/// Unoptimised a case takes ten times as long, under Miri thousands of times.
const CASES: u32 = match () {
    _ if cfg!(miri) => 4,
    _ if cfg!(debug_assertions) => 256,
    _ => 4_096,
};

/// Of bytes: they cost far less to make.
const CASES_OF_BYTES: u32 = if cfg!(miri) { 8 } else { 8_192 };
const MOST_BYTES: usize = if cfg!(miri) { 120 } else { 1_200 };

/// Few levels, so that coroutines meet, the first and the last among them; others, so that all are
/// used.
fn priority() -> impl Strategy<Value = u8> {
    prop_oneof![4 => prop::sample::select(vec![0u8, 30, 31, 63]), 1 => 0u8..64]
}

fn operation() -> impl Strategy<Value = Operation> {
    let any = || any::<usize>();
    prop_oneof![
        6 => priority().prop_map(|priority| Operation::Spawn { priority }),
        2 => priority().prop_map(|priority| Operation::SpawnBlocked { priority }),
        12 => any().prop_map(|whom| Operation::Wake { whom }),
        2 => any().prop_map(|whom| Operation::Cancel { whom }),
        8 => (any(), priority()).prop_map(|(whom, priority)| Operation::SetPriority { whom, priority }),
        6 => Just(Operation::WakeSelf),
        2 => Just(Operation::CancelSelf),
        3 => (any(), 0u64..4).prop_map(|(worker, polls)| Operation::RunInside { worker, polls }),
        2 => any().prop_map(|worker| Operation::Park { worker }),
        1 => Just(Operation::Stop),
    ]
}

fn script() -> impl Strategy<Value = Script> {
    (proptest::collection::vec(operation(), 0..5), prop::bool::weighted(0.15))
        .prop_map(|(operations, ready)| Script { operations, ready })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => operation().prop_map(Step::Outside),
        1 => (any::<usize>(), 0u64..12, proptest::collection::vec(script(), 12))
            .prop_map(|(worker, polls, scripts)| Step::Run { worker, polls, scripts }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(), 1..if cfg!(miri) { 16 } else { 80 })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn one_worker_does_what_the_model_does(steps in steps()) {
        play(History { workers: 1, steps });
    }

    #[test]
    fn several_workers_take_the_most_urgent(workers in 2usize..=4, steps in steps()) {
        play(History { workers, steps });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES_OF_BYTES))]

    #[test]
    fn any_bytes_are_a_history_that_holds(bytes in proptest::collection::vec(any::<u8>(), 0..MOST_BYTES)) {
        play(history_of(&bytes));
    }
}

/// Moved away and back while a request of before is in the inbox.
#[test]
fn a_history_that_once_failed() {
    use Operation::*;
    let script =
        |operations: &[Operation]| Script { operations: operations.to_vec(), ready: false };
    let outside = |operations: &[Operation]| {
        operations.iter().copied().map(Step::Outside).collect::<Vec<_>>()
    };
    let run = |polls, scripts: &[&[Operation]]| Step::Run {
        worker: 0,
        polls,
        scripts: scripts.iter().copied().chain([&[][..]; 12]).take(12).map(script).collect(),
    };
    let spawn = Spawn { priority: 30 };
    let set = |whom, priority| SetPriority { whom, priority };
    let mut steps = outside(&[spawn, Wake { whom: 0 }, Cancel { whom: 0 }, spawn, set(0, 30)]);
    steps.extend(outside(&[set(1, 50), Wake { whom: 0 }]));
    steps.push(run(7, &[&[WakeSelf], &[WakeSelf, spawn], &[], &[Wake { whom: 1 }], &[spawn]]));
    steps.extend(outside(&[spawn]));
    steps.push(run(4, &[]));
    steps.extend(outside(&[set(1, 31), Wake { whom: 1 }, Spawn { priority: 31 }]));
    steps.push(run(2, &[&[set(1, 30)]]));
    for workers in 1..=4 {
        play(History { workers, steps: steps.clone() });
    }
}
