//! From bytes to a file that viewers accept.

use proptest::prelude::*;
use serde_json::Value;

use super::check::{Counts, check};
use super::dump::{Collector, Dump};
use super::record::{BYTES, Record, kind};
use super::story::{Latency, Shown, Story, tell};
use super::summary::Summary;
use super::timeline::Timeline;
use super::{chrome, record};

/// Ticks per second: a tick is a microsecond.
const CLOCK: u64 = 1_000_000;

fn at(time_ticks: u64, kind: u8) -> Record {
    Record { time_ticks, kind, ..Record::default() }
}

/// The stream that a kernel writes for these rings.
fn stream(rings: &[(u64, &[Record])]) -> Vec<u8> {
    let mut records =
        vec![Record { argument: CLOCK, coroutine: rings.len() as u64, ..at(0, kind::DUMP_BEGIN) }];
    let word = |text: &str| {
        let mut bytes = [0; 8];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        u64::from_le_bytes(bytes)
    };
    for (part, text) in ["/bin/mat", "rix"].into_iter().enumerate() {
        let argument = word(text);
        records.push(Record {
            process: 5,
            level: part as u8,
            argument,
            ..at(0, kind::PROCESS_NAME)
        });
    }
    records.push(Record { coroutine: 63, argument: word("read"), ..at(0, kind::SYSTEM_CALL_NAME) });
    records.push(Record {
        coroutine: 0x1_0000_0001,
        argument: word("timer"),
        ..at(0, kind::COROUTINE_NAME)
    });
    for (hart, (overwritten, ring)) in rings.iter().enumerate() {
        let (coroutine, argument) = (ring.len() as u64, *overwritten);
        records.push(Record { level: hart as u8, coroutine, argument, ..at(0, kind::DUMP_RING) });
        records.extend(ring.iter().map(|record| Record { hart: hart as u8, ..*record }));
    }
    records.push(at(0, kind::DUMP_END));
    records.into_iter().flat_map(Record::to_bytes).collect()
}

fn story(rings: &[(u64, &[Record])]) -> (Dump, Timeline, Story) {
    let dump = Dump::parse(&stream(rings)).unwrap();
    let timeline = Timeline::new(&dump);
    let story = tell(&dump, &timeline);
    (dump, timeline, story)
}

