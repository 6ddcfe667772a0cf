//! The hostile suite: a correct server passes all of it, and each kind of faulty server fails the
//! case for it.

mod support;

use std::time::Duration;

use cops_loadgen::hostile::{Suite, Tally};
use support::{Fault, start};

fn run(fault: Fault, patience_ms: u64, only: &str) -> (Tally, String) {
    let server = start(fault);
    let patience = Duration::from_millis(patience_ms);
    let suite = Suite { address: server.address, patience, seed: 1, only: only.into() };
    let mut report = Vec::new();
    let tally = suite.run(&mut report).unwrap();
    (tally, String::from_utf8(report).unwrap())
}

#[test]
fn a_good_server_passes_everything() {
    let (tally, report) = run(Fault::None, 5_000, "");
    assert_eq!(tally.failed, 0, "{report}");
    assert!(
        tally.passed >= 30 && report.ends_with(&format!("{} passed, 0 failed\n", tally.passed)),
        "{report}"
    );
}

#[test]
fn a_server_that_overlooks_a_field_fails_its_cases() {
    let (tally, report) = run(Fault::IgnoresReserved, 500, "reserved");
    assert_eq!(tally, Tally { passed: 0, failed: 2 }, "{report}");
    assert!(report.contains("not ok reserved-lowest-bit: the server answered"), "{report}");
}

#[test]
fn a_server_that_dies_fails_for_the_bystander() {
    let (tally, report) = run(Fault::DiesOfMalformed, 300, "length");
    assert_eq!(tally.passed, 0, "{report}");
    assert!(report.contains("not ok length-zero: a bystander: "), "{report}");
}

#[test]
fn a_connection_left_open_is_a_failure() {
    let (_, report) = run(Fault::KeepsMalformedOpen, 300, "n-129");
    assert!(report.contains("not ok n-129: the server left the connection open"), "{report}");
}

#[test]
fn an_answer_not_given_after_half_close_is_a_failure() {
    let (_, report) = run(Fault::ForgetsOnHalfClose, 500, "half-close-after-request");
    assert!(report.contains("closed instead of answered"), "{report}");
}

#[test]
fn a_server_that_keeps_memory_for_silent_clients_is_a_failure() {
    let (tally, report) = run(Fault::WaitsForTheRest, 300, "large-headers-and-silence");
    assert_eq!(tally, Tally { passed: 0, failed: 1 }, "{report}");
    assert!(report.contains("left the connection open"), "{report}");
}

#[test]
fn a_server_that_waits_for_a_silent_client_is_a_failure() {
    let (tally, report) = run(Fault::Sequential, 300, "half-header-and-silence");
    assert_eq!(tally.passed, 0, "{report}");
}

#[test]
fn bytes_lost_between_requests_are_a_failure() {
    let (tally, report) = run(Fault::LosesWhatFollows, 300, "mixed-requests");
    assert_eq!(tally, Tally { passed: 0, failed: 2 }, "{report}");
}

#[test]
fn an_answer_not_given_before_a_malformed_request_is_a_failure() {
    let (_, report) = run(Fault::ForgetsBeforeMalformed, 500, "malformed-behind-good");
    assert!(report.contains("not ok malformed-behind-good: answer 0 of 1: "), "{report}");
}

#[test]
fn wrong_products_fail() {
    let (tally, report) = run(Fault::WrongProduct, 500, "pipelined");
    assert_eq!(tally.passed, 0, "{report}");
    assert!(report.contains("wrong product, element 0"), "{report}");
}
