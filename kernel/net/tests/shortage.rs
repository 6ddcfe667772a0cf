//! Many connections in little memory (decision 63): idle ones free their buffers early, new ones
//! leave some memory to the others, and peers that never read do not keep it.

mod common;

use common::*;
use cops_net::{Connection, Error, Listener, Shutdown};
use std::task::Poll;

/// What all connections of host `b` may have.
const LIMIT: usize = 2_000_000;
/// Bytes charged for the buffers of a connection, about; for a connection without, exactly.
const BUFFER_BYTES: usize = 8_700;
const CONNECTION_BYTES: usize = 2560;

/// `a` has much memory and `b` little.
fn world() -> (World, Listener) {
    world_with(LIMIT)
}

/// All connections of `b` may have `bytes`.
fn world_with(bytes: usize) -> (World, Listener) {
    let a = static_configuration(&[ADDRESS_A], 11);
    let mut b = static_configuration(&[ADDRESS_B], 22);
    b.maximum_connection_bytes = bytes;
    let world = World::from(a, b);
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 128).unwrap();
    (world, listener)
}

/// A request and an answer of so many bytes. Returns how long they took.
fn exchange(
    world: &mut World,
    (client, server): &(Connection, Connection),
    length: usize,
    limit: u64,
) -> u64 {
    let began = world.now();
    assert_eq!(client.try_send(b"request"), Ok(7));
    assert!(world.run_until(limit, |_| server.try_receive(&mut [0; 9]) == Ok(7)));
    assert!(world.run_until(limit, |_| server.try_send(&[9; 4096][..length]) == Ok(length)));
    let mut missing = length;
    assert!(world.run_until(limit, |_| {
        missing -= client.try_receive(&mut [0; 4096]).unwrap_or(0);
        missing == 0
    }));
    world.now() - began
}

/// Sends to a peer that does not read until nothing more fits. The peer's own buffer takes what is
/// sent first, so this is done several times. Returns whether there is no memory for more.
fn flood(server: &Connection) -> bool {
    while server.try_send(&[7; 4096]).is_ok() {}
    server.try_send(&[7; 256]) == Err(Error::WouldBlock) && server.unacknowledged_bytes() < 4096
}

/// A thousand connections a second are opened, answered once, and left open. With their buffers
/// the limit would have room for fewer than three fifths of them.
#[test]
fn connections_that_come_fast_find_memory_since_idle_ones_free_theirs_soon() {
    const COUNT: usize = 320;
    const { assert!(LIMIT / (CONNECTION_BYTES + BUFFER_BYTES) < COUNT * 3 / 5) };
    let (mut world, listener) = world();
    let mut pairs = Vec::new();
    for _ in 0..COUNT {
        let due = world.now() + 1000;
        let pair = world.pair(&listener);
        exchange(&mut world, &pair, 6, 100_000);
        pairs.push(pair);
        let rest = due.saturating_sub(world.now());
        world.run_for(rest);
    }
    assert!(world.now() < 2 * SECOND, "{} us", world.now());
    assert_eq!(world.b.stack.statistics().dropped_no_room, 0);
    world.run_for(2 * SECOND);
    // All of these answers together would be too much.
    const { assert!(COUNT * (CONNECTION_BYTES + 4096) > LIMIT) };
    for pair in &pairs {
        assert!(exchange(&mut world, pair, 4000, SECOND) < 100_000);
        world.run_for(1000);
    }
    assert_eq!(world.b.stack.statistics().dropped_no_room, 0);
    assert_eq!(world.b.stack.statistics().connections_now, COUNT as u64);
}

/// Nothing arrives for them after they were accepted.
#[test]
fn connections_without_a_request_free_their_buffers_soon() {
    let (mut world, listener) = world();
    let mut pairs = Vec::new();
    for _ in 0..320 {
        pairs.push(world.pair(&listener));
        world.run_for(1000);
    }
    assert!(world.now() < 3 * SECOND, "{} us", world.now());
    assert_eq!(world.b.stack.statistics().dropped_no_room, 0);
}

/// A hostile peer opens as many connections as it can, and reads none of what is sent to it.
#[test]
fn peers_that_never_read_leave_memory_to_a_connection_that_there_is() {
    let (mut world, listener) = world();
    let good = world.pair(&listener);
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    let mut longest = 0;
    for round in 0..50 {
        let open = |_| world.a.stack.connect(address("10.0.0.2:7")).unwrap();
        clients.extend((0..10).map(open));
        world.run_for(SECOND / 50);
        servers.extend(std::iter::from_fn(|| listener.try_accept().ok()));
        for server in &servers {
            flood(server);
        }
        // Its queues have been freed since the last one.
        if round % 10 == 9 {
            longest = longest.max(exchange(&mut world, &good, 6, SECOND));
        }
    }
    assert!(world.b.stack.statistics().dropped_no_room > 0, "the memory was not used up");
    assert!(longest < 100_000, "{longest} us");
    // Peers that take nothing are reset, until there is room for new connections.
    let opened = servers.len();
    world.run_for(60 * SECOND);
    assert!(world.b.stack.statistics().timeouts > 10);
    servers.extend(std::iter::from_fn(|| listener.try_accept().ok()));
    assert!(servers.len() > opened);
    assert!(exchange(&mut world, &good, 6, SECOND) < 100_000);
}

