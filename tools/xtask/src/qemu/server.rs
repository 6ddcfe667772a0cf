//! A machine that runs a server: starts it on a free port, waits until it listens, passes its
//! output on while clients use it, shuts it down in an orderly way.

use std::time::{Duration, Instant};

use super::command::{Boot, Network};
use super::console::{Ending, PassThrough, Sink, follow, follow_trace};
use super::demux::{Channel, Event};
use super::inspection;
use super::machine::{Machine, Next};
use super::ports::{Forward, free_port};
use super::statistics::Statistics;
use super::version::Qemu;
use crate::error::{Failure, Outcome};
use crate::interrupt;
use crate::trace::dump::Collector;

/// What every server prints to its standard output when it accepts connections.
const READY: &[u8] = b"listening on port";
/// Boot and start take about a second; the limit is for a heavily loaded host.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How long an orderly power-off may take before the machine is killed.
const SHUT_DOWN_LIMIT: Duration = Duration::from_secs(20);
/// How long the kernel may take to print what it is asked for, on a heavily loaded host too.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Interval between two readings of counters that have not reached the expected values.
const STATISTICS_PAUSE: Duration = Duration::from_millis(200);
/// Interval at which other events are checked while the machine is silent.
const LOOK: Duration = Duration::from_millis(20);
/// Number of attempts with another host port, if another process takes the port before QEMU does.
const PORT_ATTEMPTS: u32 = 5;

/// A server that accepts connections.
#[derive(Debug)]
pub struct Server {
    machine: Machine,
    sink: PassThrough,
    /// An inspection that was late and is not waited for any more, as far as it has arrived.
    late: Option<Vec<u8>>,
}

