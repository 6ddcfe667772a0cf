//! Running a virtual CPU: from entering user mode, over its traps, to the reason for which it
//! stops.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cops_abi::Priority;
use cops_abi::errno::encode;
use cops_abi::inspect::{cause, portion};
use cops_abi::page::level_number;
use cops_abi::syscall::signal;
use cops_algorithms::signals::Information;
use cops_algorithms::slice::Slice;
use cops_algorithms::turn::Turn;

use super::blocked::CONTINUE;
use super::cpu::{RUN_QUEUE, VirtualCpu};
use super::{Blocked, Thread, WaitStatus, resumable};
use crate::arch::{self, Access, Fault, UserContext, UserTrap};
use crate::counters::COUNTERS;
use crate::machine::device_tree;
use crate::mm::FaultError;
use crate::portions;
use crate::sched::hart_time::Running;
use crate::sched::{
    Stopped, Switcher, any_asleep, arrivals, doorbell, kernel_waiting, others_are_behind,
    publish_hart, publish_hart_in_kernel, spread, timer,
};
use crate::trace::{self, Event};
use crate::vdso;

/// Set by the boot argument `preempt=tick`: whatever becomes ready waits for the end of the current
/// slice, even if it is more urgent. For measurements of the system without preemption on wake.
static ONLY_AT_TICKS: AtomicBool = AtomicBool::new(false);

/// A virtual CPU that may hold a lock, of the executor or of its program, and got its hart for what
/// waits for that, is looked at again after this time. It needs some hundreds of instructions.
const BRIEF_MICROSECONDS: u64 = 50;

/// Reads the boot argument, before the first process starts.
pub fn configure() {
    ONLY_AT_TICKS.store(device_tree::boot_argument("preempt") == Some("tick"), Relaxed);
}

/// Whether what becomes ready waits for the end of the slice. Asked only if something is ready.
pub(super) fn is_only_at_ticks() -> bool {
    ONLY_AT_TICKS.load(Relaxed)
}

/// A virtual CPU's time on a hart: what it may use and what it has used.
struct OnHart<'a> {
    slice: &'a mut Slice,
    turn: &'a mut Turn,
    running: Running,
    /// Its urgency is that of others: it has a thread that was stopped inside the executor, or a
    /// donation. The clock is set to look at it before its slice ends.
    is_brief: bool,
}

impl OnHart<'_> {
    /// Whether equally urgent coroutines of the kernel, which are ready, run first.
    fn gives_turn(&mut self) -> bool {
        self.turn.give(arch::now_ticks(), timer::slice_ticks(), others_are_behind())
    }

    /// The moment with the urgency of others is over: the rest of its slice begins.
    #[cold]
    fn end_brief(&mut self) {
        self.is_brief = false;
        let now_ticks = arch::now_ticks();
        self.slice.pause(now_ticks);
        timer::begin_slice(self.slice.begin(now_ticks));
    }

    /// After the renewal of the slice: accounts for the use of the previous one.
    fn begin_anew(&mut self, cpu: &VirtualCpu) {
        let last = core::mem::replace(&mut self.running, Running::begin(cpu.process.id, cpu.index));
        cpu.process.account.use_ticks(last.end(&cpu.run_ticks));
        // The end has cleared what the beginning sets.
        self.running = Running::begin(cpu.process.id, cpu.index);
        timer::begin_slice(self.slice.begin(arch::now_ticks()));
    }
}

/// What happens to a virtual CPU after a system call.
#[must_use]
pub enum Outcome {
    /// It continues with its result.
    Return,
    /// It continues after others have run.
    Yield,
    /// It sleeps or has ended, according to its state.
    Sleep,
}

