//! The story that the records tell: slices on tracks, moments, and arrows from wakers to what they
//! wake.
//!
//! A track is a hart, or a virtual CPU of a process. On a hart: the polls of kernel coroutines, and
//! within those of the switching coroutine the periods of user mode and the system calls between
//! them. On a virtual CPU: the polls of the process's coroutines, and within them what keeps the
//! virtual CPU from continuing. A begin without a recorded end ends with the trace, and an end
//! without a begin is dropped, so every track nests.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::dump::Dump;
use super::record::{Record, coroutine_kind, kind};
use super::timeline::Timeline;

/// Where something is shown: process (0: the machine) and virtual CPU (for the machine: hart).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Track {
    pub process: u32,
    pub number: u32,
}

/// What is shown.
#[derive(Debug, Clone, PartialEq)]
pub enum Shown {
    Begin {
        name: String,
        category: &'static str,
        arguments: Value,
    },
    End,
    Moment {
        name: String,
        arguments: Value,
    },
    /// An arrow begins or ends at the slice that is open here.
    ArrowFrom {
        id: u64,
    },
    ArrowTo {
        id: u64,
    },
    /// A period that is not on a track's stack.
    SpanBegin {
        id: String,
        name: String,
    },
    SpanEnd {
        id: String,
        name: String,
    },
}

/// An item to show.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    pub time_ticks: u64,
    pub track: Track,
    pub shown: Shown,
}

/// What is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Woken {
    /// A coroutine of a process; of the kernel if `process` is 0.
    Coroutine {
        process: u32,
        coroutine: u64,
    },
    Cpu {
        process: u32,
        cpu: u8,
    },
    Hart(u64),
}

/// A wake without an arrow so far.
#[derive(Debug, Clone, Copy)]
struct Wake {
    time_ticks: u64,
    /// Index of the item at which its arrow begins, if it gets one.
    place: usize,
}

/// The time from a wake to running, of a coroutine of the kernel or of a process, at this priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    pub is_kernel: bool,
    pub level: u8,
    pub ticks: u64,
}

/// A slice that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    pub track: Track,
    pub name: String,
    pub category: &'static str,
    pub begin_ticks: u64,
    pub ticks: u64,
}

/// The whole story.
#[derive(Debug, Default)]
pub struct Story {
    /// Ordered by time.
    pub items: Vec<Item>,
    pub latencies: Vec<Latency>,
    pub slices: Vec<Slice>,
}

pub const POLL: &str = "poll";
const USER_MODE: &str = "user mode";
const SYSTEM_CALL: &str = "system call";
const SUSPENDED: &str = "suspended";
const SLEEP: &str = "sleep";
const WAKE: &str = "wake";

/// The number of an arrow without an end so far.
const NOT_FOLLOWED: u64 = 0;

/// Makes the story of a timeline.
pub fn tell(dump: &Dump, timeline: &Timeline) -> Story {
    let mut teller = Teller {
        dump,
        open: BTreeMap::new(),
        wakes: BTreeMap::new(),
        arrows: 0,
        calls: BTreeMap::new(),
        call_count: 0,
        entered_by: BTreeMap::new(),
        now: timeline.begin_ticks,
        story: Story::default(),
    };
    for record in &timeline.records {
        teller.record(record);
    }
    teller.end();
    teller.story
}

struct Open {
    category: &'static str,
    name: String,
    begin_ticks: u64,
}

struct Teller<'d> {
    dump: &'d Dump,
    open: BTreeMap<Track, Vec<Open>>,
    wakes: BTreeMap<Woken, Wake>,
    arrows: u64,
    /// Calls in flight: maps process, coroutine and token to the track on which they began and the
    /// number of the call.
    calls: BTreeMap<(u32, u64, u64), (Track, u64)>,
    call_count: u64,
    /// How each virtual CPU last entered the kernel.
    entered_by: BTreeMap<Track, &'static str>,
    now: u64,
    story: Story,
}

