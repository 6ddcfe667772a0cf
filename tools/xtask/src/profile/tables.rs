//! Flat tables of a profile, and the comparison of two.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::paths::Profile;

/// Instructions by name.
pub(super) type Totals = BTreeMap<String, i64>;

/// What a table has a row for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Side,
    Crate,
    Function,
}

const ALL: [(By, &str); 3] = [(By::Side, "side"), (By::Crate, "crate"), (By::Function, "function")];

/// The instructions of the functions themselves, without those that they call.
fn totals(profile: &Profile, by: By) -> Totals {
    let mut totals = Totals::new();
    for (path, instructions) in &profile.paths {
        let Some(frame) = path.last() else { continue };
        let (side, function) = frame.split_once(':').unwrap_or(("?", frame));
        let name = match by {
            By::Side => side.to_owned(),
            By::Crate => format!("{side}  {}", crate_of(function)),
            By::Function => format!("{side}  {function}"),
        };
        *totals.entry(name).or_default() += instructions;
    }
    totals
}

/// The crate in a function's name: the first name of its path, or of the type that has the method.
fn crate_of(function: &str) -> &str {
    let path = function.trim_start_matches(['<', '&', '(', '[', '*']);
    let path = path.strip_prefix("impl ").unwrap_or(path);
    let path = path.strip_prefix("dyn ").unwrap_or(path);
    let end = path.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    match end {
        Some(end) if path[end..].starts_with("::") => &path[..end],
        // Not a Rust function, or one of a primitive type.
        _ => "-",
    }
}

/// The tables by side, crate and function, each with at most `rows` rows.
pub fn flat(profile: &Profile, rows: usize) -> String {
    let tables =
        ALL.map(|(by, title)| ranked(profile, &totals(profile, by), rows, &format!("by {title}")));
    tables.concat()
}

/// The name of what is counted.
pub(super) fn heading(profile: &Profile) -> &'static str {
    if profile.requests.is_some() { "per request" } else { "instructions" }
}

/// A table of instructions of a profile by name, the most first, with at most `rows` rows.
pub(super) fn ranked(profile: &Profile, totals: &Totals, rows: usize, title: &str) -> String {
    let total = totals.values().sum::<i64>().max(1) as f64;
    let mut sorted: Vec<_> = totals.iter().collect();
    sorted.sort_by_key(|&(name, &instructions)| (-instructions, name));
    let mut text = format!("{:>14}  {:>6}  {title}\n", heading(profile), "%");
    for &(name, &instructions) in sorted.iter().take(rows) {
        let each = instructions as f64 / profile.unit();
        let share = 100.0 * instructions as f64 / total;
        let digits = usize::from(profile.requests.is_some());
        let _ = writeln!(text, "{each:>14.digits$}  {share:>6.2}  {name}");
    }
    if let Some(rest) = sorted.len().checked_sub(rows).filter(|&rest| rest > 0) {
        let _ = writeln!(text, "{:>14}  {:>6}  and {rest} more", "", "");
    }
    text.push('\n');
    text
}

/// Both profiles side by side, with the greatest differences first. If both counted requests, the
/// numbers are per request.
pub fn compare(before: &Profile, after: &Profile, rows: usize) -> String {
    let (requests, heading) = match (before.requests, after.requests) {
        (Some(before), Some(after)) => ((before.max(1) as f64, after.max(1) as f64), "per request"),
        _ => ((1.0, 1.0), "instructions"),
    };
    let mut text = format!("{heading}\n");
    for (by, title) in ALL {
        let (old, new) = (totals(before, by), totals(after, by));
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let value = |totals: &Totals, name: &str, unit: f64| {
            totals.get(name).copied().unwrap_or_default() as f64 / unit
        };
        let mut differences: Vec<(f64, f64, &str)> = names
            .into_iter()
            .map(|name| {
                (value(&old, name, requests.0), value(&new, name, requests.1), name.as_str())
            })
            .collect();
        let size = |&(old, new, _): &(f64, f64, &str)| (new - old).abs();
        differences
            .sort_by(|one, other| size(other).total_cmp(&size(one)).then(one.2.cmp(other.2)));
        let _ = writeln!(text, "{:>14} {:>14} {:>14}  by {title}", "before", "after", "difference");
        for (old, new, name) in differences.iter().take(rows) {
            let _ = writeln!(text, "{old:>14.1} {new:>14.1} {:>+14.1}  {name}", new - old);
        }
        let (old, new) = (before.total() as f64 / requests.0, after.total() as f64 / requests.1);
        let _ = writeln!(text, "{old:>14.1} {new:>14.1} {:>+14.1}  all\n", new - old);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(text: &str) -> Profile {
        Profile::parse(text).unwrap()
    }

    #[test]
    fn crates_are_found_in_names() {
        for (function, wanted) in [
            ("cops_kernel::sched::run", "cops_kernel"),
            ("<cops_kernel::A as core::B>::c", "cops_kernel"),
            ("<&mut F as core::future::Future>::poll", "-"),
            ("<impl cops_net::A>::b", "cops_net"),
            ("__trap_vector", "-"),
            ("(trap)", "-"),
        ] {
            assert_eq!(crate_of(function), wanted, "{function}");
        }
    }

    #[test]
    fn a_function_counts_what_it_executes_itself() {
        let text = flat(&profile("kernel:a::f 30\nkernel:a::f;vdso:b::g 10\nvdso:b::g 60\n"), 1);
        let rows: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(rows[1], "70   70.00  vdso");
        assert_eq!(rows[5], "70   70.00  vdso  b");
        assert_eq!(rows[9], "70   70.00  vdso  b::g");
        assert_eq!(rows[10], "and 1 more");
    }

    #[test]
    fn a_comparison_is_per_request_and_begins_with_the_greatest_difference() {
        let before = profile("# requests 10\nkernel:a::f 100\nkernel:a::g 10\n");
        let after = profile("# requests 20\nkernel:a::f 100\nkernel:a::g 40\nkernel:a::h 20\n");
        let text = compare(&before, &after, 10);
        let rows: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(rows[0], "per request");
        assert_eq!(rows[9], "before          after     difference  by function");
        assert_eq!(rows[10], "10.0            5.0           -5.0  kernel  a::f");
        assert_eq!(rows[13], "11.0            8.0           -3.0  all");
    }
}
