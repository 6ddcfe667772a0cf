//! Three coroutines, one interrupt, no allocator: a sensor that must not wait, a computation that
//! takes what is left, and a reporter between them.
//!
//! ```text
//!   timer interrupt ──raise──► SAMPLER (0) ──raise──► REPORTER (32)
//!                              COMPUTER (63): yields after each ten numbers; when it is done, the hart sleeps
//! ```
//!
//! The interrupt handler notes how many polls there have been. The sampler is the most urgent
//! coroutine, so the next poll must be its own: that is counted and printed, and decides the exit
//! code. (One poll may come between, if the interrupt falls between the worker's choice and the
//! poll: crate documentation, "Proposition".)
#![no_std]
#![no_main]

use cops_executor::{
    Executor, Priority, SpawnError, StaticMemory, StaticTask, WorkerState, future_size, memory_for,
    wake_up, yield_now,
};
use firmware::signal::Signal;
use firmware::{board, entry, println};
use portable_atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

const COROUTINES: u32 = 4;
const PERIOD: u64 = board::TICKS_PER_MILLISECOND / 10;
/// Some of them while the computer computes, some while the hart sleeps.
const SAMPLES: u32 = 20;
const NUMBERS: u32 = 5_000;
/// Numbers between two yields.
const PORTION: u32 = 10;

static EXECUTOR: Executor = Executor::with_number(0);
static WORKER: WorkerState = WorkerState::new();
static MEMORY: StaticMemory<{ memory_for(1, COROUTINES) }> = StaticMemory::new();

static SAMPLER: StaticTask<{ future_size(&sample) }> = StaticTask::new();
static REPORTER: StaticTask<{ future_size(&report) }> = StaticTask::new();
static COMPUTER: StaticTask<{ future_size(&compute) }> = StaticTask::new();
static YIELDERS: [StaticTask<{ future_size(&yield_often) }>; 2] = [const { StaticTask::new() }; 2];

static TICK: Signal = Signal::new();
static SAMPLED: Signal = Signal::new();

static INTERRUPTS: AtomicU32 = AtomicU32::new(0);
/// Polls so far, and instructions so far, when the last interrupt came.
static POLLS_BEFORE: AtomicU32 = AtomicU32::new(0);
static INSTRUCTIONS_BEFORE: AtomicU32 = AtomicU32::new(0);
/// Samples before which so many polls of others came: none, one, more.
static OVERTAKEN: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];
static MOST_INSTRUCTIONS: AtomicU32 = AtomicU32::new(0);
/// Of those that came while the hart slept.
static FROM_SLEEP: AtomicU32 = AtomicU32::new(0);
static SLEEPS: AtomicU32 = AtomicU32::new(0);
static COMPUTED: AtomicBool = AtomicBool::new(false);

/// In the interrupt.
fn on_timer() {
    POLLS_BEFORE.store(polls(), Relaxed);
    INSTRUCTIONS_BEFORE.store(board::instructions(), Relaxed);
    let last = INTERRUPTS.fetch_add(1, Relaxed) + 1 == SAMPLES;
    board::set_alarm(if last { u64::MAX } else { board::now() + PERIOD });
    TICK.raise();
}

fn polls() -> u32 {
    WORKER.polls.load(Relaxed) as u32
}

/// The sensor.
async fn sample() {
    for _ in 0..SAMPLES {
        TICK.wait().await;
        let instructions = board::instructions().wrapping_sub(INSTRUCTIONS_BEFORE.load(Relaxed));
        // This poll is counted.
        let others = polls().wrapping_sub(POLLS_BEFORE.load(Relaxed)).wrapping_sub(1);
        OVERTAKEN[others.min(2) as usize].fetch_add(1, Relaxed);
        MOST_INSTRUCTIONS.fetch_max(instructions, Relaxed);
        if COMPUTED.load(Relaxed) {
            FROM_SLEEP.fetch_add(1, Relaxed);
        }
        SAMPLED.raise();
    }
}

async fn report() {
    let mut reported = 0;
    while reported < SAMPLES {
        reported += SAMPLED.wait().await;
        if reported % 5 == 0 {
            println!("{reported} samples");
        }
    }
}

