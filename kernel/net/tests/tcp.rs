//! TCP from the point of view of client and server.

mod common;

use common::*;
use cops_net::{Clock, Configuration, Connection, Error, Payer, Stack};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
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
    // ARP request and reply, SYN, SYN-ACK: four times the latency of the cable.
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
fn a_port_without_a_listener_resets() {
    let mut world = World::new();
    let client = world.a.stack.connect(address("10.0.0.2:7")).unwrap();
    let (flag, waker) = Flag::new();
    assert!(client.poll_connected(&mut Context::from_waker(&waker)).is_pending());
    assert!(world.run_until(SECOND, |_| flag.take()));
    assert_eq!(connected(&client), Some(Err(Error::ConnectionRefused)));
    assert_eq!(client.take_error(), Some(Error::ConnectionRefused));
    assert_eq!(client.take_error(), None);
    assert_eq!(client.try_send(b"x"), Err(Error::BrokenPipe));
    assert_eq!(client.try_receive(&mut [0; 1]), Err(Error::NotConnected));
    drop(client);
    assert_eq!(world.a.stack.statistics().connections_now, 0);
}

#[test]
fn a_backlog_of_three_holds_three() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 3).unwrap();
    let clients: Vec<_> =
        (0..5).map(|_| world.a.stack.connect(address("10.0.0.2:7")).unwrap()).collect();
    world.run_for(SECOND / 2);
    let established = || clients.iter().filter(|client| connected(client) == Some(Ok(()))).count();
    assert_eq!(established(), 3);
    assert!(world.b.stack.statistics().dropped_backlog_full >= 2);
    assert!(listener.readiness().readable);
    // After the accepts there is room for the repeated SYNs of the other two.
    let accepted: Vec<_> = (0..3).map(|_| listener.try_accept().unwrap()).collect();
    assert!(listener.try_accept().is_err());
    assert!(world.run_until(10 * SECOND, |_| established() == 5));
    assert_eq!(accepted.len(), 3);
}

#[test]
fn half_open_connections_count_and_expire() {
    let mut world =
        World::with(|configuration| configuration.handshake_timeout_microseconds = 5 * SECOND);
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 2).unwrap();
    // A client without final ACKs: they never arrive.
    world.a.outgoing.lock().unwrap().filter = Some(Box::new(|frame| {
        tcp_flags_and_length(frame).is_none_or(|(flags, _)| flags & SYN != 0)
    }));
    let clients: Vec<_> =
        (0..3).map(|_| world.a.stack.connect(address("10.0.0.2:7")).unwrap()).collect();
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
fn dropping_a_listener_resets_what_was_not_accepted() {
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
    // Exactly 4096 bytes wait at either end.
    assert_eq!(
        (transfer.sent, server.unread_bytes(), client.unacknowledged_bytes()),
        (8192, 4096, 4096)
    );
    assert_eq!(client.try_send(b"x"), Err(Error::WouldBlock));
    let begin = world.now();
    assert!(world.run_until(60 * SECOND, |_| transfer.pump(&client, &server)));
    // Driven by window updates, not by probes one second apart.
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
    // The pair of addresses is still in use; the port itself is free. As on Linux, that is the
    // error of a connection that finds no port.
    let again = world.a.stack.bind_tcp(address("0.0.0.0:5555")).unwrap();
    let (error, again) = again.connect(address("10.0.0.2:7")).err().unwrap();
    assert_eq!(error, Error::AddressNotAvailable);
    world.run_for(SECOND);
    assert_eq!(world.a.stack.statistics().time_wait_now, 1);
    let (error, again) = again.connect(address("10.0.0.2:7")).err().unwrap();
    assert_eq!(error, Error::AddressNotAvailable);
    // It keeps the port.
    assert_eq!(world.a.stack.bind_tcp(address("0.0.0.0:5555")).err(), Some(Error::AddressInUse));
    world.run_for(90 * SECOND);
    assert!(again.connect(address("10.0.0.2:7")).is_ok());
}

