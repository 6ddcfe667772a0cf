//! Quotas of a process and its descendants: arguments and result of `COPS_QUOTA`.

/// Kinds of resources; the second argument of the call.
pub mod kind {
    /// Bytes of memory: pages, page tables, and the kernel's bookkeeping for calls, files, pipes
    /// and processes.
    pub const MEMORY: usize = 0;
    /// Processes. A process counts until it has been waited for.
    pub const PROCESSES: usize = 1;
    /// Asynchronous calls in flight.
    pub const CALLS: usize = 2;
    /// Open files.
    pub const DESCRIPTORS: usize = 3;
    /// Virtual CPUs, each with the call for which it sleeps.
    pub const CPUS: usize = 4;
    /// Ports of TCP and UDP that sockets are bound to or connect from.
    pub const PORTS: usize = 5;
}

/// Third argument of the call that leaves the limit unchanged.
pub const ONLY_ASK: usize = usize::MAX;

/// The record that the call stores: three words, little endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// The most that the process and its descendants may use together.
    pub limit: u64,
    /// What they use now.
    pub used: u64,
    /// The most that the process could allocate now. It depends on what other processes use.
    pub room: u64,
}

impl Quota {
    /// Bytes of the record.
    pub const BYTES: usize = 24;

    /// The record as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip([self.limit, self.used, self.room]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads [`Self::to_bytes`] back.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |index: usize| {
            bytes[8 * index..][..8]
                .iter()
                .rev()
                .fold(0, |value: u64, &byte| value << 8 | u64::from(byte))
        };
        Self { limit: word(0), used: word(1), room: word(2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_bytes() {
        let quota = Quota { limit: u64::MAX - 1, used: 0x0102_0304_0506_0708, room: 3 };
        assert_eq!(Quota::from_bytes(&quota.to_bytes()), quota);
        assert_eq!(quota.to_bytes()[8], 8, "little endian");
    }
}
