//! TCP over loopback: many connections, much data.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cops::io::{Read, Result, Write};
use cops::net::{SocketAddr, TcpListener, TcpStream};
use cops::task::{self, Priority};
use cops::time::{Duration, sleep, timeout};
use futures_util::future::join_all;

use crate::harness::Outcome;
use crate::network::listen;
use crate::{check, check_equal, tests};

tests! { network_load:
    connections_256,
    connections_256_on_four_cpus,
    idle_connections_1000,
    a_megabyte_to_a_slow_reader,
    connect_and_disconnect,
    full_backlog,
    idle_cost,
}

const LIMIT: Duration = crate::harness::PATIENCE;

/// The byte at this place of this connection's data.
fn pattern(connection: usize, place: usize) -> u8 {
    (connection * 31 + place * 7 + place / 256) as u8
}

fn message(connection: usize, place: usize, length: usize) -> Vec<u8> {
    (place..place + length).map(|place| pattern(connection, place)).collect()
}

async fn serve(mut stream: TcpStream) {
    let mut bytes = vec![0; 2000];
    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
        if stream.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

/// Echoes everything on all connections to `listener`, forever.
fn serve_all(listener: TcpListener) {
    task::spawn(
        async move {
            while let Ok(stream) = listener.accept().await {
                task::spawn(serve(stream), Priority::DEFAULT);
            }
        },
        Priority::DEFAULT,
    );
}

/// Sends messages of many lengths. Returns how many bytes came back correctly before the first
/// wrong one.
async fn client(connection: usize, address: SocketAddr, messages: usize) -> Result<usize> {
    let mut stream = TcpStream::connect(address).await?;
    let mut place = 0;
    for round in 0..messages {
        let length = 1 + (connection * 131 + round * 977) % 3000;
        let sent = message(connection, place, length);
        stream.write_all(&sent).await?;
        let mut received = vec![0; length];
        stream.read_exact(&mut received).await?;
        if received != sent {
            return Ok(place);
        }
        place += length;
    }
    Ok(place)
}

async fn many(connections: usize, messages: usize) -> Outcome {
    let (listener, address) = listen()?;
    serve_all(listener);
    let clients: Vec<_> = (0..connections)
        .map(|connection| {
            task::spawn_join(client(connection, address, messages), Priority::DEFAULT)
        })
        .collect();
    let results = timeout(LIMIT, join_all(clients)).await?;
    for (connection, result) in results.into_iter().enumerate() {
        let expected: usize =
            (0..messages).map(|round| 1 + (connection * 131 + round * 977) % 3000).sum();
        check_equal!(result??, expected, "right bytes of connection {connection}");
    }
    Ok(())
}

async fn connections_256() -> Outcome {
    many(256, 5).await
}

async fn connections_256_on_four_cpus() -> Outcome {
    task::alloc_cpu(3)?;
    many(256, 5).await
}

/// A thousand idle connections, and one that is used.
async fn idle_connections_1000() -> Outcome {
    let (listener, address) = listen()?;
    serve_all(listener);
    let mut idle = Vec::new();
    for _ in 0..1000 {
        idle.push(timeout(LIMIT, TcpStream::connect(address)).await??);
    }
    check!(timeout(LIMIT, client(7, address, 20)).await?? > 0, "the one that talks got nothing");
    // All of them still work.
    for (connection, stream) in idle.iter_mut().enumerate().step_by(97) {
        let sent = message(connection, 0, 50);
        stream.write_all(&sent).await?;
        let mut received = [0; 50];
        timeout(LIMIT, stream.read_exact(&mut received)).await??;
        check_equal!(&received[..], &sent[..], "connection {connection}");
    }
    Ok(())
}

/// A writer cannot get far ahead of a reader, and nothing is lost.
async fn a_megabyte_to_a_slow_reader() -> Outcome {
    const BYTES: usize = 1 << 20;
    let (listener, address) = listen()?;
    let written = Arc::new(AtomicUsize::new(0));
    let counted = written.clone();
    let writer = task::spawn_join(
        async move {
            let mut stream = TcpStream::connect(address).await?;
            let all = message(3, 0, BYTES);
            for part in all.chunks(10_000) {
                stream.write_all(part).await?;
                counted.fetch_add(part.len(), Relaxed);
            }
            Result::Ok(())
        },
        Priority::DEFAULT,
    );
    let mut stream = listener.accept().await?;
    sleep(Duration::from_millis(100)).await;
    let ahead = written.load(Relaxed);
    check!(ahead < BYTES / 4, "{ahead} bytes were written before any was read");
    let (mut place, mut bytes) = (0, vec![0; 5000]);
    loop {
        let count = timeout(LIMIT, stream.read(&mut bytes)).await??;
        if count == 0 {
            break;
        }
        for &byte in &bytes[..count] {
            check_equal!(byte, pattern(3, place), "byte {place}");
            place += 1;
        }
    }
    check_equal!(place, BYTES, "bytes");
    writer.await??;
    Ok(())
}

async fn connect_and_disconnect() -> Outcome {
    let (listener, address) = listen()?;
    serve_all(listener);
    for round in 0..500usize {
        let mut stream = timeout(LIMIT, TcpStream::connect(address)).await??;
        if round % 3 == 0 {
            stream.write_all(&[1; 100]).await?;
        }
        if round % 6 == 0 {
            timeout(LIMIT, stream.read_exact(&mut [0; 50])).await??;
        }
    }
    check!(timeout(LIMIT, client(1, address, 3)).await?? > 0, "the last client got nothing");
    Ok(())
}

/// More clients connect than the backlog has room for: all of them are accepted eventually.
async fn full_backlog() -> Outcome {
    const CLIENTS: usize = 12;
    let listener = TcpListener::bind_with_backlog((cops::net::Ipv4Addr::LOCALHOST, 0), 4)?;
    let address = listener.local_address()?;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|connection| task::spawn_join(client(connection, address, 1), Priority::DEFAULT))
        .collect();
    sleep(Duration::from_millis(50)).await;
    serve_all(listener);
    for (connection, result) in timeout(LIMIT, join_all(clients)).await?.into_iter().enumerate() {
        check!(result?? > 0, "connection {connection} got nothing");
    }
    Ok(())
}

/// The kernel memory of a thousand connections that wait for bytes.
async fn idle_cost() -> Outcome {
    const CONNECTIONS: u64 = 1000;
    let (listener, address) = listen()?;
    let before = cops::memory::statistics()?;
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = timeout(LIMIT, TcpStream::connect(address)).await??;
        let server = timeout(LIMIT, listener.accept()).await??;
        task::spawn(serve(server), Priority::DEFAULT);
        clients.push(client);
    }
    task::yield_now().await;
    let after = cops::memory::statistics()?;
    // A few more reads may belong to the process that waits for this one.
    let reads = after.calls_in_flight - before.calls_in_flight;
    check!((CONNECTIONS..CONNECTIONS + 5).contains(&reads), "{reads} reads in flight");
    let heap = (after.heap_used_bytes - before.heap_used_bytes) / (2 * CONNECTIONS);
    cops::println!("# {heap} bytes of kernel heap for each end of an idle connection");
    Ok(())
}
