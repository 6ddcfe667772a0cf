//! The kernel's calls that never wait, each as one safe function. Those that can wait are in [`crate::call`].
//!
//! May touch: the kernel. Knows nothing of coroutines.
#![allow(unsafe_code)]

use core::net::SocketAddr;
use core::ptr::NonNull;

use cops_abi::errno::{CallResult, decode};
use cops_abi::quota::Quota;
use cops_abi::socket::{self, ADDRESS_BYTES_MAX};
use cops_abi::statistics::Statistics;
use cops_abi::syscall::{self as number, CallHandle, map_flags, protection};
use cops_abi::trace::operation;
use cops_abi::{Errno, Priority};

/// A synchronous call.
///
/// # Safety
/// Memory that the arguments name is readable, or writable, for as much as this call reads and writes.
pub(crate) unsafe fn call<const COUNT: usize>(number: usize, arguments: [usize; COUNT]) -> CallResult {
    const { assert!(COUNT <= 6) };
    let mut all = [0; 6];
    for (place, argument) in all.iter_mut().zip(arguments) {
        *place = argument;
    }
    // SAFETY: coroutine 0 makes it synchronous, so it is over when it returns; the rest is the caller's promise.
    let (value, _) = unsafe { crate::arch::system_call(number, all, 0, 0) };
    decode(value)
}

/// Lets the kernel run something else.
pub(crate) fn yield_cpu() {
    // SAFETY: no memory. It cannot fail.
    let _ = unsafe { call(number::SCHED_YIELD, []) };
}

/// Lets the kernel run something else, however much less urgent it is: for who waits for a lock whose holder has lost its
/// hart. After `yield_cpu` the kernel goes on with the most urgent, which may be the one that waits, for ever.
pub(crate) fn stand_aside() {
    const MONOTONIC: usize = 1;
    let duration = [0_u64, 50_000];
    // SAFETY: the kernel only reads the duration, and has done so when the call returns.
    let _ =
        unsafe { call(number::CLOCK_NANOSLEEP, [MONOTONIC, 0, duration.as_ptr().expose_provenance(), 0]) };
}

/// Ends the process.
pub(crate) fn exit_group(code: u8) -> ! {
    loop {
        // SAFETY: no memory.
        let _ = unsafe { call(number::EXIT_GROUP, [code.into()]) };
    }
}

pub(crate) fn process_id() -> u32 {
    // SAFETY: no memory.
    unsafe { call(number::GETPID, []) }.map_or(0, |pid| pid as u32)
}

pub(crate) fn parent_id() -> u32 {
    // SAFETY: no memory.
    unsafe { call(number::GETPPID, []) }.map_or(0, |pid| pid as u32)
}

pub(crate) fn kill(pid: u32, signal: u8) -> Result<(), Errno> {
    // SAFETY: no memory.
    unsafe { call(number::KILL, [pid as usize, signal.into()]) }.map(drop)
}

pub(crate) fn close(fd: i32) -> Result<(), Errno> {
    // SAFETY: no memory. That nobody uses the descriptor any more is `Fd`'s business.
    unsafe { call(number::CLOSE, [fd as usize]) }.map(drop)
}

/// Writes as much as the kernel takes at once, waiting for at least a byte; the whole virtual CPU waits.
pub(crate) fn write(fd: i32, bytes: &[u8]) -> CallResult {
    // SAFETY: the slice outlives the call.
    unsafe { call(number::WRITE, [fd as usize, bytes.as_ptr().addr(), bytes.len()]) }
}

/// `path` is passed with its terminating zero.
pub(crate) fn open(path: &core::ffi::CStr) -> CallResult {
    const READ_ONLY: usize = 0;
    // SAFETY: the string outlives the call.
    unsafe { call(number::OPENAT, [number::AT_FDCWD as usize, path.as_ptr().addr(), READ_ONLY, 0]) }
}

pub(crate) fn seek(fd: i32, offset: i64, whence: usize) -> CallResult {
    // SAFETY: no memory.
    unsafe { call(number::LSEEK, [fd as usize, offset as usize, whence]) }
}

