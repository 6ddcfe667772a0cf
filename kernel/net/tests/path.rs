//! The direct way of the segments of a connection does what the complete way does.

mod common;

use common::*;
use cops_net::{Connection, Listener};
use std::sync::{Arc, Mutex};

/// The frames of both hosts in two transfers and a close, and how many segments were received the
/// direct way. With `complete`, each host hears news before each frame and each of its sends, so
/// that no segment that it receives goes the direct way.
fn frames_of_an_exchange(faults: Faults, complete: bool) -> (Vec<Vec<u8>>, u64) {
    let fast_path = faults.lost_per_thousand == 0;
    let mut world = World::with(|configuration| {
        configuration.transmit_buffer_bytes = 9000;
        // After a pause of a second both ways take the fast path, and one of them leaves it at
        // once: the socket made then knows another window.
        configuration.fast_path = fast_path;
    });
    let tape = Arc::new(Mutex::new(Vec::new()));
    if complete {
        world.a.before_each_frame = news(2, 1).into();
        world.b.before_each_frame = news(1, 2).into();
    }
    for host in [&mut world.a, &mut world.b] {
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
            news(2, 1).iter().for_each(|frame| world.a.stack.receive(frame));
            news(1, 2).iter().for_each(|frame| world.b.stack.receive(frame));
        }
        // On the fast path an acknowledgement waits for the answer also while data is in flight.
        let up = up.pump(&client, &server);
        let down = (up || !fast_path) && down.pump(&server, &client);
        up && down
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
    // And nearly no segment went the complete way for that.
    let statistics = world.b.stack.statistics();
    let complete = statistics.frames_received - statistics.frames_direct;
    assert!(complete < 12, "{complete} frames went the complete way");
    assert_eq!(statistics.fast_path_left, 0);
    // smoltcp still knows the neighbour.
    let datagrams = world.b.stack.bind_udp(address("0.0.0.0:0")).unwrap();
    datagrams.try_send_to(b"datagram", address("10.0.0.1:9")).unwrap();
    world.run_for(SECOND);
    assert_eq!(*requests.lock().unwrap(), before);
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

/// Pairs of connections of which the server end is on the fast path.
fn many_on_the_fast_path(
    world: &mut World,
    count: usize,
) -> (Listener, Vec<(Connection, Connection)>) {
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 64).unwrap();
    let pairs: Vec<_> = (0..count).map(|_| world.pair(&listener)).collect();
    for _ in 0..5 {
        exchange_all(world, &pairs);
    }
    let statistics = world.b.stack.statistics();
    assert_eq!(statistics.fast_path_entered - statistics.fast_path_left, count as u64);
    (listener, pairs)
}

/// A request and an answer of each of them, at the same time.
fn exchange_all(world: &mut World, pairs: &[(Connection, Connection)]) {
    for (client, _) in pairs {
        client.try_send(b"request").unwrap();
    }
    assert!(
        world.run_until(SECOND, |_| pairs.iter().all(|(_, server)| server.unread_bytes() == 7))
    );
    for (_, server) in pairs {
        assert_eq!(server.try_receive(&mut [0; 10]), Ok(7));
        server.try_send(b"answer").unwrap();
    }
    assert!(
        world.run_until(SECOND, |_| pairs.iter().all(|(client, _)| client.unread_bytes() == 6))
    );
    for (client, _) in pairs {
        assert_eq!(client.try_receive(&mut [0; 10]), Ok(6));
    }
}

/// How often a connection of `host` left the fast path during `steps`.
fn exits(world: &mut World, steps: impl FnOnce(&mut World)) -> u64 {
    let before = world.b.stack.statistics().fast_path_left;
    steps(world);
    world.b.stack.statistics().fast_path_left - before
}

