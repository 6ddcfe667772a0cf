//! Runs other programs to their end, with captured output, progress and a time limit.
//!
//! QEMU is not run from here, because it needs input while it runs: see `qemu::machine`.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::error::{Because, Failure, Outcome};
use crate::interrupt;
use crate::terminal::Step;

/// The result of a program.
#[derive(Debug)]
pub struct Captured {
    /// `None`: it was ended at its time limit.
    pub status: Option<ExitStatus>,
    pub stdout: String,
    pub stderr: String,
}

impl Captured {
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Both streams, standard error last, to be shown after a failure.
    pub fn everything(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// How it ended, as text.
    pub fn ending(&self) -> String {
        match self.status {
            Some(status) => status.to_string(),
            None => "ended at its time limit".to_owned(),
        }
    }
}

/// One line of one of the streams.
enum Line {
    Stdout(String),
    Stderr(String),
}

/// Runs `command` to its end or for at most `limit`, and passes every line to `on_line` as it
/// arrives.
pub fn capture(
    command: &mut Command,
    limit: Option<Duration>,
    mut on_line: impl FnMut(&str),
) -> Outcome<Captured> {
    let name = shown(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .because(|| format!("cannot start {name}"))?;
    let _guard = interrupt::guard(&child);
    let (sender, lines) = channel();
    pump(child.stdout.take(), sender.clone(), Line::Stdout);
    pump(child.stderr.take(), sender, Line::Stderr);

    let deadline = limit.map(|limit| Instant::now() + limit);
    let mut captured = Captured { status: None, stdout: String::new(), stderr: String::new() };
    captured.status = collect(&mut child, &lines, deadline, &mut |line| {
        let (text, stream) = match &line {
            Line::Stdout(text) => (text, &mut captured.stdout),
            Line::Stderr(text) => (text, &mut captured.stderr),
        };
        stream.push_str(text);
        on_line(text);
    })
    .because(|| format!("cannot wait for {name}"))?;
    Ok(captured)
}

/// Receives lines until both streams are closed, then waits for the child. `None` if the deadline
/// has passed.
///
/// The streams stay open if a grandchild has them. So the end of the child counts too, but what it
/// has written last may still be on its way then, from the pipe through a thread of this process.
fn collect(
    child: &mut Child,
    lines: &Receiver<Line>,
    deadline: Option<Instant>,
    on_line: &mut dyn FnMut(Line),
) -> std::io::Result<Option<ExitStatus>> {
    /// Interval at which a silent child is checked.
    const LOOK: Duration = Duration::from_millis(200);
    /// Time for the last lines after the end of the child.
    const REST: Duration = Duration::from_secs(2);
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => on_line(line),
            Err(RecvTimeoutError::Disconnected) => return child.wait().map(Some),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(status) = child.try_wait()? {
                    let end = Instant::now() + REST;
                    while let Ok(line) =
                        lines.recv_timeout(end.saturating_duration_since(Instant::now()))
                    {
                        on_line(line);
                    }
                    return Ok(Some(status));
                }
            }
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
    }
}

fn pump(
    stream: Option<impl Read + Send + 'static>,
    sender: Sender<Line>,
    wrap: fn(String) -> Line,
) {
    let Some(stream) = stream else { return };
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
            if sender.send(wrap(String::from_utf8_lossy(&bytes).into_owned())).is_err() {
                return;
            }
            bytes.clear();
        }
    });
}

/// Runs `command` to its end with this program's streams. It ends together with this program.
pub fn run(command: &mut Command) -> Outcome<ExitStatus> {
    let name = shown(command);
    let mut child = command.spawn().because(|| format!("cannot start {name}"))?;
    let _guard = interrupt::guard(&child);
    child.wait().because(|| format!("cannot wait for {name}"))
}

/// Runs one step of a build. Its output is shown only if it fails.
pub fn run_step(command: &mut Command, step: &mut Step) -> Outcome<Captured> {
    let captured = capture(command, None, |line| step.detail(line))?;
    if captured.succeeded() {
        return Ok(captured);
    }
    Err(Failure::new(format!(
        "{}\n{} failed ({})",
        captured.everything().trim_end(),
        shown(command),
        captured.ending()
    )))
}

/// The command line as a user would type it: program and arguments, without the environment.
pub fn shown(command: &Command) -> String {
    quoted_words([command.get_program()].into_iter().chain(command.get_args()))
}

/// Words as they are typed into a shell.
pub fn quoted_words(words: impl IntoIterator<Item: AsRef<OsStr>>) -> String {
    words.into_iter().map(|word| quoted(word.as_ref())).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "-_=+./,:@%".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The last lines of an output.
pub fn last_lines(output: &str, count: usize) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// The path of a program on `PATH`.
pub fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|candidate| is_executable(candidate))
}

fn is_executable(path: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn streams_are_kept_apart_and_the_status_is_the_programs() {
        let mut lines = 0;
        let captured =
            capture(&mut sh("echo out; echo err >&2; exit 3"), None, |_| lines += 1).unwrap();
        assert_eq!((captured.stdout.as_str(), captured.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!(captured.status.and_then(|status| status.code()), Some(3));
        assert_eq!(lines, 2);
    }

    #[test]
    fn what_a_program_has_written_last_is_not_lost() {
        let mut child = sh("exit 3").spawn().unwrap();
        let (sender, lines) = channel();
        // The thread that reads the pipe gets no CPU until long after the end of the program.
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(600));
            sender.send(Line::Stdout("last".to_owned())).unwrap();
        });
        let mut received = 0;
        let status = collect(&mut child, &lines, None, &mut |_| received += 1).unwrap();
        assert_eq!((status.and_then(|status| status.code()), received), (Some(3), 1));
    }

    #[test]
    fn a_program_that_hangs_is_ended_at_its_limit() {
        let started = Instant::now();
        let captured =
            capture(&mut sh("exec sleep 60"), Some(Duration::from_millis(100)), |_| ()).unwrap();
        assert!(captured.status.is_none());
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_grandchild_that_keeps_the_streams_open_does_not_hold_us_up() {
        let started = Instant::now();
        let captured = capture(&mut sh("sleep 20 & exit 0"), None, |_| ()).unwrap();
        assert!(captured.succeeded());
        assert!(started.elapsed() < Duration::from_secs(15));
    }

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let mut command = Command::new("qemu");
        command.args(["-append", "console=mux a", "it's", ""]);
        assert_eq!(shown(&command), r"qemu -append 'console=mux a' 'it'\''s' ''");
    }

    #[test]
    fn the_last_lines_are_kept() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a\n", 2), "a");
        assert_eq!(last_lines("", 2), "");
    }

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no-such-program-anywhere").is_none());
    }
}
