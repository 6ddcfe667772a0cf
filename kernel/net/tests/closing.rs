//! How TCP connections end: normally, half-closed, with a reset, by silence; and that none ends
//! early.

mod common;

use common::*;
use cops_net::{Connection, Error, KeepAlive, Listener, Shutdown};
use std::sync::{Arc, Mutex};

#[test]
fn half_close_leaves_the_other_direction_open() {
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

/// As on Linux: a program that waits by edge would otherwise never get the event.
#[test]
fn the_end_of_the_stream_is_reported_before_the_bytes_in_front_of_it_are_read() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    client.try_send(b"farewell").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    world.run_for(SECOND);
    let mut buffer = [0; 4];
    for count in [4, 4, 0, 0] {
        let readiness = server.readiness();
        assert!(readiness.readable && readiness.end_of_stream && !readiness.closed, "{count}");
        assert_eq!(server.try_receive(&mut buffer), Ok(count));
    }
    // The program itself shuts down the direction.
    server.try_send(b"an answer").unwrap();
    world.run_for(SECOND);
    assert!(!client.readiness().end_of_stream);
    client.shutdown(Shutdown::Read).unwrap();
    assert!(client.readiness().end_of_stream && client.readiness().readable);
    // A reset behind bytes.
    let (client, server) = world.pair(&listener);
    server.try_send(b"farewell").unwrap();
    world.run_for(SECOND);
    server.abort();
    world.run_for(SECOND);
    assert_eq!(client.unread_bytes(), 8);
    assert!(client.readiness().end_of_stream && client.readiness().closed);
}

#[test]
fn a_connection_is_connected_from_its_handshake_to_its_end() {
    let mut world = World::new();
    let refused = world.a.stack.connect(address("10.0.0.2:7")).unwrap();
    assert!(!refused.is_connected());
    world.run_for(SECOND);
    assert!(refused.readiness().failed && !refused.is_connected());
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    // With a socket, and on the fast path.
    for seconds in [0, 3] {
        let (client, server) = world.pair(&listener);
        world.run_for(seconds * SECOND);
        assert!(client.is_connected() && server.is_connected());
        server.shutdown(Shutdown::Write).unwrap();
        world.run_for(SECOND);
        assert!(client.is_connected() && server.is_connected(), "one direction is open");
        client.shutdown(Shutdown::Write).unwrap();
        world.run_for(SECOND);
        assert!(!client.is_connected() && !server.is_connected());
    }
    let (client, server) = world.pair(&listener);
    server.abort();
    world.run_for(SECOND);
    assert!(!client.is_connected() && !server.is_connected());
}

/// As on Linux, it fails, whichever direction is shut down. A connection that has been established
/// since is only shut down.
#[test]
fn a_connection_that_begins_can_be_shut_down() {
    for direction in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        let mut world = World::new();
        let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
        world.b.outgoing.lock().unwrap().cut = true;
        let client = world.a.stack.connect(address("10.0.0.2:7")).unwrap();
        let (flag, waker) = Flag::new();
        let mut context = std::task::Context::from_waker(&waker);
        assert!(client.poll_connected(&mut context).is_pending());
        assert_eq!(client.shutdown(direction), Ok(()));
        assert!(flag.take(), "the call that waits is woken");
        assert_eq!(client.try_connected(), Err(Error::ConnectionAborted));
        assert_eq!(client.take_error(), Some(Error::ConnectionAborted));
        assert_eq!(client.shutdown(direction), Err(Error::NotConnected));
        // The answer comes too late.
        world.b.outgoing.lock().unwrap().cut = false;
        world.run_for(40 * SECOND);
        assert!(listener.try_accept().is_err());
        assert_eq!(world.a.stack.statistics().connections_opened, 1);
        drop(client);
        assert_eq!(world.a.stack.statistics().connections_now, 0);

        let client = world.a.stack.connect(address("10.0.0.2:7")).unwrap();
        assert_eq!(client.try_connected(), Err(Error::WouldBlock));
        assert!(world.run_until(SECOND, |_| client.try_connected() == Ok(())));
        assert_eq!(client.shutdown(direction), Ok(()));
        world.run_for(SECOND);
        assert_eq!((client.try_connected(), client.take_error()), (Ok(()), None));
        let server = listener.try_accept().unwrap();
        assert_eq!(server.readiness().end_of_stream, direction != Shutdown::Read);
        assert!(!server.readiness().failed);
    }
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
fn a_reset_in_the_middle_of_a_transfer() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    client.try_send(&[1; 3000]).unwrap();
    world.run_for(SECOND);
    let (flag, waker) = Flag::new();
    assert!(!client.register_receive_waker(&waker), "there is nothing to receive yet");
    server.abort();
    assert!(world.run_until(SECOND, |_| flag.take()), "the reader is woken");
    let readiness = client.readiness();
    assert!(readiness.readable && readiness.writable && readiness.failed);
    assert_eq!(client.try_receive(&mut [0; 10]), Err(Error::ConnectionReset));
    assert_eq!(client.try_send(b"x"), Err(Error::BrokenPipe));
    let readiness = client.readiness();
    assert!(readiness.readable && readiness.writable && !readiness.failed);
    // The aborting side may still read what it had received; then it gets its own abort.
    let mut buffer = [0; 4096];
    assert_eq!(server.try_receive(&mut buffer), Ok(3000));
    assert_eq!(server.try_receive(&mut buffer), Err(Error::ConnectionAborted));
    assert_eq!(world.a.stack.statistics().resets_received, 1);
    assert_eq!(world.b.stack.statistics().resets_sent, 1);
}

