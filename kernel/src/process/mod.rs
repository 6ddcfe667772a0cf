//! Processes: an address space, open files, virtual CPUs, and the page shared with the kernel.
//!
//! Lock order: `cpus`, then `ring`, then a call's cell, then `files`; the address space has its own
//! lock. None is held while user code runs.

mod calls;
pub mod children;
mod cpu;
mod loader;
mod notify;
pub mod reaper;
mod undelivered;
mod urgency;
pub mod user_mode;
mod wake_ring;
pub mod work;

pub use crate::sched::{FIRST_PROCESS, ProcessId};

pub use cpu::{CpuState, RUN_QUEUE, VirtualCpu};
pub use loader::{Arguments, Loading, arguments, start_program};
pub use undelivered::{Calls, set_calls};
pub use user_mode::Outcome;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};

use cops_abi::page::{MAX_CPUS, ProcessPage};
use cops_abi::{Errno, Priority, layout, note};
use cops_algorithms::priority::AtomicOptionalPriority;
use cops_fallible::map::Spare;
use cops_fallible::{List, try_arc};
use spin::Mutex;

use crate::arch::{self, UserContext};
use crate::counters::COUNTERS;
use crate::fs::{File, FileTable};
use crate::mm::quota::{self, Family};
use crate::mm::{AddressSpace, Frame, Rights, SharedFrame};
use crate::sched::timer::Payer;
use crate::sched::{Account, Ceiling, Shown, WaitQueue, system_page};
use crate::trace::{self, Event, TracePages};
use calls::CallsInFlight;
use cpu::{CpuEvent, CpuStatus};
use wake_ring::WakeRing;

/// How a process ended, in the encoding of `wait4`.
pub type WaitStatus = i32;

/// The virtual CPUs of a process, with their shared status.
pub(crate) struct Cpus {
    pub(crate) list: List<(Arc<VirtualCpu>, CpuStatus)>,
    /// How the process ended or is going to.
    ending: Option<WaitStatus>,
    /// Memory for the reaper, until it has been notified.
    reaper_place: Option<reaper::Place>,
}

/// One process.
pub struct Process {
    /// Its number.
    pub id: ProcessId,
    /// Number of the process that started it; 0 once no process can wait for it.
    pub parent: AtomicU32,
    /// The family to which its memory, calls, files and virtual CPUs are charged.
    pub family: Family,
    /// The name of its program, for messages.
    pub name: &'static str,
    /// Its memory.
    pub space: AddressSpace,
    /// Its open files.
    pub files: Mutex<FileTable>,
    /// Woken when a child has ended.
    pub child_ended: WaitQueue,
    /// Coroutine calls in flight, including those with results for which the ring had no room.
    pub calls_in_flight: CallsInFlight,
    /// The most urgent level that it may have.
    pub ceiling: Ceiling,
    /// The time that it has used, and its debts to other processes of its level.
    pub account: Account,
    pub(crate) page: SharedFrame<ProcessPage>,
    pub(crate) ring: WakeRing,
    pub(crate) cpus: Mutex<Cpus>,
    /// The levels counted for it in the system bitmap.
    pub(crate) shown: Shown,
    /// A bit for each level of results that are in the ring, or were when it was last checked.
    pub(crate) woken: AtomicU64,
    /// Level of the result for which a virtual CPU is to be interrupted, if one is.
    pub(crate) interrupt_level: AtomicOptionalPriority,
    /// Set if it was started while tracing was on.
    pub(crate) trace_pages: Option<TracePages>,
    /// Whether `cpus.ending` is set, for the check at every trap.
    is_ending: AtomicBool,
    /// Length of `cpus.list`, for the check at every trap.
    cpu_count: AtomicUsize,
}

/// Top of the stack of virtual CPU `index`.
fn stack_top(index: usize) -> usize {
    layout::STACK_TOP - index * layout::STACK_STRIDE
}

/// The frames that a process shares with the kernel.
pub struct Pages {
    page: SharedFrame<ProcessPage>,
    ring: WakeRing,
}

impl Pages {
    /// Allocates them, zeroed.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn allocate() -> Result<Self, Errno> {
        let page = SharedFrame::new(Frame::allocate_zeroed()?);
        Ok(Self { page, ring: WakeRing::new()? })
    }
}

