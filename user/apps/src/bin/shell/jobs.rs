//! The programs that the shell has started: one at a time in the foreground, any number in the
//! background.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::pin;

use crate::input::{Input, Waited};
use cops::abi::Errno;
use cops::abi::syscall::signal;
use cops::inspect;
use cops::io::{self, ConsoleMode};
use cops::process::{self, Child, ExitStatus};
use cops::{eprintln, println};
use futures_util::FutureExt;
use futures_util::future::{Either, join_all, select};

/// A program that the shell has started and that may still run.
pub struct Job {
    /// 0 for a program that was never in the background.
    number: u32,
    child: Child,
    pub name: String,
    /// Was ended by Ctrl-C, so its end is not reported.
    is_interrupted: bool,
    /// Its exit status, until it is reported.
    status: Option<io::Result<ExitStatus>>,
}

impl Job {
    pub fn new(child: Child, name: String) -> Self {
        Self { number: 0, child, name, is_interrupted: false, status: None }
    }
}

/// All jobs in the background.
#[derive(Default)]
pub struct Jobs {
    list: Vec<Job>,
}

impl Jobs {
    /// Adds a job to the background, with the lowest free number.
    pub fn add(&mut self, mut job: Job) {
        let is_free = |number: &u32| self.list.iter().all(|job| job.number != *number);
        job.number = (1..).find(is_free).unwrap_or(u32::MAX);
        if !job.is_interrupted {
            println!("[{}] {}", job.number, job.child.id());
        }
        self.list.push(job);
    }

    /// Takes a job out of the background: the one with this number, or the last.
    pub fn take(&mut self, number: Option<&str>) -> io::Result<Job> {
        let place = match number {
            Some(text) => {
                let number = text.trim_start_matches('%').parse().ok();
                self.list.iter().position(|job| Some(job.number) == number)
            }
            None => self.list.len().checked_sub(1),
        };
        place.map(|place| self.list.remove(place)).ok_or(Errno::ESRCH.into())
    }

    /// Prints and removes the jobs that have ended.
    pub fn report_ended(&mut self) {
        self.list.retain_mut(|job| {
            let Some(status) = job.status.take().or_else(|| job.child.wait().now_or_never()) else {
                return true;
            };
            match status {
                _ if job.is_interrupted => {}
                Ok(status) => println!("[{}] ended: {} ({status})", job.number, job.name),
                Err(error) => eprintln!("[{}] {}: {error}", job.number, job.name),
            }
            false
        });
    }

    pub fn show(&self) {
        for job in &self.list {
            println!("[{}] {} {}", job.number, job.child.id(), job.name);
        }
    }

    /// Ends jobs (by `%N`, or N) and processes (by number), each with all its descendants.
    pub fn kill(&self, which: &[&str]) -> io::Result<()> {
        for text in which {
            let number: u32 = text.trim_start_matches('%').parse().map_err(|_| Errno::EINVAL)?;
            match self.list.iter().find(|job| job.number == number) {
                Some(job) => kill_tree(job.child.id(), signal::SIGTERM)?,
                None if text.starts_with('%') => return Err(Errno::ESRCH.into()),
                None => kill_tree(number, signal::SIGTERM)?,
            }
        }
        Ok(())
    }

    /// Hands the console to a job and waits for it. Ctrl-C ends it.
    pub async fn bring_to_front(&mut self, mut job: Job, input: &mut Input) -> io::Result<()> {
        match job.child.hand_console(ConsoleMode::ORDINARY) {
            // It has already ended.
            Ok(()) | Err(io::Error::Kernel(Errno::ESRCH)) => self.attend(job, input).await,
            Err(error) => {
                self.add(job);
                Err(error)
            }
        }
    }

    /// Waits for a job in the foreground, which has the console. Ctrl-C ends it.
    pub async fn attend(&mut self, mut job: Job, input: &mut Input) -> io::Result<()> {
        let status = match job.status.take() {
            Some(status) => Waited::For(status),
            None => input.wait_or_interrupt(pin!(job.child.wait())).await,
        };
        if let Waited::For(status) = status {
            let status = status?;
            if !status.success() {
                eprintln!("{}: {status}", job.name);
            }
            return Ok(());
        }
        println!("^C");
        // The kernel completes its end; the shell does not wait for it.
        let killed = kill_tree(job.child.id(), signal::SIGINT);
        io::take_console(ConsoleMode::PROMPT)?;
        job.is_interrupted = killed.is_ok();
        self.add(job);
        killed
    }

    /// Waits until all jobs have ended (`None`) or `other` is ready.
    pub async fn all_ended_or<T>(&mut self, other: impl Future<Output = T>) -> Option<T> {
        let running = self.list.iter_mut().filter(|job| job.status.is_none());
        // The exit status is stored with its job, so it is reported even if other jobs continue.
        let all = join_all(running.map(|job| async { job.status = Some(job.child.wait().await) }));
        match select(pin!(all), pin!(other)).await {
            Either::Left(_) => None,
            Either::Right((value, _)) => Some(value),
        }
    }
}

/// Ends a process and all its descendants, parents before their children, so that they cannot start
/// more. A process that is started while the list is read escapes if its parent is gone before the
/// next list.
fn kill_tree(process: u32, signal: u8) -> io::Result<()> {
    const ROUNDS: u32 = 8;
    let mut killed = BTreeSet::new();
    let mut result = Ok(());
    for _ in 0..ROUNDS {
        let mut doomed = Vec::new();
        // A parent has a lower number than its children, and the list is ordered by number.
        for record in inspect::processes()? {
            let is_new = record.process == process || killed.contains(&record.parent);
            if is_new && killed.insert(record.process) {
                doomed.push(record.process);
            }
        }
        if doomed.is_empty() {
            break;
        }
        for doomed in doomed {
            match process::kill(doomed, signal) {
                // It has ended by itself.
                Err(io::Error::Kernel(Errno::ESRCH)) => {}
                other => result = result.and(other),
            }
        }
    }
    if killed.is_empty() { Err(Errno::ESRCH.into()) } else { result }
}
