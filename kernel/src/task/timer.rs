//! Timers: one queue of deadlines, one coroutine that serves it, one hart whose clock is armed for it.
//!
//! The timer interrupt takes no lock: it makes the service coroutine the most urgent there is and wakes it. The service takes what is due
//! out of the queue, the most urgent first, a portion at a time; if more is due, it goes on at the level of that, so that
//! thousands of sleeps that end at once delay nothing that is more urgent than they are. The time it takes is charged to the processes that
//! sleep. The hart on which the earliest deadline was last armed is the *timekeeper*; the
//! others arm their clocks for their time slices only, so a deadline wakes one hart and not all.
//! May touch: the hart's clock, the kernel's executor, the accounts of processes.

use alloc::sync::Arc;
use core::future::poll_fn;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use core::task::{Poll, Waker};

use cops_abi::Priority;
use cops_algorithms::deadlines::{Deadlines, Key};
use cops_algorithms::wall_clock;
use cops_fallible::OutOfMemory;
use spin::{Mutex, MutexGuard};

use super::process::Process;
use super::service::{Service, set_level};
use crate::arch;

/// Longest time a hart runs one virtual CPU while another of the same priority is ready.
pub const SLICE_MILLISECONDS: u64 = 10;

/// Deadlines served before what is more urgent, or as urgent, has its turn.
const PORTION_DEADLINES: usize = 8;

/// A sleep.
struct Entry {
    waker: Waker,
    /// Whose time it is to serve it.
    owner: Arc<Process>,
}

struct Queue {
    sleeps: Deadlines<Entry>,
    /// The network's, of which there is one: it must not fail for want of memory. As urgent as anything.
    network: Option<(u64, Waker)>,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { sleeps: Deadlines::new(), network: None });
/// The earliest deadline in the queue, in ticks; `u64::MAX` if there is none.
static EARLIEST_TICKS: AtomicU64 = AtomicU64::new(u64::MAX);
/// The hart whose clock is armed for [`EARLIEST_TICKS`].
static TIMEKEEPER: AtomicUsize = AtomicUsize::new(0);
/// The service coroutine, for the interrupt handler.
static SERVICE: Service = Service::new();
/// End of the time slice that runs on each hart, or `u64::MAX`.
static SLICE_END_TICKS: [AtomicU64; arch::MAX_HARTS] = [const { AtomicU64::new(u64::MAX) }; arch::MAX_HARTS];

/// One registered deadline. Dropping it takes it out of the queue, so that a cancelled sleep leaves nothing behind.
#[derive(Debug)]
pub struct Timer {
    key: Key,
}

impl Timer {
    /// Wakes `waker` at `deadline_ticks` or soon after, before what is less urgent than `level`, and at the expense of `owner`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(
        deadline_ticks: u64,
        waker: &Waker,
        level: u8,
        owner: Arc<Process>,
    ) -> Result<Self, OutOfMemory> {
        let entry = Entry { waker: waker.clone(), owner };
        let mut queue = QUEUE.lock();
        let key = queue.sleeps.insert(level, deadline_ticks, entry)?;
        announce(queue, deadline_ticks);
        Ok(Self { key })
    }

    /// Makes it as urgent as `level`.
    pub fn set_level(&mut self, level: u8) {
        if let Some(key) = QUEUE.lock().sleeps.set_level(self.key, level) {
            self.key = key;
        }
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
    let before = queue.network.replace((deadline_ticks, waker.clone()));
    announce(queue, deadline_ticks);
    drop(before);
}

impl Queue {
    /// Takes out the network's waker if it is due.
    fn take_network(&mut self, now: u64) -> Option<Waker> {
        self.network.take_if(|(deadline, _)| *deadline <= now).map(|(_, waker)| waker)
    }

    /// The earliest deadline that is not due.
    fn next_after(&self, now: u64) -> u64 {
        let network = self.network.as_ref().map_or(u64::MAX, |(deadline, _)| *deadline);
        self.sleeps.next_after(now).unwrap_or(u64::MAX).min(network)
    }

    /// The level of what is due.
    fn due_level(&self, now: u64) -> Option<u8> {
        match self.network {
            Some((deadline, _)) if deadline <= now => Some(Priority::MOST_URGENT.level()),
            _ => self.sleeps.due_level(now),
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // The armed clock may now ring for nothing; that costs one wake of the service.
        let entry = QUEUE.lock().sleeps.remove(self.key);
        // Perhaps the last that holds its process: not under the lock.
        drop(entry);
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

/// Real time is the monotonic time and this: what it was when the monotonic clock showed 0.
static EPOCH_NANOSECONDS: AtomicU64 = AtomicU64::new(0);

/// Sets real time to `nanoseconds` since 1970. Without a clock that tells them it counts from boot, which is logged.
/// For the boot hart, before there are programs.
pub fn set_real_time(nanoseconds: Option<u64>) {
    let monotonic = nanoseconds_from_ticks(arch::now_ticks());
    EPOCH_NANOSECONDS.store(wall_clock::epoch(nanoseconds, monotonic), Relaxed);
    if nanoseconds.is_none() {
        log::warn!("no real-time clock: real time counts from boot");
    }
}

/// What real time was, in nanoseconds since 1970, when the monotonic clock showed 0.
pub fn epoch_nanoseconds() -> u64 {
    EPOCH_NANOSECONDS.load(Relaxed)
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
        if let Some(service) = SERVICE.id() {
            // It may be waiting to serve what is less urgent. How urgent this is, only the queue says.
            cops_executor::set_priority(service, Priority::MOST_URGENT);
            cops_executor::wake_up(service);
        }
    }
    arm();
}

/// The service coroutine: wakes what is due and arms the clock for the rest.
pub async fn service() {
    SERVICE.begin();
    poll_fn(|context| {
        match serve() {
            Some(level) => {
                follow(level);
                // The clock may have rung since, and its handler have made this coroutine most urgent in vain.
                if EARLIEST_TICKS.load(Relaxed) <= arch::now_ticks() {
                    follow(Priority::MOST_URGENT.level());
                }
                context.waker().wake_by_ref();
            }
            None => follow(Priority::MOST_URGENT.level()),
        }
        Poll::<()>::Pending
    })
    .await;
}

/// Makes the service, which runs here, as urgent as `level` from its next poll on.
fn follow(level: u8) {
    if let Some(id) = cops_executor::current() {
        set_level(id, level);
    }
}

/// Wakes a portion of what is due and arms the clock for what is not. Returns the level of what else is due.
fn serve() -> Option<u8> {
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
    EARLIEST_TICKS.store(queue.next_after(now), Relaxed);
    TIMEKEEPER.store(arch::hart_index(), Relaxed);
    let more = queue.due_level(now);
    drop(queue);
    arm();
    more
}
