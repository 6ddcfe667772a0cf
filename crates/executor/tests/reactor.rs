//! Feature `reactor`: sockets and timers of `async-io` in coroutines with priorities.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_io::{Async, Timer};
use cops_executor::*;
use futures_util::future::{Either, select};
use futures_util::io::{AsyncReadExt, AsyncWriteExt};

fn level(level: u8) -> Priority {
    Priority::new(level).unwrap()
}

/// Fails if `future` takes longer than any machine needs for it.
async fn watched<T>(future: impl Future<Output = T>) -> T {
    match select(std::pin::pin!(future), Timer::after(Duration::from_secs(60))).await {
        Either::Left((output, _)) => output,
        Either::Right(_) => panic!("it hangs"),
    }
}

/// Computes for a while without yielding.
fn busy(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

const MESSAGES: u32 = 50;

/// Takes the urgency of its connection from the first byte, then sends back each message turned
/// round.
async fn serve(mut stream: Async<TcpStream>, served: Arc<AtomicUsize>) -> io::Result<()> {
    let mut class = [0];
    stream.read_exact(&mut class).await?;
    set_priority(current().unwrap(), level(class[0]));
    let mut message = [0; 8];
    while stream.read_exact(&mut message).await.is_ok() {
        assert_eq!(priority(current().unwrap()), Some(level(class[0])));
        message.reverse();
        // Before the answer: a client that has the answer finds it counted.
        served.fetch_add(1, Ordering::SeqCst);
        stream.write_all(&message).await?;
    }
    Ok(())
}

async fn ask(port: u16, client: u32) -> io::Result<()> {
    let mut stream = Async::<TcpStream>::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(&[(client % 64) as u8]).await?;
    for n in 0..MESSAGES {
        let message = (u64::from(client) << 32 | u64::from(n)).to_le_bytes();
        stream.write_all(&message).await?;
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).await?;
        answer.reverse();
        assert_eq!(answer, message);
        // Now and then all is quiet, so that workers park.
        if n % 10 == client % 10 {
            Timer::after(Duration::from_micros(200)).await;
        }
    }
    Ok(())
}

fn echo(server_workers: u32, client_workers: u32) {
    let (server, clients) =
        (Runtime::new(server_workers).unwrap(), Runtime::new(client_workers).unwrap());
    let listener = Async::<TcpListener>::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.get_ref().local_addr().unwrap().port();
    let served = Arc::new(AtomicUsize::new(0));
    let counted = served.clone();
    let accepting = server.spawn_at(
        async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let connection = serve(stream, counted.clone());
                drop(Handle::current().unwrap().spawn_at(connection, Priority::MOST_URGENT));
            }
        },
        Priority::MOST_URGENT,
    );
    let asking: Vec<_> = (0..100_u32)
        .map(|client| clients.spawn_at(ask(port, client), level((client % 64) as u8)))
        .collect();
    let all = async {
        for client in asking {
            client.await.unwrap().unwrap();
        }
    };
    clients.block_on(watched(all));
    assert_eq!(served.load(Ordering::SeqCst), 100 * MESSAGES as usize);
    drop(server);
    assert!(accepting.is_finished());
}

#[test]
fn a_hundred_connections_on_one_worker() {
    echo(1, 1);
}

#[test]
fn a_hundred_connections_on_several_workers() {
    echo(3, 2);
}

#[test]
fn timers_fire_in_the_order_of_their_times() {
    for workers in [1, 2] {
        let runtime = Runtime::new(workers).unwrap();
        let log: Arc<Mutex<Vec<u32>>> = Arc::default();
        let start = Instant::now() + Duration::from_millis(20);
        let handles: Vec<_> = (0..40_u32)
            .map(|n| {
                let (log, turn) = (log.clone(), n * 17 % 40);
                let at = start + Duration::from_millis(2) * turn;
                runtime.spawn_at(
                    async move {
                        Timer::at(at).await;
                        assert!(Instant::now() >= at, "not before its time");
                        log.lock().unwrap().push(turn);
                    },
                    Priority::DEFAULT,
                )
            })
            .collect();
        for handle in handles {
            runtime.block_on(watched(handle)).unwrap();
        }
        let log = std::mem::take(&mut *log.lock().unwrap());
        // Two workers may run two that are due together at the same time.
        let orderly = log.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!(orderly == 39 || workers == 2 && orderly > 30, "{log:?}");
    }
}

