//! Where the result of a call in flight arrives: a slot, named by the token that travels with the call.
//!
//! Slots are type-stable: their memory is never given back, and a slot that is used again has another
//! generation in its token. So delivering a result is memory-safe whatever the token, and a token that is out of
//! date reaches nobody. May touch: its own slots.
//!
//! ```text
//!            lease()             arm()                  deliver()
//!   VACANT ----------> IDLE ----------------> IN_FLIGHT ----------> DONE
//!      ^                |  ^ disarm()             |                  |
//!      |                |  +----------------------+                  |
//!      |    queue()     v                  grant()                   |
//!      |              QUEUED -------------------------> GRANTED      |
//!      +---- the lease is dropped, from any state but IN_FLIGHT -----+
//! ```
//!
//! All transitions but `deliver` and `grant` are the lease holder's, who is one. `deliver` meets only
//! IN_FLIGHT, and one worker takes a given token out of the ring. `grant` races with the holder, who may drop a
//! QUEUED lease, hence its compare-and-exchange.
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
use futures_util::task::AtomicWaker;

use crate::lock::Lock;

/// Bytes in a slot that the kernel may write to: a short read, a wait status, so that these need no allocation.
/// (24: the shortest message of the matrix service, and what many protocols begin with.)
pub const SCRATCH_BYTES: usize = 24;

/// Memory in a slot for the kernel to write to.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(8))]
pub struct Scratch(pub [u8; SCRATCH_BYTES]);

const VACANT: u32 = 0;
const IDLE: u32 = 1;
const IN_FLIGHT: u32 = 2;
const DONE: u32 = 3;
const QUEUED: u32 = 4;
const GRANTED: u32 = 5;

/// One call's place. All zeroes is a vacant slot that was never used.
#[repr(C)]
pub struct Slot {
    /// Generation in the upper half, state in the lower.
    word: AtomicU64,
    /// Valid in DONE.
    result: AtomicIsize,
    /// The kernel's in IN_FLIGHT, the holder's otherwise.
    scratch: UnsafeCell<Scratch>,
    waker: AtomicWaker,
    /// Its own number; never changes after the slot was first handed out.
    index: AtomicU32,
    /// Number of the next vacant slot, plus 1; 0 at the end.
    next_vacant: AtomicU32,
    /// In IN_FLIGHT: the coroutine in whose name the call was made, and the call's handle, 0 until the kernel has given it.
    coroutine: AtomicU64,
    handle: AtomicU64,
}

const _: () = assert!(size_of::<Slot>() == 88);

// SAFETY: `scratch` is accessed by the one holder of the lease, and by the kernel in between (see the diagram);
// everything else is atomic.
unsafe impl Sync for Slot {}

/// Slots in a segment: few, since a program that makes a call has one.
const SEGMENT_SLOTS: usize = 64;
/// Segments there can be. Half a million slots: many times what the kernel lets a process have in flight, since calls
/// that wait for their turn have slots too. The table takes memory only as far as it is used.
const SEGMENTS: usize = 8192;

static SEGMENT: [AtomicPtr<Slot>; SEGMENTS] = [const { AtomicPtr::new(ptr::null_mut()) }; SEGMENTS];
/// Top of the stack of vacant slots: a count of changes in the upper half, so that a stack that looks the same
/// but is not makes the exchange fail; number of the top slot plus 1 in the lower.
static VACANT_TOP: AtomicU64 = AtomicU64::new(0);
/// Slots that were ever handed out.
static USED: Lock<u32> = Lock::new(0);

fn slot(index: u32) -> Option<&'static Slot> {
    let index = index as usize;
    let base = NonNull::new(SEGMENT.get(index / SEGMENT_SLOTS)?.load(Acquire))?;
    // SAFETY: a segment that is there has so many slots, for ever. Zeroes, which a slot is before it is first handed
    // out, are a valid slot but for the waker, which nobody looks at in a slot that is not leased.
    Some(unsafe { base.add(index % SEGMENT_SLOTS).as_ref() })
}

/// The slot a token names, whether or not that is still its generation.
fn named(token: u64) -> Option<&'static Slot> {
    slot(token as u32)
}

