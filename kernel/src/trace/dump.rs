//! Output of the rings: as bytes on a channel of the console, or as the last lines of a panic.
//!
//! A dump is a stream of records in the format of the rings: first records with the clock and
//! names, then each ring after a header record, oldest record first.

use core::fmt::Write;

use cops_abi::trace::{Event, Record};

use super::traced::for_each_name;
use super::{extent, read, switch};
use crate::arch;
use crate::drivers::console::{self, Channel};
use crate::machine::device_tree;

/// Number of records written to the console at a time.
const BATCH: usize = 32;
/// Number of events of each hart that a panic prints.
const LAST: u64 = 12;

/// Writes all recorded events to the console's trace channel. Tracing is off meanwhile.
/// `for_each_process` calls its argument with the number and the name of each process.
pub fn dump(for_each_process: impl FnOnce(&mut dyn FnMut(u32, &str))) {
    // Only switching tracing on can fail.
    let was_on = switch(false).unwrap_or(false);
    let mut out = Out { bytes: [0; BATCH * 32], count: 0 };
    let harts = arch::hart_count() as u64;
    out.event(Event::DumpBegin { ticks_per_second: arch::ticks_per_second(), harts });
    for_each_process(&mut |process, name| {
        for (part, bytes) in words(name.as_bytes()).enumerate().take(32) {
            out.event(Event::ProcessName { process, part: part as u8, bytes });
        }
    });
    for &(number, name) in cops_abi::syscall::ALL {
        for (part, bytes) in words(name.as_bytes()).enumerate() {
            out.event(Event::SystemCallName { number: number as u64, part: part as u8, bytes });
        }
    }
    for_each_name(|coroutine, name| {
        for (part, bytes) in words(&name).enumerate() {
            out.event(Event::CoroutineName { coroutine, part: part as u8, bytes });
        }
    });
    for hart in 0..arch::hart_count() {
        let Some(extent) = extent(hart) else { break };
        let overwritten = extent.begun.saturating_sub(extent.capacity);
        let records = extent.begun - overwritten;
        out.event(Event::DumpRing { hart: hart as u8, records, overwritten });
        // Tracing is off, so only writes that had begun can still change the ring. The dump always
        // contains the announced number of records; missing ones are empty.
        let mut given = 0;
        let _ = read(hart, overwritten, records as usize, |record| {
            out.put(record);
            given += 1;
        });
        for _ in given..records {
            out.put(Record::default());
        }
    }
    out.event(Event::DumpEnd {});
    out.flush();
    if was_on {
        // The rings exist, so this cannot fail.
        let _ = switch(true);
    }
}

/// As [`dump`], if the boot argument `trace_dump=on` asks for it. Called last before power off.
pub fn dump_at_power_off(for_each_process: impl FnOnce(&mut dyn FnMut(u32, &str))) {
    if device_tree::boot_argument("trace_dump") == Some("on") {
        dump(for_each_process);
    }
}

/// The bytes as little-endian words, the last one padded with zeros.
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes
        .chunks(8)
        .map(|part| part.iter().rev().fold(0, |word: u64, &byte| word << 8 | u64::from(byte)))
}

struct Out {
    bytes: [u8; BATCH * 32],
    count: usize,
}

impl Out {
    fn event(&mut self, event: Event) {
        self.put(event.to_record());
    }

    fn put(&mut self, record: Record) {
        self.bytes[self.count * 32..][..32].copy_from_slice(&record.to_bytes());
        self.count += 1;
        if self.count == BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        console::write_waiting(Channel::Trace, &self.bytes[..self.count * 32]);
        self.count = 0;
    }
}

/// Prints the last events of each hart, newest last, as part of a panic's report. Takes no lock.
pub fn print_last(out: &mut impl Write) {
    for hart in 0..arch::hart_count() {
        let Some(extent) = extent(hart).filter(|extent| extent.begun > 0) else { continue };
        // Writing to the emergency console cannot fail.
        let _ = writeln!(out, "last events of hart {hart}, of {}:", extent.begun);
        let mut before = None;
        let _ = read(hart, extent.begun.saturating_sub(LAST), LAST as usize, |record| {
            let ticks = record.time_ticks.saturating_sub(before.unwrap_or(record.time_ticks));
            before = Some(record.time_ticks);
            let _ = match record.event() {
                Some(event) => writeln!(out, "  +{ticks} ticks {event:x?}"),
                None => writeln!(out, "  +{ticks} ticks kind {}", record.kind),
            };
        });
    }
}
