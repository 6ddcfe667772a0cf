//! Experiment A: `n` tasks add 1 to a counter in turn, without system calls of their own. The main
//! task adds 1 when all have been created; task `i` waits until the counter is `i`.

use alloc::vec::Vec;
use core::future::poll_fn;
use core::task::Poll;

use cops::io;
use cops::task::{self, CoroutineId, Priority};
use cops::thread::sync::{Mutex, OnceLock};
use cops::thread::{self, Builder, Thread};

use crate::papers::{Measured, Model, Plan, STACK_BYTES, arrive, finish, wrong};

static COUNTER: Mutex<u64> = Mutex::new(0);
/// The tasks by their numbers, which begin with 1; complete before the main task adds 1.
static COROUTINES: OnceLock<Vec<CoroutineId>> = OnceLock::new();
static THREADS: OnceLock<Vec<Thread>> = OnceLock::new();

/// Adds 1 to the counter if it is `turn`.
fn advance(turn: u64) -> bool {
    let mut counter = COUNTER.lock();
    let is_due = *counter == turn;
    *counter += u64::from(is_due);
    is_due
}

/// The values of the counter for which task `number` waits.
fn turns(plan: Plan, number: u64) -> impl Iterator<Item = u64> {
    (0..plan.rounds).map(move |round| round * plan.tasks + number)
}

/// Whether no turn follows this one. Then the time is taken.
fn is_last(plan: Plan, turn: u64) -> bool {
    let is_last = turn == plan.rounds * plan.tasks;
    if is_last {
        finish();
    }
    is_last
}

/// The index in the table of the task whose turn follows that of task `number`.
fn next(plan: Plan, number: u64) -> usize {
    (number % plan.tasks) as usize
}

/// Runs the experiment and checks the counter.
pub async fn run(plan: &Plan, measured: &mut Measured) -> io::Result<()> {
    match plan.model {
        Model::Coroutine => coroutines(plan, measured).await,
        Model::Thread => threads(plan, measured, sleeping)?,
        Model::Yielding => threads(plan, measured, yielding)?,
    }
    let (found, expected) = (*COUNTER.lock(), plan.tasks * plan.rounds + 1);
    if found == expected { Ok(()) } else { Err(wrong("the counter", found, expected)) }
}

async fn coroutines(plan: &Plan, measured: &mut Measured) {
    let mut handles = Vec::with_capacity(plan.tasks as usize);
    for number in 1..=plan.tasks {
        handles.push(task::spawn_join(member(*plan, number), Priority::DEFAULT));
    }
    let first = COROUTINES.get_or_init(|| handles.iter().map(|handle| handle.id()).collect())[0];
    measured.coroutines_created(plan).await;
    advance(0);
    task::wake_up(first);
    for handle in handles {
        let _ = handle.await;
    }
}

async fn member(plan: Plan, number: u64) {
    arrive();
    for turn in turns(plan, number) {
        poll_fn(|_| if advance(turn) { Poll::Ready(()) } else { Poll::Pending }).await;
        if !is_last(plan, turn)
            && let Some(coroutines) = COROUTINES.get()
        {
            task::wake_up(coroutines[next(plan, number)]);
        }
    }
}

fn threads(plan: &Plan, measured: &mut Measured, act: fn(Plan, u64)) -> io::Result<()> {
    let plan = *plan;
    let mut handles = Vec::with_capacity(plan.tasks as usize);
    for number in 1..=plan.tasks {
        handles.push(Builder::new().stack_size(STACK_BYTES).spawn(move || act(plan, number))?);
    }
    let of = |handles: &[thread::JoinHandle<()>]| {
        handles.iter().map(|handle| handle.thread().clone()).collect()
    };
    let first = &THREADS.get_or_init(|| of(&handles))[0];
    measured.threads_created(&plan);
    advance(0);
    if plan.model == Model::Thread {
        first.unpark();
    }
    for handle in handles {
        let _ = handle.join();
    }
    Ok(())
}

fn sleeping(plan: Plan, number: u64) {
    arrive();
    for turn in turns(plan, number) {
        while !advance(turn) {
            thread::park();
        }
        if !is_last(plan, turn)
            && let Some(threads) = THREADS.get()
        {
            threads[next(plan, number)].unpark();
        }
    }
}

fn yielding(plan: Plan, number: u64) {
    arrive();
    for turn in turns(plan, number) {
        while !advance(turn) {
            thread::yield_now();
        }
        is_last(plan, turn);
    }
}
