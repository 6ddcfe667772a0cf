//! Counting instructions: the same run under callgrind with two numbers of rounds, so that starting
//! and setting up cancel out. They are the process's own instructions; what the kernel executes is
//! not seen.

use std::process::Command;

use crate::driver::process::{Failure, run};

/// Its version, if it is there.
pub fn version() -> Option<String> {
    let output = Command::new("valgrind").arg("--version").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What to do if it is not.
pub const ADVICE: &str = "valgrind is not installed, so no instructions are counted \
                          (Debian and Ubuntu: apt-get install valgrind; Fedora: dnf install valgrind)";

/// Instructions of a whole run of `child`.
pub fn instructions(child: &Command) -> Result<u64, Failure> {
    let mut command = Command::new("valgrind");
    // One thread at a time gets the processor in turn: a runtime's second thread is not starved.
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--fair-sched=try"]);
    command.arg(child.get_program()).args(child.get_args());
    let output = run(&mut command)?;
    collected(&output.stderr)
        .ok_or_else(|| Failure(format!("callgrind printed no total:\n{}", output.stderr)))
}

/// The total in callgrind's last words.
fn collected(report: &str) -> Option<u64> {
    let line = report.lines().rfind(|line| line.contains("Collected :"))?;
    line.rsplit(':').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::collected;

    #[test]
    fn the_total_is_found() {
        let report = "==7== Events    : Ir\n==7== Collected : 123456\n==7== \n==7== I   refs:      123,456\n";
        assert_eq!(collected(report), Some(123_456));
        assert_eq!(collected("valgrind: no such tool"), None);
    }
}
