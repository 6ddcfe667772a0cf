//! Slots: where the results of calls in flight arrive. The token that is passed with the call
//! identifies the slot.
//!
//! Slots are type-stable: their memory is never freed, and each reuse of a slot has another
//! generation in its token. So delivering a result is memory-safe for any token, and a stale token
//! reaches no call. May touch: its own slots.
//!
//! ```text
//!            lease()             arm()                  deliver()
//!   VACANT ----------> IDLE ----------------> IN_FLIGHT ----------> DONE
//!      ^                |  ^ disarm()             |                  |
//!      |                |  +----------------------+<-- rearm() ------+
//!      |    queue()     v                  grant()                   |
//!      |              QUEUED -------------------------> GRANTED      |
//!      +---- the lease is dropped, from any state but IN_FLIGHT -----+
//! ```
//!
//! Only the single holder of the lease makes transitions, except `deliver` and `grant`. `deliver`
//! applies only to IN_FLIGHT, and only one worker takes a given token out of the ring. `grant`
//! races with the holder, which may drop a QUEUED lease; so it uses compare-and-exchange.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::fmt;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::sync::atomic::{
    AtomicIsize, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use core::task::Waker;

use alloc::alloc::{Layout, alloc_zeroed};
use cops_abi::errno::{CallResult, decode};
use cops_abi::page::MAX_CPUS;
use futures_util::task::AtomicWaker;

use crate::lock::Lock;
use crate::worker;

/// Size of a slot's memory that the kernel may write to. Short reads and wait statuses use it and
/// need no allocation. (24 bytes: the shortest message of the matrix service, and the header of
/// many protocols.)
pub const SCRATCH_BYTES: usize = 24;

/// Memory in a slot that the kernel may write to.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(8))]
pub struct Scratch(pub [u8; SCRATCH_BYTES]);

const VACANT: u32 = 0;
const IDLE: u32 = 1;
const IN_FLIGHT: u32 = 2;
const DONE: u32 = 3;
const QUEUED: u32 = 4;
const GRANTED: u32 = 5;

/// The slot of one call. Zeroed memory is a vacant slot that was never used.
#[repr(C)]
pub struct Slot {
    /// Generation in the upper half, state in the lower.
    word: AtomicU64,
    /// Valid in state DONE.
    result: AtomicIsize,
    /// Accessed by the kernel in state IN_FLIGHT, by the holder otherwise.
    scratch: UnsafeCell<Scratch>,
    waker: AtomicWaker,
    /// Its own index; never changes after the slot was first leased.
    index: AtomicU32,
    /// Index of the next vacant slot, plus 1; 0 at the end of the stack.
    next_vacant: AtomicU32,
    /// In state IN_FLIGHT: the coroutine for which the call was made, and the call's handle, which
    /// is 0 until the kernel has returned it.
    coroutine: AtomicU64,
    handle: AtomicU64,
}

const _: () = assert!(size_of::<Slot>() == 88);

// SAFETY: `scratch` is accessed only by the holder of the lease and, in state IN_FLIGHT, by the
// kernel (see the diagram); all other fields are atomic.
unsafe impl Sync for Slot {}

/// Slots in a segment. Few, because a program with a single call needs a whole segment.
const SEGMENT_SLOTS: usize = 64;
/// Maximum number of segments: half a million slots. That is many times the kernel's limit of calls
/// in flight, because calls that wait for their turn have slots too. Unused parts of the table take
/// no memory.
const SEGMENTS: usize = 8192;
/// All numbers of slots are below it.
pub const SLOTS_MAX: usize = SEGMENTS * SEGMENT_SLOTS;

static SEGMENT: [AtomicPtr<Slot>; SEGMENTS] = [const { AtomicPtr::new(ptr::null_mut()) }; SEGMENTS];
/// Top of the stack of vacant slots. The upper half counts changes, so that a compare-and-exchange
/// fails if the stack was changed and changed back; the lower half is the index of the top slot
/// plus 1.
static VACANT_TOP: AtomicU64 = AtomicU64::new(0);
/// A vacant slot of each virtual CPU that is not on the stack: its index plus 1, or 0. Only code on
/// that virtual CPU uses it, and that is never interrupted by code that leases slots.
static SPARE: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];
/// Number of slots that were ever leased.
static USED: Lock<u32> = Lock::new(0);

fn slot(index: u32) -> Option<&'static Slot> {
    let index = index as usize;
    let base = NonNull::new(SEGMENT.get(index / SEGMENT_SLOTS)?.load(Acquire))?;
    // SAFETY: a segment that is not null points to `SEGMENT_SLOTS` slots and is never freed. A slot
    // that was never leased is zeroed, which is valid for all fields except the waker; the waker is
    // accessed only in leased slots.
    Some(unsafe { base.add(index % SEGMENT_SLOTS).as_ref() })
}

/// The slot that a token names, whether or not the generation is still the same.
fn named(token: u64) -> Option<&'static Slot> {
    slot(token as u32)
}

