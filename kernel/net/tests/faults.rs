//! Cables that lose, repeat, delay, reorder and damage frames; devices that are full; peers that
//! vanish.

mod common;

use common::*;
use cops_net::{DeviceFull, Error, FrameDevice, Shutdown, Stack};
use smoltcp::wire::{Ipv4Packet, TcpPacket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Sends `total` bytes in both directions through a faulty network, and checks all of them.
fn transfer_both_ways(faults: Faults, total: usize) -> World {
    let mut world = World::new();
    world.set_faults(faults);
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    let (mut up, mut down) = (Transfer::new(total), Transfer::new(total));
    let complete = world.run_until(3600 * SECOND, |_| {
        let up_complete = up.pump(&client, &server);
        down.pump(&server, &client) && up_complete
    });
    assert!(complete, "{} and {} of {total} bytes after an hour", up.received, down.received);
    drop((client, server));
    world.set_faults(Faults::default());
    world.run_for(120 * SECOND);
    for host in [&world.a, &world.b] {
        let statistics = host.stack.statistics();
        assert_eq!((statistics.connections_now, statistics.time_wait_now), (0, 0));
    }
    world
}

#[test]
fn a_perfect_cable() {
    transfer_both_ways(Faults::default(), 1_000_000);
}

#[test]
fn loss() {
    transfer_both_ways(Faults { lost_per_thousand: 50, ..Faults::default() }, 200_000);
}

#[test]
fn heavy_loss() {
    transfer_both_ways(Faults { lost_per_thousand: 300, ..Faults::default() }, 10_000);
}

#[test]
fn repetition() {
    transfer_both_ways(Faults { repeated_per_thousand: 300, ..Faults::default() }, 200_000);
}

#[test]
fn reordering() {
    transfer_both_ways(Faults { jitter_microseconds: 500, ..Faults::default() }, 200_000);
}

#[test]
fn damage_is_found_by_checksums() {
    let faults = Faults { damaged_per_thousand: 50, ..Faults::default() };
    let world = transfer_both_ways(faults, 100_000);
    let statistics = world.b.stack.statistics();
    assert!(statistics.dropped_malformed + statistics.dropped_not_for_us > 0, "{statistics:?}");
}

#[test]
fn everything_at_once() {
    let faults = Faults {
        lost_per_thousand: 50,
        repeated_per_thousand: 50,
        damaged_per_thousand: 20,
        jitter_microseconds: 300,
    };
    transfer_both_ways(faults, 100_000);
}

#[test]
fn a_single_lost_segment_is_retransmitted_when_its_timer_runs_out() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    world.run_for(SECOND);
    let mut lost = false;
    world.a.outgoing.lock().unwrap().filter = Some(Box::new(move |frame| {
        let data = tcp_flags_and_length(frame).is_some_and(|(_, length)| length > 0);
        !data || std::mem::replace(&mut lost, true)
    }));
    let begin = world.now();
    client.try_send(b"lost once").unwrap();
    assert!(world.run_until(10 * SECOND, |_| server.unread_bytes() == 9));
    let elapsed = world.now() - begin;
    assert!((SECOND..2 * SECOND).contains(&elapsed), "after {elapsed} us");
    assert!(world.a.stack.statistics().timers_fired > 0);
}

#[test]
fn a_lost_fin_and_a_lost_last_ack_are_made_good() {
    for lose_the_ack in [false, true] {
        let mut world = World::new();
        let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
        let (client, server) = world.pair(&listener);
        drop(client);
        world.run_for(SECOND / 100);
        let mut lost = false;
        let side = if lose_the_ack { &world.a.outgoing } else { &world.b.outgoing };
        side.lock().unwrap().filter = Some(Box::new(move |frame| {
            let wanted = tcp_flags_and_length(frame)
                .is_some_and(|(flags, _)| flags & FIN != 0 || lose_the_ack);
            !wanted || std::mem::replace(&mut lost, true)
        }));
        drop(server);
        world.run_for(SECOND / 2);
        assert_eq!(
            world.b.stack.statistics().connections_now,
            1,
            "the FIN is not acknowledged yet"
        );
        // If the ACK was lost, the repeated FIN finds a TIME-WAIT record without a socket.
        let record_left = world.a.stack.statistics().time_wait_now == 1;
        assert_eq!(record_left, lose_the_ack);
        world.run_for(3 * SECOND);
        assert_eq!(world.b.stack.statistics().connections_now, 0);
        assert_eq!(world.b.stack.statistics().resets_received, 0);
        world.run_for(30 * SECOND);
        assert_eq!(world.a.stack.statistics().time_wait_now, 0);
    }
}

