//! The state word of a coroutine, and every transition it can make.
//!
//! ```text
//!                  (1) occupy                     (5) link
//!      FREE ────────────────────► READY in inbox ──────────► READY in list ◄──┐
//!       ▲                              ▲                        │      │      │ (5) link: to the list of
//!       │                              │ (2) wake, (3) cancel   │      └──────┘     its new priority
//!       │ (8) vacate                   │                        │ (6) pop
//!       │                            IDLE ◄──────────────────   ▼
//!       └──────────────────────────────────────────────────  RUNNING ──(7) settle, woken──► READY
//!                                      (7) settle, not woken
//! ```
//!
//! 1. `occupy`: spawn, on a slot that the free list has given to it alone. `occupy_blocked`: likewise, but it
//!    begins IDLE.
//! 2. `wake`: anybody. IDLE becomes READY and is posted; RUNNING notes WOKEN; READY stays. Whoever holds a
//!    worker's lock may link it there at once instead; the same goes for (1).
//! 3. `cancel`: anybody. As `wake`, and CANCELLED is set for good: whoever settles or pops it next drops the
//!    future.
//! 4. `set_priority`: anybody. A coroutine that waits in a list is posted, so that it is moved.
//! 5. `take_from_inbox`: whoever holds the lock of the worker whose inbox it was found in.
//! 6. `pop`: whoever holds the lock of the worker in whose lists it is. From here on that worker owns
//!    the future.
//! 7. `settle`: the owner, after a poll that is pending, holding its own worker's lock. That the coroutine
//!    has woken itself need not be in the word: it may be a note on the worker (`WorkerState::woken`).
//! 8. `vacate`: the owner, after the future was dropped.
//! 9. `hand_over` (READY in list to READY in another worker's list): a thief that holds both locks, unless
//!    the coroutine is in an inbox too.
//!
//! # Rules
//!
//! - A transition is one atomic update. It returns what the caller must now do, exactly once.
//! - **READY means one token**: a READY coroutine is in exactly one list (LINKED) or on its way through
//!   exactly one inbox (IN_INBOX), or both, when it waits in a list and its owner was told to move it. So
//!   it is popped once, and polled by one worker at a time.
//! - IN_INBOX is set by whoever pushes, and cleared by (5) only. It guards `inbox_next`: a slot is in at
//!   most one inbox. It may outlive READY: a coroutine can be popped, polled, even exit while a request to
//!   move it is still in an inbox. While it is set nobody but (5) links the coroutine (7 leaves it to 5),
//!   and the slot is not given away (8 leaves that to 5).
//! - LINKED, and `worker` while it is set, change under the lock of that worker only, so (5) may unlink what it finds LINKED:
//!   a LINKED coroutine is posted to that same worker's inbox (4), and with IN_INBOX set nobody else can
//!   have linked it anywhere else since.
//! - `level` is the list in which a LINKED coroutine is; it differs from `priority` only while a request
//!   to move it is in the inbox.
//!
//! # Orderings
//!
//! Every update is acquire and release, so all updates of one word are ordered and each sees what was
//! written before the earlier ones. Pairs that matter: (2) with the next (6) or (7), so that the poll sees
//! what the waker wrote, hence a wake of a READY or WOKEN coroutine updates the word too, without changing
//! it; (7) with the next (6), so that the future may go to another worker; (1) with (6), so that the worker
//! sees the future.

use super::atomic::{AtomicU64, Ordering};

use super::priority::Priority;

const PRIORITY_SHIFT: u32 = 0;
const LEVEL_SHIFT: u32 = 6;
const WORKER_SHIFT: u32 = 12;
const SIX_BITS: u64 = 63;
const PHASE_SHIFT: u32 = 18;
const PHASE_MASK: u64 = 3 << PHASE_SHIFT;
const FREE: u64 = 0;
const IDLE: u64 = 1 << PHASE_SHIFT;
const READY: u64 = 2 << PHASE_SHIFT;
const RUNNING: u64 = 3 << PHASE_SHIFT;
const WOKEN: u64 = 1 << 20;
const CANCELLED: u64 = 1 << 21;
const IN_INBOX: u64 = 1 << 22;
const LINKED: u64 = 1 << 23;
const GENERATION_SHIFT: u32 = 32;

/// What a coroutine is doing, as `ps` sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// No coroutine is in this slot.
    Free = 0,
    /// Waits to be woken.
    Blocked = 1,
    /// Waits for a worker.
    Ready = 2,
    /// Is being polled or dropped.
    Running = 3,
}

