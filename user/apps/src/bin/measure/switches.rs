//! Instructions of each kind of switch: from one coroutine, thread or process to another. A row is
//! the mean of many, since a switch begins in one place and ends in another.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use core::task::Poll;

use cops::abi::Errno;
use cops::abi::syscall::signal::SIGKILL;
use cops::io::{self, AsFd, Fd, pipe};
use cops::memory::statistics;
use cops::process::{Command, spawn};
use cops::task::{self, Priority, yield_now};
use cops::thread::sync::OnceLock;
use cops::thread::{self, Builder};

use crate::counter::instructions;
use crate::summary::Summary;

/// Switches of a row between coroutines; of one between threads or processes, a tenth.
const SWITCHES: u64 = 20_000;
const FEW: u64 = SWITCHES / 10;

/// Prints a row: this many operations took as many instructions as have passed since `before`.
fn print(operation: &str, before: u64, count: u64) {
    let each = (instructions() - before).div_ceil(count);
    Summary::of(Vec::from([each])).print_cost(operation);
}

/// Runs all measurements on one virtual CPU.
pub async fn run() -> io::Result<()> {
    coroutines("coroutine-switch").await;
    task::set_strict_yielding(true);
    coroutines("coroutine-switch-strict").await;
    task::set_strict_yielding(false);
    woken().await;
    lives().await;
    threads()?;
    processes().await
}

/// Two coroutines of the same priority that yield to each other.
pub async fn coroutines(operation: &str) {
    let other = task::spawn_join(
        async {
            for _ in 0..SWITCHES / 2 {
                yield_now().await;
            }
        },
        Priority::DEFAULT,
    );
    yield_now().await;
    let before = instructions();
    for _ in 0..SWITCHES / 2 - 10 {
        yield_now().await;
    }
    print(operation, before, SWITCHES - 20);
    let _ = other.await;
}

/// Waits until the counter is even, or odd, and adds 1 until it is `end`.
async fn take_turns(counter: Arc<AtomicU64>, parity: u64, end: u64, other: task::CoroutineId) {
    loop {
        let turn = poll_fn(|_| match counter.load(SeqCst) {
            turn if turn % 2 == parity || turn >= end => Poll::Ready(turn),
            _ => Poll::Pending,
        });
        let turn = turn.await;
        if turn < end {
            counter.store(turn + 1, SeqCst);
        }
        task::wake_up(other);
        if turn + 1 >= end {
            return;
        }
    }
}

/// Two coroutines that block until the other one wakes them.
async fn woken() {
    let Some(ours) = task::current() else { return };
    let counter = Arc::new(AtomicU64::new(0));
    let other = task::spawn_join(take_turns(counter.clone(), 1, SWITCHES, ours), Priority::DEFAULT);
    yield_now().await;
    let before = instructions();
    take_turns(counter, 0, SWITCHES, other.id()).await;
    print("coroutine-wake-switch", before, SWITCHES);
    let _ = other.await;
}

/// The whole life of a coroutine with a handle, and of a thread.
async fn lives() {
    let before = instructions();
    for _ in 0..FEW {
        let _ = task::spawn_join(async {}, Priority::DEFAULT).await;
    }
    print("coroutine-spawn-join", before, FEW);
}

