//! The record of each hart, found through its `tp` register.
//!
//! Records are written by the boot hart before it starts the others, and from then on each
//! hart changes only its own: so plain relaxed atomics suffice, and starting a hart is the
//! release that its first instruction acquires.

use crate::arch::MAX_HARTS;
use core::arch::asm;
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// One hart's record. `trap` and `entry` reach the first fields from assembly.
#[repr(C, align(64))]
pub(super) struct HartRecord {
    /// Logical number, 0 is the boot hart.
    pub(super) index: AtomicUsize,
    /// Top of the hart's guarded kernel stack.
    pub(super) stack_top: AtomicUsize,
    /// Top of the small stack on which an overflow of the other is reported.
    pub(super) emergency_stack_top: AtomicUsize,
    /// The firmware's number for it.
    pub(super) id: AtomicUsize,
    /// The value of `satp` on this hart, as a shortcut to "is that space active?".
    pub(super) active_root: AtomicUsize,
    /// The last state of the instruction stream this hart has synchronised with.
    pub(super) instruction_epoch: AtomicUsize,
}

impl HartRecord {
    const fn new() -> Self {
        Self {
            index: AtomicUsize::new(0),
            stack_top: AtomicUsize::new(0),
            emergency_stack_top: AtomicUsize::new(0),
            id: AtomicUsize::new(0),
            active_root: AtomicUsize::new(0),
            instruction_epoch: AtomicUsize::new(0),
        }
    }
}

pub(super) static RECORDS: [HartRecord; MAX_HARTS] = [const { HartRecord::new() }; MAX_HARTS];

const EMERGENCY_STACK_BYTES: usize = 16 * 1024;

#[repr(C, align(16))]
struct EmergencyStack(UnsafeCell<[u8; EMERGENCY_STACK_BYTES]>);

// SAFETY: each is used as a stack by one hart only.
unsafe impl Sync for EmergencyStack {}

static EMERGENCY_STACKS: [EmergencyStack; MAX_HARTS] =
    [const { EmergencyStack(UnsafeCell::new([0; EMERGENCY_STACK_BYTES])) }; MAX_HARTS];

static COUNT: AtomicUsize = AtomicUsize::new(1);

/// Tells the architecture which harts there are: the boot hart's id, then the others in any
/// order, and the top of each one's stack. Called once, by the boot hart, before any other
/// hart runs. At most [`MAX_HARTS`] are taken; returns how many.
pub fn describe_harts(ids: impl Iterator<Item = usize>, stack_top: impl Fn(usize) -> usize) -> usize {
    let mut count = 0;
    for ((record, emergency), id) in RECORDS.iter().zip(&EMERGENCY_STACKS).zip(ids) {
        record.index.store(count, Relaxed);
        record.id.store(id, Relaxed);
        record.stack_top.store(stack_top(count), Relaxed);
        record.emergency_stack_top.store(emergency.0.get() as usize + EMERGENCY_STACK_BYTES, Relaxed);
        count += 1;
    }
    COUNT.store(count, Relaxed);
    count
}

/// How many harts the kernel uses.
#[inline]
pub fn hart_count() -> usize {
    COUNT.load(Relaxed)
}

/// The logical number of the hart this runs on, 0 to [`hart_count`] - 1.
#[inline]
pub fn hart_index() -> usize {
    current().index.load(Relaxed)
}

/// The record of the hart this runs on.
#[inline]
pub(super) fn current() -> &'static HartRecord {
    let record: *const HartRecord;
    // SAFETY: `tp` holds the address of one of `RECORDS` from the first Rust instruction on
    // (see `entry`), and traps from user mode restore it. Not `pure`: a coroutine may go on
    // on another hart.
    unsafe {
        asm!("mv {}, tp", out(reg) record, options(nomem, nostack, preserves_flags));
        &*record
    }
}

/// The firmware's id of a logical hart.
pub(super) fn id_of(index: usize) -> usize {
    RECORDS[index].id.load(Relaxed)
}

/// Something each hart has one of, and only that hart touches.
pub struct HartSlots<T>([HartSlot<T>; MAX_HARTS]);

/// One hart's share of a [`HartSlots`], on cache lines of its own.
#[repr(align(64))]
pub struct HartSlot<T> {
    busy: Cell<bool>,
    value: UnsafeCell<T>,
}

impl<T> HartSlot<T> {
    pub const fn new(value: T) -> Self {
        Self { busy: Cell::new(false), value: UnsafeCell::new(value) }
    }
}

// SAFETY: `with` reaches the calling hart's slot only. The value may be made on one hart and
// used on another, hence `Send`.
unsafe impl<T: Send> Sync for HartSlots<T> {}

impl<T> HartSlots<T> {
    pub const fn new(slots: [HartSlot<T>; MAX_HARTS]) -> Self {
        Self(slots)
    }

    /// Works on the calling hart's value. Not for interrupt handlers.
    ///
    /// # Panics
    /// When called from within `work`, or from a handler that interrupted `work`.
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let slot = &self.0[hart_index()];
        assert!(!slot.busy.replace(true), "a hart's slot is already in use");
        // SAFETY: the slot belongs to this hart, `work` cannot suspend and so stays on it,
        // and `busy` excludes a second reference from the same hart.
        let answer = work(unsafe { &mut *slot.value.get() });
        slot.busy.set(false);
        answer
    }
}
