//! Keep-alive: probes of a peer that has been silent for long (RFC 9293, section 3.8.4).
//!
//! smoltcp probes after one interval of silence and repeats the probe after the same one, and an
//! interval that is changed counts only from the next segment on. So smoltcp gets an interval when
//! the peer has been silent for long enough, and not before: it then probes at once, and repeats
//! that.

use smoltcp::socket::tcp::Socket;
use smoltcp::time::Duration;

const MICROSECONDS_PER_SECOND: u64 = 1_000_000;

/// When a silent peer is probed, and how often in vain. The default is Linux's: after two hours,
/// nine probes each 75 seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// The silence before the first probe, in seconds; 0 counts as 1.
    pub idle_seconds: u16,
    /// The time between two probes, in seconds; 0 counts as 1.
    pub interval_seconds: u16,
    /// After so many probes without an answer, and another interval, the connection ends.
    pub probes: u8,
}

impl KeepAlive {
    /// See [`KeepAlive`].
    pub const DEFAULT: Self = Self { idle_seconds: 7200, interval_seconds: 75, probes: 9 };

    /// The silence before the first probe.
    pub(crate) fn idle_microseconds(self) -> u64 {
        u64::from(self.idle_seconds.max(1)) * MICROSECONDS_PER_SECOND
    }

    fn interval_microseconds(self) -> u64 {
        u64::from(self.interval_seconds.max(1)) * MICROSECONDS_PER_SECOND
    }

    /// For how long the peer may be silent.
    pub(crate) fn limit_microseconds(self) -> u64 {
        self.idle_microseconds() + u64::from(self.probes) * self.interval_microseconds()
    }

    /// Prepares `socket` for what it does next: its peer has been silent for `silent`
    /// microseconds, or is heard just now.
    pub(crate) fn pace(self, socket: &mut Socket<'_>, silent: u64) {
        let probes = silent >= self.idle_microseconds();
        let interval = Duration::from_micros(self.interval_microseconds());
        socket.set_keep_alive(probes.then_some(interval));
    }
}
