//! The event loop of a run: sends requests on schedule, receives answers, measures.
//!
//! # Open loop
//!
//! With `N` connections and period `P`, request number `g` of the whole run is due at `g P / N` and
//! belongs to connection `g mod N`. So every connection sends once per period, the phases are
//! spread evenly, and the next due request needs no search. A request is due whether or not earlier
//! ones were answered. Its latency counts from that time, so neither a stalled server nor a late
//! client can hide (the client's own lateness is reported too).
//!
//! A server that was slow during the warm-up answers what is left of that in the window, and so
//! more than was asked for in it. With `--settle-seconds` the warm-up ends when that is gone, or at
//! that limit; the result says which (`settled`).
//!
//! # Pauses
//!
//! The papers' client: a connection sends again some time after its answer (`--pause-ms`). It is a
//! closed loop in which each connection has its own time for the next request.
//!
//! # Accounting
//!
//! Every request that was due ends in exactly one of: answered correctly, answered wrongly,
//! missing. A lost connection is an error by itself, and all its further requests are missing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;

use mio::{Events, Poll, Token};

use crate::arguments::{LoadSettings, seconds_to_ns};
use crate::clock::{Clock, Timer};
use crate::connection::{Answer, Connection, Loss};
use crate::progress::Progress;
use crate::statistics::{Durations, Statistics};
use matrix_message::workload::Workload;

/// Maximum number of errors that are reported in detail.
const COMPLAINTS: usize = 10;
/// Token of the timer; those of connections are their indexes.
const TIMER: Token = Token(usize::MAX);
/// Number of events taken from the system at once.
const EVENT_BATCH: usize = 256;
/// Maximum number of due requests that are sent before the next event is handled. Without a limit,
/// a client that cannot send as much as is due would send only, and read no answer.
const SENDS_MAX: u64 = 16;
/// The least time between two calls of [`Run::send_due`] that send requests of the schedule. Each
/// wait for the next one sets a timer, which in a virtual machine costs as much as a request: when
/// much was due, the client took the processor from the server for that. How much later a request
/// is sent is part of its latency.
const BETWEEN_SENDS_NS: u64 = 100_000;
/// The part of the window's requests that may be without an answer when it begins.
const BACKLOG_PARTS: u64 = 50;
/// Number of bytes read at once; the answers of all connections pass through this buffer.
const READ_BUFFER_BYTES: usize = 256 << 10;

/// The measurements of a run.
#[derive(Debug)]
pub struct Measurements {
    /// By priority class.
    pub classes: Vec<Statistics>,
    /// How late this client sent due requests; empty for the closed loop.
    pub send_lateness: Durations,
    /// When the last correct answer arrived, since the load began.
    pub last_answer_ns: u64,
    /// When the measuring window began, since the load began.
    pub warm_up_ns: u64,
    /// Whether the backlog of the warm-up was gone when the window began; `None` if the warm-up did
    /// not wait for that.
    pub settled: Option<bool>,
    /// Descriptions of the first errors.
    pub complaints: Vec<String>,
}

/// A connection under load.
struct Loaded {
    connection: Connection,
    /// Number of its first request of this run; opening it has used earlier ones.
    first_request: u64,
    /// When the only outstanding request was sent (closed loop).
    sent_ns: u64,
    previous_latency_ns: Option<u64>,
    is_lost: bool,
}

struct Run<'a> {
    settings: &'a LoadSettings,
    workload: &'a Workload,
    schedule: Schedule,
    clock: Clock,
    loaded: Vec<Loaded>,
    measurements: Measurements,
    /// Number of requests due so far (open loop).
    next_due: u64,
    /// When the next ones are sent at the earliest.
    next_send_ns: u64,
    /// Number of connections that are not lost and have outstanding requests.
    busy: usize,
    /// How long a connection pauses after an answer, if it does.
    pause_ns: Option<u64>,
    /// The pausing connections, and until when they pause.
    pausing: BinaryHeap<Reverse<(u64, usize)>>,
}

