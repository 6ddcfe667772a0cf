//! System calls: decode, validate, dispatch.
//!
//! No argument is trusted. A call returns a number or an error, or suspends its virtual CPU; no
//! argument can make the kernel panic.
#![forbid(unsafe_code)]

mod arguments;
mod cops;
mod descriptor;
mod file;
mod futex;
mod inspect;
mod linux;
mod memory;
mod model;
mod network;
mod path;
mod process;
mod quota;
mod readiness;
mod scheduling;
mod terminal;
mod time;
mod tutorial;

use alloc::sync::Arc;
use core::num::NonZeroU64;

use cops_abi::errno::{CallResult, encode};
use cops_abi::file::open;
use cops_abi::inspect::{REPLY_BYTES_MAX, portion};
use cops_abi::quota::Quota;
use cops_abi::statistics::Statistics;
use cops_abi::syscall::clone_flags;
use cops_abi::{Errno, syscall as number};
use cops_fallible::try_box;

use crate::arch::{SyscallFrame, UserContext};
use crate::call::{self, Delivery, Operation, Submitted};
use crate::counters::COUNTERS;
use crate::drivers::random;
use crate::fs::File;
use crate::mm::UserRange;
use crate::portions;
use crate::process::resumable::{self, Resumable};
use crate::process::spawn::{Request, Spawning};
use crate::process::{Outcome, PersonalityKind, Portion, Process, VirtualCpu, Wait, children};
use crate::sched::Waiting;
use crate::trace;
use arguments::{Arguments, TraceRequest};
use network::Connecting;
use path::Started;

/// The answer of a handler.
enum Reply {
    /// The call is completed.
    Done(CallResult),
    /// A portion of it is completed; it has to be repeated.
    Again,
    /// It is in flight, and the caller, which is asynchronous, continues.
    InFlight(NonZeroU64),
    /// It is in flight, and the virtual CPU waits for its result.
    Waits,
    /// A signal has interrupted it; what becomes of it is decided when the signal is delivered.
    Interrupted,
    /// It concerns the virtual CPU itself.
    Outcome(Outcome),
}

impl From<CallResult> for Reply {
    fn from(result: CallResult) -> Self {
        Reply::Done(result)
    }
}

impl From<Option<CallResult>> for Reply {
    fn from(result: Option<CallResult>) -> Self {
        result.map_or(Reply::Again, Reply::Done)
    }
}

/// `Ok(None)`: a portion is completed.
impl From<Result<Option<usize>, Errno>> for Reply {
    fn from(result: Result<Option<usize>, Errno>) -> Self {
        result.transpose().into()
    }
}

/// Executes the system call of which `context` has the registers.
pub fn handle(cpu: &Arc<VirtualCpu>, context: &mut UserContext) -> Outcome {
    if !cpu.process.personality.is_native() {
        return handle_foreign(cpu, context);
    }
    let frame = context.syscall();
    measure(&frame);
    if frame.number == number::COPS_URET {
        // All registers are restored, so there is no result and no instruction to skip.
        cpu.process.return_from_interrupt(cpu.index, context);
        return Outcome::Return;
    }
    context.skip_syscall();
    match dispatch(cpu, &frame, context) {
        Ok(Reply::Done(result)) => finish(context, frame.coroutine, result),
        Ok(Reply::InFlight(call)) => return_call(context, call),
        reply => conclude_other(cpu, &frame, context, reply),
    }
}

/// Out of line: most calls are done at once or in flight.
#[inline(never)]
fn conclude_other(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    context: &mut UserContext,
    reply: Result<Reply, Errno>,
) -> Outcome {
    let reply = reply.unwrap_or_else(|error| terminal::reply_to_error(cpu, frame, error));
    conclude(context, frame.coroutine, reply)
}

/// Executes the system call of a program for another kernel.
///
/// Out of line: a native program's call only branches over it.
#[cold]
#[inline(never)]
fn handle_foreign(cpu: &Arc<VirtualCpu>, context: &mut UserContext) -> Outcome {
    match cpu.process.personality.kind() {
        PersonalityKind::Tutorial => tutorial::handle(cpu, context),
        _ => linux::handle(cpu, context),
    }
}

