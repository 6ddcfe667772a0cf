//! What a process has used and been charged, and what it is charged for a tick.

use core::sync::atomic::{AtomicU64, Ordering::*};

use cops_algorithms::run_queue::Lines;
use cops_algorithms::vruntime::Vruntime;
use cops_fallible::OutOfMemory;

use super::share::Share;
use super::{ProcessId, hart_time, peers, timer};

/// What a process has been charged, and its share of the time.
#[derive(Debug)]
pub struct Account {
    /// What has been charged. The kernel's work for the process is added at any time; all other
    /// changes are made under the run queue's lock.
    vruntime: Vruntime,
    /// Where its virtual CPUs stand in the run queue.
    lines: Lines,
    /// The weight of the process in the distribution of time.
    share: Share,
    /// Ticks during which the virtual CPUs of the process had a hart.
    used_ticks: AtomicU64,
    /// The most that any of its calls has reported of them.
    reported_ticks: AtomicU64,
    /// Those of children that have ended and were waited for, and of their children.
    children_ticks: AtomicU64,
}

impl Account {
    /// The account of process `id`, with the debts of the parent and one slice more, so that a
    /// process cannot get more time by starting others.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn of_child(
        id: ProcessId,
        parent: Option<(ProcessId, &Account)>,
    ) -> Result<Self, OutOfMemory> {
        let share = Share::new(id, parent.map_or(0, |(parent, _)| parent))?;
        let debit = timer::slice_ticks() as i64 * i64::from(share.divisor());
        let vruntime = Vruntime::of_child(parent.map(|(_, account)| account.vruntime()), debit);
        let [used_ticks, reported_ticks, children_ticks] = [const { AtomicU64::new(0) }; 3];
        let lines = Lines::new();
        Ok(Self { vruntime, lines, share, used_ticks, reported_ticks, children_ticks })
    }

    /// What has been charged.
    pub fn vruntime(&self) -> &Vruntime {
        &self.vruntime
    }

    /// Where its virtual CPUs stand in the run queue.
    pub fn lines(&self) -> &Lines {
        &self.lines
    }

    /// The factor for the process's running time. At least 1.
    pub fn divisor(&self) -> u32 {
        self.share.divisor()
    }

    /// Its process.
    pub(super) fn process(&self) -> ProcessId {
        self.share.process()
    }

    /// Charges `ticks` of work that the kernel has done for the process outside its slices.
    pub fn charge(&self, ticks: u64) {
        self.add(ticks);
        peers::note_work(self);
    }

    /// The same for work that threads of the process wait for, while others of it may run.
    pub fn charge_awaited(&self, ticks: u64) {
        self.add(ticks);
        peers::note_awaited(self);
    }

    #[inline]
    fn add(&self, ticks: u64) {
        self.vruntime.add(ticks as i64 * i64::from(self.divisor()));
    }

    /// Ticks during which the virtual CPUs of the process had a hart.
    pub fn used_ticks(&self) -> u64 {
        self.used_ticks.load(Relaxed)
    }

    /// The same for a caller that has a hart, with the ticks of its present period there. Never
    /// less than before, although others may have harts too, and their periods are added at their
    /// ends.
    pub fn used_ticks_until_now(&self) -> u64 {
        let ticks = self.used_ticks() + hart_time::present_ticks();
        self.reported_ticks.fetch_max(ticks, Relaxed).max(ticks)
    }

    /// Ticks of children that have ended and were waited for, and of theirs.
    pub fn children_ticks(&self) -> u64 {
        self.children_ticks.load(Relaxed)
    }

    /// A child that had used `ticks`, with its children, was waited for.
    pub fn add_children_ticks(&self, ticks: u64) {
        self.children_ticks.fetch_add(ticks, Relaxed);
    }

    /// A virtual CPU of the process had a hart for `ticks`.
    pub fn use_ticks(&self, ticks: u64) {
        self.used_ticks.fetch_add(ticks, Relaxed);
    }
}
