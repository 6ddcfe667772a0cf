//! Checks a trace file, because viewers silently drop what they cannot show.

use std::collections::BTreeMap;

use serde_json::Value;

/// The contents of a valid trace.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub slices: usize,
    pub arrows: usize,
    pub spans: usize,
    pub moments: usize,
}

/// Checks a trace. On every track, times must not decrease, and begins and ends must match. Every
/// arrow must have both ends, in order, each at a slice. Every span must have both ends.
///
/// # Errors
/// The first fault, and where it is.
pub fn check(trace: &Value) -> Result<Counts, String> {
    let events = trace["traceEvents"].as_array().ok_or("there is no list traceEvents")?;
    let mut counts = Counts::default();
    let mut tracks: BTreeMap<(u64, u64), (f64, usize)> = BTreeMap::new();
    let mut arrows: BTreeMap<u64, (f64, bool)> = BTreeMap::new();
    let mut spans: BTreeMap<String, f64> = BTreeMap::new();
    for (number, event) in events.iter().enumerate() {
        let wrong = |what: &str| format!("event {number}: {what}: {event}");
        let text = |key: &str| event[key].as_str().ok_or_else(|| wrong(&format!("no {key}")));
        let integer = |key: &str| event[key].as_u64().ok_or_else(|| wrong(&format!("no {key}")));
        let phase = text("ph")?;
        let track = (integer("pid")?, integer("tid")?);
        if phase == "M" {
            text("name")?;
            continue;
        }
        let time =
            event["ts"].as_f64().filter(|time| *time >= 0.0).ok_or_else(|| wrong("no time"))?;
        let (latest, depth) = tracks.entry(track).or_default();
        if time < *latest {
            return Err(wrong("earlier than what stands before it on its track"));
        }
        *latest = time;
        match phase {
            "B" => {
                text("name")?;
                *depth += 1;
            }
            "E" => {
                *depth = depth.checked_sub(1).ok_or_else(|| wrong("an end without a begin"))?;
                counts.slices += 1;
            }
            "i" => counts.moments += 1,
            "s" | "f" if *depth == 0 => return Err(wrong("an arrow outside of any slice")),
            "s" => {
                if arrows.insert(integer("id")?, (time, false)).is_some() {
                    return Err(wrong("an arrow of this number has begun already"));
                }
            }
            "f" => match arrows.get_mut(&integer("id")?) {
                Some((begin, followed)) if !*followed && *begin <= time => {
                    *followed = true;
                    counts.arrows += 1;
                }
                _ => return Err(wrong("an arrow that ends without, or before, its begin")),
            },
            "b" => {
                if spans.insert(text("id")?.to_owned(), time).is_some() {
                    return Err(wrong("a span of this name has begun already"));
                }
            }
            "e" => {
                spans
                    .remove(text("id")?)
                    .ok_or_else(|| wrong("a span that ends without a begin"))?;
                counts.spans += 1;
            }
            _ => return Err(wrong("an unknown phase")),
        }
    }
    if let Some((track, _)) = tracks.iter().find(|(_, (_, depth))| *depth > 0) {
        return Err(format!("a slice on track {track:?} has no end"));
    }
    if let Some((id, _)) = arrows.iter().find(|(_, (_, followed))| !*followed) {
        return Err(format!("arrow {id} leads nowhere"));
    }
    match spans.keys().next() {
        Some(id) => Err(format!("span {id} has no end")),
        None => Ok(counts),
    }
}
