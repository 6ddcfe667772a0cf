//! The system calls of programs for rCore-Tutorial-v3 (decision 35): their numbers, arguments and
//! results in front of the handlers of native calls.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::file::open;
use cops_abi::tutorial::{self as number, NOT_YET, SIGNALS};
use cops_algorithms::kin::{Found, News};
use cops_algorithms::path::Walk;
use cops_fallible::{Text, try_arc, try_box};

use super::arguments::{Arguments, Clock, Fork};
use super::{
    Reply, conclude, descriptor, file, measure, network, process, submit, terminal, time, write,
};
use crate::arch::{self, SyscallFrame, UserContext};
use crate::call::{Operation, PathCall, Then};
use crate::fs::{self, Ask, File, NodeRef, Object};
use crate::mm::{self, Access, PinnedBuffer, UserRange};
use crate::net::{Datagrams, Socket};
use crate::process::children::{self, Happened, Learned};
use crate::process::spawn::Request;
use crate::process::{
    FIRST_THREAD, ObjectKind, Outcome, Process, Threads, TurnWait, VirtualCpu, WaitStatus, Wanted,
};
use crate::sched::timer;

/// Connections that may wait to be accepted.
const BACKLOG: usize = 128;
/// Permissions of a file that `open` creates.
const PERMISSIONS: u32 = 0o644;
const NANOSECONDS_PER_MILLISECOND: u64 = 1_000_000;

/// Executes the system call of which `context` has the registers.
///
/// Out of line: a call of a Linux program comes by.
#[inline(never)]
pub fn handle(cpu: &Arc<VirtualCpu>, context: &mut UserContext) -> Outcome {
    // The registers of coroutine and token belong to the program: no call is asynchronous.
    let frame = SyscallFrame { coroutine: 0, token: 0, ..context.syscall() };
    measure(&frame);
    context.skip_syscall();
    let reply = dispatch(cpu, &frame, context)
        .unwrap_or_else(|error| terminal::reply_to_error(cpu, &frame, error));
    match reply {
        Reply::Done(Err(_)) => {
            context.set_result(-1_isize as usize);
            Outcome::Return
        }
        reply => conclude(context, 0, reply),
    }
}

/// Decodes the arguments and executes the call.
fn dispatch(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    context: &mut UserContext,
) -> Result<Reply, Errno> {
    let process = &cpu.process;
    let args = Arguments::new(process, frame);
    let thread = cpu.tutorial_number();
    let object = |kind| Wanted::Object(kind, args.number(0));
    Ok(match frame.number {
        number::DUP => descriptor::duplicate(process, args.file(0)?).into(),
        number::CLOSE => file::close(process, args.descriptor(0)).into(),
        number::OPEN => submit(cpu, frame, open_named(process, args.path(0)?, args.number(1))?),
        number::PIPE => pipe(process, args.structure(0, PIPE_BYTES)?).into(),
        number::READ => submit(cpu, frame, file::read(process, args.file(0)?, args.range(1)?)?),
        number::WRITE => write(cpu, frame, args.file(0)?, args.range(1)?)?,

        number::CONNECT => {
            let [address, local, remote] = [0, 1, 2].map(|index| args.number(index));
            connect(process, address as u32, local as u16, remote as u16).into()
        }
        number::LISTEN => listen(process, args.number(0) as u16).into(),
        number::ACCEPT => submit(cpu, frame, network::accept(args.socket(0)?, None, 0)?),

        number::EXIT => exit(cpu, args.number(0) as i32),
        number::SLEEP => submit(cpu, frame, sleep(args.number(0))),
        number::YIELD => Reply::Outcome(Outcome::Yield),
        number::GET_TIME => {
            let now = time::now_nanoseconds(Clock::Monotonic);
            Ok((now / NANOSECONDS_PER_MILLISECOND) as usize).into()
        }
        number::GETPID => Ok(process.id as usize).into(),
        number::KILL => kill(process, &args).into(),
        number::FORK => process::fork(cpu, frame, context, &Fork::default())
            .unwrap_or_else(|error| Reply::Done(Err(error))),
        number::EXEC => {
            let request = Request::new(args.number(1), 0);
            process::execute(cpu, frame, context, || in_root(&args.path(0)?), request)?
        }
        number::WAITPID => wait(process, &args).into(),

        number::THREAD_CREATE => {
            mm::admit()?;
            process.start_numbered_thread(cpu, args.entry(0)?, args.number(1)).into()
        }
        number::GETTID => Ok(thread).into(),
        number::WAITTID => {
            let code = process.wait_for_thread(thread, args.number(0))?;
            Ok(code.map_or(NOT_YET, |code| code as isize) as usize).into()
        }

        number::MUTEX_CREATE => {
            process.create_object(|all| all.create(ObjectKind::Mutex, 1)).into()
        }
        number::MUTEX_LOCK => wait_for_turn(cpu, frame, object(ObjectKind::Mutex))?,
        number::MUTEX_UNLOCK => up(process, ObjectKind::Mutex, args.number(0)).into(),
        number::SEMAPHORE_CREATE => {
            let count = args.number(0);
            process.create_object(|all| all.create(ObjectKind::Semaphore, count)).into()
        }
        number::SEMAPHORE_UP => up(process, ObjectKind::Semaphore, args.number(0)).into(),
        number::SEMAPHORE_DOWN => wait_for_turn(cpu, frame, object(ObjectKind::Semaphore))?,
        number::CONDVAR_CREATE => process.create_object(Threads::create_condition).into(),
        number::CONDVAR_SIGNAL => {
            let condition = args.number(0);
            process.hand_over(|all| all.signal(condition)).into()
        }
        number::CONDVAR_WAIT => {
            let (condition, mutex) = (args.number(0), args.number(1));
            wait_for_turn(cpu, frame, Wanted::Signal { condition, mutex })?
        }
        _ => return Err(Errno::ENOSYS),
    })
}