/// The connections of the peer are older, so they use up all of the memory together.
#[test]
fn peers_that_never_read_are_reset_when_memory_is_used_up() {
    let (mut world, listener) = world();
    let good = world.pair(&listener);
    let mut hoard = Vec::new();
    for _ in 0..320 {
        hoard.push(world.pair(&listener));
        world.run_for(2000);
    }
    world.run_for(2 * SECOND);
    let mut refused = 0;
    let mut attack = |world: &mut World| {
        let is_refused = |(_, server): &&(_, _)| flood(server);
        refused = hoard.iter().filter(is_refused).count().max(refused);
        world.run_for(SECOND / 20);
    };
    (0..60).for_each(|_| attack(&mut world));
    let began = world.now();
    assert_eq!(good.0.try_send(b"request"), Ok(7));
    while good.1.unread_bytes() < 7 {
        attack(&mut world);
        assert!(world.now() < began + 60 * SECOND, "the attackers keep the memory");
    }
    while world.now() < began + 60 * SECOND {
        attack(&mut world);
    }
    let statistics = world.b.stack.statistics();
    assert!((100..320).contains(&refused), "{refused} connections got no buffers");
    assert!(statistics.timeouts > 50, "{statistics:?}");
    assert_eq!((good.0.take_error(), good.1.take_error()), (None, None));
}

/// A program closes its connections, and its peer, an accomplice, neither closes its own direction
/// nor, for every second one, acknowledges anything more.
#[test]
fn closed_connections_end_early_when_memory_is_used_up() {
    for is_used_up in [false, true] {
        let (mut world, listener) = world();
        let mut pairs: Vec<_> = (0..20).map(|_| world.pair(&listener)).collect();
        world.run_for(2 * SECOND);
        let silent: Vec<u16> =
            pairs.iter().step_by(2).map(|pair| pair.0.local_address().port()).collect();
        let passes = move |frame: &[u8]| {
            let port = u16::from_be_bytes([frame[34], frame[35]]);
            frame[12..14] != [8, 0] || !silent.contains(&port)
        };
        world.a.outgoing.lock().unwrap().filter = Some(Box::new(passes));
        for (_, server) in &pairs {
            assert_eq!(server.try_send(&[7; 1000]), Ok(1000));
        }
        let began = world.now();
        let (_clients, servers): (Vec<_>, Vec<_>) = pairs.drain(..).unzip();
        drop(servers);
        world.run_for(SECOND);
        assert_eq!(world.b.stack.statistics().connections_now, 20);
        // The memory is used up only after they were closed.
        let mut hoard = Vec::new();
        if is_used_up {
            for _ in 0..320 {
                hoard.push(world.pair(&listener));
                world.run_for(2000);
            }
            while world.now() < began + 28 * SECOND {
                hoard.iter().for_each(|(_, server)| _ = flood(server));
                world.run_for(SECOND / 2);
            }
        }
        world.run_for(began + 29 * SECOND - world.now());
        let others = hoard.len() as u64;
        assert_eq!(world.b.stack.statistics().connections_now, others + 20);
        world.run_for(2 * SECOND);
        let left = if is_used_up { 0 } else { 20 };
        assert_eq!(world.b.stack.statistics().connections_now, others + left);
        let ends = world.b.stack.statistics().timeouts;
        assert_eq!(ends, 20 - left);
        if !is_used_up {
            world.run_for(28 * SECOND);
            assert_eq!(world.b.stack.statistics().connections_now, 20);
            world.run_for(2 * SECOND);
            assert_eq!(world.b.stack.statistics().connections_now, 0);
        }
    }
}

/// A peer that does not read is not reset while there is memory.
#[test]
fn a_peer_that_does_not_read_is_waited_for_while_there_is_memory() {
    let (mut world, listener) = world();
    let (client, server) = world.pair(&listener);
    assert!(!flood(&server));
    world.run_for(200 * SECOND);
    assert_eq!(world.b.stack.statistics().timeouts, 0);
    assert!(world.run_until(SECOND, |_| client.try_receive(&mut [0; 4096]).is_ok()));
}

