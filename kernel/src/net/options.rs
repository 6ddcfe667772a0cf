//! Options of a TCP socket that its connection gets: `TCP_NODELAY`, `SO_KEEPALIVE` and how that
//! probes, of Linux programs.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, Ordering::Relaxed};

use cops_net::{Connection, KeepAlive};

/// The options of a socket. They can be set before there is a connection.
pub struct Options {
    /// Small segments are sent at once.
    no_delay: AtomicBool,
    /// A silent peer is probed.
    keep_alive: AtomicBool,
    /// How: the fields of [`KeepAlive`].
    probes: AtomicU8,
    idle_seconds: AtomicU16,
    interval_seconds: AtomicU16,
}

/// A change of an option.
#[derive(Clone, Copy)]
pub enum Change {
    /// Whether small segments are sent at once.
    NoDelay(bool),
    /// Whether a silent peer is probed.
    KeepAlive(bool),
    /// After how many seconds. Not 0.
    IdleSeconds(u16),
    /// How many seconds apart. Not 0.
    IntervalSeconds(u16),
    /// How often in vain.
    Probes(u8),
}

impl Options {
    /// Those of a new socket. `TCP_NODELAY` is on, unlike on Linux.
    pub const fn new() -> Self {
        Self::of(true, false, KeepAlive::DEFAULT)
    }

    /// Those of a socket that inherits them.
    pub fn copy(&self) -> Self {
        Self::of(self.no_delay(), self.keep_alive(), self.probing())
    }

    const fn of(no_delay: bool, keep_alive: bool, probing: KeepAlive) -> Self {
        let KeepAlive { idle_seconds, interval_seconds, probes } = probing;
        Self {
            no_delay: AtomicBool::new(no_delay),
            keep_alive: AtomicBool::new(keep_alive),
            probes: AtomicU8::new(probes),
            idle_seconds: AtomicU16::new(idle_seconds),
            interval_seconds: AtomicU16::new(interval_seconds),
        }
    }

    /// Applies them to a new connection.
    pub fn apply(&self, connection: &Connection) {
        connection.set_no_delay(self.no_delay());
        // Off is the default. To set it takes a connection off the fast path.
        if self.keep_alive() {
            connection.set_keep_alive(Some(self.probing()));
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

    /// When a silent peer is probed, if it is.
    pub fn probing(&self) -> KeepAlive {
        KeepAlive {
            idle_seconds: self.idle_seconds.load(Relaxed),
            interval_seconds: self.interval_seconds.load(Relaxed),
            probes: self.probes.load(Relaxed),
        }
    }

    /// Makes `change`, also of `connection`.
    pub fn change(&self, change: Change, connection: Option<&Connection>) {
        match change {
            Change::NoDelay(is_on) => self.no_delay.store(is_on, Relaxed),
            Change::KeepAlive(is_on) => self.keep_alive.store(is_on, Relaxed),
            Change::IdleSeconds(seconds) => self.idle_seconds.store(seconds, Relaxed),
            Change::IntervalSeconds(seconds) => self.interval_seconds.store(seconds, Relaxed),
            Change::Probes(count) => self.probes.store(count, Relaxed),
        }
        let Some(connection) = connection else { return };
        match change {
            Change::NoDelay(is_on) => connection.set_no_delay(is_on),
            Change::KeepAlive(false) => connection.set_keep_alive(None),
            // Nothing is probed: this tells the connection nothing.
            _ if !self.keep_alive() => {}
            _ => connection.set_keep_alive(Some(self.probing())),
        }
    }
}
