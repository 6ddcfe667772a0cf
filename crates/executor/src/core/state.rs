//! The state word of a coroutine, and every transition it can make.
//!
//! The state is where the coroutine is (`Place`), and being polled is no place of its own: a
//! coroutine stays at the head of its list while its worker polls it, so that yielding to the next
//! moves nothing and changes no word.
//!
//! ```text
//!               (1) occupy                    (4) take_from_inbox
//!     Nowhere ───────────────► Inbox ──────────────────────────────► List ◄──┐ (6) settle: woken again,
//!        ▲                       ▲                                    │ │ └───┘ (5) relevel: to another list,
//!        │                       │ (2) wake, cancel                   │ │       (7) migrate: to another worker
//!        │                       │                                    │ │
//!        │                    Blocked ◄───────────────────────────────┘ │
//!        │                                 (6) block, settle            │
//!        └──────────────────────────────────────────────────────────────┘ (8) vacate
//! ```
//!
//! 1. `occupy`: spawn, on a slot that the free list has given to it alone. `occupy_blocked`:
//!    likewise, but it begins Blocked; `occupy_listed`: by the holder of the lock of the worker
//!    that gets it.
//! 2. `wake`, `cancel`: any thread. Blocked becomes Inbox, and is posted; Inbox stays; List notes
//!    WOKEN, which is for the worker that settles it, if it is being polled. `wake_listed`:
//!    straight from Blocked to List, by the holder of a worker's lock. CANCELLED is set for good:
//!    the future is dropped instead of polled.
//! 3. `set_base`, `set_inherited`: any thread. They change nothing but the priority; what waits in
//!    a list is then moved by (5).
//! 4. `take_from_inbox`: the holder of the lock of the worker in the inbox of which it was found.
//! 5. `relevel`: the holder of the lock of the worker that has it in its list, unless it is being
//!    polled.
//! 6. `block`, `settle`: the worker that has polled it, after a poll that is pending, under its own
//!    lock. That the coroutine has woken itself need not be in the word: it may be a note on the
//!    worker (`WorkerState::woken`).
//! 7. `migrate`: a thief that holds the locks of both workers, unless the coroutine is being
//!    polled.
//! 8. `vacate`: the worker that has polled it, under its lock, after the future was dropped.
//!
//! # Rules
//!
//! - A transition is one atomic update. It returns what the caller must now do, exactly once.
//! - A coroutine is in one inbox, or in one list, or in neither, as its place says: so it is polled
//!   by one worker at a time. `Slot::next` belongs to that inbox, or to that list: so the worker
//!   that blocks a coroutine has read what comes after it before.
//! - The place is List, and `worker` and `level` while it is, change under the lock of that worker
//!   only. Inbox becomes List under the lock of the worker that owns the inbox.
//! - `level` is that of the list in which a coroutine is; it differs from its priority only while
//!   the thread that has changed that is about to move it (`Executor::requeue`), or has left that
//!   to the worker. In no list, it is the priority: so a wake need not work that out.
//!
//! # Orderings
//!
//! Updates are acquire and release, so all updates of one word are ordered and each sees what was
//! written before the earlier ones. Pairs that matter:
//! - (2) with the next (6). A worker that begins a poll reads the word without an update, unless it
//!   sees a flag; a wake that it has not seen then has set WOKEN, which makes `block` fail, so that
//!   the coroutine is polled once more, and that poll sees what the waker wrote. Hence a wake of
//!   what is WOKEN already updates the word too, without changing it.
//! - (2) of what is Blocked or in an inbox with (4), or with the lock under which it was listed:
//!   the poll comes after the pop from that list, under the same lock.
//! - (6) with the next (2), so that the future may go on at another worker; and for a coroutine
//!   that stays in its list, the worker's lock with that of the thief that takes it from there.

use super::atomic::{AtomicU64, Ordering};

use super::id::LAST_GENERATION;
use super::priority::Priority;
use super::snapshot::{
    BASE_SHIFT, CANCELLED, GENERATION_SHIFT, INHERITED_SHIFT, Place, Snapshot, WOKEN, WORKER_SHIFT,
};

/// What a wake, cancel or change of priority leaves to do.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// The id refers to no coroutine any more.
    Gone,
    /// Nothing: it is where it belongs, or blocks and shall.
    Done,
    /// Push the slot into the inbox of this worker, and announce it there.
    Post { worker: u32, priority: Priority },
    /// It is in the inbox of this worker already: announce it.
    Announce { worker: u32, priority: Priority },
    /// It waits in a list of this worker, or is being polled: have the worker look at its word
    /// after that.
    Note { worker: u32 },
    /// It is in a list, and its priority is not that of the list, or was not: move it.
    Move,
}

