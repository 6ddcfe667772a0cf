//! Replacing the program of a process (decisions 28 and 34), in portions.
//!
//! The new program is loaded into an address space of its own. Until it is complete, the process is
//! as it was, and an error is the result of the call. Then comes what cannot fail: the other
//! virtual CPUs end, calls in flight are cancelled, files are closed, the two spaces exchange their
//! contents, and the mappings of the old program end, before the parent of a `vfork` continues.
//! Last, the old memory is freed, so that the new program has all of its quota. During that the
//! calling virtual CPU does not enter user mode, so no handler of the old program runs.
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering::*;

use cops_abi::Errno;
use cops_abi::syscall::kernel_model::COROUTINES;
use cops_fallible::{Text, try_arc, try_box};

use super::cpu::{CpuEvent, CpuState, RUN_QUEUE};
use super::ending::{Left, halt};
use super::loader::{Asking, Image, Start};
use super::spawn::Request;
use super::undelivered::calls;
use super::{
    Personality, Portion, Process, Program, SharedAreas, VirtualCpu, begin_page, children, reaper,
};
use crate::arch::{self, UserContext};
use crate::fs::SharedAsk;
use crate::mm::{self, AddressSpace, Remains};

/// Number of files that one portion closes.
const PORTION_FILES: usize = 4;
/// Number of virtual CPUs that one portion ends.
const PORTION_CPUS: usize = 4;
/// Number of frames of the old program that one portion frees.
const PORTION_FRAMES: usize = 16;

/// A program that is to replace that of a process. Dropping it before the other virtual CPUs end
/// leaves the process as it was.
pub struct Executing(Stage);

/// How a new program begins.
pub enum Begun {
    /// The calling virtual CPU goes on, with the program's registers.
    Here,
    /// Virtual CPU 0 is in the run queue, and the caller has ended.
    ByNumber0,
}

/// What is done. Each stage has what the next portion needs.
#[allow(clippy::large_enum_variant, reason = "an exec has one, and is boxed")]
enum Stage {
    /// The arguments are being collected.
    Collecting(Text, Request),
    /// The file of the new program is being looked for.
    Finding(Image),
    /// The new program is being loaded.
    Loading(Box<New>),
    /// It is complete. The other virtual CPUs, from this number on, are being ended.
    Ending(Box<New>, Ready, usize),
    /// What a virtual CPU has left is being done. Then the others are being ended, from this number
    /// on; `None` after what the caller leaves, which comes last.
    Completing(Box<New>, Ready, Left, Option<usize>),
    /// Calls of the old program, in the cells from this number on, are being cancelled.
    Cancelling(Box<New>, Ready, usize),
    /// Files are being closed.
    Closing(Box<New>, Ready),
    /// The process has the new space. Mappings of the old one are being ended.
    Unmapping(Option<Remains>, Ready),
    /// What is left of the old space is being freed.
    Freeing(Option<Remains>, Ready),
    /// Nothing, after the last portion and after an error.
    Ended,
}

/// What is left to do after a portion that ends virtual CPUs.
enum Others {
    /// Those from this number on.
    More(usize),
    /// First what the one with this number, which has ended, has left.
    Left(Left, usize),
    /// Nothing: all others have ended.
    Ended,
}

/// The new program.
struct New {
    image: Image,
    space: AddressSpace,
}

/// A program that is complete.
struct Ready {
    start: Start,
    program: Program,
    personality: Personality,
    /// Virtual CPU 0 of the new program, if the calling one has another number.
    successor: Option<Arc<VirtualCpu>>,
}

impl Executing {
    /// For `execve(path, argv, envp)`, of which `request` collects the strings.
    pub fn new(path: Text, request: Request) -> Self {
        Self(Stage::Collecting(path, request))
    }

    /// What a portion waits for that has ended with [`Portion::Waits`].
    pub fn awaited(&self) -> Option<SharedAsk> {
        match &self.0 {
            Stage::Finding(image) => image.awaited(),
            Stage::Loading(new) => new.image.awaited(),
            _ => None,
        }
    }

