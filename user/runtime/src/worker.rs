//! The executor of this process, and the main loop of each virtual CPU.
//!
//! May touch: the thread pointer, the workers' records in the process page, parking in the kernel.
#![allow(unsafe_code)]

use core::ops::Range;
use core::ptr;

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use cops_abi::Errno;
use cops_abi::page::{MAX_CPUS, flags};
use cops_abi::ring;
use cops_executor::core::NO_WORKER;
use cops_executor::{Executor, Hooks, NO_CURRENT_WORKER, RunOutcome, encode_current_worker};
use core::sync::atomic::{AtomicU32, Ordering::*, fence};

use crate::call::{limit, ring as results};
use crate::lock::Lock;
use crate::runner::seats;
use crate::thread::Local;
use crate::{arch, fatal, interrupt, shared, system};

const EXECUTOR_NUMBER: u8 = 0;
/// The alignment that the hook `grow` guarantees.
const GROW_ALIGNMENT: usize = 64;

/// Number of polls between two checks whether to yield strictly, and whether to leave.
const POLLS_BETWEEN_LOOKS: u64 = 64;

/// The executor of all coroutines of this process.
pub(crate) static EXECUTOR: Executor = Executor::with_number(EXECUTOR_NUMBER);

/// What belongs to each virtual CPU: the thread pointer of virtual CPU `n` points to entry `n`.
static LOCALS: [Local; MAX_CPUS] =
    [local(0), local(1), local(2), local(3), local(4), local(5), local(6), local(7)];

const fn local(worker: u32) -> Local {
    Local::of_worker(word_of(worker))
}

/// The word of worker `index` of this process's executor.
const fn word_of(index: u32) -> u32 {
    encode_current_worker(EXECUTOR_NUMBER, index)
}

/// Called by the executor to learn the current worker.
#[unsafe(no_mangle)]
extern "C" fn _cops_executor_current_worker() -> u32 {
    current_word()
}

/// See [`encode_current_worker`]; the virtual CPU's number is in the low byte. That of a thread is
/// [`NO_CURRENT_WORKER`].
#[inline(always)]
pub(crate) fn current_word() -> u32 {
    current_local().map_or(NO_CURRENT_WORKER, Local::worker)
}

/// What belongs to the calling virtual CPU or thread.
#[inline(always)]
pub(crate) fn current_local() -> Option<&'static Local> {
    let local = arch::thread_pointer().cast::<Local>();
    // SAFETY: the thread pointer is null until `become_worker` points it to an element of the
    // static table. That of a thread points to a value that exists until the thread ends, and this
    // function's callers keep the reference no longer: they run on that thread, or on a virtual CPU
    // for which that thread waits (`act_for`).
    unsafe { local.as_ref() }
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
    // SAFETY: the functions below fulfil the contract of `Hooks`, and functions live forever.
    if let Err(error) = unsafe { EXECUTOR.start(&hooks) } {
        fatal(format_args!("the executor does not start: {error:?}"));
    }
    // A notification is a system call. The kernel sees in the process page what waits, and when
    // another virtual CPU should come for it.
    EXECUTOR.rely_on_offers();
    show_executor();
}

/// Called when a worker's lock stays taken, because its holder may have been preempted.
unsafe extern "C" fn relax(_context: *mut ()) {
    system::wait_for_any_holder();
}

/// Publishes the executor's address for `inspect`.
fn show_executor() {
    let address = ptr::from_ref(EXECUTOR.core()).addr() as u64;
    shared::process_page().executor.store(address, core::sync::atomic::Ordering::Relaxed);
}

/// Makes this virtual CPU worker `index`.
pub(crate) fn become_worker(index: usize) {
    let (Some(local), Some(state)) = (LOCALS.get(index), shared::process_page().workers.get(index))
    else {
        fatal(format_args!("the kernel gave this process a virtual CPU number {index}"));
    };
    // SAFETY: `begin` and `start` call this once on each virtual CPU before any coroutine runs
    // there, and the pointer is to a static.
    unsafe { arch::set_thread_pointer(ptr::from_ref(local).cast()) };
    if let Err(error) = EXECUTOR.add_worker(index as u32, state) {
        fatal(format_args!("virtual CPU {index} cannot become a worker: {error:?}"));
    }
    // SAFETY: this is the only call on this virtual CPU, and the thread pointer was set above.
    unsafe { interrupt::enable(index) };
}

