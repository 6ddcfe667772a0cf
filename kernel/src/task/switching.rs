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

/// Why a virtual CPU left the hart.
enum Left {
    /// Others are to run; it goes on later.
    Preempted,
    /// It sleeps, waits or has ended; its state says which.
    Gone,
}

/// The switching coroutine that belongs to `hart`. It never ends.
///
/// It may be polled on another hart if its own is busy: it then runs its virtual CPU there.
pub async fn switching(hart: usize) {
    let Some(me) = cops_executor::current() else { return };
    let mut level = Priority::DEFAULT.level();
    poll_fn(|context| {
        let Some(cpu) = RUN_QUEUE.pop_or_idle(hart, me) else { return Poll::<()>::Pending };
        if cpu.level() != level {
            level = cpu.level();
            cops_executor::set_priority(me, Priority::saturating(u32::from(level)));
        }
        run(&cpu);
        drop(cpu);
        // To the end of the line of its level: the kernel's coroutines and the other processes come first.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Runs `cpu` on this hart until it leaves.
fn run(cpu: &Arc<VirtualCpu>) {
    let process = &cpu.process;
    let mut context = cpu.context.lock();
    let Ok(result) = process.start_running(cpu) else { return };
    if let Some(result) = result {
        context.set_result(result as usize);
    }
    COUNTERS.cpu_switches.add(1);
    context.restore_floating_point();
    let left = run_until_left(cpu, &mut context);
    context.save_floating_point();
    timer::end_slice();
    // The state may have been changed to runnable by a wake already; whoever takes it waits for this lock.
    drop(context);
    if let Left::Preempted = left {
        process.stop_running(cpu);
    }
}

fn run_until_left(cpu: &Arc<VirtualCpu>, context: &mut UserContext) -> Left {
    let slice_end_ticks = timer::begin_slice();
    loop {
        let mut leave = false;
        let trap = arch::enter_user_unless(context, &cpu.process.space, || {
            leave = cpu.process.is_ending() || should_leave(cpu.level(), slice_end_ticks);
            leave
        });
        if leave {
            return Left::Preempted;
        }
        COUNTERS.traps_from_user.add(1);
        match trap {
            UserTrap::Interrupt => {}
            UserTrap::Syscall => {
                COUNTERS.system_calls.add(1);
                match syscall::handle(cpu, context) {
                    syscall::Outcome::Return => {}
                    syscall::Outcome::Yield => return Left::Preempted,
                    syscall::Outcome::Sleep => return Left::Gone,
                }
            }
            UserTrap::Fault(fault) => handle_fault(cpu, context, &fault),
        }
    }
}

/// Whether something else is to run on this hart now: anything more urgent, and anything at all that
/// is equally urgent when the slice is over.
fn should_leave(level: u8, slice_end_ticks: u64) -> bool {
    let mine = Priority::saturating(u32::from(level));
    let worker = arch::hart_index() as u32;
    if let Some(waiting) = super::executor().most_urgent(worker) {
        if waiting.is_more_urgent_than(mine) {
            return true;
        }
        // It waits for the end of the slice, unless a hart sleeps that could take it now.
        super::executor().offer(worker);
    }
    if RUN_QUEUE.most_urgent() < u32::from(level) {
        return true;
    }
    // At the end of a slice it leaves even if nobody waits: the next one begins by coming back, once in 10 ms.
    arch::now_ticks() >= slice_end_ticks
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