/// Names the portion that begins with this call.
#[inline(always)]
fn measure(frame: &SyscallFrame) {
    portions::is(portion::SYSTEM_CALL, || {
        let known = name(frame.number).map_or(0, |_| frame.number as u32);
        let [first, second, third, fourth, ..] = frame.arguments;
        (known, [first, second, third, fourth].map(|argument| argument as u64))
    });
}

/// The name of a call that any program can make.
fn name(number: usize) -> Option<&'static str> {
    number::name(number).or_else(|| cops_abi::linux::name(number))
}

/// Writes the reply to a call into the registers.
#[inline(always)]
fn conclude(context: &mut UserContext, coroutine: usize, reply: Reply) -> Outcome {
    match reply {
        Reply::Done(result) => finish(context, coroutine, result),
        Reply::Again => {
            context.repeat_syscall();
            Outcome::Return
        }
        Reply::InFlight(call) => return_call(context, call),
        Reply::Waits => Outcome::Sleep,
        Reply::Interrupted => Outcome::Return,
        Reply::Outcome(outcome) => {
            // The result is 0 when the virtual CPU continues.
            let _ = finish(context, coroutine, Ok(0));
            outcome
        }
    }
}

/// Submits the operation of the call in `frame`, which may have to wait.
///
/// Out of line, and called where the operation is made: an operation is large, and a reply that
/// contained it would be copied three times, also for calls that never wait.
#[inline(never)]
fn submit(cpu: &Arc<VirtualCpu>, frame: &SyscallFrame, operation: Operation) -> Reply {
    let process = &cpu.process;
    let asked = process.asked_by(cpu);
    let submitted = if frame.coroutine != 0 {
        let delivery =
            Delivery::Ring { coroutine: frame.coroutine as u64, token: frame.token as u64 };
        call::submit(process, operation, delivery, asked, |_| {})
    } else {
        let operation = if process.has_blocking_threads() {
            match model::block(cpu, operation) {
                Ok(reply) => return reply,
                Err(operation) => operation,
            }
        } else {
            operation
        };
        let delivery = Delivery::Cpu { index: cpu.index };
        let begin = |coroutine| process.begin_waiting_for(cpu, coroutine, asked);
        call::submit(process, operation, delivery, asked, begin)
    };
    match submitted {
        Submitted::Done(result) => Reply::Done(result),
        Submitted::InFlight(handle) if frame.coroutine != 0 => Reply::InFlight(handle),
        Submitted::InFlight(call) => sleep(cpu, call),
    }
}

/// `write(fd, buffer, length)`.
#[inline]
fn write(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    file: Arc<File>,
    range: UserRange,
) -> Result<Reply, Errno> {
    if let Some(result) = file::write_at_once(&cpu.process, &file, range) {
        if frame.coroutine != 0 {
            COUNTERS.calls_completed_at_once.add(1);
        }
        return Ok(Reply::Done(result));
    }
    Ok(submit(cpu, frame, file::write(cpu, file, range)?))
}

/// `try_write(fd, buffer, length)`.
#[inline]
fn try_write(cpu: &VirtualCpu, file: &File, range: UserRange) -> CallResult {
    let result = file::write_at_once(&cpu.process, file, range).ok_or(Errno::EAGAIN)?;
    COUNTERS.calls_completed_at_once.add(1);
    result
}

/// The virtual CPU sleeps until this call has completed.
#[inline(always)]
fn sleep(cpu: &Arc<VirtualCpu>, call: NonZeroU64) -> Reply {
    let process = &cpu.process;
    process.waits_for(cpu, Wait::Call(call));
    process.leave_work_of(cpu);
    process.report_stop();
    Reply::Waits
}

/// The virtual CPU sleeps until a server has replied to the request that the last portion of its
/// call has prepared, and then repeats the call, which is synchronous whatever its frame says.
#[cold]
#[inline(never)]
fn wait_for_answer(cpu: &Arc<VirtualCpu>, context: &mut UserContext) -> Reply {
    let process = &cpu.process;
    let Some(ask) = resumable::awaited(cpu) else { return Reply::Again };
    let (delivery, asked) = (Delivery::Again { index: cpu.index }, process.asked_by(cpu));
    let wait = Operation::Answer(ask);
    let begin = |coroutine| process.begin_waiting_for(cpu, coroutine, asked);
    match call::submit(process, wait, delivery, asked, begin) {
        Submitted::Done(Ok(_)) => Reply::Again,
        Submitted::Done(Err(error)) => {
            resumable::abandon(cpu);
            Reply::Done(Err(error))
        }
        Submitted::InFlight(call) => {
            // Another hart cannot run the virtual CPU before this one has left it.
            context.repeat_syscall();
            sleep(cpu, call)
        }
    }
}

