//! The urgency of processes, limited by their ceilings, and the system bitmap made from it
//! (decision 10).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use cops_abi::Priority;
use cops_abi::page::{NO_LEVEL, level_number};
use cops_algorithms::levels::{self, Counted, LEVELS};
use cops_algorithms::priority::AtomicPriority;

use super::executor;
use super::system_page::system_page;
use crate::arch;

/// The most urgent level that a process can have.
#[derive(Debug)]
pub struct Ceiling(AtomicPriority);

impl Ceiling {
    pub const fn new(priority: Priority) -> Self {
        Self(AtomicPriority::new(priority))
    }

    /// The level.
    pub fn priority(&self) -> Priority {
        self.0.load()
    }

    /// Sets the level; the caller has checked that this is allowed.
    pub fn set(&self, priority: Priority) {
        self.0.store(priority);
    }

    /// Lowers the ceiling to `priority` unless it is already less urgent.
    pub fn lower_to(&self, priority: Priority) {
        self.0.lower_to(priority);
    }

    /// `priority`, or the ceiling if that is less urgent.
    pub fn cap(&self, priority: Priority) -> Priority {
        levels::cap(priority, self.priority())
    }

    /// `levels`, with those more urgent than the ceiling counted as the ceiling.
    pub fn cap_all(&self, levels: u64) -> u64 {
        levels::cap_all(levels, self.priority())
    }
}

/// A level that a program asks for. What counts of it is what the ceiling of its process allows at
/// the time: [`Ceiling::allowed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked(Priority);

impl From<Priority> for Asked {
    fn from(priority: Priority) -> Self {
        Self(priority)
    }
}

impl Ceiling {
    /// What counts now of what is asked for.
    #[inline]
    pub fn allowed(&self, Asked(priority): Asked) -> Priority {
        self.cap(priority)
    }
}

/// The levels that are counted for one process in the system bitmap.
#[derive(Debug, Default)]
pub struct Published(AtomicU64);

/// For each level, how many processes show it.
static COUNTS: [AtomicU32; LEVELS] = [const { AtomicU32::new(0) }; LEVELS];

/// The counts above, and the system bitmap made from them.
struct SystemBitmap<'a>(&'a AtomicU64);

impl Counted for SystemBitmap<'_> {
    fn increment(&self, level: usize) -> u32 {
        COUNTS[level].fetch_add(1, SeqCst)
    }

    fn decrement(&self, level: usize) -> u32 {
        COUNTS[level].fetch_sub(1, SeqCst)
    }

    fn count(&self, level: usize) -> u32 {
        COUNTS[level].load(SeqCst)
    }

    fn set_bit(&self, level: usize, value: bool) {
        if value {
            self.0.fetch_or(1 << level, SeqCst);
        } else {
            self.0.fetch_and(!(1 << level), SeqCst);
        }
    }
}

impl Published {
    /// The levels.
    pub fn levels(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Counts `levels` instead of the previous ones; the cost depends only on the difference.
    ///
    /// Two harts may do this at the same time for the same process: each uses the difference to the
    /// value that it replaced, so every change is counted once.
    pub fn replace(&self, levels: u64) {
        if self.0.load(Relaxed) == levels {
            return;
        }
        let before = self.0.swap(levels, AcqRel);
        levels::change(&SystemBitmap(&system_page().bitmap), before, levels);
    }
}

impl Drop for Published {
    /// The process is freed. A result may have arrived for it after its virtual CPUs were dropped.
    fn drop(&mut self) {
        self.replace(0);
    }
}

/// Levels at which the kernel's own coroutines wait; also published in the system page.
pub fn kernel_waiting() -> u64 {
    let levels = executor::workers().iter().fold(0, |levels, worker| levels | worker.waiting());
    let page = system_page();
    if page.kernel_bitmap.load(Relaxed) != levels {
        page.kernel_bitmap.store(levels, Relaxed);
    }
    levels
}

/// This hart is about to run `process` in user mode at `priority`.
pub fn publish_hart(priority: Priority, process: u32) {
    let Some(record) = system_page().hart.get(arch::hart_index()) else { return };
    let level = level_number(Some(priority));
    if record.current_priority.load(Relaxed) != level {
        record.current_priority.store(level, Relaxed);
    }
    if record.process.load(Relaxed) != process {
        record.process.store(process, Relaxed);
    }
}

/// This hart does not run user code any more.
pub fn publish_hart_in_kernel() {
    let Some(record) = system_page().hart.get(arch::hart_index()) else { return };
    record.current_priority.store(NO_LEVEL, Relaxed);
    record.process.store(0, Relaxed);
}
