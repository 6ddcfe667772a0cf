//! Processes: an address space, open files, virtual CPUs, and the page shared with the kernel.
//!
//! Lock order: the alarm, then a call's cell, which is locked during each attempt, then all others:
//! the signals, then `cpus`; `ring`, then the cell of a call that has ended; `files`; a table of
//! futexes. The address space has its own lock. None is held while user code runs.

mod alarm;
mod blocked;
mod calls;
pub mod children;
mod copying;
mod cpu;
mod cpus;
mod donation;
mod ending;
mod exec;
mod fork;
mod futex;
mod gathering;
mod groups;
pub mod keys;
mod limits;
mod loader;
mod locks;
mod name;
mod notify;
mod number;
mod personality;
mod program;
pub mod reaper;
pub mod resumable;
mod running;
pub mod signals;
pub mod spawn;
mod status;
mod stopping;
pub mod sweeper;
mod thread;
mod tutorial;
mod undelivered;
mod urgency;
pub mod user_mode;
mod wake_ring;

pub use crate::sched::{FIRST_PROCESS, ProcessId};

pub use blocked::{Blocked, BlockedCall};
pub use cpu::{CpuState, RUN_QUEUE, VirtualCpu};
pub use exec::{Begun, Executing};
pub use fork::{Forking, Lending};
use futex::Futexes;
pub use futex::{
    Place as FutexPlace, Releasing, Sleeper, Sweeping, check_address as check_futex_address,
    read as read_futex,
};
pub use groups::{Signalling, Target};
pub use limits::Limit;
pub use loader::{Arguments, Loading, start_program};
pub use locks::Places as LockPlaces;
pub use name::Name;
pub use personality::{Kind as PersonalityKind, Linux, Personality};
pub use program::{Program, Strings};
pub use resumable::Portion;
pub use signals::Wait;
pub use status::WaitStatus;
pub use thread::Thread;
pub use tutorial::{FIRST_THREAD, ObjectKind, Threads, TurnWait, Wanted};
pub use undelivered::{Calls, set_calls};
pub use user_mode::Outcome;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use cops_abi::page::ProcessPage;
use cops_abi::syscall::kernel_model::COROUTINES;
use cops_abi::{Errno, Priority, layout, note};
use cops_algorithms::priority::AtomicOptionalPriority;
use cops_algorithms::run_queue::Ends;
use cops_algorithms::standing::Pauses;
use cops_algorithms::terminal::Party;
use cops_fallible::map::Spare;
use cops_fallible::{try_arc, try_box};
use cops_lock::Mutex;

use crate::fs::{File, FileTable, file_locks};
use crate::mm::quota::{self, Family};
use crate::mm::{AddressSpace, Frame, Rights, SharedFrame};
use crate::sched::timer::Payer;
use crate::sched::{Account, Ceiling, Published, WaitQueue, system_page};
use crate::trace::TracePages;
use calls::CallsInFlight;
use cpus::Cpus;
use wake_ring::WakeRing;

/// One process.
pub struct Process {
    /// Its number.
    pub id: ProcessId,
    /// Number of the process that started it; 0 once no process can wait for it.
    pub parent: AtomicU32,
    /// Its process group and its session, as the table of processes has them.
    pub group: AtomicU32,
    pub session: AtomicU32,
    /// Signals that a native program ignores.
    ignored: AtomicU64,
    /// How often it has been told to go on (`SIGCONT`).
    continued: AtomicU64,
    /// The family to which its memory, calls, files and virtual CPUs are charged.
    pub family: Family,
    /// Its program.
    program: Mutex<Program>,
    /// When it was started.
    pub begin_ticks: u64,
    /// What its program was built for.
    pub personality: Personality,
    /// Its memory.
    pub space: AddressSpace,
    /// Its open files.
    pub files: Mutex<FileTable>,
    /// Whether it may have locks of files, which are released when it closes the files.
    pub has_file_locks: AtomicBool,
    /// Woken when a child has ended.
    pub child_ended: WaitQueue,
    /// Whether it uses pages of its parent, of which a thread waits until it no longer does
    /// (decision 53).
    borrows: AtomicBool,
    /// Coroutine calls in flight, including those with results for which the ring had no room.
    pub calls_in_flight: CallsInFlight,
    /// The most urgent level that it may have.
    pub ceiling: Ceiling,
    /// The time that it has used, and its debts to other processes of its level.
    pub account: Account,
    /// The last virtual CPU of each of its lines in the run queue, which changes them.
    ends_of_lines: Mutex<Ends<VirtualCpu>>,
    pub(crate) page: SharedFrame<ProcessPage>,
    pub(crate) ring: WakeRing,
    pub(crate) cpus: Mutex<Cpus>,
    /// The levels counted for it in the system bitmap.
    pub(crate) published: Published,
    /// A bit for each level of results that are in the ring, or were when it was last checked.
    pub(crate) woken: AtomicU64,
    /// Level of the result for which a virtual CPU is to be interrupted, if one is.
    pub(crate) interrupt_priority: AtomicOptionalPriority,
    /// Set if it, or a process of which it is a copy, was started while tracing was on.
    pub(crate) trace_pages: Option<TracePages>,
    /// What waits on futexes in its own memory.
    own_futexes: Mutex<Futexes>,
    /// Set when it has started a thread beside its first one.
    has_threads: AtomicBool,
    /// Why virtual CPUs do not enter user mode, for the check at every trap: bits of
    /// [`ending::halt`].
    halted: AtomicU8,
    /// Number of workers in `cpus`, for the check at every trap.
    cpu_count: AtomicUsize,
    /// Whether `cpu_count` is above 1 or `has_threads` is set: one load, for the same check.
    has_others: AtomicBool,
    /// Its virtual CPUs that are paused for coroutines of the kernel.
    pauses: Pauses,
    /// The kernel's half of its calls that wait.
    kernel_model: AtomicU8,
}