/// `semaphore_down`, `mutex_lock` and `condvar_wait`. Most calls of the first two do not wait, and
/// need no memory.
fn wait_for_turn(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    wanted: Wanted,
) -> Result<Reply, Errno> {
    let mut wait = TurnWait::new(cpu.tutorial_number(), wanted);
    if let Some(result) = wait.attempt(&cpu.process) {
        return Ok(result.into());
    }
    Ok(submit(cpu, frame, Operation::Turn(try_box(wait)?)))
}

/// `semaphore_up` and `mutex_unlock`.
fn up(process: &Process, kind: ObjectKind, object: usize) -> CallResult {
    process.hand_over(|all| all.up(kind, object))
}

/// Size of the two numbers that `pipe` stores.
const PIPE_BYTES: usize = 16;

/// `pipe(*mut [usize; 2])`.
fn pipe(process: &Process, numbers: UserRange) -> CallResult {
    file::pipe(process, numbers, 0)
}

/// `open(path, flags)`.
///
/// # Errors
/// `EINVAL` for unknown flags, `ENOMEM`; those of the path are the operation's.
fn open_named(process: &Process, path: Text, flags: usize) -> Result<Operation, Errno> {
    let access = match flags & (number::open::WRITE_ONLY | number::open::READ_WRITE) {
        0 => open::READ_ONLY,
        number::open::WRITE_ONLY => open::WRITE_ONLY,
        number::open::READ_WRITE => open::READ_WRITE,
        _ => return Err(Errno::EINVAL),
    };
    let known = number::open::WRITE_ONLY
        | number::open::READ_WRITE
        | number::open::CREATE
        | number::open::TRUNCATE;
    let creates = flags & number::open::CREATE != 0;
    let truncates = creates || flags & number::open::TRUNCATE != 0;
    let native = match (creates, truncates) {
        _ if flags & !known != 0 => return Err(Errno::EINVAL),
        (true, _) => access | open::CREATE | open::TRUNCATE,
        (false, true) => access | open::TRUNCATE,
        (false, false) => access,
    };
    mm::admit()?;
    let permissions = PERMISSIONS & !process.files.lock().mask;
    let then = Then::Open { flags: native, permissions, number: None };
    let call = PathCall::new(directory_of(&path, creates), Walk::new(path)?, true, then);
    Ok(Operation::Path(try_box(call)?))
}

