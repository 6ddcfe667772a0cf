//! The record of each hart, found through its `tp` register.
//!
//! The boot hart writes all records before it starts the other harts; afterwards each hart changes
//! only its own. So relaxed atomics suffice: starting a hart is a release, and its first
//! instruction acquires.

use crate::arch::MAX_HARTS;
use core::arch::asm;
use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cops_algorithms::loaded_root::LoadedRoot;

/// The record of one hart. Assembly in `trap` and `entry` accesses the first fields.
#[repr(C, align(64))]
pub(super) struct HartRecord {
    /// Logical number; 0 is the boot hart.
    pub(super) index: AtomicUsize,
    /// Top of the hart's guarded kernel stack.
    pub(super) stack_top: AtomicUsize,
    /// Top of the small stack that reports an overflow of the kernel stack.
    pub(super) emergency_stack_top: AtomicUsize,
    /// The firmware's id of the hart.
    pub(super) id: AtomicUsize,
    /// The value of `satp` on this hart, and whether it may enter user mode with that.
    pub(super) root: LoadedRoot,
    /// The instruction epoch with which this hart last synchronised (see `paging`).
    pub(super) instruction_epoch: AtomicUsize,
}

impl HartRecord {
    const fn new() -> Self {
        Self {
            index: AtomicUsize::new(0),
            stack_top: AtomicUsize::new(0),
            emergency_stack_top: AtomicUsize::new(0),
            id: AtomicUsize::new(0),
            root: LoadedRoot::new(),
            instruction_epoch: AtomicUsize::new(0),
        }
    }
}

pub(super) static RECORDS: [HartRecord; MAX_HARTS] = [const { HartRecord::new() }; MAX_HARTS];

const EMERGENCY_STACK_BYTES: usize = 16 * 1024;

#[repr(C, align(16))]
struct EmergencyStack(UnsafeCell<[u8; EMERGENCY_STACK_BYTES]>);

// SAFETY: each hart uses only its own emergency stack, as a stack, and no reference to the contents
// is ever made.
unsafe impl Sync for EmergencyStack {}

static EMERGENCY_STACKS: [EmergencyStack; MAX_HARTS] =
    [const { EmergencyStack(UnsafeCell::new([0; EMERGENCY_STACK_BYTES])) }; MAX_HARTS];

static COUNT: AtomicUsize = AtomicUsize::new(1);

/// Defines the harts: the boot hart's id, then the others in any order, and the top of each hart's
/// stack. The boot hart calls this once, before any other hart runs. Takes at most [`MAX_HARTS`];
/// returns how many.
pub fn describe_harts(
    ids: impl Iterator<Item = usize>,
    stack_top: impl Fn(usize) -> usize,
) -> usize {
    let mut count = 0;
    for ((record, emergency), id) in RECORDS.iter().zip(&EMERGENCY_STACKS).zip(ids) {
        record.index.store(count, Relaxed);
        record.id.store(id, Relaxed);
        record.stack_top.store(stack_top(count), Relaxed);
        record
            .emergency_stack_top
            .store(emergency.0.get() as usize + EMERGENCY_STACK_BYTES, Relaxed);
        count += 1;
    }
    COUNT.store(count, Relaxed);
    count
}

/// Number of harts that the kernel uses.
#[inline]
pub fn hart_count() -> usize {
    COUNT.load(Relaxed)
}

/// The logical number of the hart that executes this, 0 to [`hart_count`] - 1.
#[inline]
pub fn hart_index() -> usize {
    current().index.load(Relaxed)
}

/// The record of the hart that executes this.
#[inline]
pub(super) fn current() -> &'static HartRecord {
    let record: *const HartRecord;
    // SAFETY: from the first Rust instruction on, `tp` holds the address of one of `RECORDS` (set
    // in `entry`, and restored by traps from user mode), which is static. Not `pure`, because a
    // coroutine may resume on another hart.
    unsafe {
        asm!("mv {}, tp", out(reg) record, options(nomem, nostack, preserves_flags));
        &*record
    }
}

/// The firmware's id of a logical hart.
pub(super) fn id_of(index: usize) -> usize {
    RECORDS[index].id.load(Relaxed)
}

/// A value for each hart that only this hart accesses.
pub struct HartSlots<T>([HartSlot<T>; MAX_HARTS]);

/// The value of one hart in a [`HartSlots`], on its own cache lines.
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

// SAFETY: `with` gives access only to the calling hart's slot, so no two harts share a value. `T:
// Send` is required because a value may be created on one hart and used on another.
unsafe impl<T: Send> Sync for HartSlots<T> {}

impl<T> HartSlots<T> {
    pub const fn new(slots: [HartSlot<T>; MAX_HARTS]) -> Self {
        Self(slots)
    }

    /// Calls `work` with the calling hart's value. Not for interrupt handlers.
    ///
    /// # Panics
    /// When called within `work`, or from a handler that interrupted `work`.
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let slot = &self.0[hart_index()];
        assert!(!slot.busy.replace(true), "a hart's slot is already in use");
        // SAFETY: the slot belongs to this hart; `work` cannot suspend and so stays on it; `busy`
        // was false, so no other reference to the value exists.
        let answer = work(unsafe { &mut *slot.value.get() });
        slot.busy.set(false);
        answer
    }
}
