//! The system calls of Linux programs: those that only they can make, and those with arguments that
//! differ from the native ones. All others are the native calls (decision 27).
#![forbid(unsafe_code)]

mod descriptors;
mod locks;
mod memory;
mod priority;
mod signals;
mod socket;
mod system;
mod timers;
mod transfer;

pub(super) use socket::set_option as set_socket_option;

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use cops_abi::Errno;
use cops_abi::errno::encode;
use cops_abi::linux::{self as number, clock, flush_flags};
use cops_abi::syscall::{self as native, CLOCK_MONOTONIC, CLOCK_REALTIME};

use super::arguments::{Arguments, Clock};
use super::{Reply, conclude_other, measure, process, submit, time};
use crate::arch::{SyscallFrame, UserContext};
use crate::call;
use crate::log;
use crate::mm::layout::PAGE_BYTES;
use crate::process::{Outcome, Thread, VirtualCpu};
use crate::sched::Waiting;

/// Executes the system call of which `context` has the registers.
///
/// What is not a native call that succeeds at once is out of line, so that this function saves few
/// registers.
pub fn handle(cpu: &Arc<VirtualCpu>, context: &mut UserContext) -> Outcome {
    // The registers of coroutine and token belong to the program: no call is asynchronous.
    let mut frame = SyscallFrame { coroutine: 0, token: 0, ..context.syscall() };
    measure(&frame);
    if !native::is_in(&SAME_AS_NATIVE, frame.number) {
        return handle_different(cpu, &mut frame, context);
    }
    context.skip_syscall();
    let reply = super::dispatch(cpu, &frame, context);
    finish(cpu, &frame, context, reply)
}

/// Executes a call that is not the native one.
#[inline(never)]
fn handle_different(
    cpu: &Arc<VirtualCpu>,
    frame: &mut SyscallFrame,
    context: &mut UserContext,
) -> Outcome {
    if frame.number == number::RT_SIGRETURN {
        // All registers are restored, so there is no result and no instruction to skip.
        cpu.process.return_from_signal(cpu, context);
        return Outcome::Return;
    }
    context.skip_syscall();
    let reply = dispatch(cpu, frame, context);
    finish(cpu, frame, context, reply)
}

/// Writes the reply to a call into the registers.
#[inline(always)]
fn finish(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    context: &mut UserContext,
    reply: Result<Reply, Errno>,
) -> Outcome {
    if let Ok(Reply::Done(Ok(value))) = reply {
        context.set_result(value);
        return Outcome::Return;
    }
    finish_other(cpu, frame, context, reply)
}

/// Writes any other reply than success into the registers.
#[inline(never)]
fn finish_other(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    context: &mut UserContext,
    reply: Result<Reply, Errno>,
) -> Outcome {
    let error = match &reply {
        Ok(Reply::Done(Err(error))) => Some(*error),
        Err(Errno::EPIPE) => Some(Errno::EPIPE),
        _ => None,
    };
    if let Some(error) = error
        && !cpu.process.after_call(cpu, frame, encode(Err(error)))
    {
        return Outcome::Return;
    }
    conclude_other(cpu, frame, context, reply)
}

/// The calls that have a number of native ones, and mean the same or more here: [`dispatch`] gets
/// them first.
const DIFFERENT: [usize; 18] = [
    native::CLOCK_GETTIME,
    native::CLOCK_NANOSLEEP,
    native::MPROTECT,
    native::SENDTO,
    native::RECVFROM,
    native::SHUTDOWN,
    native::READ,
    native::WRITE,
    native::PREAD64,
    native::PWRITE64,
    native::READV,
    native::WRITEV,
    native::PREADV,
    native::PWRITEV,
    native::FCNTL,
    native::PPOLL,
    native::PSELECT6,
    native::EPOLL_PWAIT,
];

