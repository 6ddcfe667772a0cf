//! TCP/IP for the COPS kernel: smoltcp, with a small socket set for each connection.
//!
//! smoltcp visits every socket of a set for every packet. This crate finds the connection of a
//! frame by its pair of addresses and passes smoltcp a set with that one socket. So a packet costs
//! the same with ten connections and with ten thousand. This crate also contains what smoltcp
//! leaves to its caller: a listen backlog, ports, a timer queue, TIME-WAIT without buffers, and
//! closing in the background.
//!
//! The crate contains only safe code and knows no hardware. A [`FrameDevice`] takes frames, the
//! driver's coroutine passes received frames to [`Stack::receive`], a [`Clock`] tells the time, and
//! a timer coroutine calls [`Stack::poll`]. So the whole crate is tested on the host.
//!
//! | module | contents |
//! |---|---|
//! | `stack` | the two interfaces; what the driver and the timer coroutine call |
//! | `opening`, `listener`, `connection`, `udp` | what system calls use |
//! | `link` | the interface's lock, and why no work is left behind it |
//! | `link_core`, `serving`, `egress`, `work` | the only place where an endpoint is passed to smoltcp; its work in turns |
//! | `ingress`, `recent`, `frame`, `checksum` | from a frame to its endpoint; what is dropped |
//! | `path`, `neighbours` | the direct way of the segments of a connection |
//! | `fast_path`, `bytes` | connections of which all is as usual, without a socket of smoltcp |
//! | `script`, `stall` | segments that are made up for smoltcp; connections that it has forgotten |
//! | `addressing` | addresses, routes, DHCP |
//! | `endpoint`, `stream`, `backlog`, `time_wait` | state of a socket, connection, listener |
//! | `acknowledgements`, `window` | which acknowledgements wait for the answer; when a window is announced |
//! | `registry`, `timers`, `wakers`, `shared`, `statistics` | ports, timers, waiters, shared state, counters |
//!
//! # Locks
//! All locks are spin locks and are never taken by an interrupt handler. Lock order: an interface,
//! then an endpoint, then one leaf (backlog, registry, outbox, network, poll waker). The two
//! interfaces are never locked together. A handle locks only its endpoint to copy bytes, so two
//! harts serve two connections at once. It only tries the interface's lock; if the lock is taken,
//! it leaves its egress to the holder. So do `poll` and `transmit_ready`. Only `receive`, opening
//! and closing sockets, and sending datagrams wait for an interface, and its holders work in
//! bounded portions.
//!
//! Wakers are woken under these locks: a wake must only enqueue, as the executor's does.
//!
//! Not implemented: reassembly of IP fragments (they are dropped), IPv6 router advertisements,
//! multicast groups, raw sockets.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod acknowledgements;
mod addressing;
mod backlog;
mod bytes;
mod chain;
mod checksum;
mod configuration;
mod connection;
mod device;
mod egress;
mod endpoint;
mod error;
mod fast_path;
mod frame;
mod ingress;
mod keep_alive;
mod link;
mod link_core;
mod listener;
mod loopback;
mod neighbours;
mod next_poll;
mod opening;
mod path;
mod readiness;
mod recent;
mod registry;
mod script;
mod serving;
mod shared;
mod stack;
mod stall;
mod statistics;
mod stream;
mod time_wait;
mod timers;
mod udp;
mod wakers;
mod window;
mod work;

pub use backlog::Payer;
pub use checksum::complete_checksum;
pub use configuration::{
    Configuration, DATAGRAM_BYTES_MAX, EthernetAddressing, Lease, NameServers, RandomSeeds,
};
pub use connection::{Connection, Shutdown};
pub use device::{Clock, DeviceFull, FrameDevice};
pub use error::Error;
pub use keep_alive::KeepAlive;
pub use listener::Listener;
pub use opening::TcpBinding;
pub use readiness::{Behind, Readiness};
pub use registry::PortSearch;
pub use stack::{ReceiveBatch, Stack};
pub use statistics::Statistics;
pub use udp::UdpSocket;