pub(crate) fn directory_entries(fd: i32, buffer: &mut [u8]) -> CallResult {
    // SAFETY: the slice outlives the call.
    unsafe { call(number::GETDENTS64, [fd as usize, buffer.as_mut_ptr().addr(), buffer.len()]) }
}

/// The reading and the writing end.
pub(crate) fn pipe() -> Result<[i32; 2], Errno> {
    let mut ends = [-1; 2];
    // SAFETY: the array outlives the call and has the size of two integers.
    unsafe { call(number::PIPE2, [(&raw mut ends).addr(), 0]) }?;
    Ok(ends)
}

/// `arguments` ends with a null pointer; each of the others points at a string that ends with a zero.
///
/// # Safety
/// What it says above.
pub(crate) unsafe fn spawn_process(
    path: &core::ffi::CStr,
    arguments: &[*const core::ffi::c_char],
    ceiling: Option<Priority>,
    console: Option<usize>,
) -> CallResult {
    let ceiling = ceiling.map_or(0, |level| usize::from(level.level()) + 1);
    let console = console.map_or(0, |mode| mode + 1);
    let arguments = [path.as_ptr().addr(), arguments.as_ptr().addr(), ceiling, console];
    // SAFETY: the kernel copies strings and pointers before it returns.
    unsafe { call(number::COPS_SPAWN_PROCESS, arguments) }
}

pub(crate) fn tcp_socket(address: SocketAddr) -> CallResult {
    let family = if address.is_ipv4() { socket::AF_INET } else { socket::AF_INET6 };
    // SAFETY: no memory.
    unsafe { call(number::SOCKET, [family.into(), socket::SOCK_STREAM, 0]) }
}

pub(crate) fn bind(fd: i32, address: SocketAddr) -> Result<(), Errno> {
    let mut bytes = [0; ADDRESS_BYTES_MAX];
    let length = socket::encode(address, &mut bytes);
    // SAFETY: the array outlives the call.
    unsafe { call(number::BIND, [fd as usize, bytes.as_ptr().addr(), length]) }.map(drop)
}

pub(crate) fn listen(fd: i32, backlog: u32) -> Result<(), Errno> {
    // SAFETY: no memory.
    unsafe { call(number::LISTEN, [fd as usize, backlog as usize]) }.map(drop)
}

/// Which end of a connection an address is asked of.
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
    // SAFETY: array and length outlive the call, and the length is the array's.
    unsafe { call(number, [fd as usize, bytes.as_mut_ptr().addr(), (&raw mut length).addr()]) }?;
    socket::decode(bytes.get(..length as usize).ok_or(Errno::EIO)?)
}

pub(crate) fn shutdown(fd: i32, how: usize) -> Result<(), Errno> {
    // SAFETY: no memory.
    unsafe { call(number::SHUTDOWN, [fd as usize, how]) }.map(drop)
}

/// New zeroed memory, readable and writable; `bytes` is a multiple of the page size.
pub(crate) fn map(bytes: usize) -> Option<NonNull<u8>> {
    let rights = protection::READ | protection::WRITE;
    let flags = map_flags::PRIVATE | map_flags::ANONYMOUS;
    // SAFETY: address 0 leaves the choice of unused addresses to the kernel: nobody's memory changes.
    let address = unsafe { call(number::MMAP, [0, bytes, rights, flags, usize::MAX, 0]) }.ok()?;
    NonNull::new(core::ptr::with_exposed_provenance_mut(address))
}

/// Random numbers into the first `bytes`, at most 256; returns how many.
pub(crate) fn random(bytes: &mut [u8]) -> CallResult {
    // SAFETY: the slice outlives the call.
    unsafe { call(number::GETRANDOM, [bytes.as_mut_ptr().addr(), bytes.len(), 0]) }
}

pub(crate) fn statistics() -> Result<Statistics, Errno> {
    let mut bytes = [0u8; size_of::<Statistics>()];
    // SAFETY: the array outlives the call.
    unsafe { call(number::COPS_STATISTICS, [bytes.as_mut_ptr().addr(), bytes.len()]) }?;
    Ok(Statistics::from_bytes(&bytes))
}

