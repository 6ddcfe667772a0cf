//! TIME-WAIT without buffers, for connections that this side closed first.
//!
//! smoltcp keeps the whole socket, with both buffers, for ten seconds. Here a connection without an
//! owner is reduced to its two sequence numbers when it enters TIME-WAIT; 1,000 connections a
//! second then take about one megabyte instead of eighty. The number of records is bounded, and the
//! oldest is removed first: the only effect of an early removal is that a retransmitted FIN is
//! answered with a reset.
//!
//! Arriving segments are answered according to RFC 9293, section 3.10.7.4. A new SYN may reuse the
//! pair of addresses (RFC 1122, section 4.2.2.13): over Ethernet if its number is higher, because
//! it could be an old one. A client that begins with a lower one answers the ACK of the record with
//! a reset, and repeats its SYN. So a reset with exactly the next number ends the record, as on
//! Linux; others are ignored. RFC 1337 would ignore that one too, because an ACK of an old
//! duplicate can also bring it about; but the client would then wait until the record expires.

use cops_fallible::Table;
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
    /// The records that expire before and after this one.
    earlier: Option<FlowKey>,
    later: Option<FlowKey>,
}

/// Which SYN may reuse the pair of addresses of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// None: no socket listens.
    Never,
    /// One with a higher number than the connection had.
    IfHigher,
    /// Any: what is received was sent later than everything of the connection.
    Always,
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
pub(crate) struct TimeWaitTable {
    records: Table<FlowKey, Record>,
    /// The ends of the list of records in order of expiry. All records have the same lifetime, so a
    /// new record is the last.
    first: Option<FlowKey>,
    last: Option<FlowKey>,
    /// When the first one expires.
    first_expires_at: Option<u64>,
}

impl TimeWaitTable {
    pub(crate) fn new(seed: u64) -> TimeWaitTable {
        TimeWaitTable { records: Table::new(seed), first: None, last: None, first_expires_at: None }
    }

    /// Adds a record. Returns how many records were evicted, including this one if there is no
    /// memory for it.
    pub(crate) fn insert(
        &mut self,
        key: FlowKey,
        numbers: FinalNumbers,
        now: u64,
        maximum: usize,
    ) -> u64 {
        self.remove(&key);
        let mut evicted = 0;
        if self.records.len() >= maximum.max(1)
            && let Some(oldest) = self.first
        {
            evicted += u64::from(self.remove(&oldest));
        }
        let expires_at = now + TIME_WAIT_MICROSECONDS;
        let record = Record { numbers, expires_at, earlier: self.last, later: None };
        if self.records.try_insert(key, record).is_err() {
            return evicted + 1;
        }
        match self.last.replace(key).and_then(|last| self.records.get_mut(&last)) {
            Some(last) => last.later = Some(key),
            None => self.set_first(Some(key)),
        }
        evicted
    }

    /// Decides what to do with a segment.
    pub(crate) fn judge(
        &mut self,
        segment: &Segment<'_>,
        now: u64,
        reuse: Reuse,
    ) -> Option<Verdict> {
        let record = self.records.get(&segment.key)?;
        let numbers = record.numbers;
        if segment.reset {
            if segment.sequence == numbers.next_expected {
                self.remove(&segment.key);
            }
            return Some(Verdict::Ignore);
        }
        if segment.synchronize {
            let may_reopen = match reuse {
                Reuse::Never => false,
                Reuse::IfHigher => segment.sequence > numbers.next_expected,
                Reuse::Always => true,
            };
            if may_reopen && !segment.acknowledge {
                self.remove(&segment.key);
                return Some(Verdict::Reopen);
            }
            return Some(Verdict::Acknowledge(numbers));
        }
        if segment.finish {
            // The peer has not received our ACK of its FIN: the lifetime starts anew. Without
            // memory for that, the record is lost, and the next such segment is answered with a
            // reset.
            self.insert(segment.key, numbers, now, usize::MAX);
            return Some(Verdict::Acknowledge(numbers));
        }
        // An old duplicate with data is acknowledged. An empty segment never is: otherwise two ends
        // that disagree would acknowledge each other forever.
        Some(if segment.payload_length > 0 {
            Verdict::Acknowledge(numbers)
        } else {
            Verdict::Ignore
        })
    }

    /// Removes at most `limit` records that have expired at `now`. Returns `true` if there are
    /// more.
    pub(crate) fn expire(&mut self, now: u64, limit: u32) -> bool {
        let is_due = |table: &Self| table.earliest().is_some_and(|expires_at| expires_at <= now);
        for _ in 0..limit {
            let Some(first) = self.first.filter(|_| is_due(self)) else { return false };
            self.remove(&first);
        }
        is_due(self)
    }

    /// Removes a record from the table and the list. Returns whether there was one.
    fn remove(&mut self, key: &FlowKey) -> bool {
        let Some(Record { earlier, later, .. }) = self.records.remove(key) else { return false };
        match earlier.and_then(|key| self.records.get_mut(&key)) {
            Some(record) => record.later = later,
            None => self.set_first(later),
        }
        match later.and_then(|key| self.records.get_mut(&key)) {
            Some(record) => record.earlier = earlier,
            None => self.last = earlier,
        }
        true
    }

    fn set_first(&mut self, first: Option<FlowKey>) {
        self.first = first;
        self.first_expires_at =
            first.and_then(|key| self.records.get(&key)).map(|record| record.expires_at);
    }

    pub(crate) fn contains(&self, key: &FlowKey) -> bool {
        self.records.contains_key(key)
    }

    /// The time of the next expiry.
    pub(crate) fn earliest(&self) -> Option<u64> {
        self.first_expires_at
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }
}
