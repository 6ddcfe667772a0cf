//! Connections on the fast path do what smoltcp does, and leave it when anything is unusual.

mod common;

use common::*;
use cops_net::{Connection, Error, KeepAlive, Shutdown};
use proptest::prelude::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{Ipv4Packet, Ipv4Repr, TcpPacket, TcpRepr, TcpTimestampRepr};
use std::sync::{Arc, Mutex};

/// Records the frames that both hosts send.
fn record(world: &World) -> Arc<Mutex<Vec<Vec<u8>>>> {
    let tape = Arc::new(Mutex::new(Vec::new()));
    for host in [&world.a, &world.b] {
        let tape = tape.clone();
        host.outgoing.lock().unwrap().filter = Some(Box::new(move |frame| {
            tape.lock().unwrap().push(frame.to_vec());
            true
        }));
    }
    tape
}

/// A message of `length` bytes that differ from those of other messages.
fn message(round: usize, length: usize) -> Vec<u8> {
    (0..length).map(|index| Transfer::byte(round * 7919 + index)).collect()
}

/// Moves a message from one end to the other. Returns whether it arrived. smoltcp may wait for a
/// minute after several losses.
fn carry(world: &mut World, from: &Connection, to: &Connection, message: &[u8]) -> bool {
    let (mut sent, mut received) = (0, Vec::new());
    let arrived = world.run_until(600 * SECOND, |_| {
        if let Ok(count) = from.try_send(&message[sent..]) {
            sent += count;
        }
        let mut buffer = [0; 900];
        while let Ok(count @ 1..) = to.try_receive(&mut buffer) {
            received.extend_from_slice(&buffer[..count]);
        }
        received.len() == message.len()
    });
    assert!(received == message[..received.len()], "other bytes have arrived");
    arrived
}

/// One exchange: a request of the client, and an answer after `service` microseconds.
fn exchange(
    world: &mut World,
    (client, server): (&Connection, &Connection),
    round: usize,
    (request, answer): (usize, usize),
    service: u64,
) {
    assert!(carry(world, client, server, &message(round, request)));
    world.run_for(service);
    assert!(carry(world, server, client, &message(round + 1, answer)));
}

/// A connection of which the server is on the fast path.
fn on_the_fast_path(world: &mut World) -> (Connection, Connection) {
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    let (client, server) = world.pair(&listener);
    client.set_no_delay(true);
    server.set_no_delay(true);
    for round in 0..6 {
        exchange(world, (&client, &server), round, (10, 20), 100);
    }
    let statistics = world.b.stack.statistics();
    assert_eq!((statistics.fast_path_entered, statistics.fast_path_left), (1, 0));
    assert!(statistics.frames_fast >= 2, "{}", statistics.frames_fast);
    (client, server)
}

fn times_left(world: &World) -> u64 {
    world.b.stack.statistics().fast_path_left
}

/// The frames of exchanges of many sizes, and how many were received on the fast path.
fn frames_of_exchanges(fast_path: bool) -> (Vec<Vec<u8>>, u64) {
    let mut world = World::with(|configuration| configuration.fast_path = fast_path);
    let tape = record(&world);
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    let (client, server) = world.pair(&listener);
    client.set_no_delay(true);
    server.set_no_delay(true);
    for round in 0..300 {
        let sizes = match round % 4 {
            0 | 1 => (15, 20),
            2 => (1 + round * 5, 1 + round * 3),
            _ => (1800, 1800),
        };
        exchange(&mut world, (&client, &server), round, sizes, (round as u64 * 37) % 14_000);
        // Some pauses are longer than a path is valid.
        world.run_for(if round % 50 == 49 { 11 * SECOND } else { round as u64 * 100 });
    }
    client.shutdown(Shutdown::Write).unwrap();
    world.run_for(SECOND);
    drop((client, server));
    world.run_for(60 * SECOND);
    let fast = world.a.stack.statistics().frames_fast + world.b.stack.statistics().frames_fast;
    let frames = std::mem::take(&mut *tape.lock().unwrap());
    (frames, fast)
}

#[test]
fn the_frames_are_those_of_smoltcp() {
    let (fast, count) = frames_of_exchanges(true);
    let (slow, none) = frames_of_exchanges(false);
    assert_eq!(none, 0);
    println!("{count} of {} frames were received on the fast path", fast.len());
    assert!(count > 300, "{count} of {} frames", fast.len());
    for (index, (fast, slow)) in fast.iter().zip(&slow).enumerate() {
        assert_eq!(fast, slow, "frame {index}");
    }
    assert_eq!(fast.len(), slow.len());
}