/// What is freed is charged no longer: a connection can do that as often as it likes.
#[test]
fn queues_are_freed_and_used_again_without_end() {
    let (mut world, listener) = world_with(24_000);
    let pair = world.pair(&listener);
    // Otherwise the end of an answer waits, which ends the fast path.
    pair.1.set_no_delay(true);
    for round in 0..100 {
        let took = exchange(&mut world, &pair, 4096, SECOND);
        assert!(took < SECOND / 10, "round {round}: {took} us");
        // It has been idle for a second. Its path lives for ten.
        world.run_for(SECOND + SECOND / 5);
    }
    let statistics = world.b.stack.statistics();
    assert_eq!((statistics.dropped_no_room, statistics.timeouts), (0, 0));
}

/// A connection of which the queues are freed, and others that keep all of the memory.
fn without_memory(count: usize) -> (World, Vec<(Connection, Connection)>, Vec<Connection>) {
    without_memory_after(count, |_, _| {})
}

/// The same; `act` does something with the connections while there is memory.
fn without_memory_after(
    count: usize,
    act: impl FnOnce(&mut World, &[(Connection, Connection)]),
) -> (World, Vec<(Connection, Connection)>, Vec<Connection>) {
    let (mut world, listener) = world_with(200_000);
    let mut pairs = Vec::new();
    for _ in 0..count + 30 {
        pairs.push(world.pair(&listener));
        world.run_for(2 * SECOND);
    }
    // Their peers do not read, so their queues stay full.
    let hoard: Vec<_> = pairs.split_off(count);
    act(&mut world, &pairs);
    for _ in 0..40 {
        for (_, server) in &hoard {
            flood(server);
        }
        world.run_for(SECOND / 20);
    }
    assert!(hoard.iter().any(|(_, server)| flood(server)), "there is memory");
    (world, pairs, hoard.into_iter().flat_map(|(client, server)| [client, server]).collect())
}

/// As on Linux: a write without memory waits, a cancelled one leaves nothing, and each is woken
/// when there is memory again.
#[test]
fn writes_without_memory_wait_until_there_is_some() {
    const COUNT: usize = 5;
    let (mut world, pairs, hoard) = without_memory(COUNT);
    let flags: Vec<_> = pairs.iter().map(|_| Flag::new()).collect();
    let write = |index: usize| {
        let mut context = std::task::Context::from_waker(&flags[index].1);
        pairs[index].1.poll_send(&mut context, &[9; 3000])
    };
    for (index, (_, server)) in pairs.iter().enumerate() {
        assert!(write(index).is_pending());
        assert!(!server.readiness().writable);
    }
    let fired = world.b.stack.statistics().timers_fired;
    world.run_for(5 * SECOND);
    assert!(flags.iter().all(|(flag, _)| !flag.take()), "there is no memory");
    let fired = world.b.stack.statistics().timers_fired - fired;
    // Each looks for memory, but not often.
    let waiting = COUNT as u64 + 30;
    assert!((COUNT as u64..waiting * 25).contains(&fired), "{fired} times");
    // The last one is cancelled: it does nothing more.
    drop(hoard);
    let began = world.now();
    let mut waiting: Vec<usize> = (0..COUNT - 1).collect();
    assert!(world.run_until(SECOND, |_| {
        waiting.retain(|&index| !flags[index].0.take());
        waiting.is_empty()
    }));
    assert!(world.now() - began <= 330_000, "{} us", world.now() - began);
    for (index, (client, server)) in pairs[..COUNT - 1].iter().enumerate() {
        assert!(server.readiness().writable);
        assert_eq!(write(index), Poll::Ready(Ok(3000)));
        let mut left = 3000;
        assert!(world.run_until(SECOND, |_| {
            left -= client.try_receive(&mut [0; 4096]).unwrap_or(0);
            left == 0
        }));
    }
    drop(pairs);
    world.run_for(100 * SECOND);
    let statistics = world.b.stack.statistics();
    assert_eq!((statistics.connections_now, world.b.stack.timers_armed()), (0, 0));
}

/// A connection that has ended does not wait for memory any more.
#[test]
fn a_write_that_waits_for_memory_ends_with_its_connection() {
    let (mut world, mut pairs, _hoard) = without_memory(1);
    let (flag, waker) = Flag::new();
    let mut context = std::task::Context::from_waker(&waker);
    let (client, server) = pairs.remove(0);
    assert!(server.poll_send(&mut context, &[9; 3000]).is_pending());
    server.abort();
    assert!(flag.take());
    assert!(matches!(
        server.poll_send(&mut context, b"over"),
        Poll::Ready(Err(Error::ConnectionAborted | Error::NotConnected))
    ));
    world.run_for(SECOND);
    drop(client);
}

