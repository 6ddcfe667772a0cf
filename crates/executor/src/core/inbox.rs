//! A worker's inbox: a lock-free stack of slots that others have made ready, or want moved.
//!
//! Anybody pushes, in any context; whoever holds the worker's lock takes all at once, so there is no pop of
//! one and no ABA. Membership is guarded by IN_INBOX of the slot's state: who sets it pushes, once.
//!
//! Lost-wake argument, waker's side: the push is sequentially consistent, and the waker looks at the set of
//! parked workers after it (`announce`). The parking worker announces that it parks and then looks at the
//! inboxes (`prepare_park`). In the one order of these four, either the waker sees the parked worker or the
//! parking worker sees the push.

use super::atomic::{AtomicU32, Ordering};

use super::slab::Slab;
use super::slot::Slot;

/// Head of the stack: the handle of the slot that was pushed last, 0 if empty.
#[repr(transparent)]
pub(crate) struct Inbox(AtomicU32);

impl Inbox {
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }

    /// Pushes a slot whose IN_INBOX the caller has just set. True if the inbox was empty.
    pub fn push(&self, slot: &Slot) -> bool {
        let handle = slot.handle();
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            slot.inbox_next.store(head, Ordering::Relaxed);
            match self.0.compare_exchange_weak(head, handle, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return head == 0,
                Err(now) => head = now,
            }
        }
    }

    /// Takes all and hands them to `each`, first pushed first. `each` may clear IN_INBOX.
    #[allow(unsafe_code)]
    #[inline]
    pub fn drain<'a>(&self, slab: &'a Slab, mut each: impl FnMut(&'a Slot)) {
        let mut last_pushed = self.0.swap(0, Ordering::SeqCst);
        let mut first = 0;
        while last_pushed != 0 {
            // SAFETY: only slots of this slab are pushed, and each is in the chain once.
            let slot = unsafe { slab.known(last_pushed) };
            let next = slot.inbox_next.load(Ordering::Relaxed);
            slot.inbox_next.store(first, Ordering::Relaxed);
            first = last_pushed;
            last_pushed = next;
        }
        while first != 0 {
            // SAFETY: as above.
            let slot = unsafe { slab.known(first) };
            // Read before `each` clears IN_INBOX: from then on the field belongs to the next pusher.
            first = slot.inbox_next.load(Ordering::Relaxed);
            each(slot);
        }
    }
}