/// Sleeps ten times 2 ms, urgently, while `load` keeps all workers busy; returns the longest delay.
fn longest_delay(workers: u32, load: Duration) -> Duration {
    let runtime = Runtime::new(workers).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let loads: Vec<_> = (0..4 * workers)
        .map(|_| {
            let stop = stop.clone();
            runtime.spawn_at(
                async move {
                    while !stop.load(Ordering::Relaxed) {
                        busy(load);
                        yield_now().await;
                    }
                },
                Priority::LEAST_URGENT,
            )
        })
        .collect();
    let sleeper = runtime.spawn_at(
        async {
            let mut longest = Duration::ZERO;
            for _ in 0..10 {
                let due = Instant::now() + Duration::from_millis(2);
                Timer::at(due).await;
                longest = longest.max(due.elapsed());
            }
            longest
        },
        Priority::MOST_URGENT,
    );
    let longest = runtime.block_on(watched(sleeper)).unwrap();
    stop.store(true, Ordering::Relaxed);
    for load in loads {
        runtime.block_on(load).unwrap();
    }
    longest
}

#[test]
fn busy_workers_look_at_the_reactor() {
    for workers in [1, 2] {
        for load in [Duration::ZERO, Duration::from_micros(20), Duration::from_millis(2)] {
            let longest = longest_delay(workers, load);
            // What it takes is some milliseconds; without looks it would be for ever, or the
            // reactor's own thread would have to come, on a machine with other things to do.
            assert!(
                longest < Duration::from_millis(500),
                "{workers} workers, {load:?}: {longest:?}"
            );
        }
    }
}

#[test]
fn an_idle_worker_watches_while_another_computes() {
    let runtime = Runtime::new(2).unwrap();
    let longest = runtime.spawn_at(
        async {
            let mut longest = Duration::ZERO;
            for _ in 0..20 {
                let due = Instant::now() + Duration::from_millis(3);
                // Spawned here, it is stolen by the other worker; or this one has gone on by then.
                let long = async { busy(Duration::from_millis(20)) };
                let long = Handle::current().unwrap().spawn_at(long, Priority::LEAST_URGENT);
                Timer::at(due).await;
                longest = longest.max(due.elapsed());
                long.await.unwrap();
            }
            longest
        },
        Priority::MOST_URGENT,
    );
    let longest = runtime.block_on(watched(longest)).unwrap();
    assert!(longest < Duration::from_millis(500), "{longest:?}");
}

#[test]
fn lent_threads_sleep_in_the_reactor_too() {
    static EXECUTOR: Executor = Executor::with_number(3);
    EXECUTOR.start_on_host(1).unwrap();
    let start = Instant::now();
    EXECUTOR.block_on(watched(Timer::after(Duration::from_millis(5))));
    assert!(start.elapsed() >= Duration::from_millis(5));
    let sleeper = EXECUTOR
        .spawn_join(async { Timer::after(Duration::from_millis(5)).await }, Priority::DEFAULT)
        .unwrap();
    assert_eq!(EXECUTOR.run_until_done(), RunOutcome::Stalled);
    assert!(sleeper.is_finished());
}

#[test]
fn sockets_and_timers_end_with_their_runtime() {
    let listener = Async::<TcpListener>::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.get_ref().local_addr().unwrap();
    let runtime = Runtime::new(2).unwrap();
    let accepting =
        runtime.spawn_at(async move { listener.accept().await.map(|_| ()) }, Priority::DEFAULT);
    let sleeping = runtime
        .spawn_at(async { Timer::after(Duration::from_secs(1_000)).await }, Priority::DEFAULT);
    std::thread::sleep(Duration::from_millis(5));
    drop(runtime);
    assert!(accepting.is_finished() && sleeping.is_finished());
    assert!(TcpStream::connect(address).is_err(), "the listener is closed");
}