/// Runs the load on open connections, which are registered with `poll` under their indexes. Calls
/// `at_end` before it closes them.
///
/// # Errors
///
/// From the system's polling and timers; errors of connections are part of the result.
pub fn run(
    poll: &mut Poll,
    connections: Vec<Connection>,
    settings: &LoadSettings,
    workload: &Workload,
    progress: &mut Progress,
    at_end: impl FnOnce() -> io::Result<()>,
) -> io::Result<Measurements> {
    let mut timer = Timer::new(poll.registry(), TIMER)?;
    let mut run = Run::new(settings, workload, connections);
    run.drive(poll, &mut timer, progress)?;
    at_end()?;
    Ok(run.finish())
}

impl<'a> Run<'a> {
    fn new(
        settings: &'a LoadSettings,
        workload: &'a Workload,
        connections: Vec<Connection>,
    ) -> Self {
        let fresh = |connection: Connection| Loaded {
            first_request: connection.requested(),
            connection,
            sent_ns: 0,
            previous_latency_ns: None,
            is_lost: false,
        };
        Self {
            settings,
            workload,
            schedule: Schedule::new(settings),
            loaded: connections.into_iter().map(fresh).collect(),
            measurements: Measurements {
                classes: (0..settings.classes).map(|_| Statistics::default()).collect(),
                send_lateness: Durations::new(),
                last_answer_ns: 0,
                warm_up_ns: 0,
                settled: None,
                complaints: Vec::new(),
            },
            next_due: 0,
            next_send_ns: 0,
            busy: 0,
            pause_ns: settings.pause_ms.map(|pause_ms| seconds_to_ns(pause_ms / 1e3)),
            pausing: BinaryHeap::new(),
            clock: Clock::start(),
        }
    }

