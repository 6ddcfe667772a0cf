//! The client: threads and blocking sockets, so that it has nothing in common with what it
//! measures.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::message::{ANSWER_BYTES, Answer, Class, Request};
use super::work::checksum;

/// Requests with known answers.
#[derive(Clone, Debug)]
pub struct Work {
    rounds: u32,
    slices: u32,
    /// Seeds and checksums.
    known: Vec<(u64, u64)>,
}

impl Work {
    /// Requests of `slices` slices of `rounds` rounds.
    pub fn new(rounds: u32, slices: u32) -> Work {
        let seeds = (1..=8_u64).map(|n| n.wrapping_mul(0xd134_2543_de82_ef95));
        Work {
            rounds,
            slices,
            known: seeds.map(|seed| (seed, checksum(seed, rounds, slices))).collect(),
        }
    }

    fn request(&self, number: u64, tag: u64) -> Request {
        let (seed, _) = self.known[number as usize % self.known.len()];
        Request { tag, seed, rounds: self.rounds, slices: self.slices }
    }

    fn is_right(&self, answer: &Answer) -> bool {
        self.known.contains(&(answer.seed, answer.checksum))
    }
}

/// Connections of one class.
pub struct Connections(Vec<TcpStream>);

impl Connections {
    /// Opens so many, and asks something small on each, so that all are being served when this
    /// returns.
    pub fn open(server: SocketAddr, class: Class, count: usize) -> io::Result<Connections> {
        let greeting = Work::new(1, 1);
        let open = |number: usize| {
            let mut stream = TcpStream::connect(server)?;
            stream.set_nodelay(true)?;
            stream.write_all(&[class.to_byte()])?;
            ask(&mut stream, &greeting, number as u64)?;
            Ok(stream)
        };
        (0..count).map(open).collect::<io::Result<_>>().map(Connections)
    }

    fn shut(&self, how: Shutdown) {
        for stream in &self.0 {
            // It may be closed already.
            let _ = stream.shutdown(how);
        }
    }
}

fn receive(stream: &mut TcpStream) -> io::Result<Answer> {
    let mut bytes = [0; ANSWER_BYTES];
    stream.read_exact(&mut bytes)?;
    Ok(Answer::from_bytes(&bytes))
}

fn ask(stream: &mut TcpStream, work: &Work, number: u64) -> io::Result<()> {
    stream.write_all(&work.request(number, number).to_bytes())?;
    let answer = receive(stream)?;
    if answer.tag == number && work.is_right(&answer) { Ok(()) } else { Err(wrong_answer()) }
}

fn wrong_answer() -> io::Error {
    io::Error::other("a wrong answer")
}

/// Answers per second while there is always a request on every connection: what the server can do.
pub fn capacity(
    connections: &Connections,
    work: &Work,
    settle: Duration,
    measured: Duration,
) -> io::Result<f64> {
    let (counting, stop, answers) =
        (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let clients: Vec<_> = connections
            .0
            .iter()
            .map(|stream| {
                let mut stream = stream.try_clone()?;
                let (counting, stop, answers) = (&counting, &stop, &answers);
                Ok(scope.spawn(move || {
                    for number in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        ask(&mut stream, work, number)?;
                        if counting.load(Ordering::Relaxed) {
                            answers.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    io::Result::Ok(())
                }))
            })
            .collect::<io::Result<_>>()?;
        thread::sleep(settle);
        counting.store(true, Ordering::Relaxed);
        let start = Instant::now();
        thread::sleep(measured);
        counting.store(false, Ordering::Relaxed);
        let per_second = answers.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap_or_else(|_| Err(io::Error::other("a client panicked")))?;
        }
        Ok(per_second)
    })
}

/// Requests at times that do not depend on the answers.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// On all connections together, on average; the times between are exponentially distributed.
    pub per_second: f64,
    /// Sent, but not counted.
    pub settle: Duration,
    /// Sent and counted.
    pub measured: Duration,
    /// Longest wait for answers after that.
    pub patience: Duration,
}

/// What became of the requests of a schedule.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Requests sent in the measured time.
    pub sent: u64,
    /// Those of them that were answered, however late.
    pub answered: u64,
    /// Wrong answers.
    pub wrong: u64,
    /// Answers, to whatever request, that came in the measured time, per second.
    pub answers_per_second: f64,
    /// From the time at which a request was to be sent to its answer, in nanoseconds, ascending.
    /// One that was not answered counts with the time waited.
    pub latencies_ns: Vec<u64>,
}

impl Outcome {
    /// Adds those of another run.
    pub fn merge(&mut self, other: Outcome, runs_before: u32) {
        let runs = f64::from(runs_before);
        self.sent += other.sent;
        self.answered += other.answered;
        self.wrong += other.wrong;
        self.answers_per_second =
            (self.answers_per_second * runs + other.answers_per_second) / (runs + 1.0);
        self.latencies_ns.extend(other.latencies_ns);
        self.latencies_ns.sort_unstable();
    }

    /// The least latency that `share` of the requests do not exceed, in microseconds.
    pub fn percentile_us(&self, share: f64) -> f64 {
        let count = self.latencies_ns.len();
        let rank = ((count as f64 * share - 1e-6).ceil() as usize).clamp(1, count.max(1));
        self.latencies_ns.get(rank - 1).map_or(0.0, |&latency_ns| latency_ns as f64 / 1e3)
    }