    /// Executes a portion on behalf of `cpu`, which has the registers in `context`.
    ///
    /// # Errors
    /// As for [`Image::find_some`] and [`Image::resume`]; `EAGAIN` if another virtual CPU replaces
    /// the program, so that `cpu` ends.
    pub fn resume(
        &mut self,
        cpu: &VirtualCpu,
        context: &mut UserContext,
    ) -> Result<Portion<Begun>, Errno> {
        let process = &cpu.process;
        self.0 = match core::mem::replace(&mut self.0, Stage::Ended) {
            Stage::Collecting(path, mut request) => {
                if request.collect(process)? {
                    Stage::Collecting(path, request)
                } else {
                    let working = process.files.lock().working();
                    let arguments = request.take_arguments();
                    let asking = Asking::of(Some(process));
                    Stage::Finding(Image::new(path, working, arguments, asking)?)
                }
            }
            Stage::Finding(mut image) => match image.find_some()? {
                Portion::Done(()) => {
                    let space = AddressSpace::new(process.family)?;
                    Stage::Loading(try_box(New { image, space })?)
                }
                Portion::More => Stage::Finding(image),
                Portion::Waits => {
                    self.0 = Stage::Finding(image);
                    return Ok(Portion::Waits);
                }
            },
            Stage::Loading(mut new) => match new.image.resume(&process.areas(&new.space))? {
                Portion::More => Stage::Loading(new),
                Portion::Waits => {
                    self.0 = Stage::Loading(new);
                    return Ok(Portion::Waits);
                }
                Portion::Done((start, personality)) => {
                    let program = new.image.take_program(&start)?;
                    let successor =
                        if cpu.index == 0 { None } else { Some(try_arc(cpu.successor()?)?) };
                    if !process.begin_replacing(cpu) {
                        return Err(Errno::EAGAIN);
                    }
                    // From here on nothing can fail.
                    Stage::Ending(new, Ready { start, program, personality, successor }, 0)
                }
            },
            Stage::Ending(new, ready, from) => match process.end_some_others(cpu, from) {
                Others::More(next) => Stage::Ending(new, ready, next),
                Others::Left(left, next) => Stage::Completing(new, ready, left, Some(next)),
                Others::Ended => match process.take_robust(cpu) {
                    Some(list) => Stage::Completing(new, ready, Left::Mutexes(list), None),
                    None => Stage::Cancelling(new, ready, 0),
                },
            },
            Stage::Completing(new, ready, mut left, next) => {
                if left.do_some(process) {
                    Stage::Completing(new, ready, left, next)
                } else if let Some(next) = next {
                    Stage::Ending(new, ready, next)
                } else {
                    Stage::Cancelling(new, ready, 0)
                }
            }
            Stage::Cancelling(new, ready, first) => match process.cancel_some(first) {
                Some(next) => Stage::Cancelling(new, ready, next),
                None => Stage::Closing(new, ready),
            },
            Stage::Closing(mut new, ready) => {
                if process.close_some_on_exec() {
                    Stage::Closing(new, ready)
                } else {
                    process.space.exchange(&new.space);
                    Stage::Unmapping(new.space.take_remains(), ready)
                }
            }
            Stage::Unmapping(mut remains, ready) => {
                if remains.as_mut().is_some_and(Remains::end_mapping) {
                    Stage::Unmapping(remains, ready)
                } else {
                    process.return_memory();
                    Stage::Freeing(remains, ready)
                }
            }
            Stage::Freeing(mut remains, ready) => {
                if remains.as_mut().is_some_and(|remains| remains.free_some(PORTION_FRAMES)) {
                    Stage::Freeing(remains, ready)
                } else {
                    // Until here the call goes on, which the old personality understands.
                    let Ready { start, program, personality, successor } = ready;
                    process.replace_program(program, personality);
                    let begun = process.begin_program(cpu, context, &start, successor);
                    return Ok(Portion::Done(begun));
                }
            }
            Stage::Ended => return Err(Errno::ENOEXEC),
        };
        if process.is_being_replaced() {
            // The next portion begins without a return to the old program.
            cpu.signals.demand_attention();
        }
        Ok(Portion::More)
    }
}