/// Runs `cpu` on this hart until it stops, and charges it from `begin_ticks` on; `handle_call`
/// executes its system calls. Returns why and when it stopped.
pub fn run(
    handle_call: impl Fn(&Arc<VirtualCpu>, &mut UserContext) -> Outcome,
    me: Switcher,
    cpu: &Arc<VirtualCpu>,
    slice: &mut Slice,
    turn: &mut Turn,
    begin_ticks: u64,
) -> (Stopped, u64) {
    let process = &cpu.process;
    let mut context = cpu.context.lock();
    let Ok(result) = process.start_running(cpu) else {
        process.report_stop();
        return (Stopped::Gone, begin_ticks);
    };
    let continues = result == Some(CONTINUE);
    if let Some(result) = result.filter(|_| !continues) {
        // Before the result takes the place of the first argument.
        if process.after_call(cpu, &context.syscall(), result) {
            context.set_result(process.personality.result(result) as usize);
        }
    }
    context.restore_floating_point();
    let is_brief = cpu.as_thread().is_some_and(Thread::is_in_executor) || cpu.has_donation();
    let running = Running::begin(cpu.process.id, cpu.index);
    let mut on_hart = OnHart { slice, turn, running, is_brief };
    let mut end_ticks = on_hart.slice.begin(begin_ticks);
    if is_brief {
        // Its urgency is that of others until it next enters the kernel.
        let ticks = arch::ticks_per_second() * BRIEF_MICROSECONDS / 1_000_000;
        end_ticks = end_ticks.min(begin_ticks + ticks);
    }
    timer::begin_slice(end_ticks);
    RUN_QUEUE.entering(cpu);
    arch::begin_program();
    let blocked = if continues { continue_blocked(cpu, &mut context) } else { None };
    let stopped = match blocked {
        None => run_until_stopped(handle_call, me, cpu, &mut context, &mut on_hart),
        Some(stopped) => stopped,
    };
    if process.personality.is_native()
        && let Some(thread) = cpu.as_thread()
    {
        thread.set_in_executor(vdso::is_executed_at(context.program_counter()));
    }
    arch::end_program();
    publish_hart_in_kernel();
    timer::end_slice();
    let stopped_ticks = arch::now_ticks();
    on_hart.slice.pause(stopped_ticks);
    process.account.use_ticks(on_hart.running.end(&cpu.run_ticks));
    context.save_floating_point();
    if stopped != Stopped::Paused {
        doorbell::settle();
    }
    // A wake may already have made it runnable; a hart that takes it waits for this lock.
    (stopped, stopped_ticks)
}

/// A thread that blocks in a call itself attempts it. Returns why it stops, unless the call is
/// completed.
#[cold]
#[inline(never)]
fn continue_blocked(cpu: &Arc<VirtualCpu>, context: &mut UserContext) -> Option<Stopped> {
    match cpu.continue_blocked() {
        Blocked::Done(result) => {
            context.set_result(encode(result) as usize);
            None
        }
        Blocked::Sleeps => Some(Stopped::Gone),
        Blocked::Yields => Some(Stopped::Preempted),
    }
}

