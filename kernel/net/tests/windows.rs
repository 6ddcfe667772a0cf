//! When a window that has grown is announced: neither in small steps, nor too late.

mod common;

use common::*;
use cops_net::{Connection, Listener};
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

/// The flags and the data length of each segment that each host has sent.
type Tape = Arc<Mutex<[Vec<(u8, usize)>; 2]>>;

fn record(world: &World) -> Tape {
    let tape = Tape::default();
    for (index, host) in [&world.a, &world.b].into_iter().enumerate() {
        let tape = tape.clone();
        host.outgoing.lock().unwrap().filter = Some(Box::new(move |frame| {
            tape.lock().unwrap()[index].extend(tcp_flags_and_length(frame));
            true
        }));
    }
    tape
}

fn count(tape: &Tape) -> [usize; 2] {
    let tape = tape.lock().unwrap();
    [tape[0].len(), tape[1].len()]
}

/// A connection of which the server, if it may, is on the fast path.
fn open(fast_path: bool) -> (World, Listener, Connection, Connection) {
    let mut world = World::with(|configuration| configuration.fast_path = fast_path);
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    let (client, server) = world.pair(&listener);
    client.set_no_delay(true);
    server.set_no_delay(true);
    for _ in 0..6 {
        for (from, to) in [(&client, &server), (&server, &client)] {
            assert_eq!(from.try_send(&[7; 20]), Ok(20));
            assert!(world.run_until(SECOND, |_| to.try_receive(&mut [0; 40]) == Ok(20)));
            world.run_for(100);
        }
    }
    assert_eq!(world.b.stack.statistics().fast_path_entered > 0, fast_path);
    (world, listener, client, server)
}

/// The client sends as much as there is room for, all the time. The server reads the head of a
/// message, and then the rest, and answers what it has read `round` microseconds later, as a server
/// with a thousand other connections does. Returns the frames of both hosts for each request.
fn frames_of_a_request(fast_path: bool, round: u64) -> [f64; 2] {
    const REQUEST: usize = 1816;
    let (mut world, _listener, client, server) = open(fast_path);
    let (mut part, mut requests, mut before) = (0, 0, [0; 2]);
    let tape = record(&world);
    for number in 0..30 {
        if number == 5 {
            (before, requests) = (count(&tape), 0);
        }
        let mut complete = 0;
        loop {
            let wanted = if part < 24 { 24 - part } else { REQUEST - part };
            let Ok(read @ 1..) = server.try_receive(&mut vec![0; wanted]) else { break };
            part += read;
            if part == REQUEST {
                (part, complete) = (0, complete + 1);
            }
        }
        let pump = |_: &mut World| {
            while client.try_send(&[1; REQUEST]).is_ok() {}
            while client.try_receive(&mut [0; 4096]).is_ok() {}
            false
        };
        world.run_until(round, pump);
        for _ in 0..complete {
            let mut left = REQUEST;
            assert!(world.run_until(SECOND, |_| {
                left -= server.try_send(&[2; REQUEST][..left]).unwrap_or(0);
                left == 0
            }));
            world.run_until(200, pump);
        }
        requests += complete;
    }
    let after = count(&tape);
    if fast_path {
        assert_eq!(world.b.stack.statistics().fast_path_left, 0, "{round} us");
    }
    [0, 1].map(|host| (after[host] - before[host]) as f64 / f64::from(requests))
}

#[test]
fn an_overloaded_connection_needs_few_frames_for_a_request() {
    for round in [1_000, 30_000, 250_000] {
        let [received, sent] = frames_of_a_request(true, round);
        let [of_smoltcp, by_smoltcp] = frames_of_a_request(false, round);
        println!(
            "{round} us: {received:.2} frames received and {sent:.2} sent for each request; \
             smoltcp {of_smoltcp:.2} and {by_smoltcp:.2}"
        );
        // Both ends' data is four segments. An acknowledgement of each pair of them is two more;
        // and one announcement of the window is enough for two requests.
        // An acknowledgement waits for an answer that comes within 180 ms. What is left is one
        // announcement for two requests.
        let most = if round < 180_000 { 2.5 } else { 3.75 };
        assert!(sent <= most && sent + 0.25 < by_smoltcp, "{sent} frames sent, {round} us");
        assert!(received <= 3.25, "{received} frames received, {round} us");
    }
}

