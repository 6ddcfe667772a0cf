//! Options of a TCP socket that its connection gets: `TCP_NODELAY` and `SO_KEEPALIVE` of Linux
//! programs.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cops_net::Connection;

/// Interval of keep-alive probes, in microseconds: two hours, as on Linux.
const KEEP_ALIVE_MICROSECONDS: u64 = 7_200_000_000;

/// The options of a socket. They can be set before there is a connection.
pub struct Options {
    /// Small segments are sent at once.
    no_delay: AtomicBool,
    /// A silent peer is probed.
    keep_alive: AtomicBool,
}

impl Options {
    /// Those of a new socket. `TCP_NODELAY` is on, unlike on Linux.
    pub const fn new() -> Self {
        Self { no_delay: AtomicBool::new(true), keep_alive: AtomicBool::new(false) }
    }

    /// Those of a socket that inherits them.
    pub fn copy(&self) -> Self {
        let copy = |option: &AtomicBool| AtomicBool::new(option.load(Relaxed));
        Self { no_delay: copy(&self.no_delay), keep_alive: copy(&self.keep_alive) }
    }

    /// Applies them to a new connection.
    pub fn apply(&self, connection: &Connection) {
        connection.set_no_delay(self.no_delay());
        // Off is the default. To set it takes a connection off the fast path.
        if self.keep_alive() {
            set_keep_alive(connection, true);
        }
    }

    /// Whether small segments are sent at once.
    pub fn no_delay(&self) -> bool {
        self.no_delay.load(Relaxed)
    }

    /// Whether a silent peer is probed.
    pub fn keep_alive(&self) -> bool {
        self.keep_alive.load(Relaxed)
    }

    /// Sets whether small segments are sent at once, also by `connection`.
    pub fn set_no_delay(&self, is_on: bool, connection: Option<&Connection>) {
        self.no_delay.store(is_on, Relaxed);
        if let Some(connection) = connection {
            connection.set_no_delay(is_on);
        }
    }

    /// Sets whether a silent peer is probed, also by `connection`.
    pub fn set_keep_alive(&self, is_on: bool, connection: Option<&Connection>) {
        self.keep_alive.store(is_on, Relaxed);
        if let Some(connection) = connection {
            set_keep_alive(connection, is_on);
        }
    }
}

fn set_keep_alive(connection: &Connection, is_on: bool) {
    connection.set_keep_alive(is_on.then_some(KEEP_ALIVE_MICROSECONDS));
}