fn run_until_stopped(
    handle_call: impl Fn(&Arc<VirtualCpu>, &mut UserContext) -> Outcome,
    me: Switcher,
    cpu: &Arc<VirtualCpu>,
    context: &mut UserContext,
    on_hart: &mut OnHart<'_>,
) -> Stopped {
    let process = &cpu.process;
    // The level that this coroutine's priority shows to other harts.
    let mut published = None;
    loop {
        let mut stop = None;
        let trap = arch::enter_user_unless(
            context,
            || process.space.activate(),
            |context| {
                stop = reason_to_stop(me, cpu, on_hart, &mut published);
                if stop.is_none() {
                    process.deliver_interrupt(cpu, context);
                    trace::emit(move || {
                        cpu.event(|process, index| Event::EnterUser {
                            process,
                            cpu: index,
                            level: cpu.priority().level(),
                        })
                    });
                }
                // Signals are delivered below, with interrupts enabled.
                stop.is_some() || cpu.signals.is_due()
            },
        );
        if let Some(stop) = stop {
            trace::emit(move || trace_stop(cpu, stop));
            return stop;
        }
        COUNTERS.traps_from_user.add(1);
        // Nothing stands between here and the call itself: the kind of the trap need not be stored
        // for it.
        let is_call = if let UserTrap::Syscall = trap {
            if trace::is_on() {
                trace_trap(cpu, UserTrap::Syscall, context);
            }
            COUNTERS.system_calls.add(1);
            cpu.entered_by.store(cause::CALL as u8, Relaxed);
            true
        } else {
            if let UserTrap::Interrupt = trap {
                spread::note_interrupt();
            }
            if trace::is_on() {
                trace_trap(cpu, trap, context);
            }
            // A portion of an `execve` that cannot fail any more: nothing else comes before the new
            // program. Or one of another call that no handler may interrupt.
            matches!(trap, UserTrap::Interrupt)
                && cpu.signals.is_due()
                && (process.is_replaced_by(cpu) || resumable::comes_first(cpu))
        };
        // In one place, so that the compiler inlines it: a call costs each system call some 20
        // instructions.
        if is_call {
            match handle_call(cpu, context) {
                Outcome::Return => continue,
                Outcome::Yield => return Stopped::Preempted,
                Outcome::Sleep => return Stopped::Gone,
            }
        }
        match trap {
            // Also without a trap, for signals that are due.
            UserTrap::Interrupt if cpu.signals.is_due() => process.deliver_signals(cpu, context),
            UserTrap::Interrupt | UserTrap::Syscall => {
                if on_hart.is_brief {
                    on_hart.end_brief();
                }
                cpu.entered_by.store(cause::INTERRUPT as u8, Relaxed);
            }
            UserTrap::Fault(fault) => {
                cpu.entered_by.store(cause::EXCEPTION as u8, Relaxed);
                portions::is(portion::FAULT, || {
                    let address = match fault {
                        Fault::Page { address, .. } => address as u64,
                        _ => 0,
                    };
                    (0, [address, 0, 0, 0])
                });
                handle_fault(cpu, context, &fault);
            }
        }
    }
}

/// Records the trace event for a trap, after the events that the process itself has written.
///
/// Out of line: what the event is made from would otherwise be copied while tracing is off, too.
#[cold]
#[inline(never)]
fn trace_trap(cpu: &VirtualCpu, trap: UserTrap, context: &UserContext) {
    if let Some(pages) = &cpu.process.trace_pages {
        pages.collect(cpu.process.id, cpu.index);
    }
    let coroutine = cpu.process.current_coroutine(cpu.index);
    let event = cpu.event(|process, cpu| match trap {
        UserTrap::Interrupt => Event::Interrupted { process, cpu, coroutine },
        UserTrap::Fault(_) => Event::Fault { process, cpu, coroutine },
        UserTrap::Syscall => {
            let call = context.syscall();
            Event::SystemCall {
                process,
                cpu,
                coroutine: call.coroutine as u64,
                number: call.number as u64,
            }
        }
    });
    trace::emit(move || event);
}

/// The trace event for the end of a slice.
fn trace_stop(cpu: &VirtualCpu, stop: Stopped) -> Event {
    cpu.event(|process, cpu| match stop {
        Stopped::Paused => Event::Paused { process, cpu },
        _ => Event::Preempted { process, cpu, level: level_number(RUN_QUEUE.most_urgent()) as u8 },
    })
}

