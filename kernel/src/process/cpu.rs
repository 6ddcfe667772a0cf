//! Virtual CPUs: the kernel's threads of a process, on which its workers run.
//!
//! A virtual CPU's *state* is a few words under its process's lock, so that any hart may wake it.
//! Its *registers* are behind a lock that the hart running it holds all the time. Only switching
//! coroutines take this second lock.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::*};

use cops_abi::interrupt::CpuRecord;
use cops_abi::page::MAX_CPUS;
use cops_abi::{Errno, Priority};
use cops_algorithms::cpu_state::{self, Order};
pub use cops_algorithms::cpu_state::{CpuState, Event as CpuEvent};
use cops_algorithms::held::Link;
use cops_algorithms::priority::AtomicOptionalPriority;
use cops_algorithms::run_queue::{Ends, Lines, Member, Place};
use cops_algorithms::vruntime::Vruntime;
use cops_lock::Mutex;

use super::Process;
use super::blocked::OwnBlocked;
use super::futex::{OwnWait, WAIT_BYTES};
use super::resumable::Unfinished;
use super::signals::CpuSignals;
use super::{Thread, thread, user_mode};
use crate::arch::{self, UserContext};
use crate::mm::quota::{Amounts, CALL_BYTES, Charge, Kind};
use crate::sched::{Account, Client, Entity, RunQueue, hart_time};
use crate::trace::Event;

/// Memory for the entries of a thread by its id.
const NUMBER_BYTES: usize = 48 + thread::ENTRY_BYTES;

/// What others may read and change of a virtual CPU; guarded by its process's lock.
#[derive(Debug)]
pub struct CpuStatus {
    /// The state; changed only by [`CpuStatus::apply`].
    state: CpuState,
    /// It was woken while it was not parked: its next `park` returns immediately.
    pub wake_pending: bool,
    /// Result of the synchronous call that it waited for, to be written into its registers when it
    /// runs next.
    pub result: Option<isize>,
    /// Its place among those that are held.
    pub held: Link,
}

impl CpuStatus {
    /// For a new virtual CPU; the caller puts it into the run queue.
    pub(crate) fn runnable(record: Option<&CpuRecord>) -> Self {
        let held = Link::default();
        let status = Self { state: CpuState::Runnable, wake_pending: false, result: None, held };
        status.publish(record);
        status
    }

    /// The state.
    pub fn state(&self) -> CpuState {
        self.state
    }

    /// Changes the state according to [`cpu_state::next`] and publishes it in `record`, the virtual
    /// CPU's part of the process's page. Returns the new state, or `None` if the event is not
    /// allowed.
    ///
    /// All changes of a state go through this function. `order`: what is to become of it.
    #[must_use]
    pub(crate) fn apply(
        &mut self,
        event: CpuEvent,
        order: Order,
        record: Option<&CpuRecord>,
    ) -> Option<CpuState> {
        self.state = cpu_state::next(self.state, event, order)?;
        self.publish(record);
        Some(self.state)
    }

    fn publish(&self, record: Option<&CpuRecord>) {
        if let Some(record) = record {
            record.phase.store(self.state.phase() as u32, Relaxed);
        }
    }
}

/// One virtual CPU.
pub struct VirtualCpu {
    /// The process it belongs to.
    pub process: Arc<Process>,
    /// Its number within the process, which is also that of its worker unless it is a thread.
    pub index: usize,
    /// What only a thread has; see [`Self::as_thread`].
    thread: Thread,
    /// Registers; locked by the hart that runs it.
    pub context: Mutex<UserContext>,
    /// The scheduler's record of it.
    pub(super) entity: Entity<Self>,
    /// A call that is executed in portions, between two of them; accessed only by the hart that
    /// runs this virtual CPU.
    pub(crate) unfinished: Mutex<Option<Unfinished>>,
    /// Its signals, if it is that of a Linux program.
    pub signals: CpuSignals,
    /// What it keeps for its waits on futexes, if it is a thread.
    pub(super) futex: OwnWait,
    /// What it keeps for calls in which it blocks itself, if it is a thread.
    pub(super) blocked: OwnBlocked,
    /// The number of the coroutine that completes the call in which it waits, or has waited; 0:
    /// there was none.
    pub(super) completed_by: AtomicU64,
    /// The charge for this virtual CPU.
    charge: Mutex<Charge>,
    /// Ticks during which it had a hart.
    pub run_ticks: AtomicU64,
    /// How it last entered the kernel: a [cause](cops_abi::inspect::cause).
    pub entered_by: AtomicU8,
    /// The polls of its worker when its last slice ended.
    pub(super) polls: AtomicU64,
    /// Its last slice was one poll, or a part of one.
    pub(super) is_within_poll: AtomicBool,
    /// What another one that waits for it has donated, until it has run for a moment: `donation`.
    pub(super) donated: AtomicOptionalPriority,
}

impl VirtualCpu {
    /// # Errors
    /// `EAGAIN` or `ENOMEM` if the process's quotas are used up.
    pub(crate) fn new(
        process: Arc<Process>,
        index: usize,
        context: UserContext,
        thread: Thread,
        signals: CpuSignals,
    ) -> Result<Self, Errno> {
        // With the call for which it may sleep.
        let bytes = (size_of::<Self>() + NUMBER_BYTES + WAIT_BYTES) as u64 + CALL_BYTES;
        let amounts = Amounts::of(Kind::Cpus, 1).and(Kind::Memory, bytes);
        let charge = Charge::new(process.family, &amounts)?;
        Self::with_charge(process, index, context, thread, signals, charge)
    }

