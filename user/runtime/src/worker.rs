//! The executor of this process, and the loop that each virtual CPU spends its life in.
//!
//! May touch: the thread pointer, the workers' records in the process page, parking in the kernel.
#![allow(unsafe_code)]

use core::ptr;

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use cops_abi::page::{MAX_CPUS, flags};
use cops_abi::ring;
use cops_executor::{Executor, Hooks, NO_CURRENT_WORKER, RunOutcome, encode_current_worker};
use core::sync::atomic::{Ordering::*, fence};

use crate::call::{limit, ring as results};
use crate::{arch, fatal, interrupt, shared, system};

const EXECUTOR_NUMBER: u8 = 0;
/// Hook `grow` promises this alignment.
const GROW_ALIGNMENT: usize = 64;

/// Polls after which a virtual CPU looks whether it is to yield strictly.
const POLLS_BETWEEN_LOOKS: u64 = 1024;

/// Runs all coroutines of this process.
pub(crate) static EXECUTOR: Executor = Executor::new(EXECUTOR_NUMBER);

/// What the thread pointer of virtual CPU `n` points at: entry `n`, the word that names its worker.
static CURRENT_WORKER: [u32; MAX_CPUS] = {
    let mut words = [0; MAX_CPUS];
    let mut worker = 0;
    while worker < MAX_CPUS {
        words[worker] = encode_current_worker(EXECUTOR_NUMBER, worker as u32);
        worker += 1;
    }
    words
};

/// The executor asks which worker this is.
#[unsafe(no_mangle)]
extern "C" fn _cops_executor_current_worker() -> u32 {
    current_word()
}

/// See [`encode_current_worker`]; the virtual CPU's number is in the low byte.
#[inline(always)]
pub(crate) fn current_word() -> u32 {
    let word = arch::thread_pointer().cast::<u32>();
    // SAFETY: null until `become_worker` pointed it into the table.
    unsafe { word.as_ref() }.copied().unwrap_or(NO_CURRENT_WORKER)
}

/// Starts the executor. Called once, by the first virtual CPU.
pub(crate) fn start_executor() {
    let hooks = Hooks {
        context: ptr::null_mut(),
        grow,
        release,
        notify,
        preempt: None,
        external: Some(external),
        relax: Some(relax),
    };
    // SAFETY: the hooks below do what `Hooks` asks, and they are functions: they stay.
    if let Err(error) = unsafe { EXECUTOR.start(&hooks) } {
        fatal(format_args!("the executor does not start: {error:?}"));
    }
    show_executor();
}

/// A worker's lock stays taken: its holder may have lost its hart.
unsafe extern "C" fn relax(_context: *mut ()) {
    system::stand_aside();
}

/// Tells the kernel where the executor is, for `ps`.
fn show_executor() {
    let address = ptr::from_ref(EXECUTOR.core()).addr() as u64;
    shared::process_page().executor.store(address, core::sync::atomic::Ordering::Relaxed);
}

/// Makes this virtual CPU worker `index`.
pub(crate) fn become_worker(index: usize) {
    let (Some(word), Some(state)) = (CURRENT_WORKER.get(index), shared::process_page().workers.get(index))
    else {
        fatal(format_args!("the kernel gave this process a virtual CPU number {index}"));
    };
    // SAFETY: first thing on this virtual CPU, with a pointer to a static.
    unsafe { arch::set_thread_pointer(ptr::from_ref(word).cast()) };
    if let Err(error) = EXECUTOR.add_worker(index as u32, state) {
        fatal(format_args!("virtual CPU {index} cannot become a worker: {error:?}"));
    }
    // The first coroutine that becomes ready in a poll unparks no other virtual CPU: that would cost a system call, and
    // mostly this worker begins the coroutine sooner than the other one is there. A poll that goes on for long offers it.
    EXECUTOR.set_quiet(index as u32, true);
    // SAFETY: once on this virtual CPU, with the thread pointer set.
    unsafe { interrupt::enable(index) };
}

/// Where the kernel starts virtual CPU `index` that [`crate::task::alloc_cpu`] asked for.
pub(crate) extern "C" fn begin(index: usize) -> ! {
    become_worker(index);
    run(index)
}

