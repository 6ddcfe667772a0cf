//! Threads of the operating system, where a thread can do what a coroutine does: yield to others,
//! be spawned and joined, block until it is unparked. Only times: what the kernel executes is not
//! counted.

use std::fs;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, Thread};
use std::time::Instant;

use crate::operation::{Operation, ping, ring::RING};
use crate::sample::Sample;

/// Runs an operation that [`Contender::Threads`](crate::contender::Contender) takes.
pub fn measure(operation: Operation, rounds: u64) -> Sample {
    match operation {
        Operation::Yield { coroutines, .. } => yields(coroutines as usize, rounds),
        Operation::Spawn { .. } | Operation::Join => spawn(rounds),
        Operation::Ring => ring(rounds),
        Operation::Ping { .. } => ping::run_threads(rounds),
        Operation::Bytes => bytes(),
        other => panic!("threads do not take {other:?}"),
    }
}

fn sample(began: Instant, operations: u64) -> Sample {
    Sample { operations, nanoseconds: began.elapsed().as_nanos() as u64, ..Sample::default() }
}

fn yields(threads: usize, rounds: u64) -> Sample {
    let start = Barrier::new(threads + 1);
    let mut began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                start.wait();
                for _ in 0..rounds {
                    thread::yield_now();
                }
            });
        }
        start.wait();
        began = Instant::now();
    });
    sample(began, threads as u64 * rounds)
}

fn spawn(rounds: u64) -> Sample {
    let began = Instant::now();
    let mut sum = 0;
    for value in 1..=rounds {
        sum += thread::spawn(move || black_box(value)).join().expect("it does not panic");
    }
    assert_eq!(sum, rounds * (rounds + 1) / 2, "each output once");
    sample(began, rounds)
}

/// Each thread waits for its turn, gives the next the turn, and unparks it.
fn ring(rounds: u64) -> Sample {
    let turn = Arc::new(AtomicU64::new(u64::MAX));
    let last = RING as u64 * rounds;
    let start = Arc::new(Barrier::new(RING + 1));
    // The next of the last is the first: each thread gets the name of the next one before it
    // starts.
    let names: Arc<[std::sync::OnceLock<Thread>]> =
        (0..RING).map(|_| std::sync::OnceLock::new()).collect();
    let threads: Vec<_> = (0..RING)
        .map(|number| {
            let (turn, start, names) = (turn.clone(), start.clone(), names.clone());
            thread::spawn(move || {
                assert!(names[number].set(thread::current()).is_ok(), "one thread each");
                start.wait();
                let next = names[(number + 1) % RING].get().expect("all have started");
                for mine in (number as u64..last).step_by(RING) {
                    while turn.load(Ordering::Acquire) != mine {
                        thread::park();
                    }
                    turn.store(mine + 1, Ordering::Release);
                    next.unpark();
                }
            })
        })
        .collect();
    start.wait();
    let began = Instant::now();
    turn.store(0, Ordering::Release);
    threads[0].thread().unpark();
    for thread in threads {
        thread.join().expect("it does not panic");
    }
    assert_eq!(turn.load(Ordering::Acquire), last, "every turn was taken");
    sample(began, last)
}

/// Resident memory of the process for each thread that waits; the kernel's own is not in it.
fn bytes() -> Sample {
    const THREADS: usize = 1_000;
    let stop = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let before = resident_bytes();
    let start = Arc::new(Barrier::new(THREADS + 1));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let (stop, start) = (stop.clone(), start.clone());
            thread::spawn(move || {
                start.wait();
                while !stop.load(Ordering::Acquire) {
                    thread::park();
                }
            })
        })
        .collect();
    start.wait();
    let bytes = resident_bytes() - before;
    stop.store(true, Ordering::Release);
    for thread in threads {
        thread.thread().unpark();
        thread.join().expect("it does not panic");
    }
    Sample { bytes, ..sample(began, THREADS as u64) }
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line =
        status.lines().find(|line| line.starts_with("VmRSS:")).expect("it has the line VmRSS");
    let kibibytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    kibibytes.expect("a number of kB") * 1024
}
