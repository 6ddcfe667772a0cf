//! System calls: decode, validate, dispatch.
//!
//! No argument is trusted. A call returns a number or an error, or suspends its virtual CPU; no
//! argument can make the kernel panic.
//! May touch: processes, files, calls, `mm`'s user ranges. Safe code only.
#![forbid(unsafe_code)]

mod cops;
mod file;
mod inspect;
mod memory;
mod network;
mod process;
mod quota;
mod scheduling;
mod spawn;
mod time;

use alloc::sync::Arc;

use cops_abi::errno::{CallResult, encode};
use cops_abi::inspect::portion;
use cops_abi::{Errno, syscall as number};

use crate::arch::{SyscallFrame, UserContext};
use crate::call::{self, Delivery, Operation, Submitted};
use crate::portions;
use crate::process::work::{self, Work};
use crate::process::{Process, VirtualCpu};
use crate::trace;

/// What happens to the virtual CPU after a system call.
#[must_use]
pub enum Outcome {
    /// It continues with its result.
    Return,
    /// It continues after others have run.
    Yield,
    /// It sleeps or has ended, according to its state.
    Sleep,
}

/// The answer of a handler.
enum Reply {
    /// The call is completed.
    Done(CallResult),
    /// A portion of it is completed; it has to be repeated.
    Again,
    /// It may have to wait.
    Operation(Operation),
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

impl From<Result<Operation, Errno>> for Reply {
    fn from(operation: Result<Operation, Errno>) -> Self {
        operation.map_or_else(|error| Reply::Done(Err(error)), Reply::Operation)
    }
}

/// `Ok(None)`: a portion is completed.
impl From<Result<Option<usize>, Errno>> for Reply {
    fn from(result: Result<Option<usize>, Errno>) -> Self {
        result.transpose().into()
    }
}

/// `Ok(None)`: a portion is completed.
impl From<Result<Option<Operation>, Errno>> for Reply {
    fn from(operation: Result<Option<Operation>, Errno>) -> Self {
        operation.transpose().map_or(Reply::Again, Reply::from)
    }
}

/// Executes the system call of which `context` has the registers.
pub fn handle(cpu: &Arc<VirtualCpu>, context: &mut UserContext) -> Outcome {
    let frame = context.syscall();
    portions::is(portion::SYSTEM_CALL, || {
        let known = number::name(frame.number).map_or(0, |_| frame.number as u32);
        let [a, b, c, d, ..] = frame.arguments;
        (known, [a, b, c, d].map(|argument| argument as u64))
    });
    if frame.number == number::COPS_URET {
        // All registers are restored, so there is no result and no instruction to skip.
        cpu.process.return_from_interrupt(cpu.index, context);
        return Outcome::Return;
    }
    context.skip_syscall();
    match dispatch(cpu, &frame) {
        Reply::Done(result) => finish(context, frame.coroutine, result),
        Reply::Again => {
            context.repeat_syscall();
            Outcome::Return
        }
        Reply::Operation(operation) => {
            let process = &cpu.process;
            let level = process.current_level(cpu.index);
            if frame.coroutine != 0 {
                let delivery =
                    Delivery::Ring { coroutine: frame.coroutine as u64, token: frame.token as u64 };
                match call::submit(process, operation, delivery, level, || {}) {
                    Submitted::Done(result) => finish(context, frame.coroutine, result),
                    Submitted::InFlight(handle) => {
                        context.set_results(0, handle.get() as usize);
                        Outcome::Return
                    }
                }
            } else {
                let delivery = Delivery::Cpu { index: cpu.index };
                match call::submit(process, operation, delivery, level, || process.begin_waiting(cpu)) {
                    Submitted::Done(result) => finish(context, frame.coroutine, result),
                    Submitted::InFlight(_) => Outcome::Sleep,
                }
            }
        }
        Reply::Outcome(outcome) => {
            // The result is 0 when the virtual CPU continues.
            let _ = finish(context, frame.coroutine, Ok(0));
            outcome
        }
    }
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

fn dispatch(cpu: &Arc<VirtualCpu>, frame: &SyscallFrame) -> Reply {
    let process: &Arc<Process> = &cpu.process;
    let [a, b, c, d, e, f] = frame.arguments;
    match frame.number {
        number::OPENAT => file::open(process, a as isize, b, c).into(),
        number::CLOSE => file::close(process, a).into(),
        number::PIPE2 => file::pipe(process, a, b).into(),
        number::GETDENTS64 => file::list(process, a, b, c).into(),
        number::LSEEK => file::seek(process, a, b as isize, c).into(),
        number::READ => file::read(process, a, b, c).into(),
        number::WRITE => file::write(process, a, b, c).into(),

        number::EXIT => process::exit_cpu(cpu, a),
        number::EXIT_GROUP => process::exit(cpu, a),
        number::KILL => process::kill(process, a, b).into(),
        number::GETPID => Ok(process.id as usize).into(),
        number::GETPPID => process::parent(process).into(),
        number::WAIT4 => process::wait(process, a as isize, b, c, d).into(),
        number::COPS_SPAWN_PROCESS => {
            work::go_on(cpu, frame, |process| spawn::spawn(process, a, b, c, d)).into()
        }

        number::CLOCK_GETTIME => time::get(process, a, b).into(),
        number::CLOCK_NANOSLEEP => time::sleep(process, a, b, c).into(),

        number::SOCKET => network::socket(process, a, b, c).into(),
        number::BIND => network::bind(process, a, b, c).into(),
        number::LISTEN => network::listen(process, a, b).into(),
        number::ACCEPT => network::accept(process, a, b, c, 0).into(),
        number::ACCEPT4 => network::accept(process, a, b, c, d).into(),
        number::CONNECT => network::connect(process, a, b, c).into(),
        number::GETSOCKNAME => network::local_address(process, a, b, c).into(),
        number::GETPEERNAME => network::remote_address(process, a, b, c).into(),
        number::SHUTDOWN => network::shutdown(process, a, b).into(),

        number::MMAP => memory::map(process, a, b, c, d, e as isize, f).into(),
        number::MUNMAP => work::go_on(cpu, frame, |_| memory::unmap(a, b)).into(),
        number::MPROTECT => work::go_on(cpu, frame, |_| memory::protect(a, b, c)).into(),
        number::GETRANDOM => memory::random(process, a, b, c).into(),

        number::SCHED_YIELD => Reply::Outcome(Outcome::Yield),
        number::COPS_PARK => cops::park(cpu),
        number::COPS_UNPARK => cops::unpark(process, a).into(),
        number::COPS_ALLOC_CPU => cops::allocate_cpus(process, a, b).into(),
        number::COPS_CANCEL => call::cancel(process, a as u64).into(),
        number::COPS_REFILL_RING => Ok(process.refill_ring()).into(),
        number::COPS_SET_CEILING => {
            work::go_on(cpu, frame, |process| scheduling::set_ceiling(process, a, b)).into()
        }
        number::COPS_QUOTA => quota::quota(process, a, b, c, d).into(),
        number::COPS_SET_SHARE => scheduling::set_share(process, a).into(),
        number::COPS_SET_CALL_PRIORITY => scheduling::set_call_priority(process, a as u64, b).into(),
        number::COPS_STATISTICS => cops::statistics(process, a, b).into(),
        number::COPS_INSPECT => inspect::inspect(process, a, b as u64, c, d).into(),
        number::COPS_CONSOLE => process::hand_over_console(process, a, b).into(),
        number::COPS_FAIL_ALLOCATION => cops::fail_allocation(a).into(),
        // Switching tracing on first allocates the rings, in portions.
        number::COPS_TRACE if (a, b) == (cops_abi::trace::operation::CONTROL, 1) => {
            work::go_on(cpu, frame, |process| {
                process.check_authority_over_machine()?;
                Ok(Work::Trace(trace::Making::default()))
            })
            .into()
        }
        number::COPS_TRACE => inspect::trace(cpu, a, b, c, d).into(),
        _ => Reply::Done(Err(Errno::ENOSYS)),
    }
}
