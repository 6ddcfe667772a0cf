//! The reaper: a coroutine that frees ended processes.
//!
//! A process cannot free itself on the hart that ends it, because that hart still uses its page
//! table. The reaper also frees the memory of programs that could not be started. May touch:
//! processes, the table of children, address spaces.

use alloc::sync::Arc;
use core::future::poll_fn;
use core::task::Poll;

use cops_executor::yield_now;
use cops_fallible::{OutOfMemory, Queue};
use spin::Mutex;

use super::{FIRST_PROCESS, Process, ProcessId, RUN_QUEUE, WaitStatus, children};
use crate::mm::{self, Remains};
use crate::sched::Service;
use crate::{arch, call};

/// Ended processes that have not been freed. Each process is added only once; memory for that is
/// reserved when it is created.
static ENDED: Mutex<Queue<ProcessId>> = Mutex::new(Queue::new());
/// Number of frames freed in one portion, which takes some microseconds. A program often has to
/// wait for several portions in succession.
const PORTION_FRAMES: usize = 16;

static REAPER: Service = Service::new();

/// Reserves memory for `count` processes that may all end before one is freed. Called before each
/// new process.
///
/// # Errors
/// [`OutOfMemory`].
pub fn reserve(count: usize) -> Result<(), OutOfMemory> {
    let mut ended = ENDED.lock();
    let more = count - ended.len().min(count);
    ended.try_reserve(more)
}

/// Accepts a process with no virtual CPU that runs or will ever run.
pub fn take(process: ProcessId) {
    // There is room: see `reserve`.
    let _ = ENDED.lock().push_back_within_capacity(process);
    look();
}

/// Makes the reaper check for memory that dropped address spaces have left.
pub fn look() {
    REAPER.wake();
}

/// The reaper's next task.
#[allow(clippy::large_enum_variant, reason = "there is one, in the service's own coroutine")]
enum Task {
    End(ProcessId),
    Free(Remains),
}

fn next_task() -> Option<Task> {
    let ended = ENDED.lock().pop_front();
    ended.map(Task::End).or_else(|| mm::take_abandoned().map(Task::Free))
}

/// The service coroutine. Calls `first_ended` after the end of the first process.
pub async fn service(first_ended: fn(WaitStatus)) {
    REAPER.begin();
    loop {
        let task = poll_fn(|_| next_task().map_or(Poll::Pending, Poll::Ready)).await;
        let id = match task {
            Task::End(id) => id,
            Task::Free(mut remains) => {
                let mut portions = Portions::begin();
                let family = remains.family();
                while remains.free_some(PORTION_FRAMES) {
                    portions.let_others().await;
                }
                drop(remains);
                portions.charge_to(children::payer(family, 0));
                continue;
            }
        };
        let Some(process) = children::find(id) else { continue };
        let mut portions = Portions::begin();
        let family = process.family;
        // First the calls with results, so that the rest of the calls counted as in flight really
        // are.
        while process.close_ring_some() {
            portions.let_others().await;
        }
        let mut first = 0;
        while let Some(next) = call::cancel_some(&process, first) {
            first = next;
            portions.let_others().await;
        }
        while call::shrink() {
            portions.let_others().await;
        }
        while let Some(file) = process.next_file() {
            // Closing a file has effects such as waking other processes.
            drop(file);
            portions.let_others().await;
        }
        while process.take_cpu_away() {
            portions.let_others().await;
        }
        portions.let_others().await;
        // The end of an orphan is charged to its nearest living ancestor.
        if let Some(payer) = children::payer(family, id) {
            RUN_QUEUE.inherit_debt(&process.account, &payer.account);
        }
        let status = process.ending().unwrap_or_default();
        release(process, &mut portions).await;
        while children::orphan_some(id) {
            portions.let_others().await;
        }
        let payer = children::payer(family, id);
        children::ended(id, status);
        if id == FIRST_PROCESS {
            first_ended(status);
        }
        portions.charge_to(payer);
        yield_now().await;
    }
}

/// The time used for the end of a process, without the time of others in between.
struct Portions {
    spent_ticks: u64,
    begin_ticks: u64,
}

impl Portions {
    fn begin() -> Self {
        Self { spent_ticks: 0, begin_ticks: arch::now_ticks() }
    }

    /// Yields to coroutines that are as urgent or more urgent.
    async fn let_others(&mut self) {
        self.spent_ticks += arch::now_ticks().saturating_sub(self.begin_ticks);
        yield_now().await;
        self.begin_ticks = arch::now_ticks();
    }

    /// Charges all of the time to `payer`.
    fn charge_to(self, payer: Option<Arc<Process>>) {
        if let Some(payer) = payer {
            payer.account.charge(self.spent_ticks + arch::now_ticks().saturating_sub(self.begin_ticks));
        }
    }
}

/// Waits until there are no other references to `process` (of a hart that is leaving it, of a call
/// that delivers its result), then frees it.
///
/// The table's own reference is replaced by the status, so that a parent that learns of the end
/// finds the memory free.
async fn release(mut process: Arc<Process>, portions: &mut Portions) {
    children::forget(process.id);
    loop {
        match Arc::try_unwrap(process) {
            Ok(process) => return free(process, portions).await,
            Err(shared) => process = shared,
        }
        portions.let_others().await;
    }
}

/// Frees a process and its memory in portions.
async fn free(mut process: Process, portions: &mut Portions) {
    let mut remains = process.space.take_remains();
    drop(process);
    while remains.free_some(PORTION_FRAMES) {
        portions.let_others().await;
    }
}
