//! The direct way of the segments of a connection does what the complete way does.

mod common;

use common::*;
use std::sync::{Arc, Mutex};

/// News of a neighbour, which begins a new epoch and changes nothing else: a stranger is asked for.
fn news() -> Vec<u8> {
    arp_request([2, 0, 0, 0, 0, 0x77], [10, 0, 0, 99])
}

/// The frames of both hosts in two transfers and a close, and how many segments were received the
/// direct way. With `complete`, each host hears news before each frame and each of its sends, so
/// that no segment that it receives goes the direct way.
fn frames_of_an_exchange(faults: Faults, complete: bool) -> (Vec<Vec<u8>>, u64) {
    let mut world = World::with(|configuration| {
        configuration.transmit_buffer_bytes = 9000;
        // After a pause of a second both ways take the fast path, and one of them leaves it at
        // once: the socket made then knows another window.
        configuration.fast_path = faults.lost_per_thousand == 0;
    });
    let tape = Arc::new(Mutex::new(Vec::new()));
    for host in [&mut world.a, &mut world.b] {
        host.before_each_frame = complete.then(news);
        let tape = tape.clone();
        host.outgoing.lock().unwrap().filter = Some(Box::new(move |frame| {
            tape.lock().unwrap().push(frame.to_vec());
            true
        }));
    }
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    let (client, server) = world.pair(&listener);
    world.set_faults(faults);
    let (mut up, mut down) = (Transfer::new(60_000), Transfer::new(30_000));
    let all = world.run_until(600 * SECOND, |world| {
        if complete {
            world.a.stack.receive(&news());
            world.b.stack.receive(&news());
        }
        up.pump(&client, &server) & down.pump(&server, &client)
    });
    assert!(all, "the transfers end");
    client.shutdown(cops_net::Shutdown::Write).unwrap();
    world.run_for(10 * SECOND);
    drop((client, server));
    world.run_for(100 * SECOND);
    let direct =
        [&world.a, &world.b].map(|host| host.stack.statistics().frames_direct).iter().sum();
    let frames = std::mem::take(&mut *tape.lock().unwrap());
    (frames, direct)
}

fn both_ways_send_the_same(faults: Faults) {
    let (direct, count) = frames_of_an_exchange(faults, false);
    let (complete, none) = frames_of_an_exchange(faults, true);
    assert_eq!(none, 0);
    assert!(count > 60, "{count} of {} frames were received the direct way", direct.len());
    for (index, (direct, complete)) in direct.iter().zip(&complete).enumerate() {
        assert_eq!(direct, complete, "frame {index}");
    }
    assert_eq!(direct.len(), complete.len());
}

#[test]
fn the_same_frames_over_a_perfect_cable() {
    both_ways_send_the_same(Faults::default());
}

#[test]
fn the_same_frames_over_a_bad_cable() {
    both_ways_send_the_same(Faults {
        lost_per_thousand: 30,
        repeated_per_thousand: 30,
        damaged_per_thousand: 30,
        jitter_microseconds: 400,
    });
}

#[test]
fn a_new_hardware_address_counts_from_the_next_segment() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    let (client, server) = world.pair(&listener);
    for _ in 0..3 {
        client.try_send(b"request").unwrap();
        assert!(world.run_until(SECOND, |_| server.try_receive(&mut [0; 10]) == Ok(7)));
        server.try_send(b"answer").unwrap();
        assert!(world.run_until(SECOND, |_| client.try_receive(&mut [0; 10]) == Ok(6)));
    }
    assert!(world.b.stack.statistics().frames_direct > 0, "the direct way is in use");
    world.run_for(SECOND);
    // The host of 10.0.0.1 has got another card.
    let card = [2, 0, 0, 0, 0, 0x55];
    world.b.stack.receive(&arp_request(card, [10, 0, 0, 2]));
    let target = Arc::new(Mutex::new(Vec::new()));
    let seen = target.clone();
    world.b.outgoing.lock().unwrap().filter = Some(Box::new(move |frame| {
        if tcp_flags_and_length(frame).is_some() {
            seen.lock().unwrap().push(frame[..6].to_vec());
        }
        true
    }));
    server.try_send(b"more").unwrap();
    assert_eq!(*target.lock().unwrap(), [card]);
}

#[test]
fn a_neighbour_in_use_is_asked_for_once() {
    let mut world = World::new();
    let requests = Arc::new(Mutex::new(0));
    for host in [&world.a, &world.b] {
        let requests = requests.clone();
        host.outgoing.lock().unwrap().filter = Some(Box::new(move |frame| {
            *requests.lock().unwrap() += u32::from(frame[12..14] == [8, 6]);
            true
        }));
    }
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    let (client, server) = world.pair(&listener);
    let before = *requests.lock().unwrap();
    for _ in 0..600 {
        client.try_send(b"request").unwrap();
        assert!(world.run_until(SECOND, |_| server.try_receive(&mut [0; 10]) == Ok(7)));
        server.try_send(b"answer").unwrap();
        assert!(world.run_until(SECOND, |_| client.try_receive(&mut [0; 10]) == Ok(6)));
        world.run_for(SECOND / 2);
    }
    // Entries of the neighbour cache live for a minute after the last packet; this took five.
    assert_eq!(*requests.lock().unwrap(), before);
    // That is because one segment in ten seconds goes the complete way; the others do not.
    let statistics = world.b.stack.statistics();
    let complete = statistics.frames_received - statistics.frames_direct;
    assert!((30..60).contains(&complete), "{complete} frames went the complete way");
    assert!(statistics.frames_direct > 500, "{} the direct one", statistics.frames_direct);
}

#[test]
fn an_acknowledgement_leaves_after_ten_to_twelve_milliseconds() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    let (client, server) = world.pair(&listener);
    world.run_for(SECOND);
    for round in 0..50 {
        client.try_send(b"1").unwrap();
        assert!(world.run_until(SECOND, |_| server.try_receive(&mut [0; 2]) == Ok(1)));
        let begin = world.now();
        assert!(world.run_until(SECOND, |_| client.unacknowledged_bytes() == 0));
        // The wire takes 50 microseconds.
        let delay = world.now() - begin - 50;
        assert!((10_000..=12_048).contains(&delay), "{delay} microseconds");
        world.run_for(3_000 + 77 * round);
    }
}
