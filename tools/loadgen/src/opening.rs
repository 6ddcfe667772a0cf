//! Opens all connections at a limited rate, before any load. A connection counts as open when it
//! has answered one request: with a forwarded port, as in QEMU's user network, a connect succeeds
//! before the guest knows of it. Attempts that are refused, closed or silent are repeated for a
//! limited time, so a client may be started before the server runs.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::arguments::LoadSettings;
use crate::connection::{Answer, Connection, Loss};
use crate::progress::Progress;
use matrix_message::workload::Workload;

/// Maximum number of simultaneous attempts: more would only queue in the server's backlog.
const CONCURRENT_ATTEMPTS: usize = 16;
/// An attempt without an answer for this time is abandoned: a guest that was not listening yet may
/// have dropped a forwarded connection.
const ATTEMPT_TIME: Duration = Duration::from_secs(3);
/// Maximum lateness of the ramp that a burst compensates.
const CATCH_UP: Duration = Duration::from_millis(10);
/// Pause of a connection between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of descriptors for everything that is not a connection.
const OTHER_DESCRIPTORS: u64 = 32;

/// The reason why not all connections could be opened.
#[derive(Debug)]
pub enum OpeningError {
    /// The process may not have this many descriptors.
    DescriptorLimit {
        /// The maximum.
        limit: u64,
    },
    /// The time limit of a connection was exceeded.
    TimedOut {
        /// Its index.
        connection: u32,
        /// Number of connections that were open by then.
        opened: usize,
        /// The result of its last attempt.
        last: String,
    },
    /// The answer to the first request was wrong, so continuing is pointless.
    WrongProduct {
        /// Its index.
        connection: u32,
    },
    /// From the system.
    System(io::Error),
}

impl fmt::Display for OpeningError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DescriptorLimit { limit } => write!(
                formatter,
                "at most {limit} files may be open; raise the limit (ulimit -n) for so many connections"
            ),
            Self::TimedOut { connection, opened, last } => {
                write!(
                    formatter,
                    "connection {connection} did not open in time ({opened} did); last attempt: {last}"
                )
            }
            Self::WrongProduct { connection } => {
                write!(formatter, "connection {connection}: the first answer has a wrong product")
            }
            Self::System(error) => write!(formatter, "{error}"),
        }
    }
}

impl std::error::Error for OpeningError {}

impl From<io::Error> for OpeningError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// The state of one connection.
enum Slot {
    /// May be attempted again from this time on.
    Waiting {
        not_before: Instant,
    },
    /// Connecting, or waiting for its first answer.
    Attempt {
        connection: Connection,
        started: Instant,
    },
    Open(Connection),
}

struct Opening<'a> {
    address: SocketAddr,
    settings: &'a LoadSettings,
    workload: &'a Workload,
    slots: Vec<Slot>,
    /// First attempt of each, and the result of its last one.
    first_attempts: Vec<Option<Instant>>,
    last_failures: Vec<String>,
    /// Slots to be attempted; the pause is the same for all, so their times ascend.
    waiting: VecDeque<u32>,
    attempting: Vec<u32>,
    opened: usize,
}

/// Opens all connections and registers them with `poll`, each with its index as token.
///
/// # Errors
///
/// [`OpeningError`]; connections opened so far are closed.
pub fn open_all(
    poll: &mut Poll,
    address: SocketAddr,
    settings: &LoadSettings,
    workload: &Workload,
    progress: &mut Progress,
) -> Result<Vec<Connection>, OpeningError> {
    raise_descriptor_limit(settings.connections)?;
    let count = settings.connections as usize;
    let now = Instant::now();
    let mut opening = Opening {
        address,
        settings,
        workload,
        slots: (0..count).map(|_| Slot::Waiting { not_before: now }).collect(),
        first_attempts: vec![None; count],
        last_failures: vec!["none was made".into(); count],
        waiting: (0..settings.connections).collect(),
        attempting: Vec::new(),
        opened: 0,
    };
    opening.run(poll, progress)?;
    let open = opening.slots.into_iter().filter_map(|slot| match slot {
        Slot::Open(connection) => Some(connection),
        Slot::Waiting { .. } | Slot::Attempt { .. } => None,
    });
    Ok(open.collect())
}