/// Fills `buffer` with records of what there is; how many bytes.
pub(crate) fn inspect(request: usize, from: u64, buffer: &mut [u8]) -> CallResult {
    let arguments = [request, from as usize, buffer.as_mut_ptr().addr(), buffer.len()];
    // SAFETY: the slice outlives the call.
    unsafe { call(number::COPS_INSPECT, arguments) }
}

/// Switches tracing on or off; whether it was on.
pub(crate) fn trace_control(on: bool) -> Result<bool, Errno> {
    // SAFETY: no memory.
    unsafe { call(number::COPS_TRACE, [operation::CONTROL, on.into()]) }.map(|before| before != 0)
}

/// Fills `buffer`, which begins with a header, with trace records of a hart; how many bytes.
pub(crate) fn trace_read(hart: usize, buffer: &mut [u8]) -> CallResult {
    let arguments = [operation::READ, hart, buffer.as_mut_ptr().addr(), buffer.len()];
    // SAFETY: the slice outlives the call.
    unsafe { call(number::COPS_TRACE, arguments) }
}

/// Sleeps this virtual CPU until somebody unparks it.
pub(crate) fn park() {
    // SAFETY: no memory. Whoever parks looks again why it woke, so an error is a spurious wake.
    let _ = unsafe { call(number::COPS_PARK, []) };
}

pub(crate) fn unpark(cpu: u32) {
    // SAFETY: no memory. It fails only for a virtual CPU that does not exist, which cannot have parked.
    let _ = unsafe { call(number::COPS_UNPARK, [cpu as usize]) };
}

/// Starts `count` more virtual CPUs at `entry`, each on a stack of its own; how many there are now.
pub(crate) fn allocate_cpus(count: usize, entry: extern "C" fn(usize) -> !) -> CallResult {
    // SAFETY: the entry is a function of this program that never returns.
    unsafe { call(number::COPS_ALLOC_CPU, [count, entry as usize]) }
}

/// How a cancelled call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cancelled {
    /// The kernel forgot it and touches its memory no more.
    Gone,
    /// It had completed: its result is in the ring, or on its way to it.
    Completed,
}

pub(crate) fn cancel(handle: CallHandle) -> Cancelled {
    // SAFETY: no memory. An unknown handle is an error; ours are known until their result has been sent.
    match unsafe { call(number::COPS_CANCEL, [handle.0.get() as usize]) } {
        Ok(0) => Cancelled::Gone,
        _ => Cancelled::Completed,
    }
}

/// Changes the priority with which a call in flight is finished; one that has completed keeps its own.
pub(crate) fn set_call_priority(handle: u64, priority: Priority) {
    // SAFETY: no memory. It fails for handles that are none, which do no harm.
    let _ = unsafe { call(number::COPS_SET_CALL_PRIORITY, [handle as usize, priority.level().into()]) };
}

pub(crate) fn set_ceiling(pid: u32, level: Priority) -> Result<(), Errno> {
    // SAFETY: no memory.
    unsafe { call(number::COPS_SET_CEILING, [pid as usize, level.level().into()]) }.map(drop)
}

/// Hands the console to this process (0) or a child.
pub(crate) fn hand_over_console(pid: u32, mode: usize) -> Result<(), Errno> {
    // SAFETY: no memory.
    unsafe { call(number::COPS_CONSOLE, [pid as usize, mode]) }.map(drop)
}

pub(crate) fn quota(pid: u32, kind: usize, limit: usize) -> Result<Quota, Errno> {
    let mut bytes = [0; Quota::BYTES];
    let arguments = [pid as usize, kind, limit, bytes.as_mut_ptr().addr()];
    // SAFETY: so many bytes are the kernel's to write until it returns.
    unsafe { call(number::COPS_QUOTA, arguments) }?;
    Ok(Quota::from_bytes(&bytes))
}

pub(crate) fn set_share(per_mille: u32) -> CallResult {
    // SAFETY: no memory.
    unsafe { call(number::COPS_SET_SHARE, [per_mille as usize]) }
}

/// Moves results for which the ring had no room into it.
pub(crate) fn refill_ring() {
    // SAFETY: no memory but the ring's, which is made for it.
    let _ = unsafe { call(number::COPS_REFILL_RING, []) };
}