/// A reset is sent once, so it must not be lost for want of memory.
#[test]
fn a_reset_ends_a_connection_without_memory_for_a_socket() {
    let send = |world: &mut World, pairs: &[(Connection, Connection)]| {
        assert_eq!(pairs[0].0.try_send(b"unread"), Ok(6));
        assert!(world.run_until(SECOND, |_| pairs[0].1.unread_bytes() == 6));
    };
    let (mut world, mut pairs, hoard) = without_memory_after(2, send);
    // There is none for sockets either, once the others have them.
    let refused = hoard.chunks(2).filter(|pair| pair[1].shutdown(Shutdown::Write).is_err());
    assert!(refused.count() > 0, "there is memory");
    let before = world.b.stack.statistics();
    let flags: Vec<_> = pairs.iter().map(|_| Flag::new()).collect();
    let receive = |index: usize, server: &Connection| {
        let mut context = std::task::Context::from_waker(&flags[index].1);
        server.poll_receive(&mut context, &mut [0; 9])
    };
    assert!(receive(1, &pairs[1].1).is_pending());
    for (client, server) in &pairs {
        assert!(!server.readiness().failed);
        client.abort();
    }
    assert!(world.run_until(SECOND, |_| flags[1].0.take()), "the reset is lost");
    let statistics = world.b.stack.statistics();
    assert_eq!(statistics.fast_path_left, before.fast_path_left, "there is memory");
    assert_eq!(statistics.resets_received, before.resets_received + 2);
    assert_eq!(statistics.resets_sent, before.resets_sent);
    // As with a socket, what has arrived before can be read.
    assert_eq!(receive(0, &pairs[0].1), Poll::Ready(Ok(6)));
    for (index, (_, server)) in pairs.iter().enumerate() {
        let ready = server.readiness();
        assert!(ready.failed && ready.closed && ready.readable && ready.writable);
        assert_eq!(receive(index, server), Poll::Ready(Err(Error::ConnectionReset)));
        assert_eq!(receive(index, server), Poll::Ready(Ok(0)));
        assert_eq!(server.try_send(b"more"), Err(Error::BrokenPipe));
        assert_eq!(server.take_error(), None);
        assert!(!server.readiness().failed && server.readiness().closed);
    }
    pairs.clear();
    drop(hoard);
    world.run_for(100 * SECOND);
    let statistics = world.b.stack.statistics();
    assert_eq!((statistics.connections_now, world.b.stack.timers_armed()), (0, 0));
}

/// Hundreds of clients close at once. Each connection needs a socket to close, so there is no
/// memory for queues meanwhile. The others still get their answers: none is lost, and no write
/// fails.
#[test]
fn connections_are_answered_while_many_others_close() {
    const COUNT: usize = 500;
    let (mut world, listener) = world();
    let mut pairs = Vec::new();
    for _ in 0..COUNT {
        pairs.push(world.pair(&listener));
        world.run_for(2000);
    }
    let good = pairs.split_off(COUNT - 20);
    world.run_for(2 * SECOND);
    let (clients, servers): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    for (client, _) in &good {
        assert_eq!(client.try_send(b"request"), Ok(7));
    }
    drop(clients);
    let mut servers: Vec<_> = servers.into_iter().map(Some).collect();
    let (mut requests, mut answers) = ([0; 20], [0; 20]);
    let mut refused = 0;
    let began = world.now();
    let all_are_answered = world.run_until(30 * SECOND, |_| {
        for server in &mut servers {
            // As a server does at the end of the stream.
            if server.as_ref().is_some_and(|server| server.try_receive(&mut [0; 1]) == Ok(0)) {
                *server = None;
            }
        }
        for (index, (client, server)) in good.iter().enumerate() {
            requests[index] += server.try_receive(&mut [0; 9]).unwrap_or(0);
            if requests[index] == 7 {
                match server.try_send(&[9; 3000]) {
                    Ok(sent) => requests[index] += sent,
                    Err(Error::WouldBlock) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            answers[index] += client.try_receive(&mut [0; 4096]).unwrap_or(0);
        }
        (0..20).all(|index| answers[index] > 0 && answers[index] + 7 == requests[index])
    });
    let statistics = world.b.stack.statistics();
    println!(
        "{} us, {refused} refused, {} dropped, {} times left",
        world.now() - began,
        statistics.dropped_no_room,
        statistics.fast_path_left
    );
    assert!(all_are_answered, "{requests:?} {answers:?}");
    assert!(refused > 0, "there was memory");
    assert!(world.run_until(60 * SECOND, |world| {
        servers.retain(|server| {
            server.as_ref().is_some_and(|server| server.try_receive(&mut [0; 1]) != Ok(0))
        });
        servers.is_empty() && world.b.stack.statistics().connections_now == 20
    }));
}
