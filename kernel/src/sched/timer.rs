//! Timers: one queue of deadlines, one coroutine that serves it, one hart with its clock armed for
//! it.
//!
//! The timer interrupt takes no lock: it makes the service coroutine the most urgent of all and
//! wakes it. The service takes due deadlines out of the queue, the most urgent first, one portion
//! at a time. If more are due, it continues at their level, so that thousands of sleeps that end at
//! once delay nothing more urgent than themselves. Its time is charged to the sleeping processes.
//! The hart on which the earliest deadline was last armed is the *timekeeper*. The others arm their
//! clocks only for their time slices, so a deadline wakes one hart and not all. The transitions are
//! `cops_algorithms::timekeeper`, which the model checker explores.

use alloc::sync::Arc;
use core::future::poll_fn;
use core::sync::atomic::{AtomicU64, Ordering::*};
use core::task::{Poll, Waker};

use cops_abi::Priority;
use cops_abi::file::Time;
use cops_algorithms::deadlines::{Deadlines, Key};
use cops_algorithms::timekeeper::Timekeeper;
use cops_algorithms::wall_clock;
use cops_fallible::OutOfMemory;
use cops_lock::{Mutex, MutexGuard};

use super::service::{Service, set_priority};
use super::{arrivals, doorbell};
use crate::arch;

/// Maximum time for which a hart runs one virtual CPU while another of the same priority is ready.
pub const SLICE_MILLISECONDS: u64 = 10;

/// Number of deadlines served in one portion, after which coroutines of equal or higher urgency may
/// run.
const PORTION_DEADLINES: usize = 1;

/// Pays for the work that the kernel does for it: a process.
pub trait Payer: Send + Sync {
    /// Its number: those with different numbers take turns.
    fn number(&self) -> u32;

    /// Charges `ticks` of work.
    fn charge(&self, ticks: u64);
}

/// A sleep.
struct Entry {
    waker: Waker,
    /// The process charged for serving it.
    owner: Arc<dyn Payer>,
}

struct Queue {
    sleeps: Deadlines<Entry>,
    /// The network's only deadline, which cannot fail for lack of memory. It has the highest
    /// urgency.
    network: Option<(u64, Waker)>,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { sleeps: Deadlines::new(), network: None });
/// The earliest deadline in the queue, and the hart with its clock armed for it.
static TIMEKEEPER: Timekeeper = Timekeeper::new();
/// The service coroutine, for the interrupt handler.
static SERVICE: Service = Service::new();
/// End of the current time slice on each hart, or `u64::MAX`.
static SLICE_END_TICKS: [AtomicU64; arch::MAX_HARTS] =
    [const { AtomicU64::new(u64::MAX) }; arch::MAX_HARTS];

/// The deadline for which each hart's clock is armed, or `u64::MAX`. Only its hart uses it.
static ARMED_TICKS: [AtomicU64; arch::MAX_HARTS] =
    [const { AtomicU64::new(u64::MAX) }; arch::MAX_HARTS];

/// One registered deadline. Dropping it removes it from the queue, so that nothing is left of a
/// cancelled sleep.
#[derive(Debug)]
pub struct Timer {
    key: Key,
}

impl Timer {
    /// Wakes `waker` at `deadline_ticks` or soon after, before anything less urgent than
    /// `priority`, and charges that to `owner`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(
        deadline_ticks: u64,
        waker: &Waker,
        priority: Priority,
        owner: Arc<dyn Payer>,
    ) -> Result<Self, OutOfMemory> {
        let (number, entry) = (owner.number(), Entry { waker: waker.clone(), owner });
        let mut queue = QUEUE.lock();
        let key = queue.sleeps.insert(priority, number, deadline_ticks, entry)?;
        schedule_interrupt(queue, deadline_ticks);
        Ok(Self { key })
    }

    /// Changes its level.
    ///
    /// The service may wait for its turn at the old level, because something is due there. So the
    /// clock is armed as for a new deadline, also if this one is due: the interrupt raises the
    /// service.
    pub fn set_priority(&mut self, priority: Priority) {
        let mut queue = QUEUE.lock();
        if let Some(key) = queue.sleeps.set_priority(self.key, priority) {
            self.key = key;
            schedule_interrupt(queue, key.deadline());
        }
    }
}

/// Arms the clock if this deadline, which is now in the queue, is the earliest.
fn schedule_interrupt(queue: MutexGuard<'_, Queue>, deadline_ticks: u64) {
    if TIMEKEEPER.bring_forward(arch::hart_index(), deadline_ticks) {
        drop(queue);
        arm();
    }
}

/// Wakes the network's `waker` at `deadline_ticks`, instead of any deadline set before. Cannot
/// fail.
pub fn wake_network_at(deadline_ticks: u64, waker: &Waker) {
    let mut queue = QUEUE.lock();
    let before = queue.network.replace((deadline_ticks, waker.clone()));
    schedule_interrupt(queue, deadline_ticks);
    drop(before);
}

