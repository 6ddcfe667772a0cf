//! Acknowledgements that wait for the answer, and those that must not.

mod common;

use common::*;
use cops_net::{Connection, Listener};

/// The number of frames that both hosts have sent.
fn frames(world: &World) -> u64 {
    world.a.outgoing.lock().unwrap().carried + world.b.outgoing.lock().unwrap().carried
}

/// A connection on which the second, shorter segment of a message does not wait for the
/// acknowledgement of the first.
fn open(world: &mut World, listener: &Listener) -> (Connection, Connection) {
    let (client, server) = world.pair(listener);
    client.set_no_delay(true);
    server.set_no_delay(true);
    (client, server)
}

/// `rounds` of a message of `request` bytes from `a`, read in pieces, and an answer of `answer`
/// bytes, which `b` begins after `service` microseconds.
fn exchange(
    world: &mut World,
    (a, b): (&Connection, &Connection),
    rounds: usize,
    (request, answer): (usize, usize),
    service: u64,
) {
    for _ in 0..rounds {
        for (from, to, length, pause) in [(a, b, request, service), (b, a, answer, 0)] {
            assert_eq!(from.try_send(&vec![7; length]), Ok(length));
            let mut left = length;
            assert!(world.run_until(SECOND, |_| {
                // Until it would block, as a program that waits for the next message does.
                while let Ok(read) = to.try_receive(&mut [0; 700]) {
                    left -= read;
                }
                left == 0
            }));
            world.run_for(pause);
        }
    }
}

#[test]
fn a_request_of_two_segments_is_acknowledged_by_its_answer() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = open(&mut world, &listener);
    let pair = (&client, &server);
    exchange(&mut world, pair, 3, (1800, 1000), 3_000);
    for (sizes, expected) in [((1800, 1000), 3), ((1800, 1800), 4), ((1, 1), 2)] {
        let before = frames(&world);
        exchange(&mut world, pair, 50, sizes, 3_000);
        // Without it, each message of two segments is acknowledged by a frame of its own.
        assert_eq!(frames(&world) - before, 50 * expected, "{sizes:?} bytes");
    }
}

#[test]
fn a_slow_service_does_not_delay_acknowledgements_again_and_again() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = open(&mut world, &listener);
    let pair = (&client, &server);
    exchange(&mut world, pair, 3, (1800, 100), 1_000);
    // Sends 1,800 bytes, which are read at once. Returns the time to their acknowledgement.
    let acknowledged_after = |world: &mut World| {
        assert_eq!(client.try_send(&[7; 1800]), Ok(1800));
        let begin = world.now();
        assert!(world.run_until(SECOND, |_| {
            while server.try_receive(&mut [0; 700]).is_ok() {}
            client.unacknowledged_bytes() == 0
        }));
        let delay = world.now() - begin;
        world.run_for(20_000);
        delay
    };
    // The first acknowledgement waits in vain, for as long as that of a single segment.
    let delay = acknowledged_after(&mut world);
    assert!((10_000..=12_200).contains(&delay), "{delay} microseconds");
    // The next one does not wait: it takes a round trip.
    assert_eq!(acknowledged_after(&mut world), 100);
}

#[test]
fn a_stream_after_an_exchange_is_as_fast_as_one_before() {
    let time_of_a_stream = |exchanges: usize| {
        let mut world = World::new();
        let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
        let (client, server) = open(&mut world, &listener);
        exchange(&mut world, (&client, &server), exchanges, (1800, 1800), 1_000);
        let mut transfer = Transfer::new(400_000);
        let (begin, before) = (world.now(), frames(&world));
        assert!(world.run_until(600 * SECOND, |_| transfer.pump(&client, &server)));
        (world.now() - begin, frames(&world) - before)
    };
    let (before, after) = (time_of_a_stream(0), time_of_a_stream(10));
    println!("400,000 bytes: {before:?} microseconds and frames, after an exchange {after:?}");
    // 4,096 bytes for each round trip of 100 microseconds. Of the exchange remains that the last
    // acknowledgement waits.
    assert!(before.0 <= 20_000, "{before:?}");
    assert!(after.0 <= before.0 + 200, "{after:?} after {before:?}");
}