/// Whether something else is to run on this hart before `cpu` continues.
///
/// Called at every kernel entry, with interrupts off. It reads the priority of the process again,
/// because the process may have made something more or less urgent ready, or may have been woken
/// for it.
fn reason_to_stop(
    me: Switcher,
    cpu: &Arc<VirtualCpu>,
    on_hart: &mut OnHart<'_>,
    published: &mut Option<Priority>,
) -> Option<Stopped> {
    let process = &cpu.process;
    if process.is_halted() && process.must_leave(cpu) {
        return Some(Stopped::Preempted);
    }
    let now_ticks = arch::now_ticks();
    if arrivals::are_awaited() {
        arrivals::look(now_ticks);
    }
    let (priority, waiting) = process.refresh_priority(cpu);
    let is_over = on_hart.slice.is_over(now_ticks);
    if is_over {
        // One that came when it ran already.
        cpu.end_donation();
        process.publish();
        process.hurry(cpu);
        process.gather(cpu);
        if !RUN_QUEUE.renew(me.number, priority, &process.account, on_hart.slice) {
            return Some(Stopped::Preempted);
        }
        on_hart.begin_anew(cpu);
    }
    let must_wait = || !is_over && is_only_at_ticks();
    if RUN_QUEUE.must_stop(me.number, priority, on_hart.slice) && !must_wait() {
        return Some(Stopped::Preempted);
    }
    let kernel = kernel_waiting();
    if let Some(kernel) = Priority::most_urgent_in(kernel).filter(|_| !must_wait())
        // Equals alternate, and this coroutine has had its turn once it has been in user mode.
        && (kernel.is_more_urgent_than(priority) || kernel == priority && on_hart.gives_turn())
    {
        return Some(Stopped::Paused);
    }
    if any_asleep() {
        process.spread(priority, waiting, kernel);
    }
    if *published != Some(priority) {
        if on_hart.is_brief && published.is_none() {
            // It runs now, and counts as what it is when it next enters the kernel.
            cpu.end_donation();
            if let Some(thread) = cpu.as_thread() {
                thread.set_in_executor(false);
            }
        }
        // Other harts use this to decide which hart to interrupt for something more urgent.
        me.set_priority(priority);
        publish_hart(priority, process.id);
        *published = Some(priority);
    }
    // Kept across pauses for something more urgent: an equal that has become ready in the meantime
    // runs next.
    on_hart.turn.take(arch::now_ticks);
    if doorbell::is_owed() {
        let first = Priority::most_urgent_in(waiting);
        let has_peers = first.is_some_and(|waiting| !priority.is_more_urgent_than(waiting));
        doorbell::settle_before_user_mode(has_peers);
    }
    None
}

/// Allocates the page if the process may access it, otherwise ends the process.
///
/// Out of line: the compiler would otherwise load its constants before the loop of
/// `run_until_stopped`, which costs each entry from the run queue some 40 instructions.
#[inline(never)]
fn handle_fault(cpu: &Arc<VirtualCpu>, context: &UserContext, fault: &Fault) {
    let process = &cpu.process;
    // The first code of each of these signals, which is that of all faults but one.
    let mut code = 1;
    let number = match *fault {
        Fault::Page { address, access } => match process.space.handle_fault(address, access) {
            Ok(()) => return,
            Err(FaultError::OutOfMemory) => {
                log::warn!("{process}: killed: out of memory at {address:#x}");
                process.end(WaitStatus::Signalled(signal::SIGKILL));
                return;
            }
            Err(FaultError::NotAllowed) => signal::SIGSEGV,
            Err(FaultError::NoPage) => {
                // As on Linux, for an address that does not exist.
                code = 2;
                signal::SIGBUS
            }
        },
        Fault::AccessFault { .. } => signal::SIGSEGV,
        Fault::Misaligned { .. } => signal::SIGBUS,
        Fault::IllegalInstruction => signal::SIGILL,
        Fault::Breakpoint => signal::SIGTRAP,
    };
    let fields = match *fault {
        Fault::Page { address, .. } | Fault::AccessFault { address, .. } => [address as u64, 0],
        Fault::Misaligned { address } => [address as u64, 0],
        _ => [context.program_counter() as u64, 0],
    };
    let information = Information { signal: number, code, fields };
    if process.handles_fault(cpu, information) {
        return;
    }
    if process.end(WaitStatus::Signalled(number)) {
        let pc = context.program_counter();
        match *fault {
            Fault::Page { address, access } | Fault::AccessFault { address, access } => {
                let verb = match access {
                    Access::Read => "read",
                    Access::Write => "write",
                    Access::Execute => "execute",
                };
                log::warn!("{process}: cannot {verb} {address:#x} at pc {pc:#x}");
            }
            ref other => log::warn!("{process}: {other} at pc {pc:#x}"),
        }
    }
}