/// What to do with a coroutine with a pending poll. It is at the head of its list.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Settled {
    /// Take it out of its list.
    Blocks,
    /// Move it to the tail of its list.
    Stays,
    /// Move it to the tail of list `to`.
    Moves { to: Priority },
    /// Drop the future: it was cancelled.
    Ends,
}

/// The word itself.
#[repr(transparent)]
pub(crate) struct State(AtomicU64);

impl State {
    #[cfg(test)]
    pub const fn new() -> State {
        State(AtomicU64::new(0))
    }

    #[cfg(test)]
    pub fn set_generation(&self, generation: u32) {
        self.0.store((generation as u64) << GENERATION_SHIFT, Ordering::Relaxed);
    }

    pub fn load(&self) -> Snapshot {
        Snapshot(self.0.load(Ordering::Acquire))
    }

    /// The word of the head of a list with its lock held, or held just before.
    #[inline(always)]
    pub fn peek(&self) -> Snapshot {
        Snapshot(self.0.load(Ordering::Relaxed))
    }

    /// Updates the word by `decide` until that succeeds. `None` leaves it alone.
    #[inline(always)]
    fn update<A>(&self, otherwise: A, decide: impl Fn(Snapshot) -> Option<(Snapshot, A)>) -> A {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let Some((next, action)) = decide(Snapshot(seen)) else { return otherwise };
            match self.0.compare_exchange_weak(seen, next.0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return action,
                Err(now) => seen = now,
            }
        }
    }

    #[inline(always)]
    fn replace(&self, seen: Snapshot, next: Snapshot) -> bool {
        self.0.compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// (1) A slot that is the caller's alone becomes a coroutine. Returns the high half of its id.
    ///
    /// A plain store will do: late wakes only read a word with the place Nowhere. Release, because
    /// the thread that takes it from the inbox or receives the id must see the future.
    #[inline(always)]
    fn occupy_at(&self, place: Place, priority: Priority, worker: u32) -> u64 {
        // A slot is never used when its generations are used up, so this does not overflow.
        let id_high = self.peek().id_high().wrapping_add(1 << GENERATION_SHIFT);
        self.0.store(Snapshot::born(id_high, place, priority, worker).0, Ordering::Release);
        id_high
    }

    /// (1) in the inbox of `worker`, into which the caller pushes it.
    #[must_use]
    pub fn occupy(&self, priority: Priority, worker: u32) -> u64 {
        self.occupy_at(Place::Inbox, priority, worker)
    }

    /// (1) in the list `priority` of `worker`; the caller holds its lock.
    #[must_use]
    #[inline(always)]
    pub fn occupy_listed(&self, priority: Priority, worker: u32) -> u64 {
        self.occupy_at(Place::List, priority, worker)
    }

    /// (1) Blocked. `worker` is where it goes if it is woken from outside.
    #[must_use]
    pub fn occupy_blocked(&self, priority: Priority, worker: u32) -> u64 {
        self.occupy_at(Place::Blocked, priority, worker)
    }

    /// (2) for a caller that holds the lock of `worker`, and has `seen` that it is blocked: if it
    /// returns a level, the caller links the coroutine in that list. Otherwise nothing has
    /// happened, and `wake` does the right thing.
    #[must_use]
    #[inline(always)]
    pub fn wake_listed(&self, seen: Snapshot, worker: u32) -> Option<Priority> {
        let next = seen.with_worker(worker).at(Place::List);
        self.replace(seen, next).then_some(seen.listed_at())
    }

    /// (2) `near` is the worker to post to; without one the coroutine goes back to where it was.
    pub fn wake(&self, generation: u32, near: Option<u32>) -> Request {
        self.update(Request::Gone, |word| {
            word.names(generation).then(|| match word.place() {
                Place::List => (word.with(WOKEN), Request::Done),
                Place::Blocked => post(word, near),
                _ => (word, Request::Done),
            })
        })
    }

    /// (2) As `wake`, and the future is dropped instead of polled.
    pub fn cancel(&self, generation: u32, near: Option<u32>) -> Request {
        self.update(Request::Gone, |word| {
            let cancelled = word.with(CANCELLED);
            word.names(generation).then(|| match word.place() {
                Place::List => (cancelled, Request::Note { worker: word.worker() }),
                Place::Blocked => post(cancelled, near),
                _ => (cancelled, Request::Done),
            })
        })
    }

    /// (3) Its own priority.
    pub fn set_base(&self, generation: u32, priority: Priority) -> Request {
        self.set_urgency(generation, BASE_SHIFT, priority)
    }

    /// (3) The priority that others have lent to it; the least urgent is none.
    pub fn set_inherited(&self, generation: u32, priority: Priority) -> Request {
        self.set_urgency(generation, INHERITED_SHIFT, priority)
    }

    fn set_urgency(&self, generation: u32, shift: u32, priority: Priority) -> Request {
        self.update(Request::Gone, |word| {
            let next = word.with_six_bits(shift, priority.level() as u64);
            let next = if word.place() == Place::List { next } else { next.levelled() };
            let (worker, priority) = (next.worker(), next.priority());
            word.names(generation).then_some((
                next,
                match next.place() {
                    Place::Inbox if priority != word.priority() => {
                        Request::Announce { worker, priority }
                    }
                    // Or was: its worker may have published that.
                    Place::List if next.is_misplaced() || word.is_misplaced() => Request::Move,
                    _ => Request::Done,
                },
            ))
        })
    }

    /// (4) The slot was taken out of the inbox of `worker`; the caller holds its lock. Returns the
    /// list to which the caller appends it.
    #[must_use]
    pub fn take_from_inbox(&self, worker: u32) -> Priority {
        self.update(Priority::DEFAULT, |word| {
            Some((word.with_worker(worker).at(Place::List), word.listed_at()))
        })
    }

    /// (5) From which list to which the caller moves it, if it is misplaced. The caller holds the
    /// lock of `worker`, in a list of which the coroutine may be, and not be polled.
    #[must_use]
    pub fn relevel(&self, generation: u32, worker: u32) -> Option<(Priority, Priority)> {
        self.update(None, |word| {
            let here = word.names(generation) && word.worker() == worker && word.is_misplaced();
            here.then(|| (word.levelled(), Some((word.listed_at(), word.priority()))))
        })
    }

    /// A poll is about to begin that a wake has asked for: uses WOKEN up. Returns the word as it is
    /// now.
    #[must_use]
    pub fn begin(&self) -> Snapshot {
        Snapshot(self.0.fetch_and(!WOKEN, Ordering::AcqRel)).without(WOKEN)
    }

    /// (6) at its shortest, for one that has not woken itself and is not misplaced. False, without
    /// any effect, if the word was changed since it was `begun` without changes.
    #[must_use]
    #[inline(always)]
    pub fn block(&self, begun: Snapshot) -> bool {
        self.replace(begun, begun.at(Place::Blocked))
    }

    /// (6) `begun` is the word with which the poll began, `woken` whether the coroutine woke itself
    /// meanwhile.
    #[inline(always)]
    pub fn settle(&self, begun: Snapshot, woken: bool) -> Settled {
        // Usually the word has not been changed during the poll.
        if woken {
            let word = self.peek();
            if word.is_untouched() && !word.is_misplaced() {
                return Settled::Stays;
            }
        } else if begun.is_untouched() && !begun.is_misplaced() && self.block(begun) {
            return Settled::Blocks;
        }
        self.settle_touched(woken)
    }

    #[cold]
    fn settle_touched(&self, woken: bool) -> Settled {
        self.update(Settled::Ends, |word| {
            if word.is_cancelled() {
                return None;
            }
            let next = word.without(WOKEN).levelled();
            Some(if !word.has(WOKEN) && !woken {
                (next.at(Place::Blocked), Settled::Blocks)
            } else if word.is_misplaced() {
                (next, Settled::Moves { to: next.listed_at() })
            } else {
                (next, Settled::Stays)
            })
        })
    }

    /// (7) The caller holds the locks of `from`, which has it in its list, and of `to`, and links
    /// it in the list of the same level there. Returns the word as it is now.
    ///
    /// All that changes is known, so this is one addition and cannot fail.
    #[must_use]
    pub fn migrate(&self, from: u32, to: u32) -> Snapshot {
        let change = (to as u64).wrapping_sub(from as u64) << WORKER_SHIFT;
        Snapshot(self.0.fetch_add(change, Ordering::AcqRel).wrapping_add(change))
    }

    /// (8) The caller has taken it out of its list, and holds that worker's lock. False if the
    /// slot's generations are used up.
    ///
    /// A plain store will do: in the meantime others change only flags and priorities of a
    /// coroutine that has ended, and a thread that wants to move it waits for the lock and then
    /// checks again.
    #[must_use]
    #[inline(always)]
    pub fn vacate(&self) -> bool {
        let id_high = self.peek().id_high();
        if cfg!(loom) {
            // The same, but loom may put a store before an update that has not seen it.
            self.0.swap(id_high, Ordering::Release);
        } else {
            self.0.store(id_high, Ordering::Release);
        }
        id_high != (LAST_GENERATION as u64) << GENERATION_SHIFT
    }
}

/// From Blocked into an inbox.
#[inline(always)]
fn post(word: Snapshot, near: Option<u32>) -> (Snapshot, Request) {
    let worker = near.unwrap_or(word.worker());
    (
        word.at(Place::Inbox).with_worker(worker),
        Request::Post { worker, priority: word.listed_at() },
    )
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
