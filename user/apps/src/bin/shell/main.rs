//! A small shell; `help` lists its commands.
//!
//! The kernel edits and echoes the lines (`io::ConsoleMode`). The shell reads one line at a time,
//! so input that is typed ahead goes to the program that the shell starts. It hands the console to
//! a program in the foreground, and stays more urgent than everything that it starts (decision 20).
#![no_std]
#![no_main]

extern crate alloc;

mod input;
mod jobs;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use cops::io::{self, ConsoleMode, stdout};
use cops::process::{self, ExitCode};
use cops::task::{self, Priority};
use cops::{eprintln, fs, memory, print, println};
use input::Input;
use jobs::{Job, Jobs};

/// How many levels below the shell's ceiling the shell itself, a program in the foreground and a
/// program in the background are. The last is less urgent than [`Priority::DEFAULT`]: a program in
/// the background that computes on every hart leaves the harts to programs in the foreground.
const SHELL: u32 = 4;
const FOREGROUND: u32 = 8;
const BACKGROUND: u32 = 40;

/// The level that is this much less urgent than this process's ceiling.
fn below_ceiling(levels: u32) -> Priority {
    Priority::saturating(u32::from(process::ceiling().level()) + levels)
}

#[cops::main]
async fn main() -> io::Result<ExitCode> {
    if let Some(main) = task::current() {
        task::set_priority(main, below_ceiling(SHELL));
    }
    io::take_console(ConsoleMode::PROMPT)?;
    println!("COPS shell; try `help`.");
    let mut shell = Shell { jobs: Jobs::default(), input: Input::default() };
    loop {
        shell.jobs.report_ended();
        print!("$ ");
        let Some(line) = shell.input.line().await? else {
            println!();
            return Ok(ExitCode::SUCCESS);
        };
        let (words, background) = parse(&line);
        let [command, arguments @ ..] = words.as_slice() else { continue };
        if *command == "exit" {
            return Ok(ExitCode(arguments.first().and_then(|text| text.parse().ok()).unwrap_or(0)));
        }
        if let Err(error) = shell.execute(command, arguments, background).await {
            eprintln!("{command}: {error}");
        }
    }
}

/// The words of a line, and whether an `&` at its end asks for the background. Control characters,
/// as those of arrow keys, are removed.
fn parse(line: &str) -> (Vec<&str>, bool) {
    let line = line.trim();
    let (line, background) = match line.strip_suffix('&') {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    (
        line.split(|letter: char| letter.is_whitespace() || letter.is_control())
            .filter(|word| !word.is_empty())
            .collect(),
        background,
    )
}

struct Shell {
    jobs: Jobs,
    input: Input,
}

impl Shell {
    async fn execute(
        &mut self,
        command: &str,
        arguments: &[&str],
        background: bool,
    ) -> io::Result<()> {
        match command {
            "help" => help(),
            "ls" => list(arguments.first().unwrap_or(&"/")),
            "cat" if !arguments.is_empty() => print_files(arguments).await,
            "echo" => {
                println!("{}", arguments.join(" "));
                Ok(())
            }
            "stats" => statistics(),
            "jobs" => {
                self.jobs.show();
                Ok(())
            }
            "kill" => self.jobs.kill(arguments),
            "fg" => {
                let job = self.jobs.take(arguments.first().copied())?;
                println!("{}", job.name);
                self.jobs.bring_to_front(job, &mut self.input).await
            }
            "wait" => self.wait().await,
            program => {
                let path = if program.contains('/') {
                    String::from(program)
                } else {
                    format!("/bin/{program}")
                };
                let name = [&[program], arguments].concat().join(" ");
                if background {
                    let child =
                        process::spawn_below(&path, arguments, Some(below_ceiling(BACKGROUND)))?;
                    self.jobs.add(Job::new(child, name));
                    return Ok(());
                }
                let ceiling = Some(below_ceiling(FOREGROUND));
                let child =
                    process::spawn_in_foreground(&path, arguments, ceiling, ConsoleMode::ORDINARY)?;
                self.jobs.attend(Job::new(child, name), &mut self.input).await
            }
        }
    }

    /// Waits until no job runs in the background. An empty line or Ctrl-C ends the wait; other
    /// lines are stored.
    async fn wait(&mut self) -> io::Result<()> {
        let mut kept = String::new();
        loop {
            match self.jobs.all_ended_or(self.input.line()).await {
                None => break,
                Some(line) => match line? {
                    Some(line) if !line.trim().is_empty() => kept.push_str(&line),
                    _ => break,
                },
            }
        }
        self.input.keep(&kept);
        Ok(())
    }
}

fn help() -> io::Result<()> {
    println!("Commands: help, ls [DIRECTORY], cat FILE..., echo WORD..., stats, exit [CODE],");
    println!(
        "  jobs, fg [N], kill N|PID..., wait (for all that runs in the background; Enter ends it)."
    );
    println!(
        "Anything else is a program: a path, or a name in /bin. Ctrl-C ends it; Ctrl-D ends its input."
    );
    println!(
        "With & at the end of the line it runs in the background, less urgent than what runs in front."
    );
    list("/bin")
}

fn list(directory: &str) -> io::Result<()> {
    for entry in fs::read_directory(directory)? {
        let mark = if entry.kind == fs::Kind::Directory { "/" } else { "" };
        println!("{}{mark}", entry.name);
    }
    Ok(())
}

async fn print_files(paths: &[&str]) -> io::Result<()> {
    for path in paths {
        io::copy(&mut fs::File::open(path)?, &mut stdout()).await?;
    }
    Ok(())
}

fn statistics() -> io::Result<()> {
    let bytes = memory::statistics()?.to_bytes();
    for (name, value) in memory::Statistics::NAMES.iter().zip(bytes.as_chunks().0) {
        println!("{name:28} {}", u64::from_le_bytes(*value));
    }
    Ok(())
}
