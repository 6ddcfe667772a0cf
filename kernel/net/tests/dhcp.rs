//! DHCP against a minimal server, and the effects of a lease.

mod common;

use common::*;
use cops_net::{Configuration, Error, EthernetAddressing, Lease, UdpSocket};
use std::net::{IpAddr, Ipv4Addr};
use std::task::{Context, Poll};

const OFFERED: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 77);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn dhcp_world() -> World {
    dhcp_world_with(true)
}

/// `fast_path`: that of the client.
fn dhcp_world_with(fast_path: bool) -> World {
    let a = Configuration { random_seeds: seeds(5), fast_path, ..Configuration::default() };
    let b = Configuration {
        ethernet: EthernetAddressing::Static {
            addresses: vec![(SERVER.into(), 24)],
            gateways: vec!["10.0.0.254".parse().unwrap()],
        },
        random_seeds: seeds(6),
        ..Configuration::default()
    };
    World::from(a, b)
}

/// Answers the requests at `socket` (RFC 2131). Without `lease_seconds` it refuses.
fn serve(socket: &UdpSocket, lease_seconds: Option<u32>) {
    serve_with(socket, lease_seconds, 53);
}

/// The same, with the last byte of the name server's address. Returns whether a lease was given.
fn serve_with(socket: &UdpSocket, lease_seconds: Option<u32>, name_server: u8) -> bool {
    let mut is_given = false;
    let mut request = [0; 1024];
    while let Ok((length, _)) = socket.try_receive_from(&mut request) {
        assert!(length > 240 && request[0] == 1 && request[236..240] == [99, 130, 83, 99]);
        let mut options = &request[240..length];
        let mut kind = 0;
        while let [code, rest @ ..] = options {
            match (code, rest) {
                (0, _) => options = rest,
                (255, _) => break,
                (_, [length, rest @ ..]) => {
                    if *code == 53 {
                        kind = rest[0];
                    }
                    options = &rest[usize::from(*length)..];
                }
                _ => panic!("an option is cut short"),
            }
        }
        // Discover -> offer, request -> acknowledgement or refusal.
        let answer = match (kind, lease_seconds) {
            (1, Some(_)) => 2,
            (3, Some(_)) => 5,
            (3, None) => 6,
            _ => continue,
        };
        let mut reply = request[..240].to_vec();
        reply[0] = 2;
        reply[16..20].copy_from_slice(&OFFERED.octets());
        reply[20..24].copy_from_slice(&SERVER.octets());
        reply.extend([53, 1, answer, 54, 4]);
        reply.extend(SERVER.octets());
        reply.extend([51, 4]);
        reply.extend(lease_seconds.unwrap_or(0).to_be_bytes());
        reply.extend([1, 4, 255, 255, 255, 0, 3, 4, 10, 0, 0, 2, 6, 4, 10, 0, 0, name_server]);
        reply.push(255);
        // The client has no address yet, so the answer is broadcast.
        socket.try_send_to(&reply, "255.255.255.255:68".parse().unwrap()).unwrap();
        is_given |= answer == 5;
    }
    is_given
}

#[test]
fn a_lease_configures_the_interface() {
    let mut world = dhcp_world();
    let server = world.b.stack.bind_udp("0.0.0.0:67".parse().unwrap()).unwrap();
    assert_eq!(world.a.stack.lease(), None);
    assert_eq!(world.a.stack.connect(address("10.0.0.2:7")).err(), Some(Error::NetworkUnreachable));
    let (flag, waker) = Flag::new();
    assert!(world.a.stack.poll_configured(&mut Context::from_waker(&waker)).is_pending());
    assert!(world.run_until(30 * SECOND, |_| {
        serve(&server, Some(3600));
        flag.take()
    }));
    let lease = Lease {
        address: OFFERED,
        prefix_length: 24,
        gateway: Some(SERVER),
        name_servers: [Some(Ipv4Addr::new(10, 0, 0, 53)), None, None],
    };
    assert_eq!(world.a.stack.poll_configured(&mut Context::from_waker(&waker)), Poll::Ready(lease));
    assert!(world.a.stack.addresses().unwrap().contains(&(IpAddr::V4(OFFERED), 24)));

    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (_client, accepted) = world.pair(&listener);
    assert_eq!(accepted.remote_address().ip(), IpAddr::V4(OFFERED));
    // The gateway is used for addresses beyond the link: the SYN goes to its MAC address.
    let beyond = world.a.stack.connect(address("93.184.216.34:80")).unwrap();
    let before = world.b.stack.statistics().dropped_not_for_us;
    world.run_for(SECOND);
    assert_eq!(connected(&beyond), None);
    assert!(world.b.stack.statistics().dropped_not_for_us > before);
}