impl Opening<'_> {
    fn run(&mut self, poll: &mut Poll, progress: &mut Progress) -> Result<(), OpeningError> {
        let mut events = Events::with_capacity(64);
        let mut buffer = vec![0; 64 << 10];
        let pace = Duration::from_secs_f64(1.0 / self.settings.ramp_per_second);
        let mut next_start = Instant::now();
        while self.opened < self.slots.len() {
            let now = Instant::now();
            self.give_up_silent_attempts(now)?;
            while now >= next_start
                && self.attempting.len() < CONCURRENT_ATTEMPTS
                && self.start_one(poll, now)?
            {
                // A short delay is compensated, a long one is not.
                next_start = (next_start + pace).max(now - CATCH_UP);
            }
            let wait = next_start
                .saturating_duration_since(now)
                .clamp(Duration::from_millis(1), PAUSE / 4);
            match poll.poll(&mut events, Some(wait)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                self.handle(event, &mut buffer)?;
            }
            progress
                .show(|| format!("opening connections: {} of {}", self.opened, self.slots.len()));
        }
        Ok(())
    }

    /// Begins the attempt that has waited longest, if its pause is over.
    fn start_one(&mut self, poll: &Poll, now: Instant) -> Result<bool, OpeningError> {
        let Some(&index) = self.waiting.front() else { return Ok(false) };
        let Slot::Waiting { not_before } = self.slots[index as usize] else { return Ok(false) };
        if now < not_before {
            return Ok(false);
        }
        self.waiting.pop_front();
        self.first_attempts[index as usize].get_or_insert(now);
        let stream = match TcpStream::connect(self.address) {
            Ok(stream) => stream,
            Err(error) => return self.fail(index, &error.into(), now).map(|()| true),
        };
        let mut connection =
            Connection::new(index, self.settings.class(index), stream, self.workload);
        let token = Token(index as usize);
        poll.registry().register(
            connection.stream(),
            token,
            Interest::READABLE | Interest::WRITABLE,
        )?;
        // Requests are small and each is waited for, so none may be delayed to be merged.
        let asked = connection.stream().set_nodelay(true).map_err(Loss::from);
        // The request cannot be written yet; it is flushed when the socket becomes writable.
        if let Err(loss) = asked.and_then(|()| connection.request(self.workload)) {
            return self.fail(index, &loss, now).map(|()| true);
        }
        self.slots[index as usize] = Slot::Attempt { connection, started: now };
        self.attempting.push(index);
        Ok(true)
    }

    fn handle(&mut self, event: &mio::event::Event, buffer: &mut [u8]) -> Result<(), OpeningError> {
        let index = event.token().0;
        let (workload, now) = (self.workload, Instant::now());
        let Some(slot) = self.slots.get_mut(index) else { return Ok(()) };
        let (Slot::Attempt { connection, .. } | Slot::Open(connection)) = slot else {
            return Ok(());
        };
        let mut answer = None;
        let result = step(connection, event, workload, buffer, &mut answer);
        if let Some(Answer { wrong_element: Some(_), .. }) = answer {
            return Err(OpeningError::WrongProduct { connection: index as u32 });
        }
        if let Err(loss) = result {
            if matches!(slot, Slot::Open(_)) {
                self.opened -= 1;
            }
            self.attempting.retain(|attempt| *attempt != index as u32);
            return self.fail(index as u32, &loss, now);
        }
        if answer.is_some() && matches!(slot, Slot::Attempt { .. }) {
            let attempt = std::mem::replace(slot, Slot::Waiting { not_before: now });
            if let Slot::Attempt { connection, .. } = attempt {
                *slot = Slot::Open(connection);
                self.opened += 1;
            }
            self.attempting.retain(|attempt| *attempt != index as u32);
        }
        Ok(())
    }

    fn give_up_silent_attempts(&mut self, now: Instant) -> Result<(), OpeningError> {
        let slots = &self.slots;
        let is_silent = |index: &u32| matches!(slots[*index as usize], Slot::Attempt { started, .. } if now > started + ATTEMPT_TIME);
        let silent: Vec<u32> = self.attempting.iter().copied().filter(is_silent).collect();
        self.attempting.retain(|index| !silent.contains(index));
        let loss = Loss::Protocol(format!("no answer within {} s", ATTEMPT_TIME.as_secs()));
        silent.into_iter().try_for_each(|index| self.fail(index, &loss, now))
    }

    /// Closes the attempt and queues the connection for another one, if there is time left.
    fn fail(&mut self, index: u32, loss: &Loss, now: Instant) -> Result<(), OpeningError> {
        let at = index as usize;
        self.slots[at] = Slot::Waiting { not_before: now + PAUSE };
        self.last_failures[at] = loss.to_string();
        let time = Duration::from_secs_f64(self.settings.connect_timeout_seconds);
        if self.first_attempts[at].is_some_and(|first| now + PAUSE > first + time) {
            let last = std::mem::take(&mut self.last_failures[at]);
            return Err(OpeningError::TimedOut { connection: index, opened: self.opened, last });
        }
        self.waiting.push_back(index);
        Ok(())
    }
}

/// Handles an event of a connection during opening.
fn step(
    connection: &mut Connection,
    event: &mio::event::Event,
    workload: &Workload,
    buffer: &mut [u8],
    answer: &mut Option<Answer>,
) -> Result<(), Loss> {
    if let Some(error) = connection.stream().take_error()? {
        return Err(error.into());
    }
    if event.is_writable() {
        connection.flush(workload)?;
    }
    if event.is_readable() {
        connection.receive(workload, buffer, event.is_read_closed(), |received| {
            *answer = Some(received)
        })?;
    }
    Ok(())
}

/// Raises this process's limit of descriptors to what it needs, as far as permitted.
fn raise_descriptor_limit(connections: u32) -> Result<(), OpeningError> {
    let needed = u64::from(connections) + OTHER_DESCRIPTORS;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(maximum) = limit.maximum.filter(|maximum| *maximum < needed) {
        return Err(OpeningError::DescriptorLimit { limit: maximum });
    }
    limit.current = Some(needed);
    setrlimit(Resource::Nofile, limit).map_err(|error| OpeningError::System(error.into()))
}