/// Calls `act` on this virtual CPU, worker `index`, with what belongs to `client`: so the code that
/// it runs sees the thread's handle and values.
///
/// # Safety
/// `client` is what belongs to a thread that waits, in the kernel, until this has returned.
pub(crate) unsafe fn act_for<R>(client: *const Local, index: u32, act: impl FnOnce() -> R) -> R {
    let own = arch::thread_pointer();
    // SAFETY: by contract the value exists, since its thread does. The field is atomic.
    let local = unsafe { &*client };
    local.set_worker(word_of(index));
    // SAFETY: as above; the thread pointer is changed back below, before the thread goes on. An
    // interrupt in between sees the same worker in either.
    unsafe { arch::set_thread_pointer(client.cast()) };
    let result = act();
    // SAFETY: it is what it was.
    unsafe { arch::set_thread_pointer(own) };
    local.set_worker(NO_CURRENT_WORKER);
    result
}

/// Requests `count` more virtual CPUs, which begin at `entry`. Returns their numbers: fewer, or
/// none, at the limit of the process.
///
/// # Errors
/// `EINVAL` if `count` is above [`MAX_CPUS`], `ENOMEM`.
pub(crate) fn allocate_cpus(
    count: usize,
    entry: extern "C" fn(usize) -> !,
) -> Result<Range<usize>, Errno> {
    // The kernel tells only how many there are afterwards.
    static ONE_AT_A_TIME: Lock<()> = Lock::new(());
    let _guard = ONE_AT_A_TIME.lock();
    let before = system::allocate_cpus(0, entry)?;
    Ok(before..system::allocate_cpus(count, entry)?)
}

/// Entry point of virtual CPU `index`, which [`crate::task::alloc_cpu`] has requested.
pub(crate) extern "C" fn begin(index: usize) -> ! {
    become_worker(index);
    run(index)
}

/// Runs coroutines until the process ends; parks when none is ready.
pub(crate) fn run(index: usize) -> ! {
    let worker = index as u32;
    while run_until_parking(worker, || false) {
        park(worker, || false);
    }
    fatal(format_args!("worker {worker} cannot run"))
}

/// Runs coroutines until none is ready. Returns false, and does nothing, if this virtual CPU is
/// polling a coroutine.
pub(crate) fn run_until_stalled(worker: u32) -> bool {
    run_until(worker, || false)
}

/// As [`run_until_stalled`], for a caller that calls [`park`] next: it also returns when the worker
/// is asked to leave, and soon after `is_over` becomes true.
pub(crate) fn run_until_parking(worker: u32, is_over: impl Fn() -> bool) -> bool {
    run_until(worker, || heir_of(worker).is_some() || is_over())
}

fn run_until(worker: u32, is_enough: impl Fn() -> bool) -> bool {
    loop {
        let is_strict = shared::process_page().flags.load(Relaxed) & flags::STRICT != 0;
        if limit::any_queued() {
            limit::retry_if_due();
        }
        match EXECUTOR.run(worker, if is_strict { 1 } else { POLLS_BETWEEN_LOOKS }) {
            RunOutcome::Stalled => return true,
            RunOutcome::BudgetUsed if is_enough() => return true,
            RunOutcome::BudgetUsed if is_strict => yield_if_less_urgent(),
            RunOutcome::BudgetUsed => {}
            // `set_strict` has requested that this loop reads the flag again.
            RunOutcome::StopRequested => EXECUTOR.request_stop(false),
            RunOutcome::Refused => return false,
        }
    }
}

/// Sleeps in the kernel until there is work. Does not sleep if there is work already, unless the
/// worker is asked to leave that to another one, nor if `is_over`, which is called after the worker
/// is marked as parked.
pub(crate) fn park(worker: u32, is_over: impl FnOnce() -> bool) {
    if let Some(heir) = heir_of(worker) {
        return leave_to(worker, heir, is_over);
    }
    if EXECUTOR.prepare_park(worker) {
        // A result that comes after this check finds the virtual CPU parked, or makes the kernel
        // return from `park` at once.
        if !ring::has_work(&shared::process_page().ring) && !is_over() {
            sleep(false);
        }
        EXECUTOR.finish_park(worker);
    }
}

/// Sleeps in the kernel; for no longer than a pause while a call waits for room, since it is this
/// worker that attempts it again.
fn sleep(is_leaving: bool) {
    if limit::any_queued() {
        limit::pause();
    } else {
        system::park(is_leaving);
    }
}

/// The kernel's request that `worker` leaves its work: 1 more than the number of the heir, or 0.
fn request_to(worker: u32) -> &'static AtomicU32 {
    &shared::process_page().cpus[worker as usize % MAX_CPUS].leave_to
}

/// The worker to which `worker` is to leave its work, if the kernel asks for that: the two share a
/// hart, or a hart of its own for each is not worth it.
fn heir_of(worker: u32) -> Option<u32> {
    if seats::exist() {
        // Such a virtual CPU also sleeps outside of the executor, and would not be notified there.
        return None;
    }
    request_to(worker).load(Relaxed).checked_sub(1)
}

