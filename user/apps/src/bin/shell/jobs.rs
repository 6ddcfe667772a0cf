//! The pipelines that the shell has started and that have not ended, each in a process group of its
//! own.

use alloc::string::String;
use alloc::vec::Vec;

use cops::abi::Errno;
use cops::abi::syscall::signal;
use cops::io::{self, terminal};
use cops::process::{self, Change, Child, ExitStatus};
use cops::task::Priority;
use cops::{eprintln, println};

use crate::{BACKGROUND, FOREGROUND, below_ceiling};

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Stopped(u8),
    Ended(ExitStatus),
}

/// A process of a job.
struct Member {
    child: Child,
    state: State,
}

/// A pipeline.
pub struct Job {
    /// 0 for one that was never in the background.
    number: u32,
    pub group: u32,
    members: Vec<Member>,
    text: String,
    /// The settings of the terminal when it was stopped in the foreground.
    settings: Option<terminal::Settings>,
    /// It has been reported as stopped.
    is_reported: bool,
}

impl Job {
    /// A job without members, which come one by one.
    pub fn new(text: &str) -> Self {
        let (number, group, members) = (0, 0, Vec::new());
        Self { number, group, members, text: text.into(), settings: None, is_reported: false }
    }

    pub fn add(&mut self, child: Child) {
        if self.group == 0 {
            self.group = child.id();
        }
        self.members.push(Member { child, state: State::Running });
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn is_running(&self) -> bool {
        self.members.iter().any(|member| member.state == State::Running)
    }

    fn stopped_by(&self) -> Option<u8> {
        self.members.iter().find_map(|member| match member.state {
            State::Stopped(signal) => Some(signal),
            _ => None,
        })
    }

    /// How its last process has ended.
    fn status(&self) -> Option<ExitStatus> {
        match self.members.last()?.state {
            State::Ended(status) => Some(status),
            _ => None,
        }
    }

    /// A key may have been typed before all of the pipeline was started: then its signal is for the
    /// others too.
    fn pass_on(&self, change: Change) {
        let signal = match change {
            Change::Stopped(signal) => Some(signal),
            Change::Ended(status) => status.signal(),
            Change::Continued => None,
        };
        if let Some(signal @ (signal::SIGINT | signal::SIGTSTP)) = signal
            && self.is_running()
        {
            let _ = process::kill_group(self.group, signal);
        }
    }

    fn set_ceiling(&mut self, ceiling: Priority) {
        for member in &mut self.members {
            // It may have ended.
            let _ = member.child.set_ceiling(ceiling);
        }
    }

    /// Makes its stopped processes go on.
    fn resume(&mut self) -> io::Result<()> {
        for member in &mut self.members {
            if let State::Stopped(_) = member.state {
                member.state = State::Running;
            }
        }
        self.is_reported = false;
        process::kill_group(self.group, signal::SIGCONT)
    }
}

/// All jobs.
pub struct Jobs {
    list: Vec<Job>,
    /// Whether the shell owns the terminal.
    is_interactive: bool,
}

impl Jobs {
    pub fn new(is_interactive: bool) -> Self {
        Self { list: Vec::new(), is_interactive }
    }

    /// Whether jobs get into the foreground of the terminal.
    pub fn is_interactive(&self) -> bool {
        self.is_interactive
    }

    /// Adds a job to the background.
    pub fn add(&mut self, mut job: Job) {
        self.give_number(&mut job);
        println!("[{}] {}", job.number, job.group);
        self.list.push(job);
    }

    /// Gives a job the lowest free number, unless it has one.
    fn give_number(&self, job: &mut Job) {
        if job.number == 0 {
            let is_free = |number: &u32| self.list.iter().all(|job| job.number != *number);
            job.number = (1..).find(is_free).unwrap_or(u32::MAX);
        }
    }

    /// The place of the job with this number, with or without a `%` before it; of the last one
    /// without a number.
    fn find(&self, number: Option<&str>) -> io::Result<usize> {
        let place = match number {
            Some(text) => {
                let number = text.trim_start_matches('%').parse().ok();
                self.list.iter().position(|job| Some(job.number) == number)
            }
            None => self.list.len().checked_sub(1),
        };
        place.ok_or(Errno::ESRCH.into())
    }

    /// Notes what has happened to a child.
    fn note(&mut self, current: Option<&mut Job>, child: u32, change: Change) {
        let jobs = self.list.iter_mut().chain(current);
        let mut members = jobs.flat_map(|job| &mut job.members);
        if let Some(member) = members.find(|member| member.child.id() == child) {
            member.state = match change {
                Change::Ended(status) => State::Ended(status),
                Change::Stopped(signal) => State::Stopped(signal),
                Change::Continued => State::Running,
            };
        }
    }

