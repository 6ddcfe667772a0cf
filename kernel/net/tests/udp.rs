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
