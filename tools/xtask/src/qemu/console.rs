//! Follows a machine to the end of its run: every byte goes where it belongs, and the end gets its status.

use std::io::Write;
use std::time::{Duration, Instant};

use super::demux::{Channel, Event};
use super::machine::{Machine, Next};
use crate::error::STATUS_FAILED;

/// Exit status of a run that was ended at its time limit, as `timeout` gives it.
pub const STATUS_TIMED_OUT: u8 = 124;

/// Where the channels go.
pub trait Sink {
    fn bytes(&mut self, channel: Channel, bytes: &[u8]);
}

/// Passes program output through, kernel log to standard error, firmware text nowhere unless asked for.
#[derive(Debug, Clone)]
pub struct PassThrough {
    pub show_firmware: bool,
    /// Off where standard output is ours and what the program says is of no interest.
    pub show_stdout: bool,
}

impl Sink for PassThrough {
    fn bytes(&mut self, channel: Channel, bytes: &[u8]) {
        // Nobody reads our output any more (`| head`): the program's run goes on, as it would without us.
        let _ = match channel {
            Channel::Firmware if !self.show_firmware => Ok(()),
            Channel::Stdout if !self.show_stdout => Ok(()),
            // Nothing for people; whoever asks for it has a sink of its own.
            Channel::Trace | Channel::Inspection => Ok(()),
            Channel::Stdout => write_through(std::io::stdout().lock(), bytes),
            Channel::Firmware | Channel::Kernel | Channel::Stderr => {
                write_through(std::io::stderr().lock(), bytes)
            }
        };
    }
}

fn write_through(mut stream: impl Write, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

/// Keeps each channel.
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
            // Nothing asks for it while a transcript is kept.
            Channel::Inspection => return,
        }
        .extend_from_slice(bytes);
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The guest recorded this status and went off.
    Status(u8),
    /// The time limit came first.
    TimedOut,
    /// QEMU ended without an exit record; why, as far as it is known.
    Broken(String),
}

impl Ending {
    /// The status xtask exits with.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Status(status) => *status,
            Self::TimedOut => STATUS_TIMED_OUT,
            Self::Broken(_) => STATUS_FAILED,
        }
    }
}

/// What to do about a complaint of QEMU's.
fn advice(complaints: &str) -> &'static str {
    const KNOWN: [(&str, &str); 4] = [
        ("overlap", "the machine is too small for kernel and root image: give it more with --mem"),
        ("host forwarding", "somebody on this host uses the port: choose another with --port"),
        ("/dev/net/tun", "the tap device must be made first, and be yours to use"),
        ("annot allocate memory", "this host has not so much memory: give the machine less with --mem"),
    ];
    let known = KNOWN.iter().find(|(complaint, _)| complaints.contains(complaint));
    known.map_or("that was QEMU's own message", |(_, advice)| advice)
}

/// Follows the machine until the run ends, no longer than until `deadline`.
pub fn follow(machine: Machine, deadline: Option<Instant>, sink: &mut dyn Sink) -> Ending {
    follow_until(machine, || deadline, sink)
}

/// Follows the machine until the run ends, as long as it writes something every `silence` at least.
pub fn follow_while_it_writes(machine: Machine, silence: Duration, sink: &mut dyn Sink) -> Ending {
    follow_until(machine, || Some(Instant::now() + silence), sink)
}

/// `deadline` is asked for again after every output.
fn follow_until(machine: Machine, deadline: impl Fn() -> Option<Instant>, sink: &mut dyn Sink) -> Ending {
    let mut recorded = None;
    loop {
        match machine.next(deadline()) {
            Next::Event(Event::Bytes(channel, bytes)) => sink.bytes(channel, &bytes),
            // The record is the last thing of a run: nothing after it belongs to the program.
            Next::Event(Event::Ended(status)) => {
                recorded = Some(status);
                break;
            }
            Next::Closed => break,
            Next::TimedOut => return Ending::TimedOut,
        }
    }
    let (status, complaints) = machine.finish();
    match (recorded, status) {
        (Some(recorded), _) => Ending::Status(recorded),
        (None, Some(status)) => {
            let mut why = format!("the machine went off without an exit record (QEMU: {status})");
            if !complaints.is_empty() {
                why = format!("{why}\n{complaints}\n  {}", advice(&complaints));
            }
            Ending::Broken(why)
        }
        (None, None) => Ending::Broken(format!("QEMU closed the serial line but went on\n{complaints}")),
    }
}