/// Exclusive ownership of a slot. Dropping it makes the slot vacant.
///
/// It must not be dropped in flight, while the kernel may still write to the scratch memory: the
/// owner must cancel the call first, or forget the lease.
pub struct Lease(&'static Slot);

/// Leases a vacant slot; `None` if there is no memory for another one.
#[inline]
pub fn lease() -> Option<Lease> {
    let slot = take_spare().or_else(vacant)?;
    slot.set(IDLE);
    Some(Lease(slot))
}

/// Apart, because it needs more registers.
#[inline(never)]
fn vacant() -> Option<&'static Slot> {
    pop_vacant().or_else(add_slot)
}

#[inline]
fn take_spare() -> Option<&'static Slot> {
    let spare = SPARE.get(worker::current())?;
    let index = spare.load(Relaxed).checked_sub(1)?;
    spare.store(0, Relaxed);
    slot(index)
}

/// Keeps a vacant slot for the next call, unless there is one.
#[inline]
fn keep_spare(slot: &Slot) -> bool {
    let Some(spare) = SPARE.get(worker::current()).filter(|spare| spare.load(Relaxed) == 0) else {
        return false;
    };
    spare.store(slot.index.load(Relaxed) + 1, Relaxed);
    true
}

fn pop_vacant() -> Option<&'static Slot> {
    let mut top = VACANT_TOP.load(Acquire);
    loop {
        let slot = slot((top as u32).checked_sub(1)?)?;
        // The slot may no longer be on the stack; then the exchange fails.
        let next = u64::from(slot.next_vacant.load(Relaxed));
        let changed = ((top >> 32) + 1) << 32 | next;
        match VACANT_TOP.compare_exchange_weak(top, changed, AcqRel, Acquire) {
            Ok(_) => return Some(slot),
            Err(now) => top = now,
        }
    }
}

#[inline(never)]
fn push_vacant(slot: &'static Slot) {
    let number = u64::from(slot.index.load(Relaxed)) + 1;
    let mut top = VACANT_TOP.load(Relaxed);
    loop {
        slot.next_vacant.store(top as u32, Relaxed);
        let changed = ((top >> 32) + 1) << 32 | number;
        match VACANT_TOP.compare_exchange_weak(top, changed, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => top = now,
        }
    }
}

/// Creates a slot, and leases it for the first time.
fn add_slot() -> Option<&'static Slot> {
    let mut used = USED.lock();
    let index = *used as usize;
    let segment = SEGMENT.get(index / SEGMENT_SLOTS)?;
    if segment.load(Relaxed).is_null() {
        let layout = Layout::array::<Slot>(SEGMENT_SLOTS).ok()?;
        // SAFETY: the layout has the size of `SEGMENT_SLOTS` slots, which is not zero.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        segment.store(memory.as_ptr().cast(), Release);
    }
    let place = segment.load(Relaxed).wrapping_add(index % SEGMENT_SLOTS);
    // SAFETY: the place is within the segment. The lock of `USED` excludes other writers to a slot
    // that was never leased; a reader with an invalid token accesses only the slot's word.
    unsafe { (&raw mut (*place).waker).write(AtomicWaker::new()) };
    let slot = slot(*used)?;
    slot.index.store(*used, Relaxed);
    *used += 1;
    Some(slot)
}

impl Slot {
    fn generation(&self) -> u64 {
        self.word.load(Relaxed) >> 32
    }

    /// Sets the state. Only the holder may call it; no other code changes the word meanwhile,
    /// except as in the diagram.
    fn set(&self, state: u32) {
        self.word.store(self.generation() << 32 | u64::from(state), Release);
    }

    fn state(&self) -> u32 {
        self.word.load(Acquire) as u32
    }

    /// The token that identifies this lease of the slot.
    pub fn token(&self) -> u64 {
        self.generation() << 32 | u64::from(self.index.load(Relaxed))
    }

    /// Its index in the table of slots.
    pub fn number(&self) -> u32 {
        self.index.load(Relaxed)
    }

    /// Prepares the slot for a call with its token. If it turns out to be in flight, the caller
    /// [registers a waker](Self::register).
    ///
    /// Without the waker, because most calls complete at once, and their wakers would be copied for
    /// nothing.
    pub fn arm(&self, coroutine: u64) {
        self.handle.store(0, Relaxed);
        self.coroutine.store(coroutine, Relaxed);
        self.set(IN_FLIGHT);
    }

    /// The call for which the slot was [armed](Self::arm) is in flight: `waker` is woken when the
    /// result has arrived, at once if it has.
    pub fn register(&self, waker: &Waker) {
        self.waker.register(waker);
        // Another worker may have delivered it before the waker was registered.
        if self.result().is_some() {
            waker.wake_by_ref();
        }
    }

    /// The result has been taken, and the same call will deliver another one.
    pub fn rearm(&self, waker: &Waker) {
        self.waker.register(waker);
        self.set(IN_FLIGHT);
    }