/// A bit for each call that is the native one.
const SAME_AS_NATIVE: [u64; native::NUMBER_WORDS] =
    native::without(native::LINUX_NUMBERS, &DIFFERENT);

/// Decodes the arguments and executes the call.
fn dispatch(
    cpu: &Arc<VirtualCpu>,
    frame: &mut SyscallFrame,
    context: &mut UserContext,
) -> Result<Reply, Errno> {
    let process = &cpu.process;
    let linux = process.personality.as_linux().ok_or(Errno::ENOSYS)?;
    match frame.number {
        native::CLOCK_GETTIME | native::CLOCK_NANOSLEEP | number::CLOCK_GETRES => {
            frame.arguments[0] = match frame.arguments[0] {
                clock::MONOTONIC_RAW | clock::MONOTONIC_COARSE | clock::BOOTTIME => CLOCK_MONOTONIC,
                clock::REALTIME_COARSE => CLOCK_REALTIME,
                other => other,
            };
        }
        _ => {}
    }
    let args = Arguments::new(process, frame);
    Ok(match frame.number {
        number::BRK => memory::set_break(cpu, linux, frame, args.number(0)),
        native::MPROTECT if args.number(1) == 0 => Reply::Done(Ok(0)),
        // Nothing that the program could change is at an address that is none.
        native::MPROTECT
            if args.own_pages(0).is_err() && args.number(0).is_multiple_of(PAGE_BYTES) =>
        {
            return Err(Errno::ENOMEM);
        }
        number::MREMAP => memory::remap(cpu, frame, &args)?,
        number::MADVISE => memory::advise(cpu, frame, &args)?,
        number::FLUSH_ICACHE => {
            args.flags(2, flush_flags::LOCAL)?;
            process.space.sync_instruction_stream();
            Reply::Done(Ok(0))
        }

        native::CLOCK_GETTIME if args.number(0) == clock::PROCESS_CPUTIME => {
            let ticks = process.account.used_ticks_until_now();
            system::cpu_time(process, ticks, args.structure(1, 16)?).into()
        }
        native::CLOCK_GETTIME if args.number(0) == clock::THREAD_CPUTIME => {
            system::cpu_time(process, cpu.used_ticks(), args.structure(1, 16)?).into()
        }
        number::CLOCK_GETRES => {
            let clock = args.number(0);
            if clock != clock::PROCESS_CPUTIME && clock != clock::THREAD_CPUTIME {
                args.clock(0)?;
            }
            system::resolution(process, args.optional_structure(1, time::TIMESPEC_BYTES)?).into()
        }
        number::NANOSLEEP => {
            let duration = args.structure(0, time::TIMESPEC_BYTES)?;
            submit(cpu, frame, time::sleep(process, Clock::Monotonic, 0, duration)?)
        }
        number::GETTIMEOFDAY => {
            system::time_of_day(process, args.optional_structure(0, 16)?).into()
        }

        number::TIMERFD_CREATE => timers::create(process, &args).into(),
        number::TIMERFD_SETTIME => timers::set(cpu, &args).into(),
        number::TIMERFD_GETTIME => timers::get(process, &args).into(),
        number::GETITIMER => system::alarm(process, &args).into(),
        number::SETITIMER => system::set_alarm(cpu, &args).into(),

        number::UNAME => system::name(process, args.number(0)).into(),
        number::SYSINFO => system::information(process, args.number(0)).into(),
        number::GETRUSAGE => {
            let into = args.structure(1, call::USAGE_BYTES)?;
            system::usage(cpu, args.signed(0), into).into()
        }
        number::TIMES => {
            system::times(process, args.optional_structure(0, system::TIMES_BYTES)?).into()
        }
        number::SETUID | number::SETGID => system::set_users(&args, 1).into(),
        number::SETREUID | number::SETREGID => system::set_users(&args, 2).into(),
        number::SETRESUID | number::SETRESGID => system::set_users(&args, 3).into(),
        number::GETRESUID | number::GETRESGID => system::users(process, &args).into(),
        number::GETGROUPS => Reply::Done(Ok(0)),
        number::GETUID | number::GETEUID | number::GETGID | number::GETEGID => Reply::Done(Ok(0)),
        number::PRLIMIT64 => {
            system::limit(process, args.number(0), args.number(1), args.number(2), args.number(3))
                .into()
        }
        number::GETRLIMIT => system::limit(process, 0, args.number(0), 0, args.number(1)).into(),
        number::SETRLIMIT => system::limit(process, 0, args.number(0), args.number(1), 0).into(),
        number::SETPRIORITY => {
            priority::set_nice(cpu, args.number(0), args.number(1), args.signed(2)).into()
        }
        number::GETPRIORITY => priority::nice(cpu, args.number(0), args.number(1)).into(),
        number::SCHED_SETSCHEDULER => {
            let parameter = priority::parameter_at(&args, 2)?;
            priority::set_policy(cpu, args.number(0), Some(args.number(1)), parameter).into()
        }
        number::SCHED_SETPARAM => {
            let parameter = priority::parameter_at(&args, 1)?;
            priority::set_policy(cpu, args.number(0), None, parameter).into()
        }
        number::SCHED_GETSCHEDULER => priority::policy(cpu, args.number(0)).into(),
        number::SCHED_GETPARAM => {
            let into = priority::parameter_at(&args, 1)?;
            priority::parameter(cpu, args.number(0), into).into()
        }
        number::SCHED_GET_PRIORITY_MAX => priority::limit(args.number(0), true).into(),
        number::SCHED_GET_PRIORITY_MIN => priority::limit(args.number(0), false).into(),
        number::SCHED_GETAFFINITY => {
            system::affinity(process, args.number(0), args.number(1), args.number(2)).into()
        }

        number::WAITID => {
            let options = args.flags(3, process::WAITID_OPTIONS)?;
            let (which, usage) = ((args.number(0), args.number(1)), call::USAGE_BYTES);
            let into = args.optional_structure(2, call::INFORMATION_BYTES)?;
            let usage = args.optional_structure(4, usage)?;
            let own = &cpu.process;
            submit(cpu, frame, process::wait_for_information(own, which, into, options, usage)?)
        }
        number::GETTID => Reply::Done(Ok(thread_of(cpu)?.id as usize)),
        number::SET_TID_ADDRESS => {
            let thread = thread_of(cpu)?;
            thread.clear_at_end.store(args.number(0), Relaxed);
            Reply::Done(Ok(thread.id as usize))
        }
        number::SET_ROBUST_LIST => {
            if args.number(1) != ROBUST_LIST_BYTES {
                return Err(Errno::EINVAL);
            }
            thread_of(cpu)?.robust_list.store(args.number(0), Relaxed);
            Reply::Done(Ok(0))
        }
        number::TKILL => {
            signals::signal_thread(process, None, args.number(0), args.signal(1)?).into()
        }
        number::TGKILL => {
            let group = Some(args.number(0));
            signals::signal_thread(process, group, args.number(1), args.signal(2)?).into()
        }
        number::RT_SIGACTION => signals::action(cpu, linux, &args).into(),
        number::RT_SIGPROCMASK => signals::change_mask(cpu, &args).into(),
        number::RT_SIGPENDING => signals::pending(cpu, linux, &args).into(),
        number::RT_SIGTIMEDWAIT => signals::wait_for_signal(cpu, frame, &args)?,
        number::RT_SIGQUEUEINFO => signals::queue(process, &args).into(),
        number::RT_SIGSUSPEND => submit(cpu, frame, signals::suspend(cpu, &args)?),
        number::SIGALTSTACK => signals::alternate_stack(cpu, context, &args).into(),

        number::SOCKETPAIR => socket::make_pair(process, &args).into(),
        native::SENDTO | native::RECVFROM if transfer::is_datagrams(&args) => {
            return super::dispatch(cpu, frame, context);
        }
        native::SENDTO => transfer::send(cpu, frame, &args)?,
        native::RECVFROM => transfer::receive(cpu, frame, &args)?,
        number::SENDMSG => transfer::send_message(cpu, frame, &args)?,
        number::RECVMSG => transfer::receive_message(cpu, frame, &args)?,
        number::SENDMMSG | number::RECVMMSG => transfer::move_messages(cpu, frame, &args)?,
        number::GETSOCKOPT => socket::option(process, &args).into(),
        native::SHUTDOWN => match socket::shut_down_pair(&args) {
            Some(result) => result.into(),
            None => return super::dispatch(cpu, frame, context),
        },
        number::PRCTL => {
            system::control_thread(process, thread_of(cpu)?, args.number(0), args.number(1)).into()
        }

        native::READ => transfer::read(cpu, frame, &args)?,
        native::WRITE => transfer::write(cpu, frame, &args)?,
        native::PREAD64 => transfer::transfer_at(cpu, frame, &args, Waiting::ToRead)?,
        native::PWRITE64 => transfer::transfer_at(cpu, frame, &args, Waiting::ToWrite)?,
        native::READV => transfer::transfer_buffers(cpu, frame, &args, None, Waiting::ToRead)?,
        native::WRITEV => transfer::transfer_buffers(cpu, frame, &args, None, Waiting::ToWrite)?,
        native::PREADV => {
            let offset = Some(args.offset(3)?);
            transfer::transfer_buffers(cpu, frame, &args, offset, Waiting::ToRead)?
        }
        native::PWRITEV => {
            let offset = Some(args.offset(3)?);
            transfer::transfer_buffers(cpu, frame, &args, offset, Waiting::ToWrite)?
        }

        number::FLOCK => locks::lock_whole(cpu, frame, &args)?,
        native::FCNTL => match locks::lock_range(cpu, frame, &args)? {
            Some(reply) => reply,
            None => return super::dispatch(cpu, frame, context),
        },

        native::PPOLL | native::PSELECT6 | native::EPOLL_PWAIT => {
            let mask = signals::mask_of_wait(process, frame.number, &args)?;
            if let Some(mask) = mask {
                process.pass_on(cpu, cpu.signals.suspend_with(mask));
            }
            let reply = super::dispatch(cpu, frame, context);
            if mask.is_some() {
                let is_interrupted = matches!(reply, Ok(Reply::Done(Err(Errno::ERESTARTSYS))));
                let waits = is_interrupted || matches!(reply, Ok(Reply::Waits));
                process.pass_on(cpu, cpu.signals.end_suspension(waits));
            }
            return reply;
        }
        native::MPROTECT | native::CLOCK_GETTIME | native::CLOCK_NANOSLEEP => {
            return super::dispatch(cpu, frame, context);
        }
        number::CLOSE_RANGE => descriptors::close_range(cpu, frame, &args)?,
        number::MEMFD_CREATE => descriptors::make_memory_file(process, &args).into(),
        number::FALLOCATE => descriptors::reserve_range(&args).into(),
        number::SYNC_FILE_RANGE => descriptors::synchronise_range(cpu, frame, &args)?,
        number::SENDFILE | number::COPY_FILE_RANGE | number::HARDWARE_PROBE | number::RSEQ => {
            return Err(Errno::ENOSYS);
        }
        other => {
            if linux.is_new_unknown_call(other) {
                log::warn!("{process}: system call {other} does not exist here");
            }
            return Err(Errno::ENOSYS);
        }
    })
}

/// Size of the head of a list of robust mutexes.
const ROBUST_LIST_BYTES: usize = 24;

/// The thread that makes the call: each virtual CPU of a Linux program has one.
fn thread_of(cpu: &VirtualCpu) -> Result<&Thread, Errno> {
    cpu.as_thread().ok_or(Errno::ESRCH)
}
