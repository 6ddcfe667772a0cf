//! What TCP connections and ports cost, and which process pays for each (decision 16).
#![forbid(unsafe_code)]

use alloc::boxed::Box;

use cops_abi::Errno;
use cops_fallible::try_box;
use cops_net::Payer;

use super::tcp_buffer_bytes;
use crate::mm::quota::{self, Charge, Family, Lent, MemoryCharge, PortCharge};

/// Memory for a TCP socket in addition to its file: its queues, and its port. Charged with the
/// descriptor.
pub const SOCKET_BYTES: u64 = 1024;
/// Memory for a connection that waits to be accepted in addition to its two buffers.
const WAITING_BYTES: u64 = 4096;

fn buffers_bytes() -> u64 {
    2 * tcp_buffer_bytes() as u64
}

fn waiting_bytes() -> u64 {
    WAITING_BYTES + buffers_bytes()
}

fn open(family: Family) -> Result<MemoryCharge, Errno> {
    MemoryCharge::new(family, buffers_bytes() - SOCKET_BYTES)
}

/// The charge for a connection that a process of `family` accepts: its two buffers, less what is
/// charged for its socket. The stack keeps it until the connection is freed, which may be long
/// after the socket is closed. Its port is that of the listener.
///
/// # Errors
/// `ENOMEM`.
pub fn accept(family: Family) -> Result<Box<MemoryCharge>, Errno> {
    Ok(try_box(open(family)?)?)
}

/// The charge for a connection that a process opens, which the stack keeps too.
pub struct Opened {
    _memory: MemoryCharge,
    /// For the port that is chosen for it. The charge for a port to which a socket is bound is the
    /// socket's.
    _port: Option<PortCharge>,
}

/// As [`accept`], for a connection that a process opens; `is_bound`: from the port to which its
/// socket is bound.
///
/// # Errors
/// `ENOMEM`, `EADDRNOTAVAIL`.
pub fn connect(family: Family, is_bound: bool) -> Result<Box<Opened>, Errno> {
    let port = if is_bound { None } else { Some(PortCharge::new(family)?) };
    Ok(try_box(Opened { _memory: open(family)?, _port: port })?)
}

/// The charge for a port to which a process binds a socket, at its request.
///
/// # Errors
/// `EADDRINUSE`, as on Linux if all ports are in use.
pub fn bind(family: Family) -> Result<PortCharge, Errno> {
    PortCharge::new(family).map_err(|error| match error {
        Errno::EADDRNOTAVAIL => Errno::EADDRINUSE,
        other => other,
    })
}

/// What is charged to `payer` for a connection that waits, if that is the family of the process
/// that accepts it. It is released when the connection is taken, and an accepted one costs less: so
/// it is lent until then. Otherwise a backlog could use up the quota without which it cannot be
/// accepted.
pub fn lend(payer: Family, family: Family) -> Option<Lent> {
    (payer == family).then(|| Lent::new(family, waiting_bytes()))
}

/// Charges the connections of a backlog to the process that listens, which has a standing charge.
pub struct BacklogPayer(pub Charge);

impl Payer for BacklogPayer {
    fn charge(&self) -> bool {
        quota::charge_memory(self.0.family(), waiting_bytes()).is_ok()
    }

    fn release(&self) {
        quota::release_memory(self.0.family(), waiting_bytes());
    }
}