/// A server that reads the head of a message, and then thinks, is sent nothing small: the client
/// learns of a window only when that has room for a segment; of one that converses, for half of the
/// buffer.
#[test]
fn a_window_grows_by_segments() {
    let (mut world, _listener, client, server) = open(true);
    let tape = record(&world);
    let is_told = |world: &mut World, count: usize| {
        let before = tape.lock().unwrap()[1].len();
        assert_eq!(server.try_receive(&mut vec![0; count]), Ok(count));
        world.run_for(1);
        tape.lock().unwrap()[1].len() > before
    };
    for (converses, step) in [(true, 2048), (false, 1460)] {
        assert!(fill(&mut world, &client, &server, SECOND));
        world.run_for(SECOND / 2);
        assert!(!is_told(&mut world, 24));
        assert!(!is_told(&mut world, step - 25), "a byte less than a step, {converses}");
        assert!(is_told(&mut world, 1), "a step, {converses}");
        // And then only twice as much.
        assert!(!is_told(&mut world, step - 1));
        assert!(is_told(&mut world, 1), "two steps, {converses}");
        world.run_for(SECOND / 2);
        while server.try_receive(&mut [0; 4096]).is_ok() {}
    }
}

/// What makes a window known is lost, and the program reads no more. The client asks, and learns
/// of the space whatever its size. The bytes that follow are all that it sends.
#[test]
fn a_client_that_asks_learns_of_a_small_window_too() {
    for read in [1, 100, 1459, 2000, 4096] {
        let (mut world, _listener, client, server) = open(true);
        assert!(fill(&mut world, &client, &server, SECOND));
        world.run_for(SECOND / 2);
        assert_eq!(client.try_send(&[5; 4096]), Ok(4096));
        world.b.outgoing.lock().unwrap().cut = true;
        assert_eq!(server.try_receive(&mut vec![0; read]), Ok(read));
        world.run_for(SECOND / 10);
        world.b.outgoing.lock().unwrap().cut = false;
        let came = world.run_until(20 * SECOND, |_| server.unread_bytes() == 4096);
        assert!(came, "{read} bytes were read, and {} are unread", server.unread_bytes());
    }
}

