//! The reaper: a coroutine that frees ended processes.
//!
//! A process cannot free itself on the hart that ends it, because that hart still uses its page
//! table. The reaper also frees the memory of programs that could not be started.
//!
//! Processes are freed in the order of their parents' ceilings, each at that level: a program with
//! a low ceiling delays nothing more urgent by starting and ending others. While a process is freed
//! and the parent of another one is more urgent, the reaper works at the level of that parent.

use alloc::sync::Arc;
use core::future::poll_fn;
use core::task::Poll;

use cops_abi::{CoroutineId, Priority};
use cops_algorithms::priority::Rank;
use cops_executor::yield_now;
use cops_fallible::map::Spare;
use cops_fallible::{Map, OutOfMemory, Queue};
use spin::Mutex;

use super::undelivered::calls;
use super::{FIRST_PROCESS, Process, ProcessId, RUN_QUEUE, WaitStatus, children};
use crate::arch;
use crate::mm::{self, Remains};
use crate::sched::{Service, set_priority};

/// Ended processes that have not been freed.
struct Ended {
    /// Those that have just ended. Memory for all of them is reserved when they are created.
    arrived: Queue<ProcessId>,
    /// The others, by the level at which they are freed, in the order of their ends.
    sorted: Map<Key, ProcessId>,
    next_number: u64,
}

/// The place of an ended process: a level and a number.
type Key = (Rank, u64);
/// Memory for the place of an ended process, allocated when the process is created.
pub type Place = Spare<Key, ProcessId>;

static ENDED: Mutex<Ended> =
    Mutex::new(Ended { arrived: Queue::new(), sorted: Map::new(), next_number: 0 });
/// The level at which the reaper sorts what has arrived, and at which it frees the memory of
/// programs that could not be started.
const SORTING: Priority = Priority::DEFAULT;
/// Maximum number of processes sorted in one portion.
const PORTION_ARRIVED: usize = 4;
/// Number of frames freed in one portion, which takes some microseconds. A program often has to
/// wait for several portions in succession.
const PORTION_FRAMES: usize = 4;

static REAPER: Service = Service::new();

/// Reserves memory for `count` processes that may all end before one is freed. Called before each
/// new process.
///
/// # Errors
/// [`OutOfMemory`].
pub fn reserve(count: usize) -> Result<(), OutOfMemory> {
    let arrived = &mut ENDED.lock().arrived;
    let more = count - arrived.len().min(count);
    arrived.try_reserve(more)
}

/// Accepts a process with no virtual CPU that runs or will ever run.
pub fn take(process: ProcessId) {
    let mut ended = ENDED.lock();
    // There is room: see `reserve`.
    let _ = ended.arrived.push_back_within_capacity(process);
    if let Some(id) = REAPER.id() {
        // It may be at work for something less urgent. Under the lock, as in `become_due`, so that
        // the reaper does not overwrite this.
        raise(id, SORTING);
    }
    drop(ended);
    look();
}

/// Makes the reaper check for memory that dropped address spaces have left.
pub fn look() {
    REAPER.wake();
}

/// The reaper's next task.
#[allow(clippy::large_enum_variant, reason = "there is one, in the service's own coroutine")]
enum Task {
    End { process: Arc<Process>, level: Priority },
    Free(Remains),
}

