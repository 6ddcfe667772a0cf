//! The system calls that never wait, each as a safe function. Calls that can wait are in
//! [`crate::call`].
//!
//! May touch: the kernel. This module does not depend on coroutines.
#![allow(unsafe_code)]

use core::net::SocketAddr;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use core::time::Duration;

use cops_abi::errno::{CallResult, decode};
use cops_abi::quota::Quota;
use cops_abi::socket::{self, ADDRESS_BYTES_MAX};
use cops_abi::statistics::Statistics;
use cops_abi::syscall::{self as number, CallHandle, SpawnOptions, map_flags, protection};
use cops_abi::trace::operation;
use cops_abi::{Errno, Priority};

/// Makes a synchronous call.
///
/// # Safety
/// The memory that the arguments name is readable or writable, as far as this call reads or writes
/// it.
pub(crate) unsafe fn call<const COUNT: usize>(
    number: usize,
    arguments: [usize; COUNT],
) -> CallResult {
    const { assert!(COUNT <= 6) };
    let mut all = [0; 6];
    for (place, argument) in all.iter_mut().zip(arguments) {
        *place = argument;
    }
    // SAFETY: coroutine 0 makes the call synchronous, so it has ended when it returns; this
    // function's contract covers the memory.
    let (value, _) = unsafe { crate::arch::system_call(number, all, 0, 0) };
    decode(value)
}

/// Lets the kernel run something else that is at least as urgent.
pub(crate) fn yield_cpu() {
    // SAFETY: the call passes no memory address. It cannot fail.
    let _ = unsafe { call(number::SCHED_YIELD, []) };
}

