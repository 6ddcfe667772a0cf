//! The lock of an interface, and why no work is left behind it.
//!
//! smoltcp's interface is one object behind one lock. A user's `send` must not wait for that lock,
//! and its bytes must not stay until some timer expires. So:
//!
//! 1. A sender tries the interface's lock. If it is free, the sender does its egress itself.
//! 2. If not, the sender puts its endpoint into the *outbox* (a list with its own lock) and tries
//!    the interface's lock once more.
//! 3. A holder checks the outbox after it has released the interface. If there is an entry, the
//!    holder tries the lock again; if it gets it, it empties the outbox, serves the endpoints, and
//!    starts over. (A holder with other work also empties the outbox before the release, which
//!    saves one round.)
//!
//! *No entry is left in the outbox.* Let A push in step 2 and fail its second attempt, and let B be
//! the last to release the interface before that attempt could have succeeded. The outbox's lock
//! orders A's push and B's check after the release. If the push is first, B sees the entry. If B's
//! check is first, then B's release happens before A's attempt, so that attempt cannot fail because
//! of B: it succeeds, or it fails because of a later holder C, which also checks the outbox after
//! its release. The last holder of this chain sees the entry.
//!
//! The coroutines of the kernel do not wait for the lock either: that would be waiting for a hart
//! that may have lost its processor. If the interface is held, they leave a request in the outbox.
//! For the polling coroutine the holder runs the timers that are due, and wakes it by the next
//! deadline. The receiver is woken after the release.
//!
//! *No holder works for others without end.* A holder serves a bounded number of steps. When they
//! are used up, it wakes the polling coroutine, which continues in `poll`, again in bounded
//! portions.
//!
//! No interrupt handler takes the lock, so it does not disable interrupts. Lock order: interface,
//! endpoint, then one of backlog, registry, outbox, network, poll waker (the leaves). A handle
//! locks only an endpoint to copy bytes, and never holds it while it tries the interface.

use alloc::sync::Arc;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Waker;

use cops_lock::{Mutex, MutexGuard};

use crate::chain::{Chain, TURN};
use crate::endpoint::Endpoint;
use crate::link_core::LinkCore;
use crate::shared::Shared;

/// Maximum number of frames that a holder moves for others when it releases the interface: a
/// handshake over loopback. A frame takes about 5,000 instructions.
const STEPS_ON_RELEASE: u32 = 5;

/// One interface.
pub(crate) struct Link {
    shared: Arc<Shared>,
    core: Mutex<LinkCore>,
    outbox: Outbox,
    /// Whether endpoints wait for room in the device. The holder sets it and checks the device
    /// again before the release.
    blocked: AtomicBool,
}

/// What those have left that found the interface busy.
#[derive(Default)]
pub(crate) struct Outbox(Mutex<Left>);

#[derive(Default)]
struct Left {
    /// Endpoints with something to send.
    endpoints: Chain<TURN>,
    /// Due timers are to be run, and the device is to be asked for room.
    poll: bool,
    /// The receiver has frames.
    receiver: Option<Waker>,
}

impl Outbox {
    /// Adds `endpoint` unless it is queued already. The holder that serves it first clears the mark
    /// and then locks the endpoint's state, so it sees the bytes that were written before this
    /// call.
    fn push(&self, endpoint: &Arc<Endpoint>) {
        if !endpoint.dirty.swap(true, Ordering::AcqRel) {
            self.0.lock().endpoints.push_back(endpoint.clone());
        }
    }

    /// Moves all endpoints into `into`.
    pub(crate) fn drain(&self, into: &mut Chain<TURN>) {
        into.append(&mut self.0.lock().endpoints);
    }

    fn ask_for_poll(&self) {
        self.0.lock().poll = true;
    }

    fn ask_for_wake(&self, receiver: &Waker) {
        let receiver = Some(receiver.clone());
        self.0.lock().receiver = receiver;
    }

    /// Whether a poll is wanted; it is not from then on.
    fn take_poll(&self) -> bool {
        core::mem::take(&mut self.0.lock().poll)
    }

    /// For a holder after its release: wakes the receiver if that waits. Returns whether there is
    /// anything else.
    fn look(&self) -> bool {
        let mut left = self.0.lock();
        let receiver = left.receiver.take();
        let has_more = left.poll || !left.endpoints.is_empty();
        drop(left);
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        has_more
    }
}

impl Link {
    pub(crate) fn new(shared: Arc<Shared>, core: LinkCore) -> Link {
        Link {
            shared,
            core: Mutex::new(core),
            outbox: Outbox::default(),
            blocked: AtomicBool::new(false),
        }
    }

