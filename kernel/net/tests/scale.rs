//! Many connections: the cost of a packet, the memory of a connection, and what is left afterwards.

mod common;

use common::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use cops_net::KeepAlive;

/// Counts the bytes that the current thread has allocated and not freed.
struct CountingAllocator;

thread_local!(static LIVE_BYTES: Cell<isize> = const { Cell::new(0) });

// SAFETY: every request is passed unchanged to the system's allocator, and its results meet the
// contract; the counter is a thread-local integer, and using it allocates nothing.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.set(LIVE_BYTES.get() + layout.size() as isize);
        // SAFETY: this function's caller guarantees exactly what `System.alloc` requires of
        // `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.set(LIVE_BYTES.get() - layout.size() as isize);
        // SAFETY: `pointer` came from `System.alloc` above with this layout, by this function's
        // contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn a_packet_costs_the_same_with_4096_connections() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 64).unwrap();
    let mut pairs = Vec::new();
    // Socket visits of 100 echoes, each on a connection without traffic before, for each number of
    // open connections.
    let mut visits = Vec::new();
    for count in [128, 4096] {
        while pairs.len() < count {
            pairs.push(world.pair(&listener));
        }
        // All of them are idle for long.
        world.run_for(60 * SECOND);
        let before =
            world.a.stack.statistics().socket_polls + world.b.stack.statistics().socket_polls;
        let mut buffer = [0; 64];
        for round in 0..100 {
            let (client, server) = &pairs[count - 1 - round];
            client.try_send(&[round as u8; 64]).unwrap();
            assert!(world.run_until(SECOND, |_| server.try_receive(&mut buffer) == Ok(64)));
            server.try_send(&buffer).unwrap();
            assert!(world.run_until(SECOND, |_| client.try_receive(&mut buffer) == Ok(64)));
            assert_eq!(buffer, [round as u8; 64]);
            // Let the delayed ACKs be sent; otherwise a single connection would carry them with its
            // next message, and many connections could not.
            world.run_for(SECOND / 10);
        }
        let after =
            world.a.stack.statistics().socket_polls + world.b.stack.statistics().socket_polls;
        visits.push(after - before);
    }
    println!(
        "socket visits of 100 echoes with 128 and with 4096 connections, both ends: {visits:?}"
    );
    // When exactly timers expire differs a little.
    assert!(visits[0].abs_diff(visits[1]) <= visits[0] / 100, "{visits:?}");
    assert!(visits[0] < 100 * 30, "{visits:?}");
}

#[test]
fn the_memory_of_a_connection_is_what_is_claimed() {
    const COUNT: usize = 4096;
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 64).unwrap();
    let mut pairs = Vec::with_capacity(COUNT);
    pairs.push(world.pair(&listener));
    let before = LIVE_BYTES.get();
    while pairs.len() < COUNT + 1 {
        pairs.push(world.pair(&listener));
    }
    let measured = || (LIVE_BYTES.get() - before) as usize / (2 * COUNT);
    world.run_for(3 * SECOND);
    let idle = (measured(), world.a.stack.memory_per_connection(false));
    // This needs a socket.
    for (client, server) in &pairs {
        client.set_keep_alive(Some(KeepAlive { idle_seconds: 60, ..KeepAlive::DEFAULT }));
        server.set_keep_alive(Some(KeepAlive { idle_seconds: 60, ..KeepAlive::DEFAULT }));
    }
    let awake = (measured(), world.a.stack.memory_per_connection(true));
    for (measured, claimed) in [idle, awake] {
        println!("bytes per connection: {measured} measured, {claimed} claimed");
        assert!(measured.abs_diff(claimed) < 200, "{measured} measured, {claimed} claimed");
    }
    assert!(idle.1 < 1500 && awake.1 < 8192 + 2000);
}

