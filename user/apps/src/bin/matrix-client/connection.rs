//! One connection: sends requests when they are due, checks answers, takes their times.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use core::ops::Range;

use cops::io::{Read, Result, Write};
use cops::net::{OwnedReadHalf, OwnedWriteHalf, TcpStream};
use cops::task::{self, Priority};
use cops::time::{Duration, Instant, sleep, sleep_until};
use matrix_message::schedule::Schedule;
use matrix_message::workload::Workload;
use matrix_message::{Direction, HEADER_BYTES, HEADER_WORDS, Header, as_bytes, as_bytes_mut};

use crate::options::{Options, Pace};
use crate::tally::Place;

/// What all connections have in common.
pub struct Load {
    workload: Workload,
    pub connections: u32,
    classes: u8,
    pub pace: Pace,
    /// The measured time, since the load began.
    pub window: Range<Duration>,
    pub drain: Duration,
    jitter_seed: Option<u64>,
}

impl Load {
    pub fn new(workload: Workload, options: &Options) -> Self {
        Self {
            workload,
            connections: options.connections,
            classes: options.classes,
            pace: options.pace,
            window: options.warm_up..options.warm_up + options.measured,
            drain: options.drain,
            jitter_seed: options.jitter_seed,
        }
    }

    fn class(&self, index: u32) -> u8 {
        // The remainder is less than the number of classes, which fits.
        (index % u32::from(self.classes)) as u8
    }
}

/// A connection, and how far it is.
pub struct Connection {
    pub index: u32,
    sender: Sender,
    receiver: Receiver,
}

struct Sender {
    load: Arc<Load>,
    index: u32,
    half: OwnedWriteHalf,
    /// Number of the next request.
    next: u64,
    message: Box<[u64]>,
}

struct Receiver {
    load: Arc<Load>,
    index: u32,
    half: OwnedReadHalf,
    /// Number of the next answer.
    next: u64,
    message: Box<[u64]>,
}

impl Connection {
    pub fn new(load: Arc<Load>, index: u32, stream: TcpStream) -> Self {
        let (reader, writer) = stream.into_split();
        let message = || vec![0; load.workload.side().message_words()].into_boxed_slice();
        let (sent, received) = (message(), message());
        Self {
            index,
            sender: Sender { load: load.clone(), index, half: writer, next: 0, message: sent },
            receiver: Receiver { load, index, half: reader, next: 0, message: received },
        }
    }

    pub async fn send(&mut self) -> Result<()> {
        self.sender.send().await
    }

    /// Receives an answer. Returns whether it is right.
    pub async fn receive(&mut self) -> Result<bool> {
        self.receiver.receive().await
    }

    /// Sends and receives until the load is over or the connection fails.
    pub async fn run(self, start: Instant, place: Place) {
        match self.receiver.load.pace {
            Pace::Open(period) => self.run_open(start, period, place).await,
            _ => self.run_closed(start, place).await,
        }
    }

    async fn run_closed(mut self, start: Instant, place: Place) {
        let load = self.receiver.load.clone();
        let mut left = match load.pace {
            Pace::Counted(requests) => requests,
            _ => u64::MAX,
        };
        let is_counted = left != u64::MAX;
        while left > 0 {
            left -= 1;
            if let Pace::Pause(pause) = load.pace {
                sleep(pause).await;
            }
            let sent = start.elapsed();
            if !is_counted && sent >= load.window.end {
                return;
            }
            let is_measured = is_counted || load.window.contains(&sent);
            place.tally(|tally| tally.sent += u64::from(is_measured));
            if self.sender.send().await.is_err() {
                return;
            }
            let Ok(is_right) = self.receiver.receive().await else { return };
            let arrived = start.elapsed();
            let is_in_window = is_counted || load.window.contains(&arrived);
            place
                .tally(|tally| tally.answered(arrived - sent, is_right, is_measured, is_in_window));
        }
    }

    async fn run_open(self, start: Instant, period: Duration, place: Place) {
        let Self { index, mut sender, mut receiver } = self;
        let load = receiver.load.clone();
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
        let schedule = Schedule::new(period_ns, load.connections, load.jitter_seed);
        let due = move |number| Duration::from_nanos(schedule.due_ns(index, number));
        let requests = (0..).take_while(|&number| due(number) < load.window.end);
        let requests = requests.count() as u64;
        let is_measured = |number| load.window.contains(&due(number));
        let measured = (0..requests).filter(|&number| is_measured(number)).count();
        place.tally(|tally| tally.sent = measured as u64);
        // Opening it has used earlier numbers. The sender keeps its half until the last answer has
        // come: otherwise the server would see the end of the connection with the last request, and
        // work for that first.
        let sending = task::spawn_join(
            async move {
                for number in 0..requests {
                    sleep_until(start + due(number)).await;
                    if sender.send().await.is_err() {
                        break;
                    }
                }
                sender
            },
            Priority::MOST_URGENT,
        );
        for number in 0..requests {
            let Ok(is_right) = receiver.receive().await else { return };
            let arrived = start.elapsed();
            let is_in_window = load.window.contains(&arrived);
            let latency = arrived.saturating_sub(due(number));
            place.tally(|tally| {
                tally.answered(latency, is_right, is_measured(number), is_in_window);
            });
        }
        drop(sending);
    }
}

impl Sender {
    async fn send(&mut self) -> Result<()> {
        let workload = &self.load.workload;
        let header = workload.header(self.index, self.load.class(self.index), self.next);
        let (head, body) = self.message.split_at_mut(HEADER_WORDS);
        as_bytes_mut(head).copy_from_slice(&header.encode());
        workload.write_body(self.index, self.next, body);
        self.next += 1;
        self.half.write_all(as_bytes(&self.message)).await
    }
}

impl Receiver {
    async fn receive(&mut self) -> Result<bool> {
        let bytes = as_bytes_mut(&mut self.message);
        let mut received = 0;
        while let Some(rest) = bytes.get_mut(received..).filter(|rest| !rest.is_empty()) {
            match self.half.read(rest).await? {
                0 => return Err(cops::io::Error::Kernel(cops::abi::Errno::ECONNRESET)),
                count => received += count,
            }
        }
        let workload = &self.load.workload;
        let expected = workload.header(self.index, self.load.class(self.index), self.next).answer();
        let header = bytes.get(..HEADER_BYTES).map(|head| Header::parse(head, Direction::Answer));
        let (_, body) = self.message.split_at(HEADER_WORDS);
        let is_right = header == Some(Ok(Some(expected)))
            && workload.check(self.index, self.next, body).is_ok();
        self.next += 1;
        Ok(is_right)
    }
}