#[test]
fn the_client_repeats_itself_until_a_server_appears() {
    let mut world = dhcp_world();
    world.b.incoming.lock().unwrap().cut = true;
    world.run_for(60 * SECOND);
    world.b.incoming.lock().unwrap().cut = false;
    let server = world.b.stack.bind_udp("0.0.0.0:67".parse().unwrap()).unwrap();
    assert!(world.run_until(30 * SECOND, |world| {
        serve(&server, Some(3600));
        world.a.stack.lease().is_some()
    }));
}

#[test]
fn a_lease_is_renewed_and_an_expired_one_takes_its_connections_along() {
    let mut world = dhcp_world();
    let server = world.b.stack.bind_udp("0.0.0.0:67".parse().unwrap()).unwrap();
    assert!(world.run_until(30 * SECOND, |world| {
        serve(&server, Some(600));
        world.a.stack.lease().is_some()
    }));
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, _accepted) = world.pair(&listener);
    // Long after the first lease, with a server that renews it.
    for _ in 0..20 {
        world.run_until(300 * SECOND, |_| {
            serve(&server, Some(600));
            false
        });
        assert!(world.a.stack.lease().is_some());
    }
    assert_eq!(client.try_receive(&mut [0; 1]), Err(Error::WouldBlock));
    // The server stops answering.
    world.run_for(700 * SECOND);
    assert_eq!(world.a.stack.lease(), None);
    assert_eq!(client.try_receive(&mut [0; 1]), Err(Error::ConnectionAborted));
    assert_eq!(world.a.stack.connect(address("10.0.0.2:7")).err(), Some(Error::NetworkUnreachable));
    drop(client);
    assert_eq!(world.a.stack.statistics().connections_now, 0);
}

/// Those that have a socket: one on the fast path ends when its turn comes.
#[test]
fn an_expired_lease_ends_its_connections_in_bounded_portions() {
    const COUNT: usize = 3000;
    const PORTION: usize = 100;
    let mut world = dhcp_world_with(false);
    let server = world.b.stack.bind_udp("0.0.0.0:67".parse().unwrap()).unwrap();
    assert!(world.run_until(30 * SECOND, |world| {
        serve(&server, Some(600));
        world.a.stack.lease().is_some()
    }));
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let pairs: Vec<_> = (0..COUNT).map(|_| world.pair(&listener)).collect();
    assert!(world.a.stack.lease().is_some());
    let mut open: Vec<_> = pairs.iter().map(|(client, _)| client).collect();
    assert!(world.run_until(700 * SECOND, |world| world.a.stack.lease().is_none()));
    // Between two calls, the stack is polled once.
    assert!(world.run_until(SECOND, |_| {
        let before = open.len();
        open.retain(|client| match client.try_receive(&mut [0; 1]) {
            Err(Error::WouldBlock) => true,
            ended => {
                assert_eq!(ended, Err(Error::ConnectionAborted));
                false
            }
        });
        assert!(before - open.len() <= PORTION, "{} in one portion", before - open.len());
        open.is_empty()
    }));
    drop(pairs);
    world.run_for(SECOND);
    assert_eq!(world.a.stack.statistics().connections_now, 0);
}

/// A server that names another name server each time ends nothing by that.
#[test]
fn a_lease_with_the_same_address_leaves_connections_on_the_fast_path() {
    let mut world = dhcp_world();
    let server = world.b.stack.bind_udp("0.0.0.0:67".parse().unwrap()).unwrap();
    assert!(world.run_until(30 * SECOND, |world| {
        serve(&server, Some(8));
        world.a.stack.lease().is_some()
    }));
    let listener = world.b.stack.listen(address("0.0.0.0:7"), 4).unwrap();
    let (client, accepted) = world.pair(&listener);
    let (mut name_server, mut leases) = (1, 0);
    let mut left = 0;
    for round in 0..300 {
        assert_eq!(client.try_send(b"request"), Ok(7));
        assert!(world.run_until(SECOND, |_| accepted.try_receive(&mut [0; 9]) == Ok(7)));
        assert_eq!(accepted.try_send(b"answer"), Ok(6));
        assert!(world.run_until(SECOND, |_| client.try_receive(&mut [0; 9]) == Ok(6)));
        world.run_until(100_000, |_| {
            if serve_with(&server, Some(8), name_server) {
                (name_server, leases) = (name_server + 1, leases + 1);
            }
            false
        });
        if round == 20 {
            assert!(world.a.stack.statistics().fast_path_entered > 0);
            left = world.a.stack.statistics().fast_path_left;
        }
    }
    assert!(leases > 5, "{leases} leases");
    let last = Some(Ipv4Addr::new(10, 0, 0, name_server - 1));
    assert_eq!(world.a.stack.lease().unwrap().name_servers[0], last);
    assert_eq!(world.a.stack.statistics().fast_path_left, left);
}
