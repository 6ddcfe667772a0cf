//! What connections cost while they wait to be accepted (decision 16).
#![forbid(unsafe_code)]

use cops_net::Payer;

use super::tcp_buffer_bytes;
use crate::mm::quota::{self, Charge, Family, Lent};

/// Memory for a connection in addition to its two buffers.
const CONNECTION_BYTES: usize = 4096;

/// Charges them to the process that listens, which has a standing charge. Accepted connections are
/// charged as descriptors.
pub struct BacklogPayer(pub Charge);

fn connection_bytes() -> u64 {
    (CONNECTION_BYTES + 2 * tcp_buffer_bytes()) as u64
}

/// What is charged to `payer` for a connection that waits, if that is the family of the process
/// that accepts it. It is released when the connection is taken, and an accepted one costs less: so
/// it is lent until then. Otherwise a backlog could use up the quota without which it cannot be
/// accepted.
pub fn lend(payer: Family, family: Family) -> Option<Lent> {
    (payer == family).then(|| Lent::new(family, connection_bytes()))
}

impl Payer for BacklogPayer {
    fn charge(&self) -> bool {
        quota::charge_memory(self.0.family(), connection_bytes()).is_ok()
    }

    fn release(&self) {
        quota::release_memory(self.0.family(), connection_bytes());
    }
}
