//! What a stack is told at its start, and the lease it reports. Plain data.
#![allow(clippy::disallowed_types, reason = "made once, at boot, by whoever makes the stack")]

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

/// Addresses of name servers: as many as DHCP's client keeps.
pub type NameServers = [Option<Ipv4Addr>; 3];

/// Where the Ethernet interface gets its addresses from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EthernetAddressing {
    /// IPv4 by DHCP. (IPv6 has its link-local address in any case.)
    Dhcp,
    /// Fixed addresses, each with its prefix length in bits, and at most one default gateway
    /// per IP version.
    Static {
        /// Own addresses with their prefix lengths. At most seven; unicast.
        addresses: Vec<(IpAddr, u8)>,
        /// Default gateways, unicast.
        gateways: Vec<IpAddr>,
    },
}

/// The settings of a [`Stack`](crate::Stack). All times are in microseconds.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// Addresses of the Ethernet interface.
    pub ethernet: EthernetAddressing,
    /// Receive buffer of each TCP connection: the window offered to the peer. 1 byte to 1 GiB;
    /// values outside are clamped.
    pub receive_buffer_bytes: usize,
    /// Transmit buffer of each TCP connection: what may be sent and not yet acknowledged.
    pub transmit_buffer_bytes: usize,
    /// Each of a UDP socket's two buffers (received, to be sent), per interface it is bound to.
    pub datagram_buffer_bytes: usize,
    /// How many datagrams each of those buffers holds at most.
    pub datagram_queue_length: usize,
    /// TCP connections with buffers, in any state. A SYN beyond is dropped, a `connect` refused.
    pub maximum_connections: usize,
    /// TIME-WAIT records (no buffers; about 100 bytes each). Beyond, the oldest is forgotten.
    pub maximum_time_wait: usize,
    /// How long `connect` waits for the peer.
    pub connect_timeout_microseconds: u64,
    /// How long a half-open connection waits for the client's ACK.
    pub handshake_timeout_microseconds: u64,
    /// How long sent data, or a FIN, may stay unacknowledged by a silent peer.
    pub transmission_timeout_microseconds: u64,
    /// How long a closed connection without an owner waits for the peer's FIN.
    pub orphan_timeout_microseconds: u64,
    /// What port numbers and initial sequence numbers begin with. Must differ from boot to boot.
    pub random_seeds: RandomSeeds,
}

impl Default for Configuration {
    fn default() -> Self {
        const SECOND: u64 = 1_000_000;
        Configuration {
            ethernet: EthernetAddressing::Dhcp,
            receive_buffer_bytes: 4096,
            transmit_buffer_bytes: 4096,
            datagram_buffer_bytes: 8192,
            datagram_queue_length: 32,
            maximum_connections: 16384,
            maximum_time_wait: 4096,
            connect_timeout_microseconds: 75 * SECOND,
            handshake_timeout_microseconds: 30 * SECOND,
            transmission_timeout_microseconds: 300 * SECOND,
            orphan_timeout_microseconds: 60 * SECOND,
            random_seeds: RandomSeeds::default(),
        }
    }
}

/// One seed for each use, none computed from another: sequence numbers on the loopback interface, which any program
/// can see, tell nothing about those on the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RandomSeeds {
    /// Of the port numbers given out.
    pub ports: u64,
    /// Of the loopback interface.
    pub loopback: u64,
    /// Of the Ethernet interface.
    pub ethernet: u64,
}

/// The IPv4 configuration in force: leased, or taken from a static configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Our address.
    pub address: Ipv4Addr,
    /// Length in bits of the prefix that is on the link.
    pub prefix_length: u8,
    /// The default gateway.
    pub gateway: Option<Ipv4Addr>,
    /// Name servers, most preferred first. Empty for a static configuration.
    pub name_servers: NameServers,
}
