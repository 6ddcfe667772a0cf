//! Calls on sockets that only Linux programs make: pairs, options, timeouts.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::file::open;
use cops_abi::linux::{AF_UNIX, socket_option as option};
use cops_abi::socket::{AF_INET, AF_INET6, SOCK_DGRAM, SOCK_STREAM};
use cops_fallible::try_arc;

use super::super::arguments::Arguments;
use super::super::network::SOCKET_FLAGS;
use crate::fs::{File, Object, pair};
use crate::mm::{self, Access, PinnedBuffer};
use crate::net::{Change, DATAGRAM_BYTES_MAX, Datagrams};
use crate::process::Process;
use crate::sched::Waiting;

/// Size of a number among the options.
pub const NUMBER_BYTES: usize = 4;
/// Size of `timeval`: seconds and microseconds, of eight bytes each.
const TIMEVAL_BYTES: usize = 16;
const MICROSECONDS_PER_SECOND: u64 = 1_000_000;
/// Linux's bounds of how a silent peer is probed.
const KEEP_SECONDS_MAX: u16 = 32_767;
const KEEP_COUNT_MAX: u8 = 127;
/// The size of a socket's buffers, as the options report it.
const BUFFER_BYTES: u32 = 4096;

/// The open file with this number, which is a socket.
pub fn socket(args: &Arguments<'_>) -> Result<Arc<File>, Errno> {
    let file = args.file(0)?;
    match &file.object {
        Object::Socket(_) | Object::Datagrams(_) | Object::Paired(_) => Ok(file),
        _ => Err(Errno::ENOTSOCK),
    }
}

/// `socketpair(AF_UNIX, SOCK_STREAM, 0, *mut [i32; 2])`.
pub fn make_pair(process: &Process, args: &Arguments<'_>) -> CallResult {
    let (kind, flags) = (args.number(1) & !SOCKET_FLAGS, (args.number(1) & SOCKET_FLAGS) as u32);
    if args.number(0) != AF_UNIX {
        return Err(Errno::EAFNOSUPPORT);
    }
    if kind != SOCK_STREAM || args.number(2) != 0 {
        return Err(Errno::EPROTONOSUPPORT);
    }
    mm::admit()?;
    // Before there is anything to close.
    let place = args.structure(3, 2 * NUMBER_BYTES)?;
    let place = PinnedBuffer::new(&process.space, place, Access::Write)?;
    let [first, second] = pair(process.family)?;
    let first = try_arc(File::new(Object::Paired(first), open::READ_WRITE | flags))?;
    let second = try_arc(File::new(Object::Paired(second), open::READ_WRITE | flags))?;
    let closes = flags & open::CLOSE_ON_EXEC != 0;
    let mut files = process.files.lock();
    files.reserve(2)?;
    files.pay_for(&first)?;
    files.pay_for(&second)?;
    let first = files.insert(first, closes)?;
    let second = files.insert(second, closes)?;
    place.write_at(0, &(first.0 as u32).to_le_bytes());
    place.write_at(NUMBER_BYTES, &(second.0 as u32).to_le_bytes());
    Ok(0)
}

/// `shutdown(fd, how)` of a pair; `None`: it is another socket.
pub fn shut_down_pair(args: &Arguments<'_>) -> Option<CallResult> {
    let file = args.file(0).ok()?;
    let Object::Paired(paired) = &file.object else { return None };
    Some(args.shutdown(1).map(|_| {
        let how = args.number(1);
        paired.shut_down(how != 1, how != 0);
        0
    }))
}

