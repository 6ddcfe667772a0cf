//! Timers: one queue of deadlines, one coroutine that serves it, one hart whose clock is armed for it.
//!
//! The timer interrupt takes no lock: it wakes the service coroutine, which takes what is due out
//! of the queue. The hart on which the earliest deadline was last armed is the *timekeeper*; the
//! others arm their clocks for their time slices only, so a deadline wakes one hart and not all.
//! May touch: the hart's clock, the kernel's executor.

use core::future::poll_fn;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use core::task::{Poll, Waker};

use cops_fallible::{Map, OutOfMemory};
use spin::{Mutex, MutexGuard};

use crate::arch;

/// Longest time a hart runs one virtual CPU while another of the same priority is ready.
pub const SLICE_MILLISECONDS: u64 = 10;

/// Deadlines served before what is more urgent, or as urgent, has its turn.
const PORTION_DEADLINES: usize = 8;

/// A deadline and a number that tells equal deadlines apart, in order of arrival.
type Key = (u64, u64);

struct Queue {
    entries: Map<Key, Waker>,
    /// The network's, of which there is one: it must not fail for want of memory.
    network: Option<(u64, Waker)>,
    next_number: u64,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { entries: Map::new(), network: None, next_number: 0 });
/// The earliest deadline in the queue, in ticks; `u64::MAX` if there is none.
static EARLIEST_TICKS: AtomicU64 = AtomicU64::new(u64::MAX);
/// The hart whose clock is armed for [`EARLIEST_TICKS`].
static TIMEKEEPER: AtomicUsize = AtomicUsize::new(0);
/// The service coroutine, for the interrupt handler.
static SERVICE: AtomicU64 = AtomicU64::new(0);
/// End of the time slice that runs on each hart, or `u64::MAX`.
static SLICE_END_TICKS: [AtomicU64; arch::MAX_HARTS] = [const { AtomicU64::new(u64::MAX) }; arch::MAX_HARTS];

/// One registered deadline. Dropping it takes it out of the queue, so that a cancelled sleep leaves nothing behind.
#[derive(Debug)]
pub struct Timer {
    key: Key,
}

impl Timer {
    /// Wakes `waker` at `deadline_ticks` or soon after.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(deadline_ticks: u64, waker: &Waker) -> Result<Self, OutOfMemory> {
        let mut queue = QUEUE.lock();
        let key = (deadline_ticks, queue.next_number);
        queue.next_number += 1;
        queue.entries.try_insert(key, waker.clone())?;
        announce(queue, deadline_ticks);
        Ok(Self { key })
    }
}

/// A deadline has been put into the queue.
fn announce(queue: MutexGuard<'_, Queue>, deadline_ticks: u64) {
    if deadline_ticks < EARLIEST_TICKS.load(Relaxed) {
        EARLIEST_TICKS.store(deadline_ticks, Relaxed);
        TIMEKEEPER.store(arch::hart_index(), Relaxed);
        drop(queue);
        arm();
    }
}

/// Wakes `waker`, the network's, at `deadline_ticks`, and at no deadline set before. Cannot fail.
pub fn wake_network_at(deadline_ticks: u64, waker: &Waker) {
    let mut queue = QUEUE.lock();
    queue.network = Some((deadline_ticks, waker.clone()));
    announce(queue, deadline_ticks);
}

impl Queue {
    /// Takes out the waker of a deadline that is over at `now`.
    ///
    /// # Errors
    /// When there is something to take out; `u64::MAX`: never.
    fn take_due(&mut self, now: u64) -> Result<Waker, u64> {
        let network = self.network.as_ref().map_or(u64::MAX, |(deadline, _)| *deadline);
        let first = self.entries.first().map(|(&key, _)| key);
        let earliest = first.map_or(u64::MAX, |(deadline, _)| deadline).min(network);
        let due = if earliest > now {
            None
        } else if network == earliest {
            self.network.take().map(|(_, waker)| waker)
        } else {
            first.and_then(|key| self.entries.remove(&key))
        };
        due.ok_or(earliest)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // The armed clock may now ring for nothing; that costs one wake of the service.
        QUEUE.lock().entries.remove(&self.key);
    }
}

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

