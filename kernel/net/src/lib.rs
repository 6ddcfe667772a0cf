//! TCP/IP for the COPS kernel: smoltcp, with one small socket set per connection.
//!
//! smoltcp looks at every socket of a set for every packet. This crate finds the connection of a
//! frame by its pair of addresses and hands smoltcp a set with that one socket, so a packet costs
//! the same with ten connections and with ten thousand. What smoltcp leaves to its caller is here:
//! a listen backlog, ports, a timer queue, TIME-WAIT without buffers, closing in the background.
//!
//! The crate is safe code only and knows no hardware: a [`FrameDevice`] takes frames, the driver's
//! coroutine brings them to [`Stack::receive`], a [`Clock`] tells the time, and a timer coroutine
//! calls [`Stack::poll`]. So all of it is tested on the host.
//!
//! | module | what |
//! |---|---|
//! | `stack` | the two interfaces; what driver and timer call |
//! | `opening`, `listener`, `connection`, `udp` | what system calls use |
//! | `link` | the interface's lock, and why nothing is stranded behind it |
//! | `link_core`, `serving`, `work` | the one place where an endpoint meets smoltcp; its work in turns |
//! | `ingress`, `frame`, `checksum` | from a frame to its endpoint; what is dropped |
//! | `addressing` | addresses, routes, DHCP |
//! | `endpoint`, `stream`, `backlog`, `time_wait` | state of one socket, connection, listener |
//! | `registry`, `timers`, `wakers`, `shared`, `statistics` | ports, timers, waiters, the rest |
//!
//! # Locks
//! All are spin locks, never taken by an interrupt handler. In this order: an interface, an
//! endpoint, then one leaf (backlog, registry, outbox, network, poll waker). The two interfaces are
//! never held together. Handles lock their endpoint alone to copy bytes, so two harts serve two
//! connections at once; of the interface they only try the lock, and if it is taken leave their
//! egress to its holder. Only `receive`, `poll`, `transmit_ready`, opening and closing sockets and
//! sending datagrams wait for an interface, and its holders work in bounded portions.
//!
//! Wakers are woken under these locks: a wake must only enqueue, as the executor's does.
//!
//! Not here: IP fragments (dropped), IPv6 router advertisements, multicast groups, raw sockets.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod addressing;
mod backlog;
mod chain;
mod checksum;
mod configuration;
mod connection;
mod device;
mod endpoint;
mod error;
mod frame;
mod ingress;
mod link;
mod link_core;
mod listener;
mod loopback;
mod opening;
mod readiness;
mod registry;
mod serving;
mod shared;
mod stack;
mod statistics;
mod stream;
mod time_wait;
mod timers;
mod udp;
mod wakers;
mod work;

pub use configuration::{Configuration, EthernetAddressing, Lease, NameServers, RandomSeeds};
pub use connection::{Connection, Shutdown};
pub use device::{Clock, DeviceFull, FrameDevice};
pub use error::Error;
pub use listener::Listener;
pub use opening::TcpBinding;
pub use readiness::Readiness;
pub use stack::{ReceiveBatch, Stack};
pub use statistics::Statistics;
pub use udp::UdpSocket;