impl Drop for Executing {
    fn drop(&mut self) {
        // If it failed, or the process has ended meanwhile.
        match core::mem::replace(&mut self.0, Stage::Ended) {
            Stage::Unmapping(Some(remains), _) | Stage::Freeing(Some(remains), _) => {
                remains.free_or_abandon();
            }
            _ => {}
        }
        if mm::any_abandoned() {
            reaper::look();
        }
    }
}

impl Process {
    /// What a program of this process shares with the kernel, in `space`.
    fn areas<'a>(&'a self, space: &'a AddressSpace) -> SharedAreas<'a> {
        let (page, ring) = (&self.page, &self.ring);
        SharedAreas { space, page, ring, trace_pages: self.trace_pages.as_ref() }
    }

    /// Makes `cpu` the only virtual CPU that may run. Returns false if it is to end itself.
    fn begin_replacing(&self, cpu: &VirtualCpu) -> bool {
        let mut cpus = self.cpus.lock();
        let begins = cpus.begin_replacing(cpu.index);
        if begins {
            // Before harts are interrupted: a hart that checks because of that sees it.
            self.halt(halt::REPLACING);
            cpus.kick();
        }
        begins
    }

    /// Whether `cpu` replaces the program.
    pub(super) fn is_replaced_by(&self, cpu: &VirtualCpu) -> bool {
        self.is_being_replaced() && self.cpus.lock().is_replacer(cpu.index)
    }

    /// Ends and removes some of the virtual CPUs beside `keeper`, from number `from` on.
    fn end_some_others(&self, keeper: &VirtualCpu, from: usize) -> Others {
        let mut next = from;
        for _ in 0..PORTION_CPUS {
            let mut cpus = self.cpus.lock();
            // Of a process that was stopped until now: ends one that is held.
            let _ = cpus.release_one();
            let Some((cpu, state)) = cpus.at_or_after(next) else {
                let threads = usize::from(keeper.index >= cops_abi::page::MAX_CPUS);
                let has_more = cpus.census().alive() > 1 || cpus.thread_count() != threads;
                let first = cpus.get(0).map(|(cpu, _)| cpu.clone());
                drop(cpus);
                if !has_more {
                    // The first thread keeps its number. It may have ended since this pass has
                    // looked at it.
                    let first = first.filter(|first| !core::ptr::eq(&**first, keeper));
                    let left = first.and_then(|first| self.take_left(&first));
                    return left.map_or(Others::Ended, |left| Others::Left(left, 0));
                }
                // Some had a hart, and end when they leave it: they are looked at again.
                self.hurry_paused();
                return Others::More(0);
            };
            let cpu = cpu.clone();
            next = cpu.index + 1;
            if core::ptr::eq(&*cpu, keeper) {
                continue;
            }
            let after = match state {
                // Asleep: what would wake it ends it.
                CpuState::Parked => cpus.apply(cpu.index, CpuEvent::Unpark),
                CpuState::Waiting => cpus.apply(cpu.index, CpuEvent::Complete),
                CpuState::Runnable => {
                    drop(cpus);
                    // Its level may be so low that it would never get a hart. If it is not in the
                    // queue, a hart is about to put it there or has just taken it.
                    let is_withdrawn = RUN_QUEUE.withdraw(&cpu);
                    cpus = self.cpus.lock();
                    let event = CpuEvent::Dispatch { hart: arch::hart_index() };
                    if is_withdrawn { cpus.apply(cpu.index, event) } else { None }
                }
                // Held ones end in their order.
                CpuState::Running { .. } | CpuState::Held => None,
                CpuState::Ended => Some(state),
            };
            if after != Some(CpuState::Ended) {
                continue;
            }
            drop(cpus);
            // Before its mutexes are released: it would be given another one afterwards. That may
            // take long, so it is looked at again in the next portion.
            if self.stop_waiting_for_lock(cpu.index) {
                return Others::More(cpu.index);
            }
            // As when it ends by itself: as long as its mutexes say that it has them, other
            // processes find it by its number.
            if let Some(left) = self.take_left(&cpu) {
                return Others::Left(left, cpu.index);
            }
            let removed = self.cpus.lock().remove_thread(cpu.index);
            drop(removed);
            cpu.leave_futex();
            cpu.leave_blocked();
            // What it was in the middle of may take long to free.
            let unfinished = cpu.unfinished.lock().take();
            if unfinished.is_some() {
                break;
            }
        }
        Others::More(next)
    }