    fn drive(
        &mut self,
        poll: &mut Poll,
        timer: &mut Timer,
        progress: &mut Progress,
    ) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENT_BATCH);
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        let drain_ns = seconds_to_ns(self.settings.drain_seconds);
        if let Some(pause_ns) = self.pause_ns {
            self.pausing.extend((0..self.loaded.len()).map(|index| Reverse((pause_ns, index))));
        } else if self.settings.closed {
            (0..self.loaded.len()).for_each(|index| self.send_closed(index));
        }
        loop {
            // One reading of the clock for both: a client that is not late has sent everything at
            // the end of the window.
            let now_ns = self.clock.now_ns();
            self.send_due(now_ns);
            if self.schedule.is_settling(now_ns) && !self.is_behind(now_ns) {
                self.schedule.settle(now_ns, self.unanswered());
            }
            let window_ns = self.schedule.window_ns.clone();
            let give_up_ns = window_ns.end + drain_ns;
            let is_sent =
                (now_ns >= window_ns.end && self.is_all_sent()) || self.settings.requests.is_some();
            let is_over = now_ns >= give_up_ns || (is_sent && self.busy == 0);
            if is_over || self.loaded.iter().all(|loaded| loaded.is_lost) {
                return Ok(());
            }
            timer.set(
                &self.clock,
                self.schedule
                    .next_wake_ns(self.next_due, now_ns, &window_ns, give_up_ns)
                    .max(if self.settings.waits_for_answers() { 0 } else { self.next_send_ns })
                    .min(self.pausing.peek().map_or(u64::MAX, |Reverse((due_ns, _))| *due_ns)),
            )?;
            match poll.poll(&mut events, None) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in events.iter().filter(|event| event.token() != TIMER) {
                self.handle(event, &mut buffer);
                // A long batch must not make requests late.
                self.send_due(self.clock.now_ns());
            }
            progress.show(|| self.progress_line(now_ns, &window_ns));
        }
    }

    /// Whether this client has still to send what is due.
    fn is_behind(&self, now_ns: u64) -> bool {
        self.schedule.due_ns(self.next_due).is_some_and(|due_ns| due_ns <= now_ns)
    }

    /// Number of requests that are sent and without an answer.
    fn unanswered(&self) -> u64 {
        self.loaded.iter().map(|loaded| loaded.connection.outstanding()).sum()
    }

    /// Whether no request of the schedule remains to be sent.
    fn is_all_sent(&self) -> bool {
        self.settings.waits_for_answers() || self.schedule.due_ns(self.next_due).is_none()
    }

    /// Sends requests that were due at `now_ns`: by the schedule, or after a pause. Of the schedule
    /// at most [`SENDS_MAX`].
    fn send_due(&mut self, now_ns: u64) {
        while let Some(Reverse((due_ns, index))) =
            self.pausing.peek().copied().filter(|Reverse((due_ns, _))| *due_ns <= now_ns)
        {
            self.pausing.pop();
            if due_ns < self.schedule.window_ns.end && !self.loaded[index].is_lost {
                self.measurements.send_lateness.record(self.clock.now_ns().saturating_sub(due_ns));
                self.send_closed(index);
            }
        }
        if self.settings.waits_for_answers() || now_ns < self.next_send_ns {
            return;
        }
        for _ in 0..SENDS_MAX {
            let Some(due_ns) =
                self.schedule.due_ns(self.next_due).filter(|due_ns| *due_ns <= now_ns)
            else {
                return;
            };
            self.measurements.send_lateness.record(self.clock.now_ns().saturating_sub(due_ns));
            let index = (self.next_due % self.loaded.len() as u64) as usize;
            self.next_due += 1;
            self.next_send_ns = now_ns + BETWEEN_SENDS_NS;
            self.request(index, due_ns);
        }
    }

    /// Closed loop: sends the next request unless the window has ended or the count is reached.
    fn send_closed(&mut self, index: usize) {
        let now_ns = self.clock.now_ns();
        if now_ns < self.schedule.window_ns.end && self.unsent(index) > 0 {
            self.loaded[index].sent_ns = now_ns;
            self.request(index, now_ns);
        }
    }

    /// This connection has no outstanding request; `had_one`: it had one before this event.
    fn answered(&mut self, index: usize, had_one: bool) {
        match self.pause_ns {
            Some(pause_ns) if had_one => {
                self.pausing.push(Reverse((self.clock.now_ns() + pause_ns, index)));
            }
            None if self.settings.closed => self.send_closed(index),
            _ => {}
        }
    }

    /// Number of requests that this connection has still to send, if they are counted.
    fn unsent(&self, index: usize) -> u64 {
        let Loaded { connection, first_request, .. } = &self.loaded[index];
        self.settings
            .requests
            .map_or(u64::MAX, |requests| requests - (connection.requested() - first_request))
    }

    fn request(&mut self, index: usize, scheduled_ns: u64) {
        let loaded = &mut self.loaded[index];
        let class = usize::from(loaded.connection.class());
        let statistics = &mut self.measurements.classes[class];
        statistics.sent += u64::from(self.schedule.window_ns.contains(&scheduled_ns));
        if loaded.is_lost {
            statistics.missing += 1;
            return;
        }
        self.busy += usize::from(loaded.connection.outstanding() == 0);
        if let Err(loss) = loaded.connection.request(self.workload) {
            self.lose(index, &loss);
        }
    }

    fn handle(&mut self, event: &mio::event::Event, buffer: &mut [u8]) {
        let index = event.token().0;
        let Some(loaded) = self.loaded.get_mut(index).filter(|loaded| !loaded.is_lost) else {
            return;
        };
        let had_outstanding = loaded.connection.outstanding() > 0;
        let flushed =
            if event.is_writable() { loaded.connection.flush(self.workload) } else { Ok(()) };
        let is_ended = event.is_read_closed() || event.is_error();
        let mut received = Ok(());
        if event.is_readable() || is_ended {
            // Destructured, because the closure below borrows the other fields.
            let Loaded { connection, first_request, sent_ns, previous_latency_ns, .. } = loaded;
            let statistics = &mut self.measurements.classes[usize::from(connection.class())];
            let (complaints, schedule, clock) =
                (&mut self.measurements.complaints, &self.schedule, &self.clock);
            let last_answer_ns = &mut self.measurements.last_answer_ns;
            let closed_ns = self.settings.waits_for_answers().then_some(*sent_ns);
            received = connection.receive(self.workload, buffer, is_ended, |answer: Answer| {
                let arrival_ns = clock.now_ns();
                if let Some(at) = answer.wrong_element {
                    statistics.wrong += 1;
                    complain(complaints, || {
                        format!("connection {index}: wrong product, element {at}")
                    });
                    return;
                }
                *last_answer_ns = arrival_ns;
                let scheduled_ns = closed_ns.unwrap_or_else(|| {
                    schedule.scheduled_ns(index, answer.request - *first_request)
                });
                statistics.record_arrival(arrival_ns, &schedule.window_ns);
                if schedule.window_ns.contains(&scheduled_ns) {
                    let latency_ns = arrival_ns.saturating_sub(scheduled_ns);
                    statistics.record_latency(latency_ns, previous_latency_ns.replace(latency_ns));
                }
            });
        }
        let outstanding = self.loaded[index].connection.outstanding();
        self.busy -= usize::from(had_outstanding && outstanding == 0);
        if let Err(loss) = received.and(flushed) {
            self.lose(index, &loss);
        } else if outstanding == 0 {
            self.answered(index, had_outstanding);
        }
    }

    fn lose(&mut self, index: usize, loss: &Loss) {
        let loaded = &mut self.loaded[index];
        let outstanding = loaded.connection.outstanding();
        loaded.is_lost = true;
        // The server must see the end; dropping the stream here would move the others.
        let _ = loaded.connection.stream().shutdown(std::net::Shutdown::Both);
        self.busy -= usize::from(outstanding > 0);
        let statistics = &mut self.measurements.classes[usize::from(loaded.connection.class())];
        statistics.lost += 1;
        statistics.missing += outstanding;
        complain(&mut self.measurements.complaints, || format!("connection {index}: {loss}"));
    }

    /// Outstanding requests are missing; so are those that were due after all connections were
    /// lost, and those that a count was short of.
    fn finish(mut self) -> Measurements {
        while let Some(due_ns) =
            self.schedule.due_ns(self.next_due).filter(|_| !self.settings.waits_for_answers())
        {
            let index = (self.next_due % self.loaded.len() as u64) as usize;
            self.next_due += 1;
            self.request(index, due_ns);
        }
        for index in (0..self.loaded.len()).filter(|_| self.settings.requests.is_some()) {
            let class = usize::from(self.loaded[index].connection.class());
            let unsent = self.unsent(index);
            self.measurements.classes[class].sent += unsent;
            self.measurements.classes[class].missing += unsent;
        }
        for (index, loaded) in self.loaded.iter().enumerate().filter(|(_, loaded)| !loaded.is_lost)
        {
            let outstanding = loaded.connection.outstanding();
            self.measurements.classes[usize::from(loaded.connection.class())].missing +=
                outstanding;
            if outstanding > 0 {
                complain(&mut self.measurements.complaints, || {
                    format!("connection {index}: {outstanding} requests unanswered")
                });
            }
        }
        self.measurements.warm_up_ns = self.schedule.window_ns.start;
        self.measurements.settled = self.schedule.settled;
        self.measurements
    }

    fn progress_line(&self, now_ns: u64, window_ns: &std::ops::Range<u64>) -> String {
        let phase = match now_ns {
            now if now < window_ns.start => "warming up",
            now if now < window_ns.end => "measuring",
            _ => "waiting for the last answers",
        };
        let classes = &self.measurements.classes;
        let answered: u64 = classes.iter().flat_map(|class| &class.answers_by_interval).sum();
        let errors: u64 = classes.iter().map(Statistics::errors).sum();
        let seconds = now_ns as f64 / 1e9;
        format!(
            "{phase}: {seconds:.1} of {:.1} s, {answered} answers, {errors} errors",
            window_ns.end as f64 / 1e9
        )
    }
}

