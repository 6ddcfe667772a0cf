//! How a process takes part: a page for each virtual CPU into which its runtime writes what its coroutines do.
//!
//! The kernel moves what it finds to the hart's ring when the virtual CPU enters the kernel: so the
//! process makes no call for an event, and what it did before it ended is not lost with its memory. Nothing in the page is
//! believed: kinds are filtered, process and place are the kernel's own, times are held between the last
//! entry and now.
//! May touch: the shared pages.

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
    /// Records that the kernel has seen, moved or not.
    seen: AtomicU64,
    /// The time of the latest record moved.
    time_ticks: AtomicU64,
}

impl TracePages {
    /// Maps a page for each virtual CPU there can be into `space`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(space: &AddressSpace) -> Result<Self, Errno> {
        let mut cpus = List::try_with_capacity(MAX_CPUS)?;
        for index in 0..MAX_CPUS {
            let page = SharedFrame::<TracePage>::new(Frame::allocate_zeroed()?);
            let address = layout::TRACE_PAGES + index * layout::PAGE_BYTES;
            space.map_frame(address, page.frame().clone(), Rights::READ_WRITE)?;
            let time_ticks = AtomicU64::new(arch::now_ticks());
            cpus.try_push(Cpu { page, seen: AtomicU64::new(0), time_ticks })?;
        }
        Ok(Self { cpus })
    }

    /// Moves what virtual CPU `cpu` of `process` has written to this hart's ring. It is not running: this hart runs
    /// the kernel on its behalf. At most a page of records.
    pub fn collect(&self, process: u32, cpu: usize) {
        let Some(Cpu { page, seen, time_ticks }) = self.cpus.get(cpu) else { return };
        let from = seen.load(Relaxed);
        let (mut earliest, now) = (time_ticks.load(Relaxed), arch::now_ticks());
        let portion = page.ring().read(from, PAGE_RECORDS, |record| {
            if trace::Event::is_user_kind(record.kind) {
                // Not `clamp`: it panics if the clock went back.
                earliest = record.time_ticks.max(earliest).min(now);
                write(Record { time_ticks: earliest, process, cpu: cpu as u8, ..record });
            }
        });
        // A count that goes backwards is a lie; believing it costs the process its own records.
        let lost = portion.first.saturating_sub(from);
        if lost > 0 {
            let event = Event::Lost { process, cpu: cpu as u8, count: lost };
            write(Record { time_ticks: earliest, ..event.to_record() });
        }
        seen.store(portion.first + portion.count as u64, Relaxed);
        time_ticks.store(earliest, Relaxed);
    }
}
