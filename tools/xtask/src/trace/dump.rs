//! Parses a dump: the stream of records that the kernel writes to the trace channel of its console.

use std::collections::BTreeMap;

use super::record::{BYTES, Record, kind};
use crate::error::{Failure, Outcome};

/// Collects a dump that arrives in pieces.
#[derive(Debug, Default)]
pub struct Collector {
    bytes: Vec<u8>,
    /// Number of records searched for the end.
    seen: usize,
    complete: bool,
}

impl Collector {
    /// Adds a piece.
    pub fn feed(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
        while let Some(record) = self.bytes.get(self.seen * BYTES..).and_then(<[u8]>::first_chunk) {
            self.complete |= Record::from_bytes(record).kind == kind::DUMP_END;
            self.seen += 1;
        }
    }

    /// Whether something has arrived.
    pub fn has_begun(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Whether the last record has arrived.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Parses the dump.
    pub fn finish(self) -> Outcome<Dump> {
        Dump::parse(&self.bytes)
    }
}

/// The records of a hart.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Ring {
    /// Oldest first.
    pub records: Vec<Record>,
    /// Number of earlier records that were overwritten.
    pub overwritten: u64,
}

/// A dump.
#[derive(Debug, Default)]
pub struct Dump {
    pub ticks_per_second: u64,
    /// One for each hart.
    pub rings: Vec<Ring>,
    pub processes: BTreeMap<u64, String>,
    /// Kernel services.
    pub coroutines: BTreeMap<u64, String>,
    pub system_calls: BTreeMap<u64, String>,
}

impl Dump {
    /// Parses a complete stream.
    pub fn parse(bytes: &[u8]) -> Outcome<Self> {
        let (records, rest) = bytes.as_chunks::<BYTES>();
        let mut records = records.iter().map(Record::from_bytes);
        let damaged = |what: &str| Failure::new(format!("the kernel's trace is damaged: {what}"));
        if bytes.is_empty() {
            return Err(
                Failure::new("the kernel wrote no trace").advise("did it end before it could?")
            );
        }
        let begin =
            records.next().filter(|record| record.kind == kind::DUMP_BEGIN && record.argument > 0);
        let begin = begin.ok_or_else(|| damaged("it does not begin with the clock's speed"))?;
        let mut dump = Self { ticks_per_second: begin.argument, ..Self::default() };
        let mut names: BTreeMap<(u8, u64), Vec<u8>> = BTreeMap::new();
        loop {
            let record = records.next().ok_or_else(|| damaged("it has no end"))?;
            let mut name = |key| {
                names.entry((record.kind, key)).or_default().extend(record.argument.to_le_bytes())
            };
            match record.kind {
                kind::PROCESS_NAME => name(record.process.into()),
                kind::COROUTINE_NAME | kind::SYSTEM_CALL_NAME => name(record.coroutine),
                kind::DUMP_RING => {
                    let count = usize::try_from(record.coroutine).unwrap_or(usize::MAX);
                    let ring: Vec<_> = records.by_ref().take(count).collect();
                    if ring.len() < count {
                        return Err(damaged("a ring is cut off"));
                    }
                    // Records that were being written when the dump was made have kind 0.
                    let ring = ring.into_iter().filter(|record| record.kind != 0).collect();
                    dump.rings.push(Ring { records: ring, overwritten: record.argument });
                }
                kind::DUMP_END => break,
                other => {
                    return Err(damaged(&format!("a record of kind {other} between the rings")));
                }
            }
        }
        if !rest.is_empty() || records.next().is_some() {
            return Err(damaged("it continues after its end"));
        }
        for ((kind, key), bytes) in names {
            let name = String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned();
            match kind {
                kind::PROCESS_NAME => dump.processes.insert(key, name),
                kind::COROUTINE_NAME => dump.coroutines.insert(key, name),
                _ => dump.system_calls.insert(key, name),
            };
        }
        Ok(dump)
    }
}
