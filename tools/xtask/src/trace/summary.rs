//! A short summary of a trace.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use super::dump::Dump;
use super::record::kind;
use super::story::{POLL, Story};
use super::timeline::Timeline;

/// Number of slices shown.
const LONGEST: usize = 8;

/// Displays the summary as a table.
pub struct Summary<'a> {
    pub dump: &'a Dump,
    pub timeline: &'a Timeline,
    pub story: &'a Story,
}

impl Summary<'_> {
    fn microseconds(&self, ticks: u64) -> f64 {
        ticks as f64 * 1e6 / self.dump.ticks_per_second as f64
    }
}

/// The value that this percentage of the sorted values does not exceed.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied().unwrap_or_default()
}

impl Display for Summary<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let timeline = self.timeline;
        let covered = self.microseconds(timeline.end_ticks - timeline.begin_ticks);
        writeln!(
            out,
            "{} events of {} harts over {:.3} ms; {} older ones overwritten, {} lost by processes",
            timeline.records.len(),
            self.dump.rings.len(),
            covered / 1e3,
            timeline.overwritten,
            timeline.lost_by_processes
        )?;
        let mut counts: BTreeMap<u8, usize> = BTreeMap::new();
        for record in &timeline.records {
            *counts.entry(record.kind).or_default() += 1;
        }
        let shown = [
            ("polls in the kernel", kind::POLL_BEGIN),
            ("polls in processes", kind::USER_POLL_BEGIN),
            ("entries to user mode", kind::ENTER_USER),
            ("system calls", kind::SYSTEM_CALL),
            ("calls that waited", kind::CALL_BEGIN),
            ("wakes in the kernel", kind::WAKE),
            ("wakes in processes", kind::USER_WAKE),
            ("interrupts", kind::INTERRUPT),
            ("interrupts sent", kind::SEND_INTERRUPT),
            ("virtual CPUs preempted", kind::PREEMPTED),
            ("virtual CPUs parked", kind::PARK),
            ("user interrupts sent", kind::USER_INTERRUPT_SENT),
            ("user interrupts suppressed", kind::USER_INTERRUPT_SUPPRESSED),
        ];
        writeln!(out, "\n{:28} {:>9} {:>12}", "", "count", "per second")?;
        for (name, kind) in shown {
            if let Some(&count) = counts.get(&kind) {
                writeln!(
                    out,
                    "{name:28} {count:>9} {:>12.0}",
                    count as f64 * 1e6 / covered.max(1.0)
                )?;
            }
        }
        self.longest(out)?;
        self.latencies(out)
    }
}

impl Summary<'_> {
    fn longest(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let mut polls: Vec<_> =
            self.story.slices.iter().filter(|slice| slice.category == POLL).collect();
        polls.sort_by_key(|slice| std::cmp::Reverse(slice.ticks));
        writeln!(out, "\n{:>12} {:>14}  longest polls", "us", "at us")?;
        for slice in polls.iter().take(LONGEST) {
            let at = slice.begin_ticks.saturating_sub(self.timeline.begin_ticks);
            let place = match slice.track.process {
                0 => format!("hart {}", slice.track.number),
                process => format!("process {process}, virtual CPU {}", slice.track.number),
            };
            writeln!(
                out,
                "{:>12.1} {:>14.1}  {} ({place})",
                self.microseconds(slice.ticks),
                self.microseconds(at),
                slice.name
            )?;
        }
        Ok(())
    }

    fn latencies(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let mut by_level: BTreeMap<(bool, u8), Vec<u64>> = BTreeMap::new();
        for latency in &self.story.latencies {
            by_level.entry((!latency.is_kernel, latency.level)).or_default().push(latency.ticks);
        }
        writeln!(
            out,
            "\n{:8} {:>8} {:>9} {:>10} {:>10} {:>10}  from wake to poll, us",
            "", "priority", "count", "p50", "p99", "max"
        )?;
        for ((is_user, level), mut ticks) in by_level {
            ticks.sort_unstable();
            let [p50, p99, max] =
                [50, 99, 100].map(|percent| self.microseconds(percentile(&ticks, percent)));
            let origin = if is_user { "process" } else { "kernel" };
            writeln!(
                out,
                "{origin:8} {level:>8} {:>9} {p50:>10.1} {p99:>10.1} {max:>10.1}",
                ticks.len()
            )?;
        }
        Ok(())
    }
}