fn complain(complaints: &mut Vec<String>, complaint: impl FnOnce() -> String) {
    if complaints.len() < COMPLAINTS {
        complaints.push(complaint());
    }
}

/// When each request is due, in nanoseconds since the load began.
#[derive(Clone, Debug)]
struct Schedule {
    connections: u64,
    period_ns: u64,
    /// While the warm-up may end earlier: the latest one.
    window_ns: std::ops::Range<u64>,
    /// From when on the warm-up ends as soon as its backlog is gone, until it has ended.
    settles_from_ns: Option<u64>,
    /// Whether the warm-up has ended because its backlog was gone, if it waits for that.
    settled: Option<bool>,
    closed: bool,
}

impl Schedule {
    fn new(settings: &LoadSettings) -> Self {
        let std::ops::Range { start, end } = settings.window_ns();
        let settle_ns = seconds_to_ns(settings.settle_seconds);
        Self {
            connections: settings.connections.into(),
            period_ns: seconds_to_ns(settings.period_ms / 1e3).max(1),
            window_ns: start + settle_ns..end + settle_ns,
            settles_from_ns: (settle_ns > 0).then_some(start),
            settled: (settle_ns > 0).then_some(false),
            closed: settings.waits_for_answers(),
        }
    }

    /// Whether the warm-up has lasted long enough, and continues because it has left a backlog.
    fn is_settling(&self, now_ns: u64) -> bool {
        self.settles_from_ns.is_some_and(|from_ns| from_ns <= now_ns)
    }