/// The parts of a process that exist while its program is loaded.
struct Parts {
    family: Family,
    space: AddressSpace,
    files: FileTable,
    page: SharedFrame<ProcessPage>,
    ring: WakeRing,
    trace_pages: Option<TracePages>,
}

impl Parts {
    /// An empty space, files on the console, and zeroed frames, charged to `family`.
    ///
    /// # Errors
    /// `ENOMEM`, `EMFILE`.
    fn allocate(family: Family, is_traced: bool) -> Result<Box<Self>, Errno> {
        Self::with_files(family, FileTable::with_console(family)?, is_traced)
    }

    /// Like [`Self::allocate`], without files.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn without_files(family: Family, is_traced: bool) -> Result<Box<Self>, Errno> {
        Self::with_files(family, FileTable::empty(family), is_traced)
    }

    fn with_files(family: Family, files: FileTable, is_traced: bool) -> Result<Box<Self>, Errno> {
        let space = AddressSpace::new(family)?;
        let page = SharedFrame::new(Frame::allocate_zeroed()?);
        let ring = WakeRing::new()?;
        let trace_pages = if is_traced { Some(TracePages::new()?) } else { None };
        Ok(try_box(Self { family, space, files, page, ring, trace_pages })?)
    }

    fn areas(&self) -> SharedAreas<'_> {
        let (page, ring, trace_pages) = (&self.page, &self.ring, self.trace_pages.as_ref());
        SharedAreas { space: &self.space, page, ring, trace_pages }
    }
}

/// What a native program shares with the kernel, and the space in which it is to be mapped.
struct SharedAreas<'a> {
    space: &'a AddressSpace,
    page: &'a SharedFrame<ProcessPage>,
    ring: &'a WakeRing,
    trace_pages: Option<&'a TracePages>,
}

