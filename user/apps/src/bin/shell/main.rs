//! A shell; `help` lists its commands.
//!
//! It leads the session of the terminal, or is a job of another shell. Each pipeline is a job in a
//! process group of its own, and the group in the foreground of the terminal gets what is typed and
//! the signals of keys (decision 36). At the prompt the shell reads keys and edits the line itself,
//! a byte at a time, so that input that is typed ahead goes to the program that the line starts.
//! The shell stays more urgent than everything that it starts (decision 20).
#![no_std]
#![no_main]

extern crate alloc;

mod commands;
mod input;
mod jobs;
mod launch;
mod variables;

use alloc::string::String;
use alloc::vec::Vec;

use command_line::parse::{Chain, Condition, Pipeline, parse};
use cops::abi::syscall::signal;
use cops::io::{self, terminal};
use cops::process::{self, ExitCode};
use cops::task::{self, Priority};
use cops::{eprintln, println};
use input::Input;
use jobs::Jobs;
use variables::Variables;

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

/// The status of a command that the shell itself cannot execute.
const FAULT: u8 = 2;
/// The status of a command that Ctrl-C has ended.
const INTERRUPTED: u8 = 128 + signal::SIGINT;

#[cops::main]
async fn main() -> io::Result<ExitCode> {
    if let Some(main) = task::current() {
        task::set_priority(main, below_ceiling(SHELL));
    }
    let is_interactive = begin_job_control();
    let mut shell = Shell {
        jobs: Jobs::new(is_interactive),
        input: Input::default(),
        variables: Variables::inherited(),
        status: 0,
        end: None,
    };
    if is_interactive {
        println!("COPS shell; try `help`.");
    }
    loop {
        shell.jobs.report();
        let line = if is_interactive {
            shell.input.edited_line().await?
        } else {
            shell.input.plain_line().await?
        };
        let Some(line) = line else { break };
        shell.run(&line).await;
        if let Some(code) = shell.end {
            return Ok(ExitCode(code));
        }
    }
    Ok(ExitCode(shell.status))
}

/// Makes the shell the owner of the terminal, if standard input is one: waits until it is in the
/// foreground if it is a job of another shell, or takes the terminal for its session.
fn begin_job_control() -> bool {
    if terminal::Settings::current().is_err() {
        return false;
    }
    match terminal::foreground() {
        Ok(_) => {
            while terminal::foreground().is_ok_and(|group| group != process::group()) {
                // Stops the shell until it is brought to the foreground.
                let _ = process::kill(process::id(), signal::SIGTTIN);
            }
        }
        Err(_) => {
            // It fails if the shell leads its session already.
            let _ = process::begin_session();
            if terminal::take().is_err() {
                return false;
            }
        }
    }
    let of_keys = [signal::SIGINT, signal::SIGQUIT, signal::SIGTSTP];
    let of_background = [signal::SIGTTIN, signal::SIGTTOU];
    let ignored = of_keys.into_iter().chain(of_background);
    process::ignore_signals(ignored.fold(0, |set, signal| set | 1 << (signal - 1)));
    // It fails for the leader of a session, which has a group of its own.
    let _ = process::begin_group();
    terminal::set_mode(terminal::Mode::RAW).is_ok()
        && terminal::set_foreground(process::group()).is_ok()
}

struct Shell {
    jobs: Jobs,
    input: Input,
    variables: Variables,
    /// That of the last pipeline.
    status: u8,
    /// The status with which the shell is to end.
    end: Option<u8>,
}

impl Shell {
    /// Executes a line.
    async fn run(&mut self, line: &str) {
        let chains = match parse(line) {
            Ok(chains) => chains,
            Err(fault) => {
                eprintln!("shell: {fault}");
                self.status = FAULT;
                return;
            }
        };
        for chain in chains {
            self.run_chain(&chain).await;
            if self.status == INTERRUPTED || self.end.is_some() {
                return;
            }
        }
    }

    async fn run_chain(&mut self, chain: &Chain) {
        if chain.is_background && chain.pipelines.len() > 1 {
            eprintln!("shell: only a single pipeline can run in the background");
            self.status = FAULT;
            return;
        }
        for (condition, pipeline) in &chain.pipelines {
            let is_due = match condition {
                Condition::Always => true,
                Condition::Success => self.status == 0,
                Condition::Failure => self.status != 0,
            };
            if is_due {
                self.status = self.run_pipeline(pipeline, chain.is_background).await;
            }
            if self.status == INTERRUPTED || self.end.is_some() {
                return;
            }
        }
    }

    /// Executes a pipeline, and waits for it in the foreground. Returns its status.
    async fn run_pipeline(&mut self, pipeline: &Pipeline, is_background: bool) -> u8 {
        let value = |name: &str| self.variables.value(name, self.status);
        let words = pipeline.commands.iter().map(|command| {
            let words = command.words.iter().flat_map(|word| word.expand(&value));
            words.collect::<Vec<String>>()
        });
        let words: Vec<_> = words.collect();
        if let ([command], [words]) = (pipeline.commands.as_slice(), words.as_slice()) {
            if !command.words.is_empty()
                && command.words.iter().all(|word| word.assignment().is_some())
            {
                return self.assign(command);
            }
            if words.is_empty() || commands::is_own(words) {
                return self.run_own(command, words).await;
            }
        }
        self.launch(pipeline, &words, is_background).await
    }
}
