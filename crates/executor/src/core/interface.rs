//! The C interface of the core: statuses, and the one list of functions from which the image's exports,
//! the table of pointers to them and the calls through that table are made, so that they cannot drift.

use super::executor::Executor;

/// Version of the interface and of the layouts it shares ([`WorkerState`](super::WorkerState),
/// [`FutureVTable`](super::FutureVTable), [`Hooks`](super::Hooks)) in the high half; in the low half the size
/// of [`Executor`] in bytes, whose memory is the caller's. Image and front must agree on both.
pub const INTERFACE_VERSION: u64 = 3 << 32 | size_of::<Executor>() as u64;

/// It worked.
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
pub const RUN_STALLED: u32 = 0;
/// `run`: the polls that were allowed have been made.
pub const RUN_BUDGET_USED: u32 = 1;
/// `run`: `request_stop` was called.
pub const RUN_STOP_REQUESTED: u32 = 2;
/// `run`: there is no such worker, or it is running already.
pub const RUN_REFUSED: u32 = 3;

/// Calls the macro `$callback` with all functions of the core: `export = method(arguments) -> result;`,
/// each a method of [`Executor`]; `[unsafe]` before those that are. Ids, priorities and workers are integers here, 0 is no id, 64 no priority.
#[macro_export]
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
            cops_finish_park = finish_park(worker: u32) -> ();
            cops_offer = offer(worker: u32) -> ();
            cops_most_urgent = most_urgent(worker: u32) -> u32;
            cops_live_count = live_count() -> u64;
            cops_inspect = inspect(index: u32, out: &mut $crate::core::Inspection) -> u32;
        }
    };
}
