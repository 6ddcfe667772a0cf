//! The executor as a program sees it.

use crate::core::atomic::unmodelled::{AtomicPtr, AtomicU32, Ordering, load_published};
use ::core::ptr;

use super::outcome::{AddWorkerError, RunOutcome, StartError};
use super::{calls, current, registry};
use crate::core::{
    self, Hooks, INTERFACE_VERSION, MAX_WORKERS, RUN_BUDGET_USED, RUN_STALLED, RUN_STOP_REQUESTED,
    STATUS_ALREADY_DONE, STATUS_NO_MEMORY, STATUS_OK, WorkerState, id::LAST_EXECUTOR,
};

const _: () = assert!(INTERFACE_VERSION >> 32 == 7);

/// A priority executor: place it in a static, start it, give it workers, spawn.
///
/// On a host, `start_on_host` does two of these at once, and `Runtime` does all.
/// In firmware: [`start_static`](Executor::start_static). Elsewhere: [`start`](Executor::start).
///
/// ```
/// use cops_executor::{Executor, Priority, StaticMemory, WorkerState, memory_for};
///
/// static EXECUTOR: Executor = Executor::new();
/// static WORKER: WorkerState = WorkerState::new();
/// static MEMORY: StaticMemory<{ memory_for(1, 100) }> = StaticMemory::new();
///
/// EXECUTOR.start_static(&MEMORY, |_worker| ())?;
/// EXECUTOR.add_worker(0, &WORKER)?;
/// EXECUTOR.spawn(async { println!("on worker 0") }, Priority::DEFAULT)?;
/// EXECUTOR.run_until_stalled(0);
/// assert_eq!(EXECUTOR.live_count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Executor {
    pub(crate) core: core::Executor,
    /// The records of the workers, for wakes that need not go to the core.
    states: [AtomicPtr<WorkerState>; MAX_WORKERS as usize],
    /// What its ids carry, from its start on; `NO_NUMBER` before, unless the program chose it.
    number: AtomicU32,
}

/// The number of an executor that has not been given one. No worker's word has it.
const NO_NUMBER: u32 = u8::MAX as u32 + 1;

impl Executor {
    /// An executor that is not started. When it is, it takes the lowest number that no executor of
    /// this program has; its ids carry it.
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// static EXECUTOR: Executor = Executor::new();
    /// assert_eq!(EXECUTOR.number(), None);
    /// EXECUTOR.start_on_host(1)?;
    /// assert_eq!(EXECUTOR.number(), Some(0));
    /// # Ok::<(), cops_executor::StartError>(())
    /// ```
    pub const fn new() -> Executor {
        Executor::numbered(NO_NUMBER)
    }

    /// As [`new`](Executor::new), with a number that the program chooses: for a host that has to
    /// know it before the start, as in a `_cops_executor_current_worker` for several executors.
    ///
    /// # Panics
    ///
    /// Where pointers have 32 bits and there is no `std`, if the number is above 3 (see
    /// [`CoroutineId`](crate::CoroutineId)): for an executor in a static that is an error of
    /// compilation.
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// static EXECUTOR: Executor = Executor::with_number(3);
    /// assert_eq!(EXECUTOR.number(), Some(3));
    /// ```
    pub const fn with_number(number: u8) -> Executor {
        assert!(
            number as usize <= LAST_EXECUTOR as usize,
            "with 32-bit pointers an executor's number is at most 3"
        );
        Executor::numbered(number as u32)
    }

    const fn numbered(number: u32) -> Executor {
        let states = [const { AtomicPtr::new(ptr::null_mut()) }; MAX_WORKERS as usize];
        Executor { core: core::Executor::new(), states, number: AtomicU32::new(number) }
    }

