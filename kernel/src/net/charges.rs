//! What TCP connections cost, and which process pays for each (decision 16).
#![forbid(unsafe_code)]

use alloc::boxed::Box;

use cops_abi::Errno;
use cops_fallible::try_box;
use cops_net::Payer;

use super::tcp_buffer_bytes;
use crate::mm::quota::{self, Charge, Family, Lent, MemoryCharge};

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

/// The charge for a connection that a process of `family` opens or accepts: its two buffers, less
/// what is charged for its socket. The stack keeps it until the connection is freed, which may be
/// long after the socket is closed.
///
/// # Errors
/// `ENOMEM`.
pub fn open(family: Family) -> Result<Box<MemoryCharge>, Errno> {
    Ok(try_box(MemoryCharge::new(family, buffers_bytes() - SOCKET_BYTES)?)?)
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
