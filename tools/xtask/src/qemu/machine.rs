//! A running QEMU process: starts it, reads its output, sends input, and always ends it.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::command::Boot;
use super::demux::{DLE, Decoder, Event};
use super::version::Qemu;
use crate::error::{Because, Failure, Outcome};
use crate::interrupt;
use crate::process::shown;

/// How long a guest may take to power off after its exit record, or after the request to power off.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(20);
/// How long a request to the kernel waits until the guest has opened its end of the serial line.
const OPEN_LIMIT: Duration = Duration::from_secs(60);

/// A running machine. Dropping it kills QEMU.
#[derive(Debug)]
pub struct Machine {
    child: Child,
    /// Taken by `take_input`.
    input: Option<Input>,
    events: Receiver<Event>,
    /// QEMU's own messages.
    complaints: Option<JoinHandle<String>>,
    _guard: interrupt::Guard,
}

/// The writing end of the serial line.
#[derive(Debug)]
pub struct Input {
    pipe: ChildStdin,
    /// Signals that the guest has opened the line; taken once it has.
    opened: Option<Receiver<()>>,
}

impl Input {
    /// Sends bytes to the guest. First waits until the guest has opened its end, because earlier
    /// input is lost.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if let Some(opened) = self.opened.take() {
            opened.recv().map_err(|_| std::io::ErrorKind::BrokenPipe)?;
        }
        self.pipe.write_all(bytes)?;
        self.pipe.flush()
    }

    /// Waits until the guest has opened its end, at most for `limit`. Returns whether it has.
    fn opens_within(&mut self, limit: Duration) -> bool {
        let is_open = self.opened.as_ref().is_none_or(|opened| opened.recv_timeout(limit).is_ok());
        if is_open {
            self.opened = None;
        }
        is_open
    }
}

/// The next event.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Event(Event),
    /// The serial line is closed: QEMU has ended, or is about to end.
    Closed,
    TimedOut,
}

impl Machine {
    /// Starts QEMU. The system ends it when the calling thread ends.
    pub fn start(qemu: &Qemu, boot: &Boot) -> Outcome<Self> {
        let mut command = qemu.command();
        command.args(boot.arguments());
        if boot.has_slow_harts {
            command.args(qemu.one_instruction_at_a_time());
        }
        Self::start_command(command)
    }

    fn start_command(mut command: Command) -> Outcome<Self> {
        let mut child = command
            // Ctrl-C is for this program: QEMU would end at once, without regard to gdb and the
            // guest.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .because(|| format!("cannot start {}", shown(&command)))?;
        let guard = interrupt::guard(&child);
        let (mut line, mut errors, pipe) =
            match (child.stdout.take(), child.stderr.take(), child.stdin.take()) {
                (Some(line), Some(errors), Some(pipe)) => (line, errors, pipe),
                _ => return Err(Failure::new("QEMU was started without pipes")),
            };
        let (sender, events) = channel();
        let (opener, opened) = channel();
        std::thread::spawn(move || {
            let mut decoder = Decoder::default();
            let mut opener = Some(opener);
            let mut buffer = vec![0; 1 << 16];
            loop {
                let (found, open) = match line.read(&mut buffer) {
                    Ok(length) if length > 0 => (decoder.feed(&buffer[..length]), true),
                    _ => (decoder.finish(), false),
                };
                for event in found {
                    if sender.send(event).is_err() {
                        return;
                    }
                }
                if decoder.is_open()
                    && let Some(opener) = opener.take()
                {
                    // There may be no sender.
                    let _ = opener.send(());
                }
                if !open {
                    return;
                }
            }
        });
        let complaints = std::thread::spawn(move || {
            let mut text = Vec::new();
            // Partial text is better than none.
            let _ = errors.read_to_end(&mut text);
            String::from_utf8_lossy(&text).trim_end().to_owned()
        });
        let input = Some(Input { pipe, opened: Some(opened) });
        Ok(Self { child, input, events, complaints: Some(complaints), _guard: guard })
    }