    /// Starts it: ids lead to it from now on.
    ///
    /// # Safety
    ///
    /// The hooks do what [`Hooks`] says, as long as the program runs.
    ///
    /// # Errors
    ///
    /// [`StartError::NumberTaken`].
    ///
    /// There is a program that does so at [`Hooks`]. This one runs nothing:
    ///
    /// ```
    /// # use cops_executor::{Executor, Hooks, Priority, SpawnError};
    /// static EXECUTOR: Executor = Executor::new();
    /// # unsafe extern "C" fn grow(_: *mut (), _: usize) -> *mut u8 { std::ptr::null_mut() }
    /// # unsafe extern "C" fn release(_: *mut (), _: *mut u8, _: usize) {}
    /// # unsafe extern "C" fn notify(_: *mut (), _: u32) {}
    /// # let context = std::ptr::null_mut();
    /// # let (preempt, external, relax) = (None, None, None);
    /// let hooks = Hooks { context, grow, release, notify, preempt, external, relax };
    /// // SAFETY: these hooks hand out nothing, which they may.
    /// unsafe { EXECUTOR.start(&hooks) }?;
    /// let spawned = EXECUTOR.spawn(async {}, Priority::DEFAULT);
    /// assert_eq!(spawned, Err(SpawnError::NotStarted), "there is no worker");
    /// # Ok::<(), cops_executor::StartError>(())
    /// ```
    #[allow(unsafe_code)]
    pub unsafe fn start(&'static self, hooks: &Hooks) -> Result<(), StartError> {
        // SAFETY: this function has the same contract for the hooks.
        unsafe { self.start_with(|_| *hooks) }
    }

