//! What a TCP client and server expect of each other.

mod common;

use common::*;
use cops_net::{Error, Shutdown};
use std::task::{Context, Poll, Waker};

#[test]
fn echo_over_both_ip_versions() {
    for listen_at in ["0.0.0.0:7", "[::]:7", "10.0.0.2:7", "[fd00::2]:7"] {
        let mut world = World::new();
        let listener = world.b.stack.listen(address(listen_at), 4).unwrap();
        let (client, server) = world.pair(&listener);
        assert_eq!(client.remote_address(), server.local_address());
        assert_eq!(client.local_address(), server.remote_address());
        assert_eq!(client.try_send(b"hello"), Ok(5));
        let mut buffer = [0; 16];
        assert!(world.run_until(SECOND, |_| server.readiness().readable));
        assert_eq!(server.try_receive(&mut buffer), Ok(5));
        assert_eq!(server.try_send(&buffer[..5]), Ok(5));
        assert!(world.run_until(SECOND, |_| client.readiness().readable));
        assert_eq!(client.try_receive(&mut buffer), Ok(5));
        assert_eq!(&buffer[..5], b"hello");
        assert_eq!(client.try_receive(&mut buffer), Err(Error::WouldBlock));
    }
}

#[test]
fn a_dual_stack_listener_takes_ipv4_clients() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("[::]:7"), 4).unwrap();
    let client = world.a.stack.connect(address("10.0.0.2:7")).unwrap();
    assert!(world.run_until(SECOND, |_| connected(&client) == Some(Ok(()))));
    let mapped = world.a.stack.connect(address("[::ffff:10.0.0.2]:7")).unwrap();
    assert!(world.run_until(SECOND, |_| connected(&mapped) == Some(Ok(()))));
    world.run_for(SECOND);
    assert!(listener.try_accept().is_ok() && listener.try_accept().is_ok());
}

#[test]
fn the_first_syn_waits_for_arp_and_not_for_a_timer() {
    let mut world = World::new();
    let _listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let begin = world.now();
    let client = world.a.stack.connect(address("10.0.0.2:7")).unwrap();
    assert!(world.run_until(SECOND, |_| connected(&client) == Some(Ok(()))));
    // ARP there and back, SYN, SYN-ACK: four times the latency of the cable.
    assert_eq!(world.now() - begin, 200);
}

#[test]
fn a_lost_arp_request_is_repeated() {
    let mut world = World::new();
    let _listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let mut first = true;
    world.a.outgoing.lock().unwrap().filter = Some(Box::new(move |_| !std::mem::take(&mut first)));
    let client = world.a.stack.connect(address("10.0.0.2:7")).unwrap();
    assert!(world.run_until(5 * SECOND, |_| connected(&client) == Some(Ok(()))));
}

#[test]
fn half_close_lets_the_other_direction_go_on() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    client.try_send(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.try_send(b"more"), Err(Error::BrokenPipe));

    let mut buffer = [0; 16];
    assert!(world.run_until(SECOND, |_| server.unread_bytes() == 8));
    assert_eq!(server.try_receive(&mut buffer), Ok(8));
    assert!(world.run_until(SECOND, |_| server.readiness().end_of_stream));
    assert_eq!(server.try_receive(&mut buffer), Ok(0));

    let mut transfer = Transfer::new(50_000);
    assert!(world.run_until(60 * SECOND, |_| transfer.pump(&server, &client)));
    server.shutdown(Shutdown::Write).unwrap();
    assert!(world.run_until(SECOND, |_| client.readiness().end_of_stream));
    assert_eq!(client.try_receive(&mut buffer), Ok(0));
    assert!(!client.readiness().failed && !server.readiness().failed);
}

