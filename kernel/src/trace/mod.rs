//! Tracing: typed events in a ring for each hart, off by default.
//!
//! A trace point is a call of [`emit`] with a closure that makes the event. While tracing is off,
//! it costs one relaxed load and a branch; the closure is not called. While tracing is on, the
//! record goes into the hart's ring and overwrites the oldest one. It takes no lock and does not
//! wait, so interrupt handlers may use it. The rings are allocated when tracing is first switched
//! on (boot argument `trace=RECORDS`, or `COPS_TRACE`) and are never freed.
//!
//! - `pages`: the trace pages of processes.
//! - `interpose`: events for wakes and spawns of kernel coroutines, without trace points in the
//!   scheduler.
//! - `traced`: events for their polls.
//! - `dump`: output of the rings.

mod dump;
mod interpose;
mod pages;
mod traced;

pub use dump::{dump, dump_at_power_off, print_last};
pub use pages::TracePages;
pub use traced::{name, name_of, poll, traced};

use cops_fallible::List;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

pub use cops_abi::trace::Event;
use cops_abi::trace::{Portion, Record, Ring, Slot};
use cops_abi::{CoroutineId, Errno};
use cops_lock::Mutex;
use spin::Once;

use crate::arch;
use crate::machine::device_tree;

/// Default number of records in each hart's ring.
const RECORDS_DEFAULT: usize = 8192;
/// Maximum number of records that the boot argument can request: 32 MiB per hart.
const RECORDS_MAX: usize = 1 << 20;

static ON: AtomicBool = AtomicBool::new(false);
static RINGS: Once<List<HartRing>> = Once::new();
/// Locked while tracing is switched on or off.
static CONTROL: Mutex<()> = Mutex::new(());

#[repr(align(64))]
struct HartRing {
    begun: AtomicU64,
    slots: List<Slot>,
}

impl HartRing {
    fn ring(&self) -> Ring<'_> {
        Ring::new(&self.begun, &self.slots)
    }
}

/// Whether events are recorded now.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// A trace point. May be called in any context, including interrupt handlers.
///
/// `event` should be a `move` closure over integers and references. The compiler has to keep a
/// local that the closure borrows in memory, even if the closure is not called.
#[inline(always)]
pub fn emit(event: impl FnOnce() -> Event) {
    if ON.load(Relaxed) {
        record(event);
    }
}

/// Out of line, including the construction of the event, so that a trace point takes three
/// instructions in its function.
#[cold]
#[inline(never)]
fn record(event: impl FnOnce() -> Event) {
    write(Record { time_ticks: arch::now_ticks(), ..event().to_record() });
}

/// Writes a record that already has its time to this hart's ring.
fn write(record: Record) {
    let hart = arch::hart_index();
    if let Some(ring) = RINGS.get().and_then(|rings| rings.get(hart)) {
        ring.ring().write(Record { hart: hart as u8, ..record });
    }
}

/// Number of the coroutine that runs on this hart; 0 if there is none.
fn current_number() -> u64 {
    cops_executor::current().map_or(0, CoroutineId::raw)
}

/// Switches tracing on if the boot argument says so. Called once, before there are other harts or
/// coroutines.
///
/// # Panics
/// If there is no memory for the requested rings.
pub fn initialise() {
    if device_tree::boot_argument("trace").is_some() {
        let switched = switch(true);
        assert!(switched.is_ok(), "no memory for the trace rings: ask for fewer records");
    }
}

/// Switches tracing of the whole machine on or off; returns the previous state. Recorded events are
/// kept.
///
/// # Errors
/// `ENOMEM` if the rings cannot be allocated; tracing is then off.
pub fn switch(on: bool) -> Result<bool, Errno> {
    let mut making = Making::default();
    while on && making.resume()? {}
    Ok(switch_prepared(on))
}

/// Like [`switch`], when the rings have been allocated or tracing is switched off.
pub fn switch_prepared(on: bool) -> bool {
    let _control = CONTROL.lock();
    let before = ON.swap(on, Relaxed);
    if before != on {
        interpose::switch(on);
    }
    before
}

/// Allocates the rings in portions.
#[derive(Default)]
pub struct Making {
    rings: List<HartRing>,
    slots: List<Slot>,
}

/// Number of records that one portion initialises.
const PORTION_RECORDS: usize = 1024;

impl Making {
    /// Does one portion. Returns whether there is more to do.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn resume(&mut self) -> Result<bool, Errno> {
        if RINGS.get().is_some() {
            return Ok(false);
        }
        let asked = device_tree::boot_argument("trace").and_then(|records| records.parse().ok());
        let records = asked.unwrap_or(RECORDS_DEFAULT).clamp(1, RECORDS_MAX);
        if self.slots.is_empty() {
            self.slots = List::try_with_capacity(records)?;
        }
        for _ in 0..PORTION_RECORDS.min(records - self.slots.len()) {
            self.slots.try_push(Slot::new())?;
        }
        if self.slots.len() == records {
            let slots = core::mem::take(&mut self.slots);
            self.rings.try_push(HartRing { begun: AtomicU64::new(0), slots })?;
        }
        if self.rings.len() < arch::hart_count() {
            return Ok(true);
        }
        let rings = core::mem::take(&mut self.rings);
        RINGS.call_once(|| rings);
        Ok(false)
    }
}

/// The extent of a hart's ring.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Number of records written since tracing was first on.
    pub begun: u64,
    /// Number of records that the ring holds.
    pub capacity: u64,
}

/// The extent of the ring of `hart`; `None` before tracing was first on, and for a hart that does
/// not exist.
pub fn extent(hart: usize) -> Option<Extent> {
    let ring = RINGS.get()?.get(hart)?;
    Some(Extent { begun: ring.ring().begun(), capacity: ring.slots.len() as u64 })
}

/// Reads at most `limit` records of the ring of `hart` into `put`, beginning with record `from`.
pub fn read(hart: usize, from: u64, limit: usize, put: impl FnMut(Record)) -> Option<Portion> {
    Some(RINGS.get()?.get(hart)?.ring().read(from, limit, put))
}
