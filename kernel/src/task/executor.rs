//! The kernel's executor: the code of the vDSO image over memory of the kernel's own.
//!
//! One worker per hart. This module gives the executor what it asks of its host (memory, a way to
//! wake a sleeping hart, which worker is running) and runs the loop in which a hart spends its life.
//! May touch: the heap, interprocessor interrupts, the vDSO image's function table.
#![allow(unsafe_code)]

use alloc::alloc::{Layout, alloc_zeroed, dealloc};

use cops_abi::inspect::portion;
use cops_executor::image::{self, CoreTable};
use cops_executor::{CoroutineId, Executor, Hooks, WorkerState};
use spin::Once;

use super::counters::COUNTERS;
use crate::trace::{self, Event};
use crate::{arch, mm, portions};

static TABLE: Once<CoreTable> = Once::new();
static EXECUTOR: Executor = Executor::new(0);
static WORKERS: [WorkerState; arch::MAX_HARTS] = [const { WorkerState::new() }; arch::MAX_HARTS];

/// Alignment that the executor wants of its memory: a cache line.
const BLOCK_ALIGNMENT: usize = 64;

/// The kernel's executor.
pub fn executor() -> &'static Executor {
    &EXECUTOR
}

/// What each hart runs and has ready.
pub fn workers() -> &'static [WorkerState] {
    &WORKERS[..arch::hart_count()]
}

/// The scheduler's functions, as they are in the vDSO image.
///
/// # Panics
/// If the image and the kernel do not fit together: then there is no system.
pub fn core_table() -> &'static CoreTable {
    TABLE.call_once(|| match crate::vdso::core_table() {
        Ok(table) => table,
        Err(error) => panic!("the embedded vDSO image is not this kernel's: {error:?}"),
    })
}

/// Sets the executor up for all harts. Once, on the first hart, before anything is spawned.
///
/// # Panics
/// If the image and the kernel do not fit together or there is no memory: then there is no system.
pub fn prepare() {
    image::install(core_table());
    let hooks = Hooks {
        context: core::ptr::null_mut(),
        grow,
        release,
        notify,
        preempt: Some(preempt),
        external: None,
        relax: None,
    };
    // SAFETY: the hooks are functions of this module that live as long as the kernel; `grow` returns zeroed
    // memory of its own, aligned as asked; `notify` and `preempt` only send interrupts, so they may be called
    // from interrupt handlers. The image's table was installed just above.
    let started = unsafe { EXECUTOR.start(&hooks) };
    assert!(started.is_ok(), "the executor cannot start: {started:?}");
    for (hart, state) in workers().iter().enumerate() {
        let added = EXECUTOR.add_worker(hart as u32, state);
        assert!(added.is_ok(), "no worker for hart {hart}: {added:?}");
    }
}

/// Runs coroutines on this hart for ever; sleeps when there are none.
pub fn run_hart() -> ! {
    let worker = arch::hart_index() as u32;
    loop {
        portions::point(portion::EXECUTOR, || 0);
        let _ = EXECUTOR.run_until_stalled(worker);
        // With interrupts off: a handler that wakes something after `prepare_park` looked would otherwise be
        // slept over. Parking is refused if anything is ready; a wake from another hart comes as an interrupt,
        // which ends the sleep even while it is masked.
        let mut parked = false;
        let before = arch::instructions_retired();
        super::inspect::begin_sleep();
        arch::wait_for_interrupt_unless(|| {
            // A page table whose process is gone is not kept for the night.
            mm::release_dead();
            parked = EXECUTOR.prepare_park(worker);
            if parked {
                trace::emit(move || Event::Sleep {});
            }
            !parked
        });
        super::inspect::end_sleep();
        // An emulator that counts instructions lets the counter run on while a hart sleeps.
        COUNTERS.instructions_asleep.add(arch::instructions_retired().saturating_sub(before));
        if parked {
            trace::emit(move || Event::Awake {});
            EXECUTOR.finish_park(worker);
        }
    }
}

/// Wakes a coroutine by its number, from any context; 0 and numbers of coroutines that have ended do nothing.
pub fn wake_by_number(coroutine: u64) {
    if let Some(id) = CoroutineId::from_raw(coroutine) {
        cops_executor::wake_up(id);
    }
}

/// Number of the coroutine that runs on this hart, for [`wake_by_number`]; 0 if none does.
pub fn current_number() -> u64 {
    cops_executor::current().map_or(0, CoroutineId::raw)
}

/// Memory for the executor: zeroed, its own for ever.
unsafe extern "C" fn grow(_context: *mut (), bytes: usize) -> *mut u8 {
    match Layout::from_size_align(bytes, BLOCK_ALIGNMENT) {
        // SAFETY: the executor asks for what it needs and never for nothing, and the check makes sure of it.
        Ok(layout) if bytes > 0 => unsafe { alloc_zeroed(layout) },
        _ => core::ptr::null_mut(),
    }
}

/// Takes back a block that another hart's block made superfluous.
unsafe extern "C" fn release(_context: *mut (), block: *mut u8, bytes: usize) {
    if let Ok(layout) = Layout::from_size_align(bytes, BLOCK_ALIGNMENT) {
        // SAFETY: the executor returns what `grow` gave it, with the size it asked for, and forgets it.
        unsafe { dealloc(block, layout) };
    }
}

/// Ends the sleep of the hart that carries `worker`.
unsafe extern "C" fn notify(_context: *mut (), worker: u32) {
    trace::emit(move || Event::SendInterrupt { hart: worker.into(), why: 1 });
    arch::send_interrupt_to(worker as usize);
}

/// Makes the hart that carries `worker` look whether it should be doing something more urgent.
unsafe extern "C" fn preempt(_context: *mut (), worker: u32) {
    trace::emit(move || Event::SendInterrupt { hart: worker.into(), why: 2 });
    arch::send_interrupt_to(worker as usize);
}

/// Which worker this is: its hart's number. Part of the executor's contract with its host.
// SAFETY: the name is the one the executor declares; nothing else in the kernel defines it.
#[unsafe(no_mangle)]
extern "C" fn _cops_executor_current_worker() -> u32 {
    arch::hart_index() as u32
}
