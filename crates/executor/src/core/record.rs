//! The record in which a worker publishes what it does: to the other workers, to `ps`, to a kernel.

use super::atomic::{AtomicU32, AtomicU64, Ordering};

use super::priority::Priority;

/// What a worker publishes: to the other workers, to `ps`, and, if it is in a page shared
/// with the kernel, to the kernel. The executor only ever takes these fields for hints about *when*
/// to look.
///
/// Two cache lines, because other workers read the first at each of their scheduling points and the
/// worker writes the second at each of its own. Zeroed memory is a valid initial value.
///
/// ```
/// use cops_executor::{Executor, Priority, WorkerState};
/// use std::sync::atomic::Ordering;
/// static RECORD: WorkerState = WorkerState::new();
/// # static EXECUTOR: Executor = Executor::new();
/// # static MEMORY: cops_executor::StaticMemory<{ cops_executor::memory_for(1, 10) }> = cops_executor::StaticMemory::new();
/// # EXECUTOR.start_static(&MEMORY, |_| ())?;
///
/// EXECUTOR.add_worker(0, &RECORD)?;
/// EXECUTOR.spawn(async {}, Priority::new(5).unwrap())?;
/// assert_eq!(RECORD.waiting(), 1 << 5);
/// EXECUTOR.run_until_stalled(0);
/// assert_eq!(RECORD.waiting(), 0);
/// assert_eq!(RECORD.polls.load(Ordering::Relaxed), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[repr(C, align(64))]
pub struct WorkerState {
    /// Bit p: coroutines of priority p wait in the worker's lists. (The one that it polls does not
    /// wait.)
    pub ready: AtomicU64,
    /// Bit p: coroutines of priority p have been put into the worker's inbox since it last looked.
    pub posted: AtomicU64,
    reserved: [u64; 6],
    /// Id of the coroutine that the worker polls, 0 if none.
    pub current_id: AtomicU64,
    /// Priority of what it has taken up last; 64 outside of `run`.
    pub current_priority: AtomicU32,
    /// 0: not in `run`; 1: in `run`; 2: parked or about to park.
    pub phase: AtomicU32,
    /// Polls so far.
    pub polls: AtomicU64,
    /// How many of the coroutines it polled were taken from other workers.
    pub steals: AtomicU64,
    /// The low half of an id: that coroutine has woken itself. A note between the waker and `run`
    /// on one worker (so a plain store will do), used up when the poll returns.
    pub woken: AtomicU32,
    /// How often the worker began what it had although another one published something more urgent,
    /// because that one's lock was held however often it looked. Each is one poll beyond the bound
    /// on order (crate documentation).
    pub skipped_steals: AtomicU32,
    reserved_own: [u32; 6],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<WorkerState>() == 128 && align_of::<WorkerState>() == 64);
    assert!(::core::mem::offset_of!(WorkerState, ready) == 0);
    assert!(::core::mem::offset_of!(WorkerState, posted) == 8);
    assert!(::core::mem::offset_of!(WorkerState, current_id) == 64);
    assert!(::core::mem::offset_of!(WorkerState, current_priority) == 72);
    assert!(::core::mem::offset_of!(WorkerState, phase) == 76);
    assert!(::core::mem::offset_of!(WorkerState, polls) == 80);
    assert!(::core::mem::offset_of!(WorkerState, steals) == 88);
    assert!(::core::mem::offset_of!(WorkerState, woken) == 96);
    assert!(::core::mem::offset_of!(WorkerState, skipped_steals) == 100);
};

/// `WorkerState::current_priority` of a worker that polls nothing.
pub(crate) const NO_PRIORITY: u32 = Priority::COUNT;
pub(crate) const PHASE_OUTSIDE: u32 = 0;
pub(crate) const PHASE_RUNNING: u32 = 1;
pub(crate) const PHASE_PARKED: u32 = 2;

