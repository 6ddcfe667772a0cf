//! Sleeping, intervals and time limits by the board's clock, which interrupts when the next of them
//! is due: not before, and not when no coroutine sleeps. A semaphore counts what has happened.
#![no_std]
#![no_main]

use core::future::pending;
use core::time::Duration;

use cops_executor::sync::Semaphore;
use cops_executor::time::{Clock, Timers};
use cops_executor::{
    Executor, Priority, SpawnError, StaticMemory, StaticTask, WorkerState, future_size, memory_for,
};
use firmware::{board, entry, println};
use portable_atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

static EXECUTOR: Executor = Executor::with_number(0);
static WORKER: WorkerState = WorkerState::new();
static MEMORY: StaticMemory<{ memory_for(1, 4) }> = StaticMemory::new();
static OFTEN: StaticTask<{ future_size(&tick) }> = StaticTask::new();
static SELDOM: StaticTask<{ future_size(&tick) }> = StaticTask::new();
static LIMITED: StaticTask<{ future_size(&give_up) }> = StaticTask::new();
static WRITER: StaticTask<{ future_size(&write) }> = StaticTask::new();

static TIMERS: Timers<BoardClock> = Timers::new(BoardClock);
/// As many permits as letters were written.
static WRITTEN: Semaphore = Semaphore::new(0);
static INTERRUPTS: AtomicU32 = AtomicU32::new(0);

/// When what happened, one letter each. In microseconds: `a` each 100, `b` each 250, `c` at 330.
const EXPECTED: &[u8] = b"aabacaab";
static LETTERS: [AtomicU8; EXPECTED.len()] = [const { AtomicU8::new(b'-') }; EXPECTED.len()];
static COUNT: AtomicU32 = AtomicU32::new(0);

struct BoardClock;

impl Clock for BoardClock {
    fn now_ticks(&self) -> u64 {
        board::now()
    }

    fn ticks_per_second(&self) -> u64 {
        board::TICKS_PER_MILLISECOND * 1_000
    }

    fn deadline_set(&self, deadline_ticks: u64) {
        board::set_alarm(deadline_ticks);
    }
}

/// In the interrupt.
fn on_timer() {
    INTERRUPTS.fetch_add(1, Relaxed);
    board::set_alarm(TIMERS.fire_due().next_deadline.unwrap_or(u64::MAX));
}

fn note(letter: u8) {
    let place = COUNT.fetch_add(1, Relaxed) as usize;
    if let Some(place) = LETTERS.get(place) {
        place.store(letter, Relaxed);
    }
    WRITTEN.add_permits(1);
}

async fn tick(letter: u8, period: Duration, times: u32) {
    let mut interval = TIMERS.interval(period);
    for _ in 0..times {
        interval.tick().await;
        note(letter);
    }
}

async fn give_up(letter: u8, limit: Duration) {
    if TIMERS.timeout(limit, pending::<()>()).await.is_err() {
        note(letter);
    }
}

/// Waits for all letters.
async fn write() {
    WRITTEN.acquire(EXPECTED.len()).await.forget();
}

fn spawn_all() -> Result<(), SpawnError> {
    let level = |level| Priority::saturating(level);
    EXECUTOR.spawn_static(&OFTEN, tick(b'a', Duration::from_micros(100), 5), level(10))?;
    EXECUTOR.spawn_static(&SELDOM, tick(b'b', Duration::from_micros(250), 2), level(20))?;
    EXECUTOR.spawn_static(&LIMITED, give_up(b'c', Duration::from_micros(330)), level(30))?;
    EXECUTOR.spawn_static(&WRITER, write(), level(40))?;
    Ok(())
}

fn main() -> ! {
    EXECUTOR.start_static(&MEMORY, |_worker| ()).expect("it is started once");
    EXECUTOR.add_worker(0, &WORKER).expect("there is memory for one");
    board::start_timer(u64::MAX, on_timer);
    let start = board::now();
    spawn_all().expect("there is room for all");
    while EXECUTOR.live_count() != 0 {
        EXECUTOR.run_until_stalled(0);
        board::sleep_if(|| EXECUTOR.live_count() != 0 && EXECUTOR.prepare_park(0));
        EXECUTOR.finish_park(0);
    }
    let microseconds = (board::now() - start) * 1_000 / board::TICKS_PER_MILLISECOND;
    let letters = LETTERS.each_ref().map(|letter| letter.load(Relaxed));
    let interrupts = INTERRUPTS.load(Relaxed);
    println!("{}", core::str::from_utf8(&letters).unwrap_or_default());
    println!("{microseconds} us, {interrupts} interrupts");
    let usage = board::usage();
    println!(
        "flash {} bytes; RAM {} of variables, {} of stack",
        usage.flash, usage.variables, usage.stack
    );
    let succeeded = letters == EXPECTED
        && COUNT.load(Relaxed) as usize == EXPECTED.len()
        && (500..520).contains(&microseconds)
        // Two may be due at the same time.
        && interrupts as usize <= EXPECTED.len();
    println!("{}", if succeeded { "passed" } else { "FAILED" });
    board::exit(!succeeded as u16)
}

entry!(main);