impl Server {
    /// Boots, with a free port of the host's loopback forwarded to `guest_port`, and waits until
    /// the server listens. Also returns the host port.
    pub fn start_on_free_port(
        qemu: &Qemu,
        boot: &Boot,
        guest_port: u16,
        sink: PassThrough,
    ) -> Outcome<(Self, u16)> {
        let mut attempt = 1;
        loop {
            let host = free_port()?;
            let forwarded = Boot {
                network: Network::User(vec![Forward { host, guest: guest_port }]),
                ..boot.clone()
            };
            match Self::start(qemu, &forwarded, sink.clone()) {
                Ok(server) => return Ok((server, host)),
                Err(failure)
                    if attempt < PORT_ATTEMPTS
                        && failure.to_string().contains("host forwarding") =>
                {
                    attempt += 1
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// A shell script as a "QEMU": its output is the serial line.
    #[cfg(test)]
    pub fn of_script(script: &str) -> Self {
        let sink = PassThrough { show_firmware: false, show_stdout: false };
        Self { machine: Machine::of_script(script), sink, late: None }
    }

    /// Boots and waits until the server listens.
    pub fn start(qemu: &Qemu, boot: &Boot, sink: PassThrough) -> Outcome<Self> {
        let (server, is_ready) = Self::start_within(qemu, boot, sink, READY_LIMIT)?;
        if is_ready {
            return Ok(server);
        }
        Err(Failure::new(format!(
            "the server did not say {:?} within {} s",
            String::from_utf8_lossy(READY),
            READY_LIMIT.as_secs()
        ))
        .advise("--verbose shows how far the boot came"))
    }

    /// Boots and waits until the server listens, at most for `limit`. Returns whether it has said
    /// so: one that prints nothing may run all the same.
    pub fn start_within(
        qemu: &Qemu,
        boot: &Boot,
        sink: PassThrough,
        limit: Duration,
    ) -> Outcome<(Self, bool)> {
        let machine = Machine::start(qemu, boot)?;
        Self { machine, sink, late: None }.wait_until_ready(Instant::now() + limit)
    }

    fn wait_until_ready(mut self, deadline: Instant) -> Outcome<(Self, bool)> {
        let mut said = Vec::new();
        loop {
            match self.machine.next(Some(deadline)) {
                Next::Event(Event::Bytes(channel, bytes)) => {
                    self.sink.bytes(channel, &bytes);
                    // Of a kernel that is not COPS, everything counts as the firmware's.
                    if matches!(channel, Channel::Stdout | Channel::Firmware) {
                        said.extend_from_slice(&bytes);
                        if is_ready(&said) {
                            return Ok((self, true));
                        }
                    }
                }
                Next::Event(Event::Ended(status)) => {
                    return Err(Failure::new(format!(
                        "the server ended with status {status} before it listened"
                    )));
                }
                Next::Closed => {
                    let why = match follow(self.machine, None, &mut self.sink) {
                        Ending::Broken(why) => why,
                        ending => format!("{ending:?}"),
                    };
                    return Err(Failure::new(format!("the server never came up: {why}")));
                }
                Next::TimedOut => return Ok((self, false)),
            }
        }
    }

    /// Passes output on until `finished` returns a value; it is called every few milliseconds.
    /// Fails if the machine ends first.
    pub fn attend<T>(&mut self, mut finished: impl FnMut() -> Outcome<Option<T>>) -> Outcome<T> {
        loop {
            if let Some((channel, bytes)) = self.next_output()? {
                self.pass(channel, &bytes);
            }
            if let Some(value) = finished()? {
                return Ok(value);
            }
        }
    }

    /// The next output, if there is some soon. Fails if the machine has ended.
    fn next_output(&self) -> Outcome<Option<(Channel, Vec<u8>)>> {
        match self.machine.next(Some(Instant::now() + LOOK)) {
            Next::Event(Event::Bytes(channel, bytes)) => Ok(Some((channel, bytes))),
            Next::Event(Event::Ended(status)) => {
                Err(Failure::new(format!("the server ended with status {status}")))
            }
            Next::Closed => Err(Failure::new("the machine went off while it was being used")),
            Next::TimedOut => Ok(None),
        }
    }

    /// Passes output on, except for an inspection that is late.
    fn pass(&mut self, channel: Channel, bytes: &[u8]) {
        match &mut self.late {
            Some(picture) if channel == Channel::Inspection => {
                picture.extend_from_slice(bytes);
                if inspection::is_complete(picture) {
                    self.late = None;
                }
            }
            _ => self.sink.bytes(channel, bytes),
        }
    }

    /// The current values of the kernel's counters. Other output is passed on meanwhile.
    pub fn statistics(&mut self) -> Outcome<Statistics> {
        self.machine.ask_for_statistics();
        let deadline = Instant::now() + ANSWER_LIMIT;
        let mut log = String::new();
        loop {
            match self.machine.next(Some(deadline)) {
                Next::Event(Event::Bytes(Channel::Kernel, bytes)) => {
                    log.push_str(&String::from_utf8_lossy(&bytes));
                    while let Some(end) = log.find('\n') {
                        let line: String = log.drain(..=end).collect();
                        if let Some(statistics) = Statistics::parse(&line) {
                            self.sink.bytes(Channel::Kernel, log.as_bytes());
                            return Ok(statistics);
                        }
                        self.sink.bytes(Channel::Kernel, line.as_bytes());
                    }
                }
                Next::Event(Event::Bytes(channel, bytes)) => self.sink.bytes(channel, &bytes),
                other => {
                    return Err(Failure::new(format!(
                        "the kernel did not print its counters ({other:?})"
                    )));
                }
            }
        }
    }

    /// The kernel's counters once `settled` accepts them, or their values at the limit.
    pub fn statistics_when(
        &mut self,
        limit: Duration,
        settled: impl Fn(&Statistics) -> bool,
    ) -> Outcome<Statistics> {
        let deadline = Instant::now() + limit;
        loop {
            let now = self.statistics()?;
            if settled(&now) || Instant::now() >= deadline {
                return Ok(now);
            }
            let again = Instant::now() + STATISTICS_PAUSE;
            self.attend(|| Ok((Instant::now() >= again).then_some(())))?;
        }
    }

    /// The current inspection, as the kernel's lines of text. Other output is passed on meanwhile.
    /// `None`: the kernel has not written it within [`ANSWER_LIMIT`], or a signal has asked this
    /// program to end. Fails if the machine has ended.
    pub fn inspect(&mut self) -> Outcome<Option<String>> {
        self.inspect_within(ANSWER_LIMIT)
    }

    fn inspect_within(&mut self, limit: Duration) -> Outcome<Option<String>> {
        let deadline = Instant::now() + limit;
        let is_over = || Instant::now() >= deadline || interrupt::requested();
        // Two requests may have one answer in common, so there is only one at a time.
        while self.late.is_some() {
            if is_over() {
                // It is lost: without memory the kernel leaves lines out, also the last one.
                self.late = None;
                return Ok(None);
            }
            if let Some((channel, bytes)) = self.next_output()? {
                self.pass(channel, &bytes);
            }
        }
        self.machine.ask_for_inspection();
        let mut picture = Vec::new();
        while !inspection::is_complete(&picture) {
            if is_over() {
                self.late = Some(picture);
                return Ok(None);
            }
            match self.next_output()? {
                Some((Channel::Inspection, bytes)) => picture.extend_from_slice(&bytes),
                Some((channel, bytes)) => self.pass(channel, &bytes),
                None => {}
            }
        }
        Ok(Some(String::from_utf8_lossy(&picture).into_owned()))
    }

    /// What the kernel has traced so far. Other output is passed on meanwhile.
    pub fn trace(&mut self) -> Outcome<Collector> {
        let mut collector = Collector::default();
        follow_trace(&mut self.machine, &mut collector, &mut self.sink)?;
        Ok(collector)
    }

    /// Requests an orderly power-off, and kills the machine if that takes too long.
    pub fn shut_down(mut self) -> Ending {
        self.machine.ask_to_power_off();
        follow(self.machine, Some(Instant::now() + SHUT_DOWN_LIMIT), &mut self.sink)
    }
}

/// Whether a server has said that it listens, to the end of the line: what a command then prints
/// does not come between the parts of that line.
fn is_ready(said: &[u8]) -> bool {
    let found = said.windows(READY.len()).position(|window| window == READY);
    found.is_some_and(|start| said[start..].contains(&b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_is_found_wherever_it_was_cut() {
        assert!(is_ready(b"matrix-server: listening on port 9000\n"));
        assert!(!is_ready(b"\nlistening on"));
        // The line is not yet whole.
        assert!(!is_ready(b"begun\nmatrix-server: listening on port 90"));
    }

    #[test]
    fn a_server_that_prints_nothing_is_not_ready_and_runs() {
        let soon = || Instant::now() + Duration::from_millis(300);
        let silent = Server::of_script(r"printf '\020k'; sleep 1; printf '\020x7\n'; sleep 60");
        let (mut server, is_ready) = silent.wait_until_ready(soon()).unwrap();
        assert!(!is_ready);
        let ended = server.attend(|| Ok(None::<()>)).unwrap_err().to_string();
        assert!(ended.contains("status 7"), "{ended}");

        let later = Instant::now() + Duration::from_secs(60);
        let of = |script: &str| Server::of_script(script).wait_until_ready(later);
        assert!(of(r"printf '\020o'; echo listening on port 7; sleep 60").unwrap().1);
        let ended = of(r"printf '\020x3\n'; sleep 60").unwrap_err().to_string();
        assert!(ended.contains("status 3 before it listened"), "{ended}");
    }

    /// Inspections by a server that runs this script, after a request that it answers too late.
    fn inspections(script: &str) -> impl FnMut(u64) -> Outcome<Option<String>> {
        let request = "request() { dd bs=1 count=2 2>/dev/null >/dev/null; }";
        let mut server = Server::of_script(&format!("{request}\nprintf '\\020k'; {script}"));
        assert_eq!(server.inspect_within(Duration::from_millis(100)).unwrap(), None);
        move |seconds| server.inspect_within(Duration::from_secs(seconds))
    }

    #[test]
    fn a_late_inspection_is_not_taken_for_the_next_one() {
        let mut inspect = inspections(
            r"request; sleep 1; printf '\020istatistics: a=1\n'; printf 'end: now_ticks=1\n'
            request; printf 'statistics: a=2\nend: now_ticks=2\n'
            request; printf '\020x7\n'; sleep 60",
        );
        assert_eq!(inspect(60).unwrap().unwrap(), "statistics: a=2\nend: now_ticks=2\n");
        assert!(inspect(60).unwrap_err().to_string().contains("status 7"));
    }

    #[test]
    fn an_inspection_that_is_lost_does_not_stop_the_next_one() {
        let mut inspect = inspections(
            r"request; request; printf '\020istatistics: a=2\nend: now_ticks=2\n'; sleep 60",
        );
        assert_eq!(inspect(0).unwrap(), None, "it is still late");
        assert!(inspect(60).unwrap().unwrap().contains("a=2"));
    }
}
