//! Threads: virtual CPUs without a worker record. Each has a level of its own, and a word that
//! becomes 0 when it ends (decision 27).

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::*};

use cops_abi::linux::thread_control::NAME_BYTES;
use cops_abi::{Errno, Priority};
use cops_algorithms::priority::{AtomicOptionalPriority, AtomicPriority};
use cops_fallible::map::Spare;
use cops_fallible::{Map, try_arc};
use cops_lock::Mutex;

use super::cpu::VirtualCpu;
use super::signals::CpuSignals;
use super::{Process, ProcessId, children};
use crate::arch::UserContext;
use crate::mm::UserRange;

/// Ids of threads begin here; below are numbers of processes, of which none is used twice. The
/// first thread of a Linux program has the number of its process.
pub(super) const FIRST_ID: u32 = 1 << 29;
/// One past the last id: a mutex has 30 bits for its owner.
const IDS_END: u32 = 1 << 30;

static NEXT_ID: AtomicU32 = AtomicU32::new(0);

/// The process of each thread of a Linux program with an id of its own: the word of a lock in
/// memory that processes share names its owner by id alone.
static PROCESSES: Mutex<Map<u32, ProcessId>> = Mutex::new(Map::new());

/// Memory for an entry in that map.
pub(super) const ENTRY_BYTES: usize = 48;

/// The thread of a Linux program with this id, in whatever process.
pub(super) fn find(id: u32) -> Option<Arc<VirtualCpu>> {
    let process = if id < FIRST_ID { id } else { *PROCESSES.lock().get(&id)? };
    children::find(process)?.thread(id)
}

/// It was not stopped inside the executor, or has run since.
const OUTSIDE: u8 = 0;
/// It was, so it may hold a lock there for which workers of its process wait.
const INSIDE: u8 = 1;
/// The same, and there are so many that no one raises it when its process becomes more urgent.
const CROWDED: u8 = 2;

/// What a thread has beside its registers.
#[derive(Debug)]
pub struct Thread {
    /// Its id.
    pub id: u32,
    /// The level that it counts as: its own, or the more urgent one that it inherits.
    priority: AtomicPriority,
    /// Its own level.
    base: AtomicPriority,
    /// While it copies the memory of its process: the most urgent level of the threads that are
    /// held meanwhile. Written with the process's virtual CPUs locked.
    lent: AtomicOptionalPriority,
    /// Whether it was stopped inside the executor: [`OUTSIDE`], [`INSIDE`], [`CROWDED`].
    executor: AtomicU8,
    /// It is ending, and no thread begins to wait for a lock of it any more.
    pub(super) has_left_locks: AtomicBool,
    /// Its name, which ends with zeros; empty: that of the program.
    pub name: Mutex<[u8; NAME_BYTES]>,
    /// Address of the word that becomes 0 when the thread ends; 0 if there is none.
    pub clear_at_end: AtomicUsize,
    /// Address of the head of its list of robust mutexes; 0 if there is none.
    pub robust_list: AtomicUsize,
}

impl Thread {
    /// The first thread of process `id`.
    pub fn first(id: ProcessId) -> Self {
        Self::with_id(id, Priority::DEFAULT, 0)
    }

    /// This thread as the first one of process `id`, which executes another program.
    pub(super) fn as_first(&self, id: ProcessId) -> Self {
        Self::with_id(id, self.base_priority(), 0)
    }

    /// Another thread, of this level.
    pub fn new(priority: Priority, clear_at_end: usize) -> Self {
        // The first of 2^29 threads has ended when the ids begin anew. If it has not, its own
        // process sees two threads with the same id.
        let id = FIRST_ID + NEXT_ID.fetch_add(1, Relaxed) % (IDS_END - FIRST_ID);
        Self::with_id(id, priority, clear_at_end)
    }

    /// A thread of a program of the tutorial, with this number in its process.
    pub fn numbered(number: u32, priority: Priority) -> Self {
        Self::with_id(number, priority, 0)
    }

    fn with_id(id: u32, priority: Priority, clear_at_end: usize) -> Self {
        Self {
            id,
            priority: AtomicPriority::new(priority),
            base: AtomicPriority::new(priority),
            lent: AtomicOptionalPriority::none(),
            executor: AtomicU8::new(OUTSIDE),
            has_left_locks: AtomicBool::new(false),
            name: Mutex::new([0; NAME_BYTES]),
            clear_at_end: AtomicUsize::new(clear_at_end),
            robust_list: AtomicUsize::new(0),
        }
    }

