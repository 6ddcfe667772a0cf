//! The kernel's counters, as it prints them on request (DLE `s`): `statistics: NAME=VALUE ...` on a
//! line of its log.

use std::collections::BTreeMap;

/// The beginning of the line.
const START: &str = "statistics:";

/// The counters at one moment, by name (`cops_abi::statistics` documents them).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statistics(BTreeMap<String, u64>);

impl Statistics {
    /// Parses the line; `None` if it is another one.
    pub fn parse(line: &str) -> Option<Self> {
        let words = line.trim_end().strip_prefix(START)?.split_whitespace();
        let counters = words.map(|word| {
            let (name, value) = word.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        counters.collect::<Option<_>>().map(Self)
    }

    /// A counter; 0 if this kernel does not have it.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// How much a counter grew since `before`; negative if it fell.
    pub fn growth(&self, before: &Self, name: &str) -> i64 {
        self.get(name).cast_signed().wrapping_sub(before.get(name).cast_signed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_and_compared() {
        let before = Statistics::parse("statistics: frames_free=10 connections=2\n").unwrap();
        let after = Statistics::parse("statistics: frames_free=7 connections=5").unwrap();
        assert_eq!(after.get("connections"), 5);
        assert_eq!(
            (after.growth(&before, "frames_free"), after.growth(&before, "connections")),
            (-3, 3)
        );
        assert_eq!(after.get("unknown"), 0);
    }

    #[test]
    fn other_lines_and_damaged_ones_are_none() {
        for line in
            ["", "[ 0.1 0] statistics", "statistics: a", "statistics: a=x", "statistics: a=-1"]
        {
            assert_eq!(Statistics::parse(line), None, "{line:?}");
        }
    }
}
