//! UDP sockets.

mod common;

use common::*;
use cops_net::Error;
use std::task::{Context, Waker};

#[test]
fn datagrams_go_there_and_back() {
    for (local, remote) in
        [("0.0.0.0:53", "10.0.0.2:53"), ("[::]:53", "[fd00::2]:53"), ("[::]:53", "10.0.0.2:53")]
    {
        let mut world = World::new();
        let server = world.b.stack.bind_udp(address(local)).unwrap();
        let client = world
            .a
            .stack
            .bind_udp(address(if remote.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" }))
            .unwrap();
        assert_eq!(client.try_send_to(b"question", address(remote)), Ok(8));
        let (flag, waker) = Flag::new();
        assert!(
            server.poll_receive_from(&mut Context::from_waker(&waker), &mut [0; 4]).is_pending()
        );
        assert!(world.run_until(5 * SECOND, |_| flag.take()), "{remote}");
        let mut buffer = [0; 4];
        let (length, from) = server.try_receive_from(&mut buffer).unwrap();
        assert_eq!((length, &buffer), (4, b"ques"), "the rest of a long datagram is cut off");
        assert_eq!(server.try_receive_from(&mut buffer), Err(Error::WouldBlock));
        assert_eq!(server.try_send_to(b"answer", from), Ok(6));
        assert!(world.run_until(5 * SECOND, |_| client.readiness().readable));
        assert_eq!(client.try_receive_from(&mut [0; 100]), Ok((6, address(remote))));
    }
}

#[test]
fn loopback_datagrams() {
    let world = World::new();
    for target in ["127.0.0.1:53", "[::1]:53", "10.0.0.1:53"] {
        let server = world.a.stack.bind_udp(address("[::]:53")).unwrap();
        let client = world.a.stack.bind_udp(address("[::]:0")).unwrap();
        client.try_send_to(b"hello", address(target)).unwrap();
        let (length, from) = server.try_receive_from(&mut [0; 10]).unwrap();
        assert_eq!((length, from.port()), (5, client.local_address().port()));
        assert_eq!(from.ip(), address(target).ip());
    }
}

#[test]
fn limits() {
    let mut world = World::new();
    let client = world.a.stack.bind_udp(address("0.0.0.0:0")).unwrap();
    let remote = address("10.0.0.2:53");
    assert_eq!(client.try_send_to(&[0; 1473], remote), Err(Error::MessageTooLong));
    assert_eq!(client.try_send_to(&[0; 1472], remote), Ok(1472));
    assert_eq!(client.try_send_to(b"x", address("10.0.0.2:0")), Err(Error::InvalidArgument));
    assert_eq!(client.try_send_to(b"x", address("[fd00::2]:53")), Err(Error::InvalidArgument));
    assert_eq!(client.try_send_to(b"x", address("8.8.8.8:53")), Err(Error::NetworkUnreachable));
    assert_eq!(world.a.stack.bind_udp(client.local_address()).err(), Some(Error::AddressInUse));
    // A queue that waits for an unknown neighbour fills up, and empties when the neighbour appears.
    world.b.outgoing.lock().unwrap().cut = true;
    while client.try_send_to(&[0; 100], remote).is_ok() {}
    let (flag, waker) = Flag::new();
    assert!(client.poll_send_to(&mut Context::from_waker(&waker), b"x", remote).is_pending());
    world.run_for(SECOND / 2);
    assert!(!flag.take());
    world.b.outgoing.lock().unwrap().cut = false;
    assert!(world.run_until(5 * SECOND, |_| flag.take()));
}

#[test]
fn an_unreachable_neighbour_does_not_block_the_others_for_ever() {
    let mut world = World::new();
    let server = world.b.stack.bind_udp(address("0.0.0.0:53")).unwrap();
    let client = world.a.stack.bind_udp(address("0.0.0.0:0")).unwrap();
    client.try_send_to(b"lost", address("10.0.0.99:53")).unwrap();
    world.run_for(10 * SECOND);
    client.try_send_to(b"found", address("10.0.0.2:53")).unwrap();
    assert!(world.run_until(5 * SECOND, |_| server.readiness().readable));
}

#[test]
fn closing_frees_the_port_and_everything_else() {
    let mut world = World::new();
    let server = world.b.stack.bind_udp(address("0.0.0.0:53")).unwrap();
    drop(server);
    let server = world.b.stack.bind_udp(address("0.0.0.0:53")).unwrap();
    let client = world.a.stack.bind_udp(address("0.0.0.0:0")).unwrap();
    client.try_send_to(b"x", address("10.0.0.2:53")).unwrap();
    drop(client);
    world.run_for(10 * SECOND);
    assert_eq!(world.a.stack.timers_armed(), 0);
    assert!(
        server.poll_receive_from(&mut Context::from_waker(Waker::noop()), &mut [0; 1]).is_pending()
    );
}

#[test]
fn a_connected_socket_receives_from_its_peer_only() {
    let world = World::new();
    let server = world.a.stack.bind_udp(address("0.0.0.0:53")).unwrap();
    let [first, second] = [0, 1].map(|_| world.a.stack.bind_udp(address("127.0.0.1:0")).unwrap());
    let (to_server, from_first) = (address("127.0.0.1:53"), first.local_address());
    let next = || server.try_receive_from(&mut [0; 10]);
    assert_eq!(second.try_send_to(b"early", to_server), Ok(5));
    assert_eq!(server.connect(from_first), Ok((from_first, from_first.ip())));
    assert_eq!(next(), Ok((5, second.local_address())), "what was there before stays");
    assert_eq!(second.try_send_to(b"other", to_server), Ok(5));
    assert_eq!(next(), Err(Error::WouldBlock));
    assert_eq!(first.try_send_to(b"first", to_server), Ok(5));
    assert_eq!(next(), Ok((5, from_first)));
    // Another peer, any port of an address, and no peer.
    assert!(server.connect(second.local_address()).is_ok());
    assert_eq!(first.try_send_to(b"first", to_server), Ok(5));
    assert_eq!(next(), Err(Error::WouldBlock));
    for is_connected in [true, false] {
        match is_connected {
            true => assert!(server.connect(address("127.0.0.1:0")).is_ok()),
            false => server.disconnect(),
        }
        for client in [&first, &second] {
            assert_eq!(client.try_send_to(b"either", to_server), Ok(6));
            assert_eq!(next(), Ok((6, client.local_address())));
        }
    }
    // Errors change nothing.
    assert!(server.connect(from_first).is_ok());
    assert_eq!(server.connect(address("[::1]:1")), Err(Error::InvalidArgument));
    assert_eq!(server.connect(address("8.8.8.8:1")), Err(Error::NetworkUnreachable));
    assert_eq!(second.try_send_to(b"other", to_server), Ok(5));
    assert_eq!(next(), Err(Error::WouldBlock));
}

#[test]
fn datagrams_without_bytes() {
    let mut world = World::new();
    let server = world.b.stack.bind_udp(address("0.0.0.0:53")).unwrap();
    let client = world.a.stack.bind_udp(address("0.0.0.0:0")).unwrap();
    let remote = address("10.0.0.2:53");
    let (flag, waker) = Flag::new();
    for _ in 0..3 {
        assert!(
            server.poll_receive_from(&mut Context::from_waker(&waker), &mut [0; 4]).is_pending()
        );
        assert_eq!(client.try_send_to(b"", remote), Ok(0));
        assert!(world.run_until(5 * SECOND, |_| flag.take()), "its receiver is woken");
        assert!(server.readiness().readable);
        assert_eq!(server.try_peek_with(|data, _| data.len()), Ok(0));
        assert_eq!(server.try_receive_from(&mut [0; 4]).map(|(length, _)| length), Ok(0));
        assert!(!server.readiness().readable);
    }
    // A queue that is full of them has no bytes: its sender is woken all the same.
    let silent = address("10.0.0.99:53");
    while client.try_send_to(b"", silent).is_ok() {}
    assert!(!client.readiness().writable);
    let (flag, waker) = Flag::new();
    assert!(client.poll_send_to(&mut Context::from_waker(&waker), b"", silent).is_pending());
    assert!(world.run_until(10 * SECOND, |_| flag.take()));
}

#[test]
fn a_datagram_can_be_looked_at() {
    let world = World::new();
    let server = world.a.stack.bind_udp(address("[::]:53")).unwrap();
    let client = world.a.stack.bind_udp(address("[::]:0")).unwrap();
    assert_eq!(server.try_peek_with(|_, _| ()), Err(Error::WouldBlock));
    for text in [b"first ", b"second"] {
        let sent = client.try_send_with(6, address("[::1]:53"), |room| room.copy_from_slice(text));
        assert_eq!(sent, Ok(6));
    }
    for text in [b"first ", b"second"] {
        for _ in 0..2 {
            assert_eq!(server.try_peek_with(|data, _| data == text), Ok(true));
        }
        assert_eq!(server.try_receive_with(|data, _| data == text), Ok(true));
    }
    assert_eq!(server.try_receive_with(|_, _| ()), Err(Error::WouldBlock));
}

#[test]
fn a_socket_is_writable_while_a_datagram_has_room() {
    let mut world = World::new();
    let client = world.a.stack.bind_udp(address("0.0.0.0:0")).unwrap();
    world.b.outgoing.lock().unwrap().cut = true;
    let mut sent = 0;
    while client.readiness().writable {
        assert_eq!(client.try_send_to(&[0; 1472], address("10.0.0.2:53")), Ok(1472));
        sent += 1;
        world.run_for(1000);
    }
    assert!(sent > 1, "{sent} datagrams");
    world.b.outgoing.lock().unwrap().cut = false;
    assert!(world.run_until(5 * SECOND, |_| client.readiness().writable));
}
