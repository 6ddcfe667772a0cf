//! Time since a fixed instant, and a timer with a finer resolution than a poll timeout.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Nanoseconds since the clock was started; 64 bits last 584 years.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that shows zero now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// Makes the poll return at a given time. `epoll_wait` takes milliseconds, which [`mio`] rounds up:
/// on average half a millisecond too late, more than the whole latency of a good server. A timer
/// descriptor has the resolution of the clock.
pub struct Timer {
    descriptor: OwnedFd,
    armed_for_ns: Option<u64>,
}

impl Timer {
    /// A timer that reports readiness under `token`.
    ///
    /// # Errors
    ///
    /// From the system: out of descriptors or memory.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let descriptor = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        registry.register(&mut SourceFd(&descriptor.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { descriptor, armed_for_ns: None })
    }

    /// Fires at `due_ns` of `clock`, or at once if that has passed. Replaces the earlier setting.
    ///
    /// # Errors
    ///
    /// From the system.
    pub fn set(&mut self, clock: &Clock, due_ns: u64) -> io::Result<()> {
        if self.armed_for_ns == Some(due_ns) {
            return Ok(());
        }
        self.armed_for_ns = Some(due_ns);
        // Zero would disarm it. Setting also clears an unread expiry, so the descriptor need not be
        // read: the next expiry is a new edge.
        let wait = Duration::from_nanos(due_ns.saturating_sub(clock.now_ns()).max(1));
        let value = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()) as _,
        };
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = Itimerspec { it_interval: once, it_value: value };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &setting)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timer_fires_again_and_again_and_not_early() {
        let mut poll = mio::Poll::new().unwrap();
        let mut events = mio::Events::with_capacity(8);
        let mut timer = Timer::new(poll.registry(), Token(0)).unwrap();
        let clock = Clock::start();
        for due_ns in [300_000, 2_000_000, 2_000_001, 3_500_000] {
            timer.set(&clock, due_ns).unwrap();
            poll.poll(&mut events, Some(Duration::from_secs(10))).unwrap();
            assert!(!events.is_empty(), "the poll waited for its own timeout");
            assert!(clock.now_ns() >= due_ns);
        }
    }
}