async fn compute(up_to: u32) {
    let mut primes = 0;
    for number in 2..up_to {
        let is_prime = (2..number)
            .take_while(|factor| factor * factor <= number)
            .all(|factor| number % factor != 0);
        primes += is_prime as u32;
        if number % PORTION == 0 {
            yield_now().await;
        }
    }
    COMPUTED.store(true, Relaxed);
    println!("{primes} primes below {up_to}");
}

async fn yield_often(times: u32) {
    for _ in 0..times {
        yield_now().await;
    }
}

/// Runs until all coroutines have exited; sleeps while none is ready.
fn run() {
    while EXECUTOR.live_count() != 0 {
        EXECUTOR.run_until_stalled(0);
        board::sleep_if(|| {
            let sleeps = EXECUTOR.live_count() != 0 && EXECUTOR.prepare_park(0);
            SLEEPS.fetch_add(sleeps as u32, Relaxed);
            sleeps
        });
        EXECUTOR.finish_park(0);
    }
}

/// Instructions for a yield, with `count` coroutines that do nothing else.
fn measure_yield(count: usize) -> Result<u32, SpawnError> {
    const YIELDS: u32 = 1_000;
    for task in &YIELDERS[..count] {
        EXECUTOR.spawn_static(task, yield_often(YIELDS), Priority::DEFAULT)?;
    }
    let before = board::instructions();
    EXECUTOR.run_until_stalled(0);
    Ok(board::instructions().wrapping_sub(before) / (YIELDS * count as u32))
}

fn demonstrate() -> Result<bool, SpawnError> {
    let sampler = EXECUTOR.spawn_static(&SAMPLER, sample(), Priority::MOST_URGENT)?;
    EXECUTOR.spawn_static(&REPORTER, report(), Priority::DEFAULT)?;
    EXECUTOR.spawn_static(&COMPUTER, compute(NUMBERS), Priority::LEAST_URGENT)?;
    let refused = EXECUTOR.spawn_static(&SAMPLER, sample(), Priority::MOST_URGENT)
        == Err(SpawnError::Occupied);
    board::start_timer(board::now() + PERIOD, on_timer);
    run();
    let is_gone = !wake_up(sampler);

    let [none, one, more] = OVERTAKEN.each_ref().map(|count| count.load(Relaxed));
    println!("samples before which 0 / 1 / more polls of others came: {none} / {one} / {more}");
    println!(
        "from the interrupt to the sample: at most {} instructions",
        MOST_INSTRUCTIONS.load(Relaxed)
    );
    println!(
        "sleeps: {}, samples that ended one: {}",
        SLEEPS.load(Relaxed),
        FROM_SLEEP.load(Relaxed)
    );
    println!("a busy static refuses: {refused}; a late wake has no effect: {is_gone}");
    println!(
        "a yield: {} instructions alone, {} in turn with another",
        measure_yield(1)?,
        measure_yield(2)?
    );
    let from_sleep = FROM_SLEEP.load(Relaxed);
    let both_ways = from_sleep != 0 && from_sleep != SAMPLES;
    Ok(none + one == SAMPLES && both_ways && refused && is_gone)
}

fn main() -> ! {
    // One hart: what wakes is an interrupt, which ends the sleep by itself.
    EXECUTOR.start_static(&MEMORY, |_worker| ()).expect("it is started once");
    EXECUTOR.add_worker(0, &WORKER).expect("there is memory for one");
    let succeeded = demonstrate().expect("there is room for all");
    let usage = board::usage();
    println!(
        "flash {} bytes; RAM {} bytes: {} of variables, {} of stack (of {})",
        usage.flash,
        usage.variables + usage.stack,
        usage.variables,
        usage.stack,
        usage.stack_limit
    );
    println!(
        "of the variables: executor {}, its memory {} ({} coroutines), worker {}, futures {}",
        size_of_val(&EXECUTOR),
        size_of_val(&MEMORY),
        COROUTINES,
        size_of_val(&WORKER),
        size_of_val(&SAMPLER)
            + size_of_val(&REPORTER)
            + size_of_val(&COMPUTER)
            + size_of_val(&YIELDERS)
    );
    println!("{}", if succeeded { "passed" } else { "FAILED" });
    board::exit(!succeeded as u16)
}

entry!(main);