impl SharedAreas<'_> {
    /// Maps area `index`: the frames of the process, the system page, and the vDSO. Returns whether
    /// there is one with this number.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn map(&self, index: usize) -> Result<bool, Errno> {
        let map =
            |address, frame: &Frame, rights| self.space.map_frame(address, frame.clone(), rights);
        match index {
            0 => map(layout::PROCESS_PAGE, self.page.frame(), Rights::READ_WRITE)?,
            1 => {
                let addresses = (layout::RING_PAGES..).step_by(layout::PAGE_BYTES);
                for (address, frame) in addresses.zip(self.ring.frames()) {
                    map(address, frame, Rights::READ_WRITE)?;
                }
            }
            2 => map(layout::SYSTEM_PAGE, system_page().frame(), Rights::READ)?,
            3 => self.space.map_image(layout::VDSO, crate::vdso::image(), Rights::READ_EXECUTE)?,
            4 => {
                if let Some(pages) = self.trace_pages {
                    pages.map(self.space)?;
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Maps what a Linux program shares with the kernel: the page to which handlers of signals
    /// return.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn map_linux(&self) -> Result<(), Errno> {
        let rights = Rights::READ_EXECUTE;
        Ok(self.space.map_image(layout::LINUX_TRAMPOLINE, crate::arch::trampoline(), rights)?)
    }
}

impl Process {
    /// Makes a process of `parts`, without virtual CPUs.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn new(
        id: ProcessId,
        parent: Option<&Process>,
        ceiling: Priority,
        (program, personality): (Program, Personality),
        Parts { family, space, files, page, ring, trace_pages }: Parts,
    ) -> Result<Arc<Self>, Errno> {
        begin_page(&page, ceiling);
        let parent_id = parent.map_or(0, |parent| parent.id);
        let account = Account::of_child(id, parent.map(|parent| (parent.id, &parent.account)))?;
        Ok(try_arc(Self {
            id,
            family,
            parent: AtomicU32::new(parent_id),
            group: AtomicU32::new(0),
            session: AtomicU32::new(0),
            ignored: AtomicU64::new(0),
            continued: AtomicU64::new(0),
            program: Mutex::new(program),
            begin_ticks: crate::arch::now_ticks(),
            personality,
            space,
            files: Mutex::new(files),
            has_file_locks: AtomicBool::new(false),
            child_ended: WaitQueue::new(),
            borrows: AtomicBool::new(false),
            calls_in_flight: CallsInFlight::new(family),
            ceiling: Ceiling::new(ceiling),
            cpus: Mutex::new(Cpus::new(
                id,
                SharedFrame::new(page.frame().clone()),
                Spare::try_new()?,
            )),
            page,
            ring,
            trace_pages,
            account,
            ends_of_lines: Mutex::new(Ends::try_new()?),
            published: Published::default(),
            woken: AtomicU64::new(0),
            interrupt_priority: AtomicOptionalPriority::none(),
            own_futexes: Mutex::new(Futexes::new()),
            has_threads: AtomicBool::new(false),
            halted: AtomicU8::new(0),
            cpu_count: AtomicUsize::new(0),
            has_others: AtomicBool::new(false),
            pauses: Pauses::new(),
            kernel_model: AtomicU8::new(COROUTINES),
        })?)
    }

    /// Whether it still uses pages of its parent.
    pub fn borrows_memory(&self) -> bool {
        self.borrows.load(SeqCst)
    }

    /// It no longer uses pages of its parent, which goes on.
    fn return_memory(&self) {
        if self.borrows.swap(false, SeqCst)
            && let Some(parent) = children::find(self.parent.load(Relaxed))
        {
            parent.child_ended.wake_all();
        }
    }

    /// Checks that this process may kill `other` and set its ceiling and quotas, that is, that
    /// `other` is the process itself or a descendant.
    ///
    /// # Errors
    /// `EPERM` if not.
    pub fn check_authority_over(&self, other: &Process) -> Result<(), Errno> {
        if quota::is_within(other.family, self.family) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Checks that this process may change settings that concern all processes, such as tracing and
    /// the share of less urgent processes. Only the first process may, which has authority over all
    /// others.
    ///
    /// # Errors
    /// `EPERM` if not.
    pub fn check_authority_over_machine(&self) -> Result<(), Errno> {
        if self.id == FIRST_PROCESS { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// What counts for its use of the terminal.
    pub fn party(&self) -> Party {
        Party { session: self.session.load(Relaxed), group: self.group.load(Relaxed) }
    }

    /// It has closed a descriptor of `file`, which is not in its table any more: drops the file,
    /// and releases what the process has locked of it.
    ///
    /// Without the table's lock: closing a file wakes waiting calls.
    pub fn close(&self, file: Arc<File>) {
        if self.has_file_locks.load(Relaxed) {
            file_locks::release_of_process(&file, self.id);
        }
    }

    /// The name of its program, for messages.
    pub fn name(&self) -> Name {
        self.program.lock().name
    }

    /// Its program.
    pub fn program(&self) -> Program {
        self.program.lock().clone()
    }

    /// Number of its virtual CPUs with a worker record, running or not.
    pub fn cpu_count(&self) -> usize {
        self.cpu_count.load(Relaxed)
    }

    /// The virtual CPUs in `cpus` are others than before.
    fn count_cpus(&self, cpus: &Cpus) {
        let workers = cpus.worker_count();
        self.cpu_count.store(workers, Relaxed);
        self.has_others.store(workers > 1 || self.has_threads.load(Relaxed), Relaxed);
    }
}

/// Writes into an empty process page what a program reads there at its begin.
fn begin_page(page: &ProcessPage, ceiling: Priority) {
    page.version.store(note::ABI_VERSION, Relaxed);
    page.ceiling.store(ceiling.level().into(), Relaxed);
}

/// For messages.
impl fmt::Display for Process {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "process {} ({})", self.id, self.name())
    }
}

impl Payer for Process {
    fn number(&self) -> u32 {
        self.id
    }

    fn charge(&self, ticks: u64) {
        self.account.charge(ticks);
    }
}
