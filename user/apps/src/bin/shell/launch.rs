//! Starting pipelines.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use command_line::parse::{Command, Pipeline, Target};
use cops::abi::Errno;
use cops::eprintln;
use cops::fs::{File, OpenOptions};
use cops::io::{self, AsFd, Error, Write, stderr, stdin, stdout, terminal};
use cops::process::{self, Child};
use cops::task;

use crate::jobs::Job;
use crate::{BACKGROUND, FAULT, FOREGROUND, SHELL, Shell, below_ceiling, commands};

/// The status of a command that was not found, and of one that is no program.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
const FAILURE: u8 = 1;

/// A file that commands may share.
pub type Stream = Arc<dyn AsFd + Send + Sync>;
/// Standard input, output and error.
pub type Streams = [Stream; 3];

/// Writes all of `text` to a file.
pub async fn write_all(stream: &Stream, text: &str) -> io::Result<()> {
    stream.as_fd().write_all(text.as_bytes()).await
}

impl Shell {
    /// The shell's own streams.
    pub fn streams() -> Streams {
        [Arc::new(stdin()), Arc::new(stdout()), Arc::new(stderr())]
    }

    /// Opens the files of a command's redirections.
    pub async fn redirect(&self, command: &Command, streams: &mut Streams) -> Result<(), u8> {
        let value = |name: &str| self.variables.value(name, self.status);
        for redirection in &command.redirections {
            let (name, opened) = match &redirection.target {
                Target::Read(word) => {
                    let name = word.expand_to_one(&value);
                    let opened = File::open(&name);
                    (name, opened)
                }
                Target::Write(word) => {
                    let name = word.expand_to_one(&value);
                    let opened = File::create(&name).await;
                    (name, opened)
                }
                Target::Append(word) => {
                    let name = word.expand_to_one(&value);
                    let opened = OpenOptions::new().append(true).create(true).open(&name).await;
                    (name, opened)
                }
                Target::Stream(other) => {
                    if let Some(other) = streams.get(*other).cloned()
                        && let Some(stream) = streams.get_mut(redirection.stream)
                    {
                        *stream = other;
                    }
                    continue;
                }
            };
            match (opened, streams.get_mut(redirection.stream)) {
                (Ok(file), Some(stream)) => *stream = Arc::new(file),
                (Err(error), _) => {
                    eprintln!("shell: {name}: {error}");
                    return Err(FAILURE);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Starts the commands of a pipeline, with these words, and waits for them unless they run in
    /// the background. Returns the status.
    pub async fn launch(
        &mut self,
        pipeline: &Pipeline,
        words: &[Vec<String>],
        is_background: bool,
    ) -> u8 {
        let mut job = Job::new(&pipeline.text);
        let mut input: Option<Stream> = None;
        let mut status = 0;
        for (index, (command, words)) in pipeline.commands.iter().zip(words).enumerate() {
            let is_last = index + 1 == pipeline.commands.len();
            let mut streams = Self::streams();
            if let Some(input) = input.take() {
                streams[0] = input;
            }
            if !is_last {
                match io::pipe() {
                    Ok((reader, writer)) => {
                        streams[1] = Arc::new(writer);
                        input = Some(Arc::new(reader));
                    }
                    Err(error) => {
                        eprintln!("shell: {error}");
                        status = FAILURE;
                        break;
                    }
                }
            }
            status = match self.redirect(command, &mut streams).await {
                Err(status) => status,
                Ok(()) if words.is_empty() => 0,
                Ok(()) if commands::is_own(words) => self.feed(words, &streams),
                Ok(()) => match self.start(words, &streams, job.group, is_background) {
                    Ok(child) => {
                        job.add(child);
                        0
                    }
                    Err(error) => failed_to_start(words, &error),
                },
            };
        }
        if job.is_empty() {
            return status;
        }
        if is_background {
            self.jobs.add(job);
            return 0;
        }
        let of_job = self.jobs.attend(job).await;
        if status == 0 { of_job } else { status }
    }

    /// Starts a program in `group`, or in a new one (0).
    fn start(
        &self,
        words: &[String],
        streams: &Streams,
        group: u32,
        is_background: bool,
    ) -> io::Result<Child> {
        let Some((name, arguments)) = words.split_first() else { return Err(Errno::EINVAL.into()) };
        let ceiling = below_ceiling(if is_background { BACKGROUND } else { FOREGROUND });
        let mut last = Errno::ENOENT.into();
        let directories = if name.contains('/') { "" } else { self.variables.path() };
        for directory in directories.split(':') {
            let path = match directory {
                "" => name.clone(),
                directory => format!("{directory}/{name}"),
            };
            let mut command = process::Command::new(&path)?.arguments(arguments)?;
            for variable in self.variables.exported() {
                command = command.variable(&variable)?;
            }
            let [input, output, error] = streams;
            command = command.ceiling(Some(ceiling));
            command = command.files([input.as_fd(), output.as_fd(), error.as_fd()]);
            if self.jobs.is_interactive() {
                command = command.group(group);
                if !is_background {
                    command = command.foreground(terminal::Mode::ORDINARY);
                }
            }
            match command.spawn() {
                Err(Error::Kernel(Errno::ENOENT | Errno::ENOTDIR)) => {}
                Err(error) => last = error,
                Ok(child) => return Ok(child),
            }
        }
        Err(last)
    }

    /// Executes a command of the shell that is a part of a pipeline: a coroutine writes what it has
    /// to say.
    fn feed(&mut self, words: &[String], streams: &Streams) -> u8 {
        let mut out = String::new();
        let status = match self.describe(words, &mut out) {
            Some(status) => status,
            None => {
                eprintln!("shell: {}: not in a pipeline", words.concat());
                FAULT
            }
        };
        let [_, stream, _] = streams.clone();
        let write = async move {
            // Its reader may have ended.
            let _ = write_all(&stream, &out).await;
        };
        task::spawn(write, below_ceiling(SHELL));
        status
    }
}

fn failed_to_start(words: &[String], error: &Error) -> u8 {
    eprintln!("{}: {error}", words.first().map_or("", String::as_str));
    match error {
        Error::Kernel(Errno::ENOENT) => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    }
}