/// One value of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot(u64);

impl Snapshot {
    pub fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32
    }

    pub fn priority(self) -> Priority {
        Priority::from_bits(self.0 >> PRIORITY_SHIFT)
    }

    fn level(self) -> Priority {
        Priority::from_bits(self.0 >> LEVEL_SHIFT)
    }

    pub fn worker(self) -> u32 {
        (self.0 >> WORKER_SHIFT & SIX_BITS) as u32
    }

    pub fn phase(self) -> Phase {
        match self.phase_bits() {
            FREE => Phase::Free,
            IDLE => Phase::Blocked,
            READY => Phase::Ready,
            _ => Phase::Running,
        }
    }

    fn phase_bits(self) -> u64 {
        self.0 & PHASE_MASK
    }

    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    pub fn is_cancelled(self) -> bool {
        self.has(CANCELLED)
    }

    /// Of a word that `pop` returned: it asks for nothing but a poll, and its level is its priority.
    #[inline(always)]
    pub fn is_plain(self) -> bool {
        !self.has(CANCELLED | IN_INBOX)
    }

    /// Whether this is the coroutine that an id of `generation` names, it is IDLE, and in no inbox.
    #[inline(always)]
    pub fn is_plainly_idle(self, generation: u32) -> bool {
        self.0 >> GENERATION_SHIFT == generation as u64 && self.0 & (PHASE_MASK | IN_INBOX) == IDLE
    }

    /// Whether this is the coroutine that an id of `generation` names.
    fn is(self, generation: u32) -> bool {
        self.generation() == generation && self.phase_bits() != FREE
    }

    /// The high half of the coroutine's id.
    pub fn id_high(self) -> u64 {
        self.0 >> GENERATION_SHIFT << GENERATION_SHIFT
    }

    fn with_phase(self, phase: u64) -> Snapshot {
        Snapshot(self.0 & !PHASE_MASK | phase)
    }

    fn with(self, flags: u64) -> Snapshot {
        Snapshot(self.0 | flags)
    }

    fn without(self, flags: u64) -> Snapshot {
        Snapshot(self.0 & !flags)
    }

    fn with_priority(self, priority: Priority) -> Snapshot {
        Snapshot(self.0 & !(SIX_BITS << PRIORITY_SHIFT) | (priority.level() as u64) << PRIORITY_SHIFT)
    }

    fn with_worker(self, worker: u32) -> Snapshot {
        Snapshot(self.0 & !(SIX_BITS << WORKER_SHIFT) | (worker as u64 & SIX_BITS) << WORKER_SHIFT)
    }

    /// LINKED, in the list of its priority.
    fn linked(self) -> Snapshot {
        let level = (self.0 >> PRIORITY_SHIFT & SIX_BITS) << LEVEL_SHIFT;
        Snapshot(self.0 & !(SIX_BITS << LEVEL_SHIFT) | level | LINKED)
    }
}

/// What a wake, cancel or change of priority leaves to do.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// The id names nobody any more.
    Gone,
    /// Nothing: it runs, or is where it belongs, or blocks and shall.
    Done,
    /// Push the slot into the inbox of this worker, and announce it there.
    Post { worker: u32, priority: Priority },
    /// It is in an inbox already (this worker's, as far as is known): announce it.
    Announce { worker: u32, priority: Priority },
}

/// What was found in an inbox.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// Link it at the tail of this list.
    Link(Priority),
    /// Move it between these lists.
    Move { from: Priority, to: Priority },
    /// It has exited: the slot is free now.
    Recycle,
    /// It needs nothing.
    Nothing,
}

/// What to do with a coroutine whose poll is pending.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Settled {
    /// Nothing: it blocks, or an inbox carries it.
    Leave,
    /// Link it at the tail of this list of the settling worker.
    Link(Priority),
    /// Drop the future: it was cancelled. The coroutine is RUNNING still.
    Drop,
}

