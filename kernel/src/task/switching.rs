//! The switching coroutine: one per hart, an ordinary coroutine of the kernel whose poll enters user mode.
//!
//! So choosing a process is not a second scheduler: the executor decides by priority between this
//! coroutine and the kernel's others, and this coroutine decides which virtual CPU it stands for.
//! Its priority is that of the virtual CPU it runs or will run next.
//! May touch: the run queue, processes, `arch::enter_user`, the system call dispatcher.

use alloc::sync::Arc;
use core::future::poll_fn;
use core::task::Poll;

use cops_abi::{Priority, syscall::signal, syscall::wait_status};

use super::counters::COUNTERS;
use super::cpu::VirtualCpu;
use super::run_queue::RUN_QUEUE;
use super::timer;
use crate::arch::{self, Access, Fault, UserContext, UserTrap};
use crate::log;
use crate::mm::FaultError;
use crate::syscall;

/// Why a virtual CPU stopped running for the moment.
enum Stopped {
    /// Coroutines of the kernel are to run first; it keeps the hart.
    Paused,
    /// Another virtual CPU is to run; it goes back into the run queue.
    Preempted,
    /// It sleeps, waits or has ended; its state says which.
    Gone,
}

/// The switching coroutine that belongs to `hart`. It never ends.
///
/// It may be polled on another hart if its own is busy: it then runs its virtual CPU there.
pub async fn switching(hart: usize) {
    let Some(me) = cops_executor::current() else { return };
    let mut in_hand: Option<(Arc<VirtualCpu>, Slice)> = None;
    poll_fn(|context| {
        let (cpu, slice) = match in_hand.take() {
            Some(paused) => paused,
            None => match RUN_QUEUE.pop_or_idle(hart, me) {
                Some(cpu) => (cpu, Slice::new()),
                None => return Poll::<()>::Pending,
            },
        };
        match run(&cpu, &slice) {
            Stopped::Paused => in_hand = Some((cpu, slice)),
            Stopped::Preempted => cpu.process.stop_running(&cpu),
            Stopped::Gone => {}
        }
        // The priority of what this coroutine will do next.
        let mine = in_hand.as_ref().map_or(64, |(cpu, _)| u32::from(cpu.level()));
        let next = mine.min(RUN_QUEUE.most_urgent());
        // Compared with what it really is: the run queue changes it too, when it wakes an idle one.
        if next < 64 && cops_executor::priority(me) != Priority::new(next as u8) {
            cops_executor::set_priority(me, Priority::saturating(next));
        }
        // To the end of the line of its level: what else is as urgent comes first.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// How long a virtual CPU has the hart if others of its priority want it.
struct Slice {
    end_ticks: u64,
}

impl Slice {
    fn new() -> Self {
        COUNTERS.cpu_switches.add(1);
        Self { end_ticks: timer::slice_end_from_now() }
    }

    fn is_over(&self) -> bool {
        arch::now_ticks() >= self.end_ticks
    }
}

/// Runs `cpu` on this hart until it stops.
fn run(cpu: &Arc<VirtualCpu>, slice: &Slice) -> Stopped {
    let process = &cpu.process;
    let mut context = cpu.context.lock();
    let Ok(result) = process.start_running(cpu) else { return Stopped::Gone };
    if let Some(result) = result {
        context.set_result(result as usize);
    }
    context.restore_floating_point();
    timer::begin_slice(slice.end_ticks);
    let stopped = run_until_stopped(cpu, &mut context, slice);
    timer::end_slice();
    context.save_floating_point();
    // The state may have been changed to runnable by a wake already; whoever takes it waits for this lock.
    stopped
}

fn run_until_stopped(cpu: &Arc<VirtualCpu>, context: &mut UserContext, slice: &Slice) -> Stopped {
    loop {
        let mut stop = None;
        let trap = arch::enter_user_unless(context, &cpu.process.space, || {
            stop = reason_to_stop(cpu, slice);
            stop.is_some()
        });
        if let Some(stop) = stop {
            return stop;
        }
        COUNTERS.traps_from_user.add(1);
        match trap {
            UserTrap::Interrupt => {}
            UserTrap::Syscall => {
                COUNTERS.system_calls.add(1);
                match syscall::handle(cpu, context) {
                    syscall::Outcome::Return => {}
                    syscall::Outcome::Yield => return Stopped::Preempted,
                    syscall::Outcome::Sleep => return Stopped::Gone,
                }
            }
            UserTrap::Fault(fault) => handle_fault(cpu, context, &fault),
        }
    }
}

/// Whether something else is to run on this hart before `cpu` goes on.
///
/// Asked at every kernel entry, with interrupts off. The priority of the process is looked at
/// afresh: it may have made something more or less urgent ready, or been woken for it.
fn reason_to_stop(cpu: &Arc<VirtualCpu>, slice: &Slice) -> Option<Stopped> {
    if cpu.process.is_ending() {
        return Some(Stopped::Preempted);
    }
    let level = cpu.process.refresh_level(cpu);
    let waiting = RUN_QUEUE.most_urgent();
    if waiting < u32::from(level) || slice.is_over() {
        // At the end of a slice even if nobody waits: the next one begins by coming back, once in 10 ms.
        return Some(Stopped::Preempted);
    }
    let worker = arch::hart_index() as u32;
    let kernel = super::executor().most_urgent(worker)?;
    if Priority::saturating(u32::from(level)).is_more_urgent_than(kernel) {
        // It waits here, unless a hart that sleeps can take it now.
        super::executor().offer(worker);
        return None;
    }
    // Equals take turns, and this coroutine has just had its own.
    Some(Stopped::Paused)
}

/// Brings the page in if the process may have it, otherwise ends the process.
fn handle_fault(cpu: &Arc<VirtualCpu>, context: &UserContext, fault: &Fault) {
    let process = &cpu.process;
    let number = match *fault {
        Fault::Page { address, access } => match process.space.handle_fault(address, access) {
            Ok(()) => return,
            Err(FaultError::OutOfMemory) => {
                log::warn!(
                    "process {} ({}): killed: out of memory at {address:#x}",
                    process.id,
                    process.name
                );
                process.end(wait_status::signalled(signal::SIGKILL));
                return;
            }
            Err(FaultError::NotAllowed) => signal::SIGSEGV,
        },
        Fault::AccessFault { .. } => signal::SIGSEGV,
        Fault::Misaligned { .. } => signal::SIGBUS,
        Fault::IllegalInstruction => signal::SIGILL,
        Fault::Breakpoint => signal::SIGTRAP,
    };
    if process.end(wait_status::signalled(number)) {
        let pc = context.program_counter();
        match *fault {
            Fault::Page { address, access } | Fault::AccessFault { address, access } => {
                let verb = match access {
                    Access::Read => "read",
                    Access::Write => "write",
                    Access::Execute => "execute",
                };
                log::warn!(
                    "process {} ({}): cannot {verb} {address:#x} at pc {pc:#x}",
                    process.id,
                    process.name
                );
            }
            ref other => log::warn!("process {} ({}): {other} at pc {pc:#x}", process.id, process.name),
        }
    }
}