    /// A shell script as a "QEMU": its output is the serial line.
    #[cfg(test)]
    pub(super) fn of_script(script: &str) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Self::start_command(command).unwrap()
    }

    /// Waits for the next event, at most until `deadline`.
    pub fn next(&self, deadline: Option<Instant>) -> Next {
        let received = match deadline {
            Some(deadline) => {
                self.events.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            }
            None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match received {
            Ok(event) => Next::Event(event),
            Err(RecvTimeoutError::Timeout) => Next::TimedOut,
            Err(RecvTimeoutError::Disconnected) => Next::Closed,
        }
    }

    /// The writing end of the serial line, for another thread.
    pub fn take_input(&mut self) -> Option<Input> {
        self.input.take()
    }

    /// Asks the guest for an orderly power-off.
    pub fn ask_to_power_off(&mut self) {
        self.request(b'q');
    }

    /// Asks the guest to print its counters.
    pub fn ask_for_statistics(&mut self) {
        self.request(b's');
    }

    /// Asks the guest to write its inspection.
    pub fn ask_for_inspection(&mut self) {
        self.request(b'i');
    }

    /// Asks the guest to write its trace.
    pub fn ask_for_trace(&mut self) {
        self.request(b't');
    }

    /// Sends a request to the kernel: DLE and a letter.
    fn request(&mut self, letter: u8) {
        if let Some(input) = &mut self.input
            && input.opens_within(OPEN_LIMIT)
        {
            // A machine that has already ended cannot be asked; nothing is lost.
            let _ = input.send(&[DLE, letter]);
        }
    }

    /// Called after the exit record or the request to power off: waits for QEMU to end, and ends it
    /// if it does not. Returns QEMU's own messages, and its status if it ended by itself.
    pub fn finish(mut self) -> (Option<ExitStatus>, String) {
        let deadline = Instant::now() + POWER_OFF_LIMIT;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5))
                }
                _ => break None,
            }
        };
        self.kill();
        let complaints = self.complaints.take().map(JoinHandle::join);
        (status, complaints.and_then(Result::ok).unwrap_or_default())
    }

    /// Ends QEMU at once, as a loss of power would. What it has written before can still be read.
    pub fn cut_power(&mut self) {
        self.kill();
    }

    /// Both fail only if it has already ended.
    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qemu::demux::Channel;
    use std::path::PathBuf;

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_secs(30))
    }

    #[test]
    fn events_come_in_order_and_the_end_is_seen() {
        let machine = Machine::of_script(r"printf '\020ohi\020x7\n'; echo trouble >&2");
        assert_eq!(
            machine.next(soon()),
            Next::Event(Event::Bytes(Channel::Stdout, b"hi".to_vec()))
        );
        assert_eq!(machine.next(soon()), Next::Event(Event::Ended(7)));
        assert_eq!(machine.next(soon()), Next::Closed);
        let (status, complaints) = machine.finish();
        assert!(status.unwrap().success());
        assert_eq!(complaints, "trouble");
    }

    #[test]
    fn the_guest_reads_what_is_sent() {
        let mut machine = Machine::of_script(r"printf '\020k'; read line; printf '\020o%s' $line");
        machine.take_input().unwrap().send(b"ping\n").unwrap();
        assert_eq!(
            machine.next(soon()),
            Next::Event(Event::Bytes(Channel::Stdout, b"ping".to_vec()))
        );
    }

    #[test]
    fn sending_to_a_guest_that_never_opened_its_end_fails() {
        let mut machine = Machine::of_script("echo banner");
        assert!(machine.take_input().unwrap().send(b"ping\n").is_err());
    }

    #[test]
    fn a_machine_that_is_dropped_is_gone() {
        let machine = Machine::of_script("exec sleep 60");
        let pid = machine.child.id();
        assert_eq!(machine.next(Some(Instant::now() + Duration::from_millis(50))), Next::TimedOut);
        drop(machine);
        assert!(!PathBuf::from(format!("/proc/{pid}")).exists());
    }
}