    /// Their mean, in microseconds.
    pub fn mean_us(&self) -> f64 {
        let sum: u64 = self.latencies_ns.iter().sum();
        sum as f64 / self.latencies_ns.len().max(1) as f64 / 1e3
    }
}

/// What happens at the end of the measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Wait for the answers.
    Wait,
    /// Go away: the backlog is never worked off.
    Leave,
}

/// Sends by the schedule, counted from `epoch`, on these connections in turn. Uses them up.
pub fn open_loop(
    connections: Connections,
    work: &Work,
    schedule: Schedule,
    epoch: Instant,
    end: End,
) -> io::Result<Outcome> {
    let from_ns = schedule.settle.as_nanos() as u64;
    let until_ns = from_ns + schedule.measured.as_nanos() as u64;
    thread::scope(|scope| {
        let readers: Vec<_> = connections
            .0
            .iter()
            .map(|stream| {
                let mut stream = stream.try_clone()?;
                Ok(scope.spawn(move || {
                    let (mut outcome, mut in_time) = (Outcome::default(), 0_u64);
                    // Ends when the server has answered all and closes, or when this side has shut.
                    while let Ok(answer) = receive(&mut stream) {
                        let now_ns = epoch.elapsed().as_nanos() as u64;
                        outcome.wrong += u64::from(!work.is_right(&answer));
                        in_time += u64::from((from_ns..until_ns).contains(&now_ns));
                        if (from_ns..until_ns).contains(&answer.tag) {
                            outcome.answered += 1;
                            outcome.latencies_ns.push(now_ns.saturating_sub(answer.tag));
                        }
                    }
                    (outcome, in_time)
                }))
            })
            .collect::<io::Result<_>>()?;

        let sent = send(&connections, work, schedule, epoch, from_ns..until_ns)?;
        if end == End::Wait {
            // The server reads the end of the stream after all requests.
            connections.shut(Shutdown::Write);
            let patient_until = Instant::now() + schedule.patience;
            while readers.iter().any(|reader| !reader.is_finished())
                && Instant::now() < patient_until
            {
                thread::sleep(Duration::from_millis(1));
            }
        }
        connections.shut(Shutdown::Both);

        let mut total = Outcome { sent: sent.len() as u64, ..Outcome::default() };
        let mut in_time = 0;
        for reader in readers {
            let (outcome, count) =
                reader.join().map_err(|_| io::Error::other("a client panicked"))?;
            total.answered += outcome.answered;
            total.wrong += outcome.wrong;
            total.latencies_ns.extend(outcome.latencies_ns);
            in_time += count;
        }
        if end == End::Wait {
            // Which of them were not answered is not known; that they were sent last is the mildest
            // assumption.
            let waited_ns = epoch.elapsed().as_nanos() as u64;
            let missing = (total.sent - total.answered) as usize;
            total
                .latencies_ns
                .extend(sent.iter().rev().take(missing).map(|due_ns| waited_ns - due_ns));
        }
        total.latencies_ns.sort_unstable();
        total.answers_per_second = in_time as f64 / schedule.measured.as_secs_f64();
        Ok(total)
    })
}

/// Sends what is due. Returns when those that count were due.
fn send(
    connections: &Connections,
    work: &Work,
    schedule: Schedule,
    epoch: Instant,
    counted_ns: std::ops::Range<u64>,
) -> io::Result<Vec<u64>> {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let (mut due_ns, mut sent) = (0.0, Vec::new());
    for number in 0_u64.. {
        // xorshift; the same times for all contenders.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let uniform = (random >> 11) as f64 / (1_u64 << 53) as f64;
        due_ns += -(1.0 - uniform).ln() / schedule.per_second * 1e9;
        let tag = due_ns as u64;
        if tag >= counted_ns.end {
            break;
        }
        let due = epoch + Duration::from_nanos(tag);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut stream = &connections.0[number as usize % connections.0.len()];
        stream.write_all(&work.request(number, tag).to_bytes())?;
        if counted_ns.contains(&tag) {
            sent.push(tag);
        }
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_ranks() {
        let outcome = Outcome {
            latencies_ns: (1..=1_000).map(|n| n * 1_000).collect(),
            ..Outcome::default()
        };
        assert_eq!(outcome.percentile_us(0.5), 500.0);
        assert_eq!(outcome.percentile_us(0.99), 990.0);
        assert_eq!(outcome.percentile_us(1.0), 1_000.0);
        assert_eq!(Outcome::default().percentile_us(0.99), 0.0);
    }

    #[test]
    fn only_right_answers_are_right() {
        let work = Work::new(100, 3);
        let request = work.request(5, 9);
        let right = Answer { tag: 9, seed: request.seed, checksum: checksum(request.seed, 100, 3) };
        assert!(work.is_right(&right));
        assert!(!work.is_right(&Answer { checksum: right.checksum ^ 1, ..right }));
        assert!(!work.is_right(&Answer { checksum: checksum(request.seed, 100, 2), ..right }));
    }
}
