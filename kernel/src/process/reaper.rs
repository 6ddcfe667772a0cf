//! The reaper: a coroutine that frees ended processes.
//!
//! A process cannot free itself on the hart that ends it, because that hart still uses its page
//! table. The reaper also frees the memory of programs that could not be started.
//!
//! Processes are freed in the order of their parents' ceilings, each at that level: a program with
//! a low ceiling delays nothing more urgent by starting and ending others. The same holds for the
//! memory of programs that could not be started. While the reaper works for one parent and a more
//! urgent parent has work for it, it works at the level of the latter.

use alloc::sync::Arc;
use core::future::poll_fn;
use core::task::Poll;

use cops_abi::Priority;
use cops_abi::syscall::signal;
use cops_algorithms::levels::LEVELS;
use cops_algorithms::priority::Rank;
use cops_executor::yield_now;
use cops_fallible::Map;
use cops_fallible::map::Spare;
use cops_lock::{Mutex, MutexGuard};

use super::undelivered::calls;
use super::{FIRST_PROCESS, Process, ProcessId, RUN_QUEUE, WaitStatus, children, groups};
use crate::arch;
use crate::fs::terminal;
use crate::mm::{self, AbandonedList, Remains};
use crate::sched::{Service, set_priority};

/// Ended processes that have not been freed, and memory of programs that could not be started.
struct Ended {
    waiting: Map<Key, ProcessId>,
    next_number: u64,
    /// Memory that is to be freed, by level.
    memory: [AbandonedList; LEVELS],
    /// A bit for each level with such memory.
    memory_levels: u64,
}

/// The place of an ended process: the level at which it is freed, and a number. Those that have
/// just ended have no level yet, and come first.
type Key = (Option<Rank>, u64);
/// Memory for the place of an ended process, allocated when the process is created.
pub type Place = Spare<Key, ProcessId>;

static ENDED: Mutex<Ended> = Mutex::new(Ended {
    waiting: Map::new(),
    next_number: 0,
    memory: [const { AbandonedList::new() }; LEVELS],
    memory_levels: 0,
});
/// The level at which the reaper sorts what has arrived.
const SORTING: Priority = Priority::DEFAULT;
/// Maximum number of processes, and of programs that could not be started, sorted in one portion.
const PORTION_ARRIVED: usize = 4;
/// Number of frames freed in one portion, which takes some microseconds. A program often has to
/// wait for several portions in succession.
const PORTION_FRAMES: usize = 4;

static REAPER: Service = Service::new();

impl Ended {
    fn insert(&mut self, place: Place, rank: Option<Rank>, process: ProcessId) {
        self.next_number += 1;
        // No process has this key, because its number is new.
        let _ = self.waiting.insert_with(place, (rank, self.next_number), process);
    }

    /// Removes the first process that has no level yet.
    fn take_arrived(&mut self) -> Option<(ProcessId, Place)> {
        let (&key, _) = self.waiting.first().filter(|((rank, _), _)| rank.is_none())?;
        self.waiting.take(&key)
    }

    fn insert_memory(&mut self, priority: Priority, memory: Remains) {
        self.memory[usize::from(priority.level())].push(memory);
        self.memory_levels |= priority.bit();
    }

    /// The priority of the next work: `None` if there is none, `Some(None)` if there is something
    /// to be sorted first.
    fn next_priority(&self) -> Option<Option<Priority>> {
        let process = self.waiting.first().map(|(&(priority, _), _)| priority);
        let memory = Priority::most_urgent_in(self.memory_levels);
        match (process, memory) {
            (Some(None), _) => Some(None),
            (Some(Some(Rank(process))), Some(memory)) => Some(Some(process.more_urgent_of(memory))),
            (Some(Some(Rank(priority))), None) | (None, Some(priority)) => Some(Some(priority)),
            (None, None) => None,
        }
    }