/// Sole ownership of a slot. Dropping it makes the slot vacant.
///
/// It must not be dropped while the kernel may still write to the scratch memory, that is, in flight: the
/// owner then cancels first, or forgets it.
pub struct Lease(&'static Slot);

/// A vacant slot, or `None` if there is no memory for more.
pub fn lease() -> Option<Lease> {
    let slot = pop_vacant().or_else(add_slot)?;
    slot.set(IDLE);
    Some(Lease(slot))
}

fn pop_vacant() -> Option<&'static Slot> {
    let mut top = VACANT_TOP.load(Acquire);
    loop {
        let slot = slot((top as u32).checked_sub(1)?)?;
        // Perhaps no longer on the stack; then the exchange fails.
        let next = u64::from(slot.next_vacant.load(Relaxed));
        let changed = ((top >> 32) + 1) << 32 | next;
        match VACANT_TOP.compare_exchange_weak(top, changed, AcqRel, Acquire) {
            Ok(_) => return Some(slot),
            Err(now) => top = now,
        }
    }
}

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

/// Takes a slot into use for the first time.
fn add_slot() -> Option<&'static Slot> {
    let mut used = USED.lock();
    let index = *used as usize;
    let segment = SEGMENT.get(index / SEGMENT_SLOTS)?;
    if segment.load(Relaxed).is_null() {
        let layout = Layout::array::<Slot>(SEGMENT_SLOTS).ok()?;
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        segment.store(memory.as_ptr().cast(), Release);
    }
    let place = segment.load(Relaxed).wrapping_add(index % SEGMENT_SLOTS);
    // SAFETY: within the segment, and under the lock nobody else writes to a slot that was never handed out; who
    // reads it meanwhile, led by a token that is none, looks at its word only.
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

    /// By the holder; nobody else changes the word then, except as the diagram says.
    fn set(&self, state: u32) {
        self.word.store(self.generation() << 32 | u64::from(state), Release);
    }

    fn state(&self) -> u32 {
        self.word.load(Acquire) as u32
    }

    /// What names this use of the slot.
    pub fn token(&self) -> u64 {
        self.generation() << 32 | u64::from(self.index.load(Relaxed))
    }

    /// Gets ready for a call that will name this slot: `waker` is woken when its result is here.
    pub fn arm(&self, waker: &Waker, coroutine: u64) {
        self.handle.store(0, Relaxed);
        self.coroutine.store(coroutine, Relaxed);
        self.waker.register(waker);
        self.set(IN_FLIGHT);
    }

    /// The call that was [armed](Self::arm) for is in flight. From now on [`calls_of`] finds it.
    pub fn set_handle(&self, handle: u64) {
        self.handle.store(handle, SeqCst);
    }

    /// Takes [`arm`](Self::arm) back: the call was over at once, and no result is coming.
    pub fn disarm(&self) {
        self.set(IDLE);
    }

    /// The result, once it is here; until then `waker` is woken when it comes.
    pub fn poll(&self, waker: &Waker) -> Option<CallResult> {
        self.result().or_else(|| {
            self.waker.register(waker);
            // Again: it may have come before the waker was in place, and woken the one before.
            self.result()
        })
    }

    /// The result, once it is here.
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
        // SAFETY: not in flight, so nobody writes.
        unsafe { self.scratch.get().read() }
    }

    /// Waits for [`grant`] instead of a result.
    pub fn queue(&self, waker: &Waker) {
        self.waker.register(waker);
        self.set(QUEUED);
    }

    /// Whether [`grant`] chose it; until then `waker` is woken when it does.
    pub fn poll_granted(&self, waker: &Waker) -> bool {
        self.state() == GRANTED || {
            self.waker.register(waker);
            self.state() == GRANTED
        }
    }

    /// Waits no longer. True if it was granted meanwhile, and somebody else is now to have the grant.
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
        // A waker of another executor may own something.
        drop(slot.waker.take());
        slot.word.store((slot.generation() + 1) << 32 | u64::from(VACANT), Release);
        push_vacant(slot);
    }
}

/// Handles of the calls in flight that were made in the name of `coroutine`. Looks at every slot there is.
pub fn calls_of(coroutine: u64, mut each: impl FnMut(u64)) {
    let used = *USED.lock();
    for slot in (0..used).filter_map(slot) {
        if slot.coroutine.load(Relaxed) == coroutine && slot.state() == IN_FLIGHT {
            match slot.handle.load(SeqCst) {
                0 => {}
                handle => each(handle),
            }
        }
    }
}

/// Puts a result that came out of the ring into the slot its token names, and wakes who waits for it.
pub fn deliver(token: u64, result: isize) {
    let Some(slot) = named(token) else { return };
    if slot.word.load(Acquire) != (token >> 32) << 32 | u64::from(IN_FLIGHT) {
        // Not of this library: a program that enters the kernel by itself chooses its own tokens.
        return;
    }
    slot.result.store(result, Relaxed);
    slot.set(DONE);
    slot.waker.wake();
}

/// Tells the holder of a queued slot to try its call again; false if it does not wait any more.
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