/// A client sends requests without waiting for the answers, and the server answers each after
/// `service` microseconds, for `rounds` answers; in the middle it hears `news`. Returns the frames.
fn frames_of_an_overload(
    fast_path: bool,
    service: u64,
    rounds: usize,
    news: &[Vec<u8>],
) -> (Vec<Vec<u8>>, World) {
    const BYTES: usize = 1816;
    let mut world = World::with(|configuration| configuration.fast_path = fast_path);
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    let (client, server) = world.pair(&listener);
    client.set_no_delay(true);
    server.set_no_delay(true);
    for round in 0..6 {
        exchange(&mut world, (&client, &server), round, (10, 20), 100);
    }
    let tape = record(&world);
    let requests: Vec<u8> = (0..rounds).flat_map(|round| message(round, BYTES)).collect();
    let (mut sent, mut answers) = (0, Vec::new());
    let mut buffer = [0; BYTES];
    for round in 0..rounds {
        if round == rounds / 2 {
            news.iter().for_each(|frame| world.b.stack.receive(frame));
        }
        let mut read = 0;
        assert!(world.run_until(SECOND, |_| {
            sent += client.try_send(&requests[sent..]).unwrap_or(0);
            read += server.try_receive(&mut buffer[read..]).unwrap_or(0);
            read == BYTES
        }));
        assert!(buffer[..] == message(round, BYTES), "request {round}");
        world.run_for(service);
        assert_eq!(server.try_send(&buffer), Ok(BYTES));
        while let Ok(count @ 1..) = client.try_receive(&mut buffer) {
            answers.extend_from_slice(&buffer[..count]);
        }
    }
    assert!(answers == requests[..answers.len()], "other answers");
    let frames = std::mem::take(&mut *tape.lock().unwrap());
    drop((client, server));
    (frames, world)
}

/// A server that cannot keep up must not get slower by that: its connections stay on the fast path.
#[test]
fn a_peer_that_sends_ahead_stays_on_the_fast_path() {
    for service in [100, 3_000, 30_000] {
        const ROUNDS: usize = 200;
        let (fast, world) = frames_of_an_overload(true, service, ROUNDS, &[]);
        let statistics = world.b.stack.statistics();
        // By its end.
        assert!(times_left(&world) <= 1, "{} times, {service} us", times_left(&world));
        assert!(statistics.frames_fast > 2 * ROUNDS as u64, "{}", statistics.frames_fast);
        let (slow, _) = frames_of_an_overload(false, service, ROUNDS, &[]);
        let (fast, slow) = (fast.len(), slow.len());
        assert!(fast <= slow, "{fast} frames, of smoltcp {slow}, {service} us");
    }
}

/// A new address of a neighbour ends the paths to it, so its connections leave. One that does not
/// keep up comes back soon, although it answers none of the requests at once.
#[test]
fn a_peer_that_sends_ahead_comes_back_to_the_fast_path() {
    const ROUNDS: usize = 200;
    let (_, world) = frames_of_an_overload(true, 30_000, ROUNDS, &news(1, 2));
    let statistics = world.b.stack.statistics();
    // By the news, and by its end.
    assert!((1..=2).contains(&times_left(&world)), "{} times", times_left(&world));
    assert_eq!(statistics.fast_path_entered, 2);
    assert!(statistics.frames_fast > 2 * ROUNDS as u64, "{}", statistics.frames_fast);
}

