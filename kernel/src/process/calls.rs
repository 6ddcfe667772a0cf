//! The number of calls that a process has in flight, and their charge to its family.
//!
//! Asynchronous calls are charged in batches, so that most calls begin and end with one addition
//! each. The charge may cover up to two batches more than there are calls. A call for which a
//! virtual CPU sleeps is charged with that virtual CPU, which has one at most, and no limit refuses
//! it: a worker that waits for a lock sleeps so that the holder can run, also when all calls are
//! used up.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cops_abi::Errno;
use cops_abi::syscall::CALLS_IN_FLIGHT_MAX;
use cops_lock::Mutex;

use crate::mm::quota::{Amounts, CALL_BYTES, Charge, Family, Kind};

/// Number of calls that are charged at a time.
const BATCH: usize = 32;

/// The calls of one process.
#[derive(Debug)]
pub struct CallsInFlight {
    /// Asynchronous calls.
    count: AtomicUsize,
    /// Calls for which a virtual CPU sleeps.
    synchronous: AtomicUsize,
    /// Number of calls covered by the charge.
    charged: AtomicUsize,
    charge: Mutex<Charge>,
}

fn calls(count: usize) -> Amounts {
    let count = count as u64;
    Amounts::of(Kind::Calls, count).and(Kind::Memory, count * CALL_BYTES)
}

impl CallsInFlight {
    /// Without calls; later ones are charged to `family`.
    pub const fn new(family: Family) -> Self {
        let charge = Mutex::new(Charge::nothing(family));
        let (count, synchronous) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { count, synchronous, charged: AtomicUsize::new(0), charge }
    }

    /// Number of calls in flight.
    pub fn count(&self) -> usize {
        self.count.load(Relaxed) + self.synchronous.load(Relaxed)
    }

    /// Counts one more call for which a virtual CPU sleeps.
    pub fn begin_synchronous(&self) {
        self.synchronous.fetch_add(1, Relaxed);
    }

    /// A call for which a virtual CPU slept has ended.
    pub fn end_synchronous(&self) {
        self.synchronous.fetch_sub(1, Relaxed);
    }

    /// Counts one more asynchronous call.
    ///
    /// # Errors
    /// `EAGAIN` at the limit of the process or its quota, `ENOMEM` at its memory quota. The call is
    /// not counted then.
    pub fn begin(&self) -> Result<(), Errno> {
        let count = self.count.fetch_add(1, Relaxed) + 1;
        let begun = if count > CALLS_IN_FLIGHT_MAX {
            Err(Errno::EAGAIN)
        } else if count <= self.charged.load(Relaxed) {
            Ok(())
        } else {
            self.charge_more()
        };
        begun.inspect_err(|_| self.end(1))
    }

    /// `count` asynchronous calls have ended.
    pub fn end(&self, count: usize) {
        let left = self.count.fetch_sub(count, Relaxed) - count;
        if self.charged.load(Relaxed) >= left + 2 * BATCH {
            self.charge_less();
        }
    }

    #[cold]
    fn charge_more(&self) -> Result<(), Errno> {
        let mut charge = self.charge.lock();
        let charged = self.charged.load(Relaxed);
        let missing = self.count.load(Relaxed).saturating_sub(charged);
        if missing == 0 {
            return Ok(());
        }
        let more = match charge.grow(&calls(missing.next_multiple_of(BATCH))) {
            Ok(()) => missing.next_multiple_of(BATCH),
            // The quota is nearly used up.
            Err(_) => {
                charge.grow(&calls(missing))?;
                missing
            }
        };
        self.charged.store(charged + more, Relaxed);
        Ok(())
    }

    #[cold]
    fn charge_less(&self) {
        let mut charge = self.charge.lock();
        let charged = self.charged.load(Relaxed);
        let count = self.count.load(Relaxed);
        // Keep one batch, for a process that makes one call after another.
        let kept = count.next_multiple_of(BATCH).max(BATCH);
        if charged > kept {
            self.charged.store(kept, Relaxed);
            charge.shrink(&calls(charged - kept));
        }
    }
}
