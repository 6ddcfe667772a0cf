//! Experiment A: `n` tasks add 1 to a counter in turn, without system calls of their own. The main
//! task adds 1 when all have been created; task `i` waits until the counter is `i`. In the steady
//! mode the main task is number 0, and its turn follows that of the last task.

use alloc::vec::Vec;
use core::future::poll_fn;
use core::task::Poll;

use cops::io;
use cops::task::{self, CoroutineId, Priority};
use cops::thread::sync::{Mutex, OnceLock};
use cops::thread::{self, Builder, Thread};

use crate::papers::{Measured, Model, Plan, STACK_BYTES, arrive, finish, wrong};

static COUNTER: Mutex<u64> = Mutex::new(0);
/// The tasks by their numbers, of which 0 is the main task; complete before that adds 1.
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
    (0..plan.rounds).map(move |round| round * (plan.tasks + 1) + number)
}

/// Whether no turn follows this one. Then the time is taken.
fn is_last(plan: Plan, turn: u64) -> bool {
    let is_last = turn + 1 == plan.rounds * (plan.tasks + 1);
    if is_last {
        finish();
    }
    is_last
}

/// The index in the table of the task with the turn that follows that of task `number`.
fn next(plan: Plan, number: u64) -> usize {
    ((number + 1) % (plan.tasks + 1)) as usize
}

/// Runs the experiment and checks the counter.
pub async fn run(plan: &Plan, measured: &mut Measured) -> io::Result<()> {
    match plan.model {
        Model::Coroutine => coroutines(plan, measured).await,
        Model::Thread => threads(plan, measured, sleeping)?,
        Model::Yielding => threads(plan, measured, yielding)?,
    }
    let (found, expected) = (*COUNTER.lock(), (plan.tasks + 1) * plan.rounds);
    if found == expected { Ok(()) } else { Err(wrong("the counter", found, expected)) }
}

async fn coroutines(plan: &Plan, measured: &mut Measured) {
    let copy = *plan;
    let mut handles = Vec::with_capacity(plan.tasks as usize);
    for number in 1..=plan.tasks {
        let member = async move {
            arrive();
            member(copy, number).await;
        };
        handles.push(task::spawn_join(member, Priority::DEFAULT));
    }
    let ours = task::current().into_iter();
    COROUTINES.get_or_init(|| ours.chain(handles.iter().map(|handle| handle.id())).collect());
    measured.coroutines_created(plan).await;
    member(copy, 0).await;
    for handle in handles {
        let _ = handle.await;
    }
}

async fn member(plan: Plan, number: u64) {
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
        let member = move || {
            arrive();
            act(plan, number);
        };
        handles.push(Builder::new().stack_size(STACK_BYTES).spawn(member)?);
    }
    let ours = core::iter::once(thread::current());
    THREADS
        .get_or_init(|| ours.chain(handles.iter().map(|handle| handle.thread().clone())).collect());
    measured.threads_created(&plan);
    act(plan, 0);
    for handle in handles {
        let _ = handle.join();
    }
    Ok(())
}

fn sleeping(plan: Plan, number: u64) {
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
    for turn in turns(plan, number) {
        while !advance(turn) {
            thread::yield_now();
        }
        is_last(plan, turn);
    }
}