    /// Stores the handle of the call in flight for which the slot was [armed](Self::arm). From now
    /// on [`calls_of`] finds it.
    pub fn set_handle(&self, handle: u64) {
        self.handle.store(handle, SeqCst);
    }

    /// Undoes [`arm`](Self::arm): the call completed at once, and no result will arrive.
    pub fn disarm(&self) {
        self.set(IDLE);
    }

    /// The result, if it has arrived; otherwise registers `waker`, which is woken when it arrives.
    pub fn poll(&self, waker: &Waker) -> Option<CallResult> {
        self.result().or_else(|| {
            self.waker.register(waker);
            // Checked again, because it may have arrived before the waker was registered, and woken
            // the previous one.
            self.result()
        })
    }

    /// The result, if it has arrived.
    pub fn result(&self) -> Option<CallResult> {
        (self.state() == DONE).then(|| decode(self.result.load(Relaxed)))
    }

    /// Memory that the kernel may write to while the call is in flight.
    pub fn scratch_pointer(&self) -> *mut Scratch {
        self.scratch.get()
    }

    /// What the kernel has written there.
    pub fn scratch(&self) -> Scratch {
        debug_assert_ne!(self.state(), IN_FLIGHT);
        // SAFETY: the slot is not IN_FLIGHT (asserted above), so the kernel does not write to the
        // scratch memory, and only this holder accesses it.
        unsafe { self.scratch.get().read() }
    }

    /// Makes the slot wait for [`grant`] instead of a result.
    pub fn queue(&self, waker: &Waker) {
        self.waker.register(waker);
        self.set(QUEUED);
    }

    /// Whether [`grant`] has chosen the slot; otherwise registers `waker`, which is woken when it
    /// does.
    pub fn poll_granted(&self, waker: &Waker) -> bool {
        self.state() == GRANTED || {
            self.waker.register(waker);
            self.state() == GRANTED
        }
    }

    /// Stops waiting for a grant. Returns true if the slot was granted meanwhile, and the grant
    /// must be passed on.
    pub fn unqueue(&self) -> bool {
        let idle = self.generation() << 32 | u64::from(IDLE);
        self.word.swap(idle, AcqRel) as u32 == GRANTED
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Lease({:#x})", self.token())
    }
}

impl Deref for Lease {
    type Target = Slot;
    fn deref(&self) -> &Slot {
        self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let slot = self.0;
        debug_assert_ne!(slot.state(), IN_FLIGHT);
        // Dropped now, because a waker of another executor may own resources.
        drop(slot.waker.take());
        slot.word.store((slot.generation() + 1) << 32 | u64::from(VACANT), Release);
        if !keep_spare(slot) {
            push_vacant(slot);
        }
    }
}

/// Calls `each` with the handle of every call in flight that was made for `coroutine`, and of calls
/// that have a result: a standing read is in flight then too. Examines all slots.
pub fn calls_of(coroutine: u64, each: impl FnMut(u64)) {
    let used = *USED.lock();
    (0..used).filter_map(|index| call_in(index, coroutine)).flatten().for_each(each);
}

/// If a call for `coroutine` is in the slot with this index: its handle, `None` before the kernel
/// has returned it.
pub fn call_in(index: u32, coroutine: u64) -> Option<Option<u64>> {
    let slot = slot(index)?;
    let word = slot.word.load(Acquire);
    if !matches!(word as u32, IN_FLIGHT | DONE) || slot.coroutine.load(Relaxed) != coroutine {
        return None;
    }
    let handle = slot.handle.load(SeqCst);
    // The slot may have been leased for another coroutine before that.
    let is_same = slot.word.load(Relaxed) >> 32 == word >> 32;
    is_same.then(|| Some(handle).filter(|&handle| handle != 0))
}

/// Stores a result from the ring in the slot that its token names, and wakes its waiter.
pub fn deliver(token: u64, result: isize) {
    let Some(slot) = named(token) else { return };
    if slot.word.load(Acquire) != (token >> 32) << 32 | u64::from(IN_FLIGHT) {
        // Not a token of this library: a program that makes system calls itself chooses its own
        // tokens.
        return;
    }
    slot.result.store(result, Relaxed);
    slot.set(DONE);
    slot.waker.wake();
}

/// Whether the slot that a token names waits for [`grant`].
pub fn is_queued(token: u64) -> bool {
    let queued = (token >> 32) << 32 | u64::from(QUEUED);
    named(token).is_some_and(|slot| slot.word.load(Acquire) == queued)
}

/// Tells the holder of a queued slot to try its call again. Returns false if it no longer waits.
pub fn grant(token: u64) -> bool {
    let Some(slot) = named(token) else { return false };
    let queued = (token >> 32) << 32 | u64::from(QUEUED);
    let granted = (token >> 32) << 32 | u64::from(GRANTED);
    let won = slot.word.compare_exchange(queued, granted, AcqRel, Relaxed).is_ok();
    if won {
        slot.waker.wake();
    }
    won
}
