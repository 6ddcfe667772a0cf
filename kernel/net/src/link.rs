//! The lock around an interface, and the promise that nothing is stranded behind it.
//!
//! smoltcp's interface is one object behind one lock, and a user's `send` must neither wait for
//! that lock nor leave its bytes lying until some timer. So:
//!
//! 1. Who wants egress tries the lock. If it is free, he sends by himself.
//! 2. If not, he puts the endpoint into the *outbox* (a list with a lock of its own) and tries the
//!    interface's lock once more.
//! 3. Who gives the interface's lock back empties the outbox before, and looks again after. If there
//!    is something, he tries the lock again and starts over.
//!
//! *Nothing is stranded.* Let A push in step 2 and fail its second attempt, and let B be the last to
//! release the interface before that attempt could have succeeded. The outbox's lock puts A's push
//! and B's look after the release in one order. If the push comes first, B sees the entry. If B's
//! look comes first, B's release happens before A's attempt, which therefore cannot read B's hold
//! any more: it succeeds, or it fails on a later holder C, who owes the same look after *his*
//! release. The chain ends with somebody who sees the entry.
//!
//! *Nobody works for others for ever.* A holder serves a bounded number of steps; if that is used
//! up he wakes the polling coroutine, whose `poll` continues, again in bounded portions.
//!
//! The lock is never taken by an interrupt handler, so it needs no interrupts masked. Lock order:
//! interface, endpoint, then one of backlog, registry, outbox, network, poll waker (the leaves).
//! Handles lock an endpoint alone to copy bytes; they never hold it while trying the interface.

use alloc::sync::Arc;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

use spin::{Mutex, MutexGuard};

use crate::chain::{Chain, TURN};
use crate::endpoint::Endpoint;
use crate::link_core::LinkCore;
use crate::shared::Shared;

/// How many endpoints and loopback packets one holder serves on the way out.
const STEPS_ON_RELEASE: u32 = 128;

/// One interface.
pub(crate) struct Link {
    shared: Arc<Shared>,
    core: Mutex<LinkCore>,
    outbox: Outbox,
    /// Somebody waits for room in the device. Set and re-checked by the holder before release.
    blocked: AtomicBool,
}

/// Endpoints with something to send, left by those who found the interface busy.
#[derive(Default)]
pub(crate) struct Outbox(Mutex<Chain<TURN>>);

impl Outbox {
    /// Adds `endpoint` unless it is there already. Whoever then serves it clears the mark first
    /// and locks the endpoint's state after, so bytes written before this call are seen.
    fn push(&self, endpoint: &Arc<Endpoint>) {
        if !endpoint.dirty.swap(true, Ordering::AcqRel) {
            self.0.lock().push_back(endpoint.clone());
        }
    }

    /// Moves all entries into `into`.
    pub(crate) fn drain(&self, into: &mut Chain<TURN>) {
        into.append(&mut self.0.lock());
    }

    fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl Link {
    pub(crate) fn new(shared: Arc<Shared>, core: LinkCore) -> Link {
        Link { shared, core: Mutex::new(core), outbox: Outbox::default(), blocked: AtomicBool::new(false) }
    }

    /// Waits for the interface. For those that cannot do without: the driver, the poller, `connect`.
    pub(crate) fn lock(&self) -> LinkGuard<'_> {
        LinkGuard { link: self, core: Some(self.core.lock()) }
    }

    /// Has `endpoint` served: by the caller if the interface is free, else by its holder.
    pub(crate) fn kick(&self, endpoint: &Arc<Endpoint>) {
        if let Some(core) = self.core.try_lock() {
            LinkGuard { link: self, core: Some(core) }.serve_now(endpoint);
            return;
        }
        self.shared.counters.egress_handed_over.add(1);
        self.outbox.push(endpoint);
        if let Some(core) = self.core.try_lock() {
            drop(LinkGuard { link: self, core: Some(core) });
        }
    }

    /// Whether egress waits for room in the device.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::SeqCst)
    }
}

/// The interface, locked. Giving it back serves what has gathered meanwhile: there is no other way
/// to unlock, so no path can forget it.
pub(crate) struct LinkGuard<'a> {
    link: &'a Link,
    core: Option<MutexGuard<'a, LinkCore>>,
}

/// What remains when an interface was given back.
pub(crate) struct Remainder {
    /// The next deadline in microseconds.
    pub(crate) deadline: Option<u64>,
    /// The steps were used up before the work was.
    pub(crate) more: bool,
}

impl LinkGuard<'_> {
    /// Serves one endpoint.
    pub(crate) fn serve_now(&mut self, endpoint: &Arc<Endpoint>) {
        let shared = &self.link.shared;
        if let Some(core) = self.core.as_mut() {
            core.serve(shared, endpoint, None);
        }
    }

    /// Gives the interface back and tells what remains to be done: the caller sees to it, nobody
    /// is woken for it.
    pub(crate) fn release(mut self) -> Remainder {
        self.settle(false)
    }

    fn settle(&mut self, announce: bool) -> Remainder {
        let link = self.link;
        let mut remainder = Remainder { deadline: None, more: false };
        let mut steps = STEPS_ON_RELEASE;
        while let Some(mut core) = self.core.take() {
            remainder.more = core.settle(&link.shared, &link.outbox, &link.blocked, &mut steps);
            remainder.deadline = core.earliest_deadline();
            drop(core);
            // Announced only now: a woken poller may want the lock at once.
            if remainder.more {
                if announce {
                    link.shared.deadline.announce(0);
                }
                break;
            }
            if let Some(deadline) = remainder.deadline.filter(|_| announce) {
                link.shared.deadline.announce(deadline);
            }
            if link.outbox.is_empty() {
                break;
            }
            self.core = link.core.try_lock();
        }
        remainder
    }
}

impl Drop for LinkGuard<'_> {
    fn drop(&mut self) {
        self.settle(true);
    }
}

impl Deref for LinkGuard<'_> {
    type Target = LinkCore;
    fn deref(&self) -> &LinkCore {
        self.core.as_ref().expect("the guard holds the lock until it settles")
    }
}

impl DerefMut for LinkGuard<'_> {
    fn deref_mut(&mut self) -> &mut LinkCore {
        self.core.as_mut().expect("the guard holds the lock until it settles")
    }
}