// The clock is read for every packet. Whole seconds and the rest are converted apart, so that 64 bits are enough
// for a clock of up to 18 GHz: dividing 128 bits is a library routine of more than a hundred instructions.

/// Ticks in `microseconds`, rounded up; saturates.
pub fn ticks_from_microseconds(microseconds: u64) -> u64 {
    ticks_from_nanoseconds(microseconds.saturating_mul(1000))
}

/// Nanoseconds that `ticks` last; saturates after 584 years.
pub fn nanoseconds_from_ticks(ticks: u64) -> u64 {
    let frequency = arch::ticks_per_second();
    let (seconds, rest) = (ticks / frequency, ticks % frequency);
    seconds.saturating_mul(NANOSECONDS_PER_SECOND).saturating_add(rest * NANOSECONDS_PER_SECOND / frequency)
}

/// Ticks in `nanoseconds`, rounded up; saturates.
pub fn ticks_from_nanoseconds(nanoseconds: u64) -> u64 {
    let frequency = arch::ticks_per_second();
    let (seconds, rest) = (nanoseconds / NANOSECONDS_PER_SECOND, nanoseconds % NANOSECONDS_PER_SECOND);
    seconds.saturating_mul(frequency).saturating_add((rest * frequency).div_ceil(NANOSECONDS_PER_SECOND))
}

/// Ticks in a time slice.
pub fn slice_ticks() -> u64 {
    arch::ticks_per_second() * SLICE_MILLISECONDS / 1000
}

/// This hart enters user mode with a slice that ends at `end_ticks`.
pub fn begin_slice(end_ticks: u64) {
    SLICE_END_TICKS[arch::hart_index()].store(end_ticks, Relaxed);
    arm();
}

/// The hart has left user mode: no slice runs any more.
///
/// The clock stays armed; should it ring, that is one interrupt that finds nothing to do.
pub fn end_slice() {
    SLICE_END_TICKS[arch::hart_index()].store(u64::MAX, Relaxed);
}

/// Arms this hart's clock for the next thing that is its business.
fn arm() {
    let hart = arch::hart_index();
    let mut deadline = SLICE_END_TICKS[hart].load(Relaxed);
    if TIMEKEEPER.load(Relaxed) == hart {
        deadline = deadline.min(EARLIEST_TICKS.load(Relaxed));
    }
    arch::set_timer(deadline);
}

/// The timer interrupt. Takes no lock.
pub fn on_interrupt() {
    let now = arch::now_ticks();
    let hart = arch::hart_index();
    if SLICE_END_TICKS[hart].load(Relaxed) <= now {
        // Seen by the switching coroutine, which compares its slice's end with the clock.
        SLICE_END_TICKS[hart].store(u64::MAX, Relaxed);
    }
    if EARLIEST_TICKS.load(Relaxed) <= now && TIMEKEEPER.load(Relaxed) == hart {
        // The service arms the clock again; until then this hart's clock is for its slice only.
        TIMEKEEPER.store(usize::MAX, Relaxed);
        super::wake_by_number(SERVICE.load(Relaxed));
    }
    arm();
}

/// The service coroutine: wakes what is due and arms the clock for the rest.
pub async fn service() {
    poll_fn(|context| {
        SERVICE.store(super::current_number(), Relaxed);
        // Bounded portion: a burst of deadlines must not hold up what is more urgent.
        for _ in 0..PORTION_DEADLINES {
            let mut queue = QUEUE.lock();
            match queue.take_due(arch::now_ticks()) {
                Ok(waker) => {
                    drop(queue);
                    waker.wake();
                }
                Err(next) => {
                    EARLIEST_TICKS.store(next, Relaxed);
                    TIMEKEEPER.store(arch::hart_index(), Relaxed);
                    drop(queue);
                    arm();
                    return Poll::<()>::Pending;
                }
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