#[test]
fn a_thousand_connections_leave_nothing() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 64).unwrap();
    let one_connection = |world: &mut World, round: usize| {
        let (client, server) = world.pair(&listener);
        client.try_send(&[7; 100]).unwrap();
        assert!(world.run_until(SECOND, |_| server.try_receive(&mut [0; 100]) == Ok(100)));
        // The two sides alternate in closing first; every fifth connection is reset.
        match round % 5 {
            0 => client.abort(),
            1 | 2 => drop(client),
            _ => drop(server),
        }
        world.run_for(SECOND / 1000);
    };
    one_connection(&mut world, 1);
    world.run_for(60 * SECOND);
    let before = LIVE_BYTES.get();
    let mut most = 0;
    for round in 0..1000 {
        one_connection(&mut world, round);
        most = most.max(LIVE_BYTES.get() - before);
    }
    let statistics = (world.a.stack.statistics(), world.b.stack.statistics());
    println!(
        "at most {most} bytes beyond the start; {} + {} TIME-WAIT records",
        statistics.0.time_wait_now, statistics.1.time_wait_now
    );
    assert!(
        statistics.0.time_wait_now + statistics.1.time_wait_now > 500,
        "TIME-WAIT was exercised"
    );
    assert!(most < 400_000, "{most} bytes at the worst moment");
    world.run_for(60 * SECOND);
    for host in [&world.a, &world.b] {
        let statistics = host.stack.statistics();
        assert_eq!(statistics.connections_opened, 1001);
        assert_eq!((statistics.connections_now, statistics.time_wait_now), (0, 0));
        assert_eq!(host.stack.timers_armed(), 0);
    }
    // Only the tables keep some capacity.
    let left = LIVE_BYTES.get() - before;
    assert!(left < 200_000, "{left} bytes left");
}

#[test]
fn time_wait_is_bounded() {
    let mut world = World::with(|configuration| configuration.maximum_time_wait = 10);
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 64).unwrap();
    for _ in 0..50 {
        let (client, server) = world.pair(&listener);
        drop(client);
        world.run_for(SECOND / 1000);
        drop(server);
        world.run_for(SECOND / 1000);
    }
    let statistics = world.a.stack.statistics();
    assert_eq!((statistics.time_wait_now, statistics.time_wait_evicted), (10, 40));
    assert_eq!(statistics.connections_now, 0);
}

#[test]
fn a_pair_of_addresses_in_time_wait_can_be_opened_again_by_a_fresh_syn() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let mut repeated = 0;
    for round in 0..16 {
        let binding = world.a.stack.bind_tcp(address("0.0.0.0:5000")).unwrap();
        let client = binding.connect(address("10.0.0.2:7")).unwrap();
        // Initial sequence numbers are random, and only a higher one may reuse the pair. The
        // challenge ACK that answers a lower one makes the client reset the old connection. It
        // repeats its SYN after a second.
        let (mut server, begun) = (None, world.now());
        let opened = world.run_until(2 * SECOND, |_| {
            server = server.take().or_else(|| listener.try_accept().ok());
            server.is_some()
        });
        assert!(opened, "round {round}");
        repeated += u32::from(world.now() > begun + SECOND / 2);
        drop(server); // The listening side closes first and keeps the record.
        world.run_for(SECOND / 1000);
        drop(client);
        world.run_for(SECOND / 1000);
        assert_eq!(world.b.stack.statistics().time_wait_now, 1);
        assert_eq!(world.a.stack.statistics().time_wait_now, 0);
    }
    assert!((1..16).contains(&repeated), "{repeated} lower numbers of 16");
}

/// There, no SYN can be an old one.
#[test]
fn over_loopback_a_pair_of_addresses_in_time_wait_is_opened_again_at_once() {
    let mut world = World::new();
    let listener = world.a.stack.listen(address("127.0.0.1:7"), 4).unwrap();
    for round in 0..16 {
        let binding = world.a.stack.bind_tcp(address("127.0.0.1:5000")).unwrap();
        let client = binding.connect(address("127.0.0.1:7")).unwrap();
        assert_eq!(client.try_connected(), Ok(()), "round {round}");
        drop(listener.try_accept().unwrap());
        drop(client);
        world.run_for(SECOND / 1000);
        assert_eq!(world.a.stack.statistics().time_wait_now, 1);
    }
}

#[test]
fn connections_beyond_the_limit_are_refused_or_dropped() {
    let mut world = World::with(|configuration| configuration.maximum_connections = 3);
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 64).unwrap();
    let pairs: Vec<_> = (0..3).map(|_| world.pair(&listener)).collect();
    let refused = world.a.stack.connect(address("10.0.0.2:7")).err();
    assert_eq!(refused, Some(cops_net::Error::TooManyConnections));
    assert_eq!(world.b.stack.statistics().connections_now, 3);
    drop(pairs);
    world.run_for(60 * SECOND);
    world.pair(&listener);
}