impl WorkerState {
    /// A record of a worker that has not run yet.
    ///
    /// ```
    /// # use cops_executor::WorkerState;
    /// static RECORD: WorkerState = WorkerState::new();
    /// assert_eq!(RECORD.waiting(), 0);
    /// ```
    pub const fn new() -> WorkerState {
        WorkerState {
            ready: AtomicU64::new(0),
            posted: AtomicU64::new(0),
            reserved: [0; 6],
            current_id: AtomicU64::new(0),
            current_priority: AtomicU32::new(NO_PRIORITY),
            phase: AtomicU32::new(PHASE_OUTSIDE),
            polls: AtomicU64::new(0),
            steals: AtomicU64::new(0),
            woken: AtomicU32::new(0),
            skipped_steals: AtomicU32::new(0),
            reserved_own: [0; 6],
        }
    }

    /// Levels at which something waits for this worker, in its lists or its inbox. May name a level
    /// that has just become empty, but never misses one: what moves from inbox to lists is marked
    /// there (`ready`) before the mark here (`posted`) goes, and we look in the opposite order.
    ///
    /// In any context, interrupt handlers included.
    ///
    /// ```
    /// # use cops_executor::{Priority, WorkerState};
    /// # static RECORD: WorkerState = WorkerState::new();
    /// if let Some(priority) = Priority::most_urgent_in(RECORD.waiting()) {
    ///     println!("something of priority {priority} waits");
    /// }
    /// ```
    #[inline]
    pub fn waiting(&self) -> u64 {
        let posted = self.posted.load(Ordering::Acquire);
        posted | self.ready.load(Ordering::Relaxed)
    }

    /// Priority of what the worker polls, `None` if it polls nothing.
    ///
    /// In any context, interrupt handlers included.
    ///
    /// ```
    /// # use cops_executor::WorkerState;
    /// # static RECORD: WorkerState = WorkerState::new();
    /// assert_eq!(RECORD.current_priority(), None, "it polls nothing");
    /// ```
    pub fn current_priority(&self) -> Option<Priority> {
        let level = self.current_priority.load(Ordering::Relaxed);
        let polls = self.current_id.load(Ordering::Relaxed) != 0;
        if polls && level < Priority::COUNT { Some(Priority::saturating(level)) } else { None }
    }

    /// Priority of what the worker has taken up last, from before that disappears from
    /// [`waiting`](Self::waiting) until it takes up the next; `None` outside of `run`.
    ///
    /// So a ready coroutine of the worker is never less urgent than both this and what waits, at
    /// whichever instruction the worker is stopped. In any context, interrupt handlers included.
    ///
    /// ```
    /// # use cops_executor::WorkerState;
    /// # static RECORD: WorkerState = WorkerState::new();
    /// assert_eq!(RECORD.taken_priority(), None, "it does not run");
    /// ```
    pub fn taken_priority(&self) -> Option<Priority> {
        let level = self.current_priority.load(Ordering::Relaxed);
        let runs = self.phase.load(Ordering::Relaxed) == PHASE_RUNNING;
        if runs && level < Priority::COUNT { Some(Priority::saturating(level)) } else { None }
    }

    /// Notes that the coroutine of this id was woken, if this worker is just polling it: true then.
    /// Must be called on the worker, in a coroutine or in an interrupt handler.
    ///
    /// Why a note that is no atomic update loses nothing: before `run` takes a coroutine for
    /// blocked it clears `current_id` and then reads the note, all on this worker. An interrupt
    /// handler that still finds the id writes the note before that; one that comes later does not
    /// find the id, and wakes in the ordinary way. One that finds the id of a coroutine that has
    /// just yielded leaves a note that is not needed, and costs one poll too many at most.
    ///
    /// ```
    /// # use cops_executor::WorkerState;
    /// # static RECORD: WorkerState = WorkerState::new();
    /// assert!(!RECORD.wakes_itself(1 << 32 | 1), "it does not poll that one: wake it in the ordinary way");
    /// ```
    #[inline(always)]
    pub fn wakes_itself(&self, id: u64) -> bool {
        let itself = self.current_id.load(Ordering::Relaxed) == id;
        if itself {
            self.woken.store(id as u32, Ordering::Relaxed);
        }
        itself
    }
}

impl Default for WorkerState {
    fn default() -> Self {
        Self::new()
    }
}
