//! Every contender does every operation that it takes, twice, and answers.

use std::process::Command;

use cops_executor_peers::child::FLAG;
use cops_executor_peers::contender::{Binary, Contender};
use cops_executor_peers::rows::TABLES;
use cops_executor_peers::sample::Sample;

#[test]
fn every_measurement_gives_a_sample() {
    for row in TABLES.iter().flat_map(|table| table.rows) {
        for contender in
            Contender::ALL.into_iter().filter(|contender| contender.takes(row.operation))
        {
            let binary = match contender.binary(row.operation) {
                Binary::Main => env!("CARGO_BIN_EXE_cops-executor-peers"),
                Binary::LiveBytes => env!("CARGO_BIN_EXE_live-bytes"),
                // Another set of features.
                Binary::EmbassyPriority => continue,
            };
            let output =
                Command::new(binary).args([FLAG, row.key, contender.key(), "2"]).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            let sample = Sample::from_json(&said)
                .unwrap_or_else(|| panic!("{} {contender:?}: {errors}", row.key));
            assert!(
                sample.operations >= 2 && sample.nanoseconds > 0,
                "{} {contender:?}: {said}",
                row.key
            );
        }
    }
}

#[test]
fn what_is_no_measurement_is_refused() {
    for words in
        [["yield-1", "cops", "2"], ["yield-10", "no-contender", "2"], ["yield-10", "cops", "-2"]]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_cops-executor-peers"))
            .arg(FLAG)
            .args(words)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
    }
}
