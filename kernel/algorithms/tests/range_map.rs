//! The map of ranges compared with a model that stores a value for each address. Leaves have 8
//! spans, so that a few dozen spans make several leaves.

use cops_algorithms::range_map::{RangeError, RangeMap, Span};
use proptest::prelude::*;

const ADDRESSES: usize = 240;
const LIMIT: usize = 90;

type Map = RangeMap<u8, 8>;

#[derive(Clone, Debug)]
enum Change {
    Insert(usize, usize, u8),
    Replace(usize, usize, u8),
    Remove(usize, usize),
    MoveBoundary(usize, usize),
    Clear,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let start = 0..ADDRESSES;
    // Short ranges make many spans; long ranges replace many of them at once.
    let length = prop_oneof![4 => 1..4usize, 1 => 4..100usize];
    let one = prop_oneof![
        6 => (start.clone(), length.clone(), 0..3u8).prop_map(|(start, length, value)| Change::Insert(start, length, value)),
        6 => (start.clone(), length.clone(), 0..3u8).prop_map(|(start, length, value)| Change::Replace(start, length, value)),
        3 => (start.clone(), length.clone()).prop_map(|(start, length)| Change::Remove(start, length)),
        6 => (start, length).prop_map(|(start, length)| Change::MoveBoundary(start, length)),
        1 => Just(Change::Clear).boxed(),
    ];
    prop::collection::vec(one, 0..300)
}

/// The spans of a model.
fn spans_of(model: &[Option<u8>]) -> Vec<Span<u8>> {
    let mut spans: Vec<Span<u8>> = Vec::new();
    for (address, value) in model.iter().enumerate() {
        let Some(value) = *value else { continue };
        match spans.last_mut() {
            Some(last) if last.end == address && last.value == value => last.end += 1,
            _ => spans.push(Span { start: address, end: address + 1, value }),
        }
    }
    spans
}

fn gap_of(model: &[Option<u8>], from: usize, to: usize, length: usize) -> Option<usize> {
    (from..to).find(|&at| at + length <= to && model[at..at + length].iter().all(Option::is_none))
}

fn check(map: &Map, model: &[Option<u8>]) -> Result<(), TestCaseError> {
    let expected = spans_of(model);
    prop_assert_eq!(map.len(), expected.len());
    prop_assert_eq!(map.spans(0..ADDRESSES + 100).collect::<Vec<_>>(), expected.clone());
    let by_index = (0..).map_while(|index| map.nth(index)).collect::<Vec<_>>();
    prop_assert_eq!(by_index, expected);
    for (address, value) in model.iter().enumerate() {
        prop_assert_eq!(map.at(address).map(|span| span.value), *value, "at {}", address);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn behaves_as_the_model(changes in changes()) {
        let mut map = Map::new(LIMIT);
        let mut model = vec![None; ADDRESSES];
        for change in changes {
            let before = model.clone();
            let (range, value, overlaps) = match change {
                Change::Insert(start, length, value) => {
                    let range = start..(start + length).min(ADDRESSES);
                    let overlaps = model[range.clone()].iter().any(Option::is_some);
                    (range, Some(value), overlaps)
                }
                Change::Replace(start, length, value) => (start..(start + length).min(ADDRESSES), Some(value), false),
                Change::Remove(start, length) => (start..(start + length).min(ADDRESSES), None, false),
                Change::MoveBoundary(start, length) => {
                    // The boundary that is nearest to an address, so that there often is one.
                    let spans = spans_of(&model);
                    let nearest = spans.iter().filter(|span| span.end >= start).min_by_key(|span| span.end);
                    let Some(lower) = nearest.copied() else { continue };
                    let range = lower.end..lower.end + length;
                    let is_there = spans.iter().any(|span| span.start == range.start && span.end > range.end);
                    prop_assert!(!map.move_boundary(range.clone(), lower.value + 1));
                    prop_assert_eq!(map.move_boundary(range.clone(), lower.value), is_there);
                    if is_there {
                        model[range].fill(Some(lower.value));
                    }
                    check(&map, &model)?;
                    continue;
                }
                Change::Clear => {
                    while map.clear_some() {}
                    prop_assert!(map.is_empty());
                    model.fill(None);
                    continue;
                }
            };
            let outcome = match change {
                Change::Insert(_, _, value) => map.insert(range.clone(), value),
                _ => map.replace(range.clone(), value),
            };
            match outcome {
                Ok(()) => {
                    prop_assert!(!overlaps);
                    model[range].fill(value);
                }
                Err(RangeError::Overlap) => prop_assert!(overlaps),
                Err(RangeError::OutOfMemory) => prop_assert!(map.len() + 2 > LIMIT),
            }
            if map.len() > LIMIT {
                return Err(TestCaseError::fail("more than the limit"));
            }
            if model != before {
                check(&map, &model)?;
            }
        }
        check(&map, &model)?;
    }

    #[test]
    fn finds_the_lowest_gap(changes in changes(), from in 0..ADDRESSES, length in 1..40usize, to in 0..=ADDRESSES) {
        let mut map = Map::new(usize::MAX);
        let mut model = vec![None; ADDRESSES];
        for change in changes {
            if let Change::Replace(start, length, value) | Change::Insert(start, length, value) = change {
                let range = start..(start + length.min(3)).min(ADDRESSES);
                map.replace(range.clone(), Some(value)).unwrap();
                model[range].fill(Some(value));
            }
        }
        let to = to.max(from);
        prop_assert_eq!(map.find_gap(from..to, length), gap_of(&model, from, to, length));
    }
}

/// The maximum number of spans of a process: alternating values, so that none are merged; then one
/// value for all.
#[test]
fn sixty_five_thousand_spans() {
    const COUNT: usize = 65_530;
    let mut map = RangeMap::<u8>::new(COUNT);
    for number in 0..COUNT {
        // From both ends towards the middle.
        let place = if number % 2 == 0 { number / 2 } else { COUNT - 1 - number / 2 };
        map.insert(place * 10..place * 10 + 10, (place % 2) as u8).unwrap();
    }
    assert_eq!(map.len(), COUNT);
    assert_eq!(map.insert(COUNT * 20..COUNT * 20 + 1, 0), Err(RangeError::OutOfMemory));
    // In portions of 32 spans.
    let mut at = 0;
    while at < COUNT * 10 {
        let end = map.spans(at..COUNT * 10).take(32).last().unwrap().end;
        map.replace(at..end, Some(7)).unwrap();
        at = end;
    }
    assert_eq!(
        map.spans(0..usize::MAX).collect::<Vec<_>>(),
        [Span { start: 0, end: COUNT * 10, value: 7 }]
    );
}