#[test]
fn a_listener_that_ends_keeps_its_port() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let waiting = world.a.stack.connect(address("10.0.0.2:7")).unwrap();
    assert!(world.run_until(SECOND, |_| listener.readiness().readable));
    let binding = listener.into_binding().unwrap();
    assert_eq!(binding.local_address(), address("0.0.0.0:7"));
    let refused = world.a.stack.connect(address("10.0.0.2:7")).unwrap();
    assert!(world.run_until(SECOND, |_| refused.readiness().failed));
    assert!(world.run_until(SECOND, |_| waiting.readiness().failed), "it is reset");
    assert_eq!(world.b.stack.bind_tcp(address("0.0.0.0:7")).err(), Some(Error::AddressInUse));
    let listener = binding.listen(4).unwrap();
    let client = world.a.stack.connect(address("10.0.0.2:7")).unwrap();
    assert!(world.run_until(SECOND, |_| listener.readiness().readable));
    assert_eq!(listener.try_accept().unwrap().remote_address(), client.local_address());
}

#[test]
fn the_backlog_of_a_listener_can_be_changed() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 1).unwrap();
    let connect = |world: &World| world.a.stack.connect(address("10.0.0.2:7")).unwrap();
    let clients = [(); 3].map(|()| connect(&world));
    let established = || clients.iter().filter(|client| client.try_connected().is_ok()).count();
    world.run_for(10 * SECOND);
    assert_eq!(established(), 1);
    listener.set_backlog(3);
    assert!(world.run_until(20 * SECOND, |_| established() == 3), "the SYNs are repeated");
    // Those that wait stay when it is smaller.
    listener.set_backlog(0);
    let late = connect(&world);
    for _ in 0..3 {
        world.run_for(10 * SECOND);
        assert_eq!(late.try_connected(), Err(Error::WouldBlock));
        assert!(listener.try_accept().is_ok());
    }
    assert!(world.run_until(60 * SECOND, |_| late.try_connected().is_ok()));
}

#[test]
fn without_a_card_only_this_machine_is_reached() {
    struct Still;
    impl Clock for Still {
        fn now_microseconds(&self) -> u64 {
            0
        }
    }
    let stack = Stack::new(Configuration::default(), Arc::new(Still), None).unwrap();
    let _listener = stack.listen(address("[::]:80"), 4).unwrap();
    let udp = stack.bind_udp(address("0.0.0.0:53")).unwrap();
    for remote in ["8.8.8.8:80", "[2001:db8::1]:80"] {
        assert_eq!(stack.connect(address(remote)).err(), Some(Error::NetworkUnreachable));
    }
    assert_eq!(udp.try_send_to(b"?", address("8.8.8.8:53")), Err(Error::NetworkUnreachable));
    assert!(stack.connect(address("127.0.0.5:80")).is_ok());
    assert!(stack.connect(address("[::1]:80")).is_ok());
    assert!(udp.try_send_to(b"?", address("127.0.0.1:53")).is_ok());
}