/// A minute of requests of 50 connections, with ARP about others and about the peer that brings
/// nothing new every five seconds: all of it stays on the fast path.
#[test]
fn what_is_known_about_a_neighbour_neither_expires_nor_ends_in_use() {
    let mut world = World::new();
    let (_listener, pairs) = many_on_the_fast_path(&mut world, 50);
    let before = world.b.stack.statistics();
    let left = exits(&mut world, |world| {
        for round in 0..240 {
            if round % 20 == 10 {
                for frame in [
                    arp_request([2, 0, 0, 0, 0, 0x77], [10, 0, 0, 99]),
                    arp_reply([2, 0, 0, 0, 0, 0x77], [10, 0, 0, 66], [10, 0, 0, 2]),
                    arp_reply([2, 0, 0, 0, 0, 1], [10, 0, 0, 1], [10, 0, 0, 2]),
                ] {
                    world.b.stack.receive(&frame);
                }
            }
            exchange_all(world, &pairs);
            world.run_for(SECOND / 4);
        }
    });
    assert_eq!(left, 0);
    let after = world.b.stack.statistics();
    let [received, fast] =
        [after.frames_received - before.frames_received, after.frames_fast - before.frames_fast];
    println!("{fast} of {received} frames were received on the fast path");
    // The others are the ARP of this test.
    assert_eq!(received - fast, 36);
}

/// A peer of the second host changes its card; the paths to the first one stay.
#[test]
fn hostile_arp_ends_only_the_paths_to_the_address_it_names() {
    let mut world = World::new();
    let (_listener, pairs) = many_on_the_fast_path(&mut world, 5);
    let to_us = [10, 0, 0, 2];
    let left = exits(&mut world, |world| {
        for number in 0..3000_u32 {
            let [_, _, high, low] = number.to_be_bytes();
            let card = [2, 0, 0, high, low, 0x77];
            let host = if low == 1 { 3 } else { low };
            for frame in [
                // For itself and for others, to us.
                arp_reply(card, [10, 0, 0, host], to_us),
                // For the peer, but not to us, or not as ARP that smoltcp accepts.
                arp_reply(card, [10, 0, 0, 1], [10, 0, 0, 99]),
                arp_reply([3, 0, 0, high, low, 0x77], [10, 0, 0, 1], to_us),
                {
                    let mut strange = arp_reply(card, [10, 0, 0, 1], to_us);
                    strange[21] = 9;
                    strange
                },
            ] {
                world.b.stack.receive(&frame);
            }
            if number % 100 == 0 {
                exchange_all(world, &pairs);
            }
        }
        exchange_all(world, &pairs);
    });
    assert_eq!(left, 0);
    // As with smoltcp alone, the one that names the peer counts, and ends each path once.
    let left = exits(&mut world, |world| {
        for frame in news(1, 2) {
            world.b.stack.receive(&frame);
        }
        exchange_all(world, &pairs);
    });
    assert_eq!(left, 5);
}

/// The peer is behind a gateway: what it sends does not say where the gateway is. One connection
/// asks for all.
#[test]
fn one_connection_renews_the_path_through_a_gateway() {
    let behind = |own: &str, gateway: &str, seed| {
        let mut configuration = static_configuration(&[own], seed);
        let cops_net::EthernetAddressing::Static { gateways, .. } = &mut configuration.ethernet
        else {
            unreachable!()
        };
        gateways.push(gateway.parse().unwrap());
        configuration
    };
    // The hosts are in different networks, on one cable. Each has the other's card as its gateway.
    let mut world =
        World::from(behind("10.0.1.1", "10.0.1.9", 11), behind(ADDRESS_B, "10.0.0.9", 22));
    let at = |world: &World| {
        world.a.stack.receive(&arp_reply([2, 0, 0, 0, 0, 2], [10, 0, 1, 9], [10, 0, 1, 1]));
        world.b.stack.receive(&arp_reply([2, 0, 0, 0, 0, 1], [10, 0, 0, 9], [10, 0, 0, 2]));
    };
    at(&world);
    let (_listener, pairs) = many_on_the_fast_path(&mut world, 20);
    let left = exits(&mut world, |world| {
        for round in 0..400 {
            if round % 100 == 0 {
                at(world);
            }
            exchange_all(world, &pairs);
            world.run_for(SECOND / 4);
        }
    });
    // Each 7.5 seconds one of them.
    assert!((10..20).contains(&left), "{left} exits in 100 seconds");
    // The gateway is silent for more than a minute. smoltcp asks for it, and sends nothing.
    world.run_for(61 * SECOND);
    let sent = Arc::new(Mutex::new(Vec::new()));
    let tape = sent.clone();
    world.b.outgoing.lock().unwrap().filter = Some(Box::new(move |frame| {
        tape.lock().unwrap().push(frame[12..14].to_vec());
        true
    }));
    pairs[0].1.try_send(b"more").unwrap();
    assert_eq!(*sent.lock().unwrap(), [[8, 6]]);
}
