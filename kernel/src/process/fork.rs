//! Starting a process as a copy of another one (decision 28), in portions: files, memory, and the
//! registers of the calling virtual CPU.
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;

use cops_abi::errno::CallResult;
use cops_abi::interrupt::{CpuRecord, PostedDescriptor};
use cops_abi::page::ProcessPage;
use cops_abi::{Errno, layout};

use super::copying::OthersHeld;
use super::number::{Number, Unstarted};
use super::signals::CpuSignals;
use super::{Parts, PersonalityKind, Process, ProcessId, Thread, VirtualCpu, children, reaper};
use crate::arch::UserContext;
use crate::mm::{self, Copying, UserRange};

/// A copy that is being made. Dropping it frees everything.
pub struct Forking {
    /// The registers with which the child begins.
    context: UserContext,
    /// The signals that the child's virtual CPU blocks, and its alternate stack.
    signals: CpuSignals,
    /// Where the child's memory gets the child's number.
    child_number: Option<UserRange>,
    /// The word that becomes 0 when the child's first thread ends; 0 if there is none.
    clear_at_end: usize,
    /// How the child gets the memory.
    copying: Copying,
    /// The parent's pages become copies, and do not change until all are.
    is_copying: bool,
    /// While they do, unless there is no other virtual CPU.
    others: Option<OthersHeld>,
    stage: Stage,
}

/// What exists of the child. Each stage has what the next portion needs.
#[derive(Default)]
enum Stage {
    /// Nothing: after the last portion, and after a portion that failed.
    #[default]
    Nothing,
    /// Its number.
    Numbered(Number),
    /// Its memory and files, with so many chunks of the parent's files.
    Opening(Number, Box<Parts>, usize),
    /// Its files, and the first so many of the areas that it shares with the kernel.
    Sharing(Number, Box<Parts>, usize),
    /// Its files. The parent's other virtual CPUs are leaving their harts.
    Holding(Number, Box<Parts>),
    /// Its files, and the parent's memory below this address.
    Copying(Number, Box<Parts>, usize),
    /// The process, without a virtual CPU.
    Created(Unstarted),
}

/// What a portion has come to.
pub enum Forked {
    /// The child with this number runs.
    Started(ProcessId),
    /// The child is complete, and is to borrow the memory.
    Ready(ProcessId),
}

impl Forking {
    /// A copy that begins with the registers in `context` and these signals, gets its number at
    /// `child_number`, and clears the word at `clear_at_end` when its first thread ends. `cpu`
    /// makes the call.
    ///
    /// # Errors
    /// `ERESTARTSYS` if `cpu` is to look for signals first; `ENOMEM`, and as for
    /// [`Number::reserve`].
    pub fn new(
        cpu: &VirtualCpu,
        context: UserContext,
        signals: CpuSignals,
        child_number: Option<UserRange>,
        clear_at_end: usize,
        copying: Copying,
    ) -> Result<Self, Errno> {
        mm::admit()?;
        let number = Number::reserve(Some(&cpu.process))?;
        if cpu.signals.is_due() {
            // One that was sent to many before the child had a number has reached the parent. As on
            // Linux, it is handled before there is a child.
            drop(number);
            // Another virtual CPU of the parent may already be waiting for it.
            cpu.process.child_ended.wake_all();
            return Err(Errno::ERESTARTSYS);
        }
        Ok(Self {
            context,
            signals,
            child_number,
            clear_at_end,
            copying,
            is_copying: false,
            others: None,
            stage: Stage::Numbered(number),
        })
    }

    /// The memory is not being copied any more.
    fn end_copying(&mut self, parent: &Process) {
        if core::mem::take(&mut self.is_copying) {
            parent.space.end_copying();
            self.others = None;
        }
    }

    /// Executes a portion on behalf of `cpu`. `None` if there is more to do.
    pub(super) fn resume(&mut self, cpu: &VirtualCpu) -> Option<Result<Forked, Errno>> {
        let parent = &cpu.process;
        let step = self.step(cpu);
        if step.is_err() {
            self.end_copying(parent);
            // Another virtual CPU of the parent may already be waiting for the child.
            parent.child_ended.wake_all();
        }
        step.transpose()
    }

