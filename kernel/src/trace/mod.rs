//! Tracing: typed events in a ring per hart, off unless somebody wants them.
//!
//! A trace point is [`emit`] with a closure that makes the event. Off, it costs one relaxed load and a branch;
//! the closure is not called. On, the record goes to the ring of the hart, over the oldest one: nobody waits, no
//! lock is taken, so interrupt handlers may. The rings are made when tracing is first switched on (boot
//! argument `trace=RECORDS`, or `COPS_TRACE`) and stay.
//!
//! `pages` is how processes take part, `interpose` how wakes and spawns of coroutines of the kernel are seen without a
//! trace point in the scheduler, `traced` their polls, `dump` how the rings leave the machine.
//! May touch: the clock, the console (`dump`), the vDSO's function table (`interpose`); processes for their names.

mod dump;
mod interpose;
mod pages;
mod traced;

pub use dump::{dump, dump_at_power_off, print_last};
pub use pages::TracePages;
pub use traced::{name, name_of, poll, traced};

use cops_fallible::List;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use cops_abi::Errno;
pub use cops_abi::trace::Event;
use cops_abi::trace::{Portion, Record, Ring, Slot};
use spin::{Mutex, Once};

use crate::arch;
use crate::drivers::device_tree;

/// Records in each hart's ring if nobody says otherwise.
const RECORDS_DEFAULT: usize = 8192;
/// Most records that the boot argument can ask for: 32 MiB a hart.
const RECORDS_MAX: usize = 1 << 20;

static ON: AtomicBool = AtomicBool::new(false);
static RINGS: Once<List<HartRing>> = Once::new();
/// Held while tracing is switched on or off.
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

/// A trace point. From any context, interrupt handlers included.
///
/// `event` had better be a `move` closure over integers and references: a local that it borrows has to be in memory
/// for its sake, also when it is not called.
#[inline(always)]
pub fn emit(event: impl FnOnce() -> Event) {
    if ON.load(Relaxed) {
        record(event);
    }
}

/// Out of line, with the making of the event, so that a trace point is three instructions where it stands.
#[cold]
#[inline(never)]
fn record(event: impl FnOnce() -> Event) {
    write(Record { time_ticks: arch::now_ticks(), ..event().to_record() });
}

/// Writes a record that has its time already to this hart's ring.
fn write(record: Record) {
    let hart = arch::hart_index();
    if let Some(ring) = RINGS.get().and_then(|rings| rings.get(hart)) {
        ring.ring().write(Record { hart: hart as u8, ..record });
    }
}

/// Switches tracing on if the boot argument says so. Once, before there are other harts or coroutines.
///
/// # Panics
/// Without memory for the rings that were asked for.
pub fn initialise() {
    if device_tree::boot_argument("trace").is_some() {
        let switched = switch(true);
        assert!(switched.is_ok(), "no memory for the trace rings: ask for fewer records");
    }
}

/// Switches tracing of the whole machine on or off; returns what it was. What was recorded stays.
///
/// # Errors
/// `ENOMEM` if the rings cannot be made; it is off then.
pub fn switch(on: bool) -> Result<bool, Errno> {
    let mut making = Making::default();
    while on && making.go_on()? {}
    Ok(switch_prepared(on))
}

/// [`switch`] where the rings have been made, if it is to be on.
pub fn switch_prepared(on: bool) -> bool {
    let _control = CONTROL.lock();
    let before = ON.swap(on, Relaxed);
    if before != on {
        interpose::switch(on);
    }
    before
}

/// Rings that are being made, in portions.
#[derive(Default)]
pub struct Making {
    rings: List<HartRing>,
    slots: List<Slot>,
}

/// Records that are made before others have their turn.
const PORTION_RECORDS: usize = 1024;

impl Making {
    /// Does a portion. Returns whether there is more to do.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn go_on(&mut self) -> Result<bool, Errno> {
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

/// What there is of a hart's ring.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Records written since tracing was first on.
    pub begun: u64,
    /// Records that the ring holds.
    pub capacity: u64,
}

/// How far the ring of `hart` has come; `None` before tracing was first on, and for harts there are not.
pub fn extent(hart: usize) -> Option<Extent> {
    let ring = RINGS.get()?.get(hart)?;
    Some(Extent { begun: ring.ring().begun(), capacity: ring.slots.len() as u64 })
}

/// Reads the ring of `hart` from record `from` on, at most `limit` records, into `put`.
pub fn read(hart: usize, from: u64, limit: usize, put: impl FnMut(Record)) -> Option<Portion> {
    Some(RINGS.get()?.get(hart)?.ring().read(from, limit, put))
}
