//! TIME-WAIT without buffers, for connections that this side closed first.
//!
//! smoltcp keeps the whole socket, with both buffers, for ten seconds. Here a connection without an
//! owner is reduced to its two sequence numbers when it enters TIME-WAIT; 1,000 connections a
//! second then take about one megabyte instead of eighty. The number of records is bounded, and the
//! oldest is removed first: the only effect of an early removal is that a retransmitted FIN is
//! answered with a reset.
//!
//! Arriving segments are answered according to RFC 9293, section 3.10.7.4. Resets are ignored (RFC
//! 1337), and a new SYN may reuse the pair of addresses (RFC 1122, section 4.2.2.13).

use cops_fallible::{Queue, Table};
use smoltcp::wire::TcpSeqNumber;

use crate::frame::{FlowKey, Segment};

/// Lifetime of a record: twice the maximum segment lifetime, which smoltcp takes as 5 s.
pub(crate) const TIME_WAIT_MICROSECONDS: u64 = 10_000_000;

/// The sequence numbers at the end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FinalNumbers {
    /// The next number this side would send (SND.NXT).
    pub(crate) next_to_send: TcpSeqNumber,
    /// The next number expected from the peer (RCV.NXT).
    pub(crate) next_expected: TcpSeqNumber,
}

#[derive(Debug, Clone, Copy)]
struct Record {
    numbers: FinalNumbers,
    expires_at: u64,
}

/// What to do with a segment for a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ignore,
    /// Send an empty ACK with these numbers.
    Acknowledge(FinalNumbers),
    /// The record was removed: a new connection may begin with this SYN.
    Reopen,
}

/// The records of one interface.
#[derive(Default)]
pub(crate) struct TimeWaitTable {
    records: Table<FlowKey, Record>,
    /// In order of expiry, because all records have the same lifetime. An entry is stale if its
    /// time differs from its record's.
    order: Queue<(u64, FlowKey)>,
}

impl TimeWaitTable {
    /// Adds a record. Returns how many records were evicted, including this one if there is no
    /// memory for it.
    pub(crate) fn insert(&mut self, key: FlowKey, numbers: FinalNumbers, now: u64, maximum: usize) -> u64 {
        let mut evicted = 0;
        while self.records.len() >= maximum.max(1) {
            let Some((expires_at, oldest)) = self.order.pop_front() else { break };
            evicted += u64::from(self.remove_entry(expires_at, &oldest));
        }
        let expires_at = now + TIME_WAIT_MICROSECONDS;
        let is_kept = self.order.try_reserve(1).is_ok()
            && self.records.try_insert(key, Record { numbers, expires_at }).is_ok()
            && self.order.try_push_back((expires_at, key)).is_ok();
        evicted + u64::from(!is_kept)
    }

    /// Decides what to do with a segment. `may_reopen`: whether a socket listens on its port.
    pub(crate) fn judge(&mut self, segment: &Segment<'_>, now: u64, may_reopen: bool) -> Option<Verdict> {
        let record = self.records.get_mut(&segment.key)?;
        let numbers = record.numbers;
        if segment.reset {
            return Some(Verdict::Ignore);
        }
        if segment.synchronize {
            if may_reopen && !segment.acknowledge && segment.sequence > numbers.next_expected {
                self.records.remove(&segment.key);
                return Some(Verdict::Reopen);
            }
            return Some(Verdict::Acknowledge(numbers));
        }
        if segment.finish {
            // The peer has not received our ACK of its FIN: the lifetime starts anew. At most one
            // new entry per second, so that a peer that repeats its FIN cannot grow the queue.
            let expires_at = now + TIME_WAIT_MICROSECONDS;
            if expires_at >= record.expires_at + 1_000_000 {
                // Without memory for another entry, the record keeps its expiry.
                if self.order.try_push_back((expires_at, segment.key)).is_ok() {
                    record.expires_at = expires_at;
                }
            }
            return Some(Verdict::Acknowledge(numbers));
        }
        // An old duplicate with data is acknowledged. An empty segment never is: otherwise two ends
        // that disagree would acknowledge each other forever.
        Some(if segment.payload_length > 0 { Verdict::Acknowledge(numbers) } else { Verdict::Ignore })
    }

    /// Removes the records that have expired at `now`.
    pub(crate) fn expire(&mut self, now: u64) {
        while let Some((expires_at, key)) = self.order.front().copied() {
            if expires_at > now {
                break;
            }
            self.order.pop_front();
            self.remove_entry(expires_at, &key);
        }
    }

    fn remove_entry(&mut self, expires_at: u64, key: &FlowKey) -> bool {
        let current = self.records.get(key).is_some_and(|record| record.expires_at == expires_at);
        current && self.records.remove(key).is_some()
    }

    pub(crate) fn contains(&self, key: &FlowKey) -> bool {
        self.records.contains_key(key)
    }

    /// The time of the next expiry.
    pub(crate) fn earliest(&self) -> Option<u64> {
        self.order.front().map(|(expires_at, _)| *expires_at)
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }
}