#[test]
fn the_last_bytes_are_readable_after_the_peer_has_closed() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    server.try_send(b"farewell").unwrap();
    drop(server);
    // Both sides close; then TIME-WAIT passes with the bytes unread.
    client.shutdown(Shutdown::Write).unwrap();
    world.run_for(60 * SECOND);
    let mut buffer = [0; 16];
    assert_eq!(client.try_receive(&mut buffer), Ok(8));
    assert_eq!(&buffer[..8], b"farewell");
    assert_eq!(client.try_receive(&mut buffer), Ok(0));
}

#[test]
fn unread_bytes_survive_time_wait_on_the_side_that_closed_first() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    client.shutdown(Shutdown::Write).unwrap();
    world.run_for(SECOND);
    server.try_send(b"farewell").unwrap();
    drop(server);
    world.run_for(60 * SECOND);
    let mut buffer = [0; 5];
    assert_eq!(client.try_receive(&mut buffer), Ok(5));
    assert_eq!(client.try_receive(&mut buffer), Ok(3));
    assert_eq!(client.try_receive(&mut buffer), Ok(0));
    drop(client);
    world.run_for(60 * SECOND);
    assert_eq!(world.a.stack.statistics().connections_now, 0);
}

#[test]
fn nobody_listens() {
    let mut world = World::new();
    let client = world.a.stack.connect(address("10.0.0.2:7")).unwrap();
    let (flag, waker) = Flag::new();
    assert!(client.poll_connected(&mut Context::from_waker(&waker)).is_pending());
    assert!(world.run_until(SECOND, |_| flag.take()));
    assert_eq!(connected(&client), Some(Err(Error::ConnectionRefused)));
    assert_eq!(client.take_error(), Some(Error::ConnectionRefused));
    assert_eq!(client.take_error(), None);
    assert_eq!(client.try_send(b"x"), Err(Error::ConnectionRefused));
    drop(client);
    assert_eq!(world.a.stack.statistics().connections_now, 0);
}

#[test]
fn a_reset_in_the_middle_of_a_transfer() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    client.try_send(&[1; 3000]).unwrap();
    world.run_for(SECOND);
    let (flag, waker) = Flag::new();
    client.register_receive_waker(&waker);
    server.abort();
    assert!(world.run_until(SECOND, |_| flag.take()), "the reader is woken");
    assert_eq!(client.try_receive(&mut [0; 10]), Err(Error::ConnectionReset));
    assert_eq!(client.try_send(b"x"), Err(Error::ConnectionReset));
    let readiness = client.readiness();
    assert!(readiness.readable && readiness.writable && readiness.failed);
    // What the aborting side had received it may still read; then it learns of its own abort.
    let mut buffer = [0; 4096];
    assert_eq!(server.try_receive(&mut buffer), Ok(3000));
    assert_eq!(server.try_receive(&mut buffer), Err(Error::ConnectionAborted));
    assert_eq!(world.a.stack.statistics().resets_received, 1);
    assert_eq!(world.b.stack.statistics().resets_sent, 1);
}

#[test]
fn closing_with_unread_bytes_resets_and_without_does_not() {
    for unread in [true, false] {
        let mut world = World::new();
        let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
        let (client, server) = world.pair(&listener);
        if unread {
            client.try_send(b"never read").unwrap();
            world.run_for(SECOND);
        }
        drop(server);
        world.run_for(SECOND);
        let expected = if unread { Err(Error::ConnectionReset) } else { Ok(0) };
        assert_eq!(client.try_receive(&mut [0; 10]), expected, "unread: {unread}");
    }
}

#[test]
fn what_arrives_for_a_closed_connection_resets_it() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    drop(server);
    world.run_for(SECOND);
    client.try_send(b"too late").unwrap();
    world.run_for(SECOND);
    assert_eq!(client.try_send(b"x"), Err(Error::ConnectionReset));
    assert_eq!(world.b.stack.statistics().connections_now, 0);
}