/// `setsockopt(fd, level, name, *const value, length)`.
pub fn set_option(process: &Process, args: &Arguments<'_>) -> CallResult {
    let file = socket(args)?;
    if args.number(4) < NUMBER_BYTES {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; NUMBER_BYTES];
    process.space.copy_in(args.structure(3, NUMBER_BYTES)?, &mut bytes)?;
    let is_on = bytes != [0; NUMBER_BYTES];
    let option = (args.number(1), args.number(2));
    if let Some(waiting) = direction_of_timeout(option) {
        let microseconds = read_timeout(process, args)?;
        file.timeouts().ok_or(Errno::ENOTSOCK)?.set(waiting, microseconds);
        return Ok(0);
    }
    if let Object::Socket(socket) = &file.object
        && let Some(change) = change_of(option, bytes)?
    {
        socket.change_option(change);
        return Ok(0);
    }
    match (option, &file.object) {
        (option::BROADCAST, Object::Datagrams(socket)) => socket.allow_broadcasts(is_on),
        // There are no errors of datagrams.
        (option::ERRORS | option::ERRORS_V6, Object::Datagrams(_)) => {}
        (option::NO_DELAY, Object::Datagrams(_)) => return Err(Errno::ENOPROTOOPT),
        // Ports are free at once when their sockets are closed; buffers have one size.
        (
            option::REUSE_ADDRESS
            | option::SEND_BUFFER
            | option::RECEIVE_BUFFER
            | option::NO_DELAY
            | option::KEEP_ALIVE,
            _,
        ) => {}
        // The default of each: none, and IPv6 sockets serve IPv6 and IPv4.
        (option::LINGER | option::ONLY_IPV6, _) if !is_on => {}
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(0)
}

/// The change of a TCP socket that is asked for; `None`: the option changes nothing of one.
///
/// # Errors
/// `EINVAL` for a number outside of Linux's bounds.
fn change_of(option: (usize, usize), bytes: [u8; NUMBER_BYTES]) -> Result<Option<Change>, Errno> {
    let number = i32::from_le_bytes(bytes);
    let seconds = || match u16::try_from(number) {
        Ok(seconds @ 1..=KEEP_SECONDS_MAX) => Ok(seconds),
        _ => Err(Errno::EINVAL),
    };
    Ok(Some(match option {
        option::NO_DELAY => Change::NoDelay(number != 0),
        option::KEEP_ALIVE => Change::KeepAlive(number != 0),
        option::KEEP_IDLE => Change::IdleSeconds(seconds()?),
        option::KEEP_INTERVAL => Change::IntervalSeconds(seconds()?),
        option::KEEP_COUNT => match u8::try_from(number) {
            Ok(count @ 1..=KEEP_COUNT_MAX) => Change::Probes(count),
            _ => return Err(Errno::EINVAL),
        },
        _ => return Ok(None),
    }))
}

/// The direction of the calls that wait no longer than this option says.
fn direction_of_timeout(option: (usize, usize)) -> Option<Waiting> {
    match option {
        option::RECEIVE_TIMEOUT => Some(Waiting::ToRead),
        option::SEND_TIMEOUT => Some(Waiting::ToWrite),
        _ => None,
    }
}

/// The microseconds of the `timeval` that `setsockopt` is given; `None`: without a limit. As on
/// Linux, a negative time is over at once.
fn read_timeout(process: &Process, args: &Arguments<'_>) -> Result<Option<u64>, Errno> {
    if args.number(4) < TIMEVAL_BYTES {
        return Err(Errno::EINVAL);
    }
    let mut words = [[0; 8]; TIMEVAL_BYTES / 8];
    process.space.copy_in(args.structure(3, TIMEVAL_BYTES)?, words.as_flattened_mut())?;
    let [seconds, microseconds] = words.map(u64::from_le_bytes);
    if microseconds >= MICROSECONDS_PER_SECOND {
        return Err(Errno::EDOM);
    }
    if (seconds as i64) < 0 {
        return Ok(Some(0));
    }
    let whole = seconds.checked_mul(MICROSECONDS_PER_SECOND);
    let all = whole.and_then(|whole| whole.checked_add(microseconds));
    Ok(all.filter(|&all| all != 0))
}

/// `getsockopt(fd, level, name, *mut value, *mut u32 length)`.
pub fn option(process: &Process, args: &Arguments<'_>) -> CallResult {
    let file = socket(args)?;
    let mut length = [0; NUMBER_BYTES];
    process.space.copy_in(args.structure(4, NUMBER_BYTES)?, &mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    let option = (args.number(1), args.number(2));
    let mut value = [0; TIMEVAL_BYTES];
    let bytes = if let Some(waiting) = direction_of_timeout(option) {
        let timeout = file.timeouts().and_then(|timeouts| timeouts.get(waiting)).unwrap_or(0);
        let (seconds, rest) =
            (timeout / MICROSECONDS_PER_SECOND, timeout % MICROSECONDS_PER_SECOND);
        value[..8].copy_from_slice(&seconds.to_le_bytes());
        value[8..].copy_from_slice(&rest.to_le_bytes());
        TIMEVAL_BYTES
    } else {
        value[..NUMBER_BYTES].copy_from_slice(&number_option(&file, option)?.to_le_bytes());
        NUMBER_BYTES
    };
    // All of it, or what there is room for.
    let stored = length.min(bytes);
    process.space.copy_out(args.structure(3, stored)?, &value[..stored])?;
    let place = args.structure(4, NUMBER_BYTES)?;
    process.space.copy_out(place, &(stored as u32).to_le_bytes())?;
    Ok(0)
}

/// The value of an option that is a number.
fn number_option(file: &File, option: (usize, usize)) -> Result<u32, Errno> {
    if let Object::Datagrams(socket) = &file.object {
        return datagram_option(socket, option);
    }
    let tcp = match &file.object {
        Object::Socket(socket) => Some(socket),
        _ => None,
    };
    Ok(match option {
        option::ERROR => tcp.and_then(|socket| socket.take_error()).map_or(0, |error| error as u32),
        option::TYPE => SOCK_STREAM as u32,
        option::DOMAIN => match tcp {
            Some(socket) if socket.is_v6() => AF_INET6.into(),
            Some(_) => AF_INET.into(),
            None => AF_UNIX as u32,
        },
        option::PROTOCOL => tcp.map_or(0, |_| option::TCP as u32),
        option::LISTENS => tcp.is_some_and(|socket| socket.is_listening()).into(),
        option::SEND_BUFFER | option::RECEIVE_BUFFER => BUFFER_BYTES,
        option::REUSE_ADDRESS | option::LINGER | option::ONLY_IPV6 => 0,
        _ => {
            let options = tcp.ok_or(Errno::ENOPROTOOPT)?.options();
            match option {
                option::NO_DELAY => options.no_delay().into(),
                option::KEEP_ALIVE => options.keep_alive().into(),
                option::KEEP_IDLE => options.probing().idle_seconds.into(),
                option::KEEP_INTERVAL => options.probing().interval_seconds.into(),
                option::KEEP_COUNT => options.probing().probes.into(),
                _ => return Err(Errno::ENOPROTOOPT),
            }
        }
    })
}

/// As [`number_option`], of a UDP socket.
fn datagram_option(socket: &Datagrams, option: (usize, usize)) -> Result<u32, Errno> {
    Ok(match option {
        option::TYPE => SOCK_DGRAM as u32,
        option::DOMAIN if socket.is_v6() => AF_INET6.into(),
        option::DOMAIN => AF_INET.into(),
        option::PROTOCOL => option::UDP as u32,
        option::BROADCAST => socket.allows_broadcasts().into(),
        option::SEND_BUFFER | option::RECEIVE_BUFFER => DATAGRAM_BYTES_MAX as u32,
        // No error of the network is reported to a socket.
        option::ERROR
        | option::LISTENS
        | option::REUSE_ADDRESS
        | option::KEEP_ALIVE
        | option::LINGER
        | option::ONLY_IPV6
        | option::ERRORS
        | option::ERRORS_V6 => 0,
        _ => return Err(Errno::ENOPROTOOPT),
    })
}