impl Queue {
    /// Removes the network's waker if it is due.
    fn take_network(&mut self, now: u64) -> Option<Waker> {
        self.network.take_if(|(deadline, _)| *deadline <= now).map(|(_, waker)| waker)
    }

    /// The earliest deadline that is not due.
    fn next_after(&self, now: u64) -> u64 {
        let network = self.network.as_ref().map_or(u64::MAX, |(deadline, _)| *deadline);
        self.sleeps.next_after(now).unwrap_or(u64::MAX).min(network)
    }

    /// The level of the most urgent due deadline.
    fn due_priority(&self, now: u64) -> Option<Priority> {
        match self.network {
            Some((deadline, _)) if deadline <= now => Some(Priority::MOST_URGENT),
            _ => self.sleeps.due_priority(now),
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // The armed clock may now interrupt without a due deadline; that costs one wake of the
        // service.
        let entry = QUEUE.lock().sleeps.remove(self.key);
        // This may be the last reference to the process: drop it without the lock.
        drop(entry);
    }
}

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;
const MICROSECONDS_PER_SECOND: u64 = 1_000_000;

/// The frequency of the clock in MHz if that is a whole number, otherwise 0, as before
/// [`configure`]. It saves the look at the machine's facts and a division, or two.
static TICKS_PER_MICROSECOND: AtomicU64 = AtomicU64::new(0);

/// Reads the frequency of the clock. For the boot hart, before there are services.
pub fn configure() {
    let frequency = arch::ticks_per_second();
    if frequency.is_multiple_of(MICROSECONDS_PER_SECOND) {
        TICKS_PER_MICROSECOND.store(frequency / MICROSECONDS_PER_SECOND, Relaxed);
    }
}

// The clock is read for every packet. Whole seconds and the rest are converted separately, so that
// 64 bits are enough for a clock of up to 18 GHz: dividing 128 bits is a library routine of more
// than a hundred instructions.

/// Ticks in `microseconds`, rounded up; saturates.
pub fn ticks_from_microseconds(microseconds: u64) -> u64 {
    // The usual case, without a division.
    match TICKS_PER_MICROSECOND.load(Relaxed) {
        0 => ticks_from_nanoseconds(microseconds.saturating_mul(1000)),
        factor => microseconds.saturating_mul(factor),
    }
}

/// Duration of `ticks` in nanoseconds; saturates after 584 years.
pub fn nanoseconds_from_ticks(ticks: u64) -> u64 {
    let frequency = arch::ticks_per_second();
    let (seconds, rest) = (ticks / frequency, ticks % frequency);
    seconds
        .saturating_mul(NANOSECONDS_PER_SECOND)
        .saturating_add(rest * NANOSECONDS_PER_SECOND / frequency)
}

/// Duration of `ticks` in microseconds; saturates as [`nanoseconds_from_ticks`] does.
pub fn microseconds_from_ticks(ticks: u64) -> u64 {
    // The usual case: the network asks for each batch of frames.
    match TICKS_PER_MICROSECOND.load(Relaxed) {
        0 => nanoseconds_from_ticks(ticks) / 1000,
        divisor => ticks / divisor,
    }
}

/// The real time when the monotonic clock was 0. Real time is the sum of this and the monotonic
/// time.
static EPOCH_NANOSECONDS: AtomicU64 = AtomicU64::new(0);

/// Sets real time to `nanoseconds` since 1970. If no clock provides them, real time counts from
/// boot, which is logged. For the boot hart, before there are programs.
pub fn set_real_time(nanoseconds: Option<u64>) {
    let monotonic = nanoseconds_from_ticks(arch::now_ticks());
    EPOCH_NANOSECONDS.store(wall_clock::epoch(nanoseconds, monotonic), Relaxed);
    if nanoseconds.is_none() {
        log::warn!("no real-time clock: real time counts from boot");
    }
}

/// The real time, in nanoseconds since 1970, when the monotonic clock was 0.
pub fn epoch_nanoseconds() -> u64 {
    EPOCH_NANOSECONDS.load(Relaxed)
}

/// The real time.
pub fn real_time() -> Time {
    let nanoseconds = nanoseconds_from_ticks(arch::now_ticks()).saturating_add(epoch_nanoseconds());
    Time {
        seconds: (nanoseconds / NANOSECONDS_PER_SECOND) as i64,
        nanoseconds: (nanoseconds % NANOSECONDS_PER_SECOND) as u32,
    }
}

/// The time of what is written now to a file: see [`Time::of_file`].
pub fn file_time() -> Time {
    real_time().of_file()
}

/// The same, in nanoseconds since 1970.
pub fn file_nanoseconds() -> u64 {
    let Time { seconds, nanoseconds } = file_time();
    seconds as u64 * NANOSECONDS_PER_SECOND + u64::from(nanoseconds)
}

/// Ticks in `nanoseconds`, rounded up; saturates.
///
/// Out of line, because of its many constants.
#[inline(never)]
pub fn ticks_from_nanoseconds(nanoseconds: u64) -> u64 {
    let frequency = arch::ticks_per_second();
    let (seconds, rest) =
        (nanoseconds / NANOSECONDS_PER_SECOND, nanoseconds % NANOSECONDS_PER_SECOND);
    seconds
        .saturating_mul(frequency)
        .saturating_add((rest * frequency).div_ceil(NANOSECONDS_PER_SECOND))
}

/// Ticks in a time slice.
pub fn slice_ticks() -> u64 {
    arch::ticks_per_second() * SLICE_MILLISECONDS / 1000
}

/// This hart enters user mode with a slice that ends at `end_ticks`.
pub fn begin_slice(end_ticks: u64) {
    SLICE_END_TICKS[arch::hart_index()].store(end_ticks, Relaxed);
    // The clock is armed for the earliest deadline already, if this hart keeps the time.
    interrupt_by(end_ticks);
}

/// The hart has left user mode: no slice is running.
///
/// The clock stays armed; its interrupt then finds nothing to do.
pub fn end_slice() {
    SLICE_END_TICKS[arch::hart_index()].store(u64::MAX, Relaxed);
}

/// Arms this hart's clock for its next event, or leaves it armed for an earlier moment: the
/// interrupt then arms it again.
///
/// Each slice ends later than the one before it, so nearly every deadline is a later one. To arm
/// the clock is expensive in QEMU: it takes the emulator's global lock and wakes its main loop.
fn arm() {
    // An interrupt in between only makes this hart arm its clock twice: the handler looks at the
    // same two deadlines, which are stored before this function is called.
    interrupt_by(next_event());
}

/// When this hart's slice ends or, if it keeps the time, the earliest deadline is due.
fn next_event() -> u64 {
    let hart = arch::hart_index();
    SLICE_END_TICKS[hart].load(Relaxed).min(TIMEKEEPER.ticks_for(hart))
}

/// Interrupts this hart at `deadline_ticks`, or sooner if its clock is armed for that.
pub fn interrupt_by(deadline_ticks: u64) {
    let armed = &ARMED_TICKS[arch::hart_index()];
    if deadline_ticks < armed.load(Relaxed) {
        armed.store(deadline_ticks, Relaxed);
        arch::set_timer(deadline_ticks);
    }
}

/// The timer interrupt. Takes no lock.
pub fn on_interrupt() {
    let now = arch::now_ticks();
    let hart = arch::hart_index();
    // The trap handler has silenced the clock.
    ARMED_TICKS[hart].store(u64::MAX, Relaxed);
    if SLICE_END_TICKS[hart].load(Relaxed) <= now {
        // The switching coroutine notices, because it compares its slice's end with the clock.
        SLICE_END_TICKS[hart].store(u64::MAX, Relaxed);
    }
    if TIMEKEEPER.take_due(hart, now) {
        // The service arms the clock again; until then this hart's clock is only for its slice.
        if let Some(service) = SERVICE.id() {
            // It may be waiting at the level of less urgent deadlines. Only the queue knows how
            // urgent this one is.
            cops_executor::set_priority(service, Priority::MOST_URGENT);
            cops_executor::wake_up(service);
        }
    }
    doorbell::settle();
    interrupt_by(next_event().min(arrivals::on_timer(now)));
}

/// The service coroutine: wakes what is due and arms the clock for the rest.
pub async fn service() {
    SERVICE.begin();
    poll_fn(|context| {
        match serve() {
            Some(priority) => {
                follow(priority);
                // The clock may have interrupted in between; then its handler raised this coroutine
                // without effect.
                if TIMEKEEPER.is_due(arch::now_ticks()) {
                    follow(Priority::MOST_URGENT);
                }
                context.waker().wake_by_ref();
            }
            None => follow(Priority::MOST_URGENT),
        }
        Poll::<()>::Pending
    })
    .await;
}

/// Sets the level of the service, which is the calling coroutine, from its next poll on.
fn follow(priority: Priority) {
    if let Some(id) = cops_executor::current() {
        set_priority(id, priority);
    }
}

/// Wakes one portion of what is due and arms the clock for what is not. Returns the level of the
/// rest that is due.
fn serve() -> Option<Priority> {
    let mut begin_ticks = arch::now_ticks();
    let network = QUEUE.lock().take_network(begin_ticks);
    if let Some(waker) = network {
        waker.wake();
    }
    for _ in 0..PORTION_DEADLINES {
        let Some(entry) = QUEUE.lock().sleeps.pop_due(begin_ticks) else { break };
        entry.waker.wake();
        let now = arch::now_ticks();
        entry.owner.charge(now.saturating_sub(begin_ticks));
        begin_ticks = now;
    }
    let queue = QUEUE.lock();
    let now = arch::now_ticks();
    TIMEKEEPER.appoint(arch::hart_index(), queue.next_after(now));
    let more = queue.due_priority(now);
    drop(queue);
    arm();
    more
}
