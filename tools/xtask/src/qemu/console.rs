//! Follows a machine to the end of its run: passes each byte to its channel, and returns how the
//! run ended.

use std::time::{Duration, Instant};

use super::demux::{Channel, Event};
use super::machine::{Machine, Next};
use crate::error::{Failure, Outcome, STATUS_FAILED};
use crate::output;
use crate::trace::dump::Collector;

/// Exit status of a run that was ended at its time limit, as with `timeout`.
pub const STATUS_TIMED_OUT: u8 = 124;
/// How long the kernel may be silent while it writes its trace, on a heavily loaded host too.
const TRACE_LIMIT: Duration = Duration::from_secs(60);

/// Receives the channels.
pub trait Sink {
    fn bytes(&mut self, channel: Channel, bytes: &[u8]);
}

/// Passes program output to standard output and the kernel log to standard error; firmware output
/// is dropped unless requested.
#[derive(Debug, Clone)]
pub struct PassThrough {
    pub show_firmware: bool,
    /// False if standard output is not for the program's output.
    pub show_stdout: bool,
}

impl Sink for PassThrough {
    fn bytes(&mut self, channel: Channel, bytes: &[u8]) {
        match channel {
            Channel::Firmware if !self.show_firmware => {}
            Channel::Stdout if !self.show_stdout => {}
            // Not text for users; code that requests these channels has its own sink.
            Channel::Trace | Channel::Inspection => {}
            // If the output is closed (`| head`), the program continues to run.
            Channel::Stdout => output::stdout_bytes(bytes),
            Channel::Firmware | Channel::Kernel | Channel::Stderr => output::stderr_bytes(bytes),
        }
    }
}

/// Stores each channel.
#[derive(Debug, Default)]
pub struct Transcript {
    pub firmware: Vec<u8>,
    pub kernel: Vec<u8>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub trace: Vec<u8>,
}

impl Sink for Transcript {
    fn bytes(&mut self, channel: Channel, bytes: &[u8]) {
        match channel {
            Channel::Firmware => &mut self.firmware,
            Channel::Kernel => &mut self.kernel,
            Channel::Stdout => &mut self.stdout,
            Channel::Stderr => &mut self.stderr,
            Channel::Trace => &mut self.trace,
            // Not requested while a transcript is kept.
            Channel::Inspection => return,
        }
        .extend_from_slice(bytes);
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The guest recorded this status and powered off.
    Status(u8),
    /// The time limit was reached first.
    TimedOut,
    /// QEMU ended without an exit record. Contains the reason, as far as it is known.
    Broken(String),
}

impl Ending {
    /// The status with which xtask exits.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Status(status) => *status,
            Self::TimedOut => STATUS_TIMED_OUT,
            Self::Broken(_) => STATUS_FAILED,
        }
    }
}

/// The last line that is not empty.
fn last_line(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

/// Advice for a message of QEMU.
fn advice(complaints: &str) -> &'static str {
    const KNOWN: [(&str, &str); 4] = [
        ("overlap", "the machine is too small for kernel and root image: give it more with --mem"),
        ("host forwarding", "the port is in use on this host: choose another with --port"),
        ("/dev/net/tun", "the tap device must be made first, and be yours to use"),
        (
            "annot allocate memory",
            "this host has not so much memory: give the machine less with --mem",
        ),
    ];
    let known = KNOWN.iter().find(|(complaint, _)| complaints.contains(complaint));
    known.map_or("that was QEMU's own message", |(_, advice)| advice)
}

/// Follows the machine until the run ends, at most until `deadline`.
pub fn follow(machine: Machine, deadline: Option<Instant>, sink: &mut dyn Sink) -> Ending {
    let is_over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    follow_while(machine, |_| (!is_over()).then_some(deadline), sink).unwrap_or(Ending::TimedOut)
}

/// Follows the machine until the run ends, as long as it writes something at least every `silence`.
pub fn follow_while_it_writes(machine: Machine, silence: Duration, sink: &mut dyn Sink) -> Ending {
    let wait = |is_silent: bool| (!is_silent).then(|| Some(Instant::now() + silence));
    follow_while(machine, wait, sink).unwrap_or(Ending::TimedOut)
}

/// Follows the machine until the run ends. `wait` says until when the next output is waited for at
/// most, or `None` to stop; its argument says whether nothing came until the last such time.
///
/// # Errors
/// The machine, if `wait` has stopped it before the run ended.
pub fn follow_while(
    machine: Machine,
    mut wait: impl FnMut(bool) -> Option<Option<Instant>>,
    sink: &mut dyn Sink,
) -> Result<Ending, Machine> {
    let mut recorded = None;
    // What came before the kernel's first mark, as long as none came.
    let mut before_marks = Some(Vec::new());
    let mut is_silent = false;
    loop {
        let Some(deadline) = wait(is_silent) else { return Err(machine) };
        let next = machine.next(deadline);
        is_silent = next == Next::TimedOut;
        match next {
            Next::Event(Event::Bytes(channel, bytes)) => {
                match (channel, &mut before_marks) {
                    (Channel::Firmware, Some(text)) => text.extend_from_slice(&bytes),
                    _ => before_marks = None,
                }
                sink.bytes(channel, &bytes);
            }
            // The record is the end of a run: nothing after it belongs to the program.
            Next::Event(Event::Ended(status)) => {
                recorded = Some(status);
                break;
            }
            Next::Closed => break,
            Next::TimedOut => {}
        }
    }
    let (status, complaints) = machine.finish();
    Ok(match (recorded, status) {
        (Some(recorded), _) => Ending::Status(recorded),
        (None, Some(status)) => {
            let mut why = format!("the machine went off without an exit record (QEMU: {status})");
            if !complaints.is_empty() {
                why = format!("{why}\n{complaints}\n  {}", advice(&complaints));
            }
            // The kernel got nowhere: the reason is the last that the console shows.
            if let Some(line) = before_marks.as_deref().and_then(last_line) {
                why = format!("{why}\n  the last line of the console: {line}");
            }
            Ending::Broken(why)
        }
        (None, None) => {
            Ending::Broken(format!("QEMU closed the serial line but did not end\n{complaints}"))
        }
    })
}

/// Asks the kernel for its trace, unless it writes it already, and adds that to `collector`. Passes
/// other output on meanwhile.
pub fn follow_trace(
    machine: &mut Machine,
    collector: &mut Collector,
    sink: &mut dyn Sink,
) -> Outcome<()> {
    if !collector.has_begun() {
        machine.ask_for_trace();
    }
    while !collector.is_complete() {
        // The limit applies to each silence, because the whole takes a time proportional to its
        // size.
        match machine.next(Some(Instant::now() + TRACE_LIMIT)) {
            Next::Event(Event::Bytes(Channel::Trace, bytes)) => collector.feed(&bytes),
            Next::Event(Event::Bytes(channel, bytes)) => sink.bytes(channel, &bytes),
            other => {
                return Err(Failure::new(format!(
                    "the kernel did not write its trace ({other:?})"
                )));
            }
        }
    }
    Ok(())
}