/// Leaves the work of `worker` to `heir` and sleeps in the kernel, unless that is not possible now.
#[cold]
fn leave_to(worker: u32, heir: u32, is_over: impl FnOnce() -> bool) {
    request_to(worker).store(0, Relaxed);
    if EXECUTOR.prepare_leave(worker, heir) {
        if !is_over() {
            // Also if the heir looks after queued calls: it may run no coroutines for a long time.
            sleep(true);
        }
        EXECUTOR.finish_park(worker);
    }
}

/// Strict yielding: yields this virtual CPU's hart if anything more urgent than this process waits
/// for a hart.
fn yield_if_less_urgent() {
    results::drain();
    let (own_page, system) = (shared::process_page(), shared::system_page());
    let own = own_page.workers.iter().fold(0, |levels, worker| levels | worker.waiting());
    let own = own.trailing_zeros().max(own_page.ceiling.load(Relaxed));
    let others = system.waiting.load(Relaxed) | system.kernel_bitmap.load(Relaxed);
    if others.trailing_zeros() < own {
        system::yield_cpu();
    }
}

/// Whether anything waits for this worker that is more urgent than what it polls: then a poll that
/// may end should.
///
/// The other workers' records are not looked at: they change with each of their polls, and what
/// waits there is theirs to run first.
pub(crate) fn is_urged() -> bool {
    let worker = shared::process_page().workers.get(current());
    worker.is_some_and(|worker| {
        let polled = worker.current_priority();
        polled.is_some_and(|polled| worker.waiting() & (polled.bit() - 1) != 0)
    })
}

/// Sets whether this process yields strictly.
pub(crate) fn set_strict(strict: bool) {
    let all = &shared::process_page().flags;
    if strict {
        all.fetch_or(flags::STRICT, Relaxed);
    } else {
        all.fetch_and(!flags::STRICT, Relaxed);
    }
    EXECUTOR.request_stop(true);
}

/// Number of this virtual CPU; `None` for a thread.
pub(crate) fn current_index() -> Option<u32> {
    index_of(current_word())
}

/// The number of the virtual CPU with this word of the executor; `None` for a thread.
#[inline]
fn index_of(word: u32) -> Option<u32> {
    // The low byte.
    (word != NO_CURRENT_WORKER).then_some(word & 0xff)
}

/// What the kernel calls the calling virtual CPU or thread: its number, or its id.
#[inline]
pub(crate) fn kernel_number() -> u32 {
    // Before it is a worker, the first virtual CPU is alone. A thread for which a virtual CPU runs
    // coroutines has the word of that one.
    current_local().map_or(0, |local| index_of(local.worker()).unwrap_or_else(|| local.id()))
}

/// Number of the worker on this virtual CPU; a number that no worker has before it is one.
pub(crate) fn current() -> usize {
    _cops_executor_current_worker() as usize
}

/// The calling virtual CPU stops running coroutines for now: results that have come for any are
/// delivered, and what is ready is offered to the parked ones. So is a call that waits for room.
pub(crate) fn leave() {
    results::drain();
    // What a waker makes ready from now on, it does not leave to this worker; the offer sees what
    // came before. A worker that this one does not see asleep sees the queued calls before it
    // parks.
    fence(SeqCst);
    if limit::any_queued() && EXECUTOR.core().any_asleep() {
        limit::grant_next();
    }
    EXECUTOR.offer(NO_WORKER);
}

/// Offers the coroutines that wait on this virtual CPU to a parked one.
pub(crate) fn offer() {
    EXECUTOR.offer(_cops_executor_current_worker());
}

unsafe extern "C" fn grow(_context: *mut (), bytes: usize) -> *mut u8 {
    match Layout::from_size_align(bytes, GROW_ALIGNMENT) {
        // SAFETY: the layout's size is `bytes`, which the guard has checked to be nonzero.
        Ok(layout) if bytes != 0 => unsafe { alloc_zeroed(layout) },
        _ => ptr::null_mut(),
    }
}

unsafe extern "C" fn release(_context: *mut (), memory: *mut u8, bytes: usize) {
    if let Ok(layout) = Layout::from_size_align(bytes, GROW_ALIGNMENT) {
        // SAFETY: the executor passes memory that it got from `grow` with the same size, and the
        // alignment is the same constant, so the layout is equal.
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
        // Publishes that results which come from now on are not seen before the next poll has
        // returned. This fence pairs with the kernel's between its push and its read of `looked`:
        // either the kernel sees this store, or this worker sees the result.
        record.looked.store(state.polls.load(Relaxed), Relaxed);
        fence(SeqCst);
    }
    results::drain();
}
