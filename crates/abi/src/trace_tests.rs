//! Rings that wrap, writes that are interrupted, invalid contents; records converted to bytes and
//! back.
extern crate std;

use super::*;
use proptest::prelude::*;
use std::vec::Vec;

fn mark(value: u64) -> Record {
    Event::UserMark { process: 7, cpu: 3, coroutine: 9, value }.to_record()
}

fn values(ring: &Ring<'_>, from: u64, limit: usize) -> (Portion, Vec<u64>) {
    let mut values = Vec::new();
    let portion = ring.read(from, limit, |record| values.push(record.argument));
    (portion, values)
}

#[test]
fn every_event_survives_the_boundary() {
    for &(kind, name) in Event::KINDS {
        let record = Record {
            time_ticks: 1,
            kind,
            level: 63,
            hart: 7,
            cpu: 5,
            process: u32::MAX,
            coroutine: u64::MAX - 1,
            argument: 1 << 63,
        };
        assert_eq!(Record::from_bytes(&record.to_bytes()), record);
        let again = record.event().unwrap().to_record();
        assert_eq!(again.kind, kind, "{name}");
        assert_eq!(again.event(), record.event(), "{name}");
    }
    assert!(Event::KINDS.windows(2).all(|pair| pair[0].0 < pair[1].0));
    let allowed = Event::KINDS.iter().filter(|(kind, _)| Event::is_user_kind(*kind));
    assert!(
        allowed.clone().all(|(_, name)| name.starts_with("User")),
        "only what a process may say"
    );
    assert_eq!(allowed.count(), 5);
    assert_eq!(Record { kind: 255, ..Record::default() }.event(), None);
}

#[test]
fn the_oldest_is_overwritten_and_the_lost_are_counted() {
    let (begun, slots) = (AtomicU64::new(0), [const { Slot::new() }; 4]);
    let ring = Ring::new(&begun, &slots);
    assert_eq!(values(&ring, 0, 9), (Portion { first: 0, count: 0 }, Vec::new()));
    for value in 0..10 {
        ring.write(mark(value));
    }
    // From 2 on: records 2 to 5 are lost.
    assert_eq!(values(&ring, 2, 9), (Portion { first: 6, count: 4 }, [6, 7, 8, 9].into()));
    assert_eq!(values(&ring, 7, 2), (Portion { first: 7, count: 2 }, [7, 8].into()));
    assert_eq!(values(&ring, 10, 9).0, Portion { first: 10, count: 0 });
    assert_eq!(values(&ring, u64::MAX, 9).0, Portion { first: 10, count: 0 });
}

/// A handler interrupts a write after it has taken its number. The handler's record is complete;
/// the other is not.
#[test]
fn a_record_being_written_ends_the_portion() {
    let (begun, slots) = (AtomicU64::new(0), [const { Slot::new() }; 4]);
    let ring = Ring::new(&begun, &slots);
    ring.write(mark(0));
    begun.fetch_add(1, Relaxed);
    ring.write(mark(2));
    assert_eq!(values(&ring, 0, 9), (Portion { first: 0, count: 1 }, [0].into()));
    // It is never completed, but overwritten.
    for value in 3..6 {
        ring.write(mark(value));
    }
    assert_eq!(values(&ring, 0, 9), (Portion { first: 2, count: 4 }, [2, 3, 4, 5].into()));
}

/// A writer that never stops: a reader on another thread sees only whole records, in order.
#[test]
fn readers_elsewhere_see_whole_records() {
    static BEGUN: AtomicU64 = AtomicU64::new(0);
    static SLOTS: [Slot; 8] = [const { Slot::new() }; 8];
    const COUNT: u64 = if cfg!(miri) { 200 } else { 200_000 };
    let ring = Ring::new(&BEGUN, &SLOTS);
    let writer = std::thread::spawn(move || {
        for value in 0..COUNT {
            ring.write(Record { coroutine: value, time_ticks: value, ..mark(value) });
        }
    });
    let mut next = 0;
    while next < COUNT {
        let mut expected = None;
        let portion = ring.read(next, 3, |record| {
            assert_eq!((record.coroutine, record.time_ticks), (record.argument, record.argument));
            if let Some(expected) = expected.replace(record.argument + 1) {
                assert_eq!(record.argument, expected);
            }
        });
        next = portion.first + portion.count as u64;
        assert!(expected.is_none_or(|expected| expected == next));
    }
    writer.join().unwrap();
}

proptest! {
    /// Whatever a process has written into its page, a read ends and stays within its bounds.
    #[test]
    fn garbage_is_harmless(begun: u64, from: u64, words in proptest::collection::vec(any::<[u64; 4]>(), 4)) {
        let begun = AtomicU64::new(begun);
        let slots: Vec<Slot> = words.into_iter().map(|words| Slot(words.map(AtomicU64::new))).collect();
        let mut count = 0;
        let portion = Ring::new(&begun, &slots).read(from, 100, |_| count += 1);
        prop_assert!(count <= 4 && portion.count == count);
    }
}