    /// Waits for the interface. For callers that cannot proceed without it, such as `connect`.
    pub(crate) fn lock(&self) -> LinkGuard<'_> {
        LinkGuard { link: self, core: Some(self.core.lock()) }
    }

    /// The interface, for the polling coroutine. `None` if it is held: then its holder runs the due
    /// timers, wakes that coroutine by the next deadline, and asks the device for room.
    pub(crate) fn lock_or_ask(&self) -> Option<LinkGuard<'_>> {
        self.try_lock_or(|| self.outbox.ask_for_poll())
    }

    /// The interface, for the receiver. `None` if it is held: then `receiver` is woken when it is
    /// free.
    pub(crate) fn lock_or_wait(&self, receiver: &Waker) -> Option<LinkGuard<'_>> {
        self.try_lock_or(|| self.outbox.ask_for_wake(receiver))
    }

    /// Tries again after `ask`: the holder that has released the interface before `ask` does not
    /// see it.
    fn try_lock_or(&self, ask: impl FnOnce()) -> Option<LinkGuard<'_>> {
        let core = self.core.try_lock().or_else(|| {
            ask();
            self.core.try_lock()
        });
        core.map(|core| LinkGuard { link: self, core: Some(core) })
    }

    /// Makes sure that `endpoint` is served: by the caller if the interface is free, otherwise by
    /// its holder.
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

    /// Queues `endpoint` to be served by the next holder of the interface.
    pub(crate) fn enqueue(&self, endpoint: &Arc<Endpoint>) {
        self.outbox.push(endpoint);
    }

    /// Whether egress waits for room in the device.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::SeqCst)
    }
}

/// The locked interface. Releasing it serves the work that has gathered meanwhile. There is no
/// other way to unlock it, so no code path can omit that.
pub(crate) struct LinkGuard<'a> {
    link: &'a Link,
    core: Option<MutexGuard<'a, LinkCore>>,
}

/// What remains to be done after an interface was released.
pub(crate) struct Remainder {
    /// The next deadline, in microseconds.
    pub(crate) deadline: Option<u64>,
    /// The steps were used up before the work was done.
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

    /// Releases the interface after at most `steps` and returns what remains to be done. The caller
    /// must do it; the polling coroutine is not woken.
    pub(crate) fn release(mut self, steps: &mut u32) -> Remainder {
        self.unlock(steps, false)
    }

    /// Releases the interface after at most `steps` for what has gathered, and again for what
    /// gathers meanwhile. The first time, it looks for that also outside of the outbox.
    #[inline(never)]
    fn unlock(&mut self, steps: &mut u32, wake_poller: bool) -> Remainder {
        let link = self.link;
        let mut remainder = Remainder { deadline: None, more: false };
        while let Some(mut core) = self.core.take() {
            let due = link.outbox.take_poll() && core.run_timers(&link.shared, steps);
            let more = core.serve_pending(&link.shared, &link.outbox, &link.blocked, steps);
            remainder.more = due || more;
            remainder.deadline = core.earliest_deadline();
            drop(core);
            // Announced only after the release, because what is woken may take the lock at once.
            let has_more = link.outbox.look();
            if remainder.more {
                if wake_poller {
                    link.shared.deadline.wake_poller_by(0);
                }
                break;
            }
            if let Some(deadline) = remainder.deadline.filter(|_| wake_poller) {
                link.shared.deadline.wake_poller_by(deadline);
            }
            if !has_more {
                break;
            }
            self.core = link.core.try_lock();
        }
        remainder
    }

    /// Whether something has gathered, as far as that is seen without the outbox's lock.
    #[inline]
    fn has_gathered(&self) -> bool {
        // Only holders of the lock set the mark, so this sees the last one.
        self.link.blocked.load(Ordering::Relaxed) || self.has_pending()
    }
}

impl Drop for LinkGuard<'_> {
    fn drop(&mut self) {
        let link = self.link;
        // The usual case, in which nothing has gathered, is apart from the rest: it needs few
        // registers. What is in the outbox is seen after the release.
        let nothing_has_gathered = self.core.is_some() && !self.has_gathered();
        if let Some(mut core) = self.core.take_if(|_| nothing_has_gathered) {
            core.transport_flush();
            let deadline = core.earliest_deadline();
            drop(core);
            if let Some(deadline) = deadline {
                link.shared.deadline.wake_poller_by(deadline);
            }
            if !link.outbox.look() {
                return;
            }
            self.core = link.core.try_lock();
        }
        self.unlock(&mut { STEPS_ON_RELEASE }, true);
    }
}

impl Deref for LinkGuard<'_> {
    type Target = LinkCore;
    fn deref(&self) -> &LinkCore {
        self.core.as_ref().expect("the guard holds the lock until it is unlocked")
    }
}

impl DerefMut for LinkGuard<'_> {
    fn deref_mut(&mut self) -> &mut LinkCore {
        self.core.as_mut().expect("the guard holds the lock until it is unlocked")
    }
}