/// Threads that sleep until the other one wakes them, and that yield.
fn threads() -> io::Result<()> {
    let end = FEW;
    let before = instructions();
    for _ in 0..100 {
        let Ok(()) = Builder::new().spawn(|| ())?.join();
    }
    print("thread-spawn-join", before, 100);

    let counter = Arc::new(AtomicU64::new(0));
    let act = move |counter: Arc<AtomicU64>, parity: u64, other: thread::Thread| {
        loop {
            let turn = counter.load(SeqCst);
            if turn >= end {
                return other.unpark();
            }
            if turn % 2 == parity {
                counter.store(turn + 1, SeqCst);
                other.unpark();
            } else {
                thread::park();
            }
        }
    };
    // Both are threads: the main task is a virtual CPU of the executor. Each learns of the other
    // one when both have started.
    let parties: Arc<OnceLock<[thread::Thread; 2]>> = Arc::new(OnceLock::new());
    let start = |index: usize| {
        let (parties, counter) = (parties.clone(), counter.clone());
        Builder::new().spawn(move || {
            while parties.get().is_none() {
                thread::yield_now();
            }
            if let Some(parties) = parties.get() {
                act(counter, index as u64, parties[1 - index].clone());
            }
        })
    };
    let (one, two) = (start(0)?, start(1)?);
    let before = instructions();
    parties.get_or_init(|| [one.thread().clone(), two.thread().clone()]);
    for handle in [one, two] {
        let Ok(()) = handle.join();
    }
    print("thread-wake-switch", before, end);

    let (is_over, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (over, counted) = (is_over.clone(), turns.clone());
    let handle = Builder::new().spawn(move || {
        while !over.load(SeqCst) {
            counted.fetch_add(1, SeqCst);
            thread::yield_now();
        }
    })?;
    thread::yield_now();
    let (before, first) = (instructions(), turns.load(SeqCst));
    for _ in 0..FEW / 2 {
        thread::yield_now();
    }
    let others = turns.load(SeqCst) - first;
    print("thread-yield-switch", before, FEW / 2 + others);
    is_over.store(true, SeqCst);
    let Ok(()) = handle.join();
    // Each yield has let the other thread run.
    if others < FEW / 2 - 10 { Err(Errno::EIO.into()) } else { Ok(()) }
}

/// Another process that yields, and one that answers on a pipe.
async fn processes() -> io::Result<()> {
    let mut yielding = spawn("/bin/measure", &["yield"])?;
    // Until it has started and yields too.
    for _ in 0..100 {
        thread::yield_now();
    }
    let switches = statistics()?.cpu_switches;
    let before = instructions();
    for _ in 0..FEW / 2 {
        thread::yield_now();
    }
    let switched = statistics()?.cpu_switches - switches;
    print("process-yield-switch", before, switched.max(1));
    yielding.kill()?;
    let ended = yielding.wait().await?;
    // A process that has had less than the other one continues when it yields, so not every yield
    // is a switch.
    if ended.signal() != Some(SIGKILL) || switched < FEW / 4 {
        cops::eprintln!("switches: {switched} switches of processes, {ended:?}");
        return Err(Errno::EIO.into());
    }

    let (there, to_there) = pipe()?;
    let (from_there, back) = pipe()?;
    let errors = cops::io::stderr();
    let files = [there.as_fd(), back.as_fd(), errors.as_fd()];
    let mut echoing = Command::new("/bin/measure")?.arguments(&["echo"])?.files(files).spawn()?;
    drop((there, back));
    let exchange = |byte: u8| -> io::Result<()> {
        let mut answer = [0];
        cops::write!(to_there, &[byte])?;
        let count = cops::read!(from_there, &mut answer)?;
        if count == 1 && answer[0] == byte { Ok(()) } else { Err(Errno::EIO.into()) }
    };
    for _ in 0..10 {
        exchange(1)?;
    }
    let before = instructions();
    for number in 0..FEW / 2 {
        exchange(number as u8)?;
    }
    print("process-pipe-switch", before, FEW);
    drop(to_there);
    if echoing.wait().await?.code() == Some(0) { Ok(()) } else { Err(Errno::EIO.into()) }
}

/// The process that yields until it is killed.
pub fn yield_for_ever() -> ! {
    loop {
        thread::yield_now();
    }
}

/// The process that answers each byte of its input.
pub fn echo() -> io::Result<()> {
    // Its standard streams, of which it is the only user.
    let (input, output) = (Fd::from_raw(0), Fd::from_raw(1));
    let mut byte = [0];
    while cops::read!(input, &mut byte)? == 1 {
        cops::write!(output, &byte)?;
    }
    Ok(())
}