/// Waits until `word` is no longer `value`, or a wake, or for at most `limit`. May return earlier.
///
/// # Errors
/// `ETIMEDOUT`. Other errors of the call only mean that it did not wait, as if it was woken: the
/// caller tries again.
pub(crate) fn futex_wait(
    word: &AtomicU32,
    value: u32,
    limit: Option<Duration>,
) -> Result<(), Errno> {
    // More seconds than the kernel has a number for are an error.
    let seconds = |limit: Duration| limit.as_secs().min(i64::MAX as u64);
    let limit = limit.map(|limit| [seconds(limit), limit.subsec_nanos().into()]);
    let limit = limit.as_ref().map_or(0, |limit| limit.as_ptr().expose_provenance());
    let place = word.as_ptr().expose_provenance();
    // SAFETY: the kernel only reads the word and the time; both are borrowed until the call
    // returns.
    match unsafe { call(number::FUTEX, [place, number::futex::WAIT, value as usize, limit]) } {
        Err(Errno::ETIMEDOUT) => Err(Errno::ETIMEDOUT),
        Err(Errno::ENOMEM) => {
            // For the sleep there may be no memory either.
            back_off();
            yield_cpu();
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Wakes at most `count` threads that wait on the word at this address, which need not exist any
/// more.
pub(crate) fn futex_wake(word: *const AtomicU32, count: u32) {
    // SAFETY: the kernel uses the address only to find those that wait there.
    let _ = unsafe { call(number::FUTEX, [word.addr(), number::futex::WAKE, count as usize]) };
}

/// Ends the calling thread, which is not a virtual CPU of the executor.
pub(crate) fn exit_thread() -> ! {
    loop {
        // SAFETY: the call passes no memory address, and does not return.
        let _ = unsafe { call(number::EXIT, [0]) };
    }
}

/// Sets the level of a thread of this process.
pub(crate) fn set_thread_priority(id: u32, priority: Priority) -> Result<(), Errno> {
    let arguments = [id as usize, priority.level().into()];
    // SAFETY: the call passes only numbers, so the kernel accesses no memory of this program.
    unsafe { call(number::COPS_SET_THREAD_PRIORITY, arguments) }.map(drop)
}

/// Chooses the kernel's half of this process's calls.
pub(crate) fn set_kernel_model(model: u8) -> Result<(), Errno> {
    // SAFETY: the call passes only a number, so the kernel accesses no memory of this program.
    unsafe { call(number::COPS_SET_KERNEL_MODEL, [model.into()]) }.map(drop)
}

/// Limits how long synchronous reads or writes of a socket wait: with the option of the direction
/// that `socket_option` has. Zero: no limit.
pub(crate) fn set_socket_timeout(
    fd: i32,
    (level, name): (usize, usize),
    limit: Duration,
) -> Result<(), Errno> {
    // Rounded up: 0 would be no limit.
    let microseconds = limit.as_nanos().div_ceil(1000);
    let time = [microseconds / 1_000_000, microseconds % 1_000_000];
    let time = time.map(|part| i64::try_from(part).unwrap_or(i64::MAX));
    let place = time.as_ptr().expose_provenance();
    let arguments = [fd as usize, level, name, place, size_of_val(&time)];
    // SAFETY: the kernel only reads the two numbers, and has done so when the call returns.
    unsafe { call(number::SETSOCKOPT, arguments) }.map(drop)
}

/// Makes memory inaccessible.
///
/// # Safety
/// The memory is mapped whole pages of the caller's, and nothing refers to it.
pub(crate) unsafe fn forbid(base: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
    // SAFETY: the contract of this function.
    unsafe { call(number::MPROTECT, [base.as_ptr().expose_provenance(), bytes, 0]) }.map(drop)
}

/// Unmaps memory.
///
/// # Safety
/// As [`forbid`].
pub(crate) unsafe fn unmap(base: NonNull<u8>, bytes: usize) {
    // SAFETY: the contract of this function. It fails for no pages that are mapped.
    let _ = unsafe { call(number::MUNMAP, [base.as_ptr().expose_provenance(), bytes]) };
}

/// Waits for a lock of this program: the virtual CPU with the number `holder`, or the thread with
/// that id, has it, and may be preempted. It runs as if it were as urgent, while the caller sleeps
/// for 50 us.
///
/// `yield_cpu` would not suffice: the kernel would continue with the most urgent thread, which may
/// be the waiter itself, forever. No limit of calls in flight refuses a synchronous call.
pub(crate) fn wait_for_holder(holder: usize) {
    // SAFETY: the call passes only a number, so the kernel accesses no memory of this program.
    let _ = unsafe { call(number::COPS_DONATE_PRIORITY, [holder]) };
    back_off();
}

/// Waits for a lock of the executor, which a virtual CPU that is preempted may have.
pub(crate) fn wait_for_any_holder() {
    wait_for_holder(number::HOLDER_UNKNOWN);
}

/// Sleeps for 50 us, so that a less urgent thread can run.
pub(crate) fn back_off() {
    sleep(Duration::from_micros(50));
}

/// Sleeps for less than a second, without another coroutine on this virtual CPU; less if the kernel
/// has no memory.
pub(crate) fn sleep(duration: Duration) {
    let duration = [duration.as_secs(), duration.subsec_nanos().into()];
    let place = duration.as_ptr().expose_provenance();
    // SAFETY: the kernel only reads the duration, and has done so when the call returns.
    let _ = unsafe { call(number::CLOCK_NANOSLEEP, [number::CLOCK_MONOTONIC, 0, place, 0]) };
}

/// What the real-time clock shows.
pub(crate) fn real_time() -> core::time::Duration {
    let mut time = [0_u64; 2];
    let place = time.as_mut_ptr().expose_provenance();
    // SAFETY: the kernel writes two numbers, the size of the array, which lives until the call
    // returns. It cannot fail.
    let _ = unsafe { call(number::CLOCK_GETTIME, [number::CLOCK_REALTIME, place]) };
    core::time::Duration::new(time[0], time[1] as u32)
}

/// Ends the process.
pub(crate) fn exit_group(code: u8) -> ! {
    loop {
        // SAFETY: the call passes no memory address, and does not return if it succeeds.
        let _ = unsafe { call(number::EXIT_GROUP, [code.into()]) };
    }
}

pub(crate) fn process_id() -> u32 {
    // SAFETY: the call passes only numbers, so the kernel accesses no memory of this program.
    unsafe { call(number::GETPID, []) }.map_or(0, |pid| pid as u32)
}

pub(crate) fn parent_id() -> u32 {
    // SAFETY: the call passes only numbers, so the kernel accesses no memory of this program.
    unsafe { call(number::GETPPID, []) }.map_or(0, |pid| pid as u32)
}

pub(crate) fn kill(pid: u32, signal: u8) -> Result<(), Errno> {
    // SAFETY: the call passes no memory address, and ends a process rather than changing its
    // memory.
    unsafe { call(number::KILL, [pid as usize, signal.into()]) }.map(drop)
}

pub(crate) fn close(fd: i32) -> Result<(), Errno> {
    // SAFETY: the call passes no memory address. `Fd` guarantees that the descriptor is not used
    // afterwards.
    unsafe { call(number::CLOSE, [fd as usize]) }.map(drop)
}

/// Writes as many bytes as the kernel takes at once, at least one; the whole virtual CPU waits.
pub(crate) fn write(fd: i32, bytes: &[u8]) -> CallResult {
    write_by(number::WRITE, fd, bytes)
}

/// Writes bytes to a connection or a pipe, as many as have room at once. `EAGAIN` if there is no
/// room, or if it takes another call to find out.
pub(crate) fn try_write(fd: i32, bytes: &[u8]) -> CallResult {
    write_by(number::COPS_TRY_WRITE, fd, bytes)
}

#[inline(always)]
fn write_by(number: usize, fd: i32, bytes: &[u8]) -> CallResult {
    // SAFETY: both calls that have this form only read the bytes of the slice, which is borrowed
    // until the call returns.
    unsafe { call(number, [fd as usize, bytes.as_ptr().addr(), bytes.len()]) }
}

/// Opens `path` with these flags of `openat`.
pub(crate) fn open(path: &core::ffi::CStr, flags: u32) -> CallResult {
    let directory = number::AT_FDCWD as usize;
    // SAFETY: the kernel reads the string up to its zero, and the string is borrowed until the call
    // returns.
    unsafe { call(number::OPENAT, [directory, path.as_ptr().addr(), flags as usize, 0]) }
}

pub(crate) fn seek(fd: i32, offset: i64, whence: usize) -> CallResult {
    // SAFETY: the call passes only numbers, so the kernel accesses no memory of this program.
    unsafe { call(number::LSEEK, [fd as usize, offset as usize, whence]) }
}

pub(crate) fn directory_entries(fd: i32, buffer: &mut [u8]) -> CallResult {
    // SAFETY: the kernel writes only to the slice, which is exclusively borrowed until the call
    // returns.
    unsafe { call(number::GETDENTS64, [fd as usize, buffer.as_mut_ptr().addr(), buffer.len()]) }
}

/// Creates a pipe; returns the reading and the writing end.
pub(crate) fn pipe() -> Result<[i32; 2], Errno> {
    let mut ends = [-1; 2];
    // SAFETY: the kernel writes two `i32`, the size of the array, which lives until the call
    // returns.
    unsafe { call(number::PIPE2, [(&raw mut ends).addr(), 0]) }?;
    Ok(ends)
}

/// Starts a process.
///
/// # Safety
/// `arguments` and `environment` end with a null pointer; each of the other pointers refers to a
/// string that ends with a zero and lives until the call returns.
pub(crate) unsafe fn spawn_process(
    path: &core::ffi::CStr,
    arguments: &[*const core::ffi::c_char],
    ceiling: Option<Priority>,
    options: &SpawnOptions,
    environment: Option<&[*const core::ffi::c_char]>,
) -> CallResult {
    let ceiling = ceiling.map_or(0, |ceiling| usize::from(ceiling.level()) + 1);
    let arguments = [
        path.as_ptr().addr(),
        arguments.as_ptr().addr(),
        ceiling,
        core::ptr::from_ref(options).addr(),
        environment.map_or(0, |environment| environment.as_ptr().addr()),
    ];
    // SAFETY: the path is a C string, and this function's contract covers the arguments; the kernel
    // copies all of them before it returns.
    unsafe { call(number::COPS_SPAWN_PROCESS, arguments) }
}

pub(crate) fn tcp_socket(address: SocketAddr) -> CallResult {
    let family = if address.is_ipv4() { socket::AF_INET } else { socket::AF_INET6 };
    // SAFETY: the call passes only numbers, so the kernel accesses no memory of this program.
    unsafe { call(number::SOCKET, [family.into(), socket::SOCK_STREAM, 0]) }
}

pub(crate) fn bind(fd: i32, address: SocketAddr) -> Result<(), Errno> {
    let mut bytes = [0; ADDRESS_BYTES_MAX];
    let length = socket::encode(address, &mut bytes);
    // SAFETY: the kernel reads the first `length` bytes of the array, which lives until the call
    // returns.
    unsafe { call(number::BIND, [fd as usize, bytes.as_ptr().addr(), length]) }.map(drop)
}

pub(crate) fn listen(fd: i32, backlog: u32) -> Result<(), Errno> {
    // SAFETY: the call passes only numbers, so the kernel accesses no memory of this program.
    unsafe { call(number::LISTEN, [fd as usize, backlog as usize]) }.map(drop)
}

/// The end of a connection of which the address is wanted.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Local,
    Peer,
}

pub(crate) fn socket_address(fd: i32, end: End) -> Result<SocketAddr, Errno> {
    let mut bytes = [0u8; ADDRESS_BYTES_MAX];
    let mut length = ADDRESS_BYTES_MAX as u32;
    let number = match end {
        End::Local => number::GETSOCKNAME,
        End::Peer => number::GETPEERNAME,
    };
    // SAFETY: the kernel writes at most `length` bytes, the size of the array; both live until the
    // call returns.
    unsafe { call(number, [fd as usize, bytes.as_mut_ptr().addr(), (&raw mut length).addr()]) }?;
    socket::decode(bytes.get(..length as usize).ok_or(Errno::EIO)?)
}

pub(crate) fn shutdown(fd: i32, how: usize) -> Result<(), Errno> {
    // SAFETY: the call passes only numbers, so the kernel accesses no memory of this program.
    unsafe { call(number::SHUTDOWN, [fd as usize, how]) }.map(drop)
}

/// Maps new zeroed memory, readable and writable. `bytes` is a multiple of the page size.
pub(crate) fn map(bytes: usize) -> Option<NonNull<u8>> {
    let rights = protection::READ | protection::WRITE;
    let flags = map_flags::PRIVATE | map_flags::ANONYMOUS;
    // SAFETY: address 0 lets the kernel choose unused addresses, so no existing mapping changes.
    let address = unsafe { call(number::MMAP, [0, bytes, rights, flags, usize::MAX, 0]) }.ok()?;
    NonNull::new(core::ptr::with_exposed_provenance_mut(address))
}

/// Writes random numbers to the beginning of `bytes`, at most 256. Returns how many.
pub(crate) fn random(bytes: &mut [u8]) -> CallResult {
    // SAFETY: the kernel writes only to the slice, which is exclusively borrowed until the call
    // returns.
    unsafe { call(number::GETRANDOM, [bytes.as_mut_ptr().addr(), bytes.len(), 0]) }
}

pub(crate) fn statistics() -> Result<Statistics, Errno> {
    let mut bytes = [0u8; size_of::<Statistics>()];
    // SAFETY: the kernel writes at most the size of the array, which lives until the call returns.
    unsafe { call(number::COPS_STATISTICS, [bytes.as_mut_ptr().addr(), bytes.len()]) }?;
    Ok(Statistics::from_bytes(&bytes))
}

/// Fills `buffer` with records. Returns the number of bytes.
pub(crate) fn inspect(request: usize, from: u64, buffer: &mut [u8]) -> CallResult {
    let arguments = [request, from as usize, buffer.as_mut_ptr().addr(), buffer.len()];
    // SAFETY: the kernel writes only to the slice, which is exclusively borrowed until the call
    // returns.
    unsafe { call(number::COPS_INSPECT, arguments) }
}

/// Switches tracing on or off. Returns whether it was on.
pub(crate) fn trace_control(on: bool) -> Result<bool, Errno> {
    // SAFETY: this operation passes only numbers, so the kernel accesses no memory of this program.
    unsafe { call(number::COPS_TRACE, [operation::CONTROL, on.into()]) }.map(|before| before != 0)
}

/// Fills `buffer`, which begins with a header, with trace records of a hart. Returns the number of
/// bytes.
pub(crate) fn trace_read(hart: usize, buffer: &mut [u8]) -> CallResult {
    let arguments = [operation::READ, hart, buffer.as_mut_ptr().addr(), buffer.len()];
    // SAFETY: the kernel reads and writes only the slice, which is exclusively borrowed until the
    // call returns.
    unsafe { call(number::COPS_TRACE, arguments) }
}

/// Suspends this virtual CPU until it is unparked. `leaves`: results in the ring are left to
/// another virtual CPU, if one is active.
pub(crate) fn park(leaves: bool) {
    // SAFETY: the call passes no memory address. Every caller checks its condition again, so an
    // error only means a spurious wake.
    let _ = unsafe { call(number::COPS_PARK, [leaves.into()]) };
}

pub(crate) fn unpark(cpu: u32) {
    // SAFETY: the call passes no memory address. It fails only for a virtual CPU that does not
    // exist, which cannot have parked.
    let _ = unsafe { call(number::COPS_UNPARK, [cpu as usize]) };
}

/// Starts `count` more virtual CPUs at `entry`, each on its own stack. Returns how many there are
/// now.
pub(crate) fn allocate_cpus(count: usize, entry: extern "C" fn(usize) -> !) -> CallResult {
    // SAFETY: `entry` is a function of this program that never returns, and the kernel gives each
    // virtual CPU its own stack.
    unsafe { call(number::COPS_ALLOC_CPU, [count, entry as usize]) }
}

/// The result of cancelling a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cancelled {
    /// The call was in flight; the kernel no longer accesses its memory.
    Gone,
    /// The call had completed: its result is in the ring, or will be.
    Completed,
}

pub(crate) fn cancel(handle: CallHandle) -> Cancelled {
    // SAFETY: the call passes no memory address. An unknown handle is an error; a handle is known
    // until its result has been sent.
    match unsafe { call(number::COPS_CANCEL, [handle.0.get() as usize]) } {
        Ok(0) => Cancelled::Gone,
        _ => Cancelled::Completed,
    }
}

/// Changes the priority at which the kernel completes a call in flight. Has no effect on a call
/// that has completed.
pub(crate) fn set_call_priority(handle: u64, priority: Priority) {
    // SAFETY: the call passes no memory address. It fails for unknown handles, which is harmless.
    let _ =
        unsafe { call(number::COPS_SET_CALL_PRIORITY, [handle as usize, priority.level().into()]) };
}

/// Lets the kernel fill the emptied block of a standing read with what has arrived meanwhile.
/// Returns the result of that; `None` if the next one comes through the ring.
pub(crate) fn resume_read(handle: CallHandle) -> Option<usize> {
    // SAFETY: the call passes no memory address. The kernel writes only to the block of the call,
    // which its operation owns. It fails for unknown handles, which is harmless.
    let result = unsafe { call(number::COPS_RESUME_READ, [handle.0.get() as usize]) };
    result.ok().filter(|&result| result != 0)
}

pub(crate) fn set_ceiling(pid: u32, priority: Priority) -> Result<(), Errno> {
    // SAFETY: the call passes only numbers, so the kernel accesses no memory of this program.
    unsafe { call(number::COPS_SET_CEILING, [pid as usize, priority.level().into()]) }.map(drop)
}

/// `ioctl` with a request that reads or writes at most the bytes of `argument`.
pub(crate) fn ioctl(fd: i32, request: usize, argument: &mut [u8]) -> Result<(), Errno> {
    // SAFETY: the requests of the callers transfer at most the bytes of the slice, which is
    // exclusively borrowed until the call returns.
    unsafe { call(number::IOCTL, [fd as usize, request, argument.as_mut_ptr().addr()]) }.map(drop)
}

pub(crate) fn begin_session() -> Result<(), Errno> {
    // SAFETY: the call passes only numbers, so the kernel accesses no memory of this program.
    unsafe { call(number::SETSID, []) }.map(drop)
}

pub(crate) fn kill_group(group: u32, signal: u8) -> Result<(), Errno> {
    let group = -(group as isize);
    // SAFETY: the call passes no memory address, and ends processes rather than changing their
    // memory.
    unsafe { call(number::KILL, [group as usize, signal.into()]) }.map(drop)
}

/// Ignores these signals, and no others.
pub(crate) fn ignore_signals(signals: u64) {
    // SAFETY: the call passes only numbers, and cannot fail.
    let _ = unsafe { call(number::COPS_IGNORE_SIGNALS, [signals as usize]) };
}

/// `wait4` of any child with options of which one is `WNOHANG`: its number and status.
pub(crate) fn wait_any(options: usize) -> Result<Option<(u32, i32)>, Errno> {
    let mut status = 0_i32;
    // SAFETY: the kernel writes four bytes, the size of the status, which lives until the call
    // returns.
    let pid = unsafe { call(number::WAIT4, [usize::MAX, (&raw mut status).addr(), options, 0]) }?;
    Ok((pid != 0).then_some((pid as u32, status)))
}

/// Writes the path of the current directory, with a zero at its end. Returns its length.
pub(crate) fn working_directory(bytes: &mut [u8]) -> CallResult {
    // SAFETY: the kernel writes only to the slice, which is exclusively borrowed until the call
    // returns.
    unsafe { call(number::GETCWD, [bytes.as_mut_ptr().addr(), bytes.len()]) }
}

pub(crate) fn set_working_directory(path: &core::ffi::CStr) -> Result<(), Errno> {
    // SAFETY: the path is a C string, which the kernel only reads.
    unsafe { call(number::CHDIR, [path.as_ptr().addr()]) }.map(drop)
}

/// The group of this process.
pub(crate) fn group() -> u32 {
    // SAFETY: the call passes only numbers. It cannot fail for the caller itself.
    unsafe { call(number::GETPGID, [0]) }.map_or(0, |group| group as u32)
}

/// Puts process `pid` into group `group`; 0 is this process, or a group with the process's number.
pub(crate) fn set_group(pid: u32, group: u32) -> Result<(), Errno> {
    // SAFETY: the call passes only numbers, so the kernel accesses no memory of this program.
    unsafe { call(number::SETPGID, [pid as usize, group as usize]) }.map(drop)
}

pub(crate) fn quota(pid: u32, kind: usize, limit: usize) -> Result<Quota, Errno> {
    let mut bytes = [0; Quota::BYTES];
    let arguments = [pid as usize, kind, limit, bytes.as_mut_ptr().addr()];
    // SAFETY: the kernel writes at most `Quota::BYTES`, the size of the array, which lives until
    // the call returns.
    unsafe { call(number::COPS_QUOTA, arguments) }?;
    Ok(Quota::from_bytes(&bytes))
}

pub(crate) fn set_share(per_mille: u32) -> CallResult {
    // SAFETY: the call passes only numbers, so the kernel accesses no memory of this program.
    unsafe { call(number::COPS_SET_SHARE, [per_mille as usize]) }
}

/// Moves results for which the ring had no room into the ring.
pub(crate) fn refill_ring() {
    // SAFETY: the call passes no memory address; the kernel writes only to the wake ring, and all
    // its fields are atomics.
    let _ = unsafe { call(number::COPS_REFILL_RING, []) };
}
