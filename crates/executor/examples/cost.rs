//! What the executor costs: instructions an operation, counted by valgrind on one worker, and wall time.
//!
//! `cargo run --release -p cops-executor --example cost` prints the table of the crate's README. Each count
//! is the difference of two runs of this program that do the operation a different number of times, so
//! start and setting up cancel out.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::process::Command;
use std::task::{Context, Poll};
use std::time::Instant;

use cops_executor::*;

static EXECUTOR: Executor = Executor::new(1);

/// Yields `left` times: 16 bytes, no state machine, so that the executor is measured and not the compiler.
struct Yields {
    left: u64,
    /// Not zero, or the compiler asks for zeroed memory, which costs more.
    size: u64,
}

impl Future for Yields {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.left == 0 {
            black_box(self.size);
            return Poll::Ready(());
        }
        self.left -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Passes the turn round a ring: wakes the next and blocks.
struct Passes {
    left: u64,
    next: CoroutineId,
}

impl Future for Passes {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.left == 0 {
            return Poll::Ready(());
        }
        self.left -= 1;
        wake_up(self.next);
        Poll::Pending
    }
}

/// `coroutines` of them on `levels` levels, each polled `rounds` times more than once.
fn yields(coroutines: u64, levels: u64, rounds: u64) {
    for number in 0..coroutines {
        let priority = Priority::saturating((number % levels) as u32);
        EXECUTOR.spawn(Yields { left: rounds, size: 16 }, priority).unwrap();
    }
}

fn ring(coroutines: u64, rounds: u64) {
    // The first is woken by the last; ids of a fresh executor count up from its slot 1.
    let id = |number: u64| CoroutineId::from_raw(1 << 32 | 1 << 24 | (number % coroutines + 1)).unwrap();
    for number in 0..coroutines {
        let spawned =
            EXECUTOR.spawn(Passes { left: rounds, next: id(number + 1) }, Priority::DEFAULT).unwrap();
        assert_eq!(spawned, id(number));
    }
}

/// One run of one operation; returns how often it was done and the seconds it took.
fn run(operation: &str, coroutines: u64, levels: u64, rounds: u64) -> (u64, f64) {
    EXECUTOR.start_on_host(1).unwrap();
    let begin = match operation {
        "yield" => {
            yields(coroutines, levels, rounds);
            Instant::now()
        }
        "ring" => {
            ring(coroutines, rounds);
            Instant::now()
        }
        "spawn" => {
            let parent = async move {
                for _ in 0..rounds {
                    for _ in 0..coroutines {
                        EXECUTOR.spawn(Yields { left: 0, size: 16 }, Priority::DEFAULT).unwrap();
                    }
                    yield_now().await;
                }
            };
            EXECUTOR.spawn(parent, Priority::DEFAULT).unwrap();
            Instant::now()
        }
        other => panic!("no operation {other}"),
    };
    EXECUTOR.run_until_stalled(0);
    (coroutines * rounds, begin.elapsed().as_secs_f64())
}

/// Wall nanoseconds a poll of 1,000 yielding coroutines on `workers` threads.
fn scale(workers: u32) -> f64 {
    const COROUTINES: u64 = 1_000;
    const ROUNDS: u64 = 5_000;
    EXECUTOR.start_on_host(workers).unwrap();
    yields(COROUTINES, 1, ROUNDS);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for worker in 0..workers {
            scope.spawn(move || EXECUTOR.run_until_done(worker));
        }
    });
    begin.elapsed().as_secs_f64() * 1e9 / (COROUTINES * ROUNDS) as f64
}

/// Instructions of a whole run in a child under valgrind.
fn instructions(arguments: &[String]) -> u64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().unwrap())
        .args(arguments)
        .output()
        .expect("valgrind is needed to count instructions");
    let report = String::from_utf8_lossy(&output.stderr);
    let line = report.lines().find(|line| line.contains("Collected")).expect("callgrind prints a total");
    line.rsplit(':').next().unwrap().trim().parse().unwrap()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [operation, coroutines, levels, rounds] = &arguments[..] {
        let (count, seconds) =
            run(operation, coroutines.parse().unwrap(), levels.parse().unwrap(), rounds.parse().unwrap());
        println!("{:.1}", seconds * 1e9 / count as f64);
        return;
    }
    if let [operation, workers] = &arguments[..] {
        assert_eq!(operation, "scale");
        println!("{:.1}", scale(workers.parse().unwrap()));
        return;
    }
    println!("| operation | coroutines | levels | instructions | ns |\n| --- | --- | --- | --- | --- |");
    for (operation, coroutines, levels) in [
        ("yield", 10, 1),
        ("yield", 1_000, 1),
        ("yield", 1_000, 64),
        ("yield", 100_000, 1),
        ("ring", 1_000, 1),
        ("spawn", 1, 1),
        ("spawn", 1_000, 1),
    ] {
        let rounds = (200_000 / coroutines).max(2);
        let with = |rounds: u64| {
            [operation.to_string(), coroutines.to_string(), levels.to_string(), rounds.to_string()]
        };
        let more = instructions(&with(2 * rounds)) - instructions(&with(rounds));
        let child = Command::new(std::env::current_exe().unwrap()).args(with(20 * rounds)).output().unwrap();
        let nanoseconds = String::from_utf8_lossy(&child.stdout).trim().to_string();
        let each = more as f64 / (rounds * coroutines) as f64;
        println!("| {operation} | {coroutines} | {levels} | {each:.1} | {nanoseconds} |");
    }
    println!("\n| workers | wall ns a poll, 1,000 yielding |\n| --- | --- |");
    for workers in [1, 2] {
        let child =
            Command::new(std::env::current_exe().unwrap()).args(["scale", &workers.to_string()]).output();
        println!("| {workers} | {} |", String::from_utf8_lossy(&child.unwrap().stdout).trim());
    }
}
