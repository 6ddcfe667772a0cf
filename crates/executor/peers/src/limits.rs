//! The most instructions that each operation of cops-executor may take: SPEC 2.6 where it names a
//! figure, else what was measured and some percent. A run that counts fails above these.

use crate::contender::Contender::{self, Cops, CopsRuntime};
use crate::driver::Results;

/// Row, contender, instructions of one operation.
const LIMITS: [(&str, Contender, f64); 11] = [
    // SPEC 2.6: yield and pick again.
    ("yield-10", Cops, 60.0),
    ("yield-1000", Cops, 60.0),
    ("yield-100000", Cops, 60.0),
    ("yield-levels", Cops, 60.0),
    // SPEC 2.6: 260, flat to 100,000, and 300 with a handle.
    ("spawn-1000", Cops, 235.0),
    ("spawn-100000", Cops, 235.0),
    ("spawn-1000", CopsRuntime, 300.0),
    ("spawn-1", Cops, 540.0),
    ("ring", Cops, 258.0),
    ("join", Cops, 670.0),
    ("mixed", Cops, 402.0),
];

/// The rows that have a limit.
pub fn rows() -> impl Iterator<Item = &'static str> {
    LIMITS.iter().map(|&(row, ..)| row)
}

/// The contenders that have one: the crate's own.
pub fn contenders() -> [Contender; 2] {
    [Cops, CopsRuntime]
}

/// Whether so many instructions of this row are above its limit, if it has one.
pub fn is_exceeded(row: &str, contender: Contender, instructions: f64) -> bool {
    let limit = LIMITS.iter().find(|&&(limited, of, _)| limited == row && of == contender);
    limit.is_some_and(|&(.., limit)| instructions > limit)
}

/// In words, each limit without a figure.
pub fn not_counted(results: &Results) -> Vec<String> {
    let missing = LIMITS.iter().filter(|&&(row, contender, _)| {
        results.get(&(row, contender.key())).and_then(|cell| cell.instructions).is_none()
    });
    missing
        .map(|(row, contender, _)| format!("{row} of {}: not counted", contender.key()))
        .collect()
}

/// In words, each figure above its limit. What was not counted is not judged.
pub fn exceeded(results: &Results) -> Vec<String> {
    let judged = LIMITS.iter().filter_map(|&(row, contender, limit)| {
        let counted = results.get(&(row, contender.key()))?.instructions?;
        is_exceeded(row, contender, counted).then(|| {
            format!("{row} of {}: {counted:.1} instructions, the limit is {limit}", contender.key())
        })
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Cell;
    use crate::rows::Row;

    #[test]
    fn each_limit_is_of_a_row_that_is_counted() {
        for (row, contender, _) in LIMITS {
            let operation = Row::from_key(row).expect("there is such a row").operation;
            assert!(operation.counts_instructions() && contender.takes(operation), "{row}");
            assert!(contenders().contains(&contender), "{row}");
        }
    }

    #[test]
    fn only_what_is_above_its_limit_is_named() {
        let cell = |instructions| Cell { instructions, ..Cell::default() };
        let mut results = Results::new();
        results.insert(("mixed", Cops.key()), cell(Some(410.0)));
        results.insert(("ring", Cops.key()), cell(Some(253.7)));
        results.insert(("join", Cops.key()), cell(None));
        assert_eq!(exceeded(&results), ["mixed of cops: 410.0 instructions, the limit is 402"]);
        let missing = not_counted(&results);
        assert_eq!(missing.len(), LIMITS.len() - 2, "all but mixed and ring");
        assert!(missing.contains(&"join of cops: not counted".to_owned()));
    }
}