#[test]
fn queued_bytes_are_delivered_after_the_sender_is_dropped() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    let mut transfer = Transfer::new(4096);
    transfer.push(&client);
    assert_eq!(transfer.sent, 4096);
    drop(client);
    assert!(world.run_until(10 * SECOND, |_| {
        transfer.pull(&server);
        transfer.received == 4096
    }));
    assert!(world.run_until(SECOND, |_| server.try_receive(&mut [0; 1]) == Ok(0)));
}

#[test]
fn a_backlog_of_three_holds_three() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 3).unwrap();
    let clients: Vec<_> = (0..5).map(|_| world.a.stack.connect(address("10.0.0.2:7")).unwrap()).collect();
    world.run_for(SECOND / 2);
    let established = || clients.iter().filter(|client| connected(client) == Some(Ok(()))).count();
    assert_eq!(established(), 3);
    assert!(world.b.stack.statistics().dropped_backlog_full >= 2);
    assert!(listener.readiness().readable);
    // With room made, the repeated SYNs of the other two are let in.
    let accepted: Vec<_> = (0..3).map(|_| listener.try_accept().unwrap()).collect();
    assert!(listener.try_accept().is_err());
    assert!(world.run_until(10 * SECOND, |_| established() == 5));
    assert_eq!(accepted.len(), 3);
}

#[test]
fn half_open_connections_count_and_expire() {
    let mut world = World::with(|configuration| configuration.handshake_timeout_microseconds = 5 * SECOND);
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 2).unwrap();
    // A client whose final ACKs never arrive.
    world.a.outgoing.lock().unwrap().filter =
        Some(Box::new(|frame| tcp_flags_and_length(frame).is_none_or(|(flags, _)| flags & SYN != 0)));
    let clients: Vec<_> = (0..3).map(|_| world.a.stack.connect(address("10.0.0.2:7")).unwrap()).collect();
    world.run_for(2 * SECOND);
    assert!(listener.try_accept().is_err());
    assert_eq!(world.b.stack.statistics().connections_now, 2);
    assert!(world.b.stack.statistics().dropped_backlog_full > 0);
    drop(clients);
    world.run_for(120 * SECOND);
    assert_eq!(world.b.stack.statistics().connections_now, 0);
    assert!(world.b.stack.statistics().timeouts >= 2);
}

#[test]
fn dropping_a_listener_resets_who_was_not_accepted() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let client = world.a.stack.connect(address("10.0.0.2:7")).unwrap();
    assert!(world.run_until(SECOND, |_| listener.readiness().readable));
    drop(listener);
    world.run_for(SECOND);
    assert_eq!(client.try_receive(&mut [0; 1]), Err(Error::ConnectionReset));
    assert_eq!(world.b.stack.statistics().connections_now, 0);
    // The port is free at once.
    world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
}

#[test]
fn accept_wakes_its_waiter_once_per_connection() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (flag, waker) = Flag::new();
    assert!(listener.poll_accept(&mut Context::from_waker(&waker)).is_pending());
    let _client = world.a.stack.connect(address("10.0.0.2:7")).unwrap();
    world.run_for(SECOND);
    assert_eq!(flag.count.load(std::sync::atomic::Ordering::SeqCst), 1);
    assert!(matches!(listener.poll_accept(&mut Context::from_waker(&waker)), Poll::Ready(Ok(_))));
}

#[test]
fn all_readers_and_writers_of_a_connection_are_woken() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    let readers: Vec<_> = (0..3).map(|_| Flag::new()).collect();
    for (_, waker) in &readers {
        assert!(server.poll_receive(&mut Context::from_waker(waker), &mut [0; 1]).is_pending());
    }
    while client.try_send(&[0; 1000]).is_ok() {}
    let writers: Vec<_> = (0..3).map(|_| Flag::new()).collect();
    for (_, waker) in &writers {
        assert!(client.poll_send(&mut Context::from_waker(waker), &[0; 1]).is_pending());
    }
    world.run_for(SECOND);
    assert!(readers.iter().chain(&writers).all(|(flag, _)| flag.take()));
}

