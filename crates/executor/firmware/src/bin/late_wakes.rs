//! Uses one slot until its generations are used up, and calls the waker of each coroutine while the
//! next one has the slot: the call must wake no coroutine.
//!
//! With 32-bit pointers that is after 1,048,575 coroutines, and the next must be in another slot.
//! With 64-bit pointers as many come and go, and the slot stays.
#![no_std]
#![no_main]

use core::future::poll_fn;
use core::task::{Poll, Waker};

use cops_executor::{
    CoroutineId, Executor, Priority, StaticMemory, StaticTask, WorkerState, memory_for, wake_up,
    waker_of,
};
use firmware::{board, entry, println};
use portable_atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Uses of a slot where an id has 32 bits in a waker.
const USES: u32 = (1 << 20) - 1;

static EXECUTOR: Executor = Executor::with_number(0);
static WORKER: WorkerState = WorkerState::new();
static MEMORY: StaticMemory<{ memory_for(1, 2) }> = StaticMemory::new();
static TASK: StaticTask<8> = StaticTask::new();
static POLLS: AtomicU32 = AtomicU32::new(0);
static MAY_LEAVE: AtomicBool = AtomicBool::new(false);

/// Lets a coroutine come and go. If it stays, it is polled, then all `stale` wakers are used, which
/// must not have it polled again, then its own. If not, the stale wakers are used before its only
/// poll. `None` if anything else happens.
fn serve(stale: &[Waker], stays: bool) -> Option<CoroutineId> {
    POLLS.store(0, Relaxed);
    MAY_LEAVE.store(!stays, Relaxed);
    let tenant = poll_fn(|_| {
        POLLS.fetch_add(1, Relaxed);
        if MAY_LEAVE.load(Relaxed) { Poll::Ready(()) } else { Poll::Pending }
    });
    let id = EXECUTOR.spawn_static(&TASK, tenant, Priority::DEFAULT).ok()?;
    if stays {
        EXECUTOR.run_until_stalled(0);
        MAY_LEAVE.store(true, Relaxed);
    }
    stale.iter().for_each(Waker::wake_by_ref);
    EXECUTOR.run_until_stalled(0);
    if stays {
        let unheard = POLLS.load(Relaxed) == 1 && TASK.is_occupied();
        waker_of(id).wake();
        EXECUTOR.run_until_stalled(0);
        if !unheard {
            return None;
        }
    }
    (POLLS.load(Relaxed) == 1 + stays as u32 && !TASK.is_occupied() && !wake_up(id)).then_some(id)
}

fn main() -> ! {
    EXECUTOR.start_static(&MEMORY, |_worker| ()).expect("it is started once");
    EXECUTOR.add_worker(0, &WORKER).expect("there is memory for one");
    let first = serve(&[], true).expect("the slot was not used before");
    let oldest = waker_of(first);
    let mut last = first;
    for served in 1..USES {
        let stale = [oldest.clone(), waker_of(last)];
        // All would take some ten seconds.
        match serve(&stale, served < 1_000 || USES - served < 1_000) {
            Some(id) if id.index() == first.index() && id.generation() == last.generation() + 1 => {
                last = id
            }
            other => {
                println!("FAILED after {served} coroutines: {last} was followed by {other:?}");
                board::exit(1)
            }
        }
    }
    let next = serve(&[oldest, waker_of(last)], true).expect("there is another slot");
    let retired = next.index() != first.index();
    println!("{USES} coroutines in slot {}, the last was {last}; then {next}", first.index());
    println!("the wakers of the first and of the one before reached none of them");
    let succeeded = retired == (usize::BITS == 32);
    println!("{}", if succeeded { "passed" } else { "FAILED" });
    board::exit(!succeeded as u16)
}

entry!(main);
