//! Rounds of calls by Linux programs: `user/linux/fuzz.c` makes one, and reports what it has found.
//!
//! The program starts children of its own. It writes its results to a pipe, as lines `NAME=NUMBER`;
//! the name of a call ends with `()`, and its number is that of the calls made. All other lines but
//! the last one say what is wrong.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use cops::fs::File;
use cops::io::{AsFd, Fd, Read, pipe};
use cops::process::{Child, Command};
use cops::task::Priority;
use cops::time::{Duration, timeout};

/// The program ends a round after about a minute, and waits for a killed process for another one.
const PATIENCE: Duration = Duration::from_secs(240);
/// The last line of a program that has found nothing wrong.
const NOTHING_WRONG: &str = "nothing wrong";
/// After so many calls, each call of the kernel must have been made. A call of the least weight is
/// then expected some twelve times.
const ENOUGH: u64 = 40_000;

/// What the rounds have reported.
#[derive(Default)]
pub struct Results(BTreeMap<String, u64>);

impl Results {
    /// Adds what a program has written. Returns its lines about what is wrong.
    fn add(&mut self, text: &str) -> Vec<String> {
        let mut wrong = Vec::new();
        for line in text.lines().filter(|line| *line != NOTHING_WRONG) {
            let pair = line.split_once('=').and_then(|(name, value)| {
                let is_name = !name.is_empty() && !name.contains(' ');
                Some((name, value.parse::<u64>().ok().filter(|_| is_name)?))
            });
            match pair {
                Some((name, value)) => *self.0.entry(name.to_string()).or_default() += value,
                None => wrong.push(line.to_string()),
            }
        }
        wrong
    }

    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Names and numbers of all but the calls.
    pub fn all(&self) -> impl Iterator<Item = (&str, u64)> {
        let all = self.0.iter().filter(|(name, _)| !name.ends_with("()"));
        all.map(|(name, value)| (name.as_str(), *value))
    }

    /// How often each call was made.
    fn calls(&self) -> impl Iterator<Item = (&str, u64)> {
        let calls = self.0.iter().filter(|(name, _)| name.ends_with("()"));
        calls.map(|(name, value)| (name.as_str(), *value))
    }

    /// Number of different calls that were made, and of those that the program knows.
    pub fn reached(&self) -> (usize, usize) {
        (self.calls().filter(|&(_, made)| made > 0).count(), self.calls().count())
    }

    /// The calls that were never made, although there were enough calls.
    pub fn check_reached(&self) -> Result<(), String> {
        let never: Vec<_> = self.calls().filter(|&(_, made)| made == 0).collect();
        if self.get("calls") < ENOUGH || never.is_empty() {
            return Ok(());
        }
        Err(format!("calls that were never made: {never:?}"))
    }
}

/// Runs the program, which makes at most so many calls. Adds its results.
pub async fn make_calls(
    program: &str,
    ceiling: Priority,
    seed: u64,
    calls: u64,
    results: &mut Results,
) -> Result<(), String> {
    let (mut child, mut output) = start(program, ceiling, seed, calls)
        .map_err(|error| format!("cannot start {program}: {error}"))?;
    let ended = timeout(PATIENCE, async {
        let text = read(&mut output).await?;
        Ok::<_, cops::io::Error>((text, child.wait().await?))
    });
    let Ok(ended) = ended.await else {
        return Err(format!("{program} {seed} {calls} does not end"));
    };
    let (text, status) = ended.map_err(|error| format!("{program}: {error}"))?;
    let wrong = results.add(&text);
    if !status.success() || !wrong.is_empty() || !text.ends_with(&format!("{NOTHING_WRONG}\n")) {
        return Err(format!("{program} {seed} {calls} ends with {status:?}: {wrong:?}"));
    }
    Ok(())
}

/// Starts the program. Returns what its output can be read from.
fn start(program: &str, ceiling: Priority, seed: u64, calls: u64) -> cops::io::Result<(Child, Fd)> {
    let (reader, writer) = pipe()?;
    let null = File::open("/dev/null")?;
    let child = Command::new(program)?
        .arguments(&[seed.to_string(), calls.to_string()])?
        .ceiling(Some(ceiling))
        .files([null.as_fd(), writer.as_fd(), null.as_fd()])
        .spawn()?;
    Ok((child, reader))
}

/// Reads until each writer has closed the pipe.
async fn read(output: &mut Fd) -> cops::io::Result<String> {
    let mut text = Vec::new();
    let mut part = [0; 512];
    loop {
        let count = output.read(&mut part).await?;
        if count == 0 {
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
        text.extend_from_slice(&part[..count]);
    }
}