/// As on Linux: by whichever asks first, after the bytes in front of it.
#[test]
fn a_failure_is_reported_once_and_then_the_connection_is_closed() {
    type Ask = fn(&Connection) -> Result<usize, Error>;
    let ways: [Ask; 5] = [
        |client| client.try_receive(&mut [0; 10]),
        |client| client.try_receive_with(|bytes| (bytes.len(), bytes.len())),
        |client| client.try_peek(&mut [0; 10]),
        |client| client.try_send(b"x"),
        |client| client.take_error().map_or(Ok(0), Err),
    ];
    // With and without a direction that this side has shut down.
    for (way, shut) in ways.iter().flat_map(|way| [(way, false), (way, true)]) {
        let mut world = World::new();
        let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
        let (client, server) = world.pair(&listener);
        server.try_send(b"an answer").unwrap();
        client.try_send(b"never read").unwrap();
        if shut {
            client.shutdown(Shutdown::Write).unwrap();
        }
        world.run_for(SECOND);
        drop(server);
        world.run_for(SECOND);
        assert_eq!(client.try_receive(&mut [0; 10]), Ok(9));
        assert!(client.readiness().failed);
        assert_eq!(way(&client), Err(Error::ConnectionReset));
        for _ in 0..2 {
            let ready = client.readiness();
            assert!(ready.readable && ready.writable && ready.closed && !ready.failed);
            for (index, way) in ways.iter().enumerate() {
                let expected = if index == 3 { Err(Error::BrokenPipe) } else { Ok(0) };
                assert_eq!(way(&client), expected);
            }
            // Registering says that a read does not wait, and is no report.
            client.restore_error(|error| error == Error::BrokenPipe);
            assert!(client.register_receive_waker(&Flag::new().1));
        }
        // A caller that has not passed it on.
        client.restore_error(|error| error == Error::ConnectionReset);
        assert!(client.readiness().failed && client.register_receive_waker(&Flag::new().1));
        assert_eq!(way(&client), Err(Error::ConnectionReset));
        assert_eq!(client.shutdown(Shutdown::Both), Err(Error::NotConnected));
    }
}

#[test]
fn registering_says_whether_there_is_something_to_receive_already() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    let (flag, waker) = Flag::new();
    assert!(!client.register_receive_waker(&waker));
    server.try_send(b"x").unwrap();
    world.run_for(SECOND);
    assert!(flag.take());
    assert!(client.register_receive_waker(&waker), "a byte");
    assert_eq!(client.try_receive(&mut [0; 1]), Ok(1));
    assert!(!client.register_receive_waker(&waker));
    drop(server);
    world.run_for(SECOND);
    assert!(flag.take());
    assert!(client.register_receive_waker(&waker), "the end of the stream");
    client.abort();
    assert!(client.register_receive_waker(&waker), "an error");
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
fn keep_alive_ends_a_connection_whose_peer_is_gone_and_keeps_one_whose_peer_is_there() {
    for cut in [false, true] {
        let mut world = World::new();
        let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
        let (client, server) = world.pair(&listener);
        let keep_alive = KeepAlive { idle_seconds: 10, interval_seconds: 2, probes: 3 };
        client.set_keep_alive(Some(keep_alive));
        world.run_for(SECOND);
        // What the peer says resets the time.
        server.try_send(b"hello").unwrap();
        world.run_for(SECOND);
        let probes = |world: &World| world.a.outgoing.lock().unwrap().carried;
        let before = probes(&world);
        world.b.outgoing.lock().unwrap().cut = cut;
        world.run_for(8 * SECOND);
        assert_eq!(probes(&world) - before, 0, "it is not silent for long enough");
        world.run_for(2 * SECOND);
        assert_eq!(probes(&world) - before, 1);
        if cut {
            world.run_for(4 * SECOND);
            assert_eq!(probes(&world) - before, 3);
            assert_eq!(client.try_receive(&mut [0; 9]), Ok(5));
            assert_eq!(client.try_receive(&mut [0; 1]), Err(Error::WouldBlock));
            world.run_for(2 * SECOND);
            assert_eq!(client.try_receive(&mut [0; 1]), Err(Error::TimedOut));
            assert_eq!(world.a.stack.statistics().timeouts, 1);
        } else {
            // An answer counts as something said.
            world.run_for(60 * SECOND);
            assert_eq!(probes(&world) - before, 7);
            assert_eq!(client.try_receive(&mut [0; 9]), Ok(5));
            assert_eq!(client.try_receive(&mut [0; 1]), Err(Error::WouldBlock));
        }
    }
}