    /// Reports jobs that have ended, which are removed, or were stopped.
    pub fn report(&mut self) {
        while let Some((child, change)) = process::next_change() {
            self.note(None, child, change);
        }
        self.list.retain_mut(|job| {
            if job.is_running() {
                return true;
            }
            if job.stopped_by().is_some() {
                if !job.is_reported {
                    println!("[{}] stopped: {}", job.number, job.text);
                    job.is_reported = true;
                }
                return true;
            }
            if let Some(status) = job.status() {
                println!("[{}] ended: {} ({status})", job.number, job.text);
            }
            false
        });
    }

    /// Describes all jobs, a line for each.
    pub fn describe(&self, out: &mut String) {
        use core::fmt::Write;
        for job in &self.list {
            let mark = if job.is_running() { "" } else { " (stopped)" };
            let _ = writeln!(out, "[{}] {} {}{mark}", job.number, job.group, job.text);
        }
    }

    /// Sends a signal to jobs (`%N`, or N) and processes (by number). A stopped job goes on.
    pub fn kill(&mut self, signal: u8, which: &[String]) -> io::Result<()> {
        for text in which {
            let number: u32 = text.trim_start_matches('%').parse().map_err(|_| Errno::EINVAL)?;
            match self.list.iter_mut().find(|job| job.number == number) {
                Some(job) => {
                    process::kill_group(job.group, signal)?;
                    let stops =
                        [signal::SIGSTOP, signal::SIGTSTP, signal::SIGTTIN, signal::SIGTTOU];
                    if job.stopped_by().is_some() && !stops.contains(&signal) {
                        // A stopped process ends when it goes on; `wait` waits for that.
                        job.resume()?;
                    }
                }
                None if text.starts_with('%') => return Err(Errno::ESRCH.into()),
                None => process::kill(number, signal)?,
            }
        }
        Ok(())
    }

    /// Makes a stopped job go on in the background.
    pub fn resume_in_background(&mut self, number: Option<&str>) -> io::Result<()> {
        let place = self.find(number)?;
        let Some(job) = self.list.get_mut(place) else { return Ok(()) };
        job.set_ceiling(below_ceiling(BACKGROUND));
        println!("[{}] {}", job.number, job.text);
        job.resume()
    }

    /// Brings a job to the foreground and waits for it. Returns its status.
    pub async fn bring_to_front(&mut self, number: Option<&str>) -> io::Result<u8> {
        let place = self.find(number)?;
        let mut job = self.list.remove(place);
        job.set_ceiling(below_ceiling(FOREGROUND));
        if self.is_interactive {
            // First the settings: a read of the job that waits would get keys one by one.
            let usual = || Ok(terminal::Settings::current()?.with_mode(terminal::Mode::ORDINARY));
            let settings = job.settings.take().map_or_else(usual, Ok);
            let _ = settings.and_then(terminal::Settings::set);
            // A job may have ended in the meantime: then there is nothing to bring.
            let _ = terminal::set_foreground(job.group);
        }
        println!("{}", job.text);
        let _ = job.resume();
        Ok(self.attend(job).await)
    }

    /// Waits for a job in the foreground until it has ended or is stopped. Returns its status.
    pub async fn attend(&mut self, mut job: Job) -> u8 {
        while job.is_running() {
            match process::wait_for_change().await {
                Ok((child, change)) => {
                    self.note(Some(&mut job), child, change);
                    job.pass_on(change);
                }
                Err(_) => break,
            }
        }
        let settings = self.take_terminal_back();
        if let Some(signal) = job.stopped_by() {
            job.settings = settings;
            job.is_reported = true;
            self.give_number(&mut job);
            println!("\n[{}] stopped: {}", job.number, job.text);
            self.list.push(job);
            return 128 + signal;
        }
        let Some(status) = job.status() else { return 0 };
        match status.signal() {
            Some(signal::SIGINT) => println!(),
            None | Some(signal::SIGPIPE) => {}
            Some(_) => eprintln!("{}: {status}", job.text),
        }
        status.shell_code()
    }

    /// Puts the shell into the foreground. Returns the settings before.
    pub fn take_terminal_back(&self) -> Option<terminal::Settings> {
        if !self.is_interactive {
            return None;
        }
        let settings = terminal::Settings::current().ok();
        // First the settings: a key of a signal that is typed in between is input.
        let _ = terminal::set_mode(terminal::Mode::RAW);
        let _ = terminal::set_foreground(process::group());
        settings
    }

    /// Waits until no job runs.
    pub async fn wait(&mut self) {
        while self.list.iter().any(Job::is_running) {
            match process::wait_for_change().await {
                Ok((child, change)) => self.note(None, child, change),
                Err(_) => return,
            }
        }
    }
}
