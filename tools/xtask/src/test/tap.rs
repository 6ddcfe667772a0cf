//! Parses the test protocol of this repository's programs: `ok NAME` or `not ok NAME: why` per
//! test, `# comments`, and the number of tests: a plan `1..N` before them, or `N passed, M failed`
//! after them.

use super::Case;

/// The tests that a program reported. A missing or unfulfilled plan is a failed test itself, so
/// that a program that crashes early does not look like one with few tests.
pub fn cases(output: &str) -> Vec<Case> {
    let mut plan: Option<usize> = None;
    let mut cases = Vec::new();
    // Output since the last result belongs to the next one, if that failed.
    let mut said = String::new();
    for line in output.lines().map(str::trim_end) {
        if let Some(name) = line.strip_prefix("ok ") {
            cases.push(Case::passed(name));
            said.clear();
        } else if let Some(rest) = line.strip_prefix("not ok ") {
            let (name, why) = rest.split_once(": ").unwrap_or((rest, "no reason given"));
            cases.push(Case::failed(name, format!("{why}\n{said}")));
            said.clear();
        } else if let (None, Some(count)) = (plan, planned(line)) {
            plan = Some(count);
        } else {
            said.push_str(line);
            said.push('\n');
        }
    }
    match plan {
        Some(count) if count == cases.len() => {}
        Some(count) => {
            let reported = cases.len();
            cases.push(Case::failed(
                "plan",
                format!("{count} tests were planned, {reported} reported\n{said}"),
            ));
        }
        None => cases.push(Case::failed(
            "plan",
            format!("neither a plan (1..N) nor a sum (N passed, M failed) was printed\n{said}"),
        )),
    }
    cases
}

/// The number of tests, from a line that contains it.
fn planned(line: &str) -> Option<usize> {
    if let Some(count) = line.strip_prefix("1..") {
        return count.parse().ok();
    }
    let (passed, failed) = line.split_once(" passed, ")?;
    Some(passed.parse::<usize>().ok()? + failed.strip_suffix(" failed")?.parse::<usize>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted_and_comments_go_with_failures() {
        let cases = cases("1..3\nok a\n# looking\nnot ok b: 1 is not 2\r\nok c\n");
        assert_eq!(
            cases,
            [Case::passed("a"), Case::failed("b", "1 is not 2\n# looking\n"), Case::passed("c")]
        );
    }

    #[test]
    fn a_sum_at_the_end_will_do_as_a_plan() {
        assert_eq!(cases("ok a\nok b\n2 passed, 0 failed\n").len(), 2);
        assert_eq!(cases("ok a\nnot ok b: no\n1 passed, 1 failed\n").len(), 2);
        assert_eq!(cases("ok a\n2 passed, 0 failed\n").len(), 2);
        assert_eq!(cases("ok a\n2 passed, 0 failed\n")[1].name, "plan");
    }

    #[test]
    fn a_program_that_dies_early_has_failed() {
        for output in ["", "ok a\n", "1..2\nok a\n", "1..1\nok a\nok b\n", "1..x\nok a\n"] {
            let cases = cases(output);
            assert_eq!(cases.last().map(|case| case.name.as_str()), Some("plan"), "{output:?}");
            assert!(cases.last().is_some_and(|case| case.failure.is_some()));
        }
        assert_eq!(cases("1..0\n"), []);
    }
}