    /// As `start`, with hooks that depend on the number that the executor gets.
    ///
    /// # Safety
    ///
    /// As `start`.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn start_with(
        &'static self,
        hooks: impl FnOnce(u8) -> Hooks,
    ) -> Result<(), StartError> {
        let Some(number) = self.take_number() else { return Err(StartError::NumberTaken) };
        // SAFETY: this function has the same contract for the hooks, and `self` lives for ever.
        match unsafe { calls::initialise(&self.core, number as u32, &hooks(number)) } {
            STATUS_OK => Ok(()),
            _ => Err(StartError::NumberTaken),
        }
    }

    /// Enters the executor in the registry, under the number that it has or the lowest that is
    /// free. `None` if it was entered before, or the number is taken, or all are.
    fn take_number(&'static self) -> Option<u8> {
        if let Some(number) = self.number() {
            return registry::enter(number, self).then_some(number);
        }
        let number = (0..=LAST_EXECUTOR).find(|&number| registry::enter(number, self))?;
        // Another thread may be starting it too: then this entry is one too many. No id has its
        // number yet.
        let (none, own) = (NO_NUMBER, number as u32);
        if self.number.compare_exchange(none, own, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            registry::withdraw(number);
            return None;
        }
        Some(number)
    }

    /// Registers worker `worker` (0 to 63, each once, in any order), which publishes in `state`.
    ///
    /// At any time, also while others run; not in interrupt handlers. Calls `Hooks::grow`.
    ///
    /// # Errors
    ///
    /// See [`AddWorkerError`].
    ///
    /// ```
    /// # use cops_executor::{AddWorkerError, Executor, WorkerState};
    /// static EXECUTOR: Executor = Executor::new();
    /// static WORKER: WorkerState = WorkerState::new();
    /// assert_eq!(EXECUTOR.add_worker(0, &WORKER), Err(AddWorkerError::NotStarted));
    /// ```
    pub fn add_worker(
        &self,
        worker: u32,
        state: &'static WorkerState,
    ) -> Result<(), AddWorkerError> {
        // SAFETY: `state` is a `'static` reference, so it lives as long as the executor.
        #[allow(unsafe_code)]
        match unsafe { calls::add_worker(&self.core, worker, state) } {
            STATUS_OK => {
                if let Some(place) = self.states.get(worker as usize) {
                    place.store(ptr::from_ref(state).cast_mut(), Ordering::Release);
                }
                Ok(())
            }
            STATUS_NO_MEMORY => Err(AddWorkerError::OutOfMemory),
            STATUS_ALREADY_DONE => Err(AddWorkerError::NumberTaken),
            core::STATUS_OUT_OF_RANGE => Err(AddWorkerError::NumberOutOfRange),
            _ => Err(AddWorkerError::NotStarted),
        }
    }

    /// What its ids carry; `None` before the start, unless the program chose it. In any context.
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// assert_eq!(Executor::with_number(2).number(), Some(2));
    /// ```
    pub fn number(&self) -> Option<u8> {
        u8::try_from(self.number.load(Ordering::Relaxed)).ok()
    }

    /// The word of worker `worker`, for `current`.
    #[cfg(feature = "std")]
    pub(crate) fn word(&self, worker: u32) -> u32 {
        current::word(self.number.load(Ordering::Relaxed), worker)
    }

    /// The record of a worker.
    #[allow(unsafe_code)]
    #[inline(always)]
    pub(crate) fn state(&self, worker: u32) -> Option<&'static WorkerState> {
        // SAFETY: null, or from a `&'static` in `add_worker`.
        unsafe { load_published(self.states.get(worker as usize)?).as_ref() }
    }

    /// How many polls a worker has made.
    #[cfg(feature = "std")]
    pub(crate) fn polls(&self, worker: u32) -> u64 {
        self.state(worker).map_or(0, |state| state.polls.load(Ordering::Relaxed))
    }

    /// The worker of this executor that calls, or `NO_WORKER`.
    #[inline(always)]
    pub(crate) fn here(&self) -> u32 {
        current::worker_of(self.number.load(Ordering::Relaxed))
    }

    /// Polls coroutines on worker `worker` until nothing is ready.
    ///
    /// One thread or hart at a time may do so for each worker.
    ///
    /// Outside of this executor's coroutines (`Refused` inside); not in interrupt handlers, unless
    /// all that share anything with it are.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, RunOutcome};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// assert_eq!(EXECUTOR.run_until_stalled(0), RunOutcome::Stalled);
    /// assert_eq!(EXECUTOR.live_count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_until_stalled(&self, worker: u32) -> RunOutcome {
        self.run(worker, u64::MAX)
    }

    /// As [`run_until_stalled`](Executor::run_until_stalled), with at most `max_polls` polls.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, RunOutcome, yield_now};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// EXECUTOR.spawn(async { loop { yield_now().await } }, Priority::DEFAULT)?;
    /// assert_eq!(EXECUTOR.run(0, 100), RunOutcome::BudgetUsed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run(&self, worker: u32, max_polls: u64) -> RunOutcome {
        #[cfg(feature = "std")]
        let _entered = current::enter(self.word(worker), self.state(worker));
        match calls::run(&self.core, worker, max_polls) {
            RUN_STALLED => RunOutcome::Stalled,
            RUN_BUDGET_USED => RunOutcome::BudgetUsed,
            RUN_STOP_REQUESTED => RunOutcome::StopRequested,
            _ => RunOutcome::Refused,
        }
    }

    /// Gives one of every `period` polls of a worker to a level less urgent than the most urgent
    /// ready one, alternating between those with a coroutine that waits for that worker. `None`,
    /// the initial value: never, priorities are strict.
    ///
    /// So however much is ready above it, a level with a waiting coroutine gets one poll in
    /// `period` times the number of such levels. May be changed at any time, in any context;
    /// workers use it from their next scheduling point on.
    ///
    /// ```
    /// # use std::num::NonZeroU32;
    /// # use cops_executor::{Executor, Priority, RunOutcome, yield_now};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// EXECUTOR.spawn(async { loop { yield_now().await } }, Priority::MOST_URGENT)?;
    /// let modest = EXECUTOR.spawn_join(async {}, Priority::LEAST_URGENT)?;
    /// assert_eq!(EXECUTOR.run(0, 1_000), RunOutcome::BudgetUsed);
    /// assert!(!modest.is_finished(), "strict priorities starve it");
    /// EXECUTOR.set_aging(NonZeroU32::new(10));
    /// EXECUTOR.run(0, 10);
    /// assert!(modest.is_finished());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_aging(&self, period: Option<::core::num::NonZeroU32>) {
        calls::set_aging(&self.core, period.map_or(0, ::core::num::NonZeroU32::get));
    }
}

impl Default for Executor {
    fn default() -> Executor {
        Executor::new()
    }
}