    /// Removes what is to be freed first, with its priority, if all have one. Of one priority, the
    /// processes come first.
    fn take_sorted(&mut self) -> Option<(Priority, Next)> {
        let priority = self.next_priority()??;
        if let Some((&key, _)) = self.waiting.first()
            && key.0 == Some(Rank(priority))
        {
            return Some((priority, Next::Process(self.waiting.remove(&key)?)));
        }
        let list = &mut self.memory[usize::from(priority.level())];
        let memory = list.pop()?;
        if list.is_empty() {
            self.memory_levels &= !priority.bit();
        }
        Some((priority, Next::Memory(memory)))
    }
}

/// What is freed next.
enum Next {
    Process(ProcessId),
    Memory(Remains),
}

/// Accepts a process with no virtual CPU that runs or will ever run.
pub fn take(process: ProcessId, place: Place) {
    let mut ended = ENDED.lock();
    ended.insert(place, None, process);
    wake(ended);
}

/// Makes the reaper check for memory that dropped address spaces have left.
pub fn look() {
    wake(ENDED.lock());
}

fn wake(ended: MutexGuard<'_, Ended>) {
    // It may be at work for something less urgent. Under the lock, as in `become_due`, so that the
    // reaper does not overwrite this.
    if let Some(id) = REAPER.id()
        && cops_executor::priority(id).is_some_and(|now| SORTING.is_more_urgent_than(now))
    {
        set_priority(id, SORTING);
    }
    drop(ended);
    REAPER.wake();
}

/// The reaper's next task.
enum Task {
    End(Arc<Process>),
    Free(Remains),
}

/// Waits for the next task, and returns it with its priority. Sorts at first what has arrived.
async fn next_task() -> (Priority, Task) {
    poll_fn(|context| {
        if let Some(id) = cops_executor::current() {
            set_priority(id, SORTING);
        }
        if sort_some() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some((priority, next)) = ENDED.lock().take_sorted() else { return Poll::Pending };
        let task = match next {
            Next::Process(id) => children::find(id).map(Task::End),
            Next::Memory(memory) => Some(Task::Free(memory)),
        };
        if task.is_none() {
            context.waker().wake_by_ref();
        }
        task.map_or(Poll::Pending, |task| Poll::Ready((priority, task)))
    })
    .await
}

/// Sorts some of what has arrived. Each process is freed at the priority of its parent, which may
/// be waiting for that, or of the nearest living ancestor; memory likewise. Returns whether there
/// is more.
fn sort_some() -> bool {
    for _ in 0..PORTION_ARRIVED {
        let arrived = ENDED.lock().take_arrived();
        if let Some((id, place)) = arrived {
            let Some(process) = children::find(id) else { continue };
            let priority = priority_of(children::payer(process.family, id).as_deref());
            ENDED.lock().insert(place, Some(Rank(priority)), id);
        } else if let Some(memory) = mm::take_abandoned() {
            let priority = priority_of(payer_of(&memory).as_deref());
            ENDED.lock().insert_memory(priority, memory);
        } else {
            return false;
        }
    }
    true
}

/// The process that is charged for freeing memory of a program that could not be started.
fn payer_of(memory: &Remains) -> Option<Arc<Process>> {
    children::payer(memory.family()?, 0)
}

/// The priority for work that `payer` is charged for.
fn priority_of(payer: Option<&Process>) -> Priority {
    payer.map_or(SORTING, |payer| payer.ceiling.cap(SORTING))
}