/// A client that sends ahead over a cable with such a latency, from the first request on: whenever
/// a request arrives, answers are on the way that it does not acknowledge. Each is answered after
/// `service` microseconds. Returns the times that the server has entered and left the fast path,
/// and the frames that it has sent.
fn overload_from_the_beginning(latency: u64, service: u64, faults: Faults) -> ([u64; 2], u64) {
    const ROUNDS: usize = 300;
    const BYTES: usize = 24;
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    let (client, server) = world.pair(&listener);
    client.set_no_delay(true);
    server.set_no_delay(true);
    for host in [&world.a, &world.b] {
        host.incoming.lock().unwrap().latency_microseconds = latency;
    }
    world.set_faults(faults);
    let before = world.b.stack.statistics();
    let requests: Vec<u8> = (0..ROUNDS).flat_map(|round| message(round, BYTES)).collect();
    let (mut sent, mut served, mut answers) = (0, 0, Vec::new());
    let (mut next_request, mut next_answer) = (0, 0);
    let (mut received, mut answered, mut buffer) = (Vec::new(), 0, [0; BYTES]);
    let complete = world.run_until(600 * SECOND, |world| {
        let now = world.now();
        if sent < requests.len() && now >= next_request {
            sent += client.try_send(&requests[sent..][..BYTES - sent % BYTES]).unwrap_or(0);
            next_request = now + service * 3 / 4;
        }
        if now >= next_answer {
            let room = BYTES - received.len();
            if let Ok(count) = server.try_receive(&mut buffer[..room]) {
                received.extend_from_slice(&buffer[..count]);
            }
            if received.len() == BYTES {
                answered += server.try_send(&received[answered..]).unwrap_or(0);
            }
            if answered == BYTES {
                received.clear();
                answered = 0;
                served += 1;
                next_answer = now + service;
            }
        }
        while let Ok(count @ 1..) = client.try_receive(&mut buffer) {
            answers.extend_from_slice(&buffer[..count]);
        }
        world.run_for(service / 8);
        answers.len() == requests.len()
    });
    assert!(complete, "{served} answers, {} bytes have arrived", answers.len());
    assert!(answers == requests, "other answers");
    let after = world.b.stack.statistics();
    let [entered, left] = [
        after.fast_path_entered - before.fast_path_entered,
        after.fast_path_left - before.fast_path_left,
    ];
    ([entered, left], after.frames_transmitted - before.frames_transmitted)
}

/// A connection that never was in a quiet moment enters with what it has sent and what it has not.
#[test]
fn a_connection_enters_with_answers_in_flight() {
    for (latency, service) in [(50, 4_000), (20_000, 4_000), (200_000, 10_000)] {
        let (changes, frames) = overload_from_the_beginning(latency, service, Faults::default());
        assert_eq!(changes, [1, 0], "entered and left, {latency} us");
        assert!(frames < 400, "{frames} frames for 300 answers, {latency} us");
    }
}

/// What has arrived before is acknowledged as late as it would have been without the fast path.
#[test]
fn what_smoltcp_had_to_acknowledge_at_the_entry_is_acknowledged() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    let (client, server) = world.pair(&listener);
    client.set_no_delay(true);
    server.set_no_delay(true);
    world.a.incoming.lock().unwrap().latency_microseconds = 100_000;
    assert_eq!(server.try_send(&message(0, 24)), Ok(24));
    world.run_for(1000);
    for round in 0..3 {
        assert_eq!(world.b.stack.statistics().fast_path_entered, 0);
        assert_eq!(client.try_send(&message(round, 24)), Ok(24));
        world.run_for(1000);
    }
    let before = world.b.stack.statistics();
    assert_eq!(before.fast_path_entered, 1, "its answer is in flight");
    world.run_for(8_000);
    let after = world.b.stack.statistics();
    assert_eq!(after.frames_transmitted, before.frames_transmitted + 1, "10 ms after the first");
    world.run_for(50_000);
    let later = world.b.stack.statistics();
    assert_eq!(later.frames_transmitted, after.frames_transmitted, "once");
    assert_eq!(times_left(&world), 0);
}

/// If they are lost, the socket that it gets again sends them again.
#[test]
fn what_was_in_flight_at_the_entry_is_repeated() {
    let faults = Faults { lost_per_thousand: 30, jitter_microseconds: 500, ..Faults::default() };
    let ([entered, left], _) = overload_from_the_beginning(20_000, 4_000, faults);
    assert!(entered >= 2 && left >= 1, "entered {entered} times, left {left}");
}