#[test]
fn loopback_needs_no_cable() {
    let mut world = World::new();
    world.a.outgoing.lock().unwrap().cut = true;
    // Our own Ethernet address is reached over loopback too.
    for target in
        ["127.0.0.1:7", "127.9.8.7:7", "[::1]:7", "10.0.0.1:7", "[fd00::1]:7", "0.0.0.0:7"]
    {
        let listener = world.a.stack.listen(address("[::]:7"), 4).unwrap();
        let client = world.a.stack.connect(address(target)).unwrap();
        // No step of the world is needed: the handshake completes within `connect`.
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
    let written = client.try_send_with(5000, |buffer| {
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

/// Pays for so many connections at a time.
struct Purse(Arc<AtomicUsize>);

impl Payer for Purse {
    fn charge(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    fn release(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn connections_wait_to_be_accepted_only_if_that_is_paid_for() {
    let mut world = World::new();
    let left = Arc::new(AtomicUsize::new(3));
    let binding = world.b.stack.bind_tcp(address("0.0.0.0:7")).unwrap();
    let listener = binding.listen_paid_by(Box::new(Purse(left.clone())), 16).unwrap();
    let mut clients: Vec<_> =
        (0..5).map(|_| world.a.stack.connect(address("10.0.0.2:7")).unwrap()).collect();
    world.run_until(SECOND / 2, |_| false);
    let established = |clients: &[Connection]| {
        clients.iter().filter(|client| client.try_connected().is_ok()).count()
    };
    assert_eq!((established(&clients), left.load(Relaxed)), (3, 0));
    assert!(world.b.stack.statistics().dropped_backlog_full >= 2);
    // Each that is accepted makes room for another one, and is not paid for any more.
    let accepted = [listener.try_accept().unwrap(), listener.try_accept().unwrap()];
    assert_eq!(left.load(Relaxed), 2);
    assert!(world.run_until(60 * SECOND, |_| established(&clients) == 5));
    assert_eq!(left.load(Relaxed), 0);
    drop(accepted);
    // What is half open and fails is paid for no longer, nor is what a listener leaves behind.
    drop(listener.try_accept().unwrap());
    assert_eq!(left.load(Relaxed), 1);
    clients.push(world.a.stack.connect(address("10.0.0.2:7")).unwrap());
    let taken = world.run_until(SECOND, |_| left.load(Relaxed) == 0);
    assert!(taken, "a connection that is half open costs nothing");
    clients.pop().unwrap().abort();
    drop(listener);
    assert!(world.run_until(60 * SECOND, |_| left.load(Relaxed) == 3));
}

/// Both over loopback, where the bytes are in smoltcp's ring, and over Ethernet, where the
/// connection is on the fast path after some exchanges.
#[test]
fn a_peek_sees_all_bytes_wherever_they_are() {
    for target in ["127.0.0.1:7", "10.0.0.2:7"] {
        let mut world = World::new();
        let host = if target.starts_with("127") { &world.a } else { &world.b };
        let listener = host.stack.listen(address("0.0.0.0:7"), 4).unwrap();
        let (client, server) = world.pair_at(&listener, address(target));
        assert_eq!(server.try_peek(&mut [0; 9]), Err(Error::WouldBlock));
        // The buffer has 4,096 bytes: a record begins at each of its places.
        for round in 0..4096 {
            let record = [round as u8, (round >> 8) as u8, 3, 4, 5];
            assert_eq!(client.try_send(&record), Ok(5));
            assert!(world.run_until(SECOND, |_| server.unread_bytes() == 5));
            let (mut header, mut rest) = ([0; 4], [0; 9]);
            assert_eq!(server.try_peek(&mut header), Ok(4), "{target}, round {round}");
            assert_eq!(header, record[..4]);
            assert_eq!(server.try_peek(&mut rest), Ok(5), "{target}, round {round}");
            assert_eq!(rest[..5], record);
            assert_eq!(server.try_receive(&mut rest), Ok(5));
            assert_eq!(rest[..5], record);
        }
        drop(client);
        assert!(world.run_until(SECOND, |_| server.readiness().end_of_stream));
        assert_eq!(server.try_peek(&mut [0; 9]), Ok(0));
    }
}

#[test]
fn a_steady_stream_never_waits_for_a_delayed_acknowledgement() {
    // Small buffers and messages of all sizes: neither Nagle's algorithm nor the 10 ms delay of an
    // acknowledgement may show.
    for target in ["127.0.0.1:7", "10.0.0.2:7"] {
        for length in [100, 1000, 1460, 3000, 8192] {
            let mut world = World::new();
            let host = if target.starts_with("127") { &world.a } else { &world.b };
            let listener = host.stack.listen(address("0.0.0.0:7"), 4).unwrap();
            let (client, server) = world.pair_at(&listener, address(target));
            let (message, mut sent, mut received) = (vec![1; length], 0, 0);
            let begin = world.now();
            assert!(world.run_until(60 * SECOND, |_| {
                loop {
                    let more =
                        if sent < 400_000 { client.try_send(&message).unwrap_or(0) } else { 0 };
                    let taken = server.try_receive(&mut [0; 2000]).unwrap_or(0);
                    (sent, received) = (sent + more, received + taken);
                    if more + taken == 0 {
                        return received >= 400_000;
                    }
                }
            }));
            // 4096 bytes per round trip of 100 us take 10 ms; loopback takes no virtual time.
            let elapsed = world.now() - begin;
            let limit = if target.starts_with("127") { 0 } else { 20_000 };
            assert!(elapsed <= limit, "{target}, messages of {length}: {elapsed} us");
        }
    }
}

#[test]
fn an_acknowledgement_that_went_out_with_an_answer_asks_for_no_service() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    world.run_for(SECOND);
    let before = world.b.stack.statistics().timers_fired;
    let mut byte = [0];
    for round in 0..200 {
        for (from, to) in [(&client, &server), (&server, &client)] {
            from.try_send(&[round]).unwrap();
            assert!(world.run_until(SECOND, |_| to.unread_bytes() == 1));
            assert_eq!(to.try_receive(&mut byte), Ok(1));
            assert_eq!(byte, [round]);
        }
        world.run_for(1_000);
    }
    // Each request was acknowledged by its answer, each answer by the next request, long before the
    // times at which acknowledgements of their own were due.
    assert_eq!(world.b.stack.statistics().timers_fired, before);
}