    /// The new program, which is in place, begins on virtual CPU 0: `cpu`, which has replaced the
    /// old one and has the registers in `registers`, or its successor.
    fn begin_program(
        &self,
        cpu: &VirtualCpu,
        registers: &mut UserContext,
        start: &Start,
        successor: Option<Arc<VirtualCpu>>,
    ) -> Begun {
        let context = self.first_context(start);
        let begun = match &successor {
            None => {
                cpu.signals.forget_program();
                *registers = context;
                Begun::Here
            }
            Some(successor) => {
                successor.become_successor(cpu, context);
                Begun::ByNumber0
            }
        };
        let mut cpus = self.cpus.lock();
        let ended = cpus.end_replacing(successor.clone());
        self.has_threads.store(false, Relaxed);
        self.count_cpus(&cpus);
        self.unhalt(halt::REPLACING);
        drop(cpus);
        drop(ended);
        if let Some(successor) = successor {
            self.queue(successor);
        }
        begun
    }

    /// Cancels calls in flight and drops results that wait, in a portion of the cells, from number
    /// `first` on; then hands over the locks of the program, one in a portion. Returns the number
    /// to continue with; `None` if no call is left.
    ///
    /// The process makes no calls meanwhile, apart from an alarm that begins again when it rings.
    fn cancel_some(self: &Arc<Self>, first: usize) -> Option<usize> {
        if self.close_ring_some() {
            return Some(first);
        }
        let next = calls().cancel_some(self, first);
        if next.is_some() {
            return next;
        }
        if self.calls_in_flight.count() == 0 {
            return self.leave_a_lock_of_program().then_some(first);
        }
        // Another hart is delivering a result.
        Some(0)
    }

    /// Closes some of the files that the new program is not to have. Returns whether there may be
    /// more.
    fn close_some_on_exec(&self) -> bool {
        for _ in 0..PORTION_FILES {
            let file = self.files.lock().pop_close_on_exec();
            let Some(file) = file else { return false };
            self.close(file);
        }
        true
    }

    /// Replaces the program, of which the process makes no calls any more, by the one of which it
    /// has the space.
    fn replace_program(self: &Arc<Self>, program: Program, personality: Personality) {
        self.ring.reopen();
        self.page.clear();
        self.woken.store(0, SeqCst);
        self.interrupt_priority.store(None, SeqCst);
        self.set_kernel_model(COROUTINES);
        let before = core::mem::replace(&mut *self.program.lock(), program);
        // Without the lock: its file may have no name, and is freed then.
        drop(before);
        self.personality.become_other(personality);
        children::has_executed(self.id);
        let first = self.cpus.lock().get(0).map(|(cpu, _)| cpu.clone());
        if let Some(cpu) = first {
            cpu.forget_thread();
            if let Some(thread) = cpu.as_thread() {
                // It inherits nothing any more.
                self.set_thread_priority(&cpu, thread.base_priority());
            }
        }
        begin_page(&self.page, self.ceiling.priority());
        self.restart_alarm();
    }
}
