//! Coroutines run for threads: a thread that calls [`run`] waits, and a virtual CPU takes its place
//! (decision 45).
//!
//! Only a virtual CPU has a record that the kernel reads: what it polls, what it has ready, whether
//! it has looked at its results. So there is a *seat* for each that was made for this purpose. It
//! runs coroutines only for the thread that sits there.
//!
//! May touch: virtual CPUs of its own, the thread pointer of those.
#![allow(unsafe_code)]

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*};

use cops_abi::Errno;
use cops_abi::page::MAX_CPUS;

use super::{Until, run_on};
use crate::thread::Local;
use crate::{fatal, system, worker};

/// The virtual CPU of a seat waits for a thread.
const FREE: u32 = 0;
/// It runs coroutines until none is ready.
const UNTIL_STALLED: u32 = 1;
/// It runs coroutines until all have ended.
const UNTIL_EMPTY: u32 = 2;

/// A virtual CPU that runs coroutines for threads.
struct Seat {
    /// What it is to do. Set by the thread, which waits until it is [`FREE`] again.
    task: AtomicU32,
    /// What belongs to that thread. Written before `task`.
    client: AtomicPtr<Local>,
}

/// By the number of the virtual CPU. Those of other virtual CPUs are not used.
static SEATS: [Seat; MAX_CPUS] =
    [const { Seat { task: AtomicU32::new(FREE), client: AtomicPtr::new(ptr::null_mut()) } };
        MAX_CPUS];

/// A seat exists, or is being made.
static EXIST: AtomicBool = AtomicBool::new(false);

/// Bit n: seat n exists, and no thread has it.
static VACANT: AtomicU32 = AtomicU32::new(0);

/// Runs coroutines for the calling thread, which is not a virtual CPU of the executor.
///
/// # Errors
/// `EAGAIN` if the process has as many virtual CPUs as it may, `ENOMEM`.
pub(super) fn run(until: Until) -> Result<(), Errno> {
    let Some(local) = worker::current_local() else { return Err(Errno::EAGAIN) };
    let index = take()?;
    let seat = &SEATS[index];
    let task = match until {
        Until::Stalled => UNTIL_STALLED,
        Until::Empty => UNTIL_EMPTY,
    };
    seat.client.store(ptr::from_ref(local).cast_mut(), Relaxed);
    // Release: the virtual CPU sees `client`, and everything that this thread has done.
    seat.task.store(task, Release);
    system::unpark(index as u32);
    while seat.task.load(Acquire) == task {
        // Returns without a reason at times; it has no time limit, so it does not fail.
        let _ = system::futex_wait(&seat.task, task, None);
    }
    put(index);
    Ok(())
}

/// Whether any of the virtual CPUs may be that of a seat: false only before the first one is made.
pub(crate) fn exist() -> bool {
    EXIST.load(Relaxed)
}

/// Takes a vacant seat for the calling thread, or makes one.
fn take() -> Result<usize, Errno> {
    let mut vacant = VACANT.load(Relaxed);
    while vacant != 0 {
        // Acquire: pairs with `put`.
        match VACANT.compare_exchange(vacant, vacant & (vacant - 1), Acquire, Relaxed) {
            Ok(_) => return Ok(vacant.trailing_zeros() as usize),
            Err(now) => vacant = now,
        }
    }
    EXIST.store(true, Relaxed);
    // It finds what it is to do when it begins.
    worker::allocate_cpus(1, begin)?.next().filter(|&index| index < MAX_CPUS).ok_or(Errno::EAGAIN)
}

/// The calling thread leaves a seat, which is vacant now.
fn put(index: usize) {
    VACANT.fetch_or(1 << index, Release);
}

/// Entry point of the virtual CPU of seat `index`.
extern "C" fn begin(index: usize) -> ! {
    worker::become_worker(index);
    let Some(seat) = SEATS.get(index) else {
        fatal(format_args!("the kernel gave this process a virtual CPU number {index}"));
    };
    loop {
        let until = match seat.task.load(Acquire) {
            UNTIL_STALLED => Until::Stalled,
            UNTIL_EMPTY => Until::Empty,
            _ => {
                // The kernel may have chosen this virtual CPU for a result, which it finds before
                // it goes to sleep. `unpark` during the rest makes `park` return at once.
                worker::leave();
                system::park(false);
                continue;
            }
        };
        let client = seat.client.load(Relaxed);
        // SAFETY: the thread has stored what belongs to it, and waits in `run` above, in the kernel
        // or on its way there, until `task` changes. Meanwhile it touches nothing of that.
        let has_run =
            unsafe { worker::act_for(client, index as u32, || run_on(index as u32, until)) };
        if !has_run {
            fatal(format_args!("virtual CPU {index} cannot run coroutines"));
        }
        // What was left to this worker as long as it ran is left to the others.
        worker::leave();
        // Release: the thread sees everything that was done here.
        seat.task.store(FREE, Release);
        system::futex_wake(&seat.task, 1);
    }
}