    fn step(&mut self, cpu: &VirtualCpu) -> Result<Option<Forked>, Errno> {
        let parent = &cpu.process;
        self.stage = match core::mem::take(&mut self.stage) {
            Stage::Nothing => return Err(Errno::EINVAL),
            Stage::Numbered(number) => {
                let is_traced = parent.trace_pages.is_some();
                let parts = Parts::without_files(number.family, is_traced)?;
                Stage::Opening(number, parts, 0)
            }
            Stage::Opening(number, mut parts, chunk) => {
                if parts.files.copy_chunk(&parent.files.lock(), chunk)? {
                    Stage::Opening(number, parts, chunk + 1)
                } else {
                    match parent.personality.kind() {
                        PersonalityKind::Native => Stage::Sharing(number, parts, 0),
                        PersonalityKind::Linux => {
                            parts.areas().map_linux()?;
                            Stage::Holding(number, parts)
                        }
                        PersonalityKind::Tutorial => Stage::Holding(number, parts),
                    }
                }
            }
            Stage::Sharing(number, parts, count) => {
                if parts.areas().map(count)? {
                    Stage::Sharing(number, parts, count + 1)
                } else {
                    Stage::Holding(number, parts)
                }
            }
            Stage::Holding(number, parts) => {
                // Lent memory is that of both, as long as it is lent.
                self.is_copying = self.copying == Copying::Copy;
                if !self.is_copying || OthersHeld::hold(&mut self.others, cpu) {
                    Stage::Copying(number, parts, 0)
                } else {
                    Stage::Holding(number, parts)
                }
            }
            Stage::Copying(number, parts, from) => {
                match parent.space.copy_some(&parts.space, from, self.copying)? {
                    Some(next) => Stage::Copying(number, parts, next),
                    None => {
                        self.end_copying(parent);
                        let ceiling = parent.ceiling.priority();
                        let what = (parent.program(), parent.personality.copy()?);
                        parts.space.set_page_limit(parent.space.page_limit());
                        let process = Process::new(number.id, Some(parent), ceiling, what, *parts)?;
                        process.ignored.store(parent.ignored.load(Relaxed), Relaxed);
                        process.borrows.store(self.copying == Copying::Lend, Relaxed);
                        Stage::Created(Unstarted { number, process })
                    }
                }
            }
            Stage::Created(unstarted) => {
                if self.copying == Copying::Copy {
                    return self.start(unstarted, parent).map(Forked::Started).map(Some);
                }
                let child = unstarted.number.id;
                self.stage = Stage::Created(unstarted);
                return Ok(Some(Forked::Ready(child)));
            }
        };
        Ok(None)
    }

    fn start(&self, unstarted: Unstarted, parent: &Process) -> Result<ProcessId, Errno> {
        copy_records(parent, &unstarted.process);
        if let Some(place) = self.child_number {
            // As on Linux, an address that the child cannot write to is the child's affair.
            let number = unstarted.process.id.to_le_bytes();
            let _ = unstarted.process.space.copy_out(place, &number);
        }
        let child = unstarted.start(Some(parent), |child| {
            let thread = Thread::first(child.id);
            thread.clear_at_end.store(self.clear_at_end, Relaxed);
            child.add_first_cpu(self.context.clone(), thread, self.signals.copy())
        })?;
        Ok(child.id)
    }
}

/// A call that starts a child that borrows the memory, and waits until it no longer uses it.
///
/// The child runs on the stack of its caller. So it is started when the call that waits for it is
/// in flight: a call that fails has started nothing.
pub struct Lending {
    child: ProcessId,
    /// Until it is started.
    forking: Option<Box<Forking>>,
    /// Whether the caller certainly waits.
    is_in_flight: bool,
}

impl Lending {
    /// For this `child`, which `forking` has completed ([`Forked::Ready`]).
    pub fn new(child: ProcessId, forking: Box<Forking>) -> Self {
        Self { child, forking: Some(forking), is_in_flight: false }
    }

    /// The call is in flight.
    pub fn begin_waiting(&mut self) {
        self.is_in_flight = true;
    }

    /// Starts the child, unless that has been done or is too early. The result is its number, when
    /// it no longer uses the memory.
    pub fn attempt(&mut self, parent: &Process) -> Option<CallResult> {
        if !self.is_in_flight {
            return None;
        }
        if let Some(mut forking) = self.forking.take() {
            let Stage::Created(unstarted) = core::mem::take(&mut forking.stage) else {
                return Some(Err(Errno::EINVAL));
            };
            if let Err(error) = forking.start(unstarted, parent) {
                // Another virtual CPU of the parent may already be waiting for the child.
                parent.child_ended.wake_all();
                return Some(Err(error));
            }
        }
        let borrows = children::find(self.child).is_some_and(|child| child.borrows_memory());
        (!borrows).then_some(Ok(self.child as usize))
    }
}

impl Drop for Forking {
    fn drop(&mut self) {
        // If the parent ended before the copy was complete.
        self.stage = Stage::Nothing;
        if mm::any_abandoned() {
            reaper::look();
        }
    }
}

/// Parts of the process page that a native program's library keeps there for virtual CPU 0: offset
/// and size. The rest of the child's page is that of a new process.
const RECORDS: [(usize, usize); 5] = [
    (offset_of!(ProcessPage, flags), 4),
    (offset_of!(ProcessPage, posted) + offset_of!(PostedDescriptor, handler), 8),
    (offset_of!(ProcessPage, workers), RECORD_BYTES_MAX),
    (offset_of!(ProcessPage, cpus), size_of::<CpuRecord>()),
    (offset_of!(ProcessPage, executor), 8),
];
const RECORD_BYTES_MAX: usize = 128;

const _: () = assert!(size_of::<ProcessPage>() == layout::PAGE_BYTES);

/// Copies [`RECORDS`]. The parent can have written anything there.
fn copy_records(parent: &Process, child: &Process) {
    for (offset, length) in RECORDS {
        let mut bytes = [0; RECORD_BYTES_MAX];
        let bytes = &mut bytes[..length];
        parent.page.frame().read(offset, bytes);
        child.page.frame().write(offset, bytes);
    }
}