    /// Ends the warm-up now if so few requests are `unanswered` that they do not count beside those
    /// of the window. At the latest it ends by itself.
    fn settle(&mut self, now_ns: u64, unanswered: u64) {
        if now_ns >= self.window_ns.start {
            self.settles_from_ns = None;
            return;
        }
        let length_ns = self.window_ns.end - self.window_ns.start;
        let requests =
            u128::from(length_ns) * u128::from(self.connections) / u128::from(self.period_ns);
        if u128::from(unanswered) <= requests / u128::from(BACKLOG_PARTS) {
            // What is due now has been sent, so it is not of the window.
            self.window_ns = now_ns + 1..now_ns + 1 + length_ns;
            self.settles_from_ns = None;
            self.settled = Some(true);
        }
    }

    /// When request number `number` of the whole run is due; `None` if that is after its end.
    fn due_ns(&self, number: u64) -> Option<u64> {
        let due_ns = u128::from(number) * u128::from(self.period_ns) / u128::from(self.connections);
        u64::try_from(due_ns).ok().filter(|due_ns| *due_ns < self.window_ns.end)
    }

    /// When request `number` of a connection was due.
    fn scheduled_ns(&self, connection: usize, number: u64) -> u64 {
        // It was sent, so it was due within the run.
        self.due_ns(number * self.connections + connection as u64).unwrap_or(self.window_ns.end)
    }

