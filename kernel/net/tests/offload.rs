//! Long segments, which a card divides or passes on: the same bytes arrive, in fewer frames.

mod common;

use std::sync::{Arc, Mutex};

use common::*;
use cops_net::Connection;

/// A connection of which the second end, the server's, is on the fast path.
fn connected_pair(world: &mut World) -> (Connection, Connection) {
    let listener = world.b.stack.listen(address("10.0.0.2:80"), 8).unwrap();
    let (client, server) = world.pair(&listener);
    for connection in [&client, &server] {
        connection.set_no_delay(true);
    }
    for _ in 0..8 {
        exchange(world, &client, &server, (20, 20));
    }
    (client, server)
}

/// A request and its answer, of so many bytes.
fn exchange(world: &mut World, client: &Connection, server: &Connection, bytes: (usize, usize)) {
    for (from, to, length) in [(client, server, bytes.0), (server, client, bytes.1)] {
        let mut transfer = transfer(length);
        assert!(world.run_until(600 * SECOND, |_| transfer.pump(from, to)), "{length} bytes");
    }
    for host in [&world.a, &world.b] {
        let wrong = host.outgoing.lock().unwrap().wrong;
        assert_eq!(wrong, 0, "long segments that are wrong");
    }
}

/// Records how much data the server sends with each frame.
fn record(world: &World) -> Arc<Mutex<Vec<usize>>> {
    let tape = Arc::new(Mutex::new(Vec::new()));
    let recorded = tape.clone();
    world.b.outgoing.lock().unwrap().filter = Some(Box::new(move |frame| {
        recorded.lock().unwrap().extend(Some(frame.len() - 54).filter(|&length| length > 0));
        true
    }));
    tape
}

/// A stream that is written with calls for more than there is room for.
fn transfer(total: usize) -> Transfer {
    Transfer { write_bytes: 8192, ..Transfer::new(total) }
}

/// What both hosts have sent: frames on the cable, and long segments for a card.
fn sent(world: &World) -> [(u64, u64); 2] {
    [&world.a, &world.b].map(|host| {
        let wire = host.outgoing.lock().unwrap();
        (wire.carried, wire.divided)
    })
}

/// Frames and long segments of an exchange.
fn cost(offload: Option<Offload>, bytes: (usize, usize)) -> [(u64, u64); 2] {
    let mut world = World::with_cards(offload);
    let (client, server) = connected_pair(&mut world);
    let before = sent(&world);
    exchange(&mut world, &client, &server, bytes);
    let after = sent(&world);
    std::array::from_fn(|host| (after[host].0 - before[host].0, after[host].1 - before[host].1))
}

#[test]
fn an_answer_of_two_segments_is_one_frame() {
    // A request of 15 x 15 matrices, and its answer.
    let bytes = (1816, 1816);
    assert_eq!(cost(None, bytes).map(|host| host.1), [0, 0]);
    assert_eq!(cost(None, bytes)[1].0, 2, "frames of the answer");
    assert_eq!(cost(Some(Offload::PassesOn), bytes)[1], (1, 1));
    assert_eq!(cost(Some(Offload::Divides), bytes)[1], (2, 1));
}

#[test]
fn what_fits_into_a_segment_is_not_left_to_the_card() {
    for offload in [Offload::Divides, Offload::PassesOn] {
        assert_eq!(cost(Some(offload), (1460, 1460)), cost(None, (1460, 1460)));
    }
}

/// A stream in one direction, and one in both: nothing is lost, repeated or out of order.
#[test]
fn a_stream_arrives() {
    for offload in [None, Some(Offload::Divides), Some(Offload::PassesOn)] {
        let mut world = World::with_cards(offload);
        let (client, server) = connected_pair(&mut world);
        for bytes in [(400_000, 400_000), (4030, 4031), (2920, 2921)] {
            exchange(&mut world, &client, &server, bytes);
        }
        assert_eq!(world.b.stack.statistics().dropped_checksum, 0);
    }
}

/// Frames of a long segment are lost, repeated, damaged and overtake each other.
#[test]
fn a_stream_arrives_over_a_bad_cable() {
    for seed in 0..3 {
        let mut world = World::with_cards(Some(Offload::Divides));
        let (client, server) = connected_pair(&mut world);
        world.set_faults(Faults {
            lost_per_thousand: 20,
            repeated_per_thousand: 20,
            damaged_per_thousand: 20,
            jitter_microseconds: 30 + 40 * seed,
        });
        for round in 0..8 {
            exchange(&mut world, &client, &server, (1816, 3900 - 150 * round));
        }
    }
}

/// The peer has room for a segment and a half: no more than that is sent.
#[test]
fn a_long_segment_is_no_longer_than_the_window() {
    for offload in [Offload::Divides, Offload::PassesOn] {
        let mut world = World::with_cards(Some(offload));
        let (client, server) = connected_pair(&mut world);
        let mut transfer = transfer(2000);
        transfer.push(&server);
        // The client acknowledges, and reads nothing.
        world.run_for(SECOND / 2);
        let tape = record(&world);
        transfer.total = 6000;
        transfer.push(&server);
        world.run_for(1000);
        let sent: usize = tape.lock().unwrap().iter().sum();
        assert!((1460..=2096).contains(&sent), "{sent} bytes into a window of 2096");
        assert!(world.run_until(600 * SECOND, |_| transfer.pump(&server, &client)));
    }
}

/// With Nagle's algorithm, a part of a segment does not go with the whole ones before it.
#[test]
fn nagle_holds_a_part_of_a_segment_back() {
    let mut world = World::with_cards(Some(Offload::PassesOn));
    let (client, server) = connected_pair(&mut world);
    server.set_no_delay(false);
    let tape = record(&world);
    exchange(&mut world, &client, &server, (20, 3500));
    assert_eq!(*tape.lock().unwrap(), [2920, 580]);
}
