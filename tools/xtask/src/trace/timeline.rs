//! Merges the rings of all harts into one sequence ordered by time.

use super::dump::{Dump, Ring};
use super::record::{Record, kind};

/// All records since the time from which no hart has lost any.
#[derive(Debug, Default)]
pub struct Timeline {
    /// In the recorded order for each hart; ordered by time between harts.
    pub records: Vec<Record>,
    pub begin_ticks: u64,
    pub end_ticks: u64,
    /// Records overwritten in the kernel's rings, and by processes in their own pages.
    pub overwritten: u64,
    pub lost_by_processes: u64,
}

impl Timeline {
    pub fn new(dump: &Dump) -> Self {
        let first = |ring: &Ring| ring.records.first().map(|record| record.time_ticks);
        let whole_from = dump
            .rings
            .iter()
            .filter(|ring| ring.overwritten > 0)
            .filter_map(first)
            .max()
            .unwrap_or(0);
        let mut rings: Vec<&[Record]> =
            dump.rings.iter().map(|ring| ring.records.as_slice()).collect();
        let mut timeline = Self {
            overwritten: dump.rings.iter().map(|ring| ring.overwritten).sum(),
            ..Self::default()
        };
        let mut latest = 0;
        while let Some(ring) = earliest(&mut rings)
            && let Some((&record, rest)) = ring.split_first()
        {
            *ring = rest;
            if record.kind == kind::LOST {
                timeline.lost_by_processes += record.argument;
            }
            // The clocks of harts agree, but a handler's record may precede the one that it
            // interrupted.
            latest = record.time_ticks.max(latest);
            if latest >= whole_from {
                timeline.records.push(Record { time_ticks: latest, ..record });
            }
        }
        timeline.begin_ticks = timeline.records.first().map_or(0, |record| record.time_ticks);
        timeline.end_ticks = latest;
        timeline
    }
}

/// The ring with the earliest next record. At equal times (the clock is coarse), what a virtual CPU
/// stops on one hart precedes what it begins on another.
fn earliest<'r, 'd>(rings: &'r mut [&'d [Record]]) -> Option<&'r mut &'d [Record]> {
    let key = |record: &Record| {
        (record.time_ticks, matches!(record.kind, kind::ENTER_USER | kind::POLL_BEGIN))
    };
    rings.iter_mut().filter(|ring| !ring.is_empty()).min_by_key(|ring| ring.first().map(key))
}