fn file(rings: &[(u64, &[Record])]) -> Value {
    let (dump, timeline, story) = story(rings);
    let mut bytes = Vec::new();
    chrome::write(&mut bytes, &dump, &timeline, &story).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

const READER: u64 = 0x1_0000_0009;
const CALL: u64 = 0x2_0000_0004;

/// One asynchronous read on hart 0: the call, the interrupt, the kernel's coroutine on hart 1, the
/// reader's next poll.
fn one_read() -> [Vec<Record>; 2] {
    let user =
        |time, kind| Record { process: 5, cpu: 2, coroutine: READER, level: 7, ..at(time, kind) };
    let kernel = |time, kind| Record { coroutine: CALL, level: 7, ..at(time, kind) };
    let zero = vec![
        Record { coroutine: 0x1_0000_0005, level: 32, ..at(100, kind::POLL_BEGIN) },
        user(101, kind::ENTER_USER),
        user(102, kind::USER_POLL_BEGIN),
        Record { argument: 63, ..user(110, kind::SYSTEM_CALL) },
        Record { argument: 1, ..user(111, kind::CALL_BEGIN) },
        Record { argument: 0, ..kernel(112, kind::SPAWN) },
        user(113, kind::ENTER_USER),
        user(114, kind::USER_POLL_END),
        Record { argument: 4096, coroutine: 0, ..user(116, kind::SYSTEM_CALL) },
        user(117, kind::PARK),
        Record { coroutine: 0x1_0000_0005, ..at(118, kind::POLL_END) },
        at(119, kind::SLEEP),
        at(150, kind::AWAKE),
        Record { argument: 2, ..at(150, kind::INTERRUPT) },
        Record { coroutine: 0x1_0000_0005, level: 7, ..at(151, kind::POLL_BEGIN) },
        user(152, kind::ENTER_USER),
        Record { argument: 0, ..user(153, kind::USER_WAKE) },
        user(154, kind::USER_POLL_BEGIN),
        user(160, kind::USER_POLL_END),
    ];
    let one = vec![
        Record { argument: 3, ..at(140, kind::INTERRUPT) },
        Record { argument: 0, ..kernel(140, kind::WAKE) },
        Record { cpu: 2, ..kernel(141, kind::POLL_BEGIN) },
        Record { argument: 1, ..user(145, kind::CALL_COMPLETE) },
        user(146, kind::UNPARK),
        Record { argument: 0, level: 1, ..at(147, kind::SEND_INTERRUPT) },
        Record { argument: 1, ..kernel(148, kind::POLL_END) },
    ];
    [zero, one]
}

#[test]
fn one_read_is_told_as_it_was() {
    let [zero, one] = one_read();
    let file = file(&[(0, &zero), (0, &one)]);
    let counts = check(&file).unwrap();
    // There are arrows from spawn to poll of the call's coroutine, from its completion to the
    // reader's poll, and from unpark to user mode. The wake after the spawn makes no other arrow,
    // and the interrupt is outside of any slice.
    assert_eq!((counts.arrows, counts.spans), (3, 1));
    let events = file["traceEvents"].as_array().unwrap();
    let named = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    let is_its_name = |event: &&Value| event["args"]["name"] == "/bin/matrix (5)";
    assert_eq!(events.iter().filter(is_its_name).count(), 1, "the process's name");
    assert_eq!(named("/bin/matrix (5) cpu 2"), 3, "stretches of user mode");
    assert_eq!(named("read"), 1, "the system call");
    assert_eq!(named("task 9"), 2, "polls of the reader");
    assert_eq!(named("call 4.2"), 1, "the kernel's poll");
    assert_eq!(named("parked"), 1);
    let parked = events.iter().find(|event| event["name"] == "parked").unwrap();
    assert_eq!(parked["args"]["cause"], "call", "why the virtual CPU is suspended");
    let call = events.iter().find(|event| event["name"] == "call 4.2").unwrap();
    assert_eq!(call["args"]["kind"], "call");
    assert_eq!((parked["ts"].as_f64(), parked["tid"].as_u64()), (Some(17.0), Some(2)));
}

#[test]
fn latencies_count_from_the_first_wake() {
    let [zero, one] = one_read();
    let (.., story) = story(&[(0, &zero), (0, &one)]);
    let kernel = Latency { is_kernel: true, level: 7, ticks: 141 - 112 };
    let user = Latency { is_kernel: false, level: 7, ticks: 154 - 145 };
    assert_eq!(story.latencies, [kernel, user]);
}

#[test]
fn the_summary_has_every_part() {
    let [zero, one] = one_read();
    let (dump, timeline, story) = story(&[(3, &zero), (0, &one)]);
    let text = Summary { dump: &dump, timeline: &timeline, story: &story }.to_string();
    for part in [
        "26 events of 2 harts over 0.060 ms; 3 older ones overwritten",
        "system calls",
        "task 9",
        "process",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

/// Records of the time before the first record of any hart are dropped on all harts, because the
/// picture would be incomplete.
#[test]
fn the_story_begins_where_all_harts_have_records() {
    let zero = [at(10, kind::SLEEP), at(20, kind::AWAKE), at(30, kind::SLEEP)];
    let one = [at(15, kind::SLEEP), at(25, kind::AWAKE)];
    let (_, timeline, _) = story(&[(0, &zero), (100, &one)]);
    let times: Vec<u64> = timeline.records.iter().map(|record| record.time_ticks).collect();
    assert_eq!((times, timeline.overwritten), (vec![15, 20, 25, 30], 100));
}

#[test]
fn a_virtual_cpu_that_moves_in_no_time_stops_before_it_runs() {
    let cpu = |time, kind| Record { process: 5, cpu: 1, ..at(time, kind) };
    let zero = [cpu(10, kind::ENTER_USER)];
    let one = [cpu(5, kind::ENTER_USER), cpu(10, kind::INTERRUPTED), cpu(10, kind::PREEMPTED)];
    let (_, timeline, story) = story(&[(0, &zero), (0, &one)]);
    assert_eq!(timeline.records.last().unwrap().kind, kind::ENTER_USER);
    let suspended = story.slices.iter().find(|slice| slice.name == "preempted").unwrap();
    assert_eq!(suspended.ticks, 0);
    let cause = story.items.iter().find_map(|item| match &item.shown {
        Shown::Begin { name, arguments, .. } if name == "preempted" => arguments.get("cause"),
        _ => None,
    });
    assert_eq!(cause.and_then(|cause| cause.as_str()), Some("interrupt"));
}

#[test]
fn damaged_dumps_are_refused() {
    let [zero, one] = one_read();
    let whole = stream(&[(0, &zero), (0, &one)]);
    assert!(Dump::parse(&whole).is_ok());
    for length in [0, 1, BYTES, whole.len() - 1, whole.len() - BYTES, whole.len() - 9 * BYTES] {
        assert!(Dump::parse(&whole[..length]).is_err(), "{length} bytes");
    }
    assert!(Dump::parse(&[whole.clone(), vec![0]].concat()).is_err());
    assert!(Dump::parse(&whole[BYTES..]).is_err());
}

#[test]
fn a_dump_is_complete_with_its_last_record() {
    let [zero, one] = one_read();
    let whole = stream(&[(0, &zero), (0, &one)]);
    let mut collector = Collector::default();
    for piece in whole.chunks(7) {
        assert!(!collector.is_complete());
        collector.feed(piece);
    }
    assert!(collector.is_complete());
    assert_eq!(collector.finish().unwrap().rings.len(), 2);
}

#[test]
fn the_check_finds_what_viewers_hide() {
    let trace = |events: &str| {
        serde_json::from_str::<Value>(&format!("{{\"traceEvents\":[{events}]}}")).unwrap()
    };
    let event = |phase: &str, time: u32, more: &str| {
        format!("{{\"ph\":\"{phase}\",\"pid\":0,\"tid\":0,\"ts\":{time},\"name\":\"x\"{more}}}")
    };
    let slice = [event("B", 1, ""), event("E", 9, "")].join(",");
    assert_eq!(check(&trace(&slice)), Ok(Counts { slices: 1, ..Counts::default() }));
    let arrow = |id: u32| format!(",\"id\":{id}");
    let around = |inside: String| [event("B", 1, ""), inside, event("E", 9, "")].join(",");
    for (events, complaint) in [
        (event("B", 1, ""), "no end"),
        (event("E", 1, ""), "without a begin"),
        ([event("i", 2, ""), event("i", 1, "")].join(","), "earlier"),
        (around(event("s", 2, &arrow(1))), "leads nowhere"),
        (around(event("f", 2, &arrow(1))), "without, or before"),
        (event("s", 2, &arrow(1)), "outside"),
        (event("b", 2, ",\"id\":\"1\""), "no end"),
        (event("?", 2, ""), "unknown"),
    ] {
        let error = check(&trace(&events)).unwrap_err();
        assert!(error.contains(complaint), "{error} instead of {complaint}");
    }
}

fn any_record() -> impl Strategy<Value = Record> {
    let kind = prop::sample::select(record::kind::ALL)
        .prop_map(|(_, kind)| kind)
        .prop_filter("those of dumps", |kind| *kind < record::kind::DUMP_BEGIN);
    // Few values of each, so that they coincide.
    (kind, 0..3u64, 0..64u8, 0..3u8, 1..3u32, 1..5u64, 0..5u64).prop_map(
        |(kind, time_ticks, level, cpu, process, coroutine, argument)| Record {
            time_ticks,
            kind,
            level,
            hart: 0,
            cpu,
            process,
            coroutine,
            argument,
        },
    )
}

proptest! {
    /// For any records, cut anywhere, the file is well-formed.
    #[test]
    fn any_records_make_a_good_file(
        rings in prop::collection::vec(prop::collection::vec(any_record(), 0..60), 1..4),
        overwritten in 0..2u64,
    ) {
        let rings: Vec<Vec<Record>> = rings
            .into_iter()
            .map(|ring| {
                let mut now = 0;
                ring.into_iter().map(|record| { now += record.time_ticks; Record { time_ticks: now, ..record } }).collect()
            })
            .collect();
        let rings: Vec<(u64, &[Record])> = rings.iter().map(|ring| (overwritten, ring.as_slice())).collect();
        prop_assert_eq!(check(&file(&rings)).err(), None);
    }

    #[test]
    fn garbage_is_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
        let _ = Dump::parse(&bytes);
    }
}
