//! What the core asks of its host: memory, and waking a worker.

/// The host's functions. The core calls them and nothing else.
///
/// All of them may be called from every worker at once. `notify` and `preempt` are called by
/// `wake`, hence possibly inside an interrupt handler: they must not block, allocate or take a
/// lock. `grow` and `release` are called by `spawn` and `add_worker` only, `external` by `run`
/// only.
///
/// Programs seldom write them: [`StaticMemory`](crate::StaticMemory) brings its own, and so do
/// hosts with `std`.
///
/// ```
/// use cops_executor::{Executor, Hooks, Priority, RunOutcome, WorkerState};
/// use std::alloc::{Layout, alloc_zeroed};
///
/// unsafe extern "C" fn grow(_: *mut (), bytes: usize) -> *mut u8 {
///     // SAFETY: the executor never requests zero bytes.
///     unsafe { alloc_zeroed(Layout::from_size_align(bytes, 64).unwrap()) }
/// }
/// unsafe extern "C" fn release(_: *mut (), _: *mut u8, _: usize) {} // Leaks it.
/// unsafe extern "C" fn notify(_: *mut (), _worker: u32) {} // No worker parks here.
///
/// static EXECUTOR: Executor = Executor::new();
/// static WORKER: WorkerState = WorkerState::new();
/// let context = std::ptr::null_mut();
/// let hooks = Hooks { context, grow, release, notify, preempt: None, external: None, relax: None };
/// // SAFETY: the hooks do what is said above.
/// unsafe { EXECUTOR.start(&hooks) }?;
/// EXECUTOR.add_worker(0, &WORKER)?;
/// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
/// assert_eq!(EXECUTOR.run_until_stalled(0), RunOutcome::Stalled);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Hooks {
    /// Passed to each hook as it is.
    pub context: *mut (),
    /// Hands out `bytes` bytes of zeroed memory, aligned to 64, for ever; null if there is none.
    pub grow: unsafe extern "C" fn(context: *mut (), bytes: usize) -> *mut u8,
    /// Takes back memory of `grow` that lost a race and was never used. May leak it.
    pub release: unsafe extern "C" fn(context: *mut (), memory: *mut u8, bytes: usize),
    /// Worker `worker` has parked, or is between `prepare_park` and parking: make it return from
    /// (or skip) its park. Called once for each time it parks.
    pub notify: unsafe extern "C" fn(context: *mut (), worker: u32),
    /// Worker `worker` runs something less urgent than what has just become ready: make it look at
    /// `most_urgent` soon. Optional; without it a worker looks when its present poll returns.
    ///
    /// A host that has it keeps polls short, or calls `offer` before one goes on to something long:
    /// the first coroutine that becomes ready during a poll, on the worker of that poll, notifies
    /// no parked worker then.
    pub preempt: Option<unsafe extern "C" fn(context: *mut (), worker: u32)>,
    /// Called on worker `worker` at each scheduling point before it picks, for wakes that arrive by
    /// other ways (a process's wake ring). It may call `wake`, `cancel`, `set_priority` and
    /// `spawn`.
    pub external: Option<unsafe extern "C" fn(context: *mut (), worker: u32)>,
    /// Called by a worker that is kept from all it could do by a lock, its own or that of another
    /// worker, after 100 or 200 looks at it: lets the host run another thread, which may be the
    /// lock's holder, whatever its priority. To be set where a worker can lose its processor while
    /// it holds a lock: without it, workers that are more urgent than the holder could spin
    /// forever on the processor that the holder needs.
    pub relax: Option<unsafe extern "C" fn(context: *mut ())>,
}