/// What to do with the slot of a coroutine that has ended.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Vacated {
    /// The slot is free now.
    Recycle,
    /// It is still in an inbox: whoever takes it out recycles it.
    Leave,
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

    /// Updates the word by `decide` until that succeeds. `None` leaves it alone.
    #[inline(always)]
    fn update<A>(&self, gone: A, decide: impl Fn(Snapshot) -> Option<(Snapshot, A)>) -> A {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let Some((next, action)) = decide(Snapshot(seen)) else { return gone };
            match self.0.compare_exchange_weak(seen, next.0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return action,
                Err(now) => seen = now,
            }
        }
    }

    /// (1) A slot that is the caller's alone becomes a READY coroutine of `worker`, into whose inbox the caller pushes
    /// it. Returns its generation.
    ///
    /// A plain store will do: late wakes only read a FREE word, and a FREE slot off the free list is in no
    /// inbox.
    pub fn occupy(&self, priority: Priority, worker: u32) -> u32 {
        let generation = Snapshot(self.0.load(Ordering::Relaxed)).generation().wrapping_add(1);
        let word = Snapshot((generation as u64) << GENERATION_SHIFT | READY)
            .with_priority(priority)
            .with_worker(worker);
        self.0.store(word.with(IN_INBOX).0, Ordering::Release);
        generation
    }

    /// (1) As [`occupy`](Self::occupy), but the caller holds the lock of `worker` and links it there. Returns the
    /// high half of the id.
    #[inline(always)]
    pub fn occupy_linked(&self, priority: Priority, worker: u32) -> u64 {
        // A slot whose generations are used up is never given away, so this does not overflow.
        let last = Snapshot(self.0.load(Ordering::Relaxed)).id_high();
        let id_high = last.wrapping_add(1 << GENERATION_SHIFT);
        let level = priority.level() as u64;
        let place = level << PRIORITY_SHIFT | level << LEVEL_SHIFT | (worker as u64) << WORKER_SHIFT;
        self.0.store(id_high | place | READY | LINKED, Ordering::Release);
        id_high
    }

    /// (1) As [`occupy`](Self::occupy), but the coroutine begins IDLE: nobody links or pushes it. `worker` is
    /// where it goes if it is woken from outside.
    #[inline(always)]
    pub fn occupy_blocked(&self, priority: Priority, worker: u32) -> u32 {
        let generation = Snapshot(self.0.load(Ordering::Relaxed)).generation().wrapping_add(1);
        let word = Snapshot((generation as u64) << GENERATION_SHIFT | IDLE)
            .with_priority(priority)
            .with_worker(worker);
        self.0.store(word.0, Ordering::Release);
        generation
    }

    /// (2) for a caller that holds the lock of `worker`: if it returns a level, the caller links the coroutine
    /// in that list. Otherwise nothing has happened, and `wake` does the right thing.
    #[inline(always)]
    pub fn wake_linked(&self, generation: u32, worker: u32) -> Option<Priority> {
        let word = self.load();
        if !word.is_plainly_idle(generation) {
            return None;
        }
        let next = word.with_phase(READY).with_worker(worker).linked();
        self.replace(word, next).then_some(word.priority())
    }

    /// (2) `near` is the worker to post to; without one the coroutine goes back to where it was.
    pub fn wake(&self, generation: u32, near: Option<u32>) -> Request {
        self.request(generation, near, 0)
    }

    /// (3) As `wake`, and the future is dropped instead of polled.
    pub fn cancel(&self, generation: u32, near: Option<u32>) -> Request {
        self.request(generation, near, CANCELLED)
    }

    #[inline(always)]
    fn request(&self, generation: u32, near: Option<u32>, flag: u64) -> Request {
        self.update(Request::Gone, |word| {
            if !word.is(generation) {
                return None;
            }
            let word = word.with(flag);
            let priority = word.priority();
            Some(match word.phase_bits() {
                RUNNING => (word.with(WOKEN), Request::Done),
                READY => (word, Request::Done),
                _ if word.has(IN_INBOX) => {
                    (word.with_phase(READY), Request::Announce { worker: word.worker(), priority })
                }
                _ => {
                    let worker = near.unwrap_or(word.worker());
                    let word = word.with_phase(READY).with(IN_INBOX).with_worker(worker);
                    (word, Request::Post { worker, priority })
                }
            })
        })
    }

    /// (4)
    pub fn set_priority(&self, generation: u32, priority: Priority) -> Request {
        self.update(Request::Gone, |word| {
            if !word.is(generation) {
                return None;
            }
            let next = word.with_priority(priority);
            let worker = word.worker();
            Some(if word.phase_bits() != READY || word.priority() == priority {
                (next, Request::Done)
            } else if word.has(IN_INBOX) {
                (next, Request::Announce { worker, priority })
            } else {
                (next.with(IN_INBOX), Request::Post { worker, priority })
            })
        })
    }

    /// (5) The slot was taken out of the inbox of `worker`, whose lock the caller holds.
    pub fn take_from_inbox(&self, worker: u32) -> Found {
        self.update(Found::Nothing, |word| {
            let next = word.without(IN_INBOX);
            let priority = word.priority();
            Some(match word.phase_bits() {
                READY if !word.has(LINKED) => (next.linked().with_worker(worker), Found::Link(priority)),
                READY if word.level() != priority => {
                    (next.linked(), Found::Move { from: word.level(), to: priority })
                }
                FREE => (next, Found::Recycle),
                _ => (next, Found::Nothing),
            })
        })
    }

    /// (6) The caller holds the lock of worker `from`, in whose lists it was; from now on it is `by`'s.
    /// Returns the word as it is now.
    ///
    /// All that changes is known (READY, LINKED, `from`), so this is one addition and cannot fail.
    #[inline(always)]
    pub fn pop(&self, from: u32, by: u32) -> Snapshot {
        let change = (RUNNING.wrapping_sub(READY | LINKED))
            .wrapping_add((by as u64).wrapping_sub(from as u64) << WORKER_SHIFT);
        Snapshot(self.0.fetch_add(change, Ordering::AcqRel).wrapping_add(change))
    }

    /// (6) as `pop`, for a worker that takes what is in its own lists.
    #[inline(always)]
    pub fn pop_own(&self) -> Snapshot {
        let change = RUNNING.wrapping_sub(READY | LINKED);
        Snapshot(self.0.fetch_add(change, Ordering::AcqRel).wrapping_add(change))
    }

    /// (7) at its shortest, for a coroutine that has woken itself and whose word `popped` was plain: it is READY in
    /// the list of its priority again. False, and nothing has happened, if anybody has touched the word since.
    #[inline(always)]
    pub fn relist(&self, popped: Snapshot) -> bool {
        debug_assert!(popped.is_plain() && popped.level() == popped.priority());
        let change = (READY | LINKED).wrapping_sub(RUNNING);
        self.replace(popped, Snapshot(popped.0.wrapping_add(change)))
    }

    /// (7) at its shortest, for one that has not woken itself: it is IDLE. False, and nothing has happened, if anybody
    /// has touched the word since the pop.
    #[inline(always)]
    pub fn block(&self, popped: Snapshot) -> bool {
        self.replace(popped, popped.with_phase(IDLE))
    }

    /// (9) The caller holds the locks of the worker in whose lists it is and of worker `to`, to whose lists it
    /// moves it. False if it must stay: its owner's inbox knows it.
    pub fn hand_over(&self, to: u32) -> bool {
        self.update(false, |word| if word.has(IN_INBOX) { None } else { Some((word.with_worker(to), true)) })
    }

    /// (7) The caller holds the lock of the worker that has polled it. `popped` is what `pop` returned,
    /// `woken` whether it woke itself (`WorkerState::woken`).
    #[inline(always)]
    pub fn settle(&self, popped: Snapshot, woken: bool) -> Settled {
        // Usually nobody has touched the word during the poll, and then it is as the pop has left it.
        if woken {
            let next = popped.with_phase(READY).linked();
            if !popped.has(IN_INBOX) && self.replace(popped, next) {
                return Settled::Link(popped.priority());
            }
        } else if self.block(popped) {
            return Settled::Leave;
        }
        self.settle_touched(woken)
    }

    #[inline(always)]
    fn replace(&self, seen: Snapshot, next: Snapshot) -> bool {
        self.0.compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn settle_touched(&self, woken: bool) -> Settled {
        self.update(Settled::Drop, |word| {
            if word.is_cancelled() {
                return None;
            }
            Some(if !word.has(WOKEN) && !woken {
                (word.with_phase(IDLE), Settled::Leave)
            } else if word.has(IN_INBOX) {
                (word.with_phase(READY).without(WOKEN), Settled::Leave)
            } else {
                (word.with_phase(READY).without(WOKEN).linked(), Settled::Link(word.priority()))
            })
        })
    }

    /// (8)
    #[inline(always)]
    pub fn vacate(&self) -> Vacated {
        // FREE is no bit at all.
        let word = Snapshot(self.0.fetch_and(!(PHASE_MASK | WOKEN | CANCELLED), Ordering::AcqRel));
        if word.has(IN_INBOX) { Vacated::Leave } else { Vacated::Recycle }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