#[test]
fn connecting_to_a_silent_host_times_out() {
    for silent in ["10.0.0.99:7", "10.0.0.2:7"] {
        let mut world = World::new();
        world.b.outgoing.lock().unwrap().filter =
            Some(Box::new(|frame| tcp_flags_and_length(frame).is_none()));
        let client = world.a.stack.connect(address(silent)).unwrap();
        let begin = world.now();
        assert!(world.run_until(600 * SECOND, |_| connected(&client).is_some()));
        assert_eq!(connected(&client), Some(Err(Error::TimedOut)), "{silent}");
        assert_eq!(world.now() - begin, 75 * SECOND);
        drop(client);
        world.run_for(SECOND);
        assert_eq!(world.a.stack.statistics().connections_now, 0);
        assert_eq!(world.a.stack.timers_armed(), 0);
    }
}

#[test]
fn a_peer_that_vanishes_with_our_data_unacknowledged_times_out() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, _server) = world.pair(&listener);
    world.b.outgoing.lock().unwrap().cut = true;
    client.try_send(b"is there a peer?").unwrap();
    world.run_for(299 * SECOND);
    assert_eq!(client.try_receive(&mut [0; 1]), Err(Error::WouldBlock));
    world.run_for(2 * SECOND);
    assert_eq!(client.try_receive(&mut [0; 1]), Err(Error::TimedOut));
    assert_eq!(client.take_error(), None);
}

#[test]
fn closed_connections_of_vanished_peers_do_not_stay() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    // One peer vanishes before our FIN is acknowledged, and one after, without sending its own.
    let (first, _first_server) = world.pair(&listener);
    let (second, _second_server) = world.pair(&listener);
    drop(second);
    world.run_for(SECOND);
    world.b.outgoing.lock().unwrap().cut = true;
    drop(first);
    world.run_for(50 * SECOND);
    assert_eq!(world.a.stack.statistics().connections_now, 2);
    world.run_for(20 * SECOND);
    assert_eq!(world.a.stack.statistics().connections_now, 0);
}

#[test]
fn a_full_device_stops_egress_and_room_continues_it() {
    let mut world = World::with(|configuration| {
        configuration.transmit_buffer_bytes = 65536;
        configuration.receive_buffer_bytes = 65536;
    });
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 64).unwrap();
    let pairs: Vec<_> = (0..16).map(|_| world.pair(&listener)).collect();
    world.a.outgoing.lock().unwrap().capacity = 2;
    let begin = world.now();
    let mut transfers: Vec<_> = pairs.iter().map(|_| Transfer::new(100_000)).collect();
    assert!(world.run_until(600 * SECOND, |_| {
        let both = transfers.iter_mut().zip(&pairs);
        both.map(|(transfer, (client, server))| transfer.pump(client, server))
            .filter(|done| !done)
            .count()
            == 0
    }));
    let statistics = world.a.stack.statistics();
    assert!(statistics.transmit_blocked > 100, "{statistics:?}");
    assert!(!world.a.stack.transmit_blocked());
    // Two frames per 50 us carry the 1.6 MB in some 30 ms; waiting for a timer would take a second.
    let elapsed = world.now() - begin;
    assert!(elapsed < SECOND / 2, "took {elapsed} us");
}

#[test]
fn the_doorbell_rings_once_per_batch() {
    let mut world = World::with(|configuration| {
        configuration.transmit_buffer_bytes = 32768;
        configuration.receive_buffer_bytes = 32768;
    });
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    let mut transfer = Transfer::new(500_000);
    assert!(world.run_until(60 * SECOND, |_| transfer.pump(&client, &server)));
    let wire = world.a.outgoing.lock().unwrap();
    assert!(
        wire.carried > 340 && wire.flushes < 4 * wire.carried,
        "{} {}",
        wire.carried,
        wire.flushes
    );
}

#[test]
fn room_in_the_device_alone_continues_egress() {
    // Datagrams in one direction only, so that no frame arrives and no timer expires that would
    // hide the fault.
    let mut world = World::new();
    let receiver = world.b.stack.bind_udp(address("0.0.0.0:53")).unwrap();
    let sender = world.a.stack.bind_udp(address("0.0.0.0:0")).unwrap();
    sender.try_send_to(b"hello", address("10.0.0.2:53")).unwrap();
    assert!(world.run_until(SECOND, |_| receiver.try_receive_from(&mut [0; 8]).is_ok()));
    world.a.outgoing.lock().unwrap().capacity = 1;
    for _ in 0..10 {
        sender.try_send_to(b"hello", address("10.0.0.2:53")).unwrap();
    }
    assert!(world.a.stack.transmit_blocked());
    let begin = world.now();
    let mut received = 0;
    assert!(world.run_until(SECOND, |_| {
        received += usize::from(receiver.try_receive_from(&mut [0; 8]).is_ok());
        received == 10
    }));
    assert_eq!(world.now() - begin, 10 * 50);
    assert!(!world.a.stack.transmit_blocked());
}