    /// The first virtual CPU of the program that `self`, which has another number, executes. It is
    /// not counted as one before [`Self::become_successor`].
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn successor(&self) -> Result<Self, Errno> {
        let (process, thread) = (self.process.clone(), self.thread.as_first(self.process.id));
        let charge =
            Charge::new(process.family, &Amounts::of(Kind::Memory, size_of::<Self>() as u64))?;
        let context = UserContext::new(0, 0, 0);
        Self::with_charge(process, 0, context, thread, CpuSignals::default(), charge)
    }

    /// Becomes the successor of `other`, which ends, with these registers.
    pub(super) fn become_successor(&self, other: &Self, context: UserContext) {
        *self.context.lock() = context;
        self.signals.take_over(&other.signals);
        core::mem::swap(&mut *self.charge.lock(), &mut *other.charge.lock());
    }

    fn with_charge(
        process: Arc<Process>,
        index: usize,
        context: UserContext,
        thread: Thread,
        signals: CpuSignals,
        charge: Charge,
    ) -> Result<Self, Errno> {
        Ok(Self {
            charge: Mutex::new(charge),
            process,
            index,
            thread,
            context: Mutex::new(context),
            entity: Entity::new()?,
            unfinished: Mutex::new(None),
            signals,
            futex: OwnWait::default(),
            blocked: OwnBlocked::default(),
            run_ticks: AtomicU64::new(0),
            entered_by: AtomicU8::new(0),
            polls: AtomicU64::new(0),
            is_within_poll: AtomicBool::new(false),
            donated: AtomicOptionalPriority::none(),
            completed_by: AtomicU64::new(0),
        })
    }

    /// What a thread has, unless it is a worker of a native program.
    #[inline]
    pub fn as_thread(&self) -> Option<&Thread> {
        self.as_thread_if(self.process.personality.is_native())
    }

    /// As [`Self::as_thread`], of a process that is native or not.
    #[inline]
    pub(super) fn as_thread_if(&self, is_native: bool) -> Option<&Thread> {
        // Without a branch between them: each native system call asks several times.
        let is_thread = (self.index >= MAX_CPUS) | !is_native;
        is_thread.then_some(&self.thread)
    }

    /// The process executes another program, which knows nothing of this thread.
    pub(super) fn forget_thread(&self) {
        self.thread.forget();
    }

    /// Its number in trace events, which have four bits for it: most threads share the last one.
    pub fn trace_number(&self) -> u8 {
        const LAST: usize = 15;
        self.index.min(LAST) as u8
    }

    /// A trace event about this virtual CPU, from its process's number and its own.
    pub fn event(&self, event: impl FnOnce(u32, u8) -> Event) -> Event {
        event(self.process.id, self.trace_number())
    }

    /// Ticks during which it had a hart until now. For its own calls.
    pub fn used_ticks(&self) -> u64 {
        self.run_ticks.load(Relaxed) + hart_time::present_ticks()
    }

    /// The priority with which it was last made runnable.
    pub fn priority(&self) -> Priority {
        self.entity.priority()
    }
}

impl Member for VirtualCpu {
    /// The most urgent level of what it runs and what it could run; capped. A hint that affects
    /// only the order.
    fn urgency(&self) -> Priority {
        self.process.urgency(self)
    }

    /// Only native programs have coroutines and results. The level of a thread changes by a call,
    /// which looks for it in the queue. Interrupt handlers deliver no results.
    fn may_rise(&self) -> bool {
        self.process.personality.is_native() && arch::hart_count() > 1
    }

    /// Whether its worker is inside a less urgent poll, according to the process's page. A hint
    /// that affects only the order of the virtual CPUs of the process.
    fn must_end_less_urgent(&self, priority: Priority) -> bool {
        self.process.polls_less_urgent(self, priority)
    }

    fn priority(&self) -> Priority {
        self.entity.priority()
    }

    fn set_priority(&self, priority: Priority) {
        self.entity.set_priority(priority);
    }

    fn vruntime(&self) -> &Vruntime {
        self.process.account.vruntime()
    }

    fn divisor(&self) -> u32 {
        self.process.account.divisor()
    }

    fn lines(&self) -> &Lines {
        self.process.account.lines()
    }

    fn with_place<R>(&self, act: impl FnOnce(&mut Place<Self>) -> R) -> R {
        self.entity.with_place(act)
    }

    fn with_ends<R>(&self, act: impl FnOnce(&mut Ends<Self>) -> R) -> R {
        act(&mut self.process.ends_of_lines.lock())
    }
}

impl Client for VirtualCpu {
    fn entity(&self) -> &Entity<Self> {
        &self.entity
    }

    fn account(&self) -> &Account {
        &self.process.account
    }

    fn begin_pause(&self) -> Option<Priority> {
        self.process.begin_pause(self)
    }

    fn end_pause(&self) {
        self.process.pauses.end();
    }

    fn yields_to_others(&self) -> bool {
        !user_mode::is_only_at_ticks() && self.process.personality.is_native()
    }

    fn comes_after_others(&self) {
        self.process.leave_shared_hart(self);
    }

    fn stop_running(self: &Arc<Self>) {
        self.process.stop_running(self);
    }
}

/// The run queue of the machine.
pub static RUN_QUEUE: RunQueue<VirtualCpu> = RunQueue::new();