    /// It can be found by its id alone from now on.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn enter(&self, process: ProcessId) -> Result<(), Errno> {
        if self.id >= FIRST_ID {
            let place = Spare::try_new()?;
            PROCESSES.lock().insert_with(place, self.id, process);
        }
        Ok(())
    }

    /// Undoes [`Self::enter`].
    pub(super) fn leave(&self, process: ProcessId) {
        if self.id < FIRST_ID {
            return;
        }
        let mut processes = PROCESSES.lock();
        // Not the one of another process with the same id, 2^29 threads later.
        if processes.get(&self.id) == Some(&process) {
            processes.remove(&self.id);
        }
    }

    /// Sets what a new program begins with.
    pub(super) fn forget(&self) {
        *self.name.lock() = [0; NAME_BYTES];
        self.clear_at_end.store(0, Relaxed);
        self.robust_list.store(0, Relaxed);
    }

    /// The level that it counts as; not capped.
    pub fn priority(&self) -> Priority {
        self.priority.load()
    }

    /// Records whether its last instruction was one of the executor, which it calls to spawn, to
    /// wake and to set priorities.
    pub(super) fn set_in_executor(&self, is_inside: bool) {
        self.executor.store(if is_inside { INSIDE } else { OUTSIDE }, Relaxed);
    }

    /// It is not among those that are raised when the process becomes more urgent.
    pub(super) fn set_crowded(&self) {
        self.executor.store(CROWDED, Relaxed);
    }

    /// Whether it was stopped inside the executor and has not run since.
    pub(super) fn is_in_executor(&self) -> bool {
        self.executor.load(Relaxed) != OUTSIDE
    }

    /// The level at which it gets a hart; not capped. `waiting`: what the process has ready. Inside
    /// the executor it is as urgent as what may wait for it.
    pub(super) fn urgency(&self, waiting: impl FnOnce() -> u64) -> Priority {
        let own = self.lent.or_more_urgent(self.priority());
        match self.executor.load(Relaxed) {
            OUTSIDE => own,
            INSIDE => Priority::most_urgent_in(waiting())
                .map_or(own, |waiting| waiting.more_urgent_of(own)),
            _ => Priority::MOST_URGENT,
        }
    }

    /// It copies the memory of its process, and a thread of this priority is held, beside others.
    pub(super) fn lend(&self, priority: Priority) {
        self.lent.raise(priority);
    }

    /// The memory has been copied.
    pub(super) fn end_loan(&self) {
        self.lent.store(None, Relaxed);
    }

    /// Its own level, without what it inherits; not capped.
    pub fn base_priority(&self) -> Priority {
        self.base.load()
    }

    /// Sets its own level. Called with the locks of the process locked, which then compute what it
    /// counts as.
    pub(super) fn set_base_priority(&self, priority: Priority) {
        self.base.store(priority);
    }

    /// Sets the level that it counts as, and returns the previous one. Called with the process's
    /// virtual CPUs locked, which count the levels.
    pub(super) fn set_priority(&self, priority: Priority) -> Priority {
        let before = self.priority();
        self.priority.store(priority);
        before
    }
}

impl Process {
    /// Starts a thread with these registers and signals.
    ///
    /// # Errors
    /// `EAGAIN` at the limit of the process or its quota, `ESRCH` if the process is ending,
    /// `ENOMEM`.
    pub fn add_thread(
        self: &Arc<Self>,
        context: UserContext,
        thread: Thread,
        signals: CpuSignals,
    ) -> Result<(), Errno> {
        let mut cpus = self.cpus.lock();
        let index = cpus.reserve_thread()?;
        let cpu = VirtualCpu::new(self.clone(), index, context, thread, signals)?;
        let cpu = try_arc(cpu)?;
        cpus.push(cpu.clone())?;
        self.has_threads.store(true, Relaxed);
        self.count_cpus(&cpus);
        drop(cpus);
        self.queue(cpu);
        Ok(())
    }

    /// Whether the program has started a thread beside its first one.
    pub fn has_had_threads(&self) -> bool {
        self.has_threads.load(Relaxed)
    }

    /// The thread with this id, unless it has ended.
    pub fn thread(&self, id: u32) -> Option<Arc<VirtualCpu>> {
        self.cpus.lock().thread(id).cloned()
    }

    /// What is left to do when `thread` ends and its robust mutexes have been released: clears its
    /// word and wakes a thread that waits for that.
    pub fn clear_at_end(&self, thread: &Thread) {
        let address = thread.clear_at_end.load(Relaxed);
        let Some(range) = UserRange::new(address, 4).filter(|_| address != 0) else { return };
        // An address that the thread could not write is its own affair.
        if self.space.copy_out(range, &[0; 4]).is_ok() {
            self.wake_one_on_futex(self.futex_word(address));
        }
    }
}
