//! The shell's own commands.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;
use core::pin::pin;

use command_line::parse::{Command, assignment};
use cops::abi::Errno;
use cops::abi::syscall::signal;
use cops::{eprintln, fs, io, memory, process};

use crate::launch::write_all;
use crate::{INTERRUPTED, Shell};

/// Their names.
pub const NAMES: [&str; 19] = [
    "bg", "cd", "echo", "exit", "export", "false", "fg", "help", "history", "jobs", "kill", "ls",
    "pwd", "set", "stats", "true", "unset", "wait", ":",
];

/// The program that replaces the command `ls`, if there is one: it knows options.
const LS: &str = "/bin/ls";

/// Whether these are the words of one.
pub fn is_own(words: &[String]) -> bool {
    let Some(name) = words.first() else { return false };
    NAMES.contains(&name.as_str()) && (name != "ls" || fs::File::open(LS).is_err())
}

const HELP: &str = "Commands of the shell:
  ls [DIRECTORY]  echo WORD...  cd [DIRECTORY]  pwd  stats  true  false
  NAME=VALUE  export NAME[=VALUE]...  unset NAME...  set  exit [CODE]
  jobs  fg [%N]  bg [%N]  kill [-SIGNAL] %N|PID...  wait (Enter ends it)
Anything else is a program: a path, or a name in a directory of $PATH.
  A | B  A ; B  A && B  A || B  A &       pipelines, lists, background
  < FILE  > FILE  >> FILE  2> FILE  2>&1  redirections
  'a b'  \"$NAME\"  \\x  $NAME  ${NAME}  $?  quotes and variables; # is a comment
Ctrl-C ends what runs in the foreground, Ctrl-Z stops it; Ctrl-D ends the input.
Arrows edit the line and bring back earlier ones; Tab completes names.
Programs:
";

impl Shell {
    /// Assigns the values of a command that consists of assignments.
    pub fn assign(&mut self, command: &Command) -> u8 {
        for (name, word) in command.words.iter().filter_map(|word| word.assignment()) {
            let value = word.expand_to_one(&|name| self.variables.value(name, self.status));
            self.variables.set(name, &value);
        }
        0
    }

    /// Executes a command of the shell, or only opens the files of one without words.
    pub async fn run_own(&mut self, command: &Command, words: &[String]) -> u8 {
        let mut streams = Self::streams();
        if let Err(status) = self.redirect(command, &mut streams).await {
            return status;
        }
        let mut out = String::new();
        let status = match self.describe(words, &mut out) {
            Some(status) => status,
            None => self.control(words).await,
        };
        if out.is_empty() {
            return status;
        }
        match write_all(&streams[1], &out).await {
            Ok(()) => status,
            Err(error) => failed(words, &error),
        }
    }

    /// Executes a command that does not wait; what it prints is appended to `out`. `None`: it is
    /// another one.
    pub fn describe(&mut self, words: &[String], out: &mut String) -> Option<u8> {
        let Some((name, arguments)) = words.split_first() else { return Some(0) };
        let result = match name.as_str() {
            "help" => {
                out.push_str(HELP);
                list("/bin", out)
            }
            "ls" => list(arguments.first().map_or(".", String::as_str), out),
            "echo" => {
                let _ = writeln!(out, "{}", arguments.join(" "));
                Ok(())
            }
            "stats" => statistics(out),
            "jobs" => {
                self.jobs.describe(out);
                Ok(())
            }
            "pwd" => process::working_directory().map(|path| {
                let _ = writeln!(out, "{path}");
            }),
            "history" => {
                for line in self.input.history() {
                    let _ = writeln!(out, "{line}");
                }
                Ok(())
            }
            "export" if !arguments.is_empty() => self.export(arguments),
            "export" | "set" => {
                for variable in self.variables.exported() {
                    let _ = writeln!(out, "{variable}");
                }
                Ok(())
            }
            "unset" => {
                arguments.iter().for_each(|name| self.variables.remove(name));
                Ok(())
            }
            "cd" => process::set_working_directory(arguments.first().map_or("/", String::as_str)),
            "kill" => self.kill(arguments),
            "true" | ":" => Ok(()),
            "false" => return Some(1),
            _ => return None,
        };
        Some(result.map_or_else(|error| failed(words, &error), |()| 0))
    }

    /// Executes a command that changes what runs.
    async fn control(&mut self, words: &[String]) -> u8 {
        let Some((name, arguments)) = words.split_first() else { return 0 };
        let first = arguments.first().map(String::as_str);
        let result = match name.as_str() {
            "fg" => self.jobs.bring_to_front(first).await,
            "bg" => self.jobs.resume_in_background(first).map(|()| 0),
            "wait" => Ok(self.wait().await),
            _ => {
                let code = first.map(|text| text.parse().map_err(|_| Errno::EINVAL.into()));
                code.unwrap_or(Ok(self.status)).inspect(|&code| self.end = Some(code))
            }
        };
        result.unwrap_or_else(|error| failed(words, &error))
    }

    /// Waits until no job runs in the background, or until Enter or Ctrl-C is typed.
    async fn wait(&mut self) -> u8 {
        let all_ended = self.jobs.wait();
        match self.input.wait_or_key(pin!(all_ended)).await {
            Some(()) => 0,
            None => INTERRUPTED,
        }
    }

    fn export(&mut self, arguments: &[String]) -> io::Result<()> {
        for argument in arguments {
            let (name, value) = match assignment(argument) {
                Some((name, value)) => (name, Some(value)),
                None => (argument.as_str(), None),
            };
            if let Some(value) = value {
                self.variables.set(name, value);
            }
            self.variables.export(name);
        }
        Ok(())
    }

    fn kill(&mut self, arguments: &[String]) -> io::Result<()> {
        let option = arguments.first().and_then(|text| text.strip_prefix('-'));
        let (signal, which) = match option {
            Some(text) => (signal_named(text).ok_or(Errno::EINVAL)?, &arguments[1..]),
            None => (signal::SIGTERM, arguments),
        };
        self.jobs.kill(signal, which)
    }
}

/// The signal with this name or number.
fn signal_named(text: &str) -> Option<u8> {
    let name = text.strip_prefix("SIG").unwrap_or(text);
    let names = [
        ("HUP", signal::SIGHUP),
        ("INT", signal::SIGINT),
        ("QUIT", signal::SIGQUIT),
        ("KILL", signal::SIGKILL),
        ("TERM", signal::SIGTERM),
        ("CONT", signal::SIGCONT),
        ("STOP", signal::SIGSTOP),
        ("TSTP", signal::SIGTSTP),
    ];
    let named = names.into_iter().find(|(known, _)| *known == name).map(|(_, signal)| signal);
    named.or_else(|| text.parse().ok())
}

fn failed(words: &[String], error: &io::Error) -> u8 {
    eprintln!("{}: {error}", words.first().map_or("", String::as_str));
    1
}

fn list(directory: &str, out: &mut String) -> io::Result<()> {
    let mut entries = fs::read_directory(directory)?;
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    for entry in entries {
        let mark = if entry.kind == fs::Kind::Directory { "/" } else { "" };
        let _ = writeln!(out, "{}{mark}", entry.name);
    }
    Ok(())
}

fn statistics(out: &mut String) -> io::Result<()> {
    let bytes = memory::statistics()?.to_bytes();
    let values: Vec<_> =
        bytes.as_chunks().0.iter().map(|value| u64::from_le_bytes(*value)).collect();
    for (name, value) in memory::Statistics::NAMES.iter().zip(values) {
        let _ = writeln!(out, "{name:28} {value}");
    }
    Ok(())
}