/// Runs coroutines until the process ends; parks when there is nothing to do.
pub(crate) fn run(index: usize) -> ! {
    let worker = index as u32;
    while run_until_stalled(worker) {
        park(worker, || false);
    }
    fatal(format_args!("worker {worker} cannot run"))
}

/// Runs coroutines until none is ready. False, and nothing is done, if this virtual CPU is polling one.
pub(crate) fn run_until_stalled(worker: u32) -> bool {
    loop {
        let is_strict = shared::process_page().flags.load(Relaxed) & flags::STRICT != 0;
        match EXECUTOR.run(worker, if is_strict { 1 } else { POLLS_BETWEEN_LOOKS }) {
            RunOutcome::Stalled => return true,
            RunOutcome::BudgetUsed if is_strict => give_way(),
            RunOutcome::BudgetUsed => {}
            // `set_strict` wants this loop to come by.
            RunOutcome::StopRequested => EXECUTOR.request_stop(false),
            RunOutcome::Refused => return false,
        }
    }
}

/// Sleeps in the kernel until there is something to do, unless there is now or `is_over`, which is asked after this worker is
/// marked as parked.
pub(crate) fn park(worker: u32, is_over: impl FnOnce() -> bool) {
    if EXECUTOR.prepare_park(worker) {
        // Results that come after this look find the virtual CPU parked, or make the kernel refuse to park it.
        if !ring::has_work(&shared::process_page().ring) && !is_over() {
            system::park();
        }
        EXECUTOR.finish_park(worker);
    }
}

/// Strict yielding: gives this virtual CPU's hart away if somebody more urgent than this process waits for one.
fn give_way() {
    results::drain();
    let (own_page, system) = (shared::process_page(), shared::system_page());
    let own = own_page.workers.iter().fold(0, |levels, worker| levels | worker.waiting());
    let own = own.trailing_zeros().max(own_page.ceiling.load(Relaxed));
    let others = system.waiting.load(Relaxed) | system.kernel_bitmap.load(Relaxed);
    if others.trailing_zeros() < own {
        system::yield_cpu();
    }
}

/// Makes strict yielding a habit of this process, or ends it.
pub(crate) fn set_strict(strict: bool) {
    let all = &shared::process_page().flags;
    if strict {
        all.fetch_or(flags::STRICT, Relaxed);
    } else {
        all.fetch_and(!flags::STRICT, Relaxed);
    }
    EXECUTOR.request_stop(true);
}

/// Number of the worker on this virtual CPU; none has this one outside of it.
pub(crate) fn current() -> usize {
    _cops_executor_current_worker() as usize
}

/// Has a parked virtual CPU take over what waits on this one.
pub(crate) fn offer() {
    EXECUTOR.offer(_cops_executor_current_worker());
}

unsafe extern "C" fn grow(_context: *mut (), bytes: usize) -> *mut u8 {
    match Layout::from_size_align(bytes, GROW_ALIGNMENT) {
        // SAFETY: it is not empty: the executor never asks for nothing.
        Ok(layout) if bytes != 0 => unsafe { alloc_zeroed(layout) },
        _ => ptr::null_mut(),
    }
}

unsafe extern "C" fn release(_context: *mut (), memory: *mut u8, bytes: usize) {
    if let Ok(layout) = Layout::from_size_align(bytes, GROW_ALIGNMENT) {
        // SAFETY: the executor gives back what `grow` gave it, with this layout.
        unsafe { dealloc(memory, layout) };
    }
}

unsafe extern "C" fn notify(_context: *mut (), worker: u32) {
    system::unpark(worker);
}

unsafe extern "C" fn external(_context: *mut (), worker: u32) {
    if limit::any_in_flight() {
        let page = shared::process_page();
        let index = worker as usize % MAX_CPUS;
        let (state, record) = (&page.workers[index], &page.cpus[index]);
        // Says that results which come from now on are not seen before the next poll is over. Partner of the kernel's
        // fence between its push and its look at this: either that sees it, or we see the result.
        record.looked.store(state.polls.load(Relaxed), Relaxed);
        fence(SeqCst);
    }
    results::drain();
}
