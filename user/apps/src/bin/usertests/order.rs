//! A single order of priorities across processes: two processes with the same eight priorities, all
//! coroutines ready at once. SPEC 3.4.
//!
//! Each coroutine records when it began, by the clock that all harts share. With one hart and
//! strict yielding, no coroutine begins while a more urgent one of either process has not. With
//! several harts, others run at the same time, and the host may stop a hart at any moment for
//! longer than a coroutine computes. There the order is only measured and printed, and all
//! coroutines must run. `./cops bench wakeups` reads the lines `order: ..`.

use alloc::format;
use alloc::vec::Vec;

use core::sync::atomic::Ordering::Relaxed;

use cops::io::{Read, Write};
use cops::net::{Ipv4Addr, TcpListener, TcpStream};
use cops::process::ExitCode;
use cops::task::{self, Priority, yield_now};
use cops::time::{Duration, sleep};
use futures_util::future::join_all;

use crate::harness::{Failure, Outcome, harts, soon, start};
use crate::raw::{clock_ticks, system_page};
use crate::{check, check_equal, tests};

tests! { order:
    strict,
    relaxed,
}

/// First argument of this program for one of the two processes.
pub const HELPER: &str = "--order";

/// Number of priorities in each process.
const CLASSES: u32 = 8;
/// The first of them.
const FIRST: u32 = 24;
/// Number of coroutines of each priority in each process.
const OF_EACH: usize = 3;
/// How long each of them computes, where time is counted.
const WORK: Duration = Duration::from_micros(300);
/// How long each computes on several harts: mostly longer than the host keeps a hart from running.
const WORK_ON_SEVERAL: Duration = Duration::from_millis(6);
/// From the moment both processes are prepared until everything becomes ready.
const NOTICE: Duration = Duration::from_millis(100);

const RECORD_BYTES: usize = 16;
const RECORDS: usize = CLASSES as usize * OF_EACH;

/// The time at which a coroutine began.
#[derive(Clone, Copy)]
struct Began {
    class: u64,
    ticks: u64,
}

async fn strict() -> Outcome {
    let (pairs, out_of_order) = measure("strict").await?;
    if harts() == 1 {
        check_equal!(out_of_order, 0, "pairs of {pairs} out of order on one hart");
    }
    Ok(())
}

/// For comparison; it only requires that all of them run.
async fn relaxed() -> Outcome {
    measure("relaxed").await.map(drop)
}

fn ticks_in(duration: Duration) -> u64 {
    let per_second = system_page().ticks_per_second.load(Relaxed);
    (duration.as_nanos() * u128::from(per_second) / 1_000_000_000) as u64
}

/// Runs two helpers against each other. Returns the number of pairs of coroutines of different
/// priority, and of those in which the less urgent one began first.
async fn measure(yielding: &str) -> Result<(usize, usize), Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_address()?.port();
    let mut children = [
        start(&[HELPER, yielding, &format!("{port}")])?,
        start(&[HELPER, yielding, &format!("{port}")])?,
    ];
    let mut streams = Vec::new();
    for _ in 0..children.len() {
        let mut stream = soon("a helper's connection", listener.accept()).await??;
        // The helper is prepared.
        soon("a helper", stream.read_exact(&mut [0])).await??;
        streams.push(stream);
    }
    let until = clock_ticks() + ticks_in(NOTICE);
    for stream in &mut streams {
        stream.write_all(&until.to_le_bytes()).await?;
    }
    let mut all: Vec<Began> = Vec::new();
    for stream in &mut streams {
        for _ in 0..RECORDS {
            let mut record = [0; RECORD_BYTES];
            soon("a record", stream.read_exact(&mut record)).await??;
            let [class, ticks] = [&record[..8], &record[8..]].map(|bytes| {
                bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
            });
            all.push(Began { class, ticks });
        }
    }
    for child in &mut children {
        check!(soon("a helper's end", child.wait()).await??.success(), "a helper failed");
    }
    let overtakers = |one: &Began| {
        all.iter().filter(|other| other.class > one.class && other.ticks < one.ticks).count()
    };
    let counts: Vec<usize> = all.iter().map(overtakers).collect();
    let pairs =
        all.iter().map(|one| all.iter().filter(|other| other.class > one.class).count()).sum();
    let out_of_order = counts.iter().sum();
    cops::println!(
        "order: yielding={yielding} harts={} coroutines={} pairs={pairs} out_of_order={out_of_order} overtaken={}",
        harts(),
        all.len(),
        counts.iter().max().unwrap_or(&0)
    );
    Ok((pairs, out_of_order))
}

/// One of the two processes.
pub async fn help(yielding: &str, port: &str) -> ExitCode {
    match take_part(yielding, port).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            cops::println!("# a process of the order: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn take_part(yielding: &str, port: &str) -> Result<(), Failure> {
    let port: u16 = port.parse()?;
    task::set_strict_yielding(yielding == "strict");
    let harts = harts();
    if harts > 1 {
        task::alloc_cpu(harts - 1)?;
    }
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    // More urgent than all coroutines that become ready, so that none of them runs before all of
    // them are ready.
    let gate = async move {
        stream.write_all(&[1]).await?;
        let mut until = [0; 8];
        stream.read_exact(&mut until).await?;
        let left = u64::from_le_bytes(until).saturating_sub(clock_ticks());
        sleep(Duration::from_nanos(left * 1_000_000_000 / ticks_in(Duration::from_secs(1)))).await;
        // In an order that is not that of their priorities.
        let handles: Vec<_> = (0..RECORDS)
            .map(|index| (index * 5 % RECORDS) as u32 % CLASSES)
            .map(|class| task::spawn_join(work(class), Priority::saturating(FIRST + class)))
            .collect();
        for began in join_all(handles).await {
            let began = began?;
            stream.write_all(&began.class.to_le_bytes()).await?;
            stream.write_all(&began.ticks.to_le_bytes()).await?;
        }
        Ok::<_, Failure>(())
    };
    task::spawn_join(gate, Priority::MOST_URGENT).await?
}

async fn work(class: u32) -> Began {
    let ticks = clock_ticks();
    let work = if harts() == 1 { WORK } else { WORK_ON_SEVERAL };
    while clock_ticks() < ticks + ticks_in(work) {
        core::hint::spin_loop();
    }
    // A second poll, to make each of them an ordinary coroutine.
    yield_now().await;
    Began { class: class.into(), ticks }
}