/// Waits for the next task. Sorts at first what has arrived.
async fn next_task() -> Task {
    poll_fn(|context| {
        if let Some(id) = cops_executor::current() {
            set_priority(id, SORTING);
        }
        if sort_some() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let first = ENDED.lock().sorted.pop_first();
        let ended = first.and_then(|((Rank(level), _), id)| {
            children::find(id).map(|process| Task::End { process, level })
        });
        ended.or_else(|| mm::take_abandoned().map(Task::Free)).map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Sorts some of the processes that have arrived. Each is freed at the level of its parent, which
/// may be waiting for that, or of the nearest living ancestor. Returns whether there are more.
fn sort_some() -> bool {
    for _ in 0..PORTION_ARRIVED {
        let Some(id) = ENDED.lock().arrived.pop_front() else { return false };
        let Some((process, place)) = children::to_be_freed(id) else { continue };
        let level = level_of(children::payer(process.family, id).as_deref());
        let mut ended = ENDED.lock();
        let number = ended.next_number;
        ended.next_number += 1;
        ended.sorted.insert_with(place, (Rank(level), number), id);
    }
    true
}

/// The level for work that `payer` is charged for.
fn level_of(payer: Option<&Process>) -> Priority {
    payer.map_or(SORTING, |payer| payer.ceiling.cap(SORTING))
}

/// Yields, and continues when it is the turn of work of `level`, or of something more urgent that
/// waits for it. Sorts what has arrived meanwhile.
async fn become_due(level: Priority) {
    loop {
        yield_now().await;
        let are_more = sort_some();
        let ended = ENDED.lock();
        let has_arrived = are_more || !ended.arrived.is_empty();
        let first = ended.sorted.first().map(|(&(Rank(level), _), _)| level);
        let wanted = match has_arrived {
            true => SORTING.more_urgent_of(level),
            false => first.map_or(level, |first| first.more_urgent_of(level)),
        };
        let Some(id) = cops_executor::current() else { return };
        let before = cops_executor::priority(id).unwrap_or(SORTING);
        set_priority(id, wanted);
        drop(ended);
        // It may have been this urgent only for the sorting.
        if !has_arrived && !before.is_more_urgent_than(wanted) {
            return;
        }
    }
}

/// Makes coroutine `id` as urgent as `level`, unless it is more urgent.
fn raise(id: CoroutineId, level: Priority) {
    if cops_executor::priority(id).is_some_and(|now| level.is_more_urgent_than(now)) {
        set_priority(id, level);
    }
}

/// The service coroutine. Calls `first_ended` after the end of the first process.
pub async fn service(first_ended: fn(WaitStatus)) {
    REAPER.begin();
    loop {
        let (process, level) = match next_task().await {
            Task::End { process, level } => (process, level),
            Task::Free(mut remains) => {
                let mut portions = Portions::begin(children::payer(remains.family(), 0), SORTING);
                while remains.free_some(PORTION_FRAMES) {
                    portions.let_others().await;
                }
                drop(remains);
                portions.end();
                continue;
            }
        };
        become_due(level).await;
        let id = process.id;
        let mut portions = Portions::begin(children::payer(process.family, id), level);
        // First the calls with results, so that the rest of the calls counted as in flight really
        // are.
        while process.close_ring_some() {
            portions.let_others().await;
        }
        let mut first = 0;
        while let Some(next) = calls().cancel_some(&process, first) {
            first = next;
            portions.let_others().await;
        }
        while calls().shrink() {
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
        if let Some(payer) = &portions.payer {
            RUN_QUEUE.inherit_debt(&process.account, &payer.account);
        }
        let status = process.ending().unwrap_or_default();
        release(process, &mut portions).await;
        while children::orphan_some(id) {
            portions.let_others().await;
        }
        children::ended(id, status);
        if id == FIRST_PROCESS {
            first_ended(status);
        }
        portions.end();
    }
}

/// The portions of the reaper's work on one task.
struct Portions {
    /// The parent, or the nearest living ancestor if the parent has ended: each portion is charged
    /// to it as it ends. It is freed by the reaper, so not before this task is done.
    payer: Option<Arc<Process>>,
    /// The level of the task.
    level: Priority,
    begin_ticks: u64,
}

impl Portions {
    /// For work of `level` that `payer` is charged for.
    fn begin(payer: Option<Arc<Process>>, level: Priority) -> Self {
        Self { payer, level, begin_ticks: arch::now_ticks() }
    }

    /// Yields to coroutines that are as urgent or more urgent.
    async fn let_others(&mut self) {
        self.end();
        become_due(self.level).await;
        self.begin_ticks = arch::now_ticks();
    }

    /// Charges the portion that ends here.
    fn end(&self) {
        if let Some(payer) = &self.payer {
            payer.account.charge(arch::now_ticks().saturating_sub(self.begin_ticks));
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
    portions.let_others().await;
    while remains.free_some(PORTION_FRAMES) {
        portions.let_others().await;
    }
}
