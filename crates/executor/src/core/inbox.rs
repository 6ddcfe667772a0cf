//! A worker's inbox: a lock-free stack of slots that others have made ready.
//!
//! Any thread pushes, in any context. The holder of the worker's lock takes everything at once, so
//! single elements are never popped and there is no ABA problem. Membership is guarded by the
//! slot's state: the caller that makes its place Inbox pushes it, once.
//!
//! Lost-wake argument, waker's side: the push is sequentially consistent, and the waker looks at
//! the set of parked workers after it (`announce`). The parking worker announces that it parks and
//! then looks at the inboxes (`prepare_park`). In the one order of these four, either the waker
//! sees the parked worker or the parking worker sees the push.
//!
//! Unsafe: following the chain. Only slots are pushed, and slots are never freed.
#![allow(unsafe_code)]

use super::atomic::{AtomicPtr, Ordering};
use ::core::ptr;

use super::slab::Slab;
use super::slot::Slot;

/// Head of the stack: the slot that was pushed last, null if empty.
#[repr(transparent)]
pub(crate) struct Inbox(pub(super) AtomicPtr<Slot>);

impl Inbox {
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::SeqCst).is_null()
    }

    /// Pushes a slot after the caller has made its place Inbox. True if the inbox was empty.
    pub fn push(&self, slot: &Slot) -> bool {
        let this = ptr::from_ref(slot).cast_mut();
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            slot.next.store(head, Ordering::Relaxed);
            match self.0.compare_exchange_weak(head, this, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return head.is_null(),
                Err(now) => head = now,
            }
        }
    }

    /// Takes all and hands them to `each`, first pushed first. `each` may link the slot elsewhere.
    #[inline]
    pub fn drain<'a>(&self, _: &'a Slab, mut each: impl FnMut(&'a Slot)) {
        let mut last_pushed = self.0.swap(ptr::null_mut(), Ordering::SeqCst);
        let mut first = ptr::null_mut();
        // SAFETY: null, or a slot of this slab; the swap acquired its push, and each is in the
        // chain once.
        while let Some(slot) = unsafe { last_pushed.as_ref() } {
            let next = slot.next.load(Ordering::Relaxed);
            slot.next.store(first, Ordering::Relaxed);
            first = last_pushed;
            last_pushed = next;
        }
        // SAFETY: null, or a slot of this slab: the chain was reversed above and contains the same
        // slots.
        while let Some(slot) = unsafe { first.as_ref() } {
            // Read before `each` links it into a list by the same field.
            first = slot.next.load(Ordering::Relaxed);
            each(slot);
        }
    }
}
