//! The C interface of the core: statuses, and the one list of functions from which the image's
//! exports, the table of pointers to them and the calls through that table are made, so that they
//! cannot drift.

use super::executor::Executor;

/// Version of the interface and of the layouts it shares ([`WorkerState`](super::WorkerState),
/// [`FutureVTable`](super::FutureVTable), [`Hooks`](super::Hooks),
/// [`RawInspection`](super::RawInspection)) in the high half; in the low
/// half the size in bytes of [`Executor`], for which the caller provides the memory. Image and
/// front must agree on both.
///
/// ```
/// use cops_executor::core::{Executor, INTERFACE_VERSION};
/// assert_eq!(INTERFACE_VERSION as u32 as usize, size_of::<Executor>());
/// ```
pub const INTERFACE_VERSION: u64 = 7 << 32 | size_of::<Executor>() as u64;

/// It worked.
///
/// It and the other statuses are returned by [`initialise`](Executor::initialise) and
/// [`add_worker`](Executor::add_worker); the [spawns](Executor::spawn) return an id, or one of
/// them: no id is below 2^32.
///
/// ```
/// use cops_executor::core::{Executor, FutureVTable, NO_WORKER, STATUS_NOT_INITIALISED, STATUS_OK};
/// static CORE: Executor = Executor::new();
/// static FUTURE: FutureVTable = FutureVTable { poll, drop: drop_future, kind: 0 };
/// unsafe extern "C" fn poll(_data: *mut (), _id: u64) -> bool { true }
/// unsafe extern "C" fn drop_future(_data: *mut ()) {}
/// // SAFETY: the table does what a table has to.
/// let id_or_status = unsafe { CORE.spawn(std::ptr::null_mut(), &FUTURE, 0, NO_WORKER) };
/// assert_eq!(id_or_status, u64::from(STATUS_NOT_INITIALISED));
/// assert_ne!(STATUS_NOT_INITIALISED, STATUS_OK);
/// ```
pub const STATUS_OK: u32 = 0;
/// There was no memory, or no index.
pub const STATUS_NO_MEMORY: u32 = 1;
/// `initialise`, or for spawn `add_worker`, has not been called.
pub const STATUS_NOT_INITIALISED: u32 = 2;
/// It was done before.
pub const STATUS_ALREADY_DONE: u32 = 3;
/// A number is too large, or a pointer null.
pub const STATUS_OUT_OF_RANGE: u32 = 4;

/// `run`: nothing is ready.
///
/// ```
/// use cops_executor::core::{Executor, RUN_REFUSED, RUN_STALLED};
/// static CORE: Executor = Executor::new();
/// assert_eq!(CORE.run(0, 1), RUN_REFUSED, "it has no worker");
/// assert_ne!(RUN_REFUSED, RUN_STALLED);
/// ```
pub const RUN_STALLED: u32 = 0;
/// `run`: the polls that were allowed have been made.
pub const RUN_BUDGET_USED: u32 = 1;
/// `run`: `request_stop` was called.
pub const RUN_STOP_REQUESTED: u32 = 2;
/// `run`: there is no such worker, or it is running already.
pub const RUN_REFUSED: u32 = 3;

/// Calls the macro `$callback` with all functions of the core: `export = method(arguments) ->
/// result;`, each a method of [`Executor`]; `[unsafe]` before those that are. Ids, priorities and
/// workers are integers here, 0 is no id, 64 no priority.
///
/// For the image and those that look its exports up: with the features `image` and `exports`.
#[cfg(any(feature = "static-tasks", feature = "exports"))]
#[cfg_attr(any(feature = "exports", feature = "image"), macro_export)]
macro_rules! for_each_core_function {
    ($callback:ident) => {
        $callback! {
            [unsafe] cops_initialise = initialise(number: u32, hooks: &$crate::core::Hooks) -> u32;
            [unsafe] cops_add_worker = add_worker(number: u32, state: *const $crate::core::WorkerState) -> u32;
            [unsafe] cops_spawn = spawn(
                data: *mut (), vtable: *const $crate::core::FutureVTable, priority: u32, here: u32
            ) -> u64;
            [unsafe] cops_spawn_blocked = spawn_blocked(
                data: *mut (), vtable: *const $crate::core::FutureVTable, priority: u32, here: u32
            ) -> u64;
            cops_wake = wake(id: u64, here: u32) -> bool;
            cops_cancel = cancel(id: u64, here: u32) -> bool;
            cops_set_priority = set_priority(id: u64, priority: u32, here: u32) -> bool;
            cops_set_inherited = set_inherited(id: u64, priority: u32, here: u32) -> bool;
            cops_priority = priority(id: u64) -> u32;
            cops_base_priority = base_priority(id: u64) -> u32;
            cops_set_aging = set_aging(period: u32) -> ();
            cops_run = run(worker: u32, max_polls: u64) -> u32;
            cops_request_stop = request_stop(stop: bool) -> ();
            cops_prepare_park = prepare_park(worker: u32) -> bool;
            cops_prepare_leave = prepare_leave(worker: u32, heir: u32) -> bool;
            cops_finish_park = finish_park(worker: u32) -> bool;
            cops_set_quiet = set_quiet(worker: u32, quiet: bool) -> ();
            cops_offer = offer(worker: u32) -> ();
            cops_rely_on_offers = rely_on_offers() -> ();
            cops_most_urgent = most_urgent(worker: u32) -> u32;
            cops_live_count = live_count() -> u64;
            cops_inspect = inspect(index: u32, out: &mut $crate::core::RawInspection) -> u32;
        }
    };
}

#[cfg(feature = "static-tasks")]
pub(crate) use for_each_core_function;
