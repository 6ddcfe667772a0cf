//! The kernel's network: the stack of `cops-net` on the virtio device, and the coroutines that
//! drive it.
#![forbid(unsafe_code)]

pub mod charges;
mod datagrams;
mod options;
mod queues;
mod service;
mod socket;
mod timeouts;

pub use cops_net::{DATAGRAM_BYTES_MAX, Shutdown};
pub use datagrams::{Datagrams, Received};
pub use options::Change;
pub use service::{stack, start, statistics, tcp_buffer_bytes};
pub use socket::{Begun, Socket};
pub use timeouts::Timeouts;

use core::net::{IpAddr, SocketAddr};

/// An address as a program sees it that has a socket for IPv6 (`v6`) or for IPv4: the former shows
/// IPv4 addresses as mapped ones.
fn shown(v6: bool, address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(v4) if v6 => SocketAddr::new(v4.to_ipv6_mapped().into(), address.port()),
        _ => address,
    }
}