/// Programs switch keep-alive on, and say then how it probes.
#[test]
fn a_peer_that_is_there_is_probed_in_time_whenever_that_was_said() {
    for before in [0, 3 * SECOND, 30 * SECOND] {
        let mut world = World::new();
        let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
        let (client, _server) = world.pair(&listener);
        client.set_keep_alive(Some(KeepAlive::DEFAULT));
        world.run_for(before);
        let carried = world.a.outgoing.lock().unwrap().carried;
        let keep_alive = KeepAlive { idle_seconds: 10, interval_seconds: 2, probes: 3 };
        client.set_keep_alive(Some(keep_alive));
        world.run_for(65 * SECOND);
        let probes = world.a.outgoing.lock().unwrap().carried - carried;
        assert!((6..=7).contains(&probes), "{probes} probes, {before} us after it was switched on");
        assert_eq!(client.try_receive(&mut [0; 1]), Err(Error::WouldBlock));
    }
}

#[test]
fn an_idle_connection_without_keep_alive_lives_for_days_and_costs_nothing() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, server) = world.pair(&listener);
    // After a second it gives up its buffers.
    world.run_for(3 * SECOND);
    let before = (world.a.stack.statistics(), world.b.stack.statistics());
    world.run_for(3 * 86_400 * SECOND);
    let after = (world.a.stack.statistics(), world.b.stack.statistics());
    assert_eq!(before, after);
    client.try_send(b"still there?").unwrap();
    assert!(world.run_until(5 * SECOND, |_| server.readiness().readable));
}

/// Whether the peer closes its direction, resets the connection, or does nothing.
#[test]
fn what_is_kept_for_a_connection_is_kept_until_it_is_freed() {
    for (case, limit) in [("closes", 2 * SECOND), ("resets", SECOND), ("is silent", 61 * SECOND)] {
        let mut world = World::new();
        let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
        let (client, server) = world.pair(&listener);
        let charge = Arc::new(());
        server.keep(Box::new(charge.clone()));
        drop(server);
        world.run_for(SECOND);
        assert_eq!(Arc::strong_count(&charge), 2, "its peer has not closed");
        match case {
            "closes" => drop(client),
            "resets" => client.abort(),
            _ => world.run_for(57 * SECOND),
        }
        let began = world.now();
        assert_eq!(Arc::strong_count(&charge), 2, "{case}");
        assert!(world.run_until(limit, |_| Arc::strong_count(&charge) == 1), "{case}");
        assert!(world.now() < began + 5 * SECOND, "{case}");
        assert_eq!(world.b.stack.statistics().connections_now, 0);
    }
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
    assert_eq!(
        world.a.stack.statistics().time_wait_now + world.b.stack.statistics().time_wait_now,
        0
    );
}

/// Counts the resets that leave `host`.
fn count_resets(host: &Host) -> Arc<Mutex<usize>> {
    let resets = Arc::new(Mutex::new(0));
    let counted = resets.clone();
    host.outgoing.lock().unwrap().filter = Some(Box::new(move |frame| {
        if tcp_flags_and_length(frame).is_some_and(|(flags, _)| flags & RST != 0) {
            *counted.lock().unwrap() += 1;
        }
        true
    }));
    resets
}

/// A connection that has been silent for so long. What the client has sent last, the server has not
/// read, so the server's end is a reset.
fn silent_for(microseconds: u64, fast_path: bool) -> (World, Listener, Connection, Connection) {
    let mut world = World::with(|configuration| configuration.fast_path = fast_path);
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    let (client, server) = world.pair(&listener);
    for _ in 0..5 {
        for (from, to) in [(&client, &server), (&server, &client)] {
            from.try_send(b"message").unwrap();
            assert!(world.run_until(SECOND, |_| to.try_receive(&mut [0; 9]) == Ok(7)));
        }
    }
    client.try_send(b"unread").unwrap();
    world.run_for(microseconds);
    (world, listener, client, server)
}

