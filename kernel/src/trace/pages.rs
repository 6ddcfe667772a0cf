//! The trace pages of a process: one for each virtual CPU, into which the process's runtime writes
//! its coroutines' events.
//!
//! The kernel moves these records to the hart's ring when the virtual CPU enters the kernel. So the
//! process needs no system call for an event, and its last events are not lost when it ends. The
//! kernel trusts nothing in the page: it filters the kinds, sets process and virtual CPU itself,
//! and limits times to the interval between the last entry and now.

use cops_fallible::List;
use core::sync::atomic::{AtomicU64, Ordering::*};

use cops_abi::page::MAX_CPUS;
use cops_abi::trace::{PAGE_RECORDS, Record, TracePage};
use cops_abi::{Errno, layout, trace};

use super::{Event, write};
use crate::arch;
use crate::mm::{AddressSpace, Frame, Rights, SharedFrame};

/// The trace pages of one process.
pub struct TracePages {
    cpus: List<Cpu>,
}

struct Cpu {
    page: SharedFrame<TracePage>,
    /// Number of records that the kernel has seen, including those it did not move.
    seen: AtomicU64,
    /// The time of the last record moved.
    time_ticks: AtomicU64,
}

impl TracePages {
    /// A page for each possible virtual CPU.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new() -> Result<Self, Errno> {
        let mut cpus = List::try_with_capacity(MAX_CPUS)?;
        for _ in 0..MAX_CPUS {
            let page = SharedFrame::<TracePage>::new(Frame::allocate_zeroed()?);
            let time_ticks = AtomicU64::new(arch::now_ticks());
            cpus.try_push(Cpu { page, seen: AtomicU64::new(0), time_ticks })?;
        }
        Ok(Self { cpus })
    }

    /// Maps the pages into `space`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn map(&self, space: &AddressSpace) -> Result<(), Errno> {
        for (index, cpu) in self.cpus.iter().enumerate() {
            let address = layout::TRACE_PAGES + index * layout::PAGE_BYTES;
            space.map_frame(address, cpu.page.frame().clone(), Rights::READ_WRITE)?;
        }
        Ok(())
    }

    /// Moves the records of virtual CPU `cpu` of `process` to this hart's ring, at most one page of
    /// them. The virtual CPU is not running: this hart runs the kernel on its behalf.
    pub fn collect(&self, process: u32, cpu: usize) {
        let Some(Cpu { page, seen, time_ticks }) = self.cpus.get(cpu) else { return };
        let from = seen.load(Relaxed);
        let (mut earliest, now) = (time_ticks.load(Relaxed), arch::now_ticks());
        let portion = page.ring().read(from, PAGE_RECORDS, |record| {
            if trace::Event::is_user_kind(record.kind) {
                // Not `clamp`, which panics if the clock went back.
                earliest = record.time_ticks.max(earliest).min(now);
                write(Record { time_ticks: earliest, process, cpu: cpu as u8, ..record });
            }
        });
        // The process can falsify the count; that only loses records of its own.
        let lost = portion.first.saturating_sub(from);
        if lost > 0 {
            let event = Event::Lost { process, cpu: cpu as u8, count: lost };
            write(Record { time_ticks: earliest, ..event.to_record() });
        }
        seen.store(portion.first + portion.count as u64, Relaxed);
        time_ticks.store(earliest, Relaxed);
    }
}
