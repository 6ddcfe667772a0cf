//! The reaper: a coroutine that takes ended processes apart.
//!
//! A process cannot take itself apart on the hart that ends it, because that hart is still using
//! its page table. The reaper also frees the memory of programs whose start was given up.
//! May touch: processes, the table of children, address spaces.

use alloc::sync::Arc;
use core::future::poll_fn;
use core::sync::atomic::Ordering::Relaxed;
use core::task::Poll;

use cops_executor::yield_now;
use cops_fallible::{OutOfMemory, Queue};
use spin::Mutex;

use super::children;
use super::process::{Process, ProcessId};
use super::run_queue::RUN_QUEUE;
use super::service::Service;
use crate::mm::{self, Remains};
use crate::{arch, call};

/// Ended processes that have not been taken apart. A process is in here once; room for it is reserved at its birth.
static ENDED: Mutex<Queue<ProcessId>> = Mutex::new(Queue::new());
/// Frames freed before others have their turn: some microseconds. Who waits is often waiting several times on its way.
const PORTION_FRAMES: usize = 16;

static REAPER: Service = Service::new();

/// Makes room for `count` processes that end, all at once: whenever one more begins.
///
/// # Errors
/// [`OutOfMemory`].
pub fn reserve(count: usize) -> Result<(), OutOfMemory> {
    let mut ended = ENDED.lock();
    let more = count - ended.len().min(count);
    ended.try_reserve(more)
}

/// Hands a process over: no virtual CPU of it runs or ever will.
pub fn take(process: ProcessId) {
    // There is room: see `reserve`.
    let _ = ENDED.lock().push_back_within_capacity(process);
    look();
}

/// Has the reaper look for memory that dropped address spaces have left.
pub fn look() {
    REAPER.wake();
}

/// What the reaper does next.
enum Task {
    End(ProcessId),
    Free(Remains),
}

fn next_task() -> Option<Task> {
    let ended = ENDED.lock().pop_front();
    ended.map(Task::End).or_else(|| mm::take_abandoned().map(Task::Free))
}

/// The reaper itself.
pub async fn service() {
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
        // First what has a result, so that what is counted as in flight then is.
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
            // Closing one wakes others, and more.
            drop(file);
            portions.let_others().await;
        }
        while process.take_cpu_away() {
            portions.let_others().await;
        }
        portions.let_others().await;
        // An orphan's end is the time of its nearest ancestor that lives.
        if let Some(payer) = children::payer(family, id) {
            RUN_QUEUE.inherit_debt(&process, &payer);
        }
        let status = process.ending().unwrap_or_default();
        release(process, &mut portions).await;
        while children::orphan_some(id) {
            portions.let_others().await;
        }
        let payer = children::payer(family, id);
        children::ended(id, status);
        portions.charge_to(payer);
        yield_now().await;
    }
}

/// The time that the end of a process takes, without that of others in between.
struct Portions {
    spent_ticks: u64,
    begin_ticks: u64,
}

impl Portions {
    fn begin() -> Self {
        Self { spent_ticks: 0, begin_ticks: arch::now_ticks() }
    }

    /// What is as urgent, or more, has its turn.
    async fn let_others(&mut self) {
        self.spent_ticks += arch::now_ticks().saturating_sub(self.begin_ticks);
        yield_now().await;
        self.begin_ticks = arch::now_ticks();
    }

    /// Has `payer` pay for all of it.
    fn charge_to(self, payer: Option<Arc<Process>>) {
        if let Some(payer) = payer {
            payer.charge(self.spent_ticks + arch::now_ticks().saturating_sub(self.begin_ticks));
        }
    }
}

/// Waits until nobody else holds `process` (a hart that is leaving it, a call that is delivering), then frees it.
///
/// The table's own reference is replaced by the status, so that a parent that sees the end sees the memory back.
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

/// Frees a process and its memory, letting others run in between.
async fn free(mut process: Process, portions: &mut Portions) {
    let mut remains = process.space.take_remains();
    drop(process);
    while remains.free_some(PORTION_FRAMES) {
        portions.let_others().await;
    }
}