#[test]
fn a_writer_against_a_full_window_resumes_when_the_reader_reads() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    let mut transfer = Transfer::new(100_000);
    for _ in 0..20 {
        transfer.push(&client);
        world.run_for(SECOND);
    }
    // 4096 bytes wait at either end, and not one more.
    assert_eq!((transfer.sent, server.unread_bytes(), client.unacknowledged_bytes()), (8192, 4096, 4096));
    assert_eq!(client.try_send(b"x"), Err(Error::WouldBlock));
    let begin = world.now();
    assert!(world.run_until(60 * SECOND, |_| transfer.pump(&client, &server)));
    // Driven by window updates, not by probes a second apart.
    assert!(world.now() - begin < SECOND, "took {} us", world.now() - begin);
}

#[test]
fn a_lost_window_update_is_probed_for() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    let mut transfer = Transfer::new(20_000);
    for _ in 0..5 {
        transfer.push(&client);
        world.run_for(SECOND);
    }
    world.b.outgoing.lock().unwrap().cut = true;
    transfer.pull(&server);
    world.run_for(SECOND / 10);
    world.b.outgoing.lock().unwrap().cut = false;
    assert!(world.run_until(120 * SECOND, |_| transfer.pump(&client, &server)));
}

#[test]
fn keep_alive_ends_a_connection_whose_peer_is_gone_and_keeps_one_whose_peer_is_there() {
    for cut in [false, true] {
        let mut world = World::new();
        let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
        let (client, _server) = world.pair(&listener);
        client.set_keep_alive(Some(2 * SECOND));
        world.run_for(SECOND);
        let before = world.a.outgoing.lock().unwrap().carried;
        world.b.outgoing.lock().unwrap().cut = cut;
        world.run_for(60 * SECOND);
        let probes = world.a.outgoing.lock().unwrap().carried - before;
        if cut {
            assert!((3..=6).contains(&probes), "{probes} probes before giving up");
            assert_eq!(client.try_receive(&mut [0; 1]), Err(Error::TimedOut));
            assert_eq!(world.a.stack.statistics().timeouts, 1);
        } else {
            assert!((25..=35).contains(&probes), "{probes} probes in a minute");
            assert_eq!(client.try_receive(&mut [0; 1]), Err(Error::WouldBlock));
        }
    }
}

#[test]
fn an_idle_connection_without_keep_alive_lives_for_days_and_costs_nothing() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    world.run_for(SECOND);
    let before = (world.a.stack.statistics(), world.b.stack.statistics());
    world.run_for(3 * 86_400 * SECOND);
    let after = (world.a.stack.statistics(), world.b.stack.statistics());
    assert_eq!(before, after);
    client.try_send(b"still there?").unwrap();
    assert!(world.run_until(5 * SECOND, |_| server.readiness().readable));
}

#[test]
fn ports_are_exclusive_and_come_back() {
    let world = World::new();
    let stack = &world.b.stack;
    let first = stack.listen(address("0.0.0.0:80"), 1).unwrap();
    assert_eq!(stack.listen(address("10.0.0.2:80"), 1).err(), Some(Error::AddressInUse));
    drop(first);
    let binding = stack.bind_tcp(address("10.0.0.2:0")).unwrap();
    assert!(binding.local_address().port() >= 49152);
    assert_eq!(stack.bind_tcp(binding.local_address()).err(), Some(Error::AddressInUse));
    let local = binding.local_address();
    drop(binding);
    stack.bind_tcp(local).unwrap();
    assert_eq!(stack.bind_tcp(address("10.0.0.77:80")).err(), Some(Error::AddressNotAvailable));
    assert_eq!(stack.connect(address("10.0.0.1:0")).err(), Some(Error::InvalidArgument));
    assert_eq!(stack.connect(address("224.0.0.1:80")).err(), Some(Error::InvalidArgument));
    assert_eq!(stack.connect(address("8.8.8.8:80")).err(), Some(Error::NetworkUnreachable));
    assert_eq!(stack.connect(address("10.0.0.255:80")).err(), Some(Error::NetworkUnreachable));
}

