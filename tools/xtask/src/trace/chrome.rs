//! Writes a story as JSON in the trace event format that Perfetto (ui.perfetto.dev) and Chrome
//! (about:tracing) read.
//!
//! Harts are threads of a process called "harts"; virtual CPUs are threads of their process. Times
//! are microseconds since the first record.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::dump::Dump;
use super::story::{Item, Shown, Story, Track};
use super::timeline::Timeline;

/// Writes the file, one event per line, so that text tools can search it too.
pub fn write(
    out: &mut impl Write,
    dump: &Dump,
    timeline: &Timeline,
    story: &Story,
) -> io::Result<()> {
    writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut separator = "";
    let mut put = |event: Value| -> io::Result<()> {
        write!(out, "{separator}{event}")?;
        separator = ",\n";
        Ok(())
    };
    let tracks: BTreeSet<Track> = story.items.iter().map(|item| item.track).collect();
    let processes: BTreeSet<u32> = tracks.iter().map(|track| track.process).collect();
    for process in processes {
        let name = match (process, dump.processes.get(&process.into())) {
            (0, _) => "harts".to_owned(),
            (_, Some(name)) => format!("{name} ({process})"),
            (_, None) => format!("process {process}"),
        };
        put(metadata("process_name", process, 0, json!({ "name": name })))?;
        put(metadata("process_sort_index", process, 0, json!({ "sort_index": process })))?;
    }
    for Track { process, number } in tracks {
        let kind = if process == 0 { "hart" } else { "virtual CPU" };
        put(metadata(
            "thread_name",
            process,
            number,
            json!({ "name": format!("{kind} {number}") }),
        ))?;
        put(metadata("thread_sort_index", process, number, json!({ "sort_index": number })))?;
    }
    for item in &story.items {
        put(event(item, timeline.begin_ticks, dump.ticks_per_second))?;
    }
    writeln!(out, "\n]}}")
}

fn metadata(name: &str, process: u32, number: u32, arguments: Value) -> Value {
    json!({ "ph": "M", "name": name, "pid": process, "tid": number, "args": arguments })
}

/// Microseconds since `begin_ticks`.
fn microseconds(ticks: u64, begin_ticks: u64, ticks_per_second: u64) -> f64 {
    ticks.saturating_sub(begin_ticks) as f64 * 1e6 / ticks_per_second as f64
}

fn event(item: &Item, begin_ticks: u64, ticks_per_second: u64) -> Value {
    let Item { time_ticks, track, shown } = item;
    let mut event = match shown {
        Shown::Begin { name, category, arguments } => {
            json!({ "ph": "B", "name": name, "cat": category, "args": arguments })
        }
        Shown::End => json!({ "ph": "E" }),
        Shown::Moment { name, arguments } => {
            json!({ "ph": "i", "s": "t", "name": name, "args": arguments })
        }
        Shown::ArrowFrom { id } => json!({ "ph": "s", "id": id, "name": "wake", "cat": "wake" }),
        Shown::ArrowTo { id } => {
            json!({ "ph": "f", "bp": "e", "id": id, "name": "wake", "cat": "wake" })
        }
        Shown::SpanBegin { id, name } => {
            json!({ "ph": "b", "id": id, "name": name, "cat": "call" })
        }
        Shown::SpanEnd { id, name } => json!({ "ph": "e", "id": id, "name": name, "cat": "call" }),
    };
    if let Value::Object(event) = &mut event {
        event.insert("pid".into(), track.process.into());
        event.insert("tid".into(), track.number.into());
        event.insert("ts".into(), microseconds(*time_ticks, begin_ticks, ticks_per_second).into());
    }
    event
}