/// The directory that a name belongs to: `/tmp` if it is there or is to be created, otherwise the
/// root.
fn directory_of(name: &str, creates: bool) -> NodeRef {
    let root = fs::root_directory();
    if !name.contains('/')
        && let Some(Ok(temporary)) = fs::look_up(root, "tmp", &mut Ask::default())
        && (creates || matches!(fs::look_up(&temporary, name, &mut Ask::default()), Some(Ok(_))))
    {
        return temporary;
    }
    root.clone()
}

/// The path of a program, which is in the root directory if there is no slash in its name.
fn in_root(name: &Text) -> Result<Text, Errno> {
    let mut path = Text::try_from_str(if name.contains('/') { "" } else { "/" })?;
    path.try_push_str(name)?;
    Ok(path)
}

/// `connect(IPv4 address, local port, remote port)`.
fn connect(process: &Process, address: u32, local_port: u16, remote_port: u16) -> CallResult {
    mm::admit()?;
    // The search for a free port would not be bounded.
    if local_port == 0 || remote_port == 0 {
        return Err(Errno::EINVAL);
    }
    let local = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), local_port);
    let remote = SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(address)), remote_port);
    let socket = Datagrams::new(false)?;
    // A given port is found, or not, in one portion.
    let family = process.family;
    socket.bind(local, family)?.and(socket.connect(remote, family)?).ok_or(Errno::EAGAIN)?;
    insert(process, Object::Datagrams(socket))
}

/// `listen(port)`.
fn listen(process: &Process, port: u16) -> CallResult {
    mm::admit()?;
    if port == 0 {
        return Err(Errno::EINVAL);
    }
    let socket = Socket::new(false)?;
    // A given port is found, or not, in one portion.
    socket
        .bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port), process.family)?
        .and(socket.listen(BACKLOG, process.family)?)
        .ok_or(Errno::EAGAIN)?;
    insert(process, Object::Socket(socket))
}

/// Puts an open file into the process's table; the result is its descriptor.
fn insert(process: &Process, object: Object) -> CallResult {
    let file = try_arc(File::new(object, open::READ_WRITE))?;
    process.files.lock().insert(file, false).map(|file| file.0)
}

/// `exit(code)`.
fn exit(cpu: &Arc<VirtualCpu>, code: i32) -> Reply {
    let thread = cpu.tutorial_number();
    if thread == FIRST_THREAD {
        cpu.process.end(WaitStatus::Exited(code));
        return Reply::Outcome(Outcome::Yield);
    }
    cpu.process.end_numbered_thread(thread, code);
    cpu.process.end_cpu(cpu, 0);
    Reply::Outcome(Outcome::Sleep)
}

/// `sleep(milliseconds)`.
fn sleep(milliseconds: usize) -> Operation {
    let nanoseconds = (milliseconds as u64).saturating_mul(NANOSECONDS_PER_MILLISECOND);
    let ticks = timer::ticks_from_nanoseconds(nanoseconds);
    Operation::sleep_until(arch::now_ticks().saturating_add(ticks))
}

/// `kill(process, bits of signals)`.
fn kill(caller: &Process, args: &Arguments<'_>) -> CallResult {
    let signals = args.flags(1, SIGNALS)?;
    // The lowest bit, or no signal, which only checks.
    let signal = if signals == 0 { 0 } else { signals.trailing_zeros() as u8 };
    process::kill_one(caller, args.process_id(0)?, signal)
}

/// `waitpid(process or -1, *mut i32)`.
fn wait(process: &Process, args: &Arguments<'_>) -> CallResult {
    let place = args.structure(1, size_of::<i32>())?;
    let place = PinnedBuffer::new(&process.space, place, Access::Write)?;
    match children::learn(process.id, args.children(0)?, News::Ended.bit(), false, false)? {
        Found::News(Learned { id, what: Happened::Ended(status), .. }) => {
            place.write_at(0, &status.tutorial_code().to_le_bytes());
            Ok(id as usize)
        }
        _ => Ok(NOT_YET as usize),
    }
}