/// Writes the handle of a call in flight into the registers.
fn return_call(context: &mut UserContext, call: NonZeroU64) -> Outcome {
    context.set_results(0, call.get() as usize);
    Outcome::Return
}

/// Writes a result into the registers. An asynchronous caller is also told that nothing is in
/// flight.
fn finish(context: &mut UserContext, coroutine: usize, result: CallResult) -> Outcome {
    let value = encode(result) as usize;
    if coroutine == 0 {
        context.set_result(value)
    } else {
        context.set_results(value, 0)
    }
    Outcome::Return
}

/// Decodes the arguments and executes the call. The error of an argument is the result of the call.
fn dispatch(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    context: &mut UserContext,
) -> Result<Reply, Errno> {
    let process: &Arc<Process> = &cpu.process;
    let args = Arguments::new(process, frame);
    Ok(match frame.number {
        number::CLOSE => file::close(process, args.descriptor(0)).into(),
        number::DUP => descriptor::duplicate(process, args.file(0)?).into(),
        number::DUP3 => {
            let flags = args.flags(2, open::CLOSE_ON_EXEC as usize)?;
            descriptor::duplicate_at(process, args.descriptor(0), args.descriptor(1), flags).into()
        }
        number::FCNTL => {
            descriptor::control(process, args.descriptor(0), args.number(1), args.number(2)).into()
        }
        number::IOCTL => {
            descriptor::request(cpu, frame, args.descriptor(0), args.number(1), &args)?
        }
        number::PIPE2 => {
            let flags = args.flags(1, file::PIPE_FLAGS)?;
            file::pipe(process, args.structure(0, file::PIPE_BYTES)?, flags).into()
        }
        number::LSEEK => match file::seek(args.file(0)?, args.signed(1), args.number(2))? {
            Ok(result) => result.into(),
            Err(operation) => submit(cpu, frame, operation),
        },
        number::READ => submit(cpu, frame, file::read(process, args.file(0)?, args.range(1)?)?),
        number::WRITE => write(cpu, frame, args.file(0)?, args.range(1)?)?,
        number::COPS_TRY_WRITE => {
            let file = args.file(0)?;
            try_write(cpu, &file, args.range(1)?).into()
        }

        number::READV => {
            submit(cpu, frame, file::read_buffers(process, args.file(0)?, &args.buffers(1)?, None)?)
        }
        number::WRITEV => {
            submit(cpu, frame, file::write_buffers(cpu, args.file(0)?, &args.buffers(1)?, None)?)
        }
        number::PREADV => {
            let (file, offset) = (args.file(0)?, Some(args.offset(3)?));
            submit(cpu, frame, file::read_buffers(process, file, &args.buffers(1)?, offset)?)
        }
        number::PWRITEV => {
            let (file, offset) = (args.file(0)?, Some(args.offset(3)?));
            submit(cpu, frame, file::write_buffers(cpu, file, &args.buffers(1)?, offset)?)
        }
        number::PREAD64 => {
            let (file, range, offset) = (args.file(0)?, args.range(1)?, args.offset(3)?);
            let to = Waiting::ToRead;
            submit(cpu, frame, file::transfer_at(process, file, range, offset, to)?)
        }
        number::PWRITE64 => {
            let (file, range, offset) = (args.file(0)?, args.range(1)?, args.offset(3)?);
            let to = Waiting::ToWrite;
            submit(cpu, frame, file::transfer_at(process, file, range, offset, to)?)
        }
        number::FSYNC | number::FDATASYNC => {
            submit(cpu, frame, file::synchronise(&*args.file(0)?)?)
        }

        number::EXIT => process::exit_cpu(cpu, frame, args.exit_code(0)),
        number::EXIT_GROUP => process::exit(cpu, args.exit_code(0)),
        number::KILL => {
            let signal = args.signal(1)?;
            process::kill(cpu, frame, args.receivers(0)?, signal)
        }
        number::SETPGID => process::set_group(process, args.number(0), args.number(1)).into(),
        number::GETPGID => {
            children::kinship(args.process_or_own(0)?).map(|kin| kin.group as usize).into()
        }
        number::GETSID => {
            children::kinship(args.process_or_own(0)?).map(|kin| kin.session as usize).into()
        }
        number::SETSID => process::begin_session(process).into(),
        number::GETPID => Ok(process.id as usize).into(),
        number::GETPPID => process::parent(process).into(),
        number::WAIT4 => {
            let options = args.flags(2, process::WAIT_OPTIONS)?;
            let child = args.children(0)?;
            let status = args.optional_structure(1, process::STATUS_BYTES)?;
            let usage = args.optional_structure(3, call::USAGE_BYTES)?;
            submit(cpu, frame, process::wait(process, child, status, options, usage)?)
        }
        number::CLONE if args.number(0) & clone_flags::THREAD != 0 => {
            process::start_thread(cpu, frame, context, &args.thread()?).into()
        }
        number::CLONE => process::fork(cpu, frame, context, &args.fork()?)?,
        number::EXECVE => {
            let request = Request::new(args.number(1), args.number(2));
            process::execute(cpu, frame, context, || args.path(0), request)?
        }
        number::COPS_SPAWN_PROCESS => {
            let portion = resumable::spawn(cpu, frame, |process| {
                let place = args.place(3)?;
                if place.foreground.is_some() && terminal::check_change(cpu).is_err() {
                    return Err(Errno::EPERM);
                }
                let ceiling = scheduling::ceiling_for_child(process, args.optional_priority(2)?)?;
                let request = Request::new(args.number(1), args.number(4));
                Ok(try_box(Spawning::new(args.path(0)?, request, ceiling, place))?)
            });
            match portion? {
                Portion::Done(child) => Reply::Done(Ok(child)),
                Portion::More => Reply::Again,
                Portion::Waits => wait_for_answer(cpu, context),
            }
        }

        number::FUTEX => futex::futex(cpu, frame, &args)?,

        number::CLOCK_GETTIME => {
            time::get(process, args.clock(0)?, args.structure(1, time::TIMESPEC_BYTES)?).into()
        }
        number::CLOCK_NANOSLEEP => {
            let (clock, flags) = (args.clock(0)?, args.flags(1, number::TIMER_ABSTIME)?);
            let until = args.structure(2, time::TIMESPEC_BYTES)?;
            submit(cpu, frame, time::sleep(process, clock, flags, until)?)
        }

        number::SOCKET => {
            network::socket(process, args.number(0), args.number(1), args.number(2)).into()
        }
        number::BIND => network::bind(process, &args.socket(0)?, args.socket_address(1)?).into(),
        number::LISTEN => network::listen(process, &args.socket(0)?, args.number(1)).into(),
        number::ACCEPT => {
            let (socket, peer) = (args.socket(0)?, args.optional_address_out(1)?);
            submit(cpu, frame, network::accept(socket, peer, 0)?)
        }
        number::ACCEPT4 => {
            let socket = args.socket(0)?;
            let flags = args.flags(3, network::SOCKET_FLAGS)?;
            submit(cpu, frame, network::accept(socket, args.optional_address_out(1)?, flags)?)
        }
        number::CONNECT => match network::connect(process, args.socket(0)?, args.peer_address(1)?)?
        {
            Connecting::Done => Reply::Done(Ok(0)),
            Connecting::Waits(operation) => submit(cpu, frame, operation),
            Connecting::Again => Reply::Again,
        },
        number::GETSOCKNAME => {
            network::local_address(&args.socket(0)?, &args.address_out(1)?).into()
        }
        number::GETPEERNAME => {
            network::remote_address(&args.socket(0)?, || args.address_out(1)).into()
        }
        number::SENDTO => match network::send_to(process, args.udp_socket(0)?, &args)? {
            Some(operation) => submit(cpu, frame, operation),
            None => Reply::Again,
        },
        number::RECVFROM => submit(cpu, frame, network::receive_from(args.udp_socket(0)?, &args)?),
        number::SETSOCKOPT => linux::set_socket_option(process, &args).into(),
        number::SHUTDOWN => network::shutdown(&args.socket(0)?, args.shutdown(1)?).into(),

        number::MMAP => memory::map(cpu, frame, &args)?,
        number::MUNMAP => {
            resumable::resume(cpu, frame, |_| Ok(Resumable::Unmap(args.own_pages(0)?))).into()
        }
        number::MPROTECT => resumable::resume(cpu, frame, |_| {
            Ok(Resumable::Protect(args.own_pages(0)?, args.rights(2)?))
        })
        .into(),
        number::MSYNC => memory::sync(cpu, frame, &args)?,
        number::GETRANDOM => {
            memory::check_random_flags(args.number(2))?;
            memory::random(process, args.range_of_at_most(0, random::BYTES_MAX)?).into()
        }

        number::SCHED_YIELD => Reply::Outcome(Outcome::Yield),
        number::COPS_PARK => cops::park(cpu, args.number(0) != 0),
        number::COPS_UNPARK => cops::unpark(process, args.number(0)).into(),
        number::COPS_ALLOC_CPU => {
            cops::allocate_cpus(process, args.number(0), args.entry(1)?).into()
        }
        number::COPS_CANCEL => call::cancel(process, args.handle(0)).into(),
        number::COPS_READ_STANDING if frame.coroutine != 0 => {
            submit(cpu, frame, file::read_standing(process, args.file(0)?, args.range(1)?)?)
        }
        // Its results need a ring.
        number::COPS_READ_STANDING => return Err(Errno::EINVAL),
        number::COPS_RESUME_READ => call::resume_read(process, args.handle(0)).into(),
        number::COPS_REFILL_RING => Ok(process.refill_ring()).into(),
        number::COPS_SET_CEILING => resumable::resume(cpu, frame, |process| {
            let asked = args.priority(1)?;
            scheduling::set_ceiling(process, args.process_id(0)?, asked)
        })
        .into(),
        number::COPS_QUOTA => {
            let kind = args.quota_kind(1)?;
            let into = args.optional_structure(3, Quota::BYTES);
            quota::quota(process, args.process_id(0)?, kind, args.quota_limit(2), into?).into()
        }
        number::COPS_SET_SHARE => scheduling::set_share(process, args.number(0)).into(),
        number::COPS_SET_CALL_PRIORITY => {
            scheduling::set_call_priority(process, args.handle(0), args.priority(1)?).into()
        }
        number::COPS_SET_THREAD_PRIORITY => {
            scheduling::set_thread_priority(cpu, args.number(0), args.priority(1)?).into()
        }
        number::COPS_DONATE_PRIORITY => scheduling::donate_priority(cpu, args.number(0)).into(),
        number::COPS_SET_KERNEL_MODEL => model::set(process, args.number(0)).into(),
        number::COPS_STATISTICS => {
            cops::statistics(process, args.range_of_at_most(0, size_of::<Statistics>())?).into()
        }
        number::COPS_INSPECT => {
            let kind = args.inspect_kind(0)?;
            let buffer = args.range_of_at_most(2, REPLY_BYTES_MAX)?;
            inspect::inspect(process, kind, args.number(1) as u64, buffer).into()
        }
        number::COPS_IGNORE_SIGNALS => {
            Ok(process.ignore(args.number(0) as u64) as usize & isize::MAX as usize).into()
        }
        number::COPS_FAIL_ALLOCATION => cops::fail_allocation(args.number(0)).into(),
        number::COPS_TRACE => match args.trace_request()? {
            TraceRequest::SwitchOff => inspect::switch_trace_off(process).into(),
            // Allocates the rings first, in portions.
            TraceRequest::SwitchOn => resumable::resume(cpu, frame, |process| {
                process.check_authority_over_machine()?;
                Ok(Resumable::Trace(trace::Making::default()))
            })
            .into(),
            TraceRequest::Ask => Reply::Done(Ok(trace::is_on().into())),
            TraceRequest::Read => {
                process.check_authority_over_machine()?;
                let buffer = args.range_of_at_most(2, REPLY_BYTES_MAX)?;
                inspect::read_trace(process, args.number(1), buffer).into()
            }
            TraceRequest::Mark(value) => inspect::mark_trace(cpu, value).into(),
        },
        other => {
            let started = match path::dispatch(process, other, &args)? {
                None => readiness::dispatch(cpu, other, &args)?,
                started => started,
            };
            match started {
                Some(Started::Operation(operation)) => submit(cpu, frame, operation),
                Some(Started::Done(result)) => result.into(),
                None => return Err(Errno::ENOSYS),
            }
        }
    })
}