/// The SYN `frame` with other options.
fn with_options(frame: &[u8], change: impl Fn(&mut TcpRepr<'_>)) -> Vec<u8> {
    let (ignored, usual) = (ChecksumCapabilities::ignored(), ChecksumCapabilities::default());
    let ip = Ipv4Packet::new_checked(&frame[14..]).unwrap();
    let mut ip_repr = Ipv4Repr::parse(&ip, &ignored).unwrap();
    let (source, target) = (ip_repr.src_addr.into(), ip_repr.dst_addr.into());
    let segment = TcpPacket::new_checked(ip.payload()).unwrap();
    let mut repr = TcpRepr::parse(&segment, &source, &target, &ignored).unwrap();
    change(&mut repr);
    ip_repr.payload_len = repr.buffer_len();
    let mut offered = frame[..14].to_vec();
    offered.resize(34 + repr.buffer_len(), 0);
    ip_repr.emit(&mut Ipv4Packet::new_unchecked(&mut offered[14..]), &usual);
    let mut segment = TcpPacket::new_unchecked(&mut offered[34..]);
    repr.emit(&mut segment, &source, &target, &usual);
    offered
}

/// A connection of `a` to the listener of `b`, which gets the SYN with other options. The hosts
/// know each other's addresses.
fn pair_with_options(
    world: &mut World,
    listener: &cops_net::Listener,
    change: impl Fn(&mut TcpRepr<'_>),
) -> (Connection, Connection) {
    let lost = Arc::new(Mutex::new(None));
    let tape = lost.clone();
    world.a.outgoing.lock().unwrap().filter = Some(Box::new(move |frame| {
        let opens = tcp_flags_and_length(frame).is_some_and(|(flags, _)| flags == SYN);
        if opens {
            *tape.lock().unwrap() = Some(frame.to_vec());
        }
        !opens
    }));
    let client = world.a.stack.connect(address("10.0.0.2:7")).unwrap();
    assert!(world.run_until(SECOND, |_| lost.lock().unwrap().is_some()));
    let syn = lost.lock().unwrap().take().unwrap();
    world.b.stack.receive(&with_options(&syn, change));
    let mut server = None;
    assert!(world.run_until(SECOND, |_| {
        server = server.take().or_else(|| listener.try_accept().ok());
        server.is_some() && connected(&client) == Some(Ok(()))
    }));
    (client, server.unwrap())
}

/// Timestamps are used only if both sides offer them, and this side does not.
#[test]
fn a_peer_that_offers_timestamps_enters_the_fast_path() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    // So the hosts know each other's addresses.
    drop(world.pair(&listener));
    world.run_for(SECOND);
    let before = world.b.stack.statistics().fast_path_entered;
    let offered = Some(TcpTimestampRepr::new(4711, 0));
    let (client, server) =
        pair_with_options(&mut world, &listener, |repr| repr.timestamp = offered);
    world.run_for(3 * SECOND);
    assert_eq!(world.b.stack.statistics().fast_path_entered, before + 1, "it is idle");
    for round in 0..6 {
        exchange(&mut world, (&client, &server), round, (10, 20), 100);
    }
    assert!(world.b.stack.statistics().frames_fast >= 5);
    assert_eq!(times_left(&world), 0);
}

/// The most that a connection can have in flight at its entry, in the smallest segments.
#[test]
fn a_connection_enters_with_many_small_segments_in_flight() {
    const BYTES: usize = 12_000;
    let mut a = static_configuration(&[ADDRESS_A], 11);
    a.receive_buffer_bytes = 2 * BYTES;
    let mut b = static_configuration(&[ADDRESS_B], 22);
    (b.receive_buffer_bytes, b.transmit_buffer_bytes) = (4096, BYTES);
    let mut world = World::from(a, b);
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    // So the hosts know each other's addresses.
    drop(world.pair(&listener));
    world.run_for(SECOND);
    let before = world.b.stack.statistics();
    let (client, server) =
        pair_with_options(&mut world, &listener, |repr| repr.max_seg_size = Some(536));
    client.set_no_delay(true);
    server.set_no_delay(true);
    world.a.incoming.lock().unwrap().latency_microseconds = 100_000;
    let answer = message(0, BYTES);
    assert_eq!(server.try_send(&answer), Ok(BYTES));
    world.run_for(1000);
    for round in 0..3 {
        assert_eq!(client.try_send(&message(round, 24)), Ok(24));
        world.run_for(1000);
    }
    let after = world.b.stack.statistics();
    assert_eq!(after.fast_path_entered - before.fast_path_entered, 1);
    let sent = after.frames_transmitted - before.frames_transmitted;
    assert!(sent >= (BYTES / 536) as u64, "{sent} frames");
    let mut received = Vec::new();
    assert!(world.run_until(SECOND, |_| {
        let mut buffer = [0; 900];
        while let Ok(count @ 1..) = client.try_receive(&mut buffer) {
            received.extend_from_slice(&buffer[..count]);
        }
        received.len() == BYTES
    }));
    assert!(received == answer, "other bytes");
}

#[test]
fn a_lost_answer_is_repeated_by_smoltcp() {
    let mut world = World::new();
    let (client, server) = on_the_fast_path(&mut world);
    assert!(carry(&mut world, &client, &server, b"request"));
    world.b.outgoing.lock().unwrap().cut = true;
    server.try_send(b"answer").unwrap();
    world.run_for(SECOND / 2);
    assert_eq!(times_left(&world), 0);
    world.b.outgoing.lock().unwrap().cut = false;
    assert_eq!(client.try_receive(&mut [0; 9]), Err(Error::WouldBlock));
    world.run_for(SECOND / 2 + 10_000);
    assert_eq!(times_left(&world), 1);
    let mut answer = [0; 9];
    assert_eq!(client.try_receive(&mut answer), Ok(6));
    assert_eq!(&answer[..6], b"answer");
    for round in 0..10 {
        exchange(&mut world, (&client, &server), round, (10, 20), 100);
    }
    assert_eq!(world.b.stack.statistics().fast_path_entered, 2, "it enters again");
}

#[test]
fn a_lost_acknowledgement_is_sent_again() {
    let mut world = World::new();
    let (client, server) = on_the_fast_path(&mut world);
    world.b.outgoing.lock().unwrap().cut = true;
    assert!(carry(&mut world, &client, &server, b"request"));
    world.run_for(SECOND / 2);
    world.b.outgoing.lock().unwrap().cut = false;
    assert_eq!(client.unacknowledged_bytes(), 7);
    // The client repeats the request, of which the program has read everything.
    world.run_for(SECOND);
    assert_eq!(client.unacknowledged_bytes(), 0);
    assert_eq!(server.try_receive(&mut [0; 9]), Err(Error::WouldBlock));
    assert_eq!(times_left(&world), 0);
    exchange(&mut world, (&client, &server), 3, (1000, 2000), 100);
}

#[test]
fn segments_out_of_order_are_put_in_order() {
    let mut world = World::new();
    let (client, server) = on_the_fast_path(&mut world);
    // The first segment is lost, the second arrives, then the first again.
    let mut count = 0;
    world.a.outgoing.lock().unwrap().filter = Some(Box::new(move |_| {
        count += 1;
        count != 1
    }));
    assert!(carry(&mut world, &client, &server, &message(1, 2000)));
    assert_eq!(times_left(&world), 1);
    exchange(&mut world, (&client, &server), 3, (1000, 2000), 100);
}

#[test]
fn closing_leaves_the_fast_path() {
    type Close = fn(&Connection, &Connection);
    let ways: [(Close, bool); 5] = [
        (|client, _| client.shutdown(Shutdown::Write).unwrap(), false),
        (|_, server| server.shutdown(Shutdown::Write).unwrap(), false),
        (|_, server| server.shutdown(Shutdown::Both).unwrap(), false),
        (|_, server| server.abort(), true),
        (|client, _| client.abort(), true),
    ];
    for (close, is_reset) in ways {
        let mut world = World::new();
        let (client, server) = on_the_fast_path(&mut world);
        close(&client, &server);
        world.run_for(SECOND);
        assert_eq!(times_left(&world), 1);
        let failed = client.take_error().is_some() && server.take_error().is_some();
        assert_eq!(failed, is_reset);
        drop((client, server));
        world.run_for(100 * SECOND);
        for host in [&world.a, &world.b] {
            assert_eq!(host.stack.statistics().connections_now, 0);
            assert_eq!(host.stack.timers_armed(), 0);
        }
    }
}

#[test]
fn unread_bytes_and_bytes_in_flight_survive_an_exit() {
    let mut world = World::new();
    let (client, server) = on_the_fast_path(&mut world);
    client.try_send(&message(1, 1500)).unwrap();
    world.run_for(1_000);
    // Some of the request is read and not acknowledged, some unread, and part of the answer is in
    // flight when the server's options change.
    assert_eq!(server.try_receive(&mut [0; 700]), Ok(700));
    server.try_send(&message(2, 1600)).unwrap();
    client.try_send(&message(3, 200)).unwrap();
    server.set_keep_alive(Some(KeepAlive::DEFAULT));
    assert_eq!(times_left(&world), 1);
    assert_eq!((server.unread_bytes(), server.unacknowledged_bytes()), (800, 1600));
    world.run_for(SECOND / 10);
    let mut buffer = [0; 3000];
    assert_eq!(server.try_receive(&mut buffer), Ok(1000));
    assert_eq!(buffer[..800], message(1, 1500)[700..]);
    assert_eq!(buffer[800..1000], message(3, 200));
    assert_eq!(client.try_receive(&mut buffer), Ok(1600));
    assert_eq!(buffer[..1600], message(2, 1600));
    assert_eq!((server.unacknowledged_bytes(), client.unacknowledged_bytes()), (0, 0));
}

#[test]
fn a_full_window_is_announced_when_it_opens() {
    let mut world = World::new();
    let (client, server) = on_the_fast_path(&mut world);
    // The client does not read: its window closes, and the server waits for it to open.
    let (data, mut sent) = (message(5, 20_000), 0);
    world.run_until(5 * SECOND, |_| {
        sent += server.try_send(&data[sent..]).unwrap_or(0);
        false
    });
    assert!((4096..=8192).contains(&sent), "{sent} bytes");
    let mut received = Vec::new();
    assert!(world.run_until(60 * SECOND, |_| {
        sent += server.try_send(&data[sent..]).unwrap_or(0);
        let mut buffer = [0; 333];
        if let Ok(count) = client.try_receive(&mut buffer) {
            received.extend_from_slice(&buffer[..count]);
        }
        received.len() == data.len()
    }));
    assert!(received == data);
}

#[test]
fn a_full_device_is_waited_for_on_the_fast_path() {
    let mut world = World::new();
    let (client, server) = on_the_fast_path(&mut world);
    world.b.outgoing.lock().unwrap().capacity = 0;
    assert_eq!(server.try_send(&message(1, 20)), Ok(20));
    assert_eq!(server.try_send(&message(2, 20)), Ok(20));
    // Also an acknowledgement that is due waits for the device, and no timer expires in vain.
    assert!(carry(&mut world, &client, &server, &message(3, 10)));
    let fired = world.b.stack.statistics().timers_fired;
    world.run_for(100_000);
    let statistics = world.b.stack.statistics();
    assert!(statistics.timers_fired <= fired + 1, "{}", statistics.timers_fired - fired);
    assert_eq!((statistics.transmit_blocked, statistics.fast_path_left), (1, 0));
    let begin = world.now();
    world.b.outgoing.lock().unwrap().capacity = 256;
    world.b.stack.transmit_ready();
    let (mut received, mut buffer) = (Vec::new(), [0; 64]);
    assert!(world.run_until(SECOND, |_| {
        while let Ok(count @ 1..) = client.try_receive(&mut buffer) {
            received.extend_from_slice(&buffer[..count]);
        }
        received.len() == 40
    }));
    assert_eq!(received, [message(1, 20), message(2, 20)].concat());
    assert!(world.now() - begin < 1000, "took {} us", world.now() - begin);
    exchange(&mut world, (&client, &server), 4, (10, 20), 100);
    assert_eq!(times_left(&world), 0);
}

#[test]
fn a_path_that_has_expired_is_found_anew() {
    let mut world = World::new();
    let (client, server) = on_the_fast_path(&mut world);
    world.run_for(30 * SECOND);
    assert_eq!(times_left(&world), 0);
    // A segment of the peer itself says where that is.
    exchange(&mut world, (&client, &server), 3, (10, 20), 100);
    assert_eq!(times_left(&world), 0);
    world.run_for(30 * SECOND);
    exchange(&mut world, (&server, &client), 4, (10, 20), 100);
    assert_eq!(times_left(&world), 1);
}

#[test]
fn idle_connections_have_no_buffers_and_wake_up() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    let (client, server) = world.pair(&listener);
    for round in 0..5 {
        world.run_for(20 * SECOND);
        let statistics = world.b.stack.statistics();
        // It leaves only where it begins, since the path has expired.
        assert_eq!(statistics.fast_path_entered, round / 2 + 1);
        assert_eq!(statistics.fast_path_entered, statistics.fast_path_left + 1);
        // Both ends may begin.
        match round % 2 {
            0 => assert!(carry(&mut world, &client, &server, &message(1, 3000))),
            _ => assert!(carry(&mut world, &server, &client, &message(1, 3000))),
        }
    }
}

