//! The kernel's network: the stack of `cops-net` on the virtio device, and the coroutines that
//! drive it.
#![forbid(unsafe_code)]

mod datagrams;
mod options;
mod queues;
mod service;
mod socket;
mod timeouts;

pub use cops_net::{DATAGRAM_BYTES_MAX, Shutdown};
pub use datagrams::{Datagrams, Received};
pub use service::{stack, start, statistics, tcp_buffer_bytes};
pub use socket::{Begun, Socket};
pub use timeouts::Timeouts;
