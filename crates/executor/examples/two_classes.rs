//! A TCP service with two classes of connections on one runtime: interactive ones that want little
//! and want it soon, and batch ones that want the processor. It serves itself over loopback, first
//! without and then with more batch work than the machine can do, and prints how long interactive
//! requests took.
//!
//! `cargo run --release -p cops-executor --features reactor --example two_classes [WORKERS]`
//!
//! All that makes the difference is the priority of a connection's coroutine, and that batch work
//! yields between slices. `crates/executor/peers` has the same service beside tokio's, with a
//! client in a process of its own.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use async_io::Async;
use cops_executor::{Handle, Priority, Runtime, current, set_priority, yield_now};
use futures_util::io::{AsyncReadExt, AsyncWriteExt};

const INTERACTIVE: u8 = 0;
const BATCH: u8 = 1;

/// What an interactive request takes, and a slice of a batch request between two yields.
const SMALL_WORK: Duration = Duration::from_micros(10);
const SLICE: Duration = Duration::from_micros(1_500);
const BATCH_SLICES: u32 = 4;

const INTERACTIVE_CONNECTIONS: usize = 4;
const BATCH_CONNECTIONS: usize = 32;
const INTERACTIVE_PERIOD: Duration = Duration::from_millis(4);
const MEASURED: Duration = Duration::from_secs(3);

/// One connection. The first byte tells its class, then each byte is a request, answered by its
/// successor.
async fn serve(mut stream: Async<TcpStream>) -> io::Result<()> {
    let mut byte = [0];
    stream.read_exact(&mut byte).await?;
    let is_batch = byte[0] == BATCH;
    if let Some(connection) = current() {
        set_priority(connection, Priority::saturating(if is_batch { 48 } else { 8 }));
        // It counts from the next poll on.
        yield_now().await;
    }
    loop {
        stream.read_exact(&mut byte).await?;
        if is_batch {
            for _ in 0..BATCH_SLICES {
                compute(SLICE);
                // Whatever has become ready and is more urgent runs now.
                yield_now().await;
            }
        } else {
            compute(SMALL_WORK);
        }
        byte[0] = byte[0].wrapping_add(1);
        stream.write_all(&byte).await?;
    }
}

fn compute(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

async fn accept(listener: Async<TcpListener>) -> io::Result<()> {
    let runtime = Handle::current().expect("this runs on a worker");
    loop {
        let (stream, _) = listener.accept().await?;
        stream.get_ref().set_nodelay(true)?;
        // Until it has said what it is, it is urgent. A connection that fails affects no other one.
        runtime.spawn_at(serve(stream), Priority::MOST_URGENT);
    }
}

/// A client's connection, with blocking calls: the client is no coroutine.
fn connect(server: SocketAddr, class: u8) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    stream.write_all(&[class])?;
    Ok(stream)
}

fn ask(stream: &mut TcpStream, request: u8) -> io::Result<()> {
    stream.write_all(&[request])?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    assert_eq!(answer[0], request.wrapping_add(1), "a wrong answer");
    Ok(())
}

/// Sends at fixed times, whatever became of the request before; latencies count from those times,
/// so a request that could not be sent in time because the one before took long is late too.
fn interactive(server: SocketAddr) -> io::Result<Vec<Duration>> {
    let mut stream = connect(server, INTERACTIVE)?;
    let start = Instant::now();
    let mut latencies = Vec::new();
    for n in 1.. {
        let due = start + INTERACTIVE_PERIOD * n;
        if due > start + MEASURED {
            break;
        }
        thread::sleep(due.saturating_duration_since(Instant::now()));
        ask(&mut stream, n as u8)?;
        latencies.push(due.elapsed());
    }
    Ok(latencies)
}

/// Keeps asking: with 32 of them there is always more to do than can be done.
fn batch(server: SocketAddr, stop: &AtomicBool, answers: &AtomicU64) -> io::Result<()> {
    let mut stream = connect(server, BATCH)?;
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        ask(&mut stream, n as u8)?;
        answers.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

fn measure(server: SocketAddr, with_batch: bool) -> io::Result<()> {
    let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let batches: Vec<_> = (0..if with_batch { BATCH_CONNECTIONS } else { 0 })
        .map(|_| {
            let (stop, answers) = (stop.clone(), answers.clone());
            thread::spawn(move || batch(server, &stop, &answers))
        })
        .collect();
    let clients: Vec<_> =
        (0..INTERACTIVE_CONNECTIONS).map(|_| thread::spawn(move || interactive(server))).collect();
    let mut latencies = Vec::new();
    for client in clients {
        latencies.extend(client.join().expect("no client panics")?);
    }
    let batch_per_second = answers.load(Ordering::Relaxed) as f64 / MEASURED.as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    for batch in batches {
        batch.join().expect("no client panics")?;
    }
    latencies.sort();
    let percentile =
        |share: f64| latencies[(latencies.len() as f64 * share) as usize].as_secs_f64() * 1e3;
    println!(
        "{:<20} {:>9} {:>9.3} {:>9.3} {:>9.3} {:>9.0}",
        if with_batch { "with batch overload" } else { "interactive alone" },
        latencies.len(),
        percentile(0.5),
        percentile(0.99),
        latencies.last().map_or(0.0, Duration::as_secs_f64) * 1e3,
        batch_per_second,
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let workers = std::env::args().nth(1).map_or(Ok(1), |workers| workers.parse())?;
    let runtime = Runtime::builder().workers(workers).name("service").build()?;
    let listener = Async::<TcpListener>::bind((Ipv4Addr::LOCALHOST, 0))?;
    let server = listener.get_ref().local_addr()?;
    let _accepting = runtime.spawn_at(accept(listener), Priority::MOST_URGENT);

    println!(
        "workers: {workers}; latencies in milliseconds, from the time at which a request was to be sent"
    );
    println!(
        "{:<20} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "", "requests", "p50", "p99", "max", "batch/s"
    );
    measure(server, false)?;
    measure(server, true)?;
    Ok(())
}
