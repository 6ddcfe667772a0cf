//! A notification that is owed to a device (decision 59): since when, and when it must be given.
//!
//! | transition | by | what it may meet |
//! | --- | --- | --- |
//! | [`owe`](Owed::owe) | a hart that has published frames | each of the three, on other harts |
//! | [`take`](Owed::take) | a hart that is to sleep, a timer interrupt | each of the three |
//! | [`before_user_mode`](Owed::before_user_mode) | a hart that enters user mode | each of the three |
//!
//! Rules:
//!
//! 1. A hart that takes the notification gives it afterwards. The device then finds all frames that
//!    were published before any `owe` that the `take` follows. So `owe` updates the word also if a
//!    notification is owed already: a load would not order the frames with the hart that takes it.
//! 2. Each hart that owes something takes it, or finds it taken, before it sleeps and before it
//!    computes in user mode for longer than [`Bounds::latest_ticks`]. So a notification that
//!    another hart has taken is given by that hart, and one that was owed anew is that hart's.

use crate::atomic::{AtomicU64, Ordering::*, const_unless_loom};

/// For how long a notification may be owed, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// While the process that is to run has other work that is as urgent.
    pub peers_ticks: u64,
    /// At most, and then the clock interrupts.
    pub latest_ticks: u64,
}

/// What a hart does before it enters user mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum BeforeUserMode {
    /// No notification is owed any more.
    Nothing,
    /// The hart has taken the notification, and gives it.
    Notify,
    /// The notification stays owed; the hart's clock is to interrupt at this moment.
    InterruptBy(u64),
}

/// The notification that is owed to one device; see the module.
#[derive(Debug)]
pub struct Owed {
    /// Since when, in ticks; 0 if none is.
    since_ticks: AtomicU64,
}

impl Default for Owed {
    fn default() -> Self {
        Self::new()
    }
}

impl Owed {
    const_unless_loom! {
        /// None is owed.
        #[must_use]
        pub fn new() -> Self {
            Self { since_ticks: AtomicU64::new(0) }
        }
    }

    /// Frames that the device wants to be notified of were published. A notification that is owed
    /// already keeps its time.
    pub fn owe(&self, now_ticks: u64) {
        // `Release`, with `take`: the frames are visible to the device when it is notified. Also if
        // a notification is owed already (rule 1).
        let keep_or_begin = |since| Some(if since == 0 { now_ticks.max(1) } else { since });
        let _ = self.since_ticks.fetch_update(Release, Relaxed, keep_or_begin);
    }

    /// Whether a notification is owed. A hart that has owed one sees that until one is taken.
    #[inline]
    pub fn is_owed(&self) -> bool {
        self.since_ticks.load(Relaxed) != 0
    }

    /// Takes the notification: the caller gives it if there is one.
    #[must_use]
    pub fn take(&self) -> bool {
        self.since_ticks.swap(0, Acquire) != 0
    }

    /// Takes the notification if it has been owed for [`Bounds::peers_ticks`].
    #[must_use]
    pub fn take_if_late(&self, now_ticks: u64, bounds: Bounds) -> bool {
        let since = self.since_ticks.load(Relaxed);
        since != 0 && now_ticks.saturating_sub(since) >= bounds.peers_ticks && self.take()
    }

    /// The hart is about to enter user mode. `has_peers`: the process has other work that is as
    /// urgent as what it runs.
    pub fn before_user_mode(
        &self,
        now_ticks: u64,
        has_peers: bool,
        bounds: Bounds,
    ) -> BeforeUserMode {
        let since = self.since_ticks.load(Relaxed);
        if since == 0 {
            return BeforeUserMode::Nothing;
        }
        if has_peers && now_ticks.saturating_sub(since) < bounds.peers_ticks {
            // Another hart may have taken it, and this or that hart may owe a younger one: then the
            // clock interrupts sooner than it must.
            return BeforeUserMode::InterruptBy(since.saturating_add(bounds.latest_ticks));
        }
        if self.take() { BeforeUserMode::Notify } else { BeforeUserMode::Nothing }
    }
}
