//! Parses the output of `cargo test`: which test of which crate passed, and what a failed one
//! printed.

use std::collections::HashMap;

use super::Case;

/// The tests that ran, in order, named `CRATE/TEST`. Ignored tests did not run.
pub fn cases(output: &str) -> Vec<Case> {
    let details = details(output);
    let mut unit = String::new();
    let mut cases = Vec::new();
    for line in output.lines() {
        if let Some(name) = test_program(line) {
            unit = name;
        } else if let Some((test, verdict)) =
            line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... "))
        {
            let name = format!("{unit}/{test}");
            match verdict {
                "ok" => cases.push(Case::passed(name)),
                "FAILED" => {
                    let why = details
                        .get(&name)
                        .cloned()
                        .unwrap_or_else(|| "failed without output".to_owned());
                    cases.push(Case::failed(name, why));
                }
                _ => {}
            }
        }
    }
    cases
}

/// The crate of the following tests, from the line that announces their test program.
fn test_program(line: &str) -> Option<String> {
    let line = line.trim_start();
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(name.to_owned());
    }
    let file = line.strip_prefix("Running ")?.rsplit_once('(')?.1.strip_suffix(')')?;
    let name = file.rsplit('/').next()?;
    Some(name.rsplit_once('-').map_or(name, |(name, _hash)| name).to_owned())
}

/// What each failed test printed: the sections `---- TEST stdout ----`, by `CRATE/TEST`.
fn details(output: &str) -> HashMap<String, String> {
    let mut unit = String::new();
    let mut details: HashMap<String, String> = HashMap::new();
    let mut current: Option<String> = None;
    for line in output.lines() {
        if let Some(name) = test_program(line) {
            unit = name;
            current = None;
        } else if let Some(test) =
            line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            current = Some(format!("{unit}/{test}"));
        } else if line == "failures:" || line.starts_with("test result: ") {
            current = None;
        } else if let Some(name) = &current {
            let text = details.entry(name.clone()).or_default();
            text.push_str(line);
            text.push('\n');
        }
    }
    details
}

/// The output from the first error or warning on, without the progress before it.
pub fn complaints(output: &str) -> String {
    let start = output
        .lines()
        .position(|line| line.starts_with("error") || line.starts_with("warning"))
        .unwrap_or_default();
    output.lines().skip(start).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
   Compiling cops-abi v0.1.0
     Running unittests src/lib.rs (target/debug/deps/cops_abi-0123456789abcdef)

running 3 tests
test ring::overflows ... FAILED
test ring::wraps ... ok
test slow ... ignored

failures:

---- ring::overflows stdout ----
thread 'ring::overflows' panicked at src/ring.rs:1:
left: 1

failures:
    ring::overflows

test result: FAILED. 1 passed; 1 failed; 1 ignored
     Running tests/api.rs (target/debug/deps/api-aa)
test ring::wraps ... ok
   Doc-tests cops_abi
test crates/abi/src/lib.rs - (line 3) ... ok
";

    #[test]
    fn every_test_is_counted_with_its_crate() {
        let cases = cases(OUTPUT);
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "cops_abi/ring::overflows",
                "cops_abi/ring::wraps",
                "api/ring::wraps",
                "cops_abi/crates/abi/src/lib.rs - (line 3)"
            ]
        );
        let failure = cases[0].failure.as_deref().unwrap();
        assert!(
            failure.contains("panicked")
                && failure.contains("left: 1")
                && !failure.contains("failures:")
        );
        assert!(cases[1..].iter().all(|case| case.failure.is_none()));
    }

    #[test]
    fn compile_errors_are_shown_from_the_first() {
        assert_eq!(complaints("Compiling x\nerror[E1]: no\n --> a\n"), "error[E1]: no\n --> a");
        assert_eq!(complaints("killed\n"), "killed");
    }
}
