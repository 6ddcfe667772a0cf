//! The program with a standard output that is closed or full.

use std::fs::OpenOptions;
use std::io::pipe;
use std::process::{Command, Output, Stdio};

/// Runs a command that prints many lines.
fn list(stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["test", "--list"]).stdout(stdout).stderr(stderr);
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
    let Output { status, stderr, .. } = list(closed(), Stdio::piped());
    assert_eq!((status.code(), String::from_utf8_lossy(&stderr).as_ref()), (Some(0), ""));
    assert_eq!(list(closed(), closed()).status.code(), Some(0));
}

#[test]
fn output_that_is_lost_is_a_failure() {
    let Output { status, stderr, .. } = list(full(), Stdio::piped());
    let stderr = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(125), "{stderr}");
    assert!(stderr.starts_with("cops: standard output could not be written: "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}
