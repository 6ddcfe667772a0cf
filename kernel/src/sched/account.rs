//! What a process has used and been charged, and what it is charged for a tick.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering::*};

use cops_abi::Priority;
use cops_algorithms::priority::AtomicPriority;
use cops_algorithms::slice::Slice;
use cops_fallible::OutOfMemory;

use super::share::Share;
use super::{ProcessId, equals, timer};

/// What a process has been charged: ticks times its divisor, relative to other processes of the
/// level. The kernel's work for it is added at any time; all other changes are made under the run
/// queue's lock.
#[derive(Debug)]
pub struct Account {
    charge: AtomicI64,
    /// The part of the charge for slices that are not over.
    advance: AtomicI64,
    /// The level of the processes that `charge` is comparable with.
    pub(super) level: AtomicPriority,
    /// The weight of the process in the distribution of time.
    share: Share,
    /// Ticks during which the virtual CPUs of the process had a hart.
    used_ticks: AtomicU64,
}

impl Account {
    /// The account of process `id`, with the debts of the parent and one slice more, so that a
    /// process cannot get more time by starting others.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn of_child(id: ProcessId, parent: Option<(ProcessId, &Account)>) -> Result<Self, OutOfMemory> {
        let (parent_id, inherited, level) = parent.map_or((0, 0, Priority::MOST_URGENT), |(id, parent)| {
            (id, parent.settled(), parent.level.load())
        });
        let share = Share::new(id, parent_id)?;
        let debit = timer::slice_ticks() as i64 * i64::from(share.divisor());
        Ok(Self {
            charge: AtomicI64::new(inherited.saturating_add(debit)),
            advance: AtomicI64::new(0),
            level: AtomicPriority::new(level),
            share,
            used_ticks: AtomicU64::new(0),
        })
    }

    /// The factor for the process's running time. At least 1.
    pub(super) fn divisor(&self) -> u32 {
        self.share.divisor()
    }

    /// Its process.
    pub(super) fn process(&self) -> ProcessId {
        self.share.process()
    }

    /// Charges `ticks` of work that the kernel has done for the process outside its slices.
    pub fn charge(&self, ticks: u64) {
        self.add(ticks as i64 * i64::from(self.divisor()));
        equals::note_work(self);
    }

    /// Ticks during which the virtual CPUs of the process had a hart.
    pub fn used_ticks(&self) -> u64 {
        self.used_ticks.load(Relaxed)
    }

    /// A virtual CPU of the process had a hart for `ticks`.
    pub fn use_ticks(&self, ticks: u64) {
        self.used_ticks.fetch_add(ticks, Relaxed);
    }

    /// The charge now.
    pub(super) fn charged(&self) -> i64 {
        self.charge.load(Relaxed)
    }

    /// The charge without the slices that are not over.
    pub(super) fn settled(&self) -> i64 {
        self.charged() - self.advance.load(Relaxed)
    }

    /// Called by any hart, with or without the run queue's lock.
    pub(super) fn add(&self, charge: i64) {
        self.charge.fetch_add(charge, Relaxed);
    }

    /// Charges a slice that begins.
    pub(super) fn begin(&self, slice: &Slice) {
        self.add(slice.whole_charge());
        self.advance.fetch_add(slice.whole_charge(), Relaxed);
    }

    /// Refunds the rest of a slice.
    pub(super) fn end(&self, slice: &Slice) {
        self.add(-slice.remaining_charge());
        self.advance.fetch_sub(slice.whole_charge(), Relaxed);
    }
}