    /// When the loop has work even if nothing arrives.
    fn next_wake_ns(
        &self,
        next_due: u64,
        now_ns: u64,
        window_ns: &std::ops::Range<u64>,
        give_up_ns: u64,
    ) -> u64 {
        let due_ns = if self.closed { None } else { self.due_ns(next_due) };
        let end_ns = if now_ns < window_ns.end { window_ns.end } else { give_up_ns };
        due_ns.unwrap_or(end_ns)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::Arguments;

    fn schedule(line: &str) -> Schedule {
        Schedule::new(
            &Arguments::parse_from(["cops-loadgen"].into_iter().chain(line.split(' '))).load,
        )
    }

    /// Otherwise a client for which the load is too much would read no answers.
    #[test]
    fn a_late_client_sends_a_bounded_number_of_requests_at_once() {
        let line = "cops-loadgen --connections 1 --matrix 1 --period-ms 10 --seconds 1";
        let settings = Arguments::parse_from(line.split(' ')).load;
        let side = matrix_message::Side::new(1).unwrap();
        let workload = Workload::new(matrix_message::Operation::MultiplyU64, side, 1);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        stream.set_nonblocking(true).unwrap();
        let connection = Connection::new(0, 0, mio::net::TcpStream::from_std(stream), &workload);
        let mut run = Run::new(&settings, &workload, vec![connection]);
        // Warm-up and window have 200 requests.
        let end_ns = run.schedule.window_ns.end;
        let mut calls = 0;
        while !run.is_all_sent() {
            let before = run.next_due;
            let now_ns = end_ns + calls * BETWEEN_SENDS_NS;
            run.send_due(now_ns);
            run.send_due(now_ns + BETWEEN_SENDS_NS - 1);
            calls += 1;
            assert!(run.next_due - before <= SENDS_MAX, "{} at once", run.next_due - before);
        }
        assert_eq!((run.next_due, calls), (200, 200_u64.div_ceil(SENDS_MAX)));
    }

    #[test]
    fn the_warm_up_ends_when_its_backlog_is_gone_or_at_its_limit() {
        const SECOND: u64 = 1_000_000_000;
        let line = "--connections 100 --period-ms 100 --seconds 2 --warmup-seconds 1";
        assert!(!schedule(line).is_settling(5 * SECOND), "not asked for");
        let schedule = schedule(&format!("{line} --settle-seconds 3"));
        assert_eq!(schedule.window_ns, 4 * SECOND..6 * SECOND);
        assert!(!schedule.is_settling(SECOND - 1) && schedule.is_settling(SECOND));

        // 2,000 requests in the window.
        let mut early = schedule.clone();
        early.settle(SECOND + 7, 41);
        assert_eq!(early.window_ns, schedule.window_ns);
        early.settle(SECOND + 9, 40);
        assert_eq!(early.window_ns, SECOND + 10..3 * SECOND + 10);
        assert!(!early.is_settling(SECOND + 10));
        assert_eq!(early.settled, Some(true));

        let mut late = schedule.clone();
        late.settle(4 * SECOND, 41);
        assert_eq!(late.window_ns, schedule.window_ns);
        assert!(!late.is_settling(4 * SECOND));
        assert_eq!(late.settled, Some(false));
    }

    #[test]
    fn a_backlog_that_is_left_is_in_the_row() {
        let row_of = |line: &str, settle: fn(&mut Schedule)| {
            let settings =
                Arguments::parse_from(["cops-loadgen"].into_iter().chain(line.split(' '))).load;
            let side = matrix_message::Side::new(1).unwrap();
            let workload = Workload::new(matrix_message::Operation::MultiplyU64, side, 1);
            let mut run = Run::new(&settings, &workload, Vec::new());
            // There are no connections that could lack an answer.
            run.next_due = u64::MAX;
            settle(&mut run.schedule);
            let outcome = crate::outcome::Outcome::new(&settings, &[], &run.finish());
            let json: serde_json::Value = serde_json::from_str(&outcome.to_json()).unwrap();
            ["warm_up_seconds", "settled"].map(|column| json["rows"][0][column].clone())
        };
        let line = "--connections 100 --period-ms 100 --seconds 2 --warmup-seconds 1";
        let settles = format!("{line} --settle-seconds 3");
        let left = row_of(&settles, |schedule| schedule.settle(4_000_000_000, 41));
        assert_eq!(left, [serde_json::Value::from(4.0), false.into()]);
        let gone = row_of(&settles, |schedule| schedule.settle(1_499_999_999, 0));
        assert_eq!(gone, [serde_json::Value::from(1.5), true.into()]);
        let not_asked = row_of(line, |_| ());
        assert_eq!(not_asked, [serde_json::Value::Null, serde_json::Value::Null]);
    }

    #[test]
    fn phases_are_spread_over_the_period() {
        let schedule = schedule("--connections 4 --period-ms 100 --seconds 1 --warmup-seconds 0");
        let first: Vec<_> = (0..5).filter_map(|number| schedule.due_ns(number)).collect();
        assert_eq!(first, [0, 25_000_000, 50_000_000, 75_000_000, 100_000_000]);
        assert_eq!(schedule.scheduled_ns(3, 2), 275_000_000);
        assert_eq!(schedule.due_ns(39), Some(975_000_000));
        assert_eq!(schedule.due_ns(40), None, "40 requests in a second and not one more");
    }

    #[test]
    fn odd_numbers_keep_the_rate_without_drift() {
        let schedule = schedule("--connections 7 --period-ms 33.333 --seconds 3600");
        let last = (0..)
            .step_by(100_000)
            .take_while(|number| schedule.due_ns(*number).is_some())
            .last()
            .unwrap();
        let exact = last as f64 * 33.333e6 / 7.0;
        assert!((schedule.due_ns(last).unwrap() as f64 - exact).abs() < 1e3);
    }
}
