//! As the main binary's children, linked with an embassy-executor that has priorities.

use std::process::ExitCode;

fn main() -> ExitCode {
    let no_bytes = || panic!("bytes are measured by live-bytes");
    cops_executor_peers::child::run_if_asked(no_bytes).unwrap_or_else(|| {
        eprintln!("this is started by cops-executor-peers");
        ExitCode::from(2)
    })
}