#[test]
fn a_bound_port_is_the_source_of_its_connection() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let binding = world.a.stack.bind_tcp(address("0.0.0.0:5555")).unwrap();
    let client = binding.connect(address("10.0.0.2:7")).unwrap();
    assert!(world.run_until(SECOND, |_| listener.readiness().readable));
    assert_eq!(listener.try_accept().unwrap().remote_address(), address("10.0.0.1:5555"));
    assert_eq!(world.a.stack.bind_tcp(address("0.0.0.0:5555")).err(), Some(Error::AddressInUse));
    drop(client);
    // The pair of addresses is still in TIME-WAIT, the port itself is free.
    let again = world.a.stack.bind_tcp(address("0.0.0.0:5555")).unwrap();
    assert_eq!(again.connect(address("10.0.0.2:7")).err(), Some(Error::AddressInUse));
    world.run_for(90 * SECOND);
    let again = world.a.stack.bind_tcp(address("0.0.0.0:5555")).unwrap();
    assert!(again.connect(address("10.0.0.2:7")).is_ok());
}

#[test]
fn loopback_needs_no_cable() {
    let mut world = World::new();
    world.a.outgoing.lock().unwrap().cut = true;
    // Our own Ethernet address is reached over loopback as well.
    for target in ["127.0.0.1:7", "127.9.8.7:7", "[::1]:7", "10.0.0.1:7", "[fd00::1]:7", "0.0.0.0:7"] {
        let listener = world.a.stack.listen(address("[::]:7"), 4).unwrap();
        let client = world.a.stack.connect(address(target)).unwrap();
        // Not one step of the world: the handshake is done within `connect`.
        assert_eq!(connected(&client), Some(Ok(())), "{target}");
        let server = listener.try_accept().unwrap();
        let mut transfer = Transfer::new(200_000);
        assert!(world.run_until(60 * SECOND, |_| transfer.pump(&client, &server)), "{target}");
        assert_eq!(client.remote_address(), server.local_address());
        assert_eq!(world.a.outgoing.lock().unwrap().carried, 0);
        drop((client, server));
        world.run_for(30 * SECOND);
    }
    assert_eq!(world.a.stack.statistics().connections_now, 0);
    assert_eq!(world.a.stack.statistics().time_wait_now, 0);
}

#[test]
fn sending_and_receiving_in_place() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    let written = client.try_send_with(|buffer| {
        buffer[..3].copy_from_slice(b"abc");
        (3, "anything")
    });
    assert_eq!(written, Ok("anything"));
    assert!(world.run_until(SECOND, |_| server.readiness().readable));
    assert_eq!(server.try_receive_with(|bytes| (1, bytes.to_vec())), Ok(b"abc".to_vec()));
    assert_eq!(server.try_receive_with(|bytes| (usize::MAX, bytes.to_vec())), Ok(b"bc".to_vec()));
    assert_eq!(server.try_receive_with(|bytes| (0, bytes.len())), Err(Error::WouldBlock));
    drop(client);
    assert!(world.run_until(SECOND, |_| server.readiness().end_of_stream));
    let context = &mut Context::from_waker(Waker::noop());
    assert_eq!(server.poll_receive_with(context, |bytes| (0, bytes.len())), Poll::Ready(Ok(0)));
}

#[test]
fn simultaneous_close() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    drop((client, server));
    world.run_for(SECOND);
    let (a, b) = (world.a.stack.statistics(), world.b.stack.statistics());
    assert_eq!((a.connections_now, b.connections_now), (0, 0));
    assert_eq!((a.time_wait_now, b.time_wait_now), (1, 1));
    assert_eq!((a.resets_sent, b.resets_sent), (0, 0));
    world.run_for(20 * SECOND);
    assert_eq!(world.a.stack.statistics().time_wait_now + world.b.stack.statistics().time_wait_now, 0);
}
