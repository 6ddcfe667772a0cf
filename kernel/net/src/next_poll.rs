//! When the polling coroutine calls `poll` next if nothing wakes it, and which holder wakes it.
//!
//! | transition | by | what it may meet |
//! | --- | --- | --- |
//! | [`begin`](NextPoll::begin), [`promise`](NextPoll::promise) | the polling coroutine | `claim_wake` |
//! | [`claim_wake`](NextPoll::claim_wake) | a holder of an interface | each of the three |
//!
//! No wake is lost. `poll` promises "never" first, so any deadline that is armed from then on wakes
//! its caller. Then it reads the timers under the interface's lock, and promises the earliest
//! deadline. A deadline that was armed before is found by that read. A holder that arms one after
//! it sees, through the lock, "never" or the new promise, and compares with that. The waker is
//! registered before `poll`. `poll` does not announce the deadlines that it arms itself: its read
//! finds them.
//!
//! A claimed wake leaves "now" here, because the caller of `poll` will call again: it needs no
//! second wake. So only a holder that does wake it may leave that. After any other one, nothing
//! would wake the coroutine before the deadline that it has promised.

#[cfg(not(cops_loom))]
use core::sync::atomic::{AtomicU64, Ordering};
#[cfg(cops_loom)]
use loom::sync::atomic::{AtomicU64, Ordering};

const NEVER: u64 = u64::MAX;
const NOW: u64 = 0;

/// The promise of the polling coroutine, in microseconds; see the module.
pub(crate) struct NextPoll(AtomicU64);

impl Default for NextPoll {
    fn default() -> Self {
        NextPoll(AtomicU64::new(NEVER))
    }
}

impl NextPoll {
    /// A `poll` begins: whatever is armed from now on wakes its caller.
    pub(crate) fn begin(&self) {
        self.set(NEVER);
    }

    /// A `poll` ends. The next one will be at `deadline`.
    pub(crate) fn promise(&self, deadline: Option<u64>) {
        self.set(deadline.unwrap_or(NEVER));
    }

    /// An update, because the model checker may put a plain store before an update that has not
    /// seen it.
    fn set(&self, promise: u64) {
        self.0.swap(promise, Ordering::SeqCst);
    }

    /// There is work at `deadline`. Returns whether the caller must wake the polling coroutine,
    /// which would come too late and is not yet woken.
    #[must_use]
    pub(crate) fn claim_wake(&self, deadline: u64) -> bool {
        // One step: a promise that is made in between may be early enough.
        let claim = |promised| (promised > deadline).then_some(NOW);
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, claim).is_ok()
    }
}