impl Process {
    /// Maps the shared pages into `space` and makes a process with it, without virtual CPUs.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(
        id: ProcessId,
        parent: Option<&Process>,
        ceiling: Priority,
        name: &'static str,
        space: AddressSpace,
        files: FileTable,
        pages: Pages,
    ) -> Result<Arc<Self>, Errno> {
        let Pages { page, ring } = pages;
        page.version.store(note::ABI_VERSION, Relaxed);
        page.ceiling.store(ceiling.level().into(), Relaxed);
        space.map_frame(layout::PROCESS_PAGE, page.frame().clone(), Rights::READ_WRITE)?;
        for (index, frame) in ring.frames().enumerate() {
            let address = layout::RING_PAGES + index * layout::PAGE_BYTES;
            space.map_frame(address, frame.clone(), Rights::READ_WRITE)?;
        }
        space.map_frame(layout::SYSTEM_PAGE, system_page().frame().clone(), Rights::READ)?;
        space.map_image(layout::VDSO, crate::vdso::image(), Rights::READ_EXECUTE)?;
        let family = children::family(id).ok_or(Errno::ESRCH)?;
        let parent_id = parent.map_or(0, |parent| parent.id);
        let account = Account::of_child(id, parent.map(|parent| (parent.id, &parent.account)))?;
        let trace_pages = if trace::is_on() { Some(TracePages::new(&space)?) } else { None };
        let process = try_arc(Self {
            id,
            family,
            parent: AtomicU32::new(parent_id),
            name,
            space,
            files: Mutex::new(files),
            child_ended: WaitQueue::new(),
            calls_in_flight: CallsInFlight::new(family),
            ceiling: Ceiling::new(ceiling),
            page,
            ring,
            trace_pages,
            cpus: Mutex::new(Cpus {
                list: List::new(),
                ending: None,
                reaper_place: Some(Spare::try_new()?),
            }),
            account,
            shown: Shown::default(),
            woken: AtomicU64::new(0),
            interrupt_level: AtomicOptionalPriority::none(),
            is_ending: AtomicBool::new(false),
            cpu_count: AtomicUsize::new(0),
        })?;
        Ok(process)
    }

    /// Adds a virtual CPU that starts at `entry` on the stack for its number, with that number as
    /// its argument.
    ///
    /// `initial_stack_pointer`: for the first one, where stack pointer and argument point to the
    /// program's arguments.
    ///
    /// # Errors
    /// `EAGAIN` at the limit, `ESRCH` if the process is ending, `ENOMEM`.
    pub fn add_cpu(
        self: &Arc<Self>,
        entry: usize,
        initial_stack_pointer: Option<usize>,
    ) -> Result<usize, Errno> {
        let mut cpus = self.cpus.lock();
        let index = cpus.list.len();
        if index >= MAX_CPUS {
            return Err(Errno::EAGAIN);
        }
        if cpus.ending.is_some() {
            return Err(Errno::ESRCH);
        }
        cpus.list.try_reserve(1)?;
        let stack_pointer = initial_stack_pointer.unwrap_or(stack_top(index));
        let context =
            UserContext::new(entry, stack_pointer, initial_stack_pointer.unwrap_or(index));
        let cpu = try_arc(VirtualCpu::new(self.clone(), index, context)?)?;
        if initial_stack_pointer.is_none() {
            // Last, because it would not be undone.
            self.map_stack(index)?;
        }
        cpus.list.try_push((cpu.clone(), CpuStatus::runnable(self.page.cpus.get(index))))?;
        self.cpu_count.store(cpus.list.len(), Relaxed);
        drop(cpus);
        self.queue(cpu);
        Ok(index)
    }

    /// Maps the stack of virtual CPU `index`, allocated on access, and returns its top.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn map_stack(&self, index: usize) -> Result<usize, Errno> {
        let top = stack_top(index);
        self.space.map_anonymous(top - layout::STACK_BYTES..top, Rights::READ_WRITE)?;
        Ok(top)
    }

    /// Checks that this process may kill `other` and set its ceiling and quotas, that is, that
    /// `other` is the process itself or a descendant.
    ///
    /// # Errors
    /// `EPERM` if not.
    pub fn check_authority_over(&self, other: &Process) -> Result<(), Errno> {
        if quota::is_within(other.family, self.family) { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether it belongs to this family.
    pub fn is_of(&self, family: Family) -> bool {
        quota::is_within(self.family, family)
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

    /// Number of its virtual CPUs, running or not.
    pub fn cpu_count(&self) -> usize {
        self.cpu_count.load(Relaxed)
    }

    /// How it ended or is going to, if it does.
    pub fn ending(&self) -> Option<WaitStatus> {
        self.cpus.lock().ending
    }

    /// Whether it has ended or is going to.
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Acquire)
    }

    /// Puts a virtual CPU that has just become `Runnable` into the run queue.
    pub(crate) fn queue(&self, cpu: Arc<VirtualCpu>) {
        cpu.entity.set_level(self.urgency(cpu.index));
        self.show();
        RUN_QUEUE.push(cpu);
    }

    /// Applies `event` to virtual CPU `index`. Returns its new state, `None` if the event is not
    /// allowed.
    ///
    /// If that ends the last virtual CPU of an ending process, the reaper is notified.
    #[must_use]
    pub(crate) fn apply(&self, cpus: &mut Cpus, index: usize, event: CpuEvent) -> Option<CpuState> {
        let ending = cpus.ending.is_some();
        let (_, status) = cpus.list.get_mut(index)?;
        let state = status.apply(event, ending, self.page.cpus.get(index));
        if ending && state == Some(CpuState::Ended) {
            self.reap_if_ended(cpus);
        }
        state
    }

    // ---- states of virtual CPUs ----

    /// `cpu`, taken out of the run queue, is about to run on this hart. `Err` if the process is
    /// ending instead.
    ///
    /// The value is the result of the synchronous call that it waited for, if any.
    pub fn start_running(&self, cpu: &VirtualCpu) -> Result<Option<isize>, ()> {
        let mut cpus = self.cpus.lock();
        match self.apply(&mut cpus, cpu.index, CpuEvent::Dispatch { hart: arch::hart_index() }) {
            Some(CpuState::Running { .. }) => Ok(cpus.list[cpu.index].1.result.take()),
            _ => Err(()),
        }
    }

    /// `cpu` stops running because others are to run; it stays runnable.
    pub fn stop_running(&self, cpu: &Arc<VirtualCpu>) {
        let mut cpus = self.cpus.lock();
        let state = self.apply(&mut cpus, cpu.index, CpuEvent::Preempt);
        drop(cpus);
        if state != Some(CpuState::Runnable) {
            return;
        }
        cpu.entity.set_level(self.urgency(cpu.index));
        self.show();
        RUN_QUEUE.put_back(cpu.clone());
    }

    /// `cpu` ends with `code` by its own call; the last one ends the process.
    pub fn end_cpu(&self, cpu: &VirtualCpu, code: u8) {
        let mut cpus = self.cpus.lock();
        let _ = self.apply(&mut cpus, cpu.index, CpuEvent::Exit);
        if cpus.list.iter().all(|(_, status)| status.state() == CpuState::Ended) {
            cpus.ending.get_or_insert(cops_abi::syscall::wait_status::exited(code));
            self.is_ending.store(true, Release);
        }
        self.reap_if_ended(&mut cpus);
    }

    /// Parks `cpu`, which is running, unless it was woken, a result has arrived or its process is
    /// ending. Returns whether it is parked now.
    pub fn park(&self, cpu: &VirtualCpu) -> bool {
        let mut cpus = self.cpus.lock();
        // Under the lock that `complete` takes after its push: either the entry is visible here or
        // `complete` sees the virtual CPU parked.
        let has_results = self.ring.has_results(&self.page.ring);
        let status = &mut cpus.list[cpu.index].1;
        if core::mem::take(&mut status.wake_pending) || has_results {
            return false;
        }
        if self.apply(&mut cpus, cpu.index, CpuEvent::Park).is_none() {
            return false;
        }
        COUNTERS.parks.add(1);
        trace::emit(move || Event::Park { process: self.id, cpu: cpu.index as u8 });
        drop(cpus);
        self.show();
        true
    }

    /// Wakes virtual CPU `index`, or makes its next `park` return immediately.
    ///
    /// # Errors
    /// `EINVAL` if there is none with this number.
    pub fn unpark(&self, index: usize) -> Result<(), Errno> {
        let mut cpus = self.cpus.lock();
        let (cpu, status) = cpus.list.get_mut(index).ok_or(Errno::EINVAL)?;
        let cpu = cpu.clone();
        if status.state() != CpuState::Parked {
            status.wake_pending = true;
            return Ok(());
        }
        if self.apply(&mut cpus, index, CpuEvent::Unpark) != Some(CpuState::Runnable) {
            return Ok(());
        }
        drop(cpus);
        trace::emit(move || Event::Unpark { process: self.id, cpu: index as u8 });
        self.queue(cpu);
        Ok(())
    }

    /// `cpu`, which is running, is about to wait for a synchronous call. If the process is ending,
    /// `cpu` ends instead, and the reaper cancels the call.
    pub fn begin_waiting(&self, cpu: &VirtualCpu) {
        trace::emit(move || Event::WaitBegin { process: self.id, cpu: cpu.index as u8 });
        let _ = self.apply(&mut self.cpus.lock(), cpu.index, CpuEvent::Wait);
    }

    /// The synchronous call of virtual CPU `index` has completed.
    pub fn end_waiting(&self, index: usize, result: isize) {
        let mut cpus = self.cpus.lock();
        if self.apply(&mut cpus, index, CpuEvent::Complete) != Some(CpuState::Runnable) {
            return;
        }
        let (cpu, status) = &mut cpus.list[index];
        status.result = Some(result);
        let cpu = cpu.clone();
        drop(cpus);
        trace::emit(move || Event::WaitEnd { process: self.id, cpu: index as u8 });
        self.queue(cpu);
    }

    // ---- the end ----

    /// Ends the process: its running virtual CPUs stop at their next trap, the others immediately.
    ///
    /// Only the first given status counts. Returns whether it was this one.
    pub fn end(&self, status: WaitStatus) -> bool {
        let mut cpus = self.cpus.lock();
        if cpus.ending.is_some() {
            return false;
        }
        cpus.ending = Some(status);
        // Before the interrupts below: a hart that checks because of one of them sees it.
        self.is_ending.store(true, Release);
        for (cpu, status) in &mut cpus.list {
            match status.apply(CpuEvent::Kill, true, self.page.cpus.get(cpu.index)) {
                Some(_) => {}
                // The trap caused by the interrupt is sufficient: the hart checks `ending` before
                // it enters user mode again.
                None => match status.state() {
                    CpuState::Running { hart } if hart != arch::hart_index() => {
                        arch::send_interrupt_to(hart)
                    }
                    _ => {}
                },
            }
        }
        self.reap_if_ended(&mut cpus);
        true
    }

    /// When no virtual CPU can run any more, passes the process to the reaper.
    fn reap_if_ended(&self, cpus: &mut Cpus) {
        let all_ended = cpus.list.iter().all(|(_, status)| status.state() == CpuState::Ended);
        if cpus.ending.is_some()
            && all_ended
            && let Some(place) = cpus.reaper_place.take()
        {
            reaper::take(self.id, place);
        }
    }

    /// Removes a file from the table of a process that has ended, or frees some of the table:
    /// `Some(None)`. `None` if nothing is left.
    pub(crate) fn next_file(&self) -> Option<Option<Arc<File>>> {
        self.files.lock().pop()
    }

    /// Frees some of the results for which the ring had no room, of a process that has ended.
    /// Returns whether there may be more.
    pub(crate) fn close_ring_some(&self) -> bool {
        let freed = self.ring.close_some();
        self.calls_in_flight.end(freed);
        freed > 0
    }

    /// Takes one of the process's virtual CPUs away; returns whether there are more. Called by the
    /// reaper after calls, results and files have gone.
    pub(crate) fn take_cpu_away(&self) -> bool {
        // The virtual CPUs hold the process: without this it would hold itself for ever.
        let mut cpus = self.cpus.lock();
        let one = cpus.list.pop();
        let has_more = !cpus.list.is_empty();
        drop(cpus);
        // With a call that it had not finished, such as the start of a program: that takes some
        // 22,000 instructions.
        drop(one);
        if !has_more {
            self.show_nothing();
        }
        has_more
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