/// A stream in one direction is not held up, whatever the pieces are in which it is read. A window
/// for each round trip would take 4.9 ms.
#[test]
fn a_stream_that_is_read_in_pieces_is_as_fast_as_with_smoltcp() {
    let stream = |fast_path, piece: usize| {
        let (mut world, _listener, client, server) = open(fast_path);
        let tape = record(&world);
        let (began, mut left, mut sent) = (world.now(), 200_000, 0);
        assert!(world.run_until(600 * SECOND, |_| {
            sent += client.try_send(&[3; 4096][..(200_000_usize - sent).min(4096)]).unwrap_or(0);
            while let Ok(read @ 1..) = server.try_receive(&mut vec![0; piece]) {
                left -= read;
            }
            left == 0
        }));
        (world.now() - began, count(&tape).iter().sum::<usize>())
    };
    let (mut fast, mut slow) = (Vec::new(), Vec::new());
    for piece in [100, 500, 1000, 1460, 2000, 4096] {
        fast.push(stream(true, piece));
        slow.push(stream(false, piece));
    }
    println!("microseconds and frames: {fast:?}, of smoltcp {slow:?}");
    // How segments and pieces meet decides about one of them.
    let time = |streams: &[(u64, usize)]| streams.iter().map(|stream| stream.0).sum::<u64>();
    assert!(time(&fast) <= time(&slow), "{fast:?} {slow:?}");
    assert!(fast.iter().all(|stream| stream.0 < 8_000), "{fast:?}");
    assert!(fast.iter().all(|stream| stream.1 < 480), "{fast:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Reads of any size at any time, answers or none, and a cable that loses frames.
    #[test]
    fn no_window_stays_closed(
        steps in prop::collection::vec((1..4096usize, 0..300_000u64, 0..400usize), 1..40),
        lost in prop::sample::select(vec![0, 50, 200]),
    ) {
        let (mut world, _listener, client, server) = open(true);
        world.set_faults(Faults { lost_per_thousand: lost, ..Faults::default() });
        let (mut sent, mut received) = (0, 0);
        let mut pump = |received: &mut usize, size: usize| {
            let bytes: Vec<u8> = (sent..sent + 4096).map(Transfer::byte).collect();
            sent += client.try_send(&bytes).unwrap_or(0);
            while client.try_receive(&mut [0; 500]).is_ok() {}
            let mut buffer = vec![0; size];
            let read = server.try_receive(&mut buffer).unwrap_or(0);
            for byte in &buffer[..read] {
                assert_eq!(*byte, Transfer::byte(*received));
                *received += 1;
            }
        };
        for (size, pause, answer) in steps {
            pump(&mut received, size);
            let _ = server.try_send(&vec![0; answer]);
            world.run_for(pause);
        }
        world.set_faults(Faults::default());
        // Whatever state that has left: everything goes on.
        let goal = received + 50_000;
        let is_reached = world.run_until(400 * SECOND, |_| {
            pump(&mut received, 700);
            received >= goal
        });
        prop_assert!(is_reached);
    }
}

/// A question for a closed window, with the only byte that there is to send, acknowledges what has
/// just arrived. smoltcp does not note that, and acknowledges once more; it is polled for that.
#[test]
fn a_question_for_a_closed_window_may_acknowledge() {
    for fast_path in [true, false] {
        let (mut world, _listener, client, server) = open(fast_path);
        assert!(fill(&mut world, &client, &server, SECOND));
        world.run_for(SECOND);
        assert_eq!(client.try_send(&[1]), Ok(1));
        for round in 0..400 {
            let _ = server.try_send(&[2]);
            world.run_for(9_000 + 37 * round);
            let _ = client.try_receive(&mut [0; 10]);
        }
        assert_eq!(client.unacknowledged_bytes(), 1);
        assert_eq!(server.try_receive(&mut [0; 4096]), Ok(4096));
        assert!(world.run_until(5 * SECOND, |_| server.unread_bytes() == 1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Writes of a byte and of many, in both directions, and a cable that loses frames.
    #[test]
    fn bytes_meet_closed_windows(
        steps in prop::collection::vec((0..3usize, 1..4096usize, 0..2_000_000u64), 1..80),
        lost in prop::sample::select(vec![0, 50, 200, 400]),
        no_delay: bool,
    ) {
        let (mut world, _listener, client, server) = open(true);
        client.set_no_delay(no_delay);
        server.set_no_delay(no_delay);
        world.set_faults(Faults { lost_per_thousand: lost, ..Faults::default() });
        let (mut sent, mut received) = (0, 0);
        let mut send = |size: usize| {
            let bytes: Vec<u8> = (sent..sent + size).map(Transfer::byte).collect();
            sent += client.try_send(&bytes).unwrap_or(0);
            sent
        };
        let mut receive = |size: usize| {
            let mut buffer = vec![0; size];
            let read = server.try_receive(&mut buffer).unwrap_or(0);
            for byte in &buffer[..read] {
                assert_eq!(*byte, Transfer::byte(received));
                received += 1;
            }
            received
        };
        for (kind, size, pause) in steps {
            match kind {
                0 => {
                    send(size);
                }
                1 => {
                    receive(size);
                }
                _ => {
                    send(1);
                    let _ = server.try_send(&[1]);
                    send(1);
                }
            }
            world.run_for(pause);
        }
        world.set_faults(Faults::default());
        let goal = send(1);
        prop_assert!(world.run_until(400 * SECOND, |_| receive(4096) == goal));
    }
}

/// The window was closed, and nothing has happened for so long that the connection leaves the fast
/// path when the program reads.
#[test]
fn a_window_that_opens_is_announced_by_a_connection_that_leaves_the_fast_path() {
    for (seconds, fast_path) in [(2, true), (28, true), (80, true), (28, false)] {
        let (mut world, _listener, client, server) = open(fast_path);
        let mut left = 8000;
        assert!(world.run_until(SECOND, |_| {
            left -= client.try_send(&[5; 8000][..left]).unwrap_or(0);
            left == 0
        }));
        world.run_for(seconds * SECOND);
        assert_eq!(server.try_receive(&mut [0; 8000]), Ok(4096), "its buffer was full");
        let begin = world.now();
        assert!(world.run_until(200 * SECOND, |_| server.unread_bytes() == 8000 - 4096));
        let took = world.now() - begin;
        assert!(took < 2000, "{took} us, after {seconds} s, fast path: {fast_path}");
    }
}
