//! The program with a standard output that is closed or full.

use std::fs::OpenOptions;
use std::io::pipe;
use std::process::{Command, Output, Stdio};

/// Commands that print many lines.
const COMMANDS: [&[&str]; 2] = [&["test", "--list"], &["help"]];

fn run(words: &[&str], stdout: Stdio, stderr: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(words).stdout(stdout).stderr(stderr);
    command.spawn().unwrap().wait_with_output().unwrap()
}

/// The writing end of a pipe that has no reader.
fn closed() -> Stdio {
    let (_, writer) = pipe().unwrap();
    writer.into()
}

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

#[test]
fn output_that_is_closed_is_no_failure() {
    for words in COMMANDS {
        let Output { status, stderr, .. } = run(words, closed(), Stdio::piped());
        assert_eq!((status.code(), String::from_utf8_lossy(&stderr).as_ref()), (Some(0), ""));
        assert_eq!(run(words, closed(), closed()).status.code(), Some(0), "{words:?}");
    }
}

#[test]
fn output_that_is_lost_is_a_failure() {
    for words in COMMANDS {
        let Output { status, stderr, .. } = run(words, full(), Stdio::piped());
        let stderr = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(125), "{words:?}: {stderr}");
        assert!(
            stderr.starts_with("cops: ") && stderr.contains("could not be written"),
            "{stderr}"
        );
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert_eq!(run(words, full(), full()).status.code(), Some(125), "{words:?}");
    }
}