/// Exchanges of many sizes over a bad cable.
fn over_a_bad_cable(faults: Faults, sizes: &[(usize, usize, u64)]) {
    let mut world = World::new();
    let (client, server) = on_the_fast_path(&mut world);
    world.set_faults(faults);
    for (round, &(request, answer, service)) in sizes.iter().enumerate() {
        exchange(&mut world, (&client, &server), round, (request, answer), service);
    }
    world.set_faults(Faults::default());
    drop(client);
    world.run_for(10 * SECOND);
    assert_eq!(server.try_receive(&mut [0; 1]), Ok(0));
    drop(server);
    world.run_for(100 * SECOND);
    for host in [&world.a, &world.b] {
        assert_eq!(host.stack.statistics().connections_now, 0);
        assert_eq!(host.stack.timers_armed(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn exchanges_over_a_bad_cable(
        sizes in prop::collection::vec((1..3000usize, 1..6000usize, 0..20_000u64), 1..60),
        lost in 0..40u64,
        repeated in 0..40u64,
        damaged in 0..20u64,
        jitter in prop::sample::select(vec![0, 300, 20_000]),
    ) {
        let faults = Faults {
            lost_per_thousand: lost,
            repeated_per_thousand: repeated,
            damaged_per_thousand: damaged,
            jitter_microseconds: jitter,
        };
        over_a_bad_cable(faults, &sizes);
    }
}

/// How many connections are filled at most, to use up the memory.
const FULL: usize = 6;

/// A limit that `connections` idle ones reach if one less than [`FULL`] is full. Seven eighths are
/// for queues, and the rest is less than a socket needs.
fn room_for_less_than_full(connections: usize) -> usize {
    (connections * 2560 + (FULL - 1) * 4096).div_ceil(7) * 8
}

/// Fills connections, of which nothing is read, until the memory is used up. Returns how many are
/// full.
fn fill_all(world: &mut World, pairs: &[(Connection, Connection)]) -> usize {
    let full = pairs.iter().take_while(|(client, server)| {
        let is_full = fill(world, client, server, 3 * SECOND);
        world.run_for(3 * SECOND);
        is_full
    });
    let full = full.count();
    assert!((2..FULL).contains(&full), "{full} connections use up the memory");
    full
}

/// A host with memory for some idle connections and the full queues of some.
#[test]
fn without_memory_for_buffers_segments_are_lost_calls_fail_and_closing_resets() {
    let a = static_configuration(&[ADDRESS_A], 11);
    let mut b = static_configuration(&[ADDRESS_B], 22);
    b.maximum_connection_bytes = room_for_less_than_full(FULL + 2);
    let mut world = World::from(a, b);
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    let mut pairs = Vec::new();
    for _ in 0..FULL + 2 {
        pairs.push(world.pair(&listener));
        world.run_for(3 * SECOND);
    }
    // Connections of which nothing is read have the memory.
    let full = fill_all(&mut world, &pairs[..FULL]);
    let (client, server) = &pairs[FULL];
    client.try_send(b"later").unwrap();
    world.run_for(2 * SECOND);
    assert_eq!(server.try_receive(&mut [0; 9]), Err(Error::WouldBlock));
    assert_eq!(server.try_send(b"not yet"), Err(Error::WouldBlock));
    assert!(!server.readiness().writable);
    assert_eq!(server.shutdown(Shutdown::Write), Err(Error::OutOfMemory));
    assert!(world.b.stack.statistics().dropped_no_room > 0);
    // A connection that is closed does not wait for memory.
    let (client, server) = pairs.pop().unwrap();
    drop(server);
    // Its path may have expired, and then the reset is the answer to the next segment.
    client.try_send(b"still there?").unwrap();
    world.run_for(SECOND);
    assert_eq!(client.take_error(), Some(Error::ConnectionReset));
    // When the others have read, their buffers are freed, and what was lost arrives.
    for (_, server) in &pairs[..full] {
        assert_eq!(server.try_receive(&mut [0; 4096]), Ok(4096));
    }
    let server = &pairs[FULL].1;
    assert!(world.run_until(120 * SECOND, |_| server.try_receive(&mut [0; 9]) == Ok(5)));
    assert!(carry(&mut world, &pairs[FULL].1, &pairs[FULL].0, &message(1, 3000)));
}

/// A burst of segments comes for a connection on the fast path that gets no buffers: each is as if
/// it were lost, nothing is acknowledged, and all of them arrive, in order and once, when there is
/// memory again.
#[test]
fn a_burst_that_is_refused_arrives_when_there_is_memory() {
    refuse_a_burst(&[]);
}

/// The same if the program has not read everything: then the connection stays on the fast path.
#[test]
fn a_burst_that_is_refused_behind_unread_data_arrives_when_there_is_memory() {
    refuse_a_burst(&message(2, 2048));
}

/// `unread`: what has arrived before and is not read.
fn refuse_a_burst(unread: &[u8]) {
    let a = static_configuration(&[ADDRESS_A], 11);
    let mut b = static_configuration(&[ADDRESS_B], 22);
    b.maximum_connection_bytes = room_for_less_than_full(FULL + 1);
    let mut world = World::from(a, b);
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    let mut pairs = Vec::new();
    for _ in 0..FULL + 1 {
        pairs.push(world.pair(&listener));
        world.run_for(3 * SECOND);
    }
    let (client, server) = pairs.pop().unwrap();
    client.set_no_delay(true);
    if !unread.is_empty() {
        assert_eq!(client.try_send(unread), Ok(unread.len()));
        world.run_for(SECOND);
    }
    let full = fill_all(&mut world, &pairs);
    let before = world.b.stack.statistics();
    // Five segments, which arrive together.
    let burst = message(1, 5 * 300);
    for segment in burst.chunks(300) {
        assert_eq!(client.try_send(segment), Ok(300));
        world.run_for(10);
    }
    world.run_for(SECOND);
    let after = world.b.stack.statistics();
    assert_eq!(server.unread_bytes(), unread.len());
    assert_eq!(client.unacknowledged_bytes(), burst.len(), "something was acknowledged");
    let refused = after.dropped_no_room - before.dropped_no_room;
    assert!(refused >= 5, "{refused} segments were refused");
    for (_, other) in &pairs[..full] {
        assert_eq!(other.try_receive(&mut [0; 4096]), Ok(4096));
    }
    let mut received = Vec::new();
    let mut buffer = [0; 700];
    assert!(world.run_until(120 * SECOND, |_| {
        while let Ok(count @ 1..) = server.try_receive(&mut buffer) {
            received.extend_from_slice(&buffer[..count]);
        }
        received.len() >= unread.len() + burst.len()
    }));
    assert_eq!(received, [unread, &burst].concat());
    // It is as it was: requests of this connection take the fast path again.
    for round in 0..10 {
        exchange(&mut world, (&client, &server), round, (10, 20), 100);
    }
    let frames = world.b.stack.statistics().frames_fast;
    exchange(&mut world, (&client, &server), 11, (10, 20), 100);
    assert!(world.b.stack.statistics().frames_fast > frames, "it has left the fast path");
}

/// An exit from the fast path takes as long as several frames, so it counts as several.
#[test]
fn a_batch_ends_after_two_exits_from_the_fast_path() {
    const COUNT: usize = 4;
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    let pairs: Vec<_> = (0..COUNT).map(|_| world.pair(&listener)).collect();
    for (client, server) in &pairs {
        client.set_no_delay(true);
        server.set_no_delay(true);
        for round in 0..6 {
            exchange(&mut world, (client, server), round, (10, 20), 100);
        }
    }
    let catch = |world: &mut World, act: &dyn Fn(&Connection)| {
        let caught = Arc::new(Mutex::new(Vec::new()));
        let frames = caught.clone();
        world.a.outgoing.lock().unwrap().filter = Some(Box::new(move |frame| {
            frames.lock().unwrap().push(frame.to_vec());
            false
        }));
        pairs.iter().for_each(|(client, _)| act(client));
        world.a.outgoing.lock().unwrap().filter = None;
        let frames = std::mem::take(&mut *caught.lock().unwrap());
        assert_eq!(frames.len(), COUNT);
        frames
    };
    let taken = |world: &World, frames: &[Vec<u8>]| {
        let mut batch = world.b.stack.receive_batch();
        1 + frames.iter().take_while(|frame| batch.receive(frame)).count()
    };
    // Expected segments do not end it.
    let requests = catch(&mut world, &|client| assert_eq!(client.try_send(b"request"), Ok(7)));
    assert_eq!(taken(&world, &requests), 1 + COUNT);
    world.run_for(SECOND / 2);
    assert_eq!(times_left(&world), 0);
    let ends = catch(&mut world, &|client| client.shutdown(Shutdown::Write).unwrap());
    assert!(taken(&world, &ends) <= 2, "four exits in one batch");
    assert!((1..=2).contains(&times_left(&world)));
    // What was not taken is lost, and sent again.
    drop(pairs);
    world.run_for(100 * SECOND);
    assert_eq!(world.b.stack.statistics().connections_now, 0);
}
