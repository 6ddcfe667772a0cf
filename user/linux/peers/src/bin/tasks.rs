//! Two experiments of Wang's paper with tasks of tokio: `ring` and `pipe`, as `papers.c` has them
//! with threads (./cops bench ring, ./cops bench pipe).
//!
//! ```text
//! tasks EXPERIMENT MODE MODEL TASKS BYTES TURNS    prints a line
//! tasks check                                      small ones of each kind
//! ```
//!
//! Each checks its answer. One thread runs all tasks. In a machine that counts instructions as
//! time, a nanosecond is an instruction.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender, pipe};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::task::yield_now;

/// A run of an experiment.
#[derive(Clone, Copy)]
struct Run {
    /// Each task goes through many rounds, and only those count; otherwise the whole process does.
    is_steady: bool,
    tasks: usize,
    bytes: usize,
    rounds: usize,
}

/// When the tasks had been created, and when the last round ended.
struct Times {
    created: Instant,
    end: Instant,
}

/// Tasks that have begun.
static ARRIVED: AtomicUsize = AtomicUsize::new(0);

fn arrive() {
    ARRIVED.fetch_add(1, Ordering::Relaxed);
}

async fn all_created(run: Run) -> Instant {
    while run.is_steady && ARRIVED.load(Ordering::Relaxed) < run.tasks {
        yield_now().await;
    }
    Instant::now()
}

/// Task i waits until the counter is i, and adds 1; the main task is number 0.
struct Ring {
    counter: Mutex<usize>,
    turns: Vec<Semaphore>,
}

impl Ring {
    fn advance(&self, turn: usize) -> bool {
        let mut counter = self.counter.lock().expect("no task panics");
        let is_due = *counter == turn;
        *counter += usize::from(is_due);
        is_due
    }

    /// All turns of a task. Returns when its last one was.
    async fn take_turns(&self, number: usize, rounds: usize) -> Instant {
        let period = self.turns.len();
        for round in 0..rounds {
            let turn = round * period + number;
            while !self.advance(turn) {
                self.turns[number].acquire().await.expect("is open").forget();
            }
            if turn + 1 < rounds * period {
                self.turns[(number + 1) % period].add_permits(1);
            }
        }
        Instant::now()
    }
}

async fn ring(run: Run) -> Times {
    let turns = (0..=run.tasks).map(|_| Semaphore::new(0)).collect();
    let ring = Arc::new(Ring { counter: Mutex::new(0), turns });
    let tasks = (1..=run.tasks).map(|number| {
        let ring = ring.clone();
        tokio::spawn(async move {
            arrive();
            ring.take_turns(number, run.rounds).await
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let created = all_created(run).await;
    let mut end = ring.take_turns(0, run.rounds).await;
    for task in tasks {
        // The last one had the last turn.
        end = task.await.expect("no task panics");
    }
    assert_eq!(*ring.counter.lock().expect("no task panics"), (run.tasks + 1) * run.rounds);
    Times { created, end }
}

/// Task i reads a message from pipe i and writes it to pipe i + 1.
async fn chain(run: Run) -> Times {
    let sent: Vec<u8> = (0..run.bytes).map(|index| (index % 251) as u8).collect();
    let (first, mut reader) = pipe().expect("there are descriptors");
    let mut tasks = Vec::new();
    let mut pipes = Vec::new();
    for _ in 0..run.tasks {
        let (writer, next) = pipe().expect("there are descriptors");
        pipes.push((std::mem::replace(&mut reader, next), writer));
    }
    for (reader, writer) in pipes {
        tasks.push(tokio::spawn(pass_on(run, reader, writer)));
    }
    let created = all_created(run).await;
    let mut first = Some(first);
    let mut buffer = vec![0; run.bytes + 1];
    for round in 0..run.rounds {
        let mut message = sent.clone();
        message[0] = round as u8;
        if let Some(first) = &mut first {
            first.write_all(&message).await.expect("writes");
        }
        // Closed after the only message, because the tasks read to the end.
        first = first.filter(|_| run.is_steady);
        assert_eq!(receive(run, &mut reader, &mut buffer).await, run.bytes);
        assert_eq!(&buffer[..run.bytes], message);
    }
    let end = Instant::now();
    for task in tasks {
        task.await.expect("no task panics");
    }
    Times { created, end }
}

async fn pass_on(run: Run, mut reader: Receiver, mut writer: Sender) {
    let mut buffer = vec![0; run.bytes + 1];
    arrive();
    for _ in 0..run.rounds {
        let count = receive(run, &mut reader, &mut buffer).await;
        writer.write_all(&buffer[..count]).await.expect("writes");
    }
}

/// A whole message: to the end of the file, or of the length that all have.
async fn receive(run: Run, reader: &mut Receiver, buffer: &mut [u8]) -> usize {
    let mut count = 0;
    while !run.is_steady || count < run.bytes {
        let part = reader.read(&mut buffer[count..]).await.expect("reads");
        if part == 0 {
            break;
        }
        count += part;
    }
    count
}

async fn experiment(name: &str, run: Run) -> Times {
    ARRIVED.store(0, Ordering::Relaxed);
    match name {
        "ring" => ring(run).await,
        "pipe" => chain(run).await,
        _ => panic!("{name} is no experiment"),
    }
}

fn main() {
    let begin = Instant::now();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = Builder::new_current_thread().enable_all().build().expect("tokio starts");
    let [name, mode, model, numbers @ ..] = &words[..] else { return check(&runtime) };
    let numbers: Vec<usize> =
        numbers.iter().map(|word| word.parse().expect("is a number")).collect();
    let [tasks, bytes, turns] = numbers[..] else { panic!("three numbers") };
    let is_steady = *mode == "steady";
    let rounds = if is_steady { (turns / tasks).max(10) } else { 1 };
    let run = Run { is_steady, tasks, bytes, rounds };
    let times = runtime.block_on(experiment(name, run));
    let time = if is_steady { times.end - times.created } else { begin.elapsed() };
    let nanoseconds = |time: Duration| time.as_nanos();
    println!(
        "{name}: mode={mode} model={model} n={tasks} bytes={bytes} rounds={rounds} \
         instructions={time} nanoseconds={time} create_instructions={}",
        nanoseconds(times.created - begin),
        time = nanoseconds(time),
    );
}

fn check(runtime: &tokio::runtime::Runtime) {
    for (name, is_steady, tasks, bytes) in [
        ("ring", false, 30, 0),
        ("ring", true, 3, 0),
        ("pipe", false, 30, 300),
        ("pipe", true, 2, 5000),
    ] {
        let rounds = if is_steady { 30 } else { 1 };
        runtime.block_on(experiment(name, Run { is_steady, tasks, bytes, rounds }));
    }
    println!("tasks are in order");
}