/// Yields, and continues when it is the turn of work of `priority`, or of something more urgent
/// that waits for it. Sorts what has arrived meanwhile.
async fn become_due(priority: Priority) {
    loop {
        yield_now().await;
        sort_some();
        let ended = ENDED.lock();
        let next = ended.next_priority();
        let has_arrived = next == Some(None) || mm::any_abandoned();
        let mut wanted = next.flatten().map_or(priority, |next| next.more_urgent_of(priority));
        if has_arrived {
            wanted = wanted.more_urgent_of(SORTING);
        }
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

/// The service coroutine. Calls `first_ended` after the end of the first process.
pub async fn service(first_ended: fn(WaitStatus)) {
    REAPER.begin();
    loop {
        let (priority, task) = next_task().await;
        become_due(priority).await;
        match task {
            Task::End(process) => {
                let (id, payer) = (process.id, children::payer(process.family, process.id));
                let mut portions = Portions::begin(payer, priority);
                let status = end(process, &mut portions).await;
                if id == FIRST_PROCESS {
                    first_ended(status);
                }
                portions.end();
            }
            Task::Free(remains) => {
                let mut portions = Portions::begin(payer_of(&remains), priority);
                free(remains, &mut portions).await;
                portions.end();
            }
        }
    }
}

/// Frees an ended process. Returns how it ended.
async fn end(process: Arc<Process>, portions: &mut Portions) -> WaitStatus {
    let id = process.id;
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
        if let Some(file) = file {
            process.close(file);
        }
        portions.let_others().await;
    }
    loop {
        while let Some(mut left) = process.take_left_of_last() {
            portions.let_others().await;
            while left.do_some(&process) {
                portions.let_others().await;
            }
        }
        let (has_more, cpu) = process.remove_cpu();
        if let Some(cpu) = cpu {
            portions.let_others().await;
            drop(cpu);
        }
        if !has_more {
            break;
        }
        portions.let_others().await;
    }
    while process.leave_a_lock_of_program() {
        portions.let_others().await;
    }
    portions.let_others().await;
    if let Some(payer) = &portions.payer {
        RUN_QUEUE.inherit_debt(&process.account, &payer.account);
    }
    let status = process.cpus.lock().ending().unwrap_or(WaitStatus::exited(0));
    release(process, portions).await;
    loop {
        let mut orphaned = None;
        let has_more = children::orphan_some(id, &mut orphaned);
        if let Some(group) = orphaned {
            help(group, &mut *portions).await;
        }
        if !has_more {
            break;
        }
        portions.let_others().await;
    }
    if let Some(group) = terminal::leave(id) {
        send(signal::SIGHUP, group, &mut *portions).await;
    }
    let group = children::kinship(id).map_or(0, |kinship| kinship.group);
    // A group that was orphaned before is left alone, as POSIX has it.
    let had_shell = children::has_shell(id);
    children::ended(id, status);
    if had_shell && children::needs_help(group) {
        portions.let_others().await;
        help(group, portions).await;
    }
    status
}

/// Sends `SIGHUP` and `SIGCONT` to a group that no process could make go on any more.
async fn help(group: ProcessId, portions: &mut Portions) {
    for signal in [signal::SIGHUP, signal::SIGCONT] {
        send(signal, group, portions).await;
    }
}

/// Sends a signal to a group.
async fn send(signal: u8, group: ProcessId, portions: &mut Portions) {
    let mut next = 0;
    while let Some(more) = groups::signal_some(group, signal, next) {
        next = more;
        portions.let_others().await;
    }
}

/// The portions of the reaper's work on one task.
struct Portions {
    /// The parent, or the nearest living ancestor if the parent has ended: each portion is charged
    /// to it as it ends. It is freed by the reaper, so not before this task is done.
    payer: Option<Arc<Process>>,
    /// The priority of the task.
    priority: Priority,
    begin_ticks: u64,
}

impl Portions {
    /// For work of `priority` that `payer` is charged for.
    fn begin(payer: Option<Arc<Process>>, priority: Priority) -> Self {
        Self { payer, priority, begin_ticks: arch::now_ticks() }
    }

    /// Yields to coroutines that are as urgent or more urgent.
    async fn let_others(&mut self) {
        self.end();
        become_due(self.priority).await;
        self.begin_ticks = arch::now_ticks();
    }

    /// Charges the portion that ends here.
    fn end(&self) {
        if let Some(payer) = &self.payer {
            // The parent waits for the end of its child, or does not mind when it comes.
            payer.account.charge_awaited(arch::now_ticks().saturating_sub(self.begin_ticks));
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
            Ok(mut process) => {
                children::record_use(&process);
                let remains = process.space.take_remains();
                drop(process);
                portions.let_others().await;
                if let Some(remains) = remains {
                    free(remains, portions).await;
                }
                return;
            }
            Err(shared) => process = shared,
        }
        portions.let_others().await;
    }
}

/// Frees memory in portions.
async fn free(mut remains: Remains, portions: &mut Portions) {
    while remains.free_some(PORTION_FRAMES) {
        portions.let_others().await;
    }
}