#[test]
fn a_device_that_becomes_free_just_before_the_mark_is_set_is_noticed() {
    /// The device is full at the second and third question (by egress, and before the mark is set),
    /// then free. Its completion interrupt came before the mark, so `transmit_ready` will not be
    /// called.
    struct Hasty {
        questions: u32,
        sent: Arc<AtomicUsize>,
    }
    impl FrameDevice for Hasty {
        fn hardware_address(&self) -> [u8; 6] {
            [2, 0, 0, 0, 0, 1]
        }
        fn has_room(&mut self) -> bool {
            self.questions += 1;
            !(2..=3).contains(&self.questions)
        }
        fn transmit(
            &mut self,
            length: usize,
            fill: &mut dyn FnMut(&mut [u8]),
        ) -> Result<(), DeviceFull> {
            fill(&mut vec![0; length]);
            self.sent.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }
    let sent = Arc::new(AtomicUsize::new(0));
    let device = Hasty { questions: 0, sent: sent.clone() };
    let clock = Arc::new(VirtualClock::default());
    let stack =
        Stack::new(static_configuration(&[ADDRESS_A], 1), clock, Some(Box::new(device))).unwrap();
    let socket = stack.bind_udp(address("0.0.0.0:0")).unwrap();
    for expected in 1..=3 {
        // A broadcast, so that no neighbour has to be known.
        socket.try_send_to(b"hello", address("255.255.255.255:9")).unwrap();
        assert_eq!(sent.load(Ordering::SeqCst), expected);
    }
    assert_eq!(stack.statistics().transmit_blocked, 1);
}

/// Exchanges during which smoltcp forgets data in flight: the window closed and opened again.
#[test]
fn a_connection_that_smoltcp_has_forgotten_continues() {
    let (mut stalls, mut seed) = (0, 0);
    // It is rare: some hundred exchanges, or thousands.
    while stalls == 0 {
        seed += 1;
        assert!(seed < 1000, "it never happens");
        let mut world = World::with(|configuration| configuration.fast_path = false);
        let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
        let (client, server) = world.pair(&listener);
        client.set_no_delay(true);
        server.set_no_delay(true);
        let mut random = Random(seed);
        world.set_faults(Faults {
            lost_per_thousand: random.next() % 40,
            repeated_per_thousand: random.next() % 40,
            damaged_per_thousand: random.next() % 20,
            jitter_microseconds: [0, 300, 20_000][(random.next() % 3) as usize],
        });
        for _ in 0..60 {
            let (up, down) = (1 + random.next() % 3000, 1 + random.next() % 6000);
            let pause = random.next() % 20_000;
            for (from, to, length) in [(&client, &server, up), (&server, &client, down)] {
                let mut transfer = Transfer::new(length as usize);
                assert!(world.run_until(600 * SECOND, |_| transfer.pump(from, to)), "seed {seed}");
                world.run_for(pause);
            }
        }
        stalls += world.a.stack.statistics().stalls + world.b.stack.statistics().stalls;
    }
}

/// A segment of the tape with this window.
fn with_window(frame: &[u8], window: u16) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let packet = Ipv4Packet::new_unchecked(&frame[14..]);
    let (source, destination) = (packet.src_addr().into(), packet.dst_addr().into());
    let mut segment = TcpPacket::new_unchecked(&mut frame[34..54]);
    segment.set_window_len(window);
    segment.fill_checksum(&source, &destination);
    frame
}

/// As above, each time: a segment acknowledges a part and closes the window, and the next one opens
/// it. What was in flight is lost. Also if the peer has closed its own direction before.
#[test]
fn what_is_lost_while_the_window_closes_is_sent_again() {
    for is_half_closed in [false, true] {
        let mut world = World::with(|configuration| configuration.fast_path = false);
        let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
        let (client, server) = world.pair(&listener);
        server.set_no_delay(true);
        if is_half_closed {
            client.shutdown(Shutdown::Write).unwrap();
        }
        world.run_for(SECOND);
        let tape = Arc::new(Mutex::new(Vec::new()));
        let recorded = tape.clone();
        world.a.outgoing.lock().unwrap().filter = Some(Box::new(move |frame| {
            recorded.lock().unwrap().push(frame.to_vec());
            false
        }));
        let mut segments = 0;
        world.b.outgoing.lock().unwrap().filter = Some(Box::new(move |frame| {
            segments += usize::from(tcp_flags_and_length(frame).is_some());
            segments <= 1
        }));
        assert_eq!(server.try_send(&[5; 2900]), Ok(2900));
        world.run_for(100_000);
        assert_eq!(client.unread_bytes(), 1460);
        let last = tape.lock().unwrap().last().unwrap().clone();
        for window in [0, 4096] {
            world.b.stack.receive(&with_window(&last, window));
        }
        world.a.outgoing.lock().unwrap().filter = None;
        world.b.outgoing.lock().unwrap().filter = None;
        let arrives = world.run_until(10 * SECOND, |_| client.unread_bytes() == 2900);
        assert!(arrives, "half closed: {is_half_closed}");
        assert!(!client.readiness().failed && !server.readiness().failed);
        assert_eq!(world.b.stack.statistics().stalls, 1);
    }
}
