//! TIME-WAIT without buffers: what is left of a connection that this side closed first.
//!
//! smoltcp keeps the whole socket, with both buffers, for the ten seconds. Here a connection whose
//! owner is gone shrinks on entering TIME-WAIT to its two sequence numbers; 1,000 connections a
//! second then hold about a megabyte instead of eighty. The number of records is bounded, and the
//! oldest goes first: forgetting one early only means that a retransmitted FIN meets a reset.
//!
//! Arriving segments are answered as RFC 9293, section 3.10.7.4, says for TIME-WAIT; resets are
//! ignored (RFC 1337), and a fresh SYN may reuse the pair of addresses (RFC 1122, section 4.2.2.13).

use cops_fallible::{Queue, Table};
use smoltcp::wire::TcpSeqNumber;

use crate::frame::{FlowKey, Segment};

/// How long a record lives: twice the maximum segment lifetime, which smoltcp takes as 5 s.
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

/// What to do about a segment that hits a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ignore,
    /// Send an empty ACK with these numbers.
    Acknowledge(FinalNumbers),
    /// The record is gone: a new connection may begin with this SYN.
    Reopen,
}

/// The records of one interface.
#[derive(Default)]
pub(crate) struct TimeWaitTable {
    records: Table<FlowKey, Record>,
    /// In order of expiry, since every record lives equally long. An entry whose time differs from
    /// its record's is stale.
    order: Queue<(u64, FlowKey)>,
}

impl TimeWaitTable {
    /// Adds a record; returns how many were evicted to make room, this one included if there is no memory for it.
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

    /// Judges a segment. `may_reopen`: somebody listens on its port.
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
            // The peer has not seen our ACK of its FIN: the two lifetimes start anew. At most one
            // new entry a second, so that a peer that repeats itself cannot grow the queue.
            let expires_at = now + TIME_WAIT_MICROSECONDS;
            if expires_at >= record.expires_at + 1_000_000 {
                // Without memory for another entry the record expires when it would have.
                if self.order.try_push_back((expires_at, segment.key)).is_ok() {
                    record.expires_at = expires_at;
                }
            }
            return Some(Verdict::Acknowledge(numbers));
        }
        // An old duplicate with data gets its ACK. An empty segment never does: two ends that
        // disagree would acknowledge each other for ever.
        Some(if segment.payload_length > 0 { Verdict::Acknowledge(numbers) } else { Verdict::Ignore })
    }

    /// Drops what has expired at `now`.
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

    /// When `expire` has something to do next.
    pub(crate) fn earliest(&self) -> Option<u64> {
        self.order.front().map(|(expires_at, _)| *expires_at)
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }
}