/// After a minute the hardware address of the next hop has to be asked for.
#[test]
fn a_reset_waits_for_the_address_of_the_next_hop() {
    for (seconds, fast_path) in [(1, false), (70, false), (1, true), (70, true)] {
        let (mut world, _listener, client, server) = silent_for(seconds * SECOND, fast_path);
        let resets = count_resets(&world.b);
        drop(server);
        world.run_for(SECOND);
        assert_eq!(*resets.lock().unwrap(), 1, "after {seconds} s, fast path: {fast_path}");
        assert_eq!(client.try_receive(&mut [0; 9]), Err(Error::ConnectionReset));
        assert_eq!(world.b.stack.statistics().connections_now, 0);
    }
}

#[test]
fn a_reset_waits_for_room_in_the_device() {
    for fast_path in [false, true] {
        let (mut world, _listener, client, server) = silent_for(SECOND, fast_path);
        let resets = count_resets(&world.b);
        world.b.outgoing.lock().unwrap().capacity = 0;
        drop(server);
        world.run_for(SECOND);
        assert_eq!(*resets.lock().unwrap(), 0);
        world.b.outgoing.lock().unwrap().capacity = 256;
        world.b.stack.transmit_ready();
        world.run_for(SECOND);
        assert_eq!(*resets.lock().unwrap(), 1, "fast path: {fast_path}");
        assert_eq!(client.try_receive(&mut [0; 9]), Err(Error::ConnectionReset));
    }
}

/// But not for ever.
#[test]
fn a_reset_that_cannot_leave_does_not_keep_the_connection() {
    let (mut world, _listener, _client, server) = silent_for(70 * SECOND, true);
    world.a.outgoing.lock().unwrap().cut = true;
    drop(server);
    world.run_for(2 * SECOND);
    assert_eq!(world.b.stack.statistics().connections_now, 1);
    world.run_for(2 * SECOND);
    assert_eq!(world.b.stack.statistics().connections_now, 0);
}

/// A client asks, closes its direction, and reads after a pause what did not fit into its window.
/// The server has long closed its own direction then.
#[test]
fn an_answer_reaches_a_peer_that_has_closed_its_direction_and_reads_later() {
    const ANSWER: usize = 8000;
    for (seconds, fast_path, part) in
        [(3, false, 500), (35, false, 4096), (50, true, 4096), (3, true, 500)]
    {
        let mut world = World::with(|configuration| configuration.fast_path = fast_path);
        let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
        let (client, server) = world.pair(&listener);
        client.try_send(b"question").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut left = ANSWER;
        assert!(world.run_until(SECOND, |_| {
            left -= server.try_send(&[5; ANSWER][..left]).unwrap_or(0);
            left == 0
        }));
        assert_eq!(server.try_receive(&mut [0; 9]), Ok(8));
        drop(server);
        world.run_for(seconds * SECOND);
        let (begin, mut read, mut has_ended) = (world.now(), 0, false);
        assert!(world.run_until(60 * SECOND, |_| {
            match client.try_receive(&mut [0; 4096][..part]) {
                Ok(0) => has_ended = true,
                Ok(count) => read += count,
                Err(Error::WouldBlock) => {}
                Err(error) => panic!("{error:?} after {read} bytes, {seconds} s"),
            }
            has_ended
        }));
        assert_eq!(read, ANSWER);
        let took = world.now() - begin;
        assert!(took < SECOND / 2, "{took} us, {seconds} s, fast path: {fast_path}");
        world.run_for(SECOND);
        assert_eq!(world.b.stack.statistics().connections_now, 0);
    }
}

/// What fits into the window of the peer takes the FIN with it.
#[test]
fn a_fin_leaves_with_the_last_bytes_if_the_peer_has_room() {
    let mut world = World::new();
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 8).unwrap();
    let (client, server) = world.pair(&listener);
    client.try_send(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    world.run_for(SECOND);
    assert_eq!(server.try_receive(&mut [0; 9]), Ok(8));
    let before = world.b.outgoing.lock().unwrap().carried;
    server.try_send(b"answer").unwrap();
    drop(server);
    world.run_for(SECOND);
    assert_eq!(client.try_receive(&mut [0; 9]), Ok(6));
    assert_eq!(client.try_receive(&mut [0; 9]), Ok(0));
    let frames = world.b.outgoing.lock().unwrap().carried - before;
    assert!(frames <= 2, "{frames} frames");
}
