//! What connections cost while they wait to be accepted (decision 16).
#![forbid(unsafe_code)]

use cops_net::Payer;

use super::tcp_buffer_bytes;
use crate::mm::quota::{self, Charge};

/// Memory for a connection in addition to its two buffers.
const CONNECTION_BYTES: usize = 4096;

/// Charges them to the process that listens, which has a standing charge. Accepted connections are
/// charged as descriptors.
pub struct BacklogPayer(pub Charge);

fn connection_bytes() -> u64 {
    (CONNECTION_BYTES + 2 * tcp_buffer_bytes()) as u64
}

impl Payer for BacklogPayer {
    fn charge(&self) -> bool {
        quota::charge_memory(self.0.family(), connection_bytes()).is_ok()
    }

    fn release(&self) {
        quota::release_memory(self.0.family(), connection_bytes());
    }
}