impl Teller<'_> {
    fn record(&mut self, record: &Record) {
        self.now = record.time_ticks;
        let hart = Track { process: 0, number: record.hart.into() };
        let cpu = Track { process: record.process, number: record.cpu.into() };
        let Record { process, coroutine, argument, level, .. } = *record;
        let kernel = Woken::Coroutine { process: 0, coroutine };
        let user = Woken::Coroutine { process, coroutine };
        let this_cpu = Woken::Cpu { process, cpu: record.cpu };
        match record.kind {
            kind::POLL_BEGIN => {
                self.close_all(hart);
                let kind = coroutine_kind(record.cpu.into());
                let name = self.kernel_name(coroutine, kind);
                self.begin(
                    hart,
                    POLL,
                    name,
                    json!({ "coroutine": hex(coroutine), "kind": kind, "priority": level }),
                );
                self.arrive(hart, kernel, Some((true, level)));
            }
            kind::POLL_END => self.close_all(hart),
            kind::WAKE => self.depart(hart, kernel),
            kind::SPAWN => {
                self.moment(
                    hart,
                    "spawn",
                    json!({ "coroutine": hex(coroutine), "priority": level }),
                );
                self.depart(hart, kernel);
            }
            kind::SET_PRIORITY => {
                self.moment(
                    hart,
                    "set priority",
                    json!({ "coroutine": hex(coroutine), "priority": level }),
                );
            }
            kind::SLEEP => {
                self.close_all(hart);
                self.begin(hart, SLEEP, "sleep".into(), json!({}));
            }
            kind::AWAKE => self.close(hart, SLEEP),
            kind::INTERRUPT => {
                let name = [
                    "interrupt",
                    "clock interrupt",
                    "interrupt by another hart",
                    "device interrupt",
                ];
                self.moment(
                    hart,
                    name.get(argument as usize).copied().unwrap_or(name[0]),
                    json!({}),
                );
                if argument == 2 {
                    self.arrive(hart, Woken::Hart(record.hart.into()), None);
                }
            }
            kind::SEND_INTERRUPT => {
                let why = if level == 1 { "to wake it" } else { "to make it look" };
                self.moment(
                    hart,
                    "interrupt another hart",
                    json!({ "hart": argument, "why": why }),
                );
                self.depart(hart, Woken::Hart(argument));
            }
            kind::ENTER_USER => {
                self.close(hart, SYSTEM_CALL);
                self.close(hart, USER_MODE);
                let name = format!("{} cpu {}", self.process_name(process), record.cpu);
                self.begin(hart, USER_MODE, name, json!({ "process": process, "priority": level }));
                self.close(cpu, SUSPENDED);
                self.arrive(hart, this_cpu, None);
            }
            kind::SYSTEM_CALL => {
                self.entered_by.insert(cpu, "call");
                self.close(hart, USER_MODE);
                let name = self.call_name(argument);
                let caller = if coroutine == 0 { "synchronous".into() } else { hex(coroutine) };
                self.begin(
                    hart,
                    SYSTEM_CALL,
                    name,
                    json!({ "number": argument, "coroutine": caller }),
                );
            }
            kind::INTERRUPTED => {
                self.entered_by.insert(cpu, "interrupt");
                self.close(hart, USER_MODE);
            }
            kind::FAULT => {
                self.entered_by.insert(cpu, "exception");
                self.close(hart, USER_MODE);
                self.moment(hart, "fault", json!({ "process": process }));
            }
            kind::PREEMPTED | kind::PAUSED | kind::PARK | kind::WAIT_BEGIN => {
                let (name, leaves) = match record.kind {
                    kind::PREEMPTED => ("preempted", true),
                    kind::PAUSED => ("paused: the kernel's coroutines first", true),
                    kind::PARK => ("parked", false),
                    _ => ("waits in a synchronous call", false),
                };
                if leaves {
                    self.close(hart, SYSTEM_CALL);
                    self.close(hart, USER_MODE);
                }
                self.close(cpu, SUSPENDED);
                let cause = self.entered_by.get(&cpu).copied().unwrap_or("unknown");
                self.begin(
                    cpu,
                    SUSPENDED,
                    name.into(),
                    json!({ "hart": record.hart, "cause": cause }),
                );
            }
            kind::UNPARK | kind::WAIT_END => self.depart(hart, this_cpu),
            kind::CALL_BEGIN => {
                self.end_call((process, coroutine, argument));
                self.call_count += 1;
                let track = Track { process, number: 0 };
                let (id, name) =
                    (format!("call {}", self.call_count), format!("call of {}", short(coroutine)));
                self.calls.insert((process, coroutine, argument), (track, self.call_count));
                self.show(track, Shown::SpanBegin { id, name });
            }
            kind::CALL_COMPLETE | kind::CALL_CANCELLED => {
                self.end_call((process, coroutine, argument));
                if record.kind == kind::CALL_COMPLETE {
                    self.depart(hart, user);
                }
            }
            kind::USER_INTERRUPT_SENT => {
                self.moment(
                    hart,
                    "user interrupt sent",
                    json!({ "process": process, "hart": argument }),
                );
            }
            kind::USER_INTERRUPT_SUPPRESSED => {
                self.moment(hart, "user interrupt suppressed", json!({ "process": process }));
            }
            kind::USER_INTERRUPT_TAKEN => self.moment(cpu, "user interrupt taken", json!({})),
            kind::USER_POLL_BEGIN => {
                self.close_all(cpu);
                let kind = coroutine_kind(argument);
                let name = format!("{kind} {}", short(coroutine));
                self.begin(
                    cpu,
                    POLL,
                    name,
                    json!({ "coroutine": hex(coroutine), "kind": kind, "priority": level }),
                );
                self.arrive(cpu, user, Some((false, level)));
            }
            kind::USER_POLL_END => self.close_all(cpu),
            kind::USER_WAKE => self.depart(cpu, user),
            kind::USER_SPAWN => {
                self.moment(
                    cpu,
                    "spawn",
                    json!({ "coroutine": hex(coroutine), "priority": level }),
                );
                self.depart(cpu, user);
            }
            kind::USER_MARK => {
                self.moment(cpu, &format!("mark {argument}"), json!({ "value": argument }))
            }
            kind::LOST => {
                // An end may be among them.
                self.close_all(cpu);
                self.moment(cpu, "records lost", json!({ "count": argument }));
            }
            // An event of a later kernel.
            other => self.moment(hart, &format!("event {other}"), json!({ "argument": argument })),
        }
    }

    fn show(&mut self, track: Track, shown: Shown) {
        self.story.items.push(Item { time_ticks: self.now, track, shown });
    }

    fn moment(&mut self, track: Track, name: &str, arguments: Value) {
        self.show(track, Shown::Moment { name: name.to_owned(), arguments });
    }

    fn begin(&mut self, track: Track, category: &'static str, name: String, arguments: Value) {
        let open = Open { category, name: name.clone(), begin_ticks: self.now };
        self.open.entry(track).or_default().push(open);
        self.show(track, Shown::Begin { name, category, arguments });
    }

    /// Ends the innermost slice of the track.
    fn close_one(&mut self, track: Track) {
        let Some(Open { category, name, begin_ticks }) = self.open.entry(track).or_default().pop()
        else {
            return;
        };
        let ticks = self.now.saturating_sub(begin_ticks);
        self.story.slices.push(Slice { track, name, category, begin_ticks, ticks });
        self.show(track, Shown::End);
    }

    /// Ends the innermost slice of the track if it is of this category.
    fn close(&mut self, track: Track, category: &str) {
        if self
            .open
            .get(&track)
            .and_then(|open| open.last())
            .is_some_and(|open| open.category == category)
        {
            self.close_one(track);
        }
    }

    fn close_all(&mut self, track: Track) {
        while self.open.get(&track).is_some_and(|open| !open.is_empty()) {
            self.close_one(track);
        }
    }

    /// Records a wake from here. If the target is woken again before it runs, the first wake
    /// counts.
    fn depart(&mut self, track: Track, woken: Woken) {
        if self.wakes.contains_key(&woken) {
            return;
        }
        // An arrow begins at a slice, so a wake outside of any slice gets one of its own.
        let is_bare = self.open.get(&track).is_none_or(Vec::is_empty);
        if is_bare {
            self.begin(track, WAKE, "wake".into(), json!({}));
        }
        self.wakes.insert(woken, Wake { time_ticks: self.now, place: self.story.items.len() });
        self.show(track, Shown::ArrowFrom { id: NOT_FOLLOWED });
        if is_bare {
            self.close(track, WAKE);
        }
    }

    /// The woken target runs here now. `latency`: whether it is a kernel coroutine, and its
    /// priority.
    fn arrive(&mut self, track: Track, woken: Woken, latency: Option<(bool, u8)>) {
        let Some(wake) = self.wakes.remove(&woken) else { return };
        // An arrow cannot end at a moment outside of any slice.
        if self.open.get(&track).is_some_and(|open| !open.is_empty()) {
            self.arrows += 1;
            self.story.items[wake.place].shown = Shown::ArrowFrom { id: self.arrows };
            self.show(track, Shown::ArrowTo { id: self.arrows });
        }
        if let Some((is_kernel, level)) = latency {
            let ticks = self.now.saturating_sub(wake.time_ticks);
            self.story.latencies.push(Latency { is_kernel, level, ticks });
        }
    }

    fn end_call(&mut self, call: (u32, u64, u64)) {
        if let Some((track, number)) = self.calls.remove(&call) {
            let (id, name) = (format!("call {number}"), format!("call of {}", short(call.1)));
            self.show(track, Shown::SpanEnd { id, name });
        }
    }

    /// Ends what is still open, and removes arrows without an end.
    fn end(&mut self) {
        for track in self.open.keys().copied().collect::<Vec<_>>() {
            self.close_all(track);
        }
        for call in self.calls.keys().copied().collect::<Vec<_>>() {
            self.end_call(call);
        }
        self.story.items.retain(|item| item.shown != Shown::ArrowFrom { id: NOT_FOLLOWED });
    }

    fn kernel_name(&self, coroutine: u64, kind: &str) -> String {
        match self.dump.coroutines.get(&coroutine) {
            Some(name) => name.clone(),
            None => format!("{kind} {}", short(coroutine)),
        }
    }

    fn process_name(&self, process: u32) -> String {
        let name = self.dump.processes.get(&process.into());
        name.map_or_else(|| format!("process {process}"), |name| format!("{name} ({process})"))
    }

    fn call_name(&self, number: u64) -> String {
        let name = self.dump.system_calls.get(&number);
        name.map_or_else(
            || format!("system call {number}"),
            |name| name.trim_start_matches("COPS_").to_lowercase(),
        )
    }
}

/// A short form of an id: the slot and, if the slot was reused, the generation.
fn short(coroutine: u64) -> String {
    let (generation, slot) = (coroutine >> 32, coroutine & 0xff_ffff);
    if generation > 1 { format!("{slot}.{generation}") } else { slot.to_string() }
}

fn hex(number: u64) -> String {
    format!("{number:#x}")
}
