//! The settings of a stack, and the lease it reports. Plain data.
#![allow(clippy::disallowed_types, reason = "allocated once, at boot, by the creator of the stack")]

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

/// Maximum length of a datagram, unless [`Configuration::datagram_buffer_bytes`] differs.
pub const DATAGRAM_BYTES_MAX: usize = 8192;

/// Addresses of name servers, as many as the DHCP client stores.
pub type NameServers = [Option<Ipv4Addr>; 3];

/// The source of the Ethernet interface's addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EthernetAddressing {
    /// IPv4 addresses by DHCP. (IPv6 always has its link-local address.)
    Dhcp,
    /// Fixed addresses, each with its prefix length in bits, and at most one default gateway per IP
    /// version.
    Static {
        /// Unicast addresses with their prefix lengths, at most seven.
        addresses: Vec<(IpAddr, u8)>,
        /// Unicast addresses of the default gateways.
        gateways: Vec<IpAddr>,
    },
}

/// The settings of a [`Stack`](crate::Stack). All times are in microseconds.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// Addresses of the Ethernet interface.
    pub ethernet: EthernetAddressing,
    /// Size of each TCP connection's receive buffer: the window offered to the peer. Clamped to 1
    /// byte to 1 GiB.
    pub receive_buffer_bytes: usize,
    /// Size of each TCP connection's transmit buffer: the bytes that may be unacknowledged or
    /// unsent.
    pub transmit_buffer_bytes: usize,
    /// Whether connections of which all is as usual do without smoltcp. The frames are the same.
    pub fast_path: bool,
    /// Size of each of a UDP socket's two buffers (receive and transmit), per interface to which it
    /// is bound.
    pub datagram_buffer_bytes: usize,
    /// Maximum number of datagrams in each of those buffers.
    pub datagram_queue_length: usize,
    /// Maximum number of TCP connections in any state. Beyond it, a SYN is dropped and `connect`
    /// fails.
    pub maximum_connections: usize,
    /// Maximum number of bytes that all TCP connections and their buffers have together. Beyond it,
    /// the same happens, and a connection that has given up its buffers does not get new ones: what
    /// arrives for it is dropped, as if it were lost.
    pub maximum_connection_bytes: usize,
    /// Maximum number of TIME-WAIT records (without buffers, about 100 bytes each). Beyond it, the
    /// oldest is removed.
    pub maximum_time_wait: usize,
    /// How long `connect` waits for the peer.
    pub connect_timeout_microseconds: u64,
    /// How long a half-open connection waits for the client's ACK.
    pub handshake_timeout_microseconds: u64,
    /// How long sent data, or a FIN, may stay unacknowledged by a silent peer.
    pub transmission_timeout_microseconds: u64,
    /// How long a closed connection without a handle waits for the peer's FIN. Half a minute at
    /// most while memory is used up.
    pub orphan_timeout_microseconds: u64,
    /// Seeds of port numbers and initial sequence numbers. Must differ from boot to boot.
    pub random_seeds: RandomSeeds,
}

impl Default for Configuration {
    fn default() -> Self {
        const SECOND: u64 = 1_000_000;
        Configuration {
            ethernet: EthernetAddressing::Dhcp,
            receive_buffer_bytes: 4096,
            transmit_buffer_bytes: 4096,
            fast_path: true,
            datagram_buffer_bytes: DATAGRAM_BYTES_MAX,
            datagram_queue_length: 32,
            maximum_connections: 16384,
            maximum_connection_bytes: 256 << 20,
            maximum_time_wait: 4096,
            connect_timeout_microseconds: 75 * SECOND,
            handshake_timeout_microseconds: 30 * SECOND,
            transmission_timeout_microseconds: 300 * SECOND,
            orphan_timeout_microseconds: 60 * SECOND,
            random_seeds: RandomSeeds::default(),
        }
    }
}

/// A separate seed for each use, none derived from another. So the sequence numbers on the loopback
/// interface, which any program can see, reveal nothing about those on the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RandomSeeds {
    /// Seed of the ephemeral port numbers.
    pub ports: u64,
    /// Seed of the loopback interface.
    pub loopback: u64,
    /// Seed of the Ethernet interface.
    pub ethernet: u64,
    /// Of the hashes of addresses: a peer that knew it could choose addresses that collide in a
    /// table.
    pub tables: u64,
}

/// The current IPv4 configuration, from a lease or from a static configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Our address.
    pub address: Ipv4Addr,
    /// Length in bits of the on-link prefix.
    pub prefix_length: u8,
    /// The default gateway.
    pub gateway: Option<Ipv4Addr>,
    /// Name servers in order of preference. Empty for a static configuration.
    pub name_servers: NameServers,
}
