//! The kernel's executor: the code of the vDSO image with memory of the kernel.
//!
//! There is one worker per hart. This module provides the services that the executor needs (memory,
//! a way to wake a sleeping hart, the number of the current worker) and runs the main loop of each
//! hart.
#![allow(unsafe_code)]

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use core::sync::atomic::Ordering::Relaxed;

use cops_abi::inspect::portion;
use cops_algorithms::spread::Waiting;
use cops_executor::core::NO_WORKER;
use cops_executor::image;
use cops_executor::{CoroutineId, Executor, Hooks, RunOutcome, WorkerState};

use super::system_page::system_page;
use super::{arrivals, doorbell, hart_time, spread};
use crate::trace::{self, Event};
use crate::{arch, mm, portions, vdso};

static EXECUTOR: Executor = Executor::with_number(0);
static WORKERS: [WorkerState; arch::MAX_HARTS] = [const { WorkerState::new() }; arch::MAX_HARTS];

/// Alignment that the executor requires: a cache line.
const BLOCK_ALIGNMENT: usize = 64;

/// After so many polls without sleep, a hart looks whether it owes a notification.
const POLLS_BETWEEN_LOOKS: u64 = 64;

/// The kernel's executor.
pub fn executor() -> &'static Executor {
    &EXECUTOR
}

/// What each hart runs, and its ready coroutines.
pub fn workers() -> &'static [WorkerState] {
    &WORKERS[..arch::hart_count()]
}

/// Prepares the executor for all harts. Called once, on the first hart, before any coroutine is
/// spawned.
///
/// # Panics
/// If the image does not match the kernel or there is no memory: the system cannot start.
pub fn prepare() {
    image::install(vdso::core_table());
    let hooks = Hooks {
        context: core::ptr::null_mut(),
        grow,
        release,
        notify,
        preempt: Some(preempt),
        external: None,
        relax: None,
    };
    // SAFETY: the hooks are functions of this module, so they exist as long as the kernel. `grow`
    // returns zeroed memory that nothing else uses, aligned as requested. `notify` and `preempt`
    // only send interrupts, so interrupt handlers may call them. The image's table was installed
    // just above.
    let started = unsafe { EXECUTOR.start(&hooks) };
    assert!(started.is_ok(), "the executor cannot start: {started:?}");
    EXECUTOR.rely_on_offers();
    for (hart, state) in workers().iter().enumerate() {
        let added = EXECUTOR.add_worker(hart as u32, state);
        assert!(added.is_ok(), "no worker for hart {hart}: {added:?}");
    }
}

/// Runs coroutines on this hart for ever, and sleeps while there are none.
pub fn run_hart() -> ! {
    let worker = arch::hart_index() as u32;
    hart_time::begin();
    loop {
        portions::point(portion::EXECUTOR, || 0);
        if EXECUTOR.run(worker, POLLS_BETWEEN_LOOKS) == RunOutcome::BudgetUsed {
            doorbell::settle_late();
            offer_late();
            continue;
        }
        doorbell::settle();
        spread::forget();
        // With interrupts off: otherwise a handler could wake a coroutine after `prepare_park` has
        // checked, and the hart would sleep all the same. Parking is refused if anything is ready.
        // A wake from another hart arrives as an interrupt, which ends the sleep even while it is
        // masked.
        let mut parked = false;
        hart_time::begin_sleep();
        arch::wait_for_interrupt_unless(|| {
            // Do not keep the page table of an ended process during the sleep.
            mm::release_dead();
            // The receiver of frames may become ready by this, so it comes before the check.
            parked = arrivals::begin_sleep() && EXECUTOR.prepare_park(worker);
            if parked {
                trace::emit(move || Event::Sleep {});
            }
            !parked
        });
        if parked {
            arrivals::note_sleep();
        }
        hart_time::end_sleep();
        if parked {
            trace::emit(move || Event::Awake {});
            EXECUTOR.finish_park(worker);
        }
    }
}

/// This hart has run coroutines of the kernel for some portions: offers what waits to a sleeping
/// hart if it is time. A virtual CPU in the run queue may wait for more than some portions.
fn offer_late() {
    let waits = || system_page().waiting.load(Relaxed) != 0 || spread::look(Waiting::LessUrgent);
    if any_asleep() && waits() {
        offer_all();
    }
}

/// Whether a hart sleeps, and was not woken since.
#[inline]
pub fn any_asleep() -> bool {
    EXECUTOR.core().any_asleep()
}

/// Offers what waits for any hart to a sleeping one.
pub fn offer_all() {
    EXECUTOR.offer(NO_WORKER);
}

/// Wakes a coroutine by its number, in any context. No effect for 0 and for coroutines that have
/// ended.
pub fn wake_by_number(coroutine: u64) {
    if let Some(id) = CoroutineId::from_raw(coroutine) {
        cops_executor::wake_up(id);
    }
}

/// Number of the coroutine that runs on this hart, for [`wake_by_number`]; 0 if there is none.
pub fn current_number() -> u64 {
    cops_executor::current().map_or(0, CoroutineId::raw)
}

/// Memory for the executor: zeroed, and its own until it calls [`release`].
unsafe extern "C" fn grow(_context: *mut (), bytes: usize) -> *mut u8 {
    match Layout::from_size_align(bytes, BLOCK_ALIGNMENT) {
        // SAFETY: `alloc_zeroed` requires a size other than zero, which the guard of this arm
        // ensures.
        Ok(layout) if bytes > 0 => unsafe { alloc_zeroed(layout) },
        _ => core::ptr::null_mut(),
    }
}

/// Frees a block that is not needed because another hart has allocated one at the same time.
unsafe extern "C" fn release(_context: *mut (), block: *mut u8, bytes: usize) {
    if let Ok(layout) = Layout::from_size_align(bytes, BLOCK_ALIGNMENT) {
        // SAFETY: the executor returns a block of `grow` with the size that it requested, so the
        // layout is the same, and it does not use the block any more.
        unsafe { dealloc(block, layout) };
    }
}

/// Ends the sleep of the hart that runs `worker`.
///
/// If that is this hart, an interrupt has ended its sleep, and this is called by the handler: a
/// hart that looks whether it may sleep takes no interrupts, and wakes only before it parks.
/// `run_hart` looks again when the handler returns.
unsafe extern "C" fn notify(_context: *mut (), worker: u32) {
    if worker as usize == arch::hart_index() {
        return;
    }
    trace::emit(move || Event::SendInterrupt { hart: worker.into(), why: 1 });
    arch::send_interrupt_to(worker as usize);
}

/// Makes the hart that runs `worker` check whether something more urgent is ready.
unsafe extern "C" fn preempt(_context: *mut (), worker: u32) {
    trace::emit(move || Event::SendInterrupt { hart: worker.into(), why: 2 });
    arch::send_interrupt_to(worker as usize);
}

/// The number of the current worker, which is its hart's number. Part of the executor's interface
/// to its host.
// SAFETY: the symbol and the signature are those that the executor declares, and nothing else in
// the kernel defines this symbol.
#[unsafe(no_mangle)]
extern "C" fn _cops_executor_current_worker() -> u32 {
    arch::hart_index() as u32
}
