//! Running a child to its end, for a limited time.

use std::fmt;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes that has not gone wrong.
const LIMIT: Duration = Duration::from_secs(600);

/// What a child printed.
pub struct Output {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Why there is no result, in words.
#[derive(Clone, Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure(error.to_string())
    }
}

/// Runs a command; an error if it cannot be started, fails, or takes longer than ten minutes.
pub fn run(command: &mut Command) -> Result<Output, Failure> {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let read_errors = thread::spawn(move || read(&mut stderr));
    let read_output = thread::spawn(move || read(&mut stdout));
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Err(Failure(format!(
                "ended after {} seconds without a result",
                LIMIT.as_secs()
            )));
        }
        thread::sleep(Duration::from_millis(2));
    };
    let stdout = read_output.join().expect("reading does not panic");
    let stderr = read_errors.join().expect("reading does not panic");
    if status.success() {
        Ok(Output { stdout, stderr })
    } else {
        Err(Failure(format!("{status}\n{stderr}")))
    }
}

fn read(stream: &mut Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What came before an error is shown with the status.
        let _ = stream.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_failure_are_told_apart() {
        let output =
            run(Command::new("sh").args(["-c", "echo out; echo err >&2"])).map_err(|error| error.0);
        let output = output.unwrap();
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));
        let failure = run(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).err().unwrap();
        assert!(failure.0.contains("why") && failure.0.contains('3'), "{failure}");
        assert!(run(&mut Command::new("no-such-program-anywhere")).is_err());
    }
}
